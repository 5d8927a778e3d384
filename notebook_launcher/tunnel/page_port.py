"""The local port of JupyterLab's page: where it can be, the same for the next session of the same kind.

A browser keeps what it has loaded for the address it has loaded it from, which the port is part of. With the same port,
the next session's page loads next to nothing.

With the port, the next session inherits whatever else the browser keeps for that address. Somebody else's program that
had the port meanwhile, and was opened in the browser, could have left a script there that runs in the next session's
page. So a port is used again only on a machine that is one person's, and only for the same user of the same cluster, in
the same folder. Nor is it used again if another user of the compute node could have been behind it: only if the session
was ended from here while JupyterLab still answered.

While a session has a port, its file does not: a launcher that is killed cannot tell who came meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from notebook_launcher.core import local_state, personal_machine
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.tunnel.forwarding import Endpoint, jupyter_answer

PAGE_PORTS = "page-ports"  # the file of this machine's ports, by what they led to
MOST_PLACES = 100
MOST_PORTS = 4  # for one place: those of as many sessions at once
ANSWERS_WITHIN = 1.0  # seconds; somebody waits for the session's end
LOCK_TIMEOUT = 2.0  # seconds; another launcher reads and writes a small file


def is_answered(local_port: int, endpoint: Endpoint, token: str) -> bool:
    """Whether JupyterLab answers now, with the session's token: it still holds its port of the node."""
    import http.client

    try:
        with jupyter_answer(local_port, endpoint, token, "api/status", ANSWERS_WITHIN) as answer:
            is_ours = answer.status == 200
    except (OSError, http.client.HTTPException):
        return False
    return is_ours


class PagePort:
    """The port of one session's page. ``place``: what it leads to; "": another session never gets the port."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._port = 0  # what the next session may have
        self._is_spoilt = not place  # whether no other session may have the port of this one
        self._preferred: int | None = None

    @classmethod
    def of_session(cls, context: Context, session: Session) -> PagePort:
        """Return that of sessions of this machine with the same login and the same folder.

        An open tab of an earlier one may come back to life, and save its notebooks. On a login node, which others use,
        too, no two sessions have the same one. The file may be that of several machines.
        """
        if not context.host.remote:
            return cls("")
        folder = session.record.flags.get("chdir") or ""
        words = (socket.gethostname(), context.target.name, context.host.label, context.site.home, folder)
        return cls("\t".join(words))

    def preferred(self, before: int = 0) -> int:
        """Return the port to ask for; 0: any. Another session gets it only after ``left``.

        It is ``before``, by which this session was attached to last (0: it was not), or one that an earlier session
        has left and that is free now.
        """
        if self._preferred is None:
            self._preferred = self._taken(before)
        return self._preferred

    def used(self, port: int) -> None:
        """The session is attached by this port, for the first time or again."""
        self._check()
        self._port = 0 if self._is_spoilt else port

    @property
    def is_reusable(self) -> bool:
        """Whether the next session may have the port, as far as is known."""
        self._check()
        return bool(self._port) and not self._is_spoilt

    def spoil(self) -> None:
        """Somebody else may have been behind the port: no other session gets it."""
        self._is_spoilt = True

    def left(self) -> None:
        """The session has ended, and only its JupyterLab was behind the port: the next one may have it.

        Not after the user has detached: it is still the port of this session.
        """
        self._check()
        port = self._port or self._preferred or 0
        if port and not self._is_spoilt:
            with self._remembered() as ports:
                ports[:] = [port, *(one for one in ports if one != port)][:MOST_PORTS]
        self._port, self._preferred = 0, None

    def _check(self) -> None:
        self._is_spoilt = self._is_spoilt or not personal_machine.is_personal_machine()

    def _taken(self, before: int) -> int:
        """Take a port out of the file."""
        self._check()
        if self._is_spoilt and not (before and self._place):
            return before
        with self._remembered() as ports:
            port = before or next(filter(_is_free, ports), 0)
            if port in ports:
                ports.remove(port)
            elif before:  # it was used beside somebody else, or by a launcher that was killed
                self._is_spoilt = True
        return port

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[list[int]]:
        """Read the ports of this place, and write them again; none if that cannot be done."""
        from filelock import FileLock, Timeout  # it takes its time to load

        with contextlib.ExitStack() as held:
            try:
                # of the whole file, which is written at once
                lock = FileLock(local_state.lock_file(PAGE_PORTS, ""), timeout=LOCK_TIMEOUT, mode=0o600)
                held.enter_context(lock)
            except (OSError, NotImplementedError, Timeout):
                yield []
                return
            words = (local_state.remembered(PAGE_PORTS, self._place) or "").split()
            before = [int(word) for word in words if _is_port(word)]
            ports = before.copy()
            yield ports
            if ports or before:  # unchanged ones, too: those of the places used last are kept
                text = " ".join(map(str, ports))
                local_state.remember(PAGE_PORTS, self._place, text, at_most=MOST_PLACES)


def _is_port(word: str) -> bool:
    return word.isascii() and word.isdecimal() and 1024 <= int(word[:6]) < 65536


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as attempt:
        if os.name != "nt":  # a port that was closed a minute ago is free, too
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(("127.0.0.1", port))
        return True
    return False
