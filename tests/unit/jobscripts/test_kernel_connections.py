"""A session that goes on: when the network fails and its page connects anew, and where nothing ends it but a signal."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from notebook_launcher.core.package_data import LIBRARY, job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import VENV_BIN, Job, call, token_of

pytestmark = pytest.mark.real_time  # a real JupyterLab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """It should end after a second without use, but what sees to that is missing."""
    root = tmp_path_factory.mktemp("lab")
    scripts = root / "scripts"
    scripts.mkdir()
    needed = ("enter.sh", "program.sh", "job_services.sh", "workers.sh", "own_connections.py")
    for name in ("jupyterlab.sh", *LIBRARY, *needed, "jupyter_server_config.py"):
        (scripts / name).write_bytes(job_script(name).read_bytes())
    job = Job(root / "job", script=scripts / "jupyterlab.sh")
    job.ask(f"path={VENV_BIN}", "idle_stop=1")
    try:
        job.start()
        job.endpoint()
        yield job
    finally:
        job.end()


class Page:
    """One connection of a page to its kernel. It never says goodbye: what closes is the socket."""

    def __init__(self, job: Job, kernel: str) -> None:
        port, token = job.endpoint()["port"], token_of(job)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET /api/kernels/{kernel}/channels?session_id=page&token={token} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
            *(f"Sec-WebSocket-Key: {key}", "", ""),
        )
        self._socket.sendall("\r\n".join(lines).encode())
        assert self._socket.recv(4096).startswith(b"HTTP/1.1 101")

    def close(self) -> None:
        self._socket.close()

    def is_answered(self, seconds: float = 30) -> bool:
        """Whether the kernel answers a question that is asked now."""
        header = {"msg_id": os.urandom(8).hex(), "session": "page", "username": "", "msg_type": "kernel_info_request"}
        question = {"header": header | {"version": "5.3", "date": ""}, "parent_header": {}, "metadata": {}}
        data = json.dumps(question | {"content": {}, "buffers": [], "channel": "shell"}).encode()
        # a text frame, masked with zeros (RFC 6455, section 5.2)
        self._socket.sendall(b"\x81\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data)
        deadline, seen = time.monotonic() + seconds, b""
        while b'"channel": "shell"' not in seen:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                seen += self._socket.recv(65536)
        return b"kernel_info_reply" in seen


def connections(job: Job, kernel: str) -> int:
    return int(call(job, f"api/kernels/{kernel}")["connections"])


def test_a_page_is_answered_after_the_network_failed_twice(lab: Job) -> None:
    kernel = call(lab, "api/kernels", b"{}")["id"]
    silent = Page(lab, kernel)
    assert silent.is_answered()
    replacing = Page(lab, kernel)
    assert replacing.is_answered()
    # the network fails again, and this time the server hears of it: of the newer connection first
    replacing.close()
    time.sleep(0.5)
    silent.close()
    wait_until(lambda: connections(lab, kernel) == 0, 30, "the server knows that nobody is connected")
    again = Page(lab, kernel)
    assert again.is_answered()
    again.close()


def test_a_part_of_a_large_file_that_is_sent_again_is_appended_once(lab: Job) -> None:
    """A browser sends it again by itself if the connection ends before the answer, and perhaps at the same time."""
    parts = {1: b"one ", 2: b"two ", 3: b"two ", -1: b"two "}  # the same content may well come again

    def send(chunk: int) -> None:
        content = base64.b64encode(parts[chunk]).decode()
        model = {"type": "file", "format": "base64", "chunk": chunk, "content": content}
        assert call(lab, "api/contents/large.bin", json.dumps(model).encode(), "PUT")["path"] == "large.bin"

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):  # the second time it is another upload of that file
            for chunk in parts:
                list(pool.map(send, [chunk, chunk]))
            assert (lab.work / "large.bin").read_bytes() == b"one two two two "
    (lab.work / "large.bin").unlink()
    send(1)
    assert (lab.work / "large.bin").read_bytes() == b"one ", "an upload begun anew"


def test_without_the_guards_file_the_session_goes_on(lab: Job) -> None:
    time.sleep(2)
    assert "kernels" in call(lab, "api/status")
    assert lab.log.read_text().count("this session does not end when nobody uses it") == 1


def test_a_signal_ends_everything_and_is_reported(lab: Job) -> None:
    """The last of these tests, as it ends the server."""
    if not call(lab, "api/kernels"):
        call(lab, "api/kernels", b"{}")
    assert any("ipykernel_launcher" in command for command in lab.commands())
    lab.send(signal.SIGTERM)
    report = lab.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 143)
    assert "SIGTERM" in report["message"]
    assert lab.processes() == []
