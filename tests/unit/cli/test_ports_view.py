"""What is told of workers, and of ports."""

from __future__ import annotations

import pytest

from notebook_launcher.cli.views.ports import ports_text
from notebook_launcher.core import events


def workers(engine: str = "dask", **changed: int) -> events.WorkersReady:
    numbers = {"nodes": 2, "workers": 4, "threads": 8, "memory_mib": 5376, "dashboard_port": 8787} | changed
    return events.WorkersReady("s", "7", "node1", engine, "tls://10.0.0.1:1", **numbers)


@pytest.mark.parametrize(
    ("changed", "first", "last"),
    [
        ({}, "4 workers on 2 nodes, with 8 threads and 5.2 GiB in all.", "Its dashboard is port 8787 of node1:"),
        (
            {"nodes": 1, "workers": 1, "memory_mib": 258048, "dashboard_port": 0},
            "1 worker on 1 node, with 8 threads and 252 GiB in all.",
            "There is no dashboard, as the environment has no bokeh.",
        ),
    ],
)
def test_the_workers(changed: dict[str, int], first: str, last: str) -> None:
    lines = ports_text(workers(**changed)).splitlines()
    assert lines == [f"Dask: {first}", "In the notebook: from dask.distributed import Client; client = Client()", last]
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize(
    ("changed", "first", "last"),
    [
        ({"workers": 2}, "2 nodes, with 8 cores and 5.2 GiB in all.", "It is port 8787 of node1:"),
        (
            {"nodes": 1, "workers": 1, "threads": 1, "dashboard_port": 0},
            "1 node, with 1 core and 5.2 GiB in all.",
            "There is no dashboard: it needs ray[default] in the environment.",
        ),
    ],
)
def test_the_nodes_of_ray(changed: dict[str, int], first: str, last: str) -> None:
    lines = ports_text(workers("ray", **changed)).splitlines()
    assert lines[:2] == [f"Ray: {first}", "In the notebook: import ray; ray.init()"]
    assert lines[-1] == last
    assert ("RAY_AUTH_TOKEN_PATH" in lines[2]) is (len(lines) == 4), "who sees the dashboard needs the token"
    assert max(map(len, lines)) < 90
