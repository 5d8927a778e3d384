"""Hosts, and real jobs of the local scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.local import Local
from notebook_launcher.session import open_context as opening
from notebook_launcher.session.record import Session, new_session, session_files
from tests.doubles import RecordingHost
from tests.unit.sessions.local_sessions import (
    HOST,
    SlurmHost,
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> RecordingHost:
    host = RecordingHost()
    monkeypatch.setattr(opening, "open_host", lambda *_: host)
    return host


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> SlurmHost:
    host = SlurmHost()
    monkeypatch.setattr(opening, "open_host", lambda *_: host)
    return host


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Queue local jobs that only sleep."""

    def submit(begin: str = "", walltime: str = "0:10:00") -> Session:
        request = Request({"time": walltime, **({"begin": begin} if begin else {})})
        session = new_session(
            str(tmp_path),
            request,
            scheduler="local",
            cluster=None,
            host=None,
            environment="mine",
            now=datetime.now().astimezone(),
        )
        HOST.write_files(session.directory, session_files(session, "", "token", {}))
        Path(session.submission.script).write_text("exec sleep 300\n")
        command = Local(str(tmp_path)).submit(request, session.submission)
        assert HOST.run(["bash", f"{session.directory}/submit.sh", session.directory, *command]).exit_code == 0
        return session

    yield submit
    for script in tmp_path.glob("*/local.sh"):
        HOST.run(["bash", str(script), "cancel", "--root", str(tmp_path), script.parent.name])
