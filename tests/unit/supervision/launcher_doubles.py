"""Stand-ins for a login node with one job, the route to its node, and a command of ours that a test plays with.

``FakeHost`` answers commands from a small model of one Slurm job (read by the real ``Slurm``) and its stream says what
a test pushes; its connection breaks, falls silent and comes back when a test says so; ``find_route`` and
``check_jupyter`` are replaced by functions that open nothing. So the tests show the order of things, the errors, and
what is cancelled and removed, for interrupts and failures between any two steps. That a real Slurm, ssh, tunnel and
JupyterLab do what is played here is shown by ``tests/cluster_tests``.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from notebook_launcher import launch, sessions
from notebook_launcher import stop as stopping
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ConnectionFailed,
    ConnectionLost,
    NodeUnreachable,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.view import Typed
from notebook_launcher.hosts.base import ByteStream, Prompts, Route
from notebook_launcher.jobs.session_choice import short_name_among
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.tunnel import forwarding as tunnel
from notebook_launcher.tunnel.forwarding import Endpoint, PortOwner
from notebook_launcher.tunnel.page_saving import PagesSaved
from notebook_launcher.tunnel.routes import NodeTarget
from tests.doubles import FakePrompts, RecordingView, wait_until
from tests.unit.conftest import SetTiming
from tests.unit.supervision.fake_login import PATIENCE, SESSION_ID, FakeHost, Hooks

#: pauses before what breaks at once every time, with ``remake_pause=0.01``
DOUBLED = [0.0, 0.01, 0.02, 0.04]
RECORD = {"id": SESSION_ID, "created": "2026-11-21T01:44:55Z", "scheduler": "slurm", "flags": {}, "log": "/log"}
TARGET = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
PLAN = Plan(TARGET, Request({"time": "2:00:00"}), None, Environment(), None)
QUICK: dict[str, float] = {
    "tick": 0.02,
    "poll_pause": 0.005,
    "longest_poll_pause": 0.005,
    "longest_unanswered_pause": 0.005,
    "rpcs_per_hour": 10**9,
    "reconnect_pause": 0.01,
    "longest_reconnect_pause": 0.05,
    "remake_pause": 0.05,
    "replace_check": 0.01,
    "final_status_within": 2.0,
    "final_status_pause": 0.01,
    "longest_final_status_pause": 0.02,
    "history_within": 0.05,
    "history_pause": 0.01,
    "submitted_appears_within": 0.3,
    "lookup_pause": 0.05,
    "longest_lookup_pause": 0.1,
    "cancel_check_pause": 0.01,
    "longest_cancel_check_pause": 0.04,
    "accounting_pause": 0.01,
    "reread_pause": 0.05,
}
E = TypeVar("E", bound=events.Event)
Error = TypeVar("Error", bound=BaseException)


class FakeRoute(Route):
    """A way to a node on which nothing travels; it breaks with the connection that it was made over."""

    def __init__(self, host: FakeHost) -> None:
        self._host, self._connection = host, host.connection
        self.standing = True  # the test's to change
        self.closed = False

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise ConnectionRefusedError("nothing travels here")

    @property
    def alive(self) -> bool:
        over = self._host.connected and self._host.connection == self._connection
        return self.standing and not self.closed and over

    def close(self) -> None:
        self.closed = True


class FakeTunnel(tunnel.Tunnel):
    """The real one, without its ports: a second tunnel would have other ones."""

    def __init__(self, number: int, taken: Collection[int] = ()) -> None:
        super().__init__()
        self._first, self._taken = 50001 + 1000 * number, taken

    def _open(self, name: object, target: tuple[str, int], wish: int = 0) -> int:
        return self._first if wish in self._taken else wish or self._first


class Routes:
    """In place of what uses the network; ``opening``, ``reaching`` and ``port_owner`` are hooks on its threads.

    ``refusals``: why the next ways cannot be made; ``unreachable``: nodes to which none can be made.
    """

    def __init__(self, hooks: Hooks, host: FakeHost) -> None:
        self._hooks, self._host = hooks, host
        self.opened: list[FakeRoute] = []
        self.threads: list[threading.Thread] = []
        self.ending_calls: list[bool] = []  # of each way: whether the job may be told to wait for no more calls
        self.refusals: list[Exception] = []
        self.unreachable: set[str] = set()
        self.port_owners: dict[int, PortOwner] = {}  # whose programs listen on ports of the node
        self.busy: tuple[str, ...] | None = ()  # what kernels run
        self.saved = PagesSaved()  # what comes of it when the pages are to save
        self.answers = True  # whether JupyterLab still does when the session is ended

    def find_route(
        self, target: NodeTarget, wanted: str, cluster: str, *, ends_calls: bool, trying: Callable[[str], None]
    ) -> tuple[str, FakeRoute]:
        self.ending_calls.append(ends_calls)
        self.threads.append(threading.current_thread())
        made = FakeRoute(self._host)
        self.opened.append(made)
        trying("node-ssh")
        try:
            self._hooks.reached("opening")
            if self.refusals:
                raise self.refusals.pop(0)
            if not self._host.connected or str(target.node) in self.unreachable:
                raise NodeUnreachable(f"No route to {target.node} was found.")
        except Exception:
            made.closed = True  # nobody gets it
            raise
        return "node-ssh", made

    def check_jupyter(self, local_port: int, endpoint: Endpoint, token: str) -> None:
        self.threads.append(threading.current_thread())
        self._hooks.reached("reaching")

    def is_answered(self, local_port: int, endpoint: Endpoint, token: str) -> bool:
        self._hooks.reached("is_answered")
        return self.answers

    def save_in_pages(self, local_port: int, endpoint: Endpoint, token: str, within: float = 0.0) -> PagesSaved:
        self._hooks.reached("save_in_pages")
        return self.saved

    def busy_kernels(self, local_port: int, endpoint: Endpoint, token: str, within: float) -> tuple[str, ...] | None:
        self._hooks.reached("busy_kernels")
        return self.busy

    def port_owner(self, local_port: int, endpoint: Endpoint, token: str, port: int) -> PortOwner:
        owner = self.port_owners.get(port, PortOwner.NOBODY)
        self._hooks.reached("port_owner")
        return owner


class WatchedView(RecordingView):
    """One on which a test can wait for an event, and act in the middle of another."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self._hooks = hooks
        self.changed = threading.Condition()

    def show(self, event: events.Event) -> None:
        self._hooks.reached(event.name)
        with self.changed:
            super().show(event)
            self.changed.notify_all()


class Launcher:
    """A command of ours on a thread of its own, and a test that makes things happen to it."""

    def __init__(self, set_timing: SetTiming) -> None:
        self.set_timing = set_timing
        self.hooks = Hooks()
        self.host, self.view = FakeHost(self.hooks), WatchedView(self.hooks)
        self.routes = Routes(self.hooks, self.host)
        self.tunnels: list[FakeTunnel] = []
        self.taken_ports: set[int] = set()  # of this machine, by other programs
        self.prompts = FakePrompts(asks=False)
        self.interrupts = Interrupts()
        self.raised: BaseException | None = None
        self.blocked: list[threading.Event] = []
        self._thread: threading.Thread | None = None

    def launch(self, plan: Plan = PLAN) -> None:
        self._begin(lambda: launch.launch(plan, self.view, self.prompts, self.interrupts))

    def connect(self) -> None:
        """Come back to a session whose job, 7, is queued or runs already."""
        self._old_session()
        self._begin(lambda: sessions.connect(TARGET, "", self.view, self.prompts, self.interrupts))

    def forward(self, *ports: tuple[int, int]) -> None:
        """Hold ports of that session's node, and nothing else."""
        self._old_session()
        self._begin(lambda: sessions.forward(TARGET, ports, "", self.view, self.prompts, self.interrupts))

    def stop(self) -> None:
        self._old_session()
        self._begin(lambda: stopping.stop(TARGET, [], self.view, self.prompts, self.interrupts))

    def open_host(self, target: LaunchTarget, view: object, prompts: Prompts) -> FakeHost:
        """In place of ``opening.open_host``."""
        self.host.prompts = prompts
        return self.host

    def tunnel(self) -> FakeTunnel:
        """In place of ``Tunnel``."""
        self.tunnels.append(FakeTunnel(len(self.tunnels), self.taken_ports))
        return self.tunnels[-1]

    def _old_session(self) -> None:
        self.host.files |= {"session.json": json.dumps(RECORD), "job": "7\n", "token": "secret\n"}

    def _begin(self, act: Callable[[], None]) -> None:
        def play() -> None:
            try:
                act()
            except BaseException as error:
                self.raised = error
            with self.view.changed:
                self.view.changed.notify_all()

        self._thread = threading.Thread(target=play, daemon=True)
        self._thread.start()

    # --- what has happened

    def shown(self, kind: type[E], count: int = 1, patience: float = PATIENCE) -> E:
        """Wait for the ``count``-th event of a kind."""
        event = self.shown_or_over(kind, count, patience)
        assert event is not None, f"{kind.__name__} {count} is not among {self.view.events}; raised: {self.raised!r}"
        return event

    def shown_or_over(self, kind: type[E], count: int = 1, patience: float = PATIENCE) -> E | None:
        """Wait for it, or for the end of the command."""

        def seen() -> list[E]:
            return [event for event in self.view.events if isinstance(event, kind)]

        assert self._thread is not None
        with self.view.changed:
            self.view.changed.wait_for(lambda: len(seen()) >= count or not self.going, patience)
            return seen()[count - 1] if len(seen()) >= count else None

    @property
    def going(self) -> bool:
        return self.raised is None and self._thread is not None and self._thread.is_alive()

    @property
    def names(self) -> list[str]:
        """What was shown to everybody, and stays; the rest is for who asks for details, or updates in place."""
        passing = (events.TunnelOpened, events.Attached)
        return [event.name for event in self.view.events if not isinstance(event, passing)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.view.events if isinstance(event, events.Note)]

    @property
    def session_id(self) -> str:
        return self.shown(events.Submitted).session

    @property
    def short_name(self) -> str:
        """The session's name in commands that are shown."""
        return short_name_among(self.session_id, ())

    def over(self) -> BaseException | None:
        """Wait for the end, and return what was raised. Whatever the end, nothing stays open."""
        assert self._thread is not None
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the command goes on; shown: {self.view.events}"
        for event in self.blocked:
            event.set()
        for thread in self.routes.threads:
            thread.join(PATIENCE)
        assert all(link.closed for link in self.routes.opened)
        assert all(not tunnel.alive for tunnel in self.tunnels)
        assert all(stream.closed for stream in self.host.streams)
        assert self.host.closed
        return self.raised

    def well(self) -> None:
        """It ended well."""
        raised = self.over()
        assert raised is None, repr(raised)

    def fails(self, kind: type[Error]) -> Error:
        """It ended with just this error."""
        raised = self.over()
        assert type(raised) is kind, (raised, getattr(raised, "why", ""))
        return raised

    # --- what the test does

    def presses_ctrl_c(self, times: int) -> None:
        for _ in range(times):
            self.interrupts.arrive("end")

    def types(self, line: str) -> None:
        self.interrupts.inbox.put(Typed(line))

    def blocks(self, step: str, then: Callable[[], object] | None = None) -> threading.Event:
        """Let a step wait for the event that is returned, and do something after it."""
        free = threading.Event()
        self.blocked.append(free)

        def wait() -> None:
            assert free.wait(2 * PATIENCE)
            if then:
                then()

        self.hooks.at(step, wait)
        return free

    def noted(self, text: str) -> None:
        """Wait until the user was told so."""
        wait_until(lambda: any(text in note for note in self.notes), PATIENCE, f"a note with {text}")

    def attach(self) -> events.Ready:
        """Play the good way as far as the address."""
        self.starting()
        self.host.says("endpoint", port=4242)
        return self.shown(events.Ready)

    def starting(self) -> None:
        """Play the good way as far as the way to the node; JupyterLab does not listen yet."""
        self.shown(events.Pending)
        self.host.starts()
        self.shown(events.TunnelOpened)

    def launched(self, when: str) -> None:
        """Play the good way as far as one of ``WHEN``."""
        self.launch()
        {"pending": lambda: self.shown(events.Pending), "starting": self.starting, "attached": self.attach}[when]()

    def is_reconnected(self, times: int = 1) -> None:
        """Wait until that is said; nothing else was, and nothing has happened to the job."""
        self.shown(events.Reconnected, times)
        assert self.names.count("disconnected") == self.names.count("reconnected") == times
        assert len(self.tunnels) == 1
        assert self.host.count("scancel") == 0

    def goes_on_to_a_good_end(self, ready: int = 1) -> None:
        """The session can be used, and ends as usual."""
        if self.host.state == "PENDING":
            self.host.starts()
        if "ready" not in self.names:
            self.host.says("endpoint", port=4242)
        assert self.shown(events.Ready, ready).local_port == 50001
        self.types("")
        self.well()
        assert self.names.count("ready") == ready and self.names[-2:] == ["stopping", "ended"]
        assert self.host.state == "CANCELLED"

    def plays_to_the_end(self) -> None:
        """Play the good way, whatever ends it earlier."""
        if self.shown_or_over(events.Pending):
            self.host.state, self.host.node = "RUNNING", "n1"
            with contextlib.suppress(AssertionError):  # nobody listens any more
                self.host.says("started", node_names=["n1"])
        if self.shown_or_over(events.Running):
            self.host.says("endpoint", port=4242)


def failing(error: Exception) -> Callable[[], CommandResult]:
    def fail() -> CommandResult:
        raise error

    return fail


def no_answer() -> CommandResult:
    return CommandResult(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")


def nothing() -> None:
    pass


WHEN = ["pending", "starting", "attached"]
UNREACHABLE = ConnectionFailed("login port 22 cannot be reached.")
LOST = ConnectionLost("The connection to login is lost.")


def is_left_with_the_way_back(launcher: Launcher, error: ConnectionLost) -> None:
    assert "The session goes on: job 7." in error.why
    assert error.hint == f"come back with: launch-notebook connect --cluster uni {launcher.short_name}"
    assert launcher.host.count("scancel") == launcher.host.count("rm") == 0
    assert "stopping" not in launcher.names


CHANGED = "The host key of login has changed."


def come_back(launcher: Launcher, state: str = "RUNNING") -> None:
    launcher.host.state, launcher.host.node = state, "n1"
    launcher.connect()
    assert launcher.shown(events.Note).text == f"Session {SESSION_ID}: job 7."


def come_back_to_ready(launcher: Launcher) -> None:
    come_back(launcher)
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("endpoint", port=4242)
    assert launcher.shown(events.Ready).url == "http://127.0.0.1:50001/lab?token=secret"
