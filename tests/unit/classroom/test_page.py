"""The page of a class, and the server of it: nobody but the teacher's own browser sees it."""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Iterator

import pytest

from notebook_launcher.classroom import page_server
from notebook_launcher.classroom.page import class_page, class_rows
from notebook_launcher.classroom.page_server import PageServer
from notebook_launcher.core.events import ClassSeen, StudentNow
from tests.unit.out_of_files import SECONDS, use_without_room

STATES = ("failed", "not_started", "pending", "running", "idle", "ended")


def seen(count: int, **others: object) -> ClassSeen:
    students = tuple(
        StudentNow(f"u{n}", f"Name {n}", STATES[n % 6], "why", "7", "gpu1", None, None, 3000) for n in range(count)
    )
    return ClassSeen("gpulab", "2026-11-24T13:30:00+01:00", students, {"failed": 1} if count else {}, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 40, 300])
def test_a_page_of_so_many_students(count: int) -> None:
    html = class_page(seen(count), refresh=30)
    assert html.count("<li>") == count and html.count("<section") == min(count, len(STATES))
    assert ("Nobody is in the class yet." in html) is (count == 0)
    assert '<meta http-equiv="refresh" content="30">' in html
    assert 'http-equiv="refresh"' not in class_page(seen(count))
    assert not re.search(r"(?:src|href)=", html), "it asks nobody for anything"


def test_names_and_reasons_are_escaped() -> None:
    student = StudentNow("u1", '<script>alert(1)</script>"', "failed", "<img src=x>\x1b[31m")
    html = class_page(ClassSeen("<b>lab</b>", "2026-11-24T13:30:00+01:00", (student,), problem="<i>late</i>"))
    assert "<script>" not in html and "<img" not in html and "<b>lab" not in html and "<i>late" not in html
    assert "\x1b" not in html and "&lt;script&gt;" in html


def test_the_projector_gets_numbers() -> None:
    rows = class_rows(seen(7), anonymous=True)
    assert {row.name for row in rows} == {f"Student {n}" for n in range(1, 8)}
    assert rows[0].name == "Student 1" and rows[0].state == "failed" and rows[1].name == "Student 7"
    assert "Name 3" not in class_page(seen(7), anonymous=True)


def test_when_a_pending_one_starts_and_when_one_ended() -> None:
    [row] = class_rows(ClassSeen("x", "2026-11-24T13:30:00+01:00",
                                 (StudentNow("a", "a", "pending", starts="2026-11-24T13:00:00+00:00"),)))  # fmt: skip
    assert row.when == "≈ 14:00"
    [row] = class_rows(ClassSeen("x", "2026-11-24T13:30:00+01:00",
                                 (StudentNow("a", "a", "failed", ends="2026-11-24T12:00:00+00:00"),)))  # fmt: skip
    assert row.when == "at 13:00"


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


def get(server: PageServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Security-Policy")
    finally:
        connection.close()


def test_the_page_is_served_to_whoever_has_its_address(server: PageServer) -> None:
    path = server.url.partition(str(server.port))[2]
    assert b'http-equiv="refresh"' in get(server, path)[1], "it asks again until there is something to see"
    server.put("<p>the class</p>")
    status, content, policy = get(server, path)
    assert (status, content) == (200, b"<p>the class</p>") and policy and "default-src 'none'" in policy
    server.put("<p>later</p>")
    assert get(server, path, f"localhost:{server.port}")[1] == b"<p>later</p>"


@pytest.mark.parametrize("path", ["/", "/index.html", "//", "/../etc/passwd", "/x/", "{secret}/x", "/{secret}x/"])
def test_without_the_secret_there_is_nothing(server: PageServer, path: str) -> None:
    secret = server.url.rstrip("/").rpartition("/")[2]
    assert get(server, path.format(secret=secret))[:2] == (404, b"")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:{port}", ""])
def test_another_name_leads_nowhere(server: PageServer, host: str) -> None:
    path = server.url.partition(str(server.port))[2]
    assert get(server, path, host.format(port=server.port) or "x")[:2] == (404, b"")


def test_only_get_is_answered_and_only_to_this_user(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.url.partition(str(server.port))[2]
    assert get(server, path, method="POST")[0] == 501
    monkeypatch.setattr(page_server, "is_from_another_user", lambda _connection: True)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        get(server, path)


SERVES_A_PAGE = """
from notebook_launcher.classroom.page_server import PageServer
server = PageServer()
server.__enter__()
port = server.port
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no such limit")
def test_too_many_open_files_cost_no_processor_time_and_pass() -> None:
    used, answer = use_without_room(SERVES_A_PAGE)
    assert used < SECONDS / 4 and answer == "HTTP/"
