"""The stories of sessions, with real jobs of the local scheduler: a list, an end of several, an offer."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher import sessions
from notebook_launcher.core import events
from notebook_launcher.core import local_state as state
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import CancelFailed, Interrupted, SessionNotFound, SubmitUncertain, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import LaunchTarget, Plan, SchedulerName
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.local import Local
from notebook_launcher.session import connect
from notebook_launcher.session.connect import open_context
from notebook_launcher.session.record import Session, new_session, write_session
from tests.doubles import FakePrompts, RecordingHost, RecordingView, wait_until
from tests.session_directories import name_of, plant
from tests.unit.conftest import SetTiming

pytestmark = pytest.mark.real_time  # real jobs of the local scheduler

HOST = LocalHost()
NOW = datetime.now().astimezone()


class ShownSessions(RecordingView):
    """A view that tells of the sessions that it was shown."""

    @property
    def seen(self) -> dict[str, str]:
        """The states of the sessions that were listed."""
        return {event.session: event.state for event in self.all(events.SessionEntry)}

    @property
    def ended(self) -> set[str]:
        return {event.session for event in self.all(events.Ended)}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> RecordingHost:
    host = RecordingHost()
    monkeypatch.setattr(connect, "open_host", lambda *_: host)
    return host


class SlurmHost(RecordingHost):
    """The same with a Slurm that answers so; what is not told fails as for a job that it does not know."""

    def __init__(self) -> None:
        super().__init__(self.answer_as_slurm)
        self.own = self.by_id = self.names = ""  # what squeue tells with --me, with --jobs, and of names
        self.history = ""  # what sacct tells of one job
        self.asked_history = 0
        self.silent = ""  # a cluster of which squeue learns nothing
        self.refuses: list[str] = []  # what scancel says, one word after the other
        self.cancelled: list[str] = []

    def answer_as_slurm(self, argv: list[str]) -> CommandResult | None:
        command = " ".join(argv)
        if "scancel" in command:
            self.cancelled.append(command)
            said = self.refuses.pop(0) if self.refuses else ""
            return CommandResult(1 if said else 0, stderr=said)
        if "squeue" in command:
            if self.silent and self.silent in command:
                return CommandResult(1, stderr="slurm_load_jobs error: Unable to contact slurm controller")
            if "%j" in command:
                return CommandResult(0, self.names)
            if "--me" in command:
                return CommandResult(0, self.own)
            if not self.by_id:
                return CommandResult(1, stderr="slurm_load_jobs error: Invalid job id specified")
            return CommandResult(0, self.by_id)
        if "sacct" in command and self.history:
            self.asked_history += 1
            return CommandResult(0, f"{self.history}\n--answered-- 0\n")
        return CommandResult(1) if "sacct" in command else None


def squeue_row(job: str, state: str) -> str:
    return f"{job}|{state}|core|n1|2026-11-21T12:00:00|2026-11-21T14:00:00|course|normal|2:00:00|None\n"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> SlurmHost:
    host = SlurmHost()
    monkeypatch.setattr(connect, "open_host", lambda *_: host)
    return host


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Queue local jobs that only sleep."""

    def submit(begin: str = "", walltime: str = "0:10:00") -> Session:
        request = Request({"time": walltime, **({"begin": begin} if begin else {})})
        session = new_session(
            str(tmp_path),
            request,
            scheduler="local",
            cluster=None,
            host=None,
            environment="mine",
            now=datetime.now().astimezone(),
        )
        write_session(HOST, session, "", "token", {})
        Path(session.submission.script).write_text("exec sleep 300\n")
        command = Local(str(tmp_path)).submit(request, session.submission)
        assert HOST.run(["bash", f"{session.directory}/submit.sh", session.directory, *command]).exit_code == 0
        return session

    yield submit
    for script in tmp_path.glob("*/local.sh"):
        HOST.run(["bash", str(script), "cancel", "--root", str(tmp_path), script.parent.name])


def target(root: Path, scheduler: SchedulerName = "local") -> LaunchTarget:
    return LaunchTarget(ClusterProfile(session_root=str(root)), None, None, scheduler)


def listed(root: Path, scheduler: SchedulerName = "local", *, every: bool = False) -> ShownSessions:
    view = ShownSessions()
    sessions.list_sessions(target(root, scheduler), view, FakePrompts(), Interrupts(), every=every)
    return view


def stop(
    root: Path, *names: str, prompts: Prompts | None = None, every: bool = False, sure: bool = False
) -> ShownSessions:
    view = ShownSessions()
    sessions.stop(target(root), names, view, prompts or FakePrompts(), Interrupts(), every=every, sure=sure)
    return view


def end_of(session: Session) -> str:
    """The end of its name, where that may stand for it: four digits may not."""
    return session.id if session.id[-4:].isdecimal() else session.id[-4:]


# --- listing -------------------------------------------------------------------------------------------------


def test_an_empty_place_costs_one_look(tmp_path: Path, host: RecordingHost) -> None:
    view = listed(tmp_path / "nothing here")
    assert (view.seen, view.one(events.ListDone).active, view.one(events.ListDone).unreadable) == ({}, 0, ())
    assert [command[0] for command in host.ran] == ["sh", "bash"]  # the look at the place, and at its sessions


def test_where_nothing_is_here_the_profiles_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    assert listed(tmp_path / "nothing here").notes == ""
    (tmp_path / "clusters").mkdir()
    for name in ("uni", "alvis"):
        (tmp_path / "clusters" / f"{name}.toml").write_text("")
    assert "alvis, uni" in (noted := listed(tmp_path / "nothing here").notes)
    assert noted.endswith("\n  launch-notebook list --cluster alvis")


def test_each_session_is_asked_for_where_it_was_queued(tmp_path: Path, submit: Callable[..., Session]) -> None:
    """A place whose scheduler is Slurm, which does not answer, has two local ones, and one of Slurm's."""
    runs, waits = submit(), submit(begin="now+1hour")
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW)
    view = listed(tmp_path, "slurm")
    assert view.seen == {runs.id: "starting", waits.id: "pending", name_of(NOW, 1): "unknown"}
    assert view.one(events.ListDone).active == 3


def test_what_ended_long_ago_is_counted_and_what_is_damaged_named(tmp_path: Path) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW - timedelta(hours=23))
    plant(tmp_path, name_of(NOW, 2), NOW, ended=NOW - timedelta(hours=25))
    plant(tmp_path, name_of(NOW, 3), NOW)
    (tmp_path / name_of(NOW, 3) / "session.json").write_text("{")
    view = listed(tmp_path)
    assert view.seen == {name_of(NOW, 1): "ended"}
    assert (
        view.one(events.ListDone).ended,
        view.one(events.ListDone).hidden,
        view.one(events.ListDone).unreadable,
    ) == (2, 1, (name_of(NOW, 3),))
    assert set(listed(tmp_path, every=True).seen) == {name_of(NOW, 1), name_of(NOW, 2)}


def test_the_live_ones_come_first_and_are_completed_on_tab(tmp_path: Path, submit: Callable[..., Session]) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW)
    session = submit(begin="now+1hour")
    assert list(listed(tmp_path).seen) == [session.id, name_of(NOW, 1)]
    about = dict(state.known_sessions())
    assert set(about) == {session.id, name_of(NOW, 1)} and "waits" in about[session.id]


def test_a_list_tidies_up(tmp_path: Path, submit: Callable[..., Session]) -> None:
    long_ago = NOW - timedelta(days=40)
    plant(tmp_path, name_of(long_ago, 1), long_ago, ended=long_ago)
    plant(tmp_path, name_of(long_ago, 2), long_ago, scheduler="local", job=name_of(long_ago, 2), secrets=True)
    plant(tmp_path, name_of(long_ago, 4), long_ago, started=long_ago, secrets=True)  # of a Slurm that does not answer
    write_session(
        HOST,
        new_session(str(tmp_path), Request({}), scheduler="local", cluster=None, host=None, environment=None, now=NOW),
        "",
        "token",
        {},
    )
    live = submit()
    listed(tmp_path)
    assert not (tmp_path / name_of(long_ago, 1)).exists()
    assert (tmp_path / live.id / "token").exists()
    assert (tmp_path / name_of(long_ago, 4) / "token").exists()
    stop(tmp_path, live.id)
    listed(tmp_path)
    assert not (tmp_path / live.id / "token").exists() and (tmp_path / live.id / "session.json").exists()
    assert (tmp_path / name_of(long_ago, 2)).exists(), "whose local.sh is gone: nobody says that its job is forgotten"


@pytest.mark.parametrize("own", ["", squeue_row("7", "REVOKED")], ids=["not shown", "revoked"])
def test_a_job_on_another_cluster_of_a_federation_keeps_its_secrets(tmp_path: Path, slurm: SlurmHost, own: str) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW, listens=True, secrets=True)
    slurm.own, slurm.by_id = own, squeue_row("7", "RUNNING")
    assert listed(tmp_path, "slurm").seen == {name_of(NOW, 1): "running"}
    slurm.by_id = squeue_row("7", "REVOKED")
    assert listed(tmp_path, "slurm").seen == {name_of(NOW, 1): "unknown"}
    assert (tmp_path / name_of(NOW, 1) / "token").exists()


def test_the_accounting_tells_when_a_job_was_cancelled_that_never_ran(tmp_path: Path, slurm: SlurmHost) -> None:
    """Minutes after its end, when the queue has forgotten it; nobody's launcher cancelled it."""
    cancelled = plant(tmp_path, name_of(NOW, 1), NOW, secrets=True)
    at = (NOW + timedelta(minutes=3)).astimezone(timezone.utc).replace(microsecond=0)
    slurm.history = f"7|CANCELLED by 2001|0:0|None assigned|None|{at:%Y-%m-%dT%H:%M:%S}"
    entry = listed(tmp_path, "slurm", every=True).one(events.SessionEntry)
    ended = datetime.fromisoformat(entry.ended or "")
    assert (entry.state, entry.detail, ended) == ("ended", "cancelled", at)
    assert not (cancelled / "token").exists() and slurm.asked_history == 1
    # its id was another job's before
    slurm.history = f"7|CANCELLED by 2001|0:0|None assigned|None|{NOW - timedelta(days=300):%Y-%m-%dT%H:%M:%S}"
    assert listed(tmp_path, "slurm", every=True).seen == {name_of(NOW, 1): "gone"}


def test_a_cluster_that_is_silent_is_so_after_the_accounting_of_another_too(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW)
    runs = plant(tmp_path, name_of(NOW, 2), NOW, started=NOW, secrets=True, job="8;snowy", flags={"clusters": "snowy"})
    at = (NOW + timedelta(minutes=3)).astimezone(timezone.utc)
    slurm.silent, slurm.history = "snowy", f"7|CANCELLED by 2001|0:0|None assigned|None|{at:%Y-%m-%dT%H:%M:%S}"
    seen = listed(tmp_path, "slurm", every=True).seen
    assert seen == {name_of(NOW, 1): "ended", name_of(NOW, 2): "unknown"}
    assert (runs / "token").exists()


def test_what_a_launcher_recorded_needs_no_accounting(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, cancelled=NOW.isoformat(timespec="seconds"))
    slurm.history = "7|CANCELLED by 2001|0:0|None assigned|None|Unknown"
    entry = listed(tmp_path, "slurm", every=True).one(events.SessionEntry)
    assert (entry.state, entry.detail, slurm.asked_history) == ("gone", "cancelled", 0)
    assert datetime.fromisoformat(entry.ended or "") == NOW.replace(microsecond=0)


def test_the_secrets_of_those_that_are_gone_are_removed(tmp_path: Path, slurm: SlurmHost) -> None:
    """Also where the first of them has a scheduler that does not answer, or the queue has its job after all."""
    gone, local = name_of(NOW, 1), name_of(NOW, 2)
    before = NOW - timedelta(days=2)
    lost, queued, new = name_of(before, 3), name_of(before, 4), name_of(NOW, 5)
    long_ago = NOW - timedelta(days=40)
    forgotten = [name_of(long_ago, number) for number in range(10, 35)]
    plant(tmp_path, gone, NOW, started=NOW, secrets=True)
    plant(tmp_path, local, NOW, job=local, scheduler="local", started=NOW, secrets=True)  # without its local.sh
    for name, at in ((lost, before), (queued, before), (new, NOW)):
        plant(tmp_path, name, at, job=None, secrets=True)
    for name in forgotten:
        plant(tmp_path, name, long_ago, job=None, secrets=True)
    plant(tmp_path, name_of(long_ago, 99), long_ago, job="9", started=long_ago)
    slurm.names = f"8|{queued}|/x/{queued}/jupyterlab.sh\n"
    listed(tmp_path, "slurm")
    listed(tmp_path, "slurm")
    kept = {path.parent.name for path in tmp_path.glob("*/token")}
    assert kept == {local, queued, new}
    assert not [name for name in (*forgotten, name_of(long_ago, 99)) if (tmp_path / name).exists()]
    assert (tmp_path / gone / "session.json").exists() and (tmp_path / lost / "session.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_list_says_why_all_are_damaged(tmp_path: Path) -> None:
    directory = plant(tmp_path, name_of(NOW, 1), NOW, secrets=True, ended=NOW - timedelta(days=90))
    os.chown(directory, 65534, 65534)
    view = listed(tmp_path)
    assert view.one(events.ListDone).unreadable == (name_of(NOW, 1),) and "are somebody else's" in view.notes
    assert (directory / "token").exists()


def test_a_queue_that_tells_nothing_removes_nothing(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW, secrets=True)
    slurm.by_id = "a wrapper that says nothing of jobs\n"
    listed(tmp_path, "slurm")
    assert (tmp_path / name_of(NOW, 1) / "token").exists()


# --- ending --------------------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_a_queue_that_tells_nothing_is_no_end(tmp_path: Path, slurm: SlurmHost, set_timing: SetTiming) -> None:
    """Nor is a cancel that one of two clusters refused a good one."""
    set_timing(cancel_within=1.0)
    for number, job in enumerate(("7", "8;snowy")):
        plant(tmp_path, name_of(NOW, number), NOW, job=job, started=NOW, listens=True)
    slurm.own = squeue_row("7", "RUNNING") + squeue_row("8", "RUNNING")
    slurm.by_id = "a wrapper that says nothing of jobs\n"

    def refuse() -> CancelFailed:
        with pytest.raises(CancelFailed) as caught:
            stop(tmp_path, name_of(NOW, 0), name_of(NOW, 1), sure=True)
        return caught.value

    slurm.refuses = ["scancel: error: Access denied"]
    assert "Access denied" in refuse().why
    slurm.own = ""
    error = refuse()
    assert "2 of 2 sessions may still be there" in error.what and "does not show job" in error.why
    slurm.by_id = ""
    plant(tmp_path, name_of(NOW, 3), NOW, job="9", started=NOW)
    assert len(stop(tmp_path, *(name_of(NOW, number) for number in (0, 1, 3)), sure=True).ended) == 3


@pytest.mark.parametrize("several", [False, True])
def test_a_job_on_another_cluster_of_a_federation_is_gone_when_it_has_said_so(
    tmp_path: Path, slurm: SlurmHost, monkeypatch: pytest.MonkeyPatch, set_timing: SetTiming, several: bool
) -> None:
    set_timing(cancel_within=1.0)
    names = [name_of(NOW, number) for number in range(1 + several)]
    for number, name in enumerate(names):
        plant(tmp_path, name, NOW, job=str(7 + number), started=NOW, listens=True)
    slurm.by_id = squeue_row("7", "REVOKED") + squeue_row("8", "REVOKED")
    with pytest.raises(CancelFailed):
        stop(tmp_path, *names, sure=True)
    cancel = slurm.cancelled.append

    def cancelled(command: str) -> None:
        cancel(command)
        for name in names:
            (tmp_path / name / "exit.json").write_text("{}")

    monkeypatch.setattr(slurm, "cancelled", type("", (), {"append": staticmethod(cancelled)}))
    assert stop(tmp_path, *names, sure=True).ended == set(names)


def test_an_empty_word_ends_nothing(tmp_path: Path, submit: Callable[..., Session]) -> None:
    submit()
    for names in (("",), ("x", "")):
        with pytest.raises(UsageError, match="empty"):
            stop(tmp_path, *names)
    assert listed(tmp_path).one(events.ListDone).active == 1


@pytest.mark.real_time
def test_one_without_a_job_does_not_hold_up_the_others(tmp_path: Path, submit: Callable[..., Session]) -> None:
    lost, one, other = submit().id, submit().id, submit().id
    stop(tmp_path, lost)
    for name in (lost, other):
        (tmp_path / name / "job").unlink()
    (tmp_path / lost / "exit.json").unlink(missing_ok=True)
    view = ShownSessions()
    with pytest.raises(SubmitUncertain, match=lost):
        sessions.stop(target(tmp_path), [lost, one, other], view, FakePrompts(confirms=[True]), Interrupts())
    assert view.ended == {one, other}


def test_all_are_those_as_well_whose_job_was_never_noted(tmp_path: Path, slurm: SlurmHost) -> None:
    one, other, lost = (name_of(NOW, number) for number in (1, 2, 3))
    for name in (one, other, lost):
        plant(tmp_path, name, NOW, job=None)
    slurm.names = f"7|{one}|x\n8|mine|/x/{other}/jupyterlab.sh\n"
    assert stop(tmp_path, every=True, sure=True).ended == {one, other}
    assert sum("%j" in " ".join(command) for command in slurm.ran) == 1, "one question for all"


@pytest.mark.real_time
def test_all_are_ended_side_by_side(tmp_path: Path, host: RecordingHost, submit: Callable[..., Session]) -> None:
    three = {submit().id, submit().id, submit(begin="now+1hour").id}
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW)
    person = FakePrompts(confirms=[True])
    began = time.monotonic()
    view = stop(tmp_path, every=True, prompts=person)
    print(f"three local sessions ended in {time.monotonic() - began:.2f} s")
    assert view.ended == three
    assert "".join(person.asked).count("starts") == 2 and "".join(person.asked).count("waits") == 1
    assert "End these 3 sessions?" in "".join(person.asked)
    assert sum("cancel" in command for command in host.ran) == 1
    assert set(listed(tmp_path).seen.values()) == {"ended"}


def test_a_no_ends_nothing(tmp_path: Path, submit: Callable[..., Session]) -> None:
    one, other = submit(), submit()
    view = stop(tmp_path, one.id, end_of(other), prompts=FakePrompts(confirms=[False]))
    assert view.ended == set() and "Nothing was ended." in view.notes
    assert listed(tmp_path).one(events.ListDone).active == 2


@pytest.mark.parametrize("how", ["--yes", "no terminal"])
def test_nobody_is_asked(tmp_path: Path, submit: Callable[..., Session], how: str) -> None:
    one, other = submit(), submit()
    view = stop(tmp_path, every=True, sure=how == "--yes", prompts=FakePrompts(asks=how == "--yes"))
    assert view.ended == {one.id, other.id}


@pytest.mark.real_time
def test_what_has_ended_already_is_no_error(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit()
    assert stop(tmp_path).ended == {session.id}
    for word in (session.id, end_of(session)):
        view = stop(tmp_path, word)
        assert view.ended == set() and "has ended already" in view.notes
    assert "no active session" in stop(tmp_path, every=True).notes
    with pytest.raises(SessionNotFound):
        stop(tmp_path)


@pytest.mark.real_time
def test_two_stops_at_once_do_not_disturb_each_other(tmp_path: Path, submit: Callable[..., Session]) -> None:
    three = {submit().id for _ in range(3)}
    ended: list[set[str]] = []
    both = [threading.Thread(target=lambda: ended.append(stop(tmp_path, every=True, sure=True).ended)) for _ in "12"]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
    assert len(ended) == 2 and ended[0] | ended[1] == three


# --- before another one is launched --------------------------------------------------------------------------


def offer(root: Path, person: FakePrompts, *, always_new: bool = False) -> tuple[bool, ShownSessions]:
    view = ShownSessions()
    plan = Plan(target(root), Request({}), None, Environment(), None, always_new=always_new)
    with open_context(plan.target, view, person, Interrupts()) as context:
        return sessions.offer_existing_session(plan, context), view


def test_whoever_has_no_session_pays_one_command(tmp_path: Path, host: RecordingHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW, secrets=True)
    long_ago = NOW - timedelta(days=9)
    plant(tmp_path, name_of(long_ago, 2), long_ago)
    wanted, view = offer(tmp_path, FakePrompts())
    assert not wanted and view.events == []
    assert len(host.ran) == 2  # the look at the place, and this one


def test_a_no_launches_another_one(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit(begin="now+1hour")
    submit()
    person = FakePrompts(confirms=[False])
    assert offer(tmp_path, person)[0] is False
    assert "starts on" in "".join(person.asked) and "(1 more: launch-notebook list)" in "".join(person.asked)
    assert session.id not in "".join(person.asked) and "Connect to it instead" in "".join(person.asked)


def test_the_one_with_the_most_time_left_is_offered(tmp_path: Path, submit: Callable[..., Session]) -> None:
    submit(walltime="0:01:00")
    assert offer(tmp_path, FakePrompts(confirms=[False]))[1].events == [], "it is as good as over"
    longest = submit(walltime="0:30:00")
    submit()
    person = FakePrompts(confirms=[False])
    assert offer(tmp_path, person)[0] is False
    assert longest.id in "".join(person.asked) and "(1 more" in "".join(person.asked)


@pytest.mark.parametrize("how", ["--new", "no terminal"])
def test_it_is_only_told(tmp_path: Path, submit: Callable[..., Session], how: str) -> None:
    session = submit()
    wanted, view = offer(tmp_path, FakePrompts(asks=how == "--new"), always_new=how == "--new")
    assert not wanted
    sentence, command = view.notes.split("\n")
    name = end_of(session)
    assert command.startswith("  ") and command.endswith(f" connect {name}") and "10 min left" in sentence


def test_neither_yes_nor_no_launches_nothing(tmp_path: Path, submit: Callable[..., Session]) -> None:
    submit()
    with pytest.raises(Interrupted, match="neither yes nor no") as caught:
        offer(tmp_path, FakePrompts(confirms=[None]))
    assert caught.value.why == "No job was started."


def test_a_terminal_of_ours_is_not_offered(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit()
    path = tmp_path / session.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "shell"}))
    assert offer(tmp_path, FakePrompts())[0] is False


@pytest.mark.parametrize("story", [sessions.connect, sessions.open_session])
def test_a_terminal_of_ours_has_nothing_to_connect_to(
    tmp_path: Path, submit: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, story: Callable[..., None]
) -> None:
    """Without a name it is not meant where there is a session with JupyterLab; alone, or named, it is refused."""
    of_a_terminal = submit()
    path = tmp_path / of_a_terminal.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "shell"}))
    come_back_to: list[str] = []
    monkeypatch.setattr(sessions, "reattach", lambda _context, session: come_back_to.append(session.id))
    for name in ("", of_a_terminal.id):
        with pytest.raises(UsageError) as caught:
            story(target(tmp_path), name, ShownSessions(), FakePrompts(), Interrupts())
        assert f"shell {of_a_terminal.id}" in caught.value.hint
    other = submit()
    story(target(tmp_path), "", ShownSessions(), FakePrompts(), Interrupts())
    assert come_back_to == [other.id]


def test_a_run_has_no_jupyterlab_to_open_and_no_ports(tmp_path: Path, submit: Callable[..., Session]) -> None:
    of_a_run = submit()
    path = tmp_path / of_a_run.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "notebook", "notebook": "train.ipynb"}))
    place, others = target(tmp_path), (ShownSessions(), FakePrompts(), Interrupts())
    for story in (
        lambda: sessions.open_session(place, "", *others),
        lambda: sessions.forward(place, [(6006, 0)], "", *others),
        lambda: sessions.connect(place, "", *others, forwards=[6006]),
    ):
        with pytest.raises(UsageError, match="has no JupyterLab") as caught:
            story()
        assert "train.ipynb" in caught.value.why and f"connect {of_a_run.id}" in caught.value.hint


def test_a_place_that_cannot_be_looked_at_stops_no_launch(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    assert offer(tmp_path / "root", FakePrompts())[0] is False


def test_a_job_that_was_never_noted_is_looked_for(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit()
    (tmp_path / session.id / "job").unlink()
    wait_until(lambda: not (tmp_path / session.id / "job").exists(), 5, "the note is gone")
    assert listed(tmp_path).seen == {session.id: "gone"}
    assert stop(tmp_path, session.id).ended == {session.id}
