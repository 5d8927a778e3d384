"""A proxy command as a byte stream to a server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.ssh_config import SshSettings


class ProxyCommand:
    """A proxy command as a ``ByteStream``: its standard input and output are one end of a socket pair.

    paramiko's own class never notices that the command has ended, and does not work on Windows. The command runs in a
    session of its own, so that Ctrl-C in our terminal does not cut the connection that cancels the job.
    """

    def __init__(self, command: str, leads_to: str) -> None:
        ours, theirs = socket.socketpair()
        windows = os.name == "nt"
        shell = os.environ.get("COMSPEC", "cmd.exe") if windows else _shell()
        argv: str | list[str] = f'"{shell}" /d /s /c "{command}"' if windows else [shell, "-c", f"exec {command}"]
        ends: int = subprocess.PIPE if windows else theirs.fileno()
        try:
            self._child = subprocess.Popen(
                argv, stdin=ends, stdout=ends, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            ours.close()
            theirs.close()
            raise ConnectionFailed(
                f"The ProxyCommand that leads to {leads_to} cannot be run.", why=str(error)
            ) from None
        if windows:  # a socket there has no file descriptor
            for carry in (_carry_in, _carry_out):
                threading.Thread(target=carry, args=(self._child, theirs), daemon=True).start()
        else:
            theirs.close()
        self._last_error = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.send, self.sendall, self.recv = ours.send, ours.sendall, ours.recv
        self.shutdown, self.settimeout, self.fileno = ours.shutdown, ours.settimeout, ours.fileno
        self._socket = ours

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._child.stderr or ():
                self._last_error = line.strip() or self._last_error

    def last_message(self) -> str | None:
        """Return the last line of the command's standard error, or its exit code; ``None`` while it runs."""
        try:
            code = self._child.wait(0.5)  # its output ends shortly before it does
        except subprocess.TimeoutExpired:
            return None
        self._listener.join(0.5)  # its child processes may hold its standard error open
        return printable(self._last_error.decode(errors="replace")) or f"exit code {code}"

    def close(self) -> None:
        """Close the stream and end the command with its children; it may have ended already."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(0.2)  # usually it ends with its input
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):  # not on Windows
                os.killpg(self._child.pid, signal.SIGTERM)
            elif self._child.poll() is None:
                self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2)


def _shell() -> str:
    """Return the user's shell, with which OpenSSH runs proxy commands."""
    shell = os.environ.get("SHELL", "")
    return shell if os.access(shell, os.X_OK) else "/bin/sh"


def _carry_in(child: subprocess.Popen[bytes], theirs: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while child.stdin and (data := theirs.recv(65536)):
            child.stdin.write(data)
    with contextlib.suppress(OSError, ValueError):
        if child.stdin:
            child.stdin.close()


def _carry_out(child: subprocess.Popen[bytes], theirs: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while child.stdout and (data := child.stdout.read(65536)):
            theirs.sendall(data)
    with contextlib.suppress(OSError):
        theirs.shutdown(socket.SHUT_RDWR)


def expanded(command: str, settings: SshSettings) -> str:
    """Return the command with its tokens (``%h``, ``%p`` …) replaced, as ssh does."""
    tokens = {
        "%h": settings.hostname,
        "%p": str(settings.port),
        "%r": settings.user,
        "%n": settings.destination.rpartition("@")[2],
        "%k": settings.host_key_alias or settings.destination.rpartition("@")[2],
        "%%": "%",
    }
    return re.sub("%.", lambda found: tokens.get(found[0], found[0]), command)
