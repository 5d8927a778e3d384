"""``classroom end`` with doubles of Slurm's commands: who is asked, told, ended and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from notebook_launcher.classroom import end as end_module
from notebook_launcher.classroom.end import EndOptions, _ClassEnding
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import AnswerMissing, CancelFailed, ConnectionLost, HostCommandFailed, UsageError
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.session.context import Context
from tests.doubles import Answer, FakePrompts, RecordingView
from tests.unit.classroom.conftest import LAB, Cluster, context_of, row

AT_ONCE = EndOptions(minutes=0, sure=True)
HERS = replace(LAB, folder="/class")
FOLDER = {"folder": "/class", "owner": "teacher", "group": "lab", "mode": "3770"}
BEAT = {"version": 1, "job": "7", "state": "running", "written": "2026-11-24T13:29:50Z"}


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEFORE_THE_END", 0), ("QUERY_EVERY", 0.001), ("GONE_WITHIN", 0.01)):
        monkeypatch.setattr(end_module, name, seconds)


@pytest.fixture
def class_of_two(slurm: Cluster) -> Cluster:
    slurm.rows = [row("7", "alice", "RUNNING"), row("8", "bob", "PENDING")]
    return slurm


def gone_after_scancel(slurm: Cluster, *jobs: str) -> None:
    answer = slurm.one

    def one(command: str) -> object:
        if command.startswith("env") and "scancel" in command:
            slurm.rows = [row(job, "alice", "CANCELLED") if (job := one.split("|")[0]) in jobs else one
                          for one in slurm.rows]  # fmt: skip
        return answer(command)

    slurm.one = one  # type: ignore[assignment,method-assign]


def run(context: Context, options: EndOptions = AT_ONCE, **others: object) -> events.ClassEnded:
    group = others.get("group", LAB)
    _ClassEnding(context, group, options).run()  # type: ignore[arg-type]
    return context.view.one(events.ClassEnded)  # type: ignore[attr-defined,no-any-return]


def test_the_scheduler_ends_them_all(class_of_two: Cluster) -> None:
    gone_after_scancel(class_of_two, "7", "8")
    found = run(context_of(class_of_two, RecordingView()))
    assert found == events.ClassEnded(("alice", "bob"), (), ())
    [command] = [one for one in class_of_two.ran if "scancel" in one]
    assert command.endswith("scancel 7 8")


def test_what_may_not_be_ended_is_named(class_of_two: Cluster) -> None:
    gone_after_scancel(class_of_two, "7")
    class_of_two.scancel = "scancel: error: Kill job error on job id 8: Access/permission denied\n"
    context = context_of(class_of_two, RecordingView())
    with pytest.raises(CancelFailed) as raised:
        run(context)
    shown = context.view.one(events.ClassEnded)  # type: ignore[attr-defined]
    assert (shown.ended, shown.refused) == (("alice",), ("bob",))
    assert raised.value.what == "1 session of the class could not be ended: bob."
    assert raised.value.why.startswith("The scheduler says: Access/permission denied.")
    assert raised.value.hint.endswith("scancel 8")


@pytest.mark.parametrize(("answer", "why"), [(False, "The answer was no."), (None, "Nobody could be asked.")])
def test_nothing_is_ended_without_a_yes(class_of_two: Cluster, answer: bool | None, why: str) -> None:
    context = context_of(class_of_two, RecordingView(), prompts=FakePrompts(confirms=[answer]))
    with pytest.raises(AnswerMissing) as raised:
        run(context, replace(AT_ONCE, sure=False))
    assert raised.value.why == why and not [one for one in class_of_two.ran if "scancel" in one]


def test_ctrl_c_takes_it_back(class_of_two: Cluster) -> None:
    view = RecordingView()
    context = context_of(class_of_two, view)
    context.interrupts.defer()
    context.interrupts.inbox.put(Interrupt("end"))
    _ClassEnding(context, LAB, EndOptions(minutes=5, sure=True)).run()
    assert "Nothing was ended, and the notice is withdrawn." in view.notes
    assert not [one for one in class_of_two.ran if "scancel" in one]


def notified_then_interrupted(slurm: Cluster, remove: Answer | list[Answer]) -> tuple[_ClassEnding, RecordingView]:
    """A class that is told, and Ctrl-C at once. ``remove``: what happens when the notice is removed."""
    lines = "\n".join(map(json.dumps, (FOLDER, {"user": "alice", "text": json.dumps(BEAT)})))
    context = context_of(slurm, view := RecordingView(), more=[("python3", lines)])
    plain, answers = context.host.answer, iter(remove if isinstance(remove, list) else [remove])  # type: ignore[attr-defined]

    def answer(argv: list[str]) -> Answer:
        if "cat >" in " ".join(argv):
            context.interrupts.arrive("end")  # while the notice is written
        return next(answers) if "rm -f --" in " ".join(argv) else plain(argv)

    context.host.answer = answer  # type: ignore[attr-defined]
    context.host.reconnect = lambda: None  # type: ignore[method-assign]
    return _ClassEnding(context, HERS, EndOptions(minutes=5, sure=True)), view


def test_ctrl_c_while_the_notice_is_written_takes_it_back_over_a_new_connection(class_of_two: Cluster) -> None:
    ending_, view = notified_then_interrupted(class_of_two, [ConnectionLost("It broke."), CommandResult(0)])
    ending_.run()
    assert "Nothing was ended, and the notice is withdrawn." in view.notes


@pytest.mark.parametrize("remove", [CommandResult(1, "", "rm: read-only"), HostCommandFailed("It took too long.")])
def test_a_notice_that_stands_is_not_said_to_be_taken_back(class_of_two: Cluster, remove: Answer) -> None:
    ending_, view = notified_then_interrupted(class_of_two, remove)
    with pytest.raises(HostCommandFailed, match="could not be withdrawn") as raised:
        ending_.run()
    assert raised.value.hint.endswith("rm /class/end") and "taken back" not in view.notes


def test_a_notice_goes_to_the_sessions_that_report(class_of_two: Cluster) -> None:
    gone_after_scancel(class_of_two, "7", "8")
    lines = "\n".join(map(json.dumps, (FOLDER, {"user": "alice", "text": json.dumps(BEAT)})))
    context = context_of(class_of_two, view := RecordingView(), more=[("python3", lines)])
    written: list[bytes] = []
    plain: Callable[..., object] = context.host.run

    def keep(argv: list[str], *, stdin: bytes = b"", **others: object) -> object:
        if "cat >" in " ".join(argv):
            written.append(stdin)
        return plain(argv, stdin=stdin, **others)

    context.host.run = keep  # type: ignore[assignment,method-assign]
    run(context, replace(AT_ONCE, message="Go\nhome.\x1b[31m"), group=HERS)
    [notice] = written
    assert notice.decode().splitlines()[2:] == ["jobs=7 8", "message=Go home."] and not view.notes
    assert any("rm -f" in one and one.endswith("notice /class") for one in class_of_two.ran)


@pytest.mark.parametrize(
    "facts", [{**FOLDER, "owner": "bob"}, {**FOLDER, "mode": "2770"}, {"problem": "/class is away"}]
)
def test_no_notice_where_it_would_not_count(class_of_two: Cluster, facts: dict[str, str]) -> None:
    gone_after_scancel(class_of_two, "7", "8")
    context = context_of(class_of_two, view := RecordingView(), more=[("python3", json.dumps(facts))])
    run(context, group=HERS)
    assert "The sessions get no notice: " in view.notes


def test_nobody_is_there(slurm: Cluster) -> None:
    assert run(context_of(slurm, RecordingView())) == events.ClassEnded((), (), ())


def test_an_impossible_time() -> None:
    with pytest.raises(UsageError, match="--in 61 is not possible"):
        end_module.end_class(None, (), EndOptions(minutes=61), RecordingView(), FakePrompts(), Interrupts())  # type: ignore[arg-type]


def test_nobody_is_ended_who_is_not_on_the_list(class_of_two: Cluster) -> None:
    class_of_two.rows.append(row("9", "mallory", "RUNNING"))  # whatever the scheduler prints
    gone_after_scancel(class_of_two, "7", "8")
    assert run(context_of(class_of_two, RecordingView())).ended == ("alice", "bob")
    assert next(one for one in class_of_two.ran if "scancel" in one).endswith("scancel 7 8")


def test_without_a_reservation_only_sessions_are_ended(slurm: Cluster) -> None:
    """Other jobs of the account may be the students' own work."""
    own = row("8", "bob", "RUNNING", name="thesis", reservation="")
    slurm.rows = [row("7", "alice", "RUNNING", reservation=""), own]
    gone_after_scancel(slurm, "7")
    found = run(context_of(slurm, RecordingView()), group=replace(LAB, reservation=None))
    assert found.ended == ("alice",)
    assert next(one for one in slurm.ran if "scancel" in one).endswith("scancel 7")
