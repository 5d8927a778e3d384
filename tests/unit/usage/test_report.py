"""The report on a job: recorded rows of sacct, explained, and what there is without them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from notebook_launcher.cli.views.batch import show_report
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.schedulers.base import JobAccounts, JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.usage import report_command
from notebook_launcher.usage.bill import Facts
from notebook_launcher.usage.report import Evidence, make_report
from notebook_launcher.usage.training_result import LARGEST_FILE, TrainingResult, read_result
from tests.doubles import RecordingView
from tests.unit.usage.usage_facts import RECORDED, billed

SLURM = Slurm()
TEXT = (Path(RECORDED) / "24.11" / "job-report.txt").read_text()


def accounts(job: str, text: str = TEXT) -> JobAccounts:
    found = SLURM.read_report(JobRef(job), CommandResult(0, text))
    assert found is not None
    return found


def report(job: str, text: str = TEXT, **others: object) -> events.JobReport:
    made = make_report(Evidence(accounts=accounts(job, text), job=job, **others))  # type: ignore[arg-type]
    assert made is not None
    return made


def test_each_column_is_explained() -> None:
    made = report("1")
    columns = {one.column: (one.value, one.meaning) for one in made.columns}
    assert (made.job_name, made.state, made.session) == ("a|b", "FAILED", None)
    assert columns["ExitCode"][0] == "1:0" and columns["Elapsed"][0] == "0:00:10"
    assert columns["Timelimit"] == ("0:05:00", "the longest that it was allowed to run (-t)")
    assert columns["Submit"] == ("2026-11-24T02:16:35", "when it was submitted; it began 1 s later (Start)")
    assert columns["TotalCPU"][1] == "the CPU time that its processes used: 3 % of CPUTime, the CPU efficiency"
    assert columns["MaxRSS"] == ("96 MiB", "the most memory that one of its tasks had (on node1)")
    assert "ConsumedEnergy" not in columns and any("Energy" in text for text in made.unknown)


def test_use_is_shown_by_step_task_and_node() -> None:
    made = report("1")
    assert [(one.of, one.asked, one.used, one.share) for one in made.use] == [
        ("time", "5 min", "10 s", 3.3),
        ("cores", "4", "0.1 busy on average", 3.3),
        ("memory", "0.6 GiB", "96 MiB at most, of one task", None),
    ]
    batch, two, failed = made.steps
    assert (two.step, two.tasks, two.memory) == ("0 (srun)", "4 tasks on node[1-2]", "2 MiB (task 2 on node2)")
    assert batch.step == "batch (the script)" and failed.state == "FAILED"


def test_a_task_of_an_array_is_found_by_its_name_and_the_array_names_its_tasks() -> None:
    assert accounts("2_1").record.job.id == "3" and accounts("2_1").array == ()
    assert accounts("2").array == ("2_1", "2_2")
    assert SLURM.read_report(JobRef("99"), CommandResult(0, TEXT)) is None
    assert SLURM.read_report(JobRef("1"), CommandResult(1, TEXT)) is None


def test_a_job_that_was_killed_and_gpus_that_nobody_measured() -> None:
    made = report("4")
    assert made.use[-1] == events.ReportUse("GPUs", "2 t4", "not reported")
    assert any(text.startswith("GPU use: it was not measured") for text in made.unknown) and made.advice == ()


GPU_JOB = next(line for line in TEXT.splitlines(keepends=True) if line.startswith("4|"))
GOT_MORE = GPU_JOB.replace("|1|1|billing=1,cpu=1,gres/gpu:t4=2,", "|8|1|billing=8,cpu=8,gres/gpu:t4=2,", 1).replace(
    "mem=6400M", "mem=12800M", 1
)
UNKNOWN = GOT_MORE.replace("|billing=1,cpu=1,gres/gpu:t4=2,gres/gpu=2,mem=6400M,node=1|wrap", "||wrap").replace(
    "+0000|1||gpu1", "+0000|||gpu1"
)


@pytest.mark.parametrize(
    ("rows", "flags", "asked"),
    [
        (GPU_JOB, {}, ["1", "6.2 GiB", "2 t4"]),
        (GOT_MORE, {}, ["1 (8 allocated)", "6.2 GiB (12.5 GiB allocated)", "2 t4"]),
        (
            GOT_MORE.replace("cpu=1,gres/gpu:t4=2,gres/gpu=2", "cpu=1,gres/gpu=1"),
            {},
            ["1 (8 allocated)", "6.2 GiB (12.5 GiB allocated)", "1 (2 t4 allocated)"],
        ),
        (UNKNOWN, {}, ["8 allocated", "6.2 GiB (12.5 GiB allocated)", "2 t4 allocated"]),
        (
            UNKNOWN.replace("6400M", "0"),
            {"cpus-per-task": "4", "gpus": "t4:1", "mem": "1G"},
            ["4 (8 allocated)", "1 GiB (12.5 GiB allocated)", "1 t4 (2 t4 allocated)"],
        ),
    ],
    ids=["the same", "all of a node", "a number of GPUs", "not reported", "by the session's flags"],
)
def test_what_was_asked_for_is_told_from_what_was_allocated(
    rows: str, flags: dict[str, str | None], asked: list[str]
) -> None:
    shown = {one.of: one.asked for one in report("4", rows, flags=flags).use}
    assert [shown["cores"], shown["memory"], shown["GPUs"]] == asked


@pytest.mark.parametrize(
    ("wall", "cpu", "limit", "mem", "advice"),
    [
        (600, "08:00.000", 480, "600M", ["average 0.8 of 4 cores", "It took 10 min of 8 hours"]),
        (600, "40:00.000", 15, "600M", []),
        (50, "00:01.000", 480, "64000M", []),
        (600, "39:00.000", 15, "64000M", ["measured is 96 MiB of 62.5 GiB"]),
    ],
)
def test_one_is_advised_where_something_was_wasted(
    wall: int, cpu: str, limit: int, mem: str, advice: list[str]
) -> None:
    row = (
        f"1|COMPLETED|2001|core|{wall}|{limit}|4|1|cpu=4,mem={mem},node=1|{cpu}|{4 * wall}||{mem}|0|1|0:0|proj1|normal"
    )
    row += "|2026-11-24T02:16:35+0000|2026-11-24T02:16:36+0000|2026-11-24T02:16:46+0000|4||node1||||||x\n"
    step = TEXT.splitlines()[1].replace("FAILED", "COMPLETED")
    made = report("1", row + step + "\n")
    assert len(made.advice) == len(advice)
    for text, part in zip(made.advice, advice, strict=True):
        assert part in text


def one_node(tasks: int = 1, *, memory: str = "64000M", steps: int = 1, state: str = "COMPLETED") -> str:
    """Return sacct's rows of a job of ten minutes, whose steps have so many tasks; each peaks at 96 MiB or less."""
    row = f"1|{state}|2001|core|600|15|4|1|cpu=4,mem={memory},node=1|39:00.000|2400||{memory}|0|1|0:0|proj1|normal"
    row += "|2026-11-24T02:16:35+0000|2026-11-24T02:16:36+0000|2026-11-24T02:16:46+0000|4||node1||||||x\n"
    step = TEXT.splitlines()[1].replace("FAILED", state).split("|")
    assert step[22] == "1"
    step[22] = str(tasks)
    return row + "".join("|".join([f"1.{number}", *step[1:]]) + "\n" for number in range(steps))


@pytest.mark.parametrize(
    ("rows", "used", "share", "advised"),
    [
        (one_node(), "96 MiB at most", 0.1, True),
        (one_node(tasks=8), "96 MiB at most, of one task", None, False),
        (one_node(memory="4500M", steps=30), "96 MiB at most", 2.1, False),
    ],
    ids=["one task", "eight tasks", "thirty steps that may run at once"],
)
def test_less_memory_is_advised_only_where_the_jobs_own_peak_is_known(
    rows: str, used: str, share: float | None, advised: bool
) -> None:
    made = report("1", rows)
    assert [(one.used, one.share) for one in made.use if one.of == "memory"] == [(used, share)]
    assert bool(made.advice) == advised
    assert ("of ReqMem" in next(one.meaning for one in made.columns if one.column == "MaxRSS")) == (share is not None)


def test_what_a_usage_report_recommends_by_one_task_is_left_out() -> None:
    found = accounts("1", one_node(tasks=8))
    bill = dataclasses.replace(
        billed(Facts(found.record, wall=600.0)),
        recommendations=(("--mem=2G", "1.5 of 64 GiB were used at most"), ("-t 1:00:00", "it ran into its limit")),
    )
    made = make_report(Evidence(accounts=found, bill=bill, job="1"))
    assert made is not None and made.advice == ("Next time -t 1:00:00 is enough: it ran into its limit.",)
    found = accounts("1", one_node(state="TIMEOUT"))
    made = make_report(Evidence(accounts=found, bill=bill, job="1"))
    assert made is not None and made.advice[0].startswith("Next time try --mem=2G -t 1:00:00: ")


def test_energy_by_epoch_is_left_out_after_a_requeue() -> None:
    """The joules are those of the last run, and the epochs those of all."""
    lines = TEXT.replace("|40||600M|0|", "|40||600M|7200|", 1).splitlines(keepends=True)
    made = report("1", lines[0].replace("FAILED", "REQUEUED") + "".join(lines), result=TrainingResult(2, 300))
    assert (made.joules, made.joules_per_epoch, made.joules_per_image) == (7200, None, None)
    assert (
        "Energy: that of the last run; the job was requeued, and what earlier runs used is not in it." in made.unknown
    )


def test_after_a_requeue_nothing_is_advised() -> None:
    """The last run may have had little left to do: what it needed says nothing of the next job."""
    found = accounts("1", one_node())
    bill = dataclasses.replace(
        billed(Facts(found.record, wall=600.0)), recommendations=(("-t 0:30:00", "it took 20 min of 2 h"),)
    )
    for earlier, advice in ((0, ("Next time -t 0:30:00 is enough: it took 20 min of 2 h.",)), (7000, ())):
        facts = dataclasses.replace(found, record=dataclasses.replace(found.record, earlier=earlier))
        made = make_report(Evidence(accounts=facts, bill=bill, job="1"))
        assert made is not None and made.advice == advice


def test_of_a_job_that_is_not_over_nothing_is_said_of_its_end() -> None:
    made = report("1", one_node(state="RUNNING"))
    assert made.unknown == (
        "The job is not over: the accounting has its CPU time, memory and energy some seconds after its end.",
    )
    assert accounts("1", one_node(state="RUNNING")).is_live and not accounts("1").is_live


@pytest.mark.parametrize(("may_be_live", "queries"), [(True, 1), (False, 2)], ids=["any job", "one that has ended"])
def test_a_running_jobs_first_answer_will_do(may_be_live: bool, queries: int) -> None:
    answers = [CommandResult(0, one_node(state=state)) for state in ("COMPLETED", "RUNNING")]
    context = SimpleNamespace(
        scheduler=SLURM,
        host=SimpleNamespace(run=lambda *_, **__: answers.pop()),
        view=RecordingView(),
        interrupts=Interrupts(),
        timing=SimpleNamespace(accounting_pause=0.01, longest_accounting_pause=0.01),
    )
    deadline = time.monotonic() + 5
    found = report_command._accounts(cast(Any, context), JobRef("1"), deadline, may_be_live=may_be_live)
    assert found is not None and found.is_live == may_be_live and len(answers) == 2 - queries


def test_of_an_array_all_tasks_are_reported_together() -> None:
    host = SimpleNamespace(run=lambda *_, **__: CommandResult(0, TEXT))
    target = SimpleNamespace(arguments=lambda: ["--cluster", "uni"])
    context = cast(Any, SimpleNamespace(host=host, scheduler=SLURM, target=target, view=SimpleNamespace(show=print)))
    context.timing = SimpleNamespace(accounting_pause=0, longest_accounting_pause=0)
    note, made = report_command._reports_on_array(context, JobRef("2"), None)
    assert isinstance(note, events.Note) and "job array of 2 tasks. To see one explained" in note.text
    assert note.text.endswith("launch-notebook report 2_1 --cluster uni")
    assert isinstance(made, events.JobReport)
    assert (made.job, made.tasks, [one.step for one in made.steps], made.columns) == ("2", 2, ["1", "2"], ())


def test_tasks_of_an_array_that_wait_are_counted() -> None:
    row = TEXT.splitlines()[0].replace("FAILED", "PENDING").split("|")
    shown = {"1": "1_[2-3,8-12:2%2]", "7": "1_1"}
    text = "".join("|".join([raw, *row[1:14], job, *row[15:]]) + "\n" for raw, job in shown.items())
    assert accounts("1", text).array == ("1_2", "1_3", "1_8", "1_10", "1_12", "1_1")
    assert accounts("1_8", text).array == () and accounts("1_8", text).record.job.id == "1"
    assert len(accounts("1", text.replace("2-3", "2-999999999")).array) == 100_001


def test_energy_is_told_by_epoch_and_by_image() -> None:
    text = TEXT.replace("|40||600M|0|", "|40||600M|7200|", 1)
    made = report("1", text, result=TrainingResult(2, 300))
    assert (made.joules, made.energy_of, made.joules_per_epoch, made.joules_per_image) == (7200, "nodes", 3600, 24)
    shown = "Energy: 2.0 Wh of the nodes, by the scheduler's accounting, 1.0 Wh per epoch, 24.0 J per image"
    assert shown in printed(made)


def test_the_energy_of_gpus_is_that_of_the_only_node_and_what_is_not_known_is_said() -> None:
    bill = dataclasses.replace(billed(Facts(wall=61.0)), energy=2.0, energy_of="GPUs")
    made = report("1", one_node(), bill=bill)
    assert made.joules == 7200 and "Energy: 2.0 Wh of the GPUs, by their own sensors" in printed(made)
    of_two = report("1", bill=bill, result=TrainingResult(2, 300))
    assert (of_two.joules, of_two.joules_per_epoch) == (None, None)
    assert any("only the GPUs of its first node were measured" in text for text in of_two.unknown)
    none = report("1", one_node())
    assert any("neither the scheduler nor a GPU has measured it" in text for text in none.unknown)


def test_nothing_is_said_of_epochs_if_the_job_has_reported_none() -> None:
    bill = dataclasses.replace(billed(Facts(wall=61.0)), energy=2.0, energy_of="GPUs")
    for made in (report("1", one_node()), report("1", one_node(), bill=bill, result=TrainingResult())):
        assert "epoch" not in printed(made) and "image" not in printed(made)


def test_without_accounting_it_is_what_the_job_recorded() -> None:
    bill = billed(Facts(wall=61.0))
    made = make_report(Evidence(bill=bill, session=bill.session, name="train.sh", job="7", state="ended"))
    assert made is not None and made.columns == () and made.use[0].used == "1:01"
    assert made.unknown[0].startswith("There is no accounting to ask here")
    assert make_report(Evidence(job="7")) is None


def printed(made: events.JobReport, width: int | None = None) -> str:
    out = io.StringIO()
    show_report(Console(file=out, width=width or 200, force_terminal=width is not None, color_system=None), made)
    return out.getvalue()


def test_it_is_read_in_eighty_columns_and_by_programs() -> None:
    made = report("1")
    assert max(map(len, printed(made, 80).splitlines())) <= 80
    plain = printed(made)
    assert "  TotalCPU   1.3 s " in plain and "  0 (srun)            4 tasks on node[1-2]" in plain


# --- what a training reports of itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ('{"notebook-launcher": 1, "epochs": 3, "images": 300, "seconds": 1.5}', (3, 300)),
        ('  {"notebook-launcher": 1, "epochs": 3}', (3, None)),
        ('{"version": 1, "epochs": [{"loss": 1}, {}], "settings": {"images": 50}}', (2, 100)),
        ('{"notebook-launcher": 2, "epochs": 3}', (None, None)),
        ('{"notebook-launcher": true, "epochs": 3}', (None, None)),
        ('{"notebook-launcher": 1, "epochs": -1, "images": 1e400}', (None, None)),
        ('{"notebook-launcher": 1, "epochs": true, "images": "9"}', (None, None)),
        ('{"notebook-launcher": 1, "epochs": ' + "9" * 100 + "}", (None, None)),
        ('{"version": 1, "epochs": [], "settings": {"images": 50}}', (None, None)),
        ('{"version": 1, "restarts": 1, "epochs": [{}], "settings": {"images": 50}}', (None, None)),
        ("{" * 60_000, (None, None)),
        ('{"notebook-launcher": 1, "epochs": 3' + " " * 70_000 + "}", (None, None)),
    ],
)
def test_a_report_of_a_training_is_read_with_care(line: str, result: tuple[int | None, int | None]) -> None:
    found = read_result(["epoch 1", line, "bye"])
    assert (found.epochs, found.images) == result


@pytest.mark.parametrize(
    ("files", "epochs"),
    [
        ({"runs/7/result.json": 2, "result.json": 3, "runs/other/result.json": 4}, 2),
        ({"result.json": 3, "runs/other/result.json": 4}, 3),
        ({"runs/my run/result.json": 4}, 4),
        ({"runs/a/result.json": 4, "runs/b/result.json": 5}, None),
        ({"runs/7/result.json": -2}, None),
        ({"result.json": 2000}, 2000),
    ],
    ids=["the job's", "its own", "the only one", "which of them?", "older", "more than 64 KB"],
)
def test_the_result_of_this_job_counts(tmp_path: Path, files: dict[str, int], epochs: int | None) -> None:
    started = tmp_path / "started.json"
    started.touch()
    for name, count in files.items():
        path = tmp_path / "work folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"version": 1, "epochs": [{"loss": 0.123456}] * abs(count), "settings": {}}, indent=9)
        )
        os.utime(path, ns=(0, started.stat().st_mtime_ns + (10**9 if count > 0 else -(10**9))))
    words = [str(tmp_path / "log"), str(tmp_path / "work folder"), "50", str(LARGEST_FILE), str(started), "7"]
    done = subprocess.run(["sh", "-c", report_command._READ, "x", *words], capture_output=True, text=True, check=True)
    *log, file = done.stdout.split("\n")[:-1]
    assert read_result(log, file).epochs == epochs


@pytest.mark.parametrize(
    ("named", "is_shared", "epochs"),
    [("7", True, 1), ("8", False, None), ("8", True, None), (None, False, 1), (None, True, None)],
)
def test_the_result_of_another_job_does_not_count(named: str | None, is_shared: bool, epochs: int | None) -> None:
    file = json.dumps({"version": 1, "job": named, "epochs": [{}], "settings": {}})
    assert read_result([], file, "7", is_shared=is_shared).epochs == epochs


@given(st.lists(st.text(), max_size=5))
def test_any_log_is_read(lines: list[str]) -> None:
    assert isinstance(read_result(lines), TrainingResult)


@given(st.text("|\n1234ab.:_", max_size=400))
def test_any_accounting_is_read(text: str) -> None:
    found = SLURM.read_report(JobRef("1"), CommandResult(0, text + "\n" + TEXT))
    assert found is not None and isinstance(found.record.state, State)
