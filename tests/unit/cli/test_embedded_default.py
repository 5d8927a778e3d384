"""A machine without a scheduler: the first command of the README, in a real terminal.

JupyterLab is a real one where it is about the browser; elsewhere a stand-in does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster_tests.situation import STAND_IN
from tests.conftest import Session
from tests.doubles import wait_until
from tests.paths import ROOT
from tests.processes import kill_with_variable, with_variable

pytestmark = pytest.mark.real_time

LAUNCH = str(Path(sys.executable).with_name("launch-notebook"))
Start = Callable[..., Session]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of its own, and a PATH without a scheduler and without this environment's JupyterLab.

    Its user said at the first launch that this machine is meant. Nothing that has this home outlives the test.
    """
    home = tmp_path / "home"
    chosen = home / ".config" / "notebook-launcher" / "config.toml"
    chosen.parent.mkdir(parents=True)
    chosen.write_text('cluster = "here"\n')
    kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
    yield {**kept, "TERM": "xterm-256color", "HOME": str(home), "PATH": "/usr/bin:/bin", "USER": "somebody"}
    kill_with_variable("HOME", str(home))


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start launches in a terminal; ``environment`` clears away what they leave."""
    started: list[Session] = []

    def start(*arguments: str, **extra: str) -> Session:
        started.append(Session([LAUNCH, *arguments], env=environment | extra))
        return started[-1]

    yield start
    for session in started:
        session.child.close(force=True)


@pytest.fixture
def light(tmp_path: Path) -> tuple[str, str]:
    """The words for an environment whose JupyterLab is a stand-in, and there at once."""
    bin = tmp_path / "light" / "bin"
    bin.mkdir(parents=True)
    for name in ("python", "python3"):
        (bin / name).symlink_to(sys.executable)
    (bin / "activate").write_text(f"PATH={bin}:$PATH\n")
    (bin / "jupyter-lab").write_text(f"#!/bin/bash\n{STAND_IN}")
    (bin / "jupyter-lab").chmod(0o755)
    return "--venv", str(bin.parent)


def ours(environment: dict[str, str]) -> list[psutil.Process]:
    """Every process that has this test's home: the job, JupyterLab, its kernels, the launcher."""
    return with_variable("HOME", environment["HOME"])


def launchers(environment: dict[str, str]) -> list[psutil.Process]:
    found = []
    for process in ours(environment):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end while it is looked at
            if LAUNCH in process.cmdline():
                found.append(process)
    return found


def nothing_left(environment: dict[str, str]) -> None:
    wait_until(lambda: not ours(environment), 20, "no process is left")


def status_of(session: Session, token: str) -> int:
    request = urllib.request.Request(session.api, headers={"Authorization": f"token {token}"} if token else {})
    try:
        return int(urllib.request.urlopen(request, timeout=30).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_first_launch_from_its_question_to_its_bill(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """ENTER means this machine; JupyterLab comes up in the browser, for its user alone; ENTER ends it."""
    chosen = Path(environment["HOME"]) / ".config" / "notebook-launcher" / "config.toml"
    chosen.unlink()
    browser, seen = browser_that_notes(tmp_path)
    session = start("-n", "4", "--gres=gpu:t4:0", "--open", BROWSER=f"{browser} %s")
    session.expect(r"ENTER: always this machine")
    session.send("\n")
    session.ready()
    assert "--gres, --ntasks have no effect" in " ".join(session.printed.split())
    assert "59 minutes" in session.printed
    assert chosen.read_text() == 'cluster = "here"\n'
    assert status_of(session, session.token) == 200
    assert status_of(session, "") == 403
    assert open_to_others(Path(environment["HOME"]) / ".notebook-launcher") == []
    wait_until(seen.exists, 30, "the browser is called")
    shown, mode, page = seen.read_text().split("\n", 2)
    assert session.token not in shown, "a page without the token in its name"
    assert mode == "600"
    assert session.url in page
    session.expect("CPU")  # the first sample has come
    session.send("\n")
    assert session.end() == 0
    assert not Path(shown.removeprefix("file://")).exists()
    nothing_left(environment)
    assert_bill(session, environment)


def browser_that_notes(folder: Path) -> tuple[Path, Path]:
    """A browser, and the file with its argument, the permissions of the page, and the page."""
    browser, seen = folder / "browser", folder / "seen"
    browser.write_text(
        f'#!/bin/sh\necho "$@" >{seen}.new; stat -c %a "${{1#file://}}" >>{seen}.new; '
        f'cat "${{1#file://}}" >>{seen}.new; mv {seen}.new {seen}\n'
    )
    browser.chmod(0o755)
    return browser, seen


def open_to_others(root: Path) -> list[Path]:
    return [path for path in [root, *root.rglob("*")] if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def assert_bill(session: Session, environment: dict[str, str]) -> None:
    """What was used by the job's own samples; nothing was reserved, and nothing is advised."""
    printed = session.printed.partition("has ended.")[2]
    assert f"Session {session.session_id} on " in printed
    assert re.search(r"CPU +\d+\.\d+ cores busy: \d+ s of CPU time", printed)
    assert "Slurm" not in printed
    told = subprocess.run([LAUNCH, "bill", "--json"], env=environment, capture_output=True, text=True, check=True)
    bill = json.loads(told.stdout.splitlines()[-1])
    assert bill["cpu_used"] > 0
    assert bill["cores"] is None
    assert bill["run_time"] > 0


def test_nobody_to_ask_at_the_first_launch(environment: dict[str, str]) -> None:
    (Path(environment["HOME"]) / ".config" / "notebook-launcher" / "config.toml").unlink()
    done = subprocess.run(
        [LAUNCH, "--dry-run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert "--cluster NAME" in done.stderr
    assert "--host" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "on this machine" in done.stdout


def test_left_running_by_a_closed_terminal_found_again_and_stopped(
    start: Start, environment: dict[str, str], light: tuple[str, str]
) -> None:
    session = start(*light)
    session.ready()
    session.child.close(force=False)
    wait_until(lambda: not launchers(environment), 30, "the launcher ends")
    assert status_of(session, session.token) == 200
    again = start("connect")
    again.ready(started_here=False)
    assert again.url == session.url
    again.send("d\n")
    assert again.end() == 0
    stopped = start("stop", session.session_id[:17])
    assert stopped.end() == 0
    nothing_left(environment)
    assert start("stop").end() == 40


@pytest.mark.parametrize("after", [0.2, 0.8])
def test_ctrl_c_at_any_moment_leaves_nothing(start: Start, environment: dict[str, str], after: float) -> None:
    session = start()
    subprocess.run(["sleep", str(after)], check=True)
    session.send("\x03")
    early = session.end() not in (130, 0, -2)  # Python itself was still starting, which nobody can help
    assert ("Traceback" in session.printed) == early
    assert not early or "notebook_launcher/cli/" not in session.printed, session.printed
    nothing_left(environment)


def test_the_walltime_ends_it(start: Start, environment: dict[str, str], light: tuple[str, str]) -> None:
    session = start("-t", "0:00:15", *light)  # enough to be ready on a busy machine
    session.ready()
    assert session.end(timeout=60) == 32
    assert "reached its walltime" in session.printed
    nothing_left(environment)


def test_a_begin_time_is_waited_for(start: Start, environment: dict[str, str]) -> None:
    session = start("-b", "now+1hour")
    session.expect("begin time")
    session.send("\n")  # an impatient ENTER costs nobody their place
    session.expect("not ready yet")
    session.send("\x03")
    assert session.end() == 130
    assert "Job" in session.printed
    nothing_left(environment)


def test_shut_down_in_the_browser_is_a_good_end(start: Start, environment: dict[str, str]) -> None:
    session = start()
    session.ready()
    address = session.api.replace("status", "shutdown")
    urllib.request.urlopen(
        urllib.request.Request(address, b"", {"Authorization": f"token {session.token}"}), timeout=30
    ).close()
    assert session.end() == 0
    assert "shut down" in session.printed
    nothing_left(environment)


@contextlib.contextmanager
def killed_at_last(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill a process after the block, and after so many seconds at the latest: then its output ends as well."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()


def test_no_terminal_and_json(environment: dict[str, str], light: tuple[str, str]) -> None:
    argv = [LAUNCH, "--json", *light]
    with (
        subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process,
        killed_at_last(process, 90),
    ):
        assert process.stdout is not None
        names = []
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] not in ("attached", "bill"):  # as often as there is something new; where it was of use
                names.append(event["event"])
            if event["event"] == "ready":
                process.terminate()  # a closed standard input does not end it; SIGTERM does
        assert process.wait(30) == 0
    assert names == ["submitted", "running", "tunnel_opened", "ready", "stopping", "ended"]
    nothing_left(environment)


def test_no_jupyterlab_is_told_in_a_sentence(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    venv = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    session = start("--venv", str(venv))
    assert session.end() == 95
    assert "There is no JupyterLab in the virtual environment" in " ".join(session.printed.split())
    assert "Traceback" not in session.printed
    nothing_left(environment)


def test_a_wheel_holds_all_that_a_launch_needs(tmp_path: Path) -> None:
    top = ROOT
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=top, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(installed)], check=True)
    program = (
        "import notebook_launcher.core.package_data as data; "
        "print(data.folder('jobscripts'), sum(map(len, data.job_files().values())))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, size = done.stdout.split()
    assert Path(folder).is_relative_to(installed)
    assert int(size) > 10_000
