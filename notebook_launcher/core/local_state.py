"""What this machine remembers from one run to the next. Only a cache: everything works without it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path


def state_folder() -> Path:
    """Return the user's folder for it (``$NOTEBOOK_LAUNCHER_STATE`` moves it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_STATE"):
        return Path(moved)
    from platformdirs import user_state_path

    return user_state_path("notebook-launcher", appauthor=False)


def lock_file(what: str, about: str) -> Path:
    """Return a file to lock while something is done to ``about``; one of sixteen, so that they do not pile up.

    Raises ``OSError`` where there can be none.
    """
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{what}-{hashlib.sha256(about.encode(errors='surrogateescape')).hexdigest()[0]}.lock"


def remembered(what: str, about: str) -> str | None:
    """Return the word that was kept for ``about`` (a cluster) under ``what``, if any."""
    return _read(what).get(about)


def remember(what: str, about: str, word: str, at_most: int | None = None) -> None:
    """Keep a word; where that cannot be done, it is found out again next time.

    ``at_most``: how many words are kept under ``what``; those whose ``about`` is last in order stay.
    """
    known = _read(what)
    if known.get(about) != word:
        entries = known | {about: word}
        kept = entries if at_most is None else sorted(entries)[-at_most:]
        _write(what, {key: entries[key] for key in kept})


def _write(what: str, entries: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # written beside and moved into place: two launchers at once leave one whole file
        descriptor, path = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1, sort_keys=True)
            Path(path).replace(_file(what))
        except OSError:
            Path(path).unlink()


def known_sessions() -> list[tuple[str, str]]:
    """Return the names of the sessions that were seen last, the newest first, each with a word about it."""
    return sorted(_read("sessions").items(), reverse=True)


def replace_known_sessions(about: dict[str, str]) -> None:
    """Keep the sessions that are there now, with a word about each, for completion on TAB."""
    if _read("sessions") != about:
        _write("sessions", about)


def last_port(session: str) -> int:
    """Return the port of this machine that led to a session last; 0: none is known."""
    word = remembered("ports", session) or ""
    return int(word) if word.isdecimal() and int(word) < 65536 else 0


def note_attached(session: str, port: int) -> None:
    """Keep, for as long as this process is attached to a session, that it is, and by which port of this machine."""
    remember("ports", session, str(port), at_most=_PORTS)
    _write(_attached(session), {"machine": socket.gethostname(), "pid": str(os.getpid()), "port": str(port)})


def forget_attached(session: str) -> None:
    """This process is not attached to the session any more."""
    with contextlib.suppress(OSError):
        _file(_attached(session)).unlink(missing_ok=True)


def attached_ports(session: str) -> list[int]:
    """Return the ports by which other processes of this user on this machine are attached, the newest first.

    What a process has left behind that is gone is removed.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(state_folder().glob(f"attached-{session}-*.json"), key=_written_at, reverse=True):
            record = _read(path.name.removesuffix(".json"))
            pid, port, machine = (record.get(key, "") for key in ("pid", "port", "machine"))
            if machine and machine != socket.gethostname():
                continue  # the folder may be shared by several login nodes
            if pid.isdecimal() and port.isdecimal() and _is_ours(int(pid)) and not _others_listen(int(port)):
                found.append(int(port))
            else:
                path.unlink(missing_ok=True)
    return found


def forget_port(session: str, port: int) -> None:
    """Forget who noted one of ``attached_ports``: nothing of the session is behind it any more."""
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
    """Whether a process is alive, and this user's; on Windows, where a look would end it, that is taken for granted."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def _others_listen(port: int) -> bool:
    """Whether another user's process listens on a port, as Linux tells; a number may be another process's by now."""
    listens, us = "0A", str(os.getuid()) if os.name != "nt" else ""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):  # another system, or no IPv6
            for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] == listens and int(fields[1].rpartition(":")[2], 16) == port and fields[7] != us:
                    return True
    return False


def _file(what: str) -> Path:
    return state_folder() / f"{what}.json"


def _read(what: str) -> dict[str, str]:
    try:
        data = json.loads(_file(what).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: word for key, word in data.items() if isinstance(word, str)} if isinstance(data, dict) else {}
