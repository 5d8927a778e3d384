"""Runs a cell as JupyterLab's page does, but without a browser: with the server's kernels API, over a WebSocket."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.conftest import Session, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

# Prints the output of the cell.
CELL = """
import asyncio, json, sys, uuid
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

api, token, code = sys.argv[1:]
headers = {"Authorization": "token " + token}

async def main():
    asked = HTTPRequest(api + "/kernels", method="POST", body="{}", headers=headers, request_timeout=60)
    kernel = json.loads((await AsyncHTTPClient().fetch(asked)).body)["id"]
    address = api.replace("http", "ws", 1) + "/kernels/" + kernel + "/channels"
    socket = await websocket_connect(HTTPRequest(address, headers=headers))
    number = uuid.uuid4().hex
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    header = {"msg_id": number, "session": number, "username": "", "msg_type": "execute_request", "version": "5.3"}
    await socket.write_message(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content,
                                           "channel": "shell"}))
    while True:
        said = json.loads(await socket.read_message())
        if said["parent_header"].get("msg_id") != number:
            continue
        if said["msg_type"] == "stream":
            print(said["content"]["text"], end="")
        elif said["msg_type"] == "error":
            sys.exit(said["content"]["evalue"])
        elif said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
            return

asyncio.run(asyncio.wait_for(main(), 120))
"""


def run_cell(cluster: PracticeCluster, session: Session, code: str) -> str:
    """Run a cell in a new kernel, and return its output."""
    argv = cluster.laptop_argv([sys.executable, "-c", CELL, session.api.rpartition("/")[0], session.token, code])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def running_cell(cluster: PracticeCluster, session: Session, code: str) -> Iterator[None]:
    """Let a cell run in a new kernel during the block."""
    api = session.api.rpartition("/")[0]
    argv = cluster.laptop_argv([sys.executable, "-c", CELL, api, session.token, code])
    cell = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        seen = lambda: '"busy"' in fetch(cluster, "laptop", f"{api}/kernels", session.token)[1]  # noqa: E731
        wait_until(seen, 60, "the kernel is busy")
        yield
    finally:
        cell.kill()
        cell.wait()
