"""The request for a bench, its limits, and its timeouts."""

from __future__ import annotations

from pathlib import Path

from notebook_launcher.core.frozen import Frozen

NOTEBOOK = "beginner-tensorflow"  # the default
AT_ONCE, MOST_AT_ONCE = 4, 50  # jobs in the queue


class BenchRequest(Frozen):
    """The request for a bench. ``output``: its folder; ``None``: ``./bench-NAME``. ``command``: as typed.

    ``pairs``: parameters that are the same in all combinations. ``sure``: allow more combinations than usual.
    """

    matrix: str
    notebook: str = NOTEBOOK
    pairs: tuple[tuple[str, str], ...] = ()
    dependencies: tuple[Path, ...] = ()
    at_once: int = AT_ONCE
    output: Path | None = None
    baseline: str = ""
    retry_failed: bool = False
    fresh: bool = False
    sure: bool = False
    command: str = ""


class BenchTiming(Frozen):
    """Times of a bench, in seconds."""

    lookup_within: float = 60.0  # one lookup of all sessions
    visible_within: float = 90.0  # until another login node shows a new directory: NFS caches listings for 60
    appears_within: float = 20.0  # until the queue shows a job whose launcher was killed while submitting it
    reconnect_within: float = 600.0  # attempts to reconnect
    retry_for: float = 300.0  # attempts to submit to a scheduler that accepts no jobs
    retry_pause: float = 5.0  # between two of these attempts


BENCH_TIMING = BenchTiming()
