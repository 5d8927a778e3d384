"""Profiles and defaults that a site provides for all users of a machine, in /etc/xdg/notebook-launcher."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles.layers import Layer, parse_layer

_MOST = 1 << 20  # bytes that are read; a profile has a few thousand


def site_folder() -> Path | None:
    """Return the site's folder: on Linux, the first that exists in ``$XDG_CONFIG_DIRS``.

    ``None`` if there is none, and on Windows, where ordinary users may add files to the folder for all users, which
    would be unsafe: a profile names commands to run.
    """
    if os.name == "nt":
        return None
    from platformdirs import PlatformDirs

    listed = PlatformDirs("notebook-launcher", appauthor=False, multipath=True).site_config_dir
    return next((Path(folder) for folder in listed.split(os.pathsep) if os.path.lexists(folder)), None)


def site_file(*parts: str) -> Path | None:
    """Return the path of one of the site's files, such as ``("clusters", "uni.toml")``; ``None`` if it does not exist.

    Raises ``ProfileError`` if the folder cannot be searched.
    """
    folder = site_folder()
    if folder is None:
        return None
    path = folder.joinpath(*parts)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    return path


def read_site_layer(path: Path) -> Layer:
    """Return one of the site's files as a layer.

    Raises ``ProfileError`` if it cannot be read, or if anybody other than root and this user may replace it, or any
    folder or link on the path to it.
    """
    try:
        # the path itself is checked before links are resolved, since others may be able to change the links
        for place in (path, *path.parents):
            _refuse_shared(path, place, place.lstat())
        real = path.resolve(strict=True)
        for place in (real, *real.parents):
            _refuse_shared(path, place, place.lstat())
        with real.open("rb") as file:
            _refuse_shared(path, real, os.fstat(file.fileno()))
            return parse_layer(file.read(_MOST), str(path))
    except OSError as error:
        raise _unreadable(path, error) from None


def _refuse_shared(path: Path, place: Path, found: os.stat_result) -> None:
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if stat.S_ISLNK(found.st_mode) or (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        others_write = 0  # a link's own mode means nothing; in a sticky folder, nobody can rename others' files
    if found.st_uid not in (Path("/").stat().st_uid, 0, os.getuid()) or others_write:
        raise ProfileError(
            f"{path} is refused, because other users may change it.",
            why=f"{place} belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}.",
            hint=f"ask this machine's administrator to run: chown -h root {place}; chmod go-w {place}",
        )


def _unreadable(path: Path, error: OSError) -> ProfileError:
    return ProfileError(
        f"{path} cannot be read.",
        why=error.strerror or str(error),
        hint=f"ask this machine's administrator to run: chmod -R a+rX {site_folder()}",
    )
