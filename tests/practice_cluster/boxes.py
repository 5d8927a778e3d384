"""Boxes: machines made of Linux namespaces. Starting one, ending it, and the command line that gets into it."""

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
# enter_box.py as a module, whose bytecode Python keeps, and without looking at what else is installed
ENTER = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    f"import sys; sys.path.append({str(HERE)!r}); import enter_box; enter_box.main()",
)


def start(plan: BoxPlan, mark: Path, mounts_of: int | None = None) -> int:
    """Start a box and return its first process, as the host counts, once its services run.

    `mark` is the directory by which leftovers are found later. The box outlives this program. Process `mounts_of` is
    one whose mounts the box finds when it looks for what it binds; without, they are those of the host.
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
    # One line, not everything: the outer `unshare` keeps the pipe open for as long as the box lives.
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
    """Return the command line on the host that runs `command` in the box of first process `pid`.

    With `login`, a login shell reads its profile first (that is where modules come from) and then becomes the
    command. Working directory: the user's home. See enter_box.py for terminals and signals.
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
