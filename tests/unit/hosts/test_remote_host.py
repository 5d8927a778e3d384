"""What only a remote host does: a connection that breaks and is made anew, host keys and keys."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    AddressRefused,
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    HostKeyChanged,
    HostKeyUnknown,
    LoginBusy,
)
from notebook_launcher.hosts.base import Host, NextHop
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests.doubles import wait_until
from tests.ssh_server import ENGINES, Follower, Open, Server, User, end_connections, make_key, running, there_and_back

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


def test_a_remote_host_can_be_closed_twice_and_then_says_that_it_is_lost(server: Server, open_host: Open) -> None:
    host = open_host(server.destination(), Credentials(User()))
    assert host.remote
    assert host.alive
    host.close()
    host.close()
    assert not host.alive
    with pytest.raises(ConnectionLost):
        host.run(["true"])
    with pytest.raises(ConnectionLost):
        host.stream(["true"], print, print)


def cipher_of(host: Host) -> str:
    if isinstance(host, ParamikoHost):
        return host.transport.remote_cipher
    messages = "\n".join(host._master._login.messages)  # type: ignore[attr-defined]
    return re.findall("server->client cipher: (\\S+)", messages)[-1]


def test_the_cipher_is_the_quickest_or_the_one_that_the_user_has_chosen(
    server: Server, open_host: Open, tmp_path: Path
) -> None:
    with open_host(server.destination(), Credentials(User())) as host:
        assert cipher_of(host) == "aes128-gcm@openssh.com"
    with open_host(server.client_with(tmp_path, Ciphers="aes256-ctr"), Credentials(User())) as host:
        assert cipher_of(host) == "aes256-ctr"


def test_a_broken_connection_ends_a_stream(server: Server, open_host: Open) -> None:
    others = server.connections()
    follower = Follower()
    host = open_host(server.destination(), Credentials(User()))
    host.stream(["sh", "-c", "echo up; cat"], follower.lines.put, follower.ends.put)
    assert follower.next() == "up"
    end_connections(server, others)
    assert isinstance(follower.ends.get(timeout=20), str)
    host.close()


def test_a_command_under_which_the_connection_breaks(server: Server, open_host: Open) -> None:
    others = server.connections()
    host = open_host(server.destination(), Credentials(User()))
    threading.Timer(0.5, end_connections, (server, others)).start()
    with pytest.raises(ConnectionLost):
        host.run(["sleep", "20"])
    host.close()


@pytest.mark.parametrize("what", ["open_stream", "open_process", "link", "link onward"])
def test_a_connection_that_breaks_is_no_end_of_data(server: Server, open_host: Open, echo: int, what: str) -> None:
    others = server.connections()
    with open_host(server.destination(), Credentials(User())) as host:
        address = ("127.0.0.1", echo)
        stream = {
            "open_stream": lambda: host.open_stream(address),
            "open_process": lambda: host.open_process(["cat"]),
            "link": lambda: host.open_route().open(address),
            "link onward": lambda: host.open_route(server.onward("address")).open(address),
        }[what]()
        stream.settimeout(10)
        stream.sendall(b"hi")
        assert stream.recv(10) == b"hi"
        end_connections(server, others)
        with pytest.raises(OSError) as caught:
            stream.recv(10)
        assert not isinstance(caught.value, TimeoutError)


def test_a_lost_connection_is_made_anew(server: Server, open_host: Open, tmp_path: Path, echo: int) -> None:
    others = server.connections()
    user = User("opén sesame")
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, Credentials(user)) as host:
        here, onward = host.open_route(), host.open_route(server.onward("address"))
        end_connections(server, others)
        assert wait_until(lambda: not host.alive and not here.alive and not onward.alive)
        host.reconnect()
        assert host.alive
        assert host.run(["echo", "back"]).stdout == "back\n"
        assert there_and_back(here.open(("127.0.0.1", echo)), b"here is where the host is") != b""
        assert not onward.alive
        host.reconnect()  # also one that stands
        assert host.run(["echo", "again"]).stdout == "again\n"
    assert len(user.asked) == 1


def test_a_server_that_is_gone_cannot_be_reconnected_to(server: Server, open_host: Open, tmp_path: Path) -> None:
    with open_host(server.client_with(tmp_path), Credentials(User())) as host:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            closed = listener.getsockname()[1]
        server.client_with(tmp_path, Port=str(closed))
        with pytest.raises(ConnectionFailed):
            host.reconnect(timeout=3)
        assert host.run(["echo", "the old one stays"]).stdout == "the old one stays\n"


def test_a_login_node_that_forwards_nothing(server: Server, open_host: Open, tmp_path: Path, echo: int) -> None:
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.closed_port} {server.host_key}")
    destination = server.client_with(tmp_path, Port=str(server.closed_port), UserKnownHostsFile=str(tmp_path / "known"))
    data = os.urandom(100_000)
    with open_host(destination, Credentials(User())) as host:
        for link in (host.open_route(), host.open_route(server.onward("address"))):
            stream = link.open(("127.0.0.1", echo))
            stream.settimeout(10)
            sender = threading.Thread(target=stream.sendall, args=(data,))
            sender.start()
            received = b""
            while len(received) < len(data):  # no half-close: the command that connects ends with its input
                part = stream.recv(65536)
                assert part
                received += part
            sender.join()
            assert received == data
            stream.close()
            link.close()


@pytest.mark.parametrize("asking", ["password", "keyboard-interactive"], indirect=True)
@pytest.mark.parametrize("may_ask", [True, False])
@pytest.mark.parametrize("engine", ["local", *ENGINES])
def test_onward_the_user_is_asked_only_where_that_is_meant(
    server: Server, asking: Destination, tmp_path: Path, engine: str, may_ask: bool
) -> None:
    user = User("opén")
    name, key = (tmp_path / "known").read_text().strip().split(" ", 1)
    address = ("127.0.0.1", int(name.rpartition(":")[2]))
    onward = NextHop("node", address, host_keys=(key,), asking=may_ask)
    opened = LocalHost(user) if engine == "local" else ENGINES[engine](server.destination(), Credentials(user))
    with opened as host:
        if may_ask:
            host.open_route(onward).close()
        else:
            with pytest.raises(AuthenticationFailed):
                host.open_route(onward)
    assert len(user.asked) == may_ask


@pytest.mark.parametrize("way", ["address", "command"])
def test_onward_as_we_came(server: Server, open_host: Open, tmp_path: Path, echo: int, way: str) -> None:
    """Without a key of its own the server behind is entered as the host was, and nothing is asked for twice."""
    user = User("opén sesame")
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, Credentials(user)) as host:
        link = host.open_route(server.onward(way, key=None))
        assert there_and_back(link.open(("127.0.0.1", echo)), b"through") == b"through"
        link.close()
    assert len(user.asked) == 1


@pytest.mark.parametrize("kind", ["wrong", "unknown", "refused"])
def test_a_host_key_that_is_not_trusted(server: Server, open_host: Open, tmp_path: Path, kind: str) -> None:
    known_hosts = tmp_path / "known_hosts"
    name = f"[127.0.0.1]:{server.port}"
    if kind == "wrong":
        known_hosts.write_text(f"{name} {make_key(tmp_path / 'key')}\n")
    user = User("secret", agrees=False)
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(known_hosts))
    if kind == "unknown":
        destination = server.client_with(tmp_path, UserKnownHostsFile=str(known_hosts), BatchMode="yes")
    with pytest.raises(HostKeyChanged if kind == "wrong" else HostKeyUnknown) as caught:
        open_host(destination, Credentials(user))
    assert "SHA256:" in caught.value.why
    assert len(user.asked) == (1 if kind == "refused" else 0)
    assert "Accepted" not in (server.folder / "log").read_text().splitlines()[-1]


def test_an_unknown_host_key_is_taken_with_a_yes(server: Server, open_host: Open, tmp_path: Path) -> None:
    user = User(agrees=True)
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    with open_host(destination, Credentials(user)) as host:
        assert host.run(["echo", "hi"]).stdout == "hi\n"
    with open_host(destination, Credentials(user)):
        assert len(user.asked) == 1
    assert (tmp_path / "known").read_text() == (server.folder / "known_hosts").read_text()


def test_the_server_is_asked_for_the_host_key_that_is_known(server: Server, open_host: Open, tmp_path: Path) -> None:
    second = (server.folder / "second_host_key.pub").read_text()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {second}")
    user = User()
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    open_host(destination, Credentials(user)).close()
    assert user.asked == []


def test_an_encrypted_key_asks_once_for_two_connections(
    server: Server, open_host: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    real = subprocess.Popen.__init__

    def spy(self: object, argv: object, *others: object, **more: object) -> None:
        started.append((argv, more.get("env")))
        real(self, argv, *others, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess.Popen, "__init__", spy)
    user = User("opén sesame")
    credentials = Credentials(user)
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, credentials) as host:
        for _ in range(2):
            assert host.run(["echo", "in"]).stdout == "in\n"
            # another test may be making its key at this moment, whose passphrase is no secret
            assert [line for line in running("sesame") if "ssh-keygen" not in line] == []
            host.reconnect()
    assert len(user.asked) == 1
    assert "locked_key" in user.asked[0]
    assert started
    assert "sesame" not in repr(started)


@pytest.mark.parametrize(("answer", "times"), [("wrong", 3), (None, 1), ("", 1)])
def test_a_wrong_passphrase(server: Server, open_host: Open, tmp_path: Path, answer: str | None, times: int) -> None:
    user = User(answer)
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with pytest.raises(AuthenticationFailed):
        open_host(destination, Credentials(user))
    assert len(user.asked) == times


def test_a_key_that_the_server_does_not_know(server: Server, open_host: Open, tmp_path: Path) -> None:
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "other_key"))
    with pytest.raises(AuthenticationFailed) as caught:
        open_host(destination, Credentials(User()))
    assert caught.value.what == f"127.0.0.1 does not let {getpass.getuser()} in."
    assert "other_key" in caught.value.why
    assert "ssh server" in caught.value.hint


def test_a_port_that_is_closed_and_a_server_that_is_none(
    server: Server, open_host: Open, tmp_path: Path, echo: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"port {closed} cannot be reached"):
        open_host(server.client_with(tmp_path, Port=str(closed)), Credentials(User()))
    with pytest.raises(ConnectionFailed, match="does not speak SSH"):
        open_host(server.client_with(tmp_path, Port=str(echo)), Credentials(User()))
    with pytest.raises(ConnectionFailed, match="is not known"):
        open_host(server.client_with(tmp_path, HostName="no-such-name.invalid"), Credentials(User()))


@pytest.mark.parametrize(
    ("line", "kind", "what"),
    [
        (b"Not allowed at this time\r\n", AddressRefused, "refuses this machine's address for a while"),
        (b"Exceeded MaxStartups\r\n", LoginBusy, "too many logins in progress"),
    ],
)
@pytest.mark.parametrize("way", ["directly", "jump host", "proxy command"])
def test_a_server_that_refuses_to_talk(
    server: Server, open_host: Open, tmp_path: Path, line: bytes, kind: type[Exception], what: str, way: str
) -> None:
    """A stand-in for OpenSSH's server since 9.8 (PerSourcePenalties): the line in place of a version, and the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    connection.sendall(line)
                    connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        options = {"Port": str(listener.getsockname()[1])}
        if way == "proxy command":
            (tmp_path / "relay").write_text(RELAY)
            options["ProxyCommand"] = f"{sys.executable} {tmp_path}/relay %p"
        if way == "jump host":
            options["ProxyJump"] = "hop"
        destination = server.client_with(tmp_path, **options)
        hop = (server.folder / "config").read_text().replace("Host server", "Host hop")
        (tmp_path / "config").write_text((tmp_path / "config").read_text() + hop)
        with pytest.raises(kind, match=what) as caught:
            open_host(destination, Credentials(User()))
    assert type(caught.value) is kind
    assert line.decode().strip() in caught.value.why and caught.value.hint  # type: ignore[attr-defined]


def test_a_server_that_hangs_up_before_it_has_said_anything(server: Server, open_host: Open, tmp_path: Path) -> None:
    """As one does that has too many logins in progress, where its only line is lost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(LoginBusy, match="closed the connection before it sent anything"):
            open_host(server.client_with(tmp_path, Port=str(listener.getsockname()[1])), Credentials(User()))


RELAY = """
import os, socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while data := connection.recv(1000):
    os.write(1, data)
"""


def test_through_a_jump(server: Server, open_host: Open, tmp_path: Path) -> None:
    """The jump is found in the configuration that the user named, as with ``ssh -F``."""
    destination = server.client_with(tmp_path, ProxyJump="hop")
    hop = (server.folder / "config").read_text().replace("Host server", "Host hop")
    (tmp_path / "config").write_text((tmp_path / "config").read_text() + hop)
    with open_host(destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"


def test_through_a_proxy_command(server: Server, open_host: Open, tmp_path: Path) -> None:
    config = shutil.copy(server.config, tmp_path / "of_the_proxy")
    destination = server.client_with(tmp_path, ProxyCommand=f"ssh -F {config} -W %h:%p server")
    with open_host(destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"
    assert wait_until(lambda: not running(str(config)))
