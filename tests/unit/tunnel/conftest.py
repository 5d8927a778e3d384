"""The far end of a tunnel and a real sshd, for every test of this folder."""

from tests.ssh_server import server
from tests.unit.tunnel.far_end import far, make_route, ours

__all__ = ["far", "make_route", "ours", "server"]
