"""Creates session directories as launchers and jobs leave them, and damaged ones, for tests of lists."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def name_of(at: datetime, number: int) -> str:
    """The name of a session that was created at a time; each number gives another name."""
    end = "".join(LETTERS[number >> shift & 31] for shift in (15, 10, 5, 0))
    return f"{at:%Y%m%d-%H%M%S}-{end}"


def record(name: str, at: datetime, **others: object) -> dict[str, object]:
    """The content of ``session.json``."""
    said = {"version": 1, "id": name, "created": at.isoformat(), "launcher": "0.1", "scheduler": "slurm",
            "flags": {"time": "2:00:00", "gpus": "1"}, "environment": "tf-gpu", "log": f"/{name}/job.log"}  # fmt: skip
    return said | others


def plant(
    root: Path,
    name: str,
    at: datetime = NOW,
    *,
    job: str | None = "7",
    ended: datetime | None = None,
    started: datetime | None = None,
    listens: bool = False,
    secrets: bool = False,
    cause: str = "stopped",
    cancelled: str | None = None,
    **others: object,
) -> Path:
    """Create a session's directory with the files that it would have."""
    directory = root / name
    directory.mkdir(mode=0o700, parents=True)

    def put(file: str, data: object) -> None:
        (directory / file).write_text(data if isinstance(data, str) else json.dumps(data) + "\n")

    put("session.json", record(name, at, **others))
    put("session.env", "gpu=auto\n")
    put("job.log", "a line\n")
    if job is not None:
        put("job", f"Welcome!\n{job}\n")
    if secrets:
        for file in ("token", "ssh_host_key", "authorized_keys"):
            put(file, "secret")
    if started:
        put("started.json", {"version": 1, "job": job, "node": "gpu1", "started": f"{started:%Y-%m-%dT%H:%M:%SZ}"})
    if listens:
        put("endpoint.json", {"version": 1, "port": 4242})
    if cancelled:
        put("ended-from", f"laptop\n{cancelled}\n")
    if ended:
        put("exit.json", {"version": 1, "cause": cause, "message": "", "exit_code": 0,
                          "ended": f"{ended:%Y-%m-%dT%H:%M:%SZ}"})  # fmt: skip
    return directory


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)  # a sparse file


def _endless_line(path: Path) -> None:
    path.write_bytes(b"{" * (1 << 20))


def _binary(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(50_000))


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def _unreadable(path: Path) -> None:
    path.write_text('{"a": 1}\n')
    path.chmod(0)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _commands(path: Path) -> None:
    path.write_text("{\x1b[2J\x07\nend\n20261121-120000-aaaa session {}\n}")


#: things that may be in place of a file; each function creates one at a free path
ODDITIES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "empty": Path.touch,
    "folder": Path.mkdir,
    "fifo": _fifo,
    "huge": _huge,
    "endless line": _endless_line,
    "binary": _binary,
    "link to itself": _link_to_itself,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": _unreadable,
    "terminal commands": _commands,
    "no object": lambda path: _write(path, "[1, 2]\n"),
    "half an object": lambda path: _write(path, '{"version": 1, "id": "20'),
    "deep": lambda path: _write(path, '{"a":' * 3000 + "1" + "}" * 3000 + "\n"),
}


def ago(**time: float) -> datetime:
    """A time before ``NOW``."""
    return NOW - timedelta(**time)
