"""What a job used, and its report, by the accounting of LSF, PBS and Grid Engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, Scheduler, State
from notebook_launcher.schedulers.gridengine.commands import GridEngine
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.pbs.commands import Pbs
from notebook_launcher.usage.report import Evidence, make_report
from tests import paths
from tests.unit.schedulers import recordings

# in the form that the manual of bacct has, with lines that are joined as in bjobs -l
LSF_TEXT = """
Accounting information about jobs that are:
  - submitted by all users.
  - accounted on all projects.
  - completed normally or exited
------------------------------------------------------------------------------

Job <7>, Job Name <training>, User <alice>, Project <course>, Status <EXIT>, Que
                     ue <gpuv100>, Command <bash -l /zhome/a/x.sh>, Share group
                      charged </alice>
Sun Apr 12 17:20:00 2026: Submitted from host <login1>, CWD <$HOME>, Requested G
                          PU <num=2:mode=exclusive_process>;

 RUNLIMIT
 60.0 min
Sun Apr 12 17:24:14 2026: Dispatched 4 Task(s) on Host(s) <4*v1>, Allocated 4 Sl
                          ot(s) on Host(s) <4*v1>, Effective RES_REQ <select[ty
                          pe == any] >;
Sun Apr 12 18:24:14 2026: Completed <exit>; TERM_RUNLIMIT: job killed after reac
                          hing LSF run time limit.

GPU_ALLOCATION:
 HOST             TASK GPU_ID  GI_PLACEMENT/SIZE    CI_PLACEMENT/SIZE    MODEL        MTOTAL  FACTOR MRSV    SOCKET
 v1               0    0       -                    -                    TeslaV100_PC 31.7G   7.0    0M      8      -
                  1    1       -                    -                    TeslaV100_PC 31.7G   7.0    0M      8      -

Accounting information about this job:
     Share group charged </alice>
     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP
   7200.50      254           3854     exit         1.8683   3.5G      0M
------------------------------------------------------------------------------

SUMMARY:      ( time unit: second )
 Total number of done jobs:       0      Total number of exited jobs:     1
"""
LSF, PBS, GRID = Lsf(), Pbs(), GridEngine()


def recorded(folder: str, name: str) -> CommandResult:
    return recordings.recorded(paths.RECORDED / folder, name)


def test_what_a_job_used_on_lsf() -> None:
    job = JobRef("7")
    found = LSF.read_accounting(job, CommandResult(0, LSF_TEXT))
    assert found == AccountingRecord(
        job,
        State.TIMEOUT,
        wall=3600,
        walltime=3600,
        cores=4,
        nodes=1,
        gpus=2,
        partition="gpuv100",
        cpu_used=7200.5,
        cpu_reserved=14400,
        memory_peak=3584.0,
    )
    assert LSF.read_accounting(JobRef("8"), CommandResult(0, LSF_TEXT)) is None
    assert LSF.read_accounting(job, CommandResult(255, "", "No matching job found")) is None
    older = LSF_TEXT.replace(
        "4 Task(s) on Host(s) <4*v1>, Allocated 4 Sl\n                          ot(s) on Host(s) <4*v1>",
        "to <v1> <v1> <v2>",
    )
    found = LSF.read_accounting(job, CommandResult(0, older))
    assert found and (found.cores, found.nodes) == (3, 2)
    without = (
        LSF_TEXT.partition("GPU_ALLOCATION")[0] + "\n" + LSF_TEXT[LSF_TEXT.index("Accounting information about this") :]
    )
    found = LSF.read_accounting(job, CommandResult(0, without))
    assert found and found.gpus is None, "they were asked for, and how many it had is not told"


@pytest.mark.parametrize(
    ("scheduler", "job", "answer", "name", "columns"),
    [
        (LSF, "7", CommandResult(0, LSF_TEXT), "training", {"Project": "course", "TURNAROUND": "3854", "MEM": "3.5G"}),
        (PBS, "33.node1", recorded("pbs", "80-qstat-x-f-finished-ok"), "okjob", {"Exit_status": "0", "queue": "workq"}),
        (GRID, "22", recorded("gridengine", "qacct-done-with-3"), "fails", {"exit_status": "3", "slots": "1"}),
    ],
)
def test_the_report_has_the_columns_by_their_own_names(
    scheduler: Scheduler, job: str, answer: CommandResult, name: str, columns: dict[str, str]
) -> None:
    accounts = scheduler.read_report(JobRef(job), answer)
    assert accounts and accounts.columns["JobName"] == name
    report = make_report(Evidence(accounts=accounts, job=job))
    assert report
    shown = {column.column: column.value for column in report.columns}
    assert shown.items() >= columns.items() and "JobName" not in shown
    assert all(column.meaning for column in report.columns)
    assert {row.of for row in report.use} >= {"time", "cores"}


def test_whether_the_history_answers_for_a_job_that_never_was() -> None:
    assert GRID.history_answers(recorded("gridengine", "qacct-unknown"))
    assert GRID.history_answers(CommandResult(1, "", "error: job id 99999 not found\n"))
    assert LSF.history_answers(CommandResult(255, "", "No matching job found\n"))
    for scheduler in (GRID, LSF):
        assert not scheduler.history_answers(CommandResult(1, "", "cannot open the file"))


@given(recordings.damaged(LSF_TEXT), st.sampled_from([0, 255]))
def test_damaged_accounts_are_none_or_the_truth(text: str, code: int) -> None:
    found = LSF.read_report(JobRef("7"), CommandResult(code, text))
    if found is not None and LSF_TEXT.startswith(text):
        assert found.record.state is State.TIMEOUT and found.record.wall == 3600
    if found is not None:
        make_report(Evidence(accounts=found, job="7"))
