"""Ending what nobody uses: a real JupyterLab, started as a job starts it, with a real kernel, terminal and browser."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from playwright.sync_api import Browser, sync_playwright
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClientConnection, websocket_connect

from notebook_launcher.core.package_data import job_script
from tests.cluster_tests.jupyterlab_page import CHROMIUM, FLAGS, NO_ANIMATION, new_notebook, run_cell
from tests.doubles import wait_until
from tests.unit.jobscripts.job import STAND_IN, VENV_BIN, Job, call, permissions, read_json_if_there, token_of
from tests.unit.jobscripts.written_usage import Sampler

pytestmark = pytest.mark.real_time


def new_job(root: Path, idle_stop: int, *lines: str) -> Job:
    job = Job(root)
    job.env |= {"SHELL": "/bin/bash"}
    job.in_a_scheduler()
    job.ask(f"path={VENV_BIN}", f"idle_stop={idle_stop}", "usage=0", *lines)
    job.start()
    job.endpoint()
    return job


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start a session that ends after so many seconds without use."""
    jobs: list[Job] = []

    def begin(idle_stop: int, *lines: str) -> Job:
        jobs.append(new_job(tmp_path / str(len(jobs)), idle_stop, *lines))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.end()


def idle(job: Job) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError):
        return read_json_if_there(job.dir / "idle.json")
    return None


def runs(job: Job) -> bool:
    assert job.process is not None
    return job.process.poll() is None


@contextlib.contextmanager
def kernel(job: Job) -> Iterator[BlockingKernelClient]:
    """A kernel, and somebody who talks to it as a notebook does."""
    made = call(job, "api/kernels", b"{}")
    client = BlockingKernelClient(connection_file=str(job.dir / "runtime" / f"kernel-{made['id']}.json"))
    client.load_connection_file()
    client.start_channels()
    client.kernel_info(reply=True, timeout=30)
    yield client
    client.stop_channels()


class Terminal:
    """A terminal, into which somebody types."""

    def __init__(self, job: Job) -> None:
        self.loop = IOLoop(make_current=False)
        name = call(job, "api/terminals", b"{}")["name"]
        url = f"ws://127.0.0.1:{job.endpoint()['port']}/terminals/websocket/{name}?token={token_of(job)}"

        async def connect() -> WebSocketClientConnection:
            return await websocket_connect(url)

        self.socket = self.loop.run_sync(connect)

    def type(self, line: str) -> None:
        async def send() -> None:
            await self.socket.write_message(json.dumps(["stdin", line + "\r"]))

        self.loop.run_sync(send)


class Pipe:
    """What a program reads until it is let go: it runs as long as a test wants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        os.mkfifo(path)

    def is_read(self) -> bool:
        with contextlib.suppress(OSError):  # nobody reads it yet
            self._file = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        return self._file >= 0

    def let_go(self) -> None:
        os.close(self._file)


def assert_idle_end(job: Job, sentence: str) -> None:
    report = job.exit()
    assert (report["cause"], report["exit_code"], report["message"]) == ("idle", 0, sentence)
    assert not (job.dir / "idle.json").exists()
    assert list(job.dir.glob("*.new.*")) == []
    assert job.processes() == [], "no kernel and no terminal is left"


def test_warned_used_again_and_ended(begin: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "0/sessions/20261121-014455-k3f9/usage.csv").mkdir(parents=True)
    job = begin(8, "panel=no")
    assert not (job.dir / "runtime" / "labextensions").exists()
    with pytest.raises(OSError, match="404"):
        call(job, "api/notebook-launcher/session")
    # a guard that cannot see, because its file is a directory, ends nothing
    time.sleep(5)
    assert runs(job)
    assert idle(job) is None
    assert job.log.read_text().count("cannot find out whether somebody uses the session") == 1
    (job.dir / "usage.csv").rmdir()
    warning = wait_until(lambda: idle(job), 20)
    assert list(warning) == ["version", "why", "since", "ends", "message"]
    assert (warning["why"], warning["message"]) == (
        "unused",
        "Nobody has used JupyterLab for 4 seconds: the session ends in 4 seconds unless somebody does.",
    )
    since, ends = (datetime.strptime(warning[name], "%Y-%m-%dT%H:%M:%SZ") for name in ("since", "ends"))
    assert timedelta(seconds=7) <= ends - since <= timedelta(seconds=10)
    assert permissions(job.dir / "idle.json") == 0o600
    # what a tab asks for is no use, nor is what has no token; what a person opens is
    call(job, "api/contents?content=1")
    with pytest.raises(OSError, match="403"):
        urllib.request.urlopen(f"http://127.0.0.1:{job.endpoint()['port']}/api/contents/notes.txt?type=file")
    time.sleep(0.7)
    assert idle(job) is not None
    (job.work / "notes.txt").write_text("x")
    began = time.monotonic()
    call(job, "api/contents/notes.txt?type=file&content=1")
    wait_until(lambda: idle(job) is None, 6)
    assert_idle_end(job, "Nobody used JupyterLab for 8 seconds, so the session was ended, as --idle-stop asked.")
    assert time.monotonic() - began > 6


def test_what_runs_keeps_the_session_though_nobody_uses_its_gpu(begin: Callable[..., Job]) -> None:
    job = begin(4, "gpu_idle=end")
    sampler = Sampler(job.dir / "usage.csv", datetime.now(timezone.utc))
    began = time.monotonic()
    told: list[dict[str, Any]] = []

    def is_kept_for(seconds: float) -> Iterator[None]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sampler.sample(time.monotonic() - began, "0")
            time.sleep(0.5)
            assert runs(job)
            if (warning := idle(job)) and warning not in told:
                told.append(warning)
            yield

    cell, command = Pipe(job.work / "cell"), Pipe(job.work / "command")
    with kernel(job) as client:
        client.execute(f"print(open({str(cell.path)!r}).read())")  # a long and silent cell
        wait_until(cell.is_read)
        for _ in is_kept_for(7):
            # what a tab asks that is connected again, or has widgets: answered beside the cell
            for asked in ("kernel_info_request", "create_subshell_request"):
                client.control_channel.send(client.session.msg(asked))
        terminal = Terminal(job)
        terminal.type(f"cat {command.path}")
        for _ in is_kept_for(30):
            if command.is_read():
                break
        cell.let_go()
        list(is_kept_for(7))
        assert told, "the GPU does nothing"
        for warning in told:
            assert (warning["why"], warning["ends"], warning["message"]) == (
                "gpu", None, "The GPU has done nothing for 4 seconds: others may wait for it."
            )  # fmt: skip
        command.let_go()
        terminal.type("bash")  # at the prompt again, and at that of another shell within
        let_go = time.monotonic()
        while runs(job) and time.monotonic() < let_go + 30:
            sampler.sample(time.monotonic() - began, "0")
            time.sleep(0.5)
        assert_idle_end(job, "The GPU did nothing for 4 seconds, so the session was ended, as gpu_idle asked.")


@pytest.fixture(scope="module")
def tabs() -> Iterator[Browser]:
    assert CHROMIUM.exists(), "install Debian's chromium-headless-shell (tests/packages.sh does)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


def test_an_open_tab_that_nobody_touches(begin: Callable[..., Job], tabs: Browser) -> None:
    job = begin(15)  # an open tab asks for its lists every ten seconds
    page = tabs.new_page(viewport={"width": 1280, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    new_notebook(page, f"http://127.0.0.1:{job.endpoint()['port']}/lab?token={token_of(job)}")
    page.add_style_tag(content=NO_ANIMATION)
    assert run_cell(page, 0, "40 + 2") == "42"
    page.locator('[data-command="launcher:create"]').first.click()
    page.locator('.jp-LauncherCard[title="Start a new terminal session"]').first.click()
    page.locator(".jp-Terminal .xterm-screen").wait_for()
    began = time.monotonic()
    asked.clear()
    page.wait_for_timeout(9000)
    assert runs(job)
    while runs(job) and time.monotonic() < began + 30:
        page.wait_for_timeout(500)
    assert_idle_end(job, "Nobody used JupyterLab for 15 seconds, so the session was ended, as --idle-stop asked.")
    assert any("/api/contents?content=1" in request for request in asked), "the tab was alive"
    page.close()


def test_a_requeued_job_forgets_the_warning(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.tool("jupyter-lab", STAND_IN)
    job.ask("idle_stop=60", "usage=0")
    (job.dir / "idle.json").write_text('{"version":1}\n')
    job.start()
    try:
        job.endpoint()
        assert not (job.dir / "idle.json").exists()
        copies = [(name, (job.dir / name).read_bytes()) for name in ("idle_guard.py", "idle_rules.py")]
        assert copies == [(name, job_script(name).read_bytes()) for name, _ in copies]
        assert not (job.dir / "__pycache__").exists()
    finally:
        job.end()
