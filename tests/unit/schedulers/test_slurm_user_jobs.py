"""The jobs of several users, from what Slurm 24.11 printed; some of the names are chosen to deceive."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import State
from notebook_launcher.schedulers.slurm.user_jobs import SlurmUserJobs
from notebook_launcher.schedulers.user_jobs import Selection, UserJob

SLURM = SlurmUserJobs()
MARK = "3f0c"
# as squeue printed it, with its blanks shortened
SQUEUE = """\
5   |3f0c|ivan |FAILED |core |node2 |2026-11-27T17:51:58+0000 |2026-11-27T17:51:58+0000 |20:00 |proj1 |(null) \
|cpu=1,mem=6400M,node=1,billing=1 |N/A |N/A |N/A |1 |1 |3:0 |NonZeroExitCode |20261121-014455-k3f4 |
2   |3f0c|alice |RUNNING |core |node1 |2026-11-27T17:51:58+0000 |2026-11-27T18:11:58+0000 |20:00 |proj1 |lab1 \
|cpu=1,mem=6400M,node=1,billing=1 |N/A |N/A |N/A |1 |1 |0:0 |None |evil
9|x|bob|RUNNING |core |node1 |s |e |20:00 |proj1 |lab1 |cpu=1 |N/A |N/A |N/A |1 |1 |0:0 |None |forged |
3   |3f0c|bob |RUNNING |gpu |gpu1 |2026-11-27T17:51:58+0000 |2026-11-27T18:11:58+0000 |20:00 |proj2 |(null) \
|cpu=1,mem=6400M,node=1,billing=1,gres/gpu=2,gres/gpu:t4=2 |gres/gpu:2 |N/A |N/A |1 |1 |0:0 |None |a|b|RUNNING |
6   |3f0c|carol |PENDING |gpu | |2026-11-27T19:00:00+0000 |2026-11-27T20:00:00+0000 |1:00:00 |proj1 |(null) \
|cpu=1,mem=6400M,node=1,billing=1 |N/A |gres/gpu:t4:1 |N/A |1 |1 |0:0 |Resources |lab |
"""


def test_each_line_that_carries_the_mark_is_a_job() -> None:
    jobs = SLURM.read_jobs(CommandResult(0, f"Welcome!\n{SQUEUE}"), MARK)
    assert jobs is not None
    failed, alice, bob, carol = jobs
    assert failed == UserJob(
        *("5", "ivan", State.FAILED, "20261121-014455-k3f4", "core", "node2"),
        *("2026-11-27T17:51:58+0000", "2026-11-27T17:51:58+0000", "20:00", "proj1"),
        *(None, 0, "NonZeroExitCode", 3),
    )
    assert (alice.name, alice.reservation, alice.exit_code) == ("evil", "lab1", None)
    assert (bob.name, bob.gpus, bob.node) == ("a|b|RUNNING", 2, "gpu1"), "a name may hold what separates fields"
    assert (carol.gpus, carol.start, carol.ends, carol.reason) == (1, "2026-11-27T19:00:00+0000", None, "Resources")


def test_a_name_cannot_pass_for_somebody_elses_job() -> None:
    jobs = SLURM.read_jobs(CommandResult(0, SQUEUE), MARK)
    assert jobs is not None and "9" not in {job.id for job in jobs}
    assert SLURM.read_jobs(CommandResult(0, SQUEUE), "another mark") == ()
    assert SLURM.read_jobs(CommandResult(1, SQUEUE), MARK) is None


@pytest.mark.parametrize(("printed", "code", "signal"), [("3:0", 3, None), ("0:9", 0, 9), ("1024", 4, None),
                                                         ("15", 0, 15), ("", None, None)])  # fmt: skip
def test_how_a_job_ended_as_each_version_of_squeue_prints_it(printed: str, code: int, signal: int | None) -> None:
    jobs = SLURM.read_jobs(CommandResult(0, SQUEUE.replace("|3:0 |", f"|{printed} |")), MARK)
    assert jobs and (jobs[0].exit_code, jobs[0].signal) == (code, signal)


def test_one_command_asks_for_all_of_them() -> None:
    words = SLURM.jobs(Selection(("alice", "bob"), "proj1", "lab1"), None, MARK)
    assert "--users=alice,bob" in words and "--local" in words
    assert not [word for word in words if word.startswith(("--account", "--reservation"))]
    assert words[-1].startswith("--Format=JobID:20|3f0c|,UserName:64|,")
    assert "--reservation=lab1" in SLURM.jobs(Selection((), "proj1", "lab1"), None, MARK)
    assert {"--clusters=snowy", "--account=proj1"} <= {*SLURM.jobs(Selection((), "proj1"), "snowy", MARK)}


def test_the_history_tells_how_jobs_ended() -> None:
    since = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
    words = SLURM.ended_jobs(Selection(("alice",)), None, since, MARK)
    assert {"--starttime=2026-11-27T12:00:00", "--user=alice", f"--delimiter={MARK}"} <= {*words}
    assert "--allusers" in SLURM.ended_jobs(Selection((), "proj1"), None, since, MARK)
    # as sacct printed it; the name of the second one has the end of a line, and what would be a row by itself
    rows = "1|alice|RUNNING|0:0|node1|2026-11-27T12:00:00|Unknown|00:20:00|core|proj1||lab\n" \
        "5|ivan|CANCELLED by 0|0:15|node2|2026-11-27T12:00:00|2026-11-27T12:01:00|00:20:00|core|proj1|lab1|a/b\n" \
        "nonsense\n7|x|y\n"  # fmt: skip
    rows = rows.replace("|", MARK).replace("a/b", "a|b")
    rows += "9|bob|FAILED|1:0|node1|2026-11-27T12:00:00|2026-11-27T12:01:00|00:20:00|core|proj1|lab1|forged\n"
    assert SLURM.read_ended_jobs(CommandResult(0, rows), MARK) == (
        UserJob(
            *("5", "ivan", State.CANCELLED, "a|b", "core", "node2", "2026-11-27T12:00:00+0000"),
            *("2026-11-27T12:01:00+0000", "00:20:00", "proj1", "lab1", None, None, 0, 15, "0"),
        ),
    )
    assert SLURM.read_ended_jobs(CommandResult(1, "", "Slurm accounting storage is disabled"), MARK) is None


def test_who_may_use_an_account() -> None:
    words = SLURM.members(("alice", "bob"), "proj1")
    assert {"account=proj1", "user=alice,bob"} <= {*words}
    assert SLURM.read_members(CommandResult(0, "proj1|\nproj1|alice\n")) == {"alice"}
    assert SLURM.read_members(CommandResult(1)) is None
