"""Showing a bill: which session's, and what a slow accounting does to it; with a ``sacct`` on this machine."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from notebook_launcher.core.usage_samples import COLUMNS
from notebook_launcher.usage import bill_command

SESSION = "20261121-120000-k3fa"
_ROW = (
    "17|{state}|1000|core|3600|120|8|1|cpu=8,mem=16G,node=1|00:10.000|28800|100M|16G|\n17.batch|{step}"
    + "|" * 12
    + "\n"
)


class Home:
    """A home folder on a login node with sessions that are over, and the command as its user types it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def session(self, name: str = SESSION, *, job: str = "17", hours: tuple[float, float] | None = (2, 1)) -> None:
        """Make one that ran from so many hours ago to so many; ``None``: that was cancelled while it waited."""
        directory = self._folder / ".notebook-launcher/sessions" / name
        directory.mkdir(parents=True, mode=0o700)
        now = datetime.now(timezone.utc)
        told = {
            "id": name,
            "created": (now - timedelta(hours=3)).isoformat(),
            "scheduler": "slurm",
            "log": f"{directory}/job.log",
            "flags": {"time": "2:00:00"},
            "environment": "torch",
        }
        (directory / "session.json").write_text(json.dumps(told))
        (directory / "job").write_text(job)
        if hours is None:
            (directory / "exit.json").write_text(json.dumps({"cause": "cancelled", "ended": now.isoformat()}))
            return
        began, ended = (now - timedelta(hours=each) for each in hours)
        (directory / "started.json").write_text(json.dumps({"job": job, "node": "n1", "started": began.isoformat()}))
        (directory / "exit.json").write_text(json.dumps({"cause": "finished", "ended": ended.isoformat()}))
        rows = [
            f"{began + timedelta(seconds=at):%Y-%m-%dT%H:%M:%SZ},{at},1.5,1024,,,,,,\n" for at in range(0, 3600, 60)
        ]
        (directory / "usage.csv").write_text(",".join(COLUMNS) + "\n" + "".join(rows))

    def sacct(self, script: str) -> None:
        """Put a program into the PATH."""
        program = self._folder / "bin/sacct"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    def bill(self, *words: str) -> tuple[int, str, str, float]:
        """Return the exit code, what was printed to standard output and error, and the seconds that it took."""
        self._capsys.readouterr()
        began = time.monotonic()
        code = run(("bill", *words))
        return code, *self._capsys.readouterr(), time.monotonic() - began


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Home(tmp_path, capsys)


@pytest.mark.real_time
def test_an_accounting_that_does_not_answer_leaves_the_samples(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_command, "QUERY_TIMEOUT", 1.0)
    monkeypatch.setattr(bill_command, "SLOW_AFTER", 0.2)
    home.session()
    home.sacct("exec sleep 30")
    code, out, err, seconds = home.bill("k3fa", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert seconds < 4
    assert (told[-1]["event"], told[-1]["run_time"], told[-1]["memory_peak"]) == ("bill", 3600, 1024)
    assert "querying" in [event["event"] for event in told]  # no wait in silence
    assert home.bill("k3fa")[0] == 0


@pytest.mark.real_time
def test_an_accounting_that_falls_silent_leaves_what_it_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_command, "QUERY_TIMEOUT", 2.5)
    home.session()
    first = _ROW.format(state="COMPLETED", step="RUNNING")
    home.sacct(f'test -e ~/asked && exec sleep 30; touch ~/asked; printf %s "{first}"')
    code, out, _, seconds = home.bill("k3fa")
    assert code == 0
    assert seconds < 5
    assert "of 8 cores busy" in out
    assert "the last figures have not come to the accounting yet" in out


def test_files_that_do_not_answer_leave_the_accounting(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_command, "FILES_TIMEOUT", 0.2)
    monkeypatch.setattr(bill_command, "_READ", "exec sleep 30")
    home.session()
    home.sacct(f'printf %s "{_ROW.format(state="COMPLETED", step="COMPLETED")}"')
    code, out, _, _ = home.bill("k3fa")
    assert code == 0
    assert "by Slurm's accounting\n" in out


def test_nobody_tells_anything(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_command, "FILES_TIMEOUT", 0.2)
    monkeypatch.setattr(bill_command, "_READ", "exec sleep 30")
    home.session()
    home.sacct("exit 1")
    code, _, err, _ = home.bill("k3fa")
    assert code == 40
    assert "Neither its files nor the scheduler's accounting" in err
    assert "never ran" not in err


def test_without_a_name_it_is_the_one_that_ended_last(home: Home) -> None:
    home.sacct("exit 1")
    home.session("20261121-110000-long", job="17", hours=(3, 0.5))
    home.session("20261121-120000-shrt", job="18", hours=(2, 1))
    home.session("20261121-130000-wait", job="19", hours=None)
    code, out, _, _ = home.bill()
    assert code == 0
    assert re.search("^Session 20261121-110000-long on n1: 2 h 30 min", out, re.M)
    code, _, err, _ = home.bill("wait")
    assert code == 40
    assert "It never ran." in err
