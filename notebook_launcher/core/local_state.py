"""What this machine remembers between runs. Only a cache: everything works without it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path

from notebook_launcher.core.local_sockets import others_listen


def state_folder() -> Path:
    """Return the user's state folder (``$NOTEBOOK_LAUNCHER_STATE`` overrides it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_STATE"):
        return Path(moved)
    from platformdirs import user_state_path

    return user_state_path("notebook-launcher", appauthor=False)


def lock_file(kind: str, key: str) -> Path:
    """Return a file to lock for work on ``key``; there are only sixteen of each kind, so that they do not pile up.

    Raises ``OSError`` if it cannot be created.
    """
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{kind}-{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[0]}.lock"


def remembered(kind: str, key: str) -> str | None:
    """Return the value saved for ``key`` (such as a cluster) under ``kind``, if any."""
    return _read(kind).get(key)


def remember(kind: str, key: str, value: str, at_most: int | None = None) -> None:
    """Save a value, if possible; it is only a cache.

    ``at_most``: how many values to keep under ``kind``, those whose keys sort last.
    """
    known = _read(kind)
    if known.get(key) != value:
        entries = known | {key: value}
        kept = entries if at_most is None else sorted(entries)[-at_most:]
        _write(kind, {key: entries[key] for key in kept})


def _write(kind: str, entries: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # written beside and renamed, so that two launchers at once leave one complete file
        descriptor, path = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1, sort_keys=True)
            Path(path).replace(_file(kind))
        except OSError:
            Path(path).unlink()


def known_sessions(*, active: bool = False) -> list[tuple[str, str]]:
    """Return the names of recently listed sessions, the newest first, each with a description.

    ``active``: only those that had not ended.
    """
    ended = _read("ended") if active else {}
    return sorted(((name, about) for name, about in _read("sessions").items() if name not in ended), reverse=True)


def replace_known_sessions(active: dict[str, str], ended: dict[str, str]) -> None:
    """Save the names of sessions, each with a description, for completion on TAB."""
    for kind, names in (("sessions", active | ended), ("ended", ended)):
        if _read(kind) != names:
            _write(kind, names)


def last_port(session: str) -> int:
    """Return the local port that last led to a session; 0: none is known."""
    value = remembered("ports", session) or ""
    return int(value) if value.isdecimal() and int(value) < 65536 else 0


def record_attached(session: str, port: int) -> None:
    """Record that this process is attached to a session, by which local port, for as long as it is."""
    remember("ports", session, str(port), at_most=_PORTS)
    _write(_attached(session), {"machine": socket.gethostname(), "pid": str(os.getpid()), "port": str(port)})


def forget_attached(session: str) -> None:
    """Remove the record that this process is attached to the session."""
    with contextlib.suppress(OSError):
        _file(_attached(session)).unlink(missing_ok=True)


def attached_ports(session: str) -> list[int]:
    """Return the local ports by which this user's other processes are attached, the newest first.

    Records of processes that no longer exist are removed.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(state_folder().glob(f"attached-{session}-*.json"), key=_written_at, reverse=True):
            record = _read(path.name.removesuffix(".json"))
            pid, port, machine = (record.get(key, "") for key in ("pid", "port", "machine"))
            if machine and machine != socket.gethostname():
                continue  # the folder may be shared by several login nodes
            if pid.isdecimal() and port.isdecimal() and _is_ours(int(pid)) and not others_listen(int(port)):
                found.append(int(port))
            else:
                path.unlink(missing_ok=True)
    return found


def forget_port(session: str, port: int) -> None:
    """Remove the record of one of ``attached_ports``, because the session is not behind it any more."""
    with contextlib.suppress(OSError):
        for path in state_folder().glob(f"attached-{session}-*.json"):
            record = _read(path.name.removesuffix(".json"))
            if (record.get("port"), record.get("machine")) == (str(port), socket.gethostname()):
                path.unlink(missing_ok=True)


_PORTS = 200  # sessions whose ports are remembered


def _attached(session: str) -> str:
    return f"attached-{session}-{os.getpid()}"


def _written_at(path: Path) -> float:
    return path.stat().st_mtime


def _is_ours(pid: int) -> bool:
    """Whether a process is alive, and this user's; assumed on Windows, where checking would end it."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def _file(kind: str) -> Path:
    return state_folder() / f"{kind}.json"


def _read(kind: str) -> dict[str, str]:
    try:
        data = json.loads(_file(kind).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}
