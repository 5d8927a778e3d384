"""How long cancelling a job may take."""

from __future__ import annotations

import time
from typing import cast

import pytest

from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import Timing
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.jobs.cancel import JobCancellation
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, Site
from tests.doubles import FakeHost, FakePrompts, RecordingView

SHELL = 80.0  # seconds that each answer takes


def test_a_job_that_does_not_end_is_not_waited_for_longer_the_slower_the_login_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(JobCancellation):
        def _check_ended(self) -> bool:
            now[0] += SHELL
            return False

    host = FakeHost()
    host.login_shell_took = SHELL
    context = Context(
        LaunchTarget(ClusterProfile(), "uni", None, "slurm"),
        host,
        cast(Site, None),
        Slurm(),
        "/sessions",
        RecordingView(),
        CountedPrompts(FakePrompts()),
        Interrupts(),
        timing=Timing(cancel_check_pause=0.0),
    )
    assert not Slow(context, cast(Session, None)).wait_until_ended()
    assert 120.0 + SHELL < now[0] - 1000.0 <= 300.0 + SHELL
