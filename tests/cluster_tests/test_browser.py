"""A person's first minutes, in a real browser on the laptop: open the address, make a notebook, say Hello."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.cluster_tests.jupyterlab_page import new_notebook, run_cell
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster


def test_hello_from_the_compute_node(
    cluster: PracticeCluster, start: Callable[..., Session], browser: Browser, tmp_path: Path
) -> None:
    # JupyterLab reopens what was open last time; this is a first visit
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = start("--gpus", "1", "-n", "2")
    session.ready()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    new_notebook(page, session.url)
    assert run_cell(page, 0, "print('Hello')") == "Hello"
    assert run_cell(page, 1, "import socket; socket.gethostname()") == "'gpu1'"
    # nobody is asked about news, and nothing is looked for outside
    expect(page.get_by_text("Would you like to get notified about official Jupyter news?")).to_have_count(0)
    page.screenshot(path=str(tmp_path / "jupyterlab.png"))
    page.close()
    session.send("\n")
    assert session.end() == 0
    cluster.run("login", "alice", ["sh", "-c", "rm -f ~/Untitled*.ipynb"])
    assert_nothing_left(cluster)
