"""Asks the open pages of a session's JupyterLab to save their documents before the session is ended."""

from __future__ import annotations

import http.client
import json

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import listed, printable
from notebook_launcher.tunnel.forwarding import MOST_BYTES, Endpoint, jupyter_answer
from notebook_launcher.tunnel.kernels import UNSAVED

ANSWERS_WITHIN = 3.0  # seconds; JupyterLab answers at once if no page is open, else within 2.5 s
_PATH, _REQUEST = "api/notebook-launcher/session", b'{"save":true}'
_KEYS = ("pages", "answered", "unsaved")
_MOST, _MOST_SHOWN = 50, 3
_ASLEEP = "The browser may have put a tab to sleep: reload or close it."


class PagesSaved(Frozen):
    """The result. ``pages``: how many are open; ``None``: not known, as with JupyterLab 3, which cannot tell.

    ``silent``: how many pages did not answer. ``unsaved``: the paths of the documents that the others could not save.
    """

    pages: int | None = None
    silent: int = 0
    unsaved: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether a document is known not to be saved, or a page did not answer."""
        return bool(self.unsaved or self.silent)

    @property
    def advice(self) -> str:
        """What to tell the user before the session ends."""
        words = []
        if self.unsaved:
            words.append(f"JupyterLab could not save {listed(self.unsaved, _MOST_SHOWN)}.")
        if self.silent:
            words.append(f"A page of JupyterLab did not answer. {UNSAVED} {_ASLEEP}")
        return " ".join(words) or ("Open documents are saved." if self.pages else UNSAVED)


def save_in_pages(local_port: int, endpoint: Endpoint, token: str, within: float = ANSWERS_WITHIN) -> PagesSaved:
    """Ask the pages to save, and return the result: ``within`` so many seconds, and at once if no page is open."""
    try:
        with jupyter_answer(local_port, endpoint, token, _PATH, within, _REQUEST) as answer:
            data = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return PagesSaved()
    pages, answered, paths = (data.get(key) for key in _KEYS) if isinstance(data, dict) else (None,) * 3
    if type(pages) is not int or type(answered) is not int or not isinstance(paths, list):
        return PagesSaved()
    unsaved = (printable(path) for path in paths[:_MOST] if isinstance(path, str))
    return PagesSaved(pages, max(0, pages - answered), tuple(unsaved))
