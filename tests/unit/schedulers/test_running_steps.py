"""What ``sstat`` tells of a running job's steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import JobRef, StepSample
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.commands import Slurm

SLURM, JOB = Slurm(), JobRef("7")
TEXT = """7.extern|1|node1|00:00.000|00:00.000|node1|0|0|node1|0|cpu=00:00:00
7.batch|1|node1|00:01.000|00:01.000|node1|0|2048K|node1|0|cpu=00:00:01
7.0|4|node[1-2]|00:01:40|00:00:30|node2|3|102400K|node1|1|cpu=00:01:40,gres/gpuutil=87,mem=9M
71.0|1|node1|00:01:00|00:01:00|node1|0|1K|node1|0|
half a line|7.1
"""


def test_each_step_of_the_job_is_read() -> None:
    command = SLURM.running_steps(JOB)
    assert command is not None and "--jobs=7" in command and "sstat" in command
    assert SLURM.running_steps(JobRef("7", "snowy")) is None and Lsf().running_steps(JOB) is None
    batch, step = SLURM.read_running_steps(JOB, CommandResult(0, TEXT))
    assert (batch.name, batch.memory_peak, batch.gpu_percent) == ("batch", 2.0, None)
    assert step == StepSample("0", 4, "node[1-2]", 100.0, 30.0, "3", "node2", 100.0, "1", "node1", 87.0)
    assert SLURM.read_running_steps(JOB, CommandResult(1, TEXT)) == ()


@given(st.text("|\n7.0batch4:,=", max_size=300))
def test_any_answer_is_read(text: str) -> None:
    assert isinstance(SLURM.read_running_steps(JOB, CommandResult(0, text)), tuple)
