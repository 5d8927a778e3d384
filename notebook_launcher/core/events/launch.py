"""What happens during a launch, as data: the terminal shows it in words, ``--json`` prints it as it is.

The names and fields are documented in ``docs/json.md``; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from notebook_launcher.core.usage_samples import GpuSample


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
    """The job runs on a node; its ``program`` (jupyterlab or notebook) is starting."""

    name: ClassVar[str] = "running"
    job: str
    node: str
    program: str = "jupyterlab"


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
    """The session is over and the job is gone. ``by_itself``: not by a word to this command."""

    name: ClassVar[str] = "ended"
    session: str
    job: str
    text: str
    by_itself: bool = False


@dataclass(frozen=True)
class Left(Event):
    """The session goes on without us. ``come_back`` and ``stop`` are the commands to type.

    ``results``: the one that fetches what a run has made; "" where the session is none.
    """

    name: ClassVar[str] = "left"
    session: str
    job: str
    come_back: str
    stop: str
    results: str = ""


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


# --- sessions that there are ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionSeen(Event):
    """One session of a list. ``state``: waiting, starting, running, suspended, ending, ended, gone or unknown.

    ``starting``: the job runs, JupyterLab does not listen yet; ``gone``: it never said how it ended, and the scheduler
    has forgotten it; ``unknown``: the scheduler does not answer. ``program``: jupyterlab, shell or notebook;
    ``purpose``: the launcher's own command that the job is for, such as ``env check``. ``created``: ISO, with the
    cluster's zone. ``ends``: when its walltime is over (ISO with zone), ``seconds_left`` until then, ``None`` where it
    has no limit or does not run. ``walltime``: in words. ``about``: why it waits, or how it ended, in a few words; may
    be empty. ``started`` and ``ended``: ISO with zone, ``None``: it did not, or that is not known. ``notebook``: of a
    run, with ``done`` of its ``cells`` code cells, as far as that is known.
    """

    name: ClassVar[str] = "session"
    session: str
    state: str
    job: str | None
    cluster: str | None
    node: str | None
    environment: str | None
    program: str
    created: str | None
    ends: str | None
    seconds_left: int | None
    walltime: str | None
    launched_from: str | None
    directory: str
    about: str = ""
    started: str | None = None
    ended: str | None = None
    purpose: str = ""
    notebook: str | None = None
    done: int | None = None
    cells: int | None = None


@dataclass(frozen=True)
class Listed(Event):
    """A list is complete. ``where``: the place in words. ``live``: how many have not ended.

    ``damaged``: directories whose record could not be made sense of. ``as_of``: ISO with the cluster's zone.
    ``hidden``: how many ended sessions were left out of the list. ``arguments``: the flags that lead there, as typed.
    """

    name: ClassVar[str] = "listed"
    where: str
    live: int
    ended: int
    hidden: int
    damaged: tuple[str, ...]
    as_of: str
    arguments: str = ""


# --- while a session is held ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holding(Event):
    """A session is held. Comes when its end is known or has changed, and with new samples of what it uses.

    ``ends``: ISO with zone, ``seconds_left`` until then; ``None``: no limit, or not known yet. ``sampled``: when the
    sample was taken (UTC), ``None``: there is none yet; the fields behind it are of that sample, ``None``: not told.
    """

    name: ClassVar[str] = "holding"
    session: str
    job: str
    ends: str | None
    seconds_left: int | None
    sampled: str | None = None
    cpu_cores: float | None = None
    memory_mib: float | None = None
    gpus: tuple[GpuSample, ...] = ()


@dataclass(frozen=True)
class Opened(Event):
    """The browser is led to a session over the tunnel that another command here holds. ``url`` holds the token."""

    name: ClassVar[str] = "opened"
    session: str
    job: str
    node: str
    url: str
    local_port: int


@dataclass(frozen=True)
class TimeLeft(Event):
    """The walltime is over soon: 15, 5 and 1 minute before it. ``go_on``: the command that starts the same again."""

    name: ClassVar[str] = "time_left"
    session: str
    job: str
    ends: str
    seconds_left: int
    go_on: str


@dataclass(frozen=True)
class Idle(Event):
    """Nobody uses the session, or its GPU. ``ends``: when it is ended for that (ISO with zone), ``None``: it is not."""

    name: ClassVar[str] = "idle"
    session: str
    job: str
    text: str
    ends: str | None


# --- what a session used -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One measured quantity over the time of a session, for a graph.

    ``label``: what it is, ``unit``: ``%``, ``GiB``, ``W``, ``cores``; ``values``: evenly spaced in time, the newest
    last, ``None`` where nothing was told; ``most``: what there is of it, ``None``: not known. ``now``: in the newest
    sample. More than four GPUs are one series, of their mean.
    """

    label: str
    unit: str
    values: tuple[float | None, ...]
    most: float | None
    mean: float | None
    peak: float | None
    now: float | None = None


@dataclass(frozen=True)
class Status(Event):
    """One session in full: what ``session`` tells of it, and what it uses.

    ``flags``: as it was queued. ``log``: the job's log on the cluster. ``launcher``: the version that launched it.
    ``idle_stop``: seconds without use after which it ends, 0: never. ``since`` and ``until``: which time the series
    cover (ISO, UTC), ``None``: there are no samples. ``whole``: whether that is all of the session's time (``usage``),
    or its last hour (``status``). ``notes``: what should be known of its use, in sentences.
    """

    name: ClassVar[str] = "status"
    seen: SessionSeen
    flags: str
    log: str
    launcher: str
    idle_stop: int
    since: str | None
    until: str | None
    series: tuple[Series, ...]
    whole: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Logged(Event):
    """One line of a session's log."""

    name: ClassVar[str] = "log"
    text: str


@dataclass(frozen=True)
class Drawn(Event):
    """A file was written here: a plot, or the samples themselves."""

    name: ClassVar[str] = "drawn"
    path: str
    text: str


@dataclass(frozen=True)
class Bill(Event):
    """What a session asked for and what it used, once it is over; ``None``: not known.

    Times are seconds, memory is MiB, energy is watt-hours. ``wall``: from its start to its end; ``cpu_used``: seconds
    in which a core was busy for it, Slurm's TotalCPU or the samples' figure, if that is more; ``cpu_reserved``: wall
    time times cores (Slurm's CPUTime, which says nothing about use). ``gpu_percent``: the mean over its time, of all
    its GPUs. ``energy_of``: ``GPUs`` or ``node``. ``cost`` in ``unit``. ``measured``: where the figures come from, in
    words. ``advice``: what to ask for next time, each a flag as it is typed and why. ``node``: where it ran.
    ``gpu_type``: of all its GPUs.
    """

    name: ClassVar[str] = "bill"
    session: str
    job: str
    wall: int | None
    walltime: int | None
    cores: int | None
    cpu_used: float | None
    cpu_reserved: int | None
    memory_peak: float | None
    memory_asked: float | None
    gpus: int
    gpu_percent: float | None
    gpu_memory_peak: float | None
    gpu_memory_total: float | None
    energy: float | None
    energy_of: str
    cost: float | None
    unit: str
    measured: str
    advice: tuple[tuple[str, str], ...]
    node: str | None = None
    gpu_type: str | None = None


# --- files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copying(Event):
    """A copy has come so far: of all files together, bytes that are there already included."""

    name: ClassVar[str] = "copying"
    file: str
    files: int
    files_done: int
    bytes: int
    bytes_done: int


@dataclass(frozen=True)
class Copied(Event):
    """A copy is complete, and every file's checksum (SHA-256) is the same at both ends.

    ``skipped``: files that were there already, equal. ``resumed``: bytes that an earlier attempt had left.
    """

    name: ClassVar[str] = "copied"
    source: str
    destination: str
    files: int
    skipped: int
    bytes: int
    resumed: int
    seconds: float


# --- a terminal ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShellOpening(Event):
    """A terminal on a node is about to open. ``inside``: in the session's environment, or outside its container.

    ``ends_job``: whether the job was queued for it alone, and ends with it. ``command``: what is run there in place of
    a shell, without a terminal.
    """

    name: ClassVar[str] = "shell"
    session: str
    job: str
    node: str
    inside: bool
    environment: str | None
    ends_job: bool = False
    command: str | None = None


# --- clusters, courses, environments ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterSeen:
    """A cluster profile. ``origin``: ``bundled``, ``yours``, or ``yours on bundled``; ``chosen``: without --cluster.

    ``status``: ``active``, ``retired`` (then there may be a ``successor``), ``unknown``, or ``wrong`` where the file
    has a mistake; that is told in ``problem``. ``unavailable``: why no session can be launched there.
    """

    cluster: str
    origin: str
    status: str
    description: str
    host: str | None
    scheduler: str
    chosen: bool
    successor: str | None = None
    unavailable: str = ""
    problem: str = ""


@dataclass(frozen=True)
class ClustersListed(Event):
    """The cluster profiles that there are, and the courses that were taken, by name."""

    name: ClassVar[str] = "clusters"
    clusters: tuple[ClusterSeen, ...]
    courses: tuple[str, ...]


@dataclass(frozen=True)
class ProfileShown(Event):
    """A profile as it stands, with its comments. ``layers``: the files it is made of, the lowest first."""

    name: ClassVar[str] = "profile"
    cluster: str
    layers: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Kept(Event):
    """Something was written for the next times. ``what``: an answer, a profile, a course, in words."""

    name: ClassVar[str] = "kept"
    what: str
    path: str


@dataclass(frozen=True)
class Checked(Event):
    """One check of ``doctor``, ``init`` or ``env check``. ``result``: ok, fault, warning, unknown or skipped.

    ``found``: what was found, in words; ``mend``: what to do about a fault, empty without one.
    """

    name: ClassVar[str] = "check"
    check: str
    result: str
    found: str
    mend: str = ""


@dataclass(frozen=True)
class CheckedAll(Event):
    """All checks of ``doctor`` are done: how many found nothing, and the names of the others, by their results."""

    name: ClassVar[str] = "checked"
    passed: int
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Priced(Event):
    """What a session will cost at most, in ``unit``; ``left``: of the account, ``None`` where nobody tells.

    ``reckoning``: how it comes about, in words: ``2 h × 1 A100``. ``note``: why ``left`` is not known although it was
    asked for.
    """

    name: ClassVar[str] = "price"
    cost: float
    unit: str
    reckoning: str
    account: str | None = None
    left: float | None = None
    note: str = ""


@dataclass(frozen=True)
class CourseTaken(Event):
    """A course is used. ``digest``: the SHA-256 of its file; ``first``: whether it was never taken here before."""

    name: ClassVar[str] = "course"
    course: str
    source: str
    digest: str
    description: str
    first: bool


@dataclass(frozen=True)
class CourseSeen(Event):
    """A course that was taken, of ``course list`` and ``course show``.

    ``taken``: the day; ``chosen``: whether it is meant without --course.
    ``decides``: what it decides, a line each, of ``course show`` alone.
    """

    name: ClassVar[str] = "kept_course"
    course: str
    cluster: str | None
    source: str
    digest: str
    taken: str
    description: str
    chosen: bool
    decides: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotebooksBrought(Event):
    """A course's files were put into the user's folder. ``kept``: those that the user has changed, left as they are."""

    name: ClassVar[str] = "notebooks"
    folder: str
    copied: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class EnvironmentSeen:
    """An environment of a profile. ``how``: where its software comes from, in words; ``chosen``: without ``--``."""

    environment: str
    description: str
    how: str
    chosen: bool


@dataclass(frozen=True)
class EnvironmentsListed(Event):
    """The environments of a place. ``origin``: the profile, and the course if there is one."""

    name: ClassVar[str] = "environments"
    origin: str
    environments: tuple[EnvironmentSeen, ...]


@dataclass(frozen=True)
class EnvironmentShown(Event):
    """What an environment comes to. ``layers``: the files that say something of it, the lowest first.

    ``session_env``: the lines that a job reads. ``notes``: what should be known of it, in sentences.
    """

    name: ClassVar[str] = "environment"
    environment: str
    description: str
    how: str
    layers: tuple[str, ...]
    source: str | None
    definition: str | None
    session_env: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Building(Event):
    """An image or an environment is being made; ``line``: the last thing that the program said."""

    name: ClassVar[str] = "building"
    what: str
    where: str
    line: str


@dataclass(frozen=True)
class ImageMade(Event):
    """An image is there. ``digest``: ``sha256:`` and its hexadecimal digits; ``source``: what it was made from."""

    name: ClassVar[str] = "image"
    path: str
    digest: str
    source: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class NotebookQueued(Event):
    """A notebook goes to the cluster. ``parameters``: those that were put in; ``sent``: the files that go with it."""

    name: ClassVar[str] = "notebook"
    notebook: str
    cells: int
    parameters: dict[str, object]
    sent: tuple[str, ...]


@dataclass(frozen=True)
class CellRuns(Event):
    """How far a notebook has come: ``done`` of its ``cells`` code cells have ended.

    ``cell``: the one that runs, from 1. ``title``: the heading that it stands under. ``seconds``: since the first cell
    began, by the job's clock.
    """

    name: ClassVar[str] = "cell"
    session: str
    job: str
    cell: int | None
    done: int
    cells: int
    title: str
    seconds: float


@dataclass(frozen=True)
class ResultsFetched(Event):
    """What a run has made is here. ``whole``: whether the notebook had come to its end by then.

    ``files``: paths in ``folder``; ``left``: what was too large, by its path on the cluster.
    """

    name: ClassVar[str] = "results"
    session: str
    notebook: str
    folder: str
    files: tuple[str, ...]
    left: tuple[str, ...]
    whole: bool


@dataclass(frozen=True)
class NotebookRan(Event):
    """A notebook came to its end."""

    name: ClassVar[str] = "ran"
    session: str
    job: str
    notebook: str
    cells: int
    seconds: float


@dataclass(frozen=True)
class NotebooksListed(Event):
    """The notebooks that come along: pairs of a name and a sentence."""

    name: ClassVar[str] = "notebooks_here"
    notebooks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BenchStep(Event):
    """Where a bench stands, by the names of its combinations. ``what``: what has just happened, in a sentence."""

    name: ClassVar[str] = "bench"
    folder: str
    what: str
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    done: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True)
class BenchReported(Event):
    """The report of a bench is written. ``rows``: how many results are in it; ``failed``: combinations, and why."""

    name: ClassVar[str] = "bench_report"
    folder: str
    html: str
    markdown: str
    csv: str
    rows: int
    failed: tuple[tuple[str, str], ...]
