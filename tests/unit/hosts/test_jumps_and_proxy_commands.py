"""Jump hosts, proxy commands and addresses."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.core.errors import AuthenticationFailed, ConnectionFailed, HostKeyUnknown
from notebook_launcher.hosts.engine_choice import open_ssh_host
from notebook_launcher.hosts.paramiko.connection import open_transport
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, resolve
from tests.doubles import wait_until
from tests.ports import free_port
from tests.unit.hosts.login_servers import (
    CODE,
    KBD,
    Open,
    Sshd,
    Start,
    User,
    _copy,
    a_door,
    get_in,
    make_key,
    public,
    server,
    start,
)

__all__ = ["a_door", "server", "start"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@dataclass
class Chain:
    """Three sshds, each with its own host key and user key, and a configuration in which they stand one behind another.

    Only ``first`` is found by its address: ``second`` jumps by ``first``, ``third`` by ``second``.
    """

    folder: Path
    servers: tuple[Sshd, Sshd, Sshd]

    def write(self, **jumps: str) -> None:
        text = ""
        for name, one in zip(("first", "second", "third"), self.servers, strict=True):
            key, known = self.folder / f"key_{name}", self.folder / f"known_{name}"
            if not key.exists():
                one.allow(make_key(key))
            text += (
                f"Host {name}\n  HostName 127.0.0.1\n  Port {one.port}\n  IdentityFile {key}\n"
                f"  UserKnownHostsFile {one.known(known)}\n  ProxyJump {jumps.get(name, 'none')}\n"
            )
        common = (
            "Host *\n  GlobalKnownHostsFile none\n  IdentitiesOnly yes\n  IdentityAgent none\n  ConnectTimeout 10\n"
        )
        (self.folder / "config").write_text(text + common)

    def destination(self, name: str) -> Destination:
        return Destination(name, config_file=str(self.folder / "config"))


@pytest.fixture(scope="module")
def three(start: Start) -> tuple[Sshd, Sshd, Sshd]:
    return start(), start("ecdsa"), start("rsa")


@pytest.fixture
def chain(three: tuple[Sshd, Sshd, Sshd], tmp_path: Path) -> Chain:
    return Chain(tmp_path, three)


def logins(server: Sshd) -> int:
    return server.log.count("Accepted publickey")


@pytest.mark.parametrize(
    "jumps",
    [
        {"third": "first,second"},
        {"second": "first", "third": "second"},
        {"second": "third", "third": "first,second"},  # of a list, only the first one's own way counts
        {"third": "first,ssh://127.0.0.1:{port}"},
    ],
    ids=["a list", "each its own", "a list, and a way of its own", "an address"],
)
def test_one_jump_after_the_other(chain: Chain, jumps: dict[str, str]) -> None:
    port = chain.servers[1].port
    chain.write(**{name: value.format(port=port) for name, value in jumps.items()})
    if "{port}" in jumps["third"]:
        known = chain.servers[1].known(chain.folder / "k")
        with (chain.folder / "config").open("a") as config:
            config.write(f"Host 127.0.0.1\n  IdentityFile {chain.folder}/key_second\n  UserKnownHostsFile {known}\n")
    before = [logins(server) for server in chain.servers]
    get_in(chain.destination("third"))
    assert [logins(server) for server in chain.servers] == [count + 1 for count in before]


def test_a_jump_is_left_when_the_way_is_closed_or_cannot_be_made(chain: Chain) -> None:
    def connections() -> int:
        return sum(len(psutil.Process(server.daemon.pid).children()) for server in chain.servers)

    chain.write(third="first,second")
    assert wait_until(lambda: connections() == 0)
    with ParamikoHost.open(chain.destination("third"), Credentials(User())) as host:
        for _ in range(2):
            host.reconnect()
        assert wait_until(lambda: connections() == 3), connections()
    assert wait_until(lambda: connections() == 0)
    (chain.folder / "known_third").write_text("")
    with pytest.raises(HostKeyUnknown):
        get_in(chain.destination("third"))
    assert wait_until(lambda: connections() == 0)


def test_jumps_in_a_circle_come_to_an_end(chain: Chain) -> None:
    chain.write(first="second", second="first", third="second")
    with pytest.raises(ConnectionFailed, match="form a circle"):
        get_in(chain.destination("third"))


def test_the_jump_that_does_not_let_us_in_is_named(chain: Chain) -> None:
    chain.write(third="first,second")
    make_key(chain.folder / "other")
    (chain.folder / "other").replace(chain.folder / "key_second")
    (chain.folder / "key_second.pub").unlink()
    with pytest.raises(AuthenticationFailed) as caught:
        get_in(chain.destination("third"))
    assert "key_second" in caught.value.why
    chain.servers[1].allow(public(chain.folder / "other"))
    get_in(chain.destination("third"))


def test_each_jump_is_asked_for_its_own_password_once(a_door: Open, tmp_path: Path) -> None:
    jump, login = a_door("password"), a_door("password", password="else")
    known = jump.settings().user_known_hosts[0]
    login.settings()
    (tmp_path / "config").write_text(
        f"Host jump\n  Port {jump.port}\nHost login\n  Port {login.port}\n  ProxyJump jump\n"
        f"Host *\n  HostName 127.0.0.1\n  User alice\n  UserKnownHostsFile {known}\n  IdentityAgent none\n"
    )
    user = User("sesame", "else")
    settings, credentials = resolve(Destination("login", config_file=str(tmp_path / "config"))), Credentials(user)
    for _ in range(2):
        open_transport(settings, credentials).close()
    assert len(user.asked) == 2
    assert (jump.got, login.got) == (["sesame"] * 2, ["else"] * 2)


def test_a_server_behind_a_jump_that_does_not_wait(a_door: Open, tmp_path: Path) -> None:
    jump, login = a_door("password"), a_door(KBD, rounds=[CODE])
    known = jump.settings().user_known_hosts[0]
    login.settings()
    (tmp_path / "config").write_text(
        f"Host jump\n  Port {jump.port}\nHost login\n  Port {login.port}\n  ProxyJump jump\n"
        f"Host *\n  HostName 127.0.0.1\n  User alice\n  UserKnownHostsFile {known}\n  IdentityAgent none\n"
    )
    user = User("sesame", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and login.hang_up()
    open_transport(resolve(Destination("login", config_file=str(tmp_path / "config"))), Credentials(user)).close()
    assert len(user.asked) == 2
    assert login.got == ["123456"]


def test_a_proxy_command_that_ends_is_told_at_once(server: Sshd, tmp_path: Path) -> None:
    began = time.monotonic()
    (tmp_path / "dies").write_text("echo first >&2; echo no way to $1 >&2; exit 3")
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand=f"sh {tmp_path}/dies %h"))
    assert caught.value.why == "no way to 127.0.0.1"
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand="no-such-command-here"))
    assert "no-such-command-here" in caught.value.why
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand="sh -c 'sleep 0.1 && exit 3'"))
    assert caught.value.why == "exit code 3"
    assert time.monotonic() - began < 10


def test_a_proxy_command_that_says_nothing_is_given_up_after_the_connect_timeout(server: Sshd, tmp_path: Path) -> None:
    mark = f"61{time.time_ns() % 10**6}"
    began = time.monotonic()
    with pytest.raises(ConnectionFailed):
        get_in(
            server.config(tmp_path / "config", ProxyCommand=f"sh -c 'sleep {mark} & sleep {mark}'", ConnectTimeout="1")
        )
    assert time.monotonic() - began < 10
    assert wait_until(lambda: not sleeping(mark))


def test_a_proxy_command_ends_with_its_connection(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    mark = f"62{time.time_ns() % 10**6}"
    server.config(tmp_path / "proxy", IdentityFile=f"{tmp_path}/key")
    command = f"sh -c 'sleep {mark} & exec ssh -F {tmp_path}/proxy -o BatchMode=yes -W %h:%p server'"
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", ProxyCommand=command))
    assert wait_until(lambda: not sleeping(mark))


def sleeping(mark: str) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "sleep" and process.cmdline()[-1] == mark:
                return True
    return False


def test_several_attempts_to_connect(start: Start, tmp_path: Path) -> None:
    late = start()
    late.allow(make_key(tmp_path / "key"))
    port = free_port()
    options = {"IdentityFile": f"{tmp_path}/key", "HostKeyAlias": "late", "Port": str(port)}
    (tmp_path / "known").write_text(f"late {late.host_key}\n")
    options["UserKnownHostsFile"] = str(tmp_path / "known")
    destination = late.config(tmp_path / "config", ConnectionAttempts="4", **options)

    def lead_there() -> None:
        with socket.create_server(("127.0.0.1", port)) as listener:
            connection = listener.accept()[0]
            with socket.create_connection(("127.0.0.1", late.port)) as far:
                threading.Thread(target=_copy, args=(far, connection), daemon=True).start()
                _copy(connection, far)

    threading.Timer(0.5, lead_there).start()
    get_in(destination)


def test_the_address_to_come_from_and_the_family(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    options = {"IdentityFile": f"{tmp_path}/key"}
    get_in(server.config(tmp_path / "config", BindAddress="127.0.0.2", **options))
    assert "from 127.0.0.2 port" in server.log
    with pytest.raises(ConnectionFailed):
        get_in(server.config(tmp_path / "config", AddressFamily="inet6", **options))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("Ciphers", "aes256-ctr"),
        ("MACs", "hmac-sha2-512,umac-64@openssh.com"),
        ("KexAlgorithms", "ecdh-sha2-nistp384"),
        ("KexAlgorithms", "curve25519-sha256"),  # which is the name that others have for one of ours
    ],
)
def test_algorithms_of_the_configuration(server: Sshd, tmp_path: Path, option: str, value: str) -> None:
    server.allow(make_key(tmp_path / "key"))
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", **{option: value})
    with ParamikoHost.open(destination, Credentials(User())) as host:
        used = {"Ciphers": host.transport.local_cipher, "MACs": host.transport.local_mac}.get(option)
        assert used is None or used in value


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("Ciphers", "chacha20-poly1305@openssh.com"),
        ("MACs", "umac-64@openssh.com,umac-128-etm@openssh.com"),
        ("KexAlgorithms", "diffie-hellman-group1-sha1"),
        ("HostKeyAlgorithms", "ssh-rsa"),
    ],
)
def test_algorithms_that_paramiko_does_not_have_are_not_replaced_by_others(
    server: Sshd, tmp_path: Path, option: str, value: str
) -> None:
    server.allow(make_key(tmp_path / "key"))
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", **{option: value})
    with pytest.raises(ConnectionFailed, match="only algorithms that paramiko does not have") as caught:
        ParamikoHost.open(destination, Credentials(User()))
    assert caught.value.why == f"{option} {value}"
    assert "--engine openssh" in caught.value.hint


def test_a_server_without_any_of_our_algorithms(start: Start, tmp_path: Path) -> None:
    """paramiko has none of its ciphers; ssh has, and gets in."""
    server = start(Ciphers="chacha20-poly1305@openssh.com")
    server.allow(make_key(tmp_path / "key"))
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key")
    with pytest.raises(ConnectionFailed, match="server and paramiko have no algorithm in common") as caught:
        ParamikoHost.open(destination, Credentials(User()))
    assert "cipher" in caught.value.why and "--engine openssh" in caught.value.hint
    host, choice = open_ssh_host(destination, User())
    with host:
        assert host.run(["echo", "in"]).stdout == "in\n"
    assert choice.engine == "openssh" and "cipher" in choice.reason
