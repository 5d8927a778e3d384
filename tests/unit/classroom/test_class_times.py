"""The timings of a class: their distribution for each configuration, the plot, the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebook_launcher.bench.compare import read_recording
from notebook_launcher.classroom import collect as collect_module
from notebook_launcher.classroom.class_times import class_times, is_outlier, quartiles
from notebook_launcher.classroom.collect import CollectOptions, as_html, as_json, collect, conclusion
from notebook_launcher.classroom.plot import draw
from notebook_launcher.classroom.roster import Student
from notebook_launcher.core.errors import NothingMeasured, UsageError
from notebook_launcher.core.events import ClassCollected
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from tests.doubles import FakePrompts, RecordingView
from tests.unit.bench.recorded import record


def test_quartiles_and_what_is_far() -> None:
    assert quartiles([1.0]) == (1.0, 1.0, 1.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert is_outlier(30.0, 1.0, 1.1, 20) and is_outlier(0.1, 1.0, 1.1, 20)
    assert not is_outlier(1.15, 1.0, 1.1, 20)
    assert not is_outlier(1.05, 1.0, 1.0, 20), "within a tenth, however close the others are"
    assert not is_outlier(30.0, 1.0, 1.1, 4), "of four, nobody is far"


def test_only_what_was_measured_alike_is_compared() -> None:
    gpu = record("fit", 0.1, device={"kind": "gpu", "name": "A100"})
    times = class_times(
        {
            "alice": read_recording("\n".join([record("fit", 2.0), record("fit", 1.0), gpu])),
            "bob": read_recording("\n".join([record("fit", 1.5), record("fit", 9.0, synchronised=False), "{half"])),
        }
    )
    cpu, on_gpu = sorted(times.configurations, key=lambda one: one.where)[::-1]
    assert (cpu.where, on_gpu.where) == ("AMD EPYC, 4 cores", "A100, 4 cores")
    assert [one.name for one in cpu.times] == ["alice", "bob"] and len(on_gpu.times) == 1
    assert cpu.times[0].seconds == pytest.approx(1.0, rel=0.05), "the last result of a student counts"
    assert (times.students, times.results, times.unsynchronised, times.damaged) == (2, 4, 1, 1)


def class_of(count: int) -> dict[str, str]:
    found = {}
    for n in range(count):
        seconds = 9.0 if n == 3 else 1 + n / 100
        on_gpu = record("fit", (1 + n / 100) / 40, device={"kind": "gpu", "name": "A100"})
        found[f"u{n}"] = "\n".join([record("fit", seconds), on_gpu])
    return found


def test_a_plot_of_one_and_of_many() -> None:
    for count in (1, 40):
        times = class_times({user: read_recording(text) for user, text in class_of(count).items()})
        for width in (720.0, 340.0):
            svg = draw("The class", times.configurations, width)
            assert svg.startswith("<svg") and svg.count("<polygon") == 2 * count
    assert "#c0392b" in svg, "who is far from the others stands out"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}

    def read(_host: object, _folder: str, users: list[str]) -> list[object]:
        names = users or list(found)
        return [collect_module.StudentFile(user, found[user]) for user in names if user in found]

    monkeypatch.setattr(collect_module, "_read", read)
    return found


def gather(tmp_path: Path, files: dict[str, str], **options: object) -> tuple[ClassCollected, str, dict[str, object]]:
    target = LaunchTarget(ClusterProfile(), None, None, "local")
    students = [
        Student("u3", "Carol <b>C</b>"),
        Student("nobody", "Nobody"),
        *(Student(user, user) for user in files if user != "u3"),
    ]
    view = RecordingView()
    words = CollectOptions(tmp_path / "lab", folder="/class", **options)  # type: ignore[arg-type]
    collect(target, students, words, view, FakePrompts(), Interrupts())
    event = view.one(ClassCollected)
    return event, Path(event.html).read_text(), json.loads(Path(event.table).read_text())


def test_one_report_of_all(tmp_path: Path, files: dict[str, str]) -> None:
    files |= class_of(12)
    event, html, data = gather(tmp_path, files)
    assert (event.students, event.results, event.without) == (12, 24, ("Nobody (nobody)",))
    assert "Carol &lt;b&gt;C&lt;/b&gt; (u3): 9" in html and "<b>C</b>" not in html
    assert data["configurations"][1]["outliers"] == ["Carol <b>C</b> (u3)"] or data["configurations"][0]["outliers"]  # type: ignore[index]
    assert event.conclusion.startswith("12 students measured 2 configurations; the widest spread is that of fit")
    with pytest.raises(UsageError, match="exists already"):
        gather(tmp_path, files)


def test_the_projector_gets_numbers(tmp_path: Path, files: dict[str, str]) -> None:
    files |= class_of(12)
    event, html, data = gather(tmp_path, files, anonymous=True)
    assert "Student 1: 9" in html and "Carol" not in html and "u3" not in json.dumps(data)
    assert event.without == ("Student 2",)


def test_a_class_without_results(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(NothingMeasured, match="No student has left results in /class"):
        gather(tmp_path, files)
    files["u1"] = "\x00" * 100
    with pytest.raises(NothingMeasured):
        gather(tmp_path, files)


def test_forms_of_the_report() -> None:
    times = class_times({"a": read_recording(record("x" * 300, 1.0))})
    assert conclusion(times) == "1 student measured 1 configuration."
    report = collect_module._Report("lab", "today", times, (), ())
    assert "lab, collected today" in as_html(report) and json.loads(as_json(report))["students"] == 1
