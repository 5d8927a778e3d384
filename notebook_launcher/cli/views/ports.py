"""Texts on forwarded ports, and on the workers of Dask or Ray, whose dashboard is forwarded."""

from __future__ import annotations

from notebook_launcher.core import events


def ports_text(event: events.PortForwarded | events.WorkersReady) -> str:
    """Return a text on a forwarded port, or on the workers: their number, how to use them, and how to watch them."""
    if isinstance(event, events.PortForwarded):
        addresses = " or ".join(filter(None, (event.url, event.plain_url)))
        return f"Port {event.port} of {event.node}: {addresses}"
    nodes = f"{event.nodes} nodes" if event.nodes != 1 else "1 node"
    memory = f"{event.memory_mib / 1024:.{0 if event.memory_mib >= 10240 else 1}f} GiB"
    return "\n".join((_ray_lines if event.engine == "ray" else _dask_lines)(event, nodes, memory))


def _dask_lines(event: events.WorkersReady, nodes: str, memory: str) -> tuple[str, ...]:
    many = "workers" if event.workers != 1 else "worker"
    dashboard = f"Its dashboard is port {event.dashboard_port} of {event.node}:"
    return (
        f"Dask: {event.workers} {many} on {nodes}, with {event.threads} threads and {memory} in all.",
        "In the notebook: from dask.distributed import Client; client = Client()",
        dashboard if event.dashboard_port else "There is no dashboard, as the environment has no bokeh.",
    )


def _ray_lines(event: events.WorkersReady, nodes: str, memory: str) -> tuple[str, ...]:
    cores = f"{event.threads} cores" if event.threads != 1 else "1 core"
    asks = "Its dashboard asks for a token, which a cell prints with: !cat $RAY_AUTH_TOKEN_PATH"
    shows = (asks, f"It is port {event.dashboard_port} of {event.node}:")
    return (
        f"Ray: {nodes}, with {cores} and {memory} in all.",
        "In the notebook: import ray; ray.init()",
        *(shows if event.dashboard_port else ("There is no dashboard: it needs ray[default] in the environment.",)),
    )
