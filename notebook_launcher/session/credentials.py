"""The credentials of one session: JupyterLab's token, and keys for the SSH server in its job and for its clients.

The server's key is in the session's directory. A client's private key never leaves the machine of the launcher that
made it; each client adds its public key to ``authorized_keys`` there.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import field

from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import Host

_ALLOWED = "restrict,port-forwarding"


class Access(Frozen):
    """JupyterLab's token, and keys for the session's SSH server, made when first needed."""

    token: str = field(repr=False)
    keys: Callable[[], SessionKeys]


def new_token() -> str:
    """Return a token for a new session: 256 bits from the system's random source."""
    return secrets.token_urlsafe(32)


def read_access(host: Host, directory: str) -> Access:
    """Return the credentials of an existing session. Raises ``HostCommandFailed``."""
    token = (host.read_file(f"{directory}/token") or b"").decode(errors="replace").strip()
    return Access(token, functools.cache(lambda: join_keys(host, directory)))


class SessionKeys(Frozen):
    """``client``: our private key in OpenSSH's format. ``host``: the server's public key (``type base64``)."""

    client: str = field(repr=False)
    host: str


def new_keys() -> tuple[SessionKeys, Mapping[str, bytes]]:
    """Return keys for a new session, and the files for its directory."""
    client, client_public = _pair()
    host, host_public = _pair()
    files = {
        "ssh_host_key": host.encode(),
        "ssh_host_key.pub": f"{host_public}\n".encode(),
        "authorized_keys": f"{_ALLOWED} {client_public}\n".encode(),
    }
    return SessionKeys(client, host_public), files


def join_keys(host: Host, directory: str) -> SessionKeys:
    """Add a new client key to an existing session. Raises ``HostCommandFailed``."""
    client, public = _pair()
    answer = host.run(["sh", "-c", _JOIN, "join-keys", directory], stdin=f"{_ALLOWED} {public}\n".encode())
    words = answer.stdout.split()
    if answer.exit_code != 0 or len(words) < 2:
        raise HostCommandFailed(f"No key could be added in {directory}.", why=answer.stderr.strip())
    return SessionKeys(client, " ".join(words[:2]))


# The empty line: the last line there may not be terminated. A session started by hand has no server key yet; `ln` lets
# one of several launchers win, and the public half is read from the winner's key.
_JOIN = (
    'umask 077; cd -- "$1" && { echo; cat; } >>authorized_keys || exit 1; '
    "[ -s ssh_host_key ] || [ ! -e ssh_host_key ] || rm -f ssh_host_key ssh_host_key.pub; "
    '[ -s ssh_host_key ] || { ssh-keygen -q -t ed25519 -N "" -C "" -f "new_key.$$" >&2 </dev/null || exit 1; '
    'ln "new_key.$$" ssh_host_key 2>/dev/null; rm -f "new_key.$$" "new_key.$$.pub"; }; '
    '[ -s ssh_host_key.pub ] || { ssh-keygen -y -f ssh_host_key >"new_key.$$.pub" && '
    'mv -f "new_key.$$.pub" ssh_host_key.pub; } || exit 1; '
    "cat ssh_host_key.pub"
)


def _pair() -> tuple[str, str]:
    """Return a new private key in OpenSSH's format, and its public half as one line."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()
