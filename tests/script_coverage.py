"""Shows which lines of the job scripts ran in the tests, from the traces of ``traced_bash.sh``.

    python tests/script_coverage.py [--lines]        --lines: also which lines did not run

Lines that begin a command are counted; a command on several lines has run if one of them has. Scripts inside Slurm, in
a container or over SSH are not traced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
# bash does not know the name of a script from standard input, but traced_bash.sh does.
TRACED = re.compile(rb"^\++([^:@\n]*@[\w.-]*:\d+):", re.MULTILINE)
# Lines on which no command begins: closing or separating words, a function's head, a pattern of `case` alone.
NO_COMMAND = re.compile(
    r"(?:(?:then|else|do|done|fi|esac|;;&?|[{}()]|\}\s*\d*>\S+|done\s*<.*)\s*)*(?:#.*)?|"
    r"(?:function\s+)?[\w-]+\s*\(\)\s*[{(]?|"
    r"\(?[^()\s]+(?:\s*\|\s*[^()\s]+)*\)"
)
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


def commands(text: str) -> list[range]:
    """Return the lines of each command of a script, counted from 1."""
    found: list[range] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, line = number, lines[number].strip()
        while lines[number].endswith("\\") and number + 1 < len(lines):
            number += 1
        if here := HERE_DOCUMENT.search(lines[number]):
            while number + 1 < len(lines) and lines[number].strip() != here[2]:
                number += 1
        if not NO_COMMAND.fullmatch(line):
            found.append(range(first + 1, number + 2))
        number += 1
    return found


def traced(folder: Path) -> dict[str, set[int]]:
    """Return the lines that ran, by the script's file name."""
    ran: dict[str, set[int]] = {}
    places: set[bytes] = set()  # few distinct ones among millions of lines
    for path in folder.glob("lines-*"):
        places.update(TRACED.findall(path.read_bytes()))
    for place in places:
        where, _, line = place.decode(errors="replace").rpartition(":")
        file, _, script = where.partition("@")
        name = file if "/" in file or not script else script
        ran.setdefault(Path(name).name, set()).add(int(line))
    return ran


def spans(missed: list[range]) -> str:
    """Return line numbers as text, neighbours as one span."""
    text: list[str] = []
    begin = end = 0
    for lines in [*missed, range(0)]:
        if lines and end and lines.start == end + 1:
            end = lines[-1]
            continue
        if end:
            text.append(f"{begin}-{end}" if end > begin else f"{begin}")
        begin, end = (lines.start, lines[-1]) if lines else (0, 0)
    return ", ".join(text)


def main() -> None:
    """Print a table of all job scripts."""
    ran = traced(ROOT / ".bash-trace")
    with_lines = "--lines" in sys.argv
    table = Table(
        "Job script", "Commands", "Ran", "%", *(["Lines that did not run"] * with_lines), box=None, pad_edge=False
    )
    all_commands = all_ran = 0
    for path in sorted(ROOT.glob("jobscripts/**/*.sh")):
        here = commands(path.read_text(encoding="utf-8"))
        missed = [lines for lines in here if not ran.get(path.name, set()).intersection(lines)]
        hit = len(here) - len(missed)
        all_commands, all_ran = all_commands + len(here), all_ran + hit
        row = [str(path.relative_to(ROOT)), str(len(here)), str(hit), f"{100 * hit / len(here):.0f}"]
        table.add_row(*row, *([spans(missed)] * with_lines))
    table.add_row("all", str(all_commands), str(all_ran), f"{100 * all_ran / all_commands:.0f}")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
