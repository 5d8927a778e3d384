"""How a job ends: JupyterLab that fails, dies or lets strangers in, signals, and a requeue."""

from __future__ import annotations

import contextlib
import os
import runpy
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import Job, library, module_system, read_json_if_there, token_of

pytestmark = pytest.mark.real_time


def test_jupyterlab_that_dies_later(quick: Job) -> None:
    quick.start()
    os.kill(quick.endpoint()["pid"], signal.SIGKILL)
    report = quick.exit()
    assert (report["cause"], report["exit_code"]) == ("jupyter-failed", 137)


def test_jupyterlab_that_never_listens(quick: Job) -> None:
    quick.ask("start_timeout=1")
    quick.env["STAND_IN"] = "silent"
    report = quick.run()
    assert report["cause"] == "jupyter-silent"
    assert "within 1 seconds" in report["message"]
    assert quick.processes() == []


@pytest.mark.parametrize(
    ("cause", "message", "goes_on"),
    [
        ("finished", "", False),
        ("idle", "", False),
        ("stopped", "", True),
        ("finished", "This session continues in session 20261120-014455-efgh, which is already running.", True),
    ],
)
def test_the_next_job_of_a_session_that_was_ended_before_its_time(
    quick: Job, cause: str, message: str, goes_on: bool
) -> None:
    """It was shut down, or nobody used it; at the end of its walltime it goes on."""
    before = quick.dir.parent / "20261120-014455-abcd"
    before.mkdir(parents=True)
    (before / "exit.json").write_text(
        f'{{"version":1,"job":"7","node":"n1","cause":"{cause}","message":"{message}"}}\n'
    )
    quick.ask(f"continues={before.name}")
    if goes_on:
        quick.start()
        assert quick.endpoint()["port"]
        return
    report = quick.run()
    assert report["cause"] == "finished"
    assert "so it does not continue in this job" in report["message"]
    assert not (quick.dir / "endpoint.json").exists()


@pytest.mark.parametrize(
    ("ended", "noted", "is_early"),
    [
        ("2026-11-21T11:57:00Z", '"ends":"2026-11-21T13:00:00+01:00"', True),
        ("2026-11-21T11:58:30Z", '"ends":"2026-11-21T13:00:00+01:00"', False),
        ("2026-11-21T12:00:05Z", '"ends":"2026-11-21T13:00:00+01:00"', False),
        ("2026-11-21T11:00:00Z", '"begins":null', False),
        ("2026-11-21T11:00:00Z", '"ends":"soon"', False),
        ("x", '"ends":"2026-11-21T13:00:00+01:00"', False),
    ],
)
def test_whether_a_session_was_cancelled_is_seen_by_its_walltime(
    tmp_path: Path, ended: str, noted: str, is_early: bool
) -> None:
    (tmp_path / "next_job.json").write_text(f'{{"version":1,"session":"a",{noted}}}\n')
    code = 'source "$1/job_services.sh"; REPLY=$2; ! was_ended_early "$3" || echo early'
    record = f'{{"version":1,"cause":"stopped","ended":"{ended}"}}'
    told = library(code, str(job_script("job_services.sh").parent), record, str(tmp_path))
    assert told == ("early\n" if is_early else "")


def test_the_next_job_of_a_session_that_was_cancelled_ends(quick: Job) -> None:
    before = quick.dir.parent / "20261120-014455-abcd"
    before.mkdir(parents=True)
    (before / "exit.json").write_text('{"version":1,"cause":"stopped","message":"","ended":"2026-11-20T02:00:00Z"}\n')
    (before / "next_job.json").write_text('{"version":1,"ends":"2026-11-20T03:45:00+00:00"}\n')
    quick.ask(f"continues={before.name}")
    report = quick.run()
    assert (report["cause"], "so it does not continue in this job" in report["message"]) == ("finished", True)


@pytest.mark.parametrize("began", ["before", "since"])
def test_the_next_job_of_a_session_that_was_put_back_into_the_queue(quick: Job, began: str) -> None:
    """One that has begun again since its next job was queued goes on for long."""
    before = quick.dir.parent / "20261120-014455-abcd"
    before.mkdir(parents=True)
    quick.ask(f"continues={before.name}")
    for file in (before / "started.json", quick.dir / "session.json"):
        file.write_text("{}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
    if began == "before":
        quick.start()
        assert quick.endpoint()["port"]
        return
    os.utime(before / "started.json", (1_000_000_060, 1_000_000_060))
    report = quick.run()
    assert report["message"] == f"Session {before.name} has started again, so it does not continue in this job yet."


@pytest.mark.parametrize("runs", [True, False])
def test_a_requeued_job_gives_way_to_its_next_one_that_runs(quick: Job, runs: bool) -> None:
    after = quick.dir.parent / "20261120-014455-abcd"
    after.mkdir(parents=True)
    quick.ask()
    (quick.dir / "next_job.json").write_text(f'{{"version":1,"session":"{after.name}","job":"8"}}\n')
    if not runs:
        quick.start()
        assert quick.endpoint()["port"] and not (quick.dir / "next_job.json").exists()
        return
    (after / "started.json").write_text("{}\n")
    message = quick.run()["message"]
    assert message == f"This session continues in session {after.name}, which is already running."


@pytest.mark.parametrize("program", ["jupyterlab", "notebook"])
def test_values_of_a_run_that_nobody_knows(program: str, tmp_path: Path) -> None:
    """They do not lead out of the session's directory, and are told."""
    (tmp_path / "env").write_text(f"program={program}\nnotebook=../../etc/-x\nto=$(id)\nfolder=here\n")
    told = library('read_settings "$1"; echo "$want_notebook|$want_to|$want_folder"', str(tmp_path / "env"))
    assert told.splitlines()[-1] == f"-x.ipynb|notebook|{Path.cwd()}/here"
    (tmp_path / "env").write_text("program=script\nscript=../../etc/x.sh\n")
    assert library('read_settings "$1"; echo "$want_program|$want_script"', str(tmp_path / "env")) == "script|x.sh\n"
    (tmp_path / "env").write_text("program=$(id)\nnotebook=../\n")
    assert library('read_settings "$1" 2>&1; echo "$want_program|$want_notebook"', str(tmp_path / "env")).endswith(
        "program='$(id)' is none of jupyterlab, shell, notebook and script; starting JupyterLab\n"
        "jupyterlab|notebook.ipynb\n"
    )


@pytest.mark.parametrize(
    ("asked", "taken", "said"),
    [
        ("start_timeout=$(id)", "600", "is not a number of seconds"),
        ("usage=3601", "5", "is neither 0 nor a number of seconds"),
        ("usage=$(id)", "5", "is neither 0 nor a number of seconds"),
        ("listen=everywhere", "local", "listen='everywhere' is neither local nor node"),
        ("html=maybe", "no", "html='maybe' is neither yes nor no"),
        ("fast_start=$(id)", "yes", "fast_start='$(id)' is neither yes nor no"),
        ("panel=maybe", "yes", "panel='maybe' is neither yes nor no"),
        ("sshd=maybe", "no", "sshd='maybe' is neither yes nor no"),
        ("reverse=maybe", "no", "reverse='maybe' is neither yes nor no"),
    ],
)
def test_values_that_nobody_knows(asked: str, taken: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"{asked}\n")
    name = f"want_{asked.partition('=')[0]}"
    log, value = library(f'read_settings "$1" 2>&1; echo "${name}"', str(tmp_path / "env")).splitlines()
    assert value == taken
    assert said in log


def test_jupyterlab_that_lets_strangers_in_is_ended(quick: Job) -> None:
    quick.env["STAND_IN"] = "open"
    report = quick.run()
    assert report["cause"] == "jupyter-failed"
    assert "without the token" in report["message"]
    assert not (quick.dir / "endpoint.json").exists()
    assert quick.processes() == []


def test_jupyterlab_with_another_token_is_ended(quick: Job) -> None:
    """As one that could not read our settings would have."""
    quick.env["STAND_IN"] = "another token"
    assert "does not use the session's token" in quick.run()["message"]
    assert token_of(quick) not in quick.log.read_text()


def test_jupyterlab_on_a_public_address_is_ended(quick: Job) -> None:
    quick.env["STAND_IN"] = "public"
    assert "other addresses" in quick.run()["message"]
    assert quick.processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_signals(quick: Job, number: signal.Signals) -> None:
    quick.start()
    quick.endpoint()
    quick.send(number)
    report = quick.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 128 + number)
    assert quick.processes() == []


def test_a_signal_while_modules_load(quick: Job) -> None:
    """A file server that hangs must not keep a cancelled job alive."""
    quick.env["MODULESHOME"] = str(module_system(quick, "module() { sleep 300; }"))
    quick.ask("module=slow")
    quick.start()
    wait_until(lambda: any(name_of(process) == "sleep" for process in quick.processes()))
    quick.send(signal.SIGTERM)
    assert quick.exit()["cause"] == "stopped"
    assert quick.processes() == []


def name_of(process: psutil.Process) -> str:
    """Its program's name; empty for one that ended since it was listed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def test_what_does_not_end_is_killed_and_reported_before(quick: Job) -> None:
    del quick.env["PBS_JOBID"]  # no scheduler would end what is left
    quick.env |= {"STAND_IN": "stubborn", "NBL_GRACE_SECONDS": "6"}
    quick.start()
    port = quick.endpoint()["port"]
    quick.send(signal.SIGTERM)
    wait_until((quick.dir / "exit.json").exists)
    assert quick.process is not None and quick.process.poll() is None, "it still waits"
    report, log = quick.exit(), quick.log.read_text()
    assert report["cause"] == "stopped"
    assert report["message"].startswith("The job was ended by signal SIGTERM: it was cancelled")
    assert "put back into the queue" not in report["message"], "it was in none"
    assert f"by hand: open http://127.0.0.1:{port}/lab on " in log and "ssh -J LOGIN_NODE" not in log
    assert "killing it" in log
    assert "waiting for JupyterLab to end" in log
    assert quick.processes() == [], "nor is the process in a session of its own left"


def test_a_requeued_job_forgets_its_first_run(quick: Job) -> None:
    quick.start()
    first = quick.endpoint()
    quick.send(signal.SIGTERM)
    message, log = quick.exit()["message"], quick.log.read_text()
    assert message.startswith("The job was ended by signal SIGTERM: it was cancelled or put back into the queue")
    assert f"by hand: ssh -J LOGIN_NODE -L {first['port']}:" in log and "by hand: open" not in log
    token = token_of(quick)
    quick.env["STAND_IN"] = "silent"
    (quick.dir / "ended-from").write_text("laptop2\n")
    quick.start()
    wait_until(lambda: not (quick.dir / "exit.json").exists())
    wait_until(lambda: "started" in (read_json_if_there(quick.dir / "started.json") or {}))
    assert not (quick.dir / "endpoint.json").exists() and not (quick.dir / "ended-from").exists()
    assert not list((quick.dir / "runtime").glob(f"jpserver-{first['pid']}.json"))
    assert token_of(quick) == token


def test_a_script_that_is_killed_says_nothing(quick: Job) -> None:
    quick.start()
    quick.endpoint()
    quick.send(signal.SIGKILL)
    assert quick.process is not None
    assert quick.process.wait(30) == -signal.SIGKILL
    assert not (quick.dir / "exit.json").exists(), "the scheduler's word counts then"


@pytest.fixture
def folder_of_sockets() -> Iterator[Callable[..., Path]]:
    """Makes folders as jobs make them for the sockets of their kernels, of Ray or of Dask."""
    made: list[Path] = []

    def make(whose: str = "kernels") -> Path:
        path = Path("/tmp", f"nl-{whose}-{secrets.token_hex(4)}")
        path.mkdir(mode=0o700)
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def test_the_folder_of_a_job_that_was_killed_as_a_whole_is_removed_by_the_next(
    quick: Job, folder_of_sockets: Callable[..., Path], tmp_path: Path
) -> None:
    """But only the user's own, and none that a process has to do with."""
    left, listened, named, linked = (folder_of_sockets() for _ in range(4))
    of_ray, starting = folder_of_sockets("ray"), folder_of_sockets("ray")
    os.utime(of_ray, (0, 0))  # one that is new may be that of a container that no process is in yet
    (left / "abc-1").touch()
    of_dask, computing, no_socket = (folder_of_sockets("dask") for _ in range(3))
    kept = [listened, named, linked, starting, computing, no_socket]
    (tmp_path / "precious").mkdir()
    linked.rmdir()
    linked.symlink_to(tmp_path / "precious")
    if os.geteuid() == 0:
        kept.append(folder_of_sockets())
        os.chown(kept[-1], 65534, 65534)
    dask_node = runpy.run_path(str(job_script("dask_node.py")))
    environment = {"NBL_KERNEL_FOLDER": str(named), "SLURM_JOB_ID": "of another job"}
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(f"{of_dask}/in-use")
    mark = dask_node["mark_in_use"](str(computing))
    for folder in (of_dask, computing, no_socket):
        os.utime(folder, (0, 0))
    with mark, socket.socket(socket.AF_UNIX) as kernel, subprocess.Popen(["sleep", "60"], env=environment) as server:
        kernel.bind(f"{listened}/abc-1")
        try:
            quick.start()
            quick.endpoint()
            wait_until(lambda: not (left.exists() or of_ray.exists() or of_dask.exists()))
            assert all(path.exists() for path in kept)
        finally:
            server.kill()
