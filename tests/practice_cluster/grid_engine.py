"""A login node with Grid Engine instead of Slurm: a real one, whose jobs wait, because nothing executes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .arrangement_tools import Arranging

UNPACKED = "/opt/grid-engine"
"""Where Debian's packages wait, unpacked."""

_HOST = "login"
_PROGRAMS = "qsub qstat qdel qconf qhost qacct"
_LIBRARY = "libjemalloc.so.2"
_ROOT = "/var/lib/gridengine"

# Everything but what it writes is a link to what is unpacked. The package's own set-up would ask for a mail server.
_COMES = f"""\
for name in sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue srun sstat; do
  test ! -e /usr/bin/$name || mv /usr/bin/$name /usr/bin/.$name-elsewhere
done
for name in {_PROGRAMS}; do ln -s {UNPACKED}/usr/bin/$name /usr/bin/$name; done
ln -s {UNPACKED}/usr/lib/gridengine /usr/lib/gridengine
ln -s {UNPACKED}/usr/share/gridengine /usr/share/gridengine
ln -s {UNPACKED}/usr/lib/*-linux-gnu/{_LIBRARY} "$(dirname /usr/lib/*-linux-gnu/libc.so.6)/{_LIBRARY}"
grep -q ^sge_qmaster /etc/services || printf 'sge_qmaster 6444/tcp\nsge_execd 6445/tcp\n' >>/etc/services
cp -a {UNPACKED}{_ROOT} {_ROOT}
mkdir -p {_ROOT}/default/common /var/spool/gridengine/spooldb /var/spool/gridengine/qmaster/job_scripts
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
export SGE_ROOT={_ROOT} SGE_CELL=default LD_LIBRARY_PATH=/usr/lib/gridengine
/usr/share/gridengine/scripts/init_cluster {_ROOT} default /var/spool/gridengine/spooldb root
/usr/lib/gridengine/sge_qmaster
count=0
until qconf -as {_HOST}; do count=$((count + 1)); test $count -lt 100; sleep 0.1; done
"""
_MAKE_QUEUE = f"""\
cd "$(mktemp -d)"
{{ echo hostname {_HOST}
  for key in load_scaling complex_values user_lists xuser_lists projects xprojects usage_scaling report_variables; do
    echo $key NONE
  done; }} >host
qconf -Ae host
{{ printf '%s\\n' 'qname all.q' 'hostlist {_HOST}' 'seq_no 0' 'nsuspend 1' 'suspend_interval 00:05:00' 'priority 0'
  printf '%s\\n' 'min_cpu_interval 00:05:00' 'processors UNDEFINED' 'qtype BATCH INTERACTIVE' 'rerun FALSE' 'slots 4'
  printf '%s\\n' 'tmpdir /tmp' 'shell /bin/bash' 'shell_start_mode unix_behavior' 'notify 00:00:60'
  echo initial_state default
  for key in load_thresholds suspend_thresholds ckpt_list pe_list prolog epilog starter_method suspend_method \\
      resume_method terminate_method owner_list user_lists xuser_lists subordinate_list complex_values projects \\
      xprojects calendar; do echo $key NONE; done
  for limit in rt cpu fsize data stack core rss vmem; do echo s_$limit INFINITY; echo h_$limit INFINITY; done
}} >queue
qconf -Aq queue
"""
_GOES = f"""\
pkill -KILL -x sge_qmaster || true
rm -rf {_ROOT} /var/spool/gridengine /usr/lib/gridengine /usr/share/gridengine
library=$(dirname /usr/lib/*-linux-gnu/libc.so.6)/{_LIBRARY}
test ! -L $library || rm $library
for name in {_PROGRAMS}; do rm -f /usr/bin/$name; done
for hidden in /usr/bin/.s*-elsewhere; do
  name=${{hidden#/usr/bin/.}}
  test ! -e $hidden || mv $hidden /usr/bin/${{name%-elsewhere}}
done
"""


class GridEngine(Arranging):
    """What can be changed about a running cluster's scheduler."""

    @contextmanager
    def grid_engine(self) -> Iterator[None]:
        """Let the login node have Grid Engine, and none of Slurm's commands. Jobs can be submitted, and wait.

        What Slurm runs, and its services, stay as they are.
        """
        with self._changed([_HOST], _COMES + _MAKE_QUEUE, _GOES):
            yield
