"""Measures ``copy`` of a large file, in each direction and with each engine, against ``scp`` over the same sshd.

    make bench-copy       (root; uses the practice cluster, and brings it up if need be)

Everything is measured alternately, in rounds, in one run on one machine: from the laptop to the login node's home and
back. It prints medians over the rounds and the ratio to ``scp``, which depends on the machine less than the medians do.
``copy`` includes what scp does not do: checksums at both ends.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.practice_cluster import PracticeCluster  # noqa: E402

ENGINES = ("paramiko", "openssh")


def one_round(cluster: PracticeCluster, size: int) -> dict[str, float]:
    """Return MB/s of each method once; for ``copy`` as it reports them, so that Python's start is not included."""
    found = {}
    for way, up, down in [
        ("scp", ["scp", "-q", "bench", "login:bench-up"], ["scp", "-q", "login:bench-up", "bench-down"]),
        *((engine, copying(engine, "bench", "login:bench-up"), copying(engine, "login:bench-up", "bench-down"))
          for engine in ENGINES),
    ]:  # fmt: skip
        for direction, argv in (("up", up), ("down", down)):
            began = time.monotonic()
            done = cluster.run("laptop", "alice", argv, check=True)
            seconds = time.monotonic() - began
            if way != "scp":
                seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
            found[f"{way} {direction}"] = size / 1e6 / seconds
        cluster.run("login", "alice", ["rm", "bench-up"])
        cluster.run("laptop", "alice", ["rm", "bench-down"])
    return found


def copying(engine: str, *words: str) -> list[str]:
    """Return the command of one copy."""
    return ["launch-notebook", "copy", "--json", "--cluster", "practice", "--engine", engine, *words]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=1024)
    options = parser.parse_args()
    from tests.conftest import write_profile

    cluster = PracticeCluster("24.11")
    was_up = cluster.is_up()
    cluster.up()
    try:
        write_profile(cluster, "laptop", "alice")
        cluster.run("laptop", "alice", ["sh", "-c", f"head -c {options.mebibytes}M /dev/urandom >bench"], check=True)
        rounds = [one_round(cluster, options.mebibytes * 1024 * 1024) for _ in range(options.rounds)]
        cluster.run("laptop", "alice", ["rm", "bench"])
    finally:
        if not was_up:
            cluster.down()
    print(f"{options.mebibytes} MiB, medians of {options.rounds} rounds      MB/s    of scp's")
    for name in rounds[0]:
        speed = statistics.median(each[name] for each in rounds)
        direction = name.split()[1]
        ratio = statistics.median(each[name] / each[f"scp {direction}"] for each in rounds)
        print(f"  {name:30} {speed:10.0f} {ratio:10.2f}")


if __name__ == "__main__":
    main()
