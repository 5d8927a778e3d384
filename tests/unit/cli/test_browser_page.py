"""The page that leads a browser to JupyterLab."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from notebook_launcher.cli.views import browser


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "notebook-launcher"


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A browser that is named by $BROWSER; what it has seen is in the file."""
    seen = tmp_path / "seen"
    program = tmp_path / "stand-in-browser"
    program.write_text(f'#!/bin/sh\nexec >{seen} 2>&1\npage="${{1#file://}}"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(program))
    import webbrowser

    monkeypatch.setattr(webbrowser, "_tryorder", None)
    return seen


@pytest.mark.real_time
def test_the_page_stays_until_a_slow_browser_has_read_it(
    tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "AFTER_READING", (10.0, 0.2))
    seen = stand_in(tmp_path, monkeypatch, 'head -c1 "$page" >/dev/null; sleep 1; cat "$page"')
    began = time.monotonic()
    opened = browser.Browser("http://127.0.0.1:50001/lab?token=secret")
    assert [path.stat().st_mode & 0o777 for path in pages.iterdir()] == [0o600]
    opened.close_when_read()
    assert "token=secret" in seen.read_text()
    assert 1.0 <= time.monotonic() - began < 12.0
    assert list(pages.iterdir()) == []


def test_a_page_that_nobody_reads_does_not_stay(tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "sleep 1")
    monkeypatch.setattr(browser, "READ_WITHIN", 0.3)
    browser.Browser("http://127.0.0.1:50001/lab?token=secret").close_when_read()
    assert list(pages.iterdir()) == []


@pytest.mark.parametrize("environ", [{"BROWSER": "/not/there %s"}, {}])
def test_without_a_browser_it_is_said(pages: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    import webbrowser

    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    # none of those that this machine has
    monkeypatch.setattr(webbrowser, "get", lambda using=None: webbrowser.GenericBrowser("/not/there"))
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    failed = threading.Event()
    opened = browser.Browser("http://127.0.0.1:50001/lab?token=secret", failed.set)
    assert failed.wait(30)
    opened.close()


def test_without_a_browser_nothing_is_waited_for(tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 1")
    began = time.monotonic()
    browser.Browser("http://127.0.0.1:50001/lab?token=secret").close_when_read()
    assert time.monotonic() - began < 5.0
    assert list(pages.iterdir()) == []


def test_pages_of_launchers_that_were_killed_are_taken_away(
    tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "exit 1")
    pages.mkdir(parents=True)
    left, other, theirs = (
        pages / name for name in ("launch-notebook-x1.html", "launch-notebook-x2.html", "notes.html")
    )
    for page in (left, other, theirs):
        page.write_text("token=secret")
    for page in (left, theirs):
        os.utime(page, (time.time() - 200, time.time() - 200))
    browser.Browser("http://127.0.0.1:50001/lab?token=secret").close_when_read()
    assert sorted(pages.iterdir()) == [other, theirs], "one that another launcher shows now stays"
