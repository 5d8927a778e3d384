"""What a session's JupyterLab says of the programs beside it (``--app``), and where this launcher has opened them.

Needs pydantic; see ``session/app_record.py``.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from notebook_launcher.session.app_record import AppRecord, read_app_records
from notebook_launcher.tunnel.forwarding import MOST_BYTES, Endpoint, jupyter_answer

_PATH = "api/notebook-launcher/apps"


class OpenApp(AppRecord, strict=True):
    """A program, the port of the node in front of it, and the secret without which that lets nobody in."""

    port: Annotated[int, Field(gt=0, lt=65536)]
    secret: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{20,100}$", repr=False)]

    def url(self, local_port: int) -> str:
        """Return the address for the browser, with a host name of its own, and with the app's secret."""
        return f"http://port-{local_port}.localhost:{local_port}/?nl-token={self.secret}"


def read_apps(local_port: int, endpoint: Endpoint, token: str) -> tuple[OpenApp, ...]:
    """Return the programs beside a session's JupyterLab; none if it does not answer."""
    try:
        with jupyter_answer(local_port, endpoint, token, _PATH) as answer:
            data = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else {}
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return ()
    return read_app_records(data, OpenApp)


def report_opened(local_port: int, endpoint: Endpoint, token: str, ports: Mapping[str, int]) -> None:
    """Tell JupyterLab by which local ports its page can show the programs; it goes without if that fails."""
    try:
        body = json.dumps(dict(ports)).encode()
        with jupyter_answer(local_port, endpoint, token, _PATH, body=body) as answer:
            answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException):
        pass
