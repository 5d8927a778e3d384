"""The stories: launch a session, come back to one, stop one. Read top-down, this is the whole product."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from notebook_launcher import events
from notebook_launcher.attend import attend
from notebook_launcher.ending import end_job
from notebook_launcher.errors import (
    ConnectionLost,
    LauncherError,
    SubmitUncertain,
)
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.interrupts import Interrupts
from notebook_launcher.keys import join_keys, new_keys
from notebook_launcher.opening import make_scheduler, open_stage
from notebook_launcher.plan import Place, Plan, begin_note, open_port_note, useless_flags_note
from notebook_launcher.queueing import profile_named, queue_job
from notebook_launcher.request import format_walltime
from notebook_launcher.schedulers.base import JobRef, Scheduler
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
    read_session,
    write_session,
)
from notebook_launcher.stage import Access, Stage, View, job_of
from notebook_launcher.ways import may_need_sshd, told_of


def launch(plan: Plan, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Queue a job, wait for JupyterLab in it, open the tunnel, show the address, and hold the session.

    Returns when the session has ended or was left running on purpose. Raises a ``LauncherError`` otherwise, after
    ending the job; ``HungUp`` (a closed terminal) leaves it running.
    """
    with open_stage(plan.place, view, prompts, interrupts, plan.forwards) as stage:
        _tell_notes(plan, stage)
        session = _new_session(plan, stage.scheduler, stage.site, stage.root)
        stage.scheduler.submit(plan.request, session.submission)  # what cannot be asked for is told before all else
        interrupts.defer()  # from here on there may be a job, which no interrupt may orphan
        with _discarded_if_not_queued(stage, session), profile_named(plan):
            access = _write(plan, stage, session)
            session = dataclasses.replace(session, job=queue_job(stage, session))
        attend(stage, session, access, ours=True, first=_submitted(plan, stage, session))


def connect(
    place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts, forwards: Sequence[int] = ()
) -> None:
    """Come back to a session that was left running, and hold it as ``launch`` does."""
    with open_stage(place, view, prompts, interrupts, forwards) as stage:
        session = _find(stage, prefix)
        token = (stage.host.read_file(f"{session.directory}/token") or b"").decode(errors="replace").strip()
        access = Access(token, functools.cache(lambda: join_keys(stage.host, session.directory)))
        found = events.Noted(f"Session {session.id}: job {job_of(session)}.")
        interrupts.defer()
        attend(stage, session, access, ours=False, first=found)


def stop(place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """End a session from anywhere, and wait until its job is gone."""
    with open_stage(place, view, prompts, interrupts) as stage:
        session = _find(stage, prefix)
        interrupts.defer()
        end_job(stage, session)


def doctor(place: Place, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Log in and look, without a job: by which engine and why, the scheduler, and how compute nodes are reached."""
    with open_stage(place, view, prompts, interrupts) as stage:
        view.show(events.Noted(f"{stage.host.label}: {stage.site.user}, sessions in {stage.root}"))
        view.show(events.Noted(f"scheduler: {stage.scheduler.name}"))
        if not stage.scheduler.same_machine:
            view.show(events.Noted(f"stream: {place.profile.stream}; {told_of(place.name)}"))


def dry_run(plan: Plan, view: View) -> None:
    """Show the exact submit command and session file, and do nothing: not even connect."""
    host = LocalHost()
    there = plan.place.destination
    # of a cluster nothing is known yet; and this machine may be one without sh
    site = Site("$HOME", "$USER", str(there), datetime.now().astimezone()) if there else look_at(host)
    root = site.expand(plan.place.profile.session_root)
    scheduler = make_scheduler(plan.place.scheduler, root)
    session = _new_session(plan, scheduler, site, root)
    for note in _notes(plan, scheduler, site):
        view.show(events.Noted(note))
    command = scheduler.submit(plan.request, session.submission)
    env = _session_env(plan, scheduler, site)
    view.show(events.Planned(str(there or host.label), _as_typed(command), session.directory, env))


def _as_typed(command: list[str]) -> str:
    """Quote for a shell, but let ``$HOME`` and ``$USER`` be filled in there: only the login node knows them."""

    def quoted(word: str) -> str:
        if "$HOME" not in word and "$USER" not in word:
            return shlex.quote(word)
        return '"' + re.sub(r'[\\"`]|\$(?!HOME\b|USER\b)', r"\\\g<0>", word) + '"'

    return " ".join(map(quoted, command))


# --- what is said first -------------------------------------------------------------------------------------


def _tell_notes(plan: Plan, stage: Stage) -> None:
    for note in _notes(plan, stage.scheduler, stage.site):
        stage.view.show(events.Noted(note))


def _notes(plan: Plan, scheduler: Scheduler, site: Site) -> list[str]:
    useless = useless_flags_note(plan.asked) if scheduler.same_machine else None
    open_port = None if scheduler.same_machine else open_port_note(plan.place.profile)
    return [note for note in (begin_note(plan.request, site.now), useless, open_port) if note]


# --- a new session -------------------------------------------------------------------------------------------


def _new_session(plan: Plan, scheduler: Scheduler, site: Site, root: str) -> Session:
    return new_session(root, plan.request, scheduler=scheduler.name, cluster=plan.place.cluster, host=plan.place.host,
                       environment=plan.environment_name, now=site.now,
                       stream="direct" if _listens_openly(plan, scheduler) else None)  # fmt: skip


def _listens_openly(plan: Plan, scheduler: Scheduler) -> bool:
    return plan.place.profile.stream == "direct" and not scheduler.same_machine


def _write(plan: Plan, stage: Stage, session: Session) -> Access:
    """Write the session's directory, with a token and keys that are its own."""
    env = _session_env(plan, stage.scheduler, stage.site)
    if stage.scheduler.same_machine:  # no server of ours has to be entered
        return Access(write_session(stage.host, session, env, {}), lambda: join_keys(stage.host, session.directory))
    keys, files = new_keys()
    return Access(write_session(stage.host, session, env, files), lambda: keys)


def _reaching(plan: Plan, scheduler: Scheduler) -> dict[str, str]:
    """Return what the job has to do so that it can be reached: an SSH server of its own where it may come to that."""
    if scheduler.same_machine:
        return {}
    if plan.place.profile.stream == "direct":
        return {"listen": "node"}
    return {"sshd": "yes"} if may_need_sshd(plan.place.profile.stream, plan.place.name) else {}


def _session_env(plan: Plan, scheduler: Scheduler, site: Site) -> str:
    asked = plan.environment
    environment = asked.model_copy(
        update={
            "bind": tuple(site.expand(spec) for spec in asked.bind),
            "module_use": tuple(site.expand(folder) for folder in asked.module_use),
            "conda": site.expand(asked.conda) if asked.conda else None,
            "venv": site.expand(asked.venv) if asked.venv else None,
        }
    )
    container = site.expand(plan.container) if plan.container else None
    others = _reaching(plan, scheduler)
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


def _submitted(plan: Plan, stage: Stage, session: Session) -> events.Submitted:
    job, walltime = job_of(session), format_walltime(plan.request.walltime)
    return events.Submitted(session.id, job.id, job.cluster, stage.scheduler.name, walltime, session.directory)


# --- an old session ------------------------------------------------------------------------------------------


def _find(stage: Stage, prefix: str) -> Session:
    """Return the session that the user means, and play on with the scheduler that it was queued with."""
    sessions = list_sessions(stage.host, stage.root)
    chosen = choose_session(sessions, prefix, _live(stage, sessions), stage.host.label)
    session = read_session(stage.host, f"{stage.root}/{chosen.id}")
    stage.scheduler = make_scheduler(session.record.scheduler, stage.root)
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
