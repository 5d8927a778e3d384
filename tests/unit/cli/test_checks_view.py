"""How checks are shown: in a terminal, for a program, and as data."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from notebook_launcher.cli.views.checks import checks_text, show_check
from notebook_launcher.core import events
from notebook_launcher.core.finding import fault


@pytest.mark.parametrize("check", ["image", "environment", "JupyterLab"])
def test_nothing_is_promised_while_the_software_is_not_found_out(check: str) -> None:
    for event in (events.ChecksDone(9, (), (check,), (), ()), events.ChecksDone(9, (), (), (check,), ())):
        assert checks_text(event).startswith("No fault was found. 9 checks passed;")
    clock = events.ChecksDone(9, (), ("clock",), (), ())
    assert checks_text(clock).startswith("Nothing prevents a launch.")


def shown(check: events.CheckResult, *, terminal: bool, encoding: str = "utf-8") -> list[str]:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=buffer, width=80, force_terminal=terminal, color_system=None)
    show_check(console, check)
    buffer.seek(0)
    return buffer.read().splitlines()


LONG = events.CheckResult(
    "image", "fault", "You may not enter \x1b[31m/proj/lab, " + "where the image should be, " * 4, "ask eva"
)


def test_a_check_fits_80_columns_in_a_terminal_and_is_one_line_for_a_program() -> None:
    lines = shown(LONG, terminal=True)
    assert max(map(len, lines)) <= 80 and len(lines) == 4
    assert lines[0].startswith("✗ image               You may not enter /proj/lab,")
    assert lines[-1] == "                      → ask eva"
    assert len(shown(LONG, terminal=False)) == 2


def test_a_long_name_has_a_line_of_its_own_in_a_terminal() -> None:
    check = events.CheckResult("reservation gpulab-2", "fault", "There is none.", "ask for it")
    blanks = 22 * " "
    assert shown(check, terminal=True) == ["✗ reservation gpulab-2", f"{blanks}There is none.", f"{blanks}→ ask for it"]
    assert shown(check, terminal=False)[0] == "✗ reservation gpulab-2  There is none."


def test_marks_where_there_are_none() -> None:
    assert shown(events.CheckResult("clock", "ok", "fine"), terminal=False, encoding="ascii")[0].startswith("ok clock")


def test_a_check_is_data_as_well() -> None:
    assert json.loads(json.dumps(LONG.data()))["result"] == fault("", "").result
