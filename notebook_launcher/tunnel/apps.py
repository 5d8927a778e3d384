"""What a session's JupyterLab says of the programs beside it (``--app``), and where this launcher has opened them."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from dataclasses import field

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import log_lines, printable
from notebook_launcher.tunnel.forwarding import MOST_BYTES, Endpoint, jupyter_answer

_PATH = "api/notebook-launcher/apps"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{20,100}")
_STATES = ("starting", "running", "failed")
_MOST = 20


class OpenApp(Frozen):
    """A program, and the port of the node in front of it. ``state``: ``starting``, ``running`` or ``failed``."""

    name: str
    title: str
    port: int
    state: str
    message: str
    secret: str = field(repr=False)
    log: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: object) -> OpenApp | None:
        """Return what makes sense of it, else ``None``: it comes from the node."""
        if not isinstance(data, Mapping):
            return None
        words = [data.get(key) for key in ("name", "title", "state", "message", "secret")]
        name, title, state, message, secret = (word if isinstance(word, str) else "" for word in words)
        port = data.get("port")
        if not _NAME.fullmatch(name) or not _SECRET.fullmatch(secret) or state not in _STATES:
            return None
        if type(port) is not int or not 0 < port < 65536:
            return None
        return cls(
            name,
            printable(title)[:60] or name,
            port,
            state,
            printable(message)[:500],
            secret,
            log_lines(data.get("log")),
        )

    def url(self, local_port: int) -> str:
        """Return the address for the browser, with a host name of its own, and with the app's secret."""
        return f"http://port-{local_port}.localhost:{local_port}/?nl-token={self.secret}"


def read_apps(local_port: int, endpoint: Endpoint, token: str) -> tuple[OpenApp, ...]:
    """Return the programs beside a session's JupyterLab; none if it does not answer."""
    try:
        with jupyter_answer(local_port, endpoint, token, _PATH) as answer:
            data = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else {}
        listed = data.get("apps") if isinstance(data, dict) else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return ()
    found = map(OpenApp.from_data, listed[:_MOST] if isinstance(listed, list) else ())
    return tuple(app for app in found if app is not None)


def report_opened(local_port: int, endpoint: Endpoint, token: str, ports: Mapping[str, int]) -> None:
    """Tell JupyterLab by which local ports its page can show the programs; it goes without if that fails."""
    try:
        body = json.dumps(dict(ports)).encode()
        with jupyter_answer(local_port, endpoint, token, _PATH, body=body) as answer:
            answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException):
        pass
