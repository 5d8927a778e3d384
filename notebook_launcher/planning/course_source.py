"""Course sources, a file or a web address: read and check their files."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit

from notebook_launcher.core import events
from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.errors import (
    FetchFailed,
    LauncherError,
    ProfileError,
    UsageError,
)
from notebook_launcher.core.suggestions import as_hint, similar
from notebook_launcher.core.view import View
from notebook_launcher.profiles.courses import (
    CourseFiles,
    icon_files,
    stacked,
    validated_course,
)
from notebook_launcher.profiles.icons import data_url
from notebook_launcher.profiles.layers import Layer, origin, parse_layer
from notebook_launcher.profiles.models import CourseProfile

MAX_COURSE = 256 * 1024  # bytes of a course's file
MAX_NOTEBOOK = 16 * 1024 * 1024  # bytes of one notebook
MAX_NOTEBOOKS = 64 * 1024 * 1024  # bytes of all of them
TOTAL_TIMEOUT = 180.0  # seconds to fetch a course from an address, with all its files
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PIN = re.compile(r"sha256=([0-9A-Fa-f]{64})")
T = TypeVar("T")


class CourseFile:
    """A course file on this machine. The user has the file, so it needs no confirmation.

    ``name``: how it is recorded as the course's source. ``pin``: the expected digest, if known.
    """

    pin: str | None = None
    asks = False

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()
        self.name = str(self._path.resolve())

    def label(self, file: str | None) -> str:
        """Return the name that messages use for the course's file (``None``), or for one beside it."""
        return str(self._path if file is None else self._path.parent / file)

    def read(self, file: str | None, at_most: int) -> bytes:
        """Return a file's content. Raises ``ProfileError``."""
        path = Path(self.label(file))
        if file is not None and not path.resolve().is_relative_to(self._path.resolve().parent):
            raise ProfileError(f"{path} leads out of the course's folder.", hint="copy the file there")
        try:
            if not path.is_file():
                why = "It is a folder: name the files in it." if path.is_dir() else "There is no such file."
                raise ProfileError(f"{path} cannot be read.", why=why, hint=self._hint_for_missing(file, path))
            content = read_at_most(path, at_most)
        except OSError as error:
            raise ProfileError(f"{path} cannot be read.", why=error.strerror or str(error)) from None
        if content is None:
            raise ProfileError(f"{path} is larger than {at_most // 1024} KiB.", hint=_LARGE)
        return content

    def _hint_for_missing(self, file: str | None, path: Path) -> str:
        if file is None:
            return "for example: --course ./course.toml"
        there = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        near = [str(Path(file).with_name(name)) for name in similar(path.name, there)]
        return as_hint(near) or "put it beside the course's file, or correct its name there"


class CourseAddress:
    """A course file on the web. The user confirms it unless its digest is pinned."""

    def __init__(self, word: str) -> None:
        from notebook_launcher.core.https_fetch import check_address  # imports TLS, which few launches need

        self.name, _, fragment = word.partition("#")
        pinned = _PIN.fullmatch(fragment)
        if fragment and not pinned:
            raise UsageError(
                f"“#{fragment}” is not the digest of a course.",
                hint=f"it has 64 digits of 0-9 and a-f: {self.name}#sha256=…",
            )
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
        from notebook_launcher.core.https_fetch import TIMEOUT, fetch

        self._until = self._until or time.monotonic() + TOTAL_TIMEOUT
        within = min(TIMEOUT, self._until - time.monotonic())
        try:
            fetched = fetch(self.label(file), at_most, plain=self.pin is not None, within=max(within, 0))
        except FetchFailed:
            if time.monotonic() < self._until:
                raise
            raise FetchFailed(
                f"{self.name} with all its files did not arrive within {TOTAL_TIMEOUT:.0f} s.",
                hint="try again, or from another network",
            ) from None
        if file is None:
            self._base = fetched.url  # a short address may have been redirected
            if fetched.content.lstrip()[:1] == b"<":
                raise ProfileError(
                    f"{self.name} is a web page, not the file itself.",
                    hint="use the address of the file itself, which is often called “raw”",
                )
        return fetched.content


CourseSource = CourseFile | CourseAddress
_LARGE = "put data on the cluster, where everybody can read it"


def course_source(word: str) -> CourseSource:
    """Return the source that the user typed: a file or an address. Raises ``UsageError``."""
    return CourseAddress(word) if ADDRESS.match(word) else CourseFile(Path(word))


def read_files(source: CourseSource, view: View) -> CourseFiles:
    """Return the course with all its files."""

    def tell(what: str) -> None:
        if isinstance(source, CourseAddress):
            view.show(events.Querying(f"fetching {what} from {urlsplit(source.name).hostname}"))

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
        icons = icon_files(course)
        _check_names(where, names[:-1], (*course.notebooks, *icons))
    for number, name in enumerate(course.notebooks, 1):
        tell(f"{name} ({number} of {len(course.notebooks)})")
        notebooks[name] = _named(where, lambda name=name: source.read(name, MAX_NOTEBOOK))  # type: ignore[misc]
        if sum(map(len, notebooks.values())) > MAX_NOTEBOOKS:
            raise ProfileError(f"{where}the notebooks are larger than {MAX_NOTEBOOKS // 1024**2} MiB.", hint=_LARGE)
    pictures = {name: _icon(source, layers, course, name) for name in icons}
    return CourseFiles(course, layers, names, tuple(contents), notebooks, pictures)


def _icon(source: CourseSource, layers: Sequence[Layer], course: CourseProfile, name: str) -> bytes:
    """Return a file that is the icon of a program of the course, if it can be one. Raises ``ProfileError``."""
    app = next(app for app, one in course.apps.items() if one.icon == name)
    where = origin(layers, ["apps", app, "icon"])
    content = _named(f"{where}: ", lambda: source.read(name, MAX_COURSE))
    data_url(name, content, where)
    return content


_CONTACT = re.compile(r"""^[ \t]*contact[ \t]*=[ \t]*(?:"([^"\\]+)"|'([^']+)')""", re.M)


@contextlib.contextmanager
def _teacher_named(source: CourseSource, content: bytes) -> Iterator[None]:
    """Add to an error in a course from an address who can correct it; the file may not be valid TOML."""
    try:
        yield
    except ProfileError as error:
        if isinstance(source, CourseAddress):
            found = _CONTACT.search(content.decode(errors="replace"))
            whom = (found[1] or found[2]) if found else "your teacher"
            error.hint = f"tell {whom}" + (f": {error.hint}" if error.hint else "")
        raise


def _check_names(where: str, bases: Sequence[str], notebooks: Sequence[str]) -> None:
    """Raise ``ProfileError`` if two files have the same path; some file systems ignore case."""
    taken, folders = {base.casefold(): base for base in bases}, dict[str, str]()
    for name in notebooks:
        *above, own = itertools.accumulate(name.casefold().split("/"), "{}/{}".format)
        if other := folders.get(own) or next((taken[path] for path in (*above, own) if path in taken), None):
            raise ProfileError(
                f"{where}“{name}” and “{other}” cannot both lie in the folder of a course.",
                hint="remove or rename one of the two",
            )
        taken[own] = name
        folders |= dict.fromkeys(above, name)


def _named(where: str, read: Callable[[], T]) -> T:
    """Add to an error which line of which file refers to the file."""
    try:
        return read()
    except LauncherError as error:
        error.what = where + error.what
        raise
