"""Whatever the job writes into its files, as ``watch.sh`` reports it, is shown, or is an error of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import queue
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from notebook_launcher.cli.views.errors import report
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import DEFAULT_TIMING
from notebook_launcher.core.usage_samples import COLUMNS
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.jobs.messages import FileAppeared
from notebook_launcher.jobs.watcher import JobWatcher
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session, SessionRecord, Site
from notebook_launcher.supervision.batch import _RunSupervisor
from notebook_launcher.supervision.jupyter import JupyterSupervisor
from notebook_launcher.supervision.supervisor import Finished, Supervisor
from tests.doubles import FakeHost, FakePrompts, RecordingView
from tests.fuzzing import JSON_VALUES, TIMES

ZONES = st.sampled_from([timedelta(hours=14), timedelta(0), timedelta(hours=-12)]).map(timezone)
CAUSES = st.sampled_from(["finished", "stopped", "idle", "jupyter-failed", "notebook-failed", "kernel-died", ""])
EVIL = "\x1b]0;x\x07\x9b2J\u202e\u2028a\nb\r\x00"
TEXTS = st.text(max_size=8) | st.just(EVIL)
COUNTS = st.integers(-1, 9) | st.just(10**4000)
SOUND: dict[str, st.SearchStrategy[Any]] = {
    "started": TIMES, "ended": TIMES, "ends": TIMES, "updated": TIMES, "cause": CAUSES, "message": TEXTS,
    "exit_code": COUNTS, "node": TEXTS, "node_names": st.lists(TEXTS | st.just("n1")), "host_keys": st.lists(TEXTS),
    "ssh_port": COUNTS, "job": TEXTS, "port": COUNTS, "base_url": TEXTS, "address": TEXTS, "secure": st.booleans(),
    "cells": COUNTS, "done": COUNTS, "cell": COUNTS, "title": TEXTS, "version": COUNTS,
}  # fmt: skip
RECORDS = st.fixed_dictionaries({}, optional={key: kind | kind | JSON_VALUES for key, kind in SOUND.items()})
FILES = st.sampled_from(["started", "endpoint", "exit", "idle", "notice", "progress"])
FIELDS = (
    TIMES | TEXTS | st.sampled_from(["", "0", "1.5", "-1", "nan", "inf", "1e400", "9" * 5000, "2026-11-21T12:00:00Z"])
)
ROWS = st.lists(FIELDS, min_size=len(COLUMNS) - 1, max_size=len(COLUMNS)).map(
    lambda fields: ",".join(["2026-11-21T12:00:01Z", *fields][: len(COLUMNS)])
)
LINES = (
    st.tuples(FILES, RECORDS.map(json.dumps) | JSON_VALUES.map(json.dumps) | TEXTS).map(" ".join)
    | st.lists(ROWS, max_size=3).map(lambda rows: f"usage {'|'.join(rows)}")
    | st.sampled_from(["gone idle", "deleted", "", " ", "exit", "exit {", f"idle {'[' * 100_000}", "usage", "alive"])
    | st.text(max_size=20)
)
NO_WAIT = dataclasses.replace(DEFAULT_TIMING, final_status_within=0.0, history_within=0.0)
SESSION_ID = "20261121-120000-k3f9"


class _Connected(JupyterSupervisor):
    """Connects to no node."""

    def _connect_node(self, pause: float) -> None:
        pass


def supervisor(program: str, view: RecordingView, now: datetime, flags: dict[str, str | None]) -> Supervisor:
    """Return a supervisor of a running session, on a login node that answers nothing."""
    record = SessionRecord(
        id=SESSION_ID, created=now, scheduler="slurm", flags=flags, log="/log", program=program, notebook="train.ipynb"
    )  # fmt: skip
    site = Site("/home/alice", "alice", "login", now)
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    prompts = CountedPrompts(FakePrompts())
    context = Context(target, FakeHost(), site, Slurm(), "/root", view, prompts, Interrupts(), timing=NO_WAIT)
    session = Session(record, f"/root/{SESSION_ID}", JobRef("7"))
    if program == "notebook":
        return _RunSupervisor(context, session, cast(Any, None), ours=False)
    return _Connected(context, session, Access("token", cast(Any, None)), ours=False)


def obeyed(text: str) -> set[str]:
    return {sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t"}


@pytest.mark.parametrize("program", ["jupyterlab", "notebook"])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINES, max_size=4), ZONES, st.sampled_from([None, "1:00:00", "3000000-0"]))
@example([f"idle {'[' * 100_000}"], timezone.utc, None)
@example(['exit {"cause": []}'], timezone.utc, None)
@example(['started {"started": "9999-12-31T23:59:59Z"}'], timezone(timedelta(hours=14)), "1:00:00")
@example(['idle {"ends": "0001-01-01T00:00:00+00:00"}'], timezone(timedelta(hours=-12)), None)
def test_any_line_is_shown_or_an_error_of_ours(
    program: str, lines: Sequence[str], zone: timezone, walltime: str | None
) -> None:
    shown = RecordingView()
    now = datetime(2026, 11, 21, 13, 0, 5, tzinfo=timezone.utc).astimezone(zone)
    flags = {"time": walltime} if walltime else dict[str, str | None]()
    watched = supervisor(program, shown, now, flags)
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    watcher = JobWatcher(FakeHost(), Slurm(), JobRef("7"), f"/root/{SESSION_ID}", inbox)
    watched._attached_status.attach()
    errors: list[LauncherError] = []
    for line in lines:
        watcher._read_line(line.replace("\n", " "))
        while not inbox.empty():
            item = inbox.get()
            assert not isinstance(item, FileAppeared) or isinstance(item.data, dict)
            with contextlib.suppress(Finished):
                try:
                    watched._handle(item)
                except LauncherError as error:
                    errors.append(error)
            watched._attached_status.attach()
            assert watched._reconnect_deadline() is not None
    watched.close()
    _check_shown(shown.events, errors)


def _check_shown(all_events: Sequence[events.Event], errors: Sequence[LauncherError]) -> None:
    """Show everything in both ways: no view stumbles, and nothing reaches the terminal raw."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        with TextView(Console(file=text, width=200, no_color=True)) as view:
            for event in all_events:
                view.show(event)
        for event in all_events:
            JsonView().show(event)
        for error in errors:
            for as_json in (True, False):
                report(error, as_json=as_json)
    assert obeyed(text.getvalue()) == set()
    assert os.fsencode(text.getvalue()) is not None
