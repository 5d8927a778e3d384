"""Reads what a job reports about a copy of its environment on the node's own disk (``stage`` in a profile)."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.text import one_line
from notebook_launcher.schedulers.base import JobRef

_STATES = ("waiting", "copying", "copied", "kept", "later", "failed")
_LONGEST_TEXT = 300  # characters of a text from the node


def read_staging(job: JobRef, data: Mapping[str, object]) -> events.Staging | None:
    """Read ``staging.json`` (see ``docs/job-script.md``); ``None`` if it is invalid."""
    state = data.get("state")
    if state not in _STATES:
        return None
    node, path, why = (one_line(str(data.get(key) or ""), _LONGEST_TEXT) for key in ("node", "path", "why"))
    done, size = (_count(data.get(key)) for key in ("done", "bytes"))
    return events.Staging(str(job), node, path, str(state), done, size, why)


def not_staged_note(event: events.Staging) -> str:
    """Return a sentence about an environment that could not be copied."""
    return f"{event.path} was not staged on {event.node}, because {event.why}; its job starts it from where it is."


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
