"""Texts on courses: which one was saved or is used, what it sets, which notebooks were copied."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core import events

CourseEvent = events.CourseUsed | events.CourseEntry | events.NotebooksCopied


def course_text(event: CourseEvent) -> tuple[str, list[str]]:
    """Return a sentence ("": none), and lines below it that must not be folded."""
    if isinstance(event, events.CourseUsed):
        return _taken(event)
    if isinstance(event, events.CourseEntry):
        return _entry(event)
    return _notebooks_copied(event), []


def _taken(event: events.CourseUsed) -> tuple[str, list[str]]:
    if not event.first:
        return f"Course {event.course}" + (f": {event.description}" if event.description else ""), []
    about = f" ({event.description})" if event.description else ""
    return f"The course {event.course}{about} is saved. It comes from:", [
        f"  {event.source}",
    ]


def _entry(event: events.CourseEntry) -> tuple[str, list[str]]:
    mark = "  (the default course)" if event.default else ""
    lines = [f"  {event.description}"] if event.description and not event.settings else []
    lines += [f"  {line}" for line in event.settings]
    from_where = f"  added on {event.added} from {event.source}" if event.source else "  from an unknown place"
    on = f" on {event.cluster}" if event.cluster else ""
    return f"{event.course}{on}{mark}", [*lines, from_where]


def _notebooks_copied(event: events.NotebooksCopied) -> str:
    if not event.copied:
        return ""  # nothing has changed
    kept = f" Left as you have changed them: {_listed(event.kept)}." if event.kept else ""
    what = "Notebook" if len(event.copied) == 1 else "Notebooks"
    return f"{what} copied to {event.folder}: {_listed(event.copied)}.{kept}"


def _listed(names: Sequence[str], at_most: int = 6) -> str:
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
