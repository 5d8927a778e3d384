"""Shows how to make a session's address work on the user's own computer, if this terminal is an SSH login."""

from __future__ import annotations

import os

from notebook_launcher.core import events
from notebook_launcher.core.ssh_login import ssh_login
from notebook_launcher.hosts.ssh_config import local_user
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session


def show_ssh_login(context: Context, session: Session, local_port: int) -> None:
    """Show, if the user is logged in here by SSH, how to use the session's address on their own computer."""
    login = ssh_login(os.environ, local_user)
    if login is None:
        return
    is_login_node = not (context.scheduler.same_machine or context.host.remote)
    connect = login.connect_command(session.id) if is_login_node else ""
    context.view.show(events.ReachedBySsh(session.id, login.forward_command(local_port), connect))
