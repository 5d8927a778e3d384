"""Processes of the host: finds those of a cluster, and ends them reliably."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import ClusterError

MARK = "NOTEBOOK_LAUNCHER_PRACTICE_CLUSTER"
"""Environment variable of all processes that a cluster starts on the host; its value is the state directory."""


def birth(pid: int) -> int | None:
    """Return the start time of `pid` (clock ticks since boot); None if it is gone or a zombie.

    Process id and start time together identify a process, because ids are reused.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    """Return the children of `pid`; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        for thread in threads:
            found += map(int, _read(f"{thread.path}/children").split())
    return found


def _read(path: str) -> str:
    """Return the content of a file in /proc. Thousands are read, and using ``Path`` would take most of the time."""
    with open(path, errors="replace") as file:  # noqa: PTH123
        return file.read()


class InBox(NamedTuple):
    """A process in a box: its id on the host and in the box, its user, and its command line."""

    host_pid: int
    pid: int
    uid: int
    args: str


def in_boxes(*firsts: int) -> list[list[InBox]]:
    """Return the processes in each of some boxes, which are given by their first processes.

    The host sees all processes, so no box need be entered, which is a hundred times as fast as ``ps`` there. Of the
    host's other processes, only their namespaces are read.
    """
    spaces: dict[str, list[int]] = {}
    with os.scandir("/proc") as entries:
        for pid in (int(entry.name) for entry in entries if entry.name.isdigit()):
            spaces.setdefault(_pid_namespace(pid), []).append(pid)
    return [_in_box(first, spaces.get(_pid_namespace(first), [])) for first in firsts]


def _in_box(first: int, same_space: list[int]) -> list[InBox]:
    if (status := _status(first)) is None:
        return []
    level = len(status["NSpid"].split()) - 1  # a container in the box may have its own PID namespace
    found: dict[int, InBox] = {}
    left = list(same_space)
    while left:
        pid = left.pop()
        if pid in found or not (fields := _status(pid)) or (args := _arguments(pid, fields)) is None:
            continue
        found[pid] = InBox(pid, int(fields["NSpid"].split()[level]), int(fields["Uid"].split()[1]), args)
        left += children(pid)
    return sorted(found.values())


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - see _read
    except OSError:
        return ""


def _status(pid: int) -> dict[str, str] | None:
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _arguments(pid: int, status: dict[str, str]) -> str | None:
    """Return the command line of a process as ``ps`` shows it; ``None`` if it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return None
    name = f"[{status['Name']}]" + (" <defunct>" if status["State"].startswith("Z") else "")
    return words.decode(errors="surrogateescape").strip() or name


def marked(state: Path) -> list[int]:
    """Return the processes that have the mark of the cluster in `state`, except this one."""
    return [pid for pid, mark in _all_marked() if mark == state]


def marks() -> set[Path]:
    """Return the state directories of all clusters with running processes, also those below another root directory."""
    return {mark for _pid, mark in _all_marked()}


def _all_marked() -> Iterator[tuple[int, Path]]:
    name = f"{MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                if variable.startswith(name):
                    yield int(entry.name), Path(os.fsdecode(variable[len(name) :]))


def end(pids: Iterable[int], seconds: float = 10) -> None:
    """Kill the processes and wait until they are gone.

    Raises ClusterError if one is still running after `seconds`.
    """
    left = {pid: born for pid in pids if (born := birth(pid)) is not None}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while left := {pid: born for pid, born in left.items() if birth(pid) == born}:
        if time.monotonic() > deadline:
            raise ClusterError(f"Process {min(left)} of the practice cluster does not end, not even by SIGKILL.")
        time.sleep(0.02)


def end_all(mark: Path, known: Iterable[int] = ()) -> None:
    """End all processes that were started for the state directory `mark`, and the processes `known`.

    The kernel ends the processes inside a box together with the box's first process.
    """
    outside = marked(mark)
    inside = [child for pid in outside for child in children(pid)]
    end({*known, *outside, *inside})
