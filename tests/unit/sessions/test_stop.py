"""`stop`: one session, several, all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from notebook_launcher import stop as stopping
from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import CancelFailed, SessionNotFound, SubmitUncertain, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.session.record import Session
from notebook_launcher.supervision import end_check
from notebook_launcher.tunnel.page_saving import PagesSaved
from tests.doubles import FakePrompts, RecordingHost, wait_until
from tests.session_directories import name_of, plant
from tests.unit.conftest import SetTiming
from tests.unit.sessions.local_sessions import (
    NOW,
    ShownSessions,
    SlurmHost,
    end_of,
    listed,
    squeue_row,
    stop,
    target,
)

pytestmark = pytest.mark.real_time  # real jobs of the local scheduler


def two_run(root: Path, slurm: SlurmHost) -> tuple[str, str]:
    """Two sessions that run; their names."""
    names = name_of(NOW, 1), name_of(NOW, 2)
    for job, name in zip("78", names, strict=True):
        plant(root, name, NOW, job=job, started=NOW, listens=True)
    slurm.own = squeue_row("7", "RUNNING") + squeue_row("8", "RUNNING")
    return names


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


def test_of_several_those_that_never_ran_are_told_apart(tmp_path: Path, slurm: SlurmHost) -> None:
    one, other = name_of(NOW, 1), name_of(NOW, 2)
    plant(tmp_path, one, NOW, job="7", started=NOW)
    plant(tmp_path, other, NOW, job="8")
    texts = {ended.session: ended.text for ended in stop(tmp_path, one, other, sure=True).all(events.Ended)}
    assert texts == {
        one: f"Session {one}: job 7 has ended.",
        other: f"Session {other}: job 8 was cancelled before it started.",
    }


def test_an_empty_word_ends_nothing(tmp_path: Path, slurm: SlurmHost) -> None:
    two_run(tmp_path, slurm)
    for names in (("",), ("x", "")):
        with pytest.raises(UsageError, match="empty"):
            stop(tmp_path, *names)
    assert listed(tmp_path).one(events.ListDone).active == 2 and slurm.cancelled == []


@pytest.mark.real_time
def test_one_without_a_job_does_not_hold_up_the_others(tmp_path: Path, submit: Callable[..., Session]) -> None:
    lost, one, other = submit().id, submit().id, submit().id
    stop(tmp_path, lost)
    for name in (lost, other):
        (tmp_path / name / "job").unlink()
    (tmp_path / lost / "exit.json").unlink(missing_ok=True)
    view = ShownSessions()
    with pytest.raises(SubmitUncertain, match=lost):
        stopping.stop(target(tmp_path), [lost, one, other], view, FakePrompts(confirms=[True]), Interrupts())
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
    assert all(ended.text.count(ended.session) == 1 for ended in view.all(events.Ended)), "it is the job's name, too"
    assert "".join(person.asked).count("starts") == 2 and "".join(person.asked).count("waits") == 1
    assert "End these 3 sessions?" in "".join(person.asked)
    assert sum("cancel" in command for command in host.ran) == 1
    assert set(listed(tmp_path).seen.values()) == {"ended"}


def test_a_no_ends_nothing(tmp_path: Path, slurm: SlurmHost) -> None:
    view = stop(tmp_path, *two_run(tmp_path, slurm), prompts=FakePrompts(confirms=[False]))
    assert view.ended == set() and "Nothing was ended." in view.notes
    assert listed(tmp_path).one(events.ListDone).active == 2 and slurm.cancelled == []


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


def test_a_job_that_was_never_noted_is_looked_for(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit()
    (tmp_path / session.id / "job").unlink()
    wait_until(lambda: not (tmp_path / session.id / "job").exists(), 30, "the note is gone")
    assert listed(tmp_path).seen == {session.id: "gone"}
    assert stop(tmp_path, session.id).ended == {session.id}


@pytest.mark.parametrize(
    ("asks", "sure", "answer", "questions", "ended"),
    [(True, False, True, 1, 1), (True, False, False, 1, 0), (True, True, None, 0, 1), (False, False, None, 0, 1)],
)
def test_one_whose_kernel_is_busy_is_ended_after_a_yes(
    tmp_path: Path, reached: list[int], slurm: SlurmHost, asks: bool, sure: bool, answer: bool | None, questions: int,
    ended: int,
) -> None:  # fmt: skip
    """Which only the launcher on this machine can tell that has a tunnel to it; without a terminal nobody is asked."""
    plant(tmp_path, name_of(NOW, 0), NOW, job="7", started=NOW, listens=True, secrets=True)
    person = FakePrompts(confirms=[answer], asks=asks)
    view = stop(tmp_path, name_of(NOW, 0), prompts=person, sure=sure)
    assert (len(person.asked), len(view.ended), reached) == (questions, ended, [4711] * questions)
    assert all("train.ipynb is still running." in text and "anyway?" in text for text in person.asked)


def test_of_several_the_busy_ones_are_said_in_the_same_question(
    tmp_path: Path, reached: list[int], slurm: SlurmHost
) -> None:
    names = [name_of(NOW, number) for number in (0, 1)]
    for number, name in enumerate(names):
        plant(tmp_path, name, NOW, job=str(7 + number), started=NOW, listens=True, secrets=True)
    person = FakePrompts(confirms=[False])
    assert stop(tmp_path, *names, prompts=person).ended == set()
    (question,) = person.asked
    assert question.count("train.ipynb is still running.") == 2 and "End these 2 sessions?" in question
    assert all(f"Session {name}: train.ipynb is still running." in question for name in names)
    assert question.count("Check in the browser that your notebooks are saved.") == 2


def test_each_tunnel_here_is_asked_until_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: SlurmHost
) -> None:
    """Without any answer it is not known whether a kernel is busy, and so the user is asked."""
    plant(tmp_path, name_of(NOW, 0), NOW, job="7", started=NOW, listens=True, secrets=True)
    answers: dict[int, tuple[str, ...] | None] = {1: None, 2: ("train.ipynb",), 3: ()}
    ports = [1]
    monkeypatch.setattr(local_state, "attached_ports", lambda _session: ports)
    monkeypatch.setattr(end_check, "busy_kernels", lambda port, *_: answers[port])
    person = FakePrompts(confirms=[False, False])
    assert not stop(tmp_path, name_of(NOW, 0), prompts=person).ended
    assert "not known whether a kernel is busy" in person.asked[-1]
    ports = [1, 2, 3]
    assert not stop(tmp_path, name_of(NOW, 0), prompts=person).ended
    assert "train.ipynb is still running." in person.asked[-1]
    ports = [1, 3, 2]
    assert stop(tmp_path, name_of(NOW, 0), prompts=person).ended and len(person.asked) == 2


def test_one_without_a_tunnel_here_is_ended_without_a_question(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 0), NOW, job="7", started=NOW, listens=True, secrets=True)
    person = FakePrompts()
    assert len(stop(tmp_path, name_of(NOW, 0), prompts=person).ended) == 1
    assert not person.asked


@pytest.mark.parametrize("asks", [True, False])
def test_pages_that_are_reached_from_here_save_first(
    tmp_path: Path, reached: list[int], slurm: SlurmHost, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """By whatever signal the scheduler ends jobs; without a terminal, what is lost is told all the same."""
    monkeypatch.setattr(end_check, "busy_kernels", lambda *_: ())
    monkeypatch.setattr(end_check, "save_in_pages", lambda *_: PagesSaved(1, 0, ("a.csv",)))
    plant(tmp_path, name_of(NOW, 0), NOW, job="7", started=NOW, listens=True, secrets=True)
    person = FakePrompts(confirms=[False], asks=asks)
    view = stop(tmp_path, name_of(NOW, 0), prompts=person)
    if asks:
        assert "JupyterLab could not save a.csv.\nEnd session" in person.asked[0] and not view.ended
    else:
        assert view.one(events.NotSaved).paths == ("a.csv",) and len(view.ended) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_several_are_asked_side_by_side_and_not_in_silence(
    tmp_path: Path, reached: list[int], slurm: SlurmHost, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    view, together = ShownSessions(), threading.Barrier(2)

    def save(*_: object) -> PagesSaved:
        together.wait(20)
        wait_until(lambda: "Asking JupyterLab to save open documents" in view.notes, 20, "the wait is explained")
        return PagesSaved(1)

    monkeypatch.setattr(end_check, "save_in_pages", save)
    monkeypatch.setattr(stopping, "_NOTED_AFTER", 0.1)
    names = name_of(NOW, 0), name_of(NOW, 1)
    for number, name in enumerate(names):
        plant(tmp_path, name, NOW, job=str(7 + number), started=NOW, listens=True, secrets=True)
    person = FakePrompts(confirms=[False] if asks else [], asks=asks)
    stopping.stop(target(tmp_path), names, view, person, Interrupts())
    assert view.notes.count("Asking JupyterLab") == 1
    assert ("to report busy kernels" in view.notes) == asks
    assert "".join(person.asked).count("Open documents are saved.") == 2 * asks


@pytest.mark.parametrize(
    ("asks", "asked"),
    [
        (True, ["save 1: 3", "kernels 1: 2", "save 2: 3", "kernels 2: 2"]),
        (False, ["save 1: 3", "save 2: 3", "save 3: 3"]),
    ],
)
def test_for_all_that_a_silent_tunnel_is_asked_there_is_one_limit(
    tmp_path: Path, slurm: SlurmHost, monkeypatch: pytest.MonkeyPatch, asks: bool, asked: list[str]
) -> None:
    """And one for all tunnels to a session."""
    plant(tmp_path, name_of(NOW, 0), NOW, job="7", started=NOW, listens=True, secrets=True)
    now, questions = 0.0, list[str]()

    def is_silent(what: str, port: int, within: float) -> None:
        nonlocal now
        now += within
        questions.append(f"{what} {port}: {within:g}")

    def save(port: int, _endpoint: object, _token: str, within: float) -> PagesSaved:
        is_silent("save", port, within)
        return PagesSaved()

    monkeypatch.setattr(local_state, "attached_ports", lambda _session: [1, 2, 3])
    for module in (stopping, end_check):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(end_check, "save_in_pages", save)
    monkeypatch.setattr(end_check, "busy_kernels", lambda port, _1, _2, left: is_silent("kernels", port, left))
    person = FakePrompts(confirms=[False], asks=asks)
    stop(tmp_path, name_of(NOW, 0), prompts=person)
    assert questions == asked and len(person.asked) == asks


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of other launchers' tunnels that were asked; behind each a kernel is busy."""
    ports: list[int] = []

    def busy(port: int, *_: object) -> tuple[str, ...]:
        ports.append(port)
        return ("train.ipynb",)

    monkeypatch.setattr(local_state, "attached_ports", lambda _session: [4711])
    monkeypatch.setattr(end_check, "busy_kernels", busy)
    return ports
