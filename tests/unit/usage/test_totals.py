"""What samples add up to, and quantities in words."""

from __future__ import annotations

import pytest

from notebook_launcher.usage.bill import Facts, make_bill
from notebook_launcher.usage.totals import add_up, last_run
from tests.unit.usage.usage_facts import (
    gpu,
    record,
    sample,
    steady,
)


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
