"""Further programs in the session (``--app``), such as TensorBoard, each behind its own port.

Loaded by ``jupyter_server_config.py`` into JupyterLab's server, so that they run in its environment, and end with it.
An app listens on a Unix socket in a folder that only the session's user may enter, because every user of the node could
connect to a port of 127.0.0.1. A proxy in front of it has a port for the launcher's tunnel; it accepts only connections
of this user's programs, and only requests with the app's own secret. Python 3.6 must be able to read this file.
"""

import asyncio
import atexit
import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

from app_requests import SECRET, answered, authorize, body_length, response, sent

ADDRESS, ICONS = "api/notebook-launcher/apps", "api/notebook-launcher/app-icons"
MOST_HEAD = 64 * 1024  # bytes of a request's head
HEAD_WITHIN, STARTS_WITHIN, ANSWERS_WITHIN, HANGS_UP_WITHIN = 30, 120, 5, 2  # seconds
RESTARTED_AFTER = 3  # seconds, and longer each time; when a job is ended, the app and JupyterLab get SIGTERM
NOT_FOUND = 127  # the exit code of a shell or env if the program does not exist
MOST_DEATHS, FORGOTTEN_AFTER = 3, 600  # deaths after which it is given up; forgotten if it ran for so many seconds
LAST_LINES, LAST_BYTES, LONGEST_LINE = 5, 4096, 200
MOST_OUTPUT, OUTPUT_EVERY = 16 * 1024 * 1024, 10  # bytes of its output that are kept, and seconds between two checks
ENDS_WITHIN = 3  # seconds; JupyterLab itself has a few more
PORTS_TRIED = 20
MOST_LAUNCHERS = 100  # launchers whose ports are remembered; the oldest is forgotten
LONGEST_PLACE = 60  # bytes; a socket's path may have 107


class App:
    """One app: its process, its state for the page and the launcher, and the port of its proxy.

    ``state`` is ``starting``, ``running`` or ``failed``; ``message`` says why, and ``last`` are the last lines that it
    printed.
    """

    def __init__(self, wanted, place, session, own, log):
        self.name, self.title, self.health = wanted["name"], wanted["title"], wanted["health"]
        self.commands, self.icon = wanted["commands"], wanted.get("icon", "")
        self.folder = str(Path(wanted.get("folder") or ".").expanduser())
        self.socket, self.session, self.own, self.log = place, session, own, log
        self.secret = secrets.token_urlsafe(32)
        self.state, self.message, self.process, self.ends = "starting", "", None, threading.Event()
        self.last, self.missing = [], False  # missing: starting it again would not help
        self.restarts, self.news = 0, threading.Event()
        self.output = Path(session, "runtime", f"app-{self.name}.log")
        self.listeners = listening_sockets()
        self.port = self.listeners[0].getsockname()[1]

    # --- its process

    def keep_running(self):
        """Start it, and restart it if it ends; give up after ``MOST_DEATHS`` in a row."""
        deaths = 0
        while not self.ends.is_set():
            began = time.monotonic()
            try:
                self.run()
            except (OSError, ValueError) as problem:
                self.message, self.last = str(problem), []
            if self.ends.is_set():
                return
            deaths = 1 if time.monotonic() - began > FORGOTTEN_AFTER else deaths + 1
            if deaths > MOST_DEATHS or self.process is None or self.missing:
                break
            self.restarts += 1
            self.change_to("starting")
            self.log("notebook-launcher: %s has ended, and is started again. %s", self.title, self.why())
            self.ends.wait(RESTARTED_AFTER * deaths)
        self.change_to("failed")
        self.log("notebook-launcher: %s is not running. %s", self.title, self.why())

    def change_to(self, state):
        """Change the state, and have it recorded."""
        self.state = state
        self.news.set()

    def run(self):
        """Run it once, until it ends."""
        self.process = None
        with contextlib.suppress(FileNotFoundError):
            Path(self.socket).unlink()
        argv = self.argv()
        if argv is None:
            names = " or ".join(command[0] for command in self.commands)
            self.message, self.last = f"There is no {names} in the session's environment.", []
            return
        descriptor = os.open(str(self.output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            # In its own process group, so that its child processes are ended with it.
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            if not self.ends.is_set():  # not ended while it was being started
                self.watch()
        finally:
            self.stop()

    def watch(self):
        """Wait until it answers, and then until it ends."""
        deadline = time.monotonic() + STARTS_WITHIN
        while self.process.poll() is None and not self.answers():
            if time.monotonic() > deadline:
                self.message, self.last = f"It did not answer within {STARTS_WITHIN} s.", self.last_lines()
                return
            time.sleep(0.2)
        has_answered = self.process.poll() is None
        if has_answered:
            self.message, self.last = "", []
            self.change_to("running")
        code = self.process.wait()
        self.message, self.last = f"It ended with exit code {code}.", self.last_lines()
        if code == NOT_FOUND and not has_answered:
            self.missing = True
            if self.last:  # for example: "There is no TensorBoard"
                self.message, self.last = self.last[-1], []

    def why(self):
        """Return why it ended, followed by the end of its log."""
        end = ["The end of its log:", *(f"| {line}" for line in self.last)] if self.last else []
        return "\n".join([self.message, *end])

    def argv(self):
        """Return the first of its commands whose program is installed, filled in."""
        words = {"socket": self.socket, "folder": self.folder, "session": str(self.session), "python": sys.executable}
        for command in self.commands:
            argv = [filled(word, words) for word in command]
            if shutil.which(argv[0]):
                return argv
        return None

    def answers(self):
        """Whether it answers a request for ``health`` on its socket."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWERS_WITHIN)
                connection.connect(self.socket)
                connection.sendall(f"GET {self.health} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                words = connection.recv(64).split()
            return len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() and int(words[1]) < 500
        except OSError:
            return False

    def limit_output(self):
        """Truncate its output when that has become long, because it could fill the user's home."""
        with contextlib.suppress(OSError):
            if self.output.stat().st_size > MOST_OUTPUT:
                os.truncate(str(self.output), 0)

    def last_lines(self):
        """Return the last lines that it printed, without control characters."""
        try:
            with self.output.open("rb") as output:
                output.seek(max(0, self.output.stat().st_size - LAST_BYTES))
                text = output.read(LAST_BYTES).decode("utf-8", "replace")
        except OSError:
            return []
        lines = ["".join(sign if sign.isprintable() else " " for sign in line).rstrip() for line in text.split("\n")]
        return [line[:LONGEST_LINE] for line in lines if line][-LAST_LINES:]

    def is_alive(self):
        """Whether its process is running."""
        return self.process is not None and self.process.poll() is None

    def signal(self, how):
        """Send a signal to its process group."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, how)

    def stop(self):
        """End its processes."""
        if self.process is None:
            return
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDS_WITHIN)
        self.signal(signal.SIGKILL)

    # --- the port in front of it

    def listen(self):
        """Return the coroutine that starts serving its port."""
        return [asyncio.start_server(self.serve, sock=one, limit=MOST_HEAD) for one in self.listeners]

    async def serve(self, reader, writer):
        """Serve one connection, with a single request."""
        try:
            if is_strangers(self.own, writer.get_extra_info("socket")):
                writer.transport.abort()
                return
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_WITHIN)
            answer, passed_on = authorize(head, self.secret, self.port)
            if passed_on is None:
                writer.write(answer)
            elif self.state != "running":
                writer.write(self.not_running())
            else:
                await self.pass_on(passed_on, reader, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    async def pass_on(self, head, reader, writer):
        """Copy a request to the app, and its answer back."""
        there, to_there = await asyncio.open_unix_connection(self.socket, limit=MOST_HEAD)
        try:
            to_there.write(head)
            upgraded = asyncio.Event()
            sending = asyncio.ensure_future(sent(reader, to_there, body_length(head), upgraded))
            answering = asyncio.ensure_future(answered(there, writer, upgraded))
            await asyncio.wait([sending, answering], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                # Read everything that the browser sends, though it is not needed: otherwise it would lose the answer.
                writer.write_eof()
                await asyncio.wait([sending], timeout=HANGS_UP_WITHIN)
            for way in (sending, answering):  # if one direction ends, end both
                way.cancel()
        finally:
            to_there.close()

    def not_running(self):
        """Return the page shown while the app is not running."""
        if self.state == "failed":
            text = f"{self.title} is not running. {self.why()}"
            return response("503 Service Unavailable", text)
        return response("503 Service Unavailable", f"{self.title} is starting …", "Refresh: 2\r\n")

    def record(self):
        """Return what ``status`` shows of it, without the secret, because this is written to a file."""
        return {
            "name": self.name,
            "title": self.title,
            "state": self.state,
            "message": self.message,
            "log": self.last,
            "restarts": self.restarts,
        }

    def facts(self, local_port):
        """Return its data for the page and the launcher. ``local_port``: the forwarded port; 0: not known."""
        address = f"http://port-{local_port}.localhost:{local_port}/?{urlencode({SECRET: self.secret})}"
        icon = "file" if self.icon.startswith("data:") else self.icon  # the page requests a picture once
        return dict(self.record(), port=self.port, secret=self.secret, url=address if local_port else "", icon=icon)


def filled(word, words):
    """Return a word of a command with ``{socket}`` and the like replaced."""
    return re.sub("{(" + "|".join(words) + ")}", lambda found: words[found.group(1)], word)


def is_strangers(own, connection):
    """Whether a connection comes from another user's program."""
    return Path("/proc/net/tcp").exists() and own.stranger_behind(connection) is not None


def listening_sockets():
    """Return sockets that listen on one free port of 127.0.0.1 and, where there is one, of ::1.

    A browser on this machine may try ::1 first, where another user could wait for it.
    """
    for _ in range(PORTS_TRIED):
        first = socket.socket()
        first.bind(("127.0.0.1", 0))
        first.listen(128)
        try:
            second = socket.socket(socket.AF_INET6)
            second.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            second.bind(("::1", first.getsockname()[1]))
            second.listen(128)
            return [first, second]
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:  # there is no IPv6 here
                return [first]
            first.close()
    raise OSError("no port is free on 127.0.0.1 and ::1")


# ------------------------------------------------------------------------------------------------- in the server


class Apps:
    """All apps of the session, and the local ports to which launchers have forwarded them."""

    def __init__(self, wanted, session, own, log):
        self.place = private_folder()
        atexit.register(shutil.rmtree, self.place, ignore_errors=True)
        # Another job of this user would remove the folder if no socket were open in it, when an app has just died.
        self.held = socket.socket(socket.AF_UNIX)
        self.held.bind(f"{self.place}/held")
        self.apps = [App(one, f"{self.place}/{at}", session, own, log) for at, one in enumerate(wanted)]
        self.ended, self.news = threading.Event(), threading.Event()
        for one in self.apps:
            one.news = self.news
        self.states = Path(session, "runtime", "apps.json")
        self.opened = {}  # by JupyterLab's local port: the apps' local ports by name

    def start(self):
        """Start all apps and their proxies."""
        atexit.register(self.end)
        threading.Thread(target=self.serve, name="apps", daemon=True).start()
        threading.Thread(target=self.keep_files, name="apps-files", daemon=True).start()
        for app in self.apps:
            threading.Thread(target=app.keep_running, name="app-" + app.name, daemon=True).start()

    def serve(self):
        """Serve the ports in a thread, so that their traffic does not delay JupyterLab."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        for app in self.apps:
            for server in app.listen():
                loop.run_until_complete(server)
        loop.run_forever()

    def keep_files(self):
        """Record their states, and limit the size of their output.

        In a separate thread, because the home's file server may not answer.
        """
        recorded = None
        while not self.ended.is_set():
            self.news.clear()
            states = [app.record() for app in self.apps]
            if states != recorded and self.write_states(states):
                recorded = states
            for app in self.apps:
                app.limit_output()
            self.news.wait(OUTPUT_EVERY)

    def write_states(self, states):
        """Write their states for ``status``, and return whether that worked."""
        new = self.states.with_name("apps.json.new")
        try:
            with os.fdopen(os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(json.dumps({"version": 1, "apps": states}) + "\n")
            new.replace(self.states)
        except OSError:
            return False
        return True

    def end(self):
        """End all of them within the same few seconds; not with threads, which Python 3.12 cannot start at exit."""
        self.ended.set()
        self.news.set()
        for app in self.apps:
            app.ends.set()
        alive = [app for app in self.apps if app.is_alive()]
        for app in alive:
            app.signal(signal.SIGTERM)
        deadline = time.monotonic() + ENDS_WITHIN
        for app in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                app.process.wait(max(0, deadline - time.monotonic()))
            app.signal(signal.SIGKILL)

    def facts(self, host):
        """Return the data of each app. ``host``: of the request, which tells by which launcher's tunnel it came."""
        ports = self.opened.get(port_in(host), {})
        return [app.facts(ports.get(app.name, 0)) for app in self.apps]

    def note_opened(self, host, ports):
        """Record the local ports to which a launcher has forwarded them."""
        known = {app.name for app in self.apps}
        kept = {name: port for name, port in ports.items() if name in known and type(port) is int and 0 < port < 65536}
        self.opened.pop(port_in(host), None)
        self.opened[port_in(host)] = kept
        while len(self.opened) > MOST_LAUNCHERS:
            del self.opened[next(iter(self.opened))]


def port_in(host):
    """Return the port in a Host header; 0 if there is none."""
    port = host.rpartition(":")[2]
    return int(port) if re.match(r"[0-9]{1,5}\Z", port) else 0


def private_folder():
    """Return a new folder for sockets that only this user may enter, with a path short enough for them."""
    for place in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"):  # noqa: S108
        if place.startswith("/") and len(place.encode()) < LONGEST_PLACE and is_safe(place):
            # By this name, a later job finds and removes the folder if this one is killed (job_services.sh).
            folder = Path(place, f"nl-kernels-{secrets.token_hex(4)}")
            folder.mkdir(mode=0o700)
            return str(folder)
    raise OSError("there is no folder for the sockets of programs beside JupyterLab")


def is_safe(place):
    """Whether this user may create a folder there, and no other user may rename or remove it."""
    try:
        known = Path(place).stat()
    except OSError:
        return False
    is_others = known.st_uid not in (0, os.geteuid()) or known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return os.access(place, os.W_OK) and (not is_others or bool(known.st_mode & stat.S_ISVTX))


def bring(app, own, folder):
    """Start the apps named in ``apps.json``, and answer requests of the launcher and the page about them."""
    wanted = json.loads(Path(folder, "apps.json").read_text(encoding="utf-8"))["apps"]
    global running
    running = apps = Apps(wanted, folder, own, app.log.warning)
    set_up = app.init_shutdown_no_activity  # the last step of the setup in JupyterLab 3 and 4

    def set_up_and_start():
        set_up()
        answer(app, apps)
        when_it_listens(apps.start)

    app.init_shutdown_no_activity = set_up_and_start


def when_it_listens(act):
    """Call ``act`` once the server listens. Must be called before the server opens its port.

    The server first tries its port, closes it, and opens it again in the first iteration of the event loop. A process
    started in between inherits the socket for a moment, and the server would exit because its port is in use.
    """
    from tornado.ioloop import IOLoop

    loop = IOLoop.current()
    loop.add_callback(loop.add_callback, act)  # in the second iteration


running = None


def answer(app, apps):
    """Let the server answer the launcher's requests about apps."""
    from jupyter_server.base.handlers import APIHandler
    from jupyter_server.utils import url_path_join
    from tornado import web

    class AppsHandler(APIHandler):
        """Tells the launcher about the apps, and receives the ports to which it has forwarded them."""

        _track_activity = False

        @web.authenticated
        def get(self):
            self.finish(json.dumps({"apps": apps.facts(self.request.host)}))

        @web.authenticated
        def post(self):
            ports = self.get_json_body()
            if not isinstance(ports, dict):
                raise web.HTTPError(400, "not an object")
            apps.note_opened(self.request.host, ports)
            self.finish(json.dumps({"apps": apps.facts(self.request.host)}))

    class IconsHandler(APIHandler):
        """Sends the page the pictures for the cards of apps."""

        _track_activity = False

        @web.authenticated
        def get(self):
            self.finish(json.dumps({"icons": {app.name: app.icon for app in apps.apps}}))

    base = app.web_app.settings["base_url"]
    handlers = [(url_path_join(base, ADDRESS), AppsHandler), (url_path_join(base, ICONS), IconsHandler)]
    app.web_app.add_handlers(".*$", handlers)
