"""A model of what polling by all users of a cluster costs its scheduler, against ``squeue`` every ten seconds.

    make bench-polling-model      (needs no cluster; some seconds)

10,000 users of one cluster each have a session that is pending and then runs, started at random times within an hour.
The launcher's polls are those of its own code (``jobs.polling``), run with the model's clock. The cost of each poll is
measured: the RPCs are those that slurmctld counts, and the microseconds for each kind of RPC its ``ave_time``, both by
``sdiag`` on the practice cluster (Slurm 24.11); a list of all jobs takes longer for each listed job. So the model gives
the load at the worst moment; it does not tell how a controller behaves under such a load.

It includes ``classroom watch``, with one teacher for each class of forty.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from notebook_launcher.classroom.class_jobs import NODES_EVERY
from notebook_launcher.classroom.watch import DEFAULT_SECONDS, JITTER
from notebook_launcher.jobs.polling import Polling

SHARE_WAITING = 0.5  # of a session's time in which its job is pending
CLASS = 40

# microseconds of the controller for one RPC, by sdiag on the practice cluster with almost no jobs
COST = {
    "REQUEST_SUBMIT_BATCH_JOB": 1048,
    "REQUEST_JOB_INFO_SINGLE": 75,
    "REQUEST_JOB_INFO": 94,
    "REQUEST_PARTITION_INFO": 65,
    "REQUEST_FED_INFO": 62,
    "REQUEST_NODE_INFO": 124,
}
PER_JOB = 3.4  # microseconds more of REQUEST_JOB_INFO for each job in the list: 20 lists of 200 jobs
# the RPCs of each poll, as slurmctld counts them (docs/scheduler-load.md)
SUBMIT = ("REQUEST_SUBMIT_BATCH_JOB",)
LAUNCHER = ("REQUEST_JOB_INFO_SINGLE",)
SQUEUE = ("REQUEST_FED_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_PARTITION_INFO")
WATCH, NODES = ("REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO"), ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO")

Poll = tuple[float, tuple[str, ...]]  # time in seconds, and its RPCs


class Clock:
    """The model's time in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def launcher(chance: random.Random, hours: float) -> Iterator[Poll]:
    """Yield the polls of one session's launcher: the time in seconds since submission, and the RPCs."""
    clock = Clock()
    polling, starts = Polling(clock, chance), hours * 3600 * SHARE_WAITING
    yield 0.0, SUBMIT
    started = False
    while clock.now < hours * 3600:
        if not started and clock.now >= starts:
            started = True
            polling.note_change()
        pause = polling.pause_after_answer(None)
        clock.now += pause
        polling.spend(len(LAUNCHER))
        yield clock.now, LAUNCHER


def squeue_loop(_chance: random.Random, hours: float) -> Iterator[Poll]:
    """Yield the same for ``squeue -j JOB`` every ten seconds."""
    yield 0.0, SUBMIT
    for count in range(int(hours * 360)):
        yield 10.0 * (count + 1), SQUEUE


def teachers(chance: random.Random, hours: float) -> Iterator[Poll]:
    """Yield the same for ``classroom watch``."""
    at, looks = 0.0, 0
    while at < hours * 3600:
        yield at, (*WATCH, *(NODES if looks % NODES_EVERY == 0 else ()))
        at += DEFAULT_SECONDS * chance.uniform(1.0, 1.0 + JITTER)
        looks += 1


def cost(rpc: str, jobs: int) -> float:
    """Return the seconds of the controller for one RPC, with ``jobs`` jobs in its list."""
    return (COST[rpc] + (PER_JOB * jobs if rpc == "REQUEST_JOB_INFO" else 0.0)) / 1e6


def load(
    sessions: int, hours: float, spread: float, jobs: int, polls: Callable[[random.Random, float], Iterator[Poll]]
) -> tuple[float, int, float]:
    """Return the load while all sessions exist: RPCs per second, the maximum in any second, and seconds of work.

    The last value is the controller's, per second. ``spread``: seconds within which the sessions begin.
    """
    chance, seconds, work = random.Random(1), Counter[int](), 0.0
    first, last = spread, max(spread, hours * 3600)  # all have begun, none has ended
    costs = {rpc: cost(rpc, jobs) for rpc in COST}
    for _ in range(sessions):
        began = chance.uniform(0.0, spread)
        for at, rpcs in polls(chance, hours):
            seconds[int(began + at)] += len(rpcs)
            if first <= began + at < last:
                work += sum(costs[rpc] for rpc in rpcs)
    within = [count for second, count in seconds.items() if first <= second < last]
    return sum(within) / (last - first), max(seconds.values()), work / (last - first)


def main() -> None:
    """Print the table of docs/scheduler-load.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=2.0, help="how long a session waits and runs")
    parser.add_argument("--spread", type=float, default=1.0, help="hours within which all begin")
    arguments = parser.parse_args()
    users, hours = arguments.users, arguments.hours
    ways = (
        ("`launch-notebook`, one session each", users, launcher),
        ("`squeue -j JOB` every 10 s", users, squeue_loop),
        (f"`classroom watch`, one teacher for {CLASS} students", users // CLASS, teachers),
    )
    print(f"| {users:,} sessions at a time | RPCs a second | in the worst second | the controller's work each second |")
    print("|---|---|---|---|")
    for name, count, polls in ways:
        mean, most, work = load(count, hours, 3600.0 * arguments.spread, users, polls)
        print(f"| {name} | {mean:,.0f} | {most:,} | {1000 * work:,.0f} ms |")


if __name__ == "__main__":
    main()
