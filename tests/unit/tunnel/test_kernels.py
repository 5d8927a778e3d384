"""Which kernels are busy, from whatever a server answers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from notebook_launcher.tunnel.forwarding import Endpoint
from notebook_launcher.tunnel.kernels import busy_kernels, busy_text

KERNELS = [
    {"id": "1", "name": "python3", "execution_state": "busy"},
    {"id": "2", "name": "python3", "execution_state": "idle"},
    {"id": "3", "name": "julia", "execution_state": "busy"},
    {"id": "4", "name": "python3", "execution_state": "busy"},
]
SESSIONS = [
    {"name": "train.ipynb", "path": "a/train.ipynb", "kernel": {"id": "1"}},
    {"name": "", "path": "b/\x1b[31mred.ipynb\n\u202e", "kernel": {"id": "4"}},
    {"name": "idle.ipynb", "path": "idle.ipynb", "kernel": {"id": "2"}},
]


class Server(ThreadingHTTPServer):
    answers: dict[str, bytes]
    asked: list[str]
    trickles: set[str]
    over: threading.Event


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(f"{self.path} {self.headers['Authorization']}")
        answer = self.server.answers.get(self.path)
        self.send_response(200 if answer is not None else 404)
        self.end_headers()
        if self.path in self.server.trickles:
            self._trickle()
        self.wfile.write(answer or b"")

    def _trickle(self) -> None:
        """Send a byte now and then, which no timeout of a single step notices."""
        assert isinstance(self.server, Server)
        with contextlib.suppress(OSError):
            while not self.server.over.wait(0.05):
                self.wfile.write(b" ")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.answers = {"/x/api/kernels": json.dumps(KERNELS).encode(), "/x/api/sessions": json.dumps(SESSIONS).encode()}
    server.asked, server.trickles, server.over = [], set(), threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def busy(server: Server, within: float = 5) -> tuple[str, ...] | None:
    return busy_kernels(server.server_port, Endpoint(4242, "/x/"), "secret", within)


def test_busy_kernels_are_named_by_their_notebooks(server: Server) -> None:
    assert busy(server) == ("train.ipynb", "a kernel (julia)", "b/red.ipynb")
    assert server.asked == ["/x/api/kernels token secret", "/x/api/sessions token secret"]


@pytest.mark.parametrize("answer", [b"[]", b"[1, null, []]", b'[{"execution_state": ["busy"]}]', b"[{}]"])
def test_a_list_without_a_busy_kernel(server: Server, answer: bytes) -> None:
    server.answers["/x/api/kernels"] = answer
    assert busy(server) == ()


@pytest.mark.parametrize("answer", [None, b"", b"{}", b"null", b"[" * 5000, b"\xff"])
def test_after_any_other_answer_nothing_is_known(server: Server, answer: bytes | None) -> None:
    server.answers.pop("/x/api/kernels")
    if answer is not None:
        server.answers["/x/api/kernels"] = answer
    assert busy(server) is None
    assert busy_text(None) == "JupyterLab does not answer, so it is not known whether a kernel is busy."


@pytest.mark.parametrize("answer", [None, b"", b'[{"kernel": 3}]', b'[{"kernel": {"id": "1"}, "name": 3}]', b"{}"])
def test_without_its_notebook_a_kernel_has_its_own_name(server: Server, answer: bytes | None) -> None:
    server.answers.pop("/x/api/sessions")
    if answer is not None:
        server.answers["/x/api/sessions"] = answer
    names = busy(server)
    assert names is not None and names[0] == "a kernel (python3)"


def test_a_port_where_nobody_listens(server: Server) -> None:
    assert busy_kernels(1, Endpoint(4242), "secret") is None


@pytest.mark.real_time
@pytest.mark.parametrize("silent", ["/x/api/kernels", "/x/api/sessions"])
def test_an_answer_that_trickles_is_not_waited_for(server: Server, silent: str) -> None:
    """Somebody waits for the session's end."""
    server.trickles.add(silent)
    began = time.monotonic()
    unnamed = ("a kernel (python3)", "a kernel (julia)", "a kernel (python3)")
    assert busy(server, 1.5) == (None if silent == "/x/api/kernels" else unnamed)
    assert time.monotonic() - began < 10


def test_a_name_is_cut_and_only_some_are_said(server: Server) -> None:
    server.answers["/x/api/sessions"] = json.dumps([{"name": "n" * 500, "kernel": {"id": "1"}}]).encode()
    names = busy(server)
    assert names is not None and names[0] == f"{'n' * 59}…"
    assert busy_text(["a", "b", "c", "d"]) == "a, b, c and 1 more are still running."
    assert busy_text(["a"]) == "a is still running."
    assert busy_text(["a kernel (python3)"]) == "A kernel (python3) is still running."
