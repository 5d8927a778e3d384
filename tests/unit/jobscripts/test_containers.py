"""How each container runtime is called: the words of all eight, with stand-ins that note them.

Apptainer, Charliecloud and Podman really run on the practice cluster (test_containers_cluster.py). Podman-HPC, Enroot,
Pyxis and Shifter are composed after their manuals and were never run; so what is checked of them is only what is said.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import LIBRARY, job_script
from tests.paths import JOBSCRIPTS
from tests.unit.jobscripts.job import BASH, Job, set_up

pytestmark = pytest.mark.real_time

# Notes its words and what is exported, then runs what stands behind the image, as a container would.
STAND_IN = """#!/bin/bash
case " $* " in
  *" --help "*) printf '%s\\n' --container-image --write-fake; exit ;;
  *" image exists no:image "*) exit 1 ;;
  *" image exists "* | *" rm --force "*) exit 0 ;;
esac
for word; do printf '%s\\0' "$word"; done >"$HOME/words"
env -0 >"$HOME/environment"
while (($#)); do
  if [[ $1 == /bin/bash ]]; then HOME=/nowhere; cd /; umask 077; exec "$@"; fi
  shift
done
"""
INSIDE = """#!/bin/bash
printf '%s\\n' "$HOME" "$PWD" "$(umask)" "${NBL_HOME-}${NBL_FOLDER-}${NBL_UMASK-}" >"$NBL_SESSION_DIR/seen"
exit 0
"""
NASTY = "it's $(touch ran) `touch ran`; touch ran &"
NASTY_WITHOUT_SPACES = "it's$(touch${IFS}ran)&"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    job.tool("jupyter-lab", INSIDE)
    job.in_a_scheduler()
    yield job
    job.end()


def called(job: Job, command: str, *lines: str, image: str = "") -> list[str]:
    """Enter a container whose command is a stand-in, as a job does; return the words it was called with, up to bash."""
    job.tool({"charliecloud": "ch-run", "pyxis": "srun"}.get(command, command), STAND_IN)
    asked = (f"container={image or job.work}", f"container_command={command}", *lines)
    failed, _ = set_up(job, *asked, then='"${into_container[@]}" /bin/bash -c :')
    assert failed == "", job.log.read_text()
    words = (job.home / "words").read_text().split("\0")
    assert not list(job.root.rglob("ran")), "nothing of what was written was run"
    return words[: words.index("/bin/bash")]


def environment(job: Job) -> dict[str, str]:
    pairs = (job.home / "environment").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def pairs_of(words: list[str], flag: str) -> list[str]:
    return [after for word, after in itertools.pairwise(words) if word == flag]


def data(job: Job, name: str = NASTY) -> Path:
    place = job.root / name
    place.mkdir()
    return place


def test_apptainer_and_singularity(job: Job) -> None:
    place = data(job)
    words = called(job, "singularity", f"bind={place}:/data:ro", "gpu=nvidia", image=str(job.work))
    assert words == ["exec", "--nv", "--bind", str(job.dir), "--bind", f"{place}:/data:ro", "--pwd", str(job.work),
                     str(job.work)]  # fmt: skip


def test_charliecloud(job: Job) -> None:
    place = data(job)
    (job.work / "ch").mkdir()
    (job.work / "ch" / "environment").touch()
    words = called(job, "charliecloud", f"bind={place}:/data")
    assert "--set-env" in words and "--write-fake" in words
    assert f"{place}:/data" in pairs_of(words, "--bind")
    assert words[-2:] == [str(job.work), "--"]
    assert environment(job)["USER"]


@pytest.mark.parametrize("command", ["podman", "podman-hpc"])
def test_podman(job: Job, command: str) -> None:
    place = data(job)
    words = called(job, command, f"bind={place}:/data:ro", f"setenv=MINE={NASTY}", "gpu=nvidia", image="a.b/c:1")
    assert words[words.index("run")] == "run"
    assert words[-1] == "a.b/c:1"
    assert f"{place}:/data:ro" in pairs_of(words, "--volume")
    assert {"--rm", "--userns=keep-id", "--network=host", "--pull=never"} <= set(words)
    assert ("--gpu" in words) == (command == "podman-hpc")
    assert ("nvidia.com/gpu=all" in words) == (command == "podman")
    names = pairs_of(words, "--env")
    assert "MINE" in names and not {"PATH", "LD_LIBRARY_PATH"} & set(names)
    assert NASTY not in words, "values go by the environment, and not in the arguments"
    assert environment(job)["MINE"] == NASTY


def test_podman_fetches_an_address_and_runs_a_directory(job: Job) -> None:
    assert "--pull=never" not in called(job, "podman", image="docker://a.b/c:1")
    words = called(job, "podman", image=str(job.work))
    assert words[-2:] == ["--rootfs", f"{job.work}:O"]


def test_enroot(job: Job) -> None:
    place = data(job, NASTY_WITHOUT_SPACES)
    image = job.root / "an image.sqsh"
    image.touch()
    words = called(job, "enroot", f"bind={place}:/data:ro", "setenv=MINE=1", "gpu=nvidia", image=str(image))
    assert (words[0], words[-1]) == ("start", str(image))
    (rc,) = pairs_of(words, "--rc")
    assert Path(rc).read_text() == 'exec "$@"\n', "in place of the image's entrypoint"
    assert f"{place}:/data:x-create=auto,rbind,ro" in pairs_of(words, "--mount")
    assert "MINE" in pairs_of(words, "--env")
    assert environment(job)["NVIDIA_VISIBLE_DEVICES"] == "all"


@pytest.mark.parametrize(
    ("image", "written"),
    [
        ("docker://nvcr.io/nvidia/x:1", "nvcr.io#nvidia/x:1"),
        ("docker://docker.io/library/x:1", "library/x:1"),
        ("nvcr.io#x:1", "nvcr.io#x:1"),
        ("x:1", "x:1"),
        ("a.sqsh", "WORK/a.sqsh"),
    ],
)
def test_pyxis(job: Job, image: str, written: str) -> None:
    place = data(job, NASTY_WITHOUT_SPACES)
    (job.work / "a.sqsh").touch()
    job.env |= {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    words = called(job, "pyxis", f"bind={place}:/data:ro", "gpu=none", image=image)
    assert {"--overlap", "--ntasks=1", "--nodelist=n1", "--mpi=none", "--cpu-bind=none", "--quiet"} <= set(words)
    assert f"--container-image={written.replace('WORK', str(job.work))}" in words
    mounts = next(word for word in words if word.startswith("--container-mounts="))
    assert f"{place}:/data:ro" in mounts.partition("=")[2].split(",")
    assert environment(job)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_shifter(job: Job) -> None:
    place = data(job)
    words = called(job, "shifter", f"bind={place}:/data:rw", "gpu=nvidia", image="docker://a/b:1")
    assert words == ["--image=docker:a/b:1", "--module=gpu", f"--volume={place}:/data",
                     f"--volume={job.dir}:{job.dir}", f"--workdir={job.work}", "--"]  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "own"),
    [("/usr/share", True), ("/run", True), ("/var", True), ("/", True)]
    + [(folder, False) for folder in ("/runs/me", "/usr2/home", "/optics", "/var/lib/me", "/home/me")],
)
def test_what_every_image_has_itself(folder: str, own: bool) -> None:
    """A working directory there is not shown; one with a like name is."""
    code = 'source "$0/containers.sh"; is_in_every_image "$1"'
    assert (subprocess.run([BASH, "-c", code, str(JOBSCRIPTS / "lib"), folder]).returncode == 0) == own


@pytest.mark.parametrize("command", ["podman", "enroot"])
def test_what_the_door_takes_away_is_put_back_and_the_token_goes_its_own_way(job: Job, command: str) -> None:
    job.tool(command, STAND_IN)
    job.ask(f"container={'x:1' if command == 'podman' else job.work}", f"container_command={command}")
    assert job.run()["cause"] == "finished", job.log.read_text()
    assert (job.dir / "seen").read_text().splitlines() == [str(job.home), str(job.work), "0027", ""]
    told = (job.home / "words").read_text() + (job.home / "environment").read_text()
    assert (job.dir / "token").read_text() not in told


# ------------------------------------------------------------------------------------- which runtime, and what is wrong


@pytest.mark.parametrize(
    ("image", "there", "found"),
    [
        ("a.sif", ["singularity", "podman", "ch-run"], "singularity"),
        ("folder", ["ch-run", "podman"], "ch-run"),
        ("folder", ["apptainer", "ch-run"], "apptainer"),
        ("a.sqsh", ["enroot", "podman"], "enroot"),
        ("docker://x", ["podman", "shifter"], "podman"),
        ("x:1", ["apptainer", "podman"], "podman"),
        ("x:1", ["shifter"], "shifter"),
    ],
)
def test_the_runtime_that_suits_the_image(job: Job, image: str, there: list[str], found: str) -> None:
    (job.work / "folder").mkdir()
    for name in ("a.sif", "a.sqsh"):
        (job.work / name).touch()
    job.env["PATH"] = str(job.bin)
    code = 'fail() { echo "$1"; exit; }; source "$0/lib.sh"; read_settings "$1"; find_container_command; echo "${container_command##*/}"'  # noqa: E501
    for name in there:
        job.tool(name, STAND_IN)
    job.ask(f"container={image}")
    argv = ["/bin/bash", "-c", code, str(JOBSCRIPTS / "lib"), str(job.dir / "session.env")]
    done = subprocess.run(argv, cwd=job.work, env=job.env, capture_output=True, text=True)
    assert done.stdout.strip() == found, done.stderr


@pytest.mark.parametrize(
    ("lines", "cause", "words"),
    [
        (["container=/not/there.sif"], "image-missing", "/not/there.sif"),
        (["container=/not/there", "container_command=charliecloud"], "image-missing", "/not/there"),
        (["container=no:image", "container_command=podman"], "image-missing", "podman pull no:image"),
        (["container=no:image", "container_command=apptainer"], "image-missing", "docker://no:image"),
        (["container=x:1", "container_command=shifter"], "container-command-missing", "no shifter"),
        (["container=x:1", "container_command=podman", "bind=/not/there:/x"], "bind-missing", "/not/there"),
        (
            ["container=/dev/null", "container_command=enroot", "bind=/etc:/a b"],
            "bind-missing",
            "enroot cannot be given",
        ),
        (["container=x:1", "container_command=pyxis"], "container-command-missing", "Pyxis"),
    ],
)
def test_what_is_missing_is_named(job: Job, lines: list[str], cause: str, words: str) -> None:
    for name in ("podman", "apptainer", "ch-run", "enroot", "srun"):
        job.tool(name, STAND_IN)
    named, _, sentence = set_up(job, *lines)[0].partition(" ")
    assert named == cause
    assert words in sentence


# ------------------------------------------------------------------------------------------ uv, mamba, micromamba


def make_venv(place: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "activate").write_text(f"export VIRTUAL_ENV={place}; PATH={place}/bin:$PATH\n")
    (place / "bin" / "python").symlink_to("/bin/true")
    return place


ACTIVE = 'echo "$VIRTUAL_ENV"'


def test_a_uv_project(job: Job) -> None:
    project = job.work / "project"
    venv = make_venv(project / ".venv")
    assert set_up(job, f"uv={project}", then=ACTIVE) == ("", f"{venv}\n")
    failed, _ = set_up(job, f"uv={job.work}")
    assert failed.startswith("venv-missing ") and f"make it with: uv sync --project {job.work}" in failed


def test_micromamba_has_no_conda_sh(job: Job) -> None:
    """What ``conda activate`` does for an environment is done without it: its variables, and then its scripts."""
    prefix = job.root / "mamba root" / "envs" / "course"
    variables = {"A": "from $HOME;\nthe yml", "GONE": "***unset***", "not a name; touch pwned": "x", "NUMBER": 1}
    for name, text in {
        "conda-meta/state": json.dumps({"env_vars": variables}),
        "etc/conda/env_vars.d/a-package.json": '{"A": "of a package", "B": "of a package"}',
        "etc/conda/env_vars.d/broken.json": "[",
        "etc/conda/activate.d/x.sh": 'export C="$B, and $CONDA_DEFAULT_ENV"',
    }.items():
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text(text)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    job.env["MAMBA_ROOT_PREFIX"] = str(job.root / "mamba root")
    shown = set_up(job, "conda=course", then='echo "$CONDA_PREFIX|${PATH%%:*}|$A|$B|$C|${GONE-}|${NUMBER-}"')
    own = "from $HOME;\nthe yml|of a package|of a package, and course||"
    assert shown == ("", f"{prefix}|{prefix}/bin|{own}\n")
    assert not (job.work / "pwned").exists()


def conda_environment(job: Job, own: str, *, python: bool = True) -> Path:
    prefix = job.home / "micromamba" / "envs" / "course"
    for name, text in {"conda-meta/state": own, "etc/conda/activate.d/x.sh": "export SCRIPT=ran root=mine"}.items():
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text(text)
    (prefix / "bin").mkdir()
    if python:
        (prefix / "bin" / "python").symlink_to(sys.executable)
    return prefix


def test_the_variables_of_a_conda_environment_may_have_any_name(job: Job) -> None:
    names = ("prefix", "root", "script", "variable", "prefixes", "name", "line")
    conda_environment(job, json.dumps({"env_vars": dict.fromkeys(names, "x")}))
    wanted = "|".join(names)
    shown = set_up(job, "conda=course", then=f'env | grep -E "^(SCRIPT|{wanted})=" | sort')
    own = sorted([f"{name}={'mine' if name == 'root' else 'x'}" for name in names])
    assert shown == ("", "\n".join(["SCRIPT=ran", *own, ""]))


@pytest.mark.parametrize("broken", ['["not", "variables"]', '{"BAD": "\\ud800"}', "["])
def test_a_variable_of_conda_that_cannot_be_set_is_told_and_the_others_are_set(job: Job, broken: str) -> None:
    prefix = conda_environment(job, json.dumps({"env_vars": {"A": "\u00e9"}}))
    (prefix / "etc/conda/env_vars.d").mkdir()
    (prefix / "etc/conda/env_vars.d/package.json").write_text(broken)
    assert set_up(job, "conda=course", then='echo "$A|$SCRIPT|${BAD-}"') == ("", "\u00e9|ran|\n")
    assert "conda: " in job.log.read_text()
    assert ("BAD" if "BAD" in broken else "package.json") in job.log.read_text()


def test_a_conda_environment_without_python_has_variables_too(job: Job) -> None:
    conda_environment(job, '{"env_vars": {"A": "a"}}', python=False)
    assert set_up(job, "conda=course", then='echo "$A|$SCRIPT"') == ("", "a|ran\n")


def test_where_the_variables_of_a_conda_environment_cannot_be_read_the_log_says_so(job: Job) -> None:
    prefix = conda_environment(job, '{"env_vars": {"A": "a"}}', python=False)
    (prefix / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (prefix / "bin" / "python").chmod(0o755)
    assert set_up(job, "conda=course", then='echo "${A-}|$SCRIPT"') == ("", "|ran\n")
    assert f"the variables of the conda environment {prefix} are not all set" in job.log.read_text()


@pytest.mark.parametrize("base", ["miniforge3", "micromamba"])
def test_conda_in_the_home(job: Job, base: str) -> None:
    script = job.home / base / "etc" / "profile.d" / "conda.sh"
    script.parent.mkdir(parents=True)
    script.write_text('conda() { echo "$*"; }\n')
    assert set_up(job, "conda=course") == ("", "activate course\n")


def test_modules_then_a_venv(job: Job) -> None:
    """The module's programs are there, and the virtual environment goes first."""
    job.tool("lmod", "#!/bin/bash\n")
    venv = make_venv(job.work / "venv")
    init = job.root / "lmod" / "init"
    init.mkdir(parents=True)
    (init / "bash").write_text('export MODULEPATH=/x; module() { echo "$*"; LOADEDMODULES+=:$2; PATH=/of-$2:$PATH; }\n')
    job.env["LMOD_PKG"] = str(job.root / "lmod")
    failed, said = set_up(job, "module=2025", "module=Python/3.12", f"venv={venv}", then=f"{ACTIVE}; echo $PATH")
    *modules, active, path = said.splitlines()
    assert (failed, modules, active) == ("", ["load 2025", "load Python/3.12"], str(venv)), "in this order"
    assert path.startswith(f"{venv}/bin:/of-Python/3.12:/of-2025:")


def test_a_container_with_a_venv_inside(job: Job) -> None:
    venv = make_venv(job.work / "inside")
    (venv / "bin" / "jupyter-lab").write_text(f"#!/bin/bash\n{ACTIVE} >{job.root}/active\n")
    (venv / "bin" / "jupyter-lab").chmod(0o755)
    job.tool("ch-run", STAND_IN)
    job.ask(f"container={job.work}", "container_command=charliecloud", f"venv={venv}")
    assert job.run()["cause"] == "finished"
    assert (job.root / "active").read_text().strip() == str(venv)


def test_by_hand_with_the_scripts_alone(job: Job) -> None:
    """What docs/job-script.md says: the files of jobscripts/ are enough, wherever they lie."""
    job.ask("uv=/not/there")
    done = subprocess.run([BASH, str(job_script("jupyterlab.sh")), str(job.dir)], cwd=job.work, env=job.env,
                          capture_output=True, text=True, timeout=30)  # fmt: skip
    assert done.returncode == 1
    assert json.loads((job.dir / "exit.json").read_text())["cause"] == "venv-missing"
    assert set(LIBRARY) <= {path.name for path in job.dir.iterdir()}


def test_a_conda_environment_is_looked_for_inside_the_image_and_the_message_says_so(job: Job) -> None:
    job.tool("ch-run", STAND_IN)
    job.ask(f"container={job.work}", "container_command=charliecloud", "conda=other")
    report = job.run()
    assert report["cause"] == "conda-missing"
    assert f"could not be activated inside the image {job.work}, where it is looked for" in report["message"]
