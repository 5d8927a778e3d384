"""A session that continues in a next job: the page stays open, at the same address."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cluster_tests import in_box
from tests.cluster_tests.jupyterlab_page import NO_ANIMATION, new_notebook, run_cell
from tests.cluster_tests.situation import STAND_IN, venv
from tests.cluster_tests.situations import LIGHT
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch

WHERE = 'import os; print(os.environ["SLURM_JOB_ID"])'


@pytest.mark.timeout(700)
def test_one_tab_sees_three_jobs(cluster: PracticeCluster, start: Start, browser: Browser) -> None:
    """The second job is queued by ``--renew``, the third one from the panel.

    The test waits for most of each job's two minutes. They are so long because a page is slow on a busy machine.
    """
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = start("-t", "2", "--no-open", "--renew", "1", columns=200)
    session.ready()
    session.read_along()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    new_notebook(page, session.url)
    page.add_style_tag(content=NO_ANIMATION)
    jobs = [run_cell(page, 0, WHERE)]
    session.saw("The next job is queued: job")

    jobs.append(_goes_on(session, page, jobs))
    page.locator(".nbl-status").click()
    page.get_by_role("button", name="Continue in a new job").click()
    page.get_by_role("button", name="Queue it").click()
    expect(page.locator(".nbl-actions")).to_contain_text("This page continues in job", timeout=40_000)
    jobs.append(_goes_on(session, page, jobs))

    assert len(set(jobs)) == 3
    wait_until(lambda: len(cluster.squeue()) == 1, 60, "the jobs before are gone")
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").last.click()
    page.keyboard.type("typed_and_never_run = 42")
    session.send("\n")
    assert session.end() == 0
    saved = cluster.run("login", "alice", ["sh", "-c", "cat ~/Untitled.ipynb"]).stdout
    assert "typed_and_never_run = 42" in saved, "ENTER has the page save first"
    assert_nothing_left(cluster)


def _goes_on(session: Session, page: Page, jobs: list[str]) -> str:
    """Wait for the next job, run the first cell of the notebook again, and return the job id that it prints."""
    session.saw(rf"Job (?!{jobs[-1]}\b)\d+ on \w+ continues at the same address", timeout=200)
    expect(page.get_by_text("Its kernels are new")).to_be_visible(timeout=60_000)
    page.add_style_tag(content=NO_ANIMATION)
    page.get_by_text("| Idle").wait_for(timeout=60_000)
    first = page.locator(".jp-Notebook .jp-CodeCell").first
    first.locator(".cm-content").click(timeout=60_000)
    page.keyboard.press("Shift+Enter")
    output = first.locator(".jp-OutputArea-output").first
    expect(output).not_to_have_text(jobs[-1], timeout=60_000)
    expect(output).to_be_visible(timeout=60_000)
    return output.inner_text().strip()


@pytest.mark.timeout(500)
def test_with_nobody_attached_the_next_job_waits_for_connect(cluster: PracticeCluster, start: Start) -> None:
    with venv("light", STAND_IN)(cluster):
        session = start("-t", "1", *LIGHT, columns=200)
        session.ready()
        name, token, job = session.session_id, session.token, session.job_id
        session.send("d\n")
        assert session.end() == 0
        queued = in_box.launcher(cluster, "laptop", "alice", "renew", "--yes", name)
        assert queued.returncode == 0, queued.stderr
        again = in_box.launcher(cluster, "laptop", "alice", "renew", "--yes", name)
        assert again.returncode == 2 and "has a next job already" in again.stderr
        wait_until(lambda: job not in cluster.squeue(), 200, "the first job has ended")
        back = start("connect", name, columns=200)
        back.ready(started_here=False)
        assert f"Session {name} has ended; it continues as session" in back.printed
        assert back.token == token
        assert fetch(cluster, "laptop", back.api, token)[0] == 200
        back.read_along()
        back.send("\n")
        assert back.end() == 0
        assert_nothing_left(cluster)
