"""What pages have saved before a session is ended, from whatever a server answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from notebook_launcher.tunnel.forwarding import Endpoint
from notebook_launcher.tunnel.page_saving import PagesSaved, save_in_pages


class Server(HTTPServer):
    answer: bytes | None = None
    received = ""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.received = f"{self.path} {self.headers['Authorization']} {body}"
        self.send_response(404 if self.server.answer is None else 200)
        self.end_headers()
        self.wfile.write(self.server.answer or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def saved(server: Server) -> PagesSaved:
    return save_in_pages(server.server_port, Endpoint(4242, "/x/"), "secret")


@pytest.mark.parametrize(
    ("pages", "answered", "unsaved", "is_doubtful", "advice"),
    [
        (0, 0, [], False, "Check in the browser that your notebooks are saved."),
        (2, 2, [], False, "Open documents are saved."),
        (1, 1, ["a/\x1b[31mb.csv", 7], True, "JupyterLab could not save a/b.csv."),
        (
            2, 1, [], True,
            "A page of JupyterLab did not answer. Check in the browser that your notebooks are saved. "
            "The browser may have put a tab to sleep: reload or close it.",
        ),
    ],
)  # fmt: skip
def test_what_is_known_of_the_pages_is_said(
    server: Server, pages: int, answered: int, unsaved: list[object], is_doubtful: bool, advice: str
) -> None:
    server.answer = json.dumps({"pages": pages, "answered": answered, "unsaved": unsaved}).encode()
    told = saved(server)
    assert server.received == '/x/api/notebook-launcher/session token secret {"save":true}'
    assert (told.is_doubtful, told.advice) == (is_doubtful, advice)


@pytest.mark.parametrize(
    "answer", [None, b"", b"[]", b"{}", b"[" * 5000, b'{"pages": true, "answered": 1, "unsaved": []}']
)
def test_without_such_an_answer_nothing_is_known(server: Server, answer: bytes | None) -> None:
    """Of a session without a panel, or of one that an older launcher has started."""
    server.answer = answer
    assert saved(server) == PagesSaved()
    assert not PagesSaved().is_doubtful
