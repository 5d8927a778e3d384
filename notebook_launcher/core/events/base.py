"""The base class of events, and events of any command.

The names and fields are documented in ``docs/json.md``; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Any, ClassVar

if sys.version_info >= (3, 11):
    from typing import Self, dataclass_transform
else:
    from typing_extensions import Self, dataclass_transform

_completed: set[type[Event]] = set()
_completing = threading.Lock()  # threads show events too


@dataclass_transform(frozen_default=True)
class Event:
    """Something that happened. ``name`` is its name in ``--json``.

    Every kind is a frozen dataclass, and becomes one when it is first needed: making all of them takes a tenth of the
    processor time in which a launch starts, and most kinds never happen in it.
    """

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, name: str) -> None:
        """Name the kind of event: ``class Ready(Event, name="ready")``."""
        cls.name = name

    def __new__(cls, *_values: object, **_named: object) -> Self:
        """Return a new event; its values are for the dataclass."""
        _complete(cls)
        return super().__new__(cls)

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the fields of this kind of event."""
        _complete(cls)
        return dataclasses.fields(cls)

    def data(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return dataclasses.asdict(self)


def _complete(kind: type[Event]) -> None:
    """Make a kind of event a dataclass, once."""
    if kind not in _completed:
        with _completing:
            if kind not in _completed:
                dataclasses.dataclass(frozen=True)(kind)
                _completed.add(kind)


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
