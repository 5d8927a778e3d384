"""lib.sh: JSON, and the job ids of every scheduler."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from notebook_launcher.core.package_data import JOB_FILES, job_script
from tests.unit.jobscripts.job import BASH, library

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        'a "quoted" \\ back\\\\slash',
        "&&&",
        "tab\tnewline\nbell\x07escape\x1b\x7f",
        "ünï ☃ 🚀",
        "$(x) `y` %s",
    ],
)
def test_json_strings(text: str, locale: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": locale}
    assert json.loads(library('json_string "$1"; printf %s "$REPLY"', text, env=environment)) == text


def test_json_lists() -> None:
    assert json.loads(library('json_list "$@"; printf %s "$REPLY"', "a b", '"', "")) == ["a b", '"', ""]
    assert library('json_list; printf %s "$REPLY"') == "[]"


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"SLURM_JOB_ID": "7", "NBL_JOB_ID": "old"}, "7"),
        ({"PBS_JOBID": "12.server"}, "12.server"),
        ({"LSB_JOBID": "33"}, "33"),
        ({"JOB_ID": "44"}, "44"),
        ({"NBL_JOB_ID": "20261121-014455-k3f9"}, "20261121-014455-k3f9"),
        ({}, ""),
    ],
)
def test_every_schedulers_job_id(variables: dict[str, str], job: str) -> None:
    assert library('find_job_id; printf %s "$job_id"', env={"PATH": "/usr/bin:/bin"} | variables) == job


def test_whoever_tidies_up_knows_every_file_that_a_session_gets() -> None:
    """sessions.sh removes only what it knows: a job script that it has not heard of would keep a record for ever."""
    (function,) = re.findall(r"^is_ours\(\) \{\n.*?^\}\n", job_script("sessions.sh").read_text(), re.M | re.S)
    code = function + 'for name; do is_ours "$name" || printf "%s\\n" "$name"; done'
    done = subprocess.run(
        [BASH, "-c", code, "-", *JOB_FILES, "not-ours.sh"], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["not-ours.sh"]
