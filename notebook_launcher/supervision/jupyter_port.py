"""The local port of an attached session's JupyterLab: which one it is, its warnings, and who may have it next."""

from __future__ import annotations

from collections.abc import Callable

from notebook_launcher.core import local_state, local_users
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.tunnel import page_port
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from notebook_launcher.tunnel.page_port import PagePort


class JupyterPort:
    """The port of this machine that leads to a session's JupyterLab. ``note`` shows the user a warning."""

    def __init__(self, context: Context, session: Session, note: Callable[[str], None]) -> None:
        self._context, self._session, self._note = context, session, note
        self._page_port = PagePort.of_session(context, session)
        self._attached_by = 0  # the port, as long as the session is attached
        self._warned_of_lost = False

    def lead_to(self, session: Session) -> JupyterPort:
        """From now on lead to another session, which goes on from this one; return the same port."""
        self._session = session
        return self

    def open(self, tunnel: Tunnel, endpoint: Endpoint) -> int:
        """Return the local port by which the tunnel leads to JupyterLab: the one of last time, where it can be."""
        before = local_state.last_port(self._session.id)
        port = tunnel.jupyter(endpoint, self._page_port.preferred(before))
        self._warn_of_lost(before, port)
        return port

    def answered(self, port: int) -> None:
        """JupyterLab answers by this port, for the first time or again."""
        local_state.record_attached(self._session.id, port)
        self._page_port.used(port)
        if not self._context.scheduler.same_machine:  # there JupyterLab itself keeps the port
            self._attached_by = port

    def warn_of_free(self) -> None:
        """Warn that others of this machine may have the port soon: an open tab goes on to send the token there."""
        if self._attached_by and (not self._context.host.remote or local_users.others_work_here()):
            self._note(
                "Close the tab of this session. Others use this machine, too: one of them could take port "
                f"{self._attached_by} now, and the tab would give that program the session's token."
            )

    def shut_while_ours(self, tunnel: Tunnel, endpoint: Endpoint, token: str) -> bool:
        """Lead no new connection to the node any more, and return whether only JupyterLab was behind the port.

        Once it has ended, another user of the node could take its port there.
        """
        if not self._page_port.is_reusable:
            return False
        is_ours = page_port.is_answered(tunnel.jupyter(endpoint), endpoint, token)
        tunnel.interrupt()
        return is_ours

    def spoil(self) -> None:
        """The JupyterLab behind the port has ended unseen: another user of its node may have been there since."""
        self._page_port.spoil()

    def left(self) -> None:
        """The session has ended, after ``shut_while_ours``: the next one may have the port."""
        self._page_port.left()

    def _warn_of_lost(self, before: int, now: int) -> None:
        """Warn once that a stranger has the port that led to the session before: an open tab trusts it."""
        is_ours = before in (0, now) or before in local_state.attached_ports(self._session.id)
        if is_ours or self._context.scheduler.same_machine or self._warned_of_lost:
            return
        self._warned_of_lost = True
        self._note(
            f"Port {before} of this machine, which led to this session before, belongs to another program now. "
            "Close the tabs that are open there: they would give that program the session's token."
        )
