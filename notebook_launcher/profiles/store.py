"""Where profiles and the configuration lie, and reading them with errors that name the file and the key."""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from notebook_launcher.errors import ProfileError, UsageError
from notebook_launcher.flags import BY_NAME, REFUSED, closest
from notebook_launcher.profiles.layers import Layer, merge, origin, read_layer
from notebook_launcher.profiles.models import ClusterProfile, FlagValue
from notebook_launcher.request import parse_walltime

Model = TypeVar("Model", bound=BaseModel)


_BUNDLED = Path(__file__).parent / "bundled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Configuration(BaseModel):
    """The user's ``config.toml``: what is taken where neither --cluster nor --host nor --course is given.

    ``cluster``: a cluster profile. ``course``: a course that was taken, which names its own cluster and goes first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: str | None = None
    course: str | None = None


def config_folder() -> Path:
    """Return the user's configuration folder for the launcher (``$NOTEBOOK_LAUNCHER_CONFIG`` moves it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_CONFIG"):
        return Path(moved)
    from platformdirs import user_config_path

    return user_config_path("notebook-launcher", appauthor=False)


def load_configuration() -> Configuration:
    """Return the user's configuration; the defaults where there is no file. Raises ``ProfileError``."""
    path = config_folder() / "config.toml"
    return validated(Configuration, [read_layer(path)]) if path.exists() else Configuration()


def profile_names() -> list[str]:
    """Return the names of all profiles that ``--cluster`` takes: the user's own and the bundled ones."""
    return sorted({*own_profiles(), *bundled_profiles()})


def own_profiles() -> list[str]:
    """Return the names of the profiles in the user's configuration folder."""
    return sorted(path.stem for path in (config_folder() / "clusters").glob("*.toml"))


def bundled_profiles() -> list[str]:
    """Return the names of the profiles that come with the launcher."""
    return sorted(path.stem for path in _BUNDLED.glob("*.toml"))


def profile_layers(name: str) -> list[Layer]:
    """Return the files that a profile is made of, the lowest first. Raises ``ProfileError``.

    A file of the user's goes before a bundled one of that name, and stands on it where ``base`` names it.
    """
    layers: list[Layer] = []
    seen: list[str] = []
    wanted: tuple[str, bool] | None = (name, True)  # and whether the user's own file may be meant
    while wanted:
        layer, own = _layer(*wanted, by=layers[0] if layers else None)
        if layer.name in seen:
            chain = " → ".join([*seen, layer.name])
            raise ProfileError(f"{layers[0].name}: the profiles stand on each other in a circle.", why=chain)
        seen.append(layer.name)
        layers.insert(0, layer)
        base = layer.data.get("base")
        if base is not None and not isinstance(base, str):
            raise ProfileError(f"{origin([layer], ['base'])}: base is the name of a profile, in quotes.")
        wanted = (base, not (own and base == wanted[0])) if base else None
    return layers


def load_profile(name: str, over: Sequence[Layer] = ()) -> ClusterProfile:
    """Return the profile of that name, with further layers on top of it.

    Raises ``ProfileError`` where there is none, or it is wrong.
    """
    return checked_profile([*profile_layers(name), *over])


def checked_profile(layers: Sequence[Layer]) -> ClusterProfile:
    """Return the profile that layers come to. Raises ``ProfileError``, which names the file, the line and the key."""
    profile = validated(ClusterProfile, layers)
    _check_flags(profile, layers)
    if profile.environment and profile.environment not in profile.environments:
        raise ProfileError(
            f"{origin(layers, ['environment'])}: environment = “{profile.environment}” is not among [environments].",
            why=f"There are: {', '.join(profile.environments) or 'none'}.",
            mend=_did_you_mean(profile.environment, profile.environments),
        )
    return profile


def _layer(name: str, own: bool, by: Layer | None) -> tuple[Layer, bool]:
    """Return the file of a profile, and whether it is the user's own. ``by``: the file that names it as its base."""
    if _NAME.fullmatch(name):
        path = config_folder() / "clusters" / f"{name}.toml"
        if own and path.exists():
            return read_layer(path), True
        bundled = _BUNDLED / f"{name}.toml"
        if bundled.is_file():
            return read_layer(bundled, f"{name} (bundled)"), False
    names = profile_names() if own else bundled_profiles()
    near = difflib.get_close_matches(name, names, n=1)
    there = f"There are: {', '.join(names)}."
    if by is not None:
        mend = _did_you_mean(name, names)
        raise ProfileError(f"{origin([by], ['base'])}: there is no profile “{name}” to stand on.", why=there, mend=mend)
    raise ProfileError(
        f"There is no cluster profile “{name}”.",
        why=there,
        mend=f"did you mean --cluster {near[0]}?"
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
    for place, table in flag_tables(profile):
        for key, value in table.items():
            _check_flag((*place, key), key, value, layers)


def _check_flag(place: Sequence[str], key: str, value: FlagValue, layers: Sequence[Layer]) -> None:
    name, table = key.replace("_", "-"), ".".join(part for part in place[:-1] if not part.isdecimal())
    if name not in BY_NAME:
        near = closest(name)
        raise ProfileError(
            f"{origin(layers, place)}: [{table}] has “{key}”, which is no flag of sbatch.",
            mend=f"did you mean {near.lstrip('-')}?" if near else "the flags: sbatch --help",
        )
    if "when" not in place and (problem := _problem_with(name, value)):
        raise ProfileError(f"{origin(layers, place)}: [{table}] {key} {problem[0]}", mend=problem[1])


def _problem_with(name: str, value: str | int | bool) -> tuple[str, str] | None:
    """Return what is wrong with a default, and the mend."""
    argument = BY_NAME[name].argument
    if name in REFUSED:
        return "cannot be used here.", REFUSED[name]
    if value is True and argument == "required":
        return "needs a value.", f'for example: {name} = "…"'
    if not isinstance(value, bool) and argument == "none":
        return "takes no value.", f"write {name} = true or false"
    if any(c in str(value) for c in "\n\r\0"):
        return "has more than one line.", "write it on one line"
    if name == "time" and value is not False:
        try:
            parse_walltime(str(value))
        except UsageError as error:
            return f"is wrong: {error.what}", error.why
    return None


def validated(model: type[Model], layers: Sequence[Layer]) -> Model:
    """Return the model that layers come to. Raises ``ProfileError``, which names the file, the line and the key."""
    try:
        return model.model_validate(merge(layers))
    except ValidationError as error:
        first = {_key(details): details for details in reversed(error.errors())}  # one for each key
        problems = [f"{origin(layers, _place(details))}: {_problem(model, details)}" for details in first.values()]
        problems.reverse()
        raise ProfileError(
            problems[0], why=" ".join(problems[1:]), mend="every key is described in docs/profiles.md"
        ) from None


def _place(details: Any) -> list[str]:
    return [str(part) for part in details["loc"]]


def _key(details: Any) -> str:
    """Return the key that is meant; where it may be of several types, pydantic adds their names."""
    types = ("constrained-str", "float")
    return ".".join(str(part) for part in details["loc"] if part not in types and "[" not in str(part))


def _problem(model: type[BaseModel], details: Any) -> str:
    where = _key(details)
    if details["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(details["loc"][-1]), _keys_at(model, details["loc"][:-1]), n=1)
        return f"there is no key “{where}”" + (f"; did you mean {near[0]}?" if near else ".")
    if details["type"] in ("tuple_type", "list_type"):
        return f'{where} is a list: ["{details["input"]}"], with brackets.'
    if details["type"] == "string_pattern_mismatch" and "\\n" in details["ctx"]["pattern"]:
        return f"{where} has more than one line: write it on one line, or as a list of lines where it may be one."
    return f"{where}: {details['msg'].removeprefix('Value error, ')}."


def _keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys of the table at a place in a model."""
    kind: Any = model
    for part in place:
        if _is_model(kind):
            field = kind.model_fields.get(str(part))
            kind = _table_in(field.annotation) if field else None
        else:  # a table with names of its own, or a list
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
