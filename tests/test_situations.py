"""Every situation on the practice cluster: the sentence that is seen, the exit code, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster import PracticeCluster
from tests.cluster.layout import USERS
from tests.conftest import PROFILE, Session, assert_nothing_left, write_profile
from tests.provoking import Situation, matching, shown
from tests.situations import SIDE_BY_SIDE, SITUATIONS, WHOLE_PROFILE
from tests.situations_table import RECORD

Start = Callable[..., Session]
Record = Callable[[Situation, list[str]], None]
# Where somebody's files could be left: homes (the cluster's and the laptop's) and what every box has of its own.
OWN = "/tmp /var/tmp /dev/shm"
PLACES = {"login": f"/home {OWN}", "laptop": f"/home {OWN}", "login2": OWN, "node1": OWN, "node2": OWN, "gpu1": OWN}
# Compiled Python, what is in a session's folder, and what the launcher, JupyterLab and Apptainer keep for another time.
KEPT = (
    *("/var/tmp/bytecode-*", "*/.notebook-launcher/sessions/*/*", "*/.notebook-launcher/sessions/.asked*"),
    *("*/.local", "*/.local/*", "*/.jupyter", "*/.ipython", "*/.apptainer"),
)


@pytest.fixture(scope="module", autouse=True)
def _profiles(cluster: PracticeCluster) -> Iterator[None]:
    """Every laptop has the profile with all environments, and every home the folder for sessions already."""
    people = {situation.user for situation in (*SITUATIONS, *SIDE_BY_SIDE)}
    for user in people:
        write_profile(cluster, "laptop", user, WHOLE_PROFILE)
        cluster.run("login", user, ["mkdir", "-p", ".notebook-launcher/sessions"], check=True)
    yield
    for user in people:
        write_profile(cluster, "laptop", user, PROFILE)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Keep what was seen where ``python -m tests.situations --write`` finds it."""
    cache = getattr(request.config, "cache", None)  # pytest may be told to have none

    def keep(situation: Situation, seen: list[str]) -> None:
        if cache is not None and request.config.getoption("--slurm") == "24.11":
            cache.set(f"{RECORD}/{situation.name}", seen)

    return keep


def files_of_people(cluster: PracticeCluster) -> set[str]:
    """Return all files and folders of ordinary users, but for those that may stay."""
    owners = " -o ".join(f"-user {user}" for user in USERS)
    passed_over = " -o ".join(f"-path '{pattern}'" for pattern in KEPT)

    def look(box: str) -> list[str]:
        find = f"find {PLACES[box]} \\( {passed_over} \\) -prune -o \\( {owners} \\) -print"
        return [f"{box}:{line}" for line in cluster.root(box, ["sh", "-c", find]).stdout.splitlines()]

    with ThreadPoolExecutor() as pool:
        return {path for paths in pool.map(look, PLACES) for path in paths}


def play(cluster: PracticeCluster, start: Start, record: Record, situation: Situation) -> None:
    """Play one situation, hold what is seen against it, and record it."""
    elsewhere = ""
    with situation.arranged(cluster) as given:
        arguments = [word.replace("{}", str(given)) for word in situation.arguments]
        session = start(*arguments, box=situation.box, user=situation.user, columns=200)
        for when in situation.acts:
            session.expect(when.printed, when.seconds)
            elsewhere += when.then(cluster, session) or ""
        code = session.end()
    paragraphs = shown(f"{session.printed}\n{elsewhere}")
    seen = {pattern: matching(pattern, paragraphs) for pattern in situation.sees}
    told = "\n\n".join(paragraphs)
    assert None not in seen.values(), f"{seen}\n\n{told}"
    assert (code if code >= 0 else 128 - code) == situation.exit_code, told
    assert "Traceback" not in told
    record(situation, [paragraph for paragraph in paragraphs if paragraph in seen.values()])


def assert_only_folders_left(cluster: PracticeCluster, before: set[str], folders: int) -> None:
    """No job, no process, and of files only so many new folders of sessions."""
    assert_nothing_left(cluster)
    left = sorted(files_of_people(cluster) - before)
    assert [path for path in left if "/.notebook-launcher/sessions/" not in path] == []
    assert len(left) == folders, left


@pytest.mark.parametrize(
    "situation",
    [pytest.param(one, id=one.name, marks=[pytest.mark.each_slurm] if one.each_slurm else []) for one in SITUATIONS],
)
def test_a_situation_is_told_and_leaves_nothing(
    cluster: PracticeCluster, start: Start, record: Record, situation: Situation
) -> None:
    before = files_of_people(cluster)
    play(cluster, start, record, situation)
    assert_only_folders_left(cluster, before, situation.folders)


def test_situations_that_take_a_minute(cluster: PracticeCluster, start: Start, record: Record) -> None:
    before = files_of_people(cluster)
    with ThreadPoolExecutor(len(SIDE_BY_SIDE)) as pool:
        played = [pool.submit(play, cluster, start, record, situation) for situation in SIDE_BY_SIDE]
    for future in played:
        future.result()
    assert_only_folders_left(cluster, before, sum(situation.folders for situation in SIDE_BY_SIDE))
