"""Lists of algorithms in an ssh configuration: ``Ciphers``, ``MACs`` and the like, as ssh_config(5) describes them.

A list may begin with ``+`` (append to the default list), ``-`` (remove from it) or ``^`` (place at its head), and each
name may be a pattern with ``*`` and ``?``. ``ssh -G`` prints lists with all of these resolved; without an ``ssh``, they
are as in the file.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

_PREFIXES = ("+", "-", "^")
_CHACHA, _GCM, _CTR = "chacha20-poly1305", "aes128-gcm,aes256-gcm", "aes128-ctr,aes192-ctr,aes256-ctr"
_OWN_CIPHERS = (f"{_CHACHA},{_CTR},{_GCM}", f"{_CHACHA},{_GCM},{_CTR}")  # from OpenSSH 6.7 on, and from 10.0 on


def assembled(value: str, default: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return the algorithms that a list selects, in its order, from the ``known`` ones and the default list.

    Empty if none of the names is known.
    """
    prefix, patterns = split(value)
    if prefix == "-":
        return tuple(name for name in default if not matches(patterns, name))
    known = tuple(known)
    named = [name for pattern in patterns for name in known if matches([pattern], name)]
    whole = {"+": [*default, *named], "^": [*named, *default]}.get(prefix, named)
    return tuple(dict.fromkeys(whole))


def split(value: str) -> tuple[str, list[str]]:
    """Return the prefix of a list, if any, and its names and patterns."""
    prefix = value[:1] if value[:1] in _PREFIXES else ""
    return prefix, [name for name in value.removeprefix(prefix).split(",") if name]


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the patterns. Brackets have no meaning in them."""
    return any(fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


def allows(value: str, names: Iterable[str]) -> bool:
    """Whether a list allows one of these names, all of which are in the default list."""
    prefix, patterns = split(value)
    if prefix in ("+", "^") or not patterns:
        return True
    return any(matches(patterns, name) is not (prefix == "-") for name in names)


def are_own_ciphers(value: str) -> bool:
    """Whether this is OpenSSH's own default list of ciphers."""
    return ",".join(name.partition("@")[0] for name in value.split(",")) in _OWN_CIPHERS


def quickest_first(value: str, ciphers: Iterable[str]) -> tuple[str, ...]:
    """Return the ciphers with AES-GCM first: it encrypts and authenticates in one step, and processors support AES.

    ``value``: ``Ciphers`` of the effective configuration; if the user has chosen any, the order stays.
    """
    is_chosen = bool(value) and not are_own_ciphers(value)
    return tuple(ciphers) if is_chosen else tuple(sorted(ciphers, key=lambda name: "-gcm@" not in name))
