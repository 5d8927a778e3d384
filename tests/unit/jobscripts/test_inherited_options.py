"""Shell options that BASH_ENV or SHELLOPTS bring along: no script depends on them, and the user's programs get them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pexpect
import pytest

from notebook_launcher.core.package_data import JOB_FILES, LIBRARY, job_script
from tests.paths import JOBSCRIPTS
from tests.unit.jobscripts import job as jobs
from tests.unit.jobscripts.job import STAND_IN, Job, image, read_json, token_of

pytestmark = pytest.mark.real_time

KINDS = {
    "strict": """
        set -CeufET +B
        shopt -s failglob nocasematch nocaseglob dotglob expand_aliases
        alias rm=false mv=false mkdir=false cat=false local=false printf=false
        IFS=/:_- CDPATH=/usr:/ GLOBIGNORE='*'
        umask 000
        trap 'echo trapped >&2' DEBUG ERR RETURN
    """,
    "posix": "set -ao posix; shopt -s nullglob xpg_echo execfail",
}

# stands for a container command; a program of the site's, so it is no bash that reads BASH_ENV
APPTAINER = """#!/bin/sh
while [ "$1" != /bin/bash ]; do shift; done
exec env INSIDE=yes "$@"
"""


@pytest.fixture(autouse=True)
def _bash_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bash that notes which lines ran has a BASH_ENV of its own, in place of the hostile one."""
    monkeypatch.setattr(jobs, "BASH", "bash")


@pytest.fixture(params=KINDS)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment that a job inherits."""
    (tmp_path / "bash_env").write_text(KINDS[request.param] + "\n")
    return {"BASH_ENV": str(tmp_path / "bash_env")}


@pytest.fixture
def job(tmp_path: Path, hostile: dict[str, str]) -> Iterator[Job]:
    job = Job(tmp_path, env=dict(hostile))
    job.tool("jupyter-lab", STAND_IN)
    job.in_a_scheduler()
    yield job
    job.end()


def run(name: str, *words: str, env: dict[str, str], stdin: str | None = None) -> str:
    argv = ["bash", str(job_script(name)), *words] if stdin is None else ["bash", "-s", "--", *words]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env}
    done = subprocess.run(argv, input=stdin or "", env=env, capture_output=True, text=True, timeout=30, umask=0o027)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job(job: Job) -> None:
    """jupyterlab.sh, enter.sh in a container, image.sh and usage.sh."""
    job.tool("apptainer", APPTAINER)
    (job.root / "an image.sif").touch()
    job.ask(image(job), "gpu=none", "usage=1", "setenv=MINE=it's mine")
    job.start()
    assert job.endpoint()["port"] and token_of(job)
    job.send(15)
    assert job.exit()["cause"] == "stopped"


def test_a_shell(job: Job) -> None:
    job.ask("setenv=MINE=yes")
    for name in JOB_FILES:
        (job.dir / name).write_bytes(job_script(name).read_bytes())
    (job.dir / "runtime").mkdir()
    words = [str(job.dir), "inside", "/bin/sh -c 'echo $MINE; exit 0'"]
    done = subprocess.run(
        ["bash", str(job.dir / "shell.sh"), *words], env=job.env, capture_output=True, text=True, timeout=20
    )
    assert done.stdout.endswith("yes\n"), done.stderr
    assert sorted(path.name for path in (job.dir / "runtime").iterdir()) == ["first-shell"]


def test_a_shell_whose_start_up_file_sets_options(tmp_path: Path) -> None:
    """They are the user's again when the prompt comes, and not in force before."""
    job = Job(tmp_path)
    options = "set -Cuf +B; shopt -s failglob nocasematch; alias rm=false mv=false cat=false; IFS=/:_-; umask 000"
    (job.home / ".bashrc").write_text(f"{options}\n")
    job.ask("setenv=MINE=yes", "activate=export TWO=2")
    for name in JOB_FILES:
        (job.dir / name).write_bytes(job_script(name).read_bytes())
    (job.dir / "runtime").mkdir()
    words = [str(job.dir / "shell.sh"), str(job.dir), "inside"]
    child = pexpect.spawn("bash", words, env={**job.env, "TERM": "dumb"}, encoding="utf-8", timeout=30)
    child.sendline('printf "<%s>\\n" "$MINE$TWO $- $IFS $(shopt -p failglob) $(alias rm)"; exit')
    child.expect(r"<yes2 \w*f\w*u\w*C\w* /:_- shopt -s failglob alias rm='false'>")
    child.expect(pexpect.EOF)


def test_submit(tmp_path: Path, hostile: dict[str, str]) -> None:
    for job_id in ("7", "8"):  # the second time its files are there
        assert run("submit.sh", str(tmp_path), "echo", job_id, env=hostile) == f"{job_id}\n"
        assert (tmp_path / "job").read_text() == f"{job_id}\n"


def test_local_scheduler(tmp_path: Path, hostile: dict[str, str]) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    words = ["--root", str(tmp_path / "jobs")]
    assert run("local.sh", "submit", *words, "--id", "a-1", "--time", "60", "--", str(script), env=hostile) == "a-1\n"
    assert run("local.sh", "queue", *words, env=hostile).startswith("a-1|")


def test_sessions(tmp_path: Path, hostile: dict[str, str]) -> None:
    session = tmp_path / "20261121-014455-k3f7"
    session.mkdir()
    (session / "session.json").write_text("{}\n")
    (session / "exit.json").write_text("{}\n")
    (session / "token").write_text("secret\n")
    text = job_script("sessions.sh").read_text()
    listed = run("sessions.sh", str(tmp_path), env=hostile, stdin=text)
    assert listed.splitlines()[0] == "sessions 1" and f"{session.name} session {{}}\n" in listed
    run("sessions.sh", str(tmp_path), "tidy", session.name, env=hostile, stdin=text)
    assert not (session / "token").exists()


def test_watch(tmp_path: Path, hostile: dict[str, str]) -> None:
    (tmp_path / "started.json").write_text("{}\n")
    assert run("watch.sh", str(tmp_path), env=hostile).startswith("started {}\n")


def test_shared_query(tmp_path: Path, hostile: dict[str, str]) -> None:
    for _ in range(2):
        said = run("shared_query.sh", str(tmp_path / "shared" / "q"), "0.00", "echo", "* 7", env=hostile)
        assert re.search(r"^0(\.\d+)? \S+.*\n\* 7\n\Z", said, re.M), said


def test_survey(tmp_path: Path, hostile: dict[str, str]) -> None:
    (tmp_path / "ch-run").write_text("#!/bin/sh\n")
    (tmp_path / "ch-run").chmod(0o755)
    env = {**hostile, "PATH": f"{tmp_path}:{os.environ['PATH']}", "NBL_SURVEY_SECONDS": "5"}
    said = run("survey.sh", "node", env=env, stdin=job_script("survey.sh").read_text())
    assert said.startswith("survey 1\npart machine\n") and said.endswith("end\n")
    assert f"\n|{os.uname().machine}\n" in said and f"\n|{tmp_path}/ch-run\n" in said


def test_environment(tmp_path: Path, hostile: dict[str, str]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "begun").write_text(f"{tmp_path / 'half'}\n")
    (tmp_path / "half").mkdir()
    run("create_environment.sh", "tidy", str(tmp_path / "work"), env=hostile)
    assert not (tmp_path / "half").exists()


def test_image(tmp_path: Path, hostile: dict[str, str]) -> None:
    dir = tmp_path / "20261121-014455-k3f7"
    dir.mkdir()
    (tmp_path / "i.sif").write_text("image")
    (dir / "session.env").write_text(f"container={tmp_path}/i.sif\n")
    run("image.sh", "note", str(dir), env=hostile)
    assert read_json(dir / "image.json")["digest"]


@pytest.fixture
def checkup(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run checkup.sh with settings, as ``doctor`` does, in a folder that it removes; ``without`` some of its files."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jupyter-lab").symlink_to("/bin/true")

    def run(
        settings: str, env: dict[str, str] | None = None, without: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "check"
        folder.mkdir()
        for name in {"checkup.sh", *LIBRARY} - set(without):
            (folder / name).write_bytes(job_script(name).read_bytes())
        (folder / "session.env").write_text(settings)
        argv = ["bash", str(folder / "checkup.sh"), str(folder)]
        env = {**(env or {}), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20)
        assert not folder.exists()
        assert "command not found" not in done.stderr + done.stdout
        return done

    return run


def test_checkup(
    tmp_path: Path, hostile: dict[str, str], checkup: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("")
    (venv / "python").symlink_to("/bin/true")
    done = checkup(f"setenv=A=b\nvenv={venv.parent}\n", hostile)
    assert done.stdout == "passed modules\npassed environment\npassed jupyterlab\n"


def test_checkup_of_an_environment_that_is_not_there(
    hostile: dict[str, str], checkup: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    said = checkup("venv=/nonexistent\n", hostile).stdout.splitlines()
    assert said[0] == "passed modules" and said[1].startswith("failed venv-missing ")


@pytest.mark.parametrize("name", ["containers.sh", "activate.sh"])
def test_an_incomplete_library_is_a_failure(
    name: str, checkup: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = checkup("venv=/nonexistent\n", without=[name])
    assert "passed environment" not in done.stdout
    assert name in done.stdout + done.stderr
    assert done.returncode or "failed" in done.stdout


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SHELLOPTS": "noclobber:nounset"}, "SHELLOPTS=.*:noclobber:nounset"),
        ({"BASHOPTS": "failglob"}, "BASHOPTS=.*:failglob:"),
        ({"POSIXLY_CORRECT": "y"}, "POSIXLY_CORRECT=y"),
    ],
)
def test_the_users_program_gets_what_came_in_the_environment(
    tmp_path: Path, env: dict[str, str], expected: str
) -> None:
    job = Job(tmp_path, env=env)
    job.tool("jupyter-lab", '#!/bin/sh\nenv >"$HOME/environment"\nexit 3\n')
    job.in_a_scheduler()
    assert job.run()["cause"] == "jupyter-failed"
    assert re.search(f"^{expected}", (job.home / "environment").read_text(), re.M)


def test_no_option_is_added_to_an_environment_that_has_none(tmp_path: Path) -> None:
    (tmp_path / "bash_env").write_text(KINDS["strict"])
    job = Job(tmp_path, env={"BASH_ENV": str(tmp_path / "bash_env")})
    job.tool("jupyter-lab", '#!/bin/sh\nenv >"$HOME/environment"\nexit 3\n')
    job.in_a_scheduler()
    job.run()
    text = (job.home / "environment").read_text()
    assert not re.search("^(SHELLOPTS|BASHOPTS|POSIXLY_CORRECT|IFS)=", text, re.M)
    assert f"BASH_ENV={tmp_path}/bash_env\n" in text


def test_every_script_begins_with_the_same_lines() -> None:
    """Some come over standard input, others are copied by a scheduler: they cannot all read them from one file.

    Those beside jupyterlab.sh are the learner's own, who may set such options.
    """
    scripts = [JOBSCRIPTS / "jupyterlab.sh", *JOBSCRIPTS.glob("*/*.sh")]
    begin = re.compile(r"^# Bash's default shell options, .*?\n\n", re.M | re.S)
    found = {path.name: begin.search(path.read_text()) for path in scripts}
    runs = {path.name for path in scripts if path.read_text().startswith("#!")}
    assert {name for name, match in found.items() if match} == runs
    (lines,) = {match[0] for match in found.values() if match}
    assert max(map(len, lines.splitlines())) <= 120
    for path in scripts:
        if path.name in runs - {"shell.sh"}:  # which reads ~/.bashrc before, where it is a start-up file
            code = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
            assert code[0] == "[[ -n ${users_options[1]+set} ]] ||", path
            assert code[1].startswith("  users_options=("), path
