"""Events of profiles, courses, environments, images and checks."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.frozen import Frozen


class ClusterEntry(Frozen):
    """A cluster profile. ``origin``: ``bundled``, ``site``, ``yours``, ``yours on bundled`` or ``yours on site``;
    ``default``: without --cluster.

    ``status``: ``active``, ``retired`` (then there may be a ``successor``), ``unknown``, or ``wrong`` if the file has a
    mistake, described in ``problem``. ``unavailable``: why no session can be launched there.
    """

    cluster: str
    origin: str
    status: str
    description: str
    host: str | None
    scheduler: str
    default: bool
    successor: str | None = None
    unavailable: str = ""
    problem: str = ""


class ClustersListed(Event, name="clusters"):
    """All cluster profiles, and all saved courses, by name."""

    clusters: tuple[ClusterEntry, ...]
    courses: tuple[str, ...]


class ProfileShown(Event, name="profile"):
    """A profile as it is written, with its comments. ``layers``: the files it consists of, the lowest first."""

    cluster: str
    layers: tuple[str, ...]
    text: str


class Saved(Event, name="saved"):
    """Something was saved. ``what``: an answer, a profile or a course, described."""

    what: str
    path: str


class CheckResult(Event, name="check"):
    """One check of ``doctor``, ``init`` or ``env check``. ``result``: ok, fault, warning, unknown or skipped.

    ``found``: the finding as text; ``hint``: what to do about a fault, empty without one.
    """

    check: str
    result: str
    found: str
    hint: str = ""


class ChecksDone(Event, name="checks_done"):
    """All checks of ``doctor`` are done: the number that passed, and the names of the others, by result."""

    passed: int
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    skipped: tuple[str, ...]


class CourseUsed(Event, name="course"):
    """A course is used. ``digest``: the SHA-256 of its file; ``first``: whether it is new on this machine."""

    course: str
    source: str
    digest: str
    description: str
    first: bool


class CourseEntry(Event, name="course_entry"):
    """A saved course, of ``course list`` and ``course show``.

    ``added``: the day; ``default``: whether it is used without --course.
    ``settings``: its settings, one per line, for ``course show`` only.
    """

    course: str
    cluster: str | None
    source: str
    digest: str
    added: str
    description: str
    default: bool
    settings: tuple[str, ...] = ()


class EnvironmentEntry(Frozen):
    """An environment of a profile. ``software``: where it comes from; ``default``: used without ``--``."""

    environment: str
    description: str
    software: str
    default: bool


class EnvironmentsListed(Event, name="environments"):
    """The environments of a profile. ``origin``: the profile, and the course if there is one."""

    origin: str
    environments: tuple[EnvironmentEntry, ...]


class EnvironmentShown(Event, name="environment"):
    """An environment in full. ``layers``: the files that define it, the lowest first.

    ``session_env``: the lines that a job reads. ``notes``: remarks, in sentences.
    """

    environment: str
    description: str
    software: str
    layers: tuple[str, ...]
    source: str | None
    definition: str | None
    session_env: str
    notes: tuple[str, ...]


class Building(Event, name="building"):
    """An image or an environment is being built; ``line``: the last line that the program printed."""

    what: str
    where: str
    line: str


class ImageReady(Event, name="image_ready"):
    """An image is ready. ``digest``: ``sha256:`` and its hexadecimal digits; ``source``: what it was built from."""

    path: str
    digest: str
    source: str
    bytes: int
    seconds: float
