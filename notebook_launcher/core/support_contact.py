"""Whom to ask: hints that name the cluster's support get its address, where the profile or the course has one."""

from __future__ import annotations

_SUPPORT = "the cluster's support"


def with_contact(hint: str, contact: str | None) -> str:
    """Return a hint with the contact behind the first mention of the cluster's support, once."""
    named = f"{_SUPPORT} ({contact})"
    return hint if not contact or named in hint else hint.replace(_SUPPORT, named, 1)
