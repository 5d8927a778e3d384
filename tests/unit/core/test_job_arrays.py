"""Which tasks a job array has."""

from __future__ import annotations

import pytest

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.job_arrays import MOST_TASKS, task_numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("7", (7,)),
        ("0,6,4-5", (0, 4, 5, 6)),
        ("0-15:4%2", (0, 4, 8, 12)),
        ("1,1-2", (1, 2)),
        (" 1, 3 % 4", (1, 3)),
    ],
)
def test_the_forms_of_sbatchs_manual(text: str, numbers: tuple[int, ...]) -> None:
    assert task_numbers(text) == numbers


@pytest.mark.parametrize("text", [None, "", "a", "3-1", "1-", "0-3%0", "0-3%", "0-9:0", "1,,2", "-1", "1-2-3", "१"])
def test_another_text_is_refused(text: str | None) -> None:
    with pytest.raises(UsageError, match="does not say which tasks"):
        task_numbers(text)


def test_no_memory_is_filled_by_a_slip() -> None:
    assert len(task_numbers(f"0-{MOST_TASKS - 1}")) == MOST_TASKS
    with pytest.raises(UsageError, match=f"more than {MOST_TASKS} tasks"):
        task_numbers("0-999999999")
