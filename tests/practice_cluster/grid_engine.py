"""A real Grid Engine instead of Slurm, with its master on the login node and execution daemons on the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .fault_tools import FaultTools, until
from .layout import COMPUTE_NODES

UNPACKED = "/opt/grid-engine"
"""The directory with Debian's packages, unpacked."""

_HOST = "login"
_PROGRAMS = "qsub qstat qdel qconf qhost qacct qhold qrls qmod qselect"
_DAEMONS = "sge_execd sge_shepherd"
_LIBRARY = "libjemalloc.so.2"
_ROOT = "/var/lib/gridengine"
SLOTS = {"node1": 20, "node2": 20, "gpu1": 16}
GPUS = 6
"""The number of the complex `gpu` on gpu1."""

_START_MASTER = f"SGE_ROOT={_ROOT} SGE_CELL=default LD_LIBRARY_PATH=/usr/lib/gridengine /usr/lib/gridengine/sge_qmaster"

# Everything except what it writes is a link to the unpacked packages. The package's own set-up would ask for a mail
# server.
_COMES = f"""\
ln -s {UNPACKED}/usr/lib/gridengine /usr/lib/gridengine
ln -s {UNPACKED}/usr/share/gridengine /usr/share/gridengine
ln -s {UNPACKED}/usr/lib/*-linux-gnu/{_LIBRARY} "$(dirname /usr/lib/*-linux-gnu/libc.so.6)/{_LIBRARY}"
grep -q ^sge_qmaster /etc/services || printf 'sge_qmaster 6444/tcp\nsge_execd 6445/tcp\n' >>/etc/services
cp -a {UNPACKED}{_ROOT} {_ROOT}
mkdir -p {_ROOT}/default/common /var/spool/gridengine
cat >{_ROOT}/default/common/bootstrap <<'SETTINGS'
admin_user none
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params /var/spool/gridengine/spooldb
binary_path /usr/sbin
qmaster_spool_dir /var/spool/gridengine/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
SETTINGS
echo {_HOST} >{_ROOT}/default/common/act_qmaster
export SGE_ROOT={_ROOT} SGE_CELL=default
"""
_MASTER_COMES = f"""\
for name in sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue srun sstat; do
  test ! -e /usr/bin/$name || mv /usr/bin/$name /usr/bin/.$name-elsewhere
done
{_COMES}
for name in {_PROGRAMS}; do
  printf '%s\\n' '#!/bin/sh' 'export SGE_ROOT={_ROOT} SGE_CELL=default' \\
    "exec /usr/lib/gridengine/$name"' "$@"' >/usr/bin/$name
  chmod 755 /usr/bin/$name
done
mkdir -p /var/spool/gridengine/spooldb /var/spool/gridengine/qmaster/job_scripts
LD_LIBRARY_PATH=/usr/lib/gridengine /usr/share/gridengine/scripts/init_cluster {_ROOT} default \\
  /var/spool/gridengine/spooldb root
{_START_MASTER}
count=0
until qconf -as {_HOST}; do count=$((count + 1)); test $count -lt 100; sleep 0.1; done
"""
# As fast as possible: a real site schedules and writes its accounting every 15 s.
_CONFIGURE = f"""\
cd "$(mktemp -d)"
none() {{ for key in "$@"; do echo $key NONE; done; }}
qconf -sconf | sed 's/flush_time=[0-9:]*/flush_time=00:00:01 accounting_flush_time=00:00:00/
  s/^load_report_time.*/load_report_time 00:00:02/; s/^max_unheard.*/max_unheard 00:00:30/' >global
qconf -Mconf global
qconf -ssconf | sed 's/^schedule_interval.*/schedule_interval 0:0:2/; s/^flush_submit_sec.*/flush_submit_sec 1/
  s/^flush_finish_sec.*/flush_finish_sec 1/; s/^schedd_job_info.*/schedd_job_info true/' >schedule
qconf -Msconf schedule
{{ qconf -sc; echo 'gpu gpu INT <= YES JOB 0 0'; }} >complexes
qconf -Mc complexes
host() {{ {{ echo hostname $1; none load_scaling; echo complex_values "$2"
  none user_lists xuser_lists projects xprojects usage_scaling report_variables; }} >host; qconf -Ae host; }}
host node1 NONE; host node2 NONE; host gpu1 gpu={GPUS}
printf '%s\\n' 'pe_name smp' 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' \\
  'stop_proc_args NONE' 'allocation_rule $pe_slots' 'control_slaves FALSE' 'job_is_first_task TRUE' \\
  'urgency_slots min' 'accounting_summary FALSE' 'qsort_args NONE' >smp
qconf -Ap smp
queue() {{ {{ printf '%s\\n' "qname $1" "hostlist $2" 'seq_no 0' 'nsuspend 1' 'suspend_interval 00:05:00' 'priority 0'
  printf '%s\\n' 'load_thresholds np_load_avg=1000' 'pe_list smp' 'min_cpu_interval 00:00:02' 'processors UNDEFINED'
  printf '%s\\n' 'qtype BATCH INTERACTIVE' 'rerun FALSE' "slots $3" 'tmpdir /tmp' 'shell /bin/bash'
  printf '%s\\n' 'shell_start_mode unix_behavior' 'notify 00:00:05' 'initial_state default'
  none suspend_thresholds ckpt_list prolog epilog starter_method suspend_method resume_method terminate_method \\
    owner_list user_lists xuser_lists subordinate_list complex_values projects xprojects calendar
  for limit in rt cpu fsize data stack core rss vmem; do echo s_$limit INFINITY; echo h_$limit "$4"; done
}} | sed '/^h_/s/ [^ ]*$/ INFINITY/; s/^h_rt .*/h_rt '"$4/" >queue; qconf -Aq queue; }}
queue all.q 'node1 node2' {SLOTS["node1"]} INFINITY
queue gpu.q gpu1 {SLOTS["gpu1"]} 48:00:00
printf '%s\\n' 'name proj1' 'oticket 0' 'fshare 0' 'acl NONE' 'xacl NONE' >project; qconf -Aprj project
"""
_NODE_COMES = f"""\
{_COMES}
for name in {_DAEMONS}; do ln -sf {UNPACKED}/usr/lib/gridengine/$name /usr/sbin/$name; done
mkdir -p /var/spool/gridengine/execd
/usr/lib/gridengine/sge_execd
"""
_GOES = f"""\
pkill -KILL -x 'sge_qmaster|sge_execd|sge_shepherd' || true
rm -rf {_ROOT} /var/spool/gridengine /usr/lib/gridengine /usr/share/gridengine
library=$(dirname /usr/lib/*-linux-gnu/libc.so.6)/{_LIBRARY}
test ! -L $library || rm $library
for name in {_PROGRAMS}; do rm -f /usr/bin/$name; done
for name in {_DAEMONS}; do rm -f /usr/sbin/$name; done
for hidden in /usr/bin/.s*-elsewhere; do
  name=${{hidden#/usr/bin/.}}
  test ! -e $hidden || mv $hidden /usr/bin/${{name%-elsewhere}}
done
"""


class GridEngine(FaultTools):
    """Changes of a running cluster's scheduler."""

    has_grid_engine = False
    """Whether this object has replaced Slurm by it."""

    @contextmanager
    def grid_engine(self) -> Iterator[None]:
        """Let the cluster have Grid Engine, and hide Slurm's commands on the login node.

        The queue `all.q` is on node1 and node2, `gpu.q`, for two days at most, on gpu1 with a resource `gpu`; the
        parallel environment is `smp`. What Slurm runs, and its services, stay as they are.
        """
        with (
            self._changed([_HOST], _MASTER_COMES + _CONFIGURE, _GOES),
            self._changed(COMPUTE_NODES, _NODE_COMES, _GOES),
        ):
            until(self._all_report, "Grid Engine's execution hosts")
            self.has_grid_engine = True
            try:
                yield
            finally:
                self.has_grid_engine = False

    @contextmanager
    def no_qmaster(self) -> Iterator[None]:
        """Stop Grid Engine's master. Once it is back, it takes a while until the nodes have contacted it again."""
        stop = "pkill -KILL -x sge_qmaster; while pgrep -x sge_qmaster; do sleep 0.05; done"
        with self._changed([_HOST], stop, _START_MASTER):
            yield
        until(lambda: self._shell(_HOST, "qstat -u '*' && echo yes"), "Grid Engine's master")

    def grid_engine_jobs(self) -> list[str]:
        """Return the ids of all pending and running jobs."""
        rows = [line.split() for line in self._shell(_HOST, "qstat -u '*'").splitlines()]
        return [row[0] for row in rows if row and row[0].isdecimal()]

    def _all_report(self) -> bool:
        rows = [line.split() for line in self._shell(_HOST, "qhost").splitlines()]
        return sum(row[0] in COMPUTE_NODES and row[2] != "-" for row in rows) == len(COMPUTE_NODES)
