"""Opens the browser through a page that only the user can read, so that the token is in no process list."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

READ_WITHIN = 15.0  # seconds that a browser may take to read the page: it may have to start first
#: seconds for which the page stays after being read once, and twice: the first read may only detect the file's type
AFTER_READING = (8.0, 1.0)

#: seconds after which a page must be left over from a launcher that was killed
LEFT_AFTER = 120.0
_PREFIX, _SUFFIX = "launch-notebook-", ".html"

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>JupyterLab</title>
<meta http-equiv="refresh" content="0; url={url}">
<a href="{url}">JupyterLab</a>
"""


class Browser:
    """A page that redirects to JupyterLab. It must be closed. Raises ``OSError``.

    ``on_failure`` is called on a thread if no browser could be opened.
    """

    def __init__(self, url: str, on_failure: Callable[[], None] = lambda: None) -> None:
        import html

        # the file has mode 0600, and the browser's arguments contain only its name
        folder = _folder()
        _sweep(folder)
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
        self._page = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as page:
            page.write(_PAGE.format(url=html.escape(url, quote=True)))
        self._unread = self._mark_unread()
        self._failed = False
        self._on_failure = on_failure
        # on a thread, because a text browser blocks its caller
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        import webbrowser

        # without a display there are only text browsers, which would read the keys meant for the launcher
        self._failed = not (has_display() and webbrowser.open(self._page.as_uri()))
        if self._failed:
            self._on_failure()

    def close_when_read(self) -> None:
        """Remove the page soon after a browser has read it; if that is not detected, after ``READ_WITHIN`` seconds."""
        deadline, stays = time.monotonic() + READ_WITHIN, list(AFTER_READING)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C removes it at once
            while time.monotonic() < deadline and not self._failed:
                if stays and self._read_at() != self._unread:
                    deadline = min(deadline, time.monotonic() + stays.pop(0))
                    self._unread = self._mark_unread()
                time.sleep(0.1)
        self.close()

    def close(self) -> None:
        """Remove the page."""
        self._page.unlink(missing_ok=True)

    def _mark_unread(self) -> int:
        """Set the access time back, so that the next read changes it: with relatime, not every read does."""
        with contextlib.suppress(OSError):
            written = self._page.stat().st_mtime_ns
            os.utime(self._page, ns=(written - 10**9, written))
        return self._read_at()

    def _read_at(self) -> int:
        try:
            return self._page.stat().st_atime_ns
        except OSError:
            return 0


def has_display() -> bool:
    """Whether a browser can open a window on this machine."""
    shows = any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    return shows or sys.platform in ("darwin", "win32", "cygwin")


def _folder() -> Path:
    from platformdirs import user_cache_path

    folder = user_cache_path("notebook-launcher", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _sweep(folder: Path) -> None:
    """Remove the pages, each with a token, of launchers that were killed."""
    for page in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - page.lstat().st_mtime > LEFT_AFTER:
                page.unlink()
