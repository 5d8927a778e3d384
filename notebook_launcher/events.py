"""What happens during a launch, as data: the terminal shows it in words, ``--json`` prints it as it is.

The names and fields are documented in ``docs/json.md``; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Event:
    """One thing that happened. ``name`` is its name in ``--json``."""

    name: ClassVar[str] = ""

    def data(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Noted(Event):
    """Something that the user should know, in a sentence."""

    name: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True)
class Connecting(Event):
    """The connection to the login node is being made."""

    name: ClassVar[str] = "connecting"
    host: str


@dataclass(frozen=True)
class Connected(Event):
    """The connection stands. ``engine``: the SSH implementation that makes it, ``why`` it and not the other."""

    name: ClassVar[str] = "connected"
    host: str
    engine: str
    why: str


@dataclass(frozen=True)
class Submitted(Event):
    """The job is queued. ``walltime`` in words, ``directory``: the session's, on the cluster."""

    name: ClassVar[str] = "submitted"
    session: str
    job: str
    cluster: str | None
    scheduler: str
    walltime: str
    directory: str


@dataclass(frozen=True)
class Waiting(Event):
    """The job waits. ``reason`` in the scheduler's word, ``explanation`` in ours, ``action``: what can be done.

    ``ahead``: how many jobs go first. ``estimate``: when the scheduler expects to start it (ISO with zone), ``as_of``:
    when it said so. ``None``: not known.
    """

    name: ClassVar[str] = "waiting"
    job: str
    state: str
    reason: str | None
    explanation: str
    action: str = ""
    ahead: int | None = None
    estimate: str | None = None
    as_of: str | None = None


@dataclass(frozen=True)
class Unanswered(Event):
    """The scheduler does not answer, with its own words; the job is not touched by that, and it is asked again."""

    name: ClassVar[str] = "unanswered"
    job: str
    reason: str


@dataclass(frozen=True)
class Running(Event):
    """The job runs on a node; JupyterLab is starting."""

    name: ClassVar[str] = "running"
    job: str
    node: str


@dataclass(frozen=True)
class Ready(Event):
    """JupyterLab answered through the tunnel. ``url`` holds the token: it is for the user's eyes."""

    name: ClassVar[str] = "ready"
    session: str
    job: str
    node: str
    url: str
    local_port: int


@dataclass(frozen=True)
class Tunnelled(Event):
    """There is a way to the node. ``stream``: of which kind."""

    name: ClassVar[str] = "tunnelled"
    node: str
    stream: str


@dataclass(frozen=True)
class Forwarded(Event):
    """Another port of the node is reached through ``local_port`` of this machine."""

    name: ClassVar[str] = "forwarded"
    node: str
    port: int
    local_port: int


@dataclass(frozen=True)
class Disconnected(Event):
    """The way to the session is broken and being mended; the job is not touched by that."""

    name: ClassVar[str] = "disconnected"
    job: str
    reason: str


@dataclass(frozen=True)
class Reconnected(Event):
    """The way is there again, after ``seconds``; the local ports are the same."""

    name: ClassVar[str] = "reconnected"
    job: str
    seconds: float


@dataclass(frozen=True)
class Ending(Event):
    """The session is being ended: server, tunnel and job."""

    name: ClassVar[str] = "ending"
    job: str


@dataclass(frozen=True)
class Ended(Event):
    """The session is over and the job is gone."""

    name: ClassVar[str] = "ended"
    session: str
    job: str
    text: str


@dataclass(frozen=True)
class Left(Event):
    """The session goes on without us. ``come_back`` and ``stop`` are the commands to type."""

    name: ClassVar[str] = "left"
    session: str
    job: str
    come_back: str
    stop: str


@dataclass(frozen=True)
class Planned(Event):
    """What would be done (``--dry-run``): the submit command and the content of ``session.env``."""

    name: ClassVar[str] = "planned"
    where: str
    command: str
    directory: str
    session_env: str


@dataclass(frozen=True)
class Problem(Event):
    """The launch ended with an error; the fields are those of ``LauncherError``."""

    name: ClassVar[str] = "error"
    kind: str
    what: str
    why: str
    mend: str
    log: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True)
class Asking(Event):
    """The scheduler is being asked something that may take a while; ``text`` says what."""

    name: ClassVar[str] = "asking"
    text: str


@dataclass(frozen=True)
class Forecast(Event):
    """When the request would start. ``start``: ISO with zone; ``seconds`` until then, 0: now.

    ``flags``: the request as it is typed. Where it cannot start, ``start`` is ``None``, and ``what``, ``why``, ``mend``
    and ``exit_code`` are those of a ``LauncherError``. ``held_up``: what keeps it waiting for longer than ``start``
    says, ``note``: what else is to be known; both may be empty.
    """

    name: ClassVar[str] = "forecast"
    flags: str
    start: str | None
    seconds: int | None
    partition: str | None
    nodes: str | None
    held_up: str = ""
    note: str = ""
    what: str = ""
    why: str = ""
    mend: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class Variation(Event):
    """When a changed request would start. ``flags``: the change, as it is typed. ``sooner``: than the request itself.

    ``note``: what else is to be known, may be empty. ``what``: why it cannot start, empty where it can.
    """

    name: ClassVar[str] = "variation"
    flags: str
    start: str | None
    seconds: int | None
    partition: str | None
    nodes: str | None
    sooner: bool
    note: str = ""
    what: str = ""


@dataclass(frozen=True)
class Compared(Event):
    """A forecast is complete. ``as_of``: when it was made (ISO with the cluster's zone), ``text``: what it is worth."""

    name: ClassVar[str] = "compared"
    as_of: str
    text: str


@dataclass(frozen=True)
class Load:
    """How many GPUs of a type (``""`` where none is named), or ``cores``, are free, busy and out of service.

    ``free`` and ``busy`` are ``None`` where that is not told.
    """

    type: str
    free: int | None
    busy: int | None
    out: int


@dataclass(frozen=True)
class PartitionLoad:
    """One partition: ``walltime`` is its limit as it is typed, ``None``: not told; ``waiting`` and ``yours`` are jobs.

    ``cores``: of its nodes without GPUs. ``waiting_gpus``: how many GPUs those that wait ask for. These three are
    ``None`` where that is not told.
    """

    name: str
    default: bool
    up: bool | None
    walltime: str | None
    gpus: tuple[Load, ...]
    cores: Load
    waiting: int | None
    waiting_gpus: int | None
    yours: int | None


@dataclass(frozen=True)
class Queue(Event):
    """What is free, and what waits; ``gpus``, ``cores`` and ``waiting`` count each node and job once.

    ``hidden``: whether other people's jobs are not shown to this user; ``None``: not known.
    """

    name: ClassVar[str] = "queue"
    partitions: tuple[PartitionLoad, ...]
    gpus: tuple[Load, ...]
    cores: Load
    waiting: int | None
    waiting_gpus: int | None
    yours: int | None
    hidden: bool | None
