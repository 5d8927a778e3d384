"""Saves open documents before a session ends: the server tells JupyterLab's pages when to save.

In the last minute it does so every few seconds, so that text typed until then is saved as well; and again when the job
is being ended, or when a launcher asks for it before it ends the session. It is an event of jupyter_server 2, sent on a
connection that each page of JupyterLab has open anyway, so it also reaches hidden pages, whose timers browsers
throttle. ``panel.js`` saves, and reports what it could not save. Python 3.6 must be able to read this file.
"""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

from tornado.ioloop import IOLoop, PeriodicCallback

SAVE_FROM, SAVE_EVERY = 60, 5  # seconds: before the end, and between two times
GIVEN_UP_AFTER = 300  # seconds after the end: if the session still runs, its end was a later one
ANSWERS_WITHIN = 2.5  # seconds for the pages when the job is being ended; kernels then have 5, of 8 in all
SHARED_WITHIN = 1.2  # seconds of these for documents that several people edit
MOST_PAGES, MOST_PATHS, LONGEST_PATH = 20, 50, 1000
SHARED = "shared documents"  # instead of a page's name
UNNAMED = "a shared document"  # instead of an unknown path

EVENT = "https://notebook-launcher.invalid/save"
SCHEMA = {
    "$id": EVENT,
    "version": "1",
    "title": "Documents should be saved",
    "personal-data": False,
    "type": "object",
    "properties": {
        "last": {"type": "boolean", "title": "Whether the session is being ended just now"},
        "asked": {"type": "boolean", "title": "Whether each page should answer, as somebody waits for that"},
    },
    "required": ["last"],
}


class SharedDocuments:
    """The documents that several people edit together, in rooms of jupyter-collaboration 1 or later.

    jupyter-collaboration saves a document a second (configurable) after the last change: so not while a cell keeps
    printing, and not changes just before the end. It has no public method for saving a document.
    """

    def __init__(self, app):
        self.app = app
        self.locks = WeakValueDictionary()  # of the rooms that are being saved, by their ids

    def has_changed(self):
        """Whether there are documents to save."""
        return bool(self._changed())

    async def save(self):
        """Save changed documents in ``SHARED_WITHIN`` seconds; return the paths of those that could not be saved."""
        return [path for path in await asyncio.gather(*map(self._not_saved, self._changed())) if path]

    def _changed(self):
        try:
            return [room for room in self._rooms() if self._has_changed(room)]
        except Exception:  # another version, with other attributes
            return []

    def _has_changed(self, room):
        """Whether a document is waiting to be saved, or, without autosave, is known to differ from its file."""
        try:
            waits = room._saving_document is not None and not room._saving_document.done()
            return waits or self._is_dirty(room) is True
        except Exception:  # an unexpected room must not prevent the others from being saved
            return False

    @staticmethod
    def _is_dirty(room):
        """Whether a document differs from its file; ``None``: not known, as before the first save in version 1."""
        try:
            return room._document.dirty
        except KeyError:
            return None

    def _rooms(self):
        extensions = getattr(getattr(self.app, "extension_manager", None), "extension_apps", {})
        servers = [getattr(one, "ywebsocket_server", None) for group in extensions.values() for one in group]
        rooms = [room for server in servers for room in list(getattr(server, "rooms", {}).values())]
        # Without a delay, documents are configured never to be saved.
        return [room for room in rooms if getattr(room, "_save_delay", None) is not None]

    async def _not_saved(self, room):
        try:
            await asyncio.wait_for(self._save(room), SHARED_WITHIN)
        except Exception:  # including a timeout
            return self._path(room)
        return ""

    @staticmethod
    def _path(room):
        try:
            return str(room._file.path)
        except Exception:
            return UNNAMED

    async def _save(self, room):
        # Two at once would break off each other's saving, and the later one would take the delay of 0 for the room's.
        lock = self.locks.setdefault(id(room), asyncio.Lock())
        async with lock:
            await self._save_alone(room)

    async def _save_alone(self, room):
        delay, before = room._save_delay, self._saved_at(room)
        room._save_delay = 0
        try:
            while True:
                # The first method saves even if users have turned autosave off; older versions have only the second.
                getattr(room, "_save_to_disc", lambda: room._on_document_change("", None))()
                if room._saving_document is not None:
                    await asyncio.wait([room._saving_document])
                if self._saved_at(room) != before or self._is_dirty(room) is False:
                    return
                await asyncio.sleep(0.2)  # another change has cancelled the save, or the disk is full
        finally:
            room._save_delay = delay

    @staticmethod
    def _saved_at(room):
        return getattr(room._file, "last_modified", None), getattr(room, "_last_modified", None)


class Saving:
    """Tells the open pages when to save. ``when``: returns the time at which the session ends, if known, in seconds."""

    def __init__(self, app, folder, when):
        self.app, self.path, self.when = app, Path(folder, "unsaved.json"), when
        self.shared = SharedDocuments(app)
        self.pages = set()  # connections of pages that receive events; after a network failure they are closed late
        self.heard_at = WeakKeyDictionary()  # when each last answered a ping
        self.unsaved = {}  # paths, by page
        self.requests = []  # pending requests: for each, the pages that have answered
        self.is_checking = self.is_ending = False
        self.content, self.writing = "", threading.Lock()

    def start(self):
        """Start. Raises ``ImportError`` or ``AttributeError`` if the server does not support events."""
        self.loop = IOLoop.current()
        self.app.event_logger.register_event_schema(SCHEMA)
        self._count_pages()
        self.callback = PeriodicCallback(lambda: self.loop.spawn_callback(self._check), 1000 * SAVE_EVERY)
        self.callback.start()
        self._save_before_the_end()

    def _count_pages(self):
        from jupyter_server.services.events.handlers import SubscribeWebsocket

        begin, end, answer = SubscribeWebsocket.open, SubscribeWebsocket.on_close, SubscribeWebsocket.on_pong

        def opened(page, *arguments):
            self.pages.add(page)
            return begin(page, *arguments)

        def closed(page):
            self.pages.discard(page)
            return end(page)

        def answered(page, data):
            self.heard(page)
            return answer(page, data)

        SubscribeWebsocket.open, SubscribeWebsocket.on_close, SubscribeWebsocket.on_pong = opened, closed, answered

    def heard(self, page):
        """Record that a page's browser has answered."""
        self.heard_at[page] = time.monotonic()
        self.pages.add(page)

    def _tell(self, last, asked=False):
        self.app.event_logger.emit(schema_id=EVENT, data={"last": last, "asked": asked})

    async def _save_shared(self):
        """Save shared documents; report those that could not be saved as a page does."""
        self._note(SHARED, await self.shared.save())

    async def _ask(self, until, last):
        """Ask the pages to save, and return those that have answered in time. Several calls may run at the same time.

        A browser answers pings even for a sleeping tab. A connection that does not answer has been abandoned.
        """
        began, answered = time.monotonic(), set()
        self.requests.append(answered)
        try:
            for page in list(self.pages):
                with contextlib.suppress(Exception):  # it is being closed
                    page.ping(b"")
            self._tell(last, asked=not last)
            while time.monotonic() < until and len(answered) < len(self.pages):
                await asyncio.sleep(0.05)
        finally:
            self.requests = [one for one in self.requests if one is not answered]
        if len(answered) < len(self.pages):
            self.pages = {page for page in self.pages if self.heard_at.get(page, began) > began}
        return answered

    async def save_now(self):
        """Ask the pages to save; return how many there are, how many have answered, and what they could not save."""
        until = time.monotonic() + ANSWERS_WITHIN
        await self._save_shared()
        answered = await self._ask(until, last=False) if self.pages else ()
        unsaved = {path for page in (SHARED, *answered) for path in self.unsaved.get(page, ())}
        pages = max(len(self.pages), len(answered))
        return {"pages": pages, "answered": len(answered), "unsaved": sorted(unsaved)[:MOST_PATHS]}

    async def _check(self):
        if self.is_checking or not (self.pages or self.shared.has_changed()):
            return
        self.is_checking = True
        try:
            ends = await self.when()
            if ends is not None and -GIVEN_UP_AFTER < ends - time.time() <= SAVE_FROM:
                await self._save_shared()
                self._tell(last=False)
        finally:
            self.is_checking = False

    # --- the job is being ended

    def _save_before_the_end(self):
        stop = signal.getsignal(signal.SIGTERM)

        def end(number, frame):
            if (self.pages or self.shared.has_changed()) and not self.is_ending:
                self.is_ending = True
                self.loop.add_callback_from_signal(self._end, stop, number)
            else:
                stop(number, frame)

        if callable(stop):
            signal.signal(signal.SIGTERM, end)

    async def _end(self, stop, number):
        try:
            until = time.monotonic() + ANSWERS_WITHIN
            await self._save_shared()
            await self._ask(until, last=True)
        finally:
            stop(number, None)

    # --- what could not be saved

    def report(self, page, paths):
        """Record what a page could not save. Raises ``ValueError`` for an invalid report."""
        if not isinstance(page, str) or len(page) > 100 or not isinstance(paths, list):
            raise ValueError("not a report of a page")
        if not all(isinstance(path, str) and len(path) <= LONGEST_PATH for path in paths):
            raise ValueError("not a list of paths")
        for answered in self.requests:
            answered.add(page)
        self._note(page, paths)

    def _note(self, page, paths):
        before = self._paths()
        self.unsaved[page] = paths[:MOST_PATHS]
        while len(self.unsaved) > MOST_PAGES:
            del self.unsaved[next(iter(self.unsaved))]
        if self._paths() != before:
            self.content = json.dumps({"version": 1, "paths": self._paths()})
            threading.Thread(target=self._write, name="unsaved", daemon=True).start()

    def _paths(self):
        return sorted({path for paths in self.unsaved.values() for path in paths})[:MOST_PATHS]

    def _write(self):
        new = self.path.with_name(f"unsaved.json.new.{os.getpid()}")
        try:
            with self.writing:  # several pages may report at once; the newest state must be written last
                with os.fdopen(os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    file.write(self.content + "\n")
                new.replace(self.path)
        except OSError as problem:
            self.app.log.warning("notebook-launcher: unsaved.json cannot be written: %r", problem)
