"""Ports of the node: forwarded beside JupyterLab's, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_launcher.core import events, local_users
from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import (
    JobTimedOut,
)
from notebook_launcher.tunnel.forwarding import Endpoint, PortOwner
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE, SESSION_ID
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

FORWARDING = replace(PLAN, forwards=(6006, 8787))


def forwarded(launcher: Launcher) -> list[tuple[str, int, int]]:
    return [(e.node, e.port, e.local_port) for e in launcher.view.events if isinstance(e, events.PortForwarded)]


def test_ports_that_were_asked_for_are_told_after_the_address(launcher: Launcher) -> None:
    launcher.launch(FORWARDING)
    launcher.attach()
    launcher.shown(events.PortForwarded, 2)
    assert forwarded(launcher) == [("n1", 6006, 6006), ("n1", 8787, 8787)]
    assert launcher.names[-3:] == ["ready", "port_forwarded", "port_forwarded"]
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize("line", ["f 6006", "F 6006", "  forward   6006 "])
def test_a_port_that_is_asked_for_while_attached(launcher: Launcher, line: str) -> None:
    launcher.launched("attached")
    launcher.types(line)
    told = launcher.shown(events.PortForwarded)
    assert (told.node, told.port, told.local_port) == ("n1", 6006, 6006)
    launcher.goes_on_to_a_good_end()


def test_a_port_may_have_another_number_here(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.types("f 8000:8100")
    launcher.shown(events.PortForwarded)
    assert forwarded(launcher) == [("n1", 8000, 8100)]
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize("again", ["f 6006", "f 6006:6006"])
def test_a_port_that_is_open_already(launcher: Launcher, again: str) -> None:
    launcher.launched("attached")
    launcher.types("f 6006")
    launcher.shown(events.PortForwarded)
    launcher.types(again)
    assert "open already: http://port-6006.localhost:6006" in launcher.shown(events.Note).text
    assert len(forwarded(launcher)) == 1
    launcher.types("d")
    launcher.well()


def test_the_same_port_twice_in_one_command(launcher: Launcher) -> None:
    launcher.forward((6006, 0), (6006, 0))
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.noted("open already")
    assert len(forwarded(launcher)) == 1
    launcher.types("")
    launcher.well()


@pytest.mark.parametrize("when", ["pending", "starting"])
def test_a_port_that_is_asked_for_too_early(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.types("f 6006")
    assert "6006 will be forwarded" in launcher.shown(events.Note).text
    assert forwarded(launcher) == []
    if when == "pending":
        launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.PortForwarded)
    assert launcher.names[-2:] == ["ready", "port_forwarded"]
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize("when", ["pending", "attached"])
@pytest.mark.parametrize("word", ["nonsense", "0", "65536", "-1", "6006x", "²", "99999999999999999999"])
def test_what_is_no_port(launcher: Launcher, when: str, word: str) -> None:
    launcher.launched(when)
    launcher.types(f"f {word}")
    assert "is not a port" in launcher.shown(events.Note).text
    assert forwarded(launcher) == []
    launcher.types("d")
    launcher.well()


@pytest.mark.parametrize("line", ["f", "f 1 2", "forwards 3", "help", "?"])
def test_half_a_wish_is_answered(launcher: Launcher, line: str) -> None:
    launcher.launched("attached")
    launcher.types(line)
    keys = launcher.shown(events.Note).text
    assert "ENTER alone, or Ctrl-C, ends" in keys and "d and ENTER detaches" in keys and "f PORT forwards" in keys
    assert ("“forwards 3” is not known here." in keys) == (line == "forwards 3")
    assert launcher.going and forwarded(launcher) == []
    launcher.types("d")
    launcher.well()


def test_a_port_that_is_asked_for_while_the_network_is_down(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.types("f 6006")
    assert launcher.shown(events.PortForwarded).local_port == 6006
    launcher.host.reachable = True
    launcher.is_reconnected()
    assert len(forwarded(launcher)) == 1, "a port stays, and is not told anew"
    launcher.goes_on_to_a_good_end()


def test_ports_after_a_requeue(launcher: Launcher) -> None:
    launcher.launch(FORWARDING)
    launcher.attach()
    launcher.shown(events.PortForwarded, 2)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343)
    launcher.shown(events.PortForwarded, 4)
    assert forwarded(launcher)[2:] == [("n2", 6006, 6006), ("n2", 8787, 8787)]
    launcher.goes_on_to_a_good_end(ready=2)


def open_ports(launcher: Launcher) -> None:
    """Play the good way as far as the ports; JupyterLab has not said a word."""
    launcher.forward((6006, 0), (8787, 18787))
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.shown(events.PortForwarded, 2)


@pytest.mark.parametrize("how", ["ENTER", "d", "Ctrl-C"])
def test_ports_of_a_running_session_need_no_jupyterlab_and_end_nothing(launcher: Launcher, how: str) -> None:
    open_ports(launcher)
    assert forwarded(launcher) == [("n1", 6006, 6006), ("n1", 8787, 18787)]
    assert "ready" not in launcher.names
    launcher.noted("the session goes on")
    launcher.interrupts.arrive("end") if how == "Ctrl-C" else launcher.types(how.replace("ENTER", ""))
    launcher.well()
    assert launcher.names[-1] == "detached"
    assert launcher.host.count("scancel") == 0 and state.attached_ports(SESSION_ID) == []


def test_ports_stay_after_a_drop_and_are_told_once(launcher: Launcher) -> None:
    open_ports(launcher)
    launcher.host.drops()
    launcher.is_reconnected()
    launcher.routes.opened[-1].standing = False
    launcher.is_reconnected(2)
    assert len(forwarded(launcher)) == 2
    launcher.types("f 9000")
    launcher.shown(events.PortForwarded, 3)
    launcher.types("")
    launcher.well()


def test_ports_of_a_job_that_is_put_back_into_the_queue(launcher: Launcher) -> None:
    open_ports(launcher)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.host.starts("n2")
    launcher.shown(events.PortForwarded, 4)
    assert forwarded(launcher)[2:] == [("n2", 6006, 6006), ("n2", 8787, 18787)]
    launcher.types("")
    launcher.well()


def test_ports_of_a_session_that_ends(launcher: Launcher) -> None:
    open_ports(launcher)
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.state = "TIMEOUT"
    launcher.fails(JobTimedOut)


def test_on_a_terminal_the_keys_told_are_those_of_ports_alone(launcher: Launcher) -> None:
    launcher.prompts.asks = True
    launcher.forward((6006, 0))
    launcher.shown(events.Pending)
    (keys,) = (note for note in launcher.notes if "Ctrl-C" in note)
    assert "ENTER, or Ctrl-C, leaves; the session goes on." in keys and "JupyterLab" not in keys
    launcher.types("what?")
    wait_until(lambda: f"“what?” is not known here. {keys}" in launcher.notes, PATIENCE)
    launcher.types("")
    launcher.well()
    assert launcher.host.count("scancel") == 0


def test_changing_one_s_mind_before_the_ports_are_open(launcher: Launcher) -> None:
    launcher.forward((6006, 0))
    launcher.shown(events.Pending)
    launcher.interrupts.arrive("end")
    launcher.well()
    assert launcher.names[-1] == "detached" and launcher.host.count("scancel") == 0


def others(launcher: Launcher, *ports: int) -> None:
    """Let other users' programs listen on these ports of the node."""
    launcher.routes.port_owners |= dict.fromkeys(ports, PortOwner.OTHERS)


def refused(launcher: Launcher, port: int) -> int:
    return sum(f"Port {port} of n1 belongs to another user's program" in note for note in launcher.notes)


def test_another_user_s_port_is_forwarded_only_when_it_is_asked_for_again(launcher: Launcher) -> None:
    launcher.launched("attached")
    others(launcher, 6006)
    launcher.types("f 6006:16006")
    launcher.noted("To forward it all the same, type again: f 6006:16006")
    assert forwarded(launcher) == [] and refused(launcher, 6006) == 1
    launcher.types("f 6006:16006")
    told = launcher.shown(events.PortForwarded)
    assert (told.url, told.plain_url) == ("http://port-16006.localhost:16006", ""), "it shares a name with nothing"
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize("owner", [PortOwner.YOURS, PortOwner.NOBODY, PortOwner.UNKNOWN])
def test_a_port_of_one_s_own_has_two_addresses(launcher: Launcher, owner: PortOwner) -> None:
    launcher.launched("attached")
    launcher.routes.port_owners[6006] = owner
    launcher.types("f 6006")
    told = launcher.shown(events.PortForwarded)
    assert (told.url, told.plain_url) == ("http://port-6006.localhost:6006", "http://localhost:6006")
    launcher.goes_on_to_a_good_end()


def test_another_user_s_port_does_not_keep_the_others_from_being_forwarded(launcher: Launcher) -> None:
    launcher.launch(FORWARDING)
    others(launcher, 6006)
    launcher.attach()
    launcher.shown(events.PortForwarded)
    assert forwarded(launcher) == [("n1", 8787, 8787)] and refused(launcher, 6006) == 1
    launcher.types("f 6006")
    launcher.shown(events.PortForwarded, 2)
    launcher.goes_on_to_a_good_end()


def test_on_another_node_a_port_is_asked_about_again(launcher: Launcher) -> None:
    launcher.launch(FORWARDING)
    others(launcher, 6006)
    launcher.attach()
    launcher.shown(events.PortForwarded)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    others(launcher, 8787)
    launcher.routes.port_owners.pop(6006)
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343)
    launcher.noted("Port 8787 of n2 belongs to another user's program")
    assert forwarded(launcher)[1:] == [("n2", 6006, 6006)]
    launcher.goes_on_to_a_good_end(ready=2)


@pytest.mark.parametrize("answer", ["while it waits", "on the next node"])
def test_a_job_that_is_put_back_while_a_port_is_asked_about(launcher: Launcher, answer: str) -> None:
    launcher.launched("attached")
    others(launcher, 6006)
    free = launcher.blocks("port_owner", launcher.routes.port_owners.clear)
    launcher.types("f 6006")
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    if answer == "while it waits":
        free.set()
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343)
    launcher.shown(events.Ready, 2)
    free.set()
    launcher.shown(events.PortForwarded)
    assert forwarded(launcher) == [("n2", 6006, 6006)] and refused(launcher, 6006) == 0
    launcher.goes_on_to_a_good_end(ready=2)


def test_ports_alone_are_asked_about_where_jupyterlab_runs(launcher: Launcher) -> None:
    others(launcher, 8787)
    free = launcher.blocks("opening")
    launcher.forward((6006, 0), (8787, 0))
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    free.set()
    launcher.noted("Port 8787 of n1 belongs to another user's program")
    assert forwarded(launcher) == [("n1", 6006, 6006)]
    launcher.types("")
    launcher.well()


# --- the port that is free after detaching ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_shared", [True, False])
def test_who_detaches_on_a_shared_machine_is_told_to_close_the_tab(
    launcher: Launcher, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_users, "others_work_here", lambda: is_shared)
    launcher.launched("attached")
    launcher.types("d")
    launcher.well()
    assert ("one of them could take port 50001 now" in " ".join(launcher.notes)) is is_shared
    assert launcher.names[-1] == "detached"


def test_who_detaches_on_the_login_node_is_told_as_well(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_users, "others_work_here", lambda: False)
    monkeypatch.setattr(type(launcher.host), "remote", False)
    launcher.launched("attached")
    launcher.types("d")
    launcher.well()
    assert "one of them could take port 50001 now" in " ".join(launcher.notes)


@pytest.mark.parametrize("when", ["pending", "ports"])
def test_without_a_tab_there_is_none_to_close(launcher: Launcher, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_users, "others_work_here", lambda: True)
    if when == "ports":
        open_ports(launcher)
    else:
        launcher.launched(when)
    launcher.types("d")
    launcher.well()
    assert "Close the tab" not in " ".join(launcher.notes)


DASK = {"scheduler": "tls://10.0.0.1:1", "nodes": 2, "workers": 4, "threads": 8, "memory_mib": 1024, "dashboard": 8788}


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_workers_are_told_and_their_dashboard_is_forwarded(launcher: Launcher, engine: str) -> None:
    launcher.launch(FORWARDING)
    launcher.starting()
    launcher.host.says("endpoint", port=4242, **{engine: DASK})
    told = launcher.shown(events.WorkersReady)
    assert told.engine == engine
    assert (told.node, told.nodes, told.workers, told.threads, told.memory_mib) == ("n1", 2, 4, 8, 1024)
    launcher.shown(events.PortForwarded, 3)
    first = [launcher.names.index(name) for name in ("ready", "workers_ready", "port_forwarded")]
    assert first == sorted(first)
    assert forwarded(launcher)[0] == ("n1", 8788, 8788), "it stands below what is said of the workers"
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    "dask",
    [None, [], "x", {}, {**DASK, "nodes": "2"}, {**DASK, "workers": -1}, {**DASK, "memory_mib": True}],
)
def test_what_a_damaged_file_says_of_workers_is_left_out(dask: object) -> None:
    assert Endpoint.from_file({"port": 4242, "dask": dask}).workers is None


def test_a_dashboard_without_a_port_is_not_forwarded() -> None:
    workers = Endpoint.from_file({"port": 4242, "dask": {**DASK, "dashboard": 70000}}).workers
    assert workers is not None and workers.dashboard == 0
