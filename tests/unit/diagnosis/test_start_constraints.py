"""Limits that are used up hold a request back."""

from __future__ import annotations

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.start_constraints import StartConstraints
from notebook_launcher.schedulers.cluster_info import Limit

Flags = dict[str, str | None]


@pytest.mark.parametrize(
    ("flags", "limit", "is_used_up"),
    [
        ({"gpus": "1"}, Limit("account a", "gres/gpu", "group", "2", "2"), True),
        ({"gpus": "1"}, Limit("account a", "gres/gpu", "group", "2", "1"), False),
        ({"gpus": "2"}, Limit("account a", "gres/gpu", "group", "2", "1"), True),
        ({}, Limit("account a", "gres/gpu", "group", "0", "0"), False),  # none is asked for
        ({}, Limit("account a", "jobs", "user", "1", "1"), True),
        ({"ntasks": "2", "cpus-per-task": "4"}, Limit("account a", "cpu", "user", "8", "1"), True),
        ({}, Limit("account a", "jobs", "user", "1", None), False),  # not known
        ({}, Limit("account a", "mem", "group", "100G", "100G"), False),
    ],
)
def test_a_limit_that_is_used_up(flags: Flags, limit: Limit, is_used_up: bool) -> None:
    assert bool(StartConstraints(None, lambda _: [limit]).delays(Request(flags), None)) is is_used_up
