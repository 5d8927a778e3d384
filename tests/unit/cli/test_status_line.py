"""While a session is held: which warnings come when, the line in the terminal, notifications, the page of ``open``."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import socket
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from notebook_launcher.cli.commands.forward import _ports_and_session
from notebook_launcher.cli.views import browser
from notebook_launcher.cli.views import notifications as notifying
from notebook_launcher.cli.views import status_line as held
from notebook_launcher.cli.views import text_view as views
from notebook_launcher.cli.views.notifications import (
    Notifier,
    command_for,
    in_words,
    worth_telling,
    worth_telling_at_the_end,
)
from notebook_launcher.cli.views.status_line import HeldLine, fitted
from notebook_launcher.cli.views.text_view import JsonView, TextView
from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import CancelFailed, Interrupted, JobTimedOut, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.usage_samples import GpuSample, Sample
from notebook_launcher.planning.plan import Place
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import Session, SessionRecord
from notebook_launcher.supervision.attached_status import Holding

THERE = timezone(timedelta(hours=1))
BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=THERE)
SESSION = "20261121-120000-k3f9"


# --- what is known of the time, and told ---------------------------------------------------------------------


class Held:
    """A session that runs since ``BEGAN``, and a clock that is set by hand."""

    def __init__(
        self,
        walltime: str = "2:00:00",
        command: str | None = "-t 2:00:00 --gpus 1",
        launched_from: str | None = None,
    ) -> None:
        self.shown: list[events.Event] = []
        self.now = BEGAN
        record = SessionRecord(
            id=SESSION,
            created=BEGAN,
            scheduler="slurm",
            flags={"time": walltime},
            log="/log",
            command=command,
            launched_from=launched_from,
        )
        stage = SimpleNamespace(
            clock=lambda: self.now,
            view=SimpleNamespace(show=self.shown.append),
            place=Place(ClusterProfile(), "uni", None, "slurm"),
        )
        self.holding = Holding(cast(Any, stage), Session(record, "/sessions/it", JobRef("7")))

    def begins(self, minutes: float = 0.0) -> None:
        """It is held from so many minutes after its start on."""
        self.now = BEGAN + timedelta(minutes=minutes)
        self.holding.runs({"started": BEGAN.astimezone(timezone.utc).isoformat()})
        self.holding.begins()

    def passes(self, until: float, step: float = 1.0) -> None:
        """Let the time pass until so many minutes after its start."""
        end = BEGAN + timedelta(minutes=until)
        while self.now < end:
            self.now += timedelta(seconds=step)
            self.holding.look()

    def says(self, walltime: str | None = None, start: str = "2026-11-21T12:00:00") -> None:
        """The scheduler tells."""
        self.holding.status(JobStatus(JobRef("7"), State.RUNNING, start=start, walltime=walltime))
        self.holding.look()

    @property
    def left(self) -> list[int]:
        """With how many seconds left there was a warning."""
        return [event.seconds_left for event in self.shown if isinstance(event, events.TimeLeft)]

    @property
    def told(self) -> list[events.Holding]:
        return [event for event in self.shown if isinstance(event, events.Holding)]


@pytest.mark.parametrize(
    ("walltime", "warnings"),
    [
        ("2:00:00", [900, 300, 60]),
        ("20", [900, 300, 60]),
        ("19", [300, 60]),
        ("10", [300, 60]),
        ("6", [60]),
        ("2", [60]),
        ("1", []),
        ("unlimited", []),
    ],
)
def test_each_warning_comes_once_and_none_at_the_start(walltime: str, warnings: list[int]) -> None:
    session = Held(walltime)
    session.begins(0.1)
    session.passes(125, step=1.0)
    assert session.left == warnings


@pytest.mark.parametrize(
    ("minutes", "first"),
    [(100, 900), (106, 840), (112, 480), (116, 240), (119, 60), (119.5, 30)],
)
def test_who_comes_back_late_gets_the_one_warning_that_fits(minutes: float, first: int) -> None:
    session = Held()
    session.begins(minutes)
    session.passes(121)
    assert session.left == [first, *(left for left in (900, 300, 60) if left < first)]


def test_a_session_whose_time_is_over_is_not_warned() -> None:
    session = Held()
    session.begins(121)
    session.passes(122)
    assert session.left == []


def test_a_laptop_that_slept_gets_the_one_warning_that_fits() -> None:
    session = Held()
    session.begins()
    session.passes(118, step=118 * 60)
    assert session.left == [120]


def test_a_warning_tells_when_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "launch-notebook").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    session = Held("20")
    session.begins(19.5)
    warning = session.shown[-1]
    assert warning == events.TimeLeft(
        SESSION, "7", "2026-11-21T12:20:00+01:00", 30, "launch-notebook -t 2:00:00 --gpus 1"
    )
    older = Held("20", command=None)
    older.begins(19.5)
    assert cast(Any, older.shown[-1]).go_on == "launch-notebook --cluster uni -t 20"
    elsewhere = Held("20", command="--cluster mine -t 20", launched_from="far-away")  # whose profiles are not ours
    elsewhere.begins(minutes=10)
    assert cast(Any, elsewhere.shown[-1]).go_on == "on far-away: launch-notebook --cluster mine -t 20"
    here = Held("20", command="--cluster mine -t 20", launched_from=socket.gethostname())
    here.begins(minutes=10)
    assert cast(Any, here.shown[-1]).go_on == "launch-notebook --cluster mine -t 20"


def test_a_walltime_that_is_changed_is_noticed() -> None:
    session = Held()
    session.begins(110)
    assert session.left == [600]
    session.says("4:00:00")
    assert session.told[-1].ends == "2026-11-21T16:00:00+01:00"
    assert session.told[-1].seconds_left == 130 * 60
    session.passes(241, step=5)
    assert session.left == [600, 900, 300, 60]
    session.says("UNLIMITED")
    assert session.told[-1].ends is None


def test_an_end_that_moves_by_seconds_warns_once() -> None:
    session = Held()
    session.begins(105)
    session.says("2:00:00", start="2026-11-21T12:00:04")
    session.passes(106)
    assert session.left == [900]


def test_the_scheduler_s_start_counts_before_the_job_s() -> None:
    """The job's script began a minute after its walltime did: a slow prolog."""
    session = Held("30")
    session.begins(1)
    session.says("30:00", start="2026-11-21T11:59:00")
    assert [event.ends for event in session.told] == ["2026-11-21T12:30:00+01:00", "2026-11-21T12:29:00+01:00"]


def test_nothing_is_shown_before_it_is_held_nor_after_a_requeue() -> None:
    session = Held("10")
    session.holding.runs({"started": BEGAN.isoformat()})
    session.passes(9)
    assert session.shown == []
    session.holding.begins()
    assert session.left == [60]
    session.holding.waits_again()
    session.passes(30)
    assert len(session.shown) == 2
    assert session.holding.patience() is None


def sample(at: datetime, percent: float = 87.0) -> Sample:
    gpu = GpuSample("0", "A100", percent, 12595.0, 81920.0, 210.0)
    return Sample(at, 60.0, 3.2, 10445.0, (gpu,))


def test_samples_are_passed_on_as_they_come() -> None:
    session = Held()
    session.begins(1)
    for second in (5, 10):
        session.now += timedelta(seconds=5)
        session.holding.sampled(sample(session.now, percent=second))
        session.holding.look()
        session.holding.look()
    assert [event.gpus[0].percent if event.gpus else None for event in session.told] == [None, 5, 10]
    last = session.told[-1]
    assert last.gpus[0] == GpuSample("0", "A100", 10, 12595.0, 81920.0, 210.0)
    assert (last.cpu_cores, last.memory_mib, last.seconds_left) == (3.2, 10445.0, 7130)


def test_an_old_sample_is_none() -> None:
    """Who comes back to a session whose samples have stopped is told the last one by its file."""
    session = Held()
    session.begins(30)
    session.holding.sampled(sample(session.now - timedelta(seconds=61)))
    session.holding.look()
    assert [event.sampled for event in session.told] == [None]


def test_idleness_is_told_once_and_taken_back() -> None:
    session = Held()
    told = {"message": "Nobody has used it for 25 minutes.", "ends": "2026-11-21T11:35:00Z"}
    session.holding.runs({"started": BEGAN.isoformat()})
    session.holding.idle(told)
    assert session.shown == []
    session.begins()
    session.passes(1)
    idle = [event for event in session.shown if isinstance(event, events.Idle)]
    assert idle == [events.Idle(SESSION, "7", "Nobody has used it for 25 minutes.", "2026-11-21T12:35:00+01:00")]
    session.holding.idle(None)
    session.passes(2)
    assert isinstance(session.shown[-1], events.Noted)
    session.holding.idle(told)
    session.passes(3)
    assert session.shown[-1] == idle[0]


# --- the line ------------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A terminal of some columns that keeps what stands on it; it echoes what is typed, as a real one does."""

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns, self.lines, self.row, self.column, self.kept = columns, [""], 0, 0, (0, 0)
        self.bells = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[78]|\x1b\].*?\x07|.", text, re.S):
            self._obey(part)
        return len(text)

    types = write

    def _obey(self, part: str) -> None:
        if part == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif part in ("\r", "\x1b[1G"):
            self.column = 0
        elif part == "\a":
            self.bells += 1
        elif part == "\x1b7":
            self.kept = self.row, self.column
        elif part == "\x1b8":
            self.row, self.column = self.kept
        elif part == "\x1b[1A":
            self.row -= 1
        elif part in ("\x1b[2K", "\x1b[0J"):
            self.lines[self.row] = "" if part == "\x1b[2K" else self.lines[self.row][: self.column]
            if part == "\x1b[0J":
                self.lines[self.row + 1 :] = []
        elif not part.startswith("\x1b"):
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
            self.column += 1
            assert self.column <= self.columns, "the line is folded, and would not be redrawn rightly"


def holding(left: int | None = 6130, **changes: Any) -> events.Holding:
    gpu = GpuSample("0", "A100", 87.0, 12595.0, 81920.0, 210.0)
    ends, sampled = "2026-11-21T14:00:00+01:00", "2026-11-21T12:00:00+00:00"
    return dataclasses.replace(events.Holding(SESSION, "7", ends, left, sampled, 3.2, 10445.0, (gpu,)), **changes)


GPUS = tuple(GpuSample(str(n), "A100", float(n), 1024.0, 81920.0, None) for n in range(8))


@pytest.mark.parametrize(
    ("event", "columns", "text"),
    [
        (holding(), 80, "1:42:10 left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(), 200, "1:42:10 left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(), 50, "1:42:10 left · GPU 87 % · 12.3 of 80 GiB"),
        (holding(90000), 80, "25:00:00 left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=GPUS[2:4]), 80, "1:42:10 left · GPUs 2 % 3 % · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=GPUS), 80, "1:42:10 left · 8 GPUs 4 % · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=()), 80, "1:42:10 left · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=(dataclasses.replace(GPUS[0], percent=None, memory_mib=None),), memory_mib=None), 80,
         "1:42:10 left · CPU 3.2 cores"),
        (holding(None), 80, "GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(0), 80, "the time is over · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(59, sampled=None, gpus=(), cpu_cores=None, memory_mib=None), 80, "0:59 left"),
        (events.Holding(SESSION, "7", None, None), 80, ""),
    ],
)  # fmt: skip
def test_what_the_line_says(event: events.Holding, columns: int, text: str) -> None:
    line = HeldLine(Console(file=io.StringIO()), lambda: 0.0)
    line.tell(event)
    assert line.text(columns - 1) == text


def test_the_line_counts_down_and_forgets_old_samples() -> None:
    now = 1000.0
    line = HeldLine(Console(file=io.StringIO()), lambda: now)
    line.tell(holding(100))
    now += held.STALE
    assert line.text(79).startswith("0:40 left · GPU")
    now += 1
    assert line.text(79) == "0:39 left"
    line.tell(holding(39))  # the end has moved; the sample is the same
    assert line.text(79) == "0:39 left"


def test_what_does_not_fit_is_left_out() -> None:
    assert fitted(["a network that is down", "1:00 left"], 12) == "a network t…"
    assert fitted(["", "1:00 left", "much"], 12) == "1:00 left"
    assert fitted([], 12) == ""


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


def view_on(screen: io.StringIO, *, columns: int = 80, verbose: bool = False, tty: bool = True) -> TextView:
    console = Console(file=screen, width=columns, force_terminal=tty, highlight=False)
    return TextView(console, verbose=verbose, interactive=True)


READY = events.Ready(SESSION, "7", "n1", "http://127.0.0.1:50001/lab?token=secret", 50001)


@pytest.mark.parametrize("columns", [80, 200])
def test_the_line_stands_below_the_address_and_above_what_is_typed(screen: Screen, columns: int) -> None:
    screen.columns = columns
    view = view_on(screen, columns=columns)
    view.show(READY)
    view.show(holding())
    assert screen.lines[-2].startswith("1:42:") and screen.lines[-1] == ""
    screen.types("f 60")
    view.show(holding(5000))
    assert screen.lines[-2].startswith("1:23:") and screen.lines[-1] == "f 60"
    screen.types("06\n")
    view._line_typed()
    view.show(events.Forwarded("n1", 6006, 6006))
    assert [line for line in screen.lines if line.startswith("1:23:")] == [screen.lines[-2]]
    assert screen.lines[-3:][0] == "Port 6006 of n1: http://127.0.0.1:6006"
    assert screen.lines[-1] == "" and "f 6006" not in screen.lines
    view.show(events.Ending("7"))
    assert not any("left" in line for line in screen.lines if "leaves" not in line)
    view.__exit__(None, None, None)


def test_a_question_has_the_terminal_for_itself(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    with view.paused():
        assert not any("left ·" in line for line in screen.lines)
        view.show(holding(100))
        assert not any("left ·" in line for line in screen.lines)
    assert re.match(r"1:(40|39) left ·", screen.lines[-2])
    view.__exit__(None, None, None)


def test_the_network_s_absence_stands_in_the_line(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    view.show(events.Disconnected("7", "nothing was heard for 7 s"))
    assert screen.lines[-2] == "network down, trying again (nothing was heard for 7 s); job 7 goes on"
    view.show(events.Reconnected("7", 12.0))
    assert screen.lines[-3] == "Connected again, after 12 s. The address is the same."
    assert screen.lines[-2].startswith("1:42:")
    view.__exit__(None, None, None)


def test_a_suspended_job_and_a_requeued_one(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    view.show(events.Waiting("7", "PENDING", "BeginTime", "it begins later"))
    assert view._held is None
    view.__exit__(None, None, None)
    assert not any("left ·" in line for line in screen.lines)


GO_ON = f"launch-notebook {'-t 2:00:00 ' * 12}--gpus 1"
WARNING = events.TimeLeft(SESSION, "7", "2026-11-21T14:00:00+01:00", 300, GO_ON)


def test_a_warning_in_a_terminal_rings_once_and_keeps_the_line(screen: Screen) -> None:
    screen.columns = 400  # the command is folded by the terminal alone
    view = view_on(screen)
    view.show(READY)
    view.show(holding(300))
    view.show(WARNING)
    assert screen.lines[-4].startswith("5 minutes left: job 7 ends at ")
    assert screen.lines[-3].endswith(WARNING.go_on)
    assert screen.lines[-2].startswith("5:00 left") or screen.lines[-2].startswith("4:59 left")
    assert screen.bells == 1
    view.__exit__(None, None, None)


@pytest.mark.parametrize("verbose", [True, False])
def test_without_a_terminal_there_are_sentences_only(verbose: bool) -> None:
    out = io.StringIO()
    view = view_on(out, tty=False, verbose=verbose)
    for event in (READY, holding(), holding(400), WARNING, events.Idle(SESSION, "7", "Nobody uses it.", None)):
        view.show(event)
    view.__exit__(None, None, None)
    text = out.getvalue()
    assert "5 minutes left: job 7 ends at" in text and WARNING.go_on in text and "Nobody uses it." in text
    assert "GPU" not in text and "\x1b" not in text and "\a" not in text


def test_a_verbose_terminal_has_no_line(screen: Screen) -> None:
    screen.columns = 400
    view = view_on(screen, verbose=True)
    view.show(holding())
    view.show(WARNING)
    assert "5 minutes left" in "".join(screen.lines) and "GPU 87" not in "".join(screen.lines)


@pytest.mark.parametrize(("left", "colour"), [(6130, ""), (899, "33"), (299, "31")])
def test_the_last_minutes_have_colours_where_these_are_wanted(
    left: int, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def drawn() -> str:
        out = io.StringIO()
        line = HeldLine(Console(file=out, width=80, force_terminal=True), lambda: 0.0)
        line.tell(holding(left))
        line.show()
        line.abandon()
        return out.getvalue()

    assert (f"{colour}m" in drawn()) if colour else not re.search(r"3[13]m", drawn())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"3[13]m", drawn())


# --- notifications -------------------------------------------------------------------------------------------


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
        "5 minutes left: job 7 ends then.",
        "--help &lt;b&gt;$(reboot)&lt;/b&gt;",
        "Job 7 reached its walltime of 2 hours.",
    ]
    assert "token" not in desktop.read_text() and "secret" not in desktop.read_text()


def test_what_the_user_does_is_not_news() -> None:
    assert worth_telling(events.Ended(SESSION, "7", "Job 7 is gone.")) is None
    assert worth_telling(events.Ended(SESSION, "7", "JupyterLab was shut down.", by_itself=True))
    assert worth_telling_at_the_end(Interrupted("x")) is worth_telling_at_the_end(CancelFailed("x")) is None
    assert worth_telling_at_the_end(KeyboardInterrupt()) is worth_telling_at_the_end(None) is None


def test_a_desktop_that_hangs_holds_nothing_up(desktop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (desktop.parent / "bin" / "notify-send").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(notifying, "GONE_WITHIN", 0.3)
    notifier = Notifier(pytest.fail, None)
    began = time.monotonic()
    notifier.tell("one")
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
    notifier.tell("five \x1b]0;title\x07minutes\x07\nleft")
    notifier.tell("one minute left")
    assert written == ["\x1b]9;launch-notebook: five minutes left\x07", "\x1b]9;launch-notebook: one minute left\x07"]
    assert len(sentences) == 1 and "notify-send" in sentences[0]
    Notifier(sentences.append, None).tell("no terminal either")
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


def test_times_in_words() -> None:
    assert [in_words(n) for n in (900, 300, 61, 60, 50, 40)] == [
        "15 minutes", "5 minutes", "1 minute", "1 minute", "1 minute", "40 seconds",
    ]  # fmt: skip


# --- the page that leads a browser ---------------------------------------------------------------------------


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


def test_the_page_stays_until_a_slow_browser_has_read_it(
    tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "AFTER_READING", (4.0, 0.2))
    seen = stand_in(tmp_path, monkeypatch, 'head -c1 "$page" >/dev/null; sleep 1; cat "$page"')
    began = time.monotonic()
    opened = browser.Browser("http://127.0.0.1:50001/lab?token=secret")
    assert [path.stat().st_mode & 0o777 for path in pages.iterdir()] == [0o600]
    opened.close_when_read()
    assert "token=secret" in seen.read_text()
    assert 1.0 <= time.monotonic() - began < 5.0
    assert list(pages.iterdir()) == []


def test_a_page_that_nobody_reads_does_not_stay(tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "sleep 1")
    monkeypatch.setattr(browser, "READ_WITHIN", 0.3)
    browser.Browser("http://127.0.0.1:50001/lab?token=secret").close_when_read()
    assert list(pages.iterdir()) == []


def test_without_a_browser_nothing_is_waited_for(tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 1")
    began = time.monotonic()
    browser.Browser("http://127.0.0.1:50001/lab?token=secret").close_when_read()
    assert time.monotonic() - began < 5.0
    assert list(pages.iterdir()) == []


# --- what this machine keeps while it holds a session ----------------------------------------------------------


def test_who_holds_a_session_here_is_found(tmp_path: Path) -> None:
    assert state.held_ports(SESSION) == [] and state.last_port(SESSION) == 0
    state.note_held(SESSION, 50001)
    assert state.held_ports(SESSION) == [50001] and state.last_port(SESSION) == 50001
    assert state.held_ports("20261121-120000-abcd") == []
    kept = list(state.state_folder().glob("held-*"))
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]
    assert "token" not in kept[0].read_text()
    state.forget_held(SESSION)
    assert state.held_ports(SESSION) == [] and state.last_port(SESSION) == 50001
    state.forget_held(SESSION)


def test_what_a_dead_launcher_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    monkeypatch.setattr(os, "getpid", lambda: dead.pid)
    state.note_held(SESSION, 50001)
    assert state.held_ports(SESSION) == []
    assert list(state.state_folder().glob("held-*")) == []


@pytest.mark.skipif(not Path("/proc/net/tcp").exists() or os.getuid() != 0, reason="another user's port needs root")
@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_a_port_that_is_another_user_s_by_now_is_not_ours(address: str) -> None:
    """The launcher was killed, its number is another process's, and so is its port: it would get the token."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        state.note_held(SESSION, port)
        os.fchown(listener.fileno(), 65534, 65534)
        listener.listen()
        assert state.held_ports(SESSION) == []
        state.note_held(SESSION, port)
        os.fchown(listener.fileno(), os.getuid(), os.getgid())
        assert state.held_ports(SESSION) == [port]


def test_another_login_node_s_launcher_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a home folder, and so may share this one."""
    monkeypatch.setattr("socket.gethostname", lambda: "login2")
    state.note_held(SESSION, 50001)
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    assert state.held_ports(SESSION) == []
    state.forget_port(SESSION, 50001)
    assert len(list(state.state_folder().glob("held-*"))) == 1


def test_ports_of_old_sessions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_PORTS", 3)
    names = [f"2026112{day}-120000-abcd" for day in range(5)]
    for number, name in enumerate(names):
        state.note_held(name, 50000 + number)
    assert [state.last_port(name) for name in names] == [0, 0, 50002, 50003, 50004]


# --- the words of forward ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ports", "session"),
    [
        (["6006"], [(6006, 0)], ""),
        (["6006", "8787:18787"], [(6006, 0), (8787, 18787)], ""),
        (["6006", "8787", "k3f9"], [(6006, 0), (8787, 0)], "k3f9"),
        (["6006", "20261121"], [(6006, 0)], "20261121"),
        (["6006", SESSION], [(6006, 0)], SESSION),
    ],
)
def test_ports_come_first_and_then_the_session(words: list[str], ports: object, session: str) -> None:
    assert _ports_and_session(words) == (ports, session)


@pytest.mark.parametrize("words", [[], ["k3f9"], ["k3f9", "6006"], ["6006", "0", "7"], ["1:2:3", "k3f9"], ["a", "b"]])
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        _ports_and_session(words)


@pytest.mark.parametrize("words", [["99999"], ["8000:70000"], ["6006", "8000:70000"], ["8000:0", "k3f9"]])
def test_a_number_that_no_port_has_is_named(words: list[str]) -> None:
    with pytest.raises(UsageError, match="is not a port") as caught:
        _ports_and_session(words)
    assert "1 to 65535" in caught.value.why


def test_a_command_below_a_note_is_folded_by_the_terminal_alone() -> None:
    command = f"  launch-notebook connect --cluster {'x' * 60} k3f9"
    shown = io.StringIO()
    with TextView(Console(file=shown, width=80, force_terminal=True, color_system=None)) as view:
        view.show(events.Noted(f"Come back to it with:\n{command}"))
    assert f"Come back to it with:\n{command}\n" in shown.getvalue()


def test_the_views_module_is_what_commands_use() -> None:
    assert isinstance(views.make_view(as_json=True, notify=False), JsonView)
