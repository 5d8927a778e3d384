"""A user's job script, run by the launcher's: as it is, with its signals, and how it ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles import wait_until
from tests.unit.jobscripts.job import Job, read_json

pytestmark = pytest.mark.real_time


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    made.in_a_scheduler()
    yield made
    made.end()


def write(job: Job, text: str, *lines: str, arguments: str = "") -> None:
    (job.dir / "work").mkdir(parents=True)
    (job.dir / "work" / "mine.sh").write_text(text)
    (job.dir / "arguments").write_text(arguments)
    job.ask("program=script", "script=mine.sh", *lines)


def test_it_runs_as_it_is_with_its_variables_and_arguments(job: Job) -> None:
    script = '#!/usr/bin/env -S bash -e\nprintf "%s|" "$PWD" "$A" "$@" "$(umask)"\nfalse\necho never\n'
    write(job, script, "setenv=A=b c", arguments="--lr\n0.1 x\n")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("script-failed", 1)
    text = job.log.read_text()
    assert f"{job.dir}/work|b c|--lr|0.1 x|0027|" in text and "never" not in text
    assert "The script mine.sh on " in report["message"] and "ended with exit code 1" in report["message"]


def test_a_blank_behind_the_first_line_does_not_matter_and_it_is_the_jobs_own_script(job: Job) -> None:
    write(job, '#!/bin/bash -e \t\necho "its own: $((SLURM_TASK_PID == $$))"\nfalse\n', "setenv=SLURM_TASK_PID=1")
    assert job.run()["cause"] == "script-failed"
    assert "its own: 1" in job.log.read_text()


@pytest.mark.parametrize(
    ("script", "cause", "code"),
    [("#!/bin/sh\ntrue\n", "finished", 0), ("#!/bin/sh\nkill -KILL $$\n", "script-failed", 137)],
)
def test_how_it_ends_is_how_the_job_ends(job: Job, script: str, cause: str, code: int) -> None:
    write(job, script)
    report = job.run()
    assert (report["cause"], report["exit_code"]) == (cause, code)


def test_without_its_folder_or_itself_it_does_not_run(job: Job) -> None:
    write(job, "#!/bin/sh\necho ran\n", "folder=/not/there")
    assert job.run()["cause"] == "folder-missing"
    (job.dir / "work" / "mine.sh").unlink()
    assert job.run()["cause"] == "session-unusable"


def test_its_standard_input_is_the_file_that_is_named_or_empty(job: Job) -> None:
    write(job, "#!/bin/sh\nwc -c\n", "input=in.txt")
    assert job.run()["cause"] == "input-missing"
    (job.dir / "work" / "in.txt").write_text("12345")
    assert job.run()["cause"] == "finished" and "\n5\n" in job.log.read_text()
    job.ask("program=script", "script=mine.sh", "input=in.txt", f"folder={job.root}")  # -D, and it was sent along
    assert job.run()["cause"] == "finished" and job.log.read_text().count("\n5\n") == 2
    job.ask("program=script", "script=mine.sh")
    assert job.run()["cause"] == "finished" and "\n0\n" in job.log.read_text()


def test_it_says_whether_its_log_was_begun_anew(job: Job) -> None:
    """As after a requeue, where the site appends to a log, or truncates it."""
    write(job, "#!/bin/sh\ntrue\n")
    found = []
    for _ in range(2):
        job.run()
        found.append(read_json(job.dir / "started.json")["new_log"])
    assert found == [True, False]


def test_usr1_before_the_script_is_there_does_not_end_the_job(job: Job) -> None:
    """As with a walltime that is shorter than the lead of --signal=B:USR1@120."""
    sent = job.root / "sent"
    job.tool("mkdir", f'#!/bin/sh\n[ -e {sent} ] || {{ : >{sent}; kill -USR1 $PPID; }}\nexec /bin/mkdir "$@"\n')
    write(job, "#!/bin/sh\ntrue\n")
    assert job.run()["cause"] == "finished" and sent.exists()


ANSWERS = """#!/bin/bash
trap 'echo saved >saved' USR1
trap 'echo told to end; exit 5' TERM
echo ready >ready
for _ in {1..300}; do sleep 0.1 & wait; done
"""


def test_signals_are_its_own(job: Job) -> None:
    """USR1 leaves it running, as often as it comes; after TERM it may end as it likes, and the job was stopped."""
    write(job, ANSWERS)
    job.start()
    work = job.dir / "work"
    wait_until(lambda: (work / "ready").exists())
    for _ in range(2):
        job.send(signal.SIGUSR1)
        wait_until(lambda: (work / "saved").exists())
        (work / "saved").unlink()
    job.send(signal.SIGTERM)
    report = job.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 143)
    assert "told to end" in job.log.read_text()
    assert job.processes() == []
