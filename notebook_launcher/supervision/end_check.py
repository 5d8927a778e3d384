"""What would be lost if a session were ended now: JupyterLab saves what it can, and reports the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.tunnel.forwarding import Endpoint
from notebook_launcher.tunnel.kernels import ANSWERS_WITHIN as KERNELS_WITHIN
from notebook_launcher.tunnel.kernels import busy_kernels, busy_text
from notebook_launcher.tunnel.page_saving import ANSWERS_WITHIN as PAGES_WITHIN
from notebook_launcher.tunnel.page_saving import PagesSaved, save_in_pages

JUST_NOW = 2.0  # seconds within which nothing is saved again


class EndChecked(Frozen):
    """The answer: what the ``busy`` kernels run (``None``: not known), and what pages have ``saved``."""

    busy: tuple[str, ...] | None
    saved: PagesSaved
    until: float = 0.0

    @property
    def loses_nothing(self) -> bool:
        """Whether no kernel is busy, and no page has something that is not saved, as far as that can be known."""
        return self.busy == () and not self.saved.is_doubtful

    @property
    def text(self) -> str:
        """What would be lost, as sentences."""
        return " ".join([*([busy_text(self.busy)] if self.busy != () else []), self.saved.advice])


def check_end(
    port: int,
    endpoint: Endpoint,
    token: str,
    within: float = PAGES_WITHIN + KERNELS_WITHIN,
    *,
    kernels: bool = True,
    on_saved: Callable[[PagesSaved], None] = lambda _: None,
) -> EndChecked:
    """Have JupyterLab's pages save, and ask which ``kernels`` are busy, by a local port: ``within`` these seconds.

    ``on_saved`` gets the first answer, before the second question. Raises nothing: what fails is not known.
    """
    last = time.monotonic() + within
    saved = PagesSaved()
    busy: tuple[str, ...] | None = None if kernels else ()
    with contextlib.suppress(Exception):  # not only an OSError: the session is to be ended all the same
        saved = save_in_pages(port, endpoint, token, min(within, PAGES_WITHIN))
        on_saved(saved)
        if kernels:
            busy = busy_kernels(port, endpoint, token, min(KERNELS_WITHIN, last - time.monotonic()))
    return EndChecked(busy, saved)


class EndCheck:
    """Asks JupyterLab, by a local ``port``; the answers go to the inbox."""

    def __init__(self, inbox: queue.SimpleQueue[object], token: str) -> None:
        self._inbox, self._token = inbox, token
        self._thread: threading.Thread | None = None
        self._saved_at = float("-inf")
        self._untold: tuple[str, ...] = ()  # paths that could not be saved, of which the user does not know yet

    def start(self, port: int, endpoint: Endpoint, until: float) -> None:
        """Have the pages save, and ask which kernels are busy, on a thread: ``EndChecked`` comes in any case.

        ``until``: how long the user may confirm what it says, which it repeats.
        """

        def check() -> None:
            answer = check_end(port, endpoint, self._token, on_saved=self._note_saved)
            self._saved_at = time.monotonic()
            self._inbox.put(dataclasses.replace(answer, until=until))

        self._thread = threading.Thread(target=check, daemon=True)
        self._thread.start()

    def _note_saved(self, saved: PagesSaved) -> None:
        self._untold = saved.unsaved

    def told(self) -> None:
        """Note that the user has been told what could not be saved."""
        self._untold = ()

    def save(self, port: int, endpoint: Endpoint) -> tuple[str, ...]:
        """Have the pages save; return the paths of what they could not save, and the user does not know of.

        Not while a check goes on, or just after one: it has them save, and who ends the session now does not wait.
        Later they save again, although a page that is silent costs ``PAGES_WITHIN``: between the two keys the user may
        have typed something there, or woken the page as the first answer says. Where no page is open, and where all
        answer, there is nothing to wait for.
        """
        is_checking = self._thread is not None and self._thread.is_alive()
        if is_checking or time.monotonic() - self._saved_at < JUST_NOW:
            return self._untold
        return save_in_pages(port, endpoint, self._token).unsaved
