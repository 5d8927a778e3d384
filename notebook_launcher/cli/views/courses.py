"""What is said of courses: that one was taken or is used, what one decides, which notebooks came."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core.events import launch as events

CourseEvent = events.CourseTaken | events.CourseSeen | events.NotebooksBrought


def course_words(event: CourseEvent) -> tuple[str, list[str]]:
    """Return a sentence, "" for none, and lines below it that stay whole."""
    if isinstance(event, events.CourseTaken):
        return _taken(event)
    if isinstance(event, events.CourseSeen):
        return _seen(event)
    return _brought(event), []


def _taken(event: events.CourseTaken) -> tuple[str, list[str]]:
    if not event.first:
        return f"Course {event.course}" + (f": {event.description}" if event.description else ""), []
    about = f" ({event.description})" if event.description else ""
    return f"The course {event.course}{about} is kept, from:", [
        f"  {event.source}",
        "From now on launch-notebook alone means this course; with --cluster NAME or --host it does not.",
    ]


def _seen(event: events.CourseSeen) -> tuple[str, list[str]]:
    mark = "  (meant without --course)" if event.chosen else ""
    lines = [f"  {event.description}"] if event.description and not event.decides else []
    lines += [f"  {line}" for line in event.decides]
    from_where = f"  taken on {event.taken} from {event.source}" if event.source else "  from where was not noted"
    on = f" on {event.cluster}" if event.cluster else ""
    return f"{event.course}{on}{mark}", [*lines, from_where]


def _brought(event: events.NotebooksBrought) -> str:
    if not event.copied:
        return ""  # as last time
    kept = f" Left as you have changed them: {_listed(event.kept)}." if event.kept else ""
    return f"Notebooks brought to {event.folder}: {_listed(event.copied)}.{kept}"


def _listed(names: Sequence[str], at_most: int = 6) -> str:
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
