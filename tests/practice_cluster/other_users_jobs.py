"""Other users' jobs: they fill nodes, are ahead in the queue, or preempt a running job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .fault_tools import FaultTools, until
from .layout import COMPUTE_NODES

DEFAULT_PARTITION = "core"
HIGH_PRIORITY = 4294950000
"""Higher than any job's default: 22.05 gives the first job 4294901760, and less to each that follows."""


class Crowds(FaultTools):
    """Other users' effects on a running cluster's queue. All of them are undone at the end."""

    @contextmanager
    def busy(
        self, *where: str, user: str = "bob", walltime: str = "1:00:00", gres: str | None = None
    ) -> Iterator[list[str]]:
        """Let another user's job run on each of these nodes, or on all nodes of these partitions.

        It has the whole node, or with `gres` ("gpu:a100:4") only that and one core. Because of its walltime, Slurm
        knows when it will end. Yields the jobs' ids once they run.
        """
        size = [f"--gres={gres}", "--cpus-per-task=1"] if gres else ["--exclusive"]
        with self._running(user, [[*words, *size, f"--time={walltime}"] for words in self._places(where)]) as jobs:
            yield jobs

    @contextmanager
    def held_back_by(
        self, n: int, where: str = "node1", *, user: str = "bob", walltime: str = "1:00:00"
    ) -> Iterator[list[str]]:
        """Let `n` jobs of another user request a whole node each, this one or any of a partition's, with high priority.

        They are pending as long as it is `busy`. Other jobs in the same partition (for a node, that is `core`) then
        wait with the reason `Priority`. Yields their ids once they are queued.
        """
        place = _on(where) if where in COMPUTE_NODES else [f"--partition={where}"]
        with self._jobs(user, [[*place, "--exclusive", f"--time={walltime}"]] * n) as jobs:
            self._checked_root("ctl", ["scontrol", "update", f"JobId={','.join(jobs)}", f"Priority={HIGH_PRIORITY}"])
            yield jobs

    @contextmanager
    def licence_taken(self, licence: str = "matlab", *, user: str = "bob") -> Iterator[str]:
        """Let another user's job use the only licence. Yields its id once it runs."""
        with self._running(user, [[f"--licenses={licence}:1"]]) as jobs:
            yield jobs[0]

    @contextmanager
    def preempts(self, node: str, *, user: str = "bob") -> Iterator[str]:
        """Let another user's job preempt the jobs of the partitions `scavenge` and `scavenge-cancel` on a node.

        A job of `scavenge` is requeued, one of `scavenge-cancel` ends; both are PREEMPTED. Yields the id of the
        preempting job, once it runs.
        """
        with self._running(user, [[*_on(node, "urgent"), "--exclusive"]]) as jobs:
            yield jobs[0]

    def _places(self, where: Sequence[str]) -> list[list[str]]:
        """Return the sbatch options that request each of these nodes, and each node of these partitions."""
        partitions = {name: name for name in where if name not in COMPUTE_NODES}
        nodes = {
            name: self._checked_root("ctl", ["sinfo", "-hN", "-p", name, "-o", "%N"]).split() for name in partitions
        }
        return [
            _on(node, partitions.get(name, DEFAULT_PARTITION)) for name in where for node in nodes.get(name, [name])
        ]

    @contextmanager
    def _running(self, user: str, requests: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        with self._jobs(user, requests) as jobs:
            until(lambda: set(self._states(jobs)) == {"RUNNING"}, f"{user}'s jobs {', '.join(jobs)} to run")
            yield jobs

    @contextmanager
    def _jobs(self, user: str, requests: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        jobs: list[str] = []
        try:
            for words in requests:
                submit = ["sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=sleep infinity"]
                jobs.append(self._checked_run("login", user, submit).strip())
            yield jobs
        finally:
            if jobs:
                self._checked_root("ctl", ["scancel", *jobs])
                until(lambda: not self._states(jobs), f"{user}'s jobs {', '.join(jobs)} to be gone")

    def _states(self, jobs: Sequence[str]) -> list[str]:
        """Return the states of the jobs that have not ended."""
        listing = self._checked_root("ctl", ["squeue", "-h", "-o", "%i %T"])
        return [state for job, state in map(str.split, listing.splitlines()) if job in jobs]


def _on(node: str, partition: str = DEFAULT_PARTITION) -> list[str]:
    return [f"--partition={partition}", f"--nodelist={node}"]
