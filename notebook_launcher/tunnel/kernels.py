"""Which of a session's kernels are busy, as its JupyterLab reports it through the tunnel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import listed, printable
from notebook_launcher.tunnel.forwarding import MOST_BYTES, Endpoint, jupyter_answer

ANSWERS_WITHIN = 2.0  # seconds for each request: somebody waits for the session's end
_LONGEST_NAME = 60

#: what the server cannot know
UNSAVED = "Check in the browser that your notebooks are saved."


class KernelsRead(Frozen):
    """What the busy kernels run, when a session is to end. ``until``: how long the user may confirm that."""

    until: float
    busy: tuple[str, ...]


def busy_kernels(local_port: int, endpoint: Endpoint, token: str) -> tuple[str, ...]:
    """Return what the busy kernels run: the paths of notebooks, or the names of kernels without one.

    Empty if no kernel is busy, or if JupyterLab does not answer in time.
    """
    kernels = _read(local_port, endpoint, token, "api/kernels")
    busy = {str(one.get("id")): one for one in kernels if one.get("execution_state") == "busy"}
    if not busy:
        return ()
    names = dict(_paths(_read(local_port, endpoint, token, "api/sessions")))
    return tuple(_shown(names.get(key) or f"a kernel ({one.get('name')})") for key, one in busy.items())


def busy_text(busy: Sequence[str]) -> str:
    """Return a sentence about busy kernels."""
    return f"{listed(busy, 3)} {'is' if len(busy) == 1 else 'are'} still running."


def _paths(sessions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for one in sessions:
        kernel, path = one.get("kernel"), one.get("name") or one.get("path")
        if isinstance(kernel, dict) and isinstance(path, str):
            yield str(kernel.get("id")), path


def _read(local_port: int, endpoint: Endpoint, token: str, path: str) -> list[dict[str, Any]]:
    """Return a list of objects from JupyterLab; an empty one if it does not answer with one."""
    import http.client

    try:
        with jupyter_answer(local_port, endpoint, token, path, ANSWERS_WITHIN) as answer:
            found = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _shown(name: str) -> str:
    line = " ".join(printable(name).split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"
