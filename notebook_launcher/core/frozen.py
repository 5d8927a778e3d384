"""The base of what is passed on and never changed: frozen dataclasses that are made when they are first needed."""

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

    Making a dataclass compiles its six methods. For the hundred and more that a command imports, most of them to make
    none of their objects, that was a sixth of the processor time in which it starts. So each becomes one with its first
    object.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *_values: object, **_named: object) -> Self:
        """Return a new object; its values are for the dataclass."""
        complete(cls)
        return super().__new__(cls)


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
        dataclasses.dataclass(frozen=True)(kind)
    except BaseException:
        for name in [name for name in vars(kind) if name not in before]:
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
        raise
