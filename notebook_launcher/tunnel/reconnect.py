"""A lost connection made anew: again and again, ever more rarely, until it stands or is given up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from notebook_launcher.core.errors import AuthenticationFailed, HostKeyChanged, HostKeyUnknown, LauncherError
from notebook_launcher.hosts.base import Host, Prompts

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0  # seconds between two attempts; a network that is back is used that soon
CONNECT_WITHIN = 8.0  # seconds for one attempt: a packet lost while the network comes back must not cost more
REFUSED_TIMES = 5  # a login node that is just starting up refuses everybody for a while


class CountedPrompts:
    """Prompts that know how often somebody was asked for a secret.

    ``unwanted``: whether a question that comes now is one that nobody needs an answer to any more.
    """

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self.count = 0
        self.unwanted: Callable[[], bool] = lambda: False

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Pass the question on, unless it comes too late."""
        if self.unwanted():
            return None
        self.count += 1
        return self._prompts.secret(text, echo=echo)

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask; not every way to ask can tell."""
        return getattr(self._prompts, "asks", False)

    def confirm(self, text: str) -> bool | None:
        """Pass the question on."""
        return self._prompts.confirm(text)

    def take_back(self) -> None:
        """End the question that stands, if any, without an answer; not every way to ask can do that."""
        dismiss = getattr(self._prompts, "dismiss", None)
        if dismiss is not None:
            dismiss()


@dataclass(frozen=True)
class Mended:
    """The connection stands anew; whatever ran over the old one has to be started again."""

    by: Mending


@dataclass(frozen=True)
class GivenUp:
    """It was tried for long enough, or trying again would be of no use."""

    by: Mending
    error: LauncherError


class _Stopped(Exception):
    """The attempts are to end; raised where the next one would begin."""


class Mending:
    """Tries on a thread of its own until ``deadline`` (monotonic); what becomes of it is put into ``inbox``.

    The old connection stays until a new one stands and ``is_lost`` says that it will not come back. The user is asked
    for a secret at most in one attempt: with a second factor a login cannot be repeated without, and who does not
    answer is not asked again.
    """

    def __init__(
        self,
        host: Host,
        prompts: CountedPrompts,
        inbox: queue.SimpleQueue[object],
        *,
        deadline: float,
        pause: float,
        is_lost: Callable[[], bool],
    ) -> None:
        self._host, self._prompts, self._inbox = host, prompts, inbox
        self._deadline, self._pause, self._is_lost = deadline, pause, is_lost
        self._over = threading.Event()
        self._replaced = False
        self._thread = threading.Thread(target=self._try, name="mending", daemon=True)
        prompts.unwanted = self._is_stopping
        self._thread.start()

    def stop(self) -> None:
        """Begin no further attempt, and take back what is being asked for one: nobody needs the answer any more."""
        self._over.set()
        if self._is_stopping():
            self._prompts.take_back()

    def _is_stopping(self) -> bool:
        """Whether an attempt is still under way that nobody waits for."""
        return self._over.is_set() and self._thread.is_alive()

    def _sleep(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise _Stopped

    def _try(self) -> None:
        import tenacity

        asked, refused = self._prompts.count, 0

        def is_worth_another(error: BaseException) -> bool:
            nonlocal refused
            refused = refused + 1 if isinstance(error, AuthenticationFailed) else 0
            final = isinstance(error, HostKeyChanged | HostKeyUnknown) or not isinstance(error, LauncherError)
            return not (final or refused >= REFUSED_TIMES or (refused and self._prompts.count > asked))

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_worth_another),
            stop=lambda _: self._over.is_set() or time.monotonic() > self._deadline,
            wait=tenacity.wait_exponential(FIRST_PAUSE, LONGEST_PAUSE) + tenacity.wait_random(0, FIRST_PAUSE),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            self._sleep(self._pause)
            attempts(self._host.reconnect, CONNECT_WITHIN, self._may_replace)
        except _Stopped:
            pass
        except LauncherError as error:
            if not self._over.is_set():
                self._inbox.put(GivenUp(self, error))
        except Exception as error:  # a thread that dies must not die in silence
            self._inbox.put(GivenUp(self, LauncherError("The connection could not be made anew.", why=repr(error))))
        else:
            if self._replaced or not self._over.is_set():
                self._inbox.put(Mended(self))

    def _may_replace(self) -> bool:
        """Wait until the old connection is lost for certain; no, where it has come back meanwhile."""
        while not self._is_lost() and not self._over.wait(0.1):
            pass
        # also where nobody waits for it any more: whoever comes next would have to ask for the same secrets again
        self._replaced = self._is_lost()
        return self._replaced
