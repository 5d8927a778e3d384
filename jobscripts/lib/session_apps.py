"""Further programs in the session (``--app``), such as TensorBoard, each behind a port of its own.

Loaded by ``jupyter_server_config.py`` into JupyterLab's server, so that they run in its environment, and end with it.
An app listens on a Unix socket in a folder that only the session's user may enter: a port of 127.0.0.1 could be reached
by every user of the node. In front of it is a port for the launcher's tunnel, which lets in only connections of this
user's programs, and only requests that carry the app's own secret. Python 3.6 must be able to read this file.
"""

import asyncio
import atexit
import contextlib
import errno
import hmac
import html
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

ADDRESS = "api/notebook-launcher/apps"
SECRET = "nl-token"  # noqa: S105 - in an address, once: it becomes a cookie
MOST_HEAD = 64 * 1024  # bytes of a request's first lines
HEAD_WITHIN, STARTS_WITHIN, ANSWERS_WITHIN = 30, 120, 5  # seconds
CHUNK = 64 * 1024
RESTARTED_AFTER = 3  # seconds, and longer each time; a job that is ended sends SIGTERM to both
MOST_DEATHS, FORGOTTEN_AFTER = 3, 600  # so many times it is started again, unless it ran so many seconds
LAST_LINES = 5
PORTS_TRIED = 20
LONGEST_PLACE = 60  # bytes; a socket's path may have 107


class App:
    """One of them: its process, its state for the page and the launcher, and the port in front of it.

    ``state`` is ``starting``, ``running`` or ``failed``; ``message`` says why.
    """

    def __init__(self, wanted, place, session, own, log):
        self.name, self.title, self.health = wanted["name"], wanted["title"], wanted["health"]
        self.commands = wanted["commands"]
        self.folder = str(Path(wanted.get("folder") or ".").expanduser())
        self.socket, self.session, self.own, self.log = place, session, own, log
        self.secret = secrets.token_urlsafe(32)
        self.state, self.message, self.process, self.ends = "starting", "", None, threading.Event()
        self.output = Path(session, "runtime", f"app-{self.name}.log")
        self.listeners = listening_sockets()
        self.port = self.listeners[0].getsockname()[1]

    # --- its process

    def keep_running(self):
        """Start it, and again if it ends; give up after ``MOST_DEATHS`` in a row."""
        deaths = 0
        while not self.ends.is_set():
            began = time.monotonic()
            try:
                self.run()
            except OSError as problem:
                self.message = str(problem)
            if self.ends.is_set():
                return
            deaths = 1 if time.monotonic() - began > FORGOTTEN_AFTER else deaths + 1
            if deaths > MOST_DEATHS or self.process is None:
                break
            self.state = "starting"
            self.log("notebook-launcher: %s has ended, and is started again: %s", self.title, self.message)
            self.ends.wait(RESTARTED_AFTER * deaths)
        self.state = "failed"
        self.log("notebook-launcher: %s is not running: %s", self.title, self.message)

    def run(self):
        """Run it once, until it ends."""
        self.process = None
        with contextlib.suppress(FileNotFoundError):
            Path(self.socket).unlink()
        argv = self.argv()
        if argv is None:
            names = " or ".join(command[0] for command in self.commands)
            self.message = f"There is no {names} in the session's environment."
            return
        descriptor = os.open(str(self.output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + STARTS_WITHIN
        while self.process.poll() is None and not self.answers():
            if time.monotonic() > deadline:
                self.stop()
                self.message = f"It did not answer within {STARTS_WITHIN} s. {self.last_lines()}"
                return
            time.sleep(0.2)
        if self.process.poll() is None:
            self.state, self.message = "running", ""
        code = self.process.wait()
        self.message = f"It ended with exit code {code}. {self.last_lines()}".strip()

    def argv(self):
        """Return the first of its commands whose program is there, filled in."""
        words = {"socket": self.socket, "folder": self.folder, "session": str(self.session), "python": sys.executable}
        for command in self.commands:
            argv = [filled(word, words) for word in command]
            if shutil.which(argv[0]):
                return argv
        return None

    def answers(self):
        """Does it answer on its socket, to a request for ``health``?"""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWERS_WITHIN)
                connection.connect(self.socket)
                connection.sendall(f"GET {self.health} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                words = connection.recv(64).split()
            return len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() and int(words[1]) < 500
        except OSError:
            return False

    def last_lines(self):
        """Return the last lines that it printed."""
        try:
            text = self.output.read_bytes()[-4096:].decode("utf-8", "replace")
        except OSError:
            return ""
        return " ".join(text.split("\n")[-LAST_LINES:]).strip()[-500:]

    def end(self):
        """End its process, for good."""
        self.ends.set()
        self.stop()

    def stop(self):
        """End its process."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()

    # --- the port in front of it

    def listen(self):
        """Return what serves its port, to be awaited."""
        return [asyncio.start_server(self.serve, sock=one, limit=MOST_HEAD) for one in self.listeners]

    async def serve(self, reader, writer):
        """Serve one connection, which carries one request."""
        try:
            if is_strangers(self.own, writer.get_extra_info("socket")):
                writer.transport.abort()
                return
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_WITHIN)
            answer, passed_on = judge(head, self.secret, self.port)
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
        """Carry a request to the app, and what comes of it back."""
        there, to_there = await asyncio.open_unix_connection(self.socket, limit=CHUNK)
        try:
            to_there.write(head)
            ways = [asyncio.ensure_future(way) for way in (carry(reader, to_there), carry(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)  # a browser that ends one way ends both
            for way in ways:
                way.cancel()
        finally:
            to_there.close()

    def not_running(self):
        """Return the page to be shown meanwhile."""
        if self.state == "failed":
            text = f"{self.title} is not running. {self.message}"
            return response("503 Service Unavailable", text)
        return response("503 Service Unavailable", f"{self.title} is starting …", "Refresh: 2\r\n")

    def facts(self, local_port):
        """Return what the page and the launcher are told; ``local_port`` leads to it, 0: not known."""
        address = f"http://port-{local_port}.localhost:{local_port}/?{urlencode({SECRET: self.secret})}"
        return {
            "name": self.name,
            "title": self.title,
            "state": self.state,
            "message": self.message,
            "port": self.port,
            "secret": self.secret,
            "url": address if local_port else "",
        }


def filled(word, words):
    """Return a word of a command with ``{socket}`` and the like replaced."""
    for name, value in words.items():
        word = word.replace("{" + name + "}", value)
    return word


def is_strangers(own, connection):
    """Does this connection come from another user's program?"""
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
            if problem.errno != errno.EADDRINUSE:  # there is no IPv6
                return [first]
            first.close()
    raise OSError("no port is free on 127.0.0.1 and ::1")


async def carry(reader, writer):
    """Copy what comes to its end."""
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(CHUNK)
            if not data:
                break
            writer.write(data)
            await writer.drain()


# ----------------------------------------------------------------------------------------------- who may come in


def judge(head, secret, port):
    """Return an answer, or what is passed on to the app in its place, of a request's first lines.

    Only an address with a name of its own counts, ``port-N.localhost``: a browser sends the cookies of ``localhost``
    and 127.0.0.1 to every port there. Pages of other sites, and of other ports, may not use it (``Origin``).
    """
    try:
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        headers = [(line.partition(":")[0].strip().lower(), line.partition(":")[2].strip()) for line in lines]
    except ValueError:
        return response("400 Bad Request", "This request is not understood."), None
    values = dict(reversed(headers))
    host, origin = values.get("host", ""), values.get("origin")
    if not is_own_name(host):
        text = "Open the address that launch-notebook prints, which begins with http://port-"
        return response("403 Forbidden", text), None
    if origin is not None and urlsplit(origin).netloc != host:
        return response("403 Forbidden", "Pages at other addresses may not use this one."), None
    name, _, query = target.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    if SECRET in given:
        if method != "GET" or not name.startswith("/") or name.startswith("//"):
            return response("400 Bad Request", "The secret is accepted only in an address that a browser opens."), None
        if not is_same(given.pop(SECRET), secret):
            return wrong_secret(), None
        return with_cookie(name + ("?" + urlencode(given) if given else ""), secret, port), None
    if not is_same(cookie_of(values.get("cookie", ""), port), secret):
        return wrong_secret(), None
    return None, "\r\n".join([" ".join((method, target, version)), *passed_headers(headers, port)]).encode(
        "latin-1"
    ) + (b"\r\n\r\n")


def is_own_name(host):
    """Is this host a name below ``localhost``?"""
    try:
        return (urlsplit("//" + host).hostname or "").endswith(".localhost")
    except ValueError:
        return False


def is_same(given, secret):
    """Compare without telling by the time how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def cookie_name(port):
    """Return the name of an app's cookie."""
    return f"nl-app-{port}"


def cookie_of(header, port):
    """Return the secret in a Cookie header, if any."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(port):
            return value
    return ""


def passed_headers(headers, port):
    """Return the headers for the app: without our cookie; and one request a connection, so that each is judged."""
    is_upgrade = any(name == "upgrade" for name, _ in headers)
    lines = []
    for name, value in headers:
        if name == "cookie":
            parts = [part.strip() for part in value.split(";")]
            value = "; ".join(part for part in parts if part.partition("=")[0] != cookie_name(port))
            if not value:
                continue
        if name in ("connection", "keep-alive", "proxy-connection") and not is_upgrade:
            continue
        lines.append(f"{name}: {value}")
    return lines if is_upgrade else [*lines, "connection: close"]


def wrong_secret():
    """Return the answer to who has no secret, or an old one."""
    text = "Open it again with the address that launch-notebook prints, or with its card in JupyterLab's Launcher."
    return response("403 Forbidden", text)


def with_cookie(target, secret, port):
    """Return the answer that turns the secret in an address into a cookie."""
    cookie = SimpleCookie()
    with contextlib.suppress(CookieError):
        cookie[cookie_name(port)] = secret
    kept = cookie.output(header="Set-Cookie:").strip() + "; Path=/; HttpOnly; SameSite=Lax\r\n"
    return response("303 See Other", "", f"Location: {target}\r\n{kept}")


def response(status, text, more=""):
    """Return a whole answer with a sentence in it."""
    body = f'<!doctype html><meta charset="utf-8"><p>{html.escape(text)}</p>\n'.encode()
    head = (
        "HTTP/1.1 {}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n{}\r\n"
    )
    return head.format(status, len(body), more).encode() + body


# ------------------------------------------------------------------------------------------------- in the server


class Apps:
    """All apps of the session, and the local ports by which launchers have opened them."""

    def __init__(self, wanted, session, own, log):
        self.place = private_folder()
        atexit.register(shutil.rmtree, self.place, ignore_errors=True)
        # Another job of this user's removes such a folder if no socket is open in it, as when an app has just died.
        self.held = socket.socket(socket.AF_UNIX)
        self.held.bind(f"{self.place}/held")
        self.apps = [App(one, f"{self.place}/{at}", session, own, log) for at, one in enumerate(wanted)]
        self.opened = {}  # by the local port of JupyterLab: by name, the app's local port

    def start(self):
        """Start all of them, and what serves their ports."""
        atexit.register(self.end)
        threading.Thread(target=self.serve, name="apps", daemon=True).start()
        for app in self.apps:
            threading.Thread(target=app.keep_running, name="app-" + app.name, daemon=True).start()

    def serve(self):
        """Serve the ports, in a thread: what passes there must not hold JupyterLab up."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        for app in self.apps:
            for server in app.listen():
                loop.run_until_complete(server)
        loop.run_forever()

    def end(self):
        """End all of them."""
        for app in self.apps:
            app.end()

    def facts(self, host):
        """Return what is known of each. ``host``: of the request, which says by which launcher's tunnel it comes."""
        ports = self.opened.get(port_in(host), {})
        return [app.facts(ports.get(app.name, 0)) for app in self.apps]

    def note_opened(self, host, ports):
        """Note by which local ports a launcher has opened them."""
        known = {app.name for app in self.apps}
        kept = {name: port for name, port in ports.items() if name in known and type(port) is int and 0 < port < 65536}
        if len(self.opened) < 100 or port_in(host) in self.opened:
            self.opened[port_in(host)] = kept


def port_in(host):
    """Return the port in a Host header; 0: none."""
    port = host.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def private_folder():
    """Return a new folder for sockets that only this user may enter, with a path short enough for them."""
    for place in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"):  # noqa: S108
        if place.startswith("/") and len(place.encode()) < LONGEST_PLACE and os.access(place, os.W_OK):
            # By this name the job removes what one that was killed has left (job_services.sh).
            folder = Path(place, f"nl-kernels-{secrets.token_hex(4)}")
            folder.mkdir(mode=0o700)
            return str(folder)
    raise OSError("there is no folder for the sockets of programs beside JupyterLab")


def bring(app, own, folder):
    """Start the apps that ``apps.json`` names, and have the launcher and the page told of them."""
    wanted = json.loads(Path(folder, "apps.json").read_text(encoding="utf-8"))["apps"]
    global running
    running = apps = Apps(wanted, folder, own, app.log.warning)
    set_up = app.init_shutdown_no_activity  # the last step in JupyterLab 3 and 4 for which everything is there

    def set_up_and_start():
        set_up()
        answer(app, apps)
        apps.start()

    app.init_shutdown_no_activity = set_up_and_start


running = None


def answer(app, apps):
    """Let the server answer what the launcher asks about apps."""
    from jupyter_server.base.handlers import APIHandler
    from jupyter_server.utils import url_path_join
    from tornado import web

    class AppsHandler(APIHandler):
        """Tells the launcher the apps, and is told where it has opened them."""

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

    path = url_path_join(app.web_app.settings["base_url"], ADDRESS)
    app.web_app.add_handlers(".*$", [(path, AppsHandler)])
