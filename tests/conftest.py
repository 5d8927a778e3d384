"""What the tests share: the practice cluster, and ``launch-notebook`` in a real terminal of one of its boxes."""

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

from tests import branch_coverage  # before the package, into whose modules it puts probes

# isort: split
import notebook_launcher.notebook  # noqa: F401 - before anybody loads nbformat: it sees to it that this takes no seconds
from tests import fewer_messages
from tests.doubles import wait_until

# With pytest-xdist every worker has a practice cluster of its own: tests break it, and would break each other's.
if _worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["PRACTICE_CLUSTER_ROOT"] = f"/var/tmp/notebook-launcher-practice-{_worker}"

# Each shell runs the login files of whoever runs the tests (pyenv, conda, a greeting): 0.2 s were seen. So the tests,
# in all workers, have a home without any. What goes by the system's list of users still sees the usual one.
if "NBL_TEST_HOME" not in os.environ:
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ["HOME"] = os.environ["NBL_TEST_HOME"] = tempfile.mkdtemp(prefix="test-home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)
    # Nor do they read or write the configuration of whoever runs them, wherever that is.
    os.environ.pop("XDG_CONFIG_HOME", None)
    os.environ.pop("NOTEBOOK_LAUNCHER_CONFIG", None)

# A version manager's python3 is a script that looks for the real one: a fifth of a second, in each job of the tests.
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).name != "shims"
)

# Whoever runs them may be logged in by SSH, which a launch says more to.
os.environ.pop("SSH_CONNECTION", None)

from tests.cluster_tests.forking_cluster import ForkingCluster
from tests.cluster_tests.jupyterlab_page import chromium
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.errors import ReleaseUnusableError
from tests.practice_cluster.layout import BOXES, COMPUTE_NODES, USERS
from tests.practice_cluster.slurm import CONFIGURATION

gc.set_threshold(100_000, 50, 100)

# Whoever started us (nohup, a script's background job, a CI) may ignore signals, and what is ignored stays so in every
# program that is started here; these tests are about programs that get them.
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
    parser.addoption("--slurm", default="24.11", help="the generation of the practice cluster: 24.11, 22.05 or sid")
    parser.addoption("--keep-cluster", action="store_true", help="leave the practice cluster up afterwards")


#: long files that would come last by their names: begun first, they leave no worker alone at the end. Not more of them:
#: all that is heavy at once would starve each other on two cores
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
    """Let a test that lives on real time in a browser run again when it fails, for a cause that is beside it."""
    if not cause or "playwright" not in item.path.read_text():
        raise pytest.UsageError(f'{item.nodeid}: browser_time is for a browser, and needs cause="why it may fail"')
    item.user_properties.append((RERUN_CAUSE, cause))
    item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests would be gone through for garbage: not while they are collected, and never afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def is_found_by_make(file: Path) -> bool:
    """Whether the Makefile gives a file to those who run what is marked; they need not read the others."""
    return "cluster_tests" in file.parts or "real_time" in file.read_text()


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition(".py::")[0]


def uses_the_cluster(item: pytest.Item) -> bool:
    """Whether a test is given the practice cluster; some have a ``cluster`` of their own."""
    fixtures = getattr(item, "_fixtureinfo", None)
    found = fixtures.name2fixturedefs.get("cluster", ()) if fixtures else ()
    return any(fixture.func.__module__ == __name__ for fixture in found)


#: the name under which a test's report tells why the test may run again
RERUN_CAUSE = "rerun cause"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_line(f"ran again: {report.nodeid}: {dict(report.user_properties).get(RERUN_CAUSE)}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[PracticeCluster]:
    """The practice cluster, up; what cannot run here is skipped in one line, and fails in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = "the practice cluster needs root on Linux"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    cluster = ForkingCluster(request.config.getoption("--slurm"))
    was_up = cluster.is_up()
    keep = was_up or request.config.getoption("--keep-cluster")
    try:
        cluster.up(until_end_of=None if keep else os.getpid())
    except ReleaseUnusableError as error:
        pytest.skip(str(error))  # in CI as well: Debian sid is not ours to fix
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
    """A name for each test's state. A ``tmp_path`` for every test would take longer than most of the tests do."""
    root = tmp_path_factory.mktemp("launcher-state")
    return (root / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _nothing_is_remembered(_state_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the launcher keeps for the next time is neither read nor written where the person who tests keeps it."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(next(_state_folders)))


def write_profile(cluster: PracticeCluster, box: str, user: str, text: str = PROFILE) -> None:
    """Give a user the course's profile, and make it the default cluster."""
    script = (
        "d=~/.config/notebook-launcher; mkdir -p $d/clusters; cat >$d/clusters/practice.toml; "
        "echo 'cluster = \"practice\"' >$d/config.toml"
    )
    cluster.run(box, user, ["sh", "-c", script], login=False, input=text, check=True)


def ignored(mask: str) -> set[signal.Signals]:
    """Which of the signals that end a program a ``SigIgn`` mask of /proc ignores."""
    endings = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)
    return {number for number in endings if int(mask, 16) >> (number - 1) & 1}


def environment() -> dict[str, str]:
    """Return the environment, also while pytest or a fixture changes a variable in another thread."""
    values = {name: os.environ.get(name) for name in list(os.environ) if name != "PYTEST_CURRENT_TEST"}
    return {name: value for name, value in values.items() if value is not None}


class Session:
    """``launch-notebook`` at work in a terminal: what it printed, and keys to press."""

    def __init__(self, argv: list[str] | SpawnBase, *, columns: int = 80, env: dict[str, str] | None = None) -> None:
        if isinstance(argv, SpawnBase):  # which has begun already
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
        """All that was printed so far, without colours and cursor movements."""
        return plain(self._seen + (self.child.buffer or ""))

    def _wait_for(self, pattern: object, timeout: float, what: str) -> None:
        try:
            self.child.expect(pattern, timeout=timeout)
        except (pexpect.EOF, pexpect.TIMEOUT):
            self._seen += self.child.before or ""
            pytest.fail(f"{what}; it printed:\n{self.printed}")
        self._seen += self.child.before + (self.child.after if isinstance(self.child.after, str) else "")

    def expect(self, pattern: str, timeout: float = 60) -> re.Match[str]:
        """Wait until something is printed that matches."""
        self._wait_for(pattern, timeout, f"“{pattern}” did not come")
        match = self.child.match
        assert isinstance(match, re.Match)
        return match

    def read_along(self) -> None:
        """From now on read what is printed as it comes: a waiting line that nobody reads fills the terminal.

        Use ``saw`` in place of ``expect`` then.
        """
        self._reader = threading.Thread(target=self._read_along, daemon=True)
        self._reader.start()

    def _read_along(self) -> None:
        with contextlib.suppress(pexpect.EOF, OSError, ValueError):
            while True:
                with contextlib.suppress(pexpect.TIMEOUT):
                    self._seen += self.child.read_nonblocking(65536, timeout=0.5)

    def saw(self, pattern: str, timeout: float = 60) -> None:
        """Wait until what was printed since the last look matches."""
        compiled = re.compile(pattern)
        try:
            wait_until(lambda: compiled.search(self.printed, self._looked), timeout, f"“{pattern}” is printed")
        except pytest.fail.Exception as failed:
            pytest.fail(f"{failed}; what was printed instead:\n{self.printed[self._looked :][-4000:]}")
        found = compiled.search(self.printed, self._looked)
        self._looked = found.end() if found else self._looked

    def ready(self, *, started_here: bool = True, within: float = 60) -> str:
        """Wait for the address and return it, and for what the keys do: after ``connect``, Ctrl-C detaches."""
        self.url = self.expect(r"http://127\.0\.0\.1:\d+/lab(/tree/\S+)?\?token=[\w-]+", within).group(0)
        self.expect("ENTER or Ctrl-C ends the session" if started_here else "; Ctrl-C detaches: it runs on")
        return self.url

    @property
    def api(self) -> str:
        """The address under which JupyterLab tells its status."""
        return re.sub(r"lab(/tree/[^?]+)?\?token=.*", "api/status", self.url)

    @property
    def session_id(self) -> str:
        # a launch may have told of another one before
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
    """Start ``launch-notebook`` as a user in a terminal of a box, if wanted that of an ssh from another one."""
    command = ["launch-notebook", *words_of_launch(arguments)]
    if logged_in_from:
        command = ["ssh", "-tt", box, shlex.join(command)]
    argv = cluster.argv(logged_in_from or box, user, command, env={"TERM": "xterm-256color"})
    return Session(argv, columns=columns)


def words_of_launch(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """A launch without its command's name does not ask about a session that is there already: tests share users."""
    return arguments if arguments and not arguments[0].startswith("-") else ("--new", *arguments)


def plain(text: str) -> str:
    """Return text without a terminal's control sequences; a line that is drawn anew is one more line."""
    text = text.replace("\x1b[1G", "\n")
    return re.sub(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78])|\r", "", text)


@pytest.fixture
def start(cluster: PracticeCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Session]]:
    """Start launches; whatever a test leaves behind is cleared away for the next one.

    How they are started, a module may say by its ``LAUNCH``, and a test by ``by``.
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
    cluster.kill_people(*COMPUTE_NODES)  # what one test left behind is not the next one's fault


def cancel_all_of_slurm(cluster: PracticeCluster) -> None:
    cancel = "for state in PENDING RUNNING SUSPENDED; do scancel --state=$state; done"
    for configuration in CONFIGURATION.values():  # with --clusters, Slurm 22.05 takes its time
        cluster.root("login", ["env", f"SLURM_CONF={configuration}", "sh", "-c", cancel])
    cluster.resume()


def people_processes(cluster: PracticeCluster, boxes: tuple[str, ...]) -> list[str]:
    """What ordinary users still run there (sshd's own helper processes belong to a login, and so count)."""
    return [
        f"{box}: {user} {args}"
        for box, user, args in cluster.processes_of_people(*boxes)
        if not args.startswith(("(sd-pam)", "systemd"))
    ]


def assert_nothing_left(cluster: PracticeCluster) -> None:
    """No job in any queue, and no process of a user on any box."""
    everywhere = tuple(box for box in BOXES if box != "ctl")
    left: list[str] = []

    def is_clear() -> bool:
        left[:] = people_processes(cluster, everywhere) or [f"job {job}" for job in cluster.squeue()]
        return not left

    with contextlib.suppress(pytest.fail.Exception):
        wait_until(is_clear, 30, "nothing is left")
    assert left == []


def fetch(cluster: PracticeCluster, box: str, url: str, token: str = "", user: str = "alice") -> tuple[int, str]:
    """Ask for a page from a box, and return its status and text (status 0: no connection)."""
    header = f"Authorization: token {token}\n" if token else ""
    asks = ["curl", "-sLm", "10", "-H", "@-", "-w", "\n%{http_code}", url]
    text, _, status = cluster.run(box, user, asks, login=False, input=header).stdout.rpartition("\n")
    return int(status), text
