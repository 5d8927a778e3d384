"""``notebooks copy`` to the cluster, from the laptop and from the login node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.notebook.bundled_notebooks import files_of
from tests.practice_cluster import PracticeCluster


@pytest.fixture
def alice(cluster: PracticeCluster) -> Iterator[Path]:
    """Alice's home on the cluster; what the tests leave there is removed at the end."""
    yield cluster.directory / "home" / "alice"
    cluster.run("login", "alice", ["rm", "-rf", "notebooks", "lab", ".notebook-launcher/notebooks"], check=True)


def test_they_come_to_the_users_folder_on_the_cluster(cluster: PracticeCluster, alice: Path) -> None:
    def words(box: str, *words: str) -> str:
        return cluster.run(box, "alice", ["launch-notebook", "notebooks", "copy", *words], check=True).stderr

    assert "copied to ~/notebooks" in words("laptop")
    folder = alice / "notebooks"
    arrived = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert arrived == set(files_of(()))
    (folder / "hello.ipynb").write_text("my own work")
    assert "Left as you have changed them: hello.ipynb." in words("laptop")
    assert "Left as you have changed them: hello.ipynb." in words("login", "hello")  # both use one record of copies
    assert (folder / "hello.ipynb").read_text() == "my own work"
    assert "copied to ~/lab/week 2" in words("laptop", "hello", "--to", "lab/week 2")
    assert {path.name for path in (alice / "lab" / "week 2").iterdir()} == {"hello.ipynb", "timing.py"}
