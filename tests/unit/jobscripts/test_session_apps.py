"""Programs beside JupyterLab: who reaches them, and what becomes of them; with a real JupyterLab and a small server."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import VENV_BIN, Job, call, permissions

pytestmark = pytest.mark.real_time

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
    job.end()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "the app has ended with its job")


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
    assert "Small has ended, and is started again: It ended with exit code 3." in app.job.log.read_text()


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


def judge(request: str) -> tuple[bytes | None, bytes | None]:
    spec = importlib.util.spec_from_file_location("session_apps_alone", job_script("session_apps.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer: tuple[bytes | None, bytes | None] = module.judge(request.replace("\n", "\r\n").encode(), "s3cret", 7)
    return answer


def test_a_websocket_is_passed_on_as_it_is() -> None:
    head = (
        "GET /ws HTTP/1.1\nHost: port-7.localhost:7\nUpgrade: websocket\nConnection: Upgrade\nCookie: nl-app-7=s3cret"
    )
    answer, passed = judge(f"{head}\n\n")
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
    ],
)
def test_odd_requests(head: str) -> None:
    answer, passed = judge(f"{head}\n\n")
    assert passed is None and answer is not None and answer.startswith(b"HTTP/1.1 400")


def test_its_port_is_on_both_loopback_addresses(app: App) -> None:
    port = app.facts()["port"]
    socket.create_connection(("127.0.0.1", port)).close()
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        socket.create_connection(("::1", port)).close()
