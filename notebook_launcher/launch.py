"""The stories: launch a session, come back to one, stop one. Read top-down, this is the whole product.

Every way out is thought of: ENTER and Ctrl-C end the session and wait until the job is gone; ``d`` and a closed
terminal leave it running; an error ends the job that it can no longer use, unless the way to the cluster is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from notebook_launcher import events, explain
from notebook_launcher.errors import (
    CancelFailed,
    ConnectionLost,
    HostCommandFailed,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNeverStarts,
    JobTimedOut,
    LauncherError,
    SchedulerMissing,
    SubmitUncertain,
)
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.plan import Place, Plan, begin_note, useless_flags_note
from notebook_launcher.request import format_walltime, parse_begin
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler
from notebook_launcher.session import (
    Listed,
    Session,
    Site,
    choose_session,
    discard_session,
    environment_lines,
    list_sessions,
    look_at,
    new_session,
    read_job,
    read_session,
    write_session,
)
from notebook_launcher.tunnel import Endpoint, Node, Tunnel, check_jupyter, open_tunnel
from notebook_launcher.watch import SILENCE, FileAppeared, NoAnswer, StatusChanged, Watch, WatchBroke, ask

GONE_WITHIN = 120.0  # seconds that a cancelled job may take to be gone: its grace time and an epilog

Result = TypeVar("Result")


class HungUp(BaseException):
    """The terminal was closed (SIGHUP): the session is left running. Raised by the command line's signal handler."""


class View(Protocol):
    """Shows what happens, and tells what the user typed."""

    def show(self, event: events.Event) -> None:
        """Show one event."""

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """From now on put a ``Typed`` into ``inbox`` for each line that the user types."""


@dataclass(frozen=True)
class Typed:
    """A line from the keyboard; ``None``: there will be no more, because the terminal or pipe was closed."""

    line: str | None


@dataclass
class Stage:
    """What a story plays on: a host, its scheduler, and what one look at the host told."""

    place: Place
    host: Host
    site: Site
    scheduler: Scheduler
    root: str
    view: View
    prompts: Prompts


# --- launch --------------------------------------------------------------------------------------------------


def launch(plan: Plan, view: View, prompts: Prompts) -> None:
    """Queue a job, wait for JupyterLab in it, open the tunnel, show the address, and hold the session.

    Returns when the session has ended or was left running on purpose. Raises a ``LauncherError`` otherwise, after
    ending the job; ``HungUp`` passes through and leaves it running.
    """
    with _stage(plan.place, view, prompts) as stage:
        _tell_notes(plan, stage)
        session = _new_session(plan, stage.scheduler, stage.site, stage.root)
        with _discarded_unless_queued(stage, session):
            token = write_session(stage.host, session, _session_env(plan, stage.site))
            session = _submit(plan, stage, session)
        _attend(stage, session, token)


@contextlib.contextmanager
def _discarded_unless_queued(stage: Stage, session: Session) -> Iterator[None]:
    """Take the session's directory away again when no job came of it; keep it where that is not certain."""
    try:
        yield
    except (ConnectionLost, HostCommandFailed, SubmitUncertain, HungUp):
        raise
    except BaseException:
        with contextlib.suppress(LauncherError):
            discard_session(stage.host, session)
        raise


def dry_run(plan: Plan, view: View) -> None:
    """Show the exact submit command and session file, and do nothing: not even connect."""
    host = LocalHost()
    here = look_at(host)
    local = plan.place.destination is None
    site = here if local else dataclasses.replace(here, home="$HOME", user="$USER")
    root = site.expand(plan.place.profile.session_root)
    scheduler = _scheduler(plan.place.scheduler, root)
    session = _new_session(plan, scheduler, site, root)
    for note in (begin_note(plan.request, site.now), _no_scheduler_note(plan, scheduler)):
        if note:
            view.show(events.Noted(note))
    command = scheduler.submit(plan.request, session.submission)
    view.show(
        events.Planned(
            str(plan.place.destination or host.label), _as_typed(command), session.directory, _session_env(plan, site)
        )
    )


def _as_typed(command: list[str]) -> str:
    """Quote for a shell, but let ``$HOME`` be filled in there: only the login node knows it."""
    words = []
    for word in command:
        before, home, after = word.partition("$HOME")
        words.append(
            f'{shlex.quote(before) if before else ""}"$HOME"{shlex.quote(after) if after else ""}'
            if home
            else shlex.quote(word)
        )
    return " ".join(words)


def _tell_notes(plan: Plan, stage: Stage) -> None:
    for note in (begin_note(plan.request, stage.site.now), _no_scheduler_note(plan, stage.scheduler)):
        if note:
            stage.view.show(events.Noted(note))


def _no_scheduler_note(plan: Plan, scheduler: Scheduler) -> str | None:
    return useless_flags_note(plan.asked) if scheduler.same_machine else None


def _new_session(plan: Plan, scheduler: Scheduler, site: Site, root: str) -> Session:
    if plan.request.begin and scheduler.same_machine:
        parse_begin(plan.request.begin, site.now)
    return new_session(
        root,
        plan.request,
        scheduler=scheduler.name,
        cluster=plan.place.cluster,
        host=plan.place.host,
        environment=plan.environment_name,
        now=site.now,
    )


def _session_env(plan: Plan, site: Site) -> str:
    environment = plan.environment.model_copy(
        update={
            "bind": tuple(site.expand(spec) for spec in plan.environment.bind),
            "module_use": tuple(site.expand(folder) for folder in plan.environment.module_use),
            "conda": site.expand(plan.environment.conda) if plan.environment.conda else None,
            "venv": site.expand(plan.environment.venv) if plan.environment.venv else None,
        }
    )
    container = site.expand(plan.container) if plan.container else None
    return environment_lines(environment, container=container, path=plan.path)


def _submit(plan: Plan, stage: Stage, session: Session) -> Session:
    """Queue the job. Ctrl-C in the middle waits for the scheduler's answer first, so that no job is orphaned."""
    command = [
        "bash",
        f"{session.directory}/submit.sh",
        session.directory,
        *stage.scheduler.submit(plan.request, session.submission),
    ]
    try:
        answer = _uninterrupted(lambda: stage.host.run(command, login_shell=True))
    except (KeyboardInterrupt, HungUp) as interrupt:
        _after_interrupted_submit(plan, stage, session, interrupt)
        raise
    except (ConnectionLost, HostCommandFailed) as error:
        raise _uncertain(plan, stage, session, error) from None
    session = dataclasses.replace(session, job=stage.scheduler.read_submit(answer))
    _announce(stage, session, format_walltime(plan.request.walltime))
    return session


def _uninterrupted(work: Callable[[], Result], on_interrupt: Callable[[], None] = lambda: None) -> Result:
    """Run ``work`` to its end on a thread, whatever happens here; an interrupt is raised again afterwards.

    ``on_interrupt`` is called at each interrupt, and may raise to give up waiting.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except (KeyboardInterrupt, HungUp) as error:
            interrupt = error
            on_interrupt()
    if errors:
        raise errors[0]
    if interrupt is not None:
        raise interrupt
    return results[0]


def _after_interrupted_submit(plan: Plan, stage: Stage, session: Session, interrupt: BaseException) -> None:
    """The scheduler may have the job: find it, and end it, or (a closed terminal) leave it."""
    try:
        job = read_job(stage.host, session.directory)
        if job is None:
            found = stage.scheduler.read_find(
                session.id, stage.host.run(stage.scheduler.find(session.id, plan.request), login_shell=True)
            )
            if found is None:
                raise SubmitUncertain(f"Interrupted; whether job “{session.id}” was queued is not known.")
            job = found[0] if found else None
        if job is not None and not isinstance(interrupt, HungUp):
            end_job(stage, dataclasses.replace(session, job=job))
    except (ConnectionLost, HostCommandFailed, SubmitUncertain) as error:
        raise _uncertain(plan, stage, session, error) from None


def _uncertain(plan: Plan, stage: Stage, session: Session, error: LauncherError) -> SubmitUncertain:
    look = shlex.join(stage.scheduler.find(session.id, plan.request))
    return SubmitUncertain(
        f"The job of session {session.id} may have been queued.",
        why=error.what,
        mend=f"look on {stage.host.label} with: {look}",
    )


def _announce(stage: Stage, session: Session, walltime: str) -> None:
    job = _job(session)
    stage.view.show(
        events.Submitted(session.id, job.id, job.cluster, stage.scheduler.name, walltime, session.directory)
    )


# --- come back, stop -----------------------------------------------------------------------------------------


def connect(place: Place, prefix: str, view: View, prompts: Prompts) -> None:
    """Come back to a session that was left running, and hold it as ``launch`` does."""
    with _stage(place, view, prompts) as stage:
        session = _find(stage, prefix)
        token = (stage.host.read_file(f"{session.directory}/token") or b"").decode()
        view.show(events.Noted(f"Session {session.id}: job {_job(session)}."))
        _attend(stage, session, token)


def stop(place: Place, prefix: str, view: View, prompts: Prompts) -> None:
    """End a session from anywhere, and wait until its job is gone."""
    with _stage(place, view, prompts) as stage:
        session = _find(stage, prefix)
        end_job(stage, session)


def _find(stage: Stage, prefix: str) -> Session:
    """Return the session that the user means, and play on with the scheduler that it was queued with."""
    sessions = list_sessions(stage.host, stage.root)
    chosen = choose_session(sessions, prefix, _live(stage, sessions), stage.host.label)
    session = read_session(stage.host, f"{stage.root}/{chosen.id}")
    stage.scheduler = _scheduler(session.record.scheduler, stage.root)
    return session


def _live(stage: Stage, sessions: Sequence[Listed]) -> set[str]:
    """Return the ids of those that have not ended: a job that never started leaves no word, the scheduler knows."""
    candidates = [session for session in sessions if not session.ended and session.job]
    live = set()
    for cluster in {session.job.cluster for session in candidates if session.job}:
        there = {session.job.id: session for session in candidates if session.job and session.job.cluster == cluster}
        jobs = [JobRef(job_id, cluster) for job_id in there]
        answer = stage.host.run(stage.scheduler.query(jobs), login_shell=True)
        states = stage.scheduler.read_query(jobs, answer)
        if states is None:  # nobody tells: then none is known to have ended
            live |= {session.id for session in there.values()}
        else:
            live |= {there[job_id].id for job_id, status in states.items() if not status.state.ended}
    return live


# --- the stage -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stage(place: Place, view: View, prompts: Prompts) -> Iterator[Stage]:
    with _open_host(place, view, prompts) as host:
        site = look_at(host)
        root = site.expand(place.profile.session_root)
        kind = place.scheduler if place.scheduler != "auto" else _find_scheduler(host)
        yield Stage(place, host, site, _scheduler(kind, root), root, view, prompts)


def _open_host(place: Place, view: View, prompts: Prompts) -> Host:
    if place.destination is None:
        return LocalHost()
    from notebook_launcher.hosts.paramiko import ParamikoHost
    from notebook_launcher.hosts.ssh_auth import Credentials

    view.show(events.Connecting(str(place.destination)))
    return ParamikoHost.open(place.destination, Credentials(prompts))


def _find_scheduler(host: Host) -> str:
    return "slurm" if host.run(["sh", "-c", "command -v sbatch"], login_shell=True).exit_code == 0 else "local"


def _scheduler(name: str, root: str) -> Scheduler:
    from notebook_launcher.schedulers.local import Local
    from notebook_launcher.schedulers.slurm import Slurm

    if name == "local":
        return Local(root)
    if name in ("slurm", "auto"):
        return Slurm()
    raise SchedulerMissing(f"This version knows no scheduler “{name}”.", mend="is there a newer launch-notebook?")


# --- wait, hold, end -----------------------------------------------------------------------------------------


def _attend(stage: Stage, session: Session, token: str) -> None:
    """See a session through from its queued job to its end, and clean up on every way out."""
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    stage.view.listen(inbox)
    ways: list[Tunnel] = []
    held = False
    try:
        with Watch(stage.host, stage.scheduler, _job(session), session.directory, inbox) as watch:
            waiting = _Waiting(stage, session, inbox, watch, ways)
            endpoint = waiting.until_ready()
            local_port = waiting.tunnel().forward(endpoint.port)
            check_jupyter(local_port, endpoint, token)
            held = True
            stage.view.show(
                events.Ready(
                    session.id, _job(session).id, str(waiting.node), endpoint.url(local_port, token), local_port
                )
            )
            _hold(stage, session, inbox, watch, waiting.tunnel())
        end_job(stage, session)
    except KeyboardInterrupt:
        end_job(stage, session)
        if not held:
            raise Interrupted("Interrupted before JupyterLab was ready.", why=f"Job {_job(session)} is gone.") from None
    except _Detached:
        _say_left(stage, session)
    except _OverAlready as over:
        stage.view.show(events.Ended(session.id, _job(session).id, over.text))
    except ConnectionLost as error:
        raise _still_there(stage, session, error) from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut, CancelFailed):
        raise
    except Exception:
        # also an error of ours: the job runs or waits, and is of no use to anybody
        with contextlib.suppress(LauncherError):
            _end_quietly(stage, session)
        raise
    finally:
        for way in ways:
            way.close()


class _Detached(Exception):
    """The user typed ``d``: the session goes on without us."""


class _OverAlready(Exception):
    """The session ended by itself in a way that is no failure, such as a shut-down from the browser."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _Waiting:
    """From the queued job to the port file, with the way to the node opened meanwhile."""

    def __init__(
        self, stage: Stage, session: Session, inbox: queue.SimpleQueue[object], watch: Watch, ways: list[Tunnel]
    ) -> None:
        self._stage, self._session, self._inbox, self._watch, self._ways = stage, session, inbox, watch, ways
        self._opening: threading.Thread | None = None
        self._problem: BaseException | None = None
        self.node = Node(())

    def until_ready(self) -> Endpoint:
        """Wait, showing what for, until Jupyter listens. Raises the error that tells why it never will."""
        endpoint: Endpoint | None = None
        while endpoint is None or self._opening is None:
            item = _next(self._inbox, self._watch)
            if isinstance(item, FileAppeared) and item.name == "started":
                self._started(item)
            elif isinstance(item, FileAppeared) and item.name == "endpoint":
                endpoint = Endpoint.from_file(item.data)
            elif isinstance(item, StatusChanged):
                self._status(item.status)
            elif isinstance(item, Typed):
                _act_on(item)
            _raise_if_over(self._stage, self._session, item)
        return endpoint

    def _started(self, item: FileAppeared) -> None:
        self.node = Node.from_started(item.data)
        self._stage.view.show(events.Running(_job(self._session).id, str(self.node)))
        # Jupyter needs seconds to start: time enough to open the way to its node
        self._opening = threading.Thread(target=self._open, daemon=True)
        self._opening.start()

    def _open(self) -> None:
        stage = self._stage
        try:
            self._ways.append(
                open_tunnel(
                    stage.host,
                    self.node,
                    same_machine=stage.scheduler.same_machine,
                    stream=stage.place.profile.stream,
                    prompts=stage.prompts,
                )
            )
        except BaseException as error:
            self._problem = error

    def tunnel(self) -> Tunnel:
        """Return the way to the node, when it is open. Raises what kept it from opening."""
        if self._opening:
            self._opening.join()
        if self._problem is not None:
            raise self._problem
        return self._ways[-1]

    def _status(self, status: JobStatus | None) -> None:
        if status is None or not status.state.waits:
            return
        explanation = explain.pending(status.reason)
        if explanation.never:
            raise JobNeverStarts(
                f"Job {status.job} can never start: {explanation.summary}.",
                why=f"The scheduler gives the reason {status.reason}.",
                mend=explanation.action,
            )
        self._stage.view.show(
            events.Waiting(status.job.id, status.state.name, status.reason, explanation.summary, status.start)
        )


def _act_on(typed: Typed) -> None:
    """ENTER ends the session, as Ctrl-C does; ``d`` leaves it running; a closed keyboard says nothing."""
    if typed.line is None:
        return
    if typed.line.strip().lower() == "d":
        raise _Detached
    raise KeyboardInterrupt


def _next(inbox: queue.SimpleQueue[object], watch: Watch) -> object:
    """Return the next thing that happened. Raises ``ConnectionLost`` when the watch is broken or silent."""
    while True:
        try:
            item = inbox.get(timeout=1.0)
        except queue.Empty:
            if watch.silent_for > SILENCE:
                raise ConnectionLost(
                    "The cluster is silent.", why=f"Nothing was heard for {watch.silent_for:.0f} s."
                ) from None
            continue
        if isinstance(item, WatchBroke):
            raise ConnectionLost("The connection to the cluster is lost.", why=item.reason)
        return item


def _raise_if_over(stage: Stage, session: Session, item: object) -> None:
    """Raise what tells how the job ended, if this item says that it did."""
    if isinstance(item, FileAppeared) and item.name == "exit":
        raise _how_it_ended(stage, session, item.data)
    if isinstance(item, StatusChanged) and (item.status is None or item.status.state.ended):
        raise _how_it_ended(stage, session, None, item.status)


def _how_it_ended(stage: Stage, session: Session, record: object, status: JobStatus | None = None) -> Exception:
    data = record if isinstance(record, dict) else _exit_record(stage, session)
    if data.get("cause") == "finished":
        return _OverAlready("JupyterLab was shut down, and its job is gone.")
    if status is None and data.get("cause") in explain.ASK_THE_SCHEDULER:
        status = _final_status(stage, session)
    return explain.ended(_job(session), data, status, _log_tail(stage, session))


def _log_tail(stage: Stage, session: Session) -> list[str]:
    """Return the end of the job's log; of a file name with patterns, only the job's number can be filled in."""
    log = session.record.log.replace("%j", _job(session).id).replace("%A", _job(session).id)
    return [] if "%" in log else stage.host.tail(log)


def _exit_record(stage: Stage, session: Session) -> dict[str, object]:
    import json

    try:
        data = json.loads(stage.host.read_file(f"{session.directory}/exit.json") or b"{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _final_status(stage: Stage, session: Session) -> JobStatus | None:
    """Ask until the scheduler calls the job ended: it says so a moment after the job script does."""
    for pause in (0.2, 0.5, 1.0, 2.0, 4.0, 8.0):
        with contextlib.suppress(NoAnswer):
            status = ask(stage.host, stage.scheduler, _job(session))
            if status is None or status.state.ended:
                return status
        time.sleep(pause)
    return None


def _hold(stage: Stage, session: Session, inbox: queue.SimpleQueue[object], watch: Watch, tunnel: Tunnel) -> None:
    """Hold a session that is in use, until something ends that; every way out is an exception."""
    while True:
        item = _next(inbox, watch)
        if isinstance(item, Typed):
            _act_on(item)
        _raise_if_over(stage, session, item)
        if isinstance(item, FileAppeared) and item.name == "started":
            raise ConnectionLost("The job was put back into the queue and started again.")
        if not tunnel.alive:
            raise ConnectionLost("The tunnel to the compute node broke.")


def end_job(stage: Stage, session: Session) -> None:
    """End a session's job, wait until it is gone, and say so. Raises ``CancelFailed`` where it stays.

    The first Ctrl-C meanwhile is not listened to, because it would leave the job behind; the second is.
    """
    job = _job(session)
    stage.view.show(events.Ending(str(job)))
    interrupts = 0

    def impatient() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            raise CancelFailed(
                f"Left before job {job} was seen to be gone.",
                mend=f"end it with: {shlex.join(stage.scheduler.cancel(job))}",
            )
        stage.view.show(events.Noted("The job is being ended; Ctrl-C once more leaves without waiting for that."))

    with contextlib.suppress(KeyboardInterrupt):
        _uninterrupted(lambda: _end_quietly(stage, session), impatient)
    stage.view.show(events.Ended(session.id, job.id, f"Job {job} is gone."))


def _end_quietly(stage: Stage, session: Session) -> None:
    job = _job(session)
    answer = stage.host.run(stage.scheduler.cancel(job), login_shell=True)
    deadline = time.monotonic() + GONE_WITHIN
    pause = 0.1
    while time.monotonic() < deadline:
        with contextlib.suppress(NoAnswer):
            status = ask(stage.host, stage.scheduler, job)
            if status is None or status.state.ended:
                return
        time.sleep(pause)
        pause = min(pause * 1.6, 3.0)
    raise CancelFailed(
        f"Job {job} is still there {GONE_WITHIN:.0f} s after it was cancelled.",
        why=answer.stderr.strip(),
        mend=f"end it with: {shlex.join(stage.scheduler.cancel(job))}",
    )


def _say_left(stage: Stage, session: Session) -> None:
    where = shlex.join(stage.place.arguments())
    words = f"{where} {session.id}".strip()
    stage.view.show(
        events.Left(session.id, _job(session).id, f"launch-notebook connect {words}", f"launch-notebook stop {words}")
    )


def _still_there(stage: Stage, session: Session, error: ConnectionLost) -> ConnectionLost:
    where = f"{shlex.join(stage.place.arguments())} {session.id}".strip()
    return ConnectionLost(
        error.what,
        why=f"{error.why} The session goes on: job {_job(session)}.".strip(),
        mend=f"come back with: launch-notebook connect {where}",
    )


def _job(session: Session) -> JobRef:
    if session.job is None:
        raise SubmitUncertain(f"Session {session.id} has no job noted.", mend="look for it in the scheduler's queue")
    return session.job
