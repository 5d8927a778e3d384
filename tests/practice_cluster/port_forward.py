"""Forward TCP connections from an inherited listening socket to an address, for access to the practice cluster.

    python3 port_forward.py FD HOST PORT

The socket listens on the host; this process connects from the network namespace in which it was started, the laptop's.
It imports nothing of the package, and drops root's privileges before the first connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

NOBODY = 65534
CHUNK = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, then close only that direction; a broken connection is closed completely."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()  # otherwise the other side would never notice that this one is gone


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        far_writer.close()
        writer.close()

    server = await asyncio.start_server(carry, sock=listener)
    await server.serve_forever()


def main() -> None:
    """Take over the socket, drop root's privileges, and forward."""
    descriptor, host, port = sys.argv[1:4]
    listener = socket.socket(fileno=int(descriptor))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    asyncio.run(_serve(listener, host, int(port)))


if __name__ == "__main__":
    main()
