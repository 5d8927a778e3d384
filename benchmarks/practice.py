"""Shared by the benchmarks on the practice cluster: its image, waiting for its queue, and printing results."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.practice_cluster import PracticeCluster

IMAGE = "/sw/images/jupyterlab.sif"
SCHEDULES_EVERY = 1.0  # seconds between two scheduling cycles of Slurm


def wait_for_empty_queue(cluster: PracticeCluster) -> None:
    """Wait until the jobs of the previous run are gone."""
    while cluster.squeue():
        time.sleep(0.2)


def wait_for_turn(number: int, runs: int) -> None:
    """Wait for a fraction of Slurm's scheduling interval, a different one in each run.

    The previous job has ended in such a cycle. Without this, each method would always submit its job equally long
    before the next cycle, and so gain or lose up to a second by chance.
    """
    time.sleep(SCHEDULES_EVERY * (number % runs) / runs)


def show(name: str, values: list[float], unit: str = "s") -> None:
    """Print one result: median and range."""
    middle = statistics.median(values)
    print(f"  {name:<46} {middle:7.3f} {unit}   ({min(values):.3f} to {max(values):.3f}, {len(values)} runs)")


def show_ratio(values: list[float], others: list[float]) -> None:
    """Print the ratio of the means, and the range of the ratios of single runs."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    of_means = statistics.mean(values) / statistics.mean(others)
    print(
        f"  {'ratio of the means (run by run: range)':<46} {of_means:7.3f}     ({min(ratios):.3f} to {max(ratios):.3f})"
    )
