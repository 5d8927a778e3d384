"""A person's first minutes, in a real browser on the laptop: open the address, make a notebook, say Hello."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cluster import PracticeCluster
from tests.conftest import Session, assert_nothing_left

CHROMIUM = Path("/usr/bin/chromium")
# as root there is no sandbox; nothing is to be looked up outside of the laptop's network
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]  # fmt: skip


@pytest.fixture
def browser(cluster: PracticeCluster, tmp_path: Path) -> Iterator[Browser]:
    """Debian's Chromium with the laptop's network, which reaches the login node and nothing else."""
    assert CHROMIUM.exists(), "install Debian's chromium (tests/packages.sh does)"
    wrapper = tmp_path / "chromium"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.laptop_argv([str(CHROMIUM)]))} "$@"\n')
    wrapper.chmod(0o755)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(wrapper), args=FLAGS)
        yield chromium
        chromium.close()


def run_cell(page: Page, number: int, code: str) -> str:
    """Type into the cell, press Shift+Enter, and return what it printed."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.type(code)
    page.keyboard.press("Shift+Enter")
    output = cell.locator(".jp-OutputArea-output").first
    expect(output).to_be_visible(timeout=60_000)
    return output.inner_text().strip()


def test_hello_from_the_compute_node(
    cluster: PracticeCluster, start: Callable[..., Session], browser: Browser, tmp_path: Path
) -> None:
    # JupyterLab reopens what was open last time; this is a first visit
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = start("--gpus", "1", "-n", "2")
    session.ready()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(session.url)
    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click(timeout=60_000)
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(1, timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)  # the kernel has started
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
