"""What ``notebooks/timing.py`` records, and how results are compared, plotted and written."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.notebooks.timing_doubles import (
    NOTEBOOKS,
    some,
    timing,
)

pytestmark = pytest.mark.usefixtures("nothing_set")


def test_a_record_is_one_line_with_all_that_was_promised(tmp_path: Path) -> None:
    import numpy as np

    m = some(parameters={"size": np.int64(3), "rate": np.float32(0.5), "odd": float("nan"), "path": Path("x")})
    timing.record(m, tmp_path / "r.jsonl")
    some().record(tmp_path / "r.jsonl")
    first, second = (tmp_path / "r.jsonl").read_text().splitlines()
    told = json.loads(first)
    assert set(told) >= {
        *("version", "name", "parameters", "times", "median", "low", "high", "iqr", "work", "unit", "throughput"),
        *("synchronised", "warmup", "device", "recorded", "fingerprint"),
    }
    assert told["version"] == 1
    assert told["parameters"] == {"size": 3, "rate": 0.5, "odd": "nan", "path": "x"}
    assert told["device"] == {"kind": "cpu", "name": "Some CPU", "library": "torch"}
    assert told["recorded"].endswith("+00:00")
    assert (tmp_path / "r.jsonl").stat().st_mode & 0o077 == 0
    assert json.loads(second)["median"] == 0.011
    assert [item["name"] for item in timing.read_records(tmp_path / "r.jsonl")] == ["fit", "fit"]


def test_results_go_where_the_run_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    some().record()
    assert len(timing.read_records()) == 1
    assert (tmp_path / "results.jsonl").exists()
    monkeypatch.setenv("NBL_RESULTS", str(tmp_path / "elsewhere.jsonl"))
    assert timing.read_records() == []
    some("other").record()
    assert timing.read_records()[0]["name"] == "other"
    with pytest.raises(timing.TimingError, match=r"could not be written: No such file"):
        some().record(tmp_path / "missing" / "r.jsonl")


def test_text_that_is_no_text_is_recorded_all_the_same() -> None:
    """A path that is not UTF-8, from os.environ or sys.argv, has lone surrogates in it."""
    some(parameters={"file": "caf\udce9", "name": "é"}).record()
    assert timing.read_records()[0]["parameters"] == {"file": "caf\udce9", "name": "é"}
    assert timing.results_path().read_bytes().isascii()


def test_it_records_where_there_is_neither_pread_nor_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "pread")
    monkeypatch.setattr(timing, "fcntl", None)
    some("one").record()
    with timing.results_path().open("ab") as file:
        file.write(b"half a")
    some("two").record()
    some("three").record()
    assert [item["name"] for item in timing.read_records()] == ["one", "two", "three"]


KILLED = """
import os, signal, sys, timing
write = os.write
def half(descriptor, line):
    write(descriptor, line[:len(line) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
timing.from_times("killed", [0.1, 0.2]).record()
"""


def test_a_line_half_written_by_one_that_was_killed_spoils_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    some("before").record()
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not timing.results_path().read_bytes().endswith(b"\n")
    assert [item["name"] for item in timing.read_records()] == ["before"]
    some("after").record()
    found = timing.read_records()
    assert [item["name"] for item in found] == ["before", "after"]
    assert found.skipped == 1
    assert "results.jsonl: 1 line could not be read, and was left out.\n" in capfd.readouterr().err


WRITER = """
import sys, timing
times = tuple(0.001 * (i + 1) for i in range(1000))
m = timing.Measurement(sys.argv[1], times, timing.cpu_device(), fingerprint={"x": 1})
for _ in range(20):
    m.record()
"""


def test_several_processes_append_without_mixing_lines() -> None:
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, f"w{i}"], env=environment) for i in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    found = timing.read_records()
    assert found.skipped == 0
    assert sorted(item["name"] for item in found) == sorted(["w0", "w1", "w2", "w3"] * 20)
    assert all(len(item["times"]) == 1000 for item in found)


def test_a_lock_that_nobody_gives_back_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import fcntl

    lock = timing._lock
    monkeypatch.setattr(timing, "_lock", lambda descriptor: lock(descriptor, 0.2))
    with (tmp_path / "results.jsonl").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        some().record()
    assert len(timing.read_records()) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "name": "x"}',
        json.dumps({**some().as_dict(), "times": []}).encode(),
        json.dumps({**some().as_dict(), "times": ["x"]}).encode(),
        json.dumps({**some().as_dict(), "device": None}).encode(),
        json.dumps({key: value for key, value in some().as_dict().items() if key != "recorded"}).encode(),
        json.dumps({**some().as_dict(), "recorded": None}).encode(),
        json.dumps({**some().as_dict(), "median": "<"}).encode(),
        json.dumps({**some().as_dict(), "high": float("nan")}).encode(),
        json.dumps({**some().as_dict(), "times": [10**400]}).encode(),
        json.dumps({**some().as_dict(), "low": 10**400}).encode(),
        b"[" * 5000,
    ],
    ids=range(16),  # not the lines themselves: they hold the time at which they were made
)
def test_lines_that_are_none_are_left_out(line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n\n")
    some().record(path)
    assert len(timing.read_records(path)) == 1
    assert "1 line could not be read" in capsys.readouterr().err


def jittered(name: str, seconds: float, seed: int, count: int = 60, **about: object) -> timing.Measurement:
    chance = random.Random(seed)
    return some(name, tuple(seconds * chance.lognormvariate(0, 0.05) for _ in range(count)), **about)


@pytest.mark.real_time
def test_a_speed_up_has_an_interval_that_holds_the_true_one() -> None:
    held = 0
    for seed in range(100):
        row = timing.compare(jittered("cpu", 0.030, seed), jittered("gpu", 0.010, 1000 + seed)).rows[1]
        assert row.low < row.speedup < row.high
        assert row.differs
        held += row.low <= 3 <= row.high
    assert held >= 88


def test_the_same_numbers_give_the_same_interval_also_from_records(tmp_path: Path) -> None:
    a, b = jittered("cpu", 0.030, 1), jittered("gpu", 0.010, 2)
    for m in (a, b):
        m.record()
    first, again, from_file = timing.compare(a, b), timing.compare([a, b]), timing.compare(*timing.read_records())
    assert first.rows[1].low == again.rows[1].low
    assert from_file.rows[1].low == pytest.approx(first.rows[1].low, rel=1e-6)


def test_another_baseline() -> None:
    a, b = jittered("cpu", 0.030, 1), jittered("gpu", 0.010, 2)
    for baseline in ("gpu", 1, -1):
        found = timing.compare(a, b, baseline=baseline)
        assert found.baseline == 1
        assert found.rows[0].speedup == pytest.approx(1 / 3, rel=0.05)
    for nonsense in ("tpu", 7):
        with pytest.raises(timing.TimingError, match="There are: cpu, gpu"):
            timing.compare(a, b, baseline=nonsense)


def test_no_difference_is_said_to_be_none() -> None:
    found = timing.compare(jittered("one", 0.01, 1), jittered("other", 0.01, 2))
    assert found.rows[1].differs is False
    assert "other: no difference from one can be told." in found.table()


def test_too_few_times_have_no_or_an_honest_interval() -> None:
    one = timing.compare(some("a", (0.2,)), some("b", (0.1,))).rows[1]
    assert one.speedup == 2
    assert one.differs is None
    few = timing.compare(some("a", (0.2, 0.3)), some("b", (0.1, 0.12)))
    assert (few.rows[1].low, few.rows[1].high) == (pytest.approx(0.2 / 0.12), pytest.approx(3.0))
    assert "a: only 2 times, so ± covers 50 %." in few.table()


@pytest.mark.parametrize("about", [{"work": 128}, {"unit": "batches"}, {"work": None}])
def test_different_work_is_not_compared(about: dict[str, object]) -> None:
    with pytest.raises(timing.DifferentWork, match="Measure the same work in both"):
        timing.compare(some("a"), some("b", **about))


def test_times_of_unknown_origin_are_not_compared() -> None:
    handed = timing.from_times("by hand", [0.1, 0.2, 0.3], work=64, unit="images")
    with pytest.raises(timing.Unsynchronised, match="by hand was timed without waiting"):
        timing.compare(some(), handed)
    with pytest.raises(timing.Unsynchronised, match="by hand"):
        timing.compare(some(), handed.as_dict())
    told = timing.from_times("by hand", [0.1, 0.2, 0.3], work=64, unit="images", synchronised=True)
    assert timing.compare(some(), told).rows[1].speedup < 1


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(timing.TimingError, match="two measurements at least; there is 1"):
        timing.compare(some())
    with pytest.raises(timing.TimingError, match="two measurements at least; there is none"):
        timing.compare([])
    with pytest.raises(timing.TimingError, match="neither a measurement nor a recorded one"):
        timing.compare(some(), {"name": "x"})


def test_the_same_name_is_told_apart_by_what_differs() -> None:
    gpu = timing.Device("gpu", "Card", "torch")
    labels = [row.label for row in timing.compare(some(), some(device=gpu)).rows]
    assert labels == ["fit, CPU", "fit, GPU"]
    four, two = some(fingerprint={"threads": 4}), some(fingerprint={"threads": 2})
    assert [row.label for row in timing.compare(four, two).rows] == ["fit, 4 threads", "fit, 2 threads"]
    sizes = [some(parameters={"layers": layers}) for layers in (2, 4)]
    assert [row.label for row in timing.compare(sizes).rows] == ["fit, layers 2", "fit, layers 4"]
    assert [row.label for row in timing.compare(some(), some()).rows] == ["fit (1)", "fit (2)"]


def test_a_table_is_read_by_people() -> None:
    found = timing.compare(jittered("<cpu>", 0.0301, 1), jittered("gpu", 0.0102, 2))
    lines = found.table().splitlines()
    assert re.search(r"time per call\s+throughput\s+speed-up", lines[0])
    assert re.search(r"^<cpu>\s+CPU Some CPU\s+30\.\d ms ± 0\.\d\s+2,1\d0 images/s\s+1 \(baseline\)", lines[2])
    assert re.search(r"gpu .* [23]\.\d\d \(2\.\d\d to [23]\.\d\d\)", lines[3]), lines[3]
    assert "95 % intervals" in lines[-1]
    assert str(found) == found.table()
    assert "&lt;cpu&gt;" in found._repr_html_()
    assert "<cpu>" not in found._repr_html_()


@pytest.mark.real_time
@pytest.mark.parametrize("fast", [0.01, 0.0001])
def test_a_plot_has_units_and_error_bars(fast: float, tmp_path: Path) -> None:
    import matplotlib  # not for every test here, nor while tests are collected: it takes half a second

    matplotlib.use("Agg")
    ax = timing.compare(jittered("cpu", 0.030, 1), jittered("gpu", fast, 2)).plot()
    assert ax.get_xlabel() == "time per call (ms): median, 95 % interval; shorter is faster"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cpu", "gpu"]
    assert ax.get_xscale() == ("linear" if fast == 0.01 else "log")
    assert any(hasattr(container, "has_xerr") and container.has_xerr for container in ax.containers)
    assert ax.texts[0].get_text() == "baseline"
    assert re.fullmatch(r"[\d.]+ ×", ax.texts[1].get_text())
    same = timing.compare(jittered("cpu", 0.030, 1), jittered("gpu", fast, 2)).plot(ax=ax)
    assert same is ax
    ax.figure.savefig(tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("seconds", "spread", "text"),
    [
        (0.0123, 0.0004, "12.3 ms ± 0.4"),
        (0.0123, None, "12.3 ms"),
        (0.5, 0.0001, "500.00 ms ± 0.10"),
        (59.94, 3.0, "60 s ± 3"),
        (0.99996, None, "1.00 s"),
        (999.96e-6, None, "1.00 ms"),
        (1.5e-6, 2e-8, "1.50 µs ± 0.02"),
        (21.4e-9, None, "21.4 ns"),
        (4000.0, None, "4,000 s"),
        (0.0123, 1e-9, "12.300 ms ± 0.001"),
    ],
)
def test_times_have_units_and_sensible_digits(seconds: float, spread: float | None, text: str) -> None:
    assert timing.duration(seconds, spread) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12345.6, "images", "12,300 images/s"),
        (1.234e12, "FLOP", "1.23 TFLOP/s"),
        (2.5e6, "cells", "2.50 M cells/s"),
        (0.5, "epochs", "0.500 epochs/s"),
        (7.0, "", "7.00 /s"),
    ],
)
def test_rates_too(value: float, unit: str, text: str) -> None:
    assert timing.rate(value, unit) == text


@pytest.mark.parametrize(
    ("energy", "text"),
    [(1.53e6, "1.53 MJ"), (850.0, "850 J"), (0.0142, "14.2 mJ"), (3e-6, "3.00 µJ"), (999.96, "1.00 kJ"), (0.0, "0 J")],
)
def test_energies_have_units_and_sensible_digits(energy: float, text: str) -> None:
    assert timing.joules(energy) == text


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("images", "1.00 J/images"),
        ("matrices", "1.00 J/matrices"),
        ("FLOP", "1.00 J/FLOP"),
        ("", "1.00 J per unit of work"),
    ],
)
def test_the_energy_is_that_of_the_unit_as_it_is_called(unit: str, text: str) -> None:
    """The singular of a word is not guessed."""
    told = str(some(energy_j=10.0, work=10, unit=unit, energy_sources=("NVML",)))
    assert f"10.0 J per call, {text} (NVML: the GPUs)" in told
    assert str(some(energy_j=10.0, work=10, unit=unit)).endswith(f"{text}, not within ±2 %")  # without empty brackets


def test_the_names_that_notebooks_use_are_there() -> None:
    assert all(hasattr(timing, name) for name in timing.__all__)
    for error in (timing.Unsynchronised, timing.DifferentWork, timing.TooShort):
        assert issubclass(error, timing.TimingError)


def test_it_needs_nothing_to_be_imported() -> None:
    """Neither numpy nor matplotlib before they are needed, and nothing of the launcher."""
    program = (
        "import sys; before = set(sys.modules); import timing; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=NOTEBOOKS, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['timing']"
