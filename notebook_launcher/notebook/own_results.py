"""The results that runs from this machine have recorded, for a notebook that compares them.

Only the file ``results.jsonl`` of a folder that a fetched run or bench has made (its ``run.json`` says of which
session) is taken, from a few known places, and no more than a bound. Links are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, file_size
from notebook_launcher.notebook.results import RECORD
from notebook_launcher.session.record import SESSION_ID, json_object

RESULTS = "results.jsonl"
RUNS = "runs"
MOST = 200  # files, the newest
LARGEST = 16 * 1024 * 1024  # bytes of all of them
_LARGEST_RECORD = 1024 * 1024  # bytes


class OwnResults(Frozen):
    """Files of results, by their paths beside a notebook; ``note``: what is sent and what not, in sentences."""

    files: Mapping[str, Path]
    note: str


def own_results(output: Path) -> OwnResults:
    """Return the newest results of runs in ``output``, and of benches in the current folder."""
    found = sorted(_found(output), key=lambda one: one[2], reverse=True)
    files: dict[str, Path] = {}
    size = 0
    for name, path, _, length in found:
        if len(files) < MOST and size + length <= LARGEST:
            files[f"{RUNS}/{name}/{RESULTS}"] = path
            size += length
    if not files:
        return OwnResults(
            {},
            f"There are no results to compare in {output} or bench-*/{RUNS} here. Run a notebook that measures first, "
            "or send files of results: --with FILE",
        )
    places = " and ".join(dict.fromkeys(str(path.parent.parent) for path in files.values()))
    note = f"Sent along: what {counted(len(files), 'run')} recorded, {file_size(size)} of {RESULTS} from {places}."
    left = len(found) - len(files)
    return OwnResults(files, f"{note} Left out: {counted(left, 'older one')}." if left else note)


def _found(output: Path) -> Iterator[tuple[str, Path, float, int]]:
    """Yield a name, the file, its time and its size for each results file of a run of the user's."""
    places = [("", output), *((f"{bench.name}.", bench / RUNS) for bench in sorted(Path().glob("bench-*")))]
    for prefix, place in places:
        for folder in _folders(place):
            path = folder / RESULTS
            try:
                there = os.lstat(path)
            except OSError:
                continue
            name = f"{prefix}{folder.name}"
            if stat.S_ISREG(there.st_mode) and there.st_size and name.isprintable() and _is_of_a_run(folder):
                yield name, path, there.st_mtime, there.st_size


def _folders(place: Path) -> list[Path]:
    try:
        return [folder for folder in sorted(place.iterdir()) if folder.is_dir() and not folder.is_symlink()]
    except OSError:
        return []


def _is_of_a_run(folder: Path) -> bool:
    try:
        record = json_object(read_at_most(folder / RECORD, _LARGEST_RECORD) or b"")
    except OSError:
        return False
    return SESSION_ID.fullmatch(str(record.get("session") or "")) is not None
