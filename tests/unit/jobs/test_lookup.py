"""Sessions, joined with what the scheduler answers, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, LoginShellSilent, SessionNotFound
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.jobs.lookup import choose_on_host, query_states, select_session
from notebook_launcher.jobs.session_index import JobQueue, SessionIndex
from notebook_launcher.jobs.submit import queue_job
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef, Submission
from notebook_launcher.schedulers.make import make_scheduler
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


@pytest.mark.parametrize(("shell", "timeout"), [(None, 20.0), (0.2, 20.2), (25.0, 45.0), (9999.0, 50.0)])
def test_behind_a_slow_login_shell_the_scheduler_has_more_time(shell: float | None, timeout: float) -> None:
    timeouts: list[float] = []

    class Timed(FakeHost):
        def run(
            self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
        ) -> CommandResult:
            timeouts.append(timeout)
            return CommandResult(0)

    host = Timed()
    host.login_shell_took = shell
    query_states(cast(Any, SimpleNamespace(host=host, root="/sessions")), JobQueue("slurm", None), [JobRef("7")])
    assert timeouts == [timeout]


@pytest.mark.parametrize(("recorded", "kept"), [("gridengine", True), ("slurm", False)])
def test_of_a_session_the_profiles_scheduler_options_still_count(recorded: str, kept: bool) -> None:
    """Without them no GPU would be found in the accounting of a site that calls them otherwise."""
    profiles = make_scheduler("gridengine", "", {"gpu": "ngpus"})
    context = SimpleNamespace(scheduler=profiles, root="/sessions")
    session = SimpleNamespace(record=SimpleNamespace(scheduler=recorded), job=JobRef("7"), id="20261121-143020-k3f9")
    select_session(cast(Any, context), cast(Any, SimpleNamespace(session=session)))
    assert context.scheduler.name == recorded and (context.scheduler is profiles) is kept


# --- sessions of another cluster -----------------------------------------------------------------------------------

HEQJ = "20261128-150102-heqj"


def missing(name: str, command: str = "connect", **target: Any) -> SessionNotFound:
    """The error for a session that is not on the machine that was asked; without ``target``, on this one."""
    where = LaunchTarget(ClusterProfile(), target.pop("cluster", None), None, "local", **target)
    context = SimpleNamespace(target=where, host=SimpleNamespace(label="this machine"))
    with pytest.raises(SessionNotFound) as caught:
        choose_on_host(cast(Any, context), SessionIndex((), (), datetime.now().astimezone()), name, command)
    return caught.value


@pytest.mark.parametrize("name", [HEQJ, "heqj"])
def test_a_session_submitted_to_another_cluster_is_looked_for_there(name: str) -> None:
    queue_one(HEQJ, "practice")
    error = missing(name, "stop", no_default=True)
    assert error.what == f"There is no session “{name}” on this machine."
    assert error.why.startswith("No default cluster is set, so this machine was asked.")
    assert f"Session {HEQJ} was submitted from here with --cluster practice." in error.why
    assert error.hint == f"look there: launch-notebook stop --cluster practice {name}"


def test_a_session_submitted_to_this_cluster_is_not_elsewhere() -> None:
    queue_one(HEQJ, "practice")
    assert "practice" not in (error := missing("heqj", cluster="practice", is_default=True)).why + error.hint
    assert "practice" not in missing("zzzz").why


def queue_one(name: str, cluster: str) -> None:
    """Submit a session's job to a cluster that is the default at that time."""
    session = SimpleNamespace(
        id=name,
        directory=f"/s/{name}",
        record=SimpleNamespace(flags={}),
        submission=Submission(name, "/s", "/s/job", "/s/log"),
    )
    context = SimpleNamespace(
        target=LaunchTarget(ClusterProfile(), cluster, None, "slurm", is_default=True),
        interrupts=Interrupts(),
        scheduler=make_scheduler("slurm", ""),
        host=FakeHost(CommandResult(0, "7\n")),
        timing=SimpleNamespace(submit_slow_after=60.0),
    )
    assert queue_job(cast(Any, context), cast(Any, session)) == JobRef("7")
