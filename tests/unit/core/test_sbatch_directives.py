"""The ``#SBATCH`` lines of a job script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_directives import filled_in, read_directives

SCRIPT = """#!/bin/bash -l
# train: trains on one GPU.
#SBATCH --time=0:10:00   # walltime
#SBATCH -n 4 --mem 2G -J "my job"
#SBATCH --gres=gpu:t4:1 --exclusive
#SBATCH --ignore-pbs
#PBS -l walltime=1

echo hi
#SBATCH --late=1
"""


def test_the_lines_above_the_first_command_count() -> None:
    read = read_directives(SCRIPT)
    flags = {"time": "0:10:00", "ntasks": "4", "mem": "2G", "job-name": "my job", "gres": "gpu:t4:1", "exclusive": None}
    assert read.flags == flags and read.others == ("#PBS",)


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("#SBATCH -N2 -c=3", {"nodes": "2", "cpus-per-task": "3"}),
        ("#SBATCH", {}),
        ("#SBATCH --nice --requeue", {"nice": None, "requeue": None}),
        ("#SBATCH --uenv=prgenv/24.7", {"uenv": "prgenv/24.7"}),  # of a site's plug-in: the cluster's sbatch is asked
        ("##SBATCH -N 2", {}),
        (" #SBATCH -N 2", {}),
        ("#SBATCHER -N 2", {}),
        ("#SBATCH -t 1\n#SBATCH -t 2", {"time": "2"}),
        ("# a comment\x0b#SBATCH -N 2", {}),
    ],
)
def test_lines_are_read_as_sbatch_reads_them(line: str, flags: dict[str, str | None]) -> None:
    assert read_directives(f"#!/bin/bash\n{line}\n").flags == flags


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("#SBATCH --time", "--time needs a value"),
        ("#SBATCH -J 'a", "a quote without"),
        ("#SBATCH train.py", "“train.py” is not a flag"),
        ("#SBATCH -% 1", "“-%” is not a flag"),
    ],
)
def test_a_line_that_sbatch_would_refuse_is_named(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"Line 2 of the script") as caught:
        read_directives(f"#!/bin/bash\n{line}\n")
    assert why in caught.value.what


def test_a_script_is_filled_in_and_keeps_what_stays_as_it_is() -> None:
    made = filled_in(SCRIPT, {"time": "0:10:00", "ntasks": "4", "mem": "3G", "account": "a b", "requeue": None})
    assert made.splitlines()[:10] == [
        "#!/bin/bash -l",
        "# train: trains on one GPU.",
        "#SBATCH --time=0:10:00   # walltime",
        "#SBATCH --ntasks=4 --mem=3G",
        "#SBATCH --ignore-pbs",
        "#SBATCH --account='a b'",
        "#SBATCH --requeue",
        "#PBS -l walltime=1",
        "",
        "echo hi",
    ]
    assert filled_in("#!/bin/sh\ntrue", {"time": "1"}) == "#!/bin/sh\n#SBATCH --time=1\ntrue"


@given(
    st.dictionaries(
        st.sampled_from(["account", "comment", "mail-user", "constraint"]), st.text("ab \"'#\\é&|", min_size=1)
    )
)
def test_whatever_is_written_is_read_again(flags: dict[str, str | None]) -> None:
    assert read_directives(filled_in("#!/bin/sh\ntrue\n", flags)).flags == flags
