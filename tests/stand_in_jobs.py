"""The jobs of the stand-ins for LSF and PBS: they really run, on this machine, in the order of submission.

There is one host with a few cores: a job waits until it can have the cores that it requests. There is no daemon: a
process that submits a job, or whose job ends, starts the jobs that can run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import paths

CORES = 4
NODE = socket.gethostname().partition(".")[0]


@dataclass
class Job:
    """One job. ``seconds``: its walltime; times are seconds since 1970; ``code``: as in subprocess.

    ``cpu``: processor time of its processes in seconds; ``memory``: the maximum of one of them, in KiB.
    """

    number: str
    name: str
    user: str
    queue: str
    cores: int
    seconds: int
    log: str
    command: list[str]
    arguments: str
    account: str = ""
    held: bool = False
    submitted: float = 0
    began: float | None = None
    ended: float | None = None
    pid: int | None = None
    code: int | None = None
    cancelled: bool = False
    overran: bool = False
    cpu: float = 0
    memory: int = 0

    @property
    def state(self) -> str:
        """Return ``ended``, ``running``, ``held`` or ``waiting``."""
        if self.ended is not None:
            return "ended"
        return "running" if self.began is not None else "held" if self.held else "waiting"


class Jobs:
    """All jobs of one stand-in, in a folder. The stand-in's command ``run NUMBER`` calls ``run``."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._module = folder, f"tests.{kind}_stand_in"
        self.settings = {f"{kind.upper()}_STAND_IN": str(folder), "PYTHONPATH": str(paths.ROOT)}

    def all(self) -> dict[str, Job]:
        numbers = sorted((path.stem for path in self._folder.glob("*.json")), key=int)
        return {number: self._read(number) for number in numbers}

    def _read(self, number: str) -> Job:
        return Job(**json.loads((self._folder / f"{number}.json").read_text()))

    def add(self, job: Job) -> None:
        """Queue a job, which gets the next number, and start it if it can run."""
        with self._locked():
            job.number = str(len(self.all()) + 1)
            job.submitted = time.time()
            self._keep(job)
        self.start()

    def start(self) -> None:
        """Start jobs that fit, in order: no job overtakes another one."""
        with self._locked():
            jobs = self.all().values()
            free = CORES - sum(job.cores for job in jobs if job.state == "running")
            for job in (job for job in jobs if job.state == "waiting"):
                if job.cores > free:
                    break
                free -= job.cores
                job.began = time.time()
                self._keep(job)
                nothing, env = subprocess.DEVNULL, os.environ | self.settings
                words = [sys.executable, "-S", "-m", self._module, "run", job.number]
                subprocess.Popen(words, start_new_session=True, env=env, stdin=nothing, stdout=nothing, stderr=nothing)

    def estimate(self, number: str) -> float | None:
        """Return when the first pending job can start at the latest; ``None`` for all others."""
        jobs = self.all().values()
        first = next((job for job in jobs if job.state == "waiting"), None)
        if first is None or first.number != number or first.cores > CORES:
            return None
        runs = sorted(((job.began or 0) + job.seconds, job.cores) for job in jobs if job.state == "running")
        free = CORES - sum(cores for _, cores in runs)
        for end, cores in runs:
            free += cores
            if free >= first.cores:
                return end
        return time.time()

    def run(self, number: str, log: Path, own: Mapping[str, str], time_over: signal.Signals) -> Job:
        """Run one started job, and return it when it has ended; ``own``: its additional variables."""
        job = self.all()[number]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
        with log.open("w") as file:
            child = subprocess.Popen(
                job.command, env=env, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.change(number, lambda job: setattr(job, "pid", child.pid))
        overran = False
        left: list[tuple[float, signal.Signals]] = []
        while child.poll() is None:
            time.sleep(0.05)
            if not overran and time.time() - (job.began or 0) > job.seconds:
                overran = True
                os.killpg(child.pid, time_over)
            if not left and self._read(number).cancelled:
                left = [(time.time() + 2, signal.SIGTERM), (time.time() + 10, signal.SIGKILL)]
            if left and time.time() > left[0][0]:
                os.killpg(child.pid, left.pop(0)[1])

        def end(job: Job) -> None:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            job.ended, job.code, job.overran = time.time(), child.returncode, overran
            job.cpu, job.memory = used.ru_utime + used.ru_stime, used.ru_maxrss

        ended = self.change(number, end)
        self.start()
        return ended

    def cancel(self, number: str, by: signal.Signals) -> None:
        """Cancel a job; a running one gets this signal, followed by SIGTERM and SIGKILL."""

        def end(job: Job) -> None:
            job.cancelled = True
            if job.state in ("held", "waiting"):
                job.ended = time.time()

        if self.change(number, end).state != "running":
            return
        deadline = time.monotonic() + 10
        while (pid := self.all()[number].pid) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, by)

    def end(self, number: str, seconds: float = 20) -> None:
        """Kill a job, and wait until it has ended. Raises ``AssertionError`` if it takes too long."""
        self.cancel(number, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while self.all()[number].state != "ended":
            assert time.monotonic() < deadline, number
            time.sleep(0.02)

    def change(self, number: str, how: Callable[[Job], object]) -> Job:
        with self._locked():
            job = self.all()[number]
            how(job)
            self._keep(job)
            return job

    def _keep(self, job: Job) -> None:
        new = self._folder / f"{job.number}.new"
        new.write_text(json.dumps(asdict(job)))
        new.replace(self._folder / f"{job.number}.json")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def wrapped(line: str, indent: str, first: int, others: int) -> str:
    """Return a long line as a scheduler prints it: broken anywhere, with ``indent`` before all parts but the first."""
    parts = [line[:first], *(line[at : at + others] for at in range(first, len(line), others))]
    return f"\n{indent}".join(parts)


def hours(seconds: float) -> str:
    """Return ``2:00:00``, with two digits for hours."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def ended_within(jobs: Jobs, seconds: float) -> None:
    """Kill all jobs, and wait until they have ended. Raises ``AssertionError`` if it takes too long."""
    for job in jobs.all().values():
        if job.state != "ended":
            jobs.end(job.number, seconds)


def install(folder: Path, kind: str, programs: Iterable[str]) -> Jobs:
    """Put a stand-in's commands into a folder, and return its jobs, which are stored there as well."""
    state = folder / f"{kind}-jobs"
    state.mkdir()
    jobs = Jobs(state, kind)
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in jobs.settings.items())
    for name in programs:
        words = f"exec {shlex.quote(sys.executable)} -S -m tests.{kind}_stand_in {name}"
        (folder / name).write_text(f'#!/bin/sh\nexport {settings}\n{words} "$@"\n')
        (folder / name).chmod(0o755)
    return jobs
