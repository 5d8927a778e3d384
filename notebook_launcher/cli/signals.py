"""Signals as exceptions: SIGTERM ends the session as Ctrl-C does, SIGHUP (a closed terminal) leaves it running."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from notebook_launcher.cli.views import BaseView
from notebook_launcher.launch import HungUp


@contextlib.contextmanager
def signals(view: BaseView) -> Iterator[None]:
    """Turn signals into exceptions while the block runs; a hang-up silences the view and is no error."""

    def terminated(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def hung_up(_number: int, _frame: FrameType | None) -> None:
        view.silence()  # there is no terminal to write to any more
        raise HungUp

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, terminated)}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hung_up)
    try:
        yield
    except HungUp:
        view.exit_code = 129  # as a shell tells a death by SIGHUP
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
