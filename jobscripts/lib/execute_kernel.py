"""The kernel of a notebook, for ``execute.py``: chooses it, and reports how it crashed and what killed it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from execute_common import GaveUp, one_line, say

# messages about ports at a kernel's start, and the lines of a crash report for each thread
ASIDE = re.compile(r'.*IPKernelApp\] WARNING|File ".*", line \d|(Current thread|Thread) 0x|Extension modules:')


class KernelStderr:
    """Reads the stderr of the kernel's process, with its crash reports; the output of cells is sent as messages."""

    MOST = 16384

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._read = b""
        asyncio.get_running_loop().add_reader(self._reader, self._read_more)

    def _read_more(self) -> None:
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._reader, 65536)
            if not said:
                asyncio.get_running_loop().remove_reader(self._reader)
            self._read = (self._read + said)[-self.MOST :]

    def close_writer(self) -> None:
        """Close our copy of the end that the kernel writes to."""
        os.close(self.writer)
        self.writer = -1

    def close(self) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._reader)
        for end in (self._reader, self.writer):
            if end >= 0:
                os.close(end)

    def lines(self) -> list[str]:
        """Return the last lines."""
        for _ in range(16):
            self._read_more()
        lines = [one_line(line) for line in self._read.decode("utf-8", "replace").splitlines()]
        return [line for line in lines if line and not ASIDE.match(line)][-8:]


def choose_kernel(run: Any) -> str:
    """Return the kernel that the notebook names, or the default Python kernel if that is not installed."""
    from jupyter_client.kernelspec import KernelSpecManager

    metadata = run.notebook.metadata
    spec = metadata.get("kernelspec", {})
    wanted = str(spec.get("name") or "python3")
    language = str(spec.get("language") or metadata.get("language_info", {}).get("name") or "python")
    manager, reasons = KernelSpecManager(), []
    for name in dict.fromkeys((wanted, "python3")):
        if name != wanted and language.lower() not in ("python", "ipython"):
            break
        if why := why_unusable(manager, name):
            reasons.append(why)
            continue
        if name != wanted:
            say(f"{reasons[0]}; going on with {name}")
        return name
    reason = reasons[-1]
    raise GaveUp("jupyter-missing", f"There is no kernel to run the notebook: {reason}, in {run.place}.")


def why_unusable(manager: Any, name: str) -> str:
    """Return why a kernel cannot be started; "" if it can."""
    try:
        program = manager.get_kernel_spec(name).argv[0]
    except Exception:  # it does not exist, or its file is damaged
        return f"the kernel {one_line(name)} is not installed"
    if shutil.which(str(Path(program).expanduser())) is None:
        return f"the kernel {one_line(name)} starts {one_line(program)}, which is not there"
    return ""


def oom_kills() -> int:
    """Return how often the OOM killer has killed a process of this cgroup; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                root = Path("/sys/fs/cgroup", controllers)
                group = root / path.lstrip("/")
                # the job's own cgroup may be some levels above the process's
                for folder in (group, *list(group.parents)[:3]):
                    for name in ("memory.events", "memory.oom_control"):
                        with contextlib.suppress(OSError):
                            if match := re.search(r"^oom_kill (\d+)", (folder / name).read_text(), re.M):
                                return int(match[1])
    return 0
