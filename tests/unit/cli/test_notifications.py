"""Notifications on the desktop."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from notebook_launcher.cli.views import notifications
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.notifications import (
    Notifier,
    command_for,
    notification_of_error,
    notification_of_event,
)
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.errors import CancelFailed, Interrupted, JobTimedOut
from tests.unit.cli.test_status_line import READY, WARNING, holding

SESSION = "20261121-120000-k3f9"


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in ``notify-send`` on the PATH; what it was given lies in the file, a line for each argument."""
    told = tmp_path / "told"
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done >>{told}\necho =END= >>{told}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    told.touch()
    return told


def said(desktop: Path) -> list[list[str]]:
    return [part.splitlines() for part in desktop.read_text().split("=END=\n")[:-1]]


@pytest.mark.parametrize("kind", [TextView, JsonView])
def test_the_desktop_is_told_what_matters_and_no_address(
    kind: type, desktop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = JsonView(notify=True) if kind is JsonView else TextView(Console(file=io.StringIO()), notify=True)
    with pytest.raises(JobTimedOut), view:
        view.show(events.Submitted(SESSION, "7", None, "slurm", "2 hours", "/s"))
        for event in (READY, holding(), WARNING, events.Idle(SESSION, "7", "--help <b>$(reboot)</b>", None)):
            view.show(event)
            time.sleep(0.15)  # they are not told one after the other for certain
        raise JobTimedOut("Job 7 reached its walltime of 2 hours.")
    words = said(desktop)
    assert [line[:3] for line in words] == [["--app-name=launch-notebook", "--", "launch-notebook"]] * 4
    assert [line[3] for line in words] == [
        "JupyterLab is ready on n1.",
        "5 min left: job 7 ends then.",
        "--help &lt;b&gt;$(reboot)&lt;/b&gt;",
        "Job 7 reached its walltime of 2 hours.",
    ]
    assert "token" not in desktop.read_text() and "secret" not in desktop.read_text()


def test_what_the_user_does_is_not_news() -> None:
    assert notification_of_event(events.Ended(SESSION, "7", "Job 7 has ended.")) is None
    assert notification_of_event(events.Ended(SESSION, "7", "JupyterLab was shut down.", by_itself=True))
    assert notification_of_error(Interrupted("x")) is notification_of_error(CancelFailed("x")) is None
    assert notification_of_error(KeyboardInterrupt()) is notification_of_error(None) is None


def test_a_desktop_that_hangs_holds_nothing_up(desktop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (desktop.parent / "bin" / "notify-send").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(notifications, "GONE_WITHIN", 0.3)
    notifier = Notifier(pytest.fail, None)
    began = time.monotonic()
    notifier.send("one")
    process = notifier._running[0]
    assert time.monotonic() - began < 5.0
    notifier.close()
    assert time.monotonic() - began < 10.0
    assert process.returncode == -9


def test_without_a_desktop_the_terminal_is_told_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    sentences: list[str] = []
    written: list[str] = []
    notifier = Notifier(sentences.append, written.append)
    notifier.send("five \x1b]0;title\x07minutes\x07\nleft")
    notifier.send("one minute left")
    assert written == ["\x1b]9;launch-notebook: five minutes left\x07", "\x1b]9;launch-notebook: one minute left\x07"]
    assert len(sentences) == 1 and "notify-send" in sentences[0]
    Notifier(sentences.append, None).send("no terminal either")
    assert len(sentences) == 2


@pytest.mark.parametrize(("platform", "name"), [("darwin", "osascript"), ("win32", "powershell")])
def test_elsewhere_the_text_is_data_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    (tmp_path / name).touch(0o755)
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    text = '-e "do shell script \\"reboot\\"" $(reboot)'
    found = command_for(platform, text)
    assert found is not None
    argv, env = found
    if platform == "darwin":
        assert argv[-2:] == ["launch-notebook", text] and argv[-3] == "end run"
        assert all("reboot" not in word for word in argv[:-1])
    else:
        assert env["NBL_TEXT"] == text and all("reboot" not in word for word in argv)
