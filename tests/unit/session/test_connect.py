"""What is said before a command logs in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import AddressRefused, ConnectionFailed
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.hosts import engine_choice
from notebook_launcher.hosts.base import NoPrompts, Prompts
from notebook_launcher.hosts.engine_choice import EngineChoice
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile
from notebook_launcher.session import connect
from notebook_launcher.session.connect import open_context, open_host
from tests.doubles import FakePrompts, RecordingView


def test_a_retired_cluster_is_named_before_the_password_of_its_successor_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RecordingView()
    shown_at_login: list[str] = []

    def log_in(*_: object) -> None:
        shown_at_login.extend(event.text for event in view.all(events.Note))
        raise ConnectionFailed("Nobody answers.")

    monkeypatch.setattr(engine_choice, "open_ssh_host", log_in)
    note = "Old was switched off. Using its successor, new."
    target = LaunchTarget(ClusterProfile(), "new", Destination("new"), "slurm", instead_of="old", notes=(note,))
    with pytest.raises(ConnectionFailed):
        open_host(target, view, cast(Prompts, None))
    assert shown_at_login == [note]


@pytest.mark.parametrize(
    ("support", "teacher", "hint"),
    [
        (None, None, "ask the cluster's support why"),
        ("help@uni.example", None, "ask the cluster's support (help@uni.example) why"),
        ("help@uni.example", "gpulab@uni.example", "ask the cluster's support (gpulab@uni.example) why"),
    ],
)
def test_whom_to_ask_is_named(
    monkeypatch: pytest.MonkeyPatch, support: str | None, teacher: str | None, hint: str
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionFailed("Nobody answers.", hint="ask the cluster's support why")

    monkeypatch.setattr(engine_choice, "open_ssh_host", refuse)
    course = CourseProfile(name="lab", contact=teacher) if teacher else None
    target = LaunchTarget(ClusterProfile(contact=support), "uni", Destination("uni"), "slurm", course=course)
    with (
        pytest.raises(ConnectionFailed) as caught,
        open_context(target, RecordingView(), cast(Prompts, None), Interrupts()),
    ):
        pass
    assert caught.value.hint == hint


def test_a_slow_login_shell_delays_neither_the_clusters_clock_nor_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is that of the moment when the date was printed, and answers may take as long as the shell does."""
    clock = [1_000_000.0]

    class SlowShell(LocalHost):
        def run(
            self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
        ) -> CommandResult:
            if login_shell:
                clock[0] += 25
                return CommandResult(0, "command sbatch\n", "")
            return CommandResult(0, "/home/me\nme\nlogin\n2026-11-21T12:00:00+0100\n", "")

    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(connect, "open_host", lambda *_: SlowShell())
    target = LaunchTarget(ClusterProfile(), "uni", Destination("uni"), "auto")
    with open_context(target, RecordingView(), FakePrompts(), Interrupts()) as context:
        assert f"{context.clock():%H:%M:%S}" == "12:00:25"
        assert context.timing.answer_within > 2 * 25
        assert context.timing.cancel_within > DEFAULT_TIMING.cancel_within + 2 * 25


class LoginNode:
    """A login node that refuses this address some times."""

    label = "new"

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def open(self, *_: object) -> tuple[object, EngineChoice]:
        self.refusals -= 1
        if self.refusals >= 0:
            raise AddressRefused("new refuses this machine's address for a while.")
        return self, EngineChoice("paramiko", "asked for")


TARGET = LaunchTarget(ClusterProfile(), "new", Destination("new"), "slurm")
QUICK = Timing(address_refused_pause=0.001, address_refused_for=60.0)


def test_somebody_at_a_terminal_is_told_of_the_wait_until_the_address_is_allowed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, login = RecordingView(), LoginNode(2)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    assert open_host(TARGET, view, FakePrompts(), QUICK) is login  # type: ignore[comparison-overlap]
    told = [event.text for event in view.all(events.Querying)]
    assert len(told) == 1  # where the output is a log, it is not filled
    assert login.refusals < 0
    assert "new refuses this machine's address for a while" in told[0]
    assert "1 min at most" in told[0] and "Ctrl-C" in told[0]


def test_the_wait_for_an_address_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    login = LoginNode(1_000_000)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    with pytest.raises(AddressRefused):
        open_host(TARGET, RecordingView(), FakePrompts(), Timing(address_refused_pause=0.001, address_refused_for=0.02))
    assert login.refusals > 1_000_000 - 100


def test_where_nobody_waits_a_refused_address_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    login = LoginNode(1)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    with pytest.raises(AddressRefused):
        open_host(TARGET, RecordingView(), NoPrompts(), QUICK)
    assert login.refusals == 0
