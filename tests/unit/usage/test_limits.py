"""``status`` and ``bill`` name the same limits of cores and memory, whatever was asked for."""

from __future__ import annotations

import pytest

from notebook_launcher.schedulers.base import AccountingRecord
from notebook_launcher.usage.bill import Facts, make_bill
from notebook_launcher.usage.series import used
from tests.unit.usage.usage_facts import accounted, billed, record, steady


@pytest.mark.parametrize(
    ("flags", "allocated", "cores", "mib"),
    [
        ({"mem": "8G", "ntasks": "2"}, accounted(cores=2, memory_limit=8192.0), 2, 8192),
        ({"ntasks": "2"}, accounted(cores=2, memory_limit=12800.0), 2, 12800),  # by the site's default for each core
        ({}, accounted(cores=1, memory_limit=6400.0), 1, 6400),
        ({"mem": "0"}, accounted(cores=1, memory_limit=128000.0), 1, 128000),  # all of the node
        ({"mem-per-cpu": "1G", "ntasks": "3"}, accounted(cores=4, memory_limit=4096.0), 4, 4096),  # hyperthreads
        ({"exclusive": None, "mem": "1G"}, accounted(cores=20, memory_limit=1024.0), 20, 1024),
        ({"nodes": "1", "mem": "1G"}, None, None, 1024),
        ({"mem": "8G", "ntasks": "2"}, None, 2, 8192),
        ({"mem-per-cpu": "1G", "ntasks": "3"}, None, 3, 3072),
        ({"mem": "0", "ntasks": "2"}, None, 2, None),
        ({"ntasks": "2"}, None, 2, None),
        ({"mem": "much"}, accounted(cores=None, memory_limit=None, memory_requested=None), None, None),
    ],
)
def test_status_and_bill_have_the_same_limits(
    flags: dict[str, str | None], allocated: AccountingRecord | None, cores: float | None, mib: float | None
) -> None:
    samples = steady(600)
    shown = {one.label: one.capacity for one in used(samples, flags, allocated).series}
    bill = billed(Facts(allocated, samples, 600.0), {"time": "2:00:00", **flags})
    assert (shown["CPU"], shown["memory"]) == (cores, mib and pytest.approx(mib / 1024, abs=0.01))
    assert bill.memory == mib
    assert bill.cores == cores


def test_without_a_scheduler_a_bill_names_none_as_none_are_allocated() -> None:
    of_session = record({"time": "2:00:00", "ntasks": "2", "mem": "8G"}, "local")
    bill = make_bill(of_session, "7", Facts(None, steady(600), 600.0), None)
    assert bill is not None
    assert (bill.cores, bill.memory, bill.recommendations) == (None, None, ())


def test_what_was_asked_for_and_what_was_allocated_are_two_figures() -> None:
    told = accounted(memory_requested=4096.0, memory_limit=12800.0)
    bill = billed(Facts(told, steady(600), 600.0), {"time": "2:00:00", "mem": "4G"})
    assert (bill.memory_requested, bill.memory_allocated, bill.memory) == (4096, 12800, 12800)
    bill = billed(Facts(None, steady(600), 600.0), {"time": "2:00:00", "mem": "4G"})
    assert (bill.memory_requested, bill.memory_allocated, bill.memory) == (4096, None, 4096)


@pytest.mark.parametrize("flags", [{"nodes": "2", "mem": "8G"}, {"ntasks": "40", "mem": "8G"}])
def test_the_samples_of_one_node_are_not_held_against_the_limit_of_several(flags: dict[str, str | None]) -> None:
    told = used(steady(600), flags, accounted(nodes=2, cores=40, memory_limit=16384.0))
    assert [one.capacity for one in told.series] == [None, None]
