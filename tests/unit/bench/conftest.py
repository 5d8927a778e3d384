"""A bench's modules, put on the fake cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.bench import combinations, command, follow, recovery, report_files, runner, submit
from notebook_launcher.core.errors import EnvironmentUnknown
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.jobs.polling import Polling
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site
from tests.unit.bench.fake_cluster import CELLS, PROFILE, FakeCluster, now, plan_for, write_notebook


class QuickPolling(Polling):
    def pause_after_answer(self, start_in: float | None = None) -> float:
        return 0.01

    def pause_without_answer(self) -> float:
        return 0.01


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCluster:
    """The cluster of a bench, in a folder with a notebook ``tiny.ipynb`` that imports ``helper.py``."""
    fake = FakeCluster()

    @contextlib.contextmanager
    def open_context(
        target: LaunchTarget, view: Any, prompts: Any, interrupts: Interrupts, *, submits: bool, prepares: bool
    ) -> Iterator[Context]:
        fake.connections += 1
        site = Site("/home/alice", "alice", "login", now())
        scheduler, counted = fake.scheduler, CountedPrompts(prompts)
        yield Context(target, fake.host, site, scheduler, "/sessions", view, counted, interrupts)

    def make_plan(options: LaunchOptions, _here: LocalMachine, target: LaunchTarget) -> Plan:
        if options.arguments and options.arguments[0] not in PROFILE.environments:
            raise EnvironmentUnknown(f"There is no environment “{options.arguments[0]}”.")
        return plan_for(options, target)

    def look(context: Context, **_: object) -> Any:
        return fake.look(context)

    for module, names in {
        command: {
            "open_context": open_context,
            "complete_options": lambda options, *_: options,
            "read_session_index": look,
        },
        combinations: {"find_target": fake.find_target, "make_plan": make_plan},
        submit: {"queue_run": fake.queue_run},
        follow: {
            "read_session_index": look,
            "fetch_results": lambda *words: fake.fetch(*words),
            "Polling": QuickPolling,
        },
        recovery: {"read_session_index": look, "discard_session": fake.discard, "read_job": lambda *_: None},
        runner: {"cancel_jobs": lambda _context, sessions: fake.cancel(sessions)},
        report_files: {"draw_all": lambda _report: []},
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.chdir(tmp_path)
    Path("helper.py").write_text("x = 1\n")
    write_notebook(CELLS)
    return fake
