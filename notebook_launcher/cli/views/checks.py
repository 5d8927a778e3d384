"""Shows checks: a line or two for each, with a mark that needs no colour to be understood, and a conclusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.cli.views.folding import folded
from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {"ok": "✓", "fault": "✗", "warning": "!", "unknown": "?", "skipped": "–"}
_PLAIN_MARKS = {"ok": "ok", "fault": "XX", "warning": "!!", "unknown": "??", "skipped": "--"}  # instead of ✓
_STYLES = {"ok": "green", "fault": "bold red", "warning": "yellow", "unknown": "yellow", "skipped": "dim"}
_NAME = 18  # columns for the name of a check
_LEAST = 30  # columns for the finding; on a narrower terminal, we do not fold


def show_check(console: Console, event: events.CheckResult) -> None:
    """Print one check: its mark, its name, the finding, and below that the hint."""
    from rich.text import Text

    mark = _mark(console, event.result)
    name = printable(event.check)
    if len(name) > _NAME and console.is_terminal:  # the name gets its own line
        console.print(Text(f"{mark} {name}", style=_STYLES.get(event.result, "")), soft_wrap=True, highlight=False)
        mark = name = " "
    head = f"{mark} {name:<{_NAME}}  "
    found = _folded(console, printable(event.found), len(head))
    hint = _folded(console, f"→ {printable(event.hint)}", len(head)) if event.hint else []
    style = _STYLES.get(event.result, "")
    for number, line in enumerate(found or [""]):
        text = Text()
        text.append(head if number == 0 else " " * len(head), style=style)
        text.append(line, style="" if event.result in ("ok", "unknown") else style.replace("bold ", ""))
        console.print(text, soft_wrap=True, highlight=False)
    for line in hint:
        console.print(Text(" " * len(head) + line), soft_wrap=True, highlight=False)


def checks_text(event: events.ChecksDone) -> str:
    """Return the conclusion; a fault's consequence is shown by the error that it raises."""
    parts = [f"{event.passed} checks passed"]
    for names, what in (
        (event.faults, "failed"),
        (event.warnings, "to be looked at"),
        (event.unknown, "not known"),
        (event.skipped, "left out"),
    ):
        if names:
            parts.append(f"{what}: {', '.join(names)}")
    summary = f"{'; '.join(parts)}."
    if event.faults:
        return printable(summary)
    is_open = _STOPS & {*event.warnings, *event.unknown}
    return printable(f"{'No fault was found' if is_open else 'Nothing prevents a launch'}. {summary}")


# checks without which nothing starts: unless all of them are fine, no success is promised
_STOPS = frozenset({"image", "image digest", "environment", "JupyterLab"})


def _mark(console: Console, result: str) -> str:
    try:
        "✓✗–→".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_MARKS.get(result, "??")
    return _MARKS.get(result, "?")


def _folded(console: Console, text: str, indent: int) -> list[str]:
    """Fold between words on a terminal; otherwise return one line."""
    lines = text.split("\n")
    if not console.is_terminal:
        return [" ".join(line.strip() for line in lines)]
    width = max(_LEAST, console.width - indent)
    return [part for line in lines for part in folded(line, width)]
