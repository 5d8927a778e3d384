"""The command line: python3 tests/practice_cluster up, down, status, ..."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from . import bundled_images, state
from .cluster import PracticeCluster, build_together, check_machine
from .errors import ClusterError
from .layout import BOXES, COMPUTE_NODES, DEFAULT_GENERATION, GENERATIONS, USERS
from .progress import say
from .slow_storage import MILLISECONDS
from .totp import one_time_code

SHELL = ["/bin/bash", "-l"]

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 3 if this machine cannot hold a cluster, 1 for other errors."""
    options = _parser().parse_args(arguments)
    # root's PATH may lack these directories.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    # SIGTERM cleans up an incomplete start, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    cluster = PracticeCluster(options.slurm or _meant(options) or DEFAULT_GENERATION)
    try:
        check_machine()
        return int(options.command(cluster, options))
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, for instance `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


def _meant(options: argparse.Namespace) -> str | None:
    """Return the generation that is up, if there is exactly one: then only `up` and `build` require its name."""
    if options.command in (_up, _build):
        return None
    found = [name for name in GENERATIONS if state.load(name).is_healthy()]
    return found[0] if len(found) == 1 else None


def _up(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    cluster.up(pam_slurm=options.pam_slurm, until_end_of=options.until_end_of)
    _offer_images(cluster)
    print(state.load(cluster.generation).door_text)
    return 0


def _down(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    if options.after is not None:
        _wait_for_end(options.after)
    for name in [options.slurm] if options.slurm else GENERATIONS:
        if PracticeCluster(name).down():
            say(f"The practice cluster (Slurm {name}) is down.")
        elif name == cluster.generation:
            say(f"The practice cluster (Slurm {name}) was not up.")
    return 0


def _wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([handle], [], [])


def _build(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    generations = options.generations or [cluster.generation]
    for name in generations:
        if GENERATIONS[name].is_rolling:
            PracticeCluster(name).build()
    lasting = [name for name in generations if not GENERATIONS[name].is_rolling]
    build_together(lasting, [bundled_images.image(name, generations[0]) for name in options.image])
    for built in map(PracticeCluster, generations):
        if options.image and built.is_up():
            _offer_images(built)
    say("Everything is built.")
    return 0


def _offer_images(cluster: PracticeCluster) -> None:
    if offered := bundled_images.offer_built_images(cluster):
        say(f"The profile practice offers the environments {', '.join(offered)}, as their images are built.")


def _status(cluster: PracticeCluster, _options: argparse.Namespace) -> int:
    record = state.load(cluster.generation)
    if not record.pids:
        print(f"The practice cluster (Slurm {cluster.generation}) is not up.")
        return 1
    alive = record.alive()
    for name in record.pids:
        print(f"{name:8} {f'up, process {alive[name]}' if name in alive else 'GONE'}")
    if not record.is_healthy():
        print("It is damaged; `up` starts it anew.")
        return 1
    for name in ("practice", "snowy"):
        print(cluster.run("login", "alice", ["sinfo", "-M", name, "-o", "%10P %5a %12l %6D %10t %N %G"]).stdout)
    print(record.door_text)
    return 0


def _run(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    return _become(cluster.argv(options.box, options.user, options.argv or SHELL))


def _root(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    return _become(cluster.argv(options.box, "root", options.argv or SHELL, login=False))


def _laptop(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    return _become(cluster.laptop_argv(options.argv or SHELL))


def _unplug(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    cluster.unplug(options.box, carrier=not options.no_carrier)
    return 0


def _plug(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    cluster.plug(options.box)
    return 0


def _slow(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    cluster.speed_up(options.folder, COMPUTE_NODES)
    if options.milliseconds:
        cluster.slow_down(options.folder, COMPUTE_NODES, options.milliseconds)
    return 0


def _restart_sshd(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    cluster.restart_sshd(options.box)
    return 0


def _code(_cluster: PracticeCluster, options: argparse.Namespace) -> int:
    print(one_time_code(options.user))
    return 0


def _become(argv: list[str]) -> NoReturn:
    os.execvp(argv[0], argv)


_SHOW_LOGS = """
cd /var/log
for log in slurm/*.log munge/*.log mariadbd.log; do
    if [ -s "$log" ]; then tail -n "$0" "$log" | sed "s|^|$log: |"; fi
done
"""


def _logs(cluster: PracticeCluster, options: argparse.Namespace) -> int:
    for box in BOXES:
        lines = cluster.root(box, ["sh", "-c", _SHOW_LOGS, str(options.lines)]).stdout
        for line in lines.splitlines():
            print(f"{box} {line}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 tests/practice_cluster",
        description="A practice cluster on this machine: Slurm, OpenSSH, Apptainer.",
    )
    parser.set_defaults(slurm=None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("--slurm", choices=list(GENERATIONS), help=f"which generation (default {DEFAULT_GENERATION})")

    up = commands.add_parser("up", parents=[which], help="start the cluster, building what is missing")
    up.add_argument("--pam-slurm", action="store_true", help="no ssh to a compute node without a job there")
    up.add_argument("--until-end-of", type=int, metavar="PID", help="go down when this process ends")
    up.set_defaults(command=_up)
    down = commands.add_parser("down", parents=[which], help="end the cluster and remove what it left")
    down.add_argument("--after", type=int, metavar="PID", help="wait for the end of this process first")
    down.set_defaults(command=_down)
    build = commands.add_parser("build", help="build what is missing, start nothing")
    build.add_argument("--slurm", action="append", choices=list(GENERATIONS), dest="generations",
                       help=f"which generation (repeatable; default {DEFAULT_GENERATION})")  # fmt: skip
    build.add_argument("--image", action="append", default=[], choices=bundled_images.REQUIREMENTS, metavar="NAME",
                       help="also an image of a definition that is shipped (repeatable; takes minutes)")  # fmt: skip
    build.set_defaults(command=_build)
    status = commands.add_parser("status", parents=[which], help="say what is up")
    status.set_defaults(command=_status)
    logs = commands.add_parser("logs", parents=[which], help="show the ends of the services' logs")
    logs.add_argument("-n", "--lines", type=int, default=20)
    logs.set_defaults(command=_logs)

    run = commands.add_parser("run", parents=[which], help="run a command in a box, as a user with a login shell")
    run.add_argument("box", choices=list(BOXES))
    run.add_argument("user")
    root = commands.add_parser("root", parents=[which], help="run a command in a box as root")
    root.add_argument("box", choices=list(BOXES))
    laptop = commands.add_parser("laptop", parents=[which], help="run this machine's programs in the laptop's network")
    for command, action in ((run, _run), (root, _root), (laptop, _laptop)):
        command.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD", help="without: a shell")
        command.set_defaults(command=action)
    _add_faults(commands, which)
    return parser


def _add_faults(commands: Commands, which: argparse.ArgumentParser) -> None:
    unplug = commands.add_parser("unplug", parents=[which], help="let nothing through a box's link until `plug`")
    unplug.add_argument("box", choices=list(BOXES))
    unplug.add_argument("--no-carrier", action="store_true", help="the box sees it; else packets vanish silently")
    unplug.set_defaults(command=_unplug)
    plug = commands.add_parser("plug", parents=[which], help="let a box's link carry traffic again")
    plug.add_argument("box", choices=list(BOXES))
    plug.set_defaults(command=_plug)
    slow = commands.add_parser("slow", parents=[which], help="delay each open and stat in a folder on compute nodes")
    slow.add_argument("folder", help="such as /sw or /home/alice/environments")
    slow.add_argument("milliseconds", type=float, nargs="?", default=MILLISECONDS, help="2 if absent; 0: no more")
    slow.set_defaults(command=_slow)
    restart = commands.add_parser("restart-sshd", parents=[which], help="restart a box's sshd and end its sessions")
    restart.add_argument("box", choices=[name for name, box in BOXES.items() if box.has_sshd])
    restart.set_defaults(command=_restart_sshd)
    code = commands.add_parser("code", parents=[which], help="print a user's one-time code")
    code.add_argument("user", choices=[user.name for user in USERS.values() if user.totp_secret])
    code.set_defaults(command=_code)
