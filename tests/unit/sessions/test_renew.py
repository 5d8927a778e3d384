"""`renew`: the next job of a session, and what the other commands make of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from notebook_launcher import renew
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from tests.doubles import FakePrompts, wait_until
from tests.unit.sessions.local_sessions import ShownSessions, listed, stop, target

pytestmark = pytest.mark.real_time  # real jobs of the local scheduler


def renewed(root: Path, name: str = "", prompts: FakePrompts | None = None, *, sure: bool = True) -> ShownSessions:
    view = ShownSessions()
    renew.renew(target(root), name, view, prompts or FakePrompts(), Interrupts(), sure=sure)
    return view


def running(root: Path, submit: Callable[..., Session]) -> Session:
    """A session whose job has told that it runs."""
    session = submit(walltime="0:08:00")
    state = json.dumps({"version": 1, "job": session.id, "started": f"{datetime.now().astimezone().isoformat()}"})
    Path(session.directory, "started.json").write_text(state)
    Path(session.directory, "session.env").write_text("gpu=none\ncontinues=20261120-000000-aaaa\n")
    wait_until(lambda: listed(root).seen[session.id] in ("starting", "running"), 20, "it runs")
    return session


def test_the_next_job_is_the_same_request_later(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = running(tmp_path, submit)
    view = renewed(tmp_path)
    told = view.one(events.Renewed)
    assert (told.continues, told.walltime) == (session.id, "8 minutes")
    folder = tmp_path / told.session
    record = json.loads((folder / "session.json").read_text())
    assert record["continues"] == session.id and record["flags"]["time"] == "0:08:00"
    begins, ends = datetime.fromisoformat(told.begins or ""), datetime.fromisoformat(told.ends)
    assert abs(ends - begins - timedelta(minutes=2)) < timedelta(seconds=3)
    assert record["flags"]["begin"] == f"{begins:%Y-%m-%dT%H:%M:%S}"
    assert (folder / "token").read_text() == "token"
    assert (folder / "session.env").read_text() == f"gpu=none\ncontinues={session.id}\n"
    noted = tmp_path / session.id / "next_job.json"
    assert json.loads(noted.read_text())["session"] == told.session
    for path in (noted, folder / "token", folder / "session.env"):
        assert path.stat().st_mode & 0o777 == 0o600

    with pytest.raises(UsageError, match="has a next job already"):
        renewed(tmp_path)
    with pytest.raises(UsageError, match="has not started yet"):
        renewed(tmp_path, told.session)
    assert stop(tmp_path, told.session, sure=True).ended == {told.session}
    assert not noted.exists(), "nobody is promised a next job any more"
    again = renewed(tmp_path).one(events.Renewed)
    both = stop(tmp_path, sure=True)  # without a name: the one that runs is meant
    assert both.ended == {session.id, again.session}


def test_nothing_is_queued_after_a_yes_that_came_too_late(
    tmp_path: Path, submit: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = running(tmp_path, submit)
    prompts = FakePrompts(confirms=[True])
    said_yes, clock = prompts.confirm, Context.clock

    def slowly(question: str) -> bool | None:
        monkeypatch.setattr(Context, "clock", lambda context: clock(context) + timedelta(minutes=10))
        return said_yes(question)

    monkeypatch.setattr(prompts, "confirm", slowly)
    with pytest.raises(UsageError, match="has ended meanwhile"):
        renewed(tmp_path, session.id, prompts, sure=False)
    assert set(listed(tmp_path).seen) == {session.id}


def test_nothing_is_queued_without_a_yes(tmp_path: Path, submit: Callable[..., Session]) -> None:
    session = running(tmp_path, submit)
    view = renewed(tmp_path, session.id, FakePrompts(confirms=[False]), sure=False)
    assert "Nothing was queued." in view.notes
    assert set(listed(tmp_path).seen) == {session.id}
