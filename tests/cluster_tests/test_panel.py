"""JupyterLab's page saves what was typed before the walltime ends the job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.cluster_tests import in_box
from tests.cluster_tests.jupyterlab_page import NO_ANIMATION, new_notebook
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch


@pytest.mark.browser_time(cause="the page has a few seconds to save, and shares them with all other tests")
@pytest.mark.timeout(240)
def test_what_is_not_saved_when_the_walltime_is_over_is_on_disk_afterwards(
    cluster: PracticeCluster, start: Callable[..., Session], browser: Browser
) -> None:
    """JupyterLab itself saves only every two minutes. The job may run for one; Slurm checks every 30 seconds."""
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = start("-t", "1", "--no-open", columns=160)
    session.ready()
    session.read_along()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    new_notebook(page, session.url)
    page.add_style_tag(content=NO_ANIMATION)
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    page.keyboard.type("typed_and_never_run = 42")
    expect(page.locator(".nbl-status")).to_contain_text(" · node")
    assert session.end(150) != 0
    assert "reached its walltime" in session.printed
    assert "could not save" not in session.printed
    saved = cluster.run("login", "alice", ["sh", "-c", "cat ~/Untitled.ipynb"]).stdout
    assert "typed_and_never_run = 42" in saved
    assert_nothing_left(cluster)
