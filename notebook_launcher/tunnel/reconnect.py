"""Reconnects to a host: repeatedly, less and less often, until it works or the deadline has passed."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from notebook_launcher.core.errors import AuthenticationFailed, HostKeyChanged, HostKeyUnknown, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.session.context import Context

POLL_SECONDS = 0.2
REFUSED_TIMES = 5  # a login node that is just starting up refuses everybody for a while


class ReconnectSucceeded(Frozen):
    """There is a new connection; everything that used the old one must be restarted."""

    by: Reconnection


class ReconnectFailed(Frozen):
    """The deadline has passed, or another attempt would be useless."""

    by: Reconnection
    error: LauncherError


class _Stopped(Exception):
    """The attempts were stopped; raised before the next one."""


class Reconnection:
    """Makes attempts on its own thread until ``deadline`` (monotonic), and puts the outcome into ``inbox``.

    The old connection stays open until a new one is open and ``is_lost`` says that the old one will not recover. The
    user is asked for a secret in one attempt at most: with a second factor, each login needs one, and a user who does
    not answer is not asked again.
    """

    def __init__(
        self,
        host: Host,
        prompts: CountedPrompts,
        inbox: queue.SimpleQueue[object],
        *,
        deadline: float,
        pause: float = 0.0,
        is_lost: Callable[[], bool] = lambda: True,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self._host, self._prompts, self._inbox, self._timing = host, prompts, inbox, timing
        self._deadline, self._pause, self._is_lost = deadline, pause, is_lost
        self._over = threading.Event()
        self._replaced = False
        self._thread = threading.Thread(target=self._make_attempts, name="reconnect", daemon=True)
        prompts.unwanted = self._is_stopping
        self._thread.start()

    @classmethod
    def of_context(
        cls, context: Context, *, deadline: float, pause: float = 0.0, is_lost: Callable[[], bool] = lambda: True
    ) -> Reconnection:
        """Start to reconnect a command's host; the outcome is put into the command's inbox."""
        return cls(
            context.host,
            context.prompts,
            context.interrupts.inbox,
            deadline=deadline,
            pause=pause,
            is_lost=is_lost,
            timing=context.timing,
        )

    def stop(self) -> None:
        """Start no further attempt, and dismiss an open prompt, whose answer is no longer needed."""
        self._over.set()
        if self._is_stopping():
            self._prompts.dismiss()

    def _is_stopping(self) -> bool:
        """Whether an attempt is still under way although nobody waits for its outcome."""
        return self._over.is_set() and self._thread.is_alive()

    def _sleep(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise _Stopped

    def _make_attempts(self) -> None:
        import tenacity

        asked_before, refused = self._prompts.count, 0
        timing = self._timing

        def is_worth_another(error: BaseException) -> bool:
            nonlocal refused
            refused = refused + 1 if isinstance(error, AuthenticationFailed) else 0
            final = isinstance(error, HostKeyChanged | HostKeyUnknown) or not isinstance(error, LauncherError)
            return not (final or refused >= REFUSED_TIMES or (refused and self._prompts.count > asked_before))

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_worth_another),
            stop=lambda _: self._over.is_set() or time.monotonic() > self._deadline,
            wait=tenacity.wait_exponential(timing.reconnect_pause, timing.longest_reconnect_pause)
            + tenacity.wait_random(0, timing.reconnect_pause),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            self._sleep(self._pause)
            attempts(self._host.reconnect, timing.connect_within, self._may_replace)
        except _Stopped:
            pass
        except LauncherError as error:
            if not self._over.is_set():
                self._inbox.put(ReconnectFailed(self, error))
        except Exception as error:  # a thread must not die silently
            self._inbox.put(ReconnectFailed(self, LauncherError("Reconnecting failed.", why=repr(error))))
        else:
            if self._replaced or not self._over.is_set():
                self._inbox.put(ReconnectSucceeded(self))

    def _may_replace(self) -> bool:
        """Wait until the old connection is certainly lost; return false if it has recovered."""
        while not self._is_lost() and not self._over.wait(self._timing.replace_check):
            pass
        # even after ``stop``: otherwise the next reconnection would ask for the same secrets again
        self._replaced = self._is_lost()
        return self._replaced


def reconnect_until(
    host: Host, prompts: CountedPrompts, deadline: float, *, patience: float, poll: Callable[[], None] = lambda: None
) -> ReconnectSucceeded | ReconnectFailed | None:
    """Reconnect and wait for the outcome; ``None`` if there is none ``patience`` seconds after ``deadline``.

    ``patience`` is for an attempt that is under way at the deadline. ``poll`` is called several times a second, and
    stops the attempts by raising an exception.
    """
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    reconnection = Reconnection(host, prompts, inbox, deadline=deadline)
    try:
        while (left := deadline + patience - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                outcome = inbox.get(timeout=min(POLL_SECONDS, left))
                if isinstance(outcome, ReconnectSucceeded | ReconnectFailed):
                    return outcome
            poll()
    finally:
        reconnection.stop()
    return None
