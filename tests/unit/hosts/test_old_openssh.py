"""A real ``ssh`` from before 8.5: what a server can get from it by wording its questions like others, and what works.

It does not say which server asks. Each attack is made three times: with this ssh; with this ssh and without our
protection, where the secret is stolen; and with the system's ssh, which says who asks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest

from notebook_launcher.core.errors import AuthenticationFailed, HostKeyChanged, LauncherError
from notebook_launcher.hosts.base import NextHop
from notebook_launcher.hosts.openssh import master
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests import old_openssh
from tests.ssh_server import Follower, Server, make_key, there_and_back
from tests.unit.hosts.login_servers import HOST_KEY, KBD, Door, Open, Round, User, a_door
from tests.unit.hosts.openssh_sockets import sockets

__all__ = ["a_door", "sockets"]

pytestmark = [pytest.mark.timeout(180), pytest.mark.real_time]  # the first test may have to fetch that ssh

SECRET = "opén sesame"


@pytest.fixture(scope="module")
def old_ssh() -> Path:
    return old_openssh.folder()


@pytest.fixture
def with_old_ssh(old_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", str(old_ssh), prepend=os.pathsep)
    forget = master.prompts_name_servers.cache_clear
    forget()
    yield
    forget()


@pytest.fixture(params=["old ssh", "old ssh, unprotected", "the system's ssh"])
def stolen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the secret reaches the hostile server: only with an old ssh from which nothing of ours protects."""
    if request.param.startswith("old"):
        request.getfixturevalue("with_old_ssh")
    unprotected: bool = request.param.endswith("unprotected")
    if unprotected:
        monkeypatch.setattr(master, "prompts_name_servers", lambda: True)
    return unprotected


@dataclass
class Site:
    """The user's configuration of ssh, and a key that has a passphrase."""

    folder: Path

    def know(self, door: Door, name: str = "login", **options: str) -> Destination:
        """Add a server to the configuration."""
        with (self.folder / "known").open("a") as known:
            known.write(f"[127.0.0.1]:{door.port} {NODE_KEY}\n")
        usual = {
            "HostName": "127.0.0.1",
            "Port": str(door.port),
            "User": "alice",
            "IdentityFile": "none",
            "UserKnownHostsFile": f"{self.folder}/known",
            "GlobalKnownHostsFile": "none",
        }
        with (self.folder / "config").open("a") as config:
            config.writelines([f"Host {name}\n", *(f"  {key} {value}\n" for key, value in (usual | options).items())])
        return Destination(name, config_file=str(self.folder / "config"))

    def lock_key(self) -> paramiko.PKey:
        make_key(self.key_file, "ecdsa", passphrase=SECRET)
        return paramiko.ECDSAKey.from_private_key_file(str(self.key_file), SECRET)

    @property
    def key_file(self) -> Path:
        return self.folder / "locked_key"

    @property
    def passphrase_prompt(self) -> str:
        return f"Enter passphrase for key '{self.key_file}': "


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


NODE_KEY = f"{HOST_KEY.get_name()} {HOST_KEY.get_base64()}"
LOGIN_PROMPT = "alice@127.0.0.1's password: "


def imitating(prompt: str) -> tuple[Round, ...]:
    """Return the rounds of a server that words its question so, and is content with the secret alone."""
    return (Round((prompt,), (SECRET,)),)


def go_on_to(host: OpenSshHost, node: Door) -> None:
    """Log in to a compute node as far as it lets us."""
    hop = NextHop("node", host_keys=(NODE_KEY,), address=("127.0.0.1", node.port))
    with contextlib.suppress(AuthenticationFailed):
        host.open_route(hop).close()


def test_a_node_that_words_its_question_like_that_for_a_passphrase(stolen: bool, a_door: Open, site: Site) -> None:
    login = a_door("publickey", key=site.lock_key())
    node = a_door(KBD, rounds=imitating(site.passphrase_prompt))
    destination = site.know(login, IdentityFile=str(site.key_file), IdentitiesOnly="yes")
    user = User(SECRET, None)
    with OpenSshHost.open(destination, Credentials(user)) as host:
        go_on_to(host, node)
    assert (SECRET in node.got) is stolen
    assert any(site.passphrase_prompt in asked for asked in user.asked[1:]) is not stolen


@pytest.mark.usefixtures("with_old_ssh")
@pytest.mark.parametrize("protected", [True, False])
def test_a_node_that_words_its_question_like_that_for_the_logins_password(
    protected: bool, a_door: Open, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer ssh names the node, which then gets that password, as the documentation says."""
    if not protected:
        monkeypatch.setattr(master, "prompts_name_servers", lambda: True)
    login, node = a_door("password", password=SECRET), a_door(KBD, rounds=imitating(LOGIN_PROMPT))
    user = User(SECRET, None)
    with OpenSshHost.open(site.know(login), Credentials(user)) as host:
        go_on_to(host, node)
    assert (SECRET in node.got) is not protected
    assert len(user.asked) == (2 if protected else 1)


@pytest.mark.parametrize("imitated", ["password", "passphrase"])
def test_a_jump_host_that_words_its_next_question_like_another(
    stolen: bool, a_door: Open, site: Site, imitated: str
) -> None:
    jump, key = a_door(KBD, rounds=(Round(right=("of the jump",)),)), site.lock_key()
    login = a_door("publickey", key=key) if imitated == "passphrase" else a_door("password", password=SECRET)
    site.know(jump, "jump")
    options = {"IdentityFile": str(site.key_file), "IdentitiesOnly": "yes"} if imitated == "passphrase" else {}
    destination = site.know(login, ProxyJump="jump", **options)
    user = User("of the jump", SECRET, None)
    with OpenSshHost.open(destination, Credentials(user)) as host:
        assert SECRET not in jump.got
        jump.rounds = imitating(site.passphrase_prompt if imitated == "passphrase" else LOGIN_PROMPT)
        with contextlib.suppress(LauncherError):
            host.reconnect()
    assert (SECRET in jump.got) is stolen


def test_a_login_node_that_words_its_next_question_like_that_for_a_passphrase(
    stolen: bool, a_door: Open, site: Site
) -> None:
    login = a_door("publickey", key=site.lock_key(), rounds=imitating(site.passphrase_prompt))
    destination = site.know(login, IdentityFile=str(site.key_file), IdentitiesOnly="yes")
    with OpenSshHost.open(destination, Credentials(User(SECRET, None))) as host:
        login.stages, login.key = (KBD,), None
        with contextlib.suppress(LauncherError):
            host.reconnect()
    assert (SECRET in login.got) is stolen


@pytest.mark.usefixtures("with_old_ssh")
@pytest.mark.parametrize("method", ["password", KBD])
def test_the_only_server_of_a_login_gets_again_what_was_typed_for_it(method: str, a_door: Open, site: Site) -> None:
    login, user = a_door(method, password=SECRET, rounds=imitating("Password: ")), User(SECRET, None)
    with OpenSshHost.open(site.know(login), Credentials(user)) as host:
        host.reconnect()
        assert host.alive
    assert login.got == [SECRET, SECRET]
    assert len(user.asked) == 1


# --- the rest of the engine --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_old_ssh")
def test_all_that_the_engine_does_works_with_an_old_ssh(server: Server, tmp_path: Path, echo: int) -> None:
    version = subprocess.run(["ssh", "-V"], check=True, capture_output=True, text=True).stderr
    assert version.startswith("OpenSSH_8.4")
    user = User(agrees=True)
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    with OpenSshHost.open(destination, Credentials(user)) as host:
        assert len(user.asked) == 1 and "fingerprint" in user.asked[0]
        assert host.run(["cat"], stdin=b"in").stdout == "in"
        seen = Follower()
        host.stream(["echo", "line"], seen.lines.put, seen.ends.put)
        assert (seen.next(), seen.ends.get(timeout=30)) == ("line", "exit code 0")
        for way in ("address", "command"):
            with contextlib.closing(host.open_route(server.onward(way))) as route:
                assert there_and_back(route.open(("127.0.0.1", echo)), b"through") == b"through"
            with pytest.raises(HostKeyChanged):
                host.open_route(server.onward(way, host_keys=(make_key(tmp_path / way),)))
        host.reconnect()
        assert host.run(["echo", "again"]).stdout == "again\n"
    assert len(user.asked) == 1
    server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"), HostKeyAlgorithms="ecdsa-sha2-nistp256")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {make_key(tmp_path / 'other', 'ecdsa')}\n")
    with pytest.raises(HostKeyChanged):
        OpenSshHost.open(destination, Credentials(user))


@pytest.mark.usefixtures("with_old_ssh")
def test_an_old_ssh_offers_a_node_only_the_kinds_of_keys_that_the_configuration_allows(
    server: Server, tmp_path: Path
) -> None:
    """The option had another name then."""
    make_key(tmp_path / "ecdsa", "ecdsa")
    keys = f"{tmp_path}/ecdsa\n  IdentityFile {server.folder}/user_key"
    destination = server.client_with(tmp_path, IdentityFile=keys, PubkeyAcceptedKeyTypes="ssh-ed25519")
    log = server.folder / "log"
    with OpenSshHost.open(destination, Credentials(User())) as host:
        before = len(log.read_text())
        host.open_route(server.onward("address", key=None)).close()
    offered = log.read_text()[before:]
    assert "ED25519" in offered
    assert "ECDSA" not in offered
