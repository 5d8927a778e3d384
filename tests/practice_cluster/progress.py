"""Prints progress on standard error, with the elapsed time."""

import sys
import time

_started = time.monotonic()


def say(text: str) -> None:
    """Print one line of progress, prefixed with the seconds since the program started."""
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", file=sys.stderr, flush=True)
