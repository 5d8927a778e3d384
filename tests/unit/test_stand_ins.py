"""``launch-notebook`` from ``init`` to the usage report where a stand-in for LSF or PBS runs the jobs, on this machine.

The stand-ins are ``tests/lsf_stand_in.py`` and ``tests/pbs_stand_in.py``, which say what is real about them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from tests import lsf_stand_in, paths, pbs_stand_in, stand_in_jobs
from tests.cluster_tests.situation import STAND_IN
from tests.conftest import Session, environment
from tests.doubles import wait_until

pytestmark = pytest.mark.real_time

COMMANDS = {"lsf": lsf_stand_in.COMMANDS, "pbs": pbs_stand_in.COMMANDS}
TITLE = {"lsf": "LSF", "pbs": "PBS"}
QUEUE = {"lsf": "normal", "pbs": "workq"}
SCRIPT = '#!/bin/bash\necho "job ${PBS_JOBID-}${LSB_JOBID-} has $NBL_CORES"\n'


class Site:
    """A login node with one of the stand-ins, and the command as its user types it there."""

    def __init__(self, kind: str, folder: Path, jobs: stand_in_jobs.Jobs, capsys: pytest.CaptureFixture[str]) -> None:
        self.kind, self.folder, self.jobs, self._capsys = kind, folder, jobs, capsys

    def types(self, *words: str, code: int = 0) -> str:
        """Return what a command prints."""
        self._capsys.readouterr()
        ended = run(words)
        printed = self._capsys.readouterr()
        text = " ".join(f"{printed.out}\n{printed.err}".split())
        assert ended == code, text
        return text

    @contextlib.contextmanager
    def all_cores_taken(self) -> Iterator[None]:
        """Somebody else has them."""
        job = stand_in_jobs.Job(
            "", "full", "bob", QUEUE[self.kind], stand_in_jobs.CORES, 600, os.devnull, ["sleep", "600"], "sleep"
        )
        self.jobs.add(job)
        yield
        self.jobs.end(job.number)


@pytest.fixture(params=COMMANDS)
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Site]:
    commands, home = tmp_path / "commands", tmp_path / "home"
    commands.mkdir()
    home.mkdir()
    jobs = stand_in_jobs.install(commands, request.param, COMMANDS[request.param])
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    yield Site(request.param, tmp_path, jobs, capsys)
    stand_in_jobs.ended_within(jobs, 20)


def test_from_init_to_the_usage_report(site: Site) -> None:
    queue = QUEUE[site.kind]
    site.types("init", "--name", "mine", "--probe")
    site.types("clusters", "use", "mine")
    profile = (site.folder / "config/clusters/mine.toml").read_text()
    assert f'scheduler = "{site.kind}"' in profile and f'{queue} = "1-00:00:00"' in profile, profile
    assert 'route = "' in profile and f"odules on {stand_in_jobs.NODE}" in profile, profile
    assert "1 of 1 node in partition" in site.types("when", "-n", "1", "-t", "5")
    (site.folder / "job.sh").write_text(SCRIPT)
    with site.all_cores_taken():
        assert f"{queue} (default) 1 day cores 0 4 0" in site.types("queue")
        assert "none of 1 node in partition" in site.types("when", "-n", "1", "-t", "5")
        site.types("submit", "job.sh", "-n", "2", "-t", "5", "--detach")
        assert "Waiting: 1 job" in site.types("queue")
        assert "pending" in site.types("list")
    mine = list(site.jobs.all().values())[-1]
    wait_until(lambda: site.jobs.all()[mine.number].state == "ended", 30, "the script has run")
    told = site.types("report", mine.number)
    assert "cores 2" in told and "not reported" not in told, told
    assert "measured by" in (told := site.types("bill")) and "nothing about it" not in told, told


def test_a_session_is_launched_and_ended(site: Site) -> None:
    profile = site.folder / "config/clusters/mine.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f'host = "login1"\nlogin_nodes = ["*"]\nscheduler = "{site.kind}"\n')
    programs = site.folder / "light/bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to("/usr/bin/python3")
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    (programs / "jupyter-lab").write_text(f"#!/bin/bash\n{STAND_IN}\n")
    (programs / "jupyter-lab").chmod(0o755)
    words = ["--new", "--cluster", "mine", "-n", "1", "-t", "5", "--venv", str(programs.parent)]
    session = Session(
        [sys.executable, "-m", "notebook_launcher", *words],
        columns=200,
        env=environment() | {"PYTHONPATH": str(paths.ROOT)},
    )
    try:
        session.ready()
        session.send("\n")
        assert session.end() == 0, session.printed
    finally:
        session.child.close(force=True)
    assert f"measured by {TITLE[site.kind]}'s accounting" in " ".join(session.printed.split()), session.printed
    (job,) = site.jobs.all().values()
    assert job.cancelled, job
