"""The story of a launch: from a plan to a JupyterLab that is held. Read top-down, this is the product."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from notebook_launcher.core.errors import (
    ConnectionLost,
    LauncherError,
    SubmitUncertain,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request, format_walltime
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.submit import profile_named, queue_job
from notebook_launcher.notebook.deploy import bring_notebooks
from notebook_launcher.planning.courses import course_used
from notebook_launcher.planning.plan import Plan, begin_note, open_port_note, useless_flags_note
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.session.connect import make_scheduler, open_stage
from notebook_launcher.session.context import Access, Stage, View, job_of
from notebook_launcher.session.preflight import lacks_jupyterlab
from notebook_launcher.session.record import (
    Program,
    Session,
    Site,
    discard_session,
    environment_lines,
    look_at,
    new_session,
    write_session,
)
from notebook_launcher.session.session_keys import join_keys, new_keys
from notebook_launcher.sessions import come_back_instead
from notebook_launcher.supervision.jupyter import attend
from notebook_launcher.tunnel.routes import may_need_sshd
from notebook_launcher.usage.cost_estimate import Costing, no_price_of, price_of


def launch(plan: Plan, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Queue a job, wait for JupyterLab in it, open the tunnel, show the address, and hold the session.

    Returns when the session has ended or was left running on purpose. Raises a ``LauncherError`` otherwise, after
    ending the job; ``HungUp`` (a closed terminal) leaves it running.
    """
    with open_stage(plan.place, view, prompts, interrupts, plan.forwards) as stage:
        costing = Costing(plan, stage)
        if come_back_instead(plan, stage):
            return
        if plan.place.course:
            view.show(course_used(plan.place.course))
        lacks = lacks_jupyterlab(stage.host, stage.site, plan.environment, plan.container)
        for note in (*notes_before(plan, stage.scheduler, stage.site), *([lacks] if lacks else [])):
            view.show(events.Noted(note))
        if plan.place.course:
            bring_notebooks(stage, plan.place.course)
        session, access = queue_session(plan, stage, costing=costing)
        attend(stage, session, access, ours=True, first=submitted(plan, stage, session))


def queue_session(
    plan: Plan, stage: Stage, program: Program = "jupyterlab", costing: Costing | None = None, purpose: str = ""
) -> tuple[Session, Access]:
    """Make a session and queue its job; from then on interrupts are deferred. Raises what ``queue_job`` raises.

    The price is told before. ``purpose``: see ``SessionRecord``.
    """
    costing = costing or Costing(plan, stage)
    return queue_loaded(plan, stage, Load(program), before_queueing=costing.tell, purpose=purpose)


@dataclass(frozen=True)
class Load:
    """What a session's program is, and what it takes along.

    ``lines``: of ``session.env``, for this program alone. ``notebook``, ``sent``: see ``SessionRecord``. ``files``: by
    their names in the session's directory. ``send``: brings what is too much to go with these.
    """

    program: Program = "jupyterlab"
    lines: Mapping[str, str] = field(default_factory=dict)
    notebook: str | None = None
    sent: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    send: Callable[[Stage, Session], None] = lambda _stage, _session: None


def queue_loaded(
    plan: Plan,
    stage: Stage,
    load: Load,
    *,
    before_queueing: Callable[[], None] = lambda: None,
    purpose: str = "",
) -> tuple[Session, Access]:
    """Make a session with its load, and queue its job, as ``queue_session``."""
    session = _new_session(plan, stage.scheduler, stage.site, stage.root, load, purpose)
    stage.scheduler.submit(plan.request, session.submission)  # what cannot be asked for is told before all else
    stage.interrupts.defer()  # from here on there may be a job, which no interrupt may orphan
    with _discarded_if_not_queued(stage, session), profile_named(plan):
        access = _write(plan, stage, session, load)
        load.send(stage, session)
        before_queueing()
        return dataclasses.replace(session, job=queue_job(stage, session)), access


def dry_run(plan: Plan, view: View, load_on: Callable[[bool], Load] = lambda _here: Load()) -> None:
    """Show the exact submit command and session file, and do nothing: not even connect.

    ``load_on``: returns what the session takes along; it is told whether commands run on this very machine.
    """
    host = LocalHost()
    there = plan.place.destination
    # of a cluster nothing is known yet; and this machine may be one without sh
    site = Site("$HOME", "$USER", str(there), datetime.now().astimezone()) if there else look_at(host)
    root = site.expand(plan.place.profile.session_root)
    scheduler = make_scheduler(plan.place.scheduler, root)
    load = load_on(there is None)
    session = _new_session(plan, scheduler, site, root, load)
    for note in notes_before(plan, scheduler, site, load.program):
        view.show(events.Noted(note))
    if priced := price_of(plan, scheduler) or no_price_of(plan, scheduler):
        view.show(priced)
    command = scheduler.submit(plan.request, session.submission)
    env = session_env(plan, scheduler, site, load)
    view.show(events.Planned(str(there or host.label), _as_typed(command, plan.request, root), session.directory, env))


def _as_typed(command: list[str], request: Request, root: str) -> str:
    """Quote for a shell, but let ``$HOME`` and ``$USER`` in our own paths, below ``root``, be filled in there.

    Only the login node knows them. What a flag of the request says is for the scheduler, and stays as it is.
    """
    said = set(filter(None, request.flags.values()))
    is_open = "$HOME" in root or "$USER" in root

    def quoted(word: str) -> str:
        if not is_open or root not in word or not {word, word.partition("=")[2]}.isdisjoint(said):
            return shlex.quote(word)
        return '"' + re.sub(r'[\\"`]|\$(?!HOME\b|USER\b)', r"\\\g<0>", word) + '"'

    return " ".join(map(quoted, command))


# --- what is said first -------------------------------------------------------------------------------------


def notes_before(plan: Plan, scheduler: Scheduler, site: Site, program: Program = "jupyterlab") -> list[str]:
    """Return what the user should know before the job is queued, in sentences."""
    useless = useless_flags_note(plan.asked) if scheduler.same_machine else None
    is_open = program == "jupyterlab" and not scheduler.same_machine
    open_port = open_port_note(plan.place.profile) if is_open else None
    return [note for note in (*plan.notes, begin_note(plan.request, site.now), useless, open_port) if note]


# --- a new session -------------------------------------------------------------------------------------------


def _new_session(
    plan: Plan, scheduler: Scheduler, site: Site, root: str, load: Load = Load(), purpose: str = ""
) -> Session:
    has_jupyterlab = load.program == "jupyterlab"
    is_open = load.program != "notebook" and _listens_openly(plan, scheduler)
    return new_session(root, plan.request, scheduler=scheduler.name, cluster=plan.place.cluster, host=plan.place.host,
                       environment=plan.environment_name, now=site.now,
                       stream="direct" if is_open else None, program=load.program,
                       command=plan.command, launched_from=socket.gethostname(),
                       idle_stop=plan.idle_stop if has_jupyterlab else 0,
                       course=plan.place.course.name if plan.place.course else None, purpose=purpose,
                       notebook=load.notebook, sent=load.sent)  # fmt: skip


def _listens_openly(plan: Plan, scheduler: Scheduler) -> bool:
    return plan.place.profile.stream == "direct" and not scheduler.same_machine


def _write(plan: Plan, stage: Stage, session: Session, load: Load) -> Access:
    """Write the session's directory, with a token and keys that are its own."""
    env = session_env(plan, stage.scheduler, stage.site, load)
    # no server of ours has to be entered on this machine, or in a run
    if stage.scheduler.same_machine or load.program == "notebook":
        token = write_session(stage.host, session, env, load.files)
        return Access(token, lambda: join_keys(stage.host, session.directory))
    keys, files = new_keys()
    return Access(write_session(stage.host, session, env, {**files, **load.files}), lambda: keys)


def _reaching(plan: Plan, scheduler: Scheduler) -> dict[str, str]:
    """Return what the job has to do so that it can be reached: an SSH server of its own where it may come to that."""
    if scheduler.same_machine:
        return {}
    if plan.place.profile.stream == "direct":
        return {"listen": "node"}
    return {"sshd": "yes"} if may_need_sshd(plan.place.profile.stream, plan.place.name) else {}


def _watching(plan: Plan) -> dict[str, str]:
    """Return what the job has to watch: the use of the node, and for how long nobody has used the session."""
    profile = plan.place.profile
    said = {"usage": str(profile.usage_seconds)}
    return {**said, "idle_stop": str(plan.idle_stop), "gpu_idle": profile.gpu_idle} if plan.idle_stop else said


def session_env(plan: Plan, scheduler: Scheduler, site: Site, load: Load = Load()) -> str:
    """Return what the job script needs to know, as it stands in ``session.env``."""
    asked = plan.environment
    environment = asked.model_copy(
        update={
            "bind": tuple(site.expand(spec) for spec in asked.bind),
            "module_use": tuple(site.expand(folder) for folder in asked.module_use),
            "conda": site.expand(asked.conda) if asked.conda else None,
            "venv": site.expand(asked.venv) if asked.venv else None,
            "uv": site.expand(asked.uv) if asked.uv else None,
        }
    )
    container = site.expand(plan.container) if plan.container else None
    if load.program == "jupyterlab":
        others = {**_reaching(plan, scheduler), **_watching(plan)}
    else:
        others = {"program": load.program, **load.lines, "usage": str(plan.place.profile.usage_seconds)}
    return environment_lines(environment, container=container, path=plan.path, others=others)


@contextlib.contextmanager
def _discarded_if_not_queued(stage: Stage, session: Session) -> Iterator[None]:
    """Take the session's directory away again when no job came of it; keep it where that is not certain."""
    try:
        yield
    except (ConnectionLost, SubmitUncertain):
        raise
    except Exception:
        with contextlib.suppress(LauncherError):
            discard_session(stage.host, session)
        raise


def submitted(plan: Plan, stage: Stage, session: Session) -> events.Submitted:
    """Return what there is to tell of a session that was just queued."""
    job, walltime = job_of(session), format_walltime(plan.request.walltime)
    return events.Submitted(session.id, job.id, job.cluster, stage.scheduler.name, walltime, session.directory)
