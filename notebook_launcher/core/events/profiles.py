"""Events of profiles, courses, environments, images and checks."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_launcher.core.events.base import Event


@dataclass(frozen=True)
class ClusterEntry:
    """A cluster profile. ``origin``: ``bundled``, ``yours``, or ``yours on bundled``; ``default``: without --cluster.

    ``status``: ``active``, ``retired`` (then there may be a ``successor``), ``unknown``, or ``wrong`` where the file
    has a mistake; that is told in ``problem``. ``unavailable``: why no session can be launched there.
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


@dataclass(frozen=True)
class ClustersListed(Event, name="clusters"):
    """The cluster profiles that there are, and the courses that were taken, by name."""

    clusters: tuple[ClusterEntry, ...]
    courses: tuple[str, ...]


@dataclass(frozen=True)
class ProfileShown(Event, name="profile"):
    """A profile as it stands, with its comments. ``layers``: the files it is made of, the lowest first."""

    cluster: str
    layers: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Saved(Event, name="saved"):
    """Something was written for the next times. ``what``: an answer, a profile, a course, in words."""

    what: str
    path: str


@dataclass(frozen=True)
class CheckResult(Event, name="check"):
    """One check of ``doctor``, ``init`` or ``env check``. ``result``: ok, fault, warning, unknown or skipped.

    ``found``: what was found, in words; ``hint``: what to do about a fault, empty without one.
    """

    check: str
    result: str
    found: str
    hint: str = ""


@dataclass(frozen=True)
class ChecksDone(Event, name="checks_done"):
    """All checks of ``doctor`` are done: how many found nothing, and the names of the others, by their results."""

    passed: int
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class CourseUsed(Event, name="course"):
    """A course is used. ``digest``: the SHA-256 of its file; ``first``: whether it was never taken here before."""

    course: str
    source: str
    digest: str
    description: str
    first: bool


@dataclass(frozen=True)
class CourseEntry(Event, name="course_entry"):
    """A course that was taken, of ``course list`` and ``course show``.

    ``added``: the day; ``default``: whether it is used without --course.
    ``settings``: what it decides, a line each, of ``course show`` alone.
    """

    course: str
    cluster: str | None
    source: str
    digest: str
    added: str
    description: str
    default: bool
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnvironmentEntry:
    """An environment of a profile. ``software``: where it comes from, in words; ``default``: used without ``--``."""

    environment: str
    description: str
    software: str
    default: bool


@dataclass(frozen=True)
class EnvironmentsListed(Event, name="environments"):
    """The environments of a place. ``origin``: the profile, and the course if there is one."""

    origin: str
    environments: tuple[EnvironmentEntry, ...]


@dataclass(frozen=True)
class EnvironmentShown(Event, name="environment"):
    """What an environment comes to. ``layers``: the files that say something of it, the lowest first.

    ``session_env``: the lines that a job reads. ``notes``: what should be known of it, in sentences.
    """

    environment: str
    description: str
    software: str
    layers: tuple[str, ...]
    source: str | None
    definition: str | None
    session_env: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Building(Event, name="building"):
    """An image or an environment is being made; ``line``: the last thing that the program said."""

    what: str
    where: str
    line: str


@dataclass(frozen=True)
class ImageReady(Event, name="image_ready"):
    """An image is there. ``digest``: ``sha256:`` and its hexadecimal digits; ``source``: what it was made from."""

    path: str
    digest: str
    source: str
    bytes: int
    seconds: float
