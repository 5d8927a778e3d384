"""The names of a job's output files, as sbatch's manual says they are filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.schedulers.slurm.filename_patterns import filled_in, log_files

VALUES = {"j": "42", "u": "alice", "x": "lab"}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-42.out"),
        ("%u/%x-%5j.log", "alice/lab-00042.log"),
        ("%5u", "alice"),
        ("100%%-%j", "100%-42"),
        (r"\%j.out", "%j.out"),
        ("%99999999999j", "0000000042"),
        ("plain", "plain"),
        ("50%", "50%"),
        ("%N.out", None),
        ("%j-%q", None),
    ],
)
def test_what_stands_for_the_job_s_values_is_filled_in(pattern: str, name: str | None) -> None:
    assert filled_in(pattern, VALUES) == name


@given(st.text(alphabet="%jNx5\\/é ", max_size=20))
def test_no_name_is_too_odd(pattern: str) -> None:
    name = filled_in(pattern, VALUES)
    assert name is None or isinstance(name, str)


@pytest.mark.parametrize(
    ("flags", "node", "files"),
    [
        ({"output": "/d/job.log"}, None, ["/d/job.log"]),
        ({"output": "/d/job.log", "error": "err-%j"}, None, ["err-7", "/d/job.log"]),
        ({"output": "o-%N", "error": "e-%N"}, "gpu1.uni.example", ["e-gpu1", "o-gpu1"]),
        ({"output": "o-%N", "error": "/d/e"}, None, ["/d/e"]),
        ({"output": "o-%j", "chdir": "/scratch/%j"}, None, ["/scratch/%j/o-7"]),
        ({"output": "/dev/null", "error": "same"}, None, ["same"]),
        ({"output": "same", "error": "same"}, None, ["same"]),
        ({}, None, []),
    ],
)
def test_errors_come_before_output(flags: dict[str, str | None], node: str | None, files: list[str]) -> None:
    assert log_files(flags, "7", user="alice", node=node) == files
