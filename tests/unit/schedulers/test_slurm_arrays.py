"""Slurm: the state of a job array, and the accounting of its tasks. Recorded with Slurm 24.11, shortened."""

from __future__ import annotations

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.base import JobRef, State, Submission
from notebook_launcher.schedulers.slurm import job_report
from notebook_launcher.schedulers.slurm.commands import Slurm

SLURM = Slurm()
REST = "proj1|normal|2:00"
WAIT = f"7_[2-5%2]|PENDING|devcore||N/A|N/A|{REST}|JobArrayTaskLimit\n"
RUN = f"7_1|RUNNING|devcore|node1|2026-11-27T20:44:50|2026-11-27T20:46:50|{REST}|None\n"
DONE = f"7_0|COMPLETED|devcore|node1|2026-11-27T20:44:50|2026-11-27T20:46:50|{REST}|None\n"
FAILED = DONE.replace("7_0|COMPLETED", "7_3|FAILED")
OTHER = DONE.replace("7_0|COMPLETED", "77|RUNNING") + DONE.replace("7_0|COMPLETED", "77_1|RUNNING")


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (WAIT, State.PENDING),
        (WAIT + RUN, State.RUNNING),
        (DONE + WAIT, State.PENDING),
        (DONE + FAILED + RUN + OTHER, State.RUNNING),
        (DONE + FAILED, State.FAILED),
        (DONE, State.COMPLETED),
        (DONE + DONE.replace("7_0|COMPLETED", "7|CANCELLED"), State.CANCELLED),
    ],
)
def test_an_array_goes_on_as_long_as_a_task_does(rows: str, state: State) -> None:
    found = SLURM.read_query([JobRef("7")], CommandResult(0, rows))
    assert found is not None and found["7"].state is state and found["7"].job == JobRef("7")


def test_scontrol_names_the_array_beside_each_task() -> None:
    text = "".join(
        f"JobId={raw} ArrayJobId=7 ArrayTaskId={task} JobName=a Account=proj1 QOS=normal WCKey=* JobState={state} "
        "Reason=None Dependency=(null) Requeue=1 TimeLimit=00:02:00 TimeMin=N/A StartTime=Unknown EndTime=Unknown "
        "Deadline=N/A Partition=devcore AllocNode:Sid=login:0 NodeList=node1 BatchHost=node1\n"
        for raw, task, state in ((7, "2-5%2", "PENDING"), (9, "1", "RUNNING"), (8, "0", "COMPLETED"))
    )
    found = SLURM.read_query([JobRef("7")], CommandResult(0, text))
    assert found is not None and list(found) == ["7"] and found["7"].state is State.RUNNING


def test_an_array_has_a_script_and_logs_of_its_own() -> None:
    submission = Submission("s", "/s", "/s/jupyterlab.sh", "/s/job-%a.log")
    command = SLURM.submit(Request({"array": "0-3"}), submission)
    assert command[-2:] == ["/s/array_task.sh", "/s"]
    assert {"--array=0-3", "--output=/s/job-%a.log", "--open-mode=append"} <= set(command)


def row(raw: str, shown: str, state: str, wall: int) -> str:
    values = {"JobIDRaw": raw, "JobID": shown, "State": state, "ElapsedRaw": str(wall), "ExitCode": "0:0"}
    return "|".join(values.get(name, "") for name in job_report._NAMES) + "\n"


def test_each_task_has_its_own_accounts() -> None:
    """The last task has the array's own raw id, as the tasks that wait had before."""
    text = row("8", "7_0", "COMPLETED", 9) + row("8.batch", "7_0.batch", "COMPLETED", 9) + row("9", "7_1", "FAILED", 5)
    text += row("7", "7_[2-3]", "CANCELLED by 0", 0) + row("7", "7_4", "RUNNING", 3) + row("77", "77_1", "FAILED", 1)
    found = SLURM.read_array_report(JobRef("7"), CommandResult(0, text))
    states = {number: task.record.state.name for number, task in sorted(found.items())}
    assert states == {0: "COMPLETED", 1: "FAILED", 2: "CANCELLED", 3: "CANCELLED", 4: "RUNNING"}
    assert [step.name for step in found[0].steps] == ["batch"] and found[4].record.wall == 3
    assert SLURM.read_array_report(JobRef("7"), CommandResult(1, text)) == {}
