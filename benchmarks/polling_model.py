"""A model: what the polls of all users of a cluster cost its scheduler, beside ``squeue`` every ten seconds.

    make bench-polling-model      (needs no cluster; some seconds)

10,000 users of one cluster each have a session that waits and then runs, begun at random times within a day. The
launcher's polls are those of its own code (``jobs.polling``), run against a clock of the model's. What each poll costs
is measured: the RPCs are those that slurmctld counts (``sdiag``), and the seconds of the controller for each RPC come
from ``sdiag`` on the practice cluster (``--seconds-per-rpc``). So the model says what would be asked at the worst
moment; it does not say how a controller under such a load behaves.

``classroom watch`` is in it with one teacher for each class of forty.
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

DAY = 24 * 3600
SHARE_WAITING = 0.5  # of a session's time in which its job waits
SUBMIT_RPCS = 1
# RPCs of a poll, counted by slurmctld (docs/politeness.md)
LAUNCHER_RPCS, SQUEUE_RPCS, WATCH_RPCS, NODES_RPCS = 1, 3, 2, 2
CLASS = 40


class Clock:
    """The model's time in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def launcher(chance: random.Random, hours: float) -> Iterator[tuple[float, int]]:
    """Yield when one session's launcher asks the scheduler, in seconds since its submission, and the RPCs of it."""
    clock = Clock()
    polling, starts = Polling(clock, chance), hours * 3600 * SHARE_WAITING
    yield 0.0, SUBMIT_RPCS
    started = False
    while clock.now < hours * 3600:
        if not started and clock.now >= starts:
            started = True
            polling.note_change()
        pause = polling.pause_after_answer(None)
        clock.now += pause
        polling.spend(LAUNCHER_RPCS)
        yield clock.now, LAUNCHER_RPCS


def squeue_loop(_chance: random.Random, hours: float) -> Iterator[tuple[float, int]]:
    """Yield the same for ``squeue -j JOB`` every ten seconds."""
    yield 0.0, SUBMIT_RPCS
    for count in range(int(hours * 360)):
        yield 10.0 * (count + 1), SQUEUE_RPCS


def teachers(chance: random.Random, hours: float) -> Iterator[tuple[float, int]]:
    """Yield the same for ``classroom watch``."""
    at, looks = 0.0, 0
    while at < hours * 3600:
        yield at, WATCH_RPCS + (NODES_RPCS if looks % NODES_EVERY == 0 else 0)
        at += DEFAULT_SECONDS * chance.uniform(1.0, 1.0 + JITTER)
        looks += 1


def load(
    users: int, hours: float, spread: float, polls: Callable[[random.Random, float], Iterator[tuple[float, int]]]
) -> tuple[float, int]:
    """Return the mean RPCs a second while all sessions are there, and the most of any second of the day."""
    chance, seconds = random.Random(1), Counter[int]()
    for _ in range(users):
        began = chance.uniform(0.0, spread)
        for at, rpcs in polls(chance, hours):
            seconds[int((began + at) % DAY)] += rpcs
    full = sum(seconds.values()) / max(spread, hours * 3600)
    return full, max(seconds.values())


def main() -> None:
    """Print the table of docs/politeness.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=2.0, help="how long a session waits and runs")
    parser.add_argument("--seconds-per-rpc", type=float, default=0.0005, help="of the controller, from sdiag")
    arguments = parser.parse_args()
    users, hours = arguments.users, arguments.hours
    ways = (
        ("`launch-notebook`, one session each", users, launcher),
        ("`squeue -j JOB` every 10 s", users, squeue_loop),
        (f"`classroom watch`, one teacher for {CLASS} students", users // CLASS, teachers),
    )
    print(f"| {users:,} users | RPCs a second | in the worst second | share of one controller thread |")
    print("|---|---|---|---|")
    for name, count, polls in ways:
        # within an hour, as on the morning of a working day
        mean, most = load(count, hours, 3600.0, polls)
        print(f"| {name} | {mean:,.0f} | {most:,} | {mean * arguments.seconds_per_rpc:.1%} |")


if __name__ == "__main__":
    main()
