"""Measures the tunnel against ``ssh -L`` over the same sshd: throughput, round trip, new connections, and a cold page.

The echo of a key in one tab while a kernel's output fills another is measured last (``kernel_output.py``).

    make bench-tunnel     (root; uses the practice cluster, and brings it up if need be)

Everything is measured alternately, in rounds, in one run on one machine: from the laptop to a port of the login node's
127.0.0.1. It prints medians over the rounds and the ratio to ``ssh -L``, which depends on the machine less than the
medians do.

The page is opened by Debian's Chromium with an empty profile, through the login node to JupyterLab on a compute node,
until the launcher tab can be clicked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.connections import NoQuestions, free_port, ssh_config, wait_until_open  # noqa: E402
from tests.practice_cluster import PracticeCluster  # noqa: E402

MIB = 1024 * 1024
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--disable-dev-shm-usage"]  # fmt: skip

# on the login node: D sends the requested number of bytes, U receives them and acknowledges, E echoes
SERVER = """
import os, socket, sys, threading
def recv_exactly(c, n):
    data = b""
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more: raise EOFError
        data += more
    return data
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while True:
            kind = recv_exactly(c, 1)
            if kind == b"E":
                c.sendall(recv_exactly(c, 1)); continue
            count, piece, buffer = int.from_bytes(recv_exactly(c, 8), "big"), bytes(1 << 18), bytearray(1 << 18)
            while count > 0 and kind == b"D":
                count -= c.send(piece[:count])
            while count > 0:
                n = c.recv_into(buffer)
                if not n: raise EOFError
                count -= n
            if kind == b"U": c.sendall(b".")
    except (EOFError, OSError):
        c.close()
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass
class Measured:
    """One round with one method: MB/s, and seconds."""

    down: float
    up: float
    round_trip: float
    round_trip_p99: float
    beside_download: float
    new_connection: float


def measure(port: int, size: int) -> Measured:
    """Measure one round through a port of this machine."""
    with connected(port) as line:
        down = transfer(line, b"D", size)
        up = transfer(line, b"U", size)
        trips = sorted(timed(lambda: echo(line)) for _ in range(1000))
    connections = sorted(timed(lambda: one_connection(port)) for _ in range(60))
    beside = trips_beside_download(port, size)
    p99 = trips[int(0.99 * len(trips))]
    return Measured(down, up, statistics.median(trips), p99, statistics.median(beside), statistics.median(connections))


def trips_beside_download(port: int, size: int) -> list[float]:
    """Return the round-trip times of a byte, like a pressed key, while another connection downloads."""
    trips = []
    with connected(port) as bulk, connected(port) as keys:
        download = threading.Thread(target=transfer, args=(bulk, b"D", size))
        download.start()
        while download.is_alive():
            trips.append(timed(lambda: echo(keys)))
            time.sleep(0.005)
        download.join()
    return trips


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Connect to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), 10) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield line


def transfer(line: socket.socket, kind: bytes, size: int) -> float:
    """Return MB/s."""
    began = time.perf_counter()
    line.sendall(kind + size.to_bytes(8, "big"))
    if kind == b"D":
        buffer, left = bytearray(256 * 1024), size
        while left:
            count = line.recv_into(buffer)
            assert count, "it broke off"
            left -= count
    else:
        piece, left = bytes(256 * 1024), size
        while left:
            left -= line.send(piece[:left])
        assert line.recv(1) == b"."
    return size / (time.perf_counter() - began) / 1e6


def echo(line: socket.socket) -> None:
    """Send one byte and wait until it comes back."""
    line.sendall(b"Ex")
    assert line.recv(1) == b"x"


def one_connection(port: int) -> None:
    """Connect, send one byte and get it back."""
    with connected(port) as line:
        echo(line)


def timed(act: Callable[[], None]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


# --- the methods ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def by_ssh(config: str, port: int) -> Iterator[int]:
    """``ssh -L``, as a user would type it."""
    local = free_port()
    ssh = subprocess.Popen(["ssh", "-F", config, "-N", "-o", "ExitOnForwardFailure=yes",
                            "-L", f"127.0.0.1:{local}:127.0.0.1:{port}", "login"])  # fmt: skip
    try:
        wait_until_open(local)
        yield local
    finally:
        ssh.terminate()
        ssh.wait()


@contextlib.contextmanager
def by_process(way: str, config: str, port: int) -> Iterator[int]:
    """Another method, in a separate process like ``ssh``: else it would share Python's GIL with the measurement."""
    words = [sys.executable, __file__, "--lead", way, config, str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def lead(way: str, config: str, port: int) -> None:
    """Forward a local port to the login node with an engine or sshtunnel, print it, and end with standard input."""
    with contextlib.ExitStack() as until_end:
        if way == "sshtunnel":
            local = until_end.enter_context(by_sshtunnel(config, port))
        else:
            local = until_end.enter_context(by_engine(way, config, port))
        print(local, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def by_engine(engine: str, config: str, port: int) -> Iterator[int]:
    """Our own tunnel over one of our engines."""
    from notebook_launcher.hosts.openssh.host import OpenSshHost
    from notebook_launcher.hosts.paramiko.host import ParamikoHost
    from notebook_launcher.hosts.paramiko.login import Credentials
    from notebook_launcher.hosts.ssh_config import Destination
    from notebook_launcher.tunnel.forwarding import Tunnel

    destination, credentials = Destination("login", config_file=config), Credentials(NoQuestions())
    host = (OpenSshHost if engine == "openssh" else ParamikoHost).open(destination, credentials)
    tunnel = Tunnel()
    with host:
        tunnel.run_over(host.open_route())
        yield tunnel.forward(port)
        tunnel.close()


@contextlib.contextmanager
def by_sshtunnel(config: str, port: int) -> Iterator[int]:
    """The library sshtunnel, for comparison."""
    import sshtunnel

    key = next(line.split()[1] for line in Path(config).read_text().splitlines() if "IdentityFile" in line)
    forwarder = sshtunnel.SSHTunnelForwarder("login", ssh_username="alice", ssh_pkey=key, ssh_config_file=config,
                                             remote_bind_address=("127.0.0.1", port))  # fmt: skip
    forwarder.start()
    try:
        yield forwarder.local_bind_port
    finally:
        forwarder.stop(force=True)


# --- the pages -----------------------------------------------------------------------------------------------


def cold_page(url: str) -> float:
    """Return seconds from opening the address in a fresh browser to a launcher tab that can be clicked."""
    from playwright.sync_api import sync_playwright

    from tests.cluster_tests.jupyterlab_page import CHROMIUM

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        began = time.perf_counter()
        page.goto(url)
        page.locator('.jp-LauncherCard[data-category="Notebook"]').first.wait_for(timeout=60_000)
        page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click(trial=True, timeout=60_000)
        seconds = time.perf_counter() - began
        chromium.close()
        return seconds


# --- on the laptop -------------------------------------------------------------------------------------------


def on_the_laptop(task: dict[str, object]) -> None:
    """Measure the requested task in the laptop's network, and print the result as JSON."""
    if "page" in task:
        print(json.dumps(cold_page(str(task["page"]))))
        return
    config, port, size = str(task["config"]), int(str(task["port"])), int(str(task["size"]))
    ways: dict[str, Callable[[], contextlib.AbstractContextManager[int]]] = {
        "ssh -L": lambda: by_ssh(config, port),
        "paramiko engine": lambda: by_process("paramiko", config, port),
        "openssh engine": lambda: by_process("openssh", config, port),
        "plain sshtunnel": lambda: by_process("sshtunnel", config, port),
    }
    if only := str(task["only"]):
        ways = {name: way for name, way in ways.items() if name in only.split(",")}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(int(str(task["rounds"]))):
        for name, way in ways.items():
            with way() as local:
                rounds[name].append(vars(measure(local, size)))
    print(json.dumps(rounds))


def run_on_the_laptop(cluster: PracticeCluster, task: dict[str, object]) -> object:
    """Run this program in the laptop's network, and return its result."""
    words = [sys.executable, __file__, "--task", "-"]
    done = subprocess.run(
        cluster.laptop_argv(words), input=json.dumps(task), text=True, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def measure_lines(cluster: PracticeCluster, rounds: int, size: int, only: str) -> None:
    """Measure every method alternately."""
    server = subprocess.Popen(cluster.argv("login", "alice", ["python3", "-u", "-c", SERVER]),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert server.stdin and server.stdout
    with ssh_config(cluster) as config:
        port = int(server.stdout.readline())
        task = {"config": config, "port": port, "size": size * MIB, "rounds": rounds, "only": only}
        found = run_on_the_laptop(cluster, task)
    server.stdin.close()
    server.wait(10)
    assert isinstance(found, dict)
    print_lines(found)


def print_lines(found: dict[str, list[dict[str, float]]]) -> None:
    """Print the medians, and their ratios to the first method."""
    names = {"down": "down MB/s", "up": "up MB/s", "round_trip": "round trip ms", "round_trip_p99": "p99 ms",
             "beside_download": "beside a download ms", "new_connection": "new connection ms"}  # fmt: skip
    print(f"{'':18}" + "".join(f"{text:>26}" for text in names.values()))
    first = next(iter(found))
    for way, rounds in found.items():
        cells = ""
        for name in names:
            scale = 1 if name in ("down", "up") else 1000
            value = statistics.median(one[name] for one in rounds)
            ratio = statistics.median(one[name] / base[name] for one, base in zip(rounds, found[first], strict=True))
            cells += f"{value * scale:>16.3f} ({ratio:>5.2f} ×)"
        print(f"{way:18}{cells}")


def measure_pages(cluster: PracticeCluster, rounds: int) -> None:
    """Open one session's page by ``ssh -J -L`` and by the launcher, alternately."""
    launcher = subprocess.Popen(
        cluster.argv("laptop", "alice", ["launch-notebook", "--json", "--host", "login", "-t", "15", "--gpus", "1",
                                         "--", "/sw/images/jupyterlab.sif"]),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert launcher.stdout
    ready = next(event for event in map(json.loads, launcher.stdout) if event["event"] == "ready")
    directory = f"/home/alice/.notebook-launcher/sessions/{ready['session']}"
    endpoint = json.loads(cluster.run("login", "alice", ["cat", f"{directory}/endpoint.json"]).stdout)
    with ssh_config(cluster) as config:
        local = free_port()
        leads = f"127.0.0.1:{local}:127.0.0.1:{endpoint['port']}"
        words = ["ssh", "-F", config, "-N", "-J", "login", "-L", leads, ready["node"]]
        ssh = subprocess.Popen(cluster.laptop_argv(words))
        time.sleep(2)
        theirs = ready["url"].replace(f":{ready['local_port']}/", f":{local}/")
        times: dict[str, list[float]] = {"ssh -J -L": [], "launch-notebook": []}
        for _ in range(rounds):
            times["ssh -J -L"].append(float(str(run_on_the_laptop(cluster, {"page": theirs}))))
            times["launch-notebook"].append(float(str(run_on_the_laptop(cluster, {"page": ready["url"]}))))
        ssh.terminate()
        ssh.wait()
    launcher.terminate()
    launcher.wait(60)
    base = times["ssh -J -L"]
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        print(f"cold page, {name:16} {statistics.median(values):6.2f} s ({ratio:.2f} ×)   "
              + " ".join(f"{value:.2f}" for value in values))  # fmt: skip


def main() -> None:
    """Bring the practice cluster up if need be, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=64, help="MiB each way")
    parser.add_argument("--only", default="", help="names of ways, with commas")
    parser.add_argument("--pages", type=int, default=3, help="rounds of the cold page; 0: none")
    parser.add_argument("--output", type=int, default=100, help="MB of a kernel's output beside keys; 0: none")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--lead", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.lead:
        way, config, port = arguments.lead
        lead(way, config, int(port))
        return
    if arguments.task:
        on_the_laptop(json.load(sys.stdin))
        return
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    print("command:", shlex.join(sys.argv))
    if arguments.rounds:
        measure_lines(cluster, arguments.rounds, arguments.size, arguments.only)
    if arguments.pages:
        measure_pages(cluster, arguments.pages)
    if arguments.output:
        from benchmarks import kernel_output

        kernel_output.measure_all(cluster, arguments.output, rounds=2)


if __name__ == "__main__":
    main()
