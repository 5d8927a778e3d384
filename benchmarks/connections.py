"""Shared by benchmarks that connect from this machine to the practice cluster: its SSH configuration, and ports."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.practice_cluster import PracticeCluster


class NoQuestions:
    """Prompts without answers: the key works without a passphrase, and the host key is known."""

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Return no answer."""

    def confirm(self, text: str) -> bool:
        """Return no."""
        return False


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_until_open(port: int) -> None:
    """Wait until a program listens on the port."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise SystemExit("the tunnel does not open")


@contextlib.contextmanager
def ssh_config(cluster: PracticeCluster, relay: int = 0) -> Iterator[str]:
    """An SSH configuration with which programs on this machine reach the login node, optionally through a relay."""
    keys = cluster.directory / "keys"
    with tempfile.TemporaryDirectory() as folder:
        known = cluster.run("laptop", "alice", ["sh", "-c", "cat /etc/ssh/ssh_known_hosts ~/.ssh/known_hosts"])
        Path(folder, "known_hosts").write_text(known.stdout)
        key = Path(folder, "key")
        key.write_text((keys / "alice@laptop").read_text())
        key.chmod(0o600)
        Path(folder, "config").write_text(
            f"Host login\n  HostName {'127.0.0.1' if relay else 'login'}\n  Port {relay or 22}\n"
            f"  HostKeyAlias login\n  User alice\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n"
            f"Host node1 node2 gpu1\n  ProxyJump login\n  User alice\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking no\n"
        )
        yield f"{folder}/config"
