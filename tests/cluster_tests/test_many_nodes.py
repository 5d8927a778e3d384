"""Dask on two nodes behind a notebook: real Slurm, a real JupyterLab and kernel, and another user who wants to join."""

from __future__ import annotations

from collections.abc import Callable

from notebook_launcher.session.credentials import new_tls
from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.dask_module import FOLDER, provide_dask

Start = Callable[..., Session]
LAUNCH = in_box.launch
TWO_NODES = ("--nodes", "2", "--ntasks-per-node", "1", "-c", "1", "--mem", "2G", "-t", "10", "-p", "core")

# Computes on both nodes, kills the worker of the second one, and computes there again.
CELL = """
import os, time
from dask.distributed import Client

client = Client()
print("scheduler", os.environ["DASK_SCHEDULER_ADDRESS"])
def where(number):
    return os.uname().nodename, number * number
def workers():
    return {info["name"]: address for address, info in sorted(client.scheduler_info()["workers"].items())}
def on_each():
    return [(name, *client.submit(where, 7, workers=[at], pure=False).result(30)) for name, at in workers().items()]
print("first", sorted(on_each()))
lost = workers()["node2-1-of-1"]
client.run(lambda dask_worker: os.kill(dask_worker.pid, 9), workers=[lost], nanny=True)
deadline = time.monotonic() + 60
while workers().get("node2-1-of-1", lost) == lost and time.monotonic() < deadline:
    time.sleep(0.1)
print("then", sorted(on_each()))
"""

# A client without a certificate; a client and a worker with those of another authority, as another session's.
STRANGER = """
import asyncio, logging, sys
from distributed import Client, Security, Worker

logging.disable(logging.CRITICAL)
address, ca, cert, key = sys.argv[1:]
def keys(role):
    return Security(require_encryption=True, tls_ca_file=ca, **{f"tls_{role}_cert": cert, f"tls_{role}_key": key})
async def joins(make):
    try:
        async with make():
            return True
    except Exception as refused:
        return type(refused).__name__
async def main():
    plain = address.replace("tls://", "tcp://")
    print("plain client", await joins(lambda: Client(plain, asynchronous=True, timeout=3)))
    print("client", await joins(lambda: Client(address, asynchronous=True, timeout=3, security=keys("client"))))
    listens = dict(death_timeout=3, dashboard_address="127.0.0.1:0")
    print("worker", await joins(lambda: Worker(address, security=keys("worker"), **listens)))
asyncio.run(main())
"""


def test_dask_on_two_nodes(cluster: PracticeCluster, start: Start) -> None:
    modules = ("--module", "jupyterlab/4", "--module", provide_dask(cluster))
    session = start(*TWO_NODES, "--with", "dask", *modules, "--", "plain", columns=200)
    session.ready()
    session.expect("Dask: 2 workers on 2 nodes, with 2 threads and")
    printed = run_cell(cluster, session, CELL).splitlines()
    address = printed[0].removeprefix("scheduler ")
    assert address.startswith("tls://10.60.0.11:")
    both = "[('node1-1-of-1', 'node1', 49), ('node2-1-of-1', 'node2', 49)]"
    assert printed[1:] == [f"first {both}", f"then {both}"]

    folder = f"/home/alice/.notebook-launcher/sessions/{session.session_id}"
    assert cluster.run("login", "bob", ["cat", f"{folder}/dask-key.pem"]).returncode != 0
    for name, content in new_tls("bob").items():
        cluster.run("login", "bob", ["tee", name], input=content.decode(), check=True)
    python, keys = "/sw/jupyterlab/bin/python3", ("dask-ca.pem", "dask-cert.pem", "dask-key.pem")
    stranger = ["env", f"PYTHONPATH={FOLDER}", python, "-c", STRANGER, address, *keys]
    tried = cluster.run("login", "bob", stranger, check=True).stdout
    assert [line.rsplit(" ", 1)[0] for line in tried.splitlines()] == ["plain client", "client", "worker"]
    assert "True" not in tried

    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)
    for node in ("node1", "node2"):
        assert "nl-dask" not in cluster.root(node, ["ls", "/tmp"]).stdout
