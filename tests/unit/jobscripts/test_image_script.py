"""Environments and images without a cluster: what is said of them, the definition files, the scripts in real bash."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core.errors import EnvironmentUnknown, ProfileError, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.request import Request
from notebook_launcher.environments.create import (
    Creation,
    _files,
    _with_environment,
    export_environment,
    export_folder,
    how,
    list_environments,
    show_environment,
)
from notebook_launcher.environments.images import build_recipe, definitions, last_word, pull_recipe
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Ask, Place, Plan
from notebook_launcher.profiles import ClusterProfile, Environment, load_profile
from notebook_launcher.profiles.edit import checked_text, keep_profile
from notebook_launcher.session.preflight import how_to_add_jupyterlab, lacks_jupyterlab
from notebook_launcher.session.record import look_at
from tests.practice_cluster.bundled_images import REQUIREMENTS, definition_here

JOBSCRIPTS = Path(__file__).parent.parent / "jobscripts"
CONTAINERS = JOBSCRIPTS / "containers"
PROFILE = """\
# a comment of mine
host = "login"
image_dir = "/images"
environment = "tf-mkl"

[environments.tf-mkl]
description = "with oneDNN"
container = "tf.sif"
venv = "/opt/envs/tf-mkl"
source = "docker://example/tf:2"
definition = "tensorflow"

[environments.own]
modules = ["Anaconda3"]
conda = "mine"
"""


class Seen:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def listen(self, inbox: object) -> None: ...


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    path = tmp_path / "clusters" / "uni.toml"
    path.parent.mkdir()
    path.write_text(PROFILE)
    return path


def place() -> Place:
    return Place(load_profile("uni"), "uni", None, "slurm")


# --- environments ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("profile")
def test_the_environments_of_a_profile_are_listed() -> None:
    view = Seen()
    list_environments(place(), view)
    (event,) = view.events
    assert isinstance(event, events.EnvironmentsListed)
    assert [(seen.environment, seen.chosen) for seen in event.environments] == [("tf-mkl", True), ("own", False)]
    assert event.environments[0].how == "container /images/tf.sif + venv /opt/envs/tf-mkl"
    assert event.environments[1].how == "modules Anaconda3 + conda mine"


def test_an_environment_is_shown_with_the_file_and_line_it_comes_from(profile: Path) -> None:
    view = Seen()
    show_environment(Ask(cluster="uni", words=("tf-mkl",)), view)
    (event,) = view.events
    assert isinstance(event, events.EnvironmentShown)
    assert event.layers == (f"{profile}:6",)
    assert "container=/images/tf.sif\n" in event.session_env
    assert "venv=/opt/envs/tf-mkl\n" in event.session_env
    assert any("No digest" in note for note in event.notes)


@pytest.mark.usefixtures("profile")
def test_an_unknown_environment_is_told_with_the_nearest_one() -> None:
    with pytest.raises(EnvironmentUnknown, match="tf-mkk") as error:
        show_environment(Ask(cluster="uni", words=("tf-mkk",)), Seen())
    assert "tf-mkl" in error.value.mend


def test_a_plain_environment_is_the_nodes_own() -> None:
    assert how(Environment(), Place(ClusterProfile(), None, None, "slurm")) == "JupyterLab as the node has it"


@pytest.mark.parametrize(
    ("environment", "container", "words"),
    [
        (Environment(venv="/v"), None, "/v/bin/python -m pip install jupyterlab"),
        (Environment(conda="mine"), None, "conda install -n mine "),
        (Environment(conda="/c/mine"), None, "conda install -p /c/mine "),
        (Environment(), "/i.sif", "From: /i.sif"),
        (Environment(modules=("Python",)), None, "module spider"),
        (Environment(), None, "--venv ~/lab"),
    ],
)
def test_the_way_to_add_jupyterlab_is_that_of_the_environment(
    environment: Environment, container: str | None, words: str
) -> None:
    assert words in how_to_add_jupyterlab(environment, container)


def test_a_virtual_environment_without_jupyterlab_is_told_before_the_queue(tmp_path: Path) -> None:
    host = LocalHost()
    site = look_at(host)

    def told(environment: Environment, container: str | None = None) -> str | None:
        return lacks_jupyterlab(host, site, environment, container)

    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    sentence = told(Environment(venv=str(bare)))
    assert sentence is not None
    assert f"no JupyterLab in {bare}" in sentence
    assert f"{bare}/bin/python -m pip install jupyterlab" in sentence
    assert told(Environment(venv=sys.prefix)) is None
    assert told(Environment(venv=str(tmp_path / "not-there"))) is None
    assert told(Environment(venv=str(bare)), "/image.sif") is None
    assert told(Environment(venv=str(bare), modules=("Jupyter",))) is None
    (bare / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    assert told(Environment(venv=str(bare))) is None


def test_a_made_environment_joins_the_profile_and_leaves_the_rest_as_it_is(profile: Path) -> None:
    plan = Plan(place(), Request({}), None, Environment(modules=("Python/3.11",)), None)
    made_of = Creation(Path("requirements.txt"), "course", venv="~/c")
    keep_profile("uni", _with_environment("uni", plan, made_of, "/home/a/c"))
    text = profile.read_text()
    assert text.startswith(PROFILE)
    made = load_profile("uni").environments["course"]
    assert (made.venv, made.modules) == ("/home/a/c", ("Python/3.11",))


def test_a_made_environment_of_a_bundled_profile_gets_a_file_that_stands_on_it(profile: Path) -> None:
    own = profile.with_name("generic.toml")
    plan = Plan(Place(load_profile("generic"), "generic", None, "slurm"), Request({}), None, Environment(), None)
    keep_profile("generic", _with_environment("generic", plan, Creation(Path("environment.yml"), "course"), "course"))
    assert 'base = "generic"' in own.read_text()
    assert load_profile("generic").environments["course"].conda == "course"


@pytest.mark.usefixtures("profile")
def test_what_a_profile_cannot_hold_is_told_before_anything_is_made() -> None:
    plan = Plan(place(), Request({}), None, Environment(), None)
    with pytest.raises(ProfileError):
        checked_text("uni", _with_environment("uni", plan, Creation(Path("requirements.txt"), "course"), "/a\nb"))


def test_an_environment_is_written_down_in_a_folder_of_ours(tmp_path: Path) -> None:
    assert str(export_folder("../../x")) == "x"
    assert str(export_folder("odd/one")) == "odd-one"
    assert str(export_folder("..")) == str(export_folder(None)) == "environment"
    (tmp_path / "file").touch()
    plan = Plan(Place(ClusterProfile(), None, None, "slurm"), Request({}), None, Environment(), None)
    with pytest.raises(UsageError, match="is no folder"):
        export_environment(plan, tmp_path / "file", Seen(), None, None)  # type: ignore[arg-type]


def test_versions_that_are_in_an_index_of_their_own_are_told() -> None:
    plan = Plan(Place(ClusterProfile(), None, None, "slurm"), Request({}), "t", Environment(), None)
    files = _files(plan, {"python": "3.13.5", "packages": ["torch==2.13.0+cpu", "numpy==2.0"]}, {})
    assert "--extra-index-url" in files["requirements.txt"]
    assert "torch==2.13.0+cpu" in files["README.md"]
    assert "numpy" not in files["README.md"]


def test_only_a_script_of_ours_has_the_last_word() -> None:
    assert last_word("nbl-made make-1 /v", "/s/make-1") == ("made", "/v")
    assert last_word("nbl-made /v", "/s/make-1") is None
    assert last_word("nbl-image image-2 {}", "/s/make-1") is None


def probe(what: str) -> dict[str, object]:
    argv = [sys.executable, JOBSCRIPTS / "probe.py", what, "it-says"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if line.startswith("it-says "):
            found |= json.loads(line.removeprefix("it-says "))
    return found


def test_the_probe_starts_a_kernel_and_freezes_the_packages() -> None:
    assert probe("check")["kernel"] == "ok"
    found = probe("freeze")
    packages = found["packages"]
    assert isinstance(packages, list)
    assert any(package.startswith("jupyterlab==") for package in packages)
    assert (found["conda"], found["end"]) == ([], True)


# --- definition files -----------------------------------------------------------------------------------------------


def test_these_definitions_come_along() -> None:
    assert set(definitions()) == {"jupyterlab", "torch", "torch-cpu", "tensorflow", "tensorflow-cpu"}


@pytest.mark.parametrize(("one", "other"), [("tensorflow", "tensorflow-cpu"), ("torch", "torch-cpu")])
def test_the_image_for_gpus_differs_from_the_one_for_cpus_in_one_setting(one: str, other: str) -> None:
    lines = [_code((CONTAINERS / f"{name}.def").read_text()) for name in (one, other)]
    assert len(lines[0]) == len(lines[1])
    differ = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert len(differ) == 1, differ


def _code(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_is_built_here_is_what_is_shipped(name: str) -> None:
    shipped = _code((CONTAINERS / f"{name}.def").read_text())
    here = _code(definition_here(name))
    assert here[: here.index("%post")] == ["Bootstrap: localimage", "From: /build/base", "%files",
                                           "    /build/wheels /opt/wheels"]  # fmt: skip
    assert here[here.index("%post") :] == shipped[shipped.index("%post") :]
    post = "\n".join(here)
    assert [wanted for wanted in REQUIREMENTS[name] if wanted not in post] == []


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*.def")), ids=lambda path: path.stem)
def test_the_shell_in_a_definition_is_shell(path: Path) -> None:
    text = path.read_text()
    for section in ("%post", "%test"):
        script = text.partition(f"\n{section}\n")[2].partition("\n%")[0]
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


# --- what is to be made ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("profile")
def test_what_is_built_is_a_definition_of_ours_a_file_or_an_environments(tmp_path: Path) -> None:
    uni = load_profile("uni")
    assert build_recipe("torch", uni).image == "/images/torch.sif"
    (tmp_path / "mine.def").write_text("Bootstrap: scratch\n")
    recipe = build_recipe(str(tmp_path / "mine.def"), uni)
    assert (recipe.image, recipe.definition) == ("/images/mine.sif", b"Bootstrap: scratch\n")
    recipe = build_recipe("tf-mkl", uni)
    assert (recipe.image, recipe.source) == ("/images/tf.sif", "tensorflow")
    with pytest.raises(UsageError, match="no definition “tensorflw”") as error:
        build_recipe("tensorflw", uni)
    assert "tensorflow" in error.value.mend


@pytest.mark.usefixtures("profile")
def test_what_is_pulled_is_a_source_or_an_environments() -> None:
    uni = load_profile("uni")
    assert pull_recipe("docker://example/some.thing:2.1", uni).image == "/images/some.thing-2.1.sif"
    recipe = pull_recipe("tf-mkl", uni)
    assert (recipe.image, recipe.source, recipe.definition) == ("/images/tf.sif", "docker://example/tf:2", None)
    with pytest.raises(UsageError, match="From where"):
        pull_recipe("own", uni)


# --- image.sh -------------------------------------------------------------------------------------------------------

APPTAINER = """#!/bin/bash
# pulls what it is told to, or fails
[[ $1 != --version ]] || { echo 'apptainer version 9'; exit; }
[[ $1 == pull ]] || exit 3
[[ $4 != *broken ]] || { echo 'FATAL: no such image' >&2; exit 255; }
printf '%s' "$4" >"$3"
"""


def image_sh(folder: Path, *words: str) -> list[str]:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "apptainer").write_text(APPTAINER)
    (folder / "bin" / "apptainer").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:/usr/bin:/bin", "TMPDIR": str(folder)}
    done = subprocess.run(["bash", JOBSCRIPTS / "image.sh", *words], env=env, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_an_image_is_pulled_whole_and_known_again(tmp_path: Path) -> None:
    work, image = tmp_path / "work", tmp_path / "an image.sif"
    work.mkdir()
    (work / "session.env").touch()
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://it")
    note = json.loads(said[-1].removeprefix("nbl-image work "))
    digest = "sha256:" + hashlib.sha256(b"docker://it").hexdigest()
    assert (note["digest"], note["bytes"], image.read_text()) == (digest, 11, "docker://it")
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://other")
    assert "--force" in said[-1]
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://broken", "force")
    assert said[-1].startswith("nbl-failed work apptainer ended with exit code 255")
    assert image.read_text() == "docker://it"
    assert {path.name for path in tmp_path.iterdir()} == {"an image.sif", "an image.sif.json", "bin", "work"}

    session = tmp_path / "sessions" / "20261121-014455-k3f7"
    session.mkdir(parents=True)
    (session / "session.env").write_text(f"container={image}\n")
    image_sh(tmp_path, "note", str(session))
    found = json.loads((session / "image.json").read_text())
    assert (found["digest"], found["told_by"]) == (digest, f"{image}.json")


def test_a_digest_is_taken_where_nobody_noted_it_and_kept_for_the_next_session(tmp_path: Path) -> None:
    image = tmp_path / "i.sif"
    image.write_bytes(b"one")
    told = []
    for name in ("20261121-014455-k3f7", "20261121-014456-k3f7"):
        session = tmp_path / "sessions" / name
        session.mkdir(parents=True)
        (session / "session.env").write_text(f"container={image}\n")
        image_sh(tmp_path, "note", str(session))
        found = json.loads((session / "image.json").read_text())
        assert found["digest"] == "sha256:" + hashlib.sha256(b"one").hexdigest()
        told.append(found["told_by"])
    assert told == ["this session", "an earlier session"]


def test_no_folder_is_an_image_to_be_replaced_and_what_killed_makers_left_is_removed(tmp_path: Path) -> None:
    work, image = tmp_path / "work", tmp_path / "there"
    work.mkdir()
    image.mkdir()
    (work / "session.env").touch()
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://it", "force")
    assert "is a folder" in said[-1]
    assert list(image.iterdir()) == []

    image.rmdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    kept = [tmp_path / f"notebook-launcher-image-{os.uname().nodename}-{os.getpid()}-abcdefgh",
            tmp_path / ".there.image-new"]  # fmt: skip
    gone = [tmp_path / f"notebook-launcher-image-{os.uname().nodename}-{dead.pid}-abcdefgh",
            tmp_path / ".there.image-old"]  # fmt: skip
    for room, half in (kept, gone):
        (room / "rootfs").mkdir(parents=True)
        half.touch()
    os.utime(gone[1], (1, 1))
    assert image_sh(tmp_path, "pull", str(work), str(image), "docker://it")[-1].startswith("nbl-image work ")
    assert [path.exists() for path in kept + gone] == [True, True, False, False]


def test_an_image_that_changed_in_place_has_another_digest(tmp_path: Path) -> None:
    image = tmp_path / "i.sif"
    digests = []
    for name, content in (("20261121-014455-k3f7", b"one"), ("20261121-014456-k3f7", b"two")):
        image.write_bytes(content)
        os.utime(image, (1_700_000_000, 1_700_000_000))
        session = tmp_path / "sessions" / name
        session.mkdir(parents=True)
        (session / "session.env").write_text(f"container={image}\n")
        image_sh(tmp_path, "note", str(session))
        digests.append(json.loads((session / "image.json").read_text())["digest"])
        time.sleep(1.1)  # the time of a change is known to a second
    assert digests == ["sha256:" + hashlib.sha256(content).hexdigest() for content in (b"one", b"two")]


def test_of_an_image_that_was_replaced_since_it_was_entered_no_digest_is_noted(tmp_path: Path) -> None:
    (tmp_path / "i.sif").write_bytes(b"new")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "image").write_text("1-2-3-4\n")
    (tmp_path / "session.env").write_text(f"container={tmp_path}/i.sif\n")
    image_sh(tmp_path, "note", str(tmp_path))
    assert json.loads((tmp_path / "image.json").read_text())["digest"] is None


def test_a_note_beside_an_image_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "i.sif").write_bytes(b"one")
    os.mkfifo(tmp_path / "i.sif.json")
    digest = "sha256:" + hashlib.sha256(b"one").hexdigest()
    (tmp_path / "session.env").write_text(f"container={tmp_path}/i.sif\ndigest={digest}\n")
    env = {**os.environ, "NBL_CAUSE_FILE": str(tmp_path / "cause")}
    argv = ["bash", JOBSCRIPTS / "image.sh", "check", tmp_path]
    assert subprocess.run(argv, env=env, capture_output=True, timeout=10).returncode == 0


def test_a_digest_that_was_noted_of_an_older_file_does_not_count(tmp_path: Path) -> None:
    image, session = tmp_path / "i.sif", tmp_path / "session"
    session.mkdir()
    image.write_bytes(b"new")
    wrong = "sha256:" + "0" * 64
    Path(f"{image}.json").write_text(json.dumps({"digest": wrong, "bytes": 3, "modified": 1}))
    (session / "session.env").write_text(f"container={image}\ndigest={wrong}\n")
    env = {**os.environ, "NBL_CAUSE_FILE": str(tmp_path / "cause")}
    done = subprocess.run(["bash", JOBSCRIPTS / "image.sh", "check", session], env=env, capture_output=True)
    assert done.returncode == 1
    assert (tmp_path / "cause").read_text().startswith("image-differs ")


@pytest.mark.parametrize(("image", "kind"), [("docker://it", "reference"), ("/usr", "directory")])
def test_what_is_no_file_has_no_digest_and_is_told_as_what_it_is(tmp_path: Path, image: str, kind: str) -> None:
    (tmp_path / "session.env").write_text(f"container={image}\n")
    image_sh(tmp_path, "note", str(tmp_path))
    found = json.loads((tmp_path / "image.json").read_text())
    assert (found["kind"], found["digest"]) == (kind, None)


# --- environment.sh -------------------------------------------------------------------------------------------------

CONDA = """#!/bin/bash
# makes and removes as conda does: with -y, `env create` begins by removing what is there
case "$1 ${2-}" in
  'info ') printf '  envs directories : %s\\n                     /not/there\\n          platform : x\\n' "$ENVS" ;;
  'env list') [[ -z ${BROKEN-} ]] || exit 1; printf '# conda environments:\\n#\\nbase  *  /opt/c\\n'
              printf '         %s\\n' "$LISTED" ;;
  'env create')
    [[ " $* " != *' -y '* ]] || rm -rf "${4:?}" "$ENVS/${4:?}"
    place=$4; [[ $place == /* ]] || place=$ENVS/$4
    mkdir "$place" || exit; echo half >"$place/half"
    grep -q good "$6" ;;
esac
"""


@pytest.fixture
def conda(tmp_path: Path) -> Callable[..., str]:
    for name in ("bin", "work", "envs"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "conda").write_text(CONDA)
    (tmp_path / "bin" / "conda").chmod(0o755)
    (tmp_path / "work" / "session.env").touch()

    def make(target: str, content: str = "good", **more: str) -> str:
        (tmp_path / "work" / "environment.yml").write_text(content)
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "ENVS": f"{tmp_path}/envs", "LISTED": "/old/one", **more}
        argv = ["bash", JOBSCRIPTS / "environment.sh", "conda", tmp_path / "work", target]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20)
        return done.stdout.splitlines()[-1]

    return make


def test_conda_never_touches_what_is_there(tmp_path: Path, conda: Callable[..., str]) -> None:
    for place in (tmp_path / "data", tmp_path / "envs" / "mine"):
        place.mkdir()
        (place / "years of work").touch()
    assert conda(str(tmp_path / "data")) == f"nbl-failed work There is something in {tmp_path}/data already."
    assert "already" in conda("mine")
    assert conda("one") == "nbl-failed work There is an environment one already."
    assert "cannot list" in conda("other", BROKEN="yes")
    assert (tmp_path / "data" / "years of work").exists()
    assert (tmp_path / "envs" / "mine" / "years of work").exists()


def test_what_conda_left_half_made_is_removed(tmp_path: Path, conda: Callable[..., str]) -> None:
    assert "could not make" in conda("new", "bad")
    assert "could not make" in conda(f"{tmp_path}/new", "bad")
    assert list((tmp_path / "envs").iterdir()) == []
    assert not (tmp_path / "new").exists()
    assert conda("new") == "nbl-made work new"
    assert (tmp_path / "envs" / "new").exists()


def test_what_a_killed_maker_left_is_removed_later(tmp_path: Path) -> None:
    work, begun = tmp_path / "work", tmp_path / "v"
    work.mkdir()
    (work / "session.env").touch()
    (work / "requirements.txt").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f"#!/bin/bash\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    script = JOBSCRIPTS / "environment.sh"
    maker = subprocess.Popen(["bash", script, "venv", work, begun], env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        maker.kill()
        maker.wait()
        assert begun.exists()
        subprocess.run(["bash", script, "tidy", work], check=True)
        assert not begun.exists()
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    began = time.monotonic()
    maker = subprocess.Popen(["bash", script, "venv", work, begun], env=env, stdout=subprocess.DEVNULL)
    (work / "stop").touch()
    assert maker.wait(10) == 143
    assert time.monotonic() - began < 5
    assert not begun.exists()
