"""The credentials of one session: JupyterLab's token, SSH keys, and TLS keys for its workers on other nodes.

The SSH server's key is in the session's directory. A client's private key never leaves the machine of the launcher that
made it; each client adds its public key to ``authorized_keys`` in the session's directory.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import Host

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_ALLOWED = "restrict,port-forwarding"


class Access(Frozen):
    """JupyterLab's token, and a function that makes keys for the session's SSH server when they are first needed."""

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
    """SSH keys. ``client``: our private key in OpenSSH's format; ``host``: the server's public key, ``type base64``."""

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


# The empty line: the last line of the file may have no newline. A session started by hand has no server key yet; `ln`
# lets only one of several launchers create it, and the public key is derived from the key that is there.
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
    """Return a new private key in OpenSSH's format, and its public key as one line."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


# --- TLS between a scheduler, its workers and its clients --------------------------------------------------------

_VALID = timedelta(days=365)  # a job may wait for weeks, and run for weeks
_CLOCK_DIFFERENCE = timedelta(days=1)


def worker_files(framework: str | None, name: str) -> Mapping[str, bytes]:
    """Return the files with which Dask's or Ray's processes of the session ``name`` authenticate each other, if any."""
    return {"dask": new_tls, "ray": new_ray_keys}[framework](name) if framework else {}


def new_tls(name: str) -> Mapping[str, bytes]:
    """Return a certificate, its key, and the authority that signed it, by file name.

    They are for all processes of the session ``name``: each presents the certificate, and accepts only certificates of
    this authority, whose own key is not kept, so that it never signs another one.
    """
    authority, key = _new_key(), _new_key()
    return {
        "dask-ca.pem": _certificate(name, authority, authority),
        "dask-cert.pem": _certificate(name, key, authority),
        "dask-key.pem": _pem(key),
    }


def new_ray_keys(name: str) -> Mapping[str, bytes]:
    """Return an authority for the session ``name`` with its key, and Ray's token, by file name.

    Each node makes its own certificate with that key (``workers_ray.sh``): Ray requires the node's address in it.
    """
    authority = _new_key()
    return {
        "ray-ca.pem": _certificate(name, authority, authority),
        "ray-ca-key.pem": _pem(authority),
        "ray-token": new_token().encode(),
    }


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate(session: str, key: EllipticCurvePrivateKey, authority: EllipticCurvePrivateKey) -> bytes:
    """Return a key's certificate, with all that OpenSSL's strict check requires; with its own key, an authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    signs, issuer, now = key is authority, f"{session} authority", datetime.now(timezone.utc)
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=signs, path_length=0 if signs else None), True),
        (_key_usage(signs=signs), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
        *([] if signs else [(x509.SubjectAlternativeName([x509.DNSName(session)]), False)]),
    ]
    builder = x509.CertificateBuilder(
        issuer_name=_common_name(issuer),
        subject_name=_common_name(issuer if signs else session),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCK_DIFFERENCE,
        not_valid_after=now + _VALID,
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)


def _common_name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    """Return the usage of a key: to sign certificates, or for connections."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
