"""docs/situations.md holds every situation that is played, with its words and its exit code, and no other."""

from __future__ import annotations

import re

import pytest

from tests.cluster_tests.recorded_tables import code, row
from tests.cluster_tests.situation import Part, shown
from tests.cluster_tests.situations import SITUATIONS
from tests.cluster_tests.situations_table import DOCS, cells, exit_code, left_behind, read, shortened

ROWS = read()


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({one.name for one in SITUATIONS}) == len(SITUATIONS) >= 30
    assert {one.part for one in SITUATIONS} == set(Part)


def test_every_situation_is_in_the_document_and_no_other() -> None:
    assert sorted(ROWS) == sorted(one.name for one in SITUATIONS)


def test_the_document_tells_what_is_tested() -> None:
    for situation in SITUATIONS:
        name, provoked, seen, ended, left = ROWS[situation.name]
        assert provoked == situation.provoked, name
        missing = [one for one in situation.sees if not any(re.search(one, line) for line in lines(seen))]
        assert missing == [], name
        assert (ended, left) == (exit_code(situation), left_behind(situation)), name


def test_the_exit_code_is_that_of_the_list_of_errors() -> None:
    documented = (DOCS.parent / "errors.md").read_text()
    for situation in SITUATIONS:
        if situation.ends is not None:
            assert f"| {situation.exit_code} | {situation.ends.__name__} |" in documented, situation.name


def lines(cell: str) -> list[str]:
    """The lines of what was seen, and all of them as one: a waiting line is one, an error has several."""
    return [cell, *(line.strip("` ") for line in cell.split("<br>"))]


# --- how a row comes to be -----------------------------------------------------------------------------------------


def test_a_terminal_is_read_line_by_line_and_change_by_change() -> None:
    printed = (
        "⠋ 0:00  connecting\n⠋ 0:01  job 3 waits: for b⠙ 0:02  job 3 waits: for b⠹ 0:03  job 3 waits: for c\n"
        "launch-notebook: It broke.\n  So it said.\n  → hint it\n"
    )
    assert shown(printed) == [
        "connecting",
        "job 3 waits: for b",
        "job 3 waits: for c",
        "launch-notebook: It broke.\n  So it said.\n  → hint it",
    ]


def test_a_row_has_no_log_and_nothing_of_the_day() -> None:
    paragraph = (
        "launch-notebook: Job 12 broke, 20260101-120000-abcd.\n  The end of the job's log:\n  | a\n  → this | that"
    )
    assert shortened(paragraph) == ["launch-notebook: Job 7 broke, SESSION.", "→ this | that"]
    situation = SITUATIONS[0]
    written = row(cells(situation, [paragraph]))
    assert written.count(r"\|") == 1
    assert written.split(" | ")[0] == f"| {situation.name}"


@pytest.mark.parametrize(("text", "written"), [("a b", "`a b`"), ("a `b`", "`` a `b` ``"), ("a | b", r"`a \| b`")])
def test_words_are_code(text: str, written: str) -> None:
    assert code(text) == written
