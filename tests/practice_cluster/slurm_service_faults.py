"""Temporary changes of Slurm's services: controllers, slurmd, accounting, memory limits."""

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

# The port is free, and the state has been written, when the process has ended.
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

# Slurm's manual advises to use only one way to enforce memory limits, so the other one is disabled.
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
# Undo all that has been set up.
_NO_MEMORY_CGROUP = """\
for place in /etc/slurm/cgroup.conf /etc/slurm/slurm.conf /sys/fs/cgroup/memory /sys/fs/cgroup /run/cgroup; do
    umount "$place" 2>/dev/null || true
done
"""
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
"""The memory control groups on a machine with cgroup version 1."""


class SlurmServiceFaults(FaultTools):
    """Changes of Slurm's services."""

    @contextmanager
    def no_slurmctld(self, cluster: str = MAIN) -> Iterator[None]:
        """Stop the controller of a cluster (`practice` or `snowy`). Running jobs are not affected."""
        try:
            self.stop_slurmctld(cluster)
            yield
        finally:
            self.start_slurmctld(cluster)

    def stop_slurmctld(self, cluster: str = MAIN) -> None:
        """Stop the controller of a cluster, which saves its state first."""
        self._shell("ctl", _END.format(pidfile=SLURMCTLD_PID[cluster], signal="TERM"))

    def start_slurmctld(self, cluster: str = MAIN) -> None:
        """Start the controller of a cluster; return when it answers, and all nodes have registered."""
        self._shell("ctl", f"slurmctld -f {CONFIGURATION[cluster]}")
        states = f"SLURM_CONF={CONFIGURATION[cluster]} sinfo -h -o %T"
        until(lambda: "unknown" not in self._shell("ctl", states).split(), f"slurmctld of {cluster} to answer")

    @contextmanager
    def no_slurmd(self, node: str, *, kill_steps: bool = False) -> Iterator[None]:
        """Kill a compute node's slurmd. Slurm finds the node DOWN some 50 s later, and its jobs fail or are requeued.

        The jobs' processes continue until slurmd is back. With `kill_steps`, they and all other processes of users on
        the node are killed as well, as in a power failure.
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
        """Make the accounting database unavailable: sacct and all commands with -M fail; jobs are accepted and run."""
        try:
            self._shell("ctl", _END.format(pidfile="/run/slurmdbd.pid", signal="TERM"))
            yield
        finally:
            self._shell("ctl", "slurmdbd")
            until(lambda: self._checked_root("ctl", ["sacctmgr", "-n", "show", "cluster"]), "slurmdbd to answer")

    @contextmanager
    def no_accounting(self) -> Iterator[None]:
        """Let the login nodes be those of a site without accounting, where there is no database to query.

        Only the configuration that users' commands read there is changed. The controller still knows the accounts.
        """
        with self._changed(LOGIN_NODES, _HIDE_ACCOUNTING, "umount /etc/slurm/slurm.conf"):
            yield

    @contextmanager
    def memory_cgroup(self, node: str) -> Iterator[None]:
        """Let the kernel enforce the requested memory of jobs on a node: a job that exceeds it ends as OUT_OF_MEMORY.

        The kernel kills one process of the job, and the job ends when its script does. No job may run there when this
        begins and ends. Raises NotPossibleHereError if the machine has no memory control groups of version 1.
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
    """Remove the control group of `memory_cgroup`, if it exists and contains no processes any more."""
    group = MEMORY_CGROUPS / cgroup_name(directory)
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        for path in [*sorted(group.rglob("*/"), reverse=True), group]:
            # Processes that have just ended may still be counted for a moment.
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.02)
