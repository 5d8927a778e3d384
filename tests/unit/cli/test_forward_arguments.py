"""What is typed after ``forward``."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from notebook_launcher.cli.commands.forward import _ports_and_session
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.make_view import make_view
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError

SESSION = "20261121-120000-k3f9"


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
        view.show(events.Note(f"Come back to it with:\n{command}"))
    assert f"Come back to it with:\n{command}\n" in shown.getvalue()


@pytest.mark.parametrize("width", [60, 66])
def test_a_command_in_a_note_stays_on_one_line(width: int) -> None:
    shown = io.StringIO()
    with TextView(Console(file=shown, width=width, force_terminal=True, color_system=None)) as view:
        view.show(events.Note("Nothing is configured here (their names: launch-notebook clusters), so it runs here."))
    assert "launch-notebook clusters" in shown.getvalue()
    assert all(len(line) <= max(width, len("launch-notebook clusters),")) for line in shown.getvalue().splitlines())


def test_the_views_module_is_what_commands_use() -> None:
    assert isinstance(make_view(as_json=True, notify=False), JsonView)
