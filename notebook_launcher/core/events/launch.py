"""Events of a launch: connected, submitted, pending, ready, ended."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.usage_samples import GpuSample


class Connecting(Event, name="connecting"):
    """The launcher is connecting to the login node."""

    host: str


class Connected(Event, name="connected"):
    """The connection is open. ``engine``: the SSH implementation in use, and ``why`` this one."""

    host: str
    engine: str
    why: str


class Submitted(Event, name="submitted"):
    """The job is queued. ``walltime`` as text, ``directory``: the session's, on the cluster."""

    session: str
    job: str
    cluster: str | None
    scheduler: str
    walltime: str
    directory: str


class Pending(Event, name="pending"):
    """The job is pending. ``reason``: the scheduler's; ``explanation``: in plain words; ``action``: what may help.

    ``ahead``: the number of jobs with a higher priority. ``estimate``: the scheduler's estimate of the start (ISO with
    zone), ``as_of``: when it made it. ``None``: not known.
    """

    job: str
    state: str
    reason: str | None
    explanation: str
    action: str = ""
    ahead: int | None = None
    estimate: str | None = None
    as_of: str | None = None


class SchedulerNotResponding(Event, name="scheduler_not_responding"):
    """The scheduler does not answer. ``reason``: its message. The job is not affected, and the query is repeated."""

    job: str
    reason: str


class Running(Event, name="running"):
    """The job runs on a node; its ``program`` (jupyterlab, notebook or script) is starting."""

    job: str
    node: str
    program: str = "jupyterlab"


class Staging(Event, name="staging"):
    """The environment is copied to the node's own disk, before its program starts (``stage`` in a profile).

    ``path``: the image, or the folder of an environment. ``state``: ``waiting`` (another job makes the copy),
    ``copying``, ``copied``, ``kept`` (an earlier job left it), ``later`` (it is made while the program runs) or
    ``failed`` (``why``: the reason). ``done`` of ``bytes``: the progress, ``None``: not known.
    """

    job: str
    node: str
    path: str
    state: str
    done: int | None = None
    bytes: int | None = None
    why: str = ""


class Ready(Event, name="ready"):
    """JupyterLab answered through the tunnel. ``url`` contains the token, so show it to the user only.

    ``started_here``: this command started the session, so that Ctrl-C ends it; otherwise Ctrl-C detaches.
    """

    session: str
    job: str
    node: str
    url: str
    local_port: int
    started_here: bool


class LocalLabReady(Event, name="local_lab_ready"):
    """The user's own JupyterLab on this machine runs with the session's kernels (``--local-lab``).

    ``url`` contains that JupyterLab's own token, so show it to the user only.
    """

    session: str
    job: str
    node: str
    url: str


class ReachedBySsh(Event, name="reached_by_ssh"):
    """This terminal is an SSH login, so the address of ``ready`` works on this machine, not on the user's computer.

    Typed on the user's own computer, ``forward_command`` makes the same address work there. ``connect_command`` is for
    a computer that has the launcher; "" unless this machine is a login node of the session's cluster.
    """

    session: str
    forward_command: str
    connect_command: str


class Renewed(Event, name="renewed"):
    """The next job of a session is queued: session ``session``, job ``job``, which continues session ``continues``.

    ``begins``: not before then (ISO with zone); ``None``: as soon as it can. ``ends``: when session ``continues`` ends
    at the latest. ``walltime``: of the next job, as text.
    """

    session: str
    job: str
    continues: str
    begins: str | None
    ends: str
    walltime: str


class NextJobGone(Event, name="next_job_gone"):
    """The next job of session ``continues`` is gone, or being cancelled: ``session``, job ``job``.

    ``text``: why, and what to do, as in a ``Note``.
    """

    session: str
    job: str
    continues: str
    text: str


class Continued(Event, name="continued"):
    """The next job of a session answers at the same local port, and the one before it is being cancelled.

    ``continues``: the session before, whose kernels are lost. ``url`` contains the token. ``bill``: the command that
    shows what the session before has used.
    """

    session: str
    job: str
    node: str
    url: str
    local_port: int
    continues: str
    bill: str


class TunnelOpened(Event, name="tunnel_opened"):
    """The tunnel to the node is open. ``route``: the kind of connection that it uses."""

    node: str
    route: str


class PortForwarded(Event, name="port_forwarded"):
    """Another port of the node is reached through ``local_port`` of this machine.

    ``url``: its address, whose host name is the port's own, so that no other program gets the cookies set there.
    ``plain_url``: one that every browser and program accepts; "" if there is none, or if it is another user's program.
    """

    node: str
    port: int
    local_port: int
    url: str
    plain_url: str


class AppOpened(Event, name="app_opened"):
    """A program beside JupyterLab (``--app``) has a port on this machine. ``url`` contains the program's secret.

    ``state``: ``starting``, ``running`` or ``failed``; ``message``: why it failed. ``log``: the last lines that it
    printed then.
    """

    session: str
    job: str
    node: str
    app: str
    title: str
    url: str
    local_port: int
    state: str
    message: str
    log: tuple[str, ...] = ()


class AppFailed(Event, name="app_failed"):
    """A program beside JupyterLab (``--app``) has ended, and is not restarted. ``message``: why.

    ``log``: the last lines that it printed. ``path``: the file on the cluster with all of them; "": it printed nothing.
    ``status_command``: shows these lines; "": there are none.
    """

    session: str
    job: str
    node: str
    app: str
    title: str
    message: str
    log: tuple[str, ...] = ()
    path: str = ""
    status_command: str = ""


class WorkersReady(Event, name="workers_ready"):
    """The workers of ``--with`` have joined their scheduler, on all nodes of the job.

    ``node``: the first of them. ``engine``: dask or ray; Ray has one worker per node. ``scheduler``: its address in the
    job; with Ray, that of its head node. ``memory_mib``: of all workers. ``dashboard_port``: of the node, which is
    forwarded; 0: there is no dashboard.
    """

    session: str
    job: str
    node: str
    engine: str
    scheduler: str
    nodes: int
    workers: int
    threads: int
    memory_mib: int
    dashboard_port: int


class Disconnected(Event, name="disconnected"):
    """The connection to the session broke and is being re-established; the job keeps running."""

    job: str
    reason: str


class Reconnected(Event, name="reconnected"):
    """The connection is back, after ``seconds``; the local ports are the same."""

    job: str
    seconds: float


class Stopping(Event, name="stopping"):
    """The session is being stopped: the server, the tunnel and the job."""

    job: str


class Ended(Event, name="ended"):
    """The session is over and the job is gone. ``by_itself``: not at the request of this command."""

    session: str
    job: str
    text: str
    by_itself: bool = False


class Detached(Event, name="detached"):
    """This command has detached; the session keeps running, or its job stays in the queue.

    ``is_queued``: the job is still in the queue, as far as known. ``results_command``: fetches the results of a run;
    "" if the session is not a run.
    """

    session: str
    job: str
    connect_command: str
    stop_command: str
    results_command: str = ""
    is_queued: bool = False


class DryRun(Event, name="dry_run"):
    """What a launch would do (``--dry-run``): the submit command and the content of ``session.env``.

    ``placeholders``: the flags whose value in the command is a placeholder, since a launch asks for it.
    """

    where: str
    command: str
    directory: str
    session_env: str
    placeholders: tuple[str, ...] = ()


class Attached(Event, name="attached"):
    """Attached to a session. Shown when its end is known or has changed, and with each new sample of its use.

    ``ends``: ISO with zone, ``seconds_left`` until then; ``None``: no limit, or not known yet. ``sampled``: the time
    of the sample (UTC), ``None``: there is none yet; the fields after it belong to that sample, ``None``: not measured.
    """

    session: str
    job: str
    ends: str | None
    seconds_left: int | None
    sampled: str | None = None
    cpu_cores: float | None = None
    memory_mib: float | None = None
    gpus: tuple[GpuSample, ...] = ()


class BrowserOpened(Event, name="browser_opened"):
    """The browser shows a session, over the tunnel of another command on this machine. ``url`` contains the token."""

    session: str
    job: str
    node: str
    url: str
    local_port: int


class TimeLeft(Event, name="time_left"):
    """The walltime is nearly over: 15, 5 and 1 minute left. ``relaunch_command`` starts the same session again."""

    session: str
    job: str
    ends: str
    seconds_left: int
    relaunch_command: str


class Idle(Event, name="idle"):
    """Nobody uses the session, or its GPU. ``ends``: when it will be cancelled for that (ISO with zone) or ``None``."""

    session: str
    job: str
    text: str
    ends: str | None


class NotSaved(Event, name="not_saved"):
    """JupyterLab could not save these documents before the end; ``paths``: below JupyterLab's folder."""

    session: str
    job: str
    paths: tuple[str, ...]


class ShellOpening(Event, name="shell_opening"):
    """A shell on a node is about to open. ``inside``: in the session's environment, not outside its container.

    ``ends_job``: whether the job was submitted for this shell alone, and ends with it. ``command``: what runs instead
    of a shell, without a terminal.
    """

    session: str
    job: str
    node: str
    inside: bool
    environment: str | None
    ends_job: bool = False
    command: str | None = None
