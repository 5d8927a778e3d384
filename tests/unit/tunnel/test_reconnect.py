"""Making a lost connection anew: how often, how rarely, when no more; the host is a stand-in, the pauses are noted."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest

from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
)
from notebook_launcher.core.timing import DEFAULT_TIMING as USUAL
from notebook_launcher.core.timing import Timing
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.tunnel.reconnect import (
    REFUSED_TIMES,
    ReconnectFailed,
    Reconnection,
    ReconnectSucceeded,
)

PATIENCE = 20.0  # seconds in which anything that should happen has happened; only a failing test waits so long

UNREACHABLE = ConnectionFailed("login cannot be reached.")
REFUSED = AuthenticationFailed("login does not let you in.")

Outcome = Exception | Callable[[], object]


class User:
    """Answers nothing, and counts."""

    asks = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append((text, echo))
        return None

    def confirm(self, text: str) -> bool:
        return True

    def dismiss(self) -> None:
        pass


class FakeHost(LocalHost):
    """Reconnecting ends as ``outcomes`` say one after the other, and then well.

    ``replaced``: whether the old connection was given up for the new one; ``after`` that, this is done.
    """

    def __init__(self, outcomes: list[Outcome], *, otherwise: Exception | None = None) -> None:
        super().__init__()
        self.outcomes, self.otherwise = outcomes, otherwise
        self.timeouts: list[float] = []
        self.replaced: bool | None = None
        self.after: Callable[[], object] | None = None

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        self.timeouts.append(timeout)
        outcome = self.outcomes.pop(0) if self.outcomes else self.otherwise
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            outcome()
        self.replaced = replace()
        if self.after is not None:
            self.after()


class Tried:
    """A reconnection, what became of it, and how long it paused in between."""

    def __init__(
        self,
        host: FakeHost,
        *,
        seconds: float = 1e6,
        pause: float = 0.0,
        is_lost: Callable[[], bool] = lambda: True,
        timing: Timing = USUAL,
    ) -> None:
        self.host, self.user = host, User()
        self.prompts = CountedPrompts(self.user)
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.reconnection = Reconnection(
            host,
            self.prompts,
            self.inbox,
            deadline=time.monotonic() + seconds,
            pause=pause,
            is_lost=is_lost,
            timing=timing,
        )

    def word(self) -> object:
        return self.inbox.get(timeout=PATIENCE)

    def is_mended(self) -> None:
        word = self.word()
        assert isinstance(word, ReconnectSucceeded) and word.by is self.reconnection

    def is_given_up(self) -> LauncherError:
        word = self.word()
        assert isinstance(word, ReconnectFailed) and word.by is self.reconnection
        return word.error


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are noted, and take no time."""
    noted: list[float] = []

    def sleep(self: Reconnection, seconds: float) -> None:
        noted.append(seconds)

    monkeypatch.setattr(Reconnection, "_sleep", sleep)
    return noted


def failures(count: int, error: Exception = UNREACHABLE) -> list[Outcome]:
    return [error] * count


def test_at_once(pauses: list[float]) -> None:
    tried = Tried(FakeHost([]))
    tried.is_mended()
    assert pauses == [0.0] and tried.host.timeouts == [USUAL.connect_within]


def test_what_broke_just_now_is_waited_for_first(pauses: list[float]) -> None:
    tried = Tried(FakeHost([]), pause=3.5)
    tried.is_mended()
    assert pauses == [3.5]


def test_ever_more_rarely_and_never_too_rarely(pauses: list[float]) -> None:
    tried = Tried(FakeHost(failures(12)))
    tried.is_mended()
    assert len(tried.host.timeouts) == 13
    between = pauses[1:]
    for number, pause in enumerate(between):
        least = min(USUAL.reconnect_pause * 2**number, USUAL.longest_reconnect_pause)
        assert least <= pause <= least + USUAL.reconnect_pause, "doubled each time, a little by chance, and bounded"
    assert between[-1] >= USUAL.longest_reconnect_pause


def test_a_network_that_is_away_for_hours_is_tried_to_the_end(pauses: list[float]) -> None:
    tried = Tried(FakeHost(failures(1000)))
    tried.is_mended()
    assert max(pauses) <= USUAL.longest_reconnect_pause + USUAL.reconnect_pause


def test_not_beyond_the_deadline(pauses: list[float]) -> None:
    host = FakeHost([lambda: time.sleep(0.3) or fail(UNREACHABLE)], otherwise=UNREACHABLE)
    tried = Tried(host, seconds=0.1)
    assert tried.is_given_up() is UNREACHABLE
    assert len(host.timeouts) == 1


def fail(error: Exception) -> None:
    raise error


def test_one_attempt_is_made_however_late_it_is(pauses: list[float]) -> None:
    tried = Tried(FakeHost([]), seconds=-5)
    tried.is_mended()


@pytest.mark.parametrize("error", [HostKeyChanged("It has changed."), HostKeyUnknown("It is not known.")],
                         ids=lambda error: error.kind)  # fmt: skip
def test_what_no_attempt_can_change(pauses: list[float], error: LauncherError) -> None:
    tried = Tried(FakeHost([UNREACHABLE, error]))
    assert tried.is_given_up() is error
    assert len(tried.host.timeouts) == 2


@pytest.mark.parametrize("error", [KeyError("a bug"), RuntimeError("can't start new thread"), OSError("odd")])
def test_a_bug_is_told(pauses: list[float], error: Exception) -> None:
    tried = Tried(FakeHost([error]))
    assert repr(error) in tried.is_given_up().why


def test_refused_without_a_question(pauses: list[float]) -> None:
    tried = Tried(FakeHost([], otherwise=REFUSED))
    assert tried.is_given_up() is REFUSED
    assert len(tried.host.timeouts) == REFUSED_TIMES


def test_refused_for_a_while(pauses: list[float]) -> None:
    """Not in a row: a login node that comes and goes is not one that has made up its mind."""
    outcomes = [*failures(REFUSED_TIMES - 1, REFUSED), UNREACHABLE, *failures(REFUSED_TIMES - 1, REFUSED)]
    Tried(FakeHost(outcomes)).is_mended()


def asking(tried: list[Tried], then: Exception | None) -> Callable[[], None]:
    def ask() -> None:
        tried[0].prompts.secret("Code: ", echo=True)
        if then:
            raise then

    return ask


def test_refused_after_a_question(pauses: list[float]) -> None:
    tried: list[Tried] = []
    ready = threading.Event()
    host = FakeHost([lambda: ready.wait(PATIENCE) and fail(UNREACHABLE), asking(tried, REFUSED)], otherwise=REFUSED)
    tried.append(Tried(host))
    ready.set()
    assert tried[0].is_given_up() is REFUSED
    assert tried[0].user.asked == [("Code: ", True)], "as it was put, and once"
    assert len(host.timeouts) == 2


def test_questions_of_before_do_not_count(pauses: list[float]) -> None:
    """At the first login the user was asked, too."""
    host, prompts, inbox = FakeHost([REFUSED]), CountedPrompts(User()), queue.SimpleQueue[object]()
    prompts.secret("Password: ")
    Reconnection(host, prompts, inbox, deadline=time.monotonic() + 1e6, pause=0.0, is_lost=lambda: True)
    assert isinstance(inbox.get(timeout=PATIENCE), ReconnectSucceeded)
    assert len(host.timeouts) == 2


class Patient(User):
    """Is asked on a terminal, and thinks it over for ever; a question can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.sees_a_question, self.taken_back = threading.Event(), threading.Event()

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append((text, echo))
        self.sees_a_question.set()
        assert self.taken_back.wait(PATIENCE), "the question stands, and nobody needs the answer"
        return None

    def dismiss(self) -> None:
        self.taken_back.set()


@pytest.mark.parametrize("when", ["while it stands", "before it comes"])
def test_a_question_that_nobody_needs_any_more_is_taken_back(when: str) -> None:
    """The old connection has come back while the new one asks for a code: keys are for the session again."""
    user, inbox = Patient(), queue.SimpleQueue[object]()
    prompts, connects, goes_on = CountedPrompts(user), threading.Event(), threading.Event()

    def asks() -> None:
        connects.set()
        assert goes_on.wait(PATIENCE)
        if prompts.secret("Code: ") is None:
            raise REFUSED

    reconnection = Reconnection(
        FakeHost([asks]), prompts, inbox, deadline=time.monotonic() + 1e6, pause=0.0, is_lost=bool
    )
    assert connects.wait(PATIENCE)
    if when == "while it stands":
        goes_on.set()
        assert user.sees_a_question.wait(PATIENCE)
    reconnection.stop()
    goes_on.set()
    reconnection._thread.join(PATIENCE)
    assert not reconnection._thread.is_alive()
    assert len(user.asked) == (when == "while it stands")
    assert inbox.empty()
    user.taken_back.set()
    prompts.secret("Password: ")
    assert user.asked[-1] == ("Password: ", False), "what comes afterwards is asked"


def test_prompts_are_passed_on() -> None:
    user = User()
    prompts = CountedPrompts(user)
    assert prompts.secret("Password: ") is None and prompts.secret("Code: ", echo=True) is None
    assert prompts.confirm("Is it right?") is True
    assert user.asked == [("Password: ", False), ("Code: ", True)] and prompts.count == 2


# --- stopped -------------------------------------------------------------------------------------------------


LONG_PAUSES = Timing(reconnect_pause=3600.0, longest_reconnect_pause=3600.0)


def is_over() -> bool:
    deadline = time.monotonic() + PATIENCE
    while any(thread.name == "reconnect" for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_stopped_before_the_first_attempt() -> None:
    tried = Tried(FakeHost([]), pause=3600.0, timing=LONG_PAUSES)
    tried.reconnection.stop()
    tried.reconnection.stop()
    assert is_over() and tried.host.timeouts == [] and tried.inbox.empty()


def test_stopped_in_a_pause_there_is_no_further_attempt() -> None:
    """It would replace a connection that has come back by itself."""
    failed = threading.Event()
    tried = Tried(FakeHost([lambda: failed.set() or fail(UNREACHABLE)]), timing=LONG_PAUSES)
    assert failed.wait(PATIENCE)
    time.sleep(0.1)
    tried.reconnection.stop()
    assert is_over() and len(tried.host.timeouts) == 1 and tried.inbox.empty()


@pytest.mark.parametrize("error", [UNREACHABLE, REFUSED, HostKeyChanged("It has changed.")], ids=lambda e: e.kind)
def test_stopped_in_an_attempt_that_fails_nothing_is_told(error: LauncherError) -> None:
    begun, free = threading.Event(), threading.Event()
    tried = Tried(FakeHost([lambda: begun.set() or (free.wait(PATIENCE) and fail(error))]), timing=LONG_PAUSES)
    assert begun.wait(PATIENCE)
    tried.reconnection.stop()
    free.set()
    assert is_over() and len(tried.host.timeouts) == 1 and tried.inbox.empty()


def test_stopped_in_an_attempt_that_would_succeed_the_old_connection_that_came_back_stays() -> None:
    begun, free = threading.Event(), threading.Event()
    tried = Tried(FakeHost([lambda: begun.set() or free.wait(PATIENCE)]), is_lost=lambda: False, timing=LONG_PAUSES)
    assert begun.wait(PATIENCE)
    tried.reconnection.stop()
    free.set()
    assert is_over() and tried.host.replaced is False and tried.inbox.empty()


def test_stopped_just_after_the_old_connection_was_replaced_that_is_told() -> None:
    """What ran over it has ended, and must be begun again."""
    host = FakeHost([])
    ready = threading.Event()
    tried: list[Tried] = []
    host.after = lambda: ready.wait(PATIENCE) and tried[0].reconnection.stop()
    tried.append(Tried(host, timing=LONG_PAUSES))
    ready.set()
    tried[0].is_mended()
    assert host.replaced is True


# --- the old connection's last chance ------------------------------------------------------------------------


def test_a_new_connection_waits_until_the_old_one_is_lost() -> None:
    lost = threading.Event()
    tried = Tried(FakeHost([]), is_lost=lost.is_set)
    time.sleep(0.3)
    assert tried.host.timeouts and tried.host.replaced is None and tried.inbox.empty()
    lost.set()
    tried.is_mended()
    assert tried.host.replaced is True


def test_an_old_connection_that_comes_back_meanwhile_stays() -> None:
    tried = Tried(FakeHost([]), is_lost=lambda: False)
    time.sleep(0.2)
    tried.reconnection.stop()
    assert is_over() and tried.host.replaced is False and tried.inbox.empty()
