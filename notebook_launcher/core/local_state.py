"""What this machine remembers between runs. Only a cache: everything works without it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from notebook_launcher.core.bounded_read import open_regular
from notebook_launcher.core.local_sockets import others_listen


def state_folder() -> Path:
    """Return the user's state folder (``$NOTEBOOK_LAUNCHER_STATE`` overrides it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_STATE"):
        return Path(moved)
    from platformdirs import user_state_path

    return user_state_path("notebook-launcher", appauthor=False)


def make_state_folder() -> Path:
    """Create the state folder if necessary, for this user alone, and return it.

    If others may enter the user's folder, for example after it was restored from a backup, their permissions are
    removed. A folder with the sticky bit is shared on purpose, and stays as it is. Raises ``OSError`` if it cannot be
    created.
    """
    folder = state_folder()
    for one in (*reversed(folder.parents), folder):  # `parents=True` would give those above the user's umask
        one.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if _is_own(found) and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):  # some network file systems have no modes
            folder.chmod(0o700)
    return folder


def is_private() -> bool:
    """Whether the state folder exists and only this user may enter it; false on Windows, where that is not known."""
    try:
        found = state_folder().stat()
    except OSError:
        return False
    return hasattr(os, "getuid") and _is_own(found) and not found.st_mode & _OTHERS


def read_own(name: str) -> str | None:
    """Return the text of a file in the state folder, ``None`` if it cannot be read or others may have written it.

    Raises ``ValueError`` if it is not text.
    """
    try:
        with open_regular(state_folder() / name) as file:
            found = os.fstat(file.fileno())
            is_safe = _is_own(found) and not found.st_mode & _OTHERS_WRITE
            return file.read().decode() if is_safe else None
    except OSError:
        return None


def write_own(name: str, text: str) -> None:
    """Write a file in the state folder, which only this user may read, if possible."""
    with contextlib.suppress(OSError):
        folder = make_state_folder()
        # renamed when it is complete, so that two launchers at once leave one complete file
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(folder / name)
        except OSError:
            Path(temporary).unlink()


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _is_own(found: os.stat_result) -> bool:
    """Whether a file is this user's; assumed on Windows, where only the folder above protects it."""
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()


def lock_file(kind: str, key: str) -> Path:
    """Return a file to lock for work on ``key``; there are only sixteen of each kind, so that they do not pile up.

    Raises ``OSError`` if it cannot be created.
    """
    return make_state_folder() / f"{kind}-{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[0]}.lock"


def remembered(kind: str, key: str) -> str | None:
    """Return the value saved for ``key`` (such as a cluster) under ``kind``, if any."""
    return _read(kind).get(key)


def remember(kind: str, key: str, value: str, at_most: int | None = None) -> None:
    """Save a value, if possible; it is only a cache.

    ``at_most``: how many values to keep under ``kind``, those that were saved last.
    """
    known = _read(kind)
    if known.get(key) != value or (at_most is not None and next(reversed(known)) != key):
        entries = [*((one, known[one]) for one in known if one != key), (key, value)]
        _write(kind, dict(entries[-at_most:] if at_most is not None else entries))


def _write(kind: str, entries: dict[str, str]) -> None:
    write_own(f"{kind}.json", json.dumps(entries, indent=1))


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


def record_submitted(session: str, arguments: str) -> None:
    """Record that a session's job was submitted from here, and the flags that select its cluster, as typed."""
    remember("submitted", session, arguments, at_most=_SUBMITTED)


def submitted_sessions() -> dict[str, str]:
    """Return the sessions submitted from here, the newest last, each with the flags that select its cluster."""
    return _read("submitted")


def last_port(session: str) -> int:
    """Return the local port that last led to a session; 0: none is known."""
    value = remembered("ports", session) or ""
    return int(value) if value.isdecimal() and int(value) < 65536 else 0


def record_attached(session: str, port: int) -> None:
    """Record that this process is attached to a session, and by which local port, until ``forget_attached``."""
    remember("ports", session, str(port), at_most=_PORTS)
    apps = {key: value for key, value in _read(_attached(session)).items() if key.startswith(_APP)}
    _write(_attached(session), {"machine": socket.gethostname(), "pid": str(os.getpid()), "port": str(port), **apps})


def record_apps(session: str, ports: Mapping[str, int]) -> None:
    """Record the local ports by which this attached process reaches the session's programs (``--app``)."""
    attached = {key: value for key, value in _read(_attached(session)).items() if not key.startswith(_APP)}
    if attached:
        _write(_attached(session), {**attached, **{f"{_APP}{name}": str(port) for name, port in ports.items()}})


def forget_attached(session: str) -> None:
    """Remove the record that this process is attached to the session."""
    with contextlib.suppress(OSError):
        _file(_attached(session)).unlink(missing_ok=True)


def attached_ports(session: str) -> list[int]:
    """Return the local ports by which this user's other processes are attached, the newest first."""
    return [port for port, _ in _attachments(session)]


def app_ports(session: str) -> dict[str, int]:
    """Return the local ports that lead to the session's programs (``--app``), by name, in the newest process."""
    for _, record in _attachments(session):
        apps = {key.removeprefix(_APP): value for key, value in record.items() if key.startswith(_APP)}
        if apps:
            ports = {name: int(value) for name, value in apps.items() if value.isdecimal()}
            return {name: port for name, port in ports.items() if not others_listen(port)}
    return {}


def _attachments(session: str) -> list[tuple[int, dict[str, str]]]:
    """Return the local port and the record of each of this user's other processes that is attached.

    The newest comes first. Records of processes that no longer exist are removed.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(state_folder().glob(f"attached-{session}-*.json"), key=_written_at, reverse=True):
            record = _read(path.name.removesuffix(".json"))
            pid, port, machine = (record.get(key, "") for key in ("pid", "port", "machine"))
            if machine and machine != socket.gethostname():
                continue  # the folder may be shared by several login nodes
            if pid.isdecimal() and port.isdecimal() and _is_ours(int(pid)) and not others_listen(int(port)):
                found.append((int(port), record))
            else:
                path.unlink(missing_ok=True)
    return found


def forget_port(session: str, port: int) -> None:
    """Remove the record of one of ``attached_ports``, because it no longer leads to the session."""
    with contextlib.suppress(OSError):
        for path in state_folder().glob(f"attached-{session}-*.json"):
            record = _read(path.name.removesuffix(".json"))
            if (record.get("port"), record.get("machine")) == (str(port), socket.gethostname()):
                path.unlink(missing_ok=True)


_SUBMITTED = 200  # sessions whose cluster is remembered
_PORTS = 200  # sessions whose ports are remembered
_APP = "app "  # prefix of keys for a program's port


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
        data = json.loads(read_own(f"{kind}.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}
