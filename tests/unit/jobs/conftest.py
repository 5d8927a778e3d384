"""Fixtures of the jobs' tests."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.shared_queries import SharedQueries
from notebook_launcher.jobs.watcher import JobWatcher
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.jobs.shared_query_login import Login
from tests.unit.jobs.watcher_doubles import DIRECTORY, JOB, FakeHost, NoPause


@pytest.fixture
def following() -> Iterator[Callable[..., tuple[JobWatcher, queue.SimpleQueue[object]]]]:
    """Begin watches; they are closed afterwards."""
    begun: list[tuple[JobWatcher, FakeHost]] = []

    def follow(host: FakeHost, scheduler: Any = None, **more: Any) -> tuple[JobWatcher, queue.SimpleQueue[object]]:
        inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        made = JobWatcher(host, scheduler or Slurm(), JOB, DIRECTORY, inbox, **({"polling": NoPause()} | more))
        begun.append((made, host))
        made.start()
        return made, inbox

    yield follow
    for made, host in begun:
        made.close()
        host.close()


@pytest.fixture
def login(tmp_path: Path) -> Iterator[Login]:
    made = Login(tmp_path)
    yield made
    made.answers()


@pytest.fixture
def together(login: Login) -> tuple[Host, SharedQueries]:
    host = LocalHost()
    return host, SharedQueries(host, str(login.session("one")))
