"""The sshd, and the hosts that reach it, for every test of this folder."""

import getpass
import pwd
from collections.abc import Iterator

import pytest

from tests.ssh_server import Account, Server, account_at, asking, echo, host, no_agent, open_host, server

__all__ = ["asking", "echo", "host", "no_agent", "open_host", "server"]


@pytest.fixture(scope="module")
def of_the_sshd(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A home of its own for bash, whose start-up files a login through the sshd reads."""
    if not pwd.getpwnam(getpass.getuser()).pw_shell.endswith("/bash"):
        pytest.skip("whoever runs this has another shell than bash")
    with account_at(server, tmp_path_factory.mktemp("account")) as account:
        yield account
