"""Events of sessions that are listed and inspected, and of the usage report."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.frozen import Frozen


class SessionEntry(Event, name="session"):
    """One session of a list. ``state``: pending, starting, running, suspended, completing, ended, gone or unknown.

    ``starting``: the job runs, JupyterLab does not listen yet; ``gone``: it left no record of how it ended, and the
    scheduler has forgotten it (``ended`` is then when a launcher cancelled it, if one did); ``unknown``: the scheduler
    does not answer. ``program``: jupyterlab, shell, notebook or script;
    ``purpose``: the launcher's own command that the job belongs to, such as ``env check``. ``created``: ISO, with the
    cluster's zone. ``ends``: when its walltime is over (ISO with zone), ``seconds_left`` until then, ``None`` if it has
    no limit or does not run. ``walltime``: as text. ``detail``: why it is pending, or how it ended; may be empty.
    ``started`` and ``ended``: ISO with zone, ``None``: it did not, or that is not known. ``notebook``: of a run, with
    ``done`` of its ``cells`` code cells, as far as known. ``script``: of a submitted script.
    ``continues``: the session that it continues; "": none.
    """

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
    detail: str = ""
    started: str | None = None
    ended: str | None = None
    purpose: str = ""
    notebook: str | None = None
    done: int | None = None
    cells: int | None = None
    script: str | None = None
    continues: str = ""

    @property
    def runs(self) -> str | None:
        """The file that a batch job runs: a notebook, or a script."""
        return self.notebook or self.script


class ListDone(Event, name="list_done"):
    """A list is complete. ``where``: the cluster or host. ``active``: how many sessions have not ended.

    ``unreadable``: directories whose record is invalid. ``as_of``: ISO with the cluster's zone. ``hidden``: how many
    ended sessions were left out of the list. ``arguments``: the flags that select the cluster, as typed.
    """

    where: str
    active: int
    ended: int
    hidden: int
    unreadable: tuple[str, ...]
    as_of: str
    arguments: str = ""


class Series(Frozen):
    """One measured quantity over the time of a session, for a graph.

    ``label``: its name, ``unit``: ``%``, ``GiB``, ``W``, ``cores``; ``values``: evenly spaced in time, the newest last,
    ``None`` where nothing was measured; ``capacity``: how much there is of it, ``None``: not known. ``latest``: in the
    newest sample. More than four GPUs are shown as one series, of their mean.
    """

    label: str
    unit: str
    values: tuple[float | None, ...]
    capacity: float | None
    mean: float | None
    peak: float | None
    latest: float | None = None


class AppState(Frozen):
    """A program beside JupyterLab. ``state``: ``starting``, ``running`` or ``failed``; ``message``: why it last ended.

    ``restarts``: how often it was started again. ``url``: its address on this machine, without its secret, ``None`` if
    no launcher here is attached. ``log``: the last lines that it printed before it ended.
    """

    app: str
    title: str
    state: str
    restarts: int
    message: str
    url: str | None = None
    log: tuple[str, ...] = ()


class TaskCounts(Frozen):
    """How many tasks a job array has, and how many are in each state, as far as they have reported it.

    ``finished``: ended with exit code 0. ``failed``: ended otherwise, which includes those that reached their walltime.
    """

    tasks: int
    waiting: int
    running: int
    finished: int
    failed: int
    cancelled: int


class Status(Event, name="status"):
    """One session in full: the fields of ``session``, and its use.

    ``flags``: as requested. ``log``: the job's log on the cluster. ``launcher``: the version that launched it.
    ``idle_stop``: seconds of idleness after which it ends, 0: never. ``since`` and ``until``: the time that the series
    cover (ISO, UTC), ``None``: there are no samples. ``whole_session``: whether that is the session's whole time
    (``usage``), or its last hour (``status``). ``notes``: remarks on its use, in sentences. ``apps``: the programs
    beside JupyterLab (``--app``). ``tasks``: of a job array; ``None``: not a job array, or not known.
    """

    session: SessionEntry
    flags: str
    log: str
    launcher: str
    idle_stop: int
    since: str | None
    until: str | None
    series: tuple[Series, ...]
    whole_session: bool = False
    notes: tuple[str, ...] = ()
    apps: tuple[AppState, ...] = ()
    tasks: TaskCounts | None = None


class LogLine(Event, name="log"):
    """One line of a session's log. ``task``: the task of a job array that printed it."""

    text: str
    task: int | None = None


class FileWritten(Event, name="file_written"):
    """A file was written here: a plot, or the samples themselves."""

    path: str
    text: str


class Bill(Event, name="bill"):
    """What a session requested and what it used, once it is over; ``None``: not known.

    Times are seconds, memory is MiB, energy is watt-hours. ``run_time``: from its start to its end; ``cpu_used``:
    CPU seconds used, Slurm's TotalCPU or the samples' figure, whichever is larger; ``cpu_reserved``: run time times
    cores (Slurm's CPUTime, which says nothing about use). ``gpu_percent``: the mean over its time, of all its GPUs.
    ``energy_of``: ``GPUs`` or ``node``. ``cost`` in ``unit``. ``measured_by``: the source of the figures, as text.
    ``recommendations``: what to request next time, each a flag as it is typed and why. ``node``: where it ran.
    ``gpu_type``: of all its GPUs. ``memory_allocated``: what it was given, by the accounting;
    ``memory_requested``: what it asked for, or what the site set in its place.
    """

    session: str
    job: str
    run_time: int | None
    walltime: int | None
    cores: int | None
    cpu_used: float | None
    cpu_reserved: int | None
    memory_peak: float | None
    memory_requested: float | None
    gpus: int
    gpu_percent: float | None
    gpu_memory_peak: float | None
    gpu_memory_total: float | None
    energy: float | None
    energy_of: str
    cost: float | None
    unit: str
    measured_by: str
    recommendations: tuple[tuple[str, str], ...]
    node: str | None = None
    gpu_type: str | None = None
    memory_allocated: float | None = None

    @property
    def memory(self) -> float | None:
        """The memory that it had: what was allocated or, if that is not known, requested."""
        return self.memory_allocated or self.memory_requested


class CostEstimate(Event, name="cost_estimate"):
    """The most that a session can cost, in ``unit``; ``balance``: of the account, ``None`` if not known.

    ``calculation``: how the cost is calculated: ``2 h × 1 A100``. ``note``: why ``balance`` is not known although it
    was queried.
    """

    cost: float
    unit: str
    calculation: str
    account: str | None = None
    balance: float | None = None
    note: str = ""


class SessionAddress(Event, name="session_address"):
    """The address of a session to which this machine is attached. ``url`` contains the token."""

    session: str
    job: str
    url: str
    local_port: int
