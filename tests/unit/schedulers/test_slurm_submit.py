"""Slurm: the submit command, and the job's number in its answer."""

from __future__ import annotations

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request, merge_flags
from notebook_launcher.schedulers.base import JobRef, Submission
from notebook_launcher.schedulers.slurm.commands import Slurm

SLURM = Slurm()


ID = "20261121-014455-k3f9"


DIRECTORY = f"/home/alice/.notebook-launcher/sessions/{ID}"


SUBMISSION = Submission(ID, DIRECTORY, f"{DIRECTORY}/jupyterlab.sh", f"{DIRECTORY}/job.log")


OURS = [f"--job-name={ID}", "--open-mode=append", f"--output={DIRECTORY}/job.log"]


TAIL = [SUBMISSION.script, DIRECTORY]


Flags = dict[str, str | None]


def submit(flags: Flags, defaults: Flags | None = None) -> list[str]:
    return SLURM.submit(Request(merge_flags(defaults or {}, flags)), SUBMISSION)


# --- the submit command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param({}, [*OURS, "--time=0:59:00"], id="no flags"),
        pytest.param(
            {"ntasks": "4", "partition": "devcore", "gres": "gpu:t4:0"},
            [
                f"--job-name={ID}",
                "--ntasks=4",
                "--open-mode=append",
                f"--output={DIRECTORY}/job.log",
                "--partition=devcore",
                "--time=0:59:00",
            ],
            id="-n 4 -p devcore --gres=gpu:t4:0",
        ),
        pytest.param(
            {"time": "3:00:00", "begin": "15:00"}, ["--begin=15:00", *OURS, "--time=3:00:00"], id="-t 3:00:00 -b 15:00"
        ),
        pytest.param(
            {
                "clusters": "snowy",
                "account": "proj1",
                "reservation": "lab1",
                "qos": "short",
                "exclusive": None,
                "constraint": "skylake",
                "mem": "55G",
            },
            [
                "--account=proj1",
                "--clusters=snowy",
                "--constraint=skylake",
                "--exclusive",
                f"--job-name={ID}",
                "--mem=55G",
                "--open-mode=append",
                f"--output={DIRECTORY}/job.log",
                "--qos=short",
                "--reservation=lab1",
                "--time=0:59:00",
            ],
            id="-M snowy -A proj1 and the rest",
        ),
        pytest.param({"gpus": "1"}, ["--gpus=1", *OURS, "--time=0:59:00"], id="--gpus 1"),
        pytest.param(
            {"job-name": "mine"}, ["--job-name=mine", *OURS[1:], "--time=0:59:00"], id="a name of the user's own"
        ),
        pytest.param(
            {"output": "lab-%j.log"}, [OURS[0], "--output=lab-%j.log", "--time=0:59:00"], id="a log of the user's own"
        ),
        pytest.param(
            {"open-mode": "truncate"}, [OURS[0], "--open-mode=truncate", OURS[2], "--time=0:59:00"], id="open mode"
        ),
        pytest.param(
            {"parsable": None, "wait": None, "quiet": None, "ignore-pbs": None, "hold": None},
            ["--hold", *OURS, "--time=0:59:00"],
            id="what the launcher fulfils by itself",
        ),
        pytest.param(
            {"comment": "$(date) `id`; 'x' \"y\" *"},
            ["--comment=$(date) `id`; 'x' \"y\" *", *OURS, "--time=0:59:00"],
            id="a value is one word, as it is",
        ),
    ],
)
def test_submit(flags: Flags, words: list[str]) -> None:
    assert submit(flags) == ["sbatch", "--parsable", *words, *TAIL]


def test_submit_with_a_courses_defaults() -> None:
    course: Flags = {"account": "g2021027", "clusters": "snowy", "gres": "gpu:t4:1", "partition": "core", "ntasks": "4"}
    assert submit({"ntasks": "16", "partition": "devcore", "gres": "gpu:t4:0"}, course) == [
        "sbatch",
        "--parsable",
        "--account=g2021027",
        "--clusters=snowy",
        f"--job-name={ID}",
        "--ntasks=16",
        "--open-mode=append",
        f"--output={DIRECTORY}/job.log",
        "--partition=devcore",
        "--time=0:59:00",
        *TAIL,
    ]


# --- its answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdout", "job"),
    [
        ("7\n", JobRef("7")),
        ("7;snowy\n", JobRef("7", "snowy")),
        ("Welcome!\n*** maintenance on Friday ***\n\n1234567\n", JobRef("1234567")),
        ("42 jobs in the queue\n7;snowy\n\n", JobRef("7", "snowy")),
        ("7\r\n", JobRef("7")),
        ("7\nlua: your job was charged to proj1\n", JobRef("7")),
        ("Submitted batch job 7\n", JobRef("7")),
        ("Submitted batch job 7 on cluster snowy\n", JobRef("7", "snowy")),
    ],
)
def test_the_jobs_number_is_read(stdout: str, job: JobRef) -> None:
    assert SLURM.read_submit(CommandResult(0, stdout, "sbatch: lua: a note\n")) == job
