"""Collects the results recorded by runs that were started here, for a notebook that compares them.

Only files ``results.jsonl`` are read, up to a total size, from a few known places, and only in folders of fetched runs
and benches (their ``run.json`` names the session). Folders are opened without following symbolic links, so that no
other file can take the place of a result. Only a folder named by the user may be a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, file_size
from notebook_launcher.core.text import joined, listed
from notebook_launcher.notebook.results import RECORD
from notebook_launcher.session.record import SESSION_ID, json_object
from notebook_launcher.transfer.real_folder import RealFolder, real_folder

RESULTS = "results.jsonl"
RUNS = "runs"
MOST = 200  # files, the newest
LARGEST = 16 * 1024 * 1024  # bytes of all of them
_LARGEST_RECORD = 1024 * 1024  # bytes


class OwnResults(Frozen):
    """Files of results, by their paths relative to the notebook. ``note``: what is sent and what not, in sentences."""

    files: Mapping[str, bytes]
    note: str


class _Place(Frozen):
    """A folder of runs. ``prefix``: for their names beside the notebook; ``shown``: the path as the user knows it."""

    path: Path
    shown: Path
    prefix: str = ""


class _Recorded(Frozen):
    """The results of one run, not yet read. ``name``: of its folder beside the notebook."""

    name: str
    path: Path
    shown: Path
    modified: float
    size: int


def own_results(output: Path) -> OwnResults:
    """Return the newest results of runs in ``./runs`` and ``output``, and of benches in the current folder."""
    places = _places(output)
    found = sorted((one for place in places for one in _in(place)), key=lambda one: one.modified, reverse=True)
    files: dict[str, bytes] = {}
    sent: list[_Recorded] = []
    large: list[_Recorded] = []
    room = LARGEST
    while found and len(files) < MOST:
        one = found.pop(0)
        content = _content(one, room)
        if content is None:
            large.append(one)
        elif content:
            files[f"{RUNS}/{one.name}/{RESULTS}"] = content
            sent.append(one)
            room -= len(content)
    told = (_of_sent(sent, LARGEST - room), _of_left(large, len(found))) if sent or large else (_nothing(places),)
    return OwnResults(files, joined(*told, _of_links(places)))


def _of_sent(sent: Sequence[_Recorded], size: int) -> str:
    if not sent:
        return "No results are sent along to compare."
    places = " and ".join(dict.fromkeys(str(one.shown.parent) for one in sent))
    return f"Sent along: the results of {counted(len(sent), 'run')}, {file_size(size)} of {RESULTS} from {places}."


def _of_left(large: Sequence[_Recorded], older: int) -> str:
    names = listed([f"{one.shown / RESULTS} ({file_size(one.size)})" for one in large])
    return joined(
        f"Left out: {counted(older, 'older one')}." if older else "",
        f"Left out (at most {file_size(LARGEST)} in all): {names}. Send it with: --with FILE" if large else "",
    )


def _of_links(places: Sequence[_Place]) -> str:
    links = listed([str(place.shown) for place in places if os.path.realpath(place.path) != str(place.path)])
    return f"Not looked into, as it is a symbolic link: {links}. --output DIR names the folder itself." if links else ""


def _nothing(places: Sequence[_Place]) -> str:
    named = ", ".join(str(place.shown) for place in places if not place.prefix)
    return (
        f"There are no results to compare in {named} or bench-*/{RUNS} here. "
        "Send files of results from elsewhere with: --with FILE"
    )


# --- what there is ------------------------------------------------------------------------------------------------


def _places(output: Path) -> list[_Place]:
    """Return each place once; in the path of the folder that the user named, links are resolved."""
    here = Path.cwd()
    places = [_Place(here / RUNS, Path(RUNS))]
    places += [_Place(here / bench / RUNS, bench / RUNS, f"{bench.name}.") for bench in sorted(Path().glob("bench-*"))]
    named = Path(os.path.realpath(output))
    if output != Path(RUNS) and named not in [place.path for place in places]:
        places.insert(1, _Place(named, output))
    return places


def _in(place: _Place) -> list[_Recorded]:
    try:
        names = sorted(path.name for path in place.path.iterdir())
    except OSError:
        return []
    return [found for name in names if f"{place.prefix}{name}".isprintable() and (found := _recorded(place, name))]


def _recorded(place: _Place, name: str) -> _Recorded | None:
    """Return the results of a run; ``None`` if the folder does not belong to a run, or has no results."""
    try:
        with real_folder(str(place.path / name)) as folder:
            there = folder.stat(RESULTS)
            is_one = stat.S_ISREG(there.st_mode) and there.st_size > 0 and _is_of_a_run(folder)
    except OSError:
        return None
    of_run = _Recorded(f"{place.prefix}{name}", place.path / name, place.shown / name, there.st_mtime, there.st_size)
    return of_run if is_one else None


def _is_of_a_run(folder: RealFolder) -> bool:
    record = json_object(folder.read(RECORD, _LARGEST_RECORD) or b"")
    return SESSION_ID.fullmatch(str(record.get("session") or "")) is not None


def _content(one: _Recorded, room: int) -> bytes | None:
    """Return the results; ``None`` if they are larger than ``room`` bytes, empty if they can no longer be read."""
    try:
        with real_folder(str(one.path)) as folder:
            return folder.read(RESULTS, room)
    except OSError:
        return b""
