"""Ray on one node of a session: its head, or one of the nodes that join it.

    ray_node.py scheduler
    ray_node.py workers

Started by ``worker_node.sh`` in the session's environment. The processes are Ray's own, started by ``ray start``; this
file sets the resources that Ray may use on this node, keeps other users out, and reports that the node has joined.

Ray's processes talk to each other by gRPC, with TLS on both sides (``RAY_USE_TLS``) and the session's token
(``RAY_AUTH_MODE``), and answer HTTP only with that token. ``workers_ray.sh`` sets the variables for both.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from node_resources import FOLDER, cores_here, gpus_here, memory_here, memory_limit, write_line

del sys.path[0]

STORE_PART, LEAST_STORE = 0.3, 100 * 2**20  # share of memory for objects, as Ray's default; it needs 75 MiB
STARTED = "Ray runtime started."
ENDS_WITHIN = 2  # seconds
#: Ray allows a node half a minute to start, which is little for a slow file system or a busy machine: an attempt that
#: fails after so long is repeated. By then, most of the files are in the page cache.
SLOW_SECONDS, TRIES = float(os.environ.get("NBL_RAY_SLOW_SECONDS") or 25), 3
#: the command ``ray`` of this Python, without importing modules from the working directory
RAY = "import sys; del sys.path[0]; from ray.scripts.scripts import main; main()"

#: Prometheus' metrics would be open to everybody. An invalid port number keeps them from being served.
WITHOUT_METRICS = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}
#: Shut down without waiting for further requests.
ENDS_AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}


def free_port(address: str) -> int:
    """Return a port that is free now on this address."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        return listener.getsockname()[1]


def has(*modules: str) -> bool:
    """Whether all these modules are installed."""
    with contextlib.suppress(ImportError):
        return all(importlib.util.find_spec(module) for module in modules)
    return False


def store_and_memory(memory: int, shared: int) -> "tuple[int, int]":
    """Split a node's memory, in bytes, between object store and workers. ``shared``: the free size of /dev/shm."""
    store = max(LEAST_STORE, min(int(memory * STORE_PART), int(shared * 0.95)))
    return store, max(memory - store, LEAST_STORE)


def shared_memory() -> int:
    """Return the free size of /dev/shm in bytes; Ray keeps its objects there."""
    with contextlib.suppress(OSError):
        there = os.statvfs("/dev/shm")  # noqa: S108
        return there.f_bavail * there.f_frsize
    return 0


def options(cores: int, memory: int) -> "list[str]":
    """Return the options of ``ray start`` for every node: its resources, and its folders."""
    store, rest = store_and_memory(memory, shared_memory())
    given = {
        "node-ip-address": os.environ["NBL_NODE_ADDRESS"],
        "temp-dir": os.environ["NBL_RAY_FOLDER"] + "/r",  # Ray makes this folder accessible to everybody
        "num-cpus": cores,
        "num-gpus": len(gpus_here()),
        "memory": rest,
        "object-store-memory": store,
        # any free ports: another user may run Ray on this node
        "min-worker-port": 0,
        "max-worker-port": 0,
        "dashboard-agent-listen-port": 0,
    }
    return ["--block", *(f"--{name}={value}" for name, value in given.items())]


def head_options() -> "list[str]":
    """Choose the ports of the head, write them to a file for the other processes, and return them as options."""
    address = os.environ["NBL_NODE_ADDRESS"]
    port, dashboard = free_port(address), free_port("127.0.0.1")
    shows = has("aiohttp", "aiohttp_cors", "grpc", "opencensus", "prometheus_client")
    given = {
        "port": port,
        "include-dashboard": "true" if shows else "false",
        "dashboard-host": "127.0.0.1",
        "dashboard-port": dashboard,
        **({"ray-client-server-port": free_port(address)} if has("grpc") else {}),
    }
    write_line("scheduler", f"{address}:{port} {dashboard if shows else 0}")
    return ["--head", *(f"--{name}={value}" for name, value in given.items())]


def keep_dashboard_port() -> "socket.socket | None":
    """Occupy the dashboard's port on this node's 127.0.0.1, for as long as the returned socket is kept.

    Ray's agents on all nodes look for the dashboard there, and send the token to whatever listens; the dashboard itself
    is on the first node. Raises ``OSError`` if another program has the port.
    """
    port = int(os.environ.get("NBL_DASHBOARD_PORT") or 0)
    if not port:
        return None
    kept = socket.socket()
    kept.bind(("127.0.0.1", port))
    return kept


class Node:
    """Ray's processes on this node, children of ``ray start``: when that ends, they end."""

    def __init__(self) -> None:
        self.child = None
        self.stopped = self.started = False
        self.kept = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):  # SIGUSR2: the end of a step
            signal.signal(number, self.stop)

    def stop(self, *_signal) -> None:
        """End the processes, or do not start them."""
        self.stopped = True
        if self.child:
            self.child.terminate()
            signal.signal(signal.SIGALRM, lambda *_: self.child.kill())
            signal.alarm(ENDS_WITHIN)

    def await_head(self) -> None:
        """Wait until the first node has joined; if that takes too long, the job fails."""
        first = FOLDER / "runtime" / f"ray-joined-{os.environ['NBL_FIRST_NODE']}"
        while not self.stopped and not first.exists():
            time.sleep(0.1)

    def run(self, role: str) -> int:
        """Run the head, or a node that joins it, until a signal comes."""
        cores = cores_here()
        memory = memory_here(cores, memory_limit())
        if role == "scheduler":
            more = head_options()
        else:
            try:
                self.kept = keep_dashboard_port()
            except OSError as error:
                sys.exit(f"notebook-launcher: the port of Ray's dashboard is taken on {os.uname().nodename} ({error})")
            self.await_head()
            more = [f"--address={os.environ['RAY_ADDRESS']}"]
        if self.stopped:
            return 0
        command = [sys.executable, "-u", "-c", RAY, "start", *more, *options(cores, memory)]
        for _ in range(TRIES):
            began = time.monotonic()
            self.child = subprocess.Popen(
                command, env={**os.environ, **WITHOUT_METRICS, **ENDS_AT_ONCE}, stdout=subprocess.PIPE, text=True
            )
            if self.stopped:
                self.stop()
            code = self.follow(f"ray-joined-{os.environ['NBL_NODE_NAME']}", f"{cores} {memory}")
            if self.stopped or self.started or time.monotonic() - began < SLOW_SECONDS:
                break
            sys.stderr.write(f"notebook-launcher: Ray was slow to start on {os.uname().nodename}\n")
        return code

    def follow(self, report: str, has: str) -> int:
        """Report the node while it runs. Of the output of ``ray start``, only errors are kept."""
        try:
            for line in self.child.stdout:
                if STARTED in line:
                    self.started = True
                    write_line(report, has)
            code = self.child.wait()
        finally:
            (FOLDER / "runtime" / report).unlink(missing_ok=True)
        return 0 if self.stopped else code or 1


if __name__ == "__main__":
    sys.path[:1] = []  # the session's directory
    sys.exit(Node().run(sys.argv[1]))
