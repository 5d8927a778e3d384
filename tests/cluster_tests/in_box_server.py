"""Run by root in a box: fork for each command, with the launcher already imported. Standard input is a Unix socket.

Each message requests one command: its words, user and environment. With it come the file descriptors of the command's
standard input, output and error, and of a socket. Each byte received on this socket is the number of a signal for the
command, the end of input means SIGKILL, and the command's exit status is written to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import termios
import time
from typing import Any

PR_SET_DUMPABLE = 4


@functools.cache
def import_launcher() -> None:
    """Import all modules that ``launch-notebook`` may need, so that no fork has to import them."""
    import notebook_launcher

    names = [module.name for module in pkgutil.walk_packages(notebook_launcher.__path__, "notebook_launcher.")]
    for name in ("paramiko", *names):
        if not name.startswith("notebook_launcher.bench"):  # these take as long as all others together
            importlib.import_module(name)
    gc.freeze()


def serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not text:
            return
        request = json.loads(text)
        if request["launcher"]:
            import_launcher()
        if not os.fork():
            watch(request, *files)
        for one in files:
            os.close(one)


def watch(request: dict[str, Any], *files: int) -> None:
    """Start a command, pass signals on to it, and report its exit status."""
    *streams, report = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if not program:
        become(request, streams)
        run_launcher(request["words"]) if request["launcher"] else execute(request["words"])
    for one in streams:
        os.close(one)
    handle = os.pidfd_open(program)
    while handle not in select.select([report, handle], [], [])[0]:
        number = os.read(report, 1)
        os.kill(program, number[0] if number else signal.SIGKILL)
        if not number:
            break
    _, status = os.waitpid(program, 0)
    with contextlib.suppress(OSError):
        os.write(report, str(status).encode())
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Become a process of the user in a new session, with these streams; a terminal becomes the controlling one."""
    os.setsid()
    for number, one in enumerate(streams):
        os.dup2(one, number)
    os.closerange(3, 64)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if request["uid"]:
        os.setgroups([request["uid"]])
        os.setgid(request["uid"])
        os.setuid(request["uid"])
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # its files in /proc belong to the user, as after an exec
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        os.chdir(os.environ["HOME"])
    except OSError:
        os.chdir("/")


def execute(words: list[str]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def run_launcher(words: list[str]) -> None:
    """Run ``launch-notebook``'s main function."""
    from notebook_launcher.cli import main
    from notebook_launcher.cli.views import errors

    sys.stdin = os.fdopen(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, sys.stdout.encoding, sys.stdout.errors)
    sys.stderr = os.fdopen(2, "w", 1, sys.stderr.encoding, sys.stderr.errors)
    errors._BEGAN = time.monotonic()
    sys.argv = ["/usr/local/bin/launch-notebook", *words]
    main()


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
