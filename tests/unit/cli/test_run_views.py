"""What is shown of a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from notebook_launcher.cli.views.status_line import StatusLine
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events


def cell(**others: object) -> events.NotebookProgress:
    known = {"session": "s", "job": "7", "cell": 4, "done": 3, "cells": 9, "heading": "Train", "seconds": 32.0}
    return events.NotebookProgress(**{**known, **others})  # type: ignore[arg-type]


def test_the_live_line_says_the_cell_first_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    line = StatusLine(Console(file=io.StringIO(), width=80, force_terminal=True), clock=lambda: now)
    line.update(events.Attached("s", "7", "2026-11-21T12:00:00Z", 4330, "2026-11-21T11:00:00Z", 3.9, 2048.0, ()))
    line.update_notebook(cell())
    now = 102.0
    assert line.text(79) == "Cell 4 of 9 · Train · 0:34 · 1 h 12 min left · CPU 3.9 cores · memory 2.0 GiB"
    line.update_notebook(cell(heading="A heading that is so long that nobody reads it"))
    assert line.text(79).startswith("Cell 4 of 9 · A heading that is so long t… · 0:32 · 1 h 12 min left")
    line.update_notebook(cell(cell=None, done=9))
    assert line.text(79).startswith("9 of 9 cells done · 1 h 12 min left")


def test_without_a_terminal_there_is_a_line_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with TextView(Console(file=out, width=80)) as view:
        view.show(events.NotebookPrepared("train.ipynb", 9, {"EPOCHS": 1, "NAME": "x" * 60}, ("helper.py",)))
        view.show(cell())
        view.show(cell(cell=None, done=9, seconds=42))
        view.show(events.NotebookFinished("s", "7", "train.ipynb", 9, 42.0))
        view.show(
            events.ResultsFetched(
                "s", "train.ipynb", "runs/t", ("train.ipynb", "out.csv"), ("/s/work/m b (1.0 GiB)",), True
            )
        )
    assert out.getvalue().splitlines() == [
        f"Notebook train.ipynb: 9 code cells, with EPOCHS=1, NAME='{'x' * 38}…; helper.py goes with it",
        "Cell 4 of 9: Train (0:32)",
        "9 of 9 cells are done (0:42)",
        "The notebook train.ipynb finished: 9 code cells in 0:42.",
        "The results are here:",
        "  runs/t/train.ipynb",
        "  beside it: out.csv",
        "  Not fetched: too large, cannot be read, gone, or with a name that is not possible here:",
        "    /s/work/m b (1.0 GiB)",
        "  To fetch one: launch-notebook copy 'login:/s/work/m b' .",
    ]


def test_a_program_that_has_died_names_a_command_that_works_here() -> None:
    out = io.StringIO()
    app = ("s", "7", "n1", "c", "Counter", "It ended with exit code 7.")
    with TextView(Console(file=out, width=60, force_terminal=True, color_system=None)) as view:
        view.show(events.AppFailed(*app, ("one", "told to die"), "/s/app-c.log", "launch-notebook status k3f9"))
        view.show(events.AppFailed(*app))
    assert out.getvalue().splitlines() == [
        "Counter is not running. It ended with exit code 7. The last",
        "line of its log: told to die",
        "  more of its log:  launch-notebook status k3f9",
        "Counter is not running. It ended with exit code 7.",
    ]


def test_what_a_failed_program_printed_stands_apart_from_why_it_failed() -> None:
    out = io.StringIO()
    app = events.AppOpened(
        "s", "7", "n1", "c", "Counter", "", 5, "failed", "It ended with exit code 7.", ("one", "two")
    )
    with TextView(Console(file=out, width=80)) as view:
        view.show(app)
    assert out.getvalue().splitlines() == [
        "Counter is not running. It ended with exit code 7.",
        "  The end of its log:",
        "  | one",
        "  | two",
    ]
