"""The next job of a session: the same request and token in a session of its own, queued while the first still runs.

It begins shortly before the walltime of the first job is over, so that both run for at most ``hand_over``, even if no
launcher is attached. An attached launcher cancels the first job as soon as JupyterLab answers in the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import posixpath
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from notebook_launcher import __version__
from notebook_launcher.core.errors import HostCommandFailed, LauncherError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.hosts.base import Host
from notebook_launcher.jobs.cancel import cancelled_on_failure
from notebook_launcher.jobs.submit import discarded_if_not_queued, queue_job
from notebook_launcher.planning.apps import APPS_FILE
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import new_keys, worker_files
from notebook_launcher.session.record import SESSION_ID, Session, job_in, new_id, session_files

_WHEN = ("begin", "deadline", "dependency", "hold")
NEXT_JOB_FILE = "next_job.json"  # in the directory of the session that is continued
LONGEST_HAND_OVER = timedelta(minutes=5)
HAND_OVER_DIVISOR = 4  # the hand-over takes at most the walltime divided by this
_PANEL_FILE = "panel.json"


class NextJob(Frozen):
    """The content of ``next_job.json``: the session, its job, and when it begins (``None``: as soon as it can).

    ``ends``: when the walltime of the first job is over; only the script of the next job reads it.
    """

    session: str
    job: JobRef
    begins: datetime | None
    ends: datetime | None = None

    @classmethod
    def from_file(cls, data: Mapping[str, object], now: datetime) -> NextJob | None:
        """Parse the file; ``None`` if it is invalid. ``now``: for the zone of a time without one."""
        name, job = str(data.get("session") or ""), job_in("", data)
        begins = parse_iso(str(data.get("begins") or ""), now)
        return cls(name, job, begins) if SESSION_ID.fullmatch(name) and job else None

    def as_json(self) -> str:
        """Return the content of the file, one line."""
        job = f"{self.job.id};{self.job.cluster}" if self.job.cluster else self.job.id
        begins, ends = (time.isoformat(timespec="seconds") if time else None for time in (self.begins, self.ends))
        values = {"version": 1, "session": self.session, "job": job, "begins": begins, "ends": ends}
        return json.dumps(values, separators=(",", ":"))


def hand_over(walltime: Walltime) -> timedelta:
    """Return for how long both jobs may run: five minutes, or a quarter of a short walltime."""
    return min(LONGEST_HAND_OVER, walltime / HAND_OVER_DIVISOR)


def begin_of(ends: datetime, walltime: Walltime, now: datetime) -> datetime | None:
    """Return when the next job begins, in the zone of ``now``; ``None``: at once, because the first is about to end."""
    begin = (ends - hand_over(walltime)).astimezone(now.tzinfo).replace(microsecond=0)
    return begin if begin > now else None


def refuse_without_end(session: Session) -> None:
    """Raise ``UsageError`` for a session that has no end, or no JupyterLab."""
    if session.record.program != "jupyterlab":
        raise UsageError(
            f"Session {session.id} has no JupyterLab that could continue in another job.",
            hint="repeat a launch with: launch-notebook again",
        )
    if Request(session.record.flags).walltime.is_unlimited:
        raise UsageError(f"Session {session.id} has no time limit, so it needs no next job.")


def next_session(session: Session, begin: str, now: datetime) -> Session:
    """Return a new session that continues another one; nothing is written yet.

    ``begin``: a time on the cluster's clock, "": at once. ``now``: the time on the cluster's clock.
    """
    record = session.record
    flags = {name: value for name, value in record.flags.items() if not _is_of_one_job(name, value)}
    if begin:
        flags["begin"] = begin
    name = new_id(now)
    directory = posixpath.join(posixpath.dirname(session.directory), name)
    new = dataclasses.replace(
        record,
        id=name,
        created=now.replace(microsecond=0),
        flags=flags,
        log=flags.get("output") or f"{directory}/job.log",
        launcher=__version__,
        launched_from=socket.gethostname(),
        continues=session.id,
    )
    return Session(new, directory)


def _is_of_one_job(name: str, value: str | None) -> bool:
    """Whether a flag is for one job only: when it starts, or a log file that the next job would truncate."""
    is_log = name in ("output", "error")
    return name in _WHEN or (is_log and not any(part in (value or "") for part in ("%j", "%J", "%A")))


def queue_next_job(
    context: Context,
    session: Session,
    ends: datetime,
    token: str,
    *,
    named: Callable[[Session], None] = lambda _: None,
) -> tuple[Session, NextJob]:
    """Queue the next job of a session that ends at ``ends``, and record it in that session's directory.

    Returns the new session, and what was recorded. ``named`` is called with the new session before it is submitted.
    Interrupts must be deferred. Raises what ``queue_job`` raises; then there is no job.
    """
    now = context.clock()
    begin = begin_of(ends, Request(session.record.flags).walltime, now)
    new = next_session(session, as_cluster_time(context.host, begin) if begin else "", now)
    named(new)
    with discarded_if_not_queued(context, new):
        files = _files(context, session, new, token)
        new = dataclasses.replace(new, job=queue_job(context, new, files))
    next_job = NextJob(new.id, job_of(new), begin, ends)
    with cancelled_on_failure(context, new):
        command = ["sh", "-c", _NOTE, "note-next-job", f"{session.directory}/{NEXT_JOB_FILE}"]
        answer = context.host.run(command, stdin=f"{next_job.as_json()}\n".encode())
        if answer.exit_code != 0:
            raise HostCommandFailed(f"Nothing can be written in {session.directory}.", why=answer.stderr.strip())
    return new, next_job


def as_cluster_time(host: Host, time: datetime) -> str:
    """Return a time as the cluster's clock will show it: its offset may change before then, in spring or autumn."""
    answer = host.run(["date", "-d", f"@{int(time.timestamp())}", "+%Y-%m-%dT%H:%M:%S"])
    shown = answer.stdout.split()[-1:]
    is_time = answer.exit_code == 0 and shown and _LOCAL_TIME.fullmatch(shown[0])
    return shown[0] if is_time else time.strftime("%Y-%m-%dT%H:%M:%S")


_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def withdraw_next_job(host: Host, directory: str, name: str) -> None:
    """Remove ``next_job.json`` from a session's directory, if it names ``name`` as the next session."""
    host.run(["sh", "-c", _WITHDRAW, "withdraw-next-job", f"{directory}/{NEXT_JOB_FILE}", name])


_WITHDRAW = '! grep -qsF -- "$2" "$1" || rm -f -- "$1"'


def withdraw_ended(context: Context, sessions: Iterable[Session]) -> None:
    """Remove the ``next_job.json`` files that name these sessions, which were ended."""
    for session in sessions:
        before = session.record.continues
        if SESSION_ID.fullmatch(before):
            directory = posixpath.join(posixpath.dirname(session.directory), before)
            with contextlib.suppress(LauncherError):  # the job has ended, which matters more
                withdraw_next_job(context.host, directory, session.id)


_NOTE = 'umask 077; cat >"$1.new.$$" && mv -f -- "$1.new.$$" "$1"'


def _files(context: Context, session: Session, new: Session, token: str) -> dict[str, bytes]:
    """Return the files of the next session's directory: its ``session.env`` is that of the first, word for word."""
    settings = context.host.read_file(f"{session.directory}/session.env")
    if settings is None or not token:
        raise HostCommandFailed(
            f"Session {session.id} cannot continue in another job.",
            why=f"{session.directory} no longer has a session.env or a token.",
            hint="repeat the launch with: launch-notebook again",
        )
    text = settings.decode(errors="replace")
    framework = next((line.removeprefix("with=") for line in text.splitlines() if line.startswith("with=")), None)
    more = dict(worker_files(framework, new.id))
    if panel := context.host.read_file(f"{session.directory}/{_PANEL_FILE}"):
        more[_PANEL_FILE] = panel.replace(session.id.encode(), new.id.encode())
    if apps := context.host.read_file(f"{session.directory}/{APPS_FILE}"):
        more[APPS_FILE] = apps
    if not context.scheduler.same_machine:
        more |= new_keys()[1]
    kept = [line for line in text.splitlines() if not line.startswith("continues=")]
    lines = "".join(f"{line}\n" for line in [*kept, f"continues={session.id}"])
    return session_files(new, lines, token, more)
