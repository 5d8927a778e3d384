"""Shared by the modules of ``execute.py``: the exception of a failed run, text for the log, and atomic writes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import unicodedata
from datetime import datetime, timezone
from pathlib import Path

KERNEL_ENDS_WITHIN = 3.0  # seconds for a kernel to end when the job ends
COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class GaveUp(Exception):
    """Raised when the run has failed, with the cause for exit.json and a sentence."""

    def __init__(self, cause: str, sentence: str, cell: int | None = None) -> None:
        super().__init__(sentence)
        self.cause, self.sentence, self.cell = cause, sentence, cell


def say(text: str) -> None:
    """Write a line into the job's log, as the job script does."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')} notebook-launcher: {text}", file=sys.stderr, flush=True)


def one_line(text: object, most: int = 300) -> str:
    """Return the first line of a text that is not blank, without colours and control characters."""
    lines = (line.strip() for line in COLOUR.sub("", str(text)).splitlines())
    line = next((line for line in lines if line), "")
    line = "".join(" " if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char for char in line).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def sentence(text: str) -> str:
    """Return a text that ends with a full stop."""
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def duration(seconds: float) -> str:
    """Return ``0:42`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """Return ``1 cell``, ``9 cells``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def utc(seconds: float) -> str:
    """Return a time in seconds since 1970 in the format of the session's files."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def replace(path: Path, text: str, scratch: Path, mode: int = 0o666) -> None:
    """Replace a file atomically. ``scratch``: a folder on the same file system."""
    new = scratch / f"new-{os.getpid()}"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
