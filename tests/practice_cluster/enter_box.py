"""Run a program inside a box as if it had been started there, on the terminal of the caller.

    python3 enter_box.py --pid PID --namespaces mnt,uts,ipc,net,pid [--user NAME:UID:HOME] [--env NAME=VALUE]...
                     [--hosts FILE] -- PROGRAM ARG...

PID is the host's process id of the box's first process. Without --user, the caller's user and environment stay; --hosts
names a file that is mounted over /etc/hosts.

Why not nsenter: only a new child process can enter a PID namespace, so a process must stay outside and wait. nsenter
waits with the default signal handling: at Ctrl-C it dies, the caller assumes that the program has ended, and the
program in the box loses its terminal in the middle of its clean-up. This file waits properly:

- signals from the terminal (Ctrl-C, hang-up) have reached the program already, because both are in the same
  foreground process group: they are not forwarded again;
- signals sent by another process with kill() have reached only the process outside: they are forwarded;
- the exit status, or the signal that ended the program, becomes that of the process outside;
- if the process outside is killed with SIGKILL, so is the program.

There is no new session and no new terminal: isatty() is true in the box if it is true here. The tests start this
thousands of times: so it imports little and nothing of the package, and `boxes.py` lets Python cache its bytecode.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import warnings  # noqa: F401, as os.execvpe imports it, when the host's files are out of sight

TYPE_CHECKING = False  # not from typing, which takes longer to import than all the rest
if TYPE_CHECKING:
    from typing import NoReturn

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
SI_KERNEL = 0x80
FORWARDED = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
PATH_OF_USERS = "/usr/local/bin:/usr/bin:/bin"
PATH_OF_ROOT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def join_namespaces(pid: int, kinds: list[str]) -> None:
    """Move this process into the namespaces of process `pid`; the PID namespace takes effect only for children."""
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    for kind, handle in zip(kinds, handles, strict=True):
        _check(_libc.setns(handle, 0), f"cannot join the {kind} namespace")
        os.close(handle)
    if "mnt" in kinds:
        os.fchdir(root)
        os.chroot(".")
    os.close(root)


def show_hosts_file(path: str) -> None:
    """Mount `path` over /etc/hosts, only for this process and its children."""
    _check(_libc.unshare(CLONE_NEWNS), "cannot make a mount namespace")
    _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "cannot make mounts private")
    _check(_libc.mount(os.fsencode(path), b"/etc/hosts", None, MS_BIND, None), "cannot bind /etc/hosts")


def become(user: str) -> dict[str, str]:
    """Switch from root to the user `NAME:UID:HOME`, and return that user's basic environment."""
    name, uid, home = user.split(":")
    if int(uid) != 0:
        os.setgroups([int(uid)])
        os.setgid(int(uid))
        os.setuid(int(uid))
    os.umask(0o022)
    try:
        os.chdir(home)
    except OSError:
        os.chdir("/")
    return {
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/bash",
        "PATH": PATH_OF_USERS if int(uid) else PATH_OF_ROOT,
        "LANG": "C.UTF-8",
    }


def execute(argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Exec the program; exit with 127 or 126 if it cannot be started, like a shell."""
    # subprocess and pexpect leave SIGPIPE ignored in Python children; a program started by a shell has the default.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def wait_for(child: int, waiting: set[signal.Signals]) -> NoReturn:
    """Forward signals until the child ends, then end in the same way."""
    while True:
        info = signal.sigwaitinfo(waiting)
        if info.si_signo != signal.SIGCHLD:
            if info.si_code != SI_KERNEL:
                os.kill(child, info.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended == 0:
            continue
        if os.WIFSTOPPED(status):  # Ctrl-Z: stop as well, so that the caller's shell notices
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child, signal.SIGCONT)
            continue
        if os.WIFSIGNALED(status):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            number = os.WTERMSIG(status)
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
        os._exit(os.waitstatus_to_exitcode(status))


def _arguments() -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the options except --env, the variables that --env sets, and the program."""
    border = sys.argv.index("--")
    words = sys.argv[1:border]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    extra = dict(value.split("=", 1) for name, value in pairs if name == "--env")
    return {name: value for name, value in pairs if name != "--env"}, extra, sys.argv[border + 1 :]


def main() -> NoReturn:
    """Join the namespaces, fork if a PID namespace is among them, switch to the user, and run the program."""
    options, extra, argv = _arguments()
    kinds = options["--namespaces"].split(",")
    try:
        join_namespaces(int(options["--pid"]), kinds)
        if "--hosts" in options:
            show_hosts_file(options["--hosts"])
    except OSError as error:
        print(f"The box cannot be entered: {error.strerror}.", file=sys.stderr)
        sys.exit(125)
    if "pid" in kinds:
        waiting = FORWARDED | {signal.SIGCHLD}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
        child = os.fork()
        if child:
            wait_for(child, waiting)
    environment = dict(os.environ)
    if "--user" in options:
        environment = become(options["--user"])
        if "TERM" in os.environ:
            environment["TERM"] = os.environ["TERM"]
    if "pid" in kinds:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)
    execute(argv, environment | extra)


if __name__ == "__main__":
    main()
