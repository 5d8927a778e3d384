"""Events of a copy."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event


class Copying(Event, name="copying"):
    """The progress of a copy: all files together, including bytes that were there already."""

    file: str
    files: int
    files_done: int
    bytes: int
    bytes_done: int


class Copied(Event, name="copied"):
    """A copy is complete, and the checksum (SHA-256) of every file is the same on both sides.

    ``skipped``: files that were identical already. ``resumed``: bytes that an earlier attempt had copied.
    """

    source: str
    destination: str
    files: int
    skipped: int
    bytes: int
    resumed: int
    seconds: float
