"""Host keys as OpenSSH treats them: known, unknown (confirmed by the user) or changed (refused, with file and line)."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.core.errors import HostKeyChanged, HostKeyUnknown
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.ssh_config import SshSettings

if TYPE_CHECKING:
    import paramiko

# The types of host keys that paramiko can check.
_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
# Their signature algorithms, where these differ from the type's name, the strongest first.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class KnownKey(Frozen):
    """One line of a known_hosts file for a server. ``encoded``: the key in base64.

    ``bare``: it names the server without its port; its key is accepted, but a different key does not count as changed.
    """

    file: Path
    line: int
    marker: str
    kind: str
    encoded: str
    bare: bool = False


def known_keys(settings: SshSettings) -> list[KnownKey]:
    """Return all known keys of a server, from the user's files and then the system's; unreadable files are skipped.

    If there are none for ``[host]:port``, those of the bare name are returned, as OpenSSH does.
    """
    files = (*settings.user_known_hosts, *settings.system_known_hosts)
    found = [key for file in files for key in _keys_in(file, settings.known_as)]
    bare = settings.host_key_alias or settings.hostname
    if bare != settings.known_as and all(key.marker for key in found):
        found += [dataclasses.replace(key, bare=True) for file in files for key in _keys_in(file, bare)]
    return found


def expected_keys(lines: Iterable[str]) -> list[KnownKey]:
    """Return the keys of ``type base64`` lines; damaged lines are skipped."""
    pairs = [line.split()[:2] for line in lines if len(line.split()) >= 2]
    return [KnownKey(Path(), 0, "", kind, encoded) for kind, encoded in pairs]


def _keys_in(file: Path, name: str) -> Iterator[KnownKey]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        # a certificate authority is not a host key; paramiko cannot check host certificates
        if (
            len(fields) >= 3
            and not fields[0].startswith("#")
            and marker in ("", "@revoked")
            and _names(fields[0], name)
        ):
            yield KnownKey(file, number, marker, fields[1], fields[2])


def _names(patterns: str, name: str) -> bool:
    """Whether a known_hosts host field (plain, patterns, negations or hashed) matches this server."""
    if patterns.startswith("|1|"):
        import paramiko

        try:
            return paramiko.HostKeys.hash_host(name.lower(), patterns) == patterns
        except Exception:  # a damaged line does not match; paramiko raises binascii and assertion errors alike
            return False
    matched = False
    for pattern in patterns.lower().split(","):
        # brackets are literal in known_hosts ("[host]:port"), but a character class in fnmatch
        if fnmatch.fnmatchcase(name.lower(), pattern.lstrip("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def preferred_algorithms(known: Iterable[KnownKey], offered: Iterable[str]) -> tuple[str, ...]:
    """Order the host key algorithms so that the server presents a key that we know, as OpenSSH does."""
    kinds = {a for key in known if not key.marker for a in _ALGORITHMS.get(key.kind, (key.kind,))}
    return tuple(sorted(offered, key=lambda algorithm: algorithm not in kinds))


Confirm = Callable[[str], bool | None]


def check_host_key(settings: SshSettings, key: paramiko.PKey, confirm: Confirm, expected: Iterable[str] = ()) -> None:
    """Accept the host key that a server presents, or raise an error. ``confirm``: asks the user yes or no.

    ``expected``: keys (``type base64``) that the server has according to a trusted source; for a compute node that is
    the job itself, over the checked connection to the login node. It overrides known_hosts files, which may contain
    another cluster's ``node1``. Raises ``HostKeyChanged`` if another key is known, ``HostKeyUnknown`` if none is known
    and the user did not agree.
    """
    encoded = key.get_base64()
    known = known_keys(settings)
    for entry in known:
        if entry.marker == "@revoked" and entry.encoded == encoded:
            raise HostKeyChanged(
                f"The host key of {settings.known_as} is revoked.", why=f"{entry.file}, line {entry.line}"
            )
    accepted = expected_keys(expected)
    if accepted:
        _check_expected(settings, key, accepted)
    elif not any(entry.encoded == encoded for entry in known):
        _check_not_changed(settings, key, known)
        _confirm_unknown(settings, key, confirm)


def _check_expected(settings: SshSettings, key: paramiko.PKey, accepted: Iterable[KnownKey]) -> None:
    # applies to any type of key: otherwise an attacker could choose a type for which no key is expected
    if all((one.kind, one.encoded) != (key.get_name(), key.get_base64()) for one in accepted):
        raise _changed(
            settings,
            key,
            "The job that runs there reports another key.",
            "Something stands between the login node and the compute node; tell the cluster's support.",
        )


def _check_not_changed(settings: SshSettings, key: paramiko.PKey, known: Iterable[KnownKey]) -> None:
    # applies to other types of keys, too: the server was asked for the known type, and no longer has it
    others = [entry for entry in known if entry.kind in _KINDS and not entry.marker and not entry.bare]
    other = next((entry for entry in others if entry.kind == key.get_name()), others[0] if others else None)
    if other is not None:
        raise _changed(
            settings,
            key,
            f"{other.file}, line {other.line} has another {other.kind} key for it."
            if other.kind == key.get_name()
            else f"{other.file}, line {other.line} has an {other.kind} key for it, which it does not show.",
            f"If the server was really set up anew, remove that line: ssh-keygen -R '{settings.known_as}'",
        )


def _changed(settings: SshSettings, key: paramiko.PKey, why: str, hint: str) -> HostKeyChanged:
    return HostKeyChanged(
        f"The host key of {settings.known_as} is not the one that is known: somebody may be listening in. "
        "Nothing was sent.",
        why=f"{why} It shows {key.get_name()} {fingerprint(key)}.",
        hint=hint,
    )


def _confirm_unknown(settings: SshSettings, key: paramiko.PKey, confirm: Confirm) -> None:
    shown = f"{key.get_name()} {fingerprint(key)}"
    accepts = settings.strict in ("no", "accept-new")
    may_ask = settings.strict == "ask" and not settings.batch
    if accepts or (
        may_ask and confirm(f"The host key of {settings.known_as} is not known yet.\n  {shown}\nIs it the right one?")
    ):
        _remember(settings, key)
        return
    raise HostKeyUnknown(
        f"The host key of {settings.known_as} is not known.",
        why=f"It shows {shown}.",
        hint=f"compare it with the cluster's documentation, then connect once with: ssh {settings.destination}",
    )


def _remember(settings: SshSettings, key: paramiko.PKey) -> None:
    if not settings.user_known_hosts or set("@?*#|'\"\\") & set(settings.known_as):
        return  # a name that known_hosts would interpret as something else
    file = settings.user_known_hosts[0]
    with contextlib.suppress(OSError):  # the user will be asked again next time, as with OpenSSH
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ends_open = file.exists() and file.stat().st_size > 0 and not file.read_bytes().endswith(b"\n")
        line = f"{_written(settings)} {key.get_name()} {key.get_base64()}\n"
        with file.open("a", encoding="utf-8") as known_hosts:
            known_hosts.write(("\n" if ends_open else "") + line)


def _written(settings: SshSettings) -> str:
    if not settings.hash_known_hosts:
        return settings.known_as
    import paramiko

    return paramiko.HostKeys.hash_host(settings.known_as.lower())


def fingerprint(key: paramiko.PKey) -> str:
    """Return the fingerprint as OpenSSH prints it: ``SHA256:…``."""
    import base64
    import hashlib

    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"
