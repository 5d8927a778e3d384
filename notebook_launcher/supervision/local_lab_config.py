"""Configures the user's own JupyterLab for a session (``--local-lab``). Runs in its server, not in the launcher.

``local_lab_process.py`` writes this file where that server finds it, as one more ``jupyter_server_config.py`` beside
the user's own. It must run with Python 3.8, and import nothing but what the server itself needs.
"""

import json
import os
import signal
import threading
import uuid
import weakref
from datetime import datetime, timezone
from typing import Any

KERNELS_GONE = "kernels gone"  # the launcher's line that says that the session's kernels have ended with its job


def set_up(config: Any, folder: str) -> None:
    """Set the session's token, and listen to the launcher. ``folder``: this file's, named in JUPYTER_CONFIG_PATH."""
    # Both variables are removed: terminals and other child processes of the server do not need them.
    config.GatewayClient.auth_token = os.environ.pop("JUPYTER_GATEWAY_AUTH_TOKEN", "")
    others = [path for path in os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep) if path not in ("", folder)]
    if others:
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(others)
    else:
        os.environ.pop("JUPYTER_CONFIG_PATH", None)
    pages = Pages()
    follow_connections(pages)
    threading.Thread(target=listen, args=(pages,), name="launcher", daemon=True).start()


class Pages:
    """The pages' connections to kernels, and the kernels that have ended with their job."""

    def __init__(self) -> None:
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self.dead: set[str] = set()

    def kernels_gone(self) -> None:
        """Tell each page that its kernel is dead; pages that are just reconnecting are told when they connect."""
        from jupyter_server.gateway.managers import GatewayMappingKernelManager

        self.dead.update(GatewayMappingKernelManager._kernels)
        for connection in list(self.connections):
            tell_of_death(connection)
        self.connections.clear()


def follow_connections(pages: Pages) -> None:
    """Register each connection in ``pages``, unless the server is too old for that.

    If the connection to the session breaks, the page's own connection is closed, too: JupyterLab then knows that it is
    disconnected, keeps what is typed, and reconnects. The server alone would let the page wait for a reply forever.
    """
    try:
        from jupyter_server.gateway import connections as servers_connections
        from jupyter_server.gateway import gateway_client
    except ImportError:  # jupyter_server 1
        return
    kind: Any = servers_connections.GatewayWebSocketConnection
    client: Any = gateway_client.GatewayClient
    connect, read = kind.connect, kind._read_messages

    async def connect_and_note(connection: Any) -> None:
        if connection.kernel_id in pages.dead:
            tell_of_death(connection)
            return
        pages.connections.add(connection)
        await connect(connection)

    async def read_and_close(connection: Any) -> None:
        connection.retry = client.instance().gateway_retry_max  # no retries here, because the page reconnects
        await read(connection)
        if not connection.disconnected:
            connection.websocket_handler.close()

    kind.connect, kind._read_messages = connect_and_note, read_and_close


def listen(pages: Pages) -> None:
    """Follow the launcher's lines on standard input; when that closes, end the server, but not the kernels."""
    from jupyter_server import serverapp

    server: Any = serverapp.ServerApp
    with os.fdopen(0, closefd=False) as orders:
        for line in orders:
            if line.strip() == KERNELS_GONE and server.initialized():
                server.instance().io_loop.add_callback(pages.kernels_gone)
    keep_kernels()
    os.kill(os.getpid(), signal.SIGTERM)


def tell_of_death(connection: Any) -> None:
    """Tell a page that its kernel is dead."""
    connection.disconnected = True
    connection.handle_outgoing_message(json.dumps(death(connection.session_id or "")))


def death(session: str) -> "dict[str, Any]":
    """Return the message that a kernel has died, in Jupyter's messaging protocol."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "status",
        "username": "",
        "session": session,
        "date": datetime.now(timezone.utc).isoformat(),
        "version": "5.3",
    }
    content = {"execution_state": "dead"}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "iopub",
        "buffers": [],
        "msg_id": header["msg_id"],
        "msg_type": "status",
    }


def keep_kernels() -> None:
    """Make the server exit without shutting down the kernels, which keep running in the session."""
    from jupyter_server.gateway import managers

    async def shutdown_all(_manager: Any, now: bool = False) -> None:
        pass

    kind: Any = managers.GatewayMappingKernelManager
    kind.shutdown_all = shutdown_all
