"""Train a small network on any number of processes, GPUs and nodes.

    python3 train_ddp.py                                       one process
    torchrun --standalone --nproc-per-node=gpu train_ddp.py    every GPU of this node
    srun python3 train_ddp.py                                  every task of a Slurm job step
    mpirun python3 train_ddp.py                                every process that mpirun starts

The result does not depend on the number of processes: --batch-size is that of all together. SIGUSR1 to any of them
makes all save a checkpoint and stop; the same command continues from there. Measurements are in result.json.

To read the code, begin with `train` in training_loop.py, which uses ranks.py, process_group.py and plan.py;
supervise.py reports how a process was killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from plan import read_options, split
from ranks import TrainingError, this_process
from supervise import StopRequest, supervise


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and return the exit code: 2 for invalid options or environment, and 1 if the training failed."""
    options = read_options(arguments)
    try:
        process = this_process(os.environ)
    except TrainingError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        split(options.images, options.batch_size, process.processes, options.accumulate)
    except TrainingError as error:
        if process.rank == 0:  # all ranks find the same problem
            print(error, file=sys.stderr)
        return 2

    def train_here(stop: StopRequest) -> int:
        from process_group import ProcessGroup  # PyTorch takes seconds to import, and only the child needs it
        from training_loop import train

        with ProcessGroup(process, options.accelerator, options.timeout) as group:
            return train(options, group, stop)

    return supervise(train_here, process)


if __name__ == "__main__":
    sys.exit(main())
