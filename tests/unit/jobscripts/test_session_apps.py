"""Programs beside JupyterLab: who reaches them, and what becomes of them; with a real JupyterLab and a small server."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.doubles import wait_until
from tests.paths import JOBSCRIPTS
from tests.unit.jobscripts.job import VENV_BIN, Job, call, permissions
from tests.unit.jobscripts.written_usage import loaded

pytestmark = pytest.mark.real_time

requests = loaded("app_requests")
apps = loaded("session_apps")

APP = """
import http.server, json, os, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/die":
            os._exit(3)
        self.answer(json.dumps({"path": self.path, "folder": sys.argv[2], **self.headers}).encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return ""

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

print("began", os.getpid(), file=open(sys.argv[3], "a"))
Server(sys.argv[1], Handler).serve_forever()
"""

STRANGER = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.settimeout(20)
try:
    connection.sendall(sys.argv[2].encode())
    print(connection.recv(100))
except ConnectionError:
    print(b"")
"""


class App:
    """The program in a job, as the launcher and a browser see it."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def facts(self, name: str = "small") -> dict[str, Any]:
        apps = call(self.job, "api/notebook-launcher/apps")["apps"]
        return dict(next(app for app in apps if app["name"] == name))

    def ask(
        self, path: str, *, cookie: str | None = None, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        port = self.facts()["port"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        given = {"Host": f"port-{port}.localhost:{port}", **headers}
        if cookie is not None:
            given["Cookie"] = f"other=1; nl-app-{port}={cookie}"
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body, given)
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    job = Job(tmp_path_factory.mktemp("apps"))
    job.ask(f"path={VENV_BIN}")
    (job.root / "app.py").write_text(APP)
    words = [sys.executable, str(job.root / "app.py"), "{socket}", "{folder}", str(job.root / "began")]
    wanted = [
        {"name": "small", "title": "Small", "commands": [["no-such-program"], words], "folder": "logs", "health": "/"},
        {"name": "none", "title": "None", "commands": [["no-such-program"]], "folder": "", "health": "/"},
    ]
    (job.dir / "apps.json").write_text(json.dumps({"version": 1, "apps": wanted}))
    job.start()
    assert job.endpoint()["apps"] is True
    made = App(job)
    wait_until(lambda: made.facts()["state"] == "running", 30, "the app runs")
    yield made
    pids = [int(line.split()[1]) for line in (job.root / "began").read_text().splitlines()]
    os.kill(job.endpoint()["pid"], signal.SIGKILL)  # nothing ends the app but the job
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "the app has ended with its job")
    job.end()


def test_nobody_gets_in_without_the_secret(app: App) -> None:
    for cookie in (None, "", "wrong"):
        status, _, body = app.ask("/", cookie=cookie)
        assert status == 403 and b"Open it again" in body
    assert app.ask("/?nl-token=wrong")[0] == 403


def test_the_secret_in_the_address_becomes_a_cookie(app: App) -> None:
    facts = app.facts()
    status, headers, _ = app.ask(f"/tree?nl-token={facts['secret']}&a=1")
    assert (status, headers["location"], headers["referrer-policy"]) == (303, "/tree?a=1", "no-referrer")
    cookie = f"nl-app-{facts['port']}={facts['secret']}"
    assert headers["set-cookie"] == f"{cookie}; Path=/; HttpOnly; SameSite=Lax"
    status, _, body = app.ask("/tree?a=1", cookie=facts["secret"])
    seen = json.loads(body)
    assert (status, seen["path"], seen["folder"]) == (200, "/tree?a=1", "logs")
    assert facts["secret"] not in body.decode(), "the app itself does not see it"
    assert seen["cookie"] == "other=1" and seen["connection"] == "close"


def test_what_is_sent_to_it(app: App) -> None:
    sent = os.urandom(300_000)
    assert app.ask("/", cookie=app.facts()["secret"], body=sent)[2] == sent


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "evil.example", "", "[", "localhost.evil.example"])
def test_only_a_host_name_of_its_own_counts(app: App, host: str) -> None:
    secret = app.facts()["secret"]
    assert app.ask("/", cookie=secret, Host=host)[0] == 403
    assert app.ask(f"/?nl-token={secret}", Host=host)[0] == 403


def test_pages_of_other_addresses_may_not_use_it(app: App) -> None:
    facts = app.facts()
    own = f"http://port-{facts['port']}.localhost:{facts['port']}"
    assert app.ask("/", cookie=facts["secret"], Origin=own)[0] == 200
    for origin in ("http://127.0.0.1:8888", "http://port-1.localhost:1", "null", "https://evil.example"):
        assert app.ask("/", cookie=facts["secret"], Origin=origin)[0] == 403


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_node_gets_no_answer(app: App) -> None:
    facts = app.facts()
    request = f"GET / HTTP/1.0\r\nHost: port-1.localhost\r\nCookie: nl-app-{facts['port']}={facts['secret']}\r\n\r\n"
    argv = ["/usr/bin/python3", "-c", STRANGER, str(facts["port"]), request]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.startswith("b'HTTP/1.1 200")
    stranger = subprocess.run(argv, capture_output=True, text=True, check=True, user=65534, cwd="/")
    assert stranger.stdout == "b''\n"


def test_its_socket_is_the_users_alone(app: App) -> None:
    line = next(line for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith("/0"))
    folder = Path(line.split()[-1]).parent
    assert permissions(folder) == 0o700 and folder.name.startswith("nl-kernels-")


def test_it_is_started_again_when_it_dies(app: App) -> None:
    began = (app.job.root / "began").read_text()
    secret = app.facts()["secret"]
    with contextlib.suppress(http.client.HTTPException, OSError):
        app.ask("/die", cookie=secret)
    wait_until(lambda: (app.job.root / "began").read_text() != began, 20, "it was started again")
    wait_until(lambda: app.ask("/", cookie=secret)[0] == 200, 20, "it answers, with the same secret")
    assert "Small has ended, and is started again. It ended with exit code 3." in app.job.log.read_text()
    record = app.job.dir / "runtime" / "apps.json"
    wait_until(lambda: recorded(record)["small"] == ("running", 1, ""), 20, "and that is recorded")
    assert recorded(record)["none"] == ("failed", 0, "There is no no-such-program in the session's environment.")
    assert permissions(record) == 0o600 and secret not in record.read_text()


def recorded(path: Path) -> dict[str, tuple[str, int, str]]:
    states = json.loads(path.read_text())["apps"]
    return {state["name"]: (state["state"], state["restarts"], state["message"]) for state in states}


def test_what_is_not_there_is_reported(app: App) -> None:
    facts = app.facts("none")
    assert facts["state"] == "failed"
    assert facts["message"] == "There is no no-such-program in the session's environment."


def test_the_page_learns_where_a_launcher_has_opened_it(app: App) -> None:
    assert app.facts()["url"] == ""
    told = call(app.job, "api/notebook-launcher/apps", json.dumps({"small": 6006, "x": 1}).encode())
    secret = app.facts()["secret"]
    assert told["apps"][0]["url"] == f"http://port-6006.localhost:6006/?nl-token={secret}"
    assert app.facts()["url"] == told["apps"][0]["url"]


def authorize(request: str) -> tuple[bytes | None, bytes | None]:
    answer: tuple[bytes | None, bytes | None] = requests.authorize(request.replace("\n", "\r\n").encode(), "s3cret", 7)
    return answer


def test_a_websocket_is_passed_on_as_it_is() -> None:
    head = (
        "GET /ws HTTP/1.1\nHost: port-7.localhost:7\nUpgrade: websocket\nConnection: Upgrade\nCookie: nl-app-7=s3cret"
    )
    answer, passed = authorize(f"{head}\n\n")
    assert answer is None and passed is not None
    lines = passed.decode().split("\r\n")
    assert lines == [
        "GET /ws HTTP/1.1",
        "host: port-7.localhost:7",
        "upgrade: websocket",
        "connection: Upgrade",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "head",
    [
        "GET //evil.example/?nl-token=s3cret HTTP/1.1\nHost: port-7.localhost:7",
        "GET http://evil.example/?nl-token=s3cret HTTP/1.1\nHost: port-7.localhost:7",
        "POST /?nl-token=s3cret HTTP/1.1\nHost: port-7.localhost:7",
        "nonsense",
        "GET /\nHost: port-7.localhost:7",
        "GET /\\evil.example/?nl-token=s3cret HTTP/1.1\nHost: port-7.localhost:7",
        "GET / HTTP/1.1\nHost: port-7.localhost:7\nHost: evil.example\nCookie: nl-app-7=s3cret",
        "GET / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\nX : 1",
        "GET / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\n folded",
        "GET / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\nX: 1\rTransfer-Encoding: chunked",
        "POST / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\nContent-Length: -5",
        "POST / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\nContent-Length: 5\nContent-Length: 50",
    ],
)
def test_odd_requests(head: str) -> None:
    answer, passed = authorize(f"{head}\n\n")
    assert passed is None and answer is not None and answer.startswith(b"HTTP/1.1 400")


def test_its_port_is_on_both_loopback_addresses(app: App) -> None:
    port = app.facts()["port"]
    socket.create_connection(("127.0.0.1", port)).close()
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        socket.create_connection(("::1", port)).close()


@pytest.mark.parametrize(
    ("site", "mode", "goal", "is_let_in"),
    [
        ("same-origin", "cors", "empty", True),
        ("none", "navigate", "document", True),
        ("cross-site", "navigate", "document", True),
        ("same-site", "no-cors", "image", False),
        ("same-site", "navigate", "iframe", False),
    ],
)
def test_a_page_at_another_port_of_the_same_name_may_only_lead_to_it(
    site: str, mode: str, goal: str, is_let_in: bool
) -> None:
    fetch = f"Sec-Fetch-Site: {site}\nSec-Fetch-Mode: {mode}\nSec-Fetch-Dest: {goal}"
    _, passed = authorize(f"GET / HTTP/1.1\nHost: port-7.localhost:7\nCookie: nl-app-7=s3cret\n{fetch}\n\n")
    assert (passed is not None) is is_let_in


def test_the_rest_of_the_address_is_kept() -> None:
    answer, _ = authorize("GET /tree?a=1&nl-token=s3cret&a=2&b= HTTP/1.1\nHost: port-7.localhost:7\n\n")
    assert answer is not None and b"\r\nLocation: /tree?a=1&a=2&b=\r\n" in answer


class Small:
    """An ``App`` with a program or a server of the test's own."""

    def __init__(self, folder: Path, *command: str) -> None:
        (folder / "runtime").mkdir()
        wanted = {"name": "small", "title": "Small", "health": "/", "commands": [list(command)]}
        own = SimpleNamespace(stranger_behind=lambda _connection: None)
        self.said: list[str] = []
        self.until = b"lose\r\n\r\n"  # of an answer
        self.got = b""  # by the app, after the first lines
        self.app = apps.App(wanted, f"{folder}/s", folder, own, lambda text, *words: self.said.append(text % words))

    def asked(self, answer: bytes, request: bytes, *, reads: bool) -> bytes:
        """What a client gets from an app that answers so, and keeps the connection open."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            if reads:
                while data := await reader.read(1000):
                    self.got += data
            writer.close()

        async def ask() -> bytes:
            self.app.state = "running"
            servers = [await asyncio.start_unix_server(serve, self.app.socket)]
            servers += [await one for one in self.app.listen()]
            reader, writer = await asyncio.open_connection("127.0.0.1", self.app.port, limit=10_000_000)
            head = f"Host: port-1.localhost\r\nCookie: nl-app-{self.app.port}={self.app.secret}\r\n"
            writer.write(request.replace(b"\r\n", b"\r\n" + head.encode(), 1))
            try:
                if not reads:
                    return await asyncio.wait_for(reader.readuntil(b"too much"), 20)
                answered = await asyncio.wait_for(reader.readuntil(self.until), 20)
                await asyncio.sleep(0.2)  # nothing more may come to the app
                return answered
            finally:
                writer.close()
                for server in servers:
                    server.close()

        return asyncio.run(ask())


def test_a_body_of_unknown_length_is_refused() -> None:
    head = "POST / HTTP/1.1\nHost: port-7.localhost:7\nContent-Length: 5\nTransfer-Encoding: chunked\n\n"
    answer, passed = authorize(head)
    assert passed is None and answer is not None and answer.startswith(b"HTTP/1.1 411")


UPGRADE = b"Upgrade: websocket\r\nConnection: upgrade\r\n"


@pytest.mark.parametrize("upgrade", [b"", UPGRADE, b"Upgrade: h2c\r\nConnection: upgrade\r\n"])
def test_no_second_request_passes_unchecked(tmp_path: Path, upgrade: bytes) -> None:
    """A browser sends the next one over a connection that it may keep, with no cookies, perhaps, and for others."""
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nconnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
    small, body = Small(tmp_path), b"" if upgrade else b"12345"
    length = b"Content-Length: %d\r\n" % len(body)
    more = b"GET /second HTTP/1.1\r\n\r\n"
    got = small.asked(answer, b"POST / HTTP/1.1\r\n" + length + upgrade + b"\r\n" + body + more, reads=True)
    assert small.got == body
    assert got.endswith(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_the_answer_to_a_websocket_is_passed_on_as_it_is(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00"
    request = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"
    small = Small(tmp_path)
    small.until = b"\x81\x00"
    assert small.asked(answer, request, reads=True) == answer
    assert small.got == b"hello"


def test_an_app_that_takes_no_more_is_heard(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 413 Content Too Large\r\n\r\n" + b"x" * 500_000 + b"too much"
    request = b"POST / HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n" + b"y" * 9_000_000
    assert Small(tmp_path).asked(answer, request, reads=False).endswith(b"xtoo much")


def test_what_a_dead_app_has_started_ends_with_it(tmp_path: Path) -> None:
    small = Small(tmp_path, "sh", "-c", f"sleep 300 & echo $! >{tmp_path}/pid; printf '\\033[2Jno\\n'; exit 3")
    small.app.run()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid), 30, "its child has ended")
    record = small.app.record()
    assert (record["message"], record["log"]) == ("It ended with exit code 3.", [" [2Jno"]), "no terminal is changed"
    small.app.state = "failed"
    assert b"ended with exit code 3.\nThe end of its log:\n|  [2Jno<" in small.app.not_running()


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_app_that_heeds_no_signal_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "ENDS_WITHIN", 0.3)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "runtime").mkdir()
    command = ["sh", "-c", f"trap '' TERM; echo >>{tmp_path}/began; while :; do sleep 0.1; done"]
    wanted = [{"name": name, "title": name, "health": "/", "commands": [command]} for name in ("a", "b", "c")]
    every = apps.Apps(wanted, tmp_path, None, print)
    for app in every.apps:
        threading.Thread(target=app.keep_running, daemon=True).start()
    wait_until(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text() == "\n\n\n", 30, "they run")
    every.end()
    wait_until(lambda: not any(app.is_alive() for app in every.apps), 30, "they have ended")
    shutil.rmtree(every.place)


def test_no_process_begins_between_the_two_times_that_jupyterlab_opens_its_port() -> None:
    """It would have a copy of the first, and JupyterLab would find its port in use."""
    done = []

    async def serve() -> None:
        apps.when_it_listens(lambda: done.append("app"))
        IOLoop.current().add_callback(done.append, "listening")  # as jupyter_server does
        await asyncio.sleep(0.1)

    asyncio.run(serve())
    assert done == ["listening", "app"]


def test_an_impossible_command_is_reported(tmp_path: Path) -> None:
    small = Small(tmp_path, "sh", "a\0b")
    small.app.keep_running()
    assert small.app.state == "failed" and "null byte" in small.app.message


@pytest.mark.parametrize(
    ("session_env", "hint"),
    [
        ("container=/images/a.sif\n", "choose a container image or an environment that has it"),
        ("container=/images/a.sif\nvenv=/home/a/lab\n", "install it there with: pip install tensorboard"),
        ("uv=/home/a/lab\n", "add it to the uv project with: uv add tensorboard"),
        ("container=\n", "install it there with: pip install tensorboard"),
    ],
)
def test_a_missing_tensorboard_is_not_started_again(tmp_path: Path, session_env: str, hint: str) -> None:
    shutil.copy(JOBSCRIPTS / "lib" / "app_tensorboard.py", tmp_path)
    (tmp_path / "session.env").write_text(session_env)
    without_packages = [sys.executable, "-S", "-B", f"{tmp_path}/app_tensorboard.py", "{socket}", "{folder}"]
    app = Small(tmp_path, *without_packages).app
    app.keep_running()
    known = app.record()
    assert (known["state"], known["restarts"], known["log"]) == ("failed", 0, [])
    assert known["message"] == f"There is no TensorBoard in the session's environment; {hint}"


def test_a_flood_of_output_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Small(tmp_path).app
    app.output.write_text("x" * 100)
    app.limit_output()
    assert app.output.stat().st_size == 100
    monkeypatch.setattr(apps, "MOST_OUTPUT", 99)
    app.limit_output()
    assert app.output.stat().st_size == 0


def test_a_word_is_filled_in_once() -> None:
    words = {"socket": "/tmp/s", "folder": "{socket}"}
    assert apps.filled("unix:{socket} {folder} {other}", words) == "unix:/tmp/s {socket} {other}"


def test_sockets_are_in_no_folder_that_others_may_rename(tmp_path: Path) -> None:
    assert apps.is_safe(str(tmp_path)) and apps.is_safe("/tmp") and not apps.is_safe(f"{tmp_path}/none")
    tmp_path.chmod(0o777)
    assert not apps.is_safe(str(tmp_path))
    tmp_path.chmod(0o1777)
    assert apps.is_safe(str(tmp_path))


def test_the_launcher_that_came_last_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    wanted = [{"name": "a", "title": "A", "health": "/", "commands": []}]
    every = apps.Apps(wanted, tmp_path, None, print)
    for port in range(1000, 1105):
        every.note_opened(f"localhost:{port}", {"a": port})
    every.note_opened("localhost:²", {"a": 1})
    assert every.facts("localhost:1104")[0]["url"] and not every.facts("localhost:1000")[0]["url"]
    assert len(every.opened) == apps.MOST_LAUNCHERS
    shutil.rmtree(every.place)
