"""Run the training in a child process, so that the parent can report how it ended.

A process that is killed cannot report that itself. Its parent can: it only waits, and does not need PyTorch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType

from ranks import Process, TrainingError

#: Sent some time before the walltime ends: save a checkpoint and stop. LSF sends the second one by default.
STOP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
PASSED_ON = (*STOP_SIGNALS, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAITED_FOR = (*PASSED_ON, signal.SIGCHLD)
PR_SET_PDEATHSIG = 1


class StopRequest:
    """Records whether one of the stop signals has come, and which."""

    def __init__(self) -> None:
        self.signal = ""
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name


def supervise(train: Callable[[StopRequest], int], process: Process) -> int:
    """Run ``train`` in a child process, and return the exit code; print a sentence if the child is killed."""
    stop = StopRequest()  # before the child starts: it may get a signal while it imports PyTorch
    if process.launcher == "torchrun":
        _end_with(os.getppid(), signal.SIGTERM)  # torchrun ends its processes, unless it is killed
    parent = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if our parent ignores SIGCHLD, we could not wait for a child
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)  # so that no signal is lost: see _wait_for
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_FOR)
        _end_with(parent, signal.SIGKILL)  # it would be unsupervised
        _leave(_run(train, stop, process))
    code, ended_by = _wait_for(child)  # signals stay blocked, so that the child's end is reported
    if code < 0 and -code not in ended_by:
        print(death(process, -code), file=sys.stderr, flush=True)
    return code if code >= 0 else 128 - code


def _wait_for(child: int) -> tuple[int, list[int]]:
    """Forward signals to the child until it ends; return its exit code, as in `subprocess`, and the signals.

    Signals stay blocked and are read with `sigwait`, because a Python handler runs only after `waitpid` if a signal
    comes just before that.
    """
    passed_on: list[int] = []
    while True:
        number = signal.sigwait(WAITED_FOR)
        if number != signal.SIGCHLD:
            passed_on.append(number)
            os.kill(child, number)  # the process id stays valid until we wait for the child
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), passed_on


def death(process: Process, number: int) -> str:
    """Return the sentence about a process that was killed by a signal."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "a signal"
    why = ""
    if number == signal.SIGKILL:
        why = " Often the memory was used up: ask for more (--mem), or use smaller batches."
    return f"{process.name} was killed by {name} ({number}), so the training ends.{why}"


def _run(train: Callable[[StopRequest], int], stop: StopRequest, process: Process) -> int:
    try:
        return train(stop)
    except TrainingError as error:
        print(f"{process.name}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not is_lost_connection(error):
            traceback.print_exc()
        else:
            print(f"{process.name} lost the connection to another rank, and stops.", file=sys.stderr)
            print(f"  {short(error)}", file=sys.stderr)
    return 1


def is_lost_connection(error: Exception) -> bool:
    """Whether gloo or nccl raises this error in the other processes when one is gone."""
    text = str(error).lower()
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "tcpstore")
    return isinstance(error, (RuntimeError, ConnectionError)) and any(word in text for word in words)


def short(error: Exception) -> str:
    """Return the first sentence of gloo's or nccl's message, without its position in their source code."""
    return re.sub(r"^\[[^\]]*\]\s*", "", str(error).splitlines()[0]).partition(". ")[0][:200]


def _end_with(parent: int, number: int) -> None:
    """Let the kernel send this process a signal when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)


def _leave(code: int) -> None:
    """Exit the child without running the parent's exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
