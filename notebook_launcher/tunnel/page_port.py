"""The local port of JupyterLab's page: where it can be, the same for the next session of the same kind.

A browser keeps what it has loaded for the address it has loaded it from, which the port is part of. With the same port,
the next session's page loads next to nothing.

With the port, the next session inherits whatever else the browser keeps for that address. Somebody else's program that
had the port meanwhile, and was opened in the browser, could have left a script there that runs in the next session's
page. So a port is used again only on a machine on which no other person runs anything, and only for the same user of
the same cluster, in the same folder. Its number is the system's choice.
"""

from __future__ import annotations

import contextlib
import os
import socket

from notebook_launcher.core import local_state, local_users
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session

PAGE_PORTS = "page-ports"  # the file of this machine's ports, by what they led to
MOST_PLACES = 100
MOST_PORTS = 4  # for one place: those of as many sessions at once


class PagePort:
    """The port of one session's page. ``place``: what it leads to; "": another session never gets the port."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._port = 0

    @classmethod
    def of_session(cls, context: Context, session: Session) -> PagePort:
        """Return that of sessions with the same login and the same folder.

        An open tab of an earlier one may come back to life, and save its notebooks. On a login node, which others use,
        too, no two sessions have the same one.
        """
        if not context.host.remote:
            return cls("")
        folder = session.record.flags.get("chdir") or ""
        return cls("\t".join((context.target.name, context.host.label, context.site.home, folder)))

    def preferred(self) -> int:
        """Return a port of an earlier session that is free now; 0: there is none, or it should not be used again."""
        return next(filter(_is_free, self._remembered()), 0) if self._may_be_shared() else 0

    def used(self, port: int) -> None:
        """Remember the port for sessions to come, if it may be used again."""
        if self._may_be_shared():
            self._port = port
            others = [one for one in self._remembered() if one != port]
            self._remember([port, *others][:MOST_PORTS])

    def left(self) -> None:
        """The session is not attached any more: forget the port if others could know it by now."""
        if self._port and not self._may_be_shared():
            self._remember([one for one in self._remembered() if one != self._port])
        self._port = 0

    def _may_be_shared(self) -> bool:
        return bool(self._place) and local_users.works_alone_here()

    def _remembered(self) -> list[int]:
        words = (local_state.remembered(PAGE_PORTS, self._place) or "").split()
        return [int(word) for word in words if word.isascii() and word.isdecimal() and 1024 <= int(word[:6]) < 65536]

    def _remember(self, ports: list[int]) -> None:
        local_state.remember(PAGE_PORTS, self._place, " ".join(map(str, ports)), at_most=MOST_PLACES)


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as attempt:
        if os.name != "nt":  # a port that was closed a minute ago is free, too
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(("127.0.0.1", port))
        return True
    return False
