"""``core/frozen.py``: frozen dataclasses that are made with their first object."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable

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
        thread.join(10)
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
    assert "__setattr__" in vars(interrupts.Interrupt)
