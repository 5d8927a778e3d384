"""The job script by hand, and as Slurm copies it: where its library is, and directories that do not do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import JOB_FILES, job_script
from tests.paths import JOBSCRIPTS
from tests.unit.jobscripts.job import BASH, Job, image, permissions, read_json, token_of

pytestmark = pytest.mark.real_time


def test_a_directory_that_is_there_and_open(quick: Job) -> None:
    quick.dir.mkdir(parents=True)
    quick.dir.chmod(0o755)
    (quick.dir / "token").touch(0o644)
    quick.start()
    quick.endpoint()
    assert permissions(quick.dir) == 0o700
    assert permissions(quick.dir / "token") == 0o600
    assert token_of(quick)


def test_a_directory_of_somebody_elses_runs_nothing(quick: Job) -> None:
    quick.dir.mkdir(parents=True)
    for name in JOB_FILES:
        (quick.dir / name).write_text(f"touch {quick.root}/pwned\n")
    (quick.dir / "session.json").write_text("{}")
    if os.geteuid() == 0:
        os.chown(quick.dir, 65534, 65534)
    directory = str(quick.dir) if os.geteuid() == 0 else "/"
    command = [BASH, job_script("jupyterlab.sh"), directory]
    done = subprocess.run(command, env=quick.env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 73
    assert "belongs to somebody else" in done.stderr
    assert not (quick.root / "pwned").exists()


def test_slurm_runs_a_copy_of_the_script(quick: Job) -> None:
    """The library is then where `scontrol` says that the script came from, in a directory with a space."""
    spool = quick.root / "spool"
    spool.mkdir()
    copy = Path(shutil.copy(job_script("jupyterlab.sh"), spool / "slurm_script"))
    origin = quick.root / "my scripts"
    shutil.copytree(JOBSCRIPTS, origin)
    quick.tool(
        "scontrol", f"#!/bin/sh\necho 'JobId=7 JobName=x'\necho '   Command={origin}/jupyterlab.sh {quick.dir}'\n"
    )
    quick.env["SLURM_JOB_ID"] = "7"
    quick.script = copy
    quick.start()
    assert quick.endpoint()["job"] == "7"


def test_a_launchers_copies_come_first(quick: Job) -> None:
    quick.ask()
    for name in JOB_FILES:
        shutil.copy(job_script(name), quick.dir / name)
    (quick.dir / "session.json").write_text("{}")
    with (quick.dir / "lib.sh").open("a") as library:
        library.write('find_job_id() { job_id="from the copy"; }\n')
    quick.start()
    assert quick.endpoint()["job"] == "from the copy"


def test_without_the_library(quick: Job) -> None:
    quick.script = Path(shutil.copy(job_script("jupyterlab.sh"), quick.root / "alone.sh"))
    quick.start()
    assert quick.process is not None
    assert quick.process.wait(30) == 73
    assert "lib.sh" in quick.log.read_text()


def test_a_relative_directory(quick: Job) -> None:
    shown = subprocess.run(
        [BASH, str(job_script("jupyterlab.sh")), "here/"],
        cwd=quick.work,
        env=quick.env | {"STAND_IN": "ends", "CDPATH": "/tmp"},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert str(quick.work / "here") in shown.stderr
    assert read_json(quick.work / "here" / "exit.json")["cause"] == "finished"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_usage(arguments: list[str]) -> None:
    shown = subprocess.run([BASH, str(job_script("jupyterlab.sh")), *arguments], capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr.startswith("usage: ")


def test_a_directory_that_cannot_be_made(quick: Job) -> None:
    (quick.root / "sessions").write_text("a file is in the way")
    quick.start()
    assert quick.process is not None
    assert quick.process.wait(30) == 73
    assert "cannot be made" in quick.log.read_text()


def test_a_directory_that_cannot_be_written(quick: Job) -> None:
    """A full home: every file grows to nothing at all, and nothing hangs."""
    quick.dir.mkdir(parents=True)
    shown = subprocess.run(
        [BASH, "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "-", BASH, job_script("jupyterlab.sh"), quick.dir],
        cwd=quick.work,
        env=quick.env,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert shown.returncode == 73
    assert "cannot be written" in shown.stderr
    assert not list(quick.dir.glob("*.json"))


def test_a_directory_name_that_no_bind_can_hold(boxed: Job) -> None:
    boxed.dir = boxed.dir.with_name("a:b")
    boxed.ask(image(boxed))
    assert boxed.run()["cause"] == "session-unusable"


def test_nothing_but_bash_is_asked_for_more_than_posix_tools() -> None:
    """No GNU-only programs on the way: what the scripts call is what every node has."""
    text = "\n".join(path.read_text() for path in JOBSCRIPTS.rglob("*.sh"))
    assert not re.search(r"^\s*(jq|curl|wget|python|realpath|readlink)\b(?!=)", text, re.MULTILINE)
