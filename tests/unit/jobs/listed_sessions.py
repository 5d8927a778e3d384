"""Runs sessions.sh over directories, and joins what it prints with a scheduler's word."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from notebook_launcher.core.package_data import job_script
from notebook_launcher.jobs.session_index import (
    JobQueue,
    SessionIndex,
    build_index,
    parse_listing,
)
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from tests.session_directories import NOW, ago

BASH = os.environ.get("NBL_TEST_BASH") or shutil.which("bash") or "bash"


SCRIPT = job_script("sessions.sh").read_bytes()


def run(root: Path, *words: str, path: str | None = None) -> str:
    """Run sessions.sh as the launcher does. ``path``: where programs are looked for."""
    done = subprocess.run(
        [BASH, "-s", "--", str(root), *words],
        input=SCRIPT,
        capture_output=True,
        timeout=20,
        env=os.environ | ({"PATH": path} if path else {}),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode(errors="replace")


def look(root: Path, told: Mapping[JobQueue, Mapping[str, JobStatus] | None] | None = None) -> SessionIndex:
    reading = parse_listing(run(root), str(root), NOW)
    assert reading.whole
    return build_index(reading, told or {}, NOW)


def row(state: State, job: str = "7", **others: str | None) -> dict[str, JobStatus]:
    return {job: JobStatus(JobRef(job), state, **others)}  # type: ignore[arg-type]


LONG_AGO = ago(days=40)
