"""Flags of sbatch that the launcher does not know: it asks the real sbatch about them."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_options import FLAGS
from notebook_launcher.schedulers.base import FlagAnswer
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

Start = Callable[..., Session]
# run again on the oldest release of Slurm by `make test`
each_slurm = pytest.mark.each_slurm

# by the kind of a flag's argument: the answers to the flag without a value, and with the value 1, which not all accept
EXPECTED: dict[str, tuple[set[FlagAnswer], set[FlagAnswer]]] = {
    "none": ({"accepted"}, {"takes no value"}),
    "optional": ({"accepted"}, {"accepted", "refused"}),
    "required": ({"needs a value", "refused"}, {"accepted", "refused"}),
}

# changed in Slurm 26.05: the first one takes no value any more, and the second one may have one
CHANGED = frozenset({"get-user-env", "requeue"})


@each_slurm
def test_this_sbatch_tells_of_every_flag_what_the_launcher_takes_it_for(cluster: PracticeCluster) -> None:
    """Ask sbatch about each flag as if the launcher did not know it, with a value and without; nothing is submitted.

    A release of Slurm may lack a few newer flags, such as ``--segment``.
    """
    trials = [(flag, value) for flag in FLAGS for value in (None, "1")]
    commands = [shlex.join(Slurm().try_flag(flag.name, value)) for flag, value in trials]
    script = 'for one do sh -c "$one" >out 2>&1 </dev/null; echo "$?"; cat out; echo ----; done; rm out'
    shown = cluster.run("login", "alice", ["bash", "-c", script, "bash", *commands]).stdout.split("----\n")
    made_of_it: dict[str, list[FlagAnswer]] = {}
    for (flag, _), text in zip(trials, shown, strict=False):
        code, _, said = text.partition("\n")
        answer = CommandResult(int(code), said, said)
        made_of_it.setdefault(flag.name, []).append(Slurm().read_flag(flag.name, answer))
    missing = [name for name, answers in made_of_it.items() if answers == ["unknown", "unknown"]]
    assert len(missing) < 15 and {"time", "container", "wrap"}.isdisjoint(missing)
    wrong = {
        flag.name: (bare, with_value)
        for flag in FLAGS
        for bare, with_value in (made_of_it[flag.name],)
        if flag.name not in CHANGED.union(missing)
        and (bare not in EXPECTED[flag.argument][0] or with_value not in EXPECTED[flag.argument][1])
    }
    assert wrong == {}
    assert not cluster.squeue()


@each_slurm
def test_a_flag_that_this_sbatch_lacks_is_refused_once_it_was_asked(cluster: PracticeCluster, start: Start) -> None:
    session = start("--gpu-bandwidth=full", "-t", "5")
    assert session.end() == UsageError.exit_code
    told = " ".join(session.printed.split())
    assert "There is no flag --gpu-bandwidth." in told
    assert "Neither the launcher nor sbatch on login knows it." in told
    assert "did you mean --gpu-bind" in told
    assert_nothing_left(cluster)
