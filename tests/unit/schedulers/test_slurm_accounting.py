"""What Slurm's accounting says of a job, recorded and damaged."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.cli.views.bill import rows
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, State
from notebook_launcher.schedulers.local import Local
from notebook_launcher.usage.bill import Facts, make_bill
from tests.unit.usage.usage_facts import (
    HOUR,
    ID,
    RECORDED,
    SLURM,
    each_release,
    record,
)


def recorded(release: str, job: str, name: str = "accounting") -> AccountingRecord:
    text = (RECORDED / release / f"{name}.txt").read_text()
    told = SLURM.read_accounting(JobRef(job), CommandResult(0, text))
    assert told is not None
    return told


def test_the_command_of_the_accounting() -> None:
    words = SLURM.accounting(JobRef("5001", "snowy"))
    sacct = words[words.index("sacct") :]
    assert sacct[:5] == ["sacct", "--clusters=snowy", "--noheader", "--parsable2", "--noconvert"]
    assert "--jobs=5001" in sacct
    assert "SLURM_CLUSTERS" in words  # a user's own variable would send it elsewhere


@each_release
def test_a_job_with_gpus_counts_them_once(release: str) -> None:
    told = recorded(release, "1")
    assert (told.gpus, told.gpu_type, told.cores, told.nodes, told.partition) == (2, "a100", 2, 1, "gpu")
    wall = {"22.05": 6, "24.11": 6, "26.05": 7}[release]
    assert (told.wall, told.walltime, told.state) == (wall, 2 * HOUR, State.COMPLETED)
    assert told.cpu_used == pytest.approx({"22.05": 3.831, "24.11": 4.976, "26.05": 1.001}[release])
    assert told.cpu_reserved == 2 * wall  # CPUTime, of 2 cores
    assert told.memory_limit == 400
    assert told.memory_peak == pytest.approx(4, abs=2)
    assert told.complete
    assert told.joules is None


@each_release
def test_a_job_with_several_steps(release: str) -> None:
    told = recorded(release, "2")
    assert told.cpu_used == pytest.approx({"22.05": 0.749, "24.11": 1.767, "26.05": 0.423}[release])
    assert (told.gpus, told.memory_limit, told.memory_peak) == (0, 400, None)


@each_release
def test_a_job_that_was_put_back_into_the_queue_has_earlier_runs(release: str) -> None:
    told = recorded(release, "4")
    earlier = {"22.05": 3, "24.11": 4, "26.05": 3}[release]
    assert (told.wall, told.earlier, told.state, told.complete) == (12, earlier, State.COMPLETED, True)
    assert told.partition == "scavenge"


@each_release
def test_a_job_that_was_cancelled_while_it_waited_for_another_run(release: str) -> None:
    told = recorded(release, "5")
    assert told.wall in (2, 3)
    assert (told.earlier, told.complete) == (0, True)


@each_release
def test_a_job_of_another_cluster(release: str) -> None:
    assert recorded(release, "5001", "snowy-accounting").wall == 2


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(1, "", "Slurm accounting storage is disabled"),
        CommandResult(1, "", "sacct: error: Problem talking to the database: Connection refused"),
        CommandResult(0, ""),
        CommandResult(0, "Welcome to the cluster!\n"),
        CommandResult(0, "17|COMPLETED|2001|core|7|120|2|1||00:05.471|14||400M|\n"),
    ],
    ids=["disabled", "no database", "no such job", "a banner alone", "another job"],
)
def test_no_accounting(answer: CommandResult) -> None:
    assert SLURM.read_accounting(JobRef("1"), answer) is None


def row(job: str = "1", **fields: str) -> str:
    known = {"State": "COMPLETED", "UID": "2001", "Partition": "core", "ElapsedRaw": "60", "TimelimitRaw": "120",
             "AllocCPUS": "4", "AllocNodes": "2", "AllocTRES": "cpu=4,mem=8G,node=2", "TotalCPU": "00:30.000",
             "CPUTimeRAW": "240", "MaxRSS": "", "ReqMem": "", "ConsumedEnergyRaw": ""}  # fmt: skip
    return "|".join([job, *(known | fields).values()]) + "\n"


def told_by(*lines: str) -> AccountingRecord:
    told = SLURM.read_accounting(JobRef("1"), CommandResult(0, "".join(lines)))
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("4000M", 4000),
        ("4000Mc", 16000),
        ("4Gn", 8192),
        ("4G", 4096),
        ("1.50T", 1.5 * 1024**2),
        ("4000", 4000),
        ("?", None),
        ("0", None),
        ("0n", None),
        ("", None),
    ],
)
def test_memory_asked_for_in_every_spelling(text: str, mib: float | None) -> None:
    """Where the allocation has none."""
    assert told_by(row(ReqMem=text, AllocTRES="cpu=4,node=2")).memory_limit == mib


def test_the_limit_is_the_memory_that_was_allocated() -> None:
    """With hyperthreads a job has two cores if it asked for one, and memory for both; with --mem=0 all of the node."""
    assert [told_by(row(ReqMem=text)).memory_limit for text in ("4000M", "4Gn", "0", "?", "")] == [8192] * 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:05.471", 5.471), ("59:59", 3599), ("01:00:00", 3600), ("2-03:04:05", 183845), ("INVALID", None), ("", None)],
)
def test_cpu_time_in_every_spelling(text: str, seconds: float | None) -> None:
    assert told_by(row(TotalCPU=text)).cpu_used == seconds


@pytest.mark.parametrize(
    ("tres", "gpus", "kind"),
    [
        ("cpu=4,gres/gpu=2", 2, None),
        ("cpu=4,gres/gpu:a100=2", 2, "a100"),
        ("cpu=4,gres/gpu:a100=2,gres/gpu=2", 2, "a100"),
        ("cpu=4,gres/gpu=3,gres/gpu:a100=1,gres/gpu:t4=2", 3, None),
        ("cpu=4,gres/gpu=2,gres/gpu:a100=1", 2, None),
        ("cpu=4,gres/gpumem=40G", 0, None),
        ("cpu=4", 0, None),
        ("", None, None),
    ],
)
def test_gpus_of_every_spelling(tres: str, gpus: int | None, kind: str | None) -> None:
    told = told_by(row(AllocTRES=tres))
    assert (told.gpus, told.gpu_type) == (gpus, kind)


@pytest.mark.parametrize(
    ("lines", "complete"),
    [
        ([row(State="RUNNING")], False),
        ([row()], False),
        ([row(), row("1.batch", State="RUNNING")], False),
        ([row(), row("1.batch"), row("1.0", State="CANCELLED")], True),
        ([row(State="CANCELLED by 2001", ElapsedRaw="0")], True),
    ],
    ids=["it runs", "no steps yet", "a step is not over", "all is there", "it never ran"],
)
def test_when_the_figures_are_complete(lines: list[str], complete: bool) -> None:
    assert told_by(*lines).complete is complete


def test_a_number_that_was_given_twice_is_no_earlier_run() -> None:
    told = told_by(row(ElapsedRaw="999"), row("1.batch"), row(), row("1.batch"))
    assert (told.wall, told.earlier) == (60, 0)
    of_somebody_else = told_by(row(State="PREEMPTED", UID="17"), row())
    assert of_somebody_else.earlier == 0


@pytest.mark.parametrize(
    ("raw", "joules"), [("3600", 3600.0), ("0", None), ("", None), ("4294967294", None), ("18446744073709551614", None)]
)
def test_energy(raw: str, joules: float | None) -> None:
    assert told_by(row(), row("1.batch", ConsumedEnergyRaw=raw)).joules == joules


_ODD = st.text(st.sampled_from(string.printable + "|" * 20 + "äΩ٣"), max_size=12)


@given(st.lists(st.lists(_ODD, min_size=12, max_size=12), max_size=4), _ODD)
def test_damaged_accounting_is_no_error(fields: list[list[str]], noise: str) -> None:
    text = "".join("|".join(["1", *line]) + "\n" for line in fields) + noise
    told = SLURM.read_accounting(JobRef("1"), CommandResult(0, text))
    bill = make_bill(record(), "1", Facts(told), None)
    assert bill is None or list(rows(bill))


def test_without_a_scheduler_there_is_no_accounting() -> None:
    assert Local("/sessions").accounting(JobRef(ID)) is None
