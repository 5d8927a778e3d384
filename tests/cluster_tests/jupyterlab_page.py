"""Uses JupyterLab in a real browser on the laptop as a person does: opens a notebook, types cells, reads outputs."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.practice_cluster import PracticeCluster

# The headless build needs a third less processor time.
CHROMIUM = Path("/usr/bin/chromium-headless-shell")
if not CHROMIUM.exists():
    CHROMIUM = Path("/usr/bin/chromium")
# The sandbox does not work as root. What Chromium would request from the internet by itself is switched off.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions"]  # fmt: skip
# A blinking cursor is drawn sixty times a second, and a tab stays open for minutes.
NO_ANIMATION = "* { animation: none !important; transition: none !important }"

#: for a busy machine, on which the default timeouts of 5 and 30 seconds may be too short
PATIENCE = 60_000  # milliseconds
expect.set_options(timeout=PATIENCE)


@contextlib.contextmanager
def chromium(cluster: PracticeCluster, folder: Path) -> Iterator[Browser]:
    """Run Debian's Chromium in the laptop's network, which leads to the practice cluster and nowhere else."""
    assert CHROMIUM.exists(), "install Debian's chromium-headless-shell (tests/packages.sh does)"
    wrapper = folder / "chromium"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.laptop_argv([str(CHROMIUM)]))} "$@"\n')
    wrapper.chmod(0o755)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(wrapper), args=FLAGS)
        yield browser
        browser.close()


def run_cell(page: Page, number: int, code: str, seconds: float = 60.0) -> str:
    """Type code into a cell, run it with Shift+Enter, and return its output."""
    type_into_cell(page, number, code)
    return output_of_cell(page, number, seconds)


def type_into_cell(page: Page, number: int, code: str) -> None:
    """Type code into a cell, and run it with Shift+Enter."""
    page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".cm-content").click(timeout=60_000)
    page.keyboard.type(code)
    page.keyboard.press("Shift+Enter")


def output_of_cell(page: Page, number: int, seconds: float = 60.0) -> str:
    """Wait for the cell's output, and return it."""
    output = page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-OutputArea-output").first
    expect(output).to_be_visible(timeout=1000 * seconds)
    return output.inner_text().strip()


def new_notebook(page: Page, url: str) -> None:
    """Open JupyterLab's address, and create a notebook from its Launcher tab."""
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click(timeout=60_000)
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(1, timeout=60_000)
    page.get_by_text("| Idle").wait_for(timeout=60_000)  # the kernel has started


class Tab:
    """A tab with a notebook whose kernel keeps a variable; it is never reloaded."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self._cells = 0
        new_notebook(self.page, url)
        self.page.add_style_tag(content=NO_ANIMATION)
        self.node = run_cell(self.page, 0, "import socket; kept = 40; print(socket.gethostname())")

    def asks(self) -> None:
        """Run another cell, whose output depends on the variable."""
        self._cells += 1
        type_into_cell(self.page, self._cells, f"kept + {self._cells}")

    def is_answered(self, seconds: float = 60.0) -> None:
        """Wait for the output of that cell."""
        assert output_of_cell(self.page, self._cells, seconds) == str(40 + self._cells)

    def is_stuck(self) -> bool:
        """Whether JupyterLab is connected to its kernel but does not know the kernel's state.

        Its first request for the state may have been lost, and it never repeats that request.
        """
        return self.page.get_by_text("| Unknown").is_visible()

    def reconnects(self) -> None:
        """Use the menu as a person would: Kernel, Reconnect to Kernel."""
        self.page.get_by_role("menuitem", name="Kernel", exact=True).click()
        self.page.get_by_role("menuitem", name="Reconnect to Kernel").click()

    @property
    def complaints(self) -> list[str]:
        """The dialogs that JupyterLab shows."""
        return [dialog.inner_text() for dialog in self.page.locator(".jp-Dialog").all()]
