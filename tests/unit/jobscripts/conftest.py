"""Jobs for the tests of the job scripts."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.jobscripts.job import LIKE_APPTAINER, STAND_IN, Job
from tests.unit.jobscripts.usage_sampler import New, Sampler


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


@pytest.fixture
def quick(job: Job) -> Job:
    """A job with the stand-in for JupyterLab on its PATH."""
    job.tool("jupyter-lab", STAND_IN)
    job.in_a_scheduler()
    return job


@pytest.fixture
def boxed(job: Job) -> Job:
    """A job with a container image, a container command, and JupyterLab only inside."""
    job.tool("apptainer", LIKE_APPTAINER)
    inside = job.home / "inside"
    inside.mkdir()
    shutil.move(job.tool("jupyter-lab", STAND_IN), inside / "jupyter-lab")
    (job.root / "an image.sif").touch()
    job.in_a_scheduler()
    return job


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Make a job that will run a notebook of these cells; ``alone``: there is no scheduler that would clear up."""
    from tests.unit.jobscripts.execute_run import new_run, notebook  # not for every test here: it loads nbclient

    jobs: list[Job] = []

    def make(*cells: str, settings: tuple[str, ...] = (), alone: bool = False) -> Job:
        jobs.append(new_run(tmp_path, notebook(*cells), *settings))
        if not alone:
            jobs[-1].in_a_scheduler()
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[New]:
    """Make samplers: several at work at the same time, so that nobody waits for one after the other."""
    number = itertools.count()
    with contextlib.ExitStack() as stack:

        def new(**env: str) -> Sampler:
            folder = tmp_path / str(next(number))
            folder.mkdir()
            made = Sampler(folder, env)
            stack.callback(made.clear)
            return made

        yield new


@pytest.fixture
def sampler(new: New) -> Sampler:
    return new()
