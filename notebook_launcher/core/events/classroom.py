"""Events of a class: the state of its students, their results, its end."""

from __future__ import annotations

from dataclasses import field

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.frozen import Frozen


class StudentNow(Frozen):
    """One student at one time. ``user``: the name on the cluster; ``name``: the one in the roster, else the same.

    ``state``: ``not_started``, ``pending``, ``starting``, ``running``, ``idle``, ``completing``, ``ended``, ``failed``
    or ``unknown`` (the scheduler does not answer). ``detail``: why, in a few words; may be empty. ``starts``: when a
    pending job is expected to start, ``ends``: when the walltime is over, or when the job ended (ISO with zone);
    ``seconds_left``: of a running job's walltime. ``gpus``: how many the student's jobs have, or wait for. ``seen``:
    seconds since the session last reported in the class folder; ``None``: it did not.
    """

    user: str
    name: str
    state: str
    detail: str = ""
    job: str | None = None
    node: str | None = None
    starts: str | None = None
    ends: str | None = None
    seconds_left: int | None = None
    gpus: int | None = None
    seen: int | None = None


class ClassSeen(Event, name="class"):
    """All students of a class at one time. ``title``: the course, reservation or account; ``as_of``: ISO with zone.

    ``counts``: how many students are in each state that occurs. ``gpus_used``: how many the running jobs have,
    ``gpus_pending``: how many the pending jobs wait for; ``gpus_total``: of the reservation's or the partition's nodes
    in service, ``gpus_free`` of these; ``None``: not reported. ``problem``: why this is old or incomplete, in a
    sentence; may be empty.
    """

    title: str
    as_of: str
    students: tuple[StudentNow, ...]
    counts: dict[str, int] = field(default_factory=dict)
    gpus_used: int = 0
    gpus_pending: int = 0
    gpus_total: int | None = None
    gpus_free: int | None = None
    problem: str = ""


class ClassPage(Event, name="class_page"):
    """The page of the class is served on this machine for as long as the command runs. ``address``: with its secret."""

    address: str


class ClassCollected(Event, name="class_collected"):
    """The results of a class are in one report. ``html``, ``table``: its files; ``conclusion``: in a sentence.

    ``students``: how many have results, ``without``: those of the roster that have none; ``refused``: results that
    were left out, each with the reason.
    """

    html: str
    table: str
    students: int
    results: int
    without: tuple[str, ...]
    refused: tuple[str, ...]
    conclusion: str


class ClassEnded(Event, name="class_ended"):
    """A class was ended. ``ended``: the users whose jobs are gone; ``asked``: those whose sessions were asked to end.

    ``refused``: the users whose jobs this user may not end, with the scheduler's reason in ``why``.
    """

    ended: tuple[str, ...]
    asked: tuple[str, ...]
    refused: tuple[str, ...]
    why: str = ""
