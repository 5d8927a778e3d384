"""Where profiles and the configuration lie, and reading them with errors that name the file and the key."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from notebook_launcher.errors import ProfileError, UsageError
from notebook_launcher.flags import BY_NAME, REFUSED, closest
from notebook_launcher.profiles.models import ClusterProfile, Environment, Price
from notebook_launcher.request import parse_walltime

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # the same module under its older name

Model = TypeVar("Model", bound=BaseModel)


class Configuration(BaseModel):
    """The user's ``config.toml``. ``cluster``: the profile taken where neither --cluster nor --host is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: str | None = None


def config_folder() -> Path:
    """Return the user's configuration folder for the launcher (``$NOTEBOOK_LAUNCHER_CONFIG`` moves it)."""
    if moved := os.environ.get("NOTEBOOK_LAUNCHER_CONFIG"):
        return Path(moved)
    from platformdirs import user_config_path

    return user_config_path("notebook-launcher", appauthor=False)


def load_configuration() -> Configuration:
    """Return the user's configuration; the defaults where there is no file. Raises ``ProfileError``."""
    path = config_folder() / "config.toml"
    return _validated(Configuration, _toml(path), path) if path.exists() else Configuration()


def profile_names() -> list[str]:
    """Return the names of the profiles that ``--cluster`` takes."""
    return sorted(path.stem for path in (config_folder() / "clusters").glob("*.toml"))


def load_profile(name: str) -> ClusterProfile:
    """Return the profile of that name. Raises ``ProfileError`` where there is none, or it is wrong."""
    path = config_folder() / "clusters" / f"{name}.toml"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or not path.exists():
        names = profile_names()
        near = difflib.get_close_matches(name, names, n=1)
        there = f"There are: {', '.join(names)}." if names else f"There is none yet in {path.parent}."
        raise ProfileError(
            f"There is no cluster profile “{name}”.",
            why=there,
            mend=f"did you mean --cluster {near[0]}?"
            if near
            else f"write {path}, or name the login node with --host user@login",
        )
    profile = _validated(ClusterProfile, _toml(path), path)
    _check_defaults(profile, path)
    if profile.environment and profile.environment not in profile.environments:
        raise ProfileError(
            f"{path}: environment = “{profile.environment}” is not among [environments].",
            why=f"There are: {', '.join(profile.environments) or 'none'}.",
            mend=_did_you_mean(profile.environment, profile.environments),
        )
    return profile


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def default_flags(profile: ClusterProfile) -> dict[str, str | None]:
    """Return the profile's ``[defaults]`` as flags: ``true`` is a flag without a value, ``false`` none at all."""
    return {
        name.replace("_", "-"): None if value is True else str(value)
        for name, value in profile.defaults.items()
        if value is not False
    }


def _check_defaults(profile: ClusterProfile, path: Path) -> None:
    for key, value in profile.defaults.items():
        name = key.replace("_", "-")
        if name not in BY_NAME:
            near = closest(name)
            raise ProfileError(
                f"{path}: [defaults] has “{key}”, which is no flag of sbatch.",
                mend=f"did you mean {near.lstrip('-')}?" if near else "the flags: sbatch --help",
            )
        if problem := _problem_with(name, value):
            raise ProfileError(f"{path}: [defaults] {key} {problem[0]}", mend=problem[1])


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


def _toml(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(
            f"{path} is not TOML.", why=str(error), mend='texts stand in quotes: time = "2:00:00"'
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} cannot be read.", why=str(error)) from None
    return data


def _validated(model: type[Model], data: dict[str, Any], path: Path) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = {_key(details): details for details in reversed(error.errors())}  # one for each key
        problems = [_problem(model, details) for details in reversed(first.values())]
        raise ProfileError(
            f"{path}: {problems[0]}", why=" ".join(problems[1:]), mend="every key is described in docs/profiles.md"
        ) from None


def _key(details: Any) -> str:
    """Return the key that is meant; where it may be of several types, pydantic adds their names."""
    types = ("constrained-str", "float")
    return ".".join(str(part) for part in details["loc"] if part not in types and "[" not in str(part))


def _problem(model: type[BaseModel], details: Any) -> str:
    where = _key(details)
    if details["type"] == "extra_forbidden":
        known = list(model.model_fields)
        if len(details["loc"]) > 1:
            known = list((Price if details["loc"][0] == "price" else Environment).model_fields)
        near = difflib.get_close_matches(str(details["loc"][-1]), known, n=1)
        return f"there is no key “{where}”" + (f"; did you mean {near[0]}?" if near else ".")
    if details["type"] in ("tuple_type", "list_type"):
        return f'{where} is a list: ["{details["input"]}"], with brackets.'
    if details["type"] == "string_pattern_mismatch":
        return f"{where} has more than one line: write it on one line, or as a list of lines where it may be one."
    return f"{where}: {details['msg']}."
