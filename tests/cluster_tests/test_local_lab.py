"""The user's own JupyterLab on the login node, with kernels on a compute node (``--local-lab``)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

# Does with a kernel what JupyterLab's page does: runs one cell that ends, and one that still runs when the kernel dies.
# When it is disconnected, it connects again.
PAGE = """
import asyncio, json, sys
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

api, headers = sys.argv[1] + "api/kernels", {"Authorization": "token " + sys.argv[2]}

def cell(number, code):
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    header = {"msg_id": number, "session": "page", "username": "", "msg_type": "execute_request", "version": "5.3"}
    return json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"})

async def main():
    asked = HTTPRequest(api, method="POST", body="{}", headers=headers, request_timeout=60)
    kernel = json.loads((await AsyncHTTPClient().fetch(asked)).body)["id"]
    async def connect():
        address = f"{api}/{kernel}/channels".replace("http", "ws", 1)
        return await websocket_connect(HTTPRequest(address, headers=headers))
    socket = await connect()
    await socket.write_message(cell("1", "import os, time; print(os.uname().nodename, os.getcwd())"))
    await socket.write_message(cell("2", "time.sleep(600)"))
    while True:
        message = await socket.read_message()
        if message is None:
            await asyncio.sleep(1)
            socket = await connect()
            continue
        said = json.loads(message)
        if said["msg_type"] == "stream":
            print(said["content"]["text"], end="", flush=True)
        elif said["content"].get("execution_state") == "dead":
            return print("dead")

asyncio.run(asyncio.wait_for(main(), 120))
"""


@pytest.fixture
def _lab_on_path(cluster: PracticeCluster) -> Iterator[None]:
    """Put a JupyterLab on the login node's PATH; the laptop has none."""
    path = "/usr/local/bin/jupyter-lab"
    cluster.root("login", ["ln", "-s", "/sw/jupyterlab/bin/jupyter-lab", path])
    yield
    cluster.root("login", ["rm", path])


@pytest.mark.usefixtures("_lab_on_path")
def test_files_here_kernels_there_until_the_job_is_cancelled(
    cluster: PracticeCluster, start: Callable[..., Session]
) -> None:
    session = start("-t", "10", "--local-lab", box="login")
    session.ready()
    session.expect("Your own JupyterLab, with this machine's files and the kernels of")
    server, token = session.expect(r"(http://localhost:\d+/)lab\?token=(\w+)").groups()
    session.read_along()
    address = in_box.launcher(cluster, "login", "alice", "status", "--url", session.session_id[-4:])
    assert (address.stdout, address.returncode) == (f"{session.url}\n", 0), address.stderr
    argv = cluster.argv("login", "alice", ["/sw/jupyterlab/bin/python3", "-c", PAGE, server, token])
    page = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    node, folder = page.stdout.readline().split()
    assert node.startswith(("node", "gpu")) and folder == "/home/alice"

    cluster.run("login", "alice", ["scancel", session.job_id], check=True)
    assert page.stdout.read() == "dead\n"
    assert page.wait(60) == 0
    note = "stays open without kernels, so that you can save. Press ENTER to end it."
    session.saw(r"\s+".join(map(re.escape, note.split())))
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)
