"""``--course`` and ``course``: fetch, check, confirm and save a course; list, update and forget saved ones."""

from __future__ import annotations

import contextlib
import os
import shlex
from datetime import date
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    AnswerMissing,
    DigestDiffers,
    FetchFailed,
    ProfileError,
    UsageError,
)
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.course_source import ADDRESS, CourseFile, CourseSource, course_source, read_files
from notebook_launcher.planning.course_summary import changes, summary
from notebook_launcher.planning.target import THIS_MACHINE, no_course_here
from notebook_launcher.profiles.courses import (
    CourseFiles,
    SavedCourse,
    choose_course,
    course_layers,
    save_course,
    save_source,
    saved_course,
    saved_course_from,
    saved_courses,
)
from notebook_launcher.profiles.courses import forget_course as forget_saved
from notebook_launcher.profiles.layers import origin
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.profiles.store import (
    checked_profile,
    load_configuration,
    profile_layers,
    profile_names,
)

_MOST_CHANGES = 100  # lines of changes shown where the user need not agree to them


def is_course_name(word: str) -> bool:
    """Whether a word names a saved course, and not a file or an address."""
    return not (ADDRESS.match(word) or "/" in word or os.sep in word or word.endswith(".toml"))


def take_course(word: str, view: View, prompts: Prompts, cluster: str | None = None) -> str:
    """Return the name of the course; one from a file or an address is saved.

    ``cluster``: the profile to use instead of the course's own. A file is accepted as it is. A course from an address
    must have the digest given with it, or the user must agree to its settings.
    Raises ``ProfileError``, ``FetchFailed``, ``DigestDiffers`` or ``AnswerMissing``; then nothing is saved.
    """
    if is_course_name(word):
        saved_course(word)
        return word
    source = course_source(word)
    name = saved_course_from(source.name)
    if name and source.pin and _is_intact(_saved(name), source.pin):
        return name  # nothing is fetched: the digest says that the saved one is the same
    try:
        found = read_files(source, view)
    except FetchFailed as error:
        if name is None or source.pin:
            raise
        what = f"{error.what} {error.why}".strip()
        view.show(events.Note(f"{what} The course “{name}” is used as it was saved on {saved_course(name).saved_on}."))
    else:
        name = _save_course(source, found, view, prompts, cluster)
    return name


def read_course(word: str, view: View, cluster: str | None = None) -> CourseFiles:
    """Return a course from a file or an address for this run only: nothing is confirmed or saved.

    Raises as ``take_course``.
    """
    source = course_source(word)
    found = read_files(source, view)
    if source.pin and found.digest != source.pin:
        raise _not_as_pinned(source, found)
    _check_on_cluster(found, cluster)
    decides = summary(found) if source.asks else []
    read = f"The course “{found.course.name}” is read for this run only, and not saved."
    view.show(events.Note("\n  ".join([read, *decides])))
    return found


def course_used(course: CourseProfile) -> events.CourseUsed:
    """Return the event shown at each launch with a course."""
    kept = saved_course(course.name)
    return events.CourseUsed(course.name, kept.source, kept.digest, course.description, first=False)


def list_courses(view: View) -> None:
    """Show the saved courses."""
    chosen = load_configuration().course
    names = saved_courses()
    for name in names:
        try:
            kept = saved_course(name)
        except ProfileError as error:
            view.show(events.Note(f"The course “{name}” cannot be used: {error.what}"))
        else:
            view.show(_course_entry(kept, name, chosen))
    if not names:
        view.show(events.Note("There is no course yet.\n  launch-notebook --course FILE_OR_URL"))


def show_course(name: str, view: View) -> None:
    """Show the settings of a course. Raises ``ProfileError``."""
    kept = saved_course(name)
    view.show(_course_entry(kept, name, load_configuration().course, tuple(summary(kept.files()))))


def forget_course(name: str, view: View) -> None:
    """Forget a saved course; nothing changes on the cluster. Raises ``ProfileError``."""
    chosen = load_configuration().course == name
    if name in saved_courses() or not chosen:  # a course whose folder is missing may still be the default
        forget_saved(name)
    if chosen:
        choose_course(None)
    view.show(events.Note(f"The course “{name}” is forgotten. Its notebooks on the cluster stay."))


def _course_entry(
    kept: SavedCourse, name: str, chosen: str | None, decides: tuple[str, ...] = ()
) -> events.CourseEntry:
    about = kept.course
    return events.CourseEntry(
        name, about.cluster, kept.source, kept.digest, kept.saved_on, about.description, name == chosen, decides
    )


def update_course(name: str, view: View, prompts: Prompts) -> None:
    """Fetch a course again from its source. Raises as ``take_course``."""
    kept = saved_course(name)
    if not kept.source:
        raise ProfileError(
            f"Where the course “{name}” came from was not recorded, or the record is damaged.",
            hint="name it again: launch-notebook --course FILE_OR_URL",
        )
    try:
        source = course_source(kept.source)
    except UsageError as error:  # plain http is accepted only with a digest
        error.hint = f"use the new line from your teacher: launch-notebook --course {kept.source}#sha256=…"
        raise
    if _save_course(source, read_files(source, view), view, prompts, None) == name and saved_course(name) == kept:
        view.show(events.Note(f"The course “{name}” is what it was on {kept.saved_on}."))


def digest_of(path: str, view: View) -> str:
    """Return the SHA-256 of a course file with all that belongs to it. Raises ``ProfileError``."""
    return read_files(CourseFile(Path(path)), view).digest


# --- saving a course -------------------------------------------------------------------------------------------------


def _save_course(source: CourseSource, found: CourseFiles, view: View, prompts: Prompts, cluster: str | None) -> str:
    name, digest = found.course.name, found.digest
    if source.pin and digest != source.pin:
        raise _not_as_pinned(source, found)
    kept = _saved(name)
    if kept and _is_intact(kept, digest):
        if kept.source != source.name:  # the same course, moved
            save_source(kept, source.name)
        return name
    _check_on_cluster(found, cluster)
    if kept and kept.digest == digest and kept.source == source.name:  # agreed to before
        view.show(events.Note(f"The saved files of the course “{name}” were changed; they are saved again."))
        save_course(found, source.name, date.today())
        return name
    moved = kept is not None and kept.source not in ("", source.name)
    if kept and not moved:
        changed = changes(kept, found)
        if len(changed) > _MOST_CHANGES and not source.asks:  # a user who has to agree sees all changes
            changed[_MOST_CHANGES:] = [f"… and {len(changed) - _MOST_CHANGES} more lines"]
        since = f"The course “{name}” has changed since {kept.saved_on or 'it was taken'}:"
        view.show(events.Note("\n  ".join([since, *changed])))
    elif source.asks or moved:
        view.show(events.Note(f"The course “{name}” from {source.name}:\n  " + "\n  ".join(summary(found))))
    if moved:
        _confirm_replacing(source, found, prompts, kept.source if kept else "")
    elif source.asks:
        _confirm(source, found, prompts, kept)
    save_course(found, source.name, date.today())
    view.show(events.CourseUsed(name, source.name, digest, found.course.description, first=True))
    return name


def _saved(name: str) -> SavedCourse | None:
    """Return the saved course of a name; a damaged one counts as missing, and is replaced."""
    with contextlib.suppress(ProfileError):
        return saved_course(name)
    return None


def _is_intact(kept: SavedCourse | None, digest: str) -> bool:
    """Whether a saved course has this digest, and so have its files."""
    with contextlib.suppress(ProfileError):
        return kept is not None and digest == kept.digest == kept.files().digest
    return False


def _not_as_pinned(source: CourseSource, found: CourseFiles) -> DigestDiffers:
    alone = found.own_digest == source.pin
    return DigestDiffers(
        f"The course at {source.name} is not the one whose digest was given.",
        why="The digest is that of the course's file alone; its notebooks, and what it stands on, count as well."
        if alone
        else f"Its SHA-256 is {found.digest}, and not {source.pin}.",
        hint="whoever made the course finds the right digest with: launch-notebook course digest FILE"
        if alone
        else "ask who made the course whether it was changed on purpose; nothing was saved",
    )


def _check_on_cluster(found: CourseFiles, cluster: str | None) -> None:
    """Raise the errors that a launch would raise, before the course is saved."""
    name = cluster or found.course.cluster or load_configuration().cluster
    if name is None:
        return
    if name == THIS_MACHINE and name not in profile_names():
        raise no_course_here(found.course)
    try:
        below = profile_layers(name)
    except ProfileError as error:
        if name == found.course.cluster:
            error.what = f"{origin(found.layers, ['cluster'])}: {error.what}"
        raise
    checked_profile([*below, *course_layers(found.course, found.layers, date.today(), below)])


def _confirm(source: CourseSource, found: CourseFiles, prompts: Prompts, kept: SavedCourse | None) -> None:
    """Ask the user whether to use a course from an address that has no digest."""
    name, pinned = found.course.name, f"{source.name}#sha256={found.digest}"
    answer = prompts.confirm("Use it as it is now?" if kept else "Use and save this course? It decides what runs.")
    if answer:
        return
    if kept:
        raise DigestDiffers(
            f"The course “{name}” at {source.name} has changed since you saved it.",
            why="You did not accept the change."
            if answer is not None
            else "Nobody could be asked whether that is right.",
            hint=f"keep the saved one with --course {name}, or accept the change with --course {shlex.quote(pinned)}",
        )
    raise AnswerMissing(
        f"The course “{name}” was not saved.",
        why="The answer was no." if answer is not None else "It decides what runs, and nobody could be asked about it.",
        hint=f"if it is right, name it with its digest: --course {shlex.quote(pinned)}",
    )


def _confirm_replacing(source: CourseSource, found: CourseFiles, prompts: Prompts, other: str) -> None:
    name = found.course.name
    if not prompts.confirm(f"You have a course “{name}” from {other}. Replace it?"):
        raise AnswerMissing(
            f"You have a course “{name}” already, from {other}.",
            why=f"The one at {source.name} has the same name, and is another one.",
            hint=f"to have the new one, forget the old one first: launch-notebook course forget {name}",
        )
