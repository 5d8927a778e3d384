"""``classroom collect``: makes one report of the timings that students' sessions wrote to the class folder."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.bench.compare import Recording, read_recording
from notebook_launcher.bench.journal import write_atomically
from notebook_launcher.bench.report import seconds
from notebook_launcher.classroom.class_folder import AT_ONCE, MOST_OF_RESULTS, RESULTS, StudentFile, read_folder
from notebook_launcher.classroom.class_times import ClassTimes, Configuration, class_times
from notebook_launcher.classroom.new_files import new_files
from notebook_launcher.classroom.plot import draw
from notebook_launcher.classroom.roster import Student
from notebook_launcher.core import events
from notebook_launcher.core.errors import CopyFailed, HostCommandFailed, NothingMeasured, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.text import finite, printable
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.open_context import open_context

if TYPE_CHECKING:
    import jinja2

MOST_RESULTS = 500  # per student; the rest is left out
WIDE, NARROW = 720.0, 340.0  # pixels
_LEAST_SPREAD = 1.1  # the longest time divided by the shortest: a smaller spread is not mentioned


class CollectOptions(Frozen):
    """Options of the command. ``out``: the path of the files without suffix; ``None``: named after the course, here.

    ``anonymous``: show numbers instead of names. ``folder``: the class folder instead of the course's. ``force``:
    replace existing files.
    """

    out: Path | None = None
    anonymous: bool = False
    folder: str | None = None
    force: bool = False


def collect(
    target: LaunchTarget,
    students: Sequence[Student],
    options: CollectOptions,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
) -> None:
    """Read the results of the students, and write one report of them as HTML and JSON.

    ``students``: those on the roster; if empty, everybody who has results. Raises ``UsageError``, ``NothingMeasured``
    if there are no results, ``HostCommandFailed``, ``CopyFailed``.
    """
    course = target.course
    folder = options.folder or (course.class_folder if course else None)
    if folder is None:
        raise UsageError(
            "There is no class folder to collect from.",
            hint='the course needs a line such as class_folder = "/shared/class", or name one with --folder',
        )
    title = course.name if course else folder.rstrip("/").rpartition("/")[2]
    paths = new_files(options.out, f"{title}-results", ("html", "json"), force=options.force)
    with open_context(target, view, prompts, interrupts) as context:
        view.show(events.Querying("reading the results of the class"))
        files = list(_read(context.host, folder, [one.user for one in students]))
    shown = _names(students, files, anonymous=options.anonymous)
    recordings, refused = _recordings(files, shown)
    times = class_times(recordings)
    having = {one.user for one in files if not one.problem}
    without = tuple(shown[one.user] for one in students if one.user not in having)
    if not times.configurations:
        why = "; ".join(refused[:5])
        raise NothingMeasured(
            f"No student has left results in {folder} that can be compared.",
            why=why,
            hint="results come there from sessions of the course, once a notebook records them with timing",
        )
    report = _Report(title, f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}", times, without, refused)
    try:
        write_atomically(paths[0], as_html(report).encode())
        write_atomically(paths[1], as_json(report).encode())
    except OSError as error:
        where = paths[0].parent
        raise CopyFailed(f"The report could not be written to {where}.", why=error.strerror or str(error)) from None
    view.show(
        events.ClassCollected(
            str(paths[0]), str(paths[1]), times.students, times.results, without, refused, conclusion(times)
        )
    )


def _read(host: Host, folder: str, users: Sequence[str]) -> Iterator[StudentFile]:
    """Yield the files of the students, or of all who have a folder, reading some at a time to limit a command's output.

    For a student whose folder is not trusted, one file with the problem is yielded.
    """
    facts, owners = read_folder(host, folder, "", 0, users)
    if facts.problem:
        raise HostCommandFailed(
            f"The class folder {facts.problem}.", hint="check that it is the right one; --folder names another"
        )
    yield from (one for one in owners if one.problem)
    having = [one.user for one in owners if not one.problem]
    for first in range(0, len(having), AT_ONCE):
        yield from read_folder(host, folder, RESULTS, MOST_OF_RESULTS, having[first : first + AT_ONCE])[1]


def _names(students: Sequence[Student], files: Sequence[StudentFile], *, anonymous: bool) -> dict[str, str]:
    """Return the name shown for each student; if anonymous, the number of the student's line on the roster."""
    named = {one.user: one.name if one.name == one.user else f"{one.name} ({one.user})" for one in students}
    named |= {one.user: one.user for one in files if one.user not in named}
    if not anonymous:
        return named
    return {user: f"Student {number}" for number, user in enumerate(named, 1)}


def _recordings(files: Sequence[StudentFile], shown: Mapping[str, str]) -> tuple[dict[str, Recording], tuple[str, ...]]:
    """Return the results by the name shown, and notes on what was left out."""
    found, refused = dict[str, Recording](), []
    for one in files:
        name = shown[one.user]
        if one.problem:
            refused.append(f"{name}: {one.problem}")
            continue
        recording = read_recording(one.text)
        if len(recording.results) > MOST_RESULTS:
            refused.append(f"{name}: all but the last {MOST_RESULTS} of {len(recording.results)} results")
        found[name] = Recording(recording.results[-MOST_RESULTS:], recording.damaged)
    return found, tuple(refused)


# --- the report ----------------------------------------------------------------------------------------------------


class _Report(Frozen):
    title: str
    made: str
    times: ClassTimes
    without: tuple[str, ...]
    refused: tuple[str, ...]


def conclusion(times: ClassTimes) -> str:
    """Return the outcome as a sentence."""
    count = len(times.configurations)
    text = f"{counted(times.students, 'student')} measured {counted(count, 'configuration')}"
    widest = max(times.configurations, key=lambda one: one.times[-1].seconds / one.times[0].seconds)
    ratio = widest.times[-1].seconds / widest.times[0].seconds
    if ratio >= _LEAST_SPREAD:
        text += f"; the widest spread is that of {widest.what} on {widest.where}: a factor of {ratio:.2g}"
    far = sum(len(one.outliers) for one in times.configurations)
    return f"{text}; {counted(far, 'time')} far from the others." if far else f"{text}."


def as_html(report: _Report) -> str:
    """Return one self-contained page; a browser loads nothing else."""
    title = f"{report.title}: timings of {counted(report.times.students, 'student')}"
    pictures = [draw(title, report.times.configurations, width) for width in (WIDE, NARROW)]
    wide, narrow = (base64.b64encode(svg.encode()).decode() for svg in pictures)
    return _template().render(
        report=report,
        title=title,
        conclusion=conclusion(report.times),
        wide=wide,
        narrow=narrow,
        rows=[_row(one) for one in report.times.configurations],
    )


def _row(one: Configuration) -> dict[str, str | list[str]]:
    return {
        "what": one.what,
        "where": one.where,
        "students": str(len(one.times)),
        "shortest": seconds(one.times[0].seconds),
        "median": seconds(one.middle),
        "half": f"{seconds(one.low)} – {seconds(one.high)}",
        "longest": seconds(one.times[-1].seconds),
        "far": [f"{time.name}: {seconds(time.seconds)}" for time in one.outliers],
    }


def as_json(report: _Report) -> str:
    """Return the report's numbers as JSON; times in seconds."""
    times = report.times
    data = {
        "version": 1,
        "class": printable(report.title),
        "made": report.made,
        "students": times.students,
        "without": report.without,
        "left_out": report.refused,
        "unsynchronised": times.unsynchronised,
        "damaged": times.damaged,
        "configurations": [
            {
                "what": one.what,
                "where": one.where,
                "quartiles": [one.low, one.middle, one.high],
                "times": {time.name: time.seconds for time in one.times},
                "outliers": [time.name for time in one.outliers],
            }
            for one in times.configurations
        ],
    }
    return json.dumps(finite(data), ensure_ascii=False, indent=1) + "\n"


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    source = (Path(__file__).parent / "results.html.jinja").read_text(encoding="utf-8")
    return jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(source)
