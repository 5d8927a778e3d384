"""``doctor`` as a whole, and what it makes of the GPUs that a job sees."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ChecksFailed,
    ConnectionFailed,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.doctor.checks import login
from notebook_launcher.doctor.checks.node import assess_gpus
from notebook_launcher.doctor.command import doctor
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from tests.doubles import RecordingView
from tests.unit.doctor.check_results import results


@pytest.mark.parametrize(
    ("told", "result", "said"),
    [
        ("visible 0\nseen GPU 0: Tesla T4\n", "ok", "GPU 0: Tesla T4"),
        ("visible 0,1\ndevice /dev/nvidia0\ndevice /dev/nvidia1\n", "ok", "2 for this job (0,1)"),
        ("visible \n", "fault", "no GPU device"),
    ],
)
def test_whether_a_job_sees_its_gpus(told: str, result: str, said: str) -> None:
    found = assess_gpus(told)
    assert found.result == result and said in found.found


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a cluster profile “uni”."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "notebook-launcher" / "clusters" / "uni.toml"
    path.parent.mkdir(parents=True)
    return path


def checked(options: LaunchOptions) -> RecordingView:
    """What ``doctor`` shows where it finds faults."""
    shown, prompts = RecordingView(), cast(Prompts, SimpleNamespace(asks=False))
    with pytest.raises(ChecksFailed):
        doctor(options, LocalMachine("laptop"), shown, prompts, Interrupts())
    return shown


def test_a_profile_that_is_wrong_is_told_with_its_line(profile: Path) -> None:
    profile.write_text('host = "127.0.0.1:1"\nenvironment = "torch"\n')
    told = checked(LaunchOptions({}, cluster="uni")).one(events.CheckResult)
    assert (told.check, told.result) == ("profile", "fault")
    assert "uni.toml:2" in told.found and told.hint


def test_how_words_were_understood_is_well_and_what_the_scheduler_decides_is_left_to_it(profile: Path) -> None:
    profile.write_text(
        'host = "127.0.0.1:1"\nmax_time = { devcore = "1:00:00" }\n'
        '[[translations]]\nwhen = { clusters = "old" }\nset = { clusters = false }\nnote = "there is one cluster."\n'
    )
    shown = checked(LaunchOptions({"partition": "devcore", "time": "3:00:00", "clusters": "old"}, cluster="uni"))
    told = [event for event in shown.events if isinstance(event, events.CheckResult) and event.check == "as understood"]
    assert [(event.result, event.found) for event in told] == [("ok", "-M old is left out: there is one cluster.")]
    found = results(shown)  # nobody listens on that port, and what builds on it is not told as one more fault
    assert [name for name, result in found.items() if result == "fault"] == ["login node"]
    assert [found[name] for name in ("login", "home", "scheduler", "image", "environment")] == ["skipped"] * 5


def test_a_fault_names_whom_to_ask(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise ConnectionFailed("Nobody answers.", hint="ask the cluster's support why")

    profile.write_text('host = "127.0.0.1"\ncontact = "help@uni.example"\n')
    monkeypatch.setattr(login, "open_host", refuse)
    shown = checked(LaunchOptions({}, cluster="uni"))
    found = next(event for event in shown.all(events.CheckResult) if event.result == "fault")
    assert found.hint == "ask the cluster's support (help@uni.example) why"
