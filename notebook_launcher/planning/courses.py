"""The story of taking a course: find its files, refuse what is not what it should be, ask, and keep it."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit

from notebook_launcher.core.errors import (
    AnswerMissing,
    DigestDiffers,
    FetchFailed,
    LauncherError,
    ProfileError,
    UsageError,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.https_fetch import WITHIN as WITHIN_EACH
from notebook_launcher.core.https_fetch import check_address, fetch
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.plan import THIS_MACHINE, no_course_here
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
from notebook_launcher.profiles.store import (
    as_flags,
    checked_profile,
    load_configuration,
    profile_layers,
    profile_names,
)
from notebook_launcher.session.context import View

MAX_COURSE = 256 * 1024  # bytes of a course's file
MAX_NOTEBOOK = 16 * 1024 * 1024  # bytes of one notebook
MAX_NOTEBOOKS = 64 * 1024 * 1024  # bytes of all of them
WITHIN = 180.0  # seconds for a course from an address, with all its files
_SHOWN = 100  # lines of what has changed, where nobody has to agree to it
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
    if name and source.pin and _is_whole(_kept(name), source.pin):
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


def read_course(word: str, view: View, cluster: str | None = None) -> CourseFiles:
    """Return a course from a file or an address for this run alone: nobody is asked, and nothing is kept.

    Raises as ``take_course``.
    """
    source = _source(word)
    found = _read(source, view)
    if source.pin and found.digest != source.pin:
        raise _not_as_pinned(source, found)
    _check_on_cluster(found, cluster)
    decides = summary(found) if source.asks else []
    read = f"The course “{found.course.name}” is read for this run alone, and not kept."
    view.show(events.Noted("\n  ".join([read, *decides])))
    return found


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
    try:
        source = _source(kept.source)
    except UsageError as error:  # plain http: it was taken by its digest
        error.mend = f"take it by the new line from your teacher: launch-notebook --course {kept.source}#sha256=…"
        raise
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
                raise ProfileError(f"{path} cannot be read.", why=why, mend=self._mend_of_missing(file, path))
            with path.open("rb") as opened:
                content = opened.read(at_most + 1)
        except OSError as error:
            raise ProfileError(f"{path} cannot be read.", why=error.strerror or str(error)) from None
        if len(content) > at_most:
            raise ProfileError(f"{path} is larger than {at_most // 1024} KiB.", mend=_LARGE)
        return content

    def _mend_of_missing(self, file: str | None, path: Path) -> str:
        if file is None:
            return "for example: --course ./course.toml"
        there = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, there, n=1)
        if near:
            return f"did you mean {Path(file).with_name(near[0])}?"
        return "put it beside the course's file, or mend its name there"


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
        self._until: float | None = None
        check_address(self.name, plain=self.pin is not None)

    def label(self, file: str | None) -> str:
        """Return the address of the course's file (``None``), or of one beside it."""
        return self.name if file is None else urljoin(self._base, quote(file))

    def read(self, file: str | None, at_most: int) -> bytes:
        """Return a file's content. Raises ``FetchFailed``."""
        self._until = self._until or time.monotonic() + WITHIN
        within = min(WITHIN_EACH, self._until - time.monotonic())
        try:
            fetched = fetch(self.label(file), at_most, plain=self.pin is not None, within=max(within, 0))
        except FetchFailed:
            if time.monotonic() < self._until:
                raise
            raise FetchFailed(f"{self.name} with all its files did not come within {WITHIN:.0f} s.",
                              mend="try again, or from another network") from None  # fmt: skip
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

    def tell(what: str) -> None:
        if isinstance(source, _Address):
            view.show(events.Asking(f"fetching {what} from {urlsplit(source.name).hostname}"))

    tell("the course")
    contents: list[bytes] = []

    def layer(file: str | None) -> Layer:
        if file is not None:
            tell(file)
        contents.insert(0, own if file is None else source.read(file, MAX_COURSE))
        return parse_layer(contents[0], source.label(file))

    own = source.read(None, MAX_COURSE)
    with _teacher_named(source, own):
        layers, names = stacked(layer(None), source.name.rpartition("/")[2], layer)
        course = validated_course(layers)
        notebooks: dict[str, bytes] = {}
        where = f"{origin(layers, ['notebooks'])}: "
        _check_names(where, names[:-1], course.notebooks)
    for number, name in enumerate(course.notebooks, 1):
        tell(f"{name} ({number} of {len(course.notebooks)})")
        notebooks[name] = _named(where, lambda name=name: source.read(name, MAX_NOTEBOOK))  # type: ignore[misc]
        if sum(map(len, notebooks.values())) > MAX_NOTEBOOKS:
            raise ProfileError(f"{where}the notebooks are larger than {MAX_NOTEBOOKS // 1024**2} MiB.", mend=_LARGE)
    return CourseFiles(course, layers, names, tuple(contents), notebooks)


_CONTACT = re.compile(r"""^\s*contact\s*=\s*(?:"([^"\\]+)"|'([^']+)')""", re.M)


@contextlib.contextmanager
def _teacher_named(source: _Source, content: bytes) -> Iterator[None]:
    """Say in a mistake of a course from an address who can mend it; the file may be no TOML, or only half of it."""
    try:
        yield
    except ProfileError as error:
        if isinstance(source, _Address):
            found = _CONTACT.search(content.decode(errors="replace"))
            whom = (found[1] or found[2]) if found else "your teacher"
            error.mend = f"tell {whom}" + (f": {error.mend}" if error.mend else "")
        raise


def _check_names(where: str, bases: Sequence[str], notebooks: Sequence[str]) -> None:
    """Raise ``ProfileError`` where two files cannot lie in one folder; some tell no capitals apart."""
    taken, folders = {base.casefold(): base for base in bases}, dict[str, str]()
    for name in notebooks:
        *above, own = itertools.accumulate(name.casefold().split("/"), "{}/{}".format)
        if other := folders.get(own) or next((taken[path] for path in (*above, own) if path in taken), None):
            raise ProfileError(f"{where}“{name}” and “{other}” cannot both lie in the folder of a course.",
                               mend="take one of the two away, or call it otherwise")  # fmt: skip
        taken[own] = name
        folders |= dict.fromkeys(above, name)


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
    if kept and _is_whole(kept, digest):
        if kept.source != source.name:  # the same, moved
            note_source(kept, source.name)
        return name
    _check_on_cluster(found, cluster)
    if kept and kept.digest == digest and kept.source == source.name:  # was agreed to
        view.show(events.Noted(f"The course “{name}” is not kept as it was taken; it is kept anew."))
        keep_course(found, source.name, date.today())
        return name
    moved = kept is not None and kept.source not in ("", source.name)
    if kept and not moved:
        changes = _changes(kept, found)
        if len(changes) > _SHOWN and not source.asks:  # who agrees to it has to see all of it
            changes[_SHOWN:] = [f"… and {len(changes) - _SHOWN} more lines"]
        since = f"The course “{name}” has changed since {kept.taken or 'it was taken'}:"
        view.show(events.Noted("\n  ".join([since, *changes])))
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


def _is_whole(kept: KeptCourse | None, digest: str) -> bool:
    """Whether a course is kept with this digest, and its files have it as well."""
    with contextlib.suppress(ProfileError):
        return kept is not None and digest == kept.digest == kept.files().digest
    return False


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
    if name == THIS_MACHINE and name not in profile_names():
        raise no_course_here(found.course)
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
    lines = [] if course.cluster else ["cluster: yours"]
    for key in _said(course, _IN_COURSE):
        lines += _lines(course, key) if key != "name" else []  # stands above, with the address
    return [*lines, f"SHA-256: {found.digest}"]


#: what keys are called in a summary, where not by their own names
_IN_COURSE = {
    "description": "what", "cluster": "cluster", "account": "account", "first": "from", "last": "to",
    "image": "image", "image_dir": "images in", "environment": "environment", "idle_stop": "ends without use after",
    "gpu_idle": "an idle GPU", "contact": "contact", "notice": "says at each launch", "reservations": "reservation",
    "defaults": "flags", "environments": "environment", "notebooks": "notebook", "folder": "notebooks go to",
    "base": "stands on",
}  # fmt: skip
_IN_ENVIRONMENT = {
    "container": "image", "container_command": "by", "source": "from", "definition": "made by", "digest": "image has",
    "bind": "sees", "module_use": "modules from", "env": "sets", "activate": "runs ", "gpu": "GPU",
    "start_timeout": "seconds to start",
}  # fmt: skip


def _said(model: CourseProfile | Environment, first: Mapping[str, str]) -> list[str]:
    """Return the keys that are set, those with a word of their own first: none is left out."""
    keys = [*first, *(key for key in type(model).model_fields if key not in first)]
    return [key for key in keys if key in model.model_fields_set]


def _plain(key: str) -> str:
    return key.replace("_", " ")


def _lines(course: CourseProfile, key: str) -> list[str]:
    """Return what a key of a course decides, a line each."""
    word = _IN_COURSE.get(key, _plain(key))
    if key == "environments":
        return [f"{word} {name}: {line}" for name, one in course.environments.items() for line in _environment(one)]
    if key == "reservations" and course.reservations:
        return [f"{word} {one.name}: {one.first} to {one.last}" for one in course.reservations]
    if key == "notebooks":
        word += f" for {course.folder or f'~/{course.name}'}"
    if key == "defaults":
        flags = as_flags(course.defaults)
        away = [f"without --{name.replace('_', '-')}" for name, value in course.defaults.items() if value is False]
        said = [f"--{name}" + (f"={value}" if value is not None else "") for name, value in flags.items()]
        return [f"{word}: {' '.join([*map(shlex.quote, said), *away]) or 'nothing'}"]
    return [f"{word}: {value}" for value in _values(getattr(course, key))]


def _environment(environment: Environment) -> list[str]:
    """Return what an environment runs; lines of shell code as they stand."""
    lines = []
    for key in _said(environment, _IN_ENVIRONMENT):
        word = _IN_ENVIRONMENT.get(key, _plain(key))
        lines += [f"{word} {value}" for value in _values(getattr(environment, key))]
    return lines or ["as the node finds it"]


def _values(value: object) -> list[str]:
    """Return a value as lines: each item of a list and each name of a table is one."""
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()] or ["nothing"]
    if isinstance(value, tuple):
        return [str(item) for item in value] or ["nothing"]
    return [str(value) or "nothing"]


def _changes(kept: KeptCourse, found: CourseFiles) -> list[str]:
    """Return what is different now, as lines with a minus and a plus."""
    try:
        old = kept.files()
    except ProfileError:  # a notebook is gone
        old = CourseFiles(kept.course, kept.layers, ("",), (b"",), {})
    before, after = summary(old)[:-1], summary(found)[:-1]
    gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)  # a diff may take minutes
    lines = [*(f"- {line}" for line in gone.elements()), *(f"+ {line}" for line in new.elements())]
    same = [[line for line in side if line not in gone and line not in new] for side in (before, after)]
    lines += ["! the other lines stand in another order"] if same[0] != same[1] else []
    digests = old.notebook_digests()
    lines += [
        f"! {name} is another version"
        for name, digest in found.notebook_digests().items()
        if digests.get(name, digest) != digest
    ]
    return lines or ["nothing but its wording"]
