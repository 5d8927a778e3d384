"""A folder with a notebook; and a run that has ended, on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.notebook.results import fetch_notebook, fetch_results
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, record_in
from tests.unit.notebook.notebook_files import PARAMETERS, cell, written
from tests.unit.supervision.fake_login import SESSION_ID
from tests.unit.supervision.launcher_doubles import RECORD


class FinishedRun:
    """A session of a run on this machine, as its job leaves it."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory, self.here = tmp_path / "root" / SESSION_ID, tmp_path / "here"
        self.work = self.directory / "work"
        self.work.mkdir(parents=True)
        self.sent: tuple[str, ...] = ()
        self.interrupts, self.shown = Interrupts(), list[events.Event]()
        self.interrupts.defer()
        self.writes("usage.csv", "time\n1\n")
        self.writes("work/train.ipynb", '{"cells": []}')
        self.ends("finished")

    def writes(self, name: str, content: str | bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def ends(self, cause: str) -> None:
        self.writes("exit.json", json.dumps({"cause": cause, "message": "so it ended", "exit_code": 0}))

    @property
    def session(self) -> Session:
        asked = {**RECORD, "program": "notebook", "notebook": "train.ipynb", "sent": self.sent}
        return Session(record_in(json.dumps(asked)), str(self.directory))

    @property
    def context(self) -> Context:
        context = Context(*[None] * 9)  # type: ignore[arg-type]
        context.host, context.interrupts, context.view = LocalHost(), self.interrupts, self
        context.target = LaunchTarget(ClusterProfile(), "practice", None, "slurm")
        return context

    def fetch(self) -> events.ResultsFetched:
        return fetch_results(self.context, self.session, self.here)

    def fetch_notebook(self) -> bool:
        return fetch_notebook(self.context, self.session, self.here)

    def show(self, event: events.Event) -> None:
        self.shown.append(event)

    def listen(self, inbox: object) -> None:
        raise AssertionError

    def text(self, name: str) -> str:
        return (self.here / name).read_text()

    @property
    def record(self) -> dict[str, object]:
        return json.loads(self.text("run.json"))  # type: ignore[no-any-return]


@pytest.fixture
def made(tmp_path: Path) -> FinishedRun:
    return FinishedRun(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which we are."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def tagged(folder: Path) -> str:
    """A notebook with a cell for parameters."""
    return written(folder / "lab.ipynb", cell("# Title", "markdown"), cell(PARAMETERS, tags=["parameters"]), cell("1"))
