"""Events of a launch: connected, submitted, pending, ready, ended."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.usage_samples import GpuSample


@dataclass(frozen=True)
class Connecting(Event, name="connecting"):
    """The connection to the login node is being made."""

    host: str


@dataclass(frozen=True)
class Connected(Event, name="connected"):
    """The connection stands. ``engine``: the SSH implementation that makes it, ``why`` it and not the other."""

    host: str
    engine: str
    why: str


@dataclass(frozen=True)
class Submitted(Event, name="submitted"):
    """The job is queued. ``walltime`` in words, ``directory``: the session's, on the cluster."""

    session: str
    job: str
    cluster: str | None
    scheduler: str
    walltime: str
    directory: str


@dataclass(frozen=True)
class Pending(Event, name="pending"):
    """The job waits. ``reason`` in the scheduler's word, ``explanation`` in ours, ``action``: what can be done.

    ``ahead``: how many jobs go first. ``estimate``: when the scheduler expects to start it (ISO with zone), ``as_of``:
    when it said so. ``None``: not known.
    """

    job: str
    state: str
    reason: str | None
    explanation: str
    action: str = ""
    ahead: int | None = None
    estimate: str | None = None
    as_of: str | None = None


@dataclass(frozen=True)
class SchedulerNotResponding(Event, name="scheduler_not_responding"):
    """The scheduler does not answer, with its own words; the job is not touched by that, and it is asked again."""

    job: str
    reason: str


@dataclass(frozen=True)
class Running(Event, name="running"):
    """The job runs on a node; its ``program`` (jupyterlab or notebook) is starting."""

    job: str
    node: str
    program: str = "jupyterlab"


@dataclass(frozen=True)
class Ready(Event, name="ready"):
    """JupyterLab answered through the tunnel. ``url`` holds the token: it is for the user's eyes."""

    session: str
    job: str
    node: str
    url: str
    local_port: int


@dataclass(frozen=True)
class TunnelOpened(Event, name="tunnel_opened"):
    """The tunnel to the node is open. ``route``: the kind of connection that it takes."""

    node: str
    route: str


@dataclass(frozen=True)
class PortForwarded(Event, name="port_forwarded"):
    """Another port of the node is reached through ``local_port`` of this machine."""

    node: str
    port: int
    local_port: int


@dataclass(frozen=True)
class Disconnected(Event, name="disconnected"):
    """The connection to the session broke and is being re-established; the job keeps running."""

    job: str
    reason: str


@dataclass(frozen=True)
class Reconnected(Event, name="reconnected"):
    """The connection is back, after ``seconds``; the local ports are the same."""

    job: str
    seconds: float


@dataclass(frozen=True)
class Stopping(Event, name="stopping"):
    """The session is being stopped: the server, the tunnel and the job."""

    job: str


@dataclass(frozen=True)
class Ended(Event, name="ended"):
    """The session is over and the job is gone. ``by_itself``: not by a word to this command."""

    session: str
    job: str
    text: str
    by_itself: bool = False


@dataclass(frozen=True)
class Detached(Event, name="detached"):
    """This command has detached, the session keeps running. The other fields are commands to type.

    ``results_command``: fetches what a run has made; "" where the session is none.
    """

    session: str
    job: str
    connect_command: str
    stop_command: str
    results_command: str = ""


@dataclass(frozen=True)
class DryRun(Event, name="dry_run"):
    """What would be done (``--dry-run``): the submit command and the content of ``session.env``."""

    where: str
    command: str
    directory: str
    session_env: str


@dataclass(frozen=True)
class Attached(Event, name="attached"):
    """Attached to a session. Comes when its end is known or has changed, and with new samples of what it uses.

    ``ends``: ISO with zone, ``seconds_left`` until then; ``None``: no limit, or not known yet. ``sampled``: when the
    sample was taken (UTC), ``None``: there is none yet; the fields behind it are of that sample, ``None``: not told.
    """

    session: str
    job: str
    ends: str | None
    seconds_left: int | None
    sampled: str | None = None
    cpu_cores: float | None = None
    memory_mib: float | None = None
    gpus: tuple[GpuSample, ...] = ()


@dataclass(frozen=True)
class BrowserOpened(Event, name="browser_opened"):
    """The browser is led to a session over the tunnel of another command here. ``url`` holds the token."""

    session: str
    job: str
    node: str
    url: str
    local_port: int


@dataclass(frozen=True)
class TimeLeft(Event, name="time_left"):
    """The walltime is over soon: 15, 5 and 1 minute before it. ``relaunch_command`` starts the same again."""

    session: str
    job: str
    ends: str
    seconds_left: int
    relaunch_command: str


@dataclass(frozen=True)
class Idle(Event, name="idle"):
    """Nobody uses the session, or its GPU. ``ends``: when it is ended for that (ISO with zone), ``None``: it is not."""

    session: str
    job: str
    text: str
    ends: str | None


@dataclass(frozen=True)
class ShellOpening(Event, name="shell_opening"):
    """A terminal on a node is about to open. ``inside``: in the session's environment, or outside its container.

    ``ends_job``: whether the job was queued for it alone, and ends with it. ``command``: what is run there in place of
    a shell, without a terminal.
    """

    session: str
    job: str
    node: str
    inside: bool
    environment: str | None
    ends_job: bool = False
    command: str | None = None
