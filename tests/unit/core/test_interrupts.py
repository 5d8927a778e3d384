"""Ctrl-C, SIGTERM and SIGHUP, while interrupts are raised: at once, or at the end of an uninterrupted block."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator

import pytest

from notebook_launcher.core import interrupts as module
from notebook_launcher.core.interrupts import HungUp, Interrupts, Kind, Uninterrupted

SIGNALS: dict[Kind, signal.Signals] = {"end": signal.SIGINT, "leave": signal.SIGHUP}


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[Interrupts]:
    """The signals of this process, as ``cli.signals`` handles them."""
    interrupts = Interrupts()
    before = {
        number: signal.signal(number, lambda _number, _frame, kind=kind: interrupts.arrive(kind))  # type: ignore[misc]
        for kind, number in SIGNALS.items()
    }
    yield interrupts
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_is_raised_at_the_end_of_the_block_and_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the block")
    assert done
    with Uninterrupted():
        done.append("another")


def test_it_takes_the_place_of_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise OSError("the wait was ended")


@pytest.mark.parametrize("order", [("end", "leave"), ("leave", "end")])
def test_a_hang_up_comes_before_ctrl_c(order: tuple[Kind, Kind]) -> None:
    with pytest.raises(HungUp), Uninterrupted():
        for kind in order:
            signal.raise_signal(SIGNALS[kind])


def test_of_blocks_in_blocks_the_outermost_raises_but_none_begins_any_more() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
        done.append("behind the inner one")
        with Uninterrupted():
            done.append("a wait that nobody ends")
    assert done == ["behind the inner one"]


def test_what_the_block_waits_for_is_ended_and_the_connection_only_if_that_does_not_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: queue.SimpleQueue[str] = queue.SimpleQueue()
    answer = threading.Event()
    monkeypatch.setattr(module, "GRACE", 60.0)
    with pytest.raises(KeyboardInterrupt), Uninterrupted(answer.set, lambda: given_up.put("too early")):
        signal.raise_signal(signal.SIGINT)
        assert answer.wait(20)
    monkeypatch.setattr(module, "GRACE", 0.0)
    stuck: queue.SimpleQueue[None] = queue.SimpleQueue()
    with pytest.raises(KeyboardInterrupt), Uninterrupted(stuck.get, lambda: given_up.put("given up")):
        signal.raise_signal(signal.SIGINT)
        assert given_up.get(timeout=20) == "given up"
    stuck.put(None)


def test_a_block_that_cleans_up_is_bounded_once_the_user_has_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.0)
    given_up: queue.SimpleQueue[None] = queue.SimpleQueue()
    with Uninterrupted(give_up=lambda: given_up.put(None), closing=True):
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with Uninterrupted(give_up=lambda: given_up.put(None), closing=True):
        given_up.get(timeout=20)
    assert given_up.empty()


def test_who_keeps_pressing_ctrl_c_gets_out_of_a_block_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("twice in a moment")
        monkeypatch.setattr(module, "PATIENCE", -1.0)
        signal.raise_signal(signal.SIGINT)
        done.append("and later")
    assert done == ["twice in a moment"]
    with Uninterrupted():
        pass


def test_the_blocks_of_other_threads_keep_nothing_from_the_main_one() -> None:
    inside, over = threading.Event(), threading.Event()

    def other() -> None:
        with Uninterrupted():
            inside.set()
            over.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(20)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    over.set()
    thread.join()


def test_once_a_job_may_exist_nothing_is_raised_at_its_end_either(interrupts: Interrupts) -> None:
    interrupts.defer()
    with Uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.inbox.get(timeout=1) == module.Interrupt("end")
