"""The base class of events, and events of any command.

The names and fields are documented in ``docs/json.md``; a test checks that they agree.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from notebook_launcher.core.frozen import Frozen, complete


class Event(Frozen):
    """Something that happened. ``name`` is its name in ``--json``."""

    name: ClassVar[str]

    def __init_subclass__(cls, name: str) -> None:
        """Name the kind of event: ``class Ready(Event, name="ready")``."""
        cls.name = name

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the fields of this kind of event."""
        complete(cls)
        return dataclasses.fields(cls)

    def data(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return dataclasses.asdict(self)


class Note(Event, name="note"):
    """A note for the user, in a sentence."""

    text: str


class Problem(Event, name="error"):
    """The command ended with an error; the fields are those of ``LauncherError``."""

    kind: str
    what: str
    why: str
    hint: str
    log: tuple[str, ...]
    exit_code: int


class Querying(Event, name="querying"):
    """A query that may take a while, mostly to the scheduler; ``text`` describes it."""

    text: str
