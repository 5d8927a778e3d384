"""Opening the browser without the token in anybody's process list: through a page that only the user can read."""

from __future__ import annotations

import html
import os
import tempfile
import threading
import webbrowser
from pathlib import Path

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>JupyterLab</title>
<meta http-equiv="refresh" content="0; url={url}">
<a href="{url}">JupyterLab</a>
"""


class Browser:
    """A page that leads to JupyterLab, there for as long as the session is held. Raises ``OSError``."""

    def __init__(self, url: str) -> None:
        # written 0600, and shown to the browser, whose arguments then hold only its name
        descriptor, name = tempfile.mkstemp(prefix="launch-notebook-", suffix=".html", dir=_folder())
        self._page = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as page:
            page.write(_PAGE.format(url=html.escape(url, quote=True)))
        # on a thread: a browser in the terminal keeps its caller waiting
        threading.Thread(target=webbrowser.open, args=(self._page.as_uri(),), daemon=True).start()

    def close(self) -> None:
        """Take the page away."""
        self._page.unlink(missing_ok=True)


def _folder() -> Path:
    from platformdirs import user_cache_path

    folder = user_cache_path("notebook-launcher", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
