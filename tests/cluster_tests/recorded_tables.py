"""Tables in the documentation that are written by a run of tests: what was seen, and where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

# What is another one at each run, and what stands in its place.
_CHANGING = (
    (r"\b([Jj]ob|JOB) \d+\b", r"\1 7"),
    (r"(?<=scontrol release )\d+|(?<=StepId=)\d+|(?<=sacct -j )\d+", "7"),
    (r"\d{8}-\d{6}-[a-z2-7]{4}", "SESSION"),
    (r"\^C", ""),
)


def keep(config: pytest.Config, record: str, name: str, seen: Any) -> None:
    """Keep what a test has seen in pytest's cache, where ``recorded`` finds it."""
    cache = getattr(config, "cache", None)  # pytest may be told to have none
    if cache is not None and config.getoption("--slurm") == "24.11":
        cache.set(f"{record}/{name}", seen)


def recorded(record: str, names: Iterable[str], tests: str) -> dict[str, Any]:
    """Return what was seen at the last run of ``tests``. Raises ``SystemExit``, which names those that were not run."""
    folder = ROOT / ".pytest_cache" / "v" / record
    names = list(names)
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"Not played yet: {', '.join(missing)}. First: pytest tests/cluster_tests/{tests}")
    return {name: json.loads((folder / name).read_text()) for name in names}


def replace_between(document: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between these two lines of a document."""
    before, _, rest = document.read_text().partition(begin)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def rows_between(document: Path, begin: str, end: str) -> Iterator[list[str]]:
    """Yield the cells of all rows of tables, headings too, between these two lines of a document."""
    for line in document.read_text().partition(begin)[2].partition(end)[0].splitlines():
        if line.startswith("| "):
            yield [word.replace(r"\|", "|") for word in re.split(r"(?<!\\) \| ", line[2:-2])]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [row(columns), row(["---"] * len(columns)), *map(row, rows)]


def unchanging(text: str) -> str:
    """Return text without what is another one at each run."""
    for pattern, replacement in _CHANGING:
        text = re.sub(pattern, replacement, text)
    return text


def code(text: str) -> str:
    """Return text as Markdown's code, for a table's cell."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", r"\|")


def row(words: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(words)} |"
