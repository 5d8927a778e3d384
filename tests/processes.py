"""The processes that a test has started, however far from it: all of them inherit a variable of the environment."""

from __future__ import annotations

import os

import psutil

from tests.doubles import wait_until


def with_variable(name: str, value: str) -> list[psutil.Process]:
    """Every process but this one whose environment began with ``NAME=VALUE``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_with_variable(name: str, value: str) -> None:
    """Kill all of them, and what they start meanwhile."""

    def none_is_left() -> bool:
        found = with_variable(name, value)
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return not found

    wait_until(none_is_left, 20, f"no process with {name}={value} is left")
