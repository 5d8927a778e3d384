"""The tasks of a job array: each in a directory of its own, and followed together."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import JOB_FILES, job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, Job, read_json

pytestmark = pytest.mark.real_time

SCRIPT = """#!/bin/sh
echo "task $SLURM_ARRAY_TASK_ID in $PWD"
echo "an error" >&2
exit "$((SLURM_ARRAY_TASK_ID == 2 ? 3 : 0))"
"""


class Task(Job):
    """One task of an array of two, as Slurm runs it."""

    def begin(self, number: int, *, cancelled: bool = False) -> dict[str, Any]:
        """Run it to its end, or cancel it once it runs, and return what it says about that."""
        variables = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2"}
        self.env |= {**variables, "SLURM_JOB_ID": str(10 + number)}
        self.script = self.dir / "array_task.sh"
        self.log = self.dir / f"job-{number}.log"
        self.start()
        assert self.process is not None
        if cancelled:
            wait_until(lambda: "runs" in self.log.read_text(), 30, "the script runs")
            self.process.terminate()
        code = self.process.wait(30)
        ended = read_json(self.dir / "tasks" / str(number) / "exit.json")
        assert ended["exit_code"] == code
        return ended


@pytest.fixture
def array(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path)
    (made.dir / "work").mkdir(parents=True)
    (made.dir / "work" / "mine.sh").write_text(SCRIPT)
    (made.dir / "session.json").write_text("{}\n")
    for name in JOB_FILES:
        (made.dir / name).write_bytes(job_script(name).read_bytes())
    made.ask("program=script", "script=mine.sh")
    yield made
    made.end()


def follow(array: Task, *words: str) -> list[str]:
    """What ``watch_tasks.sh`` says once, without the launcher's own lines, and JSON as its cause or node."""
    command = [BASH, str(array.dir / "watch_tasks.sh"), str(array.dir), "once", *words]
    lines = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout
    return [_short(line) for line in lines.splitlines() if line != "." and "notebook-launcher: " not in line]


def _short(line: str) -> str:
    head, brace, rest = line.partition("{")
    return head + str(json.loads(brace + rest).get("cause", "…")) if brace else line


def test_each_task_has_a_directory_of_its_own_and_the_last_one_reports_the_end_of_all(array: Task) -> None:
    assert array.begin(1)["cause"] == "finished"
    assert read_json(array.dir / "started.json")["job"] == "7" and not (array.dir / "exit.json").exists()
    assert array.begin(2)["cause"] == "script-failed"
    ended = read_json(array.dir / "exit.json")
    assert (ended["cause"], ended["job"], ended["message"]) == ("script-failed", "7", "1 of 2 tasks failed.")
    task = array.dir / "tasks" / "1"
    assert task.stat().st_mode & 0o77 == 0 and (task / "work").resolve() == array.dir / "work"
    assert (task / "lib.sh").stat().st_ino == (array.dir / "lib.sh").stat().st_ino
    assert (task / "log").read_text() == f"{array.dir}/job-1.log\n" and (task / "token").read_text() == "none\n"
    lines = follow(array)
    assert lines == [
        *("started 1 …", f"log 1 task 1 in {array.dir}/work", "log 1 an error", "exit 1 finished"),
        *("started 2 …", f"log 2 task 2 in {array.dir}/work", "log 2 an error", "exit 2 script-failed"),
    ]


@pytest.mark.parametrize(
    ("second", "cause", "message"),
    [
        ("cancelled", "stopped", "2 of 2 tasks were cancelled or reached their walltime."),
        ("failed", "script-failed", "1 of 2 tasks failed, and 1 was cancelled or reached its walltime."),
    ],
)
def test_tasks_that_were_cancelled_have_not_failed(array: Task, second: str, cause: str, message: str) -> None:
    script = array.dir / "work" / "mine.sh"
    script.write_text("#!/bin/sh\necho runs\nexec sleep 60\n")
    assert array.begin(1, cancelled=True)["cause"] == "stopped"
    if second == "failed":
        script.write_text("#!/bin/sh\nexit 3\n")
    array.begin(2, cancelled=second == "cancelled")
    ended = read_json(array.dir / "exit.json")
    assert (ended["cause"], ended["message"]) == (cause, message)


def test_lines_that_were_shown_are_not_told_again_and_other_files_not_at_all(array: Task) -> None:
    array.begin(1)
    count = len((array.dir / "job-1.log").read_text().splitlines())
    assert follow(array, f"1:{count}", "x:2", "1e:9") == ["started 1 …", "exit 1 finished"]
    (array.dir / "tasks" / "x").mkdir()
    (array.dir / "tasks" / "3").symlink_to("1")
    (array.dir / "tasks" / "1" / "log").write_text("relative\n/dev/null\n")
    assert follow(array) == ["started 1 …", "exit 1 finished"]


def test_a_task_is_followed_through_a_requeue(array: Task) -> None:
    command = [BASH, str(array.dir / "watch_tasks.sh"), str(array.dir), "follow"]
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watch.stdout and watch.stdin

    def until(wanted: str) -> list[str]:
        lines: list[str] = []
        while not lines or not lines[-1].startswith(wanted):
            line = watch.stdout.readline().rstrip("\n")  # type: ignore[union-attr]
            assert line
            lines += [] if line == "." or "notebook-launcher: " in line else [_short(line)]
        return lines

    try:
        array.begin(1)
        assert len(until("exit 1")) == 4
        (array.dir / "work" / "mine.sh").write_text("#!/bin/sh\nsleep 2\necho again\n")
        array.begin(1)
        assert until("exit 1") == ["gone 1", "started 1 …", "log 1 again", "exit 1 finished"]
        watch.stdin.close()
        wait_until(lambda: watch.poll() == 0)
    finally:
        watch.kill()
        watch.wait()


def test_tasks_are_looked_at_in_turns(array: Task) -> None:
    """A large array is no load on the file server: so many of its tasks a second."""
    for number in range(1, 8):
        folder = array.dir / "tasks" / str(number)
        folder.mkdir(parents=True)
        (folder / "exit.json").write_text('{"cause":"finished"}\n')
    command = [BASH, str(array.dir / "watch_tasks.sh"), str(array.dir)]
    environment = {**os.environ, "NBL_MOST_LOOKED_AT": "3"}
    once = subprocess.run([*command, "once"], env=environment, capture_output=True, text=True, check=True)
    assert len([line for line in once.stdout.splitlines() if line.startswith("exit")]) == 7
    watch = subprocess.Popen([*command, "follow"], env=environment, stdin=-1, stdout=-1, text=True)
    assert watch.stdout and watch.stdin
    told: list[str] = []
    try:
        while len([line for line in told if line != "."]) < 7:
            told.append(watch.stdout.readline().rstrip("\n"))
    finally:
        watch.stdin.close()
        watch.wait(30)
    ended = [line for line in told if line != "."]
    assert sorted(ended) == [f'exit {number} {{"cause":"finished"}}' for number in range(1, 8)]
    assert "." in told[3:], "not all at the first look"


def test_it_runs_in_no_other_job(array: Task) -> None:
    ran = subprocess.run([BASH, str(array.dir / "array_task.sh"), str(array.dir)], capture_output=True, text=True)
    assert ran.returncode == 73 and "not a task of a job array" in ran.stderr
