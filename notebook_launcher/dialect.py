"""From a user's flags to those of one cluster: its own words for GPUs, accounts, and words of another time. Pure.

Everything that differs between sites is in their profiles; nothing here knows a site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.profiles.store import default_flags
from notebook_launcher.request import merge_flags


@dataclass(frozen=True)
class Spoken:
    """All flags of a request in the cluster's own words, and what the user should know of it, in sentences."""

    flags: Mapping[str, str | None]
    notes: tuple[str, ...] = ()


def speak(profile: ClusterProfile, asked: Mapping[str, str | None]) -> Spoken:
    """Return the flags for a cluster: the profile's defaults, what it adds for GPUs or without, and the user's on top.

    In this order: translations of the user's words, each with its note; ``[gpu]`` and its type, or ``[cpu]``, under the
    user's own flags; ``--gpus`` in the site's spelling; the account's ending. Raises ``ClusterUnavailable`` where no
    session can be launched, ``AnswerMissing`` where an account must be given, ``UsageError`` where GPUs are a must.
    """
    return Spoken(merge_flags(default_flags(profile), asked))
