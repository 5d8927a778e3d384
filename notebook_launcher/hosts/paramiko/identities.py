"""The keys to offer, from the agent, files and certificates: in OpenSSH's order, and unlocked only when necessary."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts import algorithms
from notebook_launcher.hosts.ssh_config import SshSettings

if TYPE_CHECKING:
    import paramiko

Sign = Callable[[bytes, str], bytes]

_CERTIFICATE = "-cert-v01@"  # between the key type and the domain
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
# the number of fields of a certificate that make up its key (PROTOCOL.certkeys)
_KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-sha2": 2, "sk-ssh-ed25519": 2, "sk-ecdsa-sha2": 3}
_MAGIC = b"openssh-key-v1\0"
_LIST_TIMEOUT = 10.0  # seconds for an agent's list; a forwarded agent may be dead
_SIGN_TIMEOUT = 120.0  # seconds for a signature: the user may have to touch a device


class Signer(Frozen):
    """A public key (or a certificate) as it is sent, and the function that signs for it."""

    blob: bytes
    sign: Sign


class Offer(Frozen):
    """A key that may be offered. ``blob``: the public key, ``None`` if it is known only after unlocking.

    ``needs_user``: the user may be asked for something before it can be used, so the server is queried first.
    ``unlock`` returns ``None`` if the key cannot be used.
    """

    source: str
    blob: bytes | None
    needs_user: bool
    unlock: Callable[[], Signer | None]


# --- files ---------------------------------------------------------------------------------------------------


class KeyFile(Frozen):
    """An identity file as stored: ``content`` is empty if there is only the public key."""

    path: Path
    content: bytes
    public: bytes | None
    locked: bool
    certificate: bytes | None


def read_key_file(path: Path, *, certificate: bool = True) -> KeyFile | None:
    """Read an identity file with its public key file and certificate, without unlocking it; ``None`` if there is none.

    ``certificate``: whether to read the certificate.
    """
    content = _read_bytes(path)
    public, locked = _header(content)
    if public is None:
        public = _public_line(content) or _public_line(_read_bytes(_beside(path, ".pub")))
    if not content and public is None:
        return None
    beside = _public_line(_read_bytes(_beside(path, "-cert.pub"))) if certificate else None
    return KeyFile(path, content, public, locked, beside)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _read_bytes(path: Path) -> bytes:
    with contextlib.suppress(OSError, ValueError):
        return path.read_bytes()
    return b""


def _public_line(content: bytes) -> bytes | None:
    """Return the key or certificate of a ``type base64 comment`` line."""
    fields = content.split(None, 2)
    with contextlib.suppress(ValueError, IndexError):
        blob = base64.b64decode(fields[1], validate=True)
        if _strings(blob, 1)[0] == fields[0]:
            return blob
    return None


def _header(content: bytes) -> tuple[bytes | None, bool]:
    """Return the public key, which OpenSSH's format does not encrypt, and whether the private key is encrypted."""
    lines = content.split()
    if b"-----BEGIN OPENSSH PRIVATE KEY-----" not in content:
        return None, b"ENCRYPTED" in content
    with contextlib.suppress(ValueError, IndexError):
        packed = base64.b64decode(b"".join(lines[4:-4]))  # without the BEGIN and END lines
        if packed.startswith(_MAGIC):
            cipher, _kdf, options = _strings(packed[len(_MAGIC) :], 3)
            begin = len(_MAGIC) + 12 + len(cipher) + len(_kdf) + len(options) + 4  # after the number of keys
            return _strings(packed[begin:], 1)[0], cipher != b"none"
    return None, False


def _strings(packed: bytes, count: int) -> list[bytes]:
    """Return the first fields of a packed structure. Raises ``ValueError`` if it is too short."""
    found = []
    for _ in range(count):
        if len(packed) < 4 or len(packed) < 4 + (length := struct.unpack(">I", packed[:4])[0]):
            raise ValueError("too short")
        found.append(packed[4 : 4 + length])
        packed = packed[4 + length :]
    return found


def certified(certificate: bytes) -> bytes:
    """Return the public key in a certificate. Raises ``ValueError`` for an invalid one."""
    kind = _strings(certificate, 1)[0].decode(errors="replace")
    plain, mark, inventor = kind.partition(_CERTIFICATE)
    count = next((number for name, number in _KEY_FIELDS.items() if kind.startswith(name)), None)
    if count is None or not mark:
        raise ValueError(f"{kind} is not a certificate")
    if kind.startswith("sk-"):
        plain = f"{plain}@{inventor}"
    fields = [plain.encode(), *_strings(certificate, 2 + count)[2:]]
    return b"".join(struct.pack(">I", len(field)) + field for field in fields)


def load(content: bytes, passphrase: bytes | None) -> paramiko.PKey:
    """Return the key in a file's content, in any format that OpenSSH reads. Raises ``ValueError``.

    paramiko's own reader supports neither PKCS#8 nor the newer ciphers, so the key is read with ``cryptography``.
    """
    import io

    import paramiko
    from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    reader = form.load_ssh_private_key if b"BEGIN OPENSSH" in content else form.load_pem_private_key
    try:
        key: Any = reader(content, passphrase)
        text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()).decode()
    except (TypeError, InvalidTag, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from None
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        with contextlib.suppress(paramiko.SSHException, ValueError, IndexError, AssertionError):
            return kind.from_private_key(io.StringIO(text))
    raise ValueError("a kind of key that we do not know")


def signer_of(key: paramiko.PKey, blob: bytes | None = None) -> Signer:
    """Return a signer for a key in memory, for its own public key or for a certificate."""

    def sign(data: bytes, algorithm: str) -> bytes:
        signature = key.sign_ssh_data(data, algorithm)
        return bytes(signature) if isinstance(signature, bytes) else signature.asbytes()

    return Signer(blob or key.asbytes(), sign)


# --- the agent -----------------------------------------------------------------------------------------------


class Agent:
    """A connection to a running agent; every method raises ``OSError`` if it fails."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    def of(cls, settings: SshSettings) -> Agent | None:
        """Connect to the agent that the settings or the environment name."""
        if settings.identity_agent == "none":
            return None
        if sys.platform == "win32":
            from paramiko.agent import get_agent_connection

            with contextlib.suppress(Exception):  # any error inside Pageant
                connection = get_agent_connection()
                return cls(connection) if connection else None
            return None
        path = settings.identity_agent or os.environ.get("SSH_AUTH_SOCK")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_LIST_TIMEOUT)
            connection.connect(path or "")
        except OSError:
            connection.close()
            return None
        return cls(connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def identities(self) -> list[tuple[bytes, str]]:
        """Return its keys and certificates, each with its comment."""
        answer = self._ask(b"\x0b", 12)
        count = struct.unpack(">I", answer[:4])[0] if len(answer) >= 4 else 0
        try:
            fields = _strings(answer[4:], 2 * min(count, 1000))
        except ValueError as error:
            raise OSError(str(error)) from None
        comments = [comment.decode(errors="replace") for comment in fields[1::2]]
        return list(zip(fields[::2], comments, strict=True))

    def sign(self, blob: bytes, data: bytes, algorithm: str) -> bytes:
        """Return a signature."""
        flags = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}.get(algorithm, 0)
        if hasattr(self._connection, "settimeout"):
            self._connection.settimeout(_SIGN_TIMEOUT)
        query = b"\x0d" + b"".join(struct.pack(">I", len(part)) + part for part in (blob, data))
        try:
            return _strings(self._ask(query + struct.pack(">I", flags), 14), 1)[0]
        except ValueError as error:
            raise OSError(str(error)) from None

    def _ask(self, message: bytes, expected: int) -> bytes:
        whole = struct.pack(">I", len(message)) + message
        while whole:
            whole = whole[self._connection.send(whole) :]
        answer = self._read(struct.unpack(">I", self._read(4))[0])
        if answer[:1] != bytes([expected]):
            raise OSError("the agent refuses")
        return answer[1:]

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._connection.recv(count - len(data))
            if not more:
                raise OSError("the agent is gone")
            data += more
        return data


# --- the order -----------------------------------------------------------------------------------------------

Unlock = Callable[[KeyFile], "paramiko.PKey | None"]


def allowed(settings: SshSettings, blob: bytes) -> bool:
    """Whether PubkeyAcceptedAlgorithms and RequiredRSASize of the configuration allow this key or certificate."""
    with contextlib.suppress(ValueError, IndexError):
        kind = _strings(blob, 1)[0].decode(errors="replace")
        names = [kind]
        if kind.startswith("ssh-rsa"):
            names = [name + kind.removeprefix("ssh-rsa") for name in _RSA_SIGNATURES]
            modulus = _strings(certified(blob) if _CERTIFICATE in kind else blob, 3)[2]
            size = settings.options.get("requiredrsasize", ("",))[0]
            if size.isdecimal() and int.from_bytes(modulus, "big").bit_length() < int(size):
                return False
        return algorithms.allows(_accepted(settings), names)
    return False


def rsa_signatures(settings: SshSettings) -> tuple[str, ...]:
    """Return the signature algorithms for RSA keys that the configuration allows, in its order."""
    return algorithms.assembled(_accepted(settings) or "*", _RSA_SIGNATURES, _RSA_SIGNATURES)


def _accepted(settings: SshSettings) -> str:
    # the second name is from before OpenSSH 8.5
    names = ("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes")
    return next((settings.options[name][0] for name in names if name in settings.options), "")


def offers(settings: SshSettings, agent: Agent | None, unlock: Unlock) -> Iterator[Offer]:
    """Yield the keys to offer, in OpenSSH's order.

    First certificates that the configuration names, then the agent's keys in its order (those that the configuration
    names first), then the keys in files, each with the certificate beside it unless the configuration names any. A
    server hangs up after a few keys, so none is offered that OpenSSH leaves out.
    """
    loaded: list[tuple[bytes, str]] = []
    if agent:
        with contextlib.suppress(OSError):
            loaded = agent.identities()
    beside = not settings.certificate_files  # whether to use the certificates beside the keys
    files = [file for path in settings.identity_files if (file := read_key_file(path, certificate=beside))]
    offered: set[bytes] = set()
    for offer in _in_order(settings, agent, loaded, files, unlock):
        if offer.blob is None or (offer.blob not in offered and allowed(settings, offer.blob)):
            yield offer
            if offer.blob is not None:
                offered.add(offer.blob)


def _in_order(
    settings: SshSettings,
    agent: Agent | None,
    loaded: list[tuple[bytes, str]],
    files: Sequence[KeyFile],
    unlock: Unlock,
) -> Iterator[Offer]:
    comments = dict(loaded)
    for path in settings.certificate_files:
        certificate = _public_line(_read_bytes(path))
        if certificate is not None and (offer := _certificate(str(path), certificate, agent, comments, files, unlock)):
            yield offer
    in_files = {blob for file in files for blob in (file.public, file.certificate)}
    named = [blob for blob, _ in loaded if blob in in_files]
    others = [] if settings.identities_only else [blob for blob, _ in loaded]
    for blob in (*named, *others):
        if agent:
            yield _of_agent(agent, blob, blob, f"agent ({comments[blob]})" if comments[blob] else "agent")
    for file in files:
        if file.content and file.public not in comments:
            yield _of_file(file, file.public, str(file.path), unlock)
        if file.certificate is not None:
            beside = str(_beside(file.path, "-cert.pub"))
            if offer := _certificate(beside, file.certificate, agent, comments, files, unlock):
                yield offer


def _of_agent(agent: Agent, blob: bytes, private: bytes, source: str) -> Offer:
    # an agent, too, may ask its user, or require a touch of a device
    return Offer(source, blob, True, lambda: Signer(blob, lambda data, algorithm: agent.sign(private, data, algorithm)))


def _of_file(file: KeyFile, blob: bytes | None, source: str, unlock: Unlock) -> Offer:
    def unlocked() -> Signer | None:
        key = unlock(file)
        return signer_of(key, blob) if key is not None else None

    return Offer(source, blob, file.locked, unlocked)


def _certificate(
    source: str,
    certificate: bytes,
    agent: Agent | None,
    loaded: dict[bytes, str],
    files: Sequence[KeyFile],
    unlock: Unlock,
) -> Offer | None:
    """Return a certificate as an offer, if its private key is available."""
    try:
        plain = certified(certificate)
    except ValueError:
        return None
    private = next((blob for blob in (certificate, plain) if blob in loaded), None)
    if agent and private is not None:
        return _of_agent(agent, certificate, private, source)
    file = next((file for file in files if file.content and file.public == plain), None)
    return _of_file(file, certificate, source, unlock) if file else None
