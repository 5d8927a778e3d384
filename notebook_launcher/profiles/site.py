"""Where a cluster's support puts profiles and defaults for everybody on a machine: /etc/xdg/notebook-launcher."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles.layers import Layer, read_layer


def site_folder() -> Path | None:
    """Return the folder for everybody (on Linux the first of ``$XDG_CONFIG_DIRS``); ``None`` on Windows.

    There, ordinary users may add files to the folder for everybody, and a profile names commands to run.
    """
    if os.name == "nt":
        return None
    from platformdirs import site_config_path

    return site_config_path("notebook-launcher", appauthor=False)


def site_file(*parts: str) -> Path | None:
    """Return the path of a file of the site, such as ``("clusters", "uni.toml")``; ``None`` if there is none."""
    folder = site_folder()
    path = folder.joinpath(*parts) if folder else None
    return path if path and path.is_file() else None


def read_site_layer(path: Path) -> Layer:
    """Return a file of the site as a layer.

    Raises ``ProfileError`` if it is not TOML, or if somebody other than root and this user may replace it: a profile
    names commands that run as whoever launches.
    """
    real = path.resolve()
    for place in (real, *real.parents):
        found = place.stat()
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (
            stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        )
        if found.st_uid not in (0, os.getuid()) or shared:
            raise ProfileError(
                f"{path} is not used, because other users can change it.",
                why=f"{place} belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}.",
                hint=f"ask this machine's administrator to run: chown root {place}; chmod go-w {place}",
            )
    return read_layer(path)
