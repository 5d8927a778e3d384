"""Texts on a run: the notebook that is sent, the cell that is running, and the results that were fetched."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from notebook_launcher.core import events
from notebook_launcher.core.quantities import counted, stopwatch
from notebook_launcher.core.text import one_line

_MOST_NAMED = 6  # files
_LONGEST_VALUE = 40  # characters
_TITLE = 28  # columns of a cell's title in a line with other parts


def prepared_text(event: events.NotebookPrepared) -> str:
    """Return a sentence on what is sent to the cluster."""
    text = f"Notebook {event.notebook}: {counted(event.cells, 'code cell')}"
    if event.parameters:
        text += f", with {', '.join(f'{name}={_value(value)}' for name, value in event.parameters.items())}"
    if event.files:
        text += f"; {_named(event.files)} {'goes' if len(event.files) == 1 else 'go'} with it"
    return text


def progress_text(event: events.NotebookProgress) -> str:
    """Return the progress of the notebook as one line: ``Cell 4 of 9: Train (0:32)``."""
    title = f": {event.heading}" if event.heading else ""
    if event.cell is None:
        return f"{event.done} of {event.cells} cells are done ({stopwatch(event.seconds)})"
    return f"Cell {event.cell} of {event.cells}{title} ({stopwatch(event.seconds)})"


def cell_parts(event: events.NotebookProgress, seconds: float) -> list[str]:
    """Return the same as parts of a line that updates in place; ``seconds``: how long ago it was reported."""
    if event.cell is None:
        return [f"{event.done} of {event.cells} cells done"]
    title = one_line(event.heading, _TITLE)
    return [f"Cell {event.cell} of {event.cells}", title, stopwatch(event.seconds + seconds)]


def finished_text(event: events.NotebookFinished) -> str:
    """Return a sentence that the notebook finished."""
    how = f": {counted(event.cells, 'code cell')} in {stopwatch(event.seconds)}" if event.cells else ""
    return f"The notebook {event.notebook} finished{how}."


def results_text(event: events.ResultsFetched) -> tuple[str, list[str]]:
    """Return a sentence on what was fetched, and lines that must not be folded: paths, and commands to copy."""
    if not event.files:
        return f"There are no results of {event.notebook} to fetch.", _left_lines(event)
    first, *others = event.files
    if first != event.notebook:
        first, others = "", list(event.files)
    lines = [f"  {PurePath(event.folder) / first}" if first else f"  {event.folder}"]
    if others:
        lines.append(f"  beside it: {_named(others)}" if first else f"  in it: {_named(others)}")
    return "The results are here:" if event.complete else "The results so far are here:", [*lines, *_left_lines(event)]


def _left_lines(event: events.ResultsFetched) -> list[str]:
    if not event.not_fetched:
        return []
    lines = ["  Not fetched: too large, cannot be read, gone, or with a name that is not possible here:"]
    lines += [f"    {path}" for path in event.not_fetched[:_MOST_NAMED]]
    if len(event.not_fetched) > _MOST_NAMED:
        lines.append(f"    and {len(event.not_fetched) - _MOST_NAMED} more")
    paths = [left.rpartition(" (")[0] for left in event.not_fetched]
    plain = [path for path in paths if "\\" not in path]  # "\\" may be an escape: not a name to type
    if not plain:
        folder = paths[0].partition("\\")[0].rpartition("/")[0]
        return [*lines, f"  No command can name them. Rename what you need in {folder} there, and fetch it anew."]
    return [*lines, f"  To fetch one: launch-notebook copy {shlex.quote(f'login:{plain[0]}')} ."]


def _named(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
