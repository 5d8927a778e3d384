"""Ending what nobody uses: a real JupyterLab, started as a job starts it, with a real kernel, terminal and browser.

What is not real here: the rows of ``usage.csv``, since this machine has no GPU. They are written as the job's sampler
writes them. The times are seconds where people would say half an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.ioloop import AsyncIOLoopKernelManager
from playwright.sync_api import Browser, sync_playwright
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClientConnection, websocket_connect

from notebook_launcher.core.usage_samples import COLUMNS
from tests.cluster_tests.jupyterlab_page import CHROMIUM, FLAGS, new_notebook, run_cell
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster
from tests.unit.jobscripts.test_sshd import (
    JOBSCRIPTS,
    STAND_IN,
    VENV_BIN,
    Job,
    call,
    library,
    permissions,
    read_json_if_there,
    token_of,
    wait_until,
)

_spec = importlib.util.spec_from_file_location("idle_guard", JOBSCRIPTS / "idle_guard.py")
assert _spec is not None and _spec.loader is not None
guard: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(guard)

MINUTE = 60.0


# --------------------------------------------------------------------------------------------- the decision, by itself


def test_half_an_hour_without_use_is_warned_of_and_ends() -> None:
    judge = guard.Judge(1800, False, 0.0)
    assert judge.look(24.9 * MINUTE, busy=False, at_most=1e9) is None
    word = judge.look(25 * MINUTE, busy=False)
    assert (word.why, word.since, word.ends, word.is_over) == ("unused", 0.0, 30 * MINUTE, False)
    assert word.message == (
        "Nobody has used JupyterLab for 25 minutes: the session ends in 5 minutes unless somebody does."
    )
    word = judge.look(30 * MINUTE, busy=False, at_most=1e9)
    assert word.is_over
    assert word.sentence == ("Nobody used JupyterLab for 30 minutes, so the session was ended, as --idle-stop asked.")


def test_use_takes_the_warning_back_and_the_time_begins_anew() -> None:
    judge = guard.Judge(1800, False, 0.0)
    assert judge.look(26 * MINUTE, busy=False, at_most=1e9) is not None
    judge.use(27 * MINUTE)
    assert judge.look(27 * MINUTE, busy=False) is None
    assert judge.look(51 * MINUTE, busy=False, at_most=1e9) is None
    assert judge.look(52 * MINUTE, busy=False, at_most=1e9).ends == 57 * MINUTE


def test_a_week_of_one_silent_cell_is_use() -> None:
    judge = guard.Judge(60, True, 0.0)
    for minute in range(1, 7 * 24 * 60):
        assert judge.look(minute * MINUTE, busy=True, at_most=61) is None
    assert judge.look(7 * 24 * 60 * MINUTE, busy=False, at_most=61).is_over is False


def test_a_job_that_was_suspended_was_not_idle_meanwhile() -> None:
    judge = guard.Judge(1800, False, 0.0)
    assert judge.look(10.0, busy=False) is None
    assert judge.look(10.0 + 3600, busy=False) is None
    assert judge.look(20.0 + 3600, busy=False) is None


@pytest.mark.parametrize(("idle_stop", "grace"), [(6, 3), (60, 60), (100, 60), (600, 300), (1200, 600), (7200, 600)])
def test_an_unused_gpu_ends_after_a_further_grace(idle_stop: int, grace: int) -> None:
    judge = guard.Judge(idle_stop, True, 0.0)
    judge.use(float(idle_stop))  # somebody writes
    word = judge.look(float(idle_stop), busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert (word.why, word.ends, word.is_over) == ("gpu", idle_stop + grace, False)
    assert word.message.startswith("The GPU has done nothing for ")
    judge.use(float(idle_stop + grace))
    word = judge.look(float(idle_stop + grace), busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert word.is_over
    assert word.sentence.endswith("so the session was ended, as gpu_idle asked.")


def test_an_unused_gpu_is_only_warned_of_where_that_is_asked_for() -> None:
    judge = guard.Judge(600, False, 0.0)
    for minute in range(10, 1000):
        judge.use(minute * MINUTE)
        word = judge.look(minute * MINUTE, busy=False, gpus=2, gpu_idle_since=0.0, at_most=61)
        assert (word.why, word.ends, word.is_over) == ("gpu", None, False)
    assert word.message == "The 2 GPUs have done nothing for 10 minutes: others may wait for them."


def test_an_unused_gpu_ends_nothing_while_something_runs() -> None:
    judge = guard.Judge(600, True, 0.0)
    for minute in range(10, 100):
        word = judge.look(minute * MINUTE, busy=True, gpus=1, gpu_idle_since=0.0, at_most=61)
        assert (word.ends, word.is_over) == (None, False)
    # and the grace begins when that has ended
    word = judge.look(101 * MINUTE, busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert word.ends == 99 * MINUTE + 300


# ---------------------------------------------------------------------------------------------- what counts as use

PAGE = "text/html,application/xhtml+xml"
# as Chromium and JupyterLab 4.6.6 and 3.6.8 send them
REQUESTS = [
    # a tab that is open, every ten seconds
    ("GET", "/api/contents", "content=1&hash=0&1795297253596", "*/*", False),
    ("GET", "/api/contents/folder", "content=1&1795297253596", "*/*", False),
    ("PUT", "/lab/api/workspaces/default", "1795297254112", "*/*", False),
    ("GET", "/api/kernels", "1795297254236", "*/*", False),
    ("GET", "/api/sessions", "1795297254325", "*/*", False),
    ("GET", "/api/terminals", "1795297261296", "*/*", False),
    ("GET", "/lab/api/workspaces", "1795297261299", "*/*", False),
    ("GET", "/api/kernelspecs", "1795297302292", "*/*", False),
    ("GET", "/api/me", "1795297302290", "*/*", False),
    ("POST", "/git/folder/status", "", "*/*", False),
    # the launcher, a monitor
    ("GET", "/api/status", "", "", False),
    ("GET", "/metrics", "", "", False),
    # a person
    ("GET", "/lab", "token=x", PAGE, True),
    ("GET", "/lab/tree/a.ipynb", "", PAGE, True),
    ("GET", "/api/contents/a.ipynb", "type=notebook&content=1&hash=1&1795297243513", "*/*", True),
    ("GET", "/api/contents/a.txt", "type=file&content=1&format=text", "*/*", True),
    ("GET", "/api/contents/a.ipynb", "type=notebook&content=0", "*/*", False),
    ("GET", "/files/results.csv", "", PAGE, True),
    ("PUT", "/api/contents/a.ipynb", "1795297243513", "*/*", True),
    ("POST", "/api/sessions", "1795297244014", "*/*", True),
    ("DELETE", "/api/kernels/886c9932", "", "*/*", True),
]


@pytest.mark.parametrize(("method", "path", "query", "accept", "is_use"), REQUESTS)
def test_requests(method: str, path: str, query: str, accept: str, is_use: bool) -> None:
    assert bool(guard.is_use(method, path, query, accept)) is is_use


def message(kind: str, content: dict[str, str], parent: str, asked: str = "execute_request") -> list[bytes]:
    headers = [{"msg_type": kind}, {"msg_type": asked, "msg_id": parent} if parent else {}, {}, content]
    return [b"topic", b"<IDS|MSG>", b"signature", *(json.dumps(part).encode() for part in headers)]


def test_a_long_cell_stays_busy_whatever_is_answered_beside_it() -> None:
    kernel = guard.Kernel()
    assert kernel.hear(message("status", {"execution_state": "busy"}, "cell"))
    for asked in ("comm_msg", "kernel_info_request", "execute_request"):  # in a subshell, or on the control channel
        for state in ("busy", "idle"):
            kernel.hear(message("status", {"execution_state": state}, "other", asked))
        assert kernel.running == {"cell"}
    assert kernel.hear(message("stream", {"text": "x"}, "cell"))
    assert kernel.hear(message("status", {"execution_state": "idle"}, "cell"))
    assert not kernel.running


def test_what_a_page_asks_a_kernel_by_itself_is_no_use() -> None:
    kernel = guard.Kernel()
    for asked in sorted(guard.QUIET):
        for state in ("busy", "idle"):
            assert not kernel.hear(message("status", {"execution_state": state}, "1", asked))
            assert not kernel.running


def test_a_kernel_that_died_in_a_cell_is_not_busy_when_it_starts_again() -> None:
    kernel = guard.Kernel()
    kernel.hear(message("status", {"execution_state": "busy"}, "cell"))
    assert not kernel.hear(message("status", {"execution_state": "starting"}, ""))
    assert not kernel.running


def test_a_kernel_whose_begin_was_missed_is_asked_before_the_end(tmp_path: Path, monkeypatch: Any) -> None:
    """A real kernel in a long cell, of which nothing was heard; it is at rest when it answers in its turn."""
    monkeypatch.setattr(guard, "ANSWERS_WITHIN", 1.0)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    watcher = guard.Guard(SimpleNamespace(), tmp_path, 60, False, 5)

    async def story() -> list[bool]:
        kernel = AsyncIOLoopKernelManager()
        await kernel.start_kernel()
        models = [{"id": "k", "execution_state": "idle"}, {"id": "gone", "execution_state": "dead"}]
        watcher.app.kernel_manager = SimpleNamespace(list_kernels=lambda: models, get_kernel=lambda _id: kernel)
        client = kernel.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=60)
            found = [await watcher._is_every_kernel_at_rest()]
            await client.execute_interactive("import time", timeout=30)
            client.execute("time.sleep(2)")
            await asyncio.sleep(0.2)
            found.append(await watcher._is_every_kernel_at_rest())
            await asyncio.sleep(1.5)
            return [*found, await watcher._is_every_kernel_at_rest()]
        finally:
            client.stop_channels()
            await kernel.shutdown_kernel(now=True)

    assert asyncio.run(story()) == [True, False, True]


@pytest.mark.parametrize("behind_a_gateway", [False, True])
def test_a_kernel_of_which_nothing_is_known_is_busy_for_a_quarter_of_an_hour(
    tmp_path: Path, behind_a_gateway: bool
) -> None:
    """A stand-in for the server: a real kernel would have to start for that long."""
    states: list[str | None] = ["idle", "starting", None]

    def models() -> list[dict[str, str | None]]:
        return [{"id": str(number), "execution_state": state} for number, state in enumerate(states)]

    async def asked_for() -> list[dict[str, str | None]]:
        return models()

    manager = SimpleNamespace(list_kernels=asked_for if behind_a_gateway else models)
    watcher = guard.Guard(SimpleNamespace(kernel_manager=manager), tmp_path, 60, False, 5)

    def is_busy(now: float) -> bool:
        return bool(asyncio.run(watcher._is_a_kernel_busy(now)))

    assert [is_busy(now) for now in (0.0, 899.0, 901.0)] == [True, True, False]
    states[1] = "busy"
    assert is_busy(902.0)
    states[1:] = ["idle", "dead"]
    assert not is_busy(903.0)
    states[1] = "restarting"
    assert is_busy(904.0), "for another quarter of an hour"


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        (["/bin/bash", "-l"], True),
        (["-zsh"], True),
        (["bash", "--rcfile", "/opt/rc", "-i"], True),
        (["fish"], True),
        (["bash", "train.sh"], False),
        (["bash", "-c", "sleep 9"], False),
        (["sh", "-lc", "sleep 9"], False),
        (["sleep", "1000"], False),
        (["python3"], False),
        ([], False),
    ],
)
def test_shells_at_their_prompt(arguments: list[str], waits: bool) -> None:
    assert guard.is_waiting_shell(arguments) is waits


# ------------------------------------------------------------------------------------------ usage.csv (a stand-in)

BEGAN = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)


class Sampler:
    """Writes rows as the job's sampler does."""

    def __init__(self, path: Path, began: datetime = BEGAN) -> None:
        self.path, self.began = path, began
        self.path.write_text(",".join(COLUMNS) + "\n")

    def sample(self, second: float, *percents: str, cores: str = "0.01") -> None:
        moment = (self.began + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self.path.open("a") as file:
            for index, percent in enumerate(percents):
                file.write(f'{moment},{second:.0f},{cores},900,{index},"Tesla T4, 16",{percent},5000,15360,27.1\n')
            if not percents:
                file.write(f"{moment},{second:.0f},{cores},900,,,,,,\n")

    def usage(self) -> Any:
        usage = guard.Usage(self.path, 15)
        usage.read()
        return usage


@pytest.fixture
def sampler(tmp_path: Path) -> Sampler:
    return Sampler(tmp_path / "usage.csv")


def idle_since(usage: Any, second: float) -> float | None:
    """Since which second the GPUs are known to do nothing, at a second."""
    usage.read()
    since = usage.gpus_idle_since(BEGAN.timestamp() + second)
    return None if since is None else since - BEGAN.timestamp()


def test_gpus_that_do_nothing(sampler: Sampler) -> None:
    for second in range(0, 100, 5):
        sampler.sample(second, "0", "90" if second == 20 else "0")
    usage = sampler.usage()
    assert idle_since(usage, 96) == 25
    assert usage.gpus == {"0", "1"}
    assert usage.computed_at == BEGAN.timestamp() + 20
    sampler.sample(100, "1", "0")
    sampler.sample(105, "0", "0")
    sampler.sample(110, "0", "0")
    assert idle_since(usage, 110) == 105


def test_missing_data_is_not_idleness(sampler: Sampler) -> None:
    assert idle_since(sampler.usage(), 0) is None
    for second in (0, 5, 10, 60, 65, 70):  # nothing is known of 10 to 60
        sampler.sample(second, "0", "0")
    usage = sampler.usage()
    assert idle_since(usage, 71) == 60
    assert idle_since(usage, 100) is None, "nothing is known of now"
    sampler.sample(75, "0", "")  # one that does not tell
    sampler.sample(80, "0", "0")
    sampler.sample(85, "0", "0")
    assert idle_since(usage, 86) == 80
    sampler.sample(90, "0")  # one that is not seen any more
    sampler.sample(95, "0")
    assert idle_since(usage, 96) is None


def test_a_job_without_a_gpu(sampler: Sampler) -> None:
    for second in range(0, 100, 5):
        sampler.sample(second)
    assert idle_since(sampler.usage(), 96) is None


def test_a_file_that_was_thinned_out_and_half_a_line(sampler: Sampler) -> None:
    for second in range(0, 100, 5):
        sampler.sample(second, "0")
    usage = sampler.usage()
    lines = sampler.path.read_text().splitlines(keepends=True)
    sampler.path.write_text("".join([lines[0], *lines[1:10:2], *lines[10:]]))
    sampler.sample(100, "0")
    sampler.sample(105, "0")
    assert idle_since(usage, 106) == 0
    with sampler.path.open("a") as file:
        file.write("2026-11-21T12:01:50Z,110,0.01,9")
    assert idle_since(usage, 111) == 0


# ------------------------------------------------------------------------------------------------------ session.env


def settings(tmp_path: Path, *lines: str) -> str:
    (tmp_path / "session.env").write_text("".join(line + "\n" for line in lines))
    return library('read_settings "$1"; echo "$want_idle_stop $want_gpu_idle"', str(tmp_path / "session.env"))


def test_what_session_env_may_say(tmp_path: Path) -> None:
    assert settings(tmp_path).splitlines()[-1] == "0 warn"
    assert settings(tmp_path, "idle_stop=1800", "gpu_idle=end").splitlines()[-1] == "1800 end"
    for wrong in ("30m", "-1", "08", "", "$(id)"):
        assert settings(tmp_path, f"idle_stop={wrong}").splitlines()[-1] == "0 warn"
    assert settings(tmp_path, "gpu_idle=perhaps").splitlines()[-1] == "0 warn"


# ------------------------------------------------------------------------------------------------ a real JupyterLab


def new_job(root: Path, idle_stop: int, *lines: str) -> Job:
    job = Job(root)
    job.env |= {"SHELL": "/bin/bash"}
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


def assert_idle_end(job: Job, sentence: str) -> None:
    report = job.exit()
    assert (report["cause"], report["exit_code"], report["message"]) == ("idle", 0, sentence)
    assert not (job.dir / "idle.json").exists()
    assert list(job.dir.glob("*.new.*")) == []
    assert job.processes() == [], "no kernel and no terminal is left"


def test_warned_used_again_and_ended(begin: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "0/sessions/20261121-014455-k3f9/usage.csv").mkdir(parents=True)
    job = begin(4)
    # a guard that cannot see, because its file is a directory, ends nothing
    time.sleep(5)
    assert runs(job)
    assert idle(job) is None
    assert job.log.read_text().count("whether somebody uses the session cannot be told") == 1
    (job.dir / "usage.csv").rmdir()
    warning = wait_until(lambda: idle(job), 10)
    assert list(warning) == ["version", "why", "since", "ends", "message"]
    assert (warning["why"], warning["message"]) == (
        "unused",
        "Nobody has used JupyterLab for 2 seconds: the session ends in 2 seconds unless somebody does.",
    )
    since, ends = (datetime.strptime(warning[name], "%Y-%m-%dT%H:%M:%SZ") for name in ("since", "ends"))
    assert timedelta(seconds=3) <= ends - since <= timedelta(seconds=6)
    assert permissions(job.dir / "idle.json") == 0o600
    # what a tab asks for is no use, nor is what has no token; what a person opens is
    call(job, "api/contents?content=1")
    with pytest.raises(OSError, match="403"):
        urllib.request.urlopen(f"http://127.0.0.1:{job.endpoint()['port']}/api/contents/notes.txt?type=file")
    time.sleep(0.7)
    assert idle(job) is not None
    (job.work / "notes.txt").write_text("x")
    call(job, "api/contents/notes.txt?type=file&content=1")
    wait_until(lambda: idle(job) is None or None, 3)
    began = time.monotonic()
    assert_idle_end(job, "Nobody used JupyterLab for 4 seconds, so the session was ended, as --idle-stop asked.")
    assert time.monotonic() - began > 2.5


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

    with kernel(job) as client:
        client.execute("import time; time.sleep(8)")  # a long and silent cell
        for _ in is_kept_for(7):
            # what a tab asks that is connected again, or has widgets: answered beside the cell
            for asked in ("kernel_info_request", "create_subshell_request"):
                client.control_channel.send(client.session.msg(asked))
        terminal = Terminal(job)
        terminal.type("sleep 7.5")
        list(is_kept_for(7))
        terminal.type("bash")  # at the prompt again, and at that of another shell within
        assert told, "the GPU does nothing"
        for warning in told:
            assert (warning["why"], warning["ends"], warning["message"]) == (
                "gpu", None, "The GPU has done nothing for 4 seconds: others may wait for it."
            )  # fmt: skip
        while runs(job) and time.monotonic() < began + 40:
            sampler.sample(time.monotonic() - began, "0")
            time.sleep(0.5)
        assert_idle_end(job, "The GPU did nothing for 4 seconds, so the session was ended, as gpu_idle asked.")


@pytest.fixture(scope="module")
def tabs() -> Iterator[Browser]:
    assert CHROMIUM.exists(), "install Debian's chromium (tests/packages.sh does)"
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


def test_without_the_guards_file_the_session_goes_on(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("jupyterlab.sh", "lib.sh", "containers.sh", "jupyter_server_config.py"):
        (scripts / name).write_bytes((JOBSCRIPTS / name).read_bytes())
    job = Job(tmp_path / "job", script=scripts / "jupyterlab.sh")
    job.ask(f"path={VENV_BIN}", "idle_stop=1", "usage=0")
    job.start()
    try:
        job.endpoint()
        time.sleep(2)
        assert runs(job)
        assert job.log.read_text().count("this session does not end when nobody uses it") == 1
    finally:
        job.end()


def test_a_requeued_job_forgets_the_warning(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.tool("jupyter-lab", STAND_IN)
    job.ask("idle_stop=60", "usage=0")
    (job.dir / "idle.json").write_text('{"version":1}\n')
    job.start()
    try:
        job.endpoint()
        assert not (job.dir / "idle.json").exists()
        copies = [(name, (job.dir / name).read_bytes()) for name in ("idle_guard.py",)]
        assert copies == [(name, (JOBSCRIPTS / name).read_bytes()) for name, _ in copies]
        assert not (job.dir / "__pycache__").exists()
    finally:
        job.end()


# ----------------------------------------------------------------------------------------- through the real launcher


def test_a_held_session_ends_well_when_nobody_uses_it(cluster: PracticeCluster, start: Callable[..., Session]) -> None:
    """A minute is the least that can be asked for; before the job starts it is made to be less."""
    session = start("--idle-stop", "60s", "--hold")
    session.expect(r"scontrol release \d+")
    folder = f"~/.notebook-launcher/sessions/{session.session_id}"
    asked = cluster.run("login", "alice", ["sh", "-c", f"cat {folder}/session.env"]).stdout
    assert "\nidle_stop=60\n" in asked
    sooner = f"sed -i s/^idle_stop=60$/idle_stop=12/ {folder}/session.env; scontrol release {session.job_id}"
    cluster.run("login", "alice", ["sh", "-c", sooner], check=True)
    session.ready()
    assert session.end(60) == 0
    printed = " ".join(session.printed.split())
    assert "Nobody has used JupyterLab for 6 seconds: the session ends in 6 seconds unless somebody does." in printed
    assert "Nobody used JupyterLab for 12 seconds, so the session was ended, as --idle-stop asked." in printed
    assert_nothing_left(cluster)
    report = cluster.run("login", "alice", ["sh", "-c", f"cat {folder}/exit.json"])
    assert json.loads(report.stdout)["cause"] == "idle"
