"""What an attached launcher does about the next job: when it queues one, what it believes, when it hands over."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, PartitionRefused
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.view import Typed
from notebook_launcher.jobs.messages import DirectoryRemoved, NextJobReported, RenewalRequested
from notebook_launcher.jobs.next_job import NextJob
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session, SessionRecord
from notebook_launcher.supervision import renewal
from notebook_launcher.supervision.next_job_watch import Lost
from notebook_launcher.supervision.renewal import Renewal, keep_input
from tests.doubles import RecordingView, wait_until

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
END = NOW + timedelta(hours=1)
FIRST, NEXT = "20261121-115707-kabr", "20261121-120000-3pi3"
FLAGS: dict[str, str | None] = {"time": "2:00:00"}


def session(name: str, job: str, continues: str = "") -> Session:
    record = SessionRecord(name, NOW, "slurm", FLAGS, "/log", continues=continues)
    return Session(record, f"/s/{name}", JobRef(job))


@dataclass
class OwnContext:
    """What of a context is used here."""

    view: RecordingView
    host: Any
    target: Any
    interrupts: Interrupts
    clock: Callable[[], datetime] = lambda: NOW


class Attached:
    """A launcher that is attached to the first session; ``answers``: what becomes of a submission."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view, interrupts = RecordingView(), Interrupts()
        self.inbox = interrupts.inbox
        self.files = {f"/s/{NEXT}/session.json": session(NEXT, "8", FIRST).record.as_json()}
        self.submitted = 0
        self.refusal: Exception | None = None
        self.watched: list[Session] = []
        self.ran: list[list[str]] = []
        self.removes = CommandResult(0)
        self.faults: list[Exception] = []  # of the next attempts to read a file
        host = SimpleNamespace(read_file=self.read_file, run=self.run)
        target = SimpleNamespace(arguments=lambda: [])
        self.context = cast("Any", OwnContext(self.view, host, target, interrupts))
        self.cancelled: list[Session] = []
        self.may_queue = threading.Event()
        self.may_queue.set()
        monkeypatch.setattr(renewal, "NextJobWatch", self.watch)
        monkeypatch.setattr(renewal, "cancel_apart", lambda _context, gone: self.cancelled.append(gone))
        monkeypatch.setattr(renewal, "cancel_job", lambda _context, gone: self.cancelled.append(gone))
        monkeypatch.setattr(renewal, "READ_AGAIN", 0.01)
        monkeypatch.setattr(renewal, "queue_next_job", self.queue_next_job)
        self.renewal = Renewal(self.context, session(FIRST, "7"), Access("token", lambda: pytest.fail("no keys")))

    def read_file(self, path: str) -> bytes | None:
        if self.faults:
            raise self.faults.pop(0)
        return self.files.get(path, "").encode() or None

    def run(self, command: list[str]) -> CommandResult:
        self.ran.append(command)
        return self.removes

    def watch(self, _context: object, following: Session, access: Access, _begins: object) -> SimpleNamespace:
        assert access.token == "token"
        self.watched.append(following)
        return SimpleNamespace(close=lambda: None)

    def queue_next_job(self, *_arguments: object, named: Callable[[Session], None]) -> tuple[Session, NextJob]:
        self.submitted += 1
        named(session(NEXT, "8", FIRST))
        assert self.may_queue.wait(30)
        if self.refusal:
            raise self.refusal
        return session(NEXT, "8", FIRST), NextJob(NEXT, JobRef("8"), END)

    def report(self, written: dict[str, object]) -> None:
        """Let the session's directory say that there is a next job, and handle what becomes of that."""
        self.renewal.handle(NextJobReported(written))
        wait_until(lambda: not self.renewal._reading, 30, "its record is read")
        while not self.inbox.empty():
            self.renewal.handle(self.inbox.get_nowait())

    @property
    def gone(self) -> str:
        """What is said of next jobs that are gone."""
        return "\n".join(event.text for event in self.view.all(events.NextJobGone))

    def is_withdrawn(self) -> None:
        told = [f"/s/{FIRST}/next_job.json", NEXT]
        wait_until(lambda: [command[-2:] for command in self.ran] == [told], 30, "the file is removed")

    def handle_next(self) -> None:
        """Handle what the thread reports: a note, and how it ended."""
        for _ in range(2):
            self.renewal.handle(self.inbox.get(timeout=30))


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Attached:
    return Attached(monkeypatch)


def asked(at: datetime) -> RenewalRequested:
    return RenewalRequested({"version": 1, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}"})


def test_one_job_is_queued_by_itself_at_a_time(attached: Attached) -> None:
    attached.renewal.left = 2
    attached.renewal.tick(None)  # its end is not known yet
    assert attached.submitted == 0
    attached.renewal.tick(END)
    attached.renewal.tick(END)
    attached.handle_next()
    attached.renewal.tick(END)
    told = attached.view.one(events.Renewed)
    assert (told.session, told.job, told.continues) == (NEXT, "8", FIRST)
    assert (attached.submitted, attached.renewal.left, len(attached.watched)) == (1, 1, 1)


def test_a_refusal_is_told_once_and_ends_the_renewals(attached: Attached) -> None:
    attached.renewal.left = 2
    attached.refusal = PartitionRefused("There is no partition gpu.")
    attached.renewal.tick(END)
    attached.handle_next()
    attached.renewal.tick(END)
    assert "was not queued: There is no partition gpu." in attached.view.notes and "renew" in attached.view.notes
    assert attached.submitted == 1


def test_the_page_is_answered_once_and_not_an_hour_later(attached: Attached) -> None:
    attached.renewal.tick(END)
    attached.renewal.handle(asked(NOW - timedelta(hours=1)))
    attached.renewal.handle(RenewalRequested({"at": ["x"]}))
    assert attached.submitted == 0
    for _ in range(2):  # a watcher that was started again reports everything again
        attached.renewal.handle(asked(NOW))
    attached.handle_next()
    attached.renewal.handle(asked(NOW))
    assert attached.submitted == 1
    assert attached.ran == [["rm", "--", f"/s/{FIRST}/renew.json"]]


def test_of_several_attached_launchers_one_answers_the_page(attached: Attached) -> None:
    attached.renewal.tick(END)
    attached.removes = CommandResult(1, stderr="rm: cannot remove: No such file or directory")
    attached.renewal.handle(asked(NOW))
    attached.renewal.handle(attached.inbox.get(timeout=30))
    assert attached.submitted == 0 and attached.view.events == []
    attached.renewal.left = 1
    attached.renewal.tick(END)  # it goes on to act by itself
    attached.handle_next()
    assert attached.submitted == 1


@pytest.mark.parametrize(
    "data", [{}, {"session": "../x", "job": "8"}, {"session": FIRST, "job": "8"}, {"session": NEXT, "job": "$(id)"}]
)
def test_no_other_session_is_taken_for_the_next_one(attached: Attached, data: dict[str, object]) -> None:
    attached.report(data)
    assert attached.watched == []


def test_one_that_was_queued_elsewhere_is_followed(attached: Attached) -> None:
    written = json.loads(NextJob(NEXT, JobRef("8"), None).as_json())
    attached.files[f"/s/{NEXT}/session.json"] = session(NEXT, "8", "").record.as_json()
    attached.report(written)
    assert attached.watched == [], "it does not say that it goes on from this one"
    attached.files[f"/s/{NEXT}/session.json"] = session(NEXT, "8", FIRST).record.as_json()
    attached.faults = [HostCommandFailed("cat did not answer within 90 s.")]  # it is read again, and on a thread
    for _ in range(2):
        attached.report(written)
    assert [one.id for one in attached.watched] == [NEXT]
    assert not attached.renewal.has_begun()
    attached.files[f"/s/{NEXT}/endpoint.json"] = "{}"
    assert attached.renewal.has_begun()


@pytest.mark.parametrize("runs", [False, True])
def test_a_job_that_is_gone_is_told_with_what_to_type(attached: Attached, runs: bool) -> None:
    attached.report({"session": NEXT, "job": "8"})
    attached.renewal.handle(Lost(attached.renewal._watch, "some reason.", runs))  # type: ignore[arg-type]
    assert f"The next job, 8, is {'being cancelled' if runs else 'gone'}: some reason." in attached.gone
    assert "renew kabr" in attached.gone and attached.renewal.next_session is None
    attached.is_withdrawn()
    assert [one.id for one in attached.cancelled] == ([NEXT] if runs else [])
    attached.report({"session": NEXT, "job": "8"})  # by a watcher that read it before
    assert len(attached.watched) == 1


def test_a_request_of_the_page_waits_until_the_end_is_known(attached: Attached) -> None:
    attached.renewal.handle(asked(NOW))
    attached.renewal.tick(None)
    assert attached.submitted == 0
    attached.renewal.tick(END)
    attached.handle_next()
    assert attached.submitted == 1 and len(attached.watched) == 1


def test_an_end_that_is_put_off_cancels_the_next_job(attached: Attached) -> None:
    begins = END - timedelta(minutes=5)
    attached.report(json.loads(NextJob(NEXT, JobRef("8"), begins).as_json()))
    attached.renewal.tick(END)
    attached.renewal.tick(END + timedelta(minutes=1))  # it is not known to the second
    assert attached.cancelled == []
    attached.renewal.tick(END + timedelta(hours=1))
    assert [one.id for one in attached.cancelled] == [NEXT] and attached.renewal.next_session is None
    assert "is being cancelled: it would begin too early" in attached.gone
    attached.is_withdrawn()


def test_what_is_being_queued_and_not_wanted_is_cancelled_once_it_is_there(attached: Attached) -> None:
    attached.may_queue.clear()
    attached.renewal.left = 1
    attached.renewal.tick(END)
    wait_until(lambda: attached.submitted == 1, 30, "it is being queued")
    attached.renewal.drop()
    attached.report({"session": NEXT, "job": "8"})  # its file comes before
    assert attached.cancelled == [] and attached.watched == []
    attached.may_queue.set()
    attached.renewal.handle(attached.inbox.get(timeout=30))
    assert [one.id for one in attached.cancelled] == [NEXT] and attached.watched == []


@pytest.mark.parametrize("ends", [False, True])
def test_what_is_being_queued_is_waited_for_at_the_end(attached: Attached, ends: bool) -> None:
    """When the user detaches it stays, and is told; when the session ends it is cancelled."""
    attached.may_queue.clear()
    attached.renewal.left = 1
    attached.renewal.tick(END)
    threading.Timer(0.1, attached.may_queue.set).start()
    attached.renewal.give_up() if ends else attached.renewal.left_queued()
    assert "The next job is still being queued;" in attached.view.notes
    assert [one.id for one in attached.cancelled] == ([NEXT] if ends else [])
    assert ends or "stop 3pi3" in attached.view.notes


@pytest.mark.parametrize("left", [0, 2])
def test_who_detaches_is_told_that_no_further_job_is_queued(attached: Attached, left: int) -> None:
    attached.renewal.left = left
    attached.renewal.left_queued()
    assert ("--renew queues no further job" in attached.view.notes) is bool(left)


def test_what_may_have_been_queued_is_named(attached: Attached) -> None:
    attached.may_queue.clear()
    attached.renewal.left = 1
    attached.renewal.tick(END)
    wait_until(lambda: attached.submitted == 1, 30, "it is being queued")
    attached.renewal.left_queued(0.0)
    attached.may_queue.set()
    assert "It is not known whether the next job was queued." in attached.view.notes
    assert "stop 3pi3" in attached.view.notes


def test_what_the_user_wants_is_kept_when_the_job_changes() -> None:
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    for item in (DirectoryRemoved(), Typed("d"), asked(NOW), Interrupt("end")):
        inbox.put(item)
    keep_input(inbox)
    assert [inbox.get_nowait(), inbox.get_nowait()] == [Typed("d"), Interrupt("end")] and inbox.empty()
