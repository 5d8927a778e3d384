"""Ports of this machine that a server started a moment later will still find free."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that nobody has on 127.0.0.1 or ::1, and that the kernel gives to nobody who asks for any port."""
    first_given = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32768
    return next(filter(_is_free, random.sample(range(10_000, max(first_given, 20_000)), 1000)))


def _is_free(port: int) -> bool:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            socket.create_server((address, port), family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True
