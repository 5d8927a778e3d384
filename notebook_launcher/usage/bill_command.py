"""Showing the bill of a session: after its end, and of any that is over."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime

from notebook_launcher.core.errors import HostCommandFailed, LauncherError, SessionNotFound, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.timestamps import moment
from notebook_launcher.core.usage_samples import COLUMNS, Sample, read_samples
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import typed
from notebook_launcher.jobs.lookup import look, play_on
from notebook_launcher.jobs.session_index import Entry, choose
from notebook_launcher.planning.plan import Place
from notebook_launcher.schedulers.base import Accounted
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Stage, Typed, View, job_of
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.usage.bill import Facts, make_bill

PATIENCE = 6.0  # seconds for all that is asked, the accounting's last figures too: nobody waits longer for a bill
FILES_WITHIN = 3.0  # of these, for the session's files
SLOW_AFTER = 1.0  # seconds after which it is said what is waited for
MOST_BYTES = 4 * 1024 * 1024  # of usage.csv, which the job keeps well below that


def show_bill(stage: Stage, session: Session) -> None:
    """Show the bill of a session whose job is gone. Says nothing of one that never ran, and is never an error."""
    try:
        if stage.host.alive:
            bill = _bill(stage, session)
            if bill is not None:
                stage.view.show(bill)
    except LauncherError:
        pass  # the cluster is not reached any more, or takes its time: the session is over all the same
    except Exception as error:  # one of ours
        stage.view.show(events.Noted(f"The bill could not be made: {error!r}."))


def bill(place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Show the bill of a session that is over; without a name, of the last one.

    Raises ``SessionNotFound``, also for one that never ran or of which nobody tells anything, and ``UsageError`` for
    one that has not ended.
    """
    with open_stage(place, view, prompts, interrupts) as stage:
        entry = _ended_entry(stage, prefix)
        session = play_on(stage, entry)
        found = _bill(stage, session)
        if found is None:
            silent = "Neither its files nor the scheduler's accounting tell how long it ran."
            why = silent if _ran(entry) else "It never ran."
            raise SessionNotFound(f"There is no bill for session {session.id}.", why=why)
        view.show(found)


# --- which session -------------------------------------------------------------------------------------------


def _ended_entry(stage: Stage, name: str) -> Entry:
    catalogue = look(stage)
    ran = [entry for entry in catalogue.ended if _ran(entry) and (entry.seen.ended or entry.seen.started)]
    if not name and ran:
        return max(ran, key=lambda entry: datetime.fromisoformat(entry.seen.ended or entry.seen.started or ""))
    entry = choose(catalogue, name, stage.host.label, ended_too=True)
    if entry.live:
        raise UsageError(f"Session {entry.session.id} has not ended.", why="Its bill comes with its end.",
                         mend=f"what it uses now: {typed(stage, entry.session, 'usage')}")  # fmt: skip
    return entry


def _ran(entry: Entry) -> bool:
    """Whether its script began; a scheduler tells a start also of what was cancelled while it waited."""
    return entry.record.started is not None


# --- what is found out ---------------------------------------------------------------------------------------


def _bill(stage: Stage, session: Session) -> events.Bill | None:
    """Ask the session's directory, then the accounting: it gets its last figures some seconds after the job's end.

    What does not answer in time is left out. Raises ``ConnectionLost``.
    """
    if session.job is None:
        return None
    deadline = time.monotonic() + PATIENCE
    started, ended, samples = _told_by_the_job(stage, session)
    accounted = _accounted(stage, session, deadline)
    wall = _between(started.get("started"), ended.get("ended"))
    if wall is None and samples:
        wall = samples[-1].seconds  # killed, without a word
    node = str(started["node"]) if started.get("node") else None
    facts = Facts(accounted, samples, wall, node)
    return make_bill(session.record, job_of(session).id, facts, stage.place.profile.price)


_READ = (
    'cd -- "$1" || exit 0; exec 2>/dev/null; '
    'for name in started exit; do echo; printf "%s " "$name"; head -c 65536 "$name.json"; done; '
    'echo; tail -c "$2" usage.csv; exit 0'
)


def _told_by_the_job(stage: Stage, session: Session) -> tuple[Mapping[str, object], Mapping[str, object], list[Sample]]:
    """Return ``started.json``, ``exit.json`` and the samples, with one command; what makes no sense is empty."""
    words, lines = ["sh", "-c", _READ, "read-bill", session.directory, str(MOST_BYTES)], []
    with contextlib.suppress(HostCommandFailed):  # the file server is away
        lines = stage.host.run(words, timeout=FILES_WITHIN).stdout.splitlines()
    told: dict[str, Mapping[str, object]] = {"started": {}, "exit": {}}
    for line in lines:
        name, _, text = line.partition(" ")
        if name in told:
            told[name] = json_object(text)
    samples = read_samples(line for line in lines if line.count(",") >= len(COLUMNS) - 1)
    return told["started"], told["exit"], samples


def _accounted(stage: Stage, session: Session, deadline: float) -> Accounted | None:
    """Ask the accounting, and again while its figures are not complete; between two answers ENTER or Ctrl-C ends that.

    Returns what it told last, where its database does not answer any more.
    """
    job = job_of(session)
    command = stage.scheduler.accounting(job)
    if command is None:
        return None
    told, pause = None, 0.5
    with _said_if_slow(stage.view), contextlib.suppress(HostCommandFailed):  # no answer in time
        while (left := deadline - time.monotonic()) > 0:
            answer = stage.host.run(command, login_shell=True, timeout=left)
            newest = stage.scheduler.read_accounting(job, answer)
            told = newest or told
            if newest is None or newest.complete or time.monotonic() + pause > deadline:
                break
            if _tired_within(stage.interrupts.inbox, pause):
                break
            pause = min(2 * pause, 1.5)
    return told


@contextlib.contextmanager
def _said_if_slow(view: View) -> Iterator[None]:
    """Say what is waited for, where it is not there in a moment."""
    slow = threading.Timer(SLOW_AFTER, view.show, (events.Asking("asking the scheduler's accounting"),))
    slow.daemon = True
    slow.start()
    try:
        yield
    finally:
        slow.cancel()


def _tired_within(inbox: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait that long, or until the user types or interrupts; what else happens is of no interest now."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while True:
            if isinstance(inbox.get(timeout=max(0.0, deadline - time.monotonic())), Interrupt | Typed):
                return True
    return False


def _between(started: object, ended: object) -> float | None:
    """Return the seconds between two moments of the job's own clock, in ISO; ``None`` for what are none."""
    first, last = moment(str(started)), moment(str(ended))
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return None
    return max(0.0, (last - first).total_seconds())
