"""The plots of a report."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.bench import plots
from notebook_launcher.bench.report_forms import as_html
from notebook_launcher.bench.svg import width_of, wrapped
from tests.fuzzing import examples
from tests.unit.bench.recorded import ran, record, reported

TEXT = "{http://www.w3.org/2000/svg}text"


def texts(svg: str) -> list[str]:
    """What is written in a picture, which has to be well-formed, and to load nothing."""
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(TEXT)]


def beyond(svg: str) -> list[str]:
    """The texts that are not whole in their picture."""
    picture = ElementTree.fromstring(svg)
    found = []
    for one in picture.iter(TEXT):
        long = width_of(one.text or "")
        left = float(one.attrib["x"]) - {"start": 0, "middle": 0.5, "end": 1}[one.attrib["text-anchor"]] * long
        if left < 0 or left + long > float(picture.attrib["width"]):
            found.append(one.text or "")
    return found


def test_plots_are_drawn_of_each_result_and_against_cores() -> None:
    runs = [
        ran({"env": env, "cores": cores}, record(median=4.0 / int(cores)), record("one", synchronised=False))
        for env in ("a", "b")
        for cores in ("1", "4")
    ]
    drawn = plots.draw_all(reported(*runs))
    assert [plot.name for plot in drawn] == ["1-times", "1-cores", "2-times"]
    for plot in drawn:
        assert {"a, 1 core", "a"} & set(texts(plot.svg)) & set(texts(plot.narrow)), plot.name
    assert drawn == plots.draw_all(reported(*runs))  # the same each time
    assert "hatched: not synchronised" in " ".join(texts(drawn[2].svg))
    assert "hatched: not synchronised" not in " ".join(texts(drawn[0].svg))


def test_nothing_of_a_title_or_a_name_is_left_out_of_a_plot() -> None:
    title, long = "one epoch of the network with a title that no line of a plot has room for " * 2, "word " * 30
    made = reported(
        ran({"env": long}, record(title, parameters={})), ran({"env": "short"}, record(title, parameters={}))
    )
    for svg in (plots.draw_all(made)[0].svg, plots.draw_all(made)[0].narrow):
        words = " ".join(texts(svg))
        assert " ".join(title.split())[:110] in words
        assert long.strip() in words
        assert not beyond(svg)


def test_lines_are_as_wide_as_their_characters_are() -> None:
    text = "漢" * 20 + " " + "a" * 60
    lines = wrapped(text, 300)
    assert all(width_of(line) <= 300 for line in lines)
    assert "".join(lines) == text.replace(" ", "")
    assert wrapped("a word", 1) == list("aword")
    assert wrapped("", 300) == wrapped(" \n", 300) == [""]


def test_an_axis_has_the_unit_of_its_values() -> None:
    made = reported(*(ran({"a": a}, record(times=[0.9996] * 6, median=0.9996, low=0.9996, high=0.9996)) for a in "12"))
    words = texts(plots.draw_all(made)[0].svg)
    assert "1.00 s" in words
    assert "median time of one call in s;" in " ".join(words)


def test_an_interval_beyond_the_frame_of_a_plot_is_marked() -> None:
    wide = record(times=[0.9, 1.0, 30.0], median=1.0, low=0.9, high=30.0)
    marked, plain = (plots.draw_all(reported(ran({"a": "1"}, record()), ran({"a": "2"}, line)))[0].svg
                     for line in (wide, record()))  # fmt: skip
    assert "an arrow: the interval goes on beyond it" in " ".join(texts(marked))
    assert "<polygon" in marked
    assert "arrow" not in plain
    assert "<polygon" not in plain


@settings(deadline=None, max_examples=examples(10))
@given(
    st.lists(st.tuples(st.text(), st.floats(1e-18, 1e18), st.integers(0, 300)), min_size=1, max_size=5),
)
@example([("", 1.0, 1), ("", 4.0, 2)])
@example([("\uffff\ufffe", 1.0, 1), ("\ud800", 1.0, 2)])
@pytest.mark.real_time
def test_any_results_can_be_drawn(results: list[tuple[str, float, int]]) -> None:
    runs = [
        ran({"cores": str(cores), "X": name}, record(times=[median] * 3, median=median, low=median, high=median))
        for name, median, cores in results
    ]
    for plot in plots.draw_all(reported(*runs)):
        assert texts(plot.svg)
        assert texts(plot.narrow)
        assert not beyond(plot.svg) + beyond(plot.narrow)


def test_curves_are_of_what_differs_in_cores_alone() -> None:
    runs = [
        ran({"env": env, "cores": cores}, record()) for env, cores in (("a", "1"), ("a", "4"), ("b", "2"), ("b", "16"))
    ]
    rows = reported(*runs, ran({"env": "c", "cores": "1"}, record())).rows
    curves = plots._curves(rows)
    assert [(name, [cores for cores, _ in points]) for name, points in curves] == [("a", [1, 4]), ("b", [2, 16])]


def test_cores_that_a_job_did_not_have_are_warned_of_and_draw_no_scaling() -> None:
    same = {"fingerprint": {"cores_allotted": 2}}
    runs = [ran({"cores": cores}, record(median=4.0 / int(cores), **same)) for cores in ("1", "2", "4")]
    told = reported(*runs)
    wrong = "warning: 2 cores were allotted, not the 4 of its name"
    assert [row.note for row in told.rows] == [wrong.replace("the 4", "the 1"), "", wrong]
    assert wrong in as_html(told)
    assert [plot.name for plot in plots.draw_all(told)] == ["1-times"]
