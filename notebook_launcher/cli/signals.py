"""Turns signals into interrupts: SIGINT and SIGTERM cancel the session, SIGHUP (a closed terminal) detaches."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.core.interrupts import HungUp, Interrupts


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; unlike ``SIG_IGN``, child processes do not inherit this handler."""


@contextlib.contextmanager
def signals(view: BaseView) -> Iterator[Interrupts]:
    """Turn signals into interrupts while the block runs; a hang-up silences the view, and is not an error.

    A signal that the parent process ignores (``nohup``, a background job of a script) stays ignored.
    """
    interrupts = view.interrupts

    def end(number: int, _frame: FrameType | None) -> None:
        interrupts.arrive("end", at_once=number != signal.SIGINT)
        view.dismiss()

    def leave(number: int, _frame: FrameType | None) -> None:
        # A shell and the kernel may both send SIGHUP. A second handler would deadlock on locks that this one holds.
        signal.signal(number, _ignored)
        try:
            view.silence()  # the terminal is gone
        finally:
            signal.signal(number, leave)
        interrupts.arrive("leave")
        view.dismiss()

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {signal.SIGINT: end, signal.SIGTERM: end}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        handlers[signal.SIGHUP] = leave
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield interrupts
    except HungUp:
        view.exit_code = 129  # as a shell reports a process killed by SIGHUP
    finally:
        for number, was in before.items():
            if was is not None:  # None: a handler that was not set by Python
                signal.signal(number, was)
