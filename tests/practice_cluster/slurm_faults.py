"""What Slurm refuses, holds back or ends, for a while: limits, reservations, nodes, partitions, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import ClusterError
from .fault_tools import FaultTools, overwrite, until
from .layout import COMPUTE_NODES, GENERATIONS
from .slurm import BOTH, MAIN, SNOWY

# From slurm.h: what a node's own program says of a job when the node did not come up, or its memory was not enough.
_RECONFIG_FAIL = 1 << 17
_SIG_OOM = 253
# Only this one of Slurm's libraries has what its plugins look for, and they look for it among what all can see.
_CALL_SLURM = """\
import ctypes, glob, sys
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")[0], mode=ctypes.RTLD_GLOBAL)
slurm.slurm_init(None)
function, job, argument = sys.argv[1:]
getattr(slurm, function)(ctypes.c_uint32(int(job)), ctypes.c_uint32(int(argument)))
"""
_NODE_STATE = re.compile(r"NodeName=(?P<node>\S+).* State=(?P<state>\S+).* SlurmdStartTime=(?P<start>\S+)")
FEDERATED_IDS = 1 << 26
"""Job ids of a federation are larger than this: the upper bits say where the job was submitted."""


@dataclass(frozen=True)
class _Limited:
    """What has limits, in sacctmgr's language: what is shown, and what is modified."""

    shown: tuple[str, ...]
    modified: tuple[str, ...]

    @classmethod
    def of(cls, kind: str, name: str) -> _Limited:
        account, _, user = name.partition("/")
        where: tuple[str, ...] = ("where", f"cluster={MAIN}")
        if kind == "qos":
            return cls(("qos", name), ("qos", name))
        if kind == "account" and not user:
            return cls(("assoc", *where, f"account={name}", "user="), ("account", name, *where))
        if kind == "association" and user:
            where += (f"account={account}",)
            return cls(("assoc", *where, f"user={user}"), ("user", user, *where))
        raise ClusterError(
            f"Limits are those of a qos, an account or an association ACCOUNT/USER, not of {kind} {name}."
        )


class SlurmFaults(FaultTools):
    """What can be changed about Slurm's decisions. It is about the main cluster unless it says otherwise."""

    # ---- limits ----------------------------------------------------------------------------------------------

    @contextmanager
    def limited(self, kind: str, name: str, **limits: int | str) -> Iterator[None]:
        """Set limits, by the names and in the units of sacctmgr's manual; afterwards they are what they were.

            limited("qos", "normal", MaxTRESPerUser="gres/gpu=1")
            limited("account", "proj1", GrpTRES="gres/gpu=0")
            limited("association", "proj1/alice", MaxSubmitJobs=1)

        An association is a user in an account. With `Flags="DenyOnLimit"` among those of a QOS, who exceeds them is
        refused and does not wait. Jobs that run are left alone.
        """
        which = _Limited.of(kind, name)
        before = self._limits(which, list(limits))
        try:
            # sacctmgr comes back when not only the database has been told, but the controllers as well.
            self._set_limits(which, {key: str(value) for key, value in limits.items()})
            yield
        finally:
            self._set_limits(which, {key: _undoing(str(value), before[key]) for key, value in limits.items()})

    def _limits(self, which: _Limited, names: Sequence[str]) -> dict[str, str]:
        text = self._checked_root("ctl", ["sacctmgr", "-nP", "show", *which.shown, f"format={','.join(names)}"])
        if not text:
            raise ClusterError(f"sacctmgr finds nothing by: show {' '.join(which.shown)}")
        return dict(zip(names, text.splitlines()[0].split("|"), strict=True))

    def _set_limits(self, which: _Limited, limits: dict[str, str]) -> None:
        changes = [f"{name}={value}" for name, value in limits.items()]
        self._checked_root("ctl", ["sacctmgr", "-i", "modify", *which.modified, "set", *changes])

    # ---- reservations, partitions, nodes ---------------------------------------------------------------------

    @contextmanager
    def reservation(
        self,
        name: str,
        start: str = "now+1hour",
        *,
        duration: str = "1:00:00",
        users: str = "root",
        nodes: str = "node1",
        flags: str = "IGNORE_JOBS",
    ) -> Iterator[None]:
        """Reserve nodes for users (both with commas, nodes also `ALL`); times and flags as in scontrol's manual.

        With `flags="MAINT,IGNORE_JOBS"` it is a maintenance. Jobs in it are cancelled at the end.
        """
        what = [f"StartTime={start}", f"Duration={duration}", f"Users={users}", f"Nodes={nodes}", f"Flags={flags}"]
        self._scontrol("create", "reservation", f"ReservationName={name}", *what)
        try:
            yield
        finally:
            self._checked_root("ctl", ["scancel", f"--reservation={name}"])
            # It cannot be deleted before the last job in it has gone.
            until(lambda: self._scontrol("delete", f"ReservationName={name}") == "", f"the end of reservation {name}")

    @contextmanager
    def partition_state(self, name: str, state: str) -> Iterator[None]:
        """Let a partition be DOWN (jobs wait), DRAIN (jobs are refused) or INACTIVE (refused, and none starts)."""
        try:
            self._scontrol("update", f"PartitionName={name}", f"State={state}")
            yield
        finally:
            self._scontrol("update", f"PartitionName={name}", "State=UP")

    @contextmanager
    def drained(self, *nodes: str, reason: str = "coffee") -> Iterator[None]:
        """Let nodes (all, without names) start no more jobs; those that run go on."""
        with self._nodes_in_state("DRAIN", nodes or COMPUTE_NODES, reason):
            yield

    @contextmanager
    def node_fails(self, node: str, reason: str = "smoke") -> Iterator[None]:
        """Declare a node to be down, which is quicker than letting it die (`no_slurmd`): its jobs end at once.

        A job that may be requeued, as jobs may by default, waits again; one that may not ends as NODE_FAIL.
        """
        with self._nodes_in_state("DOWN", [node], reason):
            yield

    @contextmanager
    def _nodes_in_state(self, state: str, nodes: Sequence[str], reason: str) -> Iterator[None]:
        try:
            self._scontrol("update", f"NodeName={','.join(nodes)}", f"State={state}", f"Reason={reason}")
            yield
        finally:
            self.resume(*nodes)

    def resume(self, *nodes: str) -> None:
        """Return nodes (all, without names) to service, whatever took them out of it, and wait until they are there."""
        names = nodes or COMPUTE_NODES
        # It may take ten seconds until the controller asks a node again.
        until(lambda: self._are_in_service(names), f"{', '.join(names)} to return to service", seconds=60)

    def _are_in_service(self, nodes: Sequence[str]) -> bool:
        """Resume the nodes that somebody or something took out of service; return whether no node was."""
        listing = self._checked_root("ctl", ["sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N %T"])
        # A node is listed once for each of its partitions.
        states = dict(map(str.split, listing.splitlines()))
        if out := [node for node, state in states.items() if state.startswith(("down", "drain", "fail"))]:
            self._scontrol("update", f"NodeName={','.join(out)}", "State=RESUME")
        # With a star, the node's slurmd does not answer; it is unknown until it has answered for the first time.
        return not out and not any(state.endswith("*") or state == "unknown" for state in states.values())

    def _scontrol(self, *words: str) -> str:
        return self._checked_root("ctl", ["scontrol", *words])

    # ---- settings --------------------------------------------------------------------------------------------

    @contextmanager
    def configured(self, **settings: str) -> Iterator[None]:
        """Let slurm.conf have these settings in place of what it says there, and Slurm act on them; jobs run on."""
        path = self.directory / "slurm" / "slurm.conf"
        before = path.read_text()
        kept = [line for line in before.splitlines() if line.partition("=")[0] not in settings]
        try:
            overwrite(path, "\n".join([*kept, *(f"{key}={value}" for key, value in settings.items())]) + "\n")
            self._reconfigure()
            yield
        finally:
            overwrite(path, before)
            self._reconfigure()

    def _reconfigure(self) -> None:
        """Let Slurm read its settings, and wait for what the nodes do then.

        Since Slurm 23.11 each slurmd starts anew and registers, which puts a node into service that somebody has
        declared down meanwhile.
        """
        responding = self._started_slurmds()
        begun = self._checked_root("ctl", ["date", "+%FT%T"]).strip()
        self._scontrol("reconfigure")
        if GENERATIONS[self.generation].restarts_slurmd:
            until(
                lambda: all(start >= begun for node, start in self._started_slurmds().items() if node in responding),
                "the nodes to register after the settings were read",
            )

    def _started_slurmds(self) -> dict[str, str]:
        """Return when the slurmd of each node that answers was started, as Slurm writes times."""
        nodes = self._scontrol("show", "node", "--oneliner").splitlines()
        found = [_NODE_STATE.search(node) for node in nodes]
        return {match["node"]: match["start"] for match in found if match and "*" not in match["state"]}

    @contextmanager
    def hidden_jobs(self) -> Iterator[None]:
        """Let nobody see the jobs of others (`PrivateData=jobs`)."""
        with self.configured(PrivateData="jobs"):
            yield

    @contextmanager
    def failing_prolog(self, node: str) -> Iterator[None]:
        """Let no job start on a node, because what the site runs before each (`Prolog`) fails.

        Slurm drains the node then. A job goes back into the queue and is held ("launch failed requeued held"); one that
        may not be requeued is CANCELLED. At the end the node returns to service; the job stays held.
        """
        mark = self.directory / "slurm" / "prolog-fails" / node
        try:
            mark.touch()
            yield
        finally:
            mark.unlink(missing_ok=True)
            self.resume(node)

    @contextmanager
    def federated(self) -> Iterator[None]:
        """Let both clusters be a federation: each job is submitted to both, and runs on one.

        On the other it is REVOKED then. Jobs get ids like 67108865, and are cancelled at the end.
        """
        try:
            self._checked_root("ctl", ["sacctmgr", "-i", "add", "federation", "practice", f"clusters={BOTH}"])
            yield
        finally:
            until(self._no_federated_jobs, "the federation's jobs to be gone")
            self._checked_root("ctl", ["sacctmgr", "-i", "delete", "federation", "practice"])

    def _no_federated_jobs(self) -> bool:
        """Cancel those that there are, and return whether there are none."""
        left = 0
        for cluster in (MAIN, SNOWY):
            words = ["squeue", "--local", "-h", "-M", cluster, "-o", "%A"]
            listing = self._checked_root("ctl", words).split()
            if jobs := [job for job in listing if job.isdigit() and int(job) > FEDERATED_IDS]:
                self._checked_root("ctl", ["scancel", "-M", cluster, *jobs])
            left += len(jobs)
        return not left

    # ---- jobs ------------------------------------------------------------------------------------------------

    def boot_fails(self, job: str) -> None:
        """Say of a running job what a site's program says when a node that had to be booted for it does not come up.

        The job goes back into the queue; one that may not be requeued ends as BOOT_FAIL.
        """
        self._call_slurm("slurm_requeue", job, _RECONFIG_FAIL)

    def out_of_memory(self, job: str) -> None:
        """Say of a running job what its node says when the kernel killed for want of memory; see `memory_cgroup`.

        It ends as OUT_OF_MEMORY. Its processes are ended by Slurm, and not by the kernel before that.
        """
        self._call_slurm("slurm_complete_job", job, _SIG_OOM)

    def _call_slurm(self, function: str, job: str, argument: int) -> None:
        self._checked_root("ctl", ["python3", "-c", _CALL_SLURM, function, job, str(argument)])


def _undoing(limit: str, before: str) -> str:
    """Return the value that takes a limit back to what it was; of resources, each has its own."""
    if "=" not in limit:
        return before or "-1"
    names = {part.partition("=")[0]: "-1" for part in limit.split(",")}
    names |= dict(part.split("=") for part in before.split(",") if part)
    return ",".join(f"{name}={value}" for name, value in names.items())
