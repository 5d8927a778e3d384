"""What the unit tests share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from notebook_launcher.core.timing import DEFAULT_TIMING
from notebook_launcher.session import open_context as opening
from notebook_launcher.session.context import Context
from tests.fuzzing import EXAMPLES, USUAL

# A machine may be slow, or shared: that is no failure of a test.
settings.register_profile(
    "unhurried", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")

SetTiming = Callable[..., None]


@pytest.hookimpl(trylast=True)  # hypothesis marks its tests first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By hand, a test may take as long as its examples do, whatever its module says."""
    for item in items:
        if EXAMPLES != USUAL and item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.timeout(0), append=False)


@pytest.fixture
def set_timing(monkeypatch: pytest.MonkeyPatch) -> SetTiming:
    """Change fields of the ``Timing`` in every context that is opened from now on."""
    timing = DEFAULT_TIMING

    def opened(*args: Any, **others: Any) -> Context:
        return Context(*args, **others, timing=timing)

    def change(**changes: float) -> None:
        nonlocal timing
        timing = dataclasses.replace(timing, **changes)  # type: ignore[arg-type]
        monkeypatch.setattr(opening, "Context", opened)

    return change
