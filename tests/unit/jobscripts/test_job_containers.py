"""A job in a container, with a stand-in for Apptainer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import Job, called, command_of, image, library, read_json, set_up

pytestmark = pytest.mark.real_time


def test_a_container(boxed: Job) -> None:
    data = boxed.root / "data"
    data.mkdir()
    boxed.ask(
        image(boxed),
        f"bind={data}:/data:ro,{boxed.work}",
        f"bind={data}",
        "setenv=NASTY=it's $(false)",
        "gpu=none",
        "activate=export ACTIVATED=$INSIDE",
    )
    boxed.env["TMPDIR"] = "/nowhere/tmp"
    boxed.start()
    environment = psutil.Process(boxed.endpoint()["pid"]).environ()
    assert environment["ACTIVATED"] == "yes", "activation happens inside"
    assert environment["NASTY"] == "it's $(false)"
    assert "TMPDIR" not in environment, "a directory that the container does not see"
    session = str(boxed.dir)
    binds = ["--bind", session, "--bind", f"{data}:/data:ro,{boxed.work}", "--bind", str(data)]
    command = ["/bin/bash", f"{session}/enter.sh", session, "127.0.0.1"]
    assert called(boxed) == ["exec", *binds, "--pwd", str(boxed.work), f"{boxed.root}/an image.sif", *command]
    boxed.send(signal.SIGTERM)
    assert boxed.exit()["cause"] == "stopped"
    assert boxed.processes() == []


WORDS = 'printf "%s\\n" "${into_container[@]}"'


@pytest.mark.parametrize(("gpu", "flags"), [("nvidia", ["--nv"]), ("amd", ["--rocm"]), ("none", []), ("auto", None)])
def test_gpu_flags(boxed: Job, gpu: str, flags: list[str] | None) -> None:
    failed, words = set_up(boxed, image(boxed), f"gpu={gpu}", then=WORDS)
    if flags is None:
        flags = ["--nv"] if any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/nvidia0")) else []
    assert failed == ""
    assert [word for word in words.splitlines() if word in ("--nv", "--rocm")] == flags


def test_another_container_command(boxed: Job) -> None:
    shutil.move(boxed.bin / "apptainer", boxed.bin / "sing")
    failed, words = set_up(boxed, image(boxed), f"container_command={boxed.bin}/sing", then=WORDS)
    assert (failed, words.splitlines()[0]) == ("", f"{boxed.bin}/sing")
    shutil.move(boxed.bin / "sing", boxed.bin / "singularity")
    failed, words = set_up(boxed, image(boxed), then=WORDS)
    assert (failed, words.splitlines()[0]) == ("", f"{boxed.bin}/singularity")


def test_a_missing_image(boxed: Job) -> None:
    boxed.ask(f"container={boxed.root}/none.sif")
    report = boxed.run()
    assert report["cause"] == "image-missing"
    assert f"{boxed.root}/none.sif" in report["message"]


def test_what_else_is_missing(boxed: Job) -> None:
    failed, _ = set_up(boxed, image(boxed), f"bind={boxed.work}:/work:ro,/proj/nowhere:/data")
    assert failed.startswith("bind-missing ") and "/proj/nowhere (bind=" in failed
    failed, _ = set_up(boxed, image(boxed), "container_command=podman-hpc")
    assert failed.startswith("container-command-missing ") and "podman-hpc" in failed


# Its first call leaves the process in which Podman rests, in a session of its own.
LIKE_PODMAN = """#!/bin/bash
[[ " $* " != *' exists '* ]] || exec setsid -f sleep 301 </dev/null >/dev/null 2>&1
while [ "$1" != /bin/bash ]; do shift; done
export PATH=$HOME/inside:/usr/bin:/bin
exec "$@"
"""


def test_nothing_of_podman_is_left_by_a_scheduler_that_does_not_wait_for_the_end(boxed: Job) -> None:
    boxed.tool("podman", LIKE_PODMAN)
    boxed.env["STAND_IN"] = "stubborn"
    boxed.ask("container=x:1", "container_command=podman")
    boxed.start()
    boxed.endpoint()
    boxed.process_with("sleep 301")
    boxed.send(signal.SIGTERM)
    wait_until((boxed.dir / "exit.json").exists)
    boxed.send(signal.SIGKILL)
    assert boxed.process is not None and boxed.process.wait(30) == -signal.SIGKILL
    wait_until(lambda: boxed.processes() == [], what="all of it ends")


# As Apptainer is stopped while it starts: the process that mounts the image is left, in a process group of its own.
STOPPED_WHILE_STARTING = """#!/bin/bash
set -m
env -i sleep 302 </dev/null >/dev/null 2>&1 &
exit 255
"""
# What starts the job's script in a session of its own, in which it runs something else, too.
STARTER = """\
printf %s "$1" >/proc/$$/comm; shift
sleep 303 </dev/null >/dev/null 2>&1 &
"$@"
exit $?
"""


@pytest.mark.parametrize(
    ("starter", "left"),
    [("", []), ("slurmstepd", []), ("a shell in a terminal", ["sleep 302", "sleep 303"])],
    ids=["the job leads its session", "slurmstepd leads it", "a terminal's"],
)
def test_a_job_ends_what_mounts_its_image_but_nothing_of_a_terminal(boxed: Job, starter: str, left: list[str]) -> None:
    boxed.tool("apptainer", STOPPED_WHILE_STARTING)
    boxed.ask(image(boxed))
    boxed.start(under=("bash", "-c", STARTER, "starter", starter) if starter else ())
    assert boxed.process is not None
    try:
        assert boxed.exit()["cause"] == "container-failed"
    finally:
        members = [one for one in psutil.process_iter() if is_in_session(one, boxed.process.pid)]
        found = sorted(" ".join(command_of(one)) for one in members)
        for one in members:
            one.kill()
    assert found == left


def is_in_session(process: psutil.Process, leader: int) -> bool:
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        return os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.parametrize(("script", "ends"), [("lives on", ""), ("is gone", "NBL_RUN=7")])
def test_what_waits_for_the_end_of_a_job_ends_nothing_of_one_that_takes_longer(script: str, ends: str) -> None:
    gone = "++looked > 2" if script == "is gone" else "0"
    stand_ins = f"kill() {{ ((!({gone}))); }}; pause() {{ :; }}; is_conmon_running() {{ return 1; }}; looked=0"
    code = f'set -u; source "$1"; {stand_ins}; end_tagged() {{ printf %s "$1"; }}; outlast_job'
    assert library(code, str(job_script("program.sh")), env={"PATH": "/usr/bin:/bin", "NBL_RUN": "7"}) == ends


def test_a_container_that_cannot_start(boxed: Job) -> None:
    boxed.env["BREAK"] = "yes"
    boxed.ask(image(boxed))
    report = boxed.run()
    assert (report["cause"], report["exit_code"]) == ("container-failed", 255)


def test_an_image_without_jupyterlab(boxed: Job) -> None:
    (boxed.home / "inside" / "jupyter-lab").unlink()
    boxed.tool("../home/inside/python3", "#!/bin/sh\nexit 1\n")
    boxed.ask(image(boxed))
    report = boxed.run()
    assert report["cause"] == "jupyter-missing"
    assert "an image.sif" in report["message"]


# What runs notebooks, and here has run one while the image is still being read.
SHORT_RUN = """#!/bin/bash
[[ $1 != -c ]] || exit 0 # it is asked for its modules
printf '{"version":1}\\n' >"$NBL_SESSION_DIR/progress.json"
until [[ -e $HOME/reading ]]; do sleep 0.02; done
printf 'finished All of it was run.\\n' >"$NBL_CAUSE_FILE"
"""
READS_FOR_EVER = '#!/bin/sh\n: >"$HOME/reading"\nexec sleep 300\n'


@pytest.fixture
def short(boxed: Job) -> Job:
    """A run in a container that takes less time than its image's digest."""
    (boxed.home / "inside" / "jupyter-lab").unlink()  # whose Python would come first
    boxed.tool("../home/inside/python3", SHORT_RUN)
    boxed.ask(image(boxed), "program=notebook", "notebook=n.ipynb")
    return boxed


def test_the_digest_of_a_short_run_is_known_at_its_end(short: Job) -> None:
    short.tool("nice", READS_FOR_EVER)  # what it runs has its turn when nothing else runs: never, on a busy node
    short.env["NBL_DIGEST_NEARLY_DONE_SECONDS"] = "1"
    assert short.run()["cause"] == "finished"
    assert read_json(short.dir / "image.json")["digest"] == f"sha256:{hashlib.sha256().hexdigest()}"
    assert "Killed" not in short.log.read_text(), "what read it in vain ended without a word"
    assert short.processes() == []


# At low priority; then says that it was not killed.
SLOWLY = '#!/bin/sh\n: >"$HOME/reading"\nsleep 1\n: >"$HOME/read"\nexec sha256sum\n'


def test_a_digest_that_is_nearly_known_does_not_begin_again(short: Job) -> None:
    short.tool("nice", SLOWLY)
    assert short.run()["cause"] == "finished"
    assert (short.home / "read").exists()
    assert read_json(short.dir / "image.json")["digest"] == f"sha256:{hashlib.sha256().hexdigest()}"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_does_not_wait_for_ever_for_a_digest(short: Job, stopped: bool) -> None:
    short.tool("sha256sum", READS_FOR_EVER)
    short.env["NBL_DIGEST_SECONDS"] = "60" if stopped else "1"
    short.start()
    if stopped:
        wait_until(lambda: "waiting for the image's digest" in short.log.read_text())
        short.send(signal.SIGTERM)
    assert short.exit()["cause"] == "finished"
    assert read_json(short.dir / "image.json")["digest"] is None
    assert ("digest was not calculated within 1 seconds" in short.log.read_text()) is not stopped
    assert short.processes() == []
