"""Which route is tried when, who is asked, and what is remembered."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from notebook_launcher.core import local_state
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, NextHop, OnEnd, OnLine, Route
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.credentials import SessionKeys
from notebook_launcher.session.record import Session, record_in
from notebook_launcher.tunnel import routes
from notebook_launcher.tunnel.routes import JobNode, NodeTarget, find_route, may_need_call, may_need_sshd

RECORD = {"id": "20261121-014455-abcd", "created": "2026-11-21T01:44:55Z", "scheduler": "slurm", "flags": {}, "log": ""}

DIRECTORY = "/home/alice/.notebook-launcher/sessions/20261121-014455-abcd"

SESSION = Session(record_in(json.dumps(RECORD)), DIRECTORY, JobRef("7"))

KEYS = SessionKeys("our private key", "ssh-ed25519 SERVERS")

NO_CALLS = ["rm", "-f", f"{DIRECTORY}/runtime/reverse/calls"]

NODE = JobNode(("n1.cluster", "n1"), ("ssh-ed25519 NODES", "ssh-rsa NODES"), 40022)

NO_ROUTE = ConnectionFailed("n1 port 22 cannot be reached.", why="No route to host")

REFUSED = AuthenticationFailed("n1 does not let you in.", why="publickey")

UNKNOWN = HostKeyUnknown("The host key of n1 is not known.")

CHANGED = HostKeyChanged("The host key of n1 has changed.")


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What this machine remembers, away from the user's own."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "routes.json"


class FakeRoute(Route):
    def __init__(self, onward: NextHop | None) -> None:
        self.onward = onward

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise ConnectionRefusedError

    @property
    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


def kind_of(onward: NextHop | None) -> str:
    if onward is None:
        return "lent"
    if onward.address is None:
        return "reverse" if "reverse.sh" in onward.command[1] else "step"
    return "node-ssh" if onward.address[1] == 22 else "job-sshd"


Answers = Callable[[NextHop], LauncherError | None]


class FakeHost(Host):
    """Links lead where ``answers`` says ``None``, and fail with the error that it returns."""

    label = "login"
    remote = True
    alive = True

    def __init__(self, answers: Answers = lambda _: None) -> None:
        self.answers = answers
        self.asked_for: list[NextHop | None] = []
        self.ran: list[list[str]] = []

    def open_route(self, hop: NextHop | None = None) -> Route:
        self.asked_for.append(hop)
        error = self.answers(hop) if hop else None
        if error is not None:
            raise error
        return FakeRoute(hop)

    @property
    def tried(self) -> list[str]:
        """The kinds of ways in the order in which they were tried."""
        return [kind for kind, _ in itertools.groupby(self.asked_for, kind_of)]

    @property
    def tried_names(self) -> list[str]:
        return [onward.name for onward in self.asked_for if onward]

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> CommandResult:
        """Only calls to the job are run: it connects; or it is to wait for none any more."""
        self.ran.append(list(argv))
        if list(argv) == NO_CALLS:
            return CommandResult(0)
        assert argv == ["bash", f"{DIRECTORY}/reverse.sh", "call", DIRECTORY] and not login_shell
        return CommandResult(0, "open Tag12345\n")

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        raise AssertionError("nothing is followed")

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise AssertionError("a link does it")

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise AssertionError("a link does it")

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        raise AssertionError("that is for who follows the session")

    def close(self) -> None:
        pass


class NoSteps(Slurm):
    def step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:  # type: ignore[override]
        return None


def target(host: Host, node: JobNode = NODE, scheduler: Scheduler | None = None) -> NodeTarget:
    return NodeTarget(host, scheduler or Slurm(), SESSION, JobRef("7"), node, lambda: KEYS)


def found(host: FakeHost, route: str = "auto", about: str = "uni", node: JobNode = NODE) -> str:
    """Find a way, and return over what it goes."""
    name, link = find_route(target(host, node), route, about)
    assert isinstance(link, FakeRoute) and (kind_of(link.onward) == name or name == "direct")
    return name


def only(*kinds: str, error: LauncherError = NO_ROUTE) -> Answers:
    return lambda onward: None if kind_of(onward) in kinds else error


def test_the_node_s_own_server_first(memory: Path) -> None:
    host = FakeHost()
    assert found(host) == "node-ssh"
    assert host.tried == ["node-ssh"]


@pytest.mark.parametrize(
    ("works", "tried"),
    [
        ("step", ["node-ssh", "step"]),
        ("reverse", ["node-ssh", "step", "reverse"]),
        ("job-sshd", ["node-ssh", "step", "reverse", "job-sshd"]),
    ],
)
def test_then_what_needs_more(works: str, tried: list[str]) -> None:
    host = FakeHost(only(works))
    assert found(host) == works
    assert host.tried == tried


@pytest.mark.parametrize("route", ["node-ssh", "step", "reverse", "job-sshd"])
def test_what_is_asked_for_is_tried_alone(route: str) -> None:
    host = FakeHost()
    assert found(host, route) == route
    assert host.tried == [route]
    host = FakeHost(only())
    with pytest.raises(NodeUnreachable):
        found(host, route)
    assert host.tried == [route]


def test_direct_is_never_tried_unless_it_is_asked_for() -> None:
    """It opens Jupyter's port to everybody on the cluster."""
    host = FakeHost(only())
    with pytest.raises(NodeUnreachable, match=r"No route to n1\.cluster was found from login"):
        found(host)
    assert "lent" not in host.tried
    assert found(host, "direct") == "direct"
    assert host.asked_for[-1] is None


def test_on_the_same_machine_there_is_nothing_to_cross(memory: Path) -> None:
    host = FakeHost()
    for route in ("auto", "node-ssh", "step"):
        assert find_route(target(host, scheduler=Local("/root")), route, "here")[0] == "direct"
    assert host.tried == ["lent"] and not memory.exists()


def test_a_scheduler_without_steps() -> None:
    host = FakeHost(only("job-sshd"))
    name, _ = find_route(target(host, scheduler=NoSteps()), "auto", "uni")
    assert name == "job-sshd" and host.tried == ["node-ssh", "reverse", "job-sshd"]
    with pytest.raises(NodeUnreachable) as caught:
        find_route(target(host, scheduler=NoSteps()), "step", "uni")
    assert "no job steps" in caught.value.why


def test_what_worked_last_is_tried_first(memory: Path) -> None:
    assert found(FakeHost(only("job-sshd"))) == "job-sshd"
    assert json.loads(memory.read_text()) == {"uni": "job-sshd"}
    again = FakeHost()
    assert found(again) == "job-sshd"
    assert again.tried == ["job-sshd"]


def test_what_worked_last_may_work_no_more(memory: Path) -> None:
    """A site has closed it: then all the others, in their order, and what works now is remembered."""
    assert found(FakeHost(only("job-sshd"))) == "job-sshd"
    host = FakeHost(only("step"))
    assert found(host) == "step"
    assert host.tried == ["job-sshd", "node-ssh", "step"]
    assert json.loads(memory.read_text()) == {"uni": "step"}


def test_each_cluster_has_its_own(memory: Path) -> None:
    assert found(FakeHost(only("step")), about="uni") == "step"
    other = FakeHost()
    assert found(other, about="hpc") == "node-ssh"
    assert other.tried == ["node-ssh"]
    assert json.loads(memory.read_text()) == {"hpc": "node-ssh", "uni": "step"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"uni": 7}', '{"uni": "carrier-pigeon"}', "\xff\0"])
def test_a_damaged_memory_is_none(memory: Path, content: str) -> None:
    memory.parent.mkdir()
    memory.write_bytes(content.encode("latin-1"))
    host = FakeHost()
    assert found(host) == "node-ssh"
    assert host.tried == ["node-ssh"]
    assert json.loads(memory.read_text())["uni"] == "node-ssh"


def test_nothing_is_remembered_of_what_failed(memory: Path) -> None:
    with pytest.raises(NodeUnreachable):
        found(FakeHost(only()))
    assert not memory.exists()


@pytest.mark.parametrize(
    ("route", "last", "needed"),
    [
        ("auto", None, True),
        ("auto", "node-ssh", False),
        ("auto", "step", False),
        ("auto", "job-sshd", True),
        ("job-sshd", None, True),
        ("job-sshd", "node-ssh", True),
        ("node-ssh", None, False),
        ("step", "job-sshd", False),
        ("direct", None, False),
    ],
)
def test_a_job_starts_a_server_of_its_own_only_where_it_may_be_needed(
    route: str, last: str | None, needed: bool
) -> None:
    if last:
        local_state.remember(routes.LAST_ROUTES, "uni", last)
    assert may_need_sshd(route, "uni") is needed


@pytest.mark.parametrize(
    ("route", "last", "needed"),
    [
        ("auto", None, True),
        ("auto", "reverse", True),
        ("auto", "step", False),
        ("reverse", "step", True),
        ("job-sshd", "reverse", False),
    ],
)
def test_a_job_waits_for_calls_only_where_they_may_come(route: str, last: str | None, needed: bool) -> None:
    if last:
        local_state.remember(routes.LAST_ROUTES, "uni", last)
    assert may_need_call(route, "uni") is needed


@pytest.mark.parametrize(
    ("works", "last", "route", "ended"),
    [
        ("node-ssh", None, "auto", True),
        ("job-sshd", "reverse", "auto", True),
        ("node-ssh", "step", "auto", False),
        ("reverse", None, "auto", False),
        ("node-ssh", None, "node-ssh", False),
    ],
)
def test_a_job_waits_for_calls_no_longer_once_another_route_works(
    works: str, last: str | None, route: str, ended: bool
) -> None:
    if last:
        local_state.remember(routes.LAST_ROUTES, "uni", last)
    host = FakeHost(only(works))
    assert find_route(target(host), route, "uni", ends_calls=True)[0] == works
    assert (NO_CALLS in host.ran) is ended


def test_another_launcher_leaves_the_job_waiting_for_calls() -> None:
    host = FakeHost(only("node-ssh"))
    assert found(host) == "node-ssh" and NO_CALLS not in host.ran


def test_what_is_tried_is_told_unless_the_user_may_be_asked() -> None:
    told: list[str] = []
    find_route(target(FakeHost(unless_asked("node-ssh", REFUSED))), "auto", "uni", trying=told.append)
    assert told == ["node-ssh", "step", "reverse", "job-sshd", ""]


def unless_asked(kind: str, error: LauncherError) -> Answers:
    """Only this way leads anywhere, and only with the user's help."""
    return lambda onward: None if kind_of(onward) == kind and onward.asking else error


@pytest.mark.parametrize("error", [REFUSED, UNKNOWN], ids=lambda error: error.kind)
def test_nobody_is_asked_while_another_way_works(error: LauncherError) -> None:
    host = FakeHost(only("job-sshd", error=error))
    assert found(host) == "job-sshd"
    assert not any(onward.asking for onward in host.asked_for if onward)


@pytest.mark.parametrize("error", [REFUSED, UNKNOWN], ids=lambda error: error.kind)
def test_the_user_is_asked_when_nothing_works_without(error: LauncherError, memory: Path) -> None:
    host = FakeHost(unless_asked("node-ssh", error))
    assert found(host) == "node-ssh"
    assert host.tried == ["node-ssh", "step", "reverse", "job-sshd", "node-ssh"]
    assert [onward.asking for onward in host.asked_for if onward][-1]
    assert json.loads(memory.read_text()) == {"uni": "node-ssh"}


@pytest.mark.parametrize("wanted", ["auto", "node-ssh"])
def test_who_must_not_be_asked_is_not(wanted: str) -> None:
    host = FakeHost(unless_asked("node-ssh", REFUSED))
    with pytest.raises(NodeUnreachable):
        find_route(target(host), wanted, "uni", asks=False)
    assert not any(onward.asking for onward in host.asked_for if onward)


def test_only_where_that_could_help() -> None:
    """Where there is no route, no password makes one."""
    answers = {"node-ssh": NO_ROUTE, "step": REFUSED, "reverse": NO_ROUTE, "job-sshd": NO_ROUTE}
    host = FakeHost(lambda onward: answers[kind_of(onward)])
    with pytest.raises(NodeUnreachable):
        found(host)
    assert host.tried == ["node-ssh", "step", "reverse", "job-sshd", "step"]


def test_nobody_is_asked_twice() -> None:
    host = FakeHost(lambda _: REFUSED)
    with pytest.raises(NodeUnreachable):
        found(host)
    asked = [kind_of(onward) for onward in host.asked_for if onward and onward.asking]
    assert asked == ["node-ssh", "step", "reverse", "job-sshd"]


def test_a_way_that_was_asked_for_may_ask_at_once() -> None:
    host = FakeHost()
    found(host, "node-ssh")
    assert host.asked_for[0] and host.asked_for[0].asking


def test_the_node_s_server_is_known_by_what_the_job_told() -> None:
    host = FakeHost()
    found(host)
    assert host.asked_for == [NextHop("n1.cluster", ("n1.cluster", 22), (), NODE.host_keys, None, False)]


def test_the_job_s_server_is_entered_with_keys_of_the_session() -> None:
    host = FakeHost(only("job-sshd"))
    found(host)
    assert host.asked_for[-1] == NextHop("n1.cluster", ("n1.cluster", 40022), (), (KEYS.host,), KEYS.client, False)


def test_a_step_speaks_over_its_input_and_output() -> None:
    host = FakeHost(only("step"))
    found(host)
    onward = host.asked_for[-1]
    assert onward and onward.address is None
    assert (onward.host_keys, onward.key) == ((KEYS.host,), KEYS.client)
    assert onward.command == tuple(Slurm().step(JobRef("7"), ["bash", f"{DIRECTORY}/sshd.sh", "step", DIRECTORY]))


def test_the_connection_that_the_job_makes_leads_to_a_server_of_the_session() -> None:
    host = FakeHost(only("reverse"))
    found(host)
    command = ("bash", f"{DIRECTORY}/reverse.sh", "join", DIRECTORY, "Tag12345")
    assert host.asked_for[-1] == NextHop("n1.cluster", None, command, (KEYS.host,), KEYS.client, False)


def test_keys_are_made_only_when_they_are_needed() -> None:
    """On the way back to a session each costs a command on the login node."""

    def none() -> SessionKeys:
        raise AssertionError("no keys are needed")

    host = FakeHost()
    assert find_route(dataclasses.replace(target(host), keys=none), "auto", "uni")[0] == "node-ssh"


def test_keys_that_cannot_be_made_are_no_end() -> None:
    def none() -> SessionKeys:
        raise HostCommandFailed("No key could be added in /x.", why="Disk quota exceeded")

    host = FakeHost(unless_asked("node-ssh", REFUSED))
    assert find_route(dataclasses.replace(target(host), keys=none), "auto", "uni")[0] == "node-ssh"


def test_a_job_without_a_server_is_not_tried() -> None:
    host = FakeHost(only())
    with pytest.raises(NodeUnreachable) as caught:
        found(host, node=dataclasses.replace(NODE, ssh_port=None))
    assert host.tried == ["node-ssh", "step", "reverse"]
    assert "has started no SSH server" in caught.value.why


def test_every_name_of_the_node_is_tried() -> None:
    """Not every login node knows all of them."""
    host = FakeHost(lambda onward: None if onward.name == "n1" else NO_ROUTE)
    assert found(host, "node-ssh") == "node-ssh"
    assert host.tried_names == ["n1.cluster", "n1"]


def test_who_is_refused_under_one_name_is_not_tried_under_the_next() -> None:
    """It is the same server: more attempts only fill its log, and lock accounts."""
    host = FakeHost(lambda _: REFUSED)
    with pytest.raises(NodeUnreachable):
        found(host, "node-ssh")
    assert host.tried_names == ["n1.cluster"]


@pytest.mark.parametrize("route", ["auto", "node-ssh", "step", "reverse", "job-sshd"])
def test_another_host_key_ends_the_search_at_once(route: str, memory: Path) -> None:
    """Nobody tries how far one gets with a node that is not the job's."""
    host = FakeHost(lambda _: CHANGED)
    with pytest.raises(HostKeyChanged) as caught:
        found(host, route)
    assert caught.value is CHANGED and len(host.asked_for) == 1 and not memory.exists()


def test_a_connection_that_breaks_is_no_word_about_the_ways() -> None:
    host = FakeHost(lambda _: ConnectionLost("The connection to login is lost."))
    with pytest.raises(ConnectionLost):
        found(host)
    assert len(host.asked_for) == 1


def test_the_error_names_all_that_was_tried() -> None:
    answers = {
        "node-ssh": NO_ROUTE,
        "step": HostCommandFailed("srun says nothing on login.", why="it ended at once"),
        "reverse": NO_ROUTE,
        "job-sshd": REFUSED,
    }
    host = FakeHost(lambda onward: answers[kind_of(onward)])
    with pytest.raises(NodeUnreachable) as caught:
        found(host)
    why = caught.value.why
    assert re.search(r"node-ssh: .*No route to host.*step: srun says nothing.*job-sshd: n1 does not let you in", why)
    assert why.count("does not let you in") == 1, "asked once more with the same answer, it is told once"
    assert "--route direct" in caught.value.hint and "everybody" in caught.value.hint
    assert KEYS.client not in f"{why} {caught.value.hint}"


def test_a_node_that_told_no_name() -> None:
    host = FakeHost(only())
    with pytest.raises(NodeUnreachable, match="No route to the node was found") as caught:
        found(host, node=JobNode(()))
    assert "reported no name" in caught.value.why
