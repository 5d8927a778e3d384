"""Compare ``timing.measure`` with ``torch.utils.benchmark.Timer``: ten workloads, one run, medians within 2 %.

    python benchmarks/timing_against_torch.py [--gpu] [FOLDER_OF_TIMING]     (needs PyTorch; two to five minutes)

With ``--gpu``, only the eight PyTorch workloads run, on the GPU. Both timers wait for it before they read the clock.

Both measure the same function alternately, in short rounds and in varying order, so that other load affects both. The
medians of both in each round are compared: the median of the ratios must be within 2 % of 1. Rounds are added until
that is certain, or a maximum is reached. A workload that deviates is measured again, at most three times. Exits with 1
if one deviates each time.

PyTorch's Timer is made to time blocks of as many calls as ``measure`` has chosen, and as many blocks. By default its
blocks are longer, and on a busy machine a long block nearly always includes other load, which the median of short ones
excludes. It checks for a GPU before it reads the clock, which adds some microseconds to each block. Only one thread
computes: several would wait for each other, and times would vary by a factor of a hundred.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 0.03  # for measure in each round
TRIES = 3


@dataclass(frozen=True)
class Asked:
    """The minimum and maximum number of rounds, and the allowed relative deviation."""

    rounds: tuple[int, int] = (12, 160)
    limit: float = 0.02
    gpu: bool = False


def workloads(place: str) -> dict[str, Callable[[], object]]:
    """Return ten workloads between 10 µs and 50 ms on the CPU; PyTorch computes on the device ``place``."""
    import torch

    torch.manual_seed(1)
    torch.set_default_device(place)
    vector, wide = torch.randn(100_000), torch.randn(512, 1024)
    small, middle, large = (torch.randn(size, size) for size in (96, 256, 768))
    images, kernels = torch.randn(1, 64, 28, 28), torch.randn(64, 64, 3, 3)
    numbers = list(range(20_000))
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimiser = torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, 784), torch.randint(10, (64,))

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    in_torch: dict[str, Callable[[], object]] = {
        "matrix product, 96": lambda: small @ small,
        "matrix product, 256": lambda: middle @ middle,
        "matrix product, 768": lambda: large @ large,
        "convolution": lambda: torch.nn.functional.conv2d(images, kernels),
        "relu": lambda: torch.relu(vector),
        "softmax": lambda: torch.softmax(wide, dim=1),
        "sort": lambda: torch.sort(vector),
        "training step": step,
    }
    if place != "cpu":
        return in_torch
    return in_torch | {
        "sum in Python": lambda: sum(numbers),
        "loop in Python": lambda: [n * n % 7 for n in numbers for _ in range(10)],
    }


@dataclass
class Compared:
    """The results of both: medians in seconds, one per round."""

    asked: Asked
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def apart(self) -> float:
        """The median relative deviation of ours from theirs over all rounds."""
        return statistics.median(self._quotients) - 1

    @property
    def sure(self) -> bool:
        """Whether more rounds would not change the verdict."""
        import timing

        if len(self.ours) < self.asked.rounds[0]:
            return False
        limit = self.asked.limit
        rounds = timing.from_times("quotients", self._quotients)
        low, high = rounds.low - 1, rounds.high - 1
        return -limit <= low <= high <= limit or high < -limit or low > limit

    @property
    def _quotients(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def measured(name: str, fn: Callable[[], object], asked: Asked) -> Compared:
    """Measure with both alternately."""
    import timing
    from torch.utils.benchmark import Timer

    compared = Compared(asked)
    torch_timer = Timer("fn()", globals={"fn": fn}, num_threads=1)
    device = timing.best_device("torch") if asked.gpu else None
    last = timing.measure(fn, name=name, device=device, budget=SECONDS, min_repeats=1)

    def by_measure() -> None:
        nonlocal last
        # an unreachable precision, so that it always uses its whole budget
        options = {"budget": SECONDS, "min_repeats": 3, "max_repeats": 10**6, "precision": 1e-9}
        last = timing.measure(fn, name=name, device=device, **options)
        compared.ours.append(last.median)

    def by_torch() -> None:  # as many times: with fewer, the median would differ if some are delayed
        times = [torch_timer.timeit(last.calls_per_time).median for _ in last.times]
        compared.theirs.append(statistics.median(times))

    for number in range(asked.rounds[1]):
        for turn in (by_measure, by_torch) if number % 2 else (by_torch, by_measure):
            turn()
        if compared.sure:
            break
    return compared


def agree(name: str, fn: Callable[[], object], asked: Asked) -> bool:
    """Print a line of the table for each attempt, and return whether both agree in one of them."""
    import timing

    for attempt in range(TRIES):
        found = measured(name, fn, asked)
        same = abs(found.apart) <= asked.limit
        ours, theirs = (timing.duration(statistics.median(times)) for times in (found.ours, found.theirs))
        word = "" if same else "  again" if attempt < TRIES - 1 else "  OFF"
        print(f"{name:22}{ours:>10}{theirs:>10}{100 * found.apart:>+9.2f} %{len(found.ours):>8}{word}", flush=True)
        if same:
            return True
    return False


def main() -> int:
    """Print the table, and the overhead of each per call; return the exit code."""
    parser = argparse.ArgumentParser(description="Hold timing.measure against torch.utils.benchmark.Timer.")
    here = Path(__file__).resolve().parent.parent / "notebooks"
    parser.add_argument("folder", nargs="?", default=here, type=Path, help="where timing.py lies")
    parser.add_argument("--rounds", nargs=2, type=int, default=Asked.rounds, metavar=("LEAST", "MOST"))
    parser.add_argument("--limit", type=float, default=Asked.limit, help="the share by which both may be apart")
    parser.add_argument("--gpu", action="store_true", help="run the PyTorch workloads on the GPU")
    arguments = parser.parse_args()
    asked = Asked(tuple(arguments.rounds), arguments.limit, arguments.gpu)
    sys.path.insert(0, str(arguments.folder))
    try:
        import timing
        import torch
        from torch.utils.benchmark import Timer
    except ImportError as error:
        print(f"{error}: this needs PyTorch and timing.py.", file=sys.stderr)
        return 2
    timing.use_threads(1)
    device = timing.best_device("torch") if asked.gpu else timing.cpu_device()
    if asked.gpu and not device.is_gpu:
        print("PyTorch finds no GPU here.", file=sys.stderr)
        return 2
    print(f"PyTorch {torch.__version__}, {device}, 1 thread")
    print(f"{'':22}{'measure':>10}{'torch':>10}{'apart':>11}{'rounds':>8}")
    compared = workloads("cuda" if asked.gpu else "cpu")
    off = [name for name, fn in compared.items() if not agree(name, fn, asked)]
    empty = Timer("fn()", globals={"fn": lambda: None}).blocked_autorange(min_run_time=0.2).median
    own, its = timing.duration(timing.overhead()), timing.duration(empty)
    print(f"An empty call takes {own} by measure, {its} by torch's Timer.")
    good = f"{len(compared)} workloads, medians within {100 * asked.limit:g} %"
    print(f"off: {', '.join(off)}" if off else good)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
