"""Whatever a web server answers when a course is fetched: the file, or an error of ours, soon and in little memory."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import FetchFailed, LauncherError
from notebook_launcher.core.https_fetch import fetch
from notebook_launcher.core.text import printable
from notebook_launcher.planning.course_commands import forget_course
from tests.doubles import RecordingView, wait_until
from tests.unit.planning.courses.course_files import take

Answer = Callable[[socket.socket], None]
LIMIT = 1000  # bytes


class RawServer:
    """A server with https that answers each request with any bytes. ``sent``: those that were taken from it."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self.answer: Answer = lambda _connection: None
        self.sent = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as connection:
            connection.settimeout(10)
            asked = b""
            while b"\r\n\r\n" not in asked and (data := connection.recv(4096)):
                asked += data
            self.answer(connection)

    def says(self, *parts: bytes) -> None:
        """Answer with these bytes."""
        self.answer = lambda connection: [connection.sendall(part) for part in parts] and None

    def goes_on(self, first: bytes, then: bytes) -> None:
        """Answer without end."""

        def answer(connection: socket.socket) -> None:
            connection.sendall(first)
            while True:
                connection.sendall(then)
                self.sent += len(then)

        self.answer = answer

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def server(certificate: tuple[Path, Path]) -> Iterator[RawServer]:
    server = RawServer(certificate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate[0]))
        patch.setenv("no_proxy", "127.0.0.1")
        yield server
    server.close()


def fetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fetch"]


CODES = st.sampled_from([b"200", b"301", b"302", b"303", b"304", b"307", b"308", b"401", b"404", b"500", b"999", b"1"])
PLACES = st.sampled_from(
    [b"/x", b"//x", b"https://127.0.0.1:1/", b"http://x/", b"file:///etc/passwd", b"https://[", b"https://x:y/", b"",
     b"https://a:b@127.0.0.1:1/", b"\xff\xfe", b"data:,x", b"ftp://x/", b"https://\xe2\x80\xae/", b"?" + b"x" * 3000]
)  # fmt: skip
NUMBERS = st.sampled_from([b"0", b"5", b"-1", b"+5", b"99999999999999999999999", b"0x5", b"5, 5", b"", b"\xb2", b"1e3"])
HEADERS = st.one_of(
    st.tuples(st.just(b"Location"), PLACES),
    st.tuples(st.just(b"Content-Length"), NUMBERS),
    st.tuples(st.just(b"Transfer-Encoding"), st.sampled_from([b"chunked", b"gzip, chunked", b"x"])),
    st.tuples(st.just(b"Content-Encoding"), st.sampled_from([b"gzip", b"br", b"x"])),
    st.tuples(st.just(b"Content-Type"), st.sampled_from([b"text/html; charset=x", b"\xff"])),
    st.tuples(st.binary(max_size=8), st.binary(max_size=20)),
)
BODIES = st.one_of(
    st.just(b'name = "any"\n'),
    st.just(b'name = "any"\ncontact = "\x1b]0;x\x07\xe2\x80\xae"\nx = 1\n'),
    st.sampled_from(
        [b"", b"<html>", b"5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffffff\r\n", b"-5\r\n", b"\x1f\x8b\x08"]
    ),
    st.binary(max_size=300),
    st.just(b"x" * (LIMIT + 1)),
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw an answer with a status, headers and a body, or something that is none."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=200))
    reason = draw(st.sampled_from([b"OK", b"", b"\x1b[2J", b"\xe2\x80\xae", b"x" * 5000]))
    status = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"ICY"])) + b" " + draw(CODES) + b" " + reason
    headers = [name + b": " + value for name, value in draw(st.lists(HEADERS, max_size=4))]
    return b"\r\n".join([status, *headers, b"", draw(BODIES)])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers())
@example(b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n" + b'name = "any"\n')
@example(b"HTTP/1.1 302 OK\r\nLocation: https://[\r\n\r\n")
@example(b"HTTP/1.1 404 " + b"x" * 5000 + b"\r\n\r\n")
def test_any_answer_is_a_course_or_an_error_in_a_few_words(server: RawServer, answer: bytes) -> None:
    server.says(answer)
    began = time.monotonic()
    try:
        assert len(fetch(server.url, LIMIT, within=5).content) <= LIMIT
        name, view, _ = take(f"{server.url}course.toml", True)
        assert printable(view.notes) == view.notes
        forget_course(name, RecordingView())
    except LauncherError as error:
        told = f"{error.what} {error.why} {error.hint}"
        assert len(told) < 1500 and "Traceback" not in told
    assert time.monotonic() - began < 30


@pytest.mark.real_time
@pytest.mark.parametrize("code", [b"200 OK", b"302 Found", b"404 Not Found"])
def test_an_answer_without_end_is_not_read_to_its_end(server: RawServer, code: bytes) -> None:
    """That of a redirection, too, which nobody wants to see."""
    server.sent = 0
    server.goes_on(b"HTTP/1.1 " + code + b"\r\nLocation: https://127.0.0.1:1/\r\n\r\n", b"x" * 65536)
    with pytest.raises(FetchFailed):
        fetch(server.url, LIMIT, within=3)
    wait_until(lambda: not fetching())
    assert server.sent < 8 * 2**20


@pytest.mark.real_time
def test_headers_without_end_are_given_up_and_nothing_goes_on_in_the_background(server: RawServer) -> None:
    server.goes_on(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    with pytest.raises(FetchFailed, match="did not arrive within 1 s"):
        fetch(server.url, LIMIT, within=1)
    wait_until(lambda: not fetching())
