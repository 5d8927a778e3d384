"""Reads the settings for a destination from the user's ssh configuration.

If there is an ``ssh``, ``ssh -G`` prints them, because it alone supports all directives (``Include``, ``Match``,
tokens). Otherwise paramiko's reader is used, which supports ``Host`` and ``Match``; plain ``Include`` lines are
resolved beforehand.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.core.frozen import Frozen

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_USUAL_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_MOST_INCLUDES = 16  # nested includes, as many as OpenSSH follows
# What OpenSSH refuses in names from the command line, because a ProxyCommand passes them to a shell.
_NOT_IN_USERS = frozenset("'`\";&<>|(){}")
_NOT_IN_HOSTS = _NOT_IN_USERS | frozenset("$\\[]")
# Messages of ``ssh -G``
_NOT_CANONICAL = re.compile(r"ssh: Could not resolve host(?:name)? \"?([^\s\":]+)")
_CONFIG_LINE = re.compile(r"(.+?):? line (\d+): ")
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class Destination(Frozen):
    """A destination as it was typed: ``[user@]host``, perhaps a port and a configuration file."""

    host: str
    user: str | None = None
    port: int | None = None
    config_file: str | None = None

    @classmethod
    def parse(cls, text: str, **others: str | int | None) -> Destination:
        """Read ``[user@]host[:port]``, with ``ssh://`` before it or an IPv6 address in brackets.

        Raises ``ConnectionFailed`` for an invalid host.
        """
        user, at, rest = text.removeprefix("ssh://").rpartition("@")
        host, port = _host_and_port(rest.removesuffix("/") if text.startswith("ssh://") else rest)
        user = str(others.get("user") or user)
        if (
            not _is_name(host, _NOT_IN_HOSTS)
            or ((at or user) and not _is_name(user, _NOT_IN_USERS))
            or (port is not None and not (len(port) < 6 and port.isdecimal() and 0 < int(port) < 65536))
        ):
            raise ConnectionFailed(
                f"“{text}” does not name a login node.", hint="for example: --host alice@login.example.org"
            )
        given = {key: value for key, value in others.items() if value is not None}
        settings = {"user": user or None, "port": int(port) if port else None} | given
        return cls(host, **settings)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host


def _host_and_port(text: str) -> tuple[str, str | None]:
    """Split ``host:port``; an IPv6 address has a port only after brackets."""
    bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", text)
    if bracketed:
        return bracketed[1], bracketed[2]
    name, colon, port = text.rpartition(":")
    return (name, port) if colon and port.isdecimal() and ":" not in name else (text, None)


def _is_name(name: str, forbidden: frozenset[str]) -> bool:
    return (
        bool(name)
        and not name.startswith("-")
        and not any(c.isspace() or not c.isprintable() or c in forbidden for c in name)
    )


#: the account that secrets belong to: user, host, port and jumps (``localhost`` behind a jump host is another machine)
Account = tuple[str, ...]
_METHODS = ("publickey", "keyboard-interactive", "password")  # in OpenSSH's order


class SshSettings(Frozen):
    """The effective settings for one destination. Paths are absolute; in lists, the first has priority.

    ``identity_agent``: the agent's socket, ``none`` for no agent, ``None`` for the environment's. ``methods``: the
    authentication methods to try. ``password_prompts``: how often a secret may be asked for. ``shares_secrets_with``:
    the account whose secrets also work here; a compute node shares those of its login node.
    """

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
    connection_attempts: int = 1
    address_family: str = "any"  # any, inet or inet6
    bind_address: str | None = None
    certificate_files: tuple[Path, ...] = ()
    identity_agent: str | None = None
    methods: tuple[str, ...] = _METHODS
    password_prompts: int = 3
    hash_known_hosts: bool = False
    shares_secrets_with: Account | None = None
    config_file: str | None = None
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def account(self) -> Account:
        """The account that secrets are saved for."""
        jumps = (*self.proxy_jump, self.proxy_command or "")
        return self.shares_secrets_with or (self.user, self.hostname.lower(), str(self.port), *jumps)

    @property
    def known_as(self) -> str:
        """The name under which known_hosts files list the server."""
        name = self.host_key_alias or self.hostname
        return name if self.port == 22 or self.host_key_alias else f"[{name}]:{self.port}"


def local_user() -> str | None:
    """Return the user's name on this machine; ``None`` if there is only a user id, as in some containers."""
    try:
        return getpass.getuser()
    except (
        KeyError,
        OSError,
        ImportError,
    ):  # KeyError: until Python 3.13; ImportError: on Windows, if no environment variable has the name
        return None


def resolve(destination: Destination) -> SshSettings:
    """Return the effective settings for a destination. Raises ``ConnectionFailed`` for an invalid configuration."""
    ssh = shutil.which("ssh")
    # ssh refuses to work for a user id without a name
    options = _run_ssh_g(ssh, destination) if ssh and local_user() else _read_config(destination)
    return from_options(destination, options)


def builtin_options() -> dict[str, list[str]]:
    """Return the options that the system's ``ssh`` has without any configuration; none if it cannot print them."""
    ssh = shutil.which("ssh")
    try:
        return _run_ssh_g(ssh, Destination("localhost", config_file="none")) if ssh else {}
    except ConnectionFailed:
        return {}


def _run_ssh_g(ssh: str, destination: Destination) -> dict[str, list[str]]:
    command = [ssh, "-G"]
    if destination.config_file:
        command += ["-F", str(Path(destination.config_file).expanduser())]
    if destination.user:
        command += ["-l", destination.user]
    if destination.port:
        command += ["-p", str(destination.port)]
    command += ["--", destination.host]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:  # a Match exec, or CanonicalizeHostname, in a network that is down
        raise ConnectionFailed(
            f"ssh -G printed no configuration for {destination} within 30 s.",
            hint="check the network (does it need a VPN?), and Match exec and CanonicalizeHostname in your ssh "
            "configuration",
        ) from None
    if done.returncode != 0:
        raise _config_error(destination, done.stderr)
    return parse_options(done.stdout.splitlines())


def _config_error(destination: Destination, printed: str) -> ConnectionFailed:
    """Return the error for what ``ssh -G`` printed when it failed."""
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("Pseudo-terminal")]
    why = "\n".join(lines)
    if unknown := next(filter(None, map(_NOT_CANONICAL.match, lines)), None):
        return _not_canonical(unknown[1], why)
    check = f"then check with: ssh -G {destination}"
    if destination.config_file:
        check = f"then check with: ssh -F {destination.config_file} -G {destination}"
    hint = f"correct it, {check}"
    if place := next(filter(None, map(_CONFIG_LINE.match, lines)), None):
        hint = f"correct line {place[2]} of {place[1]}, {check}"
    elif owner := re.search(r"Bad owner or permissions on (.+)", why):
        hint = f"make it writable only by you: chmod go-w {owner[1]}"
    elif "Can't open user config file" in why:
        hint = "check the name given with --ssh-config"
    return ConnectionFailed(f"The ssh configuration for {destination} cannot be read.", why=why, hint=hint)


def _not_canonical(name: str, why: str) -> ConnectionFailed:
    return ConnectionFailed(
        f"The name {name} is not known in the domains of your ssh configuration (CanonicalDomains).",
        why=why,
        hint="check its spelling, and the network (does it need a VPN?); "
        "with CanonicalizeFallbackLocal yes the name is used as it is",
    )


def parse_options(lines: Iterable[str]) -> dict[str, list[str]]:
    """Parse the ``key value`` lines that ``ssh -G`` prints; keys in lower case, each with all of its values."""
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
        text = _with_includes(path)
        found = paramiko.SSHConfig.from_text(text).lookup(destination.host)
    except paramiko.ssh_exception.CouldNotCanonicalize:
        raise _not_canonical(destination.host, "") from None
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise ConnectionFailed(f"{path} cannot be read.", why=str(error), hint=f"correct {path}") from None
    except KeyError as error:  # paramiko looks up the user's name on this machine, as for %u
        if error.args == ("canonicaldomains",):
            raise _not_canonical(destination.host, "CanonicalizeHostname is set and CanonicalDomains is not.") from None
        raise ConnectionFailed(
            f"{path} cannot be read.",
            why=f"You have no name on this machine: {error.args[0]}",
            hint="give yourself one: export USER=you",
        ) from None
    return {key: value if isinstance(value, list) else [str(value)] for key, value in found.items()}


def _with_includes(path: Path, depth: int = 0) -> str:
    """Return a configuration with its included files, which paramiko's reader silently ignores.

    Raises ``ConnectionFailed`` for an ``Include`` below a ``Host`` or ``Match``, which only OpenSSH supports.
    """
    lines: list[str] = []
    below = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if key.lower() in ("host", "match"):
            below = line.strip()
        if key.lower() != "include":
            lines.append(line)
        elif below or depth == _MOST_INCLUDES:
            raise ConnectionFailed(
                f"{path} cannot be read without an ssh program.",
                why=f"“{line.strip()}” stands below “{below}”." if below else "Files include each other.",
                hint="install OpenSSH's client, or move the Include to the top of the file",
            )
        else:
            for pattern in shlex.split(value.replace("\\", "/")):
                found = Path("~/.ssh").expanduser() / Path(pattern).expanduser()
                for file in sorted(glob.glob(str(found))):  # noqa: PTH207  # the pattern is absolute
                    lines += [_with_includes(Path(file), depth + 1), "Host *"]  # for every host again
    return "\n".join(lines)


def from_options(destination: Destination, options: dict[str, list[str]]) -> SshSettings:
    """Return the settings for ``key → values`` as ``ssh -G`` prints them; our command line has priority."""

    def first(key: str, default: str = "") -> str:
        return options.get(key, [default])[0]

    def paths(key: str, usual: Iterable[str]) -> tuple[Path, ...]:
        # a space within a path is kept: Windows' user folders may have some, and ``ssh -G`` does not quote
        paths = re.split(r"\s+(?=[/~]|[A-Za-z]:[/\\]|none$)", " ".join(options.get(key, [])).strip())
        paths = [path.strip('"') for path in paths if path] or list(usual)
        return tuple(Path(path).expanduser() for path in paths if path.lower() != "none")

    hostname = first("hostname", destination.host)
    user = destination.user or first("user") or local_user() or ""
    port = destination.port or _port(first("port", "22"))
    alias = first("hostkeyalias") or None
    # for the settings in which ``ssh -G`` does not expand tokens
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
        "u": local_user() or "",
    }

    def expanded(value: str) -> str:
        return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), value)

    def files(key: str) -> tuple[Path, ...]:
        values = options.get(key, [])
        return tuple(Path(expanded(value)).expanduser() for value in values if value.lower() != "none")

    jump, command = first("proxyjump", "none"), first("proxycommand", "none")
    timeout, strict = first("connecttimeout", "none"), first("stricthostkeychecking", "ask")
    return SshSettings(
        destination=str(destination),
        hostname=hostname,
        user=user,
        port=port,
        identity_files=files("identityfile") if "identityfile" in options else _usual_keys(),
        identities_only=first("identitiesonly", "no") == "yes",
        user_known_hosts=paths("userknownhostsfile", _USUAL_KNOWN_HOSTS),
        system_known_hosts=paths("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS),
        host_key_alias=alias,
        strict={"true": "yes", "false": "no", "off": "no"}.get(strict, strict),
        proxy_jump=() if jump == "none" else tuple(hop.strip() for hop in jump.split(",")),
        proxy_command=None if command == "none" else command,
        batch=first("batchmode", "no") == "yes",
        connect_timeout=float(timeout) if timeout.isdecimal() and timeout != "0" else 30.0,
        connection_attempts=_count(first("connectionattempts"), 1),
        address_family=first("addressfamily", "any"),
        bind_address=first("bindaddress") or None,
        certificate_files=files("certificatefile"),
        identity_agent=_agent(first("identityagent"), expanded),
        methods=_methods(first),
        password_prompts=_count(first("numberofpasswordprompts"), 3),
        hash_known_hosts=first("hashknownhosts", "no") == "yes",
        config_file=destination.config_file,
        options={key: tuple(values) for key, values in options.items()},
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConnectionFailed("The ssh configuration cannot be read.", why=f"“{text}” is not a port.")
    return int(text)


def _usual_keys() -> tuple[Path, ...]:
    return tuple(Path("~/.ssh").expanduser() / name for name in _USUAL_KEYS)


def _count(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and int(text) else default


def _agent(value: str, expanded: Callable[[str], str]) -> str | None:
    if value in ("", "SSH_AUTH_SOCK"):
        return None
    if value.startswith("$"):  # ``ssh -G`` does not expand it; OpenSSH uses no agent if the variable is not set
        return os.environ.get(value[1:].strip("{}")) or "none"
    return value if value.lower() == "none" else str(Path(expanded(value)).expanduser())


def _methods(first: Callable[[str, str], str]) -> tuple[str, ...]:
    """Return the authentication methods that we support, in the user's order, without those that are disabled."""
    order = first("preferredauthentications", ",".join(_METHODS)).split(",")
    questions = first("kbdinteractiveauthentication", first("challengeresponseauthentication", "yes"))
    switches = (first("pubkeyauthentication", "yes"), questions, first("passwordauthentication", "yes"))
    on = {method for method, switch in zip(_METHODS, switches, strict=True) if switch not in ("no", "false")}
    return tuple(method for method in order if method in on)
