"""Dask and Ray on two nodes, used from a notebook: a worker that dies is replaced, and another user cannot connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from notebook_launcher.session.credentials import new_ray_keys, new_tls
from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import Session, assert_nothing_left
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster, cache
from tests.practice_cluster.dask_module import FOLDER, provide_dask
from tests.practice_cluster.layout import USERS
from tests.practice_cluster.ray_module import provide_ray

Start = Callable[..., Session]
LAUNCH = in_box.launch
TWO_NODES = ("--nodes", "2", "--ntasks-per-node", "1", "-c", "1", "--mem", "2G", "-t", "10", "-p", "core")


@pytest.fixture(scope="module", autouse=True)
def _as_it_was(cluster: PracticeCluster) -> Iterator[None]:
    """Remove the modules and the scratch folders: other tests list modules, and look for files that others may read."""
    yield
    for made in ("sw/modules/dask", "sw/modules/ray", "sw/ray", FOLDER.removeprefix("/")):
        cache.remove(cluster.directory / made)
    for box in ("login", "node1", "node2"):
        cluster.root(box, ["rm", "-rf", "/tmp/dask-scratch-space"], check=True)


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
deadline = time.monotonic() + 100
def on_each():
    # under load, a worker may lose its connection as it joins: then its node is started again, and has a new address
    while True:
        try:
            there = workers()
            assert len(there) == 2
            asked = {name: client.submit(where, 7, workers=[at], pure=False) for name, at in there.items()}
            return sorted((name, *future.result(15)) for name, future in asked.items())
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
print("first", on_each())
lost = workers()["node2-1-of-1"]
client.run(lambda dask_worker: os.kill(dask_worker.pid, 9), workers=[lost], nanny=True)
while workers().get("node2-1-of-1", lost) == lost and time.monotonic() < deadline:
    time.sleep(0.1)
print("then", on_each())
"""

# Tries to join as a client without a certificate, then as a client and a worker with certificates of another authority,
# as those of another session are.
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


# Computes on both nodes, kills what Ray runs on the second one, and computes on both again.
RAY_CELL = """
import os, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init(log_to_driver=False, logging_level="ERROR")
print("head", os.environ["RAY_ADDRESS"])
@ray.remote(max_retries=0)
def where(number):
    return os.uname().nodename, number * number
@ray.remote(max_retries=0)
def kill():
    os.kill(os.getppid(), 9)
def nodes(without=""):
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()
            if node["Alive"] and node["NodeID"] != without}
def on_each(without=""):
    there = [where.options(scheduling_strategy=On(node, soft=False)).remote(7) for node in nodes(without)]
    return sorted(ray.get(there, timeout=60))
print("first", on_each())
lost = next(node for node, name in nodes().items() if name == "node2")
kill.options(scheduling_strategy=On(lost, soft=False)).remote()
deadline = time.monotonic() + 90
while "node2" not in nodes(lost).values() and time.monotonic() < deadline:
    time.sleep(0.2)
print("then", on_each(lost))
"""

# Tries each address with an HTTP request without TLS, and with TLS and these keys: who gets an answer to gRPC's first
# bytes can join.
KNOCK = """
import socket, ssl, sys
from concurrent.futures import ThreadPoolExecutor
(cert, key), addresses = sys.argv[1:3], sys.argv[3:]
def first_bytes(address, secured):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as plain:
            if not secured:
                plain.sendall(b"GET /api/version HTTP/1.1\\r\\nHost: " + host.encode() + b"\\r\\n\\r\\n")
                return plain.recv(12)[-3:]
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.load_cert_chain(cert, key)
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(plain, server_hostname=host) as there:
                there.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(3) + b"\\4" + bytes(5))
                return there.recv(12)
    except OSError:
        return b""
def knock(address):
    plain, secured = first_bytes(address, False), first_bytes(address, True)
    return address, plain.decode() if plain.isdigit() else "-", "joins" if secured else "refused"
with ThreadPoolExecutor(len(addresses)) as at_once:  # some wait for what would come next
    for found in at_once.map(knock, addresses):
        print(*found)
"""


def knock(cluster: PracticeCluster, node: str, user: str, keys: Sequence[str], ports: Sequence[str]) -> dict[str, str]:
    """Return what a user of a node gets from each port: the HTTP status or ``-``, and ``joins`` or ``refused``."""
    found = cluster.run(node, user, ["/usr/bin/python3", "-c", KNOCK, *keys, *ports], login=False, check=True)
    return dict(line.split(" ", 1) for line in found.stdout.splitlines())


def listening(cluster: PracticeCluster, node: str) -> list[str]:
    """Return the addresses and ports of a node on which programs of alice listen, in a form to connect to."""
    own = {"node1": "10.60.0.11", "node2": "10.60.0.12"}[node]
    rows = cluster.root(node, ["ss", "-Hltne"], check=True).stdout.splitlines()
    ours = [row.split()[3] for row in rows if f"uid:{USERS['alice'].uid} " in row]
    return [place if place.startswith("127.") else f"{own}:{place.rpartition(':')[2]}" for place in ours]


def test_ray_on_two_nodes(cluster: PracticeCluster, start: Start) -> None:
    modules = ("--module", "jupyterlab/4", "--module", provide_ray(cluster))
    session = start(*TWO_NODES, "--with", "ray", *modules, "--", "plain", columns=200)
    session.ready(within=300)  # Ray takes ten seconds of processor time
    session.expect("Ray: 2 nodes, with 2 cores and")
    session.expect("There is no dashboard: it needs ray")
    folder = f"/home/alice/.notebook-launcher/sessions/{session.session_id}"
    told = run_cell(cluster, session, RAY_CELL).splitlines()
    printed = [line for line in told if line.startswith(("head ", "first ", "then "))]  # Ray prints other lines, too
    head = printed[0].removeprefix("head ")
    assert head.startswith("10.60.0.11:")
    both = "[('node1', 49), ('node2', 49)]"
    assert printed[1:] == [f"first {both}", f"then {both}"]

    for name, content in new_ray_keys("bob").items():
        cluster.run("login", "bob", ["tee", name], input=content.decode(), check=True)
    for node in ("node1", "node2"):
        ports = listening(cluster, node)
        own = [f"{folder}/runtime/ray-{node}-{kind}.pem" for kind in ("cert", "key")]
        assert cluster.run("login", "bob", ["cat", own[1]]).returncode != 0
        answers = knock(cluster, node, "bob", ["/home/bob/ray-ca.pem", "/home/bob/ray-ca-key.pem"], ports)
        assert set(answers.values()) <= {"- refused", "401 refused", "403 refused"}, answers
        if node == "node1":
            wait_until(lambda own=own: knock(cluster, "node1", "alice", own, [head]) == {head: "- joins"})  # type: ignore[misc]

    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)
    for node in ("node1", "node2"):
        assert "nl-ray" not in cluster.root(node, ["ls", "/tmp"]).stdout
