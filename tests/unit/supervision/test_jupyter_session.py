"""A session with JupyterLab as it should go, from the queue to its end, alone and with other launchers."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable

import pytest

from notebook_launcher.core import events, personal_machine
from notebook_launcher.core import local_state as state
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    HostCommandFailed,
    JobCancelled,
    JobTimedOut,
    JupyterSilent,
    NodeUnreachable,
)
from notebook_launcher.tunnel.forwarding import Tunnel
from notebook_launcher.tunnel.page_port import PagePort
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE, SESSION_ID
from tests.unit.supervision.launcher_doubles import Launcher, failing


def test_enter_ends_a_session(launcher: Launcher) -> None:
    launcher.launch()
    ready = launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.names == ["submitted", "pending", "running", "ready", "stopping", "ended"]
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.host.count("rm") == 0
    assert ready.node == "n1" and ready.job == "7" and ready.local_port == 50001
    assert ready.url.startswith("http://127.0.0.1:50001/lab?token=")
    assert launcher.shown(events.Submitted).walltime == "2 hours"
    assert launcher.shown(events.Ended).text == "Job 7 has ended."


def test_d_leaves_it_running(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.types(" D ")
    launcher.well()
    assert launcher.names == ["submitted", "pending", "running", "ready", "detached"]
    assert launcher.host.count("scancel") == launcher.host.count("rm") == 0
    left = launcher.shown(events.Detached)
    assert not left.is_queued
    assert left.connect_command == f"launch-notebook connect --cluster uni {launcher.short_name}"
    assert left.stop_command == f"launch-notebook stop --cluster uni {launcher.short_name}"


def test_a_command_has_a_sessions_whole_name_if_another_ends_in_the_same_letters(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    state.replace_known_sessions({f"20200101-000000-{launcher.session_id[-4:]}": "n1"}, {})
    launcher.types("d")
    launcher.well()
    connect = launcher.shown(events.Detached).connect_command
    assert connect == f"launch-notebook connect --cluster uni {launcher.session_id}"


@pytest.mark.parametrize("line", ["\x1b[A\x1b[Ad", "\x1bOA\x1bOBd", "d\x1b[1;5C", "\x1b[[Ad", "\x1bd"])
def test_d_is_understood_after_an_arrow_key(launcher: Launcher, line: str) -> None:
    launcher.launch()
    launcher.attach()
    launcher.types(line)
    launcher.well()
    assert launcher.names[-1] == "detached"
    assert launcher.host.count("scancel") == 0


def test_enter_after_an_arrow_key_shows_the_keys(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.types("\x1b[A")
    wait_until(lambda: any("detaches" in note for note in launcher.notes), PATIENCE)
    launcher.types("d")
    launcher.well()
    assert launcher.host.count("scancel") == 0
    assert not any("is not known here" in note for note in launcher.notes)


def test_d_is_understood_while_it_waits(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.types("d")
    launcher.well()
    assert launcher.names == ["submitted", "pending", "detached"]
    assert launcher.shown(events.Detached).is_queued
    assert launcher.host.count("scancel") == 0


@pytest.mark.parametrize(
    ("ours", "ctrl_c"), [(True, "Ctrl-C cancels the job"), (False, "Ctrl-C, or d and ENTER, detaches")]
)
def test_on_a_terminal_it_is_said_once_what_the_keys_do_while_it_waits(
    launcher: Launcher, ours: bool, ctrl_c: str
) -> None:
    launcher.prompts.asks = True
    launcher.launch() if ours else launcher.connect()
    launcher.shown(events.Pending)
    launcher.types("d")
    launcher.well()
    (keys,) = (note for note in launcher.notes if "not ready yet" in note)
    assert ctrl_c in keys
    assert launcher.names.index("note") < launcher.names.index("pending"), "it would end the line that updates"


@pytest.mark.parametrize("ours", [True, False], ids=["launch", "connect"])
def test_an_impatient_enter_costs_nothing(launcher: Launcher, ours: bool) -> None:
    """A place in the queue may have taken a day."""
    launcher.launch() if ours else launcher.connect()
    launcher.shown(events.Pending)
    told = len(launcher.notes)
    launcher.types("")
    launcher.types("")
    launcher.types("  ")
    launcher.shown(events.Note, told + 3)
    assert launcher.going
    assert "not ready yet" in launcher.notes[-1]
    launcher.types("d")
    launcher.well()
    assert launcher.host.count("scancel") == 0


def test_what_ctrl_c_does_is_told_rightly_on_the_way_back(launcher: Launcher) -> None:
    launcher.connect()
    launcher.shown(events.Pending)
    launcher.types("")
    assert "Ctrl-C cancels the job" not in launcher.shown(events.Note, 2).text
    launcher.interrupts.arrive("end")
    launcher.well()
    assert launcher.host.count("scancel") == 0


def test_another_word_is_answered_and_nothing_ends(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.types("quit")
    assert "ENTER alone, or Ctrl-C, ends" in launcher.shown(events.Note).text
    assert launcher.going and launcher.host.count("scancel") == 0
    launcher.types("")
    launcher.well()
    assert launcher.names[-3:] == ["note", "stopping", "ended"]


def test_the_server_may_listen_before_the_way_is_open(launcher: Launcher) -> None:
    """Both orders occur: a slow second factor, a slow container."""
    free = launcher.blocks("opening")
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    free.set()
    launcher.shown(events.Ready)
    launcher.types("")
    launcher.well()


def test_shut_down_from_the_browser_is_a_good_end(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.state = "COMPLETED"
    launcher.host.says("exit", cause="finished", message="JupyterLab ended.")
    launcher.well()
    assert launcher.names[-2:] == ["stopping", "ended"]
    assert "shut down" in launcher.shown(events.Ended).text


def test_the_scheduler_may_tell_first_that_it_was_shut_down(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.files["exit.json"] = json.dumps({"cause": "finished", "message": "JupyterLab ended."})
    launcher.host.state = "COMPLETED"
    launcher.well()
    assert "shut down" in launcher.shown(events.Ended).text


@pytest.mark.parametrize("attached", [True, False])
def test_a_session_that_nobody_used_ends_well(launcher: Launcher, attached: bool) -> None:
    launcher.launch()
    if attached:
        launcher.attach()
    else:
        launcher.shown(events.Pending)
        launcher.host.starts()
    launcher.host.state = "COMPLETED"
    launcher.host.says("exit", cause="idle", message="Nobody used JupyterLab for 30 minutes, so the session was ended.")
    launcher.well()
    assert "problem" not in launcher.names
    assert launcher.shown(events.Ended).text == "Nobody used JupyterLab for 30 minutes, so the session was ended."


def test_the_teacher_gives_notice_and_ends_the_class(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.says("notice", message="Save\nyour \x1b[31mwork.", ends="soon")
    launcher.host.says("notice", message=["?"] * 10000, ends=7)
    launcher.host.state = "COMPLETED"
    launcher.host.says("exit", cause="class-ended", message="The teacher has ended the class.")
    launcher.well()
    notes = [event.text for event in launcher.view.all(events.Note) if "teacher" in event.text]
    assert notes[0] == "The teacher ends the class: Save your work." and len(notes[1]) < 600
    assert launcher.shown(events.Ended).text == "The teacher has ended the class, and with it the session."


def test_ended_by_another_launcher_is_a_good_end(launcher: Launcher) -> None:
    launcher.connect()
    launcher.attach()
    launcher.host.files["ended-from"] = "laptop2\n"  # it says so before it cancels
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.state = "CANCELLED"
    launcher.well()
    ended = launcher.shown(events.Ended)
    assert "by another launch-notebook, on laptop2" in ended.text and ended.by_itself


def test_cancelled_by_the_same_user_is_a_good_end(launcher: Launcher) -> None:
    launcher.host.answers["id"] = lambda: CommandResult(0, "alice\n")
    launcher.launch()
    launcher.attach()
    launcher.host.history = "7|CANCELLED by 2001|0:15|n1|2026-11-21T12:00:00|Unknown\n"
    launcher.host.state = "CANCELLED"
    launcher.well()
    assert launcher.shown(events.Ended).text == "Job 7 was cancelled by you (alice), from elsewhere."


def test_a_word_left_by_a_launcher_does_not_hide_another_end(launcher: Launcher) -> None:
    launcher.connect()
    launcher.attach()
    launcher.host.files["ended-from"] = "laptop2\n"
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.state = "TIMEOUT"
    launcher.fails(JobTimedOut)


@pytest.mark.parametrize(("minutes", "is_believed"), [(1, True), (30, False)])
def test_a_word_left_by_an_end_that_failed_is_not_believed_later(
    launcher: Launcher, minutes: int, is_believed: bool
) -> None:
    """Whenever the launcher hears of the end: what counts is the time between the word and the end."""
    launcher.connect()
    launcher.attach()
    launcher.host.files["ended-from"] = "laptop2\n2026-11-01T12:00:00+00:00\n"
    launcher.host.says(
        "exit", cause="stopped", message="It was sent SIGTERM.", ended=f"2026-11-01T12:{minutes:02d}:00Z"
    )
    launcher.host.state = "CANCELLED"
    if is_believed:
        launcher.well()
        assert "on laptop2" in launcher.shown(events.Ended).text
    else:
        launcher.fails(JobCancelled)


def test_before_it_is_attached_its_end_is_no_good_one(launcher: Launcher) -> None:
    launcher.connect()
    launcher.shown(events.Pending)
    launcher.host.files["ended-from"] = "laptop2\n"
    launcher.host.state = "CANCELLED"
    launcher.fails(JobCancelled)


def test_who_ends_a_session_leaves_word(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    wait_until(lambda: any("ended-from" in command for _, command in launcher.host.ran), PATIENCE)


def test_a_session_is_attached_here_for_as_long_as_it_is(launcher: Launcher) -> None:
    launcher.connect()
    launcher.attach()
    wait_until(lambda: state.last_port(SESSION_ID), PATIENCE)
    assert state.attached_ports(SESSION_ID) == [50001]
    launcher.types("d")
    launcher.well()
    assert state.attached_ports(SESSION_ID) == []


def test_the_port_of_last_time_is_asked_for_again(launcher: Launcher) -> None:
    state.record_attached(SESSION_ID, 17817)
    state.forget_attached(SESSION_ID)
    launcher.connect()
    assert launcher.attach().local_port == 17817
    launcher.types("d")
    launcher.well()


def test_a_new_session_has_the_port_of_the_one_before(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the browser has its page already. The file may be another machine's, too, which has the same home."""
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: True)
    place = "\t".join((socket.gethostname(), "uni", "login", "/home/alice", ""))
    elsewhere = "\t".join(("desktop", "uni", "login", "/home/alice", ""))
    state.remember("page-ports", place, "17817")
    state.remember("page-ports", elsewhere, "17818")
    launcher.launch()
    assert launcher.attach().local_port == 17817
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: False)
    launcher.types("")
    launcher.well()
    assert not state.remembered("page-ports", place), "somebody else has come meanwhile"
    assert state.remembered("page-ports", elsewhere) == "17818"
    assert not [note for note in launcher.notes if "17817" in note]


def test_a_session_that_ends_leaves_its_port_to_the_next_one(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: True)
    launcher.launch()
    port = launcher.attach().local_port
    launcher.types("")
    launcher.well()
    place = "\t".join((socket.gethostname(), "uni", "login", "/home/alice", ""))
    assert state.remembered("page-ports", place) == str(port)


def ended_otherwise(launcher: Launcher, how: str) -> None:
    """Let an attached session end, or be left, in another way than by the user while JupyterLab answers."""
    if how == "detached":
        launcher.types("d")
    elif how == "walltime":
        launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
        launcher.host.state = "TIMEOUT"
    elif how == "shut down":
        launcher.host.state = "COMPLETED"
        launcher.host.says("exit", cause="finished", message="JupyterLab ended.")
    elif how == "hung up":
        launcher.interrupts.arrive("leave")
    else:
        if how == "requeued":
            launcher.host.requeued()
            launcher.shown(events.Pending, 2)
            launcher.host.starts("n2")
            launcher.host.says("endpoint", port=4343)
            launcher.shown(events.Ready, 2)
        launcher.routes.answers = how != "silent"
        launcher.types("")
    launcher.over()


@pytest.mark.parametrize("how", ["detached", "walltime", "shut down", "hung up", "requeued", "silent"])
def test_a_session_that_ends_otherwise_leaves_no_port(
    launcher: Launcher, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else of the node could have been behind it; and who detaches comes back to it."""
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: True)
    launcher.launch()
    port = launcher.attach().local_port
    ended_otherwise(launcher, how)
    place = "\t".join((socket.gethostname(), "uni", "login", "/home/alice", ""))
    assert not state.remembered("page-ports", place)
    assert state.last_port(launcher.session_id) == port


def test_the_port_is_left_only_when_it_is_closed(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no new connection is led to the node once the job is being cancelled."""
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: True)
    left, order, pause = PagePort.left, list[str](), Tunnel.pause_forwarding
    launcher.launch()
    launcher.attach()
    (tunnel,) = launcher.tunnels

    def left_now(self: PagePort) -> None:
        order.append("left while open" if tunnel.alive else "left")
        left(self)

    def paused(self: Tunnel) -> None:
        order.append(f"paused after {launcher.host.count('scancel')} scancel")
        pause(self)

    monkeypatch.setattr(PagePort, "left", left_now)
    monkeypatch.setattr(Tunnel, "pause_forwarding", paused)
    launcher.types("")
    launcher.well()
    assert order == ["paused after 0 scancel", "left"]


def test_a_port_that_a_stranger_has_taken_meanwhile_is_warned_of(launcher: Launcher) -> None:
    state.record_attached(SESSION_ID, 17817)
    state.forget_attached(SESSION_ID)
    launcher.taken_ports.add(17817)
    launcher.connect()
    assert launcher.attach().local_port == 50001
    (warning,) = (note for note in launcher.notes if "17817" in note)
    assert "belongs to another program now" in warning and "Close the tabs" in warning
    launcher.types("d")
    launcher.well()


def test_the_end_is_known_on_the_cluster_s_clock(launcher: Launcher) -> None:
    """The login node's clock shows 12:00 in another zone than ours; the job has run for 50 of its 59 minutes."""
    launcher.connect()
    launcher.shown(events.Pending)
    row = "7|RUNNING|core|n1|2026-11-21T11:10:00|N/A|proj1|normal|59:00|None\n"
    launcher.host.answers["squeue"] = lambda: CommandResult(0, row)
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("endpoint", port=4242)
    holding, warning = launcher.shown(events.Attached), launcher.shown(events.TimeLeft)
    assert holding.ends == warning.ends == "2026-11-21T12:09:00+01:00"
    assert 530 < warning.seconds_left <= 540
    row = row.replace("59:00", "2:00:00")
    launcher.shown(events.Attached, 2)
    assert launcher.shown(events.Attached, 2).ends == "2026-11-21T13:10:00+01:00"
    launcher.types("d")
    launcher.well()


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda: CommandResult(1, "", "slurm_load_jobs error: Socket timed out"), id="failing"),
        pytest.param(failing(HostCommandFailed("squeue did not answer within 90 s.")), id="too slow"),
    ],
)
def test_a_scheduler_in_trouble_does_not_end_a_session(
    launcher: Launcher, trouble: Callable[[], CommandResult]
) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.answers["squeue"] = trouble
    launcher.host.noticed()
    launcher.host.noticed()
    assert launcher.going
    launcher.types("hello?")
    launcher.shown(events.Note)
    del launcher.host.answers["squeue"]
    launcher.types("")
    launcher.well()
    assert launcher.host.count("scancel") == 1


def test_no_way_to_the_node_cancels_our_job(launcher: Launcher) -> None:
    launcher.hooks.at("opening", failing(NodeUnreachable("No route to n1 was found.")))
    launcher.launch()
    launcher.plays_to_the_end()
    launcher.fails(NodeUnreachable)
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.names[-2:] == ["stopping", "ended"]


def test_a_silent_jupyter_cancels_our_job(launcher: Launcher) -> None:
    launcher.hooks.at("reaching", failing(JupyterSilent("It does not answer.")))
    launcher.launch()
    launcher.plays_to_the_end()
    launcher.fails(JupyterSilent)
    assert launcher.host.count("scancel") == 1


def test_a_port_file_without_a_port(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("endpoint", port="x")
    assert "no port" in launcher.fails(JupyterSilent).what
    assert launcher.host.count("scancel") == 1


def test_a_job_that_nobody_can_attach_to_is_cancelled(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the session is imported once its job is queued; an installation may lack it."""
    monkeypatch.setitem(sys.modules, "notebook_launcher.supervision.next_jobs", None)
    launcher.launch()
    launcher.fails(ModuleNotFoundError)  # type: ignore[type-var]
    assert launcher.host.state == "CANCELLED"


def test_no_shell_waits_once_the_job_is_queued(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may allow two sessions only, of which the session's watcher needs one."""
    ended: list[int] = []
    monkeypatch.setattr(launcher.host, "end_login_shell", lambda: ended.append(launcher.host.count("sbatch")))
    launcher.launch()
    launcher.attach()
    assert ended == [1]
    launcher.types("d")
    launcher.well()
