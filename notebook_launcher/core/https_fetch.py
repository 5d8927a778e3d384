"""Downloads small files over https, with a limit on size and time."""

from __future__ import annotations

import contextlib
import http.client
import queue
import socket
import threading
import urllib.error
import urllib.request
from typing import IO, Any
from urllib.parse import urlsplit

from notebook_launcher import __version__
from notebook_launcher.core.errors import FetchFailed, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number

TIMEOUT = 30.0  # seconds for one file, however slow the server
_READ_TIMEOUT = 10.0  # seconds without any data
_CHUNK = 64 * 1024  # bytes
_LONGEST_MESSAGE = 300  # characters of a server's message that are shown


class Fetched(Frozen):
    """A downloaded file: its content, and its address after redirections."""

    content: bytes
    url: str


def check_address(url: str, *, plain: bool = False) -> None:
    """Raise ``UsageError`` for an address that cannot be fetched. ``plain``: whether http is allowed."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The address contains a name or a password.",
            why="Everybody on this machine can read the arguments of a command.",
            hint="use an address that needs none, or download the file and name it",
        )
    if not parts.hostname or any(character <= " " or character > "~" for character in url):
        raise UsageError(f"“{url}” is not an address.", hint="for example: https://www.uni.example/course.toml")
    if parts.scheme != "https" and not (plain and parts.scheme == "http"):
        raise UsageError(
            f"The launcher only fetches addresses that begin with https://, not “{url}”.",
            why="On its way over plain http a file can be changed by others.",
            hint="use the address that begins with https://, or add the digest: ADDRESS#sha256=…",
        )


def fetch(url: str, at_most: int, *, plain: bool = False, within: float = TIMEOUT) -> Fetched:
    """Download a file of at most ``at_most`` bytes. Raises ``FetchFailed``, and ``UsageError`` as ``check_address``.

    Only redirections to https are followed. ``within``: seconds for the whole download.
    """
    check_address(url, plain=plain)
    done: queue.SimpleQueue[Fetched | Exception] = queue.SimpleQueue()
    connections = _Connections()

    def run() -> None:
        try:
            done.put(_download(url, at_most, connections))
        except Exception as error:
            done.put(error)

    # on a thread, because name resolution and a slow header have no timeout
    threading.Thread(target=run, name="fetch", daemon=True).start()
    try:
        result = done.get(timeout=within)
    except queue.Empty:
        result = FetchFailed(f"{url} did not arrive within {within:.0f} s.", hint="try again, or from another network")
    finally:
        connections.close()
    if isinstance(result, Fetched):
        return result
    raise _error(url, result) from None


def _download(url: str, at_most: int, connections: _Connections) -> Fetched:
    opener = urllib.request.build_opener(_OnlyToHttps(), connections)
    request = urllib.request.Request(url, headers={"User-Agent": f"launch-notebook/{__version__}"})  # noqa: S310
    with opener.open(request, timeout=_READ_TIMEOUT) as answer:
        content = b""
        while not connections.closed and (data := answer.read1(_CHUNK)):
            content += data
            if len(content) > at_most:
                raise FetchFailed(
                    f"{url} is larger than {at_most // 1024} KiB.", hint="check that it is the right file"
                )
        length = whole_number(answer.headers.get("Content-Length"))
        if length is not None and len(content) < length:
            raise FetchFailed(f"{url} ended early.", hint="try again")
        return Fetched(content, answer.geturl())


class _Connections(urllib.request.HTTPSHandler):
    """The connections of one download; closing them also ends a wait for headers that never end."""

    handler_order = urllib.request.HTTPHandler.handler_order - 1  # used instead of that handler

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self._opened: list[http.client.HTTPConnection] = []

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPSConnection, req)

    def _open(self, kind: type[http.client.HTTPConnection], req: urllib.request.Request) -> http.client.HTTPResponse:
        def opened(host: str, /, **options: Any) -> http.client.HTTPConnection:
            self._opened.append(kind(host, **options))
            return self._opened[-1]

        return self.do_open(opened, req)

    def close(self) -> None:
        """Close the connections, even while another thread uses them."""
        self.closed = True
        for connection in self._opened:
            with contextlib.suppress(OSError):
                if (used := connection.sock) is not None:
                    # not SSLSocket.shutdown: it drops the TLS layer, and encrypted bytes would be read as a response
                    socket.socket.shutdown(used, socket.SHUT_RDWR)


class _OnlyToHttps(urllib.request.HTTPRedirectHandler):
    max_redirections = 5
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # missing in Python 3.10

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Follow a redirection to https, and no other."""
        fp.close()  # otherwise its whole body is read, which may never end
        if urlsplit(newurl).scheme != "https":
            raise FetchFailed(
                f"{_short(req.full_url)} leads on to {_short(newurl)}, which is not https.",
                hint="ask who gave you the address for the right one",
            )
        return super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)


def _error(url: str, error: Exception) -> Exception:
    """Return the error to show for a failure."""
    if isinstance(error, FetchFailed):
        return error
    hint = "check the address, and whether a browser shows it"
    if isinstance(error, urllib.error.HTTPError):
        return FetchFailed(
            f"{url} could not be fetched.", why=f"The server says: {error.code} {_short(error.reason)}", hint=hint
        )
    if isinstance(error, urllib.error.URLError):
        why = _short(error.reason)
        if "CERTIFICATE_VERIFY_FAILED" in why:
            hint = "if your institution has certificates of its own, name their file in SSL_CERT_FILE"
        return FetchFailed(f"{url} could not be fetched.", why=why, hint=hint)
    if isinstance(error, OSError | http.client.HTTPException | ValueError):
        return FetchFailed(f"{url} could not be fetched.", why=f"{type(error).__name__}: {_short(error)}", hint=hint)
    return error


def _short(words: object) -> str:
    text = str(words)
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
