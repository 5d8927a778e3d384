"""Writes tables in the documentation from the results of test runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

# Text that differs between runs, and its replacement.
_CHANGING = (
    (r"\b([Jj]ob|JOB) \d+\b", r"\1 7"),
    (r"(?<=scontrol release )\d+|(?<=StepId=)\d+|(?<=sacct -j )\d+", "7"),
    (r"\d{8}-\d{6}-[a-z2-7]{4}", "SESSION"),
    (r"\^C", ""),
)


def keep(config: pytest.Config, record: str, name: str, seen: Any) -> None:
    """Save the result of a test in pytest's cache, where ``recorded`` finds it.

    Only results with Slurm 24.11 are saved, because the documentation shows those.
    """
    cache = getattr(config, "cache", None)  # pytest's cache may be disabled
    if cache is not None and config.getoption("--slurm") == "24.11":
        cache.set(f"{record}/{name}", seen)


def recorded(record: str, names: Iterable[str], tests: str) -> dict[str, Any]:
    """Return the saved results of a file of tests by name. Raises ``SystemExit`` with the names that have none."""
    folder = ROOT / ".pytest_cache" / "v" / record
    names = list(names)
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"Not played yet: {', '.join(missing)}. First: pytest tests/cluster_tests/{tests}")
    return {name: json.loads((folder / name).read_text()) for name in names}


def replace_between(document: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two lines of a document."""
    before, _, rest = document.read_text().partition(begin)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def rows_between(document: Path, begin: str, end: str) -> Iterator[list[str]]:
    """Yield the cells of all rows of tables, headings included, between two lines of a document."""
    for line in document.read_text().partition(begin)[2].partition(end)[0].splitlines():
        if line.startswith("| "):
            yield [word.replace(r"\|", "|") for word in re.split(r"(?<!\\) \| ", line[2:-2])]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [row(columns), row(["---"] * len(columns)), *map(row, rows)]


def unchanging(text: str) -> str:
    """Return text with the parts that differ between runs replaced."""
    for pattern, replacement in _CHANGING:
        text = re.sub(pattern, replacement, text)
    return text


def code(text: str) -> str:
    """Return text as Markdown code, for a table's cell."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", r"\|")


def row(words: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(words)} |"
