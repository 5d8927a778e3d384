"""Slurm: the configuration of two clusters, the order of services, accounts, and a reservation.

The main cluster is called `practice`; `snowy` is a second one, with its own controller beside the first, and one node
that shares a box with node2. Both report to one slurmdbd, which `-M snowy` requires.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import sshd
from .fault_tools import until
from .layout import COMPUTE_NODES, USERS, Generation

STARTS_WITHIN = 60
"""Seconds that each of the services may take."""

RunAsRoot = Callable[..., str]
"""(box, argv, *, stdin="") -> standard output; raises ClusterError if the command fails."""

MAIN, SNOWY = "practice", "snowy"
BOTH = f"{MAIN},{SNOWY}"
SNOWY_DIRECTORY = "/etc/slurm/snowy"
CONFIGURATION = {MAIN: "/etc/slurm/slurm.conf", SNOWY: f"{SNOWY_DIRECTORY}/slurm.conf"}

_COMMON = """\
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=slurm
ReturnToService=2
MpiDefault=none
MailProg=/bin/true

# No cgroups: processes are found by their parents, and whoever uses more memory than the job asked for is found by
# looking every few seconds.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
JobAcctGatherParams=OverMemoryKill
# Lets jobs start, except on nodes where `failing_prolog` says otherwise.
Prolog=/etc/slurm/prolog
# A node may claim more than the machine has.
SlurmdParameters=config_overrides

# Quicker than a real site, so that nobody waits for the scheduler's rounds.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=5,bf_window=20160,batch_sched_delay=1,defer
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
KillWait=5
MinJobAge=300
InactiveLimit=0
SlurmctldTimeout=30
SlurmdTimeout=30
# A job that is put back into the queue waits for so many seconds, plus one.
AuthInfo=cred_expire=15

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations,limits,qos
GresTypes=gpu
# What the reservation lab1 reserves, see slurm.py; and one to be used up.
Licenses=lab1:1,matlab:1
"""

_MAIN = """\
ClusterName=practice
SlurmctldHost=ctl
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
AccountingStorageTRES=gres/gpu,gres/gpu:t4,gres/gpu:a100
DefMemPerCPU=6400

NodeName=node[1-2] CPUs=20 Sockets=2 CoresPerSocket=10 ThreadsPerCore=1 RealMemory=128000 Feature=thin,skylake
NodeName=gpu1 CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=128000 Feature=gpu,skylake Weight=100 \
Gres=gpu:t4:2,gpu:a100:4

# Jobs in `urgent` take the place of those in `scavenge` and `scavenge-cancel`; nobody else has to give way.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=DEFAULT MaxTime=10-00:00:00 DefaultTime=01:00:00 State=UP PreemptMode=OFF
PartitionName=core    Nodes=node[1-2],gpu1 Default=YES
PartitionName=node    Nodes=node[1-2] OverSubscribe=EXCLUSIVE
PartitionName=devcore Nodes=node[1-2] MaxTime=01:00:00 DefaultTime=00:30:00 PriorityTier=10
PartitionName=gpu     Nodes=gpu1 MaxTime=2-00:00:00
PartitionName=urgent  Nodes=node[1-2],gpu1 PriorityTier=20 AllowAccounts=proj2
PartitionName=scavenge Nodes=node[1-2],gpu1 PreemptMode=REQUEUE
PartitionName=scavenge-cancel Nodes=node[1-2],gpu1 PreemptMode=CANCEL
"""

_SNOWY = """\
ClusterName=snowy
# Job ids, and with them slurm-ID.out, that are not those of the main cluster.
FirstJobId=5001
SlurmctldHost=ctl
SlurmctldPort=6917
SlurmdPort=6918
StateSaveLocation=/var/lib/slurm/snowy-slurmctld
SlurmdSpoolDir=/var/lib/slurm/snowy-slurmd
SlurmctldPidFile=/run/snowy-slurmctld.pid
SlurmdPidFile=/run/snowy-slurmd.pid
SlurmctldLogFile=/var/log/slurm/snowy-slurmctld.log
SlurmdLogFile=/var/log/slurm/snowy-slurmd.log
AccountingStorageTRES=gres/gpu,gres/gpu:t4
DefMemPerCPU=4000

NodeName=s1 NodeHostname=node2 NodeAddr=node2 CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 \
RealMemory=64000 Feature=thin,skylake Gres=gpu:t4:1

PartitionName=core    Nodes=s1 MaxTime=10-00:00:00 DefaultTime=01:00:00 State=UP Default=YES
PartitionName=devcore Nodes=s1 MaxTime=01:00:00 DefaultTime=00:30:00 State=UP PriorityTier=10
"""

# Slurm runs it on a node before the first process of each job there.
_PROLOG = """\
#!/bin/sh
test ! -e "/etc/slurm/prolog-fails/$SLURMD_NODENAME"
"""

_GRES = """\
AutoDetect=off
NodeName=gpu1 Name=gpu Type=t4   File=/dev/nvidia[0-1]
NodeName=gpu1 Name=gpu Type=a100 File=/dev/nvidia[2-5]
"""

_SNOWY_GRES = """\
AutoDetect=off
NodeName=s1 Name=gpu Type=t4 File=/dev/t4-0
"""

_SLURMDBD = """\
AuthType=auth/munge
DbdHost=ctl
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""

# The data is in memory: Slurm creates some fifty tables, each of which would wait for the disk. Newer Debian releases
# have data and socket in directories named after MariaDB.
_START_DATABASE = """\
for data in /var/lib/mariadb /var/lib/mysql; do
    if [ -d "$data/mysql" ]; then cp -a "$data" /dev/shm/mysql && break; fi
done
mkdir -p /run/mysqld
ln -sfn mysqld /run/mariadbd
chown -R mysql:mysql /run/mysqld
setsid mariadbd --user=mysql --datadir=/dev/shm/mysql --socket=/run/mysqld/mysqld.sock --skip-networking \
    --skip-log-bin --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --innodb-fast-shutdown=2 \
    >/var/log/mariadbd.log 2>&1 </dev/null &
"""

_PREPARE_DATABASE = """\
create database slurm_acct_db;
create user 'slurm'@'localhost' identified via unix_socket;
grant all on slurm_acct_db.* to 'slurm'@'localhost';
"""

# Of a licence and not of nodes: the reservation is real (it can be requested, and is refused to others), but it takes
# no node away from other jobs.
_RESERVATION = (
    *("create", "reservation", "ReservationName=lab1", "StartTime=now", "Duration=365-00:00:00"),
    *("Users=alice", "Accounts=proj1", "Licenses=lab1:1", "Flags=ANY_NODES"),
)


def write_configuration(directory: Path, generation: Generation, slurm_uid: int) -> None:
    """Write /etc/slurm for all boxes of the cluster."""
    snowy = directory / "snowy"
    snowy.mkdir()
    cgroup = f"CgroupPlugin={generation.cgroup_plugin}\n"
    # A slurmd started with -f FILE reads its other files beside FILE.
    for place, main, gres in ((directory, _MAIN, _GRES), (snowy, _SNOWY, _SNOWY_GRES)):
        (place / "slurm.conf").write_text(main + "\n" + _COMMON)
        (place / "gres.conf").write_text(gres)
        (place / "cgroup.conf").write_text(cgroup)
    (directory / "prolog").write_text(_PROLOG)
    (directory / "prolog").chmod(0o755)
    (directory / "prolog-fails").mkdir()
    database = directory / "slurmdbd.conf"
    database.write_text(_SLURMDBD)
    database.chmod(0o600)
    # slurmdbd requires that it owns this file.
    os.chown(database, slurm_uid, slurm_uid)


@dataclass(frozen=True)
class Starter:
    """Starts Slurm's services in boxes that are up, with munge running."""

    run: RunAsRoot

    def start(self, *, pam_slurm: bool) -> None:
        """Start everything and return once both clusters have all their nodes idle.

        With `pam_slurm`, compute nodes accept ssh logins only from users who have a job there.
        """
        self._start_database()
        self._start_accounting()
        for service in ("slurmctld", f"slurmctld -f {SNOWY_DIRECTORY}/slurm.conf"):
            self._shell("ctl", service)
        for node in COMPUTE_NODES:
            self._shell(node, f"mkdir -p /var/lib/slurm/slurmd && slurmd -N {node}")
            if pam_slurm:
                self._shell(node, sshd.ADD_PAM_SLURM)
        self._shell("node2", f"mkdir -p /var/lib/slurm/snowy-slurmd && slurmd -f {SNOWY_DIRECTORY}/slurm.conf -N s1")
        until(self._all_idle, "idle nodes", STARTS_WITHIN)
        for cluster in (MAIN, SNOWY):
            self.run("ctl", ["scontrol", "-M", cluster, *_RESERVATION])

    def _shell(self, box: str, script: str) -> None:
        self.run(box, ["sh", "-euc", script])

    def _start_database(self) -> None:
        self._shell("ctl", _START_DATABASE)
        until(lambda: self.run("ctl", ["mariadb-admin", "ping"]), "MariaDB", STARTS_WITHIN)
        self.run("ctl", ["mariadb"], stdin=_PREPARE_DATABASE)

    def _start_accounting(self) -> None:
        folders = "/var/lib/slurm/slurmctld /var/lib/slurm/snowy-slurmctld"
        self._shell("ctl", f"mkdir -p {folders} && chown slurm: {folders}")
        self._shell("ctl", "slurmdbd")
        # It knows no cluster yet: an answer is enough.
        until(lambda: [self.run("ctl", ["sacctmgr", "-n", "show", "cluster"])], "slurmdbd", STARTS_WITHIN)
        self.run("ctl", ["sacctmgr", "-i"], stdin="\n".join(_accounting_commands()) + "\n")

    def _all_idle(self) -> bool:
        states = self.run("ctl", ["sinfo", "-M", BOTH, "-h", "-N", "-t", "idle", "-o", "%N"])
        return {*COMPUTE_NODES, "s1"} <= set(states.split())


def _accounting_commands() -> list[str]:
    """Return the sacctmgr commands for the QOS `short`, clusters that allow it, accounts, and associations.

    As few as possible, because 22.05 takes half a second for each.
    """
    accounts = ",".join(sorted({account for user in USERS.values() for account in user.accounts}))
    commands = [
        "add qos short set Priority=1000 MaxWall=02:00:00",
        f"add cluster {BOTH} set QOS=normal,short DefaultQOS=normal",
        f"add account {accounts} Cluster={BOTH} Description=practice Organization=practice",
    ]
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for user in USERS.values():
        alike.setdefault((MAIN, user.accounts), []).append(user.name)
        alike.setdefault((SNOWY, user.snowy_accounts), []).append(user.name)
    for (cluster, theirs), names in alike.items():
        if theirs:
            allowed = f"Account={','.join(theirs)} DefaultAccount={theirs[0]}"
            commands.append(f"add user {','.join(names)} Cluster={cluster} {allowed}")
    return commands
