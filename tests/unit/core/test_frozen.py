"""``core/frozen.py``: frozen dataclasses that are made with their first object."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from notebook_launcher.core import interrupts
from notebook_launcher.core.frozen import Frozen


class Job(Frozen):
    """A job with a default, and a list of its own."""

    number: int
    cluster: str | None = None
    nodes: list[str] = dataclasses.field(default_factory=list)


class ArrayTask(Job):
    """A class that extends another."""

    task: int = 0


def test_its_objects_are_those_of_a_frozen_dataclass() -> None:
    job = Job(1, nodes=["node1"])
    assert job == Job(1, None, ["node1"]) != Job(1)
    assert repr(job) == "Job(number=1, cluster=None, nodes=['node1'])"
    assert dataclasses.replace(job, cluster="c") == Job(1, "c", ["node1"])
    assert Job(1).nodes is not Job(1).nodes
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.number = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="number"):
        Job()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("values", "named", "told"),
    [
        ((), {}, "number"),
        ((1, "c", [], 4), {}, "3 fields"),
        ((1,), {"number": 2}, "two values for: number"),
        ((1,), {"nodse": []}, "Job has no field: nodse$"),
        ((1,), {"b": 1, "a": 2}, "Job has no field: a, b$"),
        ((), {"cluster": "c"}, "number"),
    ],
)
def test_a_value_that_is_missing_or_too_much_is_named(
    values: tuple[Any, ...], named: dict[str, Any], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        Job(*values, **named)


def test_a_field_may_be_given_by_its_name_alone() -> None:
    class Price(Frozen):
        hour: float = 0.0
        unit: str = dataclasses.field(kw_only=True)

    assert Price(1.5, unit="h") == Price(hour=1.5, unit="h") != Price(unit="h")
    assert dataclasses.asdict(Price(unit="h")) == {"hour": 0.0, "unit": "h"}
    with pytest.raises(TypeError, match=r"Price needs a value for: unit$"):
        Price(1.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="1 fields in order"):
        Price(1.5, "h")  # type: ignore[call-arg, misc]


def test_a_field_that_is_not_compared_or_shown() -> None:
    class Login(Frozen):
        host: str
        password: str = dataclasses.field(repr=False)
        at: int = dataclasses.field(default=0, compare=False)

    assert Login("h", "secret", 1) == Login("h", "secret", 2) != Login("h", "other")
    assert hash(Login("h", "secret", 1)) == hash(Login("h", "secret", 2))
    assert repr(Login("h", "secret")) == ("test_a_field_that_is_not_compared_or_shown.<locals>.Login(host='h', at=0)")
    assert Login("h", "s") != ("h", "s", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Login("h", "s").host  # type: ignore[misc]


def test_a_class_may_have_rules_for_its_values() -> None:
    class Port(Frozen):
        number: int

        def __post_init__(self) -> None:
            if not 0 < self.number < 65536:
                raise ValueError("not a port")

    assert Port(22).number == 22
    for wrong in (lambda: Port(0), lambda: Port(number=0), lambda: dataclasses.replace(Port(22), number=0)):
        with pytest.raises(ValueError, match="not a port"):
            wrong()


def test_a_class_that_extends_another_has_its_fields_whichever_is_made_first() -> None:
    class Base(Frozen):
        number: int

    class Extending(Base):
        task: int = 0

    assert Extending(5, 2) == Extending(number=5, task=2)
    assert Base(5) != Extending(5)
    assert [field.name for field in dataclasses.fields(ArrayTask(1))] == ["number", "cluster", "nodes", "task"]


def test_its_objects_are_copied_and_pickled() -> None:
    job = ArrayTask(1, "c", task=3)
    assert copy.deepcopy(job) == pickle.loads(pickle.dumps(job)) == job


def test_threads_may_make_the_first_one_together() -> None:
    class Many(Frozen):
        number: int

    made: list[Many] = []
    threads = [threading.Thread(target=lambda n=n: made.append(Many(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(one.number for one in made) == list(range(8))


def test_ctrl_c_while_a_class_is_made_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node(Frozen):
        name: str
        jobs: list[str] = dataclasses.field(default_factory=list)

    make = dataclasses.dataclass

    def interrupted(**options: bool) -> Callable[[type], None]:
        def half_done(kind: type) -> None:
            make(**options)(kind)  # type: ignore[call-overload]
            raise KeyboardInterrupt

        return half_done

    monkeypatch.setattr(dataclasses, "dataclass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Node("node1")
    monkeypatch.undo()
    assert Node("node1") == Node("node1", []) != Node("node2")


def test_what_a_signals_handler_makes_is_made_before() -> None:
    assert "__dataclass_fields__" in vars(interrupts.Interrupt)
