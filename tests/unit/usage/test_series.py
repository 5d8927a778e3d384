"""Samples made into series: evenly spaced, with gaps, means and peaks, and a word on GPUs that nobody uses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.events import Series
from notebook_launcher.core.usage_samples import GpuSample, Sample, read_samples
from notebook_launcher.usage.series import VALUES, Used, add_rows, shrunk, used

START = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def row(at: float, *, cores: object = "", memory: object = "", gpu: object = "", seconds: float | None = None) -> str:
    """One row of usage.csv; ``gpu``: index, percent, MiB, total and watts as they stand there."""
    moment = f"{START + timedelta(seconds=at):%Y-%m-%dT%H:%M:%SZ}"
    index, _, rest = str(gpu).partition(",")
    name = "Tesla T4" if index else ""
    return f"{moment},{at if seconds is None else seconds},{cores},{memory},{index},{name},{rest or ',,,'}"


def tell(rows: Sequence[str], flags: dict[str, str | None] | None = None, **settings: object) -> Used:
    return used(read_samples(rows), flags or {}, **settings)  # type: ignore[arg-type]


def of(told: Used, label: str) -> Series:
    return next(series for series in told.series if series.label == label)


def test_nothing_was_sampled() -> None:
    assert tell([]) == Used()
    assert tell(["time,seconds,cpu_cores", "no row at all", "2026-11-21"]) == Used()


def test_one_sample() -> None:
    told = tell([row(5, cores=1.5, memory=2048, gpu="0,87,12288,16384,60.5")])
    assert [(one.label, one.unit, one.values, one.capacity) for one in told.series] == [
        ("GPU 0", "%", (87.0,), 100.0),
        ("GPU 0 memory", "GiB", (12.0,), 16.0),
        ("GPU 0 power", "W", (60.5,), None),
        ("CPU", "cores", (1.5,), None),
        ("memory", "GiB", (2.0,), None),
    ]
    assert told.since == told.until == START + timedelta(seconds=5)
    assert told.began == START
    assert told.notes == ()


def test_what_is_not_told_has_no_series() -> None:
    told = tell([row(at, memory=1024, gpu="0,50,,,") for at in range(0, 60, 5)])
    assert [one.label for one in told.series] == ["GPU 0", "memory"]


def test_means_peaks_and_the_newest() -> None:
    told = tell([row(at, cores=cores) for at, cores in ((5, 0), (10, 3), (15, 1), (20, 2))])
    cpu = of(told, "CPU")
    assert (cpu.values, cpu.mean, cpu.peak, cpu.latest) == ((0, 3, 1, 2), 1.5, 3, 2)


def test_the_mean_is_over_time_and_not_over_samples() -> None:
    """The job thins out old samples: an hour of few does not count less than an hour of many."""
    rows = [*(row(at, cores=4) for at in range(40, 3601, 40)), *(row(at, cores=0) for at in range(3605, 7201, 5))]
    assert of(tell(rows), "CPU").mean == 2


def test_a_file_that_was_thinned_out_is_read_again() -> None:
    rows = [row(at, cores=at // 60, gpu=f"{gpu},50,1,2,3") for at in range(5, 600, 5) for gpu in range(2)]
    samples: list[Sample] = []
    thinned = [row for place, row in enumerate(rows) if place >= 180 or place // 2 % 2 == 0]
    for line in [*rows, *thinned]:  # as status --watch gets them
        add_rows(samples, [line])
    assert used(samples, {}) == tell(rows)


def test_the_newest_sample_may_not_tell_what_others_did() -> None:
    assert of(tell([row(0, cores=2), row(5, memory=1)]), "CPU").latest is None


@pytest.mark.parametrize(
    ("flags", "cores", "memory"),
    [
        ({}, None, None),
        ({"ntasks": "4", "mem": "8G"}, 4, 8),
        ({"cpus-per-task": "2", "ntasks": "3", "mem-per-cpu": "1G"}, 6, 6),
        ({"exclusive": None, "ntasks": "4", "mem": "0"}, None, None),
        ({"nodes": "2", "ntasks": "8", "mem": "8G"}, None, None),
        ({"ntasks": "many", "mem": "much", "time": "tomorrow", "time-min": "never"}, 1, None),
    ],
)
def test_what_there_is_of_it(flags: dict[str, str | None], cores: float | None, memory: float | None) -> None:
    told = tell([row(0, cores=1, memory=100)], flags)
    assert (of(told, "CPU").capacity, of(told, "memory").capacity) == (cores, memory)


# --- over time ---


def test_phases_stay_visible() -> None:
    told = tell([row(at, cores=4 if at % 3600 < 1200 else 0) for at in range(0, 8 * 3600, 5)])
    values = of(told, "CPU").values
    assert len(values) == VALUES
    assert [values[place * 30 + 5] for place in range(8)] == [4] * 8
    assert [values[place * 30 + 20] for place in range(8)] == [0] * 8


def test_a_time_without_samples_is_a_gap() -> None:
    told = tell([row(at, cores=1) for at in (*range(0, 100, 5), *range(200, 300, 5))])
    values = of(told, "CPU").values
    assert len(values) == 60
    assert values[:20] == (1,) * 20
    assert set(values[21:39]) == {None}
    assert values[41:] == (1,) * 19


def test_older_samples_of_a_thinned_file_are_no_gaps() -> None:
    times = (*range(0, 2000, 40), *range(2000, 2600, 5), *range(2700, 4000, 5))
    told = tell([row(at, cores=1) for at in times])
    gaps = [place for place, value in enumerate(of(told, "CPU").values) if value is None]
    assert len(gaps) in (5, 6), "only that of 100 s"
    assert all(2600 <= 4000 * place / VALUES <= 2700 for place in gaps)


def test_a_late_sample_is_no_gap() -> None:
    told = tell([row(at, cores=1) for at in (0, 5, 10, 22, 27, 33, 38)])
    assert None not in of(told, "CPU").values


def test_only_the_last_hour() -> None:
    told = tell([row(at, cores=at // 3600) for at in range(0, 3 * 3600, 60)], window=timedelta(hours=1))
    assert told.until is not None
    assert told.since == told.until - timedelta(hours=1)
    assert of(told, "CPU").mean == pytest.approx(2, abs=0.05)
    assert told.began == START


def test_a_job_that_was_put_back_into_the_queue_has_one_time_line() -> None:
    first = [row(at, cores=1) for at in range(0, 300, 5)]
    second = [row(900 + at, cores=2, seconds=at) for at in range(0, 300, 5)]
    told = tell(first + second)
    assert (told.since, told.until) == (START, START + timedelta(seconds=1195))
    values = of(told, "CPU").values
    assert (values[0], values[len(values) // 2], values[-1]) == (1, None, 2)


def test_a_clock_that_is_wrong_for_a_moment_does_no_harm() -> None:
    good = [row(at, cores=1) for at in range(0, 300, 5)]
    wrong = "1970-01-01T00:00:07Z,3,9,,,,,,,"
    assert tell([wrong, *good]) == tell(good)
    assert tell(good[::-1]).series == tell(good).series


# --- GPUs ---


def test_up_to_four_gpus_one_by_one() -> None:
    told = tell([row(at, gpu=f"{index},{index * 10},1024,16384,50") for at in (0, 5) for index in range(4)])
    assert [(one.label, one.mean) for one in told.series if one.unit == "%"] == [
        (f"GPU {index}", index * 10) for index in range(4)
    ]


def test_more_gpus_in_the_mean() -> None:
    told = tell([row(at, gpu=f"{index},{index * 10},1024,16384,50") for at in (0, 5) for index in range(8)])
    assert [one.label for one in told.series] == ["8 GPUs", "8 GPUs memory", "8 GPUs power"]
    assert of(told, "8 GPUs").mean == 35
    assert of(told, "8 GPUs memory").capacity == 16


@pytest.mark.parametrize(
    ("minutes", "percents", "note"),
    [
        (9, {"0": lambda _: 0}, None),
        (12, {"0": lambda _: 0}, "GPU 0 was not used at all in 11 min."),
        (12, {"0": lambda minute: 90 if minute < 1 else 0}, "GPU 0 was not used in the last 10 min."),
        (12, {"0": lambda minute: 90 if minute < 3 else 0}, None),
        (12, {"0": lambda _: 50, "1": lambda _: 0, "3": lambda _: 0}, "GPUs 1 and 3 were not used at all in 11 min."),
        (12, {"0": lambda _: ""}, None),
    ],
    ids=["too early to say", "never", "not lately", "lately", "two of three", "not told"],
)
def test_a_gpu_that_nobody_uses(minutes: int, percents: dict[str, object], note: str | None) -> None:
    rows = [
        row(at, gpu=f"{index},{percent(at / 60)},,,")  # type: ignore[operator]
        for at in range(0, minutes * 60, 5)
        for index, percent in percents.items()
    ]
    assert tell(rows).notes == ((note,) if note else ())


def test_only_the_last_run_counts_for_that() -> None:
    first = [row(at, gpu="0,0,,,") for at in range(0, 3600, 30)]
    second = [row(4000 + at, gpu="0,0,,,", seconds=at) for at in range(0, 120, 5)]
    assert tell(first + second).notes == ()


# --- rows that come later ---


def test_rows_of_one_moment_may_come_one_by_one() -> None:
    rows = [row(at, cores=1, gpu=f"{index},50,1,2,3") for at in (0, 5) for index in range(3)]
    samples: list[Sample] = []
    for line in rows:
        add_rows(samples, [line])
    assert samples == read_samples(rows)
    add_rows(samples, rows[-1:])  # once more, after a connection that broke
    assert samples == read_samples(rows)


@pytest.mark.real_time
def test_twenty_thousand_rows_are_quick() -> None:
    rows = [row(at * 5, cores=1.5, memory=2000, gpu="0,50,1000,16000,60") for at in range(20000)]
    began = time.monotonic()
    told = tell(rows)
    assert time.monotonic() - began < 30  # half a second, on a quick machine
    assert [len(one.values) for one in told.series] == [VALUES] * 5


# --- whatever it is ---

numbers = st.none() | st.floats(0, 1e6)
gpus = st.lists(
    st.builds(GpuSample, st.sampled_from("0123456"), st.just("T4"), numbers, numbers, numbers, numbers), max_size=7
).map(tuple)
samples = st.builds(
    Sample,
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc)),
    st.floats(0, 1e9),
    numbers,
    numbers,
    gpus,
) | st.builds(
    Sample,
    st.integers(0, 7200).map(lambda at: START + timedelta(seconds=at)),
    st.floats(0, 1e5),
    numbers,
    numbers,
    gpus,
)


@given(st.lists(samples, max_size=40), st.integers(1, 50))
@pytest.mark.real_time
def test_series_hold_what_they_promise(found: list[Sample], most: int) -> None:
    told = used(found, {"ntasks": "2", "mem": "4G"}, values=most)
    assert bool(found) == (told.since is not None)
    for one in told.series:
        assert 1 <= len(one.values) <= most
        known = [value for value in one.values if value is not None]
        assert one.mean is not None and one.peak is not None
        assert known and max(known) <= one.peak + 0.01
        assert one.mean <= one.peak + 0.01
    assert len({len(one.values) for one in told.series}) <= 1


@given(st.lists(st.none() | st.floats(0, 100), max_size=300), st.integers(1, 200))
def test_shrunk_values_stay_in_their_bounds(values: list[float | None], count: int) -> None:
    small = shrunk(values, count)
    assert len(small) == min(count, len(values))
    known = [value for value in values if value is not None]
    assert all(min(known) - 1e-6 <= value <= max(known) + 1e-6 for value in small if value is not None)
    if len(values) <= count:
        assert small == values
