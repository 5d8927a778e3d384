"""Finds the processes that a test has started, directly or not: all of them inherit an environment variable."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from tests.doubles import wait_until


def words_of(pid: int, file: str) -> list[bytes]:
    """The entries of ``environ`` or ``cmdline`` of a process; empty if it is dead, gone, or another user's."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []


def with_variable(name: str, value: str) -> list[psutil.Process]:
    """All processes except this one that were started with ``NAME=VALUE`` in their environment."""
    found = []
    for pid in psutil.pids():
        if f"{name}={value}".encode() in words_of(pid, "environ") and pid != os.getpid():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return found


def kill_with_variable(name: str, value: str) -> None:
    """Kill all of them, and those that they start meanwhile."""

    def none_is_left() -> bool:
        found = with_variable(name, value)
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return not found

    wait_until(none_is_left, 20, f"no process with {name}={value} is left")
