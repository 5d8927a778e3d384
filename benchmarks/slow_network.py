"""Simulates a slow network: a relay with a limited bandwidth and a delay.

It is between an SSH client and its server, like a home network. All connections share one line in each direction, which
has a queue, as in a router. Both ends have TCP connections to the relay, and not to each other, so no packets are lost,
and no connection has to adapt to the bandwidth first.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PIECE = 8 * 1024  # bytes forwarded at once
QUEUE = 0.1  # seconds of data in the queue; the rest waits at the sender


class Line:
    """One direction of the line. ``rate``: bytes per second; ``delay``: seconds."""

    def __init__(self, rate: float, delay: float) -> None:
        self._rate, self._delay = rate, delay
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.carried = 0

    def arrival(self, count: int) -> float:
        """Return when ``count`` bytes sent now arrive. Waits while the line's queue is full."""
        with self._lock:
            start = max(time.monotonic(), self._free_at)
            self._free_at = start + count / self._rate
            self.carried += count
            arrives, waits = self._free_at + self._delay, self._free_at - time.monotonic() - QUEUE
        if waits > 0:
            time.sleep(waits)
        return arrives


def carry(source: socket.socket, sink: socket.socket, line: Line) -> None:
    """Copy one direction of a connection over the line."""
    under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def deliver() -> None:
        with contextlib.suppress(OSError):
            while True:
                arrives, data = under_way.get()
                time.sleep(max(0.0, arrives - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"."
    while data:
        try:
            data = source.recv(PIECE)
        except OSError:
            data = b""
        under_way.put((line.arrival(len(data)), data))


def relay(target: tuple[str, int], rate: float, delay: float) -> None:
    """Listen on a free port, print it, and forward until standard input ends; each line there prints a count."""
    down, up = Line(rate, delay / 2), Line(rate, delay / 2)
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)
    print(listener.getsockname()[1], flush=True)

    def serve() -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(target)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            for ends in ((near, far, up), (far, near, down)):
                threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps({"down": down.carried, "up": up.carried}), flush=True)


class SlowNetwork:
    """A relay in a separate process. ``process``: see ``slow_network``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        self.port = int(process.stdout.readline())

    def carried(self) -> int:
        """Return how many bytes have been received from the server so far."""
        self._stdin.write("\n")
        self._stdin.flush()
        return int(json.loads(self._stdout.readline())["down"])


@contextlib.contextmanager
def slow_network(
    in_network: Callable[[Sequence[str]], list[str]], target: str, mbits: float, milliseconds: float
) -> Iterator[SlowNetwork]:
    """Start a relay to ``HOST:PORT``; ``in_network`` makes a command run in the relay's network namespace.

    ``milliseconds``: added to each round trip.
    """
    words = in_network([sys.executable, str(Path(__file__)), target, str(mbits), str(milliseconds)])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield SlowNetwork(process)
        assert process.stdin
        process.stdin.close()


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    relay((host, int(port)), float(sys.argv[2]) * 1e6 / 8, float(sys.argv[3]) / 1000)
