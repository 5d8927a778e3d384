"""The local port of an attached session's JupyterLab: chooses it, warns about it, and leaves it to the next session."""

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
        self._attached_by = 0  # the port by which the session is attached; 0: none that the launcher holds open
        self._warned_of_lost = False

    def lead_to(self, session: Session) -> JupyterPort:
        """Lead to another session from now on, which continues this one; return the same port."""
        self._session = session
        return self

    def open(self, tunnel: Tunnel, endpoint: Endpoint) -> int:
        """Open the local port that leads to JupyterLab, the same as last time if possible, and return it."""
        before = local_state.last_port(self._session.id)
        port = tunnel.jupyter(endpoint, self._page_port.preferred(before))
        self._warn_of_lost(before, port)
        return port

    def answered(self, port: int) -> None:
        """Record that JupyterLab answers at this port, for the first time or again."""
        local_state.record_attached(self._session.id, port)
        self._page_port.used(port)
        if not self._context.scheduler.same_machine:  # on the same machine, JupyterLab itself keeps the port
            self._attached_by = port

    def warn_of_free(self) -> None:
        """Warn that other users of this machine may take the port soon, while an open tab keeps sending the token."""
        if self._attached_by and (not self._context.host.remote or local_users.others_work_here()):
            self._note(
                "Close the tab of this session. Others use this machine, too: one of them could take port "
                f"{self._attached_by} now, and the tab would give that program the session's token."
            )

    def shut_while_ours(self, tunnel: Tunnel, endpoint: Endpoint, token: str) -> bool:
        """Stop forwarding new connections to the node, and return whether only JupyterLab was behind the port.

        Once JupyterLab has ended, another user of the node could take its port there.
        """
        if not self._page_port.is_reusable:
            return False
        is_ours = page_port.is_answered(tunnel.jupyter(endpoint), endpoint, token)
        tunnel.pause_forwarding()
        return is_ours

    def spoil(self) -> None:
        """Record that JupyterLab may have ended unnoticed, and another user of its node may have taken its port."""
        self._page_port.spoil()

    def left(self) -> None:
        """Leave the port to the next session, after ``shut_while_ours`` and the end of this session."""
        self._page_port.left()

    def _warn_of_lost(self, before: int, now: int) -> None:
        """Warn once if another program has the port that led to this session before, because an open tab trusts it."""
        is_ours = before in (0, now) or before in local_state.attached_ports(self._session.id)
        if is_ours or self._context.scheduler.same_machine or self._warned_of_lost:
            return
        self._warned_of_lost = True
        self._note(
            f"Port {before} of this machine, which led to this session before, belongs to another program now. "
            "Close the tabs that are open there: they would give that program the session's token."
        )
