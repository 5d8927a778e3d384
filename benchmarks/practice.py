"""What the benchmarks on the practice cluster share: its image, its queue, and how a figure is printed."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.practice_cluster import PracticeCluster

IMAGE = "/sw/images/jupyterlab.sif"


def wait_for_empty_queue(cluster: PracticeCluster) -> None:
    """Wait until nothing of the run before is left."""
    while cluster.squeue():
        time.sleep(0.2)


def show(name: str, values: list[float], unit: str = "s") -> None:
    """Print one figure: median, and the range."""
    middle = statistics.median(values)
    print(f"  {name:<46} {middle:7.3f} {unit}   ({min(values):.3f} to {max(values):.3f}, {len(values)} runs)")


def show_ratio(ratios: list[float]) -> None:
    """Print the median of the ratios, run by run."""
    print(f"  {'ratio, run by run':<46} {statistics.median(ratios):7.3f}     ({min(ratios):.3f} to {max(ratios):.3f})")
