"""The report on a job: recorded rows of sacct, explained, and what there is without them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from notebook_launcher.cli.views.batch import show_report
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import JobAccounts, JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.usage.bill import Facts
from notebook_launcher.usage.report import Evidence, make_report
from notebook_launcher.usage.training_result import TrainingResult, read_result
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
    assert columns["TotalCPU"][1] == "what its processes really computed: 3 % of CPUTime, the CPU efficiency"
    assert columns["MaxRSS"] == ("96 MiB", "the most memory that one of its tasks had (on node1); 16 % of ReqMem")
    assert "ConsumedEnergy" not in columns and any("Energy" in text for text in made.unknown)


def test_use_is_shown_by_step_task_and_node() -> None:
    made = report("1")
    assert [(one.of, one.asked, one.used, one.share) for one in made.use] == [
        ("time", "5 min", "10 s", 3.3),
        ("cores", "4", "0.1 busy on average", 3.3),
        ("memory", "0.6 GiB", "96 MiB at most", 15.9),
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
    assert any(text.startswith("GPU use: nobody measured it") for text in made.unknown) and made.advice == ()


@pytest.mark.parametrize(
    ("wall", "cpu", "limit", "mem", "advice"),
    [
        (600, "08:00.000", 480, "600M", ["average 0.8 of 4 cores", "It took 10 min of 8 hours"]),
        (600, "40:00.000", 15, "600M", []),
        (50, "00:01.000", 480, "64000M", []),
        (600, "39:00.000", 15, "64000M", ["needed 96 MiB of 62.5 GiB"]),
    ],
)
def test_one_is_advised_where_something_was_wasted(
    wall: int, cpu: str, limit: int, mem: str, advice: list[str]
) -> None:
    row = (
        f"1|COMPLETED|2001|core|{wall}|{limit}|4|1|cpu=4,mem={mem},node=1|{cpu}|{4 * wall}||{mem}|0|1|0:0|proj1|normal"
    )
    row += "|2026-11-24T02:16:35+0000|2026-11-24T02:16:36+0000|2026-11-24T02:16:46+0000|4||node1|||||x\n"
    step = TEXT.splitlines()[1].replace("FAILED", "COMPLETED")
    made = report("1", row + step + "\n")
    assert len(made.advice) == len(advice)
    for text, part in zip(made.advice, advice, strict=True):
        assert part in text


def test_energy_is_told_by_epoch_and_by_image() -> None:
    text = TEXT.replace("|40||600M|0|", "|40||600M|7200|", 1)
    made = report("1", text, result=TrainingResult(2, 300))
    assert (made.joules, made.energy_of, made.joules_per_epoch, made.joules_per_image) == (7200, "nodes", 3600, 24)
    assert "Energy: 2.0 Wh of the nodes, 1.0 Wh per epoch, 24.0 J per image" in printed(made)


def test_without_accounting_it_is_what_the_job_recorded() -> None:
    bill = billed(Facts(wall=61.0))
    made = make_report(Evidence(bill=bill, session=bill.session, name="train.sh", job="7", state="ended"))
    assert made is not None and made.columns == () and made.use[0].used == "1 min"
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
        ("{" * 60_000, (None, None)),
        ('{"notebook-launcher": 1, "epochs": 3' + " " * 70_000 + "}", (None, None)),
    ],
)
def test_a_report_of_a_training_is_read_with_care(line: str, result: tuple[int | None, int | None]) -> None:
    found = read_result(["epoch 1", line, "bye"])
    assert (found.epochs, found.images) == result


@given(st.lists(st.text(), max_size=5))
def test_any_log_is_read(lines: list[str]) -> None:
    assert isinstance(read_result(lines), TrainingResult)


@given(st.text("|\n1234ab.:_", max_size=400))
def test_any_accounting_is_read(text: str) -> None:
    found = SLURM.read_report(JobRef("1"), CommandResult(0, text + "\n" + TEXT))
    assert found is not None and isinstance(found.record.state, State)
