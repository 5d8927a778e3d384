"""`list`: what it shows, and what it clears away."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core import local_state as state
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.session.record import Session, new_session, session_files
from notebook_launcher.sessions import list_sessions
from tests.doubles import FakePrompts, RecordingHost
from tests.session_directories import name_of, plant
from tests.unit.sessions.local_sessions import (
    HOST,
    NOW,
    ShownSessions,
    SlurmHost,
    listed,
    squeue_row,
    stop,
    target,
)

pytestmark = pytest.mark.real_time  # real jobs of the local scheduler


def test_an_empty_place_costs_one_look(tmp_path: Path, host: RecordingHost) -> None:
    view = listed(tmp_path / "nothing here")
    assert (view.seen, view.one(events.ListDone).active, view.one(events.ListDone).unreadable) == ({}, 0, ())
    assert [command[0] for command in host.ran] == ["sh", "bash"]  # the look at the place, and at its sessions


def test_where_nothing_is_here_the_profiles_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    assert listed(tmp_path / "nothing here").notes == ""
    (tmp_path / "clusters").mkdir()
    for name in ("uni", "alvis"):
        (tmp_path / "clusters" / f"{name}.toml").write_text("")
    assert "alvis, uni" in (noted := listed(tmp_path / "nothing here").notes)
    assert noted.endswith("\n  launch-notebook list --cluster alvis")


@pytest.mark.parametrize("profile", ["practice", ""])
def test_without_a_default_cluster_the_list_says_that_it_is_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """The user may expect the sessions of the cluster that was the default before."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    (tmp_path / "clusters").mkdir()
    if profile:
        (tmp_path / "clusters" / f"{profile}.toml").write_text("")
    plant(tmp_path / "sessions", name_of(NOW, 1), NOW, ended=NOW)
    view = ShownSessions()
    undecided = dataclasses.replace(target(tmp_path / "sessions"), no_default=True)
    list_sessions(undecided, view, FakePrompts(), Interrupts())
    assert view.seen and "No default cluster is set, so this machine was asked." in view.notes
    assert view.notes.endswith(f"\n  launch-notebook list --cluster {profile or 'NAME'}")


def test_each_session_is_asked_for_where_it_was_queued(tmp_path: Path, submit: Callable[..., Session]) -> None:
    """A place whose scheduler is Slurm, which does not answer, has two local ones, and one of Slurm's."""
    runs, waits = submit(), submit(begin="now+1hour")
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW)
    view = listed(tmp_path, "slurm")
    assert view.seen == {runs.id: "starting", waits.id: "pending", name_of(NOW, 1): "unknown"}
    assert view.one(events.ListDone).active == 3


def test_what_ended_long_ago_is_counted_and_what_is_damaged_named(tmp_path: Path) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW - timedelta(hours=23))
    plant(tmp_path, name_of(NOW, 2), NOW, ended=NOW - timedelta(hours=25))
    plant(tmp_path, name_of(NOW, 3), NOW)
    (tmp_path / name_of(NOW, 3) / "session.json").write_text("{")
    view = listed(tmp_path)
    assert view.seen == {name_of(NOW, 1): "ended"}
    assert (
        view.one(events.ListDone).ended,
        view.one(events.ListDone).hidden,
        view.one(events.ListDone).unreadable,
    ) == (2, 1, (name_of(NOW, 3),))
    assert set(listed(tmp_path, every=True).seen) == {name_of(NOW, 1), name_of(NOW, 2)}


def test_the_live_ones_come_first_and_are_completed_on_tab(tmp_path: Path, submit: Callable[..., Session]) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, ended=NOW)
    session = submit(begin="now+1hour")
    assert list(listed(tmp_path).seen) == [session.id, name_of(NOW, 1)]
    about = dict(state.known_sessions())
    assert set(about) == {session.id, name_of(NOW, 1)} and "waits" in about[session.id]


def test_a_list_tidies_up(tmp_path: Path, submit: Callable[..., Session]) -> None:
    long_ago = NOW - timedelta(days=40)
    plant(tmp_path, name_of(long_ago, 1), long_ago, ended=long_ago)
    plant(tmp_path, name_of(long_ago, 2), long_ago, scheduler="local", job=name_of(long_ago, 2), secrets=True)
    plant(tmp_path, name_of(long_ago, 4), long_ago, started=long_ago, secrets=True)  # of a Slurm that does not answer
    session = new_session(
        str(tmp_path), Request({}), scheduler="local", cluster=None, host=None, environment=None, now=NOW
    )
    HOST.write_files(session.directory, session_files(session, "", "token", {}))
    live = submit()
    assert "Removed the record of 1 session that ended more than 30 days ago" in listed(tmp_path).notes
    assert not (tmp_path / name_of(long_ago, 1)).exists()
    assert (tmp_path / live.id / "token").exists()
    assert (tmp_path / name_of(long_ago, 4) / "token").exists()
    stop(tmp_path, live.id)
    plant(tmp_path, name_of(long_ago, 5), long_ago, ended=long_ago)
    assert "Removed" not in listed(tmp_path).notes, "which was told before"
    assert not (tmp_path / name_of(long_ago, 5)).exists()
    assert not (tmp_path / live.id / "token").exists() and (tmp_path / live.id / "session.json").exists()
    left = {path.name for path in (tmp_path / live.id).iterdir() if path.suffix in (".sh", ".py")}
    assert left == {"local.sh", "lib.sh"}, "which say how the job ended"
    assert (tmp_path / name_of(long_ago, 2)).exists(), "whose local.sh is gone: nobody says that its job is forgotten"


@pytest.mark.parametrize("own", ["", squeue_row("7", "REVOKED")], ids=["not shown", "revoked"])
def test_a_job_on_another_cluster_of_a_federation_keeps_its_secrets(tmp_path: Path, slurm: SlurmHost, own: str) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW, listens=True, secrets=True)
    slurm.own, slurm.by_id = own, squeue_row("7", "RUNNING")
    assert listed(tmp_path, "slurm").seen == {name_of(NOW, 1): "running"}
    slurm.by_id = squeue_row("7", "REVOKED")
    assert listed(tmp_path, "slurm").seen == {name_of(NOW, 1): "unknown"}
    assert (tmp_path / name_of(NOW, 1) / "token").exists()


def test_the_accounting_tells_when_a_job_was_cancelled_that_never_ran(tmp_path: Path, slurm: SlurmHost) -> None:
    """Minutes after its end, when the queue has forgotten it; nobody's launcher cancelled it."""
    cancelled = plant(tmp_path, name_of(NOW, 1), NOW, secrets=True)
    at = (NOW + timedelta(minutes=3)).astimezone(timezone.utc).replace(microsecond=0)
    slurm.history = f"7|CANCELLED by 2001|0:0|None assigned|None|{at:%Y-%m-%dT%H:%M:%S}"
    entry = listed(tmp_path, "slurm", every=True).one(events.SessionEntry)
    ended = datetime.fromisoformat(entry.ended or "")
    assert (entry.state, entry.detail, ended) == ("ended", "cancelled", at)
    assert not (cancelled / "token").exists() and slurm.asked_history == 1
    # its id was another job's before
    slurm.history = f"7|CANCELLED by 2001|0:0|None assigned|None|{NOW - timedelta(days=300):%Y-%m-%dT%H:%M:%S}"
    assert listed(tmp_path, "slurm", every=True).seen == {name_of(NOW, 1): "gone"}


def test_a_cluster_that_is_silent_is_so_after_the_accounting_of_another_too(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW)
    runs = plant(tmp_path, name_of(NOW, 2), NOW, started=NOW, secrets=True, job="8;snowy", flags={"clusters": "snowy"})
    at = (NOW + timedelta(minutes=3)).astimezone(timezone.utc)
    slurm.silent, slurm.history = "snowy", f"7|CANCELLED by 2001|0:0|None assigned|None|{at:%Y-%m-%dT%H:%M:%S}"
    seen = listed(tmp_path, "slurm", every=True).seen
    assert seen == {name_of(NOW, 1): "ended", name_of(NOW, 2): "unknown"}
    assert (runs / "token").exists()


def test_what_a_launcher_recorded_needs_no_accounting(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, cancelled=NOW.isoformat(timespec="seconds"))
    slurm.history = "7|CANCELLED by 2001|0:0|None assigned|None|Unknown"
    entry = listed(tmp_path, "slurm", every=True).one(events.SessionEntry)
    assert (entry.state, entry.detail, slurm.asked_history) == ("gone", "cancelled", 0)
    assert datetime.fromisoformat(entry.ended or "") == NOW.replace(microsecond=0)


def test_the_secrets_of_those_that_are_gone_are_removed(tmp_path: Path, slurm: SlurmHost) -> None:
    """Also where the first of them has a scheduler that does not answer, or the queue has its job after all."""
    gone, local = name_of(NOW, 1), name_of(NOW, 2)
    before = NOW - timedelta(days=2)
    lost, queued, new = name_of(before, 3), name_of(before, 4), name_of(NOW, 5)
    long_ago = NOW - timedelta(days=40)
    forgotten = [name_of(long_ago, number) for number in range(10, 35)]
    plant(tmp_path, gone, NOW, started=NOW, secrets=True)
    plant(tmp_path, local, NOW, job=local, scheduler="local", started=NOW, secrets=True)  # without its local.sh
    for name, at in ((lost, before), (queued, before), (new, NOW)):
        plant(tmp_path, name, at, job=None, secrets=True)
    for name in forgotten:
        plant(tmp_path, name, long_ago, job=None, secrets=True)
    plant(tmp_path, name_of(long_ago, 99), long_ago, job="9", started=long_ago)
    slurm.names = f"8|{queued}|/x/{queued}/jupyterlab.sh\n"
    listed(tmp_path, "slurm")
    listed(tmp_path, "slurm")
    kept = {path.parent.name for path in tmp_path.glob("*/token")}
    assert kept == {local, queued, new}
    assert not [name for name in (*forgotten, name_of(long_ago, 99)) if (tmp_path / name).exists()]
    assert (tmp_path / gone / "session.json").exists() and (tmp_path / lost / "session.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_list_says_why_all_are_damaged(tmp_path: Path) -> None:
    directory = plant(tmp_path, name_of(NOW, 1), NOW, secrets=True, ended=NOW - timedelta(days=90))
    os.chown(directory, 65534, 65534)
    view = listed(tmp_path)
    assert view.one(events.ListDone).unreadable == (name_of(NOW, 1),) and "are somebody else's" in view.notes
    assert (directory / "token").exists()


def test_a_queue_that_tells_nothing_removes_nothing(tmp_path: Path, slurm: SlurmHost) -> None:
    plant(tmp_path, name_of(NOW, 1), NOW, started=NOW, secrets=True)
    slurm.by_id = "a wrapper that says nothing of jobs\n"
    listed(tmp_path, "slurm")
    assert (tmp_path / name_of(NOW, 1) / "token").exists()
