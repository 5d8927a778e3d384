"""Finds out which of a session's kernels are busy, from its JupyterLab through the tunnel."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from notebook_launcher.core.text import listed, one_line
from notebook_launcher.tunnel.forwarding import MOST_BYTES, Endpoint, jupyter_answer

ANSWERS_WITHIN = 5.0  # seconds; meanwhile the user waits for the session's end, and is told so
_LONGEST_NAME = 60

_A_KERNEL = "a kernel ("  # begins the name of a kernel without a file
#: whether notebooks are saved is known to the browser only
UNSAVED = "Check in the browser that your notebooks are saved."


def busy_kernels(
    local_port: int, endpoint: Endpoint, token: str, within: float = ANSWERS_WITHIN
) -> tuple[str, ...] | None:
    """Return what the busy kernels run: the paths of notebooks, or the names of kernels without one.

    ``within``: seconds for all requests. ``None`` if JupyterLab does not answer in time: then nothing is known; a
    kernel may be using all of its cores.
    """
    deadline = time.monotonic() + within
    kernels = _read(local_port, endpoint, token, "api/kernels", deadline)
    if kernels is None:
        return None
    busy = {str(one.get("id")): one for one in kernels if one.get("execution_state") == "busy"}
    if not busy:
        return ()
    names = dict(_paths(_read(local_port, endpoint, token, "api/sessions", deadline) or []))
    shown = (names.get(key) or f"{_A_KERNEL}{one.get('name')})" for key, one in busy.items())
    return tuple(one_line(name, _LONGEST_NAME) for name in shown)


def busy_text(busy: Sequence[str] | None) -> str:
    """Return a sentence about busy kernels; with ``None``, that they are not known."""
    if busy is None:
        return "JupyterLab does not answer, so it is not known whether a kernel is busy."
    names = listed(busy, 3)
    if names.startswith(_A_KERNEL):  # not the name of a file, so the sentence begins with a capital letter
        names = names[0].upper() + names[1:]
    return f"{names} {'is' if len(busy) == 1 else 'are'} still running."


def _paths(sessions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for one in sessions:
        kernel, path = one.get("kernel"), one.get("name") or one.get("path")
        if isinstance(kernel, dict) and isinstance(path, str):
            yield str(kernel.get("id")), path


def _read(local_port: int, endpoint: Endpoint, token: str, path: str, deadline: float) -> list[dict[str, Any]] | None:
    """Return a list of objects from JupyterLab; ``None`` if it does not answer with one before the deadline."""
    import http.client

    if (left := deadline - time.monotonic()) <= 0:
        return None
    try:
        with jupyter_answer(local_port, endpoint, token, path, left) as answer:
            found = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else None
