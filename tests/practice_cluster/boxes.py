"""Boxes: machines made of Linux namespaces. Starts them, and makes the command lines that enter them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import processes
from .errors import ClusterError
from .layout import USERS, BoxPlan

HERE = Path(__file__).resolve().parent
NAMESPACES = ("mnt", "uts", "ipc", "net", "pid")
# enter_box.py as a module, so that Python caches its bytecode; without site-packages
ENTER = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    f"import sys; sys.path.append({str(HERE)!r}); import enter_box; enter_box.main()",
)


def start(plan: BoxPlan, mark: Path, mounts_of: int | None = None) -> int:
    """Start a box, and return the host's process id of its first process, once its services run.

    `mark` is the directory by which leftovers are found later. The box outlives this program. `mounts_of`: a process
    in whose mount namespace the sources of bind mounts are looked up; by default the host's.
    """
    plan.state.mkdir(parents=True, exist_ok=True)
    lines = [f"{'rw' if b.writable else 'ro'}\t{b.source}\t{b.target}\n" for b in plan.binds]
    (plan.state / "binds").write_text("".join(lines))
    entry = ["nsenter", f"--mount=/proc/{mounts_of}/ns/mnt"] if mounts_of else []
    argv = ["setsid", "--fork", *entry, "unshare", "--fork", "--kill-child"]
    argv += ["--pid", "--mount", "--uts", "--ipc", "--net"]
    argv += ["/bin/bash", str(HERE / "box.sh"), plan.name, str(plan.rootfs), str(plan.state), " ".join(plan.devices)]
    log = plan.state / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*argv, *plan.services],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PATH": os.environ.get("PATH", os.defpath), processes.MARK: str(mark)},
            text=True,
            cwd="/",
        )
    # Read one line, not to the end: the outer `unshare` keeps the pipe open for as long as the box lives.
    with process:
        answer = process.stdout.readline().split() if process.stdout else []
    if len(answer) != 2 or answer[0] != "ready":
        raise ClusterError(f"The box {plan.name} did not start: {_last_line(log)} (all of it is in {log}).")
    return int(answer[1])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


def argv(
    pid: int,
    user: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    login: bool = True,
) -> list[str]:
    """Return the command line on the host that runs `command` in the box whose first process is `pid`.

    With `login`, a login shell reads its profile first (which defines `module`), and then execs the command. The
    working directory is the user's home. See enter_box.py for terminals and signals.
    """
    who = "root:0:/root" if user == "root" else f"{user}:{USERS[user].uid}:{USERS[user].home}"
    entry = [*ENTER, "--pid", str(pid)]
    entry += ["--namespaces", ",".join(NAMESPACES), "--user", who]
    shell_of = {} if user == "root" else {"SHELL": USERS[user].shell}
    for name, value in (shell_of | dict(env or {})).items():
        entry += ["--env", f"{name}={value}"]
    shell = ["/bin/bash", "-l", "-c", 'exec "$@"', "bash"] if login else []
    return [*entry, "--", *shell, *command]


def network_argv(pid: int, command: Sequence[str], hosts: Path) -> list[str]:
    """Return the command line that runs one of the host's own programs in the network of a box."""
    entry = [*ENTER, "--pid", str(pid)]
    return [*entry, "--namespaces", "net,uts", "--hosts", str(hosts), "--", *command]
