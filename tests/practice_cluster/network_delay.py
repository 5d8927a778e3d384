"""Forward frames between two network interfaces with a delay.

    python3 network_delay.py SECONDS INTERFACE INTERFACE

Prints "ready", and runs until it is killed. netem would do the same, but many kernels are built without it. The file
imports nothing of the package, because it is started in the network namespace of the switch.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR = 263, 15
OUTGOING = 4
BIGGEST_FRAME = 1 << 17


def tap(interface: str) -> socket.socket:
    """Return a socket for all frames of an interface."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    # Within one kernel, checksums and segmentation are left to the last interface. This header carries that state.
    found.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    found.bind((interface, 0))
    return found


def carry(seconds: float, one: socket.socket, other: socket.socket) -> None:
    """Forward frames between both sockets for ever."""
    beyond = {one: other, other: one}
    waiting: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for ready in select.select([one, other], [], [], timeout)[0]:
            frame, (_name, _protocol, kind, *_rest) = ready.recvfrom(BIGGEST_FRAME)
            if kind != OUTGOING:  # not a frame sent by this program
                waiting.append((time.monotonic() + seconds, beyond[ready], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _due, target, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # an interface that is down loses frames, as a cable does
                target.send(frame)


def main() -> None:
    """Open both ends, and forward."""
    seconds, one, other = sys.argv[1:4]
    taps = tap(one), tap(other)
    print("ready", flush=True)
    carry(float(seconds), *taps)


if __name__ == "__main__":
    main()
