"""A server in a process of its own that has no room for another open file, while somebody wants to connect to it."""

from __future__ import annotations

import json
import subprocess
import sys

SECONDS = 1.0

_PROGRAM = """
import contextlib, json, os, resource, socket, time
{start}
with socket.socket() as client:
    client.settimeout(60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))
    client.connect(("127.0.0.1", port))
    before = time.process_time()
    time.sleep({seconds})
    used = time.process_time() - before
    for descriptor in taken:
        os.close(descriptor)
    client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    print(json.dumps([used, client.recv(5).decode()]), flush=True)
os._exit(0)
"""


def use_without_room(start: str) -> tuple[float, str]:
    """Run a program that starts a server on ``port``, and keep one client waiting for ``SECONDS``.

    Return the seconds of processor time that this took, and the first bytes of the answer once there is room again.
    """
    program = _PROGRAM.format(start=start, seconds=SECONDS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    used, answer = json.loads(done.stdout)
    return float(used), str(answer)
