"""Checks run in order: what needs a failed one is skipped, and what failed is named at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    AccountRefused,
    ChecksFailed,
    ConnectionLost,
    HostCommandFailed,
)
from notebook_launcher.core.finding import Finding, ok
from tests.doubles import RecordingView
from tests.unit.doctor.check_results import results


def raising(error: Exception) -> Callable[[], Finding]:
    def look() -> Finding:
        raise error

    return look


def test_what_builds_on_a_fault_is_skipped_and_what_builds_on_that_too() -> None:
    shown = RecordingView()
    checks = CheckRunner(shown)
    assert checks.check("home", lambda: ok("fine"))
    assert not checks.check("account", raising(AccountRefused("Not yours.", hint="take another one")))
    assert not checks.check("start", raising(AssertionError("it is not asked")), needs=["home", "account"])
    assert not checks.check("node", raising(AssertionError("it is not asked")), needs=["start"])
    assert checks.check("image", lambda: ok("there"), needs=["home", "never looked at"])
    assert results(shown) == {"home": "ok", "account": "fault", "start": "skipped", "node": "skipped", "image": "ok"}
    with pytest.raises(ChecksFailed, match=r"A check failed: account\.") as failed:
        checks.summarise()
    assert failed.value.hint == "take another one"
    assert shown.events[-1] == events.ChecksDone(2, ("account",), (), (), ("start", "node"))


def test_no_answer_in_time_is_no_fault_and_a_lost_connection_ends_all_that_follows() -> None:
    shown = RecordingView()
    checks = CheckRunner(shown)
    assert checks.check("quota", raising(HostCommandFailed("myquota did not answer within 30 s on login.")))
    assert checks.check("nothing to say", lambda: None)
    checks.check("scheduler", raising(ConnectionLost("The connection to login is lost.")))
    checks.check("image", raising(AssertionError("it is not asked")))
    assert results(shown) == {"quota": "unknown", "connection": "fault", "image": "skipped"}


def test_checks_without_faults_raise_nothing() -> None:
    checks = CheckRunner(RecordingView())
    checks.report("clock", Finding("warning", "late"))
    checks.summarise()
