"""Programs beside JupyterLab (``--app``): a port here for each, as soon as JupyterLab has told of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from notebook_launcher.core import events, local_state
from notebook_launcher.tunnel import apps
from notebook_launcher.tunnel.apps import OpenApp
from notebook_launcher.tunnel.forwarding import Endpoint
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import Launcher

BOARD = OpenApp(name="board", title="Board", port=6006, state="starting", secret="s" * 43)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, int]]:
    """What JupyterLab was told of the local ports."""
    reported: list[Mapping[str, int]] = []

    def report(_port: int, _endpoint: Endpoint, token: str, ports: Mapping[str, int]) -> None:
        assert token
        reported.append(ports)

    monkeypatch.setattr(apps, "read_apps", lambda _port, _endpoint, _token: (BOARD,))
    monkeypatch.setattr(apps, "report_opened", report)
    return reported


def test_each_has_a_port_here(launcher: Launcher, reported: list[Mapping[str, int]]) -> None:
    launcher.launched("starting")
    launcher.host.says("endpoint", port=4242, apps=True)
    shown = launcher.shown(events.AppOpened)
    assert (shown.node, shown.app, shown.title, shown.state) == ("n1", "board", "Board", "starting")
    assert (shown.local_port, shown.url) == (6006, f"http://port-6006.localhost:6006/?nl-token={'s' * 43}")
    wait_until(lambda: reported == [{"board": 6006}], PATIENCE, "JupyterLab is told")
    assert local_state.app_ports(shown.session) == {"board": 6006}, "and so is a later status"
    launcher.goes_on_to_a_good_end()


def says(launcher: Launcher, state: str, **others: object) -> None:
    record = {"name": "board", "title": "Board", "state": state, "message": "It ended with exit code 7.", **others}
    launcher.host.says("apps", version=1, apps=[record])


def test_one_that_dies_for_good_is_told_of_once(launcher: Launcher, reported: list[Mapping[str, int]]) -> None:
    launcher.launched("starting")
    launcher.host.says("endpoint", port=4242, apps=True)
    session = launcher.shown(events.AppOpened).session
    for state in ("starting", "running", "starting", "failed", "failed"):
        says(launcher, state, log=["the last line"])
    failed = launcher.shown(events.AppFailed)
    assert (failed.session, failed.node, failed.app, failed.title) == (session, "n1", "board", "Board")
    assert (failed.message, failed.log) == ("It ended with exit code 7.", ("the last line",))
    assert failed.path.endswith(f"/{session}/runtime/app-board.log")
    assert failed.status_command == f"launch-notebook status --cluster uni {launcher.short_name}"
    launcher.host.drops()  # the next watcher reports everything again
    launcher.shown(events.Reconnected)
    launcher.goes_on_to_a_good_end()
    assert launcher.names.count("app_failed") == 1


def test_one_that_had_died_when_it_was_shown_is_not_told_of_again(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, reported: list[Mapping[str, int]]
) -> None:
    dead = BOARD.model_copy(update={"state": "failed"})
    monkeypatch.setattr(apps, "read_apps", lambda _port, _endpoint, _token: (dead,))
    launcher.launched("starting")
    says(launcher, "failed")
    launcher.host.says("endpoint", port=4242, apps=True)
    assert launcher.shown(events.AppOpened).state == "failed"
    says(launcher, "failed", restarts=1)
    launcher.goes_on_to_a_good_end()
    assert "app_failed" not in launcher.names


def test_one_that_dies_before_it_is_shown(launcher: Launcher, reported: list[Mapping[str, int]]) -> None:
    """JupyterLab's answer may be older than the job's report."""
    launcher.launched("starting")
    says(launcher, "failed")
    launcher.host.says("endpoint", port=4242, apps=True)
    failed = launcher.shown(events.AppFailed)
    assert failed.path == failed.status_command == ""
    assert launcher.names.index("app_opened") < launcher.names.index("app_failed")
    launcher.goes_on_to_a_good_end()


def test_a_node_that_names_others_each_time_does_not_fill_the_terminal(
    launcher: Launcher, reported: list[Mapping[str, int]]
) -> None:
    launcher.launched("starting")
    launcher.host.says("endpoint", port=4242, apps=True)
    launcher.shown(events.AppOpened)
    for number in range(30):
        says(launcher, "failed", name=f"n{number}")
    launcher.goes_on_to_a_good_end()
    assert launcher.names.count("app_failed") == 20


def test_another_run_of_the_job_is_asked_again(launcher: Launcher, reported: list[Mapping[str, int]]) -> None:
    launcher.launched("starting")
    launcher.host.says("endpoint", port=4242, apps=True)
    launcher.shown(events.AppOpened)
    says(launcher, "failed")
    launcher.shown(events.AppFailed)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343, apps=True)
    assert launcher.shown(events.AppOpened, 2).node == "n2"
    assert launcher.names.count("app_failed") == 1, "the report was on the former run"
    says(launcher, "failed")
    assert launcher.shown(events.AppFailed, 2).node == "n2"
    launcher.goes_on_to_a_good_end(ready=2)


def test_a_session_without_any_is_not_asked(
    launcher: Launcher, reported: list[Mapping[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(apps, "read_apps", lambda port, _endpoint, _token: asked.append(port) or ())
    launcher.launched("attached")
    launcher.goes_on_to_a_good_end()
    assert not asked and not reported and "app_opened" not in launcher.names
