"""Serves one page on 127.0.0.1 to the teacher's own browser: with a secret in its address, and to no other user.

The secret alone would not be enough: while a browser is started, the address can be read in the list of processes. The
Host header is checked, so that no other website can read the page through a host name of its own (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from notebook_launcher.core.local_sockets import is_from_another_user, wait_for_room

_TIMEOUT = 10.0  # seconds for a browser to send its request
_POLL = 0.1  # seconds until the server notices that it is to stop
# shown, and reloaded, until the scheduler has answered for the first time
_NOT_YET = b'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><p>The class is looked up.</p>'
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer:
    """Serves one page, which may change; a context manager. ``url``: its address, with the secret."""

    def __init__(self) -> None:
        self._secret = secrets.token_urlsafe(24)
        self._content = _NOT_YET
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/{self._secret}/"

    def put(self, html: str) -> None:
        """Serve this page from now on."""
        self._content = html.encode("utf-8")

    def answer(self, host: str, path: str) -> bytes | None:
        """Return the page if the request is for it, otherwise ``None``."""
        if host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return None
        is_right = hmac.compare_digest(path.encode("utf-8", "replace"), f"/{self._secret}/".encode())
        return self._content if is_right else None

    def __enter__(self) -> PageServer:
        threading.Thread(target=self._server.serve_forever, args=(_POLL,), name="page", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ``OSError``; after a moment if too many files are open."""
        try:
            return super().get_request()
        except OSError as error:
            wait_for_room(error)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection of another user before reading anything from it."""
        return isinstance(request, socket.socket) and is_from_another_user(request) is False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a browser that disconnects is normal."""


def _handler(page: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT
        server_version, sys_version = "notebook-launcher", ""

        def do_GET(self) -> None:
            content = page.answer(self.headers.get("Host", ""), self.path)
            self.send_response(404 if content is None else 200)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content or b"")

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing: the address holds the secret."""

    return Handler
