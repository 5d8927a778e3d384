"""How it is read what sbatch says about a flag; a real one is asked in ``cluster_tests/test_unlisted_flags.py``."""

from __future__ import annotations

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import FlagAnswer
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.schedulers.slurm.unlisted_flags import NO_FLAG

TRY = 'Try "sbatch --help" for more information\n'
USAGE = "Usage: sbatch [-N nnodes] [-n ntasks]\n"


def test_sbatch_is_asked_without_submitting_anything() -> None:
    assert Slurm().try_flag("new", None)[-4:] == ["sbatch", "--new", f"--{NO_FLAG}", "--usage"]
    assert Slurm().try_flag("new", "a b")[-4:] == ["sbatch", "--new=a b", f"--{NO_FLAG}", "--usage"]


# the first five: 22.05 and 24.11 on Debian
@pytest.mark.parametrize(
    ("answer", "made_of_it"),
    [
        (CommandResult(1, "", f"sbatch: unrecognized option '--new'\n{TRY}"), "unknown"),
        (CommandResult(1, "", f"sbatch: unrecognized option '--new=a b'\n{TRY}"), "unknown"),
        (CommandResult(1, "", f"sbatch: unrecognized option '--{NO_FLAG}'\n{TRY}"), "accepted"),
        (CommandResult(1, "", f"sbatch: option '--new' doesn't allow an argument\n{TRY}"), "takes no value"),
        (CommandResult(0, USAGE, ""), "needs a value"),
        (CommandResult(1, "", "sbatch: option '--new' is ambiguous; possibilities: '--newer' '--newest'\n"), "unknown"),
        (CommandResult(1, "", "sbatch: unrecognized option: new\n"), "unknown"),
        (CommandResult(1, "", "sbatch: unrecognized option '--new-er'\n"), "refused"),
        (CommandResult(1, "", "sbatch: error: Invalid --new specification\n"), "refused"),
        (CommandResult(1, USAGE, ""), "refused"),
        (CommandResult(0, "", ""), "refused"),
        (CommandResult(0, "Submitted batch job 7\n", ""), "refused"),
    ],
)
def test_what_it_makes_of_a_flag(answer: CommandResult, made_of_it: FlagAnswer) -> None:
    assert Slurm().read_flag("new", answer) == made_of_it


def test_the_names_in_help_and_usage_without_those_that_no_launch_takes() -> None:
    shown = (
        "  -a, --array=indexes         job array index values\n      --bb=<spec>             burst buffer\n"
        "      --container             Path\n      --exclusive[=user]      a\n      --wrap[=command string] wrap\n"
        "Options provided by plugins:\n      --container-image=[USER@]IMAGE  the image, see --bb and \x1b[1m--evil\n"
    )
    usage = "Usage: sbatch [-N nnodes]\n              [--network=type] [--parsable] [--nice[=value]]\n"
    names = Slurm().read_flag_names([CommandResult(0, shown), CommandResult(0, usage)])
    assert names == ["bb", "container", "exclusive", "container-image", "network", "nice"]
