"""The session's panel in JupyterLab's page, in a real browser, answered by a real JupyterLab that a job has started."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import re
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, expect, sync_playwright

from tests.cluster_tests.jupyterlab_page import CHROMIUM, FLAGS, NO_ANIMATION
from tests.doubles import wait_until
from tests.unit.jobscripts.job import VENV_BIN, Job, call, permissions, read_json_if_there, token_of
from tests.unit.jobscripts.written_usage import Sampler

CAUSE = "the page's own timers and JupyterLab's notifications are late by seconds where other tests use the processor"

pytestmark = [pytest.mark.real_time, pytest.mark.browser_time(cause=CAUSE)]

#: ms; a request may be under way that knows nothing yet of what has just changed, and the next one comes 5 s later
LATEST = 12_000
ADDRESS = "api/notebook-launcher/session"
#: what a hostile driver would call a GPU, and whoever wrote a profile the unit of its prices
MARKUP = "<img src=x onerror=document.title='owned'>"


#: a picture that would do as much, where it is more than a picture
SCRIPTS = "<svg xmlns='http://www.w3.org/2000/svg' onload='document.title=`owned`'><rect width='9' height='9'/></svg>"
ICON = f"data:image/svg+xml;base64,{base64.b64encode(SCRIPTS.encode()).decode()}"

#: what answers beside JupyterLab, on a socket
APP = """
import http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"it is me")

    def address_string(self):
        return ""

socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
"""


@functools.cache
def hour_ago() -> int:
    """Return when the job began: an hour before the first test needs it, which may be long after the import."""
    return int(time.time()) - 3600


def sampler_of(job: Job) -> Sampler:
    """Write to a file that is there already, or begin it."""
    return Sampler(job.dir / "usage.csv", datetime.fromtimestamp(hour_ago() + 3590, timezone.utc))


def ends_in(job: Job, seconds: float) -> None:
    """Let the walltime be over then."""
    requested = {
        "version": 1,
        "walltime_seconds": time.time() - hour_ago() + seconds,
        "price_per_hour": 3.5,
        "unit": MARKUP,
        "connect": "launch-notebook connect --cluster 'my cluster' 20261121-014455-k3f9",
    }
    (job.dir / "panel.json").write_text(json.dumps(requested))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    job = Job(tmp_path_factory.mktemp("panel"))
    job.env |= {
        "SLURM_JOB_START_TIME": str(hour_ago()),
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_MEM_PER_NODE": "4096",
    }
    job.in_a_scheduler()
    job.ask(f"path={VENV_BIN}")
    ends_in(job, 7200)
    command = [sys.executable, "-c", APP, "{socket}"]
    board = {"name": "board", "title": MARKUP, "commands": [command], "health": "/", "icon": ICON}
    (job.dir / "apps.json").write_text(json.dumps({"version": 1, "apps": [board]}))
    for name in ("notes.txt", "refused.txt"):
        (job.work / name).write_text("before")
    sampler_of(job).sample(0, "40", "60", cores="1.50")
    job.start()
    job.endpoint()
    yield job
    job.end()


@pytest.fixture(scope="module")
def page(job: Job) -> Iterator[Page]:
    """A page with a terminal's and a notebook's cards, and the panel open."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        # High enough for the buttons: without animation, JupyterLab leaves what it has dismissed standing there.
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.goto(f"http://127.0.0.1:{job.endpoint()['port']}/lab?token={token_of(job)}")
        page.locator(".nbl-status").wait_for(timeout=60_000)
        page.add_style_tag(content=NO_ANIMATION)
        shown = re.compile(rf"1:5\d h left · GPU 50 % · {job.started()['node']}")
        expect(page.locator(".nbl-status")).to_have_text(shown)
        yield page
        browser.close()


def test_the_session_is_told_to_its_own_people_alone(job: Job) -> None:
    told: dict[str, Any] = call(job, ADDRESS)
    assert (told["session"], told["job"], told["cores"], told["memory_mib"]) == (job.dir.name, "7.pbs", 8, 4096)
    assert abs(told["now"] - time.time()) < 5
    assert 6600 < told["ends"] - told["now"] <= 7200
    (sample,) = told["samples"]
    assert [gpu["percent"] for gpu in sample["gpus"]] == [40, 60]
    assert call(job, f"{ADDRESS}?since={sample['time']}")["samples"] == []
    with pytest.raises(urllib.error.HTTPError, match="400"):
        call(job, f"{ADDRESS}?since=x")
    for method in ("GET", "POST"):
        request = urllib.request.Request(f"http://127.0.0.1:{job.endpoint()['port']}/{ADDRESS}", method=method)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=30)
    for path in (job.dir / "runtime" / "labextensions").rglob("*"):
        assert permissions(path) == (0o700 if path.is_dir() else 0o600), path


def test_what_is_shown_can_be_reached_by_keyboard_and_read_aloud(page: Page) -> None:
    page.locator(".nbl-status").focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("region", name="Session")
    expect(panel).to_be_visible()
    text = panel.inner_text()
    assert re.search(r"1:5\d h left", text), text
    for part in ("Partition\ngpu", "CPU\n1.5 of 8 cores", "Memory\n0.9 of 4.0 GiB", "GPU 1\n60 %"):
        assert part in text, text
    assert "GPU 1 memory\n4.9 of 15 GiB" in text
    found = [
        violation
        for part in (".nbl-panel", ".nbl-status")
        for violation in Axe().run(page, context=part).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert found == []


def test_what_files_contain_is_text(page: Page) -> None:
    expect(page.get_by_role("region", name="Session")).to_contain_text(MARKUP)
    assert page.locator(".nbl-panel img").count() == 0
    assert page.title() != "owned"


def test_a_program_beside_jupyterlab_has_a_card_in_the_launcher(page: Page, job: Job) -> None:
    address = "api/notebook-launcher/apps"
    port = call(job, address)["apps"][0]["port"]
    call(job, address, json.dumps({"board": port}).encode())
    card = page.locator(".jp-LauncherCard", has_text=MARKUP)
    picture = card.locator(".jp-LauncherCard-icon > div")
    expect(picture).to_have_css("background-image", f'url("{ICON}")', timeout=LATEST)
    assert picture.inner_html() == "" and page.title() != "owned", "and nothing of it is in the page"
    with page.context.expect_page() as opened:
        card.click(timeout=LATEST)
    expect(opened.value.locator("body")).to_have_text("it is me")
    assert opened.value.url == f"http://port-{port}.localhost:{port}/", "the secret is not in the address any more"
    assert opened.value.evaluate("document.cookie") == ""
    opened.value.close()


@contextlib.contextmanager
def requests_of(page: Page) -> Iterator[list[float]]:
    """The times at which the panel asks."""
    times: list[float] = []

    def note(request: Any) -> None:
        if ADDRESS in request.url:
            times.append(time.monotonic())

    page.on("request", note)
    yield times
    page.remove_listener("request", note)


def be_hidden(page: Page, hidden: bool) -> None:
    """Let the page believe that it is, or is not, to be seen."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_a_page_that_is_not_to_be_seen_asks_nothing(page: Page, job: Job) -> None:
    be_hidden(page, True)
    page.wait_for_timeout(300)  # what was under way
    with requests_of(page) as times:
        page.wait_for_timeout(5500)
        assert times == []
        sampler_of(job).sample(5, "90", "90")
        be_hidden(page, False)
        expect(page.locator(".nbl-status")).to_contain_text("GPU 90 %")
        while len(times) < 2 and time.monotonic() < times[0] + 30:
            page.wait_for_timeout(100)
    assert times[1] - times[0] > 4.5


def is_well(page: Page) -> None:
    """Somebody can work in the page, which knows for how long, and complains of nothing."""
    page.locator(".jp-LauncherCard").first.hover()
    expect(page.locator(".nbl-status")).to_contain_text(re.compile(r"1:5|2:00"))
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def test_the_next_job_is_asked_for_once_and_shown(page: Page, job: Job) -> None:
    """An attached launcher reads ``renew.json``, and writes ``next_job.json``."""
    renew, panel = page.get_by_role("button", name="Continue in a new job…"), page.locator(".nbl-panel")
    if not panel.is_visible():
        page.locator(".nbl-status").click()
    expect(renew).to_be_hidden()  # this session's launcher has noted no command for it
    requested = json.loads((job.dir / "panel.json").read_text())
    (job.dir / "panel.json").write_text(json.dumps({**requested, "renew": "launch-notebook renew k3f9"}))
    be_hidden(page, False)
    renew.click(timeout=LATEST)
    dialog = page.locator(".jp-Dialog-content")
    expect(dialog).to_contain_text("The same request is queued again")
    expect(dialog).to_contain_text("Kernels are new: all variables are lost.")
    assert not (job.dir / "renew.json").exists()
    dialog.get_by_role("button", name="Queue it").click()
    wait_until((job.dir / "renew.json").exists, 30, "the launcher is asked")
    assert permissions(job.dir / "renew.json") == 0o600
    (job.dir / "next_job.json").write_text(json.dumps({"session": "x", "job": MARKUP, "begins": None}))
    expect(panel).to_contain_text(f"This page continues in job {MARKUP}.", timeout=LATEST)
    expect(renew).to_be_hidden()
    assert page.title() != "owned"
    for name in ("next_job.json", "renew.json"):
        (job.dir / name).unlink()
    ends_in(job, 7200)
    be_hidden(page, False)
    expect(panel).not_to_contain_text("This page continues", timeout=LATEST)


@pytest.mark.parametrize("fault", ["wrong token", "slow", "nonsense", "no connection"])
def test_a_server_that_fails_the_panel_does_not_hurt_the_page(page: Page, fault: str) -> None:
    slow: list[Route] = []

    def answer(route: Route) -> None:
        if fault == "wrong token":
            route.fulfill(status=403, json={"message": "Forbidden"})
        elif fault == "slow":
            slow.append(route)
        elif fault == "nonsense":
            route.fulfill(json={"now": [], "samples": {"time": 7}, "ends": "<b>", "idle": 7})
        else:
            route.abort()

    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.route(f"**/{ADDRESS}*", answer)
    be_hidden(page, False)
    page.wait_for_timeout(600)
    if fault != "nonsense":
        is_well(page)
    assert problems == []
    assert len(slow) <= 1
    for route in slow:
        route.abort()
    page.unroute(f"**/{ADDRESS}*")
    page.wait_for_timeout(200)
    be_hidden(page, False)
    expect(page.locator(".nbl-status")).to_contain_text("GPU 90 %", timeout=LATEST)


def test_a_session_directory_that_vanishes_does_not_hurt_the_page(page: Page, job: Job, tmp_path: Path) -> None:
    shutil.move(job.dir, tmp_path / "gone")
    try:
        told = wait_until(lambda: call_without_files(job, tmp_path / "gone"))
        assert told["job"] is None and told["cores"] == 8
        be_hidden(page, False)
        expect(page.locator(".nbl-status")).to_have_text("Session · GPU 90 %", timeout=LATEST)
        expect(page.locator(".jp-Dialog")).to_have_count(0)
    finally:
        shutil.move(tmp_path / "gone", job.dir)


def call_without_files(job: Job, directory: Path) -> dict[str, Any]:
    """Ask with what was in the files before they were gone."""
    port = json.loads((directory / "endpoint.json").read_text())["port"]
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{ADDRESS}")
    request.add_header("Authorization", f"token {(directory / 'token').read_text()}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def toast(page: Page, text: str) -> Locator:
    """What JupyterLab shows, and reads aloud, over the page."""
    return page.get_by_role("alert").filter(has_text=text)


def test_who_is_there_keeps_a_session_that_is_thought_unused(page: Page, job: Job) -> None:
    message = "Nobody has used JupyterLab for 25 minutes: the session ends in 5 minutes unless somebody does."
    idle = {"version": 1, "why": "unused", "ends": "2030-11-21T12:05:00Z", "message": message}
    (job.dir / "idle.json").write_text(json.dumps(idle))
    be_hidden(page, False)
    with page.expect_request(lambda request: request.method == "POST" and ADDRESS in request.url) as kept:
        toast(page, message).get_by_role("button", name="Keep it").click()
    assert kept.value.response().status == 204
    (job.dir / "idle.json").unlink()
    be_hidden(page, False)
    expect(toast(page, message)).to_have_count(0, timeout=LATEST)


def test_what_the_teacher_says_is_shown_as_text_and_with_its_time(page: Page, job: Job) -> None:
    ends = datetime.now(timezone.utc) + timedelta(minutes=10)
    notice = {"version": 1, "message": f"Submit {MARKUP}.", "ends": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    (job.dir / "notice.json").write_text(json.dumps(notice))
    be_hidden(page, False)
    said = re.compile(rf"^The teacher ends the class at \d\d:\d\d.*: Submit {re.escape(MARKUP)}\.$")
    expect(toast(page, MARKUP)).to_be_visible(timeout=LATEST)
    expect(page.locator(".nbl-panel p").filter(has_text=said)).to_be_visible()
    expect(page.locator(".nbl-status")).to_contain_text(re.compile(r"^(10|9:\d\d) min left"))
    expect(toast(page, "minutes left")).to_have_count(0)
    assert page.title() != "owned" and page.locator("[role=alert] img").count() == 0
    (job.dir / "notice.json").unlink()
    be_hidden(page, False)
    expect(toast(page, MARKUP)).to_have_count(0, timeout=LATEST)
    expect(page.locator(".nbl-status")).to_contain_text(re.compile(r"1:5|2:00"))


def test_the_end_is_told_in_time_and_each_warning_once(page: Page, job: Job) -> None:
    ends_in(job, 14 * 60)
    be_hidden(page, False)
    expect(toast(page, "14 minutes left: the session ends at")).to_be_visible(timeout=LATEST)
    ends_in(job, 4 * 60 + 5)
    page.wait_for_timeout(200)
    be_hidden(page, False)
    expect(toast(page, "4 minutes left")).to_be_visible(timeout=LATEST)
    expect(toast(page, "This page continues in job")).to_have_count(0)
    expect(toast(page, "14 minutes left")).to_have_count(0)
    ends_in(job, 3 * 60 + 9)
    page.wait_for_timeout(200)
    be_hidden(page, False)
    expect(page.locator(".nbl-status")).to_contain_text("3:0", timeout=LATEST)
    expect(toast(page, "minutes left")).to_have_count(1)
    expect(toast(page, "4 minutes left")).to_have_count(1)
    (job.dir / "next_job.json").write_text(json.dumps({"session": "x", "job": "78", "begins": None}))
    ends_in(job, 55)
    page.wait_for_timeout(200)
    be_hidden(page, False)
    expect(toast(page, "This page continues in job 78 then. Open documents are being saved.")).to_be_visible(
        timeout=LATEST
    )
    (job.dir / "next_job.json").unlink()
    ends_in(job, 7200)  # or what the next test writes would be saved at once
    be_hidden(page, False)
    expect(page.locator(".nbl-status")).to_contain_text("h left", timeout=LATEST)


EDITOR = ".jp-FileEditor:visible :is(.cm-content, .CodeMirror)"  # of JupyterLab 4, and 3


def write_in(page: Page, name: str, text: str) -> None:
    """Open a file and type at its beginning."""
    page.locator(".jp-DirListing-item", has_text=name).dblclick()
    editor = page.locator(EDITOR)
    expect(editor).to_contain_text("before")
    editor.click()
    page.keyboard.press("Control+Home")
    page.keyboard.type(text)


def test_a_hidden_page_saves_in_the_last_minute_and_tells_what_it_cannot_save(page: Page, job: Job) -> None:
    page.route(
        "**/api/contents/refused.txt*",
        lambda route: route.abort() if route.request.method == "PUT" else route.continue_(),
    )
    write_in(page, "refused.txt", "lost ")
    write_in(page, "notes.txt", "kept ")
    assert (job.work / "notes.txt").read_text() == "before"
    be_hidden(page, False)
    ends_in(job, 50)
    call(job, ADDRESS)
    be_hidden(page, True)
    wait_until(lambda: (job.work / "notes.txt").read_text() == "kept before")
    told = wait_until(lambda: read_json_if_there(job.dir / "unsaved.json"))
    assert told == {"version": 1, "paths": ["refused.txt"]}
    assert permissions(job.dir / "unsaved.json") == 0o600
    assert call(job, ADDRESS, b'{"save":true}') == {"pages": 1, "answered": 1, "unsaved": ["refused.txt"]}


def close_dialogs(page: Page) -> None:
    """Those of JupyterLab about a document that was refused."""
    while page.locator(".jp-Dialog").count():
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)


def test_the_command_to_come_back_can_be_copied(page: Page, job: Job) -> None:
    page.unroute("**/api/contents/refused.txt*")
    ends_in(job, 7200)
    call(job, ADDRESS)
    be_hidden(page, False)
    close_dialogs(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command to come back").click()
    command = "launch-notebook connect --cluster 'my cluster' 20261121-014455-k3f9"
    expect(page.get_by_role("status").filter(has_text=f"Copied: {command}")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_a_hidden_page_saves_at_once_for_whoever_ends_the_session_in_a_terminal(page: Page, job: Job) -> None:
    """A launcher asks for it before it closes the page's connection."""
    page.locator(EDITOR).click()
    page.keyboard.type("asked ")
    be_hidden(page, True)
    assert call(job, ADDRESS, b'{"save":true}') == {"pages": 1, "answered": 1, "unsaved": []}
    assert "asked " in (job.work / "notes.txt").read_text()
    be_hidden(page, False)


def test_ending_the_session_asks_once_and_shows_what_it_cost(page: Page, job: Job) -> None:
    asked: list[dict[str, str]] = []

    def shut_down(route: Route) -> None:
        asked.append(route.request.headers)
        route.fulfill(json={})  # the server has one more test to stand

    page.route("**/api/shutdown*", shut_down)
    end, dialog = page.get_by_role("button", name="End session…"), page.locator(".jp-Dialog")
    end.click()
    expect(dialog).to_contain_text("Its job ends, and what kernels have in memory is lost. Open documents are saved.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert asked == []
    end.click()
    dialog.get_by_role("button", name="End session").click()
    expect(dialog).to_contain_text("The session has ended")
    expect(dialog).to_contain_text(re.compile(r"It ran for 1:0\d h of 3:0\d h\. It cost 3\.\d <img"))
    (headers,) = asked
    assert headers.keys() & {"x-xsrftoken", "authorization"}
    dialog.evaluate("node => node.remove()")


def test_what_is_typed_at_the_very_end_is_saved_when_the_job_is_ended(page: Page, job: Job) -> None:
    page.locator(EDITOR).click()
    page.keyboard.type("more ")
    began = time.monotonic()
    job.send(signal.SIGTERM)
    expect(page.locator(".nbl-panel [role=alert]")).to_contain_text("Open documents were saved.")
    assert job.exit()["cause"] == "stopped"
    assert time.monotonic() - began < 15
    assert "more " in (job.work / "notes.txt").read_text()
    assert (job.work / "refused.txt").read_text() == "lost before"
