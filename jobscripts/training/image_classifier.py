"""Train the network of the image classifier exercise: 784 → 128 → 10, on images of handwritten-like digits.

    python3 image_classifier.py --accelerator gpu --devices 1 --max-epochs 5
    python3 image_classifier.py --accelerator gpu --devices 2        two GPUs of this node, with a process for each

The exercise's option names work as well: --trainer.accelerator 'gpu' --trainer.devices 1 --trainer.max_epochs 5.
The training is that of train_ddp.py, on one node.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import train_ddp
from plan import add_common_options
from ranks import LAUNCHERS, TrainingError, gpus_of_job

HERE = Path(__file__).resolve().parent


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the exercise."""
    parser = argparse.ArgumentParser(prog="image_classifier.py", description="Train a network for images of digits.")
    add_common_options(parser, batch_size=32, learning_rate=1e-4)
    parser.add_argument("--devices", "--trainer.devices", default="auto", metavar="N",
                        help="GPUs, or with --accelerator cpu processes; auto or -1: every GPU of the job")  # fmt: skip
    return parser.parse_args(arguments)


def processes(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    """Return the number of processes to start on this node: one for each device."""
    if options.devices in ("auto", "-1"):
        return 1 if options.accelerator == "cpu" else max(1, gpus_of_job(env))
    if not options.devices.isdecimal() or int(options.devices) < 1:
        raise TrainingError(f"--devices {options.devices}: give a number from 1, or auto for every GPU of the job.")
    wanted, there = int(options.devices), gpus_of_job(env)
    if options.accelerator == "gpu" and 0 < there < wanted:
        raise TrainingError(f"--devices {wanted}: the job has only {there} on this node. Ask the scheduler for more.")
    return wanted


def arguments_of_trainer(options: argparse.Namespace, count: int) -> list[str]:
    """Return the arguments for ``train_ddp.py``; every process gets a whole batch."""
    names = ("accelerator", "max_epochs", "learning_rate", "hidden_dim", "images", "seed", "output")
    pairs = [("--" + name.replace("_", "-"), str(getattr(options, name))) for name in names]
    return [part for pair in pairs for part in pair] + ["--batch-size", str(options.batch_size * count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train in this process with one device; with several, exec torchrun, which starts a process for each."""
    options = read_options(arguments)
    try:
        count = processes(options, os.environ)
    except TrainingError as error:
        print(error, file=sys.stderr)
        return 2
    trainer = arguments_of_trainer(options, count)
    # srun or mpirun in a batch script may have set ranks, which do not apply: there is only one process.
    for launcher in LAUNCHERS.values():
        for name in launcher:
            os.environ.pop(name, None)
    if count > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        os.execv(torchrun[0], [*torchrun, str(HERE / "train_ddp.py"), *trainer])  # noqa: S606
    return train_ddp.main(trainer)


if __name__ == "__main__":
    sys.exit(main())
