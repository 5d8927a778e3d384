"""Measures the echo of a key pressed in one tab while a kernel's output fills another: by the tunnel and ``ssh -L``.

    make bench-tunnel     (measures this last; this file alone can be run in the same way)

A kernel of a real JupyterLab on a compute node sends 100 messages of 1 MB each, like plots and tables, and a WebSocket
on the laptop receives them, as JupyterLab's page does. Another WebSocket connects to a terminal of the same JupyterLab:
it sends a key twenty times a second, and the time until the terminal has echoed it is measured. The column "idle" is
the same without the kernel's output.

JupyterLab itself drops text that a cell prints faster than 1 MB/s (``iopub_data_rate_limit``, which the launcher does
not change); ``--print`` shows that. Plots are not limited.

Over a slow network (``slow_network.py``), the output is a tenth of that. The tunnel, the kernel's WebSocket and the
terminal's run in separate processes, so that none of them is delayed by another one's Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.connections import NoQuestions, free_port, ssh_config, wait_until_open  # noqa: E402
from benchmarks.page import NODE, TOKEN, stock_jupyterlab  # noqa: E402
from benchmarks.slow_network import slow_network  # noqa: E402
from tests.practice_cluster import PracticeCluster  # noqa: E402

WAYS = ("ssh -L", "paramiko", "openssh")
IDLE_SECONDS = 3.0
BETWEEN_KEYS = 0.05  # seconds
KEY = "="  # a character that the terminal shows only if it was pressed
TIMEOUT = 120.0  # seconds
PLOTS = 'for _ in range({}): display({{"text/plain": "x" * 1_000_000}}, raw=True)'
LINES = 'for _ in range(1000 * {}): print("x" * 1000)'


# --- in the laptop's network ----------------------------------------------------------------------------------


def call(port: int, path: str) -> Any:
    """Create an object with Jupyter's REST API."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/{path}", b"{}", {"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


def connect(port: int, path: str, *protocols: str) -> Any:
    """Open a WebSocket."""
    import websocket  # type: ignore[import-untyped]

    address = f"ws://127.0.0.1:{port}/{path}?token={TOKEN}"
    return websocket.create_connection(address, timeout=TIMEOUT, subprotocols=list(protocols))


def run_cell(kernel: Any, code: str) -> int:
    """Let the kernel run a cell to its end, and return the number of bytes that it has sent."""
    from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

    ours = uuid.uuid4().hex
    header = {"msg_id": ours, "msg_type": "execute_request", "session": ours, "username": "", "version": "5.3"}
    message = [json.dumps(part).encode() for part in (header, {}, {}, {"code": code, "silent": False})]
    kernel.send_binary(serialize_msg_to_ws_v1(message, "shell"))
    size = 0
    while True:
        data = kernel.recv()
        size += len(data)
        if len(data) < 10_000 and b'"idle"' in data and ours.encode() in data:
            return size


def receive(port: int, cell: str) -> None:
    """Run a cell in a new kernel, and print the number of bytes, the begin and the end as JSON."""
    kernel = connect(port, f"api/kernels/{call(port, 'kernels')['id']}/channels", "v1.kernel.websocket.jupyter.org")
    run_cell(kernel, "pass")
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    size = run_cell(kernel, cell)
    print(json.dumps([size, began, time.perf_counter()]))


class Keys:
    """Presses a key in the terminal again and again, whether or not the last one has been echoed."""

    def __init__(self, terminal: Any) -> None:
        self._terminal, self._over = terminal, threading.Event()
        self._pressed: list[float] = []
        self._echoed: list[float] = []
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._press, self._read)]
        for thread in self._threads:
            thread.start()

    def _press(self) -> None:
        over = False
        while not over:
            over = self._over.wait(BETWEEN_KEYS)  # then another key, for which the other thread waits
            self._pressed.append(time.perf_counter())
            self._terminal.send(json.dumps(["stdin", KEY]))
            if len(self._pressed) % 1000 == 0:
                self._terminal.send(json.dumps(["stdin", "\r"]))  # a terminal's input line is limited

    def _read(self) -> None:
        while not self._over.is_set() or len(self._echoed) < len(self._pressed):
            kind, text = json.loads(self._terminal.recv())
            self._echoed += [time.perf_counter()] * (text.count(KEY) if kind == "stdout" else 0)

    def stop(self) -> None:
        """Stop, and wait for the echo of keys already pressed."""
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT)

    def between(self, begin: float, end: float) -> list[float]:
        """Return the seconds until the echo of each key that was pressed between two moments."""
        return [there - at for at, there in zip(self._pressed, self._echoed, strict=True) if begin <= at < end]


def measure_keys(port: int, cell: str) -> dict[str, Any]:
    """Press keys while the connection is idle, and while a kernel sends its output."""
    terminal = connect(port, f"terminals/websocket/{call(port, 'terminals')['name']}")
    terminal.send(json.dumps(["stdin", "exec cat >/dev/null\r"]))
    time.sleep(1)
    while b"cat" not in terminal.recv().encode():
        pass
    words = [sys.executable, __file__, "--receive", str(port), cell]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdin and receiver.stdout
        receiver.stdout.readline()
        keys, idle = Keys(terminal), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        receiver.stdin.write("\n")
        receiver.stdin.flush()
        size, begin, end = json.loads(receiver.stdout.readline())
    keys.stop()
    beside = keys.between(begin, end)
    return {"idle": keys.between(idle, begin), "beside": beside, "size": size, "seconds": end - begin}


def tunnel(engine: str, config: str, port: int, host_keys: tuple[str, ...]) -> None:
    """Forward a local port to the node with our own tunnel, print it, and end with standard input."""
    from notebook_launcher.hosts.base import NextHop
    from notebook_launcher.hosts.openssh.host import OpenSshHost
    from notebook_launcher.hosts.paramiko.host import ParamikoHost
    from notebook_launcher.hosts.paramiko.login import Credentials
    from notebook_launcher.hosts.ssh_config import Destination
    from notebook_launcher.tunnel.forwarding import Tunnel

    destination, credentials = Destination("login", config_file=config), Credentials(NoQuestions())
    with (OpenSshHost if engine == "openssh" else ParamikoHost).open(destination, credentials) as host:
        ours = Tunnel()
        ours.run_over(host.open_route(NextHop(NODE, (NODE, 22), (), host_keys, None, False)))
        print(ours.forward(port), flush=True)
        sys.stdin.read()
        ours.close()


# --- on the host ----------------------------------------------------------------------------------------------


def here(cluster: PracticeCluster, *words: str) -> list[str]:
    """Return the command that runs this program in the laptop's network."""
    return cluster.laptop_argv([sys.executable, __file__, *words])


@contextlib.contextmanager
def led_by(way: str, cluster: PracticeCluster, config: str, port: int) -> Iterator[int]:
    """Yield a port of the laptop that is forwarded to a port of the node."""
    if way == "ssh -L":
        local = free_port()
        words = ["ssh", "-F", config, "-N", "-J", "login", "-L", f"127.0.0.1:{local}:127.0.0.1:{port}", NODE]
        with subprocess.Popen(cluster.laptop_argv(words)) as ssh:
            try:
                subprocess.run(here(cluster, "--wait", str(local)), check=True)
                yield local
            finally:
                ssh.terminate()
        return
    keys = cluster.run(NODE, "alice", ["sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub"]).stdout.splitlines()
    words = here(cluster, "--tunnel", way, config, str(port), *(" ".join(key.split()[:2]) for key in keys))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def measure(cluster: PracticeCluster, network: str, port: int, rounds: int, cell: str, only: str) -> None:
    """Measure every method in turn over one network, and print the results."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS if not only or way in only.split(",")}
    with contextlib.ExitStack() as until_end:
        relay = 0
        if network != "none":
            mbits, milliseconds = map(float, network.split("/"))
            relay = until_end.enter_context(slow_network(cluster.laptop_argv, "login:22", mbits, milliseconds)).port
        for _ in range(rounds):
            for way, measured in found.items():
                with ssh_config(cluster, relay) as config, led_by(way, cluster, config, port) as local:
                    done = subprocess.run(here(cluster, "--keys", str(local), cell), stdout=subprocess.PIPE, check=True)
                    measured.append(json.loads(done.stdout))
    show(network, found)


def show(network: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the time of a key's echo in milliseconds, over all rounds."""
    title = "no delay" if network == "none" else "{} Mbit/s, {} ms".format(*network.split("/"))
    print(f"\na key beside a kernel's output: {title}")
    for way, rounds in found.items():
        keys = {when: sorted(1000 * key for one in rounds for key in one[when]) for when in ("idle", "beside")}
        cells = "".join(
            f"   {when}: median {statistics.median(times):8.1f} ms, 99 % {times[int(0.99 * len(times))]:8.1f},"
            f" worst {times[-1]:8.1f}"
            for when, times in keys.items()
        )
        rate = statistics.median(one["size"] / one["seconds"] / 1e6 for one in rounds)
        size = statistics.median(one["size"] / 1e6 for one in rounds)
        print(f"  {way:10}{cells}   {size:.1f} MB, {rate:.2f} MB/s", flush=True)


def measure_all(cluster: PracticeCluster, megabytes: int, rounds: int, text: str = PLOTS, only: str = "") -> None:
    """Measure over the fast network and over a slow one."""
    with stock_jupyterlab(cluster) as port:
        measure(cluster, "none", port, rounds, text.format(megabytes), only)
        measure(cluster, "10/30", port, 1, text.format(max(1, megabytes // 10)), only)


def main() -> None:
    """Bring the practice cluster up if need be, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--size", type=int, default=100, help="MB of output")
    parser.add_argument("--print", action="store_true", help="print it, as text")
    parser.add_argument("--only", default="", help=f"names of ways, with commas: {', '.join(WAYS)}")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    parser.add_argument("--wait", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--receive", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--keys", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--tunnel", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.wait:
        wait_until_open(arguments.wait)
    elif arguments.receive:
        receive(int(arguments.receive[0]), arguments.receive[1])
    elif arguments.keys:
        print(json.dumps(measure_keys(int(arguments.keys[0]), arguments.keys[1])))
    elif arguments.tunnel:
        engine, config, port, *host_keys = arguments.tunnel
        tunnel(engine, config, int(port), tuple(host_keys))
    else:
        cluster = PracticeCluster(arguments.slurm)
        was_up = cluster.is_up()
        cluster.up(until_end_of=None if was_up else os.getpid())
        print("command:", shlex.join(sys.argv))
        text = LINES if arguments.print else PLOTS
        measure_all(cluster, arguments.size, arguments.rounds, text, arguments.only)


if __name__ == "__main__":
    main()
