"""Fixtures of all tests: the practice cluster, and ``launch-notebook`` in a real terminal of one of its boxes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from pexpect.spawnbase import SpawnBase
from playwright.sync_api import Browser

from tests import branch_coverage  # before the package, whose modules it instruments

# isort: split
import notebook_launcher.notebook  # noqa: F401 - before nbformat is imported, which then takes less time
from tests import fewer_messages
from tests.doubles import wait_until

# With pytest-xdist every worker has its own practice cluster, because tests break it.
if _worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["PRACTICE_CLUSTER_ROOT"] = f"/var/tmp/notebook-launcher-practice-{_worker}"

# Each shell would run the login files of the person who runs the tests (pyenv, conda, a greeting): up to 0.2 s.
# So the tests of all workers use a temporary home. Programs that look it up in /etc/passwd still use the real one.
if "NBL_TEST_HOME" not in os.environ:
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ["HOME"] = os.environ["NBL_TEST_HOME"] = tempfile.mkdtemp(prefix="test-home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)
    # Nor do they read or write that person's configuration, wherever it is.
    os.environ.pop("XDG_CONFIG_HOME", None)
    os.environ.pop("NOTEBOOK_LAUNCHER_CONFIG", None)

# A version manager's python3 is a script that searches for the real one, which would take 0.2 s in each job.
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).name != "shims"
)

# With this variable, a launch prints more, and the tests may be run over SSH.
os.environ.pop("SSH_CONNECTION", None)

from tests.cluster_tests.forking_cluster import ForkingCluster
from tests.cluster_tests.jupyterlab_page import chromium
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.errors import ReleaseUnusableError
from tests.practice_cluster.layout import BOXES, COMPUTE_NODES, USERS
from tests.practice_cluster.slurm import CONFIGURATION

gc.set_threshold(100_000, 50, 100)

# The parent process (nohup, a background job of a script, CI) may ignore signals, and child processes inherit that;
# these tests are about programs that get signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(_number, signal.SIG_DFL)

PROFILE = """\
host = "login"
scheduler = "slurm"
environment = "tf-gpu"
image_dir = "/sw/images"

[environments.tf-gpu]
container = "jupyterlab.sif"
activate = "export COURSE_ENVIRONMENT=tf-gpu"

[environments.tf-mkl]
container = "jupyterlab.sif"
activate = "export COURSE_ENVIRONMENT=tf-mkl"

[environments.tf-pip]
container = "jupyterlab.sif"
activate = "export COURSE_ENVIRONMENT=tf-pip"

[environments.no-jupyter]
container = "no-jupyter.sif"

[environments.no-image]
container = "/sw/images/not-there.sif"

[environments.module]
modules = ["jupyterlab/4"]

[environments.broken]
modules = ["broken/1"]

[environments.plain]
"""


def pytest_configure(config: pytest.Config) -> None:
    if branch_coverage.PLUGIN:
        config.pluginmanager.register(branch_coverage.PLUGIN)
    fewer_messages.send_fewer(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11, 22.05 or sid")
    parser.addoption("--keep-cluster", action="store_true", help="leave the practice cluster up afterwards")


#: long files that would be last by name: started first, so that no worker is left alone with one at the end. Not more
#: of them, because heavy tests at the same time would starve each other on two cores
FIRST = tuple(
    f"tests/cluster_tests/test_{name}"
    for name in ("training_jobs", "situations", "launch", "renew", "run", "lessons", "sites", "shell", "environments")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if uses_the_cluster(item):
            if "cluster_tests" not in item.path.parts:
                raise pytest.UsageError(f"{item.nodeid}: a test on the practice cluster belongs to tests/cluster_tests")
            item.add_marker(pytest.mark.cluster)
        waits = not {"cluster", "real_time"}.isdisjoint(marker.name for marker in item.iter_markers())
        if waits and not is_found_by_make(item.path):
            raise pytest.UsageError(f"{item.nodeid}: `make test` looks for real_time in the file, and would not run it")
        if item.get_closest_marker("flaky"):
            raise pytest.UsageError(f"{item.nodeid}: no test runs again, but one in a browser: browser_time(cause=…)")
        if marker := item.get_closest_marker("browser_time"):
            may_run_again(item, marker.kwargs.get("cause", "").strip())
    items.sort(key=lambda item: FIRST.index(file_of(item)) if file_of(item) in FIRST else len(FIRST))


def may_run_again(item: pytest.Item, cause: str) -> None:
    """Let a test that depends on real time in a browser run again if it fails, for a cause unrelated to it."""
    if not cause or "playwright" not in item.path.read_text():
        raise pytest.UsageError(f'{item.nodeid}: browser_time is for a browser, and needs cause="why it may fail"')
    item.user_properties.append((RERUN_CAUSE, cause))
    item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not collect garbage during the collection of tests, and exclude the thousands of test objects afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def is_found_by_make(file: Path) -> bool:
    """Whether the Makefile passes this file to runs of marked tests, which need not import the others."""
    return "cluster_tests" in file.parts or "real_time" in file.read_text()


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition(".py::")[0]


def uses_the_cluster(item: pytest.Item) -> bool:
    """Whether a test uses the practice cluster; some have another fixture ``cluster``."""
    fixtures = getattr(item, "_fixtureinfo", None)
    found = fixtures.name2fixturedefs.get("cluster", ()) if fixtures else ()
    return any(fixture.func.__module__ == __name__ for fixture in found)


#: the name of the property of a test's report that says why the test may run again
RERUN_CAUSE = "rerun cause"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_line(f"ran again: {report.nodeid}: {dict(report.user_properties).get(RERUN_CAUSE)}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[PracticeCluster]:
    """The running practice cluster; if it cannot run here, tests are skipped with a one-line reason, and fail in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = "the practice cluster needs root on Linux"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    cluster = ForkingCluster(request.config.getoption("--slurm"))
    was_up = cluster.is_up()
    keep = was_up or request.config.getoption("--keep-cluster")
    try:
        cluster.up(until_end_of=None if keep else os.getpid())
    except ReleaseUnusableError as error:
        pytest.skip(str(error))  # in CI as well, because we cannot fix Debian sid
    for box in ("laptop", "login"):
        for user in USERS:
            write_profile(cluster, box, user)
    yield cluster
    if not keep:
        cluster.down()


@pytest.fixture
def browser(cluster: PracticeCluster, tmp_path: Path) -> Iterator[Browser]:
    """A browser on the laptop."""
    with chromium(cluster, tmp_path) as browser:
        yield browser


@pytest.fixture(scope="session")
def _state_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder name for each test's state. Creating a ``tmp_path`` would take longer than most of the tests."""
    root = tmp_path_factory.mktemp("launcher-state")
    return (root / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _nothing_is_remembered(_state_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the launcher's local state out of the folders of the person who runs the tests."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(next(_state_folders)))


def write_profile(cluster: PracticeCluster, box: str, user: str, text: str = PROFILE) -> None:
    """Give a user the course's profile, and make it the default cluster."""
    script = (
        "d=~/.config/notebook-launcher; mkdir -p $d/clusters; cat >$d/clusters/practice.toml; "
        "echo 'cluster = \"practice\"' >$d/config.toml"
    )
    cluster.run(box, user, ["sh", "-c", script], login=False, input=text, check=True)


def ignored(mask: str) -> set[signal.Signals]:
    """The signals ignored by a ``SigIgn`` mask in /proc, of those that end a program."""
    endings = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)
    return {number for number in endings if int(mask, 16) >> (number - 1) & 1}


def environment() -> dict[str, str]:
    """Return the environment, even while pytest or a fixture changes a variable in another thread."""
    values = {name: os.environ.get(name) for name in list(os.environ) if name != "PYTEST_CURRENT_TEST"}
    return {name: value for name, value in values.items() if value is not None}


class Session:
    """``launch-notebook`` running in a terminal: its output, and keys to press."""

    def __init__(self, argv: list[str] | SpawnBase, *, columns: int = 80, env: dict[str, str] | None = None) -> None:
        if isinstance(argv, SpawnBase):  # which is already running
            self.child = argv
        else:
            size = (24, columns)
            self.child = pexpect.spawn(
                argv[0], argv[1:], encoding="utf-8", dimensions=size, timeout=90, env=env or environment()
            )
        self.url = ""
        self._seen = ""
        self._looked = 0
        self._reader: threading.Thread | None = None

    @property
    def printed(self) -> str:
        """The output so far, without colours and cursor movements."""
        return plain(self._seen + (self.child.buffer or ""))

    def _wait_for(self, pattern: object, timeout: float, what: str) -> None:
        try:
            self.child.expect(pattern, timeout=timeout)
        except (pexpect.EOF, pexpect.TIMEOUT):
            self._seen += self.child.before or ""
            pytest.fail(f"{what}; it printed:\n{self.printed}")
        self._seen += self.child.before + (self.child.after if isinstance(self.child.after, str) else "")

    def expect(self, pattern: str, timeout: float = 60) -> re.Match[str]:
        """Wait for output that matches."""
        self._wait_for(pattern, timeout, f"“{pattern}” did not come")
        match = self.child.match
        assert isinstance(match, re.Match)
        return match

    def read_along(self) -> None:
        """Read the output continuously from now on, because an unread waiting line would fill the terminal's buffer.

        Use ``saw`` instead of ``expect`` from then on.
        """
        self._reader = threading.Thread(target=self._read_along, daemon=True)
        self._reader.start()

    def _read_along(self) -> None:
        with contextlib.suppress(pexpect.EOF, OSError, ValueError):
            while True:
                with contextlib.suppress(pexpect.TIMEOUT):
                    self._seen += self.child.read_nonblocking(65536, timeout=0.5)

    def saw(self, pattern: str, timeout: float = 60) -> None:
        """Wait until the output since the last call matches."""
        compiled = re.compile(pattern)
        try:
            wait_until(lambda: compiled.search(self.printed, self._looked), timeout, f"“{pattern}” is printed")
        except pytest.fail.Exception as failed:
            pytest.fail(f"{failed}; what was printed instead:\n{self.printed[self._looked :][-4000:]}")
        found = compiled.search(self.printed, self._looked)
        self._looked = found.end() if found else self._looked

    def ready(self, *, started_here: bool = True, within: float = 60) -> str:
        """Wait for the address, and for what the keys do (after ``connect``, Ctrl-C detaches); return the address."""
        self.url = self.expect(r"http://127\.0\.0\.1:\d+/lab(/tree/\S+)?\?token=[\w-]+", within).group(0)
        self.expect("ENTER or Ctrl-C ends the session" if started_here else "; Ctrl-C detaches: it runs on")
        return self.url

    @property
    def api(self) -> str:
        """The URL of JupyterLab's status."""
        return re.sub(r"lab(/tree/[^?]+)?\?token=.*", "api/status", self.url)

    @property
    def session_id(self) -> str:
        # a launch may have mentioned another session before
        named = re.findall(r"\(session\s+(\d{8}-\d{6}-[a-z2-7]{4})\)", self.printed)
        return str(named[-1]) if named else self._find(r"\d{8}-\d{6}-[a-z2-7]{4}")

    @property
    def job_id(self) -> str:
        return self._find(r"(?<=Job )\S+")

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.printed)
        assert found, self.printed
        return found.group(0)

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def send(self, keys: str) -> None:
        self.child.send(keys)

    def end(self, timeout: float = 60) -> int:
        """Wait for the end and return the exit code (negative: the signal that ended it)."""
        if self._reader is not None:
            self._reader.join(timeout)
        else:
            self._wait_for(pexpect.EOF, timeout, "launch-notebook did not end")
        self.child.close()
        return self.child.exitstatus if self.child.exitstatus is not None else -int(self.child.signalstatus or 0)


def launch(
    cluster: PracticeCluster,
    box: str,
    *arguments: str,
    user: str = "alice",
    columns: int = 80,
    logged_in_from: str | None = None,
) -> Session:
    """Start ``launch-notebook`` as a user in a terminal of a box, optionally over ssh from another box."""
    command = ["launch-notebook", *words_of_launch(arguments)]
    if logged_in_from:
        command = ["ssh", "-tt", box, shlex.join(command)]
    argv = cluster.argv(logged_in_from or box, user, command, env={"TERM": "xterm-256color"})
    return Session(argv, columns=columns)


def words_of_launch(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments, with ``--new`` for a launch, which would otherwise ask about sessions of other tests."""
    return arguments if arguments and not arguments[0].startswith("-") else ("--new", *arguments)


def plain(text: str) -> str:
    """Return text without a terminal's control sequences; a line that is redrawn becomes another line."""
    text = text.replace("\x1b[1G", "\n")
    return re.sub(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78])|\r", "", text)


@pytest.fixture
def start(cluster: PracticeCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Session]]:
    """Start launches; whatever a test leaves behind is cleaned up for the next one.

    A module's ``LAUNCH``, or the argument ``by``, may choose how they are started.
    """
    usual = getattr(request.module, "LAUNCH", launch)
    started: list[Session] = []

    def start(*arguments: str, box: str = "laptop", by: Callable[..., Session] = usual, **options: Any) -> Session:
        started.append(by(cluster, box, *arguments, **options))
        return started[-1]

    yield start
    for session in started:
        session.child.close(force=True)
    clear(cluster)


def clear(cluster: PracticeCluster) -> None:
    """Cancel every job, return every node to service, and wait until the queue is empty."""
    if not cluster.is_idle():
        if cluster.has_grid_engine:
            cluster.root("login", ["sh", "-c", "qdel -f -u '*'"])
        else:
            cancel_all_of_slurm(cluster)
        wait_until(lambda: not cluster.squeue(), 60, "the queue is empty")
    cluster.kill_people(*COMPUTE_NODES)  # leftovers of a test must not make the next one fail


def cancel_all_of_slurm(cluster: PracticeCluster) -> None:
    cancel = "for state in PENDING RUNNING SUSPENDED; do scancel --state=$state; done"
    for configuration in CONFIGURATION.values():  # not --clusters, which is slow with Slurm 22.05
        cluster.root("login", ["env", f"SLURM_CONF={configuration}", "sh", "-c", cancel])
    cluster.resume()


def people_processes(cluster: PracticeCluster, boxes: tuple[str, ...]) -> list[str]:
    """The processes of ordinary users there (including sshd's helper processes, which belong to a login)."""
    return [
        f"{box}: {user} {args}"
        for box, user, args in cluster.processes_of_people(*boxes)
        if not args.startswith(("(sd-pam)", "systemd"))
    ]


def assert_nothing_left(cluster: PracticeCluster) -> None:
    """Check that no job is in any queue, and no process of a user on any box."""
    everywhere = tuple(box for box in BOXES if box != "ctl")
    left: list[str] = []

    def is_clear() -> bool:
        left[:] = people_processes(cluster, everywhere) or [f"job {job}" for job in cluster.squeue()]
        return not left

    with contextlib.suppress(pytest.fail.Exception):
        wait_until(is_clear, 30, "nothing is left")
    assert left == []


def fetch(cluster: PracticeCluster, box: str, url: str, token: str = "", user: str = "alice") -> tuple[int, str]:
    """Request a page from a box, and return its status and text (status 0: no connection)."""
    header = f"Authorization: token {token}\n" if token else ""
    asks = ["curl", "-sLm", "10", "-H", "@-", "-w", "\n%{http_code}", url]
    text, _, status = cluster.run(box, user, asks, login=False, input=header).stdout.rpartition("\n")
    return int(status), text
