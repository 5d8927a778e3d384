"""Opening the browser without the token in anybody's process list: through a page that only the user can read."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

READ_WITHIN = 15.0  # seconds that a browser may take to read the page: one that is not running yet has to start
#: seconds for which it stays after it was read once, and twice: the first reader may only look what kind of file it is
AFTER_READING = (8.0, 1.0)

#: seconds after which a page is one that a launcher left which was killed: none is needed for so long
LEFT_AFTER = 120.0
_PREFIX, _SUFFIX = "launch-notebook-", ".html"

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>JupyterLab</title>
<meta http-equiv="refresh" content="0; url={url}">
<a href="{url}">JupyterLab</a>
"""


class Browser:
    """A page that leads to JupyterLab, there for as long as the session is held. Raises ``OSError``.

    ``on_failure`` is called, on a thread, if no browser could be opened.
    """

    def __init__(self, url: str, on_failure: Callable[[], None] = lambda: None) -> None:
        import html

        # written 0600, and shown to the browser, whose arguments then hold only its name
        folder = _folder()
        _sweep(folder)
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
        self._page = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as page:
            page.write(_PAGE.format(url=html.escape(url, quote=True)))
        self._unread = self._mark_unread()
        self._failed = False
        self._on_failure = on_failure
        # on a thread: a browser in the terminal keeps its caller waiting
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        import webbrowser

        # without a display there are browsers in the terminal alone, which would read the keys meant for the launcher
        self._failed = not (has_display() and webbrowser.open(self._page.as_uri()))
        if self._failed:
            self._on_failure()

    def close_when_read(self) -> None:
        """Take the page away as soon as a browser has read it; where that cannot be seen, after ``READ_WITHIN``."""
        deadline, stays = time.monotonic() + READ_WITHIN, list(AFTER_READING)
        with contextlib.suppress(KeyboardInterrupt):  # then at once
            while time.monotonic() < deadline and not self._failed:
                if stays and self._read_at() != self._unread:
                    deadline = min(deadline, time.monotonic() + stays.pop(0))
                    self._unread = self._mark_unread()
                time.sleep(0.1)
        self.close()

    def close(self) -> None:
        """Take the page away."""
        self._page.unlink(missing_ok=True)

    def _mark_unread(self) -> int:
        """Set the time of the last reading back, so that the next one shows although few file systems note each."""
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
    """Whether a browser can have a window here."""
    shows = any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    return shows or sys.platform in ("darwin", "win32", "cygwin")


def _folder() -> Path:
    from platformdirs import user_cache_path

    folder = user_cache_path("notebook-launcher", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _sweep(folder: Path) -> None:
    """Take away the pages, each with a token, of launchers that were killed."""
    for page in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - page.lstat().st_mtime > LEFT_AFTER:
                page.unlink()
