"""The offer to use a running session before another one is launched, and what cannot be connected to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from notebook_launcher import sessions
from notebook_launcher.core.errors import Interrupted, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.jobs.session_choice import short_name_among
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles import Environment
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session
from tests.doubles import FakePrompts, RecordingHost
from tests.session_directories import name_of, plant
from tests.unit.sessions.local_sessions import (
    NOW,
    ShownSessions,
    end_of,
    target,
)

pytestmark = pytest.mark.real_time  # real jobs of the local scheduler


def offer(root: Path, person: FakePrompts, *, always_new: bool = False) -> tuple[bool, ShownSessions]:
    view = ShownSessions()
    plan = Plan(target(root), Request({}), None, Environment(), None, always_new=always_new)
    with open_context(plan.target, view, person, Interrupts()) as context:
        return sessions.offer_existing_session(plan, context), view


def test_whoever_has_no_session_pays_one_command(tmp_path: Path, host: RecordingHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW, secrets=True)
    long_ago = NOW - timedelta(days=9)
    plant(tmp_path, name_of(long_ago, 2), long_ago)
    wanted, view = offer(tmp_path, FakePrompts())
    assert not wanted and view.events == []
    assert len(host.ran) == 2  # the look at the place, and this one


def test_a_no_launches_another_one(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit(begin="now+1hour")
    submit()
    person = FakePrompts(confirms=[False])
    assert offer(tmp_path, person)[0] is False
    assert "starts on" in "".join(person.asked) and "(1 more: launch-notebook list)" in "".join(person.asked)
    assert session.id not in "".join(person.asked) and "Connect to it instead" in "".join(person.asked)


def test_the_one_with_the_most_time_left_is_offered(tmp_path: Path, submit: Callable[..., Session]) -> None:
    submit(walltime="0:01:00")
    assert offer(tmp_path, FakePrompts(confirms=[False]))[1].events == [], "it is as good as over"
    longest = submit(walltime="0:30:00")
    submit()
    person = FakePrompts(confirms=[False])
    assert offer(tmp_path, person)[0] is False
    assert longest.id in "".join(person.asked) and "(1 more" in "".join(person.asked)


@pytest.mark.parametrize("how", ["--new", "no terminal"])
def test_it_is_only_told(tmp_path: Path, submit: Callable[..., Session], how: str) -> None:
    session = submit()
    wanted, view = offer(tmp_path, FakePrompts(asks=how == "--new"), always_new=how == "--new")
    assert not wanted
    sentence, command = view.notes.split("\n")
    name = end_of(session)
    assert command.startswith("  ") and command.endswith(f" connect {name}") and re.search(" (9|10) min left", sentence)


def test_neither_yes_nor_no_launches_nothing(tmp_path: Path, submit: Callable[..., Session]) -> None:
    submit()
    with pytest.raises(Interrupted, match="neither yes nor no") as caught:
        offer(tmp_path, FakePrompts(confirms=[None]))
    assert caught.value.why == "No job was started."


def test_a_terminal_of_ours_is_not_offered(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = submit()
    path = tmp_path / session.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "shell"}))
    assert offer(tmp_path, FakePrompts())[0] is False


@pytest.mark.parametrize("story", [sessions.connect, sessions.open_session])
def test_a_terminal_of_ours_has_nothing_to_connect_to(
    tmp_path: Path, submit: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, story: Callable[..., None]
) -> None:
    """Without a name it is not meant where there is a session with JupyterLab; alone, or named, it is refused."""
    of_a_terminal = submit()
    path = tmp_path / of_a_terminal.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "shell"}))
    come_back_to: list[str] = []
    monkeypatch.setattr(sessions, "reattach", lambda _context, session: come_back_to.append(session.id))
    for name in ("", of_a_terminal.id):
        with pytest.raises(UsageError) as caught:
            story(target(tmp_path), name, ShownSessions(), FakePrompts(), Interrupts())
        assert f"shell {short_name_among(of_a_terminal.id, ())}" in caught.value.hint
    other = submit()
    story(target(tmp_path), "", ShownSessions(), FakePrompts(), Interrupts())
    assert come_back_to == [other.id]


def test_a_run_has_no_jupyterlab_to_open_and_no_ports(tmp_path: Path, submit: Callable[..., Session]) -> None:
    of_a_run = submit()
    path = tmp_path / of_a_run.id / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": "notebook", "notebook": "train.ipynb"}))
    place, others = target(tmp_path), (ShownSessions(), FakePrompts(), Interrupts())
    for story in (
        lambda: sessions.open_session(place, "", *others),
        lambda: sessions.forward(place, [(6006, 0)], "", *others),
        lambda: sessions.connect(place, "", *others, forwards=[6006]),
    ):
        with pytest.raises(UsageError, match="has no JupyterLab") as caught:
            story()
        assert "train.ipynb" in caught.value.why and f"connect {short_name_among(of_a_run.id, ())}" in caught.value.hint


def test_only_a_run_can_be_followed(tmp_path: Path, submit: Callable[..., Session]) -> None:
    of_jupyterlab = submit()
    with pytest.raises(UsageError, match="is not a run of a notebook") as caught:
        sessions.connect(target(tmp_path), "", ShownSessions(), FakePrompts(), Interrupts(), follow=True)
    assert f"logs -f {short_name_among(of_jupyterlab.id, ())}" in caught.value.hint


def test_a_place_that_cannot_be_looked_at_stops_no_launch(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    assert offer(tmp_path / "root", FakePrompts())[0] is False
