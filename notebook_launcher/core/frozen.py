"""The base class of immutable data: frozen dataclasses that inherit their methods, so that none need be compiled."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

if sys.version_info >= (3, 11):
    from typing import Self, dataclass_transform
else:
    from typing_extensions import Self, dataclass_transform


class _Shape:
    """The fields of a class, in the forms that the methods of ``Frozen`` need."""

    def __init__(self, fields: Sequence[dataclasses.Field[Any]]) -> None:
        none = dataclasses.MISSING
        self.all_names = [one.name for one in fields]
        self.names = set(self.all_names)
        self.in_order = [one.name for one in fields if not one.kw_only]
        self.defaults = {one.name: one.default for one in fields if one.default is not none}
        self.factories = {one.name: one.default_factory for one in fields if one.default_factory is not none}
        self.compared = [one.name for one in fields if one.compare]
        self.shown = [one.name for one in fields if one.repr]


_shapes: dict[type[Frozen], _Shape] = {}  # of the classes that are dataclasses already
_completing = threading.RLock()  # several threads create objects


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """A frozen dataclass without the decorator: ``class JobRef(Frozen):`` and its fields.

    ``@dataclass`` compiles six methods for each class. A command imports more than a hundred such classes and creates
    objects of few; compiling them all took a fifth of the processor time of its start. So a class becomes a dataclass
    when its first object is created, and has no methods of its own: those below read its fields.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *_values: object, **_named: object) -> Self:
        """Return a new object; its values are for ``__init__``."""
        complete(cls)
        return super().__new__(cls)

    def __init__(self, *values: object, **named: object) -> None:
        """Set the fields from positional and keyword arguments."""
        shape = _shapes[type(self)]
        in_order = dict(zip(shape.in_order, values, strict=False))
        given = {**shape.defaults, **in_order, **named}
        for name, make in shape.factories.items():
            if name not in given:
                given[name] = make()
        if given.keys() != shape.names or len(values) > len(in_order) or not in_order.keys().isdisjoint(named):
            raise TypeError(_mistake(type(self).__qualname__, shape, given, values, named))
        vars(self).update(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values; classes that have rules override this."""

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _shapes[type(self)].shown)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, _value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(one: Frozen) -> tuple[object, ...]:
    return tuple([getattr(one, name) for name in _shapes[type(one)].compared])


def _mistake(kind: str, shape: _Shape, given: Collection[str], values: Sequence[object], named: Collection[str]) -> str:
    """Return the message for missing, unknown or repeated arguments."""
    if len(values) > len(shape.in_order):
        return f"{kind} has {len(shape.in_order)} fields in order, and got {len(values)} values"
    if twice := [name for name in shape.in_order[: len(values)] if name in named]:
        return f"{kind} got two values for: {', '.join(twice)}"
    if missing := [one for one in shape.all_names if one not in given]:
        return f"{kind} needs a value for: {', '.join(missing)}"
    return f"{kind} has no field: {', '.join(sorted(set(given) - shape.names))}"


def complete(kind: type[Frozen]) -> None:
    """Make a class and its base classes dataclasses, unless they are already.

    A signal handler may raise in the middle of this; the class is then left as it was. A class whose objects a signal
    handler creates must be completed beforehand.
    """
    if kind in _shapes:
        return
    with _completing:
        for base in kind.__mro__[1:]:
            if base is not Frozen and issubclass(base, Frozen):
                complete(base)
        if kind not in _shapes:
            _make_dataclass(kind)


def _make_dataclass(kind: type[Frozen]) -> None:
    before = dict(vars(kind))
    try:
        dataclasses.dataclass(init=False, repr=False, eq=False)(kind)  # nothing to compile
        _shapes[kind] = _Shape(dataclasses.fields(kind))
    except BaseException:
        _shapes.pop(kind, None)
        for name in [name for name in vars(kind) if name not in before]:
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
        raise
