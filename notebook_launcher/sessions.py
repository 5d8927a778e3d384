"""The stories of sessions that there are: come back to one, open it, end it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from notebook_launcher import events
from notebook_launcher.attend import attend
from notebook_launcher.ending import end_job
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.interrupts import Interrupts
from notebook_launcher.keys import join_keys
from notebook_launcher.opening import make_scheduler, open_stage
from notebook_launcher.plan import Place
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session import Listed, Session, choose_session, list_sessions, read_session
from notebook_launcher.stage import Access, Stage, View, job_of


def connect(
    place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts, forwards: Sequence[int] = ()
) -> None:
    """Come back to a session that was left running, and hold it as ``launch`` does."""
    with open_stage(place, view, prompts, interrupts, forwards) as stage:
        session = find_session(stage, prefix)
        token = (stage.host.read_file(f"{session.directory}/token") or b"").decode(errors="replace").strip()
        access = Access(token, functools.cache(lambda: join_keys(stage.host, session.directory)))
        found = events.Noted(f"Session {session.id}: job {job_of(session)}.")
        interrupts.defer()
        attend(stage, session, access, ours=False, first=found)


def stop(place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """End a session from anywhere, and wait until its job is gone."""
    with open_stage(place, view, prompts, interrupts) as stage:
        session = find_session(stage, prefix)
        interrupts.defer()
        end_job(stage, session)


def open_session(place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Open a session in the browser: over the tunnel that this machine has to it already, else as ``connect``."""
    connect(place, prefix, view, prompts, interrupts)


def find_session(stage: Stage, prefix: str) -> Session:
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
