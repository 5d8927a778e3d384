"""Reading what explains a wait: only what is needed, nothing that fails a session; several questions by one login."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.diagnosis import explain
from notebook_launcher.hosts.base import RUN_TIMEOUT
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.evidence import SLOW, gather_evidence, run_queries
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.cluster_info import Evidence, Limit, Partition
from notebook_launcher.schedulers.slurm.commands import Slurm

CLUSTER_INFO = Slurm.cluster_info
REQUEST = Request({"partition": "gpu", "account": "proj1", "qos": "normal", "time": "1:00:00"})
STATUS = JobStatus(
    JobRef("7"), State.PENDING, "Priority", partition="gpu", account="proj1", qos="normal", walltime="1:00:00"
)
PARTITION = Partition("gpu", walltime=Walltime(days=2))
TOLD = {  # by the command's first word of its own
    "scontrol": "PartitionName=gpu MaxTime=2-00:00:00",
    "sh": "UserName=alice(7) DefAccount=proj1\nClusterName=c Account=proj1 UserName=alice(7) Partition=\n MaxJobs=4(1)",
    "squeue": "6|200|bob|Resources\n7|100|alice|Priority",
}


class Told(LocalHost):
    """A login node that answers from ``TOLD``, or fails in a way of its own, and remembers what it was asked."""

    def __init__(self, failing: str = "", how: CommandResult | LauncherError | None = None) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self.failing, self.how = failing, how

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        assert (login_shell, timeout) == (True, SLOW)
        self.asked.append(list(argv))
        word = next(word for word in argv if word in TOLD)
        if isinstance(self.how, LauncherError) and word == self.failing:
            raise self.how
        return (
            self.how if isinstance(self.how, CommandResult) and word == self.failing else CommandResult(0, TOLD[word])
        )


def status(partition: str | None = "gpu", cluster: str | None = None) -> JobStatus:
    return replace(STATUS, job=JobRef("7", cluster), partition=partition)


@pytest.fixture
def needs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the reason calls for, to be filled by a test."""
    needed: set[str] = set()
    double = lambda reason: frozenset(needed) if reason == "Priority" else frozenset()  # noqa: E731
    monkeypatch.setattr(explain, "evidence_needed", double)
    return needed


@pytest.mark.parametrize(
    ("needed", "evidence"),
    [
        ((), Evidence(REQUEST, "gpu")),
        (("partitions",), Evidence(REQUEST, "gpu", partitions=(PARTITION,))),
        (("limits",), Evidence(REQUEST, "gpu", limits=(Limit("account proj1", "jobs", "user", "4", "1"),))),
        (("ahead",), Evidence(REQUEST, "gpu", ahead=1)),
        (("partitions", "ahead"), Evidence(REQUEST, "gpu", partitions=(PARTITION,), ahead=1)),
    ],
)
def test_only_what_is_needed_is_read_and_each_by_one_command(
    needs: set[str], needed: tuple[str, ...], evidence: Evidence
) -> None:
    needs.update(needed)
    host = Told()
    assert gather_evidence(host, CLUSTER_INFO, status(), REQUEST, "alice") == evidence
    assert len(host.asked) == len(needed)


def test_the_jobs_own_cluster_and_partition_are_asked_about(needs: set[str]) -> None:
    needs |= {"ahead", "partitions", "limits"}
    host = Told()
    evidence = gather_evidence(host, CLUSTER_INFO, status("devcore", "snowy"), REQUEST, "alice")
    assert evidence.partition == "devcore"
    assert host.asked == [
        CLUSTER_INFO.partitions("snowy"),
        CLUSTER_INFO.limits("alice", "snowy"),
        CLUSTER_INFO.ahead("devcore", "snowy"),
    ]


@pytest.mark.parametrize(
    ("asked", "told", "expected"),
    [
        ({}, {}, {"partition": "gpu", "account": "proj1", "qos": "normal", "time": "1:00:00"}),
        (
            {"account": "proj2", "qos": "short", "partition": "core", "time": "9:00:00"},
            {},
            {"partition": "gpu", "account": "proj1", "qos": "normal", "time": "1:00:00"},
        ),
        (
            {"account": "proj2", "qos": "short", "time": "9:00:00"},
            {"account": None, "qos": None, "walltime": None},
            {"partition": "gpu", "time": "9:00:00"},
        ),
        (
            {"time": "9:00:00"},
            {"walltime": "UNLIMITED", "qos": None},
            {"partition": "gpu", "account": "proj1", "time": "UNLIMITED"},
        ),
        (
            {"time": "9:00:00", "gpus": "2"},
            {"walltime": "sometimes"},
            {"partition": "gpu", "account": "proj1", "qos": "normal", "time": "9:00:00", "gpus": "2"},
        ),
    ],
)
def test_it_judges_by_the_job_and_not_by_what_was_asked_for(
    needs: set[str], asked: dict[str, str | None], told: dict[str, str | None], expected: dict[str, str | None]
) -> None:
    evidence = gather_evidence(Told(), CLUSTER_INFO, replace(STATUS, **told), Request(asked), "alice")
    assert evidence.request == Request(expected)


@pytest.mark.parametrize("unknown", ["account", "qos"])
def test_limits_of_an_account_or_qos_that_was_not_told_are_not_read(needs: set[str], unknown: str) -> None:
    needs.add("limits")
    host = Told()
    evidence = gather_evidence(host, CLUSTER_INFO, replace(STATUS, **{unknown: None}), REQUEST, "alice")
    assert (evidence.limits, host.asked) == (None, [])


def test_a_limit_is_no_proof_for_a_job_with_another_account() -> None:
    """``SBATCH_ACCOUNT`` in a user's start-up files: the launcher's flags name no account, the job has another one."""
    status = replace(STATUS, reason="AssocGrpGRES", account="proj2")
    evidence = gather_evidence(Told(), CLUSTER_INFO, status, Request({"gpus": "9"}), "alice")
    assert evidence.limits is None  # of proj1 much is told, of proj2 nothing
    assert not explain.pending(status.reason, evidence).never


def test_a_partition_that_the_scheduler_did_not_tell_is_that_of_the_request(needs: set[str]) -> None:
    assert gather_evidence(Told(), CLUSTER_INFO, status(None), REQUEST, "alice").partition == "gpu"


def test_without_a_partition_nobody_is_counted(needs: set[str]) -> None:
    needs.add("ahead")
    host = Told()
    assert gather_evidence(host, CLUSTER_INFO, status(None), Request(), "alice").ahead is None
    assert host.asked == []


@pytest.mark.parametrize(
    "how",
    [
        CommandResult(1, "", "slurm_load_jobs error: Socket timed out"),
        HostCommandFailed("squeue did not answer within 20 s"),
    ],
    ids=["failing", "slow"],
)
def test_a_command_that_fails_or_is_slow_leaves_its_part_unread(
    needs: set[str], how: CommandResult | LauncherError
) -> None:
    needs |= {"ahead", "partitions"}
    evidence = gather_evidence(Told("squeue", how), CLUSTER_INFO, status(), REQUEST, "alice")
    assert (evidence.partitions, evidence.ahead) == ((PARTITION,), None)


def test_a_lost_connection_is_told(needs: set[str]) -> None:
    needs |= {"ahead", "partitions"}
    with pytest.raises(ConnectionLost):
        gather_evidence(Told("scontrol", ConnectionLost("gone")), CLUSTER_INFO, status(), REQUEST, "alice")


# --- several questions at once ---------------------------------------------------------------------------------


def test_each_of_several_commands_has_its_own_answer() -> None:
    answers = run_queries(
        LocalHost(),
        [
            ["printf", "%s", "no end of line"],
            ["sh", "-c", "echo out; echo err >&2; exit 3"],
            ["cat"],
            ["true"],
            ["no-such-command-anywhere"],
            ["printf", "%s\\n", "$HOME `id` 'quoted' --answered-- 7", "*"],
        ],
    )
    assert answers[:4] == [
        CommandResult(0, "no end of line"),
        CommandResult(3, "out\n", "err\n"),
        CommandResult(0),
        CommandResult(0),
    ]
    assert answers[4].exit_code == 127
    assert "no-such-command-anywhere" in answers[4].stderr
    assert answers[5] == CommandResult(0, "$HOME `id` 'quoted' --answered-- 7\n*\n")


def test_what_was_cut_off_has_failed() -> None:
    class Cut(LocalHost):
        def run(
            self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
        ) -> CommandResult:
            answer = super().run(argv)
            return CommandResult(0, answer.stdout[: answer.stdout.index("two")], answer.stderr)

    answers = run_queries(Cut(), [["echo", "one"], ["echo", "two"], ["echo", "three"]])
    assert answers == [CommandResult(0, "one\n"), CommandResult(1), CommandResult(1)]
