"""Logging in: the agent's keys, key files, passwords and questions, each secret asked for once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.errors import AuthenticationFailed
from notebook_launcher.hosts.base import Nobody, Prompts
from notebook_launcher.hosts.ssh_settings import SshSettings

if TYPE_CHECKING:
    import paramiko

_TRIES = 3  # as many as OpenSSH gives


@dataclass
class Credentials:
    """What opened a door before is kept in memory, and tried at the next one before asking again."""

    prompts: Prompts
    passwords: dict[str, str] = field(default_factory=dict)
    _keys: dict[Path, paramiko.PKey | None] = field(default_factory=dict)
    _agent: tuple[paramiko.PKey, ...] | None = None

    @classmethod
    def of_key(cls, private_key: str) -> Credentials:
        """Return credentials that are one key (in OpenSSH's format) and nothing else."""
        import io

        import paramiko

        return cls(Nobody(), _agent=(paramiko.Ed25519Key.from_private_key(io.StringIO(private_key)),))

    def keys(self, settings: SshSettings) -> Iterator[tuple[str, paramiko.PKey]]:
        """Yield the keys to offer, with where they come from, in OpenSSH's order: the agent's, then the files'."""
        import paramiko

        if self._agent is None:
            self._agent = paramiko.Agent().get_keys()
        wanted = {_public_half(path) for path in settings.identity_files} if settings.identities_only else None
        offered = set()
        for key in self._agent:
            if wanted is None or key.get_base64() in wanted:
                offered.add(key.get_base64())
                yield "agent", key
        for path in settings.identity_files:
            # a key that the agent offered already needs no passphrase here
            if path.exists() and _public_half(path) not in offered:
                loaded = self._load(path, settings)
                if loaded is not None and loaded.get_base64() not in offered:
                    yield str(path), loaded

    def _load(self, path: Path, settings: SshSettings) -> paramiko.PKey | None:
        if path not in self._keys:
            self._keys[path] = _read_key(path, None if settings.batch else self.prompts)
        return self._keys[path]


def _public_half(path: Path) -> str | None:
    try:
        return path.with_name(path.name + ".pub").read_text().split()[1]
    except (OSError, IndexError, UnicodeDecodeError):
        return None


def _read_key(path: Path, prompts: Prompts | None) -> paramiko.PKey | None:
    import paramiko

    passphrase: bytes | None = None
    for tries_left in reversed(range(_TRIES + 1)):
        try:
            # bytes: a str, which paramiko's signature asks for, is refused by cryptography underneath
            return paramiko.PKey.from_path(path, passphrase)  # type: ignore[arg-type]
        except (paramiko.PasswordRequiredException, TypeError):  # cryptography says TypeError for a missing one
            pass
        except (paramiko.SSHException, ValueError, OSError, paramiko.pkey.UnknownKeyType):
            if passphrase is None:
                return None  # no key of a kind that we know
        answer = prompts.secret(f"Passphrase for {path}: ") if prompts and tries_left else None
        if not answer:
            return None
        passphrase = answer.encode()
    return None


def authenticate(transport: paramiko.Transport, settings: SshSettings, credentials: Credentials) -> None:
    """Log in on a transport whose host key has been checked. Raises ``AuthenticationFailed``.

    Servers may ask for several methods in turn (a key, then a second factor): each success tells what is left.
    """
    import paramiko

    tried: list[str] = []
    try:
        left = _allowed_methods(transport, settings.user)
        while not transport.is_authenticated():
            method = next((m for m in ("publickey", "keyboard-interactive", "password") if m in left), None)
            if method is None:
                raise _refused(settings, tried, left)
            left = _METHODS[method](transport, settings, credentials, tried, [m for m in left if m != method])
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise _refused(settings, tried, [], str(error)) from None


def _allowed_methods(transport: paramiko.Transport, user: str) -> list[str]:
    import paramiko

    try:
        transport.auth_none(user)
    except paramiko.BadAuthenticationType as answer:
        return list(answer.allowed_types)
    return []


def _with_keys(
    transport: paramiko.Transport, settings: SshSettings, credentials: Credentials, tried: list[str], others: list[str]
) -> list[str]:
    import paramiko

    for source, key in credentials.keys(settings):
        tried.append(f"key {source}")
        try:
            return list(transport.auth_publickey(settings.user, key))
        except paramiko.AuthenticationException:
            if not transport.is_active():
                raise
    return others


def _with_questions(
    transport: paramiko.Transport, settings: SshSettings, credentials: Credentials, tried: list[str], others: list[str]
) -> list[str]:
    import paramiko

    def answer(title: str, instructions: str, questions: list[tuple[str, bool]]) -> list[str]:
        replies = []
        for question, _shown in questions:
            reply = None if settings.batch else credentials.prompts.secret(f"({settings.destination}) {question}")
            if reply is None:
                raise paramiko.AuthenticationException("nobody is there to answer the server's question")
            replies.append(reply)
        return replies

    tried.append("questions")
    for attempt in range(_TRIES):
        try:
            return list(transport.auth_interactive(settings.user, answer))
        except paramiko.BadAuthenticationType:
            return others
        except paramiko.AuthenticationException:
            if attempt == _TRIES - 1 or not transport.is_active():
                raise
    return others


def _with_password(
    transport: paramiko.Transport, settings: SshSettings, credentials: Credentials, tried: list[str], others: list[str]
) -> list[str]:
    import paramiko

    known = credentials.passwords.get(settings.user)
    for attempt in range(_TRIES):
        password = known if attempt == 0 and known else None
        if password is None and not settings.batch:
            password = credentials.prompts.secret(f"{settings.user}@{settings.hostname}'s password: ")
        if password is None:
            return others
        tried.append("password")
        try:
            left = list(transport.auth_password(settings.user, password, fallback=False))
        except paramiko.AuthenticationException:
            if not transport.is_active():
                raise
            continue
        credentials.passwords[settings.user] = password
        return left
    return others


_METHODS = {"publickey": _with_keys, "keyboard-interactive": _with_questions, "password": _with_password}


def _refused(settings: SshSettings, tried: list[str], left: list[str], said: str = "") -> AuthenticationFailed:
    what = f"{settings.hostname} does not let {settings.user} in."
    why = f"Tried: {', '.join(dict.fromkeys(tried)) or 'nothing that it takes'}." + (
        f" It said: {said}" if said else ""
    )
    if "password" in tried:
        mend = "check the user name and the password"
    elif settings.batch:
        mend = "the ssh configuration says BatchMode yes, so nothing was asked"
    else:
        mend = f"try: ssh {settings.destination}   (does that get you in? which key or password does it use?)"
    return AuthenticationFailed(what, why=why, mend=mend)
