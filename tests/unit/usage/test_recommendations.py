"""What is advised for next time never starves the next session: for whatever was asked, used, and given by a site."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.core.request import GPU_FLAGS, MEMORY_FLAGS, Request
from notebook_launcher.core.sbatch_options import BY_NAME
from notebook_launcher.core.usage_samples import GpuSample, Sample
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, State
from notebook_launcher.session.record import SessionRecord
from notebook_launcher.usage.bill import Facts, make_bill
from tests.fuzzing import examples

Flags = dict[str, str | None]
BEGAN = datetime(2026, 11, 21, 1, 45, tzinfo=timezone.utc)
GIB = 1024.0
_LETTERS = {flag.letter: flag.name for flag in BY_NAME.values() if flag.letter}


@dataclass(frozen=True)
class Site:
    """What a job gets that asks for no memory (GiB for each of something), or for no cores (for each GPU)."""

    memory_of: str = "core"
    memory: int = 4
    cores_of_a_gpu: int = 0


@dataclass(frozen=True)
class Share:
    """What a job gets: cores, GPUs, MiB."""

    cores: int
    gpus: int
    memory: float


def share(site: Site, flags: Mapping[str, str | None]) -> Share:
    """Return what a site gives."""

    def number(name: str) -> int | None:
        text = flags.get(name)
        return int(text.removesuffix("G")) if text else None

    gpus = Request(flags).gpus
    of_a_gpu = number("cpus-per-gpu") or (0 if {"ntasks", "cpus-per-task"} & flags.keys() else site.cores_of_a_gpu)
    cores = gpus * of_a_gpu or (number("ntasks") or 1) * (number("cpus-per-task") or 1)
    units = {"mem": 1, "mem-per-cpu": cores, "mem-per-gpu": gpus}
    asked = next((units[word] * (number(word) or 0) for word in units if word in flags), None)
    usual = site.memory * {"core": cores, "gpu": gpus or 1, "node": 1}[site.memory_of]
    return Share(cores, gpus, GIB * (usual if asked is None else asked))


def heeded(flags: Flags, advice: tuple[tuple[str, str], ...]) -> Flags:
    """Return the flags as somebody types them who does what was advised; nothing is said of what is not there."""
    new = dict(flags)
    for typed, _ in advice:
        word, value = shlex.split(typed)
        name = word[2:] if word.startswith("--") else _LETTERS[word[1:]]
        replaced = MEMORY_FLAGS if name in MEMORY_FLAGS else GPU_FLAGS if name in GPU_FLAGS else frozenset()
        new = {flag: text for flag, text in new.items() if flag not in replaced} | {name: value}
    if not Request(new).gpus:
        assert "mem-per-gpu" not in new, "no scheduler takes that without GPUs"
        new.pop("cpus-per-gpu", None)
    return new


def gpu(index: int, *, idle: bool) -> GpuSample:
    return GpuSample(str(index), "Tesla T4", 0.0 if idle else 40.0, 4.0, 16384.0, 60.0)


def advised(
    flags: Flags,
    given_: Share,
    peak: float,
    cores: float,
    *,
    idle: int = 0,
    wall: int = 12000,
    told: bool = True,
    state: State = State.COMPLETED,
) -> tuple[tuple[str, str], ...]:
    """Return the advice after a session with these peaks (MiB, cores) and so many GPUs that did nothing."""
    gpus = tuple(gpu(index, idle=index < idle) for index in range(given_.gpus))
    samples = [
        Sample(BEGAN + timedelta(seconds=wall * part // 40), wall * part / 40, cores, peak, gpus)
        for part in range(1, 41)
    ]
    walltime = Request(flags).walltime
    assert walltime
    accounted = AccountingRecord(
        JobRef("7"),
        state=state,
        wall=wall,
        walltime=int(walltime.total_seconds()),
        cores=given_.cores,
        nodes=1,
        gpus=given_.gpus,
        memory_limit=given_.memory,
        cpu_used=cores * wall,
    )
    record = SessionRecord(id="20261121-014455-k3f9", created=BEGAN, scheduler="slurm", flags=dict(flags), log="/log")
    bill = make_bill(record, "7", Facts(accounted if told else None, samples, float(wall)), None)
    assert bill
    return bill.recommendations


def words(*args: object, **more: object) -> str:
    return " ".join(typed for typed, _ in advised(*args, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "peak", "cores", "idle", "expected"),
    [
        ({"ntasks": "8", "mem-per-cpu": "4G"}, 6, 1.5, 0, "-n 2"),
        ({"ntasks": "8", "mem-per-cpu": "4G"}, 1, 1.5, 0, "-n 2 --mem-per-cpu 1G"),
        ({"ntasks": "8", "mem-per-cpu": "4G"}, 9, 0.5, 0, "-n 3"),
        ({"ntasks": "8", "mem-per-cpu": "4G"}, 6, 7.5, 0, "--mem-per-cpu 1G"),
        ({"mem-per-cpu": "32G"}, 6, 0.5, 0, "--mem-per-cpu 8G"),
        ({"gpus": "4", "mem-per-gpu": "40G"}, 20, 0.5, 3, "--gpus 1"),
        ({"gpus": "4", "mem-per-gpu": "40G"}, 60, 0.5, 3, "--mem-per-gpu 80G --gpus 1"),
        ({"gpus": "4", "mem-per-gpu": "40G"}, 20, 0.5, 4, "--mem 32G --gpus 0"),
        ({"gpus": "4", "mem-per-gpu": "40G"}, 20, 0.5, 0, "--mem-per-gpu 8G"),
        ({"gpus": "4", "cpus-per-gpu": "8", "mem": "64G"}, 40, 20.0, 3, ""),
        ({"gpus": "4", "cpus-per-gpu": "8", "mem": "64G"}, 40, 6.0, 3, "--gpus 1"),
        ({"ntasks": "8"}, 6, 1.5, 0, "-n 2 --mem 8G"),
        ({"ntasks": "8", "gpus": "2"}, 6, 1.5, 1, "-n 2 --mem 8G --gpus 1"),
        ({"ntasks": "8", "gpus-per-task": "1", "mem": "8G"}, 6, 1.5, 0, ""),
    ],
    ids=[
        "by core: as much each, of fewer",
        "by core: less each, of fewer",
        "by core: as many as memory needs",
        "by core: all cores needed",
        "by core: one core",
        "by GPU: as much each, of fewer",
        "by GPU: more each",
        "by GPU: no GPU",
        "by GPU: all GPUs needed",
        "the cores come with the GPUs, and are needed",
        "the cores come with the GPUs",
        "the site's own memory comes with the cores",
        "the site's own memory, and fewer of both",
        "GPUs come with the tasks",
    ],
)
def test_advice_fits_together(flags: Flags, peak: int, cores: float, idle: int, expected: str) -> None:
    asked: Flags = {"time": "4:00:00", **flags}
    assert words(asked, share(Site(), asked), peak * GIB, cores, idle=idle) == expected


def test_a_site_that_gives_more_cores_for_the_memory() -> None:
    """MaxMemPerCPU: 32 GiB of one core were given as 8 cores with 4 GiB each. Asked for less, it is one core again."""
    asked: Flags = {"time": "4:00:00", "ntasks": "1", "mem-per-cpu": "32G"}
    assert words(asked, Share(8, 0, 32 * GIB), 6 * GIB, 0.5) in ("", "--mem-per-cpu 8G")


def test_a_site_that_lets_jobs_run_on_beyond_their_limit() -> None:
    asked: Flags = {"time": "1:00:00", "mem": "8G"}
    assert words(asked, Share(1, 0, 8 * GIB), 6 * GIB, 0.5, wall=9000, state=State.TIMEOUT) == "-t 4:00:00"


_COUNTS = st.sampled_from([1, 2, 3, 4, 8, 12, 32])
_SIZES = st.sampled_from(["1G", "2G", "4G", "7G", "40G", "500G"])
_SITES = st.builds(Site, st.sampled_from(["core", "gpu", "node"]), st.sampled_from([1, 4, 16]), st.sampled_from([0, 6]))


@st.composite
def _asked(draw: st.DrawFn) -> Flags:
    flags: Flags = {"time": draw(st.sampled_from(["0:06:00", "1:00:00", "8:00:00", "3-00:00:00"]))}
    for word in draw(st.sets(st.sampled_from(["ntasks", "cpus-per-task"]))):
        flags[word] = str(draw(_COUNTS))
    memory = ["mem", "mem-per-cpu", ""]
    if gpus := draw(st.sampled_from([0, 1, 2, 4])):
        flags |= draw(
            st.sampled_from([{"gpus": f"{gpus}"}, {"gres": f"gpu:t4:{gpus}"}, {"gpus-per-node": f"t4:{gpus}"}])
        )
        memory.append("mem-per-gpu")
        if draw(st.booleans()):
            flags["cpus-per-gpu"] = str(draw(_COUNTS))
    if word := draw(st.sampled_from(memory)):
        flags[word] = draw(_SIZES)
    return flags


@settings(max_examples=examples(80), deadline=None)
@given(_asked(), _SITES, st.data())
@pytest.mark.real_time
def test_whoever_heeds_the_advice_has_enough(flags: Flags, site: Site, data: st.DataObject) -> None:
    before = share(site, flags)
    peak = data.draw(st.floats(0.01, 1.0)) * before.memory
    cores = data.draw(st.floats(0.0, 1.0)) * before.cores
    wall = data.draw(st.integers(300, 100 * 3600))
    found = advised(
        flags,
        before,
        peak,
        cores,
        idle=data.draw(st.integers(0, before.gpus)),
        wall=wall,
        told=data.draw(st.booleans()),
        state=data.draw(st.sampled_from([*State])),
    )
    new = heeded(flags, found)
    after = share(site, new)
    assert after.memory >= min(before.memory, 1.3 * peak)
    assert after.cores >= min(before.cores, cores)
    if new["time"] != flags["time"]:
        walltime = Walltime.parse(new["time"] or "")
        assert walltime
        assert walltime.total_seconds() > wall
