"""Ending a session that nobody uses: what counts as use, and when it is over.

Loaded by ``jupyter_server_config.py`` into JupyterLab's server, where ``idle_stop`` is asked for. It runs in whatever
Python the user's container has, beside JupyterLab 3 or 4: Python 3.6 must be able to read it, and it needs nothing but
what the server needs itself. Whatever goes wrong in it counts as use: a guard that cannot see must not end anything.

Jupyter's own culling is not used. An open tab asks for lists every ten seconds, and JupyterLab 4.6 saves its layout as
often, so ``shutdown_no_activity_timeout`` never fires; terminals are culled under a program that prints nothing; and
kernels are culled under a user who writes but runs nothing.
"""

import asyncio
import csv
import datetime
import inspect
import json
import os
import re
import threading
import time
from collections import namedtuple
from pathlib import Path
from urllib.parse import parse_qs

from tornado.ioloop import IOLoop, PeriodicCallback

WARNED_FOR = 300  # seconds from the warning to the end, or half of idle_stop where that is less
GPU_WARNED_FOR = 600  # the same where the GPU is not used, and a minute at least
STARTING_AT_MOST = 900  # seconds for which a kernel that is said to start, or of which nothing is known, counts as busy
ANSWERS_WITHIN = 10  # seconds for the answer of a kernel that has nothing to do
STOPS_WITHIN = 30  # seconds that the server may take to end itself and its kernels
CORES_OF_USE = 0.5  # so many cores at work are somebody's computation; a JupyterLab that nobody uses needs hundredths

# Requests that change something on their own: JupyterLab saves its layout whenever it has listed the files, which it
# does every ten seconds; jupyterlab-git asks for news with POST.
POLLS = re.compile(r"/lab/api/workspaces/|/git/")
# What the server and its pages ask a kernel on their own: when they connect, or from time to time.
QUIET = frozenset(
    name + "_request" for name in ("kernel_info", "comm_info", "history", "debug", "usage", "interrupt", "shutdown")
)

Notice = namedtuple("Notice", "why since ends message sentence is_over")
Notice.__doc__ = (
    """A warning or an end: why (``unused``, ``gpu``), since when, and when it ends the session, if it does."""
)


# ------------------------------------------------------------------------------------------------------- the decision


class Judge:
    """When to warn and when to end. Times are seconds of one clock that never jumps; all facts come from its caller."""

    def __init__(self, idle_stop, ends_for_gpu, now):
        self.idle_stop = idle_stop
        self.grace = min(WARNED_FOR, idle_stop / 2)
        self.gpu_grace = idle_stop / 2 if idle_stop < 60 else min(GPU_WARNED_FOR, max(60, idle_stop / 2))
        self.ends_for_gpu = ends_for_gpu
        self.used_at = self.busy_at = self.checked_at = now
        self.warned_at = self.gpu_warned_at = None

    def use(self, now):
        """Somebody does something."""
        self.used_at = now
        self.warned_at = None

    def look(self, now, busy, gpus=0, gpu_idle_since=None, at_most=60):
        """Return the present notice, ``None`` without one.

        ``busy``: whether something runs. ``gpus``, ``gpu_idle_since``: how many GPUs there are and since when none of
        them does anything, ``None``: not known. ``at_most``: seconds between two looks; what was not looked at, as
        while the job was suspended, is not time without use.
        """
        missed = now - self.checked_at
        if missed > at_most:
            self.used_at += missed
            self.warned_at = self.gpu_warned_at = None
        self.checked_at = now
        if busy:
            self.busy_at = now
            self.use(now)
        notices = [notice for notice in (self._unused(now), self._gpu_unused(now, gpus, gpu_idle_since)) if notice]
        return (
            min(notices, key=lambda notice: (not notice.is_over, notice.ends is None, notice.ends or 0))
            if notices
            else None
        )

    def _unused(self, now):
        if now < self.used_at + self.idle_stop - self.grace:
            return None
        if self.warned_at is None:
            self.warned_at = now
        ends = self.warned_at + self.grace
        so_far, left, in_all = in_words(self.idle_stop - self.grace), in_words(self.grace), in_words(self.idle_stop)
        message = f"Nobody has used JupyterLab for {so_far}: the session ends in {left} unless somebody does."
        sentence = f"Nobody used JupyterLab for {in_all}, so the session was ended, as --idle-stop asked."
        return Notice("unused", self.used_at, ends, message, sentence, now >= ends)

    def _gpu_unused(self, now, gpus, since):
        if since is None or now < since + self.idle_stop:
            self.gpu_warned_at = None
            return None
        if self.gpu_warned_at is None:
            self.gpu_warned_at = now
        ends = None
        # While something runs there is no end; and not from one moment to the next between two cells.
        if self.ends_for_gpu and now - self.busy_at >= min(60, self.gpu_grace / 2):
            ends = max(self.gpu_warned_at, self.busy_at) + self.gpu_grace
        name, have, it, they_are = (
            ("The GPU", "has", "it", "it is") if gpus == 1 else (f"The {gpus} GPUs", "have", "them", "they are")
        )
        in_all, left = in_words(self.idle_stop), in_words(self.gpu_grace)
        so = f"others may wait for {it}" if ends is None else f"the session ends in {left} unless {they_are} used"
        message = f"{name} {have} done nothing for {in_all}: {so}."
        sentence = f"{name} did nothing for {in_all}, so the session was ended, as gpu_idle asked."
        return Notice("gpu", since, ends, message, sentence, ends is not None and now >= ends)


def in_words(seconds):
    """Return a time as people say it: “30 minutes”."""
    count = max(1, round(seconds))
    for size, unit in ((3600, "hour"), (60, "minute"), (1, "second")):
        if count % size == 0:
            count //= size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return ""


# ------------------------------------------------------------------------------------------------------ what is seen


class Kernel:
    """What one kernel does, heard on the channel on which it broadcasts.

    Jupyter's own word on a kernel is that of its last message: “idle” as soon as anything is answered beside a long
    cell, such as a question on another channel, or a widget in a subshell.
    """

    def __init__(self):
        self.running = set()  # requests that it works on
        self.stream = None

    def receive(self, frames):
        """Take one message, and return whether it comes of use."""
        start = frames.index(b"<IDS|MSG>") + 2
        header, parent = (json.loads(bytes(frame).decode("utf-8")) for frame in frames[start : start + 2])
        asked = parent.get("msg_type")
        if asked in QUIET:
            return False
        if header["msg_type"] != "status":
            return True
        state = json.loads(bytes(frames[start + 3]).decode("utf-8"))["execution_state"]
        if state == "busy":
            self.running.add(parent.get("msg_id"))
        elif state == "idle":
            self.running.discard(parent.get("msg_id"))
        else:  # it has just been started, perhaps anew
            self.running.clear()
        return bool(asked)

    def close(self):
        """Stop listening."""
        stream, self.stream = self.stream, None
        if stream is not None and not stream.closed():
            stream.close()


def is_use(method, path, query, accept):
    """Whether a request is a person's doing, as opposed to what an open tab asks for again and again."""
    if method not in ("GET", "HEAD", "OPTIONS"):
        return not POLLS.search(path)
    if method != "GET":
        return False
    if "/api/contents/" in path:  # the file browser's lists have no type
        wanted = parse_qs(query)
        return wanted.get("type", [""])[0] in ("file", "notebook") and wanted.get("content", ["1"])[0] != "0"
    return "text/html" in accept or "/files/" in path


SHELLS = frozenset(("sh", "bash", "zsh", "fish", "tcsh", "csh", "ksh", "mksh", "dash", "ash"))


def is_waiting_shell(arguments):
    """Whether a process with these arguments is a shell that people type into: none that runs a script or a command.

    In the foreground of a terminal it is at its prompt: it gives every program that it starts a group of its own.
    """
    if not arguments or Path(arguments[0]).name.lstrip("-") not in SHELLS:
        return False
    rest = arguments[1:]
    while rest:
        if rest[0] in ("--rcfile", "--init-file"):
            rest = rest[2:]
        elif rest[0].startswith("-") and (rest[0].startswith("--") or "c" not in rest[0]):
            rest = rest[1:]
        else:
            return False
    return True


def is_terminal_busy(fd, shell):
    """Whether a program runs in the foreground of a terminal. ``fd``: our side of it, ``shell``: its first process."""
    foreground = os.tcgetpgrp(fd)
    try:
        arguments = Path(f"/proc/{foreground}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return foreground != shell
    return not is_waiting_shell([os.fsdecode(argument) for argument in arguments])


class Usage:
    """Reads ``usage.csv`` as it grows. Its columns are those of ``notebook_launcher/core/usage_samples.py``.

    ``longest``: seconds between two samples beyond which something is missing between them. Times are UTC, in seconds.
    """

    TIME, CORES, GPU, PERCENT, COLUMNS = 0, 2, 4, 6, 10

    def __init__(self, path, longest):
        self.path, self.longest = path, longest
        self.gpus = set()
        self.idle_since = None  # since when every GPU was reported to do nothing
        self.sampled_at = None
        self.computed_at = None  # when the last sample was taken in which something was computed
        self._offset, self._rest = 0, b""
        self._sample_time, self._rows = None, []

    def read(self):
        """Take what is new."""
        try:
            if self.path.stat().st_size < self._offset:
                self._offset, self._rest = 0, b""
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read(1 << 20)
        except FileNotFoundError:
            return
        self._offset += len(new)
        lines = (self._rest + new).split(b"\n")
        self._rest = lines.pop()
        for line in lines:  # each by itself, so that a damaged one takes no other along
            for row in csv.reader([line.decode("utf-8", "replace").replace("\0", "")]):
                self._take(row)

    def gpus_idle_since(self, now):
        """Return since when no GPU did anything, ``None`` where that is not known for this very moment."""
        is_fresh = self.sampled_at is not None and -self.longest < now - self.sampled_at < self.longest
        return self.idle_since if is_fresh else None

    def _take(self, row):
        if len(row) != self.COLUMNS:
            return
        try:
            sample_time = datetime.datetime.strptime(row[self.TIME] + "+0000", "%Y-%m-%dT%H:%M:%SZ%z").timestamp()
        except ValueError:
            return  # the heading
        if sample_time != self._sample_time:
            self._judge()
            self._sample_time, self._rows = sample_time, []
        self._rows.append(row)

    def _judge(self):
        """Take a sample all of whose rows have come."""
        if not self._rows:
            return
        if self.sampled_at is not None and self._sample_time <= self.sampled_at:
            return  # read again: the file was thinned out
        last, self.sampled_at = self.sampled_at, self._sample_time
        percents = {row[self.GPU]: number(row[self.PERCENT]) for row in self._rows if row[self.GPU]}
        self.gpus.update(percents)
        is_whole = bool(percents) and set(percents) == self.gpus and None not in percents.values()
        in_a_row = last is not None and self._sample_time - last <= self.longest
        if not is_whole or any(percents.values()):
            self.idle_since = None
        elif self.idle_since is None or not in_a_row:
            self.idle_since = self._sample_time
        if any(percents.values()) or (number(self._rows[0][self.CORES]) or 0) >= CORES_OF_USE:
            self.computed_at = self._sample_time


def number(text):
    """Return a number that was reported, ``None`` for none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


# --------------------------------------------------------------------------------------------------------- the guard


class Guard:
    """Watches one server from within, and ends it."""

    def __init__(self, app, folder, idle_stop, ends_for_gpu, usage_every):
        self.app, self.folder = app, Path(folder)
        self.judge = Judge(idle_stop, ends_for_gpu, time.monotonic())
        self.usage = Usage(self.folder / "usage.csv", max(15, 3 * usage_every))
        self.pause = min(10, max(0.5, idle_stop / 20))
        self.kernels = {}  # by id
        self.unclear = {}  # since when a kernel is said to start
        self.terminals = {}  # when each was last active
        self.shown = None
        self.computed_at = None
        self.is_looking = False
        self.complaints = set()
        self.callback = None

    def start(self):
        """Begin to watch. Raises whatever is raised where this server is not one that can be watched."""
        self._watch_requests()
        self._watch_kernels()
        self.callback = PeriodicCallback(lambda: IOLoop.current().spawn_callback(self._look), 1000 * self.pause)
        self.callback.start()
        self.app.log.info(
            "notebook-launcher: the session ends when nobody has used it for %s", in_words(self.judge.idle_stop)
        )

    # --- what somebody does

    def _watch_requests(self):
        settings = self.app.web_app.settings
        log, save = settings.get("log_function"), self.app.contents_manager.save

        def logged(handler):
            self._guarded(self._see_request, handler)
            if log is not None:
                log(handler)

        def saved(*arguments, **named):
            # Also what no request asks for: where several people write together, the server saves.
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
            except RuntimeError:  # a page for everybody, which asks for no token
                is_known = False
            if is_known:
                self._see_use()

    def _see_use(self):
        self.judge.use(time.monotonic())

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
        if inspect.isawaitable(models):  # kernels that run elsewhere, behind a gateway
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
        """Ask each something that it answers in its turn, after the cell that it works on.

        A kernel's broadcast may be missed by whoever begins to listen while it begins to work.
        """
        known = self.app.kernel_manager.list_kernels()
        if inspect.isawaitable(known):
            await known
            return True  # behind a gateway: there is only its own word
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

    # --- the look around, and what comes of it

    async def _look(self):
        if self.is_looking:
            return
        self.is_looking = True
        try:
            await self._look_around()
        except Exception as problem:
            self._fail(problem)
        finally:
            self.is_looking = False

    async def _look_around(self):
        now = time.monotonic()
        self.usage.read()
        if self.usage.computed_at != self.computed_at:
            self.computed_at = self.usage.computed_at
            self.judge.busy_at = now
            self._see_use()
        busy = self._is_a_terminal_busy()
        busy = await self._is_a_kernel_busy(now) or busy
        since = self.usage.gpus_idle_since(time.time())
        if since is not None:
            since += now - time.time()
        notice = self.judge.look(now, busy, len(self.usage.gpus), since, at_most=3 * self.pause + 30)
        is_news = notice is not None and (notice.is_over or self.shown is None)
        if is_news and not busy and not await self._is_every_kernel_at_rest():
            notice = self.judge.look(now, True, len(self.usage.gpus), since)
        if notice is not None and notice.is_over:
            self._end(notice)
        else:
            self._show(notice, now)

    def _show(self, notice, now):
        """Keep ``idle.json`` true."""
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

    # --- nothing here may harm the server

    def _guarded(self, act, *arguments):
        try:
            act(*arguments)
        except Exception as problem:
            self._fail(problem)

    def _fail(self, problem):
        """What cannot be seen may be use. Said once for each kind of problem."""
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
    """Put a file of one line in place, whole and for one's own eyes only."""
    new = path.with_name(f"{path.name}.new.{os.getpid()}")
    with os.fdopen(os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(line + "\n")
    new.replace(path)


def stamp(seconds):
    """Return a time in UTC as all files of a session have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def watch(app, folder, idle_stop, gpu_idle, usage_every):
    """Have a server watched as soon as it is set up; ``app`` reads its configuration just now.

    ``idle_stop``: seconds without use. ``gpu_idle``: ``end``, or else warn. ``usage_every``: seconds between two
    samples in ``usage.csv``.
    """
    set_up = app.init_shutdown_no_activity  # the last step in JupyterLab 3 and 4 for which everything is there

    def set_up_and_watch():
        set_up()
        try:
            Guard(app, folder, idle_stop, gpu_idle == "end", usage_every).start()
        except Exception as problem:
            app.log.warning("notebook-launcher: this session does not end when nobody uses it: %r", problem)

    app.init_shutdown_no_activity = set_up_and_watch
