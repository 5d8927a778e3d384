"""Requests, partitions and evidence for the tests of explanations."""

from __future__ import annotations

from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.cluster_info import Evidence

HOUR, DAY = Walltime(hours=1), Walltime(days=1)


def request(**flags: str | None) -> Request:
    return Request({name.replace("_", "-"): value for name, value in flags.items()})


def evidence(asked: Request, **others: object) -> Evidence:
    return Evidence(asked, asked.flags.get("partition"), **others)  # type: ignore[arg-type]


NODE_FELL = (
    "slurmstepd-node2: error: *** JOB 7 ON node2 CANCELLED AT 2026-11-21T18:47:27 DUE TO NODE FAILURE, SEE SLURMCTLD "
    "LOG FOR DETAILS ***"
)
