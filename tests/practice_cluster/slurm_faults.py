"""Temporary reasons for which Slurm refuses, delays or ends jobs: limits, reservations, nodes, partitions, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import ClusterError
from .fault_tools import FaultTools, overwrite, until
from .layout import COMPUTE_NODES, GENERATIONS
from .slurm import BOTH, MAIN, SNOWY

# From slurm.h: codes that slurmd reports for a job if the node did not boot, or the job ran out of memory.
_RECONFIG_FAIL = 1 << 17
_SIG_OOM = 253
# Only this library of Slurm has the symbols that its plugins need, and they must be global.
_CALL_SLURM = """\
import ctypes, glob, sys
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")[0], mode=ctypes.RTLD_GLOBAL)
slurm.slurm_init(None)
function, job, argument = sys.argv[1:]
getattr(slurm, function)(ctypes.c_uint32(int(job)), ctypes.c_uint32(int(argument)))
"""
_NODE_STATE = re.compile(r"NodeName=(?P<node>\S+).* State=(?P<state>\S+).* SlurmdStartTime=(?P<start>\S+)")
FEDERATED_IDS = 1 << 26
"""Job ids of a federation are larger than this: the upper bits identify the submitting cluster."""


@dataclass(frozen=True)
class _Limited:
    """An entity with limits, in sacctmgr's terms: what is shown, and what is modified."""

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
    """Changes that affect Slurm's decisions, on the main cluster unless stated otherwise."""

    # ---- limits ----------------------------------------------------------------------------------------------

    @contextmanager
    def limited(self, kind: str, name: str, **limits: int | str) -> Iterator[None]:
        """Set limits, with the names and units of sacctmgr(1), and restore them afterwards.

            limited("qos", "normal", MaxTRESPerUser="gres/gpu=1")
            limited("account", "proj1", GrpTRES="gres/gpu=0")
            limited("association", "proj1/alice", MaxSubmitJobs=1)

        An association is a user in an account. With the flag `DenyOnLimit` of a QOS, jobs that exceed its limits are
        refused instead of waiting. Running jobs are not affected.
        """
        which = _Limited.of(kind, name)
        before = self._limits(which, list(limits))
        try:
            # sacctmgr returns when the database and also the controllers have the change.
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
        """Reserve nodes for users (both comma-separated, nodes also `ALL`); times and flags as in scontrol(1).

        With `flags="MAINT,IGNORE_JOBS"` it is a maintenance. Jobs in it are cancelled at the end.
        """
        what = [f"StartTime={start}", f"Duration={duration}", f"Users={users}", f"Nodes={nodes}", f"Flags={flags}"]
        self._scontrol("create", "reservation", f"ReservationName={name}", *what)
        try:
            yield
        finally:
            self._checked_root("ctl", ["scancel", f"--reservation={name}"])
            # It cannot be deleted before its last job has ended.
            until(lambda: self._scontrol("delete", f"ReservationName={name}") == "", f"the end of reservation {name}")

    @contextmanager
    def partition_state(self, name: str, state: str) -> Iterator[None]:
        """Set a partition to DOWN (jobs wait), DRAIN (jobs are refused) or INACTIVE (refused, and none starts)."""
        try:
            self._scontrol("update", f"PartitionName={name}", f"State={state}")
            yield
        finally:
            self._scontrol("update", f"PartitionName={name}", "State=UP")

    @contextmanager
    def drained(self, *nodes: str, reason: str = "coffee") -> Iterator[None]:
        """Drain nodes (default: all): they start no more jobs; running ones continue."""
        with self._nodes_in_state("DRAIN", nodes or COMPUTE_NODES, reason):
            yield

    @contextmanager
    def node_fails(self, node: str, reason: str = "smoke") -> Iterator[None]:
        """Set a node to DOWN, which is faster than letting it die (`no_slurmd`): its jobs end at once.

        A job that may be requeued, which is the default, becomes pending again; any other ends as NODE_FAIL.
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
        """Return nodes (default: all) to service, whatever took them out of it, and wait until they are available."""
        names = nodes or COMPUTE_NODES
        # It may take ten seconds until the controller contacts a node again.
        until(lambda: self._are_in_service(names), f"{', '.join(names)} to return to service", seconds=60)

    def _are_in_service(self, nodes: Sequence[str]) -> bool:
        """Resume the nodes that are out of service; return whether there were none."""
        listing = self._checked_root("ctl", ["sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N %T"])
        # A node is listed once for each of its partitions.
        states = dict(map(str.split, listing.splitlines()))
        if out := [node for node, state in states.items() if state.startswith(("down", "drain", "fail"))]:
            self._scontrol("update", f"NodeName={','.join(out)}", "State=RESUME")
        # With a star, the node's slurmd does not answer; the state is unknown until it has answered once.
        return not out and not any(state.endswith("*") or state == "unknown" for state in states.values())

    def _scontrol(self, *words: str) -> str:
        return self._checked_root("ctl", ["scontrol", *words])

    # ---- settings --------------------------------------------------------------------------------------------

    @contextmanager
    def configured(self, **settings: str) -> Iterator[None]:
        """Replace settings in slurm.conf, and let Slurm apply them; running jobs continue."""
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
        """Let Slurm read its settings, and wait until the nodes have done so.

        Since Slurm 23.11, each slurmd restarts and registers, which would resume a node that was set to DOWN meanwhile.
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
        """Return the start time of slurmd, in Slurm's format, for each node that answers."""
        nodes = self._scontrol("show", "node", "--oneliner").splitlines()
        found = [_NODE_STATE.search(node) for node in nodes]
        return {match["node"]: match["start"] for match in found if match and "*" not in match["state"]}

    @contextmanager
    def hidden_jobs(self) -> Iterator[None]:
        """Hide other users' jobs (`PrivateData=jobs`)."""
        with self.configured(PrivateData="jobs"):
            yield

    @contextmanager
    def failing_prolog(self, node: str) -> Iterator[None]:
        """Let no job start on a node, because the site's `Prolog` fails.

        Slurm then drains the node. A job is requeued and held ("launch failed requeued held"); one that may not be
        requeued is CANCELLED. At the end the node returns to service; the job stays held.
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
        """Make both clusters a federation: each job is submitted to both, and runs on one.

        On the other it is then REVOKED. Jobs have ids such as 67108865, and are cancelled at the end.
        """
        try:
            self._checked_root("ctl", ["sacctmgr", "-i", "add", "federation", "practice", f"clusters={BOTH}"])
            yield
        finally:
            until(self._no_federated_jobs, "the federation's jobs to be gone")
            self._checked_root("ctl", ["sacctmgr", "-i", "delete", "federation", "practice"])

    def _no_federated_jobs(self) -> bool:
        """Cancel all jobs of the federation, and return whether there were none."""
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
        """Report for a running job that a node that had to be booted for it did not boot, as a site's program does.

        The job is requeued; one that may not be requeued ends as BOOT_FAIL.
        """
        self._call_slurm("slurm_requeue", job, _RECONFIG_FAIL)

    def out_of_memory(self, job: str) -> None:
        """Report for a running job that the OOM killer was active, as its node does; see `memory_cgroup`.

        It ends as OUT_OF_MEMORY. Its processes are ended by Slurm, not by the kernel.
        """
        self._call_slurm("slurm_complete_job", job, _SIG_OOM)

    def _call_slurm(self, function: str, job: str, argument: int) -> None:
        self._checked_root("ctl", ["python3", "-c", _CALL_SLURM, function, job, str(argument)])


def _undoing(limit: str, before: str) -> str:
    """Return the value that restores a limit; for resources, each has its own value."""
    if "=" not in limit:
        return before or "-1"
    names = {part.partition("=")[0]: "-1" for part in limit.split(",")}
    names |= dict(part.split("=") for part in before.split(",") if part)
    return ",".join(f"{name}={value}" for name, value in names.items())
