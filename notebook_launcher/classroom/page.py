"""Shows a class as a self-contained HTML page, and as rows of text, which the terminal uses as well. Pure.

Names and reasons come from a file and from the cluster: the template escapes all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.classroom.student_states import STATES
from notebook_launcher.core.events import ClassSeen, StudentNow
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, time_left
from notebook_launcher.core.text import one_line
from notebook_launcher.core.timestamps import parse_iso

if TYPE_CHECKING:
    import jinja2

#: the states as shown
WORDS = {
    "not_started": "has not started",
    "pending": "pending",
    "starting": "starting",
    "running": "running",
    "idle": "idle",
    "suspended": "suspended",
    "completing": "ending",
    "ended": "ended",
    "failed": "failed",
    "unknown": "not known",
}


class ClassRow(Frozen):
    """One student as text. ``when``: the time left, the expected start of the job, its end, or nothing."""

    name: str
    state: str
    word: str
    when: str
    detail: str
    node: str
    job: str


def class_rows(seen: ClassSeen, *, anonymous: bool = False) -> list[ClassRow]:
    """Return the rows of a class, first those that need attention; ``anonymous``: show numbers instead of names.

    A student's number is that of the line on the roster, so that it never changes.
    """
    numbered = list(enumerate(seen.students, 1))
    numbered.sort(key=lambda pair: STATES.index(pair[1].state) if pair[1].state in STATES else 0)
    now = parse_iso(seen.as_of)
    return [_row(one, f"Student {number}" if anonymous else None, now) for number, one in numbered]


def _row(one: StudentNow, shown: str | None, now: datetime | None) -> ClassRow:
    name = one.name if one.name == one.user else f"{one.name} ({one.user})"
    at = parse_iso(one.starts, now)
    when = f"≈ {_clock(at, now)}" if at and now else ""
    ended = parse_iso(one.ends, now) if one.state in ("ended", "failed") else None
    if ended and now:
        when = f"at {_clock(ended, now)}"
    if one.seconds_left is not None:
        when = f"{time_left(one.seconds_left)} left"
    return ClassRow(
        shown or one_line(name),
        one.state,
        one_line(WORDS.get(one.state, one.state)),
        when,
        one_line(one.detail),
        one_line(one.node or ""),
        one_line(one.job or ""),
    )


def _clock(at: datetime, now: datetime) -> str:
    at = at.astimezone(now.tzinfo)
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def counts_in_words(seen: ClassSeen) -> Iterator[tuple[str, str, int]]:
    """Yield each state that occurs, the word for it, and how many students are in it."""
    for state in STATES:
        if count := seen.counts.get(state):
            yield state, _word(state, count), count


def _word(state: str, count: int) -> str:
    word = WORDS.get(state, state)
    return word if count == 1 else word.replace("has not", "have not")


def _groups(rows: list[ClassRow]) -> Iterator[tuple[str, str, list[ClassRow]]]:
    """Yield the students by state, with the states in the order of the rows."""
    for state, group in itertools.groupby(rows, key=lambda row: row.state):
        members = list(group)
        yield state, _word(state, len(members)), members


def gpus_in_words(seen: ClassSeen) -> str:
    """Return a sentence on the GPUs of the class; "" if there are none."""
    if not (seen.gpus_used or seen.gpus_pending or seen.gpus_total):
        return ""
    parts = [f"{counted(seen.gpus_used, 'GPU')} in use by the class"]
    if seen.gpus_pending:
        parts.append(f"{seen.gpus_pending} waited for")
    if seen.gpus_total is not None:
        parts.append(
            f"{seen.gpus_total} in service" + (f", {seen.gpus_free} free" if seen.gpus_free is not None else "")
        )
    return "; ".join(parts) + "."


def class_page(seen: ClassSeen, *, anonymous: bool = False, refresh: int | None = None) -> str:
    """Return the page. ``refresh``: seconds after which a browser reloads it; ``None``: never."""
    at, rows = parse_iso(seen.as_of), class_rows(seen, anonymous=anonymous)
    return _template().render(
        title=one_line(seen.title),
        as_of=f"{at:%Y-%m-%d %H:%M:%S}" if at else "",
        refresh=refresh,
        problem=one_line(seen.problem),
        gpus=gpus_in_words(seen),
        rows=rows,
        anonymous=anonymous,
        groups=list(_groups(rows)),
    )


@functools.cache  # a page is made every few seconds, and compiling the template takes longer than that
def _template() -> jinja2.Template:
    import jinja2

    source = (Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
    # an undefined name is our bug, and must not become an empty word on a page
    return jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(source)
