"""The base of what is passed on and never changed: frozen dataclasses whose methods are those of their base."""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import Any, ClassVar

if sys.version_info >= (3, 11):
    from typing import Self, dataclass_transform
else:
    from typing_extensions import Self, dataclass_transform

_completed: set[type[Frozen]] = set()
_completing = threading.RLock()  # threads make objects too


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """A frozen dataclass without the decorator: ``class JobRef(Frozen):`` and its fields.

    Making a dataclass compiles six methods for it. For the hundred and more that a command imports, most of them to
    make none of their objects, that was a fifth of the processor time in which it starts. So each becomes one with its
    first object, and none has methods of its own: those below read its fields.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *_values: object, **_named: object) -> Self:
        """Return a new object; its values are for ``__init__``."""
        complete(cls)
        return super().__new__(cls)

    def __init__(self, *values: object, **named: object) -> None:
        """Take the values of the fields, in their order or by their names."""
        fields = dataclasses.fields(self)
        if len(values) == len(fields) and not named and not any(one.kw_only for one in fields):
            given: dict[str, object] = {one.name: value for one, value in zip(fields, values, strict=True)}
        else:
            given = _with_defaults(type(self), fields, values, named)
        vars(self).update(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values; for the classes that have rules."""

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, _value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(one: Frozen) -> tuple[object, ...]:
    return tuple(getattr(one, field.name) for field in dataclasses.fields(one) if field.compare)


def _with_defaults(
    kind: type[Frozen],
    fields: tuple[dataclasses.Field[Any], ...],
    values: tuple[object, ...],
    named: dict[str, object],
) -> dict[str, object]:
    """Return the values of all fields. Raises ``TypeError`` for a missing or an unexpected one."""
    in_order = [one.name for one in fields if not one.kw_only]
    given = dict(zip(in_order, values, strict=False))
    if len(values) > len(in_order):
        raise TypeError(f"{kind.__qualname__} has {len(in_order)} fields in order, and got {len(values)} values")
    if twice := given.keys() & named.keys():
        raise TypeError(f"{kind.__qualname__} got two values for: {', '.join(twice)}")
    given |= named
    for one in fields:
        if one.name not in given:
            if one.default is not dataclasses.MISSING:
                given[one.name] = one.default
            elif one.default_factory is not dataclasses.MISSING:
                given[one.name] = one.default_factory()
            else:
                raise TypeError(f"{kind.__qualname__} needs a value for: {one.name}")
    if len(given) > len(fields):
        raise TypeError(f"{kind.__qualname__} has no: {', '.join(given.keys() - {one.name for one in fields})}")
    return given


def complete(kind: type[Frozen]) -> None:
    """Make a class a dataclass if it is none yet, after those that it extends.

    A signal's handler may end this at any moment: then the class is as it was. A class whose objects are made by such a
    handler is to be completed before.
    """
    if kind in _completed:
        return
    with _completing:
        for base in kind.__mro__[1:]:
            if base is not Frozen and issubclass(base, Frozen):
                complete(base)
        if kind not in _completed:
            _make_dataclass(kind)
            _completed.add(kind)


def _make_dataclass(kind: type[Frozen]) -> None:
    before = dict(vars(kind))
    try:
        dataclasses.dataclass(init=False, repr=False, eq=False)(kind)  # nothing to compile
    except BaseException:
        for name in [name for name in vars(kind) if name not in before]:
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
        raise
