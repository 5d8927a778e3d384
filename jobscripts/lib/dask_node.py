"""Dask on one node of a session: its scheduler, or the workers of this node.

    dask_node.py scheduler
    dask_node.py workers

Started by ``worker_node.sh`` in the session's environment. The scheduler and the workers are Dask's own; this file
decides how many workers a node gets, keeps other users out, and reports which workers have joined. All connections of
workers and clients use TLS with the session's keys (``dask-*.pem`` in its directory), and are refused without them.
The dashboard has no password: it listens on 127.0.0.1 and serves only the programs of the session's user.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import sys
import tempfile
import types
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))
from node_resources import FOLDER, cores_here, gpus_here, memory_here, write_line

del sys.path[0]


def load_beside(name: str) -> types.ModuleType:
    """Load a module from the session's directory, without using the import path."""
    path = FOLDER / f"{name}.py"
    module = types.ModuleType(name)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)  # noqa: S102
    return module


# --- how many workers, and how large ---------------------------------------------------------------------------


def processes_and_threads(cores: int, gpus: int) -> "tuple[int, int]":
    """Return the number of workers on a node, and their threads: one per GPU, or as ``dask worker --nworkers auto``."""
    if gpus:
        return gpus, max(1, cores // gpus)
    from distributed.deploy.utils import nprocesses_nthreads

    return nprocesses_nthreads(cores)


# --- the session's keys ----------------------------------------------------------------------------------------


def security():
    """Return Dask's TLS settings, with which peers without the session's key are refused in every role."""
    from distributed.security import Security

    pair = {
        f"tls_{role}_{kind}": str(FOLDER / f"dask-{kind}.pem")
        for role in ("scheduler", "worker", "client")
        for kind in ("cert", "key")
    }
    return Security(require_encryption=True, tls_ca_file=str(FOLDER / "dask-ca.pem"), **pair)


def is_from_here(headers) -> bool:
    """Whether a request is for 127.0.0.1, localhost or a name below it, and not from a page of another address.

    Otherwise, other pages in the same browser could read and use the dashboard, by a host name that resolves to
    127.0.0.1 (DNS rebinding), or by its WebSocket.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name not in ("127.0.0.1", "localhost") and not name.endswith(".localhost"):
            return False
        return origin is None or urlsplit(origin).netloc == host
    except ValueError:  # an unmatched "["
        return False


def close_dashboard_to_others() -> None:
    """Let Dask's web servers answer only this user's programs, and only their own pages."""
    from distributed.http.routing import RoutingApplication
    from tornado import web

    load_beside("own_connections").turn_strangers_away(logging.getLogger("distributed").warning)
    find = RoutingApplication.find_handler

    def find_handler(application, request, **others):
        if is_from_here(request.headers):
            return find(application, request, **others)
        return application.get_handler_delegate(request, web.ErrorHandler, {"status_code": 403})

    RoutingApplication.find_handler = find_handler


# --- the scheduler ---------------------------------------------------------------------------------------------


def joined(workers) -> str:
    """Return one line with the number of complete nodes, and of all workers, threads and bytes of memory.

    Each worker has the name NODE-NUMBER-of-COUNT.
    """
    there = {}
    for worker in workers:
        node, _, _ = str(worker.name).rpartition("-of-")
        node = node.rpartition("-")[0]
        there.setdefault(node, []).append(str(worker.name).rpartition("-of-")[2])
    complete = sum(str(len(counts)) == counts[0] for counts in there.values())
    threads, memory = sum(worker.nthreads for worker in workers), sum(worker.memory_limit or 0 for worker in workers)
    return f"{complete} {len(workers)} {threads} {memory}"


async def run_scheduler(stop: asyncio.Event) -> int:
    """Run the session's scheduler until ``stop``."""
    import dask
    from distributed import Scheduler
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Report(SchedulerPlugin):
        """Writes the number of workers to a file."""

        def add_worker(self, scheduler, **_others) -> None:
            self.write(scheduler)

        def remove_worker(self, scheduler, **_others) -> None:
            self.write(scheduler)

        def write(self, scheduler) -> None:
            write_line("workers", joined(list(scheduler.workers.values())))

    dask.config.set({"distributed.dashboard.link": "http://127.0.0.1:{port}/status"})
    close_dashboard_to_others()
    shows = importlib.util.find_spec("bokeh") is not None
    host = f"tls://{os.environ['NBL_NODE_ADDRESS']}"
    async with Scheduler(
        host=host, port=0, security=security(), dashboard=shows, dashboard_address="127.0.0.1:0"
    ) as scheduler:
        scheduler.add_plugin(Report(), name="notebook-launcher")
        port = scheduler.http_server.port if shows else 0
        write_line("scheduler", f"{scheduler.address} {port}")
        await either(stop.wait(), scheduler.finished())
        return 0 if stop.is_set() else 1


# --- the workers of a node -------------------------------------------------------------------------------------


async def run_workers(stop: asyncio.Event) -> int:
    """Run the workers of this node until ``stop``, each with a nanny, which replaces it when it dies."""
    import dask
    from distributed import Nanny
    from distributed.system import MEMORY_LIMIT

    cores, gpus = cores_here(), gpus_here()
    count, threads = processes_and_threads(cores, len(gpus))
    memory = memory_here(cores, MEMORY_LIMIT) // count
    node = socket.gethostname().partition(".")[0]
    # workers need no pages: everything is on the scheduler's dashboard, which is guarded
    dask.config.set({"distributed.worker.http.routes": []})
    logging.getLogger("distributed.nanny").setLevel(logging.INFO)  # logs the death of workers
    with tempfile.TemporaryDirectory(prefix="nl-dask-") as scratch, mark_in_use(scratch):
        nannies = [
            Nanny(
                os.environ["DASK_SCHEDULER_ADDRESS"],
                host=os.environ["NBL_NODE_ADDRESS"],
                protocol="tls",
                name=f"{node}-{number}-of-{count}",
                nthreads=threads,
                memory_limit=memory,
                security=security(),
                local_directory=scratch,
                dashboard=False,
                dashboard_address="127.0.0.1:0",
                death_timeout=60,
                **({"env": {"CUDA_VISIBLE_DEVICES": gpus[number - 1]}, "resources": {"GPU": 1}} if gpus else {}),
            )
            for number in range(1, count + 1)
        ]
        try:
            await asyncio.gather(*nannies)
            await either(stop.wait(), *(nanny.finished() for nanny in nannies))
        finally:
            await asyncio.gather(*(nanny.close(timeout=3) for nanny in nannies), return_exceptions=True)
    return 0 if stop.is_set() else 1


def mark_in_use(folder: str) -> socket.socket:
    """Open a socket in a folder: without it, a later session recognizes the folder as left behind by a killed job."""
    mark = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):  # the path may be too long for a socket: then the folder is never removed
        mark.bind(f"{folder}/in-use")
    return mark


async def either(*awaited) -> None:
    """Wait until one of these is done."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def main(role: str) -> int:
    """Run the scheduler or the workers until a signal comes."""
    logging.getLogger("distributed.comm.tcp").setLevel(logging.ERROR)  # otherwise other users could fill the job's log
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):  # SIGUSR2 announces the end of a step
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await (run_scheduler(stop) if role == "scheduler" else run_workers(stop))


if __name__ == "__main__":
    # Replace the session's directory by the user's folder, whose modules kernels see as well, but after all others.
    sys.path[:1] = []
    sys.path.append(str(Path.cwd()))
    sys.exit(asyncio.run(main(sys.argv[1])))
