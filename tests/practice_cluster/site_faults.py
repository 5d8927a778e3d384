"""Properties of sites around Slurm: wrapped commands, slow containers, homes that are full or read-only."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import ClusterError
from .fault_tools import FaultTools
from .layout import COMPUTE_NODES, LOGIN_NODES, USERS
from .software import ENVIRONMENT_MODULES

# Before /usr/bin in everybody's PATH, by ssh, in a login shell, and in a job.
_WRAPPERS = "/usr/local/bin"

# bash, because Debian's sh drops exported functions, so that jobs would lack `module`.
_SLOW_SUBMIT = """\
#!/bin/bash
# A site's own sbatch: it submits, and answers when it has had its coffee.
test "$(id -un)" = {user} || exec /usr/bin/sbatch "$@"
answer=$(/usr/bin/sbatch "$@")
status=$?
sleep {seconds}
test -z "$answer" || printf '%s\\n' "$answer"
exit $status
"""

_FAILING = """\
#!/bin/sh
# root, who looks after the cluster, is spared.
test "$(id -u)" != 0 || exec /usr/bin/{program} "$@"
echo {text} >&2
exit {status}
"""

# A process that execs the other, so that a signal for the container also ends the wait.
_SLOW_CONTAINER = """\
#!/usr/bin/python3
import os, sys, time
if {{"exec", "run", "shell", "instance"}} & set(sys.argv[1:]):
    time.sleep({seconds})
os.execv("/usr/bin/{program}", sys.argv)
"""

_OTHER_TIME = """\
#!/bin/sh
exec /usr/bin/date --date="now {seconds:+d} seconds" "$@"
"""

_FILL = "cat /dev/zero >{home}/.fills-it 2>/dev/null || true"
# Not ":", because a shell exits if a redirection of that special built-in fails.
_FILL_INODES = "mkdir {home}/.fills-it-too; i=0; while true 2>/dev/null >{home}/.fills-it-too/$i; do i=$((i+1)); done"
_FREE = "rm -rf {home}/.fills-it {home}/.fills-it-too"
_READ_ONLY = "mount --bind {home} {home}; mount -o remount,bind,ro {home}"


# Lmod is hidden by a mount, because a directory of the common root file system cannot be renamed.
_LMOD_GOES = f"""\
mount -t tmpfs -o ro,mode=755 tmpfs /usr/share/lmod
mv /etc/profile.d/lmod.sh /etc/.lmod-elsewhere.sh
tar -C {ENVIRONMENT_MODULES} -cf - . | tar -C / --keep-directory-symlink -xf -
echo /sw/tcl-modules >/etc/environment-modules/modulespath
"""
_LMOD_COMES_BACK = f"""\
(cd {ENVIRONMENT_MODULES} && find . ! -type d) | while read -r file; do rm -f "/$file"; done
mv -f /etc/.lmod-elsewhere.sh /etc/profile.d/lmod.sh
while mountpoint -q /usr/share/lmod; do umount -l /usr/share/lmod; done
"""

_RUNTIMES = "/usr/{bin,local/bin}/{apptainer,singularity,ch-run,podman}"
# Links may be dangling meanwhile, because their targets are hidden as well.
_HIDE_RUNTIMES = f"""\
bash -c 'for path in {_RUNTIMES}; do
  if test -e $path || test -L $path; then mv $path ${{path%/*}}/.${{path##*/}}-elsewhere; fi
done'
"""
_SHOW_RUNTIMES = f"""\
bash -c 'for path in {_RUNTIMES}; do
  hidden=${{path%/*}}/.${{path##*/}}-elsewhere
  if test -e $hidden || test -L $hidden; then mv $hidden $path; fi
done'
"""


class SiteFaults(FaultTools):
    """Changes of a running cluster's commands and homes."""

    # ---- modules ---------------------------------------------------------------------------------------------

    @contextmanager
    def environment_modules(self) -> Iterator[None]:
        """Let the login and compute nodes have Environment Modules instead of Lmod.

        It has the same modules, as Tcl files. Running shells and jobs are not affected.
        """
        with self._changed((*LOGIN_NODES, *COMPUTE_NODES), _LMOD_GOES, _LMOD_COMES_BACK):
            yield

    # ---- commands --------------------------------------------------------------------------------------------

    @contextmanager
    def slow_sbatch(self, user: str, seconds: float) -> Iterator[None]:
        """Let sbatch on the login nodes submit a user's job at once, but return only seconds later."""
        with self._wrapper(LOGIN_NODES, "sbatch", _SLOW_SUBMIT.format(user=user, seconds=seconds)):
            yield

    @contextmanager
    def failing_squeue(
        self, text: str = "slurm_load_jobs error: Socket timed out on send/recv operation"
    ) -> Iterator[None]:
        """Let squeue on the login nodes print this to standard error and exit with 1."""
        with self.failing("squeue", text):
            yield

    @contextmanager
    def failing(self, program: str, text: str, status: int = 1) -> Iterator[None]:
        """Let a program on the login nodes only print a text to standard error and fail, for ordinary users."""
        script = _FAILING.format(program=program, text=shlex.quote(text), status=status)
        with self._wrapper(LOGIN_NODES, program, script):
            yield

    @contextmanager
    def without(self, program: str, *boxes: str) -> Iterator[None]:
        """Remove a program on these boxes (default: the login nodes)."""
        hidden = f"/usr/bin/.{program}-elsewhere"
        with self._changed(
            boxes or LOGIN_NODES,
            f"mv /usr/bin/{program} {hidden}",
            f"test ! -e {hidden} || mv {hidden} /usr/bin/{program}",
        ):
            yield

    @contextmanager
    def skewed_clock(self, seconds: int) -> Iterator[None]:
        """Let `date` on the login nodes be ahead by so much. Slurm, and everything else, keep the right time."""
        with self._wrapper(LOGIN_NODES, "date", _OTHER_TIME.format(seconds=seconds)):
            yield

    @contextmanager
    def slow_container(self, seconds: float) -> Iterator[None]:
        """Delay entering an image on the compute nodes by so much."""
        with (
            self._wrapper(COMPUTE_NODES, "apptainer", _SLOW_CONTAINER.format(program="apptainer", seconds=seconds)),
            self._wrapper(COMPUTE_NODES, "singularity", _SLOW_CONTAINER.format(program="singularity", seconds=seconds)),
        ):
            yield

    @contextmanager
    def no_container_command(self, *boxes: str) -> Iterator[None]:
        """Remove all commands that run images on these boxes (default: the login and compute nodes)."""
        with self._changed(boxes or (*LOGIN_NODES, *COMPUTE_NODES), _HIDE_RUNTIMES, _SHOW_RUNTIMES):
            yield

    @contextmanager
    def _wrapper(self, boxes: tuple[str, ...], program: str, script: str) -> Iterator[None]:
        path = f"{_WRAPPERS}/{program}"
        put = f"printf %s {shlex.quote(script)} >{path}.new; chmod 755 {path}.new; mv {path}.new {path}"
        with self._changed(boxes, put, f"rm -f {path}"):
            yield

    # ---- homes -----------------------------------------------------------------------------------------------

    @contextmanager
    def start_up_file(self, user: str, name: str, text: str) -> Iterator[None]:
        """Replace a start-up file of a user's shell on the cluster, such as `.bashrc`, by this text."""
        path = f"{USERS[user].home}/{name}"
        put = f"[ ! -e {path} ] || mv {path} {path}-elsewhere; printf %s {shlex.quote(text)} >{path}"
        with self._changed(["login"], put, f"rm -f {path}; [ ! -e {path}-elsewhere ] || mv {path}-elsewhere {path}"):
            yield

    @contextmanager
    def full_home(self, user: str, *, inodes: bool = False) -> Iterator[None]:
        """Fill a user's home to the last byte, and free it again; only ivan's is small enough.

        Empty files and directories can still be created; with `inodes`, not even those.
        """
        if USERS[user].home_mebibytes is None:
            raise ClusterError(f"The home of {user} is no file system of its own.")
        home = USERS[user].home
        fill = [_FILL, *([_FILL_INODES] if inodes else [])]
        with self._changed(["login"], "; ".join(fill).format(home=home), _FREE.format(home=home)):
            yield

    @contextmanager
    def read_only_home(self, user: str, *boxes: str) -> Iterator[None]:
        """Make a user's home read-only on these boxes (default: all compute nodes).

        Processes whose working directory is there, or that have a file open there, can still write.
        """
        home = USERS[user].home
        with self._changed(boxes or COMPUTE_NODES, _READ_ONLY.format(home=home), f"umount -l {home}"):
            yield
