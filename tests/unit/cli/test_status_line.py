"""The line below the address while a session is attached."""

from __future__ import annotations

import dataclasses
import io
import re
import threading
from typing import Any

import pytest
from rich.console import Console

from notebook_launcher.cli.views import status_line
from notebook_launcher.cli.views.status_line import StatusLine, fitted
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.usage_samples import GpuSample

SESSION = "20261121-120000-k3f9"


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


def holding(left: int | None = 6130, **changes: Any) -> events.Attached:
    gpu = GpuSample("0", "A100", 87.0, 12595.0, 81920.0, 210.0)
    ends, sampled = "2026-11-21T14:00:00+01:00", "2026-11-21T12:00:00+00:00"
    return dataclasses.replace(events.Attached(SESSION, "7", ends, left, sampled, 3.2, 10445.0, (gpu,)), **changes)


GPUS = tuple(GpuSample(str(n), "A100", float(n), 1024.0, 81920.0, None) for n in range(8))


@pytest.mark.parametrize(
    ("event", "columns", "text"),
    [
        (holding(), 80, "1 h 42 min left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(), 200, "1 h 42 min left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(), 50, "1 h 42 min left · GPU 87 % · 12.3 of 80 GiB"),
        (holding(90000), 80, "1 day 1 h left · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=GPUS[2:4]), 80, "1 h 42 min left · GPUs 2 % 3 % · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=GPUS), 80, "1 h 42 min left · 8 GPUs 4 % · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(gpus=()), 80, "1 h 42 min left · CPU 3.2 cores · memory 10.2 GiB"),
        (
            holding(gpus=(dataclasses.replace(GPUS[0], percent=None, memory_mib=None),), memory_mib=None),
            80,
            "1 h 42 min left · CPU 3.2 cores",
        ),
        (holding(None), 80, "GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(0), 80, "the time is over · GPU 87 % · 12.3 of 80 GiB · CPU 3.2 cores · memory 10.2 GiB"),
        (holding(59, sampled=None, gpus=(), cpu_cores=None, memory_mib=None), 80, "59 s left"),
        (events.Attached(SESSION, "7", None, None), 80, ""),
    ],
)
def test_what_the_line_says(event: events.Attached, columns: int, text: str) -> None:
    line = StatusLine(Console(file=io.StringIO()), lambda: 0.0)
    line.update(event)
    assert line.text(columns - 1) == text


def test_the_line_counts_down_and_forgets_old_samples() -> None:
    now = 1000.0
    line = StatusLine(Console(file=io.StringIO()), lambda: now)
    line.update(holding(100))
    now += status_line.STALE
    assert line.text(79).startswith("40 s left · GPU")
    now += 1
    assert line.text(79) == "39 s left"
    line.update(holding(39))  # the end has moved; the sample is the same
    assert line.text(79) == "39 s left"


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


READY = events.Ready(SESSION, "7", "n1", "http://127.0.0.1:50001/lab?token=secret", 50001, started_here=True)


@pytest.mark.parametrize(
    ("started_here", "keys"),
    [
        (True, "ENTER or Ctrl-C ends the session and its job; d and ENTER detaches: it runs on."),
        (False, "ENTER ends the session and its job; Ctrl-C detaches: it runs on."),
    ],
)
def test_the_screen_names_every_key_that_ends_the_session_before_it_is_pressed(
    screen: Screen, started_here: bool, keys: str
) -> None:
    """On one line of a terminal of 80 columns: Ctrl-C ends the job, unlike in a terminal's other programs."""
    view = view_on(screen, columns=80)
    view.show(READY if started_here else dataclasses.replace(READY, started_here=False))
    assert keys in screen.lines
    view.__exit__(None, None, None)


@pytest.mark.parametrize(("scheduler", "said"), [("slurm", "Job 7 is queued;"), ("local", "Job 7 needs no queue;")])
def test_a_job_on_a_machine_without_a_queue_is_not_queued(scheduler: str, said: str) -> None:
    screen = io.StringIO()
    view = view_on(screen, tty=False)
    view.show(events.Submitted(SESSION, "7", None, scheduler, "2 hours", "/s"))
    first, waits = screen.getvalue().splitlines()
    assert first.startswith(said)
    assert ("scheduler" in waits) is (scheduler == "slurm")


@pytest.mark.parametrize(("job", "said"), [("7", " (job 7)."), (SESSION, ".")])
def test_a_session_whose_job_has_the_same_name_is_named_once(job: str, said: str) -> None:
    screen = io.StringIO()
    view_on(screen, tty=False).show(events.Detached(SESSION, job, "connect", "stop"))
    assert screen.getvalue().splitlines()[0] == f"Session {SESSION} keeps running without this terminal{said}"


@pytest.mark.parametrize("columns", [80, 200])
def test_the_line_stands_below_the_address_and_above_what_is_typed(screen: Screen, columns: int) -> None:
    screen.columns = columns
    view = view_on(screen, columns=columns)
    view.show(READY)
    view.show(holding())
    assert screen.lines[-2].startswith("1 h 42 min left") and screen.lines[-1] == ""
    screen.types("f 60")
    view.show(holding(5000))
    assert screen.lines[-2].startswith("1 h 23 min left") and screen.lines[-1] == "f 60"
    screen.types("06\n")
    view._line_typed()
    view.show(events.PortForwarded("n1", 6006, 6006, "http://port-6006.localhost:6006", "http://localhost:6006"))
    assert [line for line in screen.lines if line.startswith("1 h 23 min left")] == [screen.lines[-2]]
    assert screen.lines[-3:][0] == "Port 6006 of n1: http://port-6006.localhost:6006 or http://localhost:6006"
    assert screen.lines[-1] == "" and "f 6006" not in screen.lines
    view.show(events.Stopping("7"))
    assert not any("left" in line for line in screen.lines)
    view.__exit__(None, None, None)


def test_a_question_has_the_terminal_for_itself(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    with view.paused():
        assert not any("left ·" in line for line in screen.lines)
        view.show(holding(40))
        assert not any("left ·" in line for line in screen.lines)
    assert re.match(r"(40|39) s left ·", screen.lines[-2])
    view.__exit__(None, None, None)


def test_the_network_s_absence_stands_in_the_line(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    view.show(events.Disconnected("7", "nothing was heard for 7 s"))
    assert screen.lines[-2] == "network down, trying again (nothing was heard for 7 s); job 7 goes on"
    view.show(events.Reconnected("7", 12.0))
    assert screen.lines[-3] == "Connected again, after 12 s. The address is the same."
    assert screen.lines[-2].startswith("1 h 42 min left")
    view.__exit__(None, None, None)


@pytest.mark.parametrize("reason", ["it begins later", "the nodes that it could use are down, " * 4])
def test_the_waiting_line_is_there_again_after_enter(screen: Screen, reason: str) -> None:
    view = view_on(screen)
    view.show(events.Pending("7", "PENDING", "BeginTime", reason))
    screen.types("hlep\n")
    view._line_typed()
    view.show(events.Note("Ctrl-C cancels the job."))
    assert screen.lines[0] == "Ctrl-C cancels the job."
    assert "job 7 waits" in " ".join(screen.lines[1:3]) and "job 7 waits" not in " ".join(screen.lines[3:])
    view.__exit__(None, None, None)
    assert screen.lines[0] == "Ctrl-C cancels the job." and not any(screen.lines[1:])


def test_a_suspended_job_and_a_requeued_one(screen: Screen) -> None:
    view = view_on(screen)
    view.show(READY)
    view.show(holding())
    view.show(events.Pending("7", "PENDING", "BeginTime", "it begins later"))
    assert view._status_line is None
    view.__exit__(None, None, None)
    assert not any("left ·" in line for line in screen.lines)


GO_ON = f"launch-notebook {'-t 2:00:00 ' * 12}--gpus 1"


URL = "http://localhost:8888/lab?token=secret"
WARNING = events.TimeLeft(SESSION, "7", "2026-11-21T14:00:00+01:00", 300, GO_ON)


def test_a_warning_in_a_terminal_rings_once_and_keeps_the_line(screen: Screen) -> None:
    screen.columns = 400  # the command is folded by the terminal alone
    view = view_on(screen)
    view.show(READY)
    view.show(holding(300))
    view.show(WARNING)
    assert screen.lines[-4].startswith("5 min left: job 7 ends at ")
    assert screen.lines[-3].endswith(WARNING.relaunch_command)
    assert screen.lines[-2].startswith("5 min left") or screen.lines[-2].startswith("4 min left")
    assert screen.bells == 1
    view.__exit__(None, None, None)


def test_a_warning_names_the_next_job_if_one_is_queued(screen: Screen) -> None:
    screen.columns = 400
    view = view_on(screen, columns=200)
    view.show(events.Renewed("s2", "8", SESSION, None, WARNING.ends, "2 hours"))
    view.show(WARNING)
    text = "\n".join(screen.lines)
    assert "5 min left: job 8 continues at the same address. Save what you need; its kernels are new." in text
    assert "start the same again" not in text
    view.show(events.NextJobGone("s2", "8", SESSION, "It is gone."))
    view.show(WARNING)
    assert any(line.startswith("  start the same again") for line in screen.lines)
    view.__exit__(None, None, None)


def test_the_address_of_the_user_s_own_jupyterlab_stays_above_the_line(screen: Screen) -> None:
    view = view_on(screen)
    view.show(holding(3500))
    view.show(events.LocalLabReady(SESSION, "7", "n1", URL))
    view.show(holding(3400))
    assert screen.lines[-3] == URL
    assert "left" in screen.lines[-2]
    assert sum("min left" in line for line in screen.lines) == 1
    view.__exit__(None, None, None)


@pytest.mark.parametrize("verbose", [True, False])
def test_without_a_terminal_there_are_sentences_only(verbose: bool) -> None:
    out = io.StringIO()
    view = view_on(out, tty=False, verbose=verbose)
    for event in (READY, holding(), holding(400), WARNING, events.Idle(SESSION, "7", "Nobody uses it.", None)):
        view.show(event)
    view.__exit__(None, None, None)
    text = out.getvalue()
    assert "5 min left: job 7 ends at" in text and WARNING.relaunch_command in text and "Nobody uses it." in text
    assert "GPU" not in text and "\x1b" not in text and "\a" not in text


def test_a_verbose_terminal_has_no_line(screen: Screen) -> None:
    screen.columns = 400
    view = view_on(screen, verbose=True)
    view.show(holding())
    view.show(WARNING)
    assert "5 min left" in "".join(screen.lines) and "GPU 87" not in "".join(screen.lines)


@pytest.mark.parametrize(("left", "colour"), [(6130, ""), (899, "33"), (299, "31")])
def test_the_last_minutes_have_colours_where_these_are_wanted(
    left: int, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def drawn() -> str:
        out = io.StringIO()
        line = StatusLine(Console(file=out, width=80, force_terminal=True), lambda: 0.0)
        line.update(holding(left))
        line.show()
        line.abandon()
        return out.getvalue()

    assert (f"{colour}m" in drawn()) if colour else not re.search(r"3[13]m", drawn())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"3[13]m", drawn())


def test_a_hang_up_may_come_while_the_line_is_taken_away() -> None:
    line = StatusLine(Console(file=io.StringIO(), width=80, force_terminal=True), lambda: 0.0)
    abandoned = threading.Event()

    def hung_up_in_the_middle() -> None:
        with line._over._cond:  # as in Event.set(), which a second one of the same thread would wait for
            line.abandon()
            abandoned.set()

    threading.Thread(target=hung_up_in_the_middle, daemon=True).start()
    assert abandoned.wait(30)
