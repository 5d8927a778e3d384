"""Ending a session in which a kernel is busy: confirmed once, where somebody can be asked."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from notebook_launcher import launch
from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted
from notebook_launcher.supervision import jupyter
from notebook_launcher.tunnel.page_saving import PagesSaved
from tests.doubles import wait_until
from tests.unit.supervision.launcher_doubles import Launcher, failing

ENDS: dict[str, Callable[[Launcher], None]] = {
    "ENTER": lambda launcher: launcher.types(""),
    "Ctrl-C": lambda launcher: launcher.presses_ctrl_c(1),
}

ASKING = (
    "Asking JupyterLab to save open documents and to report busy kernels; ENTER or Ctrl-C again ends the session now."
)


@pytest.fixture
def attached(launcher: Launcher) -> Launcher:
    launcher.launch()
    launcher.attach()
    launcher.prompts.asks = True  # not before: while it waits, it says what the keys do
    return launcher


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
def test_it_ends_when_it_is_said_a_second_time(attached: Launcher, first: str, second: str) -> None:
    attached.routes.busy = ("train.ipynb",)
    ENDS[first](attached)
    attached.noted("train.ipynb is still running. Check in the browser that your notebooks are saved.")
    attached.noted("Press ENTER or Ctrl-C again within 60 s to end the session and its job anyway, or d and ENTER")
    assert attached.host.count("scancel") == 0
    ENDS[second](attached)
    attached.well()
    assert attached.host.commands("scancel") == ["scancel 7"]


def test_no_is_an_answer(attached: Launcher) -> None:
    attached.routes.busy = ("train.ipynb",)
    attached.types("")
    attached.noted("or d and ENTER to detach")
    attached.types("no")
    attached.noted("The session keeps running.")
    assert attached.host.count("scancel") == 0 and not any("not known here" in note for note in attached.notes)
    attached.types("")  # is asked anew
    attached.types("")
    attached.well()


@pytest.mark.parametrize("end", ENDS)
def test_with_idle_kernels_it_ends_at_once(attached: Launcher, end: str) -> None:
    ENDS[end](attached)
    attached.well()
    assert attached.host.commands("scancel") == ["scancel 7"]
    assert attached.notes == [ASKING]


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (
            PagesSaved(1, 0, ("a/table.csv",)),
            "JupyterLab could not save a/table.csv. Press ENTER or Ctrl-C again",
        ),
        (
            PagesSaved(2, 1),
            "A page of JupyterLab did not answer. Check in the browser that your notebooks are saved. The browser",
        ),
    ],
)
def test_what_a_page_cannot_save_is_confirmed_as_well(attached: Launcher, saved: PagesSaved, words: str) -> None:
    attached.routes.saved = saved
    attached.types("")
    attached.noted(words)
    assert attached.host.count("scancel") == 0
    attached.types("")
    attached.well()
    assert attached.host.count("scancel") == 1


def test_the_pages_save_while_their_connection_is_there(attached: Launcher) -> None:
    connected: list[bool] = []
    attached.hooks.at("save_in_pages", lambda: connected.append(attached.routes.opened[-1].alive))
    attached.types("")
    attached.well()
    assert connected == [True]


def test_where_nobody_is_asked_what_is_not_saved_is_told(launcher: Launcher) -> None:
    launcher.routes.saved = PagesSaved(1, 0, ("a/table.csv",))
    launcher.launch()
    launcher.attach()
    launcher.presses_ctrl_c(1)
    launcher.well()
    assert launcher.shown(events.NotSaved).paths == ("a/table.csv",)
    assert launcher.host.count("scancel") == 1


def test_a_command_that_follows_its_own_job_says_nothing_of_keys(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``doctor --node`` does: nobody presses any."""
    monkeypatch.setattr(launch, "queue_session", functools.partial(launch.queue_session, purpose="doctor"))
    launcher.prompts.asks, launcher.routes.busy = True, ("train.ipynb",)
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.notes == [] and launcher.host.commands("scancel") == ["scancel 7"]


def test_a_second_ctrl_c_waits_for_no_answer(attached: Launcher) -> None:
    attached.blocks("busy_kernels")
    attached.presses_ctrl_c(1)
    attached.noted(ASKING)
    assert attached.host.count("scancel") == 0
    attached.presses_ctrl_c(1)
    attached.well()
    assert attached.host.count("scancel") == 1


def test_what_a_second_ctrl_c_does_is_said_before_it_counts(attached: Launcher) -> None:
    attached.blocks("busy_kernels")
    attached.presses_ctrl_c(2)
    attached.well()
    assert attached.notes == [ASKING]


@pytest.mark.parametrize("end", ENDS)
def test_the_second_time_no_silent_page_is_waited_for(attached: Launcher, end: str) -> None:
    attached.blocks("save_in_pages")
    ENDS[end](attached)
    wait_until(lambda: not attached.hooks.waiting, 30, "a page is asked")
    attached.blocks("save_in_pages")
    ENDS[end](attached)
    attached.well()
    assert attached.host.count("scancel") == 1 and attached.hooks.waiting == {"save_in_pages"}


def test_what_was_not_saved_is_told_before_the_kernels_have_answered(attached: Launcher) -> None:
    attached.routes.saved = PagesSaved(1, 0, ("a/table.csv",))
    attached.blocks("busy_kernels")
    attached.types("")
    wait_until(lambda: not attached.hooks.waiting, 30, "JupyterLab is asked for its kernels")
    attached.hooks.at("save_in_pages", failing(AssertionError("once more")))
    attached.types("")
    attached.well()
    assert attached.shown(events.NotSaved).paths == ("a/table.csv",)


@pytest.mark.parametrize("failure", [None, RuntimeError("what nobody thought of")])
def test_where_nothing_is_known_it_is_confirmed_as_well(attached: Launcher, failure: Exception | None) -> None:
    """JupyterLab may not answer just because a kernel uses all cores."""
    attached.routes.busy = None
    if failure:
        attached.hooks.at("busy_kernels", failing(failure))
    attached.types("")
    attached.noted("JupyterLab does not answer, so it is not known whether a kernel is busy.")
    assert attached.host.count("scancel") == 0
    attached.types("")
    attached.well()
    assert attached.host.count("scancel") == 1


def test_a_requeue_meanwhile_takes_it_back(attached: Launcher) -> None:
    """The job that waits again is not the one that was to end."""
    free = attached.blocks("busy_kernels")
    attached.types("")
    attached.noted(ASKING)
    attached.host.requeued()
    attached.shown(events.Pending, 2)
    free.set()
    attached.host.starts("n2")
    attached.host.says("endpoint", port=4242)
    attached.shown(events.Ready, 2)
    attached.types("d")
    attached.well()
    assert attached.host.count("scancel") == 0


def test_without_a_terminal_nothing_is_asked(launcher: Launcher) -> None:
    launcher.routes.busy = ("train.ipynb",)
    launcher.launch()
    launcher.attach()
    launcher.presses_ctrl_c(1)
    launcher.well()
    assert not launcher.notes
    assert launcher.host.count("scancel") == 1


def test_sigterm_asks_nothing(attached: Launcher) -> None:
    attached.routes.busy = ("train.ipynb",)
    attached.interrupts.arrive("end", at_once=True)
    attached.well()
    assert not attached.notes
    assert attached.host.count("scancel") == 1


def test_sigterm_waits_for_no_page(attached: Launcher) -> None:
    """They save when the job is told to end."""
    attached.blocks("save_in_pages")
    attached.interrupts.arrive("end", at_once=True)
    attached.well()
    assert attached.host.count("scancel") == 1


def test_what_else_is_typed_takes_it_back(attached: Launcher) -> None:
    attached.routes.busy = ("train.ipynb",)
    attached.types("")
    attached.noted("still running")
    attached.types("what")
    attached.noted("f PORT forwards")
    attached.types("")
    attached.types("d")
    attached.well()
    assert attached.host.count("scancel") == 0


def test_after_a_while_it_is_asked_again(attached: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    attached.routes.busy = ("train.ipynb",)
    monkeypatch.setattr(jupyter, "CONFIRM_WITHIN", 0.0)
    attached.types("")
    attached.shown(events.Note, 2)
    attached.types("")
    attached.shown(events.Note, 4)
    attached.types("d")
    attached.well()
    assert attached.host.count("scancel") == 0


def test_after_connect_enter_is_confirmed_and_ctrl_c_detaches(launcher: Launcher) -> None:
    launcher.prompts.asks = True
    launcher.routes.busy = ("train.ipynb",)
    launcher.connect()
    launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Ready)
    launcher.types("")
    launcher.noted("ENTER again within")
    launcher.presses_ctrl_c(1)
    launcher.well()
    assert launcher.host.count("scancel") == 0


def test_before_it_is_ready_ctrl_c_ends_at_once(launcher: Launcher) -> None:
    launcher.prompts.asks = True
    launcher.routes.busy = ("train.ipynb",)
    launcher.launch()
    launcher.starting()
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)
    assert launcher.host.count("scancel") == 1
