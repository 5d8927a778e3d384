"""What all tasks of a job array used, and how each ended."""

from __future__ import annotations

from collections import defaultdict

from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, State
from notebook_launcher.usage.array_report import MOST_TASKS, make_array_report, outcomes


def task(state: State = State.COMPLETED, wall: int = 600, **values: object) -> JobAccounts:
    known = {"walltime": 7200, "cores": 4, "cpu_used": 600.0, "cpu_reserved": 4 * wall, "memory_peak": 512.0}
    known["memory_requested"] = 8192.0
    record = AccountingRecord(JobRef("8"), state, wall=wall, **{**known, **values})  # type: ignore[arg-type]
    return JobAccounts(record, defaultdict(str, NodeList="node1", JobName="a", ExitCode="3:0"))


def test_the_tasks_of_an_array_are_summed_up() -> None:
    tasks = {0: task(), 1: task(wall=1200), 2: task(State.FAILED, memory_peak=1024.0), 3: task(State.CANCELLED, wall=0)}
    made = make_array_report("7", "", "s", tasks, explained=False)
    assert made is not None
    assert [(one.of, one.asked, one.used, one.share) for one in made.use] == [
        ("tasks", "4", "2 completed", 50.0),
        ("time per task", "2 h", "13 min on average, 20 min at most", 16.7),
        ("core time of all tasks", "2 h 40 min allocated", "30 min busy", 18.8),
        ("memory per task", "8 GiB", "1 GiB at most", 12.5),
    ]
    assert made.state == "2 COMPLETED, 1 FAILED, 1 CANCELLED" and (made.job_name, made.tasks) == ("a", 4)
    assert [(one.step, one.tasks, one.cpu) for one in made.steps][1:] == [
        ("1", "node1, 20 min", "0.5 of 4 busy"),
        ("2", "node1, 10 min", "1.0 of 4 busy"),
        ("3", "", ""),
    ]
    cores, time, memory = made.advice
    assert "0.7 of 4 cores" in cores and "20 min of 2 hours" in time and "0.5 GiB of 8 GiB" in memory
    assert make_array_report("7", "", None, {}, explained=True) is None


def test_the_time_per_task_has_seconds_and_is_that_of_tasks_that_were_not_cancelled() -> None:
    cancelled = task(State.CANCELLED, wall=8, walltime=60)
    for tasks, used, share in (
        ({0: task(wall=60, walltime=60), 1: task(State.TIMEOUT, wall=74, walltime=60)}, "1:07 on average, 1:14", 123.3),
        ({0: task(wall=60, walltime=60), 1: cancelled}, "1:00 on average, 1:00 at most, without cancelled ones", 100),
        ({0: cancelled, 1: cancelled}, "all were cancelled", None),
    ):
        made = make_array_report("7", "", None, tasks, explained=False)
        assert made is not None and made.use[1].used.startswith(used)
        assert (made.use[1].asked, made.use[1].share) == ("1 min", share)


def test_what_was_asked_for_is_not_what_was_allocated() -> None:
    for requested, asked in ((8192.0, "8 GiB (16 GiB allocated)"), (16384.0, "16 GiB"), (None, "16 GiB allocated")):
        values = {"memory_requested": requested, "memory_limit": 16384.0, "gpus": 2}
        made = make_array_report("7", "", None, {0: task(**values)}, explained=True)
        assert made is not None
        assert [(one.of, one.asked, one.share) for one in made.use][-2:] == [
            ("memory per task", asked, 3.1),
            ("GPU time of all tasks", "20 min allocated", None),
        ]


def test_energy_is_only_shown_if_each_task_has_some() -> None:
    for joules, total in ((5.0, 15.0), (None, None)):
        made = make_array_report("7", "", None, {0: task(joules=10.0), 1: task(joules=joules)}, explained=True)
        assert made is not None and made.joules == total


def test_tasks_that_are_not_over_are_counted_and_of_many_the_first_are_listed() -> None:
    tasks = {number: task(State.RUNNING) for number in range(MOST_TASKS + 1)}
    made = make_array_report("7", "", None, tasks, explained=True)
    assert made is not None and len(made.steps) == MOST_TASKS
    assert made.unknown[0].startswith(f"{MOST_TASKS + 1} tasks are not over") and "first 50" in made.unknown[1]


def test_how_each_task_ended_is_known_from_the_accounting_or_from_its_own_record() -> None:
    exits = {
        0: {"cause": "finished", "exit_code": 0},
        1: {"cause": "script-failed", "exit_code": 2},
        2: {"cause": "stopped", "exit_code": 143},
        3: {"cause": "stopped", "exit_code": 143},
        4: {"cause": "folder-missing", "exit_code": 1},
        7: {},
    }
    accounts = {1: task(State.RUNNING), 3: task(State.TIMEOUT), 5: task(State.FAILED), 6: task(State.RUNNING)}
    found = outcomes(exits, accounts)
    assert {number: one.reason for number, one in found.items() if not one.is_success} == {
        1: "exit code 2",
        2: "cancelled",
        3: "walltime reached",
        4: "folder missing",
        5: "exit code 3",
    }
    assert found[0].is_success and 6 not in found and 7 not in found
