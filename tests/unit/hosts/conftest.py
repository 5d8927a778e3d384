"""The sshd, and the hosts that reach it, for every test of this folder."""

from tests.ssh_server import asking, echo, host, no_agent, open_host, server

__all__ = ["asking", "echo", "host", "no_agent", "open_host", "server"]
