"""The bill of a session: what Slurm's accounting and the samples tell, which figure counts, and what is advised."""

from __future__ import annotations

import dataclasses
import io
import string
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.cli.views.bill import rows, show_receipt, title
from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.usage_samples import GpuSample, Sample
from notebook_launcher.profiles.models import Price
from notebook_launcher.schedulers.base import Accounted, JobRef, State
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import SessionRecord
from notebook_launcher.usage.bill import Facts, make_bill
from notebook_launcher.usage.totals import add_up, gigabytes, last_run, span

SLURM = Slurm()
RECORDED = Path(__file__).parent / "recorded"  # what alice was told on the practice cluster
ID = "20261121-014455-k3f9"
BEGAN = datetime(2026, 11, 21, 1, 45, tzinfo=timezone.utc)
HOUR = 3600

each_generation = pytest.mark.parametrize("generation", ["22.05", "24.11"])


def recorded(generation: str, job: str, name: str = "accounting") -> Accounted:
    text = (RECORDED / generation / f"{name}.txt").read_text()
    told = SLURM.read_accounting(JobRef(job), Answer(0, text))
    assert told is not None
    return told


# --- Slurm's accounting --------------------------------------------------------------------------------------


def test_the_command_of_the_accounting() -> None:
    words = SLURM.accounting(JobRef("5001", "snowy"))
    sacct = words[words.index("sacct") :]
    assert sacct[:5] == ["sacct", "--clusters=snowy", "--noheader", "--parsable2", "--noconvert"]
    assert "--jobs=5001" in sacct
    assert "SLURM_CLUSTERS" in words  # a user's own variable would send it elsewhere


@each_generation
def test_a_job_with_gpus_counts_them_once(generation: str) -> None:
    told = recorded(generation, "1")
    assert (told.gpus, told.gpu_type, told.cores, told.nodes, told.partition) == (2, "a100", 2, 1, "gpu")
    assert (told.wall, told.walltime, told.state) == (6, 2 * HOUR, State.COMPLETED)
    assert told.cpu_used == pytest.approx({"22.05": 3.831, "24.11": 4.976}[generation])
    assert told.cpu_reserved == 12  # CPUTime: 6 s of 2 cores
    assert told.memory_asked == 400
    assert told.memory_peak == pytest.approx(4, abs=2)
    assert told.complete
    assert told.joules is None


@each_generation
def test_a_job_with_several_steps(generation: str) -> None:
    told = recorded(generation, "2")
    assert told.cpu_used == pytest.approx({"22.05": 0.749, "24.11": 1.767}[generation])
    assert (told.gpus, told.memory_asked, told.memory_peak) == (0, 400, None)


@each_generation
def test_a_job_that_was_put_back_into_the_queue_has_earlier_runs(generation: str) -> None:
    told = recorded(generation, "4")
    earlier = {"22.05": 3, "24.11": 4}[generation]
    assert (told.wall, told.earlier, told.state, told.complete) == (12, earlier, State.COMPLETED, True)
    assert told.partition == "scavenge"


@each_generation
def test_a_job_that_was_cancelled_while_it_waited_for_another_run(generation: str) -> None:
    told = recorded(generation, "5")
    assert told.wall in (2, 3)
    assert (told.earlier, told.complete) == (0, True)


@each_generation
def test_a_job_of_another_cluster(generation: str) -> None:
    assert recorded(generation, "5001", "snowy-accounting").wall == 2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(1, "", "Slurm accounting storage is disabled"),
        Answer(1, "", "sacct: error: Problem talking to the database: Connection refused"),
        Answer(0, ""),
        Answer(0, "Welcome to the cluster!\n"),
        Answer(0, "17|COMPLETED|2001|core|7|120|2|1||00:05.471|14||400M|\n"),
    ],
    ids=["disabled", "no database", "no such job", "a banner alone", "another job"],
)
def test_no_accounting(answer: Answer) -> None:
    assert SLURM.read_accounting(JobRef("1"), answer) is None


def row(job: str = "1", **fields: str) -> str:
    known = {"State": "COMPLETED", "UID": "2001", "Partition": "core", "ElapsedRaw": "60", "TimelimitRaw": "120",
             "AllocCPUS": "4", "AllocNodes": "2", "AllocTRES": "cpu=4,mem=8G,node=2", "TotalCPU": "00:30.000",
             "CPUTimeRAW": "240", "MaxRSS": "", "ReqMem": "", "ConsumedEnergyRaw": ""}  # fmt: skip
    return "|".join([job, *(known | fields).values()]) + "\n"


def told_by(*lines: str) -> Accounted:
    told = SLURM.read_accounting(JobRef("1"), Answer(0, "".join(lines)))
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
        ("?", 8192),
        ("0", 8192),
        ("0n", 8192),
        ("", 8192),
    ],
)
def test_memory_asked_for_in_every_spelling(text: str, mib: float) -> None:
    """What is no number is what was given: 8G of AllocTRES."""
    assert told_by(row(ReqMem=text)).memory_asked == mib


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
    told = SLURM.read_accounting(JobRef("1"), Answer(0, text))
    bill = make_bill(record(), "1", Facts(told), None)
    assert bill is None or list(rows(bill))


def test_without_a_scheduler_there_is_no_accounting() -> None:
    assert Local("/sessions").accounting(JobRef(ID)) is None


# --- samples -------------------------------------------------------------------------------------------------


def sample(seconds: float, cores: float = 0.5, memory: float = 3174.0, gpus: tuple[GpuSample, ...] = ()) -> Sample:
    return Sample(BEGAN + timedelta(seconds=seconds), seconds, cores, memory, gpus)


def gpu(index: str = "0", percent: float | None = 40.0, memory: float = 12288.0) -> GpuSample:
    return GpuSample(index, "NVIDIA A100-SXM4-40GB", percent, memory, 40960.0, 180.0)


def steady(seconds: int, every: int = 5, **about: object) -> list[Sample]:
    return [sample(at, **about) for at in range(every, seconds + 1, every)]  # type: ignore[arg-type]


def test_what_samples_add_up_to() -> None:
    use = add_up(
        [*steady(1800, gpus=(gpu(), gpu("1", 0.0, 4.0))), *steady(3600, gpus=(gpu(), gpu("1", 0.0, 4.0)))[360:]]
    )
    assert use.seconds == 3600
    assert use.cpu == pytest.approx(1800)
    assert use.gpu_percent == pytest.approx(20)
    assert (use.gpus, use.idle_gpus) == (2, 1)
    assert use.watt_hours == pytest.approx(360)
    assert (use.gpu_memory_peak, use.gpu_memory_total) == (12288, 40960)


def test_uneven_samples_count_for_the_time_that_they_stand_for() -> None:
    """The job thins out old ones: fewer of an hour do not count less."""
    use = add_up([*(sample(at, 1.0) for at in range(40, 3601, 40)), *(sample(at, 0.0) for at in range(3605, 7201, 5))])
    assert use.cpu == pytest.approx(3600)
    assert use.seconds == 7200


def test_a_gap_counts_for_nothing() -> None:
    assert add_up([*steady(600), sample(5000)]).seconds == 600 + 5


def test_of_a_job_that_was_put_back_into_the_queue_the_last_run_counts() -> None:
    """As its wall time in the accounting does."""
    first, second = steady(3600, cores=4.0, memory=9000.0), steady(600, cores=1.0, memory=100.0)
    use = add_up(last_run([*first, *second]))
    assert (use.seconds, use.cores_peak, use.memory_peak) == (600, 1, 100)
    assert last_run(first) == first
    bill = make_bill(record(), "1", Facts(wall=610, samples=[*first, *second]), None)
    assert bill is not None
    assert bill.memory_peak == 100


def test_no_samples_tell_nothing() -> None:
    use = add_up([])
    assert (use.cpu, use.memory_peak, use.gpu_percent, use.watt_hours, use.seconds) == (None, None, None, None, 0)


# --- the bill ------------------------------------------------------------------------------------------------


def record(flags: dict[str, str | None] | None = None, scheduler: str = "slurm") -> SessionRecord:
    asked: dict[str, str | None] = {"time": "2:00:00"} if flags is None else flags
    return SessionRecord(id=ID, created=BEGAN, scheduler=scheduler, flags=asked, log="/log")


def accounted(**about: object) -> Accounted:
    told = Accounted(JobRef("7"), state=State.CANCELLED, wall=72 * 60, walltime=2 * HOUR, cores=8, nodes=1, gpus=1,
                     gpu_type="a100", cpu_used=1680.0, cpu_reserved=72 * 60 * 8, memory_peak=3000.0,
                     memory_asked=55 * 1024.0)  # fmt: skip
    return dataclasses.replace(told, **about)  # type: ignore[arg-type]


def billed(facts: Facts, flags: dict[str, str | None] | None = None, price: Price | None = None) -> events.Bill:
    bill = make_bill(record(flags), "7", facts, price)
    assert bill is not None
    return bill


def test_accounting_and_samples_together() -> None:
    bill = billed(Facts(accounted(), steady(72 * 60, gpus=(gpu(),)), 4321.0, "gpu1"))
    assert (bill.wall, bill.walltime, bill.cores, bill.gpus) == (4320, 7200, 8, 1)
    assert bill.cpu_used == pytest.approx(2160)  # the samples saw more: what is killed is not in Slurm's figure
    assert (bill.memory_peak, bill.memory_asked) == (3174, 55 * 1024)
    assert bill.energy == pytest.approx(216)
    assert bill.energy_of == "GPUs"
    assert bill.measured == "by Slurm's accounting and 864 samples of the job"


def test_samples_alone_do_without_accounting() -> None:
    bill = billed(Facts(None, steady(600), 602.0), {"time": "2:00:00", "mem": "8G", "gpus": "a100:1"})
    assert (bill.wall, bill.cores, bill.cpu_reserved, bill.memory_asked, bill.gpus) == (602, None, None, 8192, 1)
    assert bill.cpu_used == pytest.approx(300)
    assert "accounting tells nothing" in bill.measured


def test_a_node_that_tells_nothing_of_gpus_is_said_to() -> None:
    bill = billed(Facts(accounted(), steady(600), node="gpu1"))
    assert "no nvidia-smi and no rocm-smi told of GPUs on gpu1" in bill.measured


def test_figures_that_were_not_complete_say_so() -> None:
    bill = billed(Facts(accounted(complete=False, wall=3, cpu_used=0.0), steady(600), 600.0))
    assert (bill.wall, bill.cpu_used) == (600, 300)
    assert "have not come" in bill.measured


@pytest.mark.parametrize("told", [None, Accounted(JobRef("7"), state=State.CANCELLED, wall=0)])
def test_a_session_that_never_ran_has_no_bill(told: Accounted | None) -> None:
    assert make_bill(record(), "7", Facts(told), None) is None


def test_energy_of_the_node_where_the_gpus_tell_none() -> None:
    bill = billed(Facts(accounted(joules=720_000.0)))
    assert (bill.energy, bill.energy_of) == (200, "node")


def test_without_a_scheduler_only_use_is_told() -> None:
    bill = make_bill(record({"time": "0:59:00"}, "local"), ID, Facts(None, steady(900, gpus=(gpu(),)), 900.0), None)
    assert bill is not None
    assert (bill.cores, bill.memory_asked, bill.gpus, bill.advice) == (None, None, 1, ())
    assert "accounting" not in bill.measured


@pytest.mark.parametrize(
    ("price", "told", "flags", "cost"),
    [
        (Price(unit="SBU", gpu_hour=100.0), accounted(), {}, 120.0),
        (Price(unit="SBU", gpu_hour={"a100": 10.0, "t4": 1.0}, core_hour=1.0), accounted(), {}, 21.6),
        (Price(unit="SBU", gpu_hour={"A100": 10.0}), accounted(), {}, 12.0),
        (Price(unit="SBU", gpu_hour={"t4": 1.0}), accounted(), {}, None),
        (Price(unit="SBU", gpu_hour={"t4": 1.0}, core_hour=1.0), accounted(gpus=0, gpu_type=None), {}, 9.6),
        (Price(unit="SBU", node_hour=2.0), accounted(earlier=1080), {}, 3.0),
        (Price(unit="SBU", core_hour=1.0), None, {}, None),
        (Price(unit="SBU", gpu_hour={"a100": 10.0}), None, {"gpus": "a100:2"}, 24.0),
        (Price(unit="SBU", gpu_hour={"a100": 10.0}), None, {"gres": "gpu:a100:2"}, 24.0),
        (Price(unit="SBU", gpu_hour={"a100": 10.0}), None, {"gpus": "2"}, 24.0),
        (Price(unit="SBU"), accounted(), {}, 0.0),
        (None, accounted(), {}, None),
    ],
    ids=["one price", "by type, and cores", "in capitals", "a type without a price", "no GPU used", "nodes, and a run "
         "before", "cores that nobody tells", "type asked for", "type in a GRES", "type by the driver", "nothing has "
         "a price", "no price"],
)  # fmt: skip
def test_cost(price: Price | None, told: Accounted | None, flags: dict[str, str | None], cost: float | None) -> None:
    bill = billed(Facts(told, steady(72 * 60, gpus=(gpu(), gpu("1"))), 72 * 60.0), {"time": "2:00:00", **flags}, price)
    assert bill.cost == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize(
    ("flags", "partition", "cost"),
    [({}, "dear", 960.0), ({}, "core", 9.6), ({}, None, None), ({"partition": "core,dear"}, "dear", 960.0),
     ({"partition": "core"}, None, 9.6)],
    ids=["left to the scheduler", "one without rates of its own", "nobody tells", "one of two", "as asked for"],
)  # fmt: skip
def test_the_partition_where_it_ran_counts(flags: dict[str, str | None], partition: str | None, cost: float) -> None:
    price = Price.model_validate({"unit": "SBU", "core_hour": 1, "partitions": {"dear": {"core_hour": 100}}})
    bill = billed(Facts(accounted(partition=partition)), flags, price)
    assert bill.cost == (None if cost is None else pytest.approx(cost))


# --- next time -----------------------------------------------------------------------------------------------


def advice(minutes: int, flags: dict[str, str | None], samples: dict[str, Any] | None = None, **told: Any) -> list[str]:
    usual = {"wall": minutes * 60, "gpus": 0, "gpu_type": None, "walltime": 4 * HOUR}
    facts = Facts(accounted(**usual | told), steady(minutes * 60, **(samples or {})), minutes * 60.0)
    return [flag for flag, _ in billed(facts, {"time": "4:00:00", **flags}).advice]


@pytest.mark.parametrize(
    ("minutes", "told", "flags"),
    [
        (20, {}, ["-t 0:30:00"]),
        (6, {}, ["-t 0:30:00"]),
        (75, {}, ["-t 2:00:00"]),
        (200, {}, []),
        (90, {"walltime": 2 * HOUR}, []),
        (30, {"walltime": HOUR}, []),
        (4, {}, []),
        (240, {"state": State.TIMEOUT}, ["-t 6:00:00"]),
        (60, {"walltime": HOUR}, ["-t 1:30:00"]),
        (1439, {"walltime": 24 * HOUR, "state": State.TIMEOUT}, ["-t 1-12:00:00"]),
        (20, {"state": State.NODE_FAIL}, []),
        (20, {"state": State.PREEMPTED}, []),
    ],
    ids=[
        "far too long",
        "for a look",
        "too long",
        "about right",
        "not worth it",
        "saves little",
        "a few minutes",
        "ran out",
        "ran out by the clock",
        "days",
        "cut short",
        "had to give way",
    ],
)
def test_walltime_next_time(minutes: int, told: dict[str, Any], flags: list[str]) -> None:
    assert advice(minutes, {}, **told) == flags


ABOUT_RIGHT = 200  # minutes of 4 hours: nothing is said of the walltime


@pytest.mark.parametrize(
    ("flags", "told", "expected"),
    [
        ({"mem": "55G"}, {}, ["--mem 6G"]),
        ({"mem": "0"}, {"memory_asked": 128 * 1024.0}, ["--mem 6G"]),
        ({"mem": "8G"}, {"memory_asked": 8 * 1024.0}, []),
        ({}, {}, []),
        ({"mem": "55G", "exclusive": None}, {}, []),
        ({"mem": "55G"}, {"nodes": 2}, []),
        ({"mem": "55G", "nodes": "1-2"}, {}, []),
        ({"mem": "55G", "nodes": "1"}, {}, ["--mem 6G"]),
        ({"mem": "55G"}, {"state": State.OUT_OF_MEMORY}, []),
        ({"mem": "55G"}, {"memory_peak": 30 * 1024.0}, []),
    ],
    ids=[
        "far too much",
        "a whole node's",
        "little more",
        "not asked for",
        "whole nodes",
        "two nodes",
        "perhaps two",
        "one node",
        "ran out",
        "half",
    ],
)
def test_memory_next_time(flags: dict[str, str | None], told: dict[str, Any], expected: list[str]) -> None:
    assert advice(ABOUT_RIGHT, flags, **told) == expected


@pytest.mark.parametrize(
    ("flags", "peak", "told", "expected"),
    [
        ({"ntasks": "8", "mem": "8G"}, 0.8, {"memory_asked": 8192.0}, ["-n 1"]),
        ({"cpus-per-task": "8", "mem": "8G"}, 2.4, {"memory_asked": 8192.0}, ["-c 3"]),
        ({"cpus-per-task": "8", "ntasks": "1", "mem": "8G"}, 0.8, {"memory_asked": 8192.0}, ["-c 1"]),
        ({"cpus-per-task": "8", "mem": "8G"}, 5.0, {"memory_asked": 8192.0}, []),
        ({"cpus-per-task": "4", "ntasks": "2", "mem": "8G"}, 0.8, {"memory_asked": 8192.0}, []),
        ({"ntasks": "4", "mem": "8G"}, 0.8, {"memory_asked": 8192.0}, []),
        ({"mem": "8G"}, 0.8, {"memory_asked": 8192.0}, []),
        ({"ntasks": "8"}, 0.8, {"memory_asked": 8 * 6400.0}, ["-n 1", "--mem 6G"]),
        ({"ntasks": "8"}, 0.8, {"memory_asked": 8 * 1600.0}, ["-n 1", "--mem 6G"]),
        ({"ntasks": "8"}, 0.8, {"memory_asked": 8 * 600.0}, []),
    ],
    ids=[
        "tasks",
        "cores",
        "cores of one task",
        "busy",
        "both words",
        "the site counts otherwise",
        "not asked for",
        "memory comes with them",
        "memory comes with them, and is needed",
        "all of it is needed",
    ],
)
def test_cores_next_time(flags: dict[str, str | None], peak: float, told: dict[str, Any], expected: list[str]) -> None:
    assert advice(ABOUT_RIGHT, flags, {"cores": peak}, **told) == expected


IDLE, BUSY, LOADED = gpu(percent=0.0, memory=4.0), gpu(), gpu(percent=0.0)


@pytest.mark.parametrize(
    ("flags", "seen", "count", "expected"),
    [
        ({"gpus": "1"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gpus": "a100:1"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gres": "gpu:a100:1"}, (IDLE,), 1, ["--gres gpu:a100:0"]),
        ({"gres": "gpu:1,scratch:5"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gpus": "1"}, (BUSY,), 1, []),
        ({"gpus": "1"}, (LOADED,), 1, []),
        ({"gpus": "1"}, (gpu(percent=None, memory=4.0),), 1, []),
        ({"gpus": "1"}, (), 1, []),
        ({"gpus": "a100:2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, ["--gpus a100:1"]),
        ({"gres": "gpu:2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, ["--gres gpu:1"]),
        ({"gpus-per-task": "2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, []),
        ({"gpus": "1"}, (BUSY, dataclasses.replace(IDLE, index="1")), 1, []),
    ],
    ids=[
        "one",
        "with a type",
        "a GRES",
        "among others",
        "busy",
        "loaded",
        "not told",
        "not seen",
        "one of two",
        "a GRES, one of two",
        "other words",
        "somebody else's",
    ],
)
def test_gpus_next_time(
    flags: dict[str, str | None], seen: tuple[GpuSample, ...], count: int, expected: list[str]
) -> None:
    told = {"gpus": count, "gpu_type": "a100", "memory_asked": 8192.0}
    assert advice(ABOUT_RIGHT, {"mem": "8G", **flags}, {"gpus": seen}, **told) == expected


def test_nothing_is_never_used_in_a_few_minutes_or_unseen() -> None:
    assert advice(8, {"gpus": "1"}, {"gpus": (IDLE,)}, gpus=1, walltime=HOUR) == []
    half_seen = Facts(accounted(wall=12000, walltime=4 * HOUR), steady(6000, gpus=(IDLE,)), 12000.0)
    assert billed(half_seen, {"time": "4:00:00", "gpus": "1"}).advice == ()


def test_every_advice_says_why() -> None:
    facts = Facts(accounted(wall=1200, walltime=4 * HOUR), steady(1200, gpus=(IDLE,)), 1200.0)
    bill = billed(facts, {"time": "4:00:00", "mem": "55G", "gpus": "a100:1", "ntasks": "8", "partition": "gpu"})
    assert dict(bill.advice) == {
        "-t 0:30:00": "it took 20 min of 4 hours",
        "-n 1": "never more than 0.5 of 8 cores were busy",
        "--mem 6G": "3.1 of 55 GiB were used at most",
        "--gpus 0": "no GPU did anything in 20 min; another partition may be needed for that",
    }


# --- what is shown -------------------------------------------------------------------------------------------

BILL = events.Bill(
    session=ID, job="7", wall=4320, walltime=7200, cores=8, cpu_used=1680.0, cpu_reserved=34560, memory_peak=3174.0,
    memory_asked=56320.0, gpus=1, gpu_percent=37.2, gpu_memory_peak=12288.0, gpu_memory_total=40960.0, energy=180.0,
    energy_of="GPUs", cost=154.0, unit="SBU", measured="by Slurm's accounting and 864 samples of the job",
    advice=(("--mem 6G", "3.1 of 55 GiB were used at most"),), node="gpu1", gpu_type="a100",
)  # fmt: skip


def shown(bill: events.Bill, columns: int, *, terminal: bool) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    show_receipt(Console(file=out, width=columns, force_terminal=terminal, color_system=None), bill)
    return out.getvalue().splitlines()


def test_a_bill_in_words() -> None:
    assert title(BILL) == f"Session {ID} on gpu1: 1 h 12 min of 2 hours"
    assert dict(rows(BILL)) == {
        "CPU": "0.4 of 8 cores busy: 28 min of CPU time "
        "(Slurm's CPUTime says 9 h 36 min: that is time × cores, not use)",
        "memory": "3.1 of 55 GiB at most",
        "GPU": "1 a100: busy 37 % of the time, 12 of 40 GiB at most, 180 Wh",
        "cost": "154 SBU",
        "measured": "by Slurm's accounting and 864 samples of the job",
        "next time": "--mem 6G",
        "because": "3.1 of 55 GiB were used at most",
    }


def test_a_bill_fits_its_terminal_and_is_not_folded_in_a_pipe() -> None:
    narrow = shown(BILL, 80, terminal=True)
    assert max(map(len, narrow)) <= 80
    assert len(narrow) <= 10
    piped = shown(BILL, 80, terminal=False)
    assert len(piped) == 8
    assert any("9 h 36 min: that is time × cores, not use" in line for line in piped)


def test_what_is_not_known_is_left_out() -> None:
    bare = events.Bill(ID, "7", 60, None, None, None, None, None, None, 0, None, None, None, None, "", None, "",
                       "by the job's own clock", ())  # fmt: skip
    assert title(bare) == f"Session {ID}: 1 min"
    assert dict(rows(bare)) == {"measured": "by the job's own clock"}


def test_a_foreign_name_cannot_drive_the_terminal() -> None:
    evil = dataclasses.replace(BILL, node="gpu1\x1b]0;mine\x07", unit="SBU\x1b[2J")
    assert not any("\x1b" in line for line in shown(evil, 80, terminal=False))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min"),
        (3600, "1 h"),
        (4320, "1 h 12 min"),
        (86400, "1 day"),
        (180000, "2 days 2 h"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(5, "0.00"), (50, "0.05"), (512, "0.5"), (4096, "4"), (3174, "3.1"), (56320, "55")]
)
def test_gigabytes(mib: float, text: str) -> None:
    assert gigabytes(mib) == text
