"""``classroom watch`` with doubles of Slurm's commands: what is shown, written and served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from notebook_launcher.classroom.watch import WatchOptions, _Watching
from notebook_launcher.cli.app import run
from notebook_launcher.cli.views.classroom import ClassroomView, _picture
from notebook_launcher.core.errors import AuthenticationFailed, ConnectionLost
from notebook_launcher.core.events import ClassEnded, ClassPage, ClassSeen, StudentNow
from tests.doubles import RecordingView
from tests.unit.classroom.conftest import LAB, Cluster, context_of, row
from tests.unit.classroom.test_page import seen

SQUEUE = """\
mark=$(echo "$*" | sed -n 's/.*JobID:20|\\([0-9a-f]*\\)|.*/\\1/p')
times='2026-11-24T13:00:00+0000|2036-11-24T14:00:00+0000|1:00:00'
echo "7|$mark|alice|RUNNING|gpu|gpu1|$times|proj1|lab1|cpu=1|N/A|N/A|N/A|1|1|0:0|None|lab|"
"""


def test_one_look_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, body in (("squeue", SQUEUE), ("sbatch", ""), ("sacct", ""), ("sinfo", ""), ("scontrol", "")):
        (bin_ / name).write_text(f"#!/bin/sh\n{body}")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_), prepend=":")
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    (tmp_path / "students.csv").write_text("alice,Alice\nbob,<b>Bob</b>\n")
    page = tmp_path / "class.html"
    words = ["classroom", "watch", "--once", "--html", str(page), str(tmp_path / "students.csv"), "--account", "proj1"]
    assert run([*words, "--json"]) == 0
    event = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert event["event"] == "class" and event["counts"] == {"not_started": 1, "running": 1}
    assert "Alice (alice)" in page.read_text() and "&lt;b&gt;Bob&lt;/b&gt; (bob)" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    assert run(words) == 0
    assert "Alice (alice)" in capsys.readouterr().out
    assert run(["classroom", "watch", "--once"]) == 2, "nobody is named"
    assert run([*words, "--every", "1"]) == 2
    assert run(["classroom", "check", str(tmp_path / "students.csv"), "--for", "unlimited"]) == 2


def watching(slurm: Cluster, view: RecordingView, **options: object) -> _Watching:
    return _Watching(context_of(slurm, view), LAB, WatchOptions(**options))  # type: ignore[arg-type]


def test_it_goes_on_until_somebody_wants_it_over(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING")]
    context = context_of(slurm, view := RecordingView())
    got: list[ClassSeen] = []

    def interrupt(_argv: list[str]) -> None:
        raise KeyboardInterrupt

    def act(seen: ClassSeen) -> None:
        got.append(seen)
        context.host.answer = interrupt  # type: ignore[attr-defined]

    with pytest.raises(KeyboardInterrupt):  # at once, also while the login node is asked
        _Watching(context, LAB, WatchOptions(every=0)).go_on(act)
    assert got == view.all(ClassSeen) and len(got) == 1


def test_what_was_seen_last_is_shown_while_the_login_node_is_away(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING")]
    context = context_of(slurm, RecordingView())
    one = _Watching(context, LAB, WatchOptions())
    one.update()
    context.host.answer = ConnectionLost("The connection to login is lost.")  # type: ignore[attr-defined]
    shown = one._update_if_possible()
    assert shown.problem == "The connection to login is lost. It is tried again; these are the last known states."
    assert shown.counts == {"not_started": 1, "running": 1}
    context.host.answer, context.host.reconnect = slurm.answer, lambda: None  # type: ignore[attr-defined,method-assign]
    assert one._update_if_possible().problem == ""


@pytest.mark.parametrize(("asks", "logins"), [(False, 5), (True, 1)])
def test_a_login_that_is_refused_again_and_again_is_the_end(slurm: Cluster, asks: bool, logins: int) -> None:
    slurm.rows = [row("7", "alice", "RUNNING")]
    context = context_of(slurm, RecordingView())
    one = _Watching(context, LAB, WatchOptions())
    one.update()
    tried: list[None] = []

    def refuse() -> None:
        tried.append(None)
        if asks:
            context.prompts.secret("Code: ")
        raise AuthenticationFailed("login does not let you in.")

    context.host.answer, context.host.reconnect = ConnectionLost("It broke."), refuse  # type: ignore[attr-defined,method-assign]
    one._update_if_possible()
    context.host.alive = False  # type: ignore[misc]
    with pytest.raises(AuthenticationFailed):
        for _ in range(20):
            one._update_if_possible()
    assert len(tried) == logins


@pytest.mark.parametrize(("columns", "count"), [(80, 0), (80, 1), (80, 40), (200, 40), (200, 300)])
def test_a_terminal_of_any_width(columns: int, count: int) -> None:
    console = Console(width=columns, height=50, force_terminal=True, color_system=None, emoji=False)
    with console.capture() as captured:
        console.print(_picture(seen(count), console))
    lines = captured.get().splitlines()
    assert all(len(line.rstrip()) <= columns for line in lines) and len(lines) <= 50
    assert any(line.startswith("gpulab: ") for line in lines)
    assert ("Node" in "".join(lines)) is (columns >= 120 and count > 0)
    assert any("and " in line and " more" in line for line in lines) is (count == 300)


def test_a_small_terminal_shows_more_students_rather_than_whole_sentences() -> None:
    console = Console(width=80, height=24, force_terminal=True, color_system=None, emoji=False)
    many = tuple(
        StudentNow(f"u{n}", f"Siri van-der-Berg-Bergendorff {n}", "idle", "unused for 12 min; " * 4, "7", "gpu1",
                   None, None, 5000) for n in range(30)
    )  # fmt: skip
    with console.capture() as captured:
        console.print(_picture(ClassSeen("gpulab", "2026-11-24T13:30:00+01:00", many, {"idle": 30}), console))
    lines = captured.get().splitlines()
    rows = [line for line in lines if line.startswith("Siri van-der-Berg")]
    assert len(rows) > 15 and len(lines) <= 24
    assert all("  idle   1 h 23 min left  unused for 12 min" in row and row.rstrip().endswith("…") for row in rows)


def test_a_program_reads_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    view = ClassroomView(Console(emoji=False))
    first = seen(2)
    view.show(first)
    capsys.readouterr()
    view.show(first)
    assert capsys.readouterr().out == ""
    view.show(ClassSeen(first.title, first.as_of, (first.students[0], *seen(4).students[3:4]), first.counts))
    assert capsys.readouterr().out.splitlines()[0] == "Name 3 (u3): running, why"
    view.show(ClassPage("http://127.0.0.1:1/x/"))
    view.show(ClassEnded(("alice",), (), ("bob",), "The scheduler says: Access denied."))
    assert "You may not end the sessions of bob. The scheduler says: Access denied." in capsys.readouterr().out
