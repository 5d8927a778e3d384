"""Every command of the lessons in docs/learn is typed on the practice cluster, and prints what the lesson shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_tests import lessons
from tests.conftest import clear, write_profile
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image
from tests.practice_cluster.users import LAPTOP_PROFILE

_LEFT_BY_GIT = (".gitconfig", ".ssh/id_git", ".ssh/id_git.pub")  # in the home on the laptop and on the cluster


@pytest.fixture(scope="module")
def _as_by_hand(cluster: PracticeCluster) -> Iterator[None]:
    """As for a reader, the profile is the one that the practice cluster comes with, and no cluster is the default."""
    write_profile(cluster, "laptop", "alice", LAPTOP_PROFILE)
    cluster.run("laptop", "alice", ["rm", ".config/notebook-launcher/config.toml"], check=True)
    yield
    write_profile(cluster, "laptop", "alice")


@pytest.fixture
def terminals(cluster: PracticeCluster, _as_by_hand: None) -> Iterator[lessons.Terminals]:
    """The learner's terminals, in a folder that is removed after each lesson."""
    provide_image(cluster, "torch-cpu")
    opened = lessons.Terminals(cluster, "lesson")
    yield opened
    opened.close()
    clear(cluster)
    for box in ("laptop", "login"):
        cluster.run(box, "alice", ["rm", "-rf", "lesson", *_LEFT_BY_GIT])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", lessons.lessons(), ids=lambda page: page.stem)
def test_a_lesson_prints_what_it_shows(terminals: lessons.Terminals, page: Path) -> None:
    wrong = []
    for typed in lessons.typed_in(page.read_text()):
        printed, code = terminals.type(typed)
        failed = code not in (None, 0)
        if not lessons.is_same(typed.expected, printed) or (code is not None and failed != typed.fails):
            wrong.append(f"{page.name}:{typed.number}\n{typed}\n--- its exit code: {code}; it printed\n{printed}")
    assert not wrong, "\n\n".join(wrong)
