"""Finds and reads profiles and the configuration, with errors that name the file and the key."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.core.sbatch_options import BY_NAME, REFUSED, closest
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.profiles.bundled_images import with_bundled_images
from notebook_launcher.profiles.layers import BUNDLED, Layer, origin, read_layer
from notebook_launcher.profiles.models import ClusterProfile, Configuration, FlagValue
from notebook_launcher.profiles.site import read_site_layer, site_file, site_folder
from notebook_launcher.profiles.validation import cut, validated, validated_once

_BUNDLED = Path(__file__).parent / "bundled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def config_folder() -> Path:
    """Return the user's configuration folder for the launcher (``$NOTEBOOK_LAUNCHER_CONFIG`` overrides it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_CONFIG"):
        return Path(moved)
    from platformdirs import user_config_path

    return user_config_path("notebook-launcher", appauthor=False)


def load_configuration() -> Configuration:
    """Return the user's configuration; if it names neither a cluster nor a course, on top of the site's.

    Raises ``ProfileError``.
    """
    path = config_folder() / "config.toml"
    own = [read_layer(path)] if path.exists() else []
    if not any({"cluster", "course"} & layer.data.keys() for layer in own) and (sites := site_file("config.toml")):
        return validated_once(Configuration, [read_site_layer(sites), *own])
    return validated_once(Configuration, own) if own else Configuration()


def profile_names() -> list[str]:
    """Return the names of all profiles for ``--cluster``: the user's own, the site's and the bundled ones."""
    return sorted({*user_profiles(), *given_profiles()})


def given_profiles() -> list[str]:
    """Return the names of the profiles that are not the user's own: the site's and the bundled ones."""
    return sorted({*site_profiles(), *bundled_profiles()})


def user_profiles() -> list[str]:
    """Return the names of the profiles in the user's configuration folder."""
    return _names_in(config_folder() / "clusters")


def site_profiles() -> list[str]:
    """Return the names of the site's profiles on this machine; none if their folder cannot be read."""
    folder = site_folder()
    with contextlib.suppress(PermissionError):
        return _names_in(folder / "clusters") if folder else []
    return []


def _names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml") if _NAME.fullmatch(path.stem))


def user_profile_path(name: str) -> Path:
    """Return the path of the user's own file of a profile. Raises ``ProfileError`` for an invalid name."""
    if not _NAME.fullmatch(name):
        raise ProfileError(f"“{name}” cannot be the name of a profile.", why="It has letters, digits and . _ - in it.")
    return config_folder() / "clusters" / f"{name}.toml"


def bundled_profiles() -> list[str]:
    """Return the names of the bundled profiles."""
    return _names_in(_BUNDLED)


def profile_layers(name: str, top: Layer | None = None) -> list[Layer]:
    """Return the files of a profile, the lowest first. Raises ``ProfileError``.

    The user's file has precedence over the site's file of that name, and that one over the bundled one. A file whose
    ``base`` is its own name extends the one that it replaces. ``top``: the new content of the user's file.
    """
    layers: list[Layer] = []
    seen: list[str] = []
    wanted: tuple[str, int] | None = (name, _OWN)  # the name, and the first owner whose file may be used
    while wanted:
        layer, whose = (top, _OWN) if top and not layers else _layer(*wanted, by=layers[0] if layers else None)
        if layer.name in seen:
            raise ProfileError(
                f"{origin([layers[0]], ['base'])}: the profiles are based on each other in a circle.",
                why=" → ".join([*seen, layer.name]),
                hint="take the line with base out of one of them",
            )
        seen.append(layer.name)
        layers.insert(0, layer)
        base = layer.data.get("base")
        if base is not None and not isinstance(base, str):
            raise ProfileError(
                f"{origin([layer], ['base'])}: base is the name of a profile.",
                hint='for example: base = "generic"; the names: launch-notebook clusters',
            )
        wanted = (base, whose + 1 if base == wanted[0] else _OWN) if base else None
    return layers


def load_profile(name: str, over: Sequence[Layer] = ()) -> ClusterProfile:
    """Return the profile of that name, with the layers ``over`` on top of it.

    Raises ``ProfileError`` if there is none, or it is invalid.
    """
    layers = [*profile_layers(name), *over]
    return _checked(validated_once(ClusterProfile, layers), layers)


def checked_profile(layers: Sequence[Layer]) -> ClusterProfile:
    """Return the profile in merged layers. Raises ``ProfileError`` with the file, the line and the key."""
    return _checked(validated(ClusterProfile, layers), layers)


def _checked(profile: ClusterProfile, layers: Sequence[Layer]) -> ClusterProfile:
    """Complete a valid profile from its layers, and check its flags, its scheduler options and its environment."""
    profile = with_bundled_images(profile)
    profile.choose(_chosen(layers))
    _check_flags(profile, layers)
    _check_scheduler_options(profile, layers)
    if profile.environment and profile.environment not in profile.environments:
        raise ProfileError(
            f"{origin(layers, ['environment'])}: environment = “{cut(profile.environment)}” is not among "
            "[environments].",
            why=f"The environments are: {', '.join(profile.environments)}."
            if profile.environments
            else "There is none yet.",
            hint=did_you_mean(profile.environment, profile.environments)
            or f"{'name one of those, or ' if profile.environments else ''}add the table [environments.NAME]",
        )
    return profile


def _chosen(layers: Sequence[Layer]) -> frozenset[str]:
    """Return the flags in ``[defaults]`` that layers above the lowest one set.

    They have priority over ``[gpu]`` and ``[cpu]`` in lower layers. Within one layer it is the reverse, since there
    ``[gpu]`` is more specific.
    """
    chosen: set[str] = set()
    special: set[str] = set()
    for layer in reversed(layers[1:]):
        special |= {name for key in ("gpu", "cpu") for name in _flags_in(layer.data.get(key))}
        defaults = layer.data.get("defaults")
        chosen |= {key.replace("_", "-") for key in defaults} - special if isinstance(defaults, Mapping) else set()
    return frozenset(chosen)


def _flags_in(table: Any) -> Iterator[str]:
    """Yield the names of all flags in a table ``[gpu]`` or ``[cpu]``."""
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if key in ("flags", "per_gpu") and isinstance(value, Mapping):
            yield from (name.replace("_", "-") for name in value)
        else:
            yield from _flags_in(value)


_OWN, _SITES, _GIVEN = range(3)  # whose file it is: a lower number has precedence


def _layer(name: str, whose: int, by: Layer | None) -> tuple[Layer, int]:
    """Return the first file of that name, and whose it is.

    ``whose``: the first owner to consider; ``by``: the file that names it as its base, if any. Raises ``ProfileError``.
    """
    if _NAME.fullmatch(name):
        path = user_profile_path(name)
        if whose <= _OWN and path.exists():
            return read_layer(path), _OWN
        if whose <= _SITES and (sites := site_file("clusters", f"{name}.toml")):
            return read_site_layer(sites), _SITES
        bundled = _BUNDLED / f"{name}.toml"
        if whose <= _GIVEN and bundled.is_file():
            return read_layer(bundled, f"{name}{BUNDLED}"), _GIVEN
    if by is not None:
        names = (profile_names, given_profiles, bundled_profiles, list)[whose]()
        hint = did_you_mean(name, names) or "name one of those, or remove the line"
        raise ProfileError(
            f"{origin([by], ['base'])}: there is no profile “{cut(name)}” to use as base.",
            why=f"The profiles are: {', '.join(names)}.",
            hint=hint,
        )
    raise unknown_profile(name)


def unknown_profile(name: str, form: str = "--cluster {}") -> ProfileError:
    """Return the error for a name that no profile has. ``form``: how the user types a name."""
    names = profile_names()
    return ProfileError(
        f"There is no cluster profile “{cut(name)}”.",
        why=f"The profiles are: {', '.join(names)}.",
        hint=did_you_mean(name, names, form)
        or "make one with launch-notebook init user@login, or name the login node with --host user@login",
    )


def as_flags(values: Mapping[str, FlagValue]) -> dict[str, str | None]:
    """Return a table of a profile as flags: ``true`` means a flag without a value, ``false`` no flag."""
    return {
        name.replace("_", "-"): None if value is True else str(value)
        for name, value in values.items()
        if value is not False
    }


def default_flags(profile: ClusterProfile) -> dict[str, str | None]:
    """Return the profile's ``[defaults]`` as flags."""
    return as_flags(profile.defaults)


def flag_tables(profile: ClusterProfile) -> Iterator[tuple[tuple[str, ...], Mapping[str, FlagValue]]]:
    """Yield all tables with flags of the scheduler in a profile, each with its path."""
    yield ("defaults",), profile.defaults
    yield ("cpu", "flags"), profile.cpu.flags
    yield ("gpu", "flags"), profile.gpu.flags
    yield ("gpu", "per_gpu"), profile.gpu.per_gpu
    for name, kind in profile.gpu.types.items():
        yield ("gpu", "types", name, "flags"), kind.flags
        yield ("gpu", "types", name, "per_gpu"), kind.per_gpu
    for number, translation in enumerate(profile.translations):
        yield ("translations", str(number), "set"), translation.set
        yield ("translations", str(number), "when"), translation.when


def _check_scheduler_options(profile: ClusterProfile, layers: Sequence[Layer]) -> None:
    if not profile.scheduler_options:
        return
    from notebook_launcher.schedulers.make import make_scheduler

    try:
        make_scheduler(profile.scheduler, "", profile.scheduler_options)
    except ProfileError as error:
        error.what = f"{origin(layers, ['scheduler_options'])}: {error.what}"
        raise


def _check_flags(profile: ClusterProfile, layers: Sequence[Layer]) -> None:
    for key_path, table in flag_tables(profile):
        for key, value in table.items():
            _check_flag((*key_path, key), key, value, layers)
    for number, translation in enumerate(profile.translations):
        for key in translation.drop:
            _check_flag(("translations", str(number), "drop", key), key, False, layers)


def _check_flag(key_path: Sequence[str], key: str, value: FlagValue, layers: Sequence[Layer]) -> None:
    name, table = key.replace("_", "-"), ".".join(part for part in key_path[:-1] if not part.isdecimal())
    if name not in BY_NAME:
        near = closest(name)
        raise ProfileError(
            f"{origin(layers, key_path)}: [{table}] has “{cut(key)}”, which is not a flag of sbatch.",
            hint=f"did you mean {near.lstrip('-')}?" if near else "see the flags: sbatch --help",
        )
    if not {"when", "drop"} & set(key_path) and (problem := _problem_with(name, value)):
        raise ProfileError(f"{origin(layers, key_path)}: [{table}] {key} {problem[0]}", hint=problem[1])


def _problem_with(name: str, value: str | int | bool) -> tuple[str, str] | None:
    """Return the mistake in a flag's value, and a hint; ``None`` if there is none."""
    argument = BY_NAME[name].argument
    if name in REFUSED:
        return "cannot be used here.", REFUSED[name]
    if value is True and argument == "required":
        return "needs a value.", f'for example: {name} = "…"'
    if not isinstance(value, bool) and argument == "none":
        return "takes no value.", f"write {name} = true or false"
    if any(c in str(value) for c in "\n\r"):
        return "has more than one line.", "write it on one line"
    if not str(value).isprintable():
        return "has an invisible character.", f'write it again: {name} = "…"'
    if name in _NAMES and isinstance(value, str) and not _OF_NAMES.fullmatch(value):
        return f"= “{cut(value)}” cannot be the name of one.", f'for example: {name} = "{_NAMES[name]}"'
    if name == "time" and value is not False:
        try:
            Walltime.parse(str(value))
        except UsageError as error:
            return f"is wrong: {error.what}", error.why
    return None


#: flags whose values are names on every cluster, with an example; braces may mark placeholders
_NAMES = {"account": "proj1", "partition": "gpu", "qos": "normal", "reservation": "lab1", "clusters": "main"}
_OF_NAMES = re.compile(r"(?!-)[\w.,:@+/%*{}-]+")
