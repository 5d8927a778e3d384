"""Detects an SSH login, and builds the commands that reach a port of this machine from the user's own computer."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import threading
from collections.abc import Callable, Mapping

from notebook_launcher.core.frozen import Frozen

STANDARD_PORT = 22
NAME_WITHIN = 2.0  # seconds to wait for a name server; without an answer the address is used


class SshLogin(Frozen):
    """A login by SSH: ``user``, and this machine's name or address and port as the user's computer reaches them."""

    user: str
    host: str
    port: int = STANDARD_PORT

    def forward_command(self, local_port: int) -> str:
        """Return the command for the user's computer that forwards a port of 127.0.0.1 there to the same port here."""
        port = [] if self.port == STANDARD_PORT else ["-p", str(self.port)]
        there = f"{local_port}:127.0.0.1:{local_port}"
        return shlex.join(["ssh", "-N", "-L", there, *port, f"{self.user}@{self.host}"])

    def connect_command(self, session: str) -> str:
        """Return the command for the user's computer, if it has the launcher, that attaches to a session."""
        end = session[-4:]
        host = self.host if self.port == STANDARD_PORT else f"{self._in_brackets}:{self.port}"
        name = session if end.isdecimal() else end  # digits alone would be read as a job id
        return shlex.join(["launch-notebook", "connect", "--host", f"{self.user}@{host}", name])

    @property
    def _in_brackets(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def ssh_login(
    environ: Mapping[str, str],
    user: Callable[[], str | None],
    addresses_of: Callable[[str], set[str]] | None = None,
) -> SshLogin | None:
    """Return the SSH login of this terminal; ``None`` if the user's browser needs no tunnel to this machine.

    It needs none on the user's own machine, in a graphical session on this one (ThinLinc, X), and in the terminal of
    Visual Studio Code, which forwards ports by itself. sshd sets ``SSH_CONNECTION`` (ssh(1)): the addresses and ports
    of both ends. This machine's full name is used only if it resolves to that very address: the name that the user
    typed may stand for several login nodes, and the port is open on this one only.
    """
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4 or environ.get("TERM_PROGRAM") == "vscode" or has_display(environ):
        return None
    try:
        address, port = ipaddress.ip_address(words[2]), int(words[3])
    except ValueError:
        return None
    name = user()
    if name is None or getattr(address, "scope_id", None) or not 0 < port < 65536:
        return None  # the scope of a link-local address names a network card of this machine
    return SshLogin(name, _full_name(str(address), addresses_of or _addresses_of) or str(address), port)


def _full_name(address: str, addresses_of: Callable[[str], set[str]]) -> str:
    """Return this machine's full name if it resolves to the address; "" if it does not, or no name server answers."""
    found: list[str] = []

    def look() -> None:
        name = socket.getfqdn()
        if "." in name and address in addresses_of(name):
            found.append(name)

    thread = threading.Thread(target=look, name="full-name", daemon=True)
    thread.start()
    thread.join(NAME_WITHIN)
    return found[0] if found else ""


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether this machine has a display of its own; X forwarded by SSH (``localhost:10.0``) does not count."""
    return environ.get("DISPLAY", "").startswith((":", "unix:")) or bool(environ.get("WAYLAND_DISPLAY"))


def _addresses_of(name: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()
