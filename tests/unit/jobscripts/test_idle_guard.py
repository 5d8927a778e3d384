"""The idle guard's decision: what counts as use, and when a session is warned and ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.ioloop import AsyncIOLoopKernelManager

from tests.unit.jobscripts.job import library
from tests.unit.jobscripts.written_usage import BEGAN, Sampler, guard, rules

MINUTE = 60.0


def test_half_an_hour_without_use_is_warned_of_and_ends() -> None:
    timer = rules.IdleTimer(1800, False, 0.0)
    assert timer.check(24.9 * MINUTE, busy=False, at_most=1e9) is None
    word = timer.check(25 * MINUTE, busy=False)
    assert (word.why, word.since, word.ends, word.is_over) == ("unused", 0.0, 30 * MINUTE, False)
    assert word.message == (
        "Nobody has used JupyterLab for 25 minutes: the session ends in 5 minutes unless somebody does."
    )
    word = timer.check(30 * MINUTE, busy=False, at_most=1e9)
    assert word.is_over
    assert word.sentence == ("Nobody used JupyterLab for 30 minutes, so the session was ended, as --idle-stop asked.")


def test_use_takes_the_warning_back_and_the_time_begins_anew() -> None:
    timer = rules.IdleTimer(1800, False, 0.0)
    assert timer.check(26 * MINUTE, busy=False, at_most=1e9) is not None
    timer.use(27 * MINUTE)
    assert timer.check(27 * MINUTE, busy=False) is None
    assert timer.check(51 * MINUTE, busy=False, at_most=1e9) is None
    assert timer.check(52 * MINUTE, busy=False, at_most=1e9).ends == 57 * MINUTE


def test_a_week_of_one_silent_cell_is_use() -> None:
    timer = rules.IdleTimer(60, True, 0.0)
    for minute in range(1, 7 * 24 * 60):
        assert timer.check(minute * MINUTE, busy=True, at_most=61) is None
    assert timer.check(7 * 24 * 60 * MINUTE, busy=False, at_most=61).is_over is False


def test_a_job_that_was_suspended_was_not_idle_meanwhile() -> None:
    timer = rules.IdleTimer(1800, False, 0.0)
    assert timer.check(10.0, busy=False) is None
    assert timer.check(10.0 + 3600, busy=False) is None
    assert timer.check(20.0 + 3600, busy=False) is None


@pytest.mark.parametrize(("idle_stop", "grace"), [(6, 3), (60, 60), (100, 60), (600, 300), (1200, 600), (7200, 600)])
def test_an_unused_gpu_ends_after_a_further_grace(idle_stop: int, grace: int) -> None:
    timer = rules.IdleTimer(idle_stop, True, 0.0)
    timer.use(float(idle_stop))  # somebody writes
    word = timer.check(float(idle_stop), busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert (word.why, word.ends, word.is_over) == ("gpu", idle_stop + grace, False)
    assert word.message.startswith("The GPU has done nothing for ")
    timer.use(float(idle_stop + grace))
    word = timer.check(float(idle_stop + grace), busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert word.is_over
    assert word.sentence.endswith("so the session was ended, as gpu_idle asked.")


def test_an_unused_gpu_is_only_warned_of_where_that_is_asked_for() -> None:
    timer = rules.IdleTimer(600, False, 0.0)
    for minute in range(10, 1000):
        timer.use(minute * MINUTE)
        word = timer.check(minute * MINUTE, busy=False, gpus=2, gpu_idle_since=0.0, at_most=61)
        assert (word.why, word.ends, word.is_over) == ("gpu", None, False)
    assert word.message == "The 2 GPUs have done nothing for 10 minutes: others may wait for them."


def test_an_unused_gpu_ends_nothing_while_something_runs() -> None:
    timer = rules.IdleTimer(600, True, 0.0)
    for minute in range(10, 100):
        word = timer.check(minute * MINUTE, busy=True, gpus=1, gpu_idle_since=0.0, at_most=61)
        assert (word.ends, word.is_over) == (None, False)
    # and the grace begins when that has ended
    word = timer.check(101 * MINUTE, busy=False, gpus=1, gpu_idle_since=0.0, at_most=1e9)
    assert word.ends == 99 * MINUTE + 300


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
    assert bool(rules.is_use(method, path, query, accept)) is is_use


def message(kind: str, content: dict[str, str], parent: str, asked: str = "execute_request") -> list[bytes]:
    headers = [{"msg_type": kind}, {"msg_type": asked, "msg_id": parent} if parent else {}, {}, content]
    return [b"topic", b"<IDS|MSG>", b"signature", *(json.dumps(part).encode() for part in headers)]


def test_a_long_cell_stays_busy_whatever_is_answered_beside_it() -> None:
    kernel = rules.Kernel()
    assert kernel.receive(message("status", {"execution_state": "busy"}, "cell"))
    for asked in ("comm_msg", "kernel_info_request", "execute_request"):  # in a subshell, or on the control channel
        for state in ("busy", "idle"):
            kernel.receive(message("status", {"execution_state": state}, "other", asked))
        assert kernel.running == {"cell"}
    assert kernel.receive(message("stream", {"text": "x"}, "cell"))
    assert kernel.receive(message("status", {"execution_state": "idle"}, "cell"))
    assert not kernel.running


def test_what_a_page_asks_a_kernel_by_itself_is_no_use() -> None:
    kernel = rules.Kernel()
    for asked in sorted(rules.QUIET):
        for state in ("busy", "idle"):
            assert not kernel.receive(message("status", {"execution_state": state}, "1", asked))
            assert not kernel.running


def test_a_kernel_that_died_in_a_cell_is_not_busy_when_it_starts_again() -> None:
    kernel = rules.Kernel()
    kernel.receive(message("status", {"execution_state": "busy"}, "cell"))
    assert not kernel.receive(message("status", {"execution_state": "starting"}, ""))
    assert not kernel.running


@pytest.mark.real_time
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
    assert rules.is_waiting_shell(arguments) is waits


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


def settings(tmp_path: Path, *lines: str) -> str:
    (tmp_path / "session.env").write_text("".join(line + "\n" for line in lines))
    return library('read_settings "$1"; echo "$want_idle_stop $want_gpu_idle"', str(tmp_path / "session.env"))


def test_what_session_env_may_say(tmp_path: Path) -> None:
    assert settings(tmp_path).splitlines()[-1] == "0 warn"
    assert settings(tmp_path, "idle_stop=1800", "gpu_idle=end").splitlines()[-1] == "1800 end"
    for wrong in ("30m", "-1", "08", "", "$(id)"):
        assert settings(tmp_path, f"idle_stop={wrong}").splitlines()[-1] == "0 warn"
    assert settings(tmp_path, "gpu_idle=perhaps").splitlines()[-1] == "0 warn"
