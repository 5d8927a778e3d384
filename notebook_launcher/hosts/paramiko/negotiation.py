"""Limits the algorithms that paramiko negotiates to those that the ssh configuration allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.hosts.algorithms import assembled, quickest_first, split
from notebook_launcher.hosts.paramiko.host_keys import KnownKey, preferred_algorithms
from notebook_launcher.hosts.ssh_config import SshSettings

if TYPE_CHECKING:
    from notebook_launcher.hosts.paramiko.library import paramiko

#: the options with lists of algorithms, as ``ssh -G`` prints them, and as ssh_config(5) spells them
OPTIONS = {
    "ciphers": "Ciphers",
    "macs": "MACs",
    "kexalgorithms": "KexAlgorithms",
    "hostkeyalgorithms": "HostKeyAlgorithms",
    "pubkeyacceptedalgorithms": "PubkeyAcceptedAlgorithms",
    "pubkeyacceptedkeytypes": "PubkeyAcceptedKeyTypes",
}
_FOR_USERS = ("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes")  # the second is its name before OpenSSH 8.5
_CERTIFICATE = "-cert-v01@"


def restrict(options: paramiko.transport.SecurityOptions, settings: SshSettings, known: Iterable[KnownKey]) -> None:
    """Use only the algorithms that the configuration names, in its order.

    Raises ``ConnectionFailed`` if paramiko has none of them.
    """

    def named(option: str, ours: Sequence[str]) -> tuple[str, ...]:
        value = settings.options.get(option, ("",))[0]
        found = _ours(value, ours) if value else tuple(ours)
        if not found:
            raise for_openssh(
                f"The ssh configuration for {settings.destination} allows only algorithms that paramiko does not have.",
                f"{OPTIONS[option]} {value}",
            )
        return found

    options.ciphers = quickest_first(settings.options.get("ciphers", ("",))[0], named("ciphers", options.ciphers))
    options.digests = named("macs", options.digests)
    options.kex = named("kexalgorithms", options.kex)
    options.key_types = preferred_algorithms(known, named("hostkeyalgorithms", options.key_types))


def _ours(value: str, ours: Sequence[str]) -> tuple[str, ...]:
    prefix, names = split(value)
    return assembled(prefix + ",".join(_as_ours(name, ours) for name in names), ours, ours)


def _as_ours(name: str, ours: Iterable[str]) -> str:
    """Return our name for an algorithm, which may have a domain, from the time before it was standardised."""
    return name if name in ours else next((one for one in ours if one.partition("@")[0] == name), name)


def for_openssh(what: str, why: str) -> ConnectionFailed:
    """Return the error for a connection for which paramiko has no algorithm; the system's ``ssh`` may have one."""
    error = ConnectionFailed(
        what, why=why, hint='log in with the system\'s ssh: --engine openssh, or engine = "openssh" in the profile'
    )
    error.openssh_may_help = True
    return error


def only_in_openssh(options: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]) -> str:
    """Return an option that requires algorithms that paramiko lacks, with these algorithms; "" if there is none.

    ``options`` and ``defaults``: as ``ssh -G`` prints them, with the user's configuration and without any. Even
    OpenSSH's default lists have algorithms that paramiko lacks. So only those count that the configuration adds or puts
    first, and lists of which paramiko has no algorithm at all.
    """
    for option, written in OPTIONS.items():
        names, default = (found.get(option, ("",))[0].split(",") for found in (options, defaults))
        if names not in (default, [""]) and (unsupported := list(_unsupported(option, names, default))):
            return f"{written} {','.join(unsupported)}"
    return ""


def _unsupported(option: str, names: Sequence[str], default: Sequence[str]) -> Iterator[str]:
    ours = _supported(option)
    if option in _FOR_USERS:  # our own login also supports users' certificates
        names, default = ([name.partition(_CERTIFICATE)[0] for name in found] for found in (names, default))
    unsupported = [name for name in names if _as_ours(name, ours) not in ours]
    added = [name for name in unsupported if name not in default]
    # whether certificates of hosts matter depends on known_hosts instead: whether it has an authority
    preferred = [name for name in names if _CERTIFICATE not in name][:1]
    if len(unsupported) == len(names):
        yield from unsupported
    elif added or option in _FOR_USERS:
        yield from added
    elif preferred[0] in unsupported:
        yield preferred[0]


def _supported(option: str) -> Sequence[str]:
    from notebook_launcher.hosts.paramiko.library import paramiko

    transport = paramiko.Transport
    ours: dict[str, Sequence[str]] = {
        "ciphers": transport._preferred_ciphers,  # type: ignore[attr-defined]
        "macs": transport._preferred_macs,  # type: ignore[attr-defined]
        "kexalgorithms": transport._preferred_kex,  # type: ignore[attr-defined]
        "hostkeyalgorithms": transport._preferred_keys,  # type: ignore[attr-defined]
        "pubkeyacceptedalgorithms": transport._preferred_keys,  # type: ignore[attr-defined]
        "pubkeyacceptedkeytypes": transport._preferred_keys,  # type: ignore[attr-defined]
    }
    return ours[option]
