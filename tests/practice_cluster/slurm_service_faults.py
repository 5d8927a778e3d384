"""Slurm's services when they are not there, or not as elsewhere: controllers, slurmd, accounting, memory limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import NotPossibleHereError
from .fault_tools import FaultTools, until
from .layout import LOGIN_NODES, USERS
from .slurm import CONFIGURATION, MAIN, SNOWY

SLURMCTLD_PID = {MAIN: "/run/slurmctld.pid", SNOWY: "/run/snowy-slurmctld.pid"}
SLURMD_PID = "/run/slurmd.pid"

# The port is free, and what was to be written is written, when the process has gone.
_END = """\
if read -r pid <{pidfile} && kill -{signal} "$pid"; then
    while kill -0 "$pid"; do sleep 0.02; done
fi 2>/dev/null
"""
_KILL_STEPS = f"pkill -KILL -x slurmstepd || true; pkill -KILL -u {','.join(USERS)} || true"

_HIDE_ACCOUNTING = """\
sed /^AccountingStorage/d /etc/slurm/slurm.conf >/run/slurm.conf
mount --bind /run/slurm.conf /etc/slurm/slurm.conf
"""

# Slurm's manual calls for one way to enforce memory limits, so the other one goes.
_MEMORY_CGROUP = """\
mkdir -p /run/cgroup
mount -t cgroup -o memory cgroup /run/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/memory
mount --bind /run/cgroup/{name} /sys/fs/cgroup/memory
sed -e '/^TaskPlugin=/s,=.*,=task/cgroup,' -e /^JobAcctGatherParams=/d /etc/slurm/slurm.conf >/run/slurm.conf
printf 'CgroupPlugin=cgroup/v1\\nConstrainRAMSpace=yes\\n' >/run/cgroup.conf
mount --bind /run/slurm.conf /etc/slurm/slurm.conf
mount --bind /run/cgroup.conf /etc/slurm/cgroup.conf
"""
# Whatever of it is there.
_NO_MEMORY_CGROUP = """\
for place in /etc/slurm/cgroup.conf /etc/slurm/slurm.conf /sys/fs/cgroup/memory /sys/fs/cgroup /run/cgroup; do
    umount "$place" 2>/dev/null || true
done
"""
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
"""Where a machine with the first version of control groups has those that limit memory."""


class SlurmServiceFaults(FaultTools):
    """What can be changed about Slurm's services."""

    @contextmanager
    def no_slurmctld(self, cluster: str = MAIN) -> Iterator[None]:
        """Let a cluster (`practice` or `snowy`) be without its controller. Jobs that run do not notice."""
        try:
            self.stop_slurmctld(cluster)
            yield
        finally:
            self.start_slurmctld(cluster)

    def stop_slurmctld(self, cluster: str = MAIN) -> None:
        """End the controller of a cluster, which writes down what it knows first."""
        self._shell("ctl", _END.format(pidfile=SLURMCTLD_PID[cluster], signal="TERM"))

    def start_slurmctld(self, cluster: str = MAIN) -> None:
        """Start the controller of a cluster; return when it answers, and has heard of all nodes."""
        self._shell("ctl", f"slurmctld -f {CONFIGURATION[cluster]}")
        states = f"SLURM_CONF={CONFIGURATION[cluster]} sinfo -h -o %T"
        until(lambda: "unknown" not in self._shell("ctl", states).split(), f"slurmctld of {cluster} to answer")

    @contextmanager
    def no_slurmd(self, node: str, *, kill_steps: bool = False) -> Iterator[None]:
        """Kill a compute node's slurmd. Slurm finds the node DOWN some 50 s later, and its jobs fail or are requeued.

        Their processes live on until the slurmd is back, or are killed as well with `kill_steps`, and all that people
        run there with them, as when a machine loses its power.
        """
        try:
            self._shell(node, _END.format(pidfile=SLURMD_PID, signal="KILL"))
            if kill_steps:
                self._shell(node, _KILL_STEPS)
            yield
        finally:
            self._shell(node, f"slurmd -N {node}")
            self.resume(node)

    @contextmanager
    def no_slurmdbd(self) -> Iterator[None]:
        """Let the accounting database be out of reach: sacct fails, and so does all with -M; jobs are taken and run."""
        try:
            self._shell("ctl", _END.format(pidfile="/run/slurmdbd.pid", signal="TERM"))
            yield
        finally:
            self._shell("ctl", "slurmdbd")
            until(lambda: self._checked_root("ctl", ["sacctmgr", "-n", "show", "cluster"]), "slurmdbd to answer")

    @contextmanager
    def no_accounting(self) -> Iterator[None]:
        """Let the login nodes be those of a site without accounting: there is no database to be asked for anything.

        Only what people's commands read there says so. The controller goes on as before, and knows the accounts.
        """
        with self._changed(LOGIN_NODES, _HIDE_ACCOUNTING, "umount /etc/slurm/slurm.conf"):
            yield

    @contextmanager
    def memory_cgroup(self, node: str) -> Iterator[None]:
        """Let the kernel enforce on a node what memory a job has asked for: it ends as OUT_OF_MEMORY.

        The kernel kills one process of the job, and the job ends when its script does. No job may run there when this
        begins and ends. Raises NotPossibleHereError where the machine has no memory control groups of version 1.
        """
        if not (MEMORY_CGROUPS / "cgroup.procs").exists():
            raise NotPossibleHereError(f"This machine limits no memory by control groups: {MEMORY_CGROUPS} is missing.")
        group = MEMORY_CGROUPS / cgroup_name(self.directory)
        try:
            group.mkdir()
            self._restart_slurmd(node, _MEMORY_CGROUP.format(name=group.name))
            yield
        finally:
            self._restart_slurmd(node, _NO_MEMORY_CGROUP)
            remove_cgroup(self.directory)

    def _restart_slurmd(self, node: str, between: str) -> None:
        self._shell(node, _END.format(pidfile=SLURMD_PID, signal="TERM") + between + f"slurmd -N {node}")
        self.resume(node)


def cgroup_name(directory: Path) -> str:
    """Return the name of the control group of the cluster in `directory`, unlike that of any other cluster."""
    return "practice-cluster" + str(directory).replace("/", "-")


def remove_cgroup(directory: Path) -> None:
    """Remove the control group that `memory_cgroup` made, if it is there and nothing runs in it any more."""
    group = MEMORY_CGROUPS / cgroup_name(directory)
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        for path in [*sorted(group.rglob("*/"), reverse=True), group]:
            # What has just ended may be counted for a moment.
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.02)
