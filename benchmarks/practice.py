"""What the benchmarks on the practice cluster share: its image, its queue, and how a figure is printed."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.practice_cluster import PracticeCluster

IMAGE = "/sw/images/jupyterlab.sif"
SCHEDULES_EVERY = 1.0  # seconds between the moments at which Slurm looks for jobs that can start


def wait_for_empty_queue(cluster: PracticeCluster) -> None:
    """Wait until nothing of the run before is left."""
    while cluster.squeue():
        time.sleep(0.2)


def wait_for_turn(number: int, runs: int) -> None:
    """Wait for a part of the pause between two looks of Slurm at its queue, another one in each of the runs.

    The job before has ended at such a look. Without this, each way would submit its job as long before the next look
    every time, and so gain or lose up to a second, by nothing of its own.
    """
    time.sleep(SCHEDULES_EVERY * (number % runs) / runs)


def show(name: str, values: list[float], unit: str = "s") -> None:
    """Print one figure: median, and the range."""
    middle = statistics.median(values)
    print(f"  {name:<46} {middle:7.3f} {unit}   ({min(values):.3f} to {max(values):.3f}, {len(values)} runs)")


def show_ratio(values: list[float], others: list[float]) -> None:
    """Print the ratio of the means, and the range of the ratios run by run."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    of_means = statistics.mean(values) / statistics.mean(others)
    print(
        f"  {'ratio of the means (run by run: range)':<46} {of_means:7.3f}     ({min(ratios):.3f} to {max(ratios):.3f})"
    )
