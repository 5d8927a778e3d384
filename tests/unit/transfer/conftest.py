"""What there is to copy, and the hosts to copy to, for every test of this folder."""

from tests.ssh_server import host, no_agent, server
from tests.unit.transfer.copying import disk, tree

__all__ = ["disk", "host", "no_agent", "server", "tree"]
