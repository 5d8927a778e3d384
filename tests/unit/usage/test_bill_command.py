"""Showing a bill: which session's, and what a slow accounting does to it; with a ``sacct`` on this machine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from notebook_launcher.cli.app import run
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.usage_samples import COLUMNS
from notebook_launcher.profiles.models import Price
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.record import Session
from notebook_launcher.usage import accounting_wait, bill_command, inspect
from notebook_launcher.usage.bill import Facts, make_bill
from tests.doubles import FakeHost
from tests.fuzzing import JSON_VALUES, TIMES, unseen
from tests.unit.usage.usage_facts import record

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

    def status(self) -> dict[str, Any]:
        """Return the last event of ``status --json``, with the names of all under ``events``."""
        self._capsys.readouterr()
        assert run(("status", "k3fa", "--json")) == 0
        told = [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]
        return {**told[-1], "events": [event["event"] for event in told]}

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
    monkeypatch.setattr(accounting_wait, "SLOW_AFTER", 0.2)
    home.session()
    home.sacct("exec sleep 30")
    code, out, err, seconds = home.bill("k3fa", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert seconds < 20
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
    assert seconds < 20
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


# --- the limits in status ---

_PENDING = "17|PENDING|1000|core|0|120|0|0||00:00:00|0||16G|"


def _limits(status: dict[str, Any]) -> dict[str, float | None]:
    return {one["label"]: one["capacity"] for one in status["series"]}


def test_status_has_the_limits_of_the_accounting(home: Home) -> None:
    home.session()
    home.sacct(f'printf %s "{_ROW.format(state="RUNNING", step="RUNNING")}"')
    status = home.status()
    assert _limits(status) == {"CPU": 8, "memory": 16}
    assert status["notes"] == []


@pytest.mark.real_time
def test_an_accounting_that_does_not_answer_is_not_waited_for_in_silence(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "ACCOUNTING_TIMEOUT", 0.6)
    monkeypatch.setattr(accounting_wait, "SLOW_AFTER", 0.2)
    home.session()
    home.sacct("exec sleep 30")
    status = home.status()
    assert "querying" in status["events"]
    assert "the accounting did not answer in time" in status["notes"][0]


@pytest.mark.parametrize("script", ["exit 1", "exit 0", f'echo "{_PENDING}"'], ids=["off", "no job", "pending"])
def test_limits_that_are_only_what_was_asked_for_say_so(home: Home, script: str) -> None:
    home.session()
    home.sacct(script)
    (note,) = home.status()["notes"]
    assert note.startswith("The limits of cores and memory are those asked for: the accounting ")


@pytest.mark.parametrize(
    ("first", "asked", "cores"),
    [(f'echo "{_PENDING}"', 2, 8), ("exit 0", 2, 8), ("exit 1", 1, None), ("exec sleep 30", 1, None)],
    ids=["pending", "not yet", "off", "silent"],
)
@pytest.mark.real_time
def test_the_accounting_is_asked_again_until_it_has_an_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch, first: str, asked: int, cores: float | None, tmp_path: Path
) -> None:
    """A job that has just begun may still be there as pending."""
    monkeypatch.setattr(inspect, "ACCOUNTING_TIMEOUT", 0.6)
    home.session()
    row = _ROW.format(state="RUNNING", step="RUNNING")
    home.sacct(f'echo >>~/asked; test -e ~/first || {{ touch ~/first; {first}; exit; }}; printf %s "{row}"')
    shown: list[dict[str, float | None]] = []
    show = inspect._Inspection.show

    def show_again(inspection: inspect._Inspection, **how: bool) -> None:
        for _ in range(4):  # as status --watch does
            shown.append({one.label: one.capacity for one in inspection.used().series})
        show(inspection, **how)

    monkeypatch.setattr(inspect._Inspection, "show", show_again)
    home.status()
    assert (tmp_path / "asked").read_text().count("\n") == asked
    assert shown[-1]["CPU"] == cores


FIELDS = st.sampled_from(
    ["", "0", "1.5", "-1", "nan", "inf", "1e300", "1e400", "9" * 5000, "é", "a b", "\x1b[2J", "2026-11-21T12:00:00Z"]
)
TIME = st.sampled_from(["2026-11-21T12:00:00Z", "2026-11-21T12:00:05Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
ROWS = st.tuples(TIME, st.lists(FIELDS, min_size=9, max_size=9)).map(lambda parts: ",".join([parts[0], *parts[1]]))
FLAGS = st.dictionaries(
    st.sampled_from(["mem", "gpus", "gres", "time", "cpus-per-task", "nodes", "constraint", "partition", "x"]),
    st.none() | FIELDS | st.sampled_from(["8G", "gpu:a100:2", "9" * 20, "1:00:00", "٣G", "9" * 5000 + "G"]),
    max_size=3,
)
PRICE = Price(unit="SEK", gpu_hour=1.0, core_hour=0.1)


@settings(deadline=None)
@given(
    st.lists(ROWS | st.text(max_size=20), max_size=4),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("started", "ended", "node"), TIMES | JSON_VALUES)),
    FLAGS,
)
@example(["2026-11-21T12:00:00Z,inf,,,,,,,,"], {}, {})
@example(["2026-11-21T12:00:00Z,nan,,,,,,,,"], {}, {})
@example([], {"started": "2026-11-21T12:00:00Z", "ended": "2026-11-21T12:00:05Z"}, {"mem": "9" * 5000 + "G"})
def test_any_files_of_a_session_make_a_report_or_none(
    rows: list[str], files: dict[str, object], flags: dict[str, str | None]
) -> None:
    """Those that its job has left, and the request in its record."""
    lines = "\n".join(rows)
    output = f"\nstarted {json.dumps(files)}\nexit {json.dumps(files)}\n{lines}\n"
    context: Any = SimpleNamespace(host=FakeHost(CommandResult(0, output)))
    asked = record(flags)
    session = Session(asked, "/root/it", JobRef("7"))
    started, ended, samples = bill_command._job_files(context, session)
    wall = bill_command._between(started.get("started"), ended.get("ended"))
    facts = Facts(None, samples, samples[-1].seconds if wall is None and samples else wall, str(started.get("node")))
    shown = io.StringIO()
    try:
        bill = make_bill(asked, "7", facts, PRICE)
    except UsageError:
        return  # a request that is none
    if bill is not None:
        with contextlib.redirect_stdout(shown), TextView(Console(file=shown, width=100, no_color=True)) as view:
            view.show(bill)
            JsonView().show(bill)
        assert set(unseen(shown.getvalue())) <= {"\n"}
