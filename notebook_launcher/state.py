"""What this machine remembers from one run to the next. Only a cache: everything works without it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path


def state_folder() -> Path:
    """Return the user's folder for it (``$NOTEBOOK_LAUNCHER_STATE`` moves it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_STATE"):
        return Path(moved)
    from platformdirs import user_state_path

    return user_state_path("notebook-launcher", appauthor=False)


def remembered(what: str, about: str) -> str | None:
    """Return the word that was kept for ``about`` (a cluster) under ``what``, if any."""
    return _read(what).get(about)


def remember(what: str, about: str, word: str) -> None:
    """Keep a word; where that cannot be done, it is found out again next time."""
    known = _read(what)
    if known.get(about) != word:
        _write(what, known | {about: word})


def _write(what: str, words: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # written beside and moved into place: two launchers at once leave one whole file
        descriptor, path = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(words, file, indent=1, sort_keys=True)
            Path(path).replace(_file(what))
        except OSError:
            Path(path).unlink()


def seen_sessions() -> list[tuple[str, str]]:
    """Return the names of the sessions that were seen last, the newest first, each with a word about it."""
    return sorted(_read("sessions").items(), reverse=True)


def replace_seen_sessions(about: dict[str, str]) -> None:
    """Keep the sessions that are there now, with a word about each, for completion on TAB."""
    if _read("sessions") != about:
        _write("sessions", about)


def _file(what: str) -> Path:
    return state_folder() / f"{what}.json"


def _read(what: str) -> dict[str, str]:
    try:
        data = json.loads(_file(what).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: word for key, word in data.items() if isinstance(word, str)} if isinstance(data, dict) else {}
