"""Adds the support address, if the profile or the course has one, to hints that name the cluster's support."""

from __future__ import annotations

_SUPPORT = "the cluster's support"


def with_contact(hint: str, contact: str | None) -> str:
    """Return a hint with the contact after the first mention of the cluster's support, unless it is there already."""
    named = f"{_SUPPORT} ({contact})"
    return hint if not contact or named in hint else hint.replace(_SUPPORT, named, 1)
