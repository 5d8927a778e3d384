"""What is said before a command logs in."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import AddressRefused, ConnectionFailed, LoginBusy
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.hosts import engine_choice
from notebook_launcher.hosts.base import NoPrompts, Prompts
from notebook_launcher.hosts.engine_choice import EngineChoice
from notebook_launcher.hosts.login_setup import NONE, LoginSetup
from notebook_launcher.hosts.remote import RemoteHost
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import load_profile
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile
from notebook_launcher.session import open_context as opening
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context, open_host
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
        raise ConnectionFailed(
            "Nobody answers.", why="Tell the cluster's support.", hint="ask the cluster's support why"
        )

    monkeypatch.setattr(engine_choice, "open_ssh_host", refuse)
    course = CourseProfile(name="lab", contact=teacher) if teacher else None
    target = LaunchTarget(ClusterProfile(contact=support), "uni", Destination("uni"), "slurm", course=course)
    with (
        pytest.raises(ConnectionFailed) as caught,
        open_context(target, RecordingView(), cast(Prompts, None), Interrupts()),
    ):
        pass
    assert caught.value.hint == hint
    assert caught.value.why == hint.replace("ask", "Tell").replace(" why", ".")


class SlowShells(RemoteHost):
    """A login node whose login shells take so many seconds, one after the other."""

    label = "login"
    alive = True

    def __init__(self, clock: list[float], *seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, iter(seconds)

    def _completed(self, line: str, name: str, stdin: bytes, timeout: float) -> CommandResult:
        text = "/home/me\nme\nlogin\n2026-11-21T12:00:00+0100\n"
        if line.startswith("bash -l "):
            self.clock[0] += next(self.seconds)
            text = "command sbatch\n"
        mark = re.search("--notebook-launcher-[0-9a-f]{16}", line)
        assert mark is not None
        return CommandResult(0, f"{mark[0]}--\n{text}{mark[0]}-ended-- 0\n")

    def _unused(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("nothing else is done here")

    _connected = _started = _replaced = stream = open_route = _unused

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@contextlib.contextmanager
def with_slow_shells(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], scheduler: str, *seconds: float
) -> Iterator[Context]:
    monkeypatch.setattr(opening, "open_host", lambda *_: SlowShells(clock, *seconds))
    target = LaunchTarget(ClusterProfile(), "uni", Destination("uni"), scheduler)
    with open_context(target, RecordingView(), FakePrompts(), Interrupts()) as context:
        yield context


@pytest.mark.parametrize("scheduler", ["auto", "slurm"])
def test_a_slow_login_shell_delays_neither_the_clusters_clock_nor_a_stop(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], scheduler: str
) -> None:
    """The clock is that of the moment when the date was printed, and answers may take as long as the shell does."""
    with with_slow_shells(monkeypatch, clock, scheduler, 14, 14) as context:
        if scheduler == "auto":
            assert f"{context.clock():%H:%M:%S}" == "12:00:14"
        else:  # the login shell is first used by what the command asks the scheduler
            context.host.run(["squeue"], login_shell=True)
        assert context.host_timing.answer_within == DEFAULT_TIMING.answer_within + 2 * 14
        assert context.host_timing.cancel_within > DEFAULT_TIMING.cancel_within + 2 * 14


def test_one_slow_answer_is_no_slow_login_shell(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """A command may take long by itself, and a login node may hang for once: the fastest answer counts."""
    with with_slow_shells(monkeypatch, clock, "auto", 80, 0.5) as context:
        context.host.run(["squeue"], login_shell=True)
        assert context.host_timing.answer_within == DEFAULT_TIMING.answer_within + 2 * 0.5


def test_what_a_slow_login_shell_adds_is_bounded(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    with with_slow_shells(monkeypatch, clock, "auto", 80) as context:
        assert context.host_timing.answer_within <= DEFAULT_TIMING.answer_within + 30
        assert context.host_timing.cancel_within <= DEFAULT_TIMING.cancel_within + 60


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
SOON = Timing(login_busy_pause=0.001, longest_login_busy_pause=0.002, address_maybe_busy_for=0.02)
QUICK = replace(SOON, address_refused_pause=0.001, address_refused_for=60.0)


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


class BusyNode(LoginNode):
    """A login node that has too many logins in progress some times."""

    def open(self, *_: object) -> tuple[object, EngineChoice]:
        self.refusals -= 1
        if self.refusals >= 0:
            raise LoginBusy("new has too many logins in progress.")
        return self, EngineChoice("paramiko", "asked for")


BUSY = Timing(login_busy_pause=0.001, longest_login_busy_pause=0.002, login_busy_for=5.0)


@pytest.mark.parametrize("prompts", [FakePrompts(), NoPrompts()])
def test_a_crowd_at_the_login_node_is_waited_for_and_said_once(
    monkeypatch: pytest.MonkeyPatch, prompts: FakePrompts | NoPrompts
) -> None:
    view, login = RecordingView(), BusyNode(6)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    assert open_host(TARGET, view, prompts, BUSY) is login  # type: ignore[comparison-overlap]
    [told] = view.all(events.Querying)
    assert told.text == "new has too many logins in progress; trying again, for 5 s at most"


def test_the_wait_for_a_crowd_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    login = BusyNode(1_000_000)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    with pytest.raises(LoginBusy):
        open_host(TARGET, RecordingView(), NoPrompts(), replace(BUSY, login_busy_for=0.05))
    assert login.refusals > 1_000_000 - 200


@pytest.mark.parametrize("text", ['"module load slurm"', '["module load slurm"]'])
def test_a_host_has_what_its_profile_runs_before_each_command_and_the_place_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    (tmp_path / "clusters").mkdir()
    file = tmp_path / "clusters" / "new.toml"
    file.write_text(f'host = "new"\n# a remark\nlogin_setup = {text}\n')
    monkeypatch.setattr(engine_choice, "open_ssh_host", LoginNode(0).open)
    target = LaunchTarget(load_profile("new"), "new", Destination("new"), "slurm")
    host = open_host(target, RecordingView(), NoPrompts(), QUICK)
    assert host.login_setup == LoginSetup(("module load slurm",), f"{file}:3", "new")
    assert open_host(TARGET, RecordingView(), NoPrompts(), QUICK).login_setup == NONE


def test_the_wait_for_an_address_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    login = LoginNode(1_000_000)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    with pytest.raises(AddressRefused):
        open_host(TARGET, RecordingView(), FakePrompts(), replace(QUICK, address_refused_for=0.05))
    assert login.refusals > 1_000_000 - 300


def test_where_nobody_waits_a_refused_address_is_soon_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    login, view = LoginNode(1_000_000), RecordingView()
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    with pytest.raises(AddressRefused):
        open_host(TARGET, view, NoPrompts(), QUICK)
    assert login.refusals > 1_000_000 - 100
    assert view.one(events.Querying).text.endswith(
        "because many log in at the same time; trying again, for 0 s at most"
    )


def test_one_of_a_crowd_hears_the_same_from_a_new_server(monkeypatch: pytest.MonkeyPatch) -> None:
    login = LoginNode(3)
    monkeypatch.setattr(engine_choice, "open_ssh_host", login.open)
    timing = replace(QUICK, address_maybe_busy_for=5.0)
    assert open_host(TARGET, RecordingView(), NoPrompts(), timing) is login  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(("first_try", "tries"), [(True, 1), (False, 2)])
def test_a_jump_host_does_not_ask_again_and_again(monkeypatch: pytest.MonkeyPatch, first_try: bool, tries: int) -> None:
    tried: list[None] = []

    def behind_a_jump_host(_: object, prompts: Prompts, *__: object) -> None:
        tried.append(None)
        if first_try or len(tried) > 1:
            prompts.secret("Code: ")
        raise LoginBusy("new has too many logins in progress.")

    monkeypatch.setattr(engine_choice, "open_ssh_host", behind_a_jump_host)
    with pytest.raises(LoginBusy):
        open_host(TARGET, RecordingView(), FakePrompts(secrets=["123456"] * 9), BUSY)
    assert len(tried) == tries
