"""Sessions, joined with what the scheduler answers, or does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core.errors import HostCommandFailed, LoginShellSilent
from notebook_launcher.jobs.lookup import query_states
from notebook_launcher.jobs.session_index import JobQueue
from notebook_launcher.schedulers.base import JobRef
from tests.doubles import FakeHost


def states(error: Exception) -> object:
    context = SimpleNamespace(host=FakeHost(error), root="/home/alice/.notebook-launcher/sessions")
    return query_states(cast(Any, context), JobQueue("slurm", None), [JobRef("7")])


def test_a_scheduler_that_does_not_answer_leaves_the_states_open() -> None:
    assert states(HostCommandFailed("squeue did not answer within 20 s on login.")) is None


def test_a_login_shell_that_runs_no_commands_is_told_as_such() -> None:
    """Else all jobs would seem to have an unknown state, for no reason that is shown."""
    with pytest.raises(LoginShellSilent):
        states(LoginShellSilent("Your login shell on login runs no commands."))
