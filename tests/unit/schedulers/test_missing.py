"""A machine without Slurm and LSF: what is said of it, and that it is looked for in every place."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.schedulers.missing import LOOK, missing_scheduler


@pytest.mark.parametrize(
    ("found", "modules", "why", "hint"),
    [
        (
            (),
            (),
            "A login shell there finds neither sbatch nor bsub.",
            "check that login.uni.example is",
        ),
        (("qsub", "qconf"), (), "Its scheduler is not supported: Grid Engine (found: qconf, qsub).", "use a"),
        (
            ("qsub", "pbsnodes"),
            (),
            "not supported: PBS (found: pbsnodes, qsub).",
            "use a cluster with Slurm or LSF",
        ),
        (("qsub",), (), "not supported: PBS or Grid Engine (found: qsub).", "use a cluster"),
        (("condor_submit",), (), "not supported: HTCondor (found: condor_submit).", "use a cluster"),
        (
            (),
            ("slurm/24.05", "slurm"),
            "A module may provide the commands: slurm/24.05, slurm.",
            "~/.bash_profile there: module load slurm/24.05",
        ),
    ],
)
def test_what_there_is_instead_is_named(found: tuple[str, ...], modules: tuple[str, ...], why: str, hint: str) -> None:
    error = missing_scheduler("login.uni.example", found, modules)
    assert isinstance(error, SchedulerMissing)
    assert error.what == "Neither Slurm nor LSF was found on login.uni.example."
    assert why in error.why
    assert hint in error.hint
    assert "--cluster here" not in error.hint, "that would be another machine"


def test_this_machine_may_be_meant() -> None:
    assert missing_scheduler("desk", ("qsub",), is_here=True).hint.endswith(
        "or run JupyterLab on this machine itself: --cluster here"
    )


NAMES = "/sw/modules: gcc/12 slurm/ 'slurm/24.05(default)' slurm-drmaa lsf/10 'slurm/$(x)'"
MODULE = f"module() {{ printf '%s\\n' {NAMES} >&2; }}\n"


def looked(folder: Path, *commands: str, before: str = "") -> list[str]:
    folder.mkdir()
    for command in commands:
        (folder / command).write_text("#!/bin/sh\nexit 1\n")
        (folder / command).chmod(0o755)
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("sed", "head"):
        if not (tools / tool).exists():
            (tools / tool).symlink_to(str(shutil.which(tool)))
    env = {"PATH": f"{folder}:{tools}"}
    done = subprocess.run(["/bin/bash", "-c", before + LOOK], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(os.name != "posix", reason="a Bash script")
def test_commands_and_modules_are_found(tmp_path: Path) -> None:
    assert looked(tmp_path / "nothing") == []
    assert looked(tmp_path / "slurm", "sbatch", "qsub", before=MODULE) == ["sbatch", "qsub"], (
        "modules do not matter then"
    )
    assert looked(tmp_path / "grid", "qsub", "qconf") == ["qconf", "qsub"]
    assert looked(tmp_path / "module", before=MODULE) == ["module slurm/24.05", "module lsf/10"]
