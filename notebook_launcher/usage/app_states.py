"""The programs beside a session's JupyterLab (``--app``): their states, and their addresses on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from notebook_launcher.core import events, local_state
from notebook_launcher.hosts.base import Host
from notebook_launcher.session.record import Session

if TYPE_CHECKING:
    from notebook_launcher.session.app_record import AppRecord

#: in the session's directory; ``docs/job-script.md`` describes the content
STATES_FILE = "runtime/apps.json"


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
    from notebook_launcher.session.app_record import AppRecord, read_app_records  # it takes its time to load

    try:
        records = read_app_records(json.loads(content), AppRecord)
    except (ValueError, RecursionError):
        return ()
    return tuple(_app_state(one, ports.get(one.name)) for one in records)


def _app_state(record: AppRecord, port: int | None) -> events.AppState:
    # As a browser has it that was there before: with the secret, it would be a password.
    url = f"http://port-{port}.localhost:{port}/" if port else None
    return events.AppState(record.name, record.title, record.state, record.restarts, record.message, url, record.log)
