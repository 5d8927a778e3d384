"""What the user's ssh configuration says about a destination, as data.

Where an ``ssh`` exists, ``ssh -G`` is asked, because it alone knows the whole language (``Include``, ``Match``,
tokens). Elsewhere paramiko's reader stands in, which knows ``Host`` and ``Match``.
"""

from __future__ import annotations

import getpass
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from notebook_launcher.errors import ConnectionFailed

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_USUAL_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
# What OpenSSH refuses in names from the command line, because a ProxyCommand hands them to a shell.
_NOT_IN_USERS = frozenset("'`\";&<>|(){}")
_NOT_IN_HOSTS = _NOT_IN_USERS | frozenset("$\\")
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True)
class Destination:
    """Where the user wants to go, in their words: ``[user@]host``, perhaps a port and a configuration file."""

    host: str
    user: str | None = None
    port: int | None = None
    config_file: str | None = None

    @classmethod
    def parse(cls, text: str, **others: str | int | None) -> Destination:
        """Read ``user@host`` or ``user@host:port``. Raises ``ConnectionFailed`` for what cannot be a host."""
        user, at, host = text.rpartition("@")
        name, colon, port = host.rpartition(":")
        if colon and port.isdecimal() and ":" not in name:
            host = name
        else:
            port = ""
        user = str(others.get("user") or user)
        if (
            not _is_name(host, _NOT_IN_HOSTS)
            or ((at or user) and not _is_name(user, _NOT_IN_USERS))
            or (port and not (len(port) < 6 and 0 < int(port) < 65536))
        ):
            raise ConnectionFailed(
                f"“{text}” does not name a login node.", mend="for example: --host alice@login.example.org"
            )
        given = {key: value for key, value in others.items() if value is not None}
        settings = {"user": user or None, "port": int(port) if port else None} | given
        return cls(host, **settings)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host


def _is_name(name: str, forbidden: frozenset[str]) -> bool:
    return (
        bool(name)
        and not name.startswith("-")
        and not any(c.isspace() or not c.isprintable() or c in forbidden for c in name)
    )


@dataclass(frozen=True)
class SshSettings:
    """The effective settings for one destination. Paths are absolute; of lists, the first comes first."""

    destination: str
    hostname: str
    user: str
    port: int = 22
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    user_known_hosts: tuple[Path, ...] = ()
    system_known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    strict: str = "ask"  # yes, accept-new, no or ask
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    batch: bool = False
    connect_timeout: float = 30.0
    config_file: str | None = None
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def known_as(self) -> str:
        """The name under which known_hosts files list the server."""
        name = self.host_key_alias or self.hostname
        return name if self.port == 22 or self.host_key_alias else f"[{name}]:{self.port}"


def resolve(destination: Destination) -> SshSettings:
    """Return the effective settings for a destination. Raises ``ConnectionFailed`` for a broken configuration."""
    ssh = shutil.which("ssh")
    options = _ask_ssh(ssh, destination) if ssh else _read_config(destination)
    return from_options(destination, options)


def _ask_ssh(ssh: str, destination: Destination) -> dict[str, list[str]]:
    command = [ssh, "-G"]
    if destination.config_file:
        command += ["-F", str(Path(destination.config_file).expanduser())]
    if destination.user:
        command += ["-l", destination.user]
    if destination.port:
        command += ["-p", str(destination.port)]
    done = subprocess.run([*command, "--", destination.host], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise ConnectionFailed(f"The ssh configuration for {destination} cannot be read.", why=done.stderr.strip())
    return parse_options(done.stdout.splitlines())


def parse_options(lines: Iterable[str]) -> dict[str, list[str]]:
    """Read the ``key value`` lines that ``ssh -G`` prints; keys in lower case, each with all of its values."""
    options: dict[str, list[str]] = {}
    for line in lines:
        key, _, value = line.strip().partition(" ")
        if key:
            options.setdefault(key.lower(), []).append(value.strip())
    return options


def _read_config(destination: Destination) -> dict[str, list[str]]:
    import paramiko

    path = Path(destination.config_file or "~/.ssh/config").expanduser()
    if not path.exists() and not destination.config_file:
        return {}
    try:
        found = paramiko.SSHConfig.from_path(str(path)).lookup(destination.host)
    except (paramiko.SSHException, OSError) as error:
        raise ConnectionFailed(f"{path} cannot be read.", why=str(error)) from None
    return {key: value if isinstance(value, list) else [str(value)] for key, value in found.items()}


def from_options(destination: Destination, options: dict[str, list[str]]) -> SshSettings:
    """Make settings of ``key → values``; what the user said on our command line wins."""

    def first(key: str, default: str = "") -> str:
        return options.get(key, [default])[0]

    def paths(key: str, usual: Iterable[str]) -> tuple[Path, ...]:
        words = " ".join(options.get(key, [])).split() or list(usual)
        return tuple(Path(word).expanduser() for word in words if word.lower() != "none")

    hostname = first("hostname", destination.host)
    user = destination.user or first("user") or getpass.getuser()
    port = destination.port or _port(first("port", "22"))
    alias = first("hostkeyalias") or None
    # the one setting in which ``ssh -G`` leaves the tokens as they are
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": hostname,
        "k": alias or destination.host,
        "L": socket.gethostname().partition(".")[0],
        "l": socket.gethostname(),
        "n": destination.host,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }
    identities = tuple(
        Path(re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), value)).expanduser()
        for value in options.get("identityfile", [])
        if value.lower() != "none"
    )
    jump, command = first("proxyjump", "none"), first("proxycommand", "none")
    timeout = first("connecttimeout", "none")
    return SshSettings(
        destination=str(destination),
        hostname=hostname,
        user=user,
        port=port,
        identity_files=identities or tuple(Path("~/.ssh").expanduser() / name for name in _USUAL_KEYS),
        identities_only=first("identitiesonly", "no") == "yes",
        user_known_hosts=paths("userknownhostsfile", _USUAL_KNOWN_HOSTS),
        system_known_hosts=paths("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS),
        host_key_alias=alias,
        strict={"true": "yes", "false": "no", "off": "no"}.get(
            first("stricthostkeychecking", "ask"), first("stricthostkeychecking", "ask")
        ),
        proxy_jump=() if jump == "none" else tuple(hop.strip() for hop in jump.split(",")),
        proxy_command=None if command == "none" else command,
        batch=first("batchmode", "no") == "yes",
        connect_timeout=float(timeout) if timeout.isdecimal() and timeout != "0" else 30.0,
        config_file=destination.config_file,
        options={key: tuple(values) for key, values in options.items()},
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConnectionFailed("The ssh configuration cannot be read.", why=f"“{text}” is not a port.")
    return int(text)
