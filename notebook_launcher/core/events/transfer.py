"""Events of a copy."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_launcher.core.events.base import Event


@dataclass(frozen=True)
class Copying(Event, name="copying"):
    """A copy has come so far: of all files together, bytes that are there already included."""

    file: str
    files: int
    files_done: int
    bytes: int
    bytes_done: int


@dataclass(frozen=True)
class Copied(Event, name="copied"):
    """A copy is complete, and every file's checksum (SHA-256) is the same at both ends.

    ``skipped``: files that were there already, equal. ``resumed``: bytes that an earlier attempt had left.
    """

    source: str
    destination: str
    files: int
    skipped: int
    bytes: int
    resumed: int
    seconds: float
