"""What a usage report recommends for the next job."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from notebook_launcher.core.usage_samples import GpuSample
from notebook_launcher.schedulers.base import State
from notebook_launcher.usage.bill import Facts
from tests.unit.usage.usage_facts import (
    HOUR,
    accounted,
    billed,
    gpu,
    steady,
)


def advice(minutes: int, flags: dict[str, str | None], samples: dict[str, Any] | None = None, **told: Any) -> list[str]:
    usual = {"wall": minutes * 60, "gpus": 0, "gpu_type": None, "walltime": 4 * HOUR}
    facts = Facts(accounted(**usual | told), steady(minutes * 60, **(samples or {})), minutes * 60.0)
    return [flag for flag, _ in billed(facts, {"time": "4:00:00", **flags}).recommendations]


@pytest.mark.parametrize(
    ("minutes", "told", "flags"),
    [
        (20, {}, ["-t 0:30:00"]),
        (6, {}, ["-t 0:30:00"]),
        (75, {}, ["-t 2:00:00"]),
        (200, {}, []),
        (90, {"walltime": 2 * HOUR}, []),
        (30, {"walltime": HOUR}, []),
        (4, {}, []),
        (240, {"state": State.TIMEOUT}, ["-t 6:00:00"]),
        (60, {"walltime": HOUR}, ["-t 1:30:00"]),
        (1439, {"walltime": 24 * HOUR, "state": State.TIMEOUT}, ["-t 1-12:00:00"]),
        (20, {"state": State.NODE_FAIL}, []),
        (20, {"state": State.PREEMPTED}, []),
    ],
    ids=[
        "far too long",
        "for a look",
        "too long",
        "about right",
        "not worth it",
        "saves little",
        "a few minutes",
        "ran out",
        "ran out by the clock",
        "days",
        "cut short",
        "had to give way",
    ],
)
def test_walltime_next_time(minutes: int, told: dict[str, Any], flags: list[str]) -> None:
    assert advice(minutes, {}, **told) == flags


ABOUT_RIGHT = 200  # minutes of 4 hours: nothing is said of the walltime


@pytest.mark.parametrize(
    ("flags", "told", "expected"),
    [
        ({"mem": "55G"}, {}, ["--mem 6G"]),
        ({"mem": "0"}, {"memory_limit": 128 * 1024.0}, ["--mem 6G"]),
        ({"mem": "8G"}, {"memory_limit": 8 * 1024.0}, []),
        ({}, {}, []),
        ({"mem": "55G", "exclusive": None}, {}, []),
        ({"mem": "55G"}, {"nodes": 2}, []),
        ({"mem": "55G", "nodes": "1-2"}, {}, []),
        ({"mem": "55G", "nodes": "1"}, {}, ["--mem 6G"]),
        ({"mem": "55G"}, {"state": State.OUT_OF_MEMORY}, []),
        ({"mem": "55G"}, {"memory_peak": 30 * 1024.0}, []),
    ],
    ids=[
        "far too much",
        "a whole node's",
        "little more",
        "not asked for",
        "whole nodes",
        "two nodes",
        "perhaps two",
        "one node",
        "ran out",
        "half",
    ],
)
def test_memory_next_time(flags: dict[str, str | None], told: dict[str, Any], expected: list[str]) -> None:
    assert advice(ABOUT_RIGHT, flags, **told) == expected


@pytest.mark.parametrize(
    ("flags", "peak", "told", "expected"),
    [
        ({"ntasks": "8", "mem": "8G"}, 0.8, {"memory_limit": 8192.0}, ["-n 1"]),
        ({"cpus-per-task": "8", "mem": "8G"}, 2.4, {"memory_limit": 8192.0}, ["-c 3"]),
        ({"cpus-per-task": "8", "ntasks": "1", "mem": "8G"}, 0.8, {"memory_limit": 8192.0}, ["-c 1"]),
        ({"cpus-per-task": "8", "mem": "8G"}, 5.0, {"memory_limit": 8192.0}, []),
        ({"cpus-per-task": "4", "ntasks": "2", "mem": "8G"}, 0.8, {"memory_limit": 8192.0}, []),
        ({"ntasks": "4", "mem": "8G"}, 0.8, {"memory_limit": 8192.0}, []),
        ({"mem": "8G"}, 0.8, {"memory_limit": 8192.0}, []),
        ({"ntasks": "8"}, 0.8, {"memory_limit": 8 * 6400.0}, ["-n 1", "--mem 6G"]),
        ({"ntasks": "8"}, 0.8, {"memory_limit": 8 * 1600.0}, ["-n 1", "--mem 6G"]),
        ({"ntasks": "8"}, 0.8, {"memory_limit": 8 * 600.0}, []),
    ],
    ids=[
        "tasks",
        "cores",
        "cores of one task",
        "busy",
        "both words",
        "the site counts otherwise",
        "not asked for",
        "memory comes with them",
        "memory comes with them, and is needed",
        "all of it is needed",
    ],
)
def test_cores_next_time(flags: dict[str, str | None], peak: float, told: dict[str, Any], expected: list[str]) -> None:
    assert advice(ABOUT_RIGHT, flags, {"cores": peak}, **told) == expected


IDLE, BUSY, LOADED = gpu(percent=0.0, memory=4.0), gpu(), gpu(percent=0.0)


@pytest.mark.parametrize(
    ("flags", "seen", "count", "expected"),
    [
        ({"gpus": "1"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gpus": "a100:1"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gres": "gpu:a100:1"}, (IDLE,), 1, ["--gres gpu:a100:0"]),
        ({"gres": "gpu:1,scratch:5"}, (IDLE,), 1, ["--gpus 0"]),
        ({"gpus": "1"}, (BUSY,), 1, []),
        ({"gpus": "1"}, (LOADED,), 1, []),
        ({"gpus": "1"}, (gpu(percent=None, memory=4.0),), 1, []),
        ({"gpus": "1"}, (), 1, []),
        ({"gpus": "a100:2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, ["--gpus a100:1"]),
        ({"gres": "gpu:2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, ["--gres gpu:1"]),
        ({"gpus-per-task": "2"}, (BUSY, dataclasses.replace(IDLE, index="1")), 2, []),
        ({"gpus": "1"}, (BUSY, dataclasses.replace(IDLE, index="1")), 1, []),
    ],
    ids=[
        "one",
        "with a type",
        "a GRES",
        "among others",
        "busy",
        "loaded",
        "not told",
        "not seen",
        "one of two",
        "a GRES, one of two",
        "other words",
        "somebody else's",
    ],
)
def test_gpus_next_time(
    flags: dict[str, str | None], seen: tuple[GpuSample, ...], count: int, expected: list[str]
) -> None:
    told = {"gpus": count, "gpu_type": "a100", "memory_limit": 8192.0}
    assert advice(ABOUT_RIGHT, {"mem": "8G", **flags}, {"gpus": seen}, **told) == expected


def test_nothing_is_never_used_in_a_few_minutes_or_unseen() -> None:
    assert advice(8, {"gpus": "1"}, {"gpus": (IDLE,)}, gpus=1, walltime=HOUR) == []
    half_seen = Facts(accounted(wall=12000, walltime=4 * HOUR), steady(6000, gpus=(IDLE,)), 12000.0)
    assert billed(half_seen, {"time": "4:00:00", "gpus": "1"}).recommendations == ()


def test_every_advice_says_why() -> None:
    facts = Facts(accounted(wall=1200, walltime=4 * HOUR), steady(1200, gpus=(IDLE,)), 1200.0)
    bill = billed(facts, {"time": "4:00:00", "mem": "55G", "gpus": "a100:1", "ntasks": "8", "partition": "gpu"})
    assert dict(bill.recommendations) == {
        "-t 0:30:00": "it took 20 min of 4 hours",
        "-n 1": "never more than 0.5 of 8 cores were busy",
        "--mem 6G": "3.1 of 55 GiB were used at most",
        "--gpus 0": "no GPU did anything in 20 min; another partition may be needed for that",
    }


@pytest.mark.parametrize(("tasks", "samples", "advised"), [("8", None, False), ("1", None, True), ("8", 3000.0, True)])
def test_the_peak_of_one_task_among_several_is_no_reason_for_less_memory(
    tasks: str, samples: float | None, advised: bool
) -> None:
    """The accounting knows the largest task of a step alone; the samples are of the whole job."""
    flags = advice(200, {"mem": "55G", "ntasks": tasks}, {"memory": samples})
    assert any(flag.startswith("--mem") for flag in flags) == advised
