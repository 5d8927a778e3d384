"""What a request asks for at least, beside what is allowed: never more than it certainly asks for."""

from __future__ import annotations

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED
from notebook_launcher.diagnosis.requirements import (
    amount_requested,
    amount_text,
    is_beyond,
    most_nodes,
    parse_amount,
)
from notebook_launcher.schedulers.cluster_info import Limit


def request(**flags: str | None) -> Request:
    return Request({name.replace("_", "-"): value for name, value in flags.items()})


@pytest.mark.parametrize(
    ("on", "asked_for", "least"),
    [
        ("gres/gpu", request(), 0),
        ("gres/gpu", request(gpus="4"), 4),
        ("gres/gpu", request(gpus="t4:2,a100:1"), 3),
        ("gres/gpu", request(gres="gpu:t4:2,scratch:9"), 2),
        ("gres/gpu", request(gres="gpu"), 1),
        ("gres/gpu", request(gres="none"), 0),
        ("gres/gpu", request(gres="gpu:2", nodes="3", ntasks="3"), 6),
        ("gres/gpu", request(gpus_per_node="2", nodes="2-4"), 4),
        ("gres/gpu", request(gpus_per_task="1", ntasks="4"), 4),
        ("gres/gpu", request(tres_per_task="cpu=2,gres/gpu:t4:1", ntasks="2"), 2),
        ("gres/gpu", request(gpus="two"), 1),
        ("gres/gpu:t4", request(gpus="t4:2"), 2),
        ("gres/gpu:t4", request(gres="gpu:t4:2,gpu:a100:1"), 2),
        ("gres/gpu:t4", request(gpus="2"), None),  # of which type is the scheduler's choice
        ("gres/gpu:t4", request(gpus="a100:2"), None),
        ("cpu", request(), 1),
        ("cpu", request(ntasks="4", cpus_per_task="2"), 8),
        ("cpu", request(ntasks_per_node="4", nodes="2"), 8),
        ("cpu", request(nodes="3"), 3),
        ("cpu", request(ntasks="8", overcommit=None), None),
        ("node", request(), 1),
        ("node", request(nodes="2"), 2),
        ("node", request(nodes="2-4"), 2),
        ("node", request(nodes="4,2"), 2),
        ("node", request(nodes="1k"), 1),
        ("node", request(nodes="5", ntasks="1"), 1),  # seen: sbatch asks for one node then
        ("mem", request(mem="5G"), 5120),
        ("mem", request(mem="5000", nodes="2"), 10000),
        ("mem", request(mem="0"), None),  # all that a node has
        ("mem", request(mem_per_cpu="2G", ntasks="4"), 8192),
        ("mem", request(mem_per_gpu="2G", gpus="2"), 4096),
        ("mem", request(), None),
        ("jobs", request(), 1),
        ("submitted jobs", request(), None),
        ("walltime", request(time="2:00:00"), 7200),
        ("walltime", request(time="2:00:00", time_min="30"), 1800),
        ("walltime", request(time="unlimited"), UNLIMITED.total_seconds()),
        ("cpu minutes", request(), None),
        ("license/matlab", request(licenses="matlab"), None),
    ],
)
def test_what_is_asked_for_at_least(on: str, asked_for: Request, least: float | None) -> None:
    assert amount_requested(asked_for, on) == least


@pytest.mark.parametrize(
    ("text", "most"), [("2", 2), ("2-4", 4), ("1,3", None), ("2-8:2", None), ("", None), ("many", None)]
)
def test_how_many_nodes_at_most(text: str, most: int | None) -> None:
    assert most_nodes(request(nodes=text)) == most


@pytest.mark.parametrize(
    ("on", "text", "value"),
    [
        ("cpu", "12", 12),
        ("cpu", "1M", 10**6),
        ("cpu", "12.50", 12),
        ("cpu", "N", None),
        ("cpu", "", None),
        ("mem", "5G", 5120),
        ("mem", "5120", 5120),
        ("mem", "512K", 0.5),
        ("mem", "1T", 2**20),
        ("walltime", "02:00:00", 7200),
        ("walltime", "120", 7200),
        ("walltime", "1-00:00:00", 86400),
        ("walltime", "unlimited", None),
        ("walltime", "soon", None),
        ("jobs", "0", 0),
    ],
)
def test_values_of_limits(on: str, text: str, value: float | None) -> None:
    assert parse_amount(on, text) == value


@pytest.mark.parametrize(
    ("limit", "beyond"),
    [
        (Limit("QOS short", "gres/gpu", "user", "3"), True),
        (Limit("QOS short", "gres/gpu", "user", "4"), False),
        (Limit("QOS short", "gres/gpu", "node", "3"), False),
        (Limit("QOS short", "gres/gpu", "user", "N"), False),
        (Limit("QOS short", "gres/gpu minutes", "user", "3"), False),
        (Limit("QOS short", "walltime", "job", "1:00:00"), True),
        (Limit("QOS short", "walltime", "group", "1:00:00"), False),
    ],
)
def test_what_no_other_jobs_end_helps(limit: Limit, beyond: bool) -> None:
    assert is_beyond(request(gpus="4", time="2:00:00"), limit) is beyond


@pytest.mark.parametrize(
    ("on", "value", "text"),
    [
        ("gres/gpu", "1", "1 GPU"),
        ("gres/gpu", "2", "2 GPUs"),
        ("gres/gpu:a100", "2", "2 GPUs of type a100"),
        ("gres/scratch", "2", "2 scratch (GRES)"),
        ("cpu", "8", "8 CPUs"),
        ("mem", "5G", "5G of memory"),
        ("node", "1", "1 node"),
        ("jobs", "3", "3 jobs"),
        ("submitted jobs", "3", "3 jobs, waiting and running,"),
        ("license/matlab", "2", "2 licences of matlab"),
        ("billing", "5", "5 billing units"),
        ("walltime", "02:00:00", "a walltime of 02:00:00"),
        ("cpu minutes", "600", "600 CPU minutes"),
        ("mem minutes", "600", "600 memory minutes"),
        ("gres/gpu minutes", "600", "600 GPU minutes"),
        ("running cpu minutes", "600", "600 CPU minutes ahead in running jobs"),
        ("energy", "7", "7 energy"),
    ],
)
def test_amounts_in_words(on: str, value: str, text: str) -> None:
    assert amount_text(on, value) == text
