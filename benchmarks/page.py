"""Measures JupyterLab's page over slow networks, first and second visit, against ``ssh -L`` and jupyter-forward.

    make bench-page       (root; uses the practice cluster, and brings it up if need be)

A relay in front of the login node simulates the network (``slow_network.py``). ``ssh -J login -L`` and jupyter-forward
connect to an unmodified JupyterLab, in the same image on the same node; of jupyter-forward, only its forwarding is
used, Fabric's ``forward_local``, and only if Fabric is installed. The launcher is started twice over the same network,
and each page belongs to another session.

Debian's Chromium opens the page until the launcher tab can be clicked: first with an empty profile, then, in a new
process, with the profile of the first visit. It prints medians over the rounds, and ratios to the first page of
``ssh -L``. The bytes are those that came over the network meanwhile, including SSH's own.

A browser also computes for seconds, and longer on a busy machine. So the same URLs are loaded three more times without
it, with six connections as in a browser: that is the column "transfer".

It takes four minutes. Slower networks and further ones: ``ARGS="--networks 2/30,2/150,10/150,100/150"``.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.connections import free_port, ssh_config, wait_until_open  # noqa: E402
from benchmarks.slow_network import SlowNetwork, slow_network  # noqa: E402
from tests.cluster_tests.jupyterlab_page import CHROMIUM, FLAGS  # noqa: E402
from tests.practice_cluster import PracticeCluster  # noqa: E402

NODE, IMAGE = "gpu1", "/sw/images/jupyterlab.sif"
TOKEN = "page"
NETWORKS = "10/30,100/30"
TRANSFERS, LONG = 3, 5.0  # how often a transfer is measured; seconds after which it is not repeated
FIRST, SECOND = "first page", "second page"
# the practice cluster's laptop has several users; on such a machine each session would use a new port
PERSONAL = ("from notebook_launcher.core import personal_machine; personal_machine.is_personal_machine = lambda: True; "
            "from notebook_launcher.cli import main; main()")  # fmt: skip


@dataclass(frozen=True)
class Page:
    """One page: seconds until it could be used, and bytes received over the network."""

    seconds: float
    transfer: float
    size: int


#: opens an address with a browser's profile
Open = Callable[[str], Page]


# --- in the laptop's network ----------------------------------------------------------------------------------


def page_seconds(url: str, profile: str) -> tuple[float, list[str]]:
    """Open the address in a new browser, and return seconds until the launcher tab can be clicked, and what it loads.

    What it takes from its cache is not loaded.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=str(CHROMIUM), args=FLAGS, viewport={"width": 1280, "height": 800}
        )
        page = browser.new_page()
        loaded: list[str] = []
        network = browser.new_cdp_session(page)
        network.send("Network.enable")
        network.on("Network.responseReceived", lambda event: loaded.append(event["response"]["url"])
                   if not event["response"].get("fromDiskCache") else None)  # fmt: skip
        began = time.perf_counter()
        page.goto(url, timeout=300_000)
        card = page.locator('.jp-LauncherCard[data-category="Notebook"]').first
        card.wait_for(timeout=300_000)
        card.click(trial=True, timeout=60_000)
        seconds = time.perf_counter() - began
        page.wait_for_timeout(1000)  # until the cache is written
        browser.close()
        return seconds, [url for url in loaded if url.startswith("http")]


def transfer_seconds(urls: list[str]) -> float:
    """Return seconds for loading these addresses without a browser; the first one has the token."""
    work: queue.SimpleQueue[str] = queue.SimpleQueue()
    for url in urls:
        work.put(url)
    first = urlsplit(urls[0])
    headers = {"Authorization": f"token {parse_qs(first.query)['token'][0]}", "Accept-Encoding": "gzip"}

    def load() -> None:
        connection = http.client.HTTPConnection(first.netloc, timeout=300)
        with contextlib.suppress(queue.Empty):
            while True:
                url = urlsplit(work.get_nowait())
                connection.request("GET", url._replace(scheme="", netloc="").geturl(), headers=headers)
                connection.getresponse().read()

    began = time.perf_counter()
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(load) for _ in range(6)]:
            done.result()
    return time.perf_counter() - began


def transfer_median(urls: list[str]) -> float:
    """Measure several times, unless it takes long, and return the median."""
    times: list[float] = []
    while len(times) < TRANSFERS and sum(times) < LONG:
        times.append(transfer_seconds(urls))
    return statistics.median(times)


def forward_as_jupyter_forward(config: str, local: int, port: int) -> None:
    """Forward a local port to the node as jupyter-forward does, until standard input ends."""
    import fabric  # type: ignore[import-not-found]

    connection = fabric.Connection("login", config=fabric.Config(runtime_ssh_path=config))
    with connection.forward_local(local, remote_port=port, remote_host=NODE):
        print("ready", flush=True)
        sys.stdin.read()


def has_fabric() -> bool:
    """Whether Fabric is installed."""
    return subprocess.run([sys.executable, "-c", "import fabric"], capture_output=True, check=False).returncode == 0


# --- on the host ----------------------------------------------------------------------------------------------


def here(cluster: PracticeCluster, *words: str) -> list[str]:
    """Return the command that runs this program in the laptop's network."""
    return cluster.laptop_argv([sys.executable, __file__, *words])


@contextlib.contextmanager
def stock_jupyterlab(cluster: PracticeCluster) -> Iterator[int]:
    """Start an unmodified JupyterLab on the node, and yield its port. jupyter-forward requires it to listen openly."""
    port = free_port()
    server = ["apptainer", "exec", IMAGE, "jupyter-lab", "--no-browser", "--ServerApp.ip=0.0.0.0",
              f"--ServerApp.port={port}", "--LabApp.news_url=None"]  # fmt: skip
    argv = cluster.argv(NODE, "alice", ["sh", "-c", f"{shlex.join(server)} & read _; kill $!"],
                        env={"JUPYTER_TOKEN": TOKEN, "JUPYTER_RUNTIME_DIR": "/tmp/stock"})  # fmt: skip
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        ask = ["sh", "-c", f"until curl -sf http://127.0.0.1:{port}/api/status?token={TOKEN}; do sleep 0.3; done"]
        cluster.run(NODE, "alice", ask, timeout=60, check=True)
        yield port
        assert process.stdin
        process.stdin.close()


def both_pages(open_page: Open, port: int) -> dict[str, Page]:
    """Open one server's page twice through the same port of the laptop."""
    url = f"http://127.0.0.1:{port}/lab?token={TOKEN}"
    return {FIRST: open_page(url), SECOND: open_page(url)}


def by_ssh(cluster: PracticeCluster, config: str, stock: int, open_page: Open) -> dict[str, Page]:
    """``ssh -L``, as a user would type it."""
    local = free_port()
    words = ["ssh", "-F", config, "-N", "-J", "login", "-L", f"127.0.0.1:{local}:127.0.0.1:{stock}", NODE]
    with subprocess.Popen(cluster.laptop_argv(words)) as ssh:
        subprocess.run(here(cluster, "--wait", str(local)), check=True)
        pages = both_pages(open_page, local)
        ssh.terminate()
    return pages


def by_fabric(cluster: PracticeCluster, config: str, stock: int, open_page: Open) -> dict[str, Page]:
    """jupyter-forward's tunnel."""
    local = free_port()
    words = here(cluster, "--fabric", config, str(local), str(stock))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        pages = both_pages(open_page, local)
        process.stdin.close()
    return pages


def by_launcher(cluster: PracticeCluster, relay: SlowNetwork, open_page: Open) -> dict[str, Page]:
    """Two launches, one after the other, as on a personal machine."""
    config = f"Host login\n HostName 127.0.0.1\n HostKeyAlias login\n Port {relay.port}\n"
    write = ["sh", "-c", "umask 077; cat >~/.ssh/slow"]
    cluster.run("laptop", "alice", write, input=config, check=True)
    cluster.run("laptop", "alice", ["sh", "-c", "rm -f ~/.local/state/notebook-launcher/page-ports.json"])
    pages = {}
    for when in (FIRST, SECOND):
        words = ["/opt/launcher/bin/python3", "-c", PERSONAL, "--json", "--ssh-config",
                 "/home/alice/.ssh/slow", "--host", "login", "-t", "15", "--gpus", "1", "--", IMAGE]  # fmt: skip
        argv = cluster.argv("laptop", "alice", words)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
            assert launcher.stdin and launcher.stdout
            ready = next((event for event in map(json.loads, launcher.stdout) if event["event"] == "ready"), None)
            assert ready, "the launch failed"
            pages[when] = open_page(ready["url"])
            launcher.stdin.write("\n")
            launcher.stdin.flush()
            launcher.stdout.read()
    return pages


def measure(cluster: PracticeCluster, network: str, rounds: int, stock: int) -> None:
    """Measure each method in turn over one network, and print the results."""
    mbits, milliseconds = map(float, network.split("/"))
    ways: dict[str, list[dict[str, Page]]] = {"ssh -L": [], "jupyter-forward": [], "launch-notebook": []}
    if not has_fabric():
        del ways["jupyter-forward"]
    with slow_network(cluster.laptop_argv, "login:22", mbits, milliseconds) as relay:
        for _ in range(rounds):
            for way, found in ways.items():
                with tempfile.TemporaryDirectory() as profile, ssh_config(cluster, relay.port) as config:

                    def open_page(url: str, profile: str = profile) -> Page:
                        before = relay.carried()
                        words = here(cluster, "--open", url, profile)
                        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
                        seconds, size = json.loads(done.stdout), relay.carried() - before
                        again = subprocess.run(here(cluster, "--transfer"), input=json.dumps(seconds[1]),
                                               stdout=subprocess.PIPE, text=True, check=True)  # fmt: skip
                        return Page(seconds[0], float(again.stdout), size)

                    if way == "launch-notebook":
                        found.append(by_launcher(cluster, relay, open_page))
                    else:
                        by = by_ssh if way == "ssh -L" else by_fabric
                        found.append(by(cluster, config, stock, open_page))
    show(network, ways)


def show(network: str, ways: dict[str, list[dict[str, Page]]]) -> None:
    """Print the medians, and the ratios to the first page of the first method."""
    mbits, milliseconds = network.split("/")
    print(f"\n{mbits} Mbit/s, {milliseconds} ms")
    base = next(iter(ways.values()))
    for way, rounds in ways.items():
        for when in (FIRST, SECOND):
            cells = ""
            for name, unit in (("seconds", "s"), ("transfer", "s transfer"), ("size", "MB")):
                values = [getattr(one[when], name) / (1e6 if unit == "MB" else 1) for one in rounds]
                bases = [getattr(one[FIRST], name) / (1e6 if unit == "MB" else 1) for one in base]
                ratio = statistics.median(a / b for a, b in zip(values, bases, strict=True))
                cells += f" {statistics.median(values):7.2f} {unit} ({ratio:.2f} ×)"
            print(f"  {way:16} {when:12}{cells}", flush=True)


def main() -> None:
    """Bring the practice cluster up if need be, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--networks", default=NETWORKS, help=f"MBIT/MILLISECONDS, with commas (default: {NETWORKS})")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    parser.add_argument("--open", nargs=2, metavar=("URL", "PROFILE"), help=argparse.SUPPRESS)
    parser.add_argument("--transfer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fabric", nargs=3, metavar=("CONFIG", "LOCAL", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--wait", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open:
        print(json.dumps(page_seconds(*arguments.open)))
        return
    if arguments.transfer:
        print(transfer_median(json.load(sys.stdin)))
        return
    if arguments.fabric:
        config, local, port = arguments.fabric
        forward_as_jupyter_forward(config, int(local), int(port))
        return
    if arguments.wait:
        wait_until_open(arguments.wait)
        return
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    print("command:", shlex.join(sys.argv))
    with stock_jupyterlab(cluster) as stock:
        for network in arguments.networks.split(","):
            measure(cluster, network, arguments.rounds, stock)


if __name__ == "__main__":
    main()
