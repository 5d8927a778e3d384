"""Whether this terminal is an SSH login, and what opens a local port of this machine on the user's own computer."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

STANDARD_PORT = 22


@dataclass(frozen=True)
class SshLogin:
    """A login by SSH: ``user``, and this machine's name or address and port as the user's computer reaches them."""

    user: str
    host: str
    port: int = STANDARD_PORT

    @property
    def destination(self) -> str:
        """``user@host``."""
        return f"{self.user}@{self.host}"

    def forward_command(self, local_port: int) -> str:
        """Return what is typed on the user's computer, so that a port of 127.0.0.1 there leads to the same one here."""
        port = "" if self.port == STANDARD_PORT else f"-p {self.port} "
        return f"ssh -N -L {local_port}:127.0.0.1:{local_port} {port}{self.destination}"


def ssh_login(
    environ: Mapping[str, str], user: str, addresses_of: Callable[[str], set[str]] | None = None
) -> SshLogin | None:
    """Return the login that this terminal came by; ``None`` if a browser is within reach without another tunnel.

    That is so on one's own machine, in a graphical session of this one (ThinLinc, X), and in the terminal of Visual
    Studio Code, which forwards ports by itself. sshd sets ``SSH_CONNECTION`` (ssh(1)): the addresses and ports of both
    ends. This machine's full name is used only if it leads to that very address; behind the name that was typed may be
    several login nodes, and the port is open on this one alone.
    """
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4 or environ.get("TERM_PROGRAM") == "vscode" or has_display(environ):
        return None
    try:
        address, port = str(ipaddress.ip_address(words[2])), int(words[3])
    except ValueError:
        return None
    name = socket.getfqdn()
    known = "." in name and address in (addresses_of or _addresses_of)(name)
    return SshLogin(user, name if known else address, port)


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether this machine shows windows to the user; not where X is forwarded by SSH (``localhost:10.0``)."""
    return environ.get("DISPLAY", "").startswith((":", "unix:")) or bool(environ.get("WAYLAND_DISPLAY"))


def _addresses_of(name: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()
