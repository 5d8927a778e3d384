"""A connection on which nothing is heard, and which may come back by itself."""

from __future__ import annotations

import threading
import time

import pytest

from notebook_launcher.core import events
from notebook_launcher.jobs import watcher
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import FakeRoute, Launcher

pytestmark = pytest.mark.real_time


@pytest.fixture
def short_silence(launcher: Launcher) -> None:
    launcher.set_timing(silent_after=0.3, lost_after=0.5)


@pytest.fixture
def rare_attempts(launcher: Launcher) -> None:
    launcher.set_timing(reconnect_pause=60.0)
    launcher.set_timing(longest_reconnect_pause=60.0)


def test_signs_of_life_are_enough(launcher: Launcher) -> None:
    launcher.set_timing(silent_after=1.0, lost_after=1.5)
    launcher.launch()
    launcher.attach()
    launcher.host.beats()
    time.sleep(1.7)
    assert launcher.going and "disconnected" not in launcher.names
    launcher.types("")
    launcher.well()


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("when", ["starting", "attached"])
def test_silent_for_long_a_new_connection_is_made(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.beats()
    launcher.host.silent = True
    assert "nothing was heard for" in launcher.shown(events.Disconnected).reason
    launcher.is_reconnected()
    assert launcher.host.connection == 1
    launcher.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
@pytest.mark.parametrize("when", ["pending", "attached"])
def test_silent_for_long_and_heard_again(launcher: Launcher, when: str) -> None:
    """The old connection is used on, and whoever waited to make a new one does not make it any more."""
    launcher.set_timing(lost_after=60.0)
    launcher.launched(when)
    launcher.host.beats()
    launcher.host.falls_silent()
    launcher.shown(events.Disconnected)
    launcher.host.is_tried(1)
    ways = len(launcher.routes.opened)
    launcher.host.is_heard_again()
    launcher.is_reconnected()
    time.sleep(0.1)
    assert launcher.host.attempts == 1 and launcher.host.connection == 0 and len(launcher.host.streams) == 1
    assert len(launcher.routes.opened) == ways, "the way to the node has come back as well"
    launcher.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence")
def test_heard_again_while_a_new_connection_waits_to_replace_it(launcher: Launcher) -> None:
    launcher.set_timing(lost_after=60.0)
    launcher.launched("attached")
    launcher.host.beats()
    launcher.host.silent = True
    launcher.host.is_tried(1)
    time.sleep(0.1)
    assert launcher.host.connection == 0, "the old one may still come back"
    launcher.host.is_heard_again()
    launcher.is_reconnected()
    time.sleep(0.1)
    assert launcher.host.attempts == 1 and launcher.host.connection == 0
    assert not launcher.host.watched.ended and len(launcher.routes.opened) == 1
    launcher.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
def test_heard_again_but_the_way_to_the_node_is_gone(launcher: Launcher) -> None:
    launcher.set_timing(lost_after=60.0)
    launcher.launched("attached")
    launcher.host.beats()
    launcher.host.falls_silent()
    launcher.shown(events.Disconnected)
    launcher.host.is_tried(1)
    launcher.routes.opened[-1].standing = False
    launcher.host.is_heard_again()
    launcher.is_reconnected()
    assert len(launcher.routes.opened) == 2 and launcher.host.connection == 0
    launcher.goes_on_to_a_good_end()


def is_closed_soon(link: FakeRoute) -> bool:
    return wait_until(lambda: link.closed, PATIENCE)


@pytest.mark.usefixtures("short_silence", "rare_attempts")
@pytest.mark.parametrize("how", ["silent", "drops"])
def test_jupyterlab_is_told_that_it_is_not_connected(launcher: Launcher, how: str) -> None:
    """So that it keeps what is typed; and what comes back afterwards gets a new way."""
    launcher.launched("attached")
    launcher.host.beats()
    launcher.host.falls_silent() if how == "silent" else launcher.host.drops(reachable=False)
    assert is_closed_soon(launcher.routes.opened[0])
    if how == "silent":
        launcher.host.is_heard_again()
        launcher.is_reconnected()
        assert launcher.host.connection == 0 and launcher.routes.opened[1].alive
        launcher.goes_on_to_a_good_end()
    else:
        launcher.types("d")
        launcher.well()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
def test_silent_before_the_script_has_said_a_word(launcher: Launcher) -> None:
    """What it said meanwhile is on its way: a job that runs well is not cancelled for it."""
    launcher.set_timing(script_starts_within=1.0)
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.launch()
    launcher.shown(events.Running)
    launcher.host.beats()
    launcher.host.falls_silent()
    time.sleep(1.2)
    launcher.host.is_heard_again()
    launcher.shown_or_over(events.Reconnected)
    time.sleep(0.1)
    launcher.host.says("started", node_names=["n1"])
    launcher.shown(events.TunnelOpened)
    launcher.goes_on_to_a_good_end()


def test_after_a_long_stop_the_words_on_their_way_are_waited_for(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z, an hour, fg: nothing was heard for an hour, and all of it is in the socket."""
    launcher.launched("attached")
    silences = [3600.0]
    seen = threading.Event()

    def silent_for(_: watcher.JobWatcher) -> float:
        seen.set() if not silences else None
        return silences.pop() if silences else 0.1

    monkeypatch.setattr(watcher.JobWatcher, "silent_for", property(silent_for))
    assert seen.wait(PATIENCE)
    assert "disconnected" not in launcher.names
    launcher.goes_on_to_a_good_end()
