"""Shows profiles: the list of them, one as TOML, and what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.cli.views.tables import print_table
from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LEAST = 20  # columns; a shorter text would be useless


def show_clusters(
    console: Console, aside: Console, event: events.ClustersListed | events.ProfileShown | events.Saved
) -> None:
    """Print one of the events. ``aside``: the console for messages that are not results."""
    if isinstance(event, events.ClustersListed):
        _list(console, event)
    elif isinstance(event, events.ProfileShown):
        _profile(console, event)
    else:
        _say(aside, f"Saved to {_short(event.path)}: {event.what}", "green")


def _list(console: Console, event: events.ClustersListed) -> None:
    from rich.table import Table

    rows = [("*" if one.default else "", one.cluster, printable(one.host or ""), _about(one)) for one in event.clusters]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("", "Name", "Login node", ""):
        table.add_column(heading, overflow="fold", no_wrap=bool(heading))
    longest = [max((len(row[place]) for row in rows), default=0) for place in range(3)]
    room = console.width - sum(max(one, 10 if place else 1) + 2 for place, one in enumerate(longest))
    for one, row in zip(event.clusters, rows, strict=True):
        style = "dim" if one.status == "retired" or one.unavailable else "red" if one.problem else ""
        cells = [_cell(text, style) for text in row]
        if console.is_terminal and not one.problem and room > _LEAST:  # one line each: the list is for choosing
            cells[-1].truncate(room, overflow="ellipsis")
        table.add_row(*cells)
    print_table(console, table)
    if event.courses:
        _say(console, f"Courses: {', '.join(event.courses)}  (launch-notebook course)")
    if any(one.default for one in event.clusters):
        _say(console, "* is the default cluster.", "dim")


def _about(one: events.ClusterEntry) -> str:
    """Return the remarks on a row, the most important first."""
    if one.problem:
        return f"wrong: {one.problem}"
    remarks = []
    if one.status == "retired":
        remarks.append(f"retired; now: {one.successor}" if one.successor else "retired")
    elif one.unavailable:
        remarks.append("no sessions there")
    elif one.status == "unknown":
        remarks.append("not known whether it is in use")
    if one.scheduler not in ("slurm", ""):
        remarks.append("no scheduler" if one.scheduler == "local" else one.scheduler.upper())
    if one.origin != "bundled":
        remarks.append(one.origin)
    about = f"[{', '.join(remarks)}] " if remarks else ""
    return f"{about}{one.description}".strip()


def _profile(console: Console, event: events.ProfileShown) -> None:
    """Print TOML unchanged; on a terminal with dim comments and bold tables."""
    from rich.text import Text

    for line in event.text.splitlines():
        bare = line.strip()
        style = "dim" if bare.startswith("#") else "bold" if bare.startswith("[") and bare.endswith("]") else ""
        text = Text(printable(line), style=style)
        value, hash_, comment = line.rpartition("  # ")
        if not style and hash_ and value:
            text.stylize("dim", len(printable(line)) - len(comment) - 2)
        console.print(text, soft_wrap=True, highlight=False)


def _cell(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(printable(text), style=style)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(printable(text), style=style, soft_wrap=not console.is_terminal, highlight=False, markup=False)


def _short(path: str) -> str:
    """Return a path with ``~`` for the user's home."""
    try:
        return f"~/{Path(path).relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return path
