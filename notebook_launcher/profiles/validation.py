"""Reads merged layers into the models, and reports mistakes in a sentence, with the file, the line and the key.

Only a table that was not found valid before is checked by pydantic, which is imported only then: see ``valid_tables``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Mapping, Sequence
from datetime import time
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.core.frozen import complete
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.profiles import valid_tables
from notebook_launcher.profiles.layers import BUNDLED, Layer, merge, origin
from notebook_launcher.profiles.models import TABLES, Table

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Model = TypeVar("Model", bound=Table)


def validated_once(model: type[Model], layers: Sequence[Layer]) -> Model:
    """Return the same as ``validated``, without checking again what was found valid before."""
    data = merge(layers)
    if (known := valid_tables.recall(model, data)) is not None:
        return known
    table = _checked(model, data, layers)
    if not any(map(_sets_variables, layers)):
        valid_tables.keep(table, data)
    return table


def _sets_variables(layer: Layer) -> bool:
    """Return whether a file other than a bundled one sets environment variables, whose values may be secrets."""
    environments = layer.data.get("environments")
    tables = environments.values() if isinstance(environments, Mapping) else ()
    return not layer.name.endswith(BUNDLED) and any(isinstance(table, Mapping) and "env" in table for table in tables)


def validated(model: type[Model], layers: Sequence[Layer]) -> Model:
    """Return the model of merged layers. Raises ``ProfileError`` with the file, the line and the key."""
    return _checked(model, merge(layers), layers)


def _checked(model: type[Model], data: Mapping[str, Any], layers: Sequence[Layer]) -> Model:
    from pydantic import ValidationError

    try:
        table: Model = _adapter(model.__name__).validate_python(data)
        return table
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
            or "compare it with another one: launch-notebook clusters show NAME; every key is described in "
            "docs/profiles.md of the project's documentation",
        ) from None


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """Return the validator of the model of that name, whose annotations use the types in ``key_types``."""
    from pydantic import TypeAdapter

    from notebook_launcher.core.pydantic_plugins import look_for_no_plugins
    from notebook_launcher.profiles import key_types

    look_for_no_plugins()
    for kind in TABLES.values():
        complete(kind)
    adapter: TypeAdapter[Any] = TypeAdapter(TABLES[name])
    adapter.rebuild(_types_namespace=vars(key_types))
    return adapter


def _place(details: Any, data: Any) -> tuple[str, ...]:
    """Return the path of the key with the problem, without the type names that pydantic adds."""
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


#: messages for wrong types, with their hints
_EXAMPLES = {
    "string": ("must be text in quotes.", '{key} = "{value}"'),
    "int": ("must be a whole number, without quotes.", "for example: {key} = 5"),
    "float": ("must be a number, without quotes.", "for example: {key} = 1.5"),
    "finite": ("must be a number.", "for example: {key} = 1.5"),
    "bool": ("must be true or false, without quotes.", "{key} = true"),
    "dict": ("must be a table.", "its keys stand below a line [{table}]"),
    "dataclass": ("must be a table.", "its keys stand below a line [{table}]"),
    "tuple": ("must be a list, in brackets.", '{key} = ["{value}"]'),
    "list": ("must be a list, in brackets.", '{key} = ["{value}"]'),
    "date": ("must be a date, without quotes.", "for example: {key} = 2026-11-22"),
}


def _problem(model: type[Table], details: Any, key_path: tuple[str, ...]) -> tuple[str, str]:
    """Return a sentence on the mistake, and what to type instead, if known."""
    kind, value, limits = details["type"], details["input"], details.get("ctx", {})
    names = [cut(part) for part in key_path if not part.isdecimal()] or ["the file"]  # numbers are positions in lists
    where, key, shown = ".".join(names), names[-1], cut(str(value))
    if kind == "unexpected_keyword_argument":
        return f"there is no key “{where}”.", did_you_mean(key, _keys_at(model, details["loc"][:-1]))
    if kind == "missing":
        return f"{where} is missing.", f"add a line: {key} = …"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", limits["expected"])
        hint = did_you_mean(str(value), known) or f'for example: {key} = "{known[0]}"'
        return f"{where} = “{shown}” is not valid; use one of: {', '.join(known)}.", hint
    if kind in ("string_too_short", "too_short"):
        return f"{where} is empty.", "write something there, or remove the line"
    if kind == "string_too_long":
        return f"{where} has more than {limits['max_length']} characters.", ""
    if kind == "string_pattern_mismatch":
        return f"{where} = “{shown}” does not look like {limits['pattern']}.", ""
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = limits.get("ge", limits.get("le"))
        bound = f"at {'least' if 'ge' in limits else 'most'} {limit}"
        return f"{where} = {value} is out of range; it must be {bound}.", f"{key} = {limit}"
    if meant := _EXAMPLES.get(kind) or _EXAMPLES.get(kind.partition("_")[0]):
        plain = shown if isinstance(value, str | int | float | time) else "…"
        return f"{where} {meant[0]}", meant[1].format(key=key, table=where, value=plain)
    message = cut(details["msg"].removeprefix("Value error, ").rstrip("."), 300)
    if message.startswith("has more than one line"):
        return f"{where} {message}.", "write it on one line, or as a list of lines where it may be one"
    if message.startswith("has an invisible character"):
        return f"{where} {message}.", f'write it again: {key} = "…"'
    return f"{where}: {message}.", ""


def cut(text: str, length: int = 80) -> str:
    """Return a value on one line, and shortened, for a message."""
    line = re.sub(r"[\n\r\t]", " ", text)
    return line if len(line) <= length else f"{line[:length]}…"


def _keys_at(model: type[Table], key_path: Sequence[str | int]) -> list[str]:
    """Return the keys of the table at a path in a model."""
    kind: Any = model
    for part in key_path:
        if _is_model(kind):
            kind = _table_in(key_types_of(kind).get(str(part)))
        else:  # a table with arbitrary keys, or a list
            kinds = get_args(kind)
            kind = _table_in(kinds[1 if get_origin(kind) is dict else 0]) if kinds else None
    return list(key_types_of(kind)) if _is_model(kind) else []


def key_types_of(model: type[Table]) -> dict[str, Any]:
    """Return the keys of a table, each with its type."""
    from notebook_launcher.profiles import key_types

    complete(model)
    hints = get_type_hints(model, localns=vars(key_types), include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(model)}


def _table_in(annotation: Any) -> Any:
    """Return the model in ``Model | None``."""
    if get_origin(annotation) is Annotated:
        return _table_in(get_args(annotation)[0])
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    return next(filter(_is_model, get_args(annotation)), annotation)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)
