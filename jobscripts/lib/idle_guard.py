"""Ends a session that nobody uses. ``idle_rules.py`` decides what counts as use, and when the session ends.

Loaded by ``jupyter_server_config.py`` into JupyterLab's server if ``idle_stop`` is set. Both run in any Python that the
user's container has, with JupyterLab 3 or 4: Python 3.6 must be able to read them, and they need only what the server
needs itself. Every failure counts as use, so that a guard that cannot see ends nothing.

Jupyter's own culling is not suitable. An open tab requests lists every ten seconds, and JupyterLab 4.6 saves its layout
as often, so that ``shutdown_no_activity_timeout`` never fires; terminals are culled while a program runs that prints
nothing; and kernels are culled while a user writes but runs nothing.
"""

import asyncio
import inspect
import json
import os
import threading
import time
from pathlib import Path

from idle_rules import IdleTimer, Kernel, Usage, in_words, is_terminal_busy, is_use
from tornado.ioloop import IOLoop, PeriodicCallback

STARTING_AT_MOST = 900  # seconds for which a kernel that is starting, or whose state is unknown, counts as busy
ANSWERS_WITHIN = 10  # seconds in which an idle kernel answers
STOPS_WITHIN = 30  # seconds that the server may take to end itself and its kernels


class Guard:
    """Watches one server from within, and ends it."""

    def __init__(self, app, folder, idle_stop, ends_for_gpu, usage_every):
        self.app, self.folder = app, Path(folder)
        self.timer = IdleTimer(idle_stop, ends_for_gpu, time.monotonic())
        self.usage = Usage(self.folder / "usage.csv", max(15, 3 * usage_every))
        self.pause = min(10, max(0.5, idle_stop / 20))
        self.kernels = {}  # by id
        self.unclear = {}  # since when a kernel has been starting
        self.terminals = {}  # when each was last active
        self.shown = None
        self.computed_at = None
        self.is_checking = False
        self.complaints = set()
        self.callback = None

    def start(self):
        """Begin to watch. Raises any exception if this server cannot be watched."""
        self._watch_requests()
        self._watch_kernels()
        self.callback = PeriodicCallback(lambda: IOLoop.current().spawn_callback(self._check), 1000 * self.pause)
        self.callback.start()
        self.app.log.info(
            "notebook-launcher: the session ends when nobody has used it for %s", in_words(self.timer.idle_stop)
        )

    # --- use

    def _watch_requests(self):
        settings = self.app.web_app.settings
        log, save = settings.get("log_function"), self.app.contents_manager.save

        def logged(handler):
            self._guarded(self._see_request, handler)
            if log is not None:
                log(handler)

        def saved(*arguments, **named):
            # This also sees saves without a request: of documents that several people edit, the server saves.
            self._guarded(self._see_use)
            return save(*arguments, **named)

        settings["log_function"] = logged
        self.app.contents_manager.save = saved

    def _see_request(self, handler):
        request = handler.request
        if handler.get_status() < 400 and is_use(
            request.method, request.path, request.query, request.headers.get("Accept", "")
        ):
            try:
                is_known = bool(handler.current_user)
            except RuntimeError:  # a public page, which requires no token
                is_known = False
            if is_known:
                self._see_use()

    def _see_use(self):
        self.timer.use(time.monotonic())

    # --- kernels

    def _watch_kernels(self):
        manager = self.app.kernel_manager
        start, stop = manager.start_watching_activity, manager.stop_watching_activity

        def started(kernel_id):
            start(kernel_id)
            self._guarded(self._listen, kernel_id)

        def stopped(kernel_id):
            self._guarded(self._forget, kernel_id)
            stop(kernel_id)

        manager.start_watching_activity, manager.stop_watching_activity = started, stopped
        for kernel_id in list(manager.list_kernel_ids()):
            self._guarded(self._listen, kernel_id)

    def _listen(self, kernel_id):
        self._forget(kernel_id)
        kernel = self.kernels[kernel_id] = Kernel()
        kernel.stream = self.app.kernel_manager.get_kernel(kernel_id).connect_iopub()
        kernel.stream.on_recv(lambda frames: self._guarded(self._hear, kernel, frames))

    def _hear(self, kernel, frames):
        if kernel.receive(frames):
            self._see_use()

    def _forget(self, kernel_id):
        kernel = self.kernels.pop(kernel_id, None)
        if kernel is not None:
            kernel.close()

    async def _is_a_kernel_busy(self, now):
        models = self.app.kernel_manager.list_kernels()
        if inspect.isawaitable(models):  # for kernels behind a gateway
            models = await models
        known = {model["id"]: model.get("execution_state") for model in models}
        for kernel_id in set(self.kernels) - set(known):
            self._forget(kernel_id)
        self.unclear = {
            kernel_id: self.unclear.get(kernel_id, now)
            for kernel_id, state in known.items()
            if state not in ("busy", "idle", "dead")
        }
        return (
            "busy" in known.values()
            or any(now - since < STARTING_AT_MOST for since in self.unclear.values())
            or any(kernel.running for kernel in self.kernels.values())
        )

    async def _is_every_kernel_at_rest(self):
        """Send each kernel a request that it answers after the cells it is executing.

        If we begin to listen at the moment a kernel begins to work, its status message may be missed.
        """
        known = self.app.kernel_manager.list_kernels()
        if inspect.isawaitable(known):
            await known
            return True  # behind a gateway, only the reported state is known
        asked = [model["id"] for model in known if model.get("execution_state") != "dead"]
        return all(await asyncio.gather(*map(self._answers, asked)))

    async def _answers(self, kernel_id):
        manager = self.app.kernel_manager.get_kernel(kernel_id)
        answer = asyncio.get_event_loop().create_future()
        stream = manager.connect_shell()
        try:
            stream.on_recv(lambda frames: answer.done() or answer.set_result(frames))
            manager.session.send(stream, "kernel_info_request")
            await asyncio.wait_for(answer, ANSWERS_WITHIN)
        except asyncio.TimeoutError:
            return False
        finally:
            stream.close()
        return True

    # --- terminals

    def _is_a_terminal_busy(self):
        manager = self.app.web_app.settings.get("terminal_manager")
        terminals = dict(getattr(manager, "terminals", None) or {})
        active = {name: getattr(terminal, "last_activity", None) for name, terminal in terminals.items()}
        if active != self.terminals:
            if any(active[name] != self.terminals.get(name) for name in active):
                self._see_use()
            self.terminals = active
        return any(is_terminal_busy(term.ptyproc.fd, term.ptyproc.pid) for term in terminals.values())

    # --- the regular check

    async def _check(self):
        if self.is_checking:
            return
        self.is_checking = True
        try:
            await self._check_session()
        except Exception as problem:
            self._fail(problem)
        finally:
            self.is_checking = False

    async def _check_session(self):
        now = time.monotonic()
        self.usage.read()
        if self.usage.computed_at != self.computed_at:
            self.computed_at = self.usage.computed_at
            self.timer.busy_at = now
            self._see_use()
        busy = self._is_a_terminal_busy()
        busy = await self._is_a_kernel_busy(now) or busy
        since = self.usage.gpus_idle_since(time.time())
        if since is not None:
            since += now - time.time()
        notice = self.timer.check(now, busy, len(self.usage.gpus), since, at_most=3 * self.pause + 30)
        is_news = notice is not None and (notice.is_over or self.shown is None)
        if is_news and not busy and not await self._is_every_kernel_at_rest():
            notice = self.timer.check(now, True, len(self.usage.gpus), since)
        if notice is not None and notice.is_over:
            self._end(notice)
        else:
            self._show(notice, now)

    def _show(self, notice, now):
        """Keep ``idle.json`` up to date."""
        shown = notice and (notice.why, notice.ends, notice.message)
        if shown == self.shown:
            return
        path = self.folder / "idle.json"
        if notice is None:
            if path.exists():
                path.unlink()
        else:
            utc = time.time() - now
            text = {
                "version": 1,
                "why": notice.why,
                "since": stamp(utc + notice.since),
                "ends": None if notice.ends is None else stamp(utc + notice.ends),
                "message": notice.message,
            }
            replace(path, json.dumps(text))
            self.app.log.warning("notebook-launcher: %s", notice.message)
        self.shown = shown

    def _end(self, notice):
        cause = self.folder / "runtime" / "cause"
        replace(cause, "idle " + notice.sentence)
        try:
            self.app.log.warning("notebook-launcher: %s", notice.sentence)
            self.app.stop()
        except Exception:
            cause.unlink()
            raise
        self.callback.stop()
        last_resort = threading.Timer(STOPS_WITHIN, os._exit, (0,))
        last_resort.daemon = True
        last_resort.start()

    # --- failures, which must not harm the server

    def _guarded(self, act, *arguments):
        try:
            act(*arguments)
        except Exception as problem:
            self._fail(problem)

    def _fail(self, problem):
        """Count a failure as use, and log each kind of problem once."""
        self._see_use()
        complaint = repr(problem)
        if type(problem) not in self.complaints:
            self.complaints.add(type(problem))
            self.app.log.warning(
                "notebook-launcher: cannot find out whether somebody uses the session: %s. Until that works again, it"
                " does not end for being idle",
                complaint,
            )


def replace(path, line):
    """Replace a file of one line atomically, readable only by its owner."""
    new = path.with_name(f"{path.name}.new.{os.getpid()}")
    with os.fdopen(os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(line + "\n")
    new.replace(path)


def stamp(seconds):
    """Return a UTC time in the format of the session's files."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def watch(app, folder, idle_stop, gpu_idle, usage_every):
    """Watch a server as soon as it is set up; ``app`` is still reading its configuration.

    ``idle_stop``: seconds without use. ``gpu_idle``: ``end``, or only warn. ``usage_every``: seconds between two
    samples in ``usage.csv``.
    """
    set_up = app.init_shutdown_no_activity  # the last step of the setup in JupyterLab 3 and 4

    def set_up_and_watch():
        set_up()
        try:
            Guard(app, folder, idle_stop, gpu_idle == "end", usage_every).start()
        except Exception as problem:
            app.log.warning("notebook-launcher: this session does not end when nobody uses it: %r", problem)

    app.init_shutdown_no_activity = set_up_and_watch
