"""What is said before a command logs in."""

from __future__ import annotations

from typing import cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts import engine_choice
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.plan import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile
from notebook_launcher.session.connect import open_context, open_host
from tests.doubles import RecordingView


def test_a_retired_cluster_is_named_before_the_password_of_its_successor_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RecordingView()
    shown_at_login: list[str] = []

    def log_in(*_: object) -> None:
        shown_at_login.extend(event.text for event in view.all(events.Note))
        raise ConnectionFailed("Nobody answers.")

    monkeypatch.setattr(engine_choice, "open_ssh_host", log_in)
    note = "Old was switched off. Using its successor, new."
    target = LaunchTarget(ClusterProfile(), "new", Destination("new"), "slurm", instead_of="old", notes=(note,))
    with pytest.raises(ConnectionFailed):
        open_host(target, view, cast(Prompts, None))
    assert shown_at_login == [note]


@pytest.mark.parametrize(
    ("support", "teacher", "hint"),
    [
        (None, None, "ask the cluster's support why"),
        ("help@uni.example", None, "ask the cluster's support (help@uni.example) why"),
        ("help@uni.example", "gpulab@uni.example", "ask the cluster's support (gpulab@uni.example) why"),
    ],
)
def test_whom_to_ask_is_named(
    monkeypatch: pytest.MonkeyPatch, support: str | None, teacher: str | None, hint: str
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionFailed("Nobody answers.", hint="ask the cluster's support why")

    monkeypatch.setattr(engine_choice, "open_ssh_host", refuse)
    course = CourseProfile(name="lab", contact=teacher) if teacher else None
    target = LaunchTarget(ClusterProfile(contact=support), "uni", Destination("uni"), "slurm", course=course)
    with (
        pytest.raises(ConnectionFailed) as caught,
        open_context(target, RecordingView(), cast(Prompts, None), Interrupts()),
    ):
        pass
    assert caught.value.hint == hint
