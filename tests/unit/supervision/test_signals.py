"""Signals as interrupts, on the main thread."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from notebook_launcher import launch
from notebook_launcher.cli.signals import signals
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    Interrupted,
)
from notebook_launcher.core.interrupts import HungUp, Interrupt, Kind
from tests.doubles import FakePrompts
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

ENDING = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """As a shell starts us in the foreground, whatever started the tests (``nohup``)."""
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    """Send a signal to ourselves; its handler has run when this returns, or runs in the sleep."""
    os.kill(os.getpid(), number)
    time.sleep(0.5)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_while_nothing_is_at_stake_is_raised(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), signals(JsonView()):
        send(number)


@pytest.mark.usefixtures("usual_signals")
def test_a_second_hang_up_in_the_middle_of_the_first_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    view = JsonView()
    silenced = []

    def silence() -> None:
        silenced.append(True)
        if len(silenced) < 3:
            send(signal.SIGHUP)

    monkeypatch.setattr(view, "silence", silence)
    with signals(view):
        send(signal.SIGHUP)
    assert silenced == [True]


@pytest.mark.usefixtures("usual_signals")
def test_a_hang_up_while_nothing_is_at_stake(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView()
    went_on = False
    with signals(view):
        send(signal.SIGHUP)
        went_on = True
    assert not went_on
    assert view.exit_code == 129
    view.show(events.Note("to nobody"))
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
def test_a_deferred_signal_is_an_item(capsys: pytest.CaptureFixture[str], number: signal.Signals) -> None:
    view = JsonView()
    with signals(view) as interrupts:
        interrupts.defer()
        os.kill(os.getpid(), number)
        kind: Kind = "leave" if number == signal.SIGHUP else "end"
        asks_nothing = number == signal.SIGTERM  # whoever sends that cannot be asked
        assert interrupts.inbox.get(timeout=PATIENCE) == Interrupt(kind, at_once=asks_nothing)
        os.kill(os.getpid(), number)  # and again: the second one counts as well
        assert isinstance(interrupts.inbox.get(timeout=PATIENCE), Interrupt)
        assert interrupts.inbox.empty()
        view.show(events.Note("still there?"))
    assert (capsys.readouterr().out == "") is (number == signal.SIGHUP), "a hang-up silences the view"
    assert view.exit_code == 0


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with signals(JsonView()) as interrupts:
        os.kill(os.getpid(), number)
        interrupts.defer()
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        assert interrupts.inbox.empty()
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.usefixtures("usual_signals")
def test_the_handlers_are_put_back() -> None:
    numbers = (*ENDING, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with contextlib.suppress(ValueError), signals(JsonView()):
        assert [signal.getsignal(number) for number in numbers] != before
        raise ValueError
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
@pytest.mark.parametrize("step", ["write", "sbatch", "squeue"])
def test_a_real_signal_in_the_middle_of_a_story(launcher: Launcher, step: str, number: signal.Signals) -> None:
    """On the main thread, where signals are handled; between the scheduler's answer and the line that keeps it, too."""
    view = JsonView()
    view.listening = True  # nobody types
    launcher.hooks.at(step, lambda: os.kill(os.getpid(), number))
    raised: BaseException | None = None
    with signals(view) as interrupts:
        try:
            launch.launch(PLAN, view, FakePrompts(asks=False), interrupts)
        except BaseException as error:
            raised = error
            if isinstance(error, HungUp):
                raise
    if number == signal.SIGHUP:
        assert isinstance(raised, HungUp) and view.exit_code == 129
    else:
        assert isinstance(raised, Interrupted)
    assert launcher.host.count("sbatch") == 1
    assert launcher.host.count("scancel") == (number != signal.SIGHUP)
    assert launcher.host.count("rm") == 0
