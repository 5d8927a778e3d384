"""What was seen when the situations were played, as the tables of docs/situations.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from tests import paths
from tests.cluster_tests.situation import Part, Situation
from tests.paths import ROOT

DOCS = paths.DOCS / "situations.md"
#: where a run of test_situations.py leaves what was seen, in pytest's cache
RECORD = "situations"
COLUMNS = ("situation", "provoked by", "what the user sees", "exit code", "left behind")
# Between these two lines of the document stands what is written here.
BEGIN, END = "<!-- tables: python -m tests.cluster_tests.situations --write -->", "<!-- end of the tables -->"
# What is another one at each run, and what stands in its place.
_CHANGING = (
    (r"\b([Jj]ob|JOB) \d+\b", r"\1 7"),
    (r"(?<=scontrol release )\d+|(?<=StepId=)\d+|(?<=sacct -j )\d+", "7"),
    (r"\d{8}-\d{6}-[a-z2-7]{4}", "SESSION"),
    (r"\^C", ""),
)


def recorded(names: Iterable[str]) -> dict[str, list[str]]:
    """Return what was seen at the last run. Raises ``SystemExit``, which names those that were not played."""
    folder = ROOT / ".pytest_cache" / "v" / RECORD
    names = list(names)
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"Not played yet: {', '.join(missing)}. First: pytest tests/cluster_tests/test_situations.py")
    return {name: json.loads((folder / name).read_text()) for name in names}


def write(situations: Sequence[Situation], seen: Mapping[str, Sequence[str]]) -> None:
    """Replace the tables in the document."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n{tables(situations, seen)}\n{END}{after}")


def tables(situations: Sequence[Situation], seen: Mapping[str, Sequence[str]]) -> str:
    """Return a heading and a table for each part."""
    lines = []
    for part in Part:
        rows = [cells(one, seen[one.name]) for one in situations if one.part is part]
        lines += ["", f"## {part.value}", "", row(COLUMNS), row(["---"] * len(COLUMNS)), *map(row, rows)]
    return "\n".join(lines)


def cells(situation: Situation, seen: Sequence[str]) -> list[str]:
    """Return the five cells of a situation's row."""
    words = "<br>".join(code(line) for paragraph in seen for line in shortened(paragraph))
    return [situation.name, situation.provoked, words, exit_code(situation), left_behind(situation)]


def exit_code(situation: Situation) -> str:
    """Return the exit code with the name of its error."""
    return f"{situation.exit_code} {situation.ends.__name__}" if situation.ends else str(situation.exit_code)


def left_behind(situation: Situation) -> str:
    """Return what is still there afterwards, in words."""
    return "the session's folder" if situation.folders else "nothing"


def shortened(paragraph: str) -> list[str]:
    """Return a paragraph's lines without the job's log, and without what is another one at each run.

    Where a program has said the same of many files, its first two lines are kept.
    """
    kept = [line for line in paragraph.splitlines() if not re.match(r"  (\||The end of the job's log:)", line)]
    if len(kept) > 5:
        kept[3:-1] = ["…"]
    for pattern, replacement in _CHANGING:
        kept = [re.sub(pattern, replacement, line) for line in kept]
    return [line.strip() for line in kept]


def code(text: str) -> str:
    """Return text as Markdown's code, for a table's cell."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", r"\|")


def row(words: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(words)} |"


def read() -> dict[str, list[str]]:
    """Return the rows of the document's tables by their first cell, as text without Markdown's signs for code."""
    found = {}
    for line in DOCS.read_text().partition(BEGIN)[2].partition(END)[0].splitlines():
        words = [word.replace(r"\|", "|") for word in re.split(r"(?<!\\) \| ", line[2:-2])]
        if line.startswith("| ") and words[0] not in (COLUMNS[0], "---"):
            found[words[0]] = words
    return found
