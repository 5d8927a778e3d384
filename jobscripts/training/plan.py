"""Decisions before the training begins: its options, how a batch is split, and where it continues after a stop.

It does not need PyTorch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranks import TrainingError

#: Settings that must be the same in a checkpoint and in the training that continues from it.
SAME = ("batch_size", "hidden_dim", "images", "learning_rate", "precision", "seed")


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def add_common_options(parser: argparse.ArgumentParser, *, batch_size: int, learning_rate: float) -> None:
    """Add the options that both trainers have. Each also has Lightning's name, such as ``--trainer.max_epochs``."""
    add = parser.add_argument
    add("--accelerator", "--trainer.accelerator", choices=("auto", "gpu", "cpu"), default="auto",
        help="gpu: refuse to start without a GPU; auto: a GPU if PyTorch sees one")  # fmt: skip
    add("--max-epochs", "--trainer.max_epochs", "--epochs", type=positive, default=5, metavar="N")
    add("--batch-size", type=positive, default=batch_size, metavar="N",
        help="images of one step, those of all processes together")  # fmt: skip
    add("--learning-rate", "--model.learning_rate", type=float, default=learning_rate, metavar="RATE")
    add("--hidden-dim", "--model.hidden_dim", type=positive, default=128, metavar="N", help="width of the network")
    add("--images", type=positive, default=6000, metavar="N", help="images to train with; MNIST has 60000")
    add("--seed", type=int, default=1234, metavar="N")
    add("--output", type=Path, default=Path("runs/by-hand"), metavar="FOLDER",
        help="where the checkpoint and result.json go; a checkpoint that is there is continued")  # fmt: skip


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of ``train_ddp.py``."""
    parser = argparse.ArgumentParser(
        prog="train_ddp.py", description="Train a small network on any number of processes, GPUs and nodes."
    )
    add_common_options(parser, batch_size=64, learning_rate=1e-3)
    add = parser.add_argument
    add("--accumulate", type=positive, default=1, metavar="N",
        help="compute a step's batch in N parts, which takes less memory, and update the network once")  # fmt: skip
    add("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="bf16, fp16: mixed precision")
    add("--checkpoint-every", type=positive, default=1, metavar="N", help="epochs between two checkpoints")
    add("--fresh", action="store_true",
        help="begin anew, whatever checkpoint an earlier job has left; a job that was requeued goes on")  # fmt: skip
    add("--baseline", type=Path, metavar="FILE", help="result.json of a run on fewer processes, to compare with")
    add("--timeout", type=positive, default=300, metavar="SECONDS", help="how long processes wait for each other")
    add("--pause", type=float, default=0.0, metavar="SECONDS", help="wait after each step, to have time to look at it")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Split:
    """How the images of an epoch are divided. Images that do not fill a last batch are left out of that epoch."""

    steps: int
    """How often the network is updated in an epoch."""
    per_process: int
    """Images of one step for each process."""
    per_part: int
    """Images that each process computes at once; fewer than ``per_process`` if gradients are accumulated."""


def split(images: int, batch_size: int, processes: int, accumulate: int) -> Split:
    """Divide the images so that a step is the same with any number of processes."""
    parts = processes * accumulate
    if batch_size % parts:
        fitting = parts * max(1, round(batch_size / parts))
        ways = f"{processes} processes" + (f" and {accumulate} parts each" if accumulate > 1 else "")
        raise TrainingError(f"{batch_size} images cannot be split evenly into {ways}: use --batch-size {fitting}.")
    if images < batch_size:
        raise TrainingError(f"{images} images do not fill one batch of {batch_size}: use more --images.")
    return Split(images // batch_size, batch_size // processes, batch_size // parts)


def checkpoint_file(output: Path) -> Path:
    """Return the path of a run's checkpoint."""
    return output / "checkpoint.pt"


def unfinished_file(output: Path) -> Path:
    """Return the file that tells the job script to requeue the job."""
    return output / "unfinished"


def job_number(env: Mapping[str, str]) -> str:
    """Return the id of the scheduler's job, which stays the same when the job is requeued; "" without one."""
    return next((env[name] for name in ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID") if env.get(name)), "")


def run_file(output: Path) -> Path:
    """Return the file that says which job has written the checkpoint, and how often it had been requeued by then."""
    return output / "run"


def this_run(env: Mapping[str, str]) -> str:
    """Return the content of ``run_file`` for this run. Only Slurm counts how often a job was requeued."""
    return f"{job_number(env)} {env.get('SLURM_RESTART_COUNT') or 0}"


def begins_anew(options: argparse.Namespace, env: Mapping[str, str]) -> bool:
    """Whether a checkpoint is ignored, as with ``--fresh``; but not that of an earlier run of the same job.

    Such a run was asked to stop, or its job was requeued because it was preempted or its node failed.
    """
    job = job_number(env)
    if not options.fresh or not job:
        return bool(options.fresh)
    stopped, saved = _text(unfinished_file(options.output)), _text(run_file(options.output))
    saved_by, _, restarts = saved.partition(" ")
    was_requeued = saved_by == job and restarts != this_run(env).partition(" ")[2]
    return not (stopped == job or was_requeued)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def stop_file(output: Path) -> Path:
    """Return the file with which a job script asks to save a checkpoint and stop, as SIGUSR1 does."""
    return output / "stop"


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that are recorded in the checkpoint and in result.json."""
    return {name: getattr(options, name) for name in (*SAME, "accumulate", "max_epochs")}


def check_same(saved: Mapping[str, Any], now: Mapping[str, Any], output: Path) -> None:
    """Raise ``TrainingError`` if the checkpoint belongs to a different training."""
    for name in SAME:
        if saved.get(name) != now[name]:
            flag = "--" + name.replace("_", "-")
            raise TrainingError(
                f"The checkpoint in {output} was made with {flag} {saved.get(name)}, and this is {flag} {now[name]}. "
                "Use another --output, or --fresh to begin anew."
            )


def scaling(baseline: Path | None, processes: int, images_per_second: float) -> dict[str, Any] | None:
    """Compare with an earlier result: return the speed-up, and its fraction of an ideal speed-up."""
    if baseline is None:
        return None
    try:
        earlier = json.loads(baseline.read_text(encoding="utf-8"))
        before, speed = int(earlier["processes"]), float(earlier["images_per_second"])
        speed_up = images_per_second / speed
        efficiency = speed_up * before / processes
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        return {"baseline": str(baseline), "problem": f"cannot be compared with: {error!r}"}
    return {
        "baseline": str(baseline),
        "baseline_processes": before,
        "baseline_images_per_second": speed,
        "speed_up": round(speed_up, 3),
        "efficiency": round(efficiency, 3),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file atomically, so that no reader sees half of it."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
