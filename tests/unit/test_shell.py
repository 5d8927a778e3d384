"""The shell command: its steps on Slurm, its words, and a session or a job of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from notebook_launcher import shell as shell_module
from notebook_launcher.cli.app import run
from notebook_launcher.cli.commands import shell as shell_command
from notebook_launcher.cli.commands.shell import shell
from notebook_launcher.core.errors import ImageNotMade, ImageUnusable
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.launch import OfferImage, no_offer
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site
from tests.doubles import FakePrompts, RecordingView

pytestmark = pytest.mark.timeout(60)


def test_a_step_with_a_terminal() -> None:
    words = Slurm().terminal_step(JobRef("7", "snowy"), ["bash", "/s p/shell.sh"])
    assert words[words.index("srun") :] == [
        "srun",
        "--clusters=snowy",
        "--jobid=7",
        "--overlap",
        "--pty",
        "--quiet",
        "--mpi=none",
        "--nodes=1",
        "--ntasks=1",
        "--relative=0",
        "--cpu-bind=none",
        "--",
        "bash",
        "/s p/shell.sh",
    ]
    assert Local("/root").terminal_step(JobRef("7"), ["bash", "x"]) == ["bash", "x"]


def test_a_step_takes_nothing_from_the_users_variables(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text(
        '#!/bin/sh\nenv; printf "one\\nsrun: error: n1: task 0: Exited with exit code 5\\n'
        'srun: error: Unable to create step\\n" >&2; exit 5\n'
    )
    (tmp_path / "srun").chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_CONF": "/etc/here",
        "SLURM_JOB_ID": "3",
        "SLURM_NTASKS": "9",
        "SRUN_CPUS_PER_TASK": "4",
        "SLURM_MEM_PER_NODE": "1",
        "MINE": "stays",
    }
    done = subprocess.run(
        Slurm().terminal_step(JobRef("7"), ["x"]), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert "SLURM_CONF=/etc/here" in done.stdout and "MINE=stays" in done.stdout
    assert re.findall("^(SLURM_(?!CONF).*|SRUN.*)=", done.stdout, re.M) == []
    assert done.stderr == "one\nsrun: error: Unable to create step\n", "that a command failed is no error of srun's"


def _srun(folder: Path, script: str) -> dict[str, str]:
    (folder / "srun").write_text(f"#!/bin/bash\n{script}\n")
    (folder / "srun").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("step", ["terminal_step", "command_step"])
def test_a_byte_that_is_no_text_hides_no_message_of_srun(tmp_path: Path, step: str) -> None:
    env = _srun(tmp_path, "printf 'srun: error: \\377\\0\\nsrun: error: Unable to create step\\n' >&2; exit 1")
    done = subprocess.run(getattr(Slurm(), step)(JobRef("7"), ["x"]), env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"srun: error: \xff\0\nsrun: error: Unable to create step\n")


def test_what_a_command_says_when_it_is_ended_is_seen(tmp_path: Path) -> None:
    """Ctrl-C, or the end of a connection, goes to all processes of the group."""
    env = _srun(
        tmp_path,
        'for word; do [[ $word != --error=* ]] || exec 7>"${word#--error=}"; done\n'
        "trap 'sleep 0.3; echo of its own >&7; echo srun: error: cancelled >&2; exit 9' TERM INT\n"
        "echo up >&7; echo up >&2; read -r",
    )
    words, pipe = Slurm().command_step(JobRef("7"), ["x"]), subprocess.PIPE
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as child:
            assert child.stderr
            assert [child.stderr.readline() for _ in range(2)] == [b"up\n"] * 2  # both filters are there
            os.killpg(child.pid, number)
            _, err = child.communicate(timeout=30)
        assert set(err.splitlines()) == {b"of its own", b"srun: error: cancelled"}


def test_a_closed_standard_error_changes_no_exit_code(tmp_path: Path) -> None:
    env = _srun(
        tmp_path,
        'for word; do [[ $word != --error=* ]] || exec 7>"${word#--error=}"; done\n'
        "echo out; echo of its own >&7; echo srun: error: it >&2; exit 3",
    )
    words = ["bash", "-c", 'exec "$@" 2>&-', "closed", *Slurm().command_step(JobRef("7"), ["x"])]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (3, b"out\n")


def test_a_command_that_fails_has_its_exit_code_and_its_own_errors_as_they_come(tmp_path: Path) -> None:
    """srun opens the file of --error itself; a progress bar, which ends no line, is seen before the command ends."""
    (tmp_path / "srun").write_text(
        "#!/bin/bash\n"
        'for word; do [[ $word != --error=* ]] || exec 7>"${word#--error=}"; done\n'
        "printf 'out\\n'; printf '50 %%\\r' >&7; read -r; printf 'srun: error: n1: task 0: of its own\\n' >&7\n"
        'printf "srun: error: n1: task 0: Exited with exit code 3\\nsrun: error: Unable to create step\\n" >&2\n'
        "exit 3\n"
    )
    (tmp_path / "srun").chmod(0o755)
    words = Slurm().command_step(JobRef("7"), ["x"])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, stdin=pipe, stdout=pipe, stderr=pipe
    ) as child:
        assert child.stdin and child.stdout and child.stderr
        assert child.stderr.read(5) == b"50 %\r"
        out, err = child.communicate(b"go on\n", timeout=30)
    assert (child.returncode, out) == (3, b"out\n")
    assert sorted(err.splitlines()) == [b"srun: error: Unable to create step", b"srun: error: n1: task 0: of its own"]
    assert Local("/root").command_step(JobRef("7"), ["x"]) is None


def test_no_shell_into_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["shell"]) == 2
    assert "in a terminal, not in a pipe" in capfd.readouterr().err
    assert run(["shell", "--json"]) == 2
    assert "speaks no JSON" in capfd.readouterr().out


def test_a_session_or_a_job_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["shell", "abc", "-t", "5", "--command", "true"]) == 2
    assert "only one of the two" in capfd.readouterr().err
    assert run(["shell", "-c", "nvidia-smi", "--command", "true"]) == 2
    assert "two commands" in capfd.readouterr().err
    assert run(["shell", "-c", "nvidia-smi", "-c", " "]) == 2
    assert "empty" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "cores", "command"),
    [
        (["-c", "4"], "4", None),
        (["-c", "nproc"], None, "nproc"),
        (["--cpus-per-task=4", "-c", "nproc"], "4", "nproc"),
        (["--cpus-per-task=four", "--command", "nproc"], "four", "nproc"),
    ],
)
def test_a_number_after_c_means_cores(
    monkeypatch: pytest.MonkeyPatch, words: list[str], cores: str | None, command: str | None
) -> None:
    def note(plan: Plan, request: shell_module.ShellRequest, *_: object) -> int:
        asked.append((plan.request.flags.get("cpus-per-task"), request.command))
        return 0

    asked: list[object] = []
    monkeypatch.setattr(shell_module, "shell_in_new_job", note)
    monkeypatch.setattr(
        shell_module, "shell_in_session", lambda _place, _prefix, request, *_: asked.append((None, request.command))
    )
    monkeypatch.setattr(shell_command, "_check_terminal", lambda _where: None)
    run(["shell", *words])
    assert asked == [(cores, command)]


def test_the_help_tells_both_kinds() -> None:
    text = CliRunner().invoke(shell, ["--help"], obj={}).output
    assert "shell -t 0:10:00 --gpus 1 -- tf-gpu" in text


class Queued(Exception):
    """A job was submitted."""


def queued(*_: object, **__: object) -> None:
    raise Queued


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """This machine as a login node, on which submitting a job raises ``Queued``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    site = Site(str(tmp_path), "alice", "login", datetime.now(timezone.utc))
    prompts = CountedPrompts(FakePrompts())
    context = Context(target, LocalHost(), site, Slurm(), str(tmp_path), RecordingView(), prompts, Interrupts())
    monkeypatch.setattr(shell_module, "open_context", lambda *_, **__: contextlib.nullcontext(context))
    monkeypatch.setattr(shell_module, "queue_session", queued)
    return context


def open_shell(context: Context, plan: Plan, offer_image: OfferImage = no_offer, *, inside: bool = True) -> None:
    request = shell_module.ShellRequest(inside)
    shell_module.shell_in_new_job(plan, request, context.view, context.prompts, context.interrupts, offer_image)


@pytest.mark.parametrize(("inside", "error"), [(True, ImageUnusable), (False, Queued)])
def test_a_missing_image_is_refused_before_the_queue_unless_the_shell_is_outside_of_it(
    context: Context, inside: bool, error: type[Exception]
) -> None:
    plan = Plan(context.target, Request({}), None, Environment(), "~/no.sif", container_typed=True)
    with pytest.raises(error):
        open_shell(context, plan, inside=inside)


@pytest.mark.parametrize(("is_made", "error"), [(False, ImageNotMade), (True, Queued)])
def test_an_image_that_can_be_made_is_offered_as_before_a_launch(
    context: Context, is_made: bool, error: type[Exception]
) -> None:
    def offer(plan: Plan, _context: Context) -> bool:
        offered.append(plan.environment_name)
        return is_made

    offered: list[str | None] = []
    plan = Plan(context.target, Request({}), "torch", Environment(definition="torch"), "~/no.sif")
    with pytest.raises(error):
        open_shell(context, plan, offer)
    assert offered == ["torch"]
    with pytest.raises(Queued):
        open_shell(context, plan, offer, inside=False)
    assert offered == ["torch"], "a shell outside of the image needs none"
