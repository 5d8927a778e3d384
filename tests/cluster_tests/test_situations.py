"""Every situation on the practice cluster: the user sees its sentences and exit code, and nothing is left behind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster_tests import in_box, recorded_tables
from tests.cluster_tests.situation import STAND_IN, Situation, matching, shown, together, venv, wait_in
from tests.cluster_tests.situations import SITUATIONS, WHOLE_PROFILE
from tests.cluster_tests.situations_table import RECORD
from tests.conftest import PROFILE, Session, assert_nothing_left, clear, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.layout import USERS

Start = Callable[..., Session]
LAUNCH = in_box.launch
Record = Callable[[Situation, list[str]], None]
each_slurm, newest_slurm = pytest.mark.each_slurm, pytest.mark.newest_slurm
QUIET = [one for one in SITUATIONS if not one.alone]
AT_ONCE = 2  # situations of QUIET, besides the long ones and those that take turns
# Where users' files could be left: in the homes on the cluster and on the laptop, and in every box's temporary folders.
OWN = "/tmp /var/tmp /dev/shm"
PLACES = {"login": f"/home {OWN}", "laptop": f"/home {OWN}", "login2": OWN, "node1": OWN, "node2": OWN, "gpu1": OWN}
# What may stay: the content of session directories, and what the launcher, JupyterLab and Apptainer keep for later.
KEPT = (
    *("*/.notebook-launcher/sessions/*/*", "*/.notebook-launcher/sessions/.asked*"),
    *(f"*/.notebook-launcher/sessions/{name}" for name in ("image-digests", ".scripts", ".imports")),
    *("*/.local", "*/.local/*", "*/.jupyter", "*/.ipython", "*/.apptainer"),
)


@pytest.fixture(scope="module", autouse=True)
def _profiles(cluster: PracticeCluster) -> Iterator[None]:
    """Give each user the profile with all environments, and a folder for sessions, so that it is no leftover.

    The environment ``light`` has a stand-in for JupyterLab.
    """
    people = {situation.user for situation in SITUATIONS}
    for user in people:
        write_profile(cluster, "laptop", user, WHOLE_PROFILE)
        cluster.run("login", user, ["mkdir", "-p", ".notebook-launcher/sessions"], check=True)
    with together(*(venv("light", STAND_IN, user) for user in ("alice", "bob")))(cluster):
        yield
    for user in people:
        write_profile(cluster, "laptop", user, PROFILE)


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Record:
    """Return a function that saves what was seen for ``python -m tests.cluster_tests.situations --write``."""
    return lambda situation, seen: recorded_tables.keep(request.config, RECORD, situation.name, seen)


def files_of_people(cluster: PracticeCluster) -> set[str]:
    """Return all files and folders of ordinary users on all boxes (``BOX:PATH``), except those that may stay."""
    roots = {box: str(cluster.root_folder(box)) for box in PLACES}
    places = [f"{roots[box]}{place}" for box, folders in PLACES.items() for place in folders.split()]
    passed_over = " -o ".join(f"-path */root{pattern}" for pattern in KEPT).split()
    owners = " -o ".join(f"-uid {user.uid}" for user in USERS.values()).split()
    find = ["find", *places, "(", *passed_over, ")", "-prune", "-o", "(", *owners, ")", "-print"]
    # errors are ignored: files may disappear during the search
    found = set(subprocess.run(find, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines())
    return {
        f"{box}:{path.removeprefix(root)}" for box, root in roots.items() for path in found if path.startswith(root)
    }


def play(cluster: PracticeCluster, start: Start, record: Record, situation: Situation) -> None:
    """Run a launch in a situation, check what the user sees and the exit code, and record what was seen."""
    elsewhere = ""
    with situation.arranged(cluster) as given:
        arguments = [word.replace("{}", str(given)) for word in situation.arguments]
        session = start(*arguments, box=situation.box, user=situation.user, columns=200)
        for when in situation.acts:
            session.expect(when.printed, when.seconds)
            elsewhere += when.then(cluster, session) or ""
        code = session.end(timeout=150 if situation.long else 60)
    paragraphs = shown(f"{session.printed}\n{elsewhere}")
    seen = {pattern: matching(pattern, paragraphs) for pattern in situation.sees}
    told = "\n\n".join(paragraphs)
    assert None not in seen.values(), f"{seen}\n\n{told}"
    assert (code if code >= 0 else 128 - code) == situation.exit_code, told
    assert "Traceback" not in told
    if jobs := re.findall(r"Job (\d+) is queued", told):
        wait_until_over(cluster, jobs)
    record(situation, [paragraph for paragraph in paragraphs if paragraph in seen.values()])


def wait_until_over(cluster: PracticeCluster, jobs: Sequence[str]) -> None:
    if cluster.has_grid_engine:
        wait_until(lambda: not {*jobs} & {*cluster.squeue()}, 30, "the job is over")
    else:
        wait_in(cluster, "ctl", f'[ -z "$(squeue -h -j {",".join(jobs)})" ]', 30)


def assert_only_folders_left(cluster: PracticeCluster, before: set[str], folders: int) -> None:
    """Check that no job, process or new file is left, except for this number of session directories."""
    assert_nothing_left(cluster)
    left = sorted(files_of_people(cluster) - before)
    assert [path for path in left if "/.notebook-launcher/sessions/" not in path] == []
    assert len(left) == folders, left


def parameters(situations: Iterable[Situation]) -> list[object]:
    return [pytest.param(one, id=one.name, marks=marks_of(one)) for one in situations]


def marks_of(situation: Situation) -> list[pytest.MarkDecorator]:
    return [*[each_slurm] * situation.each_slurm, *[newest_slurm] * situation.newest_slurm]


class SideBySide:
    """Runs situations that do not disturb each other side by side; each test then waits for its own."""

    def __init__(self, cluster: PracticeCluster, record: Record, situations: Sequence[Situation]) -> None:
        self._cluster, self._record, self.situations = cluster, record, situations
        self._before = files_of_people(cluster)
        self._sessions: list[Session] = []
        long_first = sorted(situations, key=lambda one: not one.long)
        self._pools = {one.turn: ThreadPoolExecutor(1) for one in situations}  # one thread for each ``turn``
        self._pools[""] = ThreadPoolExecutor(sum(one.long for one in situations) + AT_ONCE)
        self._played = {one: self._begin(one) for one in long_first}

    def _begin(self, situation: Situation) -> Future[None]:
        return self._pools[situation.turn].submit(play, self._cluster, self._start, self._record, situation)

    def _start(self, *arguments: str, **options: Any) -> Session:
        session = in_box.launch(self._cluster, options.pop("box"), *arguments, **options)
        self._sessions.append(session)
        return session

    def result(self, situation: Situation) -> None:
        """Wait until a situation has been run; raises the exception with which it failed."""
        self._played[situation].result()

    def assert_nothing_left(self) -> None:
        """Wait for all situations, and check what they have left; afterwards remove that in any case."""
        for pool in self._pools.values():
            pool.shutdown()
        try:
            assert_only_folders_left(self._cluster, self._before, sum(one.folders for one in self.situations))
        finally:
            self.close()

    def close(self) -> None:
        """End everything that still runs."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
        for session in self._sessions:
            session.child.close(force=True)
        clear(self._cluster)


@pytest.fixture(scope="module")
def side_by_side(request: pytest.FixtureRequest, cluster: PracticeCluster, record: Record) -> Iterator[SideBySide]:
    """Start all situations whose tests were selected."""
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    asked: list[Situation] = [item.callspec.params["quiet"] for item in here if "quiet" in item.fixturenames]  # type: ignore[misc]
    playing = SideBySide(cluster, record, asked)
    yield playing
    playing.close()


@pytest.mark.parametrize("quiet", parameters(QUIET))
def test_a_situation_is_told(side_by_side: SideBySide, quiet: Situation) -> None:
    side_by_side.result(quiet)


@each_slurm
@newest_slurm
def test_nothing_is_left_of_those(side_by_side: SideBySide) -> None:
    side_by_side.assert_nothing_left()


@pytest.mark.parametrize("situation", parameters(one for one in SITUATIONS if one.alone))
def test_a_situation_that_concerns_everybody_is_told_and_leaves_nothing(
    cluster: PracticeCluster, start: Start, record: Record, situation: Situation
) -> None:
    before = files_of_people(cluster)
    play(cluster, start, record, situation)
    assert_only_folders_left(cluster, before, situation.folders)
