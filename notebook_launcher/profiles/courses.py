"""Courses: where they are saved, and the settings that a course adds to its cluster's profile on a given day."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date
from pathlib import Path
from typing import Any

from notebook_launcher.core.errors import LauncherError, ProfileError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import merge_flags
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.profiles.edit import save_setting
from notebook_launcher.profiles.icons import files_among
from notebook_launcher.profiles.layers import Layer, merge, origin, read_layer
from notebook_launcher.profiles.models import CourseProfile, Reservation
from notebook_launcher.profiles.store import as_flags, config_folder, load_configuration
from notebook_launcher.profiles.validation import cut, validated_once

_FILE = "course.toml"  # the course's own file, whatever its name at the source
_SOURCE = "source.json"
_ASIDE = ".old-"  # prefix of the folder of an old version while it is being replaced
_OTHERS = "files"  # the folder of the other files: base files, notebooks and icons
_DEEPEST = 8  # the most course files based on each other
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLAIN_NAME = re.compile(r"[^./\\\s~?#%:][^/\\?#%:]*")


class CourseFiles(Frozen):
    """A course with all its files: the TOML files as layers, the lowest first, and its notebooks by name.

    ``names``, ``contents``: those of the layers; the last one is the course's own file. ``icons``: the icon files of
    its programs, by name.
    """

    course: CourseProfile
    layers: tuple[Layer, ...]
    names: tuple[str, ...]
    contents: tuple[bytes, ...]
    notebooks: Mapping[str, bytes]
    icons: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The SHA-256 of the course in hexadecimal digits: that of its file or, of several files, that of their list.

        The list is in the format of ``sha256sum``: the course's own file as ``course.toml``, then its base files, the
        notebooks and the icons, in the order in which the course names them.
        """
        if len(self.contents) == 1 and not self.notebooks and not self.icons:
            return self.own_digest
        below = zip(self.names[:-1], map(_sha256, self.contents[:-1]), strict=True)
        listed = [(_FILE, self.own_digest), *reversed(list(below)), *self.digests_beside().items()]
        return _sha256("".join(f"{digest}  {name}\n" for name, digest in listed).encode())

    @property
    def own_digest(self) -> str:
        """The SHA-256 of the course's own file."""
        return _sha256(self.contents[-1])

    def digests_beside(self) -> dict[str, str]:
        """Return the SHA-256 of each notebook and icon."""
        return {name: _sha256(content) for name, content in (*self.notebooks.items(), *self.icons.items())}


class SavedCourse(Frozen):
    """A saved course. ``source``: its path or URL; ``digest``: its SHA-256; ``saved_on``: the day in ISO format.

    These three are empty if their record is missing or damaged.
    """

    course: CourseProfile
    layers: tuple[Layer, ...]
    folder: Path
    source: str = ""
    digest: str = ""
    saved_on: str = ""

    def files(self) -> CourseFiles:
        """Return the course with all its files. Raises ``ProfileError`` if one cannot be read."""
        paths = [Path(layer.name) for layer in self.layers]
        notebooks = {name: self._read(name) for name in self.course.notebooks}
        icons = {name: self._read(name) for name in icon_files(self.course)}
        names = tuple(path.name for path in paths)
        return CourseFiles(self.course, self.layers, names, tuple(map(_read, paths)), notebooks, icons)

    def icon(self, name: str) -> bytes:
        """Return the content of an icon file. Raises ``ProfileError`` if it cannot be read."""
        return self._read(name)

    def _read(self, name: str) -> bytes:
        return _read(self.folder / _OTHERS / name)


def icon_files(course: CourseProfile) -> tuple[str, ...]:
    """Return the names of the icon files of a course's programs."""
    return files_among(app.icon for app in course.apps.values())


def courses_folder() -> Path:
    """Return the folder of saved courses, which has a folder with a ``course.toml`` for each course."""
    return config_folder() / "courses"


def saved_courses() -> list[str]:
    """Return the names of the saved courses."""
    for aside in courses_folder().glob(f"{_ASIDE}*"):
        _put_back(courses_folder() / aside.name.removeprefix(_ASIDE))
    found = (path.parent.name for path in courses_folder().glob(f"*/{_FILE}"))
    return sorted(name for name in found if _NAME.fullmatch(name))


def saved_course(name: str) -> SavedCourse:
    """Return a saved course. Raises ``ProfileError`` if there is none of that name, or it is invalid."""
    folder = courses_folder() / name
    if _NAME.fullmatch(name):
        _put_back(folder)
    if not _NAME.fullmatch(name) or not (folder / _FILE).is_file():
        raise ProfileError(
            f"There is no course “{name}”.",
            why=f"The courses are: {', '.join(saved_courses()) or 'none yet'}.",
            hint="name one by its file or its address: launch-notebook --course FILE_OR_URL",
        )
    # with an empty name, since the file may have had another one at its source
    layers = stacked(read_layer(folder / _FILE), "", lambda base: read_layer(folder / _OTHERS / base))[0]
    return SavedCourse(validated_course(layers), layers, folder, *_read_record(folder))


def saved_course_from(source: str) -> str | None:
    """Return the name of the course that was saved from this path or URL, ``None`` if there is none."""
    return next((name for name in saved_courses() if _read_record(courses_folder() / name)[0] == source), None)


def stacked(own: Layer, name: str, read: Callable[[str], Layer]) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """Return a course's file with its base files as layers, the lowest first, and their names.

    ``read`` returns the layer of a file. Raises ``ProfileError`` for an invalid name, too many base files, or a circle
    of them; to errors of ``read``, the line that refers to the file is added.
    """
    layers, names = [own], [name]
    while (base := layers[0].data.get("base")) is not None:
        where = origin(layers[:1], ["base"])
        if not isinstance(base, str) or not _PLAIN_NAME.fullmatch(base):
            raise ProfileError(
                f"{where}: base is the name of another course file, which lies beside this one.",
                hint='for example: base = "common.toml"',
            )
        if base in names:
            chain = " → ".join([*reversed(names), base])
            raise ProfileError(f"{where}: the course files are based on each other in a circle.", why=chain)
        if len(names) == _DEEPEST:
            raise ProfileError(f"{where}: more than {_DEEPEST} course files are based on each other.")
        try:
            layers.insert(0, read(base))
        except LauncherError as error:
            error.what = f"{where}: {error.what}"
            raise
        names.insert(0, base)
    return tuple(layers), tuple(names)


def validated_course(layers: Sequence[Layer]) -> CourseProfile:
    """Return the course in these files. Raises ``ProfileError`` with the file, the line and the key."""
    try:
        course = validated_once(CourseProfile, layers)
    except ProfileError as error:
        error.hint = error.hint.replace("docs/profiles.md", "docs/courses.md")
        raise
    if course.first and course.last and course.last < course.first:
        raise ProfileError(f"{origin(layers, ['last'])}: the course ends ({course.last}) before it begins.")
    days = [(("reservations", str(place), "open_at"), one.open_at) for place, one in enumerate(course.reservations)]
    for keys, notebook in ((("open_at",), course.open_at), *days):
        if notebook and notebook not in course.notebooks:
            raise ProfileError(
                f"{origin(layers, keys)}: open_at is “{cut(notebook)}”, which is not among the course's notebooks.",
                why=f"They are: {', '.join(course.notebooks) or 'none'}.",
                hint=did_you_mean(notebook, course.notebooks) or "name one of them, or add it to notebooks",
            )
    return course


# --- on top of a cluster's profile ---------------------------------------------------------------------------


def course_layers(
    course: CourseProfile, files: Sequence[Layer], day: date, cluster: Sequence[Layer]
) -> tuple[Layer, ...]:
    """Return the layers that a course adds to its cluster's profile: its files, as those of a cluster profile.

    ``day``: determines the reservation; ``cluster``: the profile's own files. A flag of the course replaces all flags
    with the same meaning, as a user's flag does.
    """
    result: list[Layer] = []
    for layer in files:
        is_last = layer is files[-1]
        flags: dict[str, Any] = dict(layer.data.get("defaults", {}))
        if account := layer.data.get("account"):
            flags["account"] = account
        if is_last and (reservation := reservation_on(course, day)):
            flags["reservation"] = reservation.name
        said = ("environment", "image_dir", "idle_stop", "gpu_idle")
        data: dict[str, Any] = {key: layer.data[key] for key in said if key in layer.data}
        below = merge([*cluster, *result]).get("defaults", {})
        data["defaults"] = {**_replaced(below if isinstance(below, Mapping) else {}, flags), **flags}
        data["environments"] = layer.data.get("environments", {})
        result.append(Layer(layer.name, data, layer.text))
    data = dict(_with_image(course, result[-1].data) if course.image else result[-1].data)
    # Each program is replaced as a whole: a mixture of the course's and the profile's keys would make no sense.
    apps = {name: dataclasses.asdict(app) for name, app in course.apps.items()}
    data["apps"] = {name: {**app, "command": list(app["command"])} for name, app in apps.items()}
    return (*result[:-1], Layer(files[-1].name, data, files[-1].text))


def flags_of(course: CourseProfile) -> frozenset[str]:
    """Return the names of the flags that a course may set."""
    own = {"account": course.account, "reservation": course.reservations}
    return frozenset({*as_flags(course.defaults), *(name for name, value in own.items() if value)})


def reservation_on(course: CourseProfile, day: date) -> Reservation | None:
    """Return the reservation of a day: the first one if there are several."""
    return next((one for one in course.reservations if one.first <= day <= one.last), None)


def notebook_to_open(course: CourseProfile, day: date) -> str | None:
    """Return the notebook that JupyterLab opens on a day: the reservation's, else the course's, else the only one."""
    reservation = reservation_on(course, day)
    if named := (reservation and reservation.open_at) or course.open_at:
        return named
    notebooks = [name for name in course.notebooks if name.endswith(".ipynb")]
    return notebooks[0] if len(notebooks) == 1 else None


def _replaced(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes to the flags of lower layers because upper ones have flags with the same meaning."""
    theirs, ours = as_flags(below), as_flags(above)
    left = merge_flags(theirs, ours)
    words = {key: key.replace("_", "-") for key in below}
    return {
        key: left.get(name, False)
        for key, name in words.items()
        if name in theirs and name not in ours and left.get(name, False) != theirs[name]
    }


def _with_image(course: CourseProfile, data: Mapping[str, Any]) -> dict[str, Any]:
    """Set the course's image in its environments without one; if it has no environments, make a default one."""
    environments = {name: dict(table) for name, table in data["environments"].items()}
    for name, environment in course.environments.items():
        if not environment.container and not environment.modules:
            environments.setdefault(name, {})["container"] = course.image
    if course.environments:
        return {**data, "environments": environments}
    meant = course.environment or "course"
    return {**data, "environment": meant, "environments": {meant: {"container": course.image}}}


# --- saving --------------------------------------------------------------------------------------------------


def save_course(files: CourseFiles, source: str, day: date) -> Path:
    """Save a course, replacing one of the same name, and return its folder. Raises ``ProfileError``."""
    folder = courses_folder() / files.course.name
    with _written_beside(folder) as new:
        _write(new / _FILE, files.contents[-1])
        for name, content in zip(files.names[:-1], files.contents[:-1], strict=True):
            _write(new / _OTHERS / name, content)
        for name, content in (*files.notebooks.items(), *files.icons.items()):
            _write(new / _OTHERS / name, content)
        _write(new / _SOURCE, _record(source, files.digest, day))
    return folder


def save_source(kept: SavedCourse, source: str) -> None:
    """Record that a saved course has a new source."""
    with _recorded(kept.folder):
        path = kept.folder / f".{_SOURCE}.{os.getpid()}"
        _write(path, _record(source, kept.digest, date.fromisoformat(kept.saved_on)))
        path.replace(kept.folder / _SOURCE)


def forget_course(name: str) -> None:
    """Remove a saved course. Raises ``ProfileError`` if there is none, or it cannot be removed."""
    folder = courses_folder() / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        saved_course(name)  # raises the error that lists the existing courses
    with _recorded(folder):
        shutil.rmtree(_aside(folder), ignore_errors=True)  # otherwise the old version would be restored
        shutil.rmtree(folder)


def choose_course(name: str | None) -> Path | None:
    """Set the default course; ``None``: no default. Return the file if it was changed. Raises ``ProfileError``."""
    return save_setting("course", name) if load_configuration().course != name else None


@contextlib.contextmanager
def _written_beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces ``folder`` at the end; if anything fails, the old one stays."""
    with _recorded(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))  # with private permissions
        try:
            new = beside / "new"
            new.mkdir(0o700)
            yield new
            _put_back(folder)
            shutil.rmtree(_aside(folder), ignore_errors=True)
            if folder.exists():
                folder.replace(_aside(folder))
            new.replace(folder)
            shutil.rmtree(_aside(folder), ignore_errors=True)
        finally:
            _put_back(folder)
            shutil.rmtree(beside, ignore_errors=True)


def _aside(folder: Path) -> Path:
    return folder.with_name(_ASIDE + folder.name)


def _put_back(folder: Path) -> None:
    """Restore a course that was moved aside for a newer version if the launcher was killed before that was complete."""
    if not folder.exists() and _aside(folder).exists():
        with contextlib.suppress(OSError):  # another launcher was faster
            _aside(folder).replace(folder)


@contextlib.contextmanager
def _recorded(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProfileError(f"{path} cannot be written.", why=error.strerror or str(error),
                           hint="check that there is room, and that the folder is yours") from None  # fmt: skip


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path} cannot be read.", why=error.strerror or str(error),
                           hint="fetch the course again: launch-notebook course update") from None  # fmt: skip


def _record(source: str, digest: str, day: date) -> bytes:
    return (json.dumps({"source": source, "sha256": digest, "taken": day.isoformat()}, indent=1) + "\n").encode()


def _read_record(folder: Path) -> tuple[str, str, str]:
    """Return the source, the digest and the day of a saved course; all empty if the record is missing or damaged."""
    try:
        data = json.loads((folder / _SOURCE).read_bytes())
        source, digest, saved_on = (str(data[key]) for key in ("source", "sha256", "taken"))
        date.fromisoformat(saved_on)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", "", ""
    return source, digest, saved_on
