"""A Debian release that changes daily: its versions are queried from the mirror at each build, and saved for starts.

The root file system is built again when Slurm, OpenSSH or Python has a new version there. On days on which such a
release cannot be installed, the one that was built before stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import cache, debian, recipes
from .errors import ClusterError, MirrorError, ReleaseUnusableError
from .layout import GENERATIONS, Generation
from .progress import say

_LIBSLURM = r"libslurm\d+(t64)?"
_PACKAGES = ("slurmctld", "openssh-server", "python3")


def generation(name: str) -> Generation:
    """Return a generation of Slurm, with the versions that were built if its release changes.

    Raises ClusterError if it has never been built.
    """
    named = GENERATIONS[name]
    if not named.is_rolling:
        return named
    if (built := _built(named)) is None:
        raise ClusterError(f"Debian {name} is not built yet: python3 tests/practice_cluster build --slurm {name}")
    return built


def is_built(name: str) -> bool:
    """Return whether a generation's root file system exists, so that no mirror has to be queried."""
    named = GENERATIONS[name]
    built = _built(named) if named.is_rolling else named
    return built is not None and recipes.artefacts(built).rootfs.path.exists()


def build_newest(name: str, provide: Callable[[Generation], None]) -> None:
    """Let `provide` build the current versions of the mirror; if that fails, use the previous build, and print so.

    Raises ReleaseUnusableError if it cannot be installed today, and there is no previous build. That covers only errors
    of the mirror reported by apt; any other error, such as a missing package or a full disk, is a ClusterError.
    """
    named = GENERATIONS[name]
    try:
        found = _ask(named)
        say(f"Debian {named.suite} has {', '.join(found.versions)}")
        provide(found)
        _kept(named).write_text(json.dumps([found.python, found.libslurm, found.versions]))
    except MirrorError as error:
        unusable = ReleaseUnusableError(f"Debian {named.suite} cannot be installed today. {error}")
        if (before := _built(named)) is None:
            raise unusable from error
        say(f"{unusable} The one that was built before stays: {', '.join(before.versions)}")
        provide(before)


def _ask(named: Generation) -> Generation:
    pattern = "|".join((*_PACKAGES, _LIBSLURM))
    found = debian.versions(named.suite, pattern, f"versions-{named.suite}")
    libraries = [package for package in found if package not in _PACKAGES]
    if not libraries or any(package not in found for package in _PACKAGES):
        raise ClusterError(f"Debian {named.suite} lacks one of {', '.join(_PACKAGES)} and libslurm.")
    # An older one stays for a while, for programs that were not built anew yet.
    library = max(libraries, key=lambda package: int(re.findall(r"\d+", package)[0]))
    python = ".".join(found["python3"].split(".")[:2])
    versions = tuple(f"{package} {found[package]}" for package in _PACKAGES)
    return replace(named, python=python, libslurm=library, versions=versions)


def _kept(named: Generation) -> Path:
    return cache.cache_directory() / f"{named.suite}.json"


def _built(named: Generation) -> Generation | None:
    try:
        python, libslurm, versions = json.loads(_kept(named).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return replace(named, python=python, libslurm=libslurm, versions=tuple(versions))
