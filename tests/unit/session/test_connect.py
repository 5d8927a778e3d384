"""What is said before a command logs in."""

from __future__ import annotations

from typing import cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.hosts import engine_choice
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.session.connect import open_host
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
