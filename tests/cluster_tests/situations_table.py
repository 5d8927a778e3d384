"""Writes the results of the situations as the tables of docs/situations.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests import paths
from tests.cluster_tests.recorded_tables import code, replace_between, rows_between, table, unchanging
from tests.cluster_tests.situation import Part, Situation

DOCS = paths.DOCS / "situations.md"
#: where a run of test_situations.py saves what was seen, in pytest's cache
RECORD = "situations"
COLUMNS = ("situation", "provoked by", "what the user sees", "exit code", "left behind")
# The tables are written between these two lines of the document.
BEGIN, END = "<!-- tables: python -m tests.cluster_tests.situations --write -->", "<!-- end of the tables -->"


def write(situations: Sequence[Situation], seen: Mapping[str, Sequence[str]]) -> None:
    """Replace the tables in the document."""
    replace_between(DOCS, BEGIN, END, tables(situations, seen))


def tables(situations: Sequence[Situation], seen: Mapping[str, Sequence[str]]) -> str:
    """Return a heading and a table for each part."""
    lines = []
    for part in Part:
        rows = [cells(one, seen[one.name]) for one in situations if one.part is part]
        lines += ["", f"## {part.value}", "", *table(COLUMNS, rows)]
    return "\n".join(lines)


def cells(situation: Situation, seen: Sequence[str]) -> list[str]:
    """Return the five cells of a situation's row."""
    words = "<br>".join(code(line) for paragraph in seen for line in shortened(paragraph))
    return [situation.name, situation.provoked, words, exit_code(situation), left_behind(situation)]


def exit_code(situation: Situation) -> str:
    """Return the exit code, with the name of the error if there is one."""
    return f"{situation.exit_code} {situation.ends.__name__}" if situation.ends else str(situation.exit_code)


def left_behind(situation: Situation) -> str:
    """Return in words what is left afterwards."""
    return "the session's folder" if situation.folders else "nothing"


def shortened(paragraph: str) -> list[str]:
    """Return a paragraph's lines without the job's log, and with the parts that differ between runs replaced.

    Of more than five lines, as when a program prints the same about many files, only the first three and the last are
    kept.
    """
    kept = [line for line in paragraph.splitlines() if not re.match(r"  (\||The end of the job's log:)", line)]
    if len(kept) > 5:
        kept[3:-1] = ["…"]
    return [unchanging(line).strip() for line in kept]


def read() -> dict[str, list[str]]:
    """Return the rows of the document's tables by their first cell, as text without Markdown's backticks."""
    return {words[0]: words for words in rows_between(DOCS, BEGIN, END) if words[0] not in (COLUMNS[0], "---")}
