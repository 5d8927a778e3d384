"""Edits the user's own profile files, and the configuration.

Comments and the order of keys are kept; files are written atomically, with private permissions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles.layers import Layer, parse_layer, read_layer
from notebook_launcher.profiles.models import ClusterProfile, Configuration
from notebook_launcher.profiles.store import (
    checked_profile,
    config_folder,
    given_profiles,
    profile_layers,
    user_profile_path,
)
from notebook_launcher.profiles.validation import validated

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

#: values by the path of their key; ``None`` removes the key
Values = Mapping[tuple[str, ...], Any]


def user_profile_text(name: str) -> str | None:
    """Return the text of the user's own file of a profile, ``None`` if there is none. Raises ``ProfileError``."""
    path = user_profile_path(name)
    return read_layer(path).text if path.exists() else None


def new_profile_text(name: str) -> str:
    """Return a template for the user's own file of a profile; it extends the site's or bundled one of that name."""
    if name not in given_profiles():
        return ""
    return (
        f"# Your own settings on top of the profile {name}: these take precedence.\n"
        f"# The result: launch-notebook clusters show {name} --merged\n"
        f'base = "{name}"\n'
    )


def hints(profile: ClusterProfile) -> str:
    """Return comments that show where the user's settings go."""
    example = profile.account.example or "…"
    return f"""
# user = "…"                        # your name on the login node
# environment = "…"                 # the default environment

# [defaults]                        # flags of the scheduler; those that you type take precedence
# account = "{example}"
# partition = "…"
# time = "2:00:00"

# [environments.mine]               # launch-notebook -- mine
# container = "~/image.sif"
"""


def changed(text: str, values: Values, name: str = "the file") -> str:
    """Return a TOML text with changed values, and its comments kept. Raises ``ProfileError`` if it is not TOML.

    ``name``: the file's name in messages.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    parse_layer(text.encode(), name)
    try:
        document = tomlkit.parse(text)
        for key_path, value in values.items():
            _put(document, key_path, value)
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, ValueError) as error:
        raise ProfileError(f"{name} cannot be changed.", why=str(error), hint="change it in an editor") from None


def _put(document: TOMLDocument, key_path: Sequence[str], value: Any) -> None:
    import tomlkit

    table: Any = document
    for part in key_path[:-1]:
        if part not in table and value is None:
            return
        if part not in table:
            table[part] = tomlkit.table()
        table = table[part]
        if not isinstance(table, dict):
            raise ValueError(f"{part} is not a table")
    if value is None:
        table.pop(key_path[-1], None)
    else:
        table[key_path[-1]] = value


def checked_text(name: str, text: str) -> ClusterProfile:
    """Return the profile as it is with this text as the user's own file. Raises ``ProfileError`` if it is invalid."""
    return checked_profile(profile_layers(name, top=parse_layer(text.encode(), str(user_profile_path(name)))))


def save_profile(name: str, text: str) -> Path:
    """Write the user's own file of a profile, if it is valid, and return its path. Raises ``ProfileError``."""
    checked_text(name, text)
    return write_private(user_profile_path(name), text)


def save_default_cluster(name: str | None) -> Path:
    """Write the default cluster into the configuration. Raises ``ProfileError``."""
    return save_setting("cluster", name)


def save_setting(key: str, value: str | None) -> Path:
    """Write a key of the configuration; ``None`` removes it. Raises ``ProfileError``."""
    path = config_folder() / "config.toml"
    text = changed(read_layer(path).text if path.exists() else "", {(key,): value}, str(path))
    validated(Configuration, [Layer(str(path), parse_layer(text.encode(), str(path)).data, text)])
    return write_private(path, text)


def write_private(path: Path, text: str) -> Path:
    """Write a file atomically, with private permissions; a symbolic link is followed. Raises ``ProfileError``."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = path.resolve()
        descriptor, beside = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".new")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            Path(beside).replace(target)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ProfileError(f"{path} cannot be written.", why=error.strerror or str(error)) from None
    return path
