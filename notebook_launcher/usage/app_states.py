"""The programs beside a session's JupyterLab (``--app``): their states, and their addresses on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from notebook_launcher.core import events, local_state
from notebook_launcher.core.text import log_lines, printable
from notebook_launcher.hosts.base import Host
from notebook_launcher.session.record import Session

#: in the session's directory; ``docs/job-script.md`` describes the content
STATES_FILE = "runtime/apps.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_STATES = ("starting", "running", "failed")
_MOST, _MOST_RESTARTS = 20, 10**6
_LONGEST_TITLE, _LONGEST_MESSAGE = 60, 500


def read_app_states(host: Host, session: Session, endpoint: Mapping[str, object] | None) -> tuple[events.AppState, ...]:
    """Return a running session's programs; none without ``--app``. ``endpoint``: the job's own record of JupyterLab."""
    if endpoint is None or endpoint.get("apps") is not True:
        return ()
    ports = local_state.app_ports(session.id)
    return app_states(host.read_file(f"{session.directory}/{STATES_FILE}") or b"", ports)


def app_states(content: bytes, ports: Mapping[str, int]) -> tuple[events.AppState, ...]:
    """Return the programs in ``runtime/apps.json``, as far as they make sense: it comes from the node.

    ``ports``: the local ports by which they are open here.
    """
    try:
        data = json.loads(content)
        listed = data["apps"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    found = (_app_state(one, ports) for one in (listed[:_MOST] if isinstance(listed, list) else ()))
    return tuple(one for one in found if one is not None)


def _app_state(data: object, ports: Mapping[str, int]) -> events.AppState | None:
    if not isinstance(data, Mapping):
        return None
    words = [data.get(key) for key in ("name", "title", "state", "message")]
    name, title, state, message = (_one_line(word) if isinstance(word, str) else "" for word in words)
    restarts = data.get("restarts")
    if not _NAME.fullmatch(name) or state not in _STATES:
        return None
    if type(restarts) is not int or not 0 <= restarts <= _MOST_RESTARTS:
        restarts = 0
    port = ports.get(name)
    # As a browser has it that was there before: with the secret, it would be a password.
    url = f"http://port-{port}.localhost:{port}/" if port else None
    title, message = title[:_LONGEST_TITLE] or name, message[:_LONGEST_MESSAGE]
    return events.AppState(name, title, state, restarts, message, url, log_lines(data.get("log")))


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())
