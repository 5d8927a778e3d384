"""The usage report of a session: made from accounting and samples, and shown."""

from __future__ import annotations

import dataclasses
import io

import pytest

from notebook_launcher.cli.views.bill import rows, show_bill, title
from notebook_launcher.core import events
from notebook_launcher.profiles.models import Price, Rates
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, State
from notebook_launcher.usage.bill import Facts, make_bill
from tests.unit.usage.usage_facts import (
    ID,
    accounted,
    billed,
    gpu,
    record,
    steady,
)


def test_accounting_and_samples_together() -> None:
    bill = billed(Facts(accounted(), steady(72 * 60, gpus=(gpu(),)), 4321.0, "gpu1"))
    assert (bill.run_time, bill.walltime, bill.cores, bill.gpus) == (4320, 7200, 8, 1)
    assert bill.cpu_used == pytest.approx(2160)  # the samples saw more: what is killed is not in Slurm's figure
    assert (bill.memory_peak, bill.memory_requested) == (3174, 55 * 1024)
    assert bill.energy == pytest.approx(216)
    assert bill.energy_of == "GPUs"
    assert bill.measured_by == "by Slurm's accounting and 864 samples of the job"


def test_samples_alone_do_without_accounting() -> None:
    bill = billed(Facts(None, steady(600), 602.0), {"time": "2:00:00", "mem": "8G", "gpus": "a100:1"})
    assert (bill.run_time, bill.cores, bill.cpu_reserved, bill.memory_requested, bill.gpus) == (
        602,
        None,
        None,
        8192,
        1,
    )
    assert bill.cpu_used == pytest.approx(300)
    assert "accounting has nothing" in bill.measured_by


def test_a_node_that_tells_nothing_of_gpus_is_said_to() -> None:
    bill = billed(Facts(accounted(), steady(600), node="gpu1"))
    assert "neither nvidia-smi nor rocm-smi reported GPUs on gpu1" in bill.measured_by


def test_figures_that_were_not_complete_say_so() -> None:
    bill = billed(Facts(accounted(complete=False, wall=3, cpu_used=0.0), steady(600), 600.0))
    assert (bill.run_time, bill.cpu_used) == (600, 300)
    assert "have not come" in bill.measured_by


@pytest.mark.parametrize("told", [None, AccountingRecord(JobRef("7"), state=State.CANCELLED, wall=0)])
def test_a_session_that_never_ran_has_no_bill(told: AccountingRecord | None) -> None:
    assert make_bill(record(), "7", Facts(told), None) is None


def test_a_job_of_less_than_a_second_ran_all_the_same() -> None:
    assert billed(Facts(accounted(wall=0), wall=0.4)).run_time == billed(Facts(None, wall=0.0)).run_time == 1


def test_energy_of_the_node_where_the_gpus_tell_none() -> None:
    bill = billed(Facts(accounted(joules=720_000.0)))
    assert (bill.energy, bill.energy_of) == (200, "node")


def test_without_a_scheduler_only_use_is_told() -> None:
    bill = make_bill(record({"time": "0:59:00"}, "local"), ID, Facts(None, steady(900, gpus=(gpu(),)), 900.0), None)
    assert bill is not None
    assert (bill.cores, bill.memory_requested, bill.gpus, bill.recommendations) == (None, None, 1, ())
    assert "accounting" not in bill.measured_by


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
    ids=[
        "one price",
        "by type, and cores",
        "in capitals",
        "a type without a price",
        "no GPU used",
        "nodes, and a run before",
        "cores that nobody tells",
        "type asked for",
        "type in a GRES",
        "type by the driver",
        "nothing has a price",
        "no price",
    ],
)
def test_cost(
    price: Price | None, told: AccountingRecord | None, flags: dict[str, str | None], cost: float | None
) -> None:
    bill = billed(Facts(told, steady(72 * 60, gpus=(gpu(), gpu("1"))), 72 * 60.0), {"time": "2:00:00", **flags}, price)
    assert bill.cost == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize(
    ("flags", "partition", "cost"),
    [
        ({}, "dear", 960.0),
        ({}, "core", 9.6),
        ({}, None, None),
        ({"partition": "core,dear"}, "dear", 960.0),
        ({"partition": "core"}, None, 9.6),
    ],
    ids=["left to the scheduler", "one without rates of its own", "nobody tells", "one of two", "as asked for"],
)
def test_the_partition_where_it_ran_counts(flags: dict[str, str | None], partition: str | None, cost: float) -> None:
    price = Price(unit="SBU", core_hour=1, partitions={"dear": Rates(core_hour=100)})
    bill = billed(Facts(accounted(partition=partition)), flags, price)
    assert bill.cost == (None if cost is None else pytest.approx(cost))


# --- what is shown -------------------------------------------------------------------------------------------

BILL = events.Bill(
    session=ID,
    job="7",
    run_time=4320,
    walltime=7200,
    cores=8,
    cpu_used=1680.0,
    cpu_reserved=34560,
    memory_peak=3174.0,
    memory_requested=56320.0,
    gpus=1,
    gpu_percent=37.2,
    gpu_memory_peak=12288.0,
    gpu_memory_total=40960.0,
    energy=180.0,
    energy_of="GPUs",
    cost=154.0,
    unit="SBU",
    measured_by="by Slurm's accounting and 864 samples of the job",
    recommendations=(("--mem 6G", "3.1 of 55 GiB were used at most"),),
    node="gpu1",
    gpu_type="a100",
)


def shown(bill: events.Bill, columns: int, *, terminal: bool) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    show_bill(Console(file=out, width=columns, force_terminal=terminal, color_system=None), bill)
    return out.getvalue().splitlines()


def test_a_bill_in_words() -> None:
    assert title(BILL) == f"Session {ID} on gpu1: 1 h 12 min of 2 hours"
    assert dict(rows(BILL)) == {
        "CPU": "0.4 of 8 cores busy: 28 min of CPU time",
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
    assert any("0.4 of 8 cores busy: 28 min of CPU time" in line for line in piped)


def test_what_is_not_known_is_left_out() -> None:
    bare = events.Bill(
        ID,
        "7",
        60,
        None,
        None,
        None,
        None,
        None,
        None,
        0,
        None,
        None,
        None,
        None,
        "",
        None,
        "",
        "by the job's own clock",
        (),
    )
    assert title(bare) == f"Session {ID}: 1 min"
    assert dict(rows(bare)) == {"measured": "by the job's own clock"}


def test_a_foreign_name_cannot_drive_the_terminal() -> None:
    evil = dataclasses.replace(BILL, node="gpu1\x1b]0;mine\x07", unit="SBU\x1b[2J")
    assert not any("\x1b" in line for line in shown(evil, 80, terminal=False))
