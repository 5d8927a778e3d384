"""The local port of JupyterLab's page: where possible, the same for the next session of the same kind.

A browser caches what it has loaded from an address, of which the port is part. With the same port, the next session's
page has next to nothing to load.

But the next session also inherits everything else that the browser keeps for that address. Another user's program that
had the port meanwhile, and was opened in the browser, could have left a script there that runs in the next session's
page. So a port is used again only on a machine that one person alone uses, and only for the same user of the same
cluster, in the same folder; and only if no other user of the compute node can have been behind it: if the session was
ended from here while JupyterLab still answered.

While a session has a port, the file does not list it: a launcher that is killed cannot know who used it later.
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

PAGE_PORTS = "page-ports"  # the file with this machine's ports, by what they led to
MOST_PLACES = 100
MOST_PORTS = 4  # for one place: enough for as many sessions at once
ANSWERS_WITHIN = 1.0  # seconds; the user waits for the session's end
LOCK_TIMEOUT = 2.0  # seconds; another launcher reads and writes a small file


def is_answered(local_port: int, endpoint: Endpoint, token: str) -> bool:
    """Whether JupyterLab accepts the session's token now, and so still has its port of the node."""
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
        self._port = 0  # which the next session may have
        self._is_spoilt = not place  # whether no other session may have the port of this one
        self._preferred: int | None = None

    @classmethod
    def of_session(cls, context: Context, session: Session) -> PagePort:
        """Return the port that this session shares with earlier ones from this machine, of the same login and folder.

        An open tab of an earlier session may reconnect, and save its notebooks. On a login node, which others use, too,
        sessions never share a port. The state folder may be shared by several machines.
        """
        if not context.host.remote:
            return cls("")
        folder = session.record.flags.get("chdir") or ""
        words = (socket.gethostname(), context.target.name, context.host.label, context.site.home, folder)
        return cls("\t".join(words))

    def preferred(self, before: int = 0) -> int:
        """Return the port to ask for; 0: any. Another session gets it only after ``left``.

        ``before``: the port by which this session was last attached, which is preferred; 0: none. Else it is one that
        an earlier session has left, if it is free.
        """
        if self._preferred is None:
            self._preferred = self._taken(before)
        return self._preferred

    def used(self, port: int) -> None:
        """Record that the session is attached by this port, for the first time or again."""
        self._check()
        self._port = 0 if self._is_spoilt else port

    @property
    def is_reusable(self) -> bool:
        """Whether the next session may have the port, as far as is known."""
        self._check()
        return bool(self._port) and not self._is_spoilt

    def spoil(self) -> None:
        """Record that another user may have been behind the port, so that no other session gets it."""
        self._is_spoilt = True

    def left(self) -> None:
        """Leave the port to the next session, because this one has ended and only its JupyterLab was behind the port.

        Not to be called after the user has detached: then it is still this session's port.
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
        """Take a port from the file."""
        self._check()
        if self._is_spoilt and not (before and self._place):
            return before
        with self._remembered() as ports:
            port = before or next(filter(_is_free, ports), 0)
            if port in ports:
                ports.remove(port)
            elif before:  # another user may have been behind it, or a launcher was killed
                self._is_spoilt = True
        return port

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[list[int]]:
        """Read the ports of this place, and write the changed list; an empty list if that is impossible."""
        from filelock import FileLock, Timeout  # imported late, because it is slow to load

        with contextlib.ExitStack() as held:
            try:
                # for the whole file, which is written as a whole
                lock = FileLock(local_state.lock_file(PAGE_PORTS, ""), timeout=LOCK_TIMEOUT, mode=0o600)
                held.enter_context(lock)
            except (OSError, NotImplementedError, Timeout):
                yield []
                return
            words = (local_state.remembered(PAGE_PORTS, self._place) or "").split()
            before = [int(word) for word in words if _is_port(word)]
            ports = before.copy()
            yield ports
            if ports or before:  # even if unchanged, because the places that were used last are kept
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
