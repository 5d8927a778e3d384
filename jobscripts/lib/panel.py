"""The server side of the panel in JupyterLab's page, which ``panel.js`` shows: answers with the session's data.

Loaded by ``jupyter_server_config.py`` into JupyterLab's server. Python 3.6 must be able to read it, with JupyterLab 3
or 4, and it needs only what the server needs itself. A failure here does not prevent the start.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from panel_facts import Samples, session_facts
from panel_saving import Saving
from tornado import web

ADDRESS = "api/notebook-launcher/session"
EXTENSION = "notebook-launcher"  # the name of the JupyterLab extension
SCRIPT = "static/panel.js"
ANSWERS_WITHIN = 2  # seconds to read the session's files; after that the page gets the previous data


class Reader:
    """Reads the session's files in a thread: a file system that hangs must not block the server."""

    def __init__(self, folder):
        self.folder, self.samples = Path(folder), Samples(Path(folder, "usage.csv"))
        self.last, self.pending = {}, None

    async def read(self):
        """Return the session's data; if its files cannot be read in time, the previous data."""
        if self.pending is None:
            self.pending = self._begin()
        pending = self.pending
        await asyncio.wait([pending], timeout=ANSWERS_WITHIN)
        if pending.done():
            self.last = pending.result()
            if self.pending is pending:
                self.pending = None
        return self.last

    async def end(self):
        """Return when the session ends; ``None`` if that is not known. A known end is kept if reading fails later."""
        known = self.last if self.last.get("began") else await self.read()
        return known.get("ends")

    def _begin(self):
        loop = asyncio.get_event_loop()
        facts = loop.create_future()

        def read():
            found = self.last
            with contextlib.suppress(Exception):  # an exception would end the thread, and all later answers
                found = dict(session_facts(self.folder, os.environ), samples=self.samples.read())
            with contextlib.suppress(RuntimeError):  # the server has been shut down meanwhile
                loop.call_soon_threadsafe(facts.set_result, found)

        threading.Thread(target=read, name="panel", daemon=True).start()
        return facts


class SessionHandler(APIHandler):
    """Answers the panel's requests."""

    _track_activity = False  # an open page is not use

    def initialize(self, reader, saving):
        """Store the arguments that Tornado passes for this URL."""
        super().initialize()
        self.reader, self.saving = reader, saving

    @web.authenticated
    async def get(self):
        """Answer with ``session_facts`` and the samples after ``since``, in seconds since 1970."""
        try:
            since = float(self.get_query_argument("since", "0"))
        except ValueError:
            raise web.HTTPError(400, "since is not a number") from None
        known = await self.reader.read()
        samples = [sample for sample in known.get("samples", ()) if sample["time"] > since]
        answer = dict(known, now=round(time.time(), 1), samples=samples, apps=apps_of(self.request.host))
        self.finish(json.dumps(answer, separators=(",", ":")))

    @web.authenticated
    async def post(self):
        """Handle a page's ``unsaved``, a list of paths; or a person's ``renew``, for the next job, or ``keep``.

        A launcher's ``save`` is answered when the pages have saved. The idle guard itself sees that these requests are
        use of the session.
        """
        report = self.get_json_body()
        if not isinstance(report, dict):
            raise web.HTTPError(400, "not an object")
        if "unsaved" in report:
            try:
                self.saving.report(report.get("page"), report["unsaved"])
            except ValueError as problem:
                raise web.HTTPError(400, str(problem)) from None
        if report.get("save") is True:
            self.finish(json.dumps(await self.saving.save_now()))
            return
        if report.get("renew") is True:
            await asyncio.get_event_loop().run_in_executor(None, ask_for_next_job, self.reader.folder)
        self.set_status(204)
        self.finish()


def apps_of(host):
    """Return the state of the programs beside JupyterLab. ``host``: of the page's request."""
    module = sys.modules.get("session_apps")
    return module.running.facts(host) if module and module.running else []


def ask_for_next_job(folder):
    """Write ``renew.json``, which an attached launcher reads."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = folder / f"renew.json.new.{os.getpid()}.{threading.get_ident()}"  # two pages may do so at once
    with os.fdopen(os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(json.dumps({"version": 1, "at": now}) + "\n")
    new.replace(folder / "renew.json")


def lay_out(folder):
    """Write the JupyterLab extension, and return the folder in which JupyterLab should look for extensions."""
    place = Path(folder, "runtime", "labextensions")
    parts = [Path(folder, name).read_bytes() for name in ("panel_view.js", "panel_apps.js", "panel.js")]
    script = b"(function () {\n'use strict';\n" + b"".join(parts) + b"})();\n"
    package = {
        "name": EXTENSION,
        "version": "1.0.0",
        "description": "The session's panel",
        "jupyterlab": {"extension": True, "_build": {"load": SCRIPT, "extension": "./extension"}},
    }
    for made in (place, place / EXTENSION, place / EXTENSION / "static"):
        made.mkdir(mode=0o700, exist_ok=True)
    for name, content in ((SCRIPT, script), ("package.json", json.dumps(package).encode())):
        descriptor = os.open(str(place / EXTENSION / name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return str(place)


def bring(app, config, folder):
    """Load the panel with JupyterLab's page, and answer its requests. ``config``: the one that ``app`` is reading."""
    place = lay_out(folder)
    for name in ("LabApp", "JupyterNotebookApp"):  # Notebook 7 may be in the same environment
        config[name].extra_labextensions_path.append(place)
    set_up = app.init_shutdown_no_activity  # the last step of the setup in JupyterLab 3 and 4

    def set_up_and_answer():
        set_up()
        reader = Reader(folder)
        saving = Saving(app, folder, reader.end)
        path = url_path_join(app.web_app.settings["base_url"], ADDRESS)
        app.web_app.add_handlers(".*$", [(path, SessionHandler, {"reader": reader, "saving": saving})])
        try:
            saving.start()
        except Exception as problem:
            app.log.info("notebook-launcher: no events here, so a hidden page saves nothing at the end: %r", problem)

    app.init_shutdown_no_activity = set_up_and_answer
