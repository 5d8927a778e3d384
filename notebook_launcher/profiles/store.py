"""Finds and reads profiles and the configuration, with errors that name the file and the key."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import time
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.core.file_model import FileModel
from notebook_launcher.core.sbatch_options import BY_NAME, REFUSED, closest
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.profiles.bundled_images import with_bundled_images
from notebook_launcher.profiles.layers import Layer, merge, origin, read_layer
from notebook_launcher.profiles.models import ClusterProfile, FlagValue
from notebook_launcher.profiles.site import read_site_layer, site_file, site_folder

Model = TypeVar("Model", bound=BaseModel)


_BUNDLED = Path(__file__).parent / "bundled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Configuration(FileModel):
    """The user's ``config.toml``: the defaults without --cluster, --host and --course.

    ``cluster``: a cluster profile. ``course``: a saved course, which names its own cluster and has priority. ``open``:
    whether JupyterLab is opened in the browser where there is a display; ``ask``: the next launch asks.
    """

    model_config = ConfigDict(extra="forbid")

    cluster: str | None = None
    course: str | None = None
    open: Literal["ask", "always", "never"] = "ask"


def config_folder() -> Path:
    """Return the user's configuration folder for the launcher (``$NOTEBOOK_LAUNCHER_CONFIG`` overrides it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_CONFIG"):
        return Path(moved)
    from platformdirs import user_config_path

    return user_config_path("notebook-launcher", appauthor=False)


def load_configuration() -> Configuration:
    """Return the user's configuration, on top of the site's if it names neither a cluster nor a course.

    Raises ``ProfileError``.
    """
    path = config_folder() / "config.toml"
    own = [read_layer(path)] if path.exists() else []
    if not any({"cluster", "course"} & layer.data.keys() for layer in own) and (sites := site_file("config.toml")):
        return validated(Configuration, [read_site_layer(sites), *own])
    return validated(Configuration, own) if own else Configuration.model_construct()


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
    """Return the names of the profiles that this machine has for everybody; none if the folder cannot be read."""
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

    A user's file overrides one of the site's of that name, and that one a bundled one. A file whose ``base`` is its own
    name extends the one that it overrides. ``top``: the future content of the user's file.
    """
    layers: list[Layer] = []
    seen: list[str] = []
    wanted: tuple[str, int] | None = (name, _OWN)  # and whose file may be meant at the most
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
    """Return the profile of that name, with further layers on top of it.

    Raises ``ProfileError`` if there is none, or it is invalid.
    """
    return checked_profile([*profile_layers(name), *over])


def checked_profile(layers: Sequence[Layer]) -> ClusterProfile:
    """Return the profile in merged layers. Raises ``ProfileError`` with the file, the line and the key."""
    profile = with_bundled_images(validated(ClusterProfile, layers))
    profile.choose(_chosen(layers))
    _check_flags(profile, layers)
    if profile.environment and profile.environment not in profile.environments:
        raise ProfileError(
            f"{origin(layers, ['environment'])}: environment = “{_cut(profile.environment)}” is not among "
            "[environments].",
            why=f"There are: {', '.join(profile.environments)}." if profile.environments else "There is none yet.",
            hint=_did_you_mean(profile.environment, profile.environments)
            or f"{'name one of those, or ' if profile.environments else ''}add the table [environments.NAME]",
        )
    return profile


def _chosen(layers: Sequence[Layer]) -> frozenset[str]:
    """Return the flags in ``[defaults]`` that upper layers set, and not the profile's own file.

    They have priority over the ``[gpu]`` and ``[cpu]`` of lower files. Within one file it is the reverse: there
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
    """Yield the names of all flags in a ``[gpu]`` or ``[cpu]``."""
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if key in ("flags", "per_gpu") and isinstance(value, Mapping):
            yield from (name.replace("_", "-") for name in value)
        else:
            yield from _flags_in(value)


_OWN, _SITES, _GIVEN = range(3)  # whose a file is: a lower number comes first


def _layer(name: str, whose: int, by: Layer | None) -> tuple[Layer, int]:
    """Return the first file of that name, and whose it is. ``by``: the file that names it as its base."""
    if _NAME.fullmatch(name):
        path = user_profile_path(name)
        if whose <= _OWN and path.exists():
            return read_layer(path), _OWN
        if whose <= _SITES and (sites := site_file("clusters", f"{name}.toml")):
            return read_site_layer(sites), _SITES
        bundled = _BUNDLED / f"{name}.toml"
        if whose <= _GIVEN and bundled.is_file():
            return read_layer(bundled, f"{name} (bundled)"), _GIVEN
    names = (profile_names, given_profiles, bundled_profiles, list)[whose]()
    near = difflib.get_close_matches(name, names, n=1)
    there = f"There are: {', '.join(names)}."
    if by is not None:
        hint = _did_you_mean(name, names) or "name one of those, or remove the line"
        raise ProfileError(
            f"{origin([by], ['base'])}: there is no profile “{_cut(name)}” to use as base.", why=there, hint=hint
        )
    raise ProfileError(
        f"There is no cluster profile “{_cut(name)}”.",
        why=there,
        hint=f"did you mean --cluster {near[0]}?"
        if near
        else "make one with launch-notebook init user@login, or name the login node with --host user@login",
    )


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def as_flags(values: Mapping[str, FlagValue]) -> dict[str, str | None]:
    """Return a table of a profile as flags: ``true`` is a flag without a value, ``false`` none at all."""
    return {
        name.replace("_", "-"): None if value is True else str(value)
        for name, value in values.items()
        if value is not False
    }


def default_flags(profile: ClusterProfile) -> dict[str, str | None]:
    """Return the profile's ``[defaults]`` as flags."""
    return as_flags(profile.defaults)


def flag_tables(profile: ClusterProfile) -> Iterator[tuple[tuple[str, ...], Mapping[str, FlagValue]]]:
    """Yield all tables of scheduler's flags in a profile, each with its place."""
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
            f"{origin(layers, key_path)}: [{table}] has “{_cut(key)}”, which is not a flag of sbatch.",
            hint=f"did you mean {near.lstrip('-')}?" if near else "the flags: sbatch --help",
        )
    if not {"when", "drop"} & set(key_path) and (problem := _problem_with(name, value)):
        raise ProfileError(f"{origin(layers, key_path)}: [{table}] {key} {problem[0]}", hint=problem[1])


def _problem_with(name: str, value: str | int | bool) -> tuple[str, str] | None:
    """Return the mistake in a default, and the hint."""
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
        return "has a character that cannot be seen.", f'write it again: {name} = "…"'
    if name in _NAMES and isinstance(value, str) and not _OF_NAMES.fullmatch(value):
        return f"= “{_cut(value)}” cannot be the name of one.", f'for example: {name} = "{_NAMES[name]}"'
    if name == "time" and value is not False:
        try:
            Walltime.parse(str(value))
        except UsageError as error:
            return f"is wrong: {error.what}", error.why
    return None


#: flags whose values are names on every cluster, with an example; placeholders are in braces
_NAMES = {"account": "proj1", "partition": "gpu", "qos": "normal", "reservation": "lab1", "clusters": "main"}
_OF_NAMES = re.compile(r"(?!-)[\w.,:@+/%*{}-]+")


def validated(model: type[Model], layers: Sequence[Layer]) -> Model:
    """Return the model of merged layers. Raises ``ProfileError`` with the file, the line and the key."""
    data = merge(layers)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems: dict[tuple[str, ...], tuple[str, str]] = {}  # one for each key, with its hint
        for details in error.errors():
            key_path = _place(details, data)
            problems.setdefault(key_path, _problem(model, details, key_path))
        (first, (what, hint)), *others = problems.items()
        raise ProfileError(
            f"{origin(layers, first)}: {what}",
            why=" ".join(f"And {origin(layers, key_path)}: {also}" for key_path, (also, _) in others),
            hint=hint
            or "every key is described in docs/profiles.md; a whole profile: launch-notebook clusters show NAME",
        ) from None


def _place(details: Any, data: Any) -> tuple[str, ...]:
    """Return the key of a problem, without the type names that pydantic adds to it."""
    *above, last = details["loc"] if details["loc"] else ("",)
    key_path: list[str] = []
    for part in details["loc"]:
        try:
            data = data[part] if isinstance(data, Mapping | list) else None
        except (LookupError, TypeError):
            break
        if data is None:
            break
        key_path.append(str(part))
    if details["type"] == "missing" and len(key_path) == len(above):
        key_path.append(str(last))
    return tuple(key_path)


#: messages for wrong types, with the hint
_EXAMPLES = {
    "string": ("is a text, in quotes.", '{key} = "{value}"'),
    "int": ("is a whole number, without quotes.", "for example: {key} = 5"),
    "float": ("is a number, without quotes.", "for example: {key} = 1.5"),
    "finite": ("is a number.", "for example: {key} = 1.5"),
    "bool": ("is true or false, without quotes.", "{key} = true"),
    "dict": ("is a table.", "its keys stand below a line [{table}]"),
    "model": ("is a table.", "its keys stand below a line [{table}]"),
    "tuple": ("is a list, with brackets.", '{key} = ["{value}"]'),
    "list": ("is a list, with brackets.", '{key} = ["{value}"]'),
    "date": ("is a day, without quotes.", "for example: {key} = 2026-11-22"),
}


def _problem(model: type[BaseModel], details: Any, key_path: tuple[str, ...]) -> tuple[str, str]:
    """Return the mistake in a sentence, and what to type, if known."""
    kind, value, limits = details["type"], details["input"], details.get("ctx", {})
    names = [_cut(part) for part in key_path if not part.isdecimal()] or ["the file"]  # numbers are positions in lists
    where, key, shown = ".".join(names), names[-1], _cut(str(value))
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, _keys_at(model, details["loc"][:-1]), n=1)
        return f"there is no key “{where}”.", f"did you mean {near[0]}?" if near else ""
    if kind == "missing":
        return f"{where} is missing.", f"add a line: {key} = …"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", limits["expected"])
        near = difflib.get_close_matches(str(value), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f'for example: {key} = "{known[0]}"'
        return f"{where} = “{shown}” is not known; it may be {', '.join(known)}.", hint
    if kind in ("string_too_short", "too_short"):
        return f"{where} is empty.", "write something there, or remove the line"
    if kind == "string_too_long":
        return f"{where} has more than {limits['max_length']} characters.", ""
    if kind == "string_pattern_mismatch":
        return f"{where} = “{shown}” does not look like {limits['pattern']}.", ""
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = limits.get("ge", limits.get("le"))
        return f"{where} = {value}: it is {limit} at {'least' if 'ge' in limits else 'most'}.", f"{key} = {limit}"
    if meant := _EXAMPLES.get(kind) or _EXAMPLES.get(kind.partition("_")[0]):
        plain = shown if isinstance(value, str | int | float | time) else "…"
        return f"{where} {meant[0]}", meant[1].format(key=key, table=where, value=plain)
    message = _cut(details["msg"].removeprefix("Value error, ").rstrip("."), 300)
    if message.startswith("has more than one line"):
        return f"{where} {message}.", "write it on one line, or as a list of lines where it may be one"
    if message.startswith("has a character"):
        return f"{where} {message}.", f'write it again: {key} = "…"'
    return f"{where}: {message}.", ""


def _cut(text: str, length: int = 80) -> str:
    """Return a value for a message: on one line, and shortened."""
    line = re.sub(r"[\n\r\t]", " ", text)
    return line if len(line) <= length else f"{line[:length]}…"


def _keys_at(model: type[BaseModel], key_path: Sequence[str | int]) -> list[str]:
    """Return the keys of the table at a path in a model."""
    kind: Any = model
    for part in key_path:
        if _is_model(kind):
            field = kind.model_fields.get(str(part))
            kind = _table_in(field.annotation) if field else None
        else:  # a table with arbitrary keys, or a list
            kinds = get_args(kind)
            kind = _table_in(kinds[1 if get_origin(kind) is dict else 0]) if kinds else None
    return list(kind.model_fields) if _is_model(kind) else []


def _table_in(annotation: Any) -> Any:
    """Return the model in ``Model | None``."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    return next(filter(_is_model, get_args(annotation)), annotation)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
