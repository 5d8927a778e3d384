"""The practice cluster as one object, for the command line and the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import (
    assembly,
    boxes,
    cache,
    home_quotas,
    host_access,
    network,
    processes,
    recipes,
    rolling,
    slurm,
    slurm_service_faults,
    state,
)
from .errors import ClusterError, NotPossibleHereError, NotUpError
from .faults import Faults
from .layout import BOXES, COMPUTE_NODES, DEFAULT_GENERATION, GENERATIONS, USERS, Generation
from .processes import InBox
from .progress import say

HERE = Path(__file__).resolve().parent
NEEDED_PROGRAMS = (
    *("apt-get", "apt-config", "dpkg", "perl", "tar", "chroot"),
    *("unshare", "nsenter", "setsid", "mount", "ip"),
)
# Settings of various kernels that can prevent ordinary users from creating user namespaces, and the value that does.
USER_NAMESPACE_SETTINGS = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
# Not --clusters: that queries the database first, which is slow, and may be unavailable.
_SQUEUE = " && ".join(
    f"SLURM_CONF={slurm.CONFIGURATION[name]} squeue -h -o '%i{suffix}'"
    for name, suffix in ((slurm.MAIN, ""), (slurm.SNOWY, f";{slurm.SNOWY}"))
)


class PracticeCluster(Faults):
    """A Slurm cluster on this machine, of the given generation ("24.11" or "22.05").

    Creating the object does nothing; another program may have started the cluster. `Faults` has the methods that change
    a running one.

        cluster = PracticeCluster()
        cluster.up()
        cluster.run("login", "alice", ["sbatch", "--wrap", "hostname"], check=True)
        cluster.down()
    """

    def __init__(self, generation: str = DEFAULT_GENERATION) -> None:
        if generation not in GENERATIONS:
            raise ClusterError(f"There is no Slurm {generation} here, only {' and '.join(GENERATIONS)}.")
        self.generation = generation
        self.directory = state.directory(generation)

    # ---- starting and stopping -------------------------------------------------------------------------------

    def build(self) -> None:
        """Build what is missing in the cache, without starting anything."""
        if GENERATIONS[self.generation].is_rolling:
            _prepare_to_build()
            rolling.build_newest(self.generation, self._provide)
        else:
            build_together([self.generation])

    @staticmethod
    def _provide(generation: Generation) -> None:
        cache.provide(recipes.artefacts(generation).all(), state.artefacts_in_use())

    def up(self, *, pam_slurm: bool = False, until_end_of: int | None = None) -> None:
        """Start the cluster, building what is missing; a healthy one is left alone, a damaged one replaced.

        One that was started from another checkout is replaced as well, because it has that checkout's launcher.

        With `pam_slurm`, compute nodes accept ssh logins only from users who have a job there. With `until_end_of`, the
        cluster goes down when that process ends, in whatever way.
        """
        check_machine()
        state.prepare_root()
        with self._locked(), _plain_umask():
            found = state.load(self.generation)
            is_wanted = found.pam_slurm == pam_slurm and _has_this_checkout(found)
            if found.is_healthy() and is_wanted and self._answers():
                say(f"The practice cluster (Slurm {self.generation}) is up already.")
                return
            self._clean()
            if rolling.is_built(self.generation):
                check_tools()
                self._provide(rolling.generation(self.generation))
            else:
                self.build()
            try:
                self._start(pam_slurm)
            except BaseException:
                processes.end_all(self.directory)
                raise
            if until_end_of is not None:
                self._end_with(until_end_of)

    def down(self) -> bool:
        """Stop the cluster and remove everything it left, except for the cache. Return whether anything was there."""
        check_machine()
        state.prepare_root()
        with self._locked():
            was_there = self.directory.exists()
            profile = Path(name) if (name := state.load(self.generation).profile) else None
            had_profile = profile is not None and profile.exists()
            self._clean()
            if had_profile:
                host_access.forget_profile(profile)
            return was_there

    def is_up(self) -> bool:
        """Return whether the cluster was started completely and all its boxes are running."""
        return state.load(self.generation).is_healthy()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with cache.locked(state.RUN_ROOT / f"{self.generation}.lock", "starts or stops this cluster"):
            yield

    def _answers(self) -> bool:
        """Return whether Slurm answers, and the login node can be reached from the laptop: no link is unplugged."""
        greeting = ["bash", "-c", "read -r -t 5 line </dev/tcp/login/22"]
        try:
            slurm_answers = self.run("login", "alice", ["squeue", "-M", slurm.BOTH], timeout=10).returncode == 0
            return slurm_answers and self.run("laptop", "alice", greeting, timeout=5).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _clean(self) -> None:
        found = state.load(self.generation)
        processes.end_all(self.directory, found.alive().values())
        slurm_service_faults.remove_cgroup(self.directory)
        host_access.remove_files(self.directory, Path(found.profile) if found.profile else None)
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def _start(self, pam_slurm: bool) -> None:
        generation = rolling.generation(self.generation)
        parts = recipes.artefacts(generation)
        record = state.State(pam_slurm=pam_slurm, artefacts=[str(part.path) for part in parts.all()])
        self.directory.mkdir()
        state.save(self.generation, record)
        plans = assembly.prepare(self.directory, parts, generation)
        with (
            home_quotas.mounted(self.directory / "home", self.directory) as mounts_of,
            ThreadPoolExecutor(max_workers=len(plans)) as pool,
        ):
            pids = list(pool.map(lambda plan: boxes.start(plan, self.directory, mounts_of), plans))
        for plan, pid in zip(plans, pids, strict=True):
            record.remember(plan.name, pid)
        record.remember("switch", network.start(self.directory, {name: record.pid(name) for name in BOXES}))
        state.save(self.generation, record)
        say("boxes and networks are up")
        slurm.Starter(self._checked_root).start(pam_slurm=pam_slurm)
        say("Slurm is up")
        opened = host_access.open_door(
            self.generation, self.directory, assembly.keys(self.directory), record.pid("laptop")
        )
        record.remember("door", opened.pid)
        record.door_text = host_access.explain(opened)
        record.profile = str(opened.profile) if opened.profile else None
        record.complete = True
        state.save(self.generation, record)
        say(f"The practice cluster (Slurm {self.generation}) is up.")

    def _end_with(self, pid: int) -> None:
        """Start a process that takes the cluster down when process `pid` has ended."""
        down = [sys.executable, str(HERE), "down", "--slurm", self.generation, "--after", str(pid)]
        subprocess.run(
            ["sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh", "setsid", *down],
            env={**os.environ, processes.MARK: str(self.directory)},
            check=True,
            cwd="/",
        )

    # ---- running commands ------------------------------------------------------------------------------------

    def argv(
        self,
        box: str,
        user: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        login: bool = True,
    ) -> list[str]:
        """Return the host's command line that runs `argv` in a box as a user (or as root), in the user's home.

        There is no new session and no new terminal: under pexpect, Ctrl-C and hang-up reach the program. With `login`,
        a login shell reads the profile, and then execs the program. The environment is the user's own plus `env`; only
        TERM comes from the caller.
        """
        if user != "root" and user not in USERS:
            raise ClusterError(f"There is no user {user} here, only {', '.join(USERS)} and root.")
        return boxes.argv(self._pid(box), user, argv, env=env, login=login)

    def laptop_argv(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs one of the HOST's programs in the laptop's network (a browser)."""
        return boxes.network_argv(self._pid("laptop"), argv, self.directory / "hosts.laptop")

    def run(
        self,
        box: str,
        user: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        login: bool = True,
        input: str | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` as in `argv()` and return its output; the other arguments are those of subprocess.run.

        Bytes that are not UTF-8, which frank's site prints, are decoded as surrogates.
        """
        return subprocess.run(
            self.argv(box, user, argv, env=env, login=login),
            input=input or "",
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=check,
        )

    def root(
        self,
        box: str,
        argv: Sequence[str],
        *,
        input: str | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` as root in a box, without a login shell."""
        return self.run(box, "root", argv, login=False, input=input, timeout=timeout, check=check)

    def processes(self, box: str) -> list[tuple[int, str, str]]:
        """Return (pid, user, arguments) of every process as seen inside the box."""
        (found,) = processes.in_boxes(self._pid(box))
        return [(one.pid, self._user_name(one.uid), one.args) for one in found]

    def processes_of_people(self, *which: str) -> list[tuple[str, str, str]]:
        """Return (box, user, arguments) of the processes of ordinary users in these boxes."""
        return [(box, self._user_name(one.uid), one.args) for box, one in self._of_people(which)]

    def kill_people(self, *which: str) -> None:
        """Kill what ordinary users run in these boxes."""
        processes.end(one.host_pid for _, one in self._of_people(which))

    def _of_people(self, which: Sequence[str]) -> list[tuple[str, InBox]]:
        uids = {user.uid for user in USERS.values()}
        found = processes.in_boxes(*map(self._pid, which))
        return [(box, one) for box, ours in zip(which, found, strict=True) for one in ours if one.uid in uids]

    def _user_name(self, uid: int) -> str:
        return next((name for name, user in USERS.items() if user.uid == uid), "root" if uid == 0 else str(uid))

    def squeue(self) -> list[str]:
        """Return the ids of all jobs that wait or run: "7" on the main cluster, "7;snowy" on the second one.

        Where there is Grid Engine, its jobs.
        """
        if self.has_grid_engine:
            return self.grid_engine_jobs()
        return self.root("login", ["sh", "-c", _SQUEUE], check=True).stdout.split()

    def is_idle(self) -> bool:
        """Whether no job waits or runs, and every node of the main cluster is in service: all in one look."""
        if self.has_grid_engine:
            return not self.grid_engine_jobs()
        look = f"{_SQUEUE} && sinfo -h -N -n {','.join(COMPUTE_NODES)} -o '%N %T'"
        lines = self.root("login", ["sh", "-c", look], check=True).stdout.splitlines()
        return all(line.endswith(" idle") for line in lines)

    def _pid(self, box: str) -> int:
        if box not in BOXES:
            raise ClusterError(f"There is no box {box} here, only {', '.join(BOXES)}.")
        alive = state.load(self.generation).alive()
        if box not in alive:
            raise NotUpError(
                f"The practice cluster (Slurm {self.generation}) is not up: python3 tests/practice_cluster up"
            )
        return alive[box]

    def _checked_root(self, box: str, argv: Sequence[str], *, stdin: str = "") -> str:
        return _output(box, argv, self.root(box, argv, input=stdin))

    def _checked_run(self, box: str, user: str, argv: Sequence[str]) -> str:
        return _output(box, argv, self.run(box, user, argv, login=False))


def _has_this_checkout(found: state.State) -> bool:
    """Return whether people start this checkout's launcher there."""
    try:
        return recipes.CHECKOUT.samefile(f"/proc/{found.pid('laptop')}/root{recipes.CHECKOUT_IN_BOX}")
    except (KeyError, OSError):
        return False


def _output(box: str, argv: Sequence[str], result: subprocess.CompletedProcess[str]) -> str:
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip() or "nothing").splitlines()[-1]
        raise ClusterError(f"On {box}, '{argv[-1] if argv[0] == 'sh' else ' '.join(argv)}' failed: {said}")
    return result.stdout


def build_together(generations: Sequence[str], images: Sequence[cache.Artefact] = ()) -> None:
    """Build what is missing for clusters of these generations, and the images, several parts at a time.

    None of the generations may be rolling.
    """
    _prepare_to_build()
    parts = [part for name in generations for part in recipes.artefacts(GENERATIONS[name]).all()]
    cache.provide([*parts, *images], state.artefacts_in_use())


def _prepare_to_build() -> None:
    check_machine()
    check_tools()
    state.prepare_root()


def check_machine() -> None:
    """Raise NotPossibleHereError, with what to do, if this machine cannot hold a practice cluster."""
    if sys.platform != "linux":
        raise NotPossibleHereError("The practice cluster is made of Linux namespaces and needs Linux.")
    if os.geteuid() != 0:
        raise NotPossibleHereError("The practice cluster needs root: run it with sudo.")


def check_tools() -> None:
    """Raise NotPossibleHereError if programs or permissions for building and starting a cluster are missing."""
    missing = [program for program in NEEDED_PROGRAMS if shutil.which(program) is None]
    if missing:
        raise NotPossibleHereError(f"The practice cluster needs programs this machine lacks: {', '.join(missing)}.")
    for setting, forbids in USER_NAMESPACE_SETTINGS.items():
        path = Path("/proc/sys") / setting
        if path.exists() and path.read_text().strip() == forbids:
            name = setting.replace("/", ".")
            raise NotPossibleHereError(
                f"Apptainer needs user namespaces, which {name} = {forbids} forbids on this machine."
            )


@contextmanager
def _plain_umask() -> Iterator[None]:
    """Let others read the files that are created, whatever the caller's umask is."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)
