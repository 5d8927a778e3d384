"""The story of taking a course: find its files, refuse what is not what it should be, ask, and keep it."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit

from notebook_launcher import events
from notebook_launcher.errors import AnswerMissing, DigestDiffers, FetchFailed, LauncherError, ProfileError, UsageError
from notebook_launcher.fetching import check_address, fetch
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.profiles.courses import (
    CourseFiles,
    KeptCourse,
    choose_course,
    course_layers,
    keep_course,
    kept_course,
    kept_courses,
    kept_from,
    note_source,
    stacked,
    validated_course,
)
from notebook_launcher.profiles.courses import forget_course as forget_kept
from notebook_launcher.profiles.layers import Layer, origin, parse_layer
from notebook_launcher.profiles.models import CourseProfile, Environment
from notebook_launcher.profiles.store import as_flags, checked_profile, load_configuration, profile_layers
from notebook_launcher.stage import View

MAX_COURSE = 256 * 1024  # bytes of a course's file
MAX_NOTEBOOK = 16 * 1024 * 1024  # bytes of one notebook
MAX_NOTEBOOKS = 64 * 1024 * 1024  # bytes of all of them
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PIN = re.compile(r"sha256=([0-9A-Fa-f]{64})")
T = TypeVar("T")


def is_kept_name(word: str) -> bool:
    """Whether a word names a course that was taken, and not a file or an address."""
    return not (_ADDRESS.match(word) or "/" in word or os.sep in word or word.endswith(".toml"))


def take_course(word: str, view: View, prompts: Prompts, cluster: str | None = None) -> str:
    """Return the name of the course that is meant; a file's or an address's is kept, and meant from now on.

    ``cluster``: the profile that it is to stand on, where that is not its own. A file is taken as it is. What comes
    from an address must have the digest that stands behind it, or the user has seen what it decides and said yes.
    Raises ``ProfileError``, ``FetchFailed``, ``DigestDiffers`` or ``AnswerMissing``; then nothing is kept.
    """
    if is_kept_name(word):
        kept_course(word)
        return word
    source = _source(word)
    name = kept_from(source.name)
    if name and source.pin and kept_course(name).digest == source.pin:
        choose_course(name)  # nothing is fetched: no other one would be taken
        return name
    try:
        found = _read(source, view)
    except FetchFailed as error:
        if name is None or source.pin:
            raise
        what = f"{error.what} {error.why}".strip()
        view.show(events.Noted(f"{what} The course “{name}” is used as it was taken on {kept_course(name).taken}."))
    else:
        name = _take(source, found, view, prompts, cluster)
    choose_course(name)
    return name


def course_used(course: CourseProfile) -> events.CourseTaken:
    """Return what is told at each launch for a course."""
    kept = kept_course(course.name)
    return events.CourseTaken(course.name, kept.source, kept.digest, course.description, first=False)


def list_courses(view: View) -> None:
    """Show the courses that were taken."""
    chosen = load_configuration().course
    names = kept_courses()
    for name in names:
        try:
            kept = kept_course(name)
        except ProfileError as error:
            view.show(events.Noted(f"The course “{name}” cannot be used: {error.what}"))
        else:
            view.show(_seen(kept, name, chosen))
    if not names:
        view.show(events.Noted("No course was taken yet.\n  launch-notebook --course FILE_OR_URL"))


def show_course(name: str, view: View) -> None:
    """Show what a course decides. Raises ``ProfileError``."""
    kept = kept_course(name)
    view.show(_seen(kept, name, load_configuration().course, tuple(summary(kept.files()))))


def forget_course(name: str, view: View) -> None:
    """Forget a course that was taken; nothing is done on the cluster. Raises ``ProfileError``."""
    chosen = load_configuration().course == name
    if name in kept_courses() or not chosen:  # one whose folder is gone is still meant
        forget_kept(name)
    if chosen:
        choose_course(None)
    view.show(events.Noted(f"The course “{name}” is forgotten. Its notebooks on the cluster stay."))


def _seen(kept: KeptCourse, name: str, chosen: str | None, decides: tuple[str, ...] = ()) -> events.CourseSeen:
    about = kept.course
    return events.CourseSeen(name, about.cluster, kept.source, kept.digest, kept.taken, about.description,
                             name == chosen, decides)  # fmt: skip


def update_course(name: str, view: View, prompts: Prompts) -> None:
    """Take a course again from where it came from. Raises as ``take_course``."""
    kept = kept_course(name)
    if not kept.source:
        raise ProfileError(f"Where the course “{name}” came from was not noted, or the note is damaged.",
                           mend="take it again: launch-notebook --course FILE_OR_URL")  # fmt: skip
    source = _source(kept.source)
    if _take(source, _read(source, view), view, prompts, None) == name and kept_course(name) == kept:
        view.show(events.Noted(f"The course “{name}” is what it was on {kept.taken}."))


def digest_of(path: str, view: View) -> str:
    """Return the SHA-256 of a course file with all that belongs to it. Raises ``ProfileError``."""
    return _read(_File(Path(path)), view).digest


# --- where a course comes from -------------------------------------------------------------------------------


class _File:
    """A course file on this machine. The user has it and could look, so nobody is asked.

    ``name``: what is noted of it. ``pin``: the digest that it must have, if known.
    """

    pin: str | None = None
    asks = False

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()
        self.name = str(self._path.resolve())

    def label(self, file: str | None) -> str:
        """Return what the user calls the course's file (``None``), or one beside it."""
        return str(self._path if file is None else self._path.parent / file)

    def read(self, file: str | None, at_most: int) -> bytes:
        """Return a file's content. Raises ``ProfileError``."""
        path = Path(self.label(file))
        if file is not None and not path.resolve().is_relative_to(self._path.resolve().parent):
            raise ProfileError(f"{path} leads out of the course's folder.", mend="copy the file there")
        try:
            if not path.is_file():
                why = "It is a folder: name the files in it." if path.is_dir() else "There is no such file."
                raise ProfileError(f"{path} cannot be read.", why=why, mend="for example: --course ./course.toml")
            with path.open("rb") as opened:
                content = opened.read(at_most + 1)
        except OSError as error:
            raise ProfileError(f"{path} cannot be read.", why=error.strerror or str(error)) from None
        if len(content) > at_most:
            raise ProfileError(f"{path} is larger than {at_most // 1024} KiB.", mend=_LARGE)
        return content


class _Address:
    """A course file on the web, as ``_File``. The user is asked where its digest is not known."""

    def __init__(self, word: str) -> None:
        self.name, _, fragment = word.partition("#")
        pinned = _PIN.fullmatch(fragment)
        if fragment and not pinned:
            raise UsageError(f"“#{fragment}” is not the digest of a course.",
                             mend=f"it has 64 digits of 0-9 and a-f: {self.name}#sha256=…")  # fmt: skip
        self.pin = pinned[1].lower() if pinned else None
        self.asks = self.pin is None
        self._base = self.name
        check_address(self.name, plain=self.pin is not None)

    def label(self, file: str | None) -> str:
        """Return the address of the course's file (``None``), or of one beside it."""
        return self.name if file is None else urljoin(self._base, quote(file))

    def read(self, file: str | None, at_most: int) -> bytes:
        """Return a file's content. Raises ``FetchFailed``."""
        fetched = fetch(self.label(file), at_most, plain=self.pin is not None)
        if file is None:
            self._base = fetched.url  # where a short address has led to
            if fetched.content.lstrip()[:1] == b"<":
                raise ProfileError(f"{self.name} shows a page, and is not the file itself.",
                                   mend="take the address of the file itself, which is often called “raw”")  # fmt: skip
        return fetched.content


_Source = _File | _Address
_LARGE = "data lies better on the cluster, where all can read it"


def _source(word: str) -> _Source:
    return _Address(word) if _ADDRESS.match(word) else _File(Path(word))


def _read(source: _Source, view: View) -> CourseFiles:
    """Return the course with all its files."""
    if isinstance(source, _Address):
        view.show(events.Asking(f"fetching the course from {urlsplit(source.name).hostname}"))

    contents: list[bytes] = []

    def layer(file: str | None) -> Layer:
        contents.insert(0, source.read(file, MAX_COURSE))
        return parse_layer(contents[0], source.label(file))

    layers, names = stacked(layer(None), source.name.rpartition("/")[2], layer)
    course = validated_course(layers)
    notebooks: dict[str, bytes] = {}
    for name in course.notebooks:
        where = f"{origin(layers, ['notebooks'])}: "
        notebooks[name] = _named(where, lambda name=name: source.read(name, MAX_NOTEBOOK))  # type: ignore[misc]
        if sum(map(len, notebooks.values())) > MAX_NOTEBOOKS:
            raise ProfileError(f"{where}the notebooks are larger than {MAX_NOTEBOOKS // 1024**2} MiB.", mend=_LARGE)
    return CourseFiles(course, layers, names, tuple(contents), notebooks)


def _named(where: str, read: Callable[[], T]) -> T:
    """Say in an error which line of which file has led there."""
    try:
        return read()
    except LauncherError as error:
        error.what = where + error.what
        raise


# --- what is taken, and what is not --------------------------------------------------------------------------


def _take(source: _Source, found: CourseFiles, view: View, prompts: Prompts, cluster: str | None) -> str:
    name, digest = found.course.name, found.digest
    if source.pin and digest != source.pin:
        raise _not_as_pinned(source, found)
    kept = _kept(name)
    if kept and kept.digest == digest:
        if kept.source != source.name:  # the same, moved
            note_source(kept, source.name)
        return name
    _check_on_cluster(found, cluster)
    moved = kept is not None and kept.source not in ("", source.name)
    if kept and not moved:
        changes = "\n  ".join(_changes(kept, found))
        view.show(events.Noted(f"The course “{name}” has changed since {kept.taken or 'it was taken'}:\n  {changes}"))
    elif source.asks or moved:
        view.show(events.Noted(f"The course “{name}” from {source.name}:\n  " + "\n  ".join(summary(found))))
    if moved:
        _ask_to_replace(source, found, prompts, kept.source if kept else "")
    elif source.asks:
        _ask(source, found, prompts, kept)
    keep_course(found, source.name, date.today())
    view.show(events.CourseTaken(name, source.name, digest, found.course.description, first=True))
    return name


def _kept(name: str) -> KeptCourse | None:
    """Return the course that is kept under a name; one that is damaged counts as none, and is replaced."""
    with contextlib.suppress(ProfileError):
        return kept_course(name)
    return None


def _not_as_pinned(source: _Source, found: CourseFiles) -> DigestDiffers:
    alone = found.own_digest == source.pin
    return DigestDiffers(
        f"The course at {source.name} is not the one whose digest was given.",
        why="The digest is that of the course's file alone; its notebooks, and what it stands on, count as well."
        if alone
        else f"Its SHA-256 is {found.digest}, and not {source.pin}.",
        mend="whoever made the course finds the right digest with: launch-notebook course digest FILE"
        if alone
        else "ask who made the course whether it was changed on purpose; nothing was taken",
    )


def _check_on_cluster(found: CourseFiles, cluster: str | None) -> None:
    """Raise what a launch would stumble over, before the course is kept."""
    name = cluster or found.course.cluster or load_configuration().cluster
    if name is None:
        return
    try:
        below = profile_layers(name)
    except ProfileError as error:
        if name == found.course.cluster:
            error.what = f"{origin(found.layers, ['cluster'])}: {error.what}"
        raise
    checked_profile([*below, *course_layers(found.course, found.layers, date.today(), below)])


def _ask(source: _Source, found: CourseFiles, prompts: Prompts, kept: KeptCourse | None) -> None:
    """Let the user decide on a course from an address without a digest; it says what runs."""
    name, pinned = found.course.name, f"{source.name}#sha256={found.digest}"
    said = prompts.confirm("Use it as it is now?" if kept else "Take this course? It decides what runs.")
    if said:
        return
    if kept:
        raise DigestDiffers(
            f"The course “{name}” at {source.name} is not what it was when you took it.",
            why="The change was not agreed to." if said is not None else "Nobody could be asked whether that is right.",
            mend=f"go on as before with --course {name}, or take the change with --course {shlex.quote(pinned)}",
        )
    raise AnswerMissing(
        f"The course “{name}” was not taken.",
        why="The answer was no." if said is not None else "It decides what runs, and nobody could be asked about it.",
        mend=f"if it is right, name it with its digest: --course {shlex.quote(pinned)}",
    )


def _ask_to_replace(source: _Source, found: CourseFiles, prompts: Prompts, other: str) -> None:
    name = found.course.name
    if not prompts.confirm(f"You have a course “{name}” from {other}. Replace it?"):
        raise AnswerMissing(
            f"You have a course “{name}” already, from {other}.",
            why=f"The one at {source.name} has the same name, and is another one.",
            mend=f"to have the new one, forget the old one first: launch-notebook course forget {name}",
        )


# --- in words ------------------------------------------------------------------------------------------------


def summary(found: CourseFiles) -> list[str]:
    """Return what a course decides, a line each: all that somebody has to know who says yes to it."""
    course = found.course
    lines = [f"what: {course.description}"] if course.description else []
    lines.append(f"cluster: {course.cluster or 'yours'}")
    said = (
        ("account", course.account),
        ("days", _days(course)),
        ("image", course.image),
        ("images in", course.image_dir),
        ("environment", course.environment),
        ("ends without use after", course.idle_stop),
        ("an idle GPU", course.gpu_idle),
        ("contact", course.contact),
        ("says at each launch", course.notice),
    )
    lines += [f"{label}: {value}" for label, value in said if value]
    lines += [f"reservation {one.name}: {one.first} to {one.last}" for one in course.reservations]
    flags = " ".join(f"--{name}" + (f"={value}" if value is not None else "") for name, value in _flags(course).items())
    lines += [f"flags: {flags}"] if flags else []
    for name, environment in course.environments.items():
        lines += [f"environment {name}: {line}" for line in _environment(environment)]
    digests = found.notebook_digests()
    lines += [f"notebook for {course.folder or f'~/{course.name}'}: {name}" for name in digests]
    return [*lines, f"SHA-256: {found.digest}"]


def _flags(course: CourseProfile) -> Mapping[str, str | None]:
    return as_flags(course.defaults)


def _days(course: CourseProfile) -> str:
    return " ".join(f"{word} {day}" for word, day in (("from", course.first), ("to", course.last)) if day is not None)


def _environment(environment: Environment) -> list[str]:
    """Return what an environment runs; lines of shell code as they stand."""
    lines = [f"image {environment.container}"] if environment.container else []
    lines += [f"by {environment.container_command}"] if environment.container_command else []
    lines += [f"from {word}" for word in (environment.source, environment.definition) if word]
    for label, words in (("sees", environment.bind), ("modules from", environment.module_use),
                         ("modules", environment.modules)):  # fmt: skip
        lines += [f"{label} {', '.join(words)}"] if words else []
    for label, word in (("conda", environment.conda), ("venv", environment.venv), ("uv", environment.uv)):
        lines += [f"{label} {word}"] if word else []
    lines += [f"sets {name}={value}" for name, value in environment.env.items()]
    code = [environment.activate] if isinstance(environment.activate, str) else environment.activate
    lines += [f"runs  {line}" for line in code]
    return lines or ["as the node finds it"]


def _changes(kept: KeptCourse, found: CourseFiles) -> list[str]:
    """Return what is different now, as lines with a minus and a plus."""
    try:
        old = kept.files()
    except ProfileError:  # a notebook is gone
        old = CourseFiles(kept.course, kept.layers, ("",), (b"",), {})
    before, after = summary(old)[:-1], summary(found)[:-1]
    lines = [line for line in difflib.ndiff(before, after) if line[:1] in "-+"]
    digests = old.notebook_digests()
    lines += [
        f"! {name} is another version"
        for name, digest in found.notebook_digests().items()
        if digests.get(name, digest) != digest
    ]
    return lines or ["nothing but its wording"]
