"""The index of sessions: what is seen of each, and which one is meant."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.core.errors import SessionNotFound
from notebook_launcher.core.package_data import job_script
from notebook_launcher.jobs.session_choice import choose_session, describe_state
from notebook_launcher.jobs.session_index import IndexedSession, JobQueue, SessionIndex, build_index, parse_listing
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from tests.session_directories import NOW, ago, name_of, plant
from tests.unit.jobs.listed_sessions import LONG_AGO, look, row, run

BASH = os.environ.get("NBL_TEST_BASH") or shutil.which("bash") or "bash"


SCRIPT = job_script("sessions.sh").read_bytes()


A, B, C = (name_of(ago(hours=hours), number) for hours, number in ((3, 1), (2, 2), (1, 3)))


SLURM = JobQueue("slurm")


NOW_TEXT = "2026-11-21T12:00:00+00:00"
ARRAY = {"array": "0-3", "time": "2:00:00"}
READY = {"started": NOW, "listens": True}


# --- what is seen of a session -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "status", "state", "about"),
    [
        ({}, row(State.PENDING, reason="BeginTime"), "pending", "waits for its begin time"),
        ({}, row(State.RUNNING), "starting", ""),
        ({"started": NOW}, row(State.RUNNING), "starting", ""),
        ({"started": NOW, "listens": True}, row(State.RUNNING), "running", ""),
        ({"started": NOW, "program": "shell"}, row(State.RUNNING), "running", ""),
        ({"started": NOW, "listens": True}, row(State.SUSPENDED), "suspended", ""),
        ({"started": NOW, "listens": True}, row(State.COMPLETING), "completing", ""),
        ({"started": NOW, "ended": NOW, "secrets": True}, row(State.RUNNING), "completing", ""),
        (
            {"ended": NOW, "secrets": True},
            row(State.PENDING, reason="BeginTime"),
            "pending",
            "waits for its begin time",
        ),
        ({"ended": NOW}, {}, "ended", "cancelled"),
        ({"ended": NOW, "secrets": True}, row(State.CANCELLED), "ended", "cancelled"),
        ({"ended": NOW, "secrets": True}, row(State.FAILED), "ended", "cancelled"),  # as PBS calls it
        ({**READY, "ended": NOW, "secrets": True, "cancelled": NOW_TEXT}, row(State.CANCELLED), "ended", "stopped"),
        ({"started": NOW, "ended": NOW, "cancelled": NOW_TEXT}, {}, "ended", "cancelled"),  # before it was ready
        ({"started": NOW, "ended": NOW, "cancelled": NOW_TEXT, "program": "shell"}, {}, "ended", "stopped"),
        ({"ended": NOW, "cancelled": NOW_TEXT, "program": "notebook"}, {}, "ended", "cancelled"),
        ({"ended": NOW, "cause": "finished", "program": "notebook"}, {}, "ended", ""),
        ({"ended": NOW, "cause": "finished"}, {}, "ended", "shut down"),
        ({"ended": NOW, "cause": "idle"}, {}, "ended", "nobody used it"),
        ({"ended": NOW, "cause": "image-missing"}, None, "ended", "image missing"),
        ({"ended": NOW, "secrets": True}, row(State.TIMEOUT), "ended", "reached its walltime"),
        ({"started": ago(hours=2), "ended": NOW}, {}, "ended", "reached its walltime"),
        ({"ended": NOW}, row(State.RUNNING), "ended", "cancelled"),  # tidied up: another job of that number
        ({}, row(State.CANCELLED), "ended", "cancelled"),
        ({}, {}, "gone", "never ran"),
        ({"started": NOW}, {}, "gone", "ended without a record"),
        ({"cancelled": "2026-11-21T11:30:00+00:00"}, {}, "gone", "cancelled"),
        ({**READY, "cancelled": "2026-11-21T11:30:00+00:00", "ended": NOW}, {}, "ended", "stopped"),
        (
            {
                "cancelled": "2026-11-21T11:30:00+00:00",
                "ended": NOW,
                "cause": "script-failed",
                "flags": {"array": "0-3"},
            },
            {},
            "ended",
            "cancelled",
        ),
        ({"started": ago(hours=1), "ended": NOW, "flags": ARRAY}, {}, "ended", "cancelled"),
        ({"started": ago(hours=2), "ended": NOW, "flags": ARRAY}, {}, "ended", "stopped"),
        (
            {"cancelled": "2026-11-21T11:30:00+00:00", "started": ago(hours=2), "ended": NOW, "flags": ARRAY},
            {},
            "ended",
            "cancelled",
        ),
        (
            {"cancelled": "2026-11-21T11:30:00+00:00"},
            row(State.PENDING),
            "pending",
            "the scheduler has not looked at it yet",
        ),
        ({"cancelled": "soon; rm"}, {}, "gone", "never ran"),
        ({"started": NOW}, None, "unknown", "the scheduler does not answer"),
        ({"job": None}, {}, "gone", "no job is recorded"),
        ({}, row(State.UNKNOWN), "unknown", "the scheduler does not answer"),
        ({"started": NOW}, row(State.REVOKED), "unknown", "it went to another cluster"),
        ({"ended": NOW, "secrets": True}, row(State.REVOKED), "ended", "cancelled"),
    ],
)
def test_the_state_of_a_session(
    tmp_path: Path, files: dict[str, object], status: dict[str, JobStatus] | None, state: str, about: str
) -> None:
    plant(tmp_path, A, **files)  # type: ignore[arg-type]
    (entry,) = look(tmp_path, {SLURM: status}).entries
    assert (entry.summary.state, entry.summary.detail) == (state, about)


def test_when_a_session_was_cancelled_that_never_ran(tmp_path: Path) -> None:
    """By the scheduler while it knows, then by the launcher that cancelled it."""
    plant(tmp_path, A, ago(hours=1), cancelled="2026-11-21T12:30:00+01:00")
    (entry,) = look(tmp_path, {SLURM: row(State.CANCELLED, ends="2026-11-21T11:30:02+00:00")}).entries
    assert (entry.summary.state, entry.summary.ended) == ("ended", "2026-11-21T11:30:02+00:00")
    (entry,) = look(tmp_path, {SLURM: {}}).entries
    assert (entry.summary.state, entry.summary.ended) == ("gone", "2026-11-21T11:30:00+00:00")
    assert describe_state(entry, NOW) == "was cancelled at 11:30 (tf-gpu)"


def test_who_is_asked_for_what(tmp_path: Path) -> None:
    plant(tmp_path, A, job="6", ended=NOW)
    plant(tmp_path, B, job="7", ended=NOW, secrets=True)
    plant(tmp_path, C, job="8")
    plant(tmp_path, name_of(NOW, 8), job="8;snowy")
    plant(tmp_path, name_of(NOW, 9), job=name_of(NOW, 9), scheduler="local")
    plant(tmp_path, name_of(LONG_AGO, 9), LONG_AGO, job="1")
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    sure = reading.jobs_to_query(NOW, sure=True)
    assert sure == {
        SLURM: [JobRef("8"), JobRef("7"), JobRef("1")],
        JobQueue("slurm", "snowy"): [JobRef("8", "snowy")],
        JobQueue("local"): [JobRef(name_of(NOW, 9))],
    }
    assert reading.jobs_to_query(NOW, sure=False)[SLURM] == [JobRef("8")]


def test_the_same_number_on_two_clusters(tmp_path: Path) -> None:
    plant(tmp_path, A, job="7")
    plant(tmp_path, B, job="7;snowy")
    told = {SLURM: row(State.PENDING), JobQueue("slurm", "snowy"): {}}
    assert [entry.summary.state for entry in look(tmp_path, told).entries] == ["pending", "gone"]


def test_the_time_left_is_on_the_clusters_clock(tmp_path: Path) -> None:
    plant(tmp_path, A, ago(hours=1), started=ago(hours=1), listens=True)
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    there = NOW.astimezone(timezone(timedelta(hours=5)))
    status = row(State.RUNNING, start="2026-11-21T16:30:00", walltime="2:00:00")
    (entry,) = build_index(reading, {SLURM: status}, there).entries
    assert (entry.summary.ends, entry.summary.seconds_left) == ("2026-11-21T18:30:00+05:00", 90 * 60)
    (entry,) = build_index(reading, {SLURM: None}, there).entries
    assert entry.summary.seconds_left is None, "what may not run has no time left"


@pytest.mark.parametrize("state", [State.NODE_FAIL, State.PREEMPTED, State.REVOKED])
def test_a_job_that_may_come_back_keeps_its_secrets(tmp_path: Path, state: State) -> None:
    plant(tmp_path, A, ended=NOW, secrets=True)
    assert not look(tmp_path, {SLURM: row(state)}).entries[0].over
    assert not look(tmp_path, {SLURM: row(State.PENDING)}).entries[0].over
    assert not look(tmp_path, {SLURM: None}).entries[0].over
    assert look(tmp_path, {SLURM: row(State.CANCELLED)}).entries[0].over
    assert look(tmp_path, {SLURM: {}}).entries[0].over


@pytest.mark.parametrize("noted", ["--user=alice", "", "all", "-9", "7 8"])
def test_what_is_no_job_never_gets_into_a_command(tmp_path: Path, noted: str) -> None:
    directory = plant(tmp_path, A, job=None)
    (directory / "job").write_text(f"{noted}\n")
    (directory / "started.json").write_text(f'{{"job": "{noted}"}}\n')
    assert look(tmp_path).entries[0].session.job is None


# --- the one that is meant -----------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> SessionIndex:
    """Two that live, and one that has ended."""
    plant(tmp_path, A, ago(hours=3), job="71", started=ago(hours=3), listens=True)
    plant(tmp_path, B, ago(hours=2), job="72", environment="tf-mkl")
    plant(tmp_path, C, ago(hours=1), job="73", ended=NOW)
    return look(tmp_path, {SLURM: row(State.RUNNING, "71", start="2026-11-21T09:02:00") | row(State.PENDING, "72")})


@pytest.mark.parametrize(
    ("word", "meant"),
    [(A, A), (C, C), (A[:12], A), (B[-4:], B), (B[-3:], B), ("72", B), ("71", A)],
)
def test_the_session_that_is_meant(three: SessionIndex, word: str, meant: str) -> None:
    assert choose_session(three, word, "login").session.id == meant


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("-t 20 -- '/no/such image.sif'", "such image.sif"),
        ("-- image.sif/", "image.sif"),
        ("--cluster uni -t 20 --venv '/home/me/my envs/torch/'", "torch"),
        ("--uv projects/timer", "timer"),
        ("--conda base", "base"),
        ("--conda /sw/envs/tf --module Anaconda/2025 -- image.sif", "tf"),
        ("-t 20 --module GCC/13 --module PyTorch/2.6", "GCC/13, PyTorch/2.6"),
        ("--module GCC/13 -- image.sif", "image.sif"),
        ("--venv", None),
        ("-t 20", None),
        ("'", None),
    ],
)
def test_software_without_an_environment_is_shown_by_its_name(tmp_path: Path, command: str, shown: str | None) -> None:
    plant(tmp_path, A, command=command, environment=None)
    assert look(tmp_path).entries[0].summary.environment == shown


def test_nobody_shuts_down_a_terminal(tmp_path: Path) -> None:
    plant(tmp_path, A, program="shell", ended=NOW, cause="finished")
    assert (entry := look(tmp_path).entries[0]).summary.state == "ended" and entry.summary.detail == ""


@pytest.mark.parametrize(("word", "meant"), [(C[-4:], C), ("73", C), (C[:12], C), (A[-4:], A)])
def test_one_that_has_ended_may_be_meant(three: SessionIndex, word: str, meant: str) -> None:
    assert choose_session(three, word, "login", ended_too=True).session.id == meant


def test_the_number_of_a_job_is_no_part_of_a_name(tmp_path: Path) -> None:
    """The last letters of a name may all be digits, and its first ones are a year."""
    digits, shown = "20261121-100000-2345", "2345"
    plant(tmp_path, digits, job="2027")
    plant(tmp_path, A, job=shown, ended=NOW)
    plant(tmp_path, B, job="2026", ended=NOW)
    three = look(tmp_path, {SLURM: row(State.RUNNING, "2027")})
    for word, meant in (("2026", B), (shown, A), ("2027", digits), (digits, digits)):
        assert choose_session(three, word, "login", ended_too=True).session.id == meant
    with pytest.raises(SessionNotFound) as caught:
        choose_session(three, "9999", "login")
    assert digits in caught.value.hint, "not its end, which is a number"


def test_without_a_word_it_is_the_one_that_lives_or_the_last(tmp_path: Path) -> None:
    plant(tmp_path, A, ended=ago(hours=2))
    plant(tmp_path, B, ended=NOW)
    assert choose_session(look(tmp_path), "", "login", ended_too=True).session.id == B
    with pytest.raises(SessionNotFound) as caught:
        choose_session(look(tmp_path), "", "login")
    assert caught.value.what.startswith(f"No session is active on login. The last one, {B[-4:]}, ended at 12:00")
    assert caught.value.hint.startswith(f"see: launch-notebook logs {B[-4:]}")
    plant(tmp_path, C)
    assert choose_session(look(tmp_path, {SLURM: row(State.PENDING)}), "", "login", ended_too=True).session.id == C


def test_what_helps_is_typed_with_the_cluster_that_was_asked(tmp_path: Path) -> None:
    plant(tmp_path, B, ended=NOW)
    found = look(tmp_path)
    for name, hint in (
        ("", "see: launch-notebook logs --cluster uni {0}, launch-notebook bill --cluster uni {0}; start one: {1}"),
        (B[-4:], "see: launch-notebook logs --cluster uni {0}, launch-notebook bill --cluster uni {0}"),
        ("zzzz", "list the ended ones with: launch-notebook list --cluster uni --all"),
    ):
        with pytest.raises(SessionNotFound) as caught:
            choose_session(found, name, "login", "--cluster uni")
        assert caught.value.hint == hint.format(B[-4:], "launch-notebook --cluster uni")


def test_several_are_told_apart(three: SessionIndex) -> None:
    for word in ("", "20261121"):
        with pytest.raises(SessionNotFound) as caught:
            choose_session(three, word, "login")
        assert caught.value.why.splitlines() == [
            f"{B[-4:]} waits since 10:00 (tf-mkl)",
            f"{A[-4:]} runs on gpu1 since 09:02 (tf-gpu)",
        ]
        assert B[-4:] in caught.value.hint


@pytest.mark.parametrize("word", ["x", "2", "2026", "2026112", "20261122", B[-2:], "7", "../", "$(id)"])
def test_none_is_meant(three: SessionIndex, word: str) -> None:
    with pytest.raises(SessionNotFound) as caught:
        choose_session(three, word, "login")
    assert f"“{word}” on login" in caught.value.what
    assert "runs on gpu1" in caught.value.why


def test_one_that_has_ended_is_not_connected_to_by_a_part_of_its_name(three: SessionIndex) -> None:
    only_ended = SessionIndex(three.entries[2:], (B,), NOW)
    with pytest.raises(SessionNotFound) as caught:
        choose_session(only_ended, C[-4:], "login")
    assert caught.value.what == f"Session {C} ended at 12:00 (cancelled)."
    assert caught.value.hint == f"see: launch-notebook logs {C[-4:]}, launch-notebook bill {C[-4:]}"
    with pytest.raises(SessionNotFound, match="ended at") as caught:
        choose_session(three, "73", "login")
    assert "runs on gpu1" in caught.value.why, "those that live are told all the same"
    with pytest.raises(SessionNotFound, match="damaged"):
        choose_session(only_ended, B, "login")


def test_a_session_nobody_answers_for_counts_as_live(tmp_path: Path) -> None:
    plant(tmp_path, A, started=NOW)
    entry: IndexedSession = choose_session(look(tmp_path, {SLURM: None}), "", "login")
    assert entry.live and describe_state(entry, NOW) == "may run on gpu1 since 12:00 (tf-gpu)"
