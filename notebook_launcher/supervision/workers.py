"""Shows the workers of a session (``--with``), once JupyterLab answers."""

from __future__ import annotations

from notebook_launcher.core import events
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.tunnel.forwarding import Endpoint


def show_workers(context: Context, session: Session, node: str, endpoint: Endpoint) -> tuple[tuple[int, int], ...]:
    """Show the workers, if there are any, and return the ports to forward: the dashboard's, if there is one."""
    workers = endpoint.workers
    if workers is None:
        return ()
    context.view.show(
        events.WorkersReady(
            session.id,
            job_of(session).id,
            node,
            workers.engine,
            workers.scheduler,
            workers.nodes,
            workers.workers,
            workers.threads,
            workers.memory_mib,
            workers.dashboard,
        )
    )
    return ((workers.dashboard, 0),) if workers.dashboard else ()
