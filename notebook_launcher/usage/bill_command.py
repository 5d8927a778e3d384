"""The command ``bill``: the usage report of an ended session; it is also shown when a session ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import datetime

from notebook_launcher.core import events
from notebook_launcher.core.errors import HostCommandFailed, LauncherError, SessionNotFound, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.usage_samples import COLUMNS, Sample, read_samples
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import launcher_command
from notebook_launcher.jobs.lookup import choose_on_host, read_session_index, select_session
from notebook_launcher.jobs.session_index import IndexedSession
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import AccountingRecord
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.usage.accounting_wait import complete_answer
from notebook_launcher.usage.bill import Facts, make_bill

QUERY_TIMEOUT = 6.0  # seconds for all queries, including the accounting's final values; a report should not take longer
FILES_TIMEOUT = 3.0  # seconds of these for the session's files
MOST_BYTES = 4 * 1024 * 1024  # the most that is read of usage.csv, which the job keeps much smaller


def show_bill(context: Context, session: Session) -> None:
    """Show the usage report of a session whose job has ended, if it ever ran. No error is raised."""
    try:
        if context.host.alive:
            bill = _bill(context, session)
            if bill is not None:
                context.view.show(bill)
    except LauncherError:
        pass  # the cluster is unreachable or slow, but the session has ended anyway
    except Exception as error:  # a bug
        context.view.show(events.Note(f"The usage report could not be made: {error!r}."))


def bill(target: LaunchTarget, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Show the usage report of an ended session; if ``prefix`` is empty, that of the last one.

    Raises ``SessionNotFound``, also if it never ran or nothing is known about it, and ``UsageError`` if it has not
    ended, or is a job array.
    """
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        entry = _ended_entry(context, prefix)
        session = select_session(context, entry)
        if "array" in session.record.flags:
            raise UsageError(
                f"Session {session.id} is a job array, for which there is no usage report.",
                hint=f"what its tasks used: {launcher_command(context, session, 'report')}",
            )
        found = _bill(context, session)
        if found is None:
            silent = "Neither its files nor the scheduler's accounting tell how long it ran."
            why = silent if _ran(entry) else "It never ran."
            raise SessionNotFound(f"There is no usage report for session {session.id}.", why=why)
        if context.target.profile.price is None and not context.scheduler.same_machine:
            view.show(events.Note("The cost is not known: no price is set here."))
        view.show(found)


# --- which session -------------------------------------------------------------------------------------------


def _ended_entry(context: Context, name: str) -> IndexedSession:
    index = read_session_index(context)
    ran = [entry for entry in index.ended if _ran(entry) and (entry.summary.ended or entry.summary.started)]
    if not name and ran:
        return max(ran, key=lambda entry: datetime.fromisoformat(entry.summary.ended or entry.summary.started or ""))
    entry = choose_on_host(context, index, name, "bill", ended_too=True)
    if entry.live:
        raise UsageError(
            f"Session {entry.session.id} has not ended.",
            why="Its usage report comes when it ends.",
            hint=f"what it uses now: {launcher_command(context, entry.session, 'usage')}",
        )
    return entry


def _ran(entry: IndexedSession) -> bool:
    """Return whether its script began; a scheduler also reports a start for jobs that were cancelled while pending."""
    return entry.record.started is not None


# --- the evidence ----------------------------------------------------------------------------------------------


def _bill(context: Context, session: Session) -> events.Bill | None:
    """Read the session's files, then the accounting, whose final values arrive some seconds after the job's end.

    Sources that do not answer in time are left out. Raises ``ConnectionLost``.
    """
    if session.job is None:
        return None
    deadline = time.monotonic() + QUERY_TIMEOUT
    files = _job_files(context, session)
    return _made(context, session, files, _accounted(context, session, deadline))


def read_bill(context: Context, session: Session, accounted: AccountingRecord | None) -> events.Bill | None:
    """Return the usage report of a session, given the accounting's answer; ``None`` if it never ran."""
    return _made(context, session, _job_files(context, session), accounted)


_Files = tuple[Mapping[str, object], Mapping[str, object], list[Sample]]


def _made(context: Context, session: Session, files: _Files, accounted: AccountingRecord | None) -> events.Bill | None:
    started, ended, samples = files
    wall = _between(started.get("started"), ended.get("ended"))
    if wall is None and samples:
        wall = samples[-1].seconds  # killed, without an exit record
    node = str(started["node"]) if started.get("node") else None
    facts = Facts(accounted, samples, wall, node)
    return make_bill(session.record, job_of(session).id, facts, context.target.profile.price)


_READ = (
    'cd -- "$1" || exit 0; exec 2>/dev/null; '
    'for name in started exit; do echo; printf "%s " "$name"; head -c 65536 "$name.json"; done; '
    'echo; tail -c "$2" usage.csv; exit 0'
)


def _job_files(context: Context, session: Session) -> _Files:
    """Return the content of ``started.json`` and ``exit.json``, and the samples; empty if missing or invalid."""
    command, lines = ["sh", "-c", _READ, "read-bill", session.directory, str(MOST_BYTES)], []
    with contextlib.suppress(HostCommandFailed):  # the file server is not available
        lines = context.host.run(command, timeout=FILES_TIMEOUT).stdout.splitlines()
    files: dict[str, Mapping[str, object]] = {"started": {}, "exit": {}}
    for line in lines:
        name, _, text = line.partition(" ")
        if name in files:
            files[name] = json_object(text)
    samples = read_samples(line for line in lines if line.count(",") >= len(COLUMNS) - 1)
    return files["started"], files["exit"], samples


def _accounted(context: Context, session: Session, deadline: float) -> AccountingRecord | None:
    """Return the accounting of a session's job, complete if its values arrive before the deadline."""
    job = job_of(session)
    command = context.scheduler.accounting(job)
    if command is None:
        return None
    return complete_answer(context, command, lambda answer: context.scheduler.read_accounting(job, answer), deadline)


def _between(started: object, ended: object) -> float | None:
    """Return the seconds between two ISO times of the job's own clock; ``None`` if one is invalid."""
    first, last = parse_iso(str(started)), parse_iso(str(ended))
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return None
    return max(0.0, (last - first).total_seconds())
