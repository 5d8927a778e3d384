"""The lines on forwarded ports, and on the workers of a distributed engine, whose dashboard is one of them."""

from __future__ import annotations

from notebook_launcher.core import events


def ports_text(event: events.PortForwarded | events.WorkersReady) -> str:
    """Return what a user should know of a port, or of the workers: how many there are, how to use and to watch them."""
    if isinstance(event, events.PortForwarded):
        addresses = " or ".join(filter(None, (event.url, event.plain_url)))
        return f"Port {event.port} of {event.node}: {addresses}"
    many = "workers" if event.workers != 1 else "worker"
    nodes = f"{event.nodes} nodes" if event.nodes != 1 else "1 node"
    memory = f"{event.memory_mib / 1024:.{0 if event.memory_mib >= 10240 else 1}f} GiB"
    dashboard = f"Its dashboard is port {event.dashboard_port} of {event.node}:"
    lines = (
        f"Dask: {event.workers} {many} on {nodes}, with {event.threads} threads and {memory} in all.",
        "In the notebook: from dask.distributed import Client; client = Client()",
        dashboard if event.dashboard_port else "There is no dashboard, as the environment has no bokeh.",
    )
    return "\n".join(lines)
