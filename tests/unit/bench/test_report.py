"""What runs have recorded, compared and reported: with recorded results, damaged and hostile ones too."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.bench import plots, report
from notebook_launcher.bench.compare import CombinationRun, compared, fingerprints, read_recording
from notebook_launcher.bench.conclusion import conclusion
from notebook_launcher.bench.report import Report, interval, make_report, seconds
from notebook_launcher.bench.report_forms import as_csv, as_html, as_markdown
from notebook_launcher.bench.run_usage import RunUsage
from notebook_launcher.cli.views.bench import report_lines
from notebook_launcher.core import events
from tests.fuzzing import examples
from tests.package_source import FILES, imports, module_of, package_of
from tests.unit.bench.page import Page
from tests.unit.bench.recorded import ran, record, reported, timed

HOSTILE = "<script>alert(1)</script>|`x`\n$x^2$ [a](http://b) =1+1"


# --- reading ------------------------------------------------------------------------------------------------------


def test_damaged_lines_are_counted_and_cost_nothing_else() -> None:
    damaged = [
        '{"name": "half',
        "[]",
        "7",
        '{"name": "x"}',
        record(median=float("nan")),
        record(times=["x"]),
        record(median=-1),
        record(work=True),
        "[" * 3000,
    ]
    found = read_recording("\n".join([record("a"), *damaged, "", record("b")]))
    assert [one.name for one in found.results] == ["a", "b"]
    assert found.damaged == len(damaged)


@settings(deadline=None, max_examples=examples(10))
@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
@pytest.mark.real_time
def test_any_text_is_read(text: str) -> None:
    read_recording(text)


@settings(deadline=None, max_examples=examples(10))
@given(
    st.dictionaries(
        st.sampled_from(list(json.loads(record()))),
        st.none() | st.text() | st.floats() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text()),
    )
)
@pytest.mark.real_time
def test_any_record_can_be_reported(changes: dict[str, object]) -> None:
    text = reported(ran({"cores": "1"}, json.dumps({**json.loads(record()), **changes})))
    assert "tiny.ipynb" in as_html(text)
    assert as_markdown(text, "plots")
    assert as_csv(text)


# --- compared -----------------------------------------------------------------------------------------------------


def test_a_speed_up_is_against_the_first_with_an_interval_around_it() -> None:
    one, four = compared([ran({"cores": "1"}, record(median=4.0)), ran({"cores": "4"}, record(median=1.0))])
    assert one.baseline
    assert one.speedup is None
    found = four.speedup
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high
    assert found.low > 3.8
    assert found.high < 4.2
    assert found.against == "cores=1"


@pytest.mark.real_time
def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    """Not to the percent: a bootstrap of 15 times is a little too sure of itself."""
    chance, hits = random.Random(3), 0
    for _ in range(60):
        times = [[mean * (1 + chance.gauss(0, 0.05)) for _ in range(15)] for mean in (2.0, 1.0)]
        lines = [record(median=sorted(some)[7], times=some) for some in times]
        found = compared([ran({"a": "1"}, lines[0]), ran({"a": "2"}, lines[1])])[1].speedup
        assert found is not None
        hits += (found.low or 9) <= 2.0 <= (found.high or 0)
    assert hits >= 50


def test_too_few_times_give_a_ratio_and_no_interval() -> None:
    row = compared([ran({"a": "1"}, record(median=4.0)), ran({"a": "2"}, record(times=[2.0], median=2.0))])[1]
    assert row.speedup is not None
    assert row.speedup.low is row.speedup.high is None
    assert report.times_as_quick(row) in ("2.00×", "2.01×", "1.99×", "2.02×", "1.98×")


def test_below_six_times_the_interval_reaches_as_far_as_the_extremes() -> None:
    """A bootstrap of five times would be narrower than what it was given."""
    some, others = [4.0, 4.2, 4.1, 4.4, 4.3], [2.0, 2.1, 1.9, 2.2, 2.05]
    lines = [record(median=4.2, times=some), record(median=2.05, times=others)]
    found = compared([ran({"a": str(place)}, line) for place, line in enumerate(lines)])[1].speedup
    assert found is not None
    assert (found.low, found.high) == (4.0 / 2.2, 4.4 / 1.9)


@pytest.mark.real_time
def test_a_single_time_has_no_interval_anywhere() -> None:
    once = [
        json.dumps(
            {**json.loads(record()), "times": [t], "median": t, "low": t, "high": t, "covered": 0.0, "confidence": 0.95}
        )
        for t in (2.0, 1.0)
    ]
    made = reported(*(ran({"cores": cores}, line) for cores, line in zip(("1", "2"), once, strict=True)))
    for row, line in zip(made.rows, report.lines(made), strict=True):
        assert (row.result.low, row.result.high) == (None, None)
        assert line.cells[3] == "–"
        assert "measured once" in line.note
    assert list(plots._points([(1, made.rows[0]), (2, made.rows[1])], 1)) == [(1, 1.0, None), (2, 2.0, None)]
    assert "measured once" in report.how_measured(made)[0]
    assert plots._bars("fit", made.rows)(720.0)


def test_an_interval_that_is_less_sure_or_wider_than_asked_for_is_said() -> None:
    few = record(repeats=5, covered=0.9375, confidence=0.95, narrow=False)
    wide = record(covered=0.961, confidence=0.95, narrow=False)
    good = record(covered=0.961, confidence=0.95, narrow=True)
    notes = [
        row.note for row in compared([ran({"a": str(place)}, line) for place, line in enumerate((few, wide, good))])
    ]
    assert notes == [
        "few repeats: its interval is 93.8 % sure, not 95 %",
        "its interval is wider than was asked for",
        "",
    ]


def test_times_that_cannot_be_do_not_overflow() -> None:
    lines = [record(times=[t] * 6, median=t, low=t, high=t) for t in (1e308, 1e-300)]
    found = read_recording("\n".join(lines))
    assert (found.results, found.damaged) == ((), 2)


def test_numbers_that_json_has_none_of_are_shown_as_they_are() -> None:
    odd = {"LR": float("inf"), "DECAY": float("nan")}
    made = reported(ran({"LR": "inf"}, record(parameters=odd, fingerprint={"x": float("-inf")})))
    assert made.rows[0].label == "fit (DECAY=nan)"
    assert made.prints.same == (("x", "-inf"),)
    assert "inf" in as_csv(made)


def test_a_parameter_that_follows_from_the_combination_is_no_part_of_a_results_name() -> None:
    """Threads, of cores; where a run has several of its own they tell its results apart."""
    runs = [
        ran({"cores": cores}, record(median=4.0 / int(cores), parameters={"threads": int(cores)}))
        for cores in ("1", "4")
    ]
    rows = compared(runs)
    assert [(row.label, row.baseline, row.note) for row in rows] == [
        ("fit", True, "threads=1"),
        ("fit", False, "threads=4"),
    ]
    own = [record(parameters={"threads": threads}) for threads in (1, 2)]
    labels = [row.label for row in compared([ran({"cores": "1"}, own[0]), ran({"cores": "2"}, *own)])]
    assert labels == ["fit (threads=1)", "fit (threads=1)", "fit (threads=2)"]


def test_another_baseline_is_taken_where_it_has_the_result() -> None:
    runs = [ran({"a": "1"}, record("x"), record("y")), ran({"a": "2"}, record("x", 2.0)), ran({"a": "3"}, record("y"))]
    rows = {(row.ran.name, row.label): row for row in compared(runs, "a=2")}
    assert rows["a=2", "x (EPOCHS=1)"].baseline
    assert rows["a=1", "x (EPOCHS=1)"].speedup is not None
    assert rows["a=1", "y (EPOCHS=1)"].baseline  # a=2 has no y


def test_what_was_not_synchronised_is_compared_with_nothing() -> None:
    runs = [ran({"a": "1"}, record(synchronised=False)), ran({"a": "2"}, record()), ran({"a": "3"}, record(median=2.0))]
    one, two, three = compared(runs)
    assert one.speedup is None
    assert not one.baseline
    assert "not synchronised" in one.note
    assert two.baseline
    assert three.speedup is not None
    assert three.speedup.against == "a=2"


def test_different_work_is_compared_within_the_same_work_only() -> None:
    small, large = record(work=1000), record(work=5000, median=5.0)
    runs = [ran({"N": n, "cores": c}, line) for n, line in (("1", small), ("5", large)) for c in ("1", "4")]
    rows = compared(runs)
    assert [row.baseline for row in rows] == [True, False, True, False]
    assert rows[3].speedup is not None
    assert rows[3].speedup.against == "N=5 cores=1"
    assert "other work than the baseline (5000 images, not 1000 images)" in rows[3].note


def test_results_of_one_run_are_told_apart() -> None:
    gpu = {"kind": "cuda", "name": "A100", "library": "torch"}
    lines = [
        record("sort", parameters={"size": 1}),
        record("sort", parameters={"size": 2}),
        record("sort", device=gpu, parameters={"size": 2}),
        record("sort", parameters={"size": 1}),
    ]
    rows = compared([ran({"cores": "1"}, *lines), ran({"cores": "4"}, *lines)])
    labels = ["sort (size=1)", "sort (size=2) on cpu", "sort (size=2) on cuda", "sort (size=1), again (2)"]
    assert [row.label for row in rows] == labels * 2
    assert [row.baseline for row in rows] == [True] * 4 + [False] * 4


def test_a_parameter_that_the_matrix_varies_is_no_part_of_a_results_name() -> None:
    runs = [ran({"EPOCHS": "1"}, record()), ran({"EPOCHS": "2"}, record(parameters={"EPOCHS": 2}))]
    assert [row.label for row in compared(runs)] == ["fit", "fit"]


def test_what_is_the_same_and_what_differs_of_the_machines() -> None:
    other = {"cpu": "AMD EPYC", "cores_allotted": 8, "libraries": {"numpy": "2.3.1"}, "job": "8"}
    runs = [ran({"a": "1"}, record()), ran({"a": "2"}, record(fingerprint=other)), ran({"a": "3"}, state="failed")]
    found = fingerprints(runs)
    assert found.same == (("cpu", "AMD EPYC"), ("libraries.numpy", "2.3.1"))
    assert found.columns == ("cores_allotted",)
    assert found.rows == (("a=1", ("4",)), ("a=2", ("8",)))


@pytest.mark.parametrize("name", ["compare", "plots", "conclusion", "report_forms"])
def test_what_is_pure_imports_nothing_that_copies_or_runs(name: str) -> None:
    paths = {module_of(path): path for path in FILES}
    seen: set[str] = set()
    waiting = {f"notebook_launcher.bench.{name}"}
    while waiting - seen:
        module = (waiting - seen).pop()
        seen.add(module)
        names = {part for found in imports(paths[module]) for part in (found, found.rpartition(".")[0])}
        waiting |= names & paths.keys()
    assert {package_of(paths[module]) for module in seen} == {"bench", "core"}
    assert "notebook_launcher.core.bounded_read" not in seen


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.2134, "4.21 s"),
        (0.9996, "1.00 s"),
        (0.0123, "12.3 ms"),
        (1e-6, "1.00 µs"),
        (5e-8, "50.0 ns"),
        (3600, "3 600 s"),
        (999.7, "1 000 s"),
        (None, "–"),
        (1e-12, "0.00100 ns"),
    ],
)
def test_times_have_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert seconds(value).replace("\N{NARROW NO-BREAK SPACE}", " ") == text


def test_both_ends_of_an_interval_have_one_unit() -> None:
    assert interval(0.0121, 0.0126) == "12.1 – 12.6 ms"
    assert interval(None, 1.0) == "–"


# --- the report ---------------------------------------------------------------------------------------------------


@functools.cache
def hostile() -> Report:
    bad = record(
        HOSTILE, parameters={HOSTILE: HOSTILE}, unit=HOSTILE, fingerprint={HOSTILE: HOSTILE, "b": {"c": HOSTILE}}
    )
    failed = ran({"cores": "4", "X": HOSTILE}, state="failed", why=HOSTILE, image=HOSTILE, job=HOSTILE)
    runs = (ran({"cores": "1", "X": HOSTILE}, bad), ran({"cores": "2", "X": HOSTILE}, bad), failed)
    made = make_report(HOSTILE, HOSTILE, HOSTILE, "now", runs)
    return dataclasses.replace(made, plots=tuple(plots.draw_all(made)))


@pytest.mark.real_time
def test_the_page_asks_nobody_for_anything_and_names_are_text() -> None:
    html = as_html(hostile())
    page = Page(html)
    assert "script" not in page.tags
    assert page.links
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert page.text.count("<script>alert(1)</script>") >= 5
    assert "default-src 'none'" in html
    assert not re.search(r"url\(|@import", html)


@pytest.mark.real_time
def test_markdown_keeps_hostile_names_in_their_cells() -> None:
    text = as_markdown(hostile(), "report-plots")
    markup = re.sub(r"(?<!`)``(?!`).*?(?<!`)``(?!`)", "", text)  # code is text in any case
    assert "<script>" not in "\n".join(line for line in markup.splitlines() if not line.startswith("    "))
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    code = [line for line in markup.splitlines() if line.startswith("    ")]
    assert not re.search(r"(?<!\\)\]\(http", "\n".join(line for line in markup.splitlines() if line not in code))
    assert len(code) == 1  # of the command, on one line
    assert "(report-plots/1-times.svg)" in text


def test_a_spreadsheet_takes_nothing_for_a_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(reported(ran({"X": "=1+1", "Y": "-1"}, record("=cmd()")))))))
    assert rows[0]["result"] == "'=cmd() (EPOCHS=1)"
    assert rows[0]["X"] == "'=1+1"
    assert rows[0]["Y"] == "-1"
    assert float(rows[0]["median_s"]) == pytest.approx(1.0, rel=0.05)


def test_failed_combinations_stand_in_all_three_with_why() -> None:
    made = reported(ran({"cores": "1"}, record(), queued=7.0), ran({"cores": "4"}, state="failed", why="No such node."))
    page = Page(as_html(made))
    for text in (page.text, as_markdown(made, "p"), as_csv(made)):
        assert "No such node." in text
    assert "2 combinations: 1 done, 1 failed" in page.text
    states = {row["combination"]: row["state"] for row in csv.DictReader(io.StringIO(as_csv(made)))}
    assert states == {"cores=1": "done", "cores=4": "failed"}


def test_how_it_was_measured_is_told() -> None:
    bad = record(synchronised=False, warmup=3, repeats=5)
    told = " ".join(report.how_measured(reported(ran({"a": "1"}, record(), bad, "{damaged"))))
    assert "the median of 5 to 9 repeats; repeats before them to warm up: 1 to 3" in told
    assert "1 of 2 results were not synchronised" in told
    assert "One line of the recorded results could not be read" in told
    assert report.how_measured(reported(ran({"a": "1"}))) == ["Nothing was measured."]


def test_what_all_combinations_share_is_said_once() -> None:
    made = reported(ran({"cores": "1", "EPOCHS": "1"}, record()), ran({"cores": "4", "EPOCHS": "1"}, record()))
    assert report.shared(made) == "EPOCHS=1"
    assert [line.cells[0] for line in report.lines(made)] == ["cores=1", "cores=4"]
    alone = reported(ran({"cores": "1", "EPOCHS": "1"}, record()))
    assert [line.cells[0] for line in report.lines(alone)] == ["cores=1 EPOCHS=1"]


# --- what came out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (timed([4.0] * 6, [1.0] * 6), "a=2 is fastest, 4.00 times as fast as a=1 (4.00 to 4.00, in one run each)."),
        (timed([1.0] * 6, [4.0] * 6), "No combination was shown to be faster than the baseline, a=1."),
        (
            timed([1.0, 2.0, 3.0] * 3, [0.9, 1.9, 2.9] * 3),
            "No combination was shown to be faster than a=1; a=2 was",
        ),
        (timed([1.0] * 6, [0.999] * 6), "No combination was shown to be faster than a=1; a=2 was 1.00"),
        (timed([1.0] * 6, [0.5]), "a=2 was 2.00 times as fast as a=1, with too few repeats to be sure."),
        (
            timed([4.0] * 6, [2.0, 2.1, 1.9, 2.0, 1.8, 2.2], [1.9, 1.98, 2.1, 1.8, 2.2, 1.99]),
            "a=3 is 2.01 times as fast as a=1 (1.86 to 2.16, in one run each), "
            "and not shown to be faster than a=2 (2.00 times).",
        ),
        (
            [*timed([4.0] * 6, [2.0] * 6, [1.0] * 6), ran({"a": "4"}, state="failed")],
            "a=3 is fastest, 4.00 times as fast as a=1 (4.00 to 4.00, in one run each). "
            "1 of 4 combinations has no time that can be ",
        ),
        (
            timed([4.0] * 6, [0.9, 0.9, 1.5, 1.98, 2.1, 2.1], [2.0] * 6, [2.0] * 6),
            "faster than a=3 (2.00 times) and 1 other.",
        ),
        (
            [*timed([1.0] * 6, [4.0] * 6), ran({"a": "4"}, record(synchronised=False)), ran({"a": "5"}, "{damaged")],
            "than the baseline, a=1. 2 of 4 combinations have no time that can be compared.",
        ),
        ([ran({"a": "1"}, record(synchronised=False))], "No times can be compared: none was taken after waiting"),
        ([ran({"a": "1"}, record())], "there is nothing yet to compare it with."),
        ([ran({"a": "1"}, state="failed"), ran({"a": "2"}, state="failed")], "All 2 combinations failed."),
        ([ran({"a": "1"}, state="waiting")], "There are no results yet."),
        (
            [ran({"a": "1"}, use=RunUsage(60.0)), ran({"a": "2"}, use=RunUsage(30.0))],
            "recorded no times. As a whole, a=2 ran for 30 s, and a=1 for 60 s.",
        ),
        (
            [ran({"a": "1"}, "{damaged", "[]", use=RunUsage(60.0))],
            "2 lines of the recorded results could not be read, and there are no others. As a whole, it ran for 60 s.",
        ),
        ([ran({"a": "1"}, "{damaged", state="failed")], "The only combination failed. One line of the recorded "),
    ],
)
def test_the_headline_says_what_came_out(runs: list[CombinationRun], sentence: str) -> None:
    made = reported(*runs)
    assert sentence in conclusion(made)
    assert f"<h1>{conclusion(made)}</h1>" in as_html(made)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (ran({"a": "1"}, use=RunUsage(60.0)), "The notebook has recorded no times. As a whole, it ran for 60 s."),
        (ran({"a": "1"}, state="not fetched"), "There are no results yet."),
    ],
)
def test_why_there_are_no_results_is_said_once(run: CombinationRun, sentence: str) -> None:
    event = events.BenchReported("b", "b/report.html", "b/report.md", "b/report.csv", 0, (), conclusion(reported(run)))
    paths = [f"  b/report.{ending}" for ending in ("html", "md", "csv")]
    assert report_lines(event) == ["The report has no results:", *paths, sentence]


def test_damaged_results_are_not_said_to_be_none() -> None:
    alone = reported(ran({"a": "1"}, "{damaged"))
    for text in (as_html(alone), as_markdown(alone, "plots")):
        assert "One line of the recorded results could not be read" in text
        assert "timing.measure(" not in text, "which the notebook has"
    lines = report.run_lines(reported(ran({"a": "1"}, record()), ran({"a": "2"}, "{damaged"), ran({"a": "3"})))
    assert [line.note for line in lines] == [
        "",
        "One line of the recorded results could not be read.",
        "It has recorded no results.",
    ]


def test_a_name_with_many_parameters_is_cut_and_still_tells_results_apart() -> None:
    many = {f"parameter{number}" * 10: "x" * 200 for number in range(150)}
    made = reported(ran({"a": "1"}, record(parameters={**many, "z": 1}), record(parameters={**many, "z": 2})))
    labels = [row.label for row in made.rows]
    assert len(set(labels)) == 2
    assert all(len(label) <= 160 and "again" not in label for label in labels)


def test_results_of_one_name_stand_together_and_what_never_varies_is_said_once() -> None:
    lines = [record("one"), record("other", median=2.0)]
    table = report.results_table(reported(*(ran({"cores": cores}, *lines) for cores in ("1", "4"))))
    assert [line.cells[0:2] for line in table.lines] == [
        ("cores=1", "one (EPOCHS=1)"),
        ("cores=4", "one (EPOCHS=1)"),
        ("cores=1", "other (EPOCHS=1)"),
        ("cores=4", "other (EPOCHS=1)"),
    ]
    runs = report.runs_table(reported(*(ran({"cores": cores}, record(), image="sha256:ab") for cores in ("1", "4"))))
    assert runs.headings == ("combination", "run time")
    assert runs.same == (("state", "done"), ("image", "ab"))
    once = report.results_table(reported(*(ran({"a": a}, record(times=[1.0], median=1.0)) for a in ("1", "2"))))
    assert once.note == "measured once: how much it varies is not known"
    assert not any(line.note for line in once.lines)


def test_the_page_keeps_the_case_of_names_and_no_line_is_wider_than_its_table() -> None:
    used = RunUsage(cores=2.0)
    page = as_html(
        reported(
            ran({"a": "1"}, record(), record(synchronised=False), use=used),
            ran({"a": "2"}, record(), state="failed", use=used),
        )
    )
    assert "CPU cores: <b>2.0</b>" in page
    results = page.split("<table")[1].split("</table>")[0]
    spans = [int(number) for number in re.findall(r'colspan="(\d+)"', results)]
    assert len(spans) == 3
    assert set(spans) == {results.count("<th>") + results.count('<th class="number">')}


def test_only_what_is_faster_beyond_doubt_is_marked_as_the_fastest() -> None:
    sure, doubtful = timed([4.0] * 6, [1.0] * 6), timed([1.0, 2.0, 3.0] * 3, [0.9, 1.9, 2.9] * 3)
    assert [line.best for line in report.lines(reported(*sure))] == [False, True]
    assert [line.best for line in report.lines(reported(*doubtful))] == [False, False]
    alike = timed([4.0] * 6, [2.0, 2.1, 1.9, 2.0, 1.8, 2.2], [1.9, 1.98, 2.1, 1.8, 2.2, 1.99])
    assert not any(line.best for line in report.lines(reported(*alike)))


def test_energy_is_shown_where_it_was_recorded() -> None:
    rows = [record(energy_j=35.2), record("b", energy_j=35.2, energy_j_per_unit=0.00117), record("c", energy_j="much")]
    made = reported(ran({"a": "1"}, *rows))
    assert [line.cells[-1] for line in report.lines(made)] == ["35.2 J per call", "1.17 mJ/images", "–"]
    assert [row["energy_j"] for row in csv.DictReader(io.StringIO(as_csv(made)))] == ["35.2", "35.2", ""]
