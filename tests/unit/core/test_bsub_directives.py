"""The ``#BSUB`` lines of a job script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.bsub_directives import marked_lines, read_bsub_directives
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_directives import read_directives
from notebook_launcher.scripts.templates import templates

SCRIPT = """#!/bin/sh
#BSUB -q gpuv100
#BSUB -J testjob   # a comment
#BSUB -n 4
#BSUB -gpu "num=2:mode=exclusive_process"
#BSUB -W 1:30
#BSUB -R "rusage[mem=5GB] span[hosts=1]"
##BSUB -u you@example.org
#BSUB -B
#BSUB -N
#BSUB -o gpu_%J.out -e gpu_%J.err

nvidia-smi
#BSUB -q late
"""


def test_the_lines_are_read_into_flags_of_sbatch() -> None:
    read = read_bsub_directives(SCRIPT)
    assert read.left_out == () and read.flags == {
        "partition": "gpuv100",
        "job-name": "testjob",
        "cpus-per-task": "4",
        "gpus": "2",
        "time": "1:30:00",
        "mem-per-cpu": "5120M",
        "mail-type": "BEGIN,END",
        "output": "gpu_%J.out",
        "error": "gpu_%J.err",
    }


@pytest.mark.parametrize(
    ("line", "flags", "left_out"),
    [
        ("-W 90", {"time": "1:30:00"}, ()),
        ("-W 24:00/node1", {"time": "24:00:00"}, ()),
        ("-n 2 -n 3", {"ntasks": "3"}, ()),
        ("-gpu -", {"gpus": "1"}, ()),
        ("-gpu num=1:mode=shared", {"gpus": "1"}, ("mode=shared of -gpu",)),
        ("-J 'a[1-9:2]%2'", {"job-name": "a", "array": "1-9:2%2"}, ()),
        ("-R select[gpu32gb] -R avx512", {"constraint": "(gpu32gb) && (avx512)"}, ()),
        ("-R 'rusage[mem=500]'", {"mem-per-cpu": "500M"}, ()),
        ("-m 'n1 n2' -x -r -H", {"nodelist": "n1,n2", "exclusive": None, "requeue": None, "hold": None}, ()),
        ("-wa USR1 -wt 2 -Q 99", {"signal": "B:USR1@120"}, ("-Q 99",)),
        ("-oo a.log -P proj -b 15:00 -i in.txt -M 4GB -K",
         {"output": "a.log", "open-mode": "truncate", "account": "proj", "begin": "15:00", "input": "in.txt"},
         ("-M 4GB", "-K")),
        ("", {}, ()),
    ],
)  # fmt: skip
def test_one_option_after_the_other(line: str, flags: dict[str, str | None], left_out: tuple[str, ...]) -> None:
    read = read_bsub_directives(f"#!/bin/sh\n#BSUB {line}\n")
    assert (read.flags, read.left_out) == (flags, left_out)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-J 'a", "cannot be read: a quote"),
        ("job.sh", "“job.sh” is not an option of bsub"),
        ("-W", "-W needs a value"),
        ("-W soon", "-W soon is not a time"),
        ("-n many", "-n many is not a number"),
        ("-n 1,4", "asks for -n 1,4, which cannot be passed on"),
        ("-w 'done(7)'", "asks for -w done(7), which cannot"),
        ("-R span[ptile=2]", "asks for -R span[ptile=2]"),
        ("-R rusage[mem=2GB:tmp=1]", "asks for -R rusage"),
        ("-gpu num=two", "has no number of GPUs"),
        ("-gpu num=1/task", "asks for -gpu num=1/task, which cannot be passed on"),
        ("-gpu num=1:gmodel=A100", "asks for -gpu gmodel=A100"),
        ("-wa CHKPNT.sh", "-wa CHKPNT.sh is not a signal"),
        ("-wt x", "-wt x is not a time"),
        ("-b 12:24:15:00", "asks for -b"),
    ],
)
def test_what_would_make_it_another_job_is_an_error_that_names_the_line(line: str, what: str) -> None:
    with pytest.raises(UsageError, match=r"Line 2 of the script") as caught:
        read_bsub_directives(f"#!/bin/sh\n#BSUB {line}\n")
    assert what in caught.value.what


def test_the_flags_can_be_written_as_lines_for_slurm() -> None:
    lines = list(marked_lines(read_bsub_directives(SCRIPT).flags))
    assert lines[:2] == ["#SBATCH --cpus-per-task=4", "#SBATCH --error=gpu_%J.err"]
    assert read_directives("\n".join(["#!/bin/sh", *lines])).flags == read_bsub_directives(SCRIPT).flags


def test_the_bundled_scripts_can_be_read_but_for_several_hosts() -> None:
    for template in templates():
        text = template.path.read_text()
        if template.name == "train-mpi":
            with pytest.raises(UsageError, match="ptile=2"):
                read_bsub_directives(text)
        else:
            assert (read_bsub_directives(text).flags == {}) is ("#BSUB" not in text)


@given(
    st.lists(
        st.sampled_from(
            [
                "-q",
                "-J",
                "-n",
                "-W",
                "-R",
                "-gpu",
                "-o",
                "-wa",
                "-wt",
                "x",
                "1",
                "a[1]",
                "[",
                "]",
                "=",
                ":",
                "'",
                "num=",
                "rusage[mem=1]",
                "#",
                "",
            ]
        )
    )
)
def test_any_line_is_read_or_refused(words: list[str]) -> None:
    try:
        read_bsub_directives(f"#BSUB {' '.join(words)}")
    except UsageError as error:
        assert error.what.startswith("Line 1 of the script")
