"""What the user's ssh configuration says: asked of a real ``ssh -G``, and read without it."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, parse_options, resolve

HOME = pwd.getpwuid(os.getuid()).pw_dir  # OpenSSH looks it up in the system's list of users


@pytest.fixture(scope="module", autouse=True)
def _home_of_the_user() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", HOME)
        yield


# --- destinations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("login", Destination("login")),
        ("alice@login.uni.example", Destination("login.uni.example", "alice")),
        ("alice@login:2222", Destination("login", "alice", 2222)),
        ("login:22", Destination("login", None, 22)),
        ("alice@uni.example@login", Destination("login", "alice@uni.example")),
        ("192.0.2.7", Destination("192.0.2.7")),
        ("2001:db8::7", Destination("2001:db8::7")),
        ("alice@2001:db8::7", Destination("2001:db8::7", "alice")),
        ("login:ssh", Destination("login:ssh")),
        ("UNI\\alice@login", Destination("login", "UNI\\alice")),
        ("ssh://login", Destination("login")),
        ("ssh://alice@login:2222", Destination("login", "alice", 2222)),
        ("ssh://alice@login:2222/", Destination("login", "alice", 2222)),
        ("ssh://[::1]:22", Destination("::1", None, 22)),
        ("[::1]:22", Destination("::1", None, 22)),
        ("alice@[2001:db8::7]", Destination("2001:db8::7", "alice")),
    ],
)
def test_a_destination(text: str, destination: Destination) -> None:
    assert Destination.parse(text) == destination


def test_what_is_given_besides_goes_before() -> None:
    assert Destination.parse("bob@login:1", user="alice", port=2, config_file="f") == Destination(
        "login", "alice", 2, "f"
    )
    assert Destination.parse("bob@login:1", user=None, port=None, config_file=None) == Destination("login", "bob", 1)


@pytest.mark.parametrize(
    "text",
    [
        "", "@login", "alice@", ":22", "alice@:22", "-oProxyCommand=touch /tmp/x", "-oProxyCommand=id", "-l", "a@-oX=y",
        "-lroot@login", "two words", "login\n", "a\tb@login", "login\0", "$(id)", "login;id", "a`id`", "a|b", "a&b",
        "`id`@login", "a;id@login", "[::1", "[::1]:", "[::1]:x", "[]:22", "[a]b", "ssh://", "a[1]", "login:0",
        "login:65536", "login:99999999", "\u202elogin",
    ],
)  # fmt: skip
def test_what_is_no_destination_is_refused(text: str) -> None:
    with pytest.raises(ConnectionFailed, match="does not name a login node"):
        Destination.parse(text)


def test_a_bad_user_from_elsewhere_is_refused() -> None:
    with pytest.raises(ConnectionFailed):
        Destination.parse("login", user="-oProxyCommand=id")


@given(st.text(max_size=30))
def test_a_destination_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        destination = Destination.parse(text)
    except ConnectionFailed:
        return
    assert destination.host
    assert not destination.host.startswith("-")
    assert not set("$`;&|<>\\ \n") & set(destination.host)


def test_a_destination_in_words() -> None:
    assert str(Destination("login", "alice", 22)) == "alice@login"
    assert str(Destination("login")) == "login"


# --- a real ssh ----------------------------------------------------------------------------------------------

CONFIG = """
Include more.conf
Match host gpu* user carol
  Port 2022
Host gpu*
  HostName %h.uni.example
  User alice
  IdentityFile ~/.ssh/%r@%h
  IdentityFile {folder}/%n-%u-%p%%
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_%k ~/.ssh/known_hosts2
  GlobalKnownHostsFile none
  ProxyJump bob@hop:2222,hop2
  HostKeyAlias uni-gpu
  StrictHostKeyChecking accept-new
  ConnectTimeout 7
  BatchMode yes
Host behind
  ProxyCommand nc -X connect %h %p
  StrictHostKeyChecking off
"""
MORE = """
Host included
  HostName 192.0.2.9
  Port 2200
Host gpu*
  LogLevel ERROR
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    # ssh takes Include's relative names from ~/.ssh, so the name is made absolute here
    (tmp_path / "more.conf").write_text(MORE)
    text = CONFIG.replace("{folder}", str(tmp_path)).replace("more.conf", str(tmp_path / "more.conf"))
    (tmp_path / "config").write_text(text)
    return str(tmp_path / "config")


@pytest.fixture(params=["ssh -G", "without ssh"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either way to read a configuration; what both understand must come out the same."""
    if request.param == "without ssh":
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    elif not shutil.which("ssh"):
        pytest.fail("there is no ssh here; on Debian and Ubuntu: apt-get install openssh-client")
    return str(request.param)


def test_everything_that_counts_is_read(way: str, config: str) -> None:
    folder = Path(config).parent
    settings = resolve(Destination("gpu1", config_file=config))
    assert settings.hostname == "gpu1.uni.example"
    assert (settings.user, settings.port) == ("alice", 22)
    assert settings.identity_files == (
        Path("~/.ssh/alice@gpu1.uni.example").expanduser(),
        folder / f"gpu1-{getpass.getuser()}-22%",
    )
    assert settings.identities_only
    if way == "ssh -G":  # the token is for newer ssh only
        assert settings.user_known_hosts == (folder / "known_uni-gpu", Path("~/.ssh/known_hosts2").expanduser())
    assert settings.system_known_hosts == ()
    assert settings.proxy_jump == ("bob@hop:2222", "hop2")
    assert settings.proxy_command is None
    assert settings.host_key_alias == settings.known_as == "uni-gpu"
    assert settings.strict == "accept-new"
    assert settings.connect_timeout == 7.0
    assert settings.batch


@pytest.mark.usefixtures("way")
def test_what_the_user_typed_goes_before_the_file(config: str) -> None:
    settings = resolve(Destination("gpu1", "carol", 2222, config))
    assert (settings.user, settings.port) == ("carol", 2222)


def test_match_and_include_need_ssh(config: str) -> None:
    assert resolve(Destination("gpu1", "carol", None, config)).port == 2022
    included = resolve(Destination("included", config_file=config))
    assert (included.hostname, included.port) == ("192.0.2.9", 2200)
    assert included.known_as == "[192.0.2.9]:2200"


@pytest.mark.usefixtures("way")
def test_a_proxy_command(config: str) -> None:
    settings = resolve(Destination("behind", config_file=config))
    assert settings.proxy_command is not None
    assert settings.proxy_command.startswith("nc -X connect")
    assert settings.proxy_jump == ()
    assert settings.strict == "no"


@pytest.mark.usefixtures("way")
def test_what_nobody_configured(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    settings = resolve(Destination("login.uni.example", config_file=str(tmp_path / "empty")))
    assert (settings.hostname, settings.port, settings.user) == ("login.uni.example", 22, getpass.getuser())
    assert Path("~/.ssh/id_ed25519").expanduser() in settings.identity_files
    assert Path("~/.ssh/known_hosts").expanduser() in settings.user_known_hosts
    assert Path("/etc/ssh/ssh_known_hosts") in settings.system_known_hosts
    assert (settings.strict, settings.batch, settings.connect_timeout) == ("ask", False, 30.0)
    assert (settings.proxy_jump, settings.proxy_command, settings.host_key_alias) == ((), None, None)
    assert settings.known_as == "login.uni.example"
    assert not settings.identities_only


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("text", "says"), [("Host x\n  Port many\n", "many"), (None, "config")])
def test_a_configuration_that_cannot_be_read(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConnectionFailed, match="cannot be read") as caught:
        resolve(Destination("x", config_file=str(path)))
    assert says in caught.value.why


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("Host x\n  Compresion yes\n", "Bad configuration option: compresion", 2),
        ("Host x\n\n  Ciphers rot13\n", "Bad SSH2 cipher spec 'rot13'.", 3),
        ("Match nonsense\n", "Bad Match condition", 1),
        ('Host "x\n', "invalid quotes", 1),
    ],
)
def test_what_openssh_says_of_a_wrong_line_is_told_with_its_place(
    tmp_path: Path, text: str, says: str, line: int
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConnectionFailed, match="cannot be read") as caught:
        resolve(Destination("x", config_file=str(path)))
    assert says in caught.value.why
    assert caught.value.hint == f"correct line {line} of {path}, then check with: ssh -F {path} -G x"


def test_a_configuration_that_others_may_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh minds that in its own place only; a stand-in says what it says."""
    says = "Bad owner or permissions on /home/alice/.ssh/config"
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConnectionFailed, match="cannot be read") as caught:
        resolve(Destination("x"))
    assert caught.value.why == says
    assert caught.value.hint.endswith("chmod go-w /home/alice/.ssh/config")


def test_a_name_that_is_in_none_of_the_canonical_domains(way: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "CanonicalizeHostname yes\nCanonicalDomains uni.invalid\nCanonicalizeFallbackLocal no\n"
    )
    with pytest.raises(ConnectionFailed, match="The name login is not known in the domains") as caught:
        resolve(Destination("login", config_file=str(tmp_path / "config")))
    assert caught.value.why == ('ssh: Could not resolve host "login"' if way == "ssh -G" else "")
    assert "CanonicalizeFallbackLocal yes" in caught.value.hint


def test_canonical_names_without_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    (tmp_path / "config").write_text("CanonicalizeHostname yes\n")
    with pytest.raises(ConnectionFailed, match="The name login is not known") as caught:
        resolve(Destination("login", config_file=str(tmp_path / "config")))
    assert "CanonicalDomains is not" in caught.value.why


def test_no_option_reaches_ssh_in_a_hosts_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    real = subprocess.run

    def spy(command: list[str], **others: object) -> object:
        called.append(command)
        return real(command, **others)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", spy)
    (tmp_path / "empty").write_text("")
    touched = tmp_path / "touched"
    with pytest.raises(ConnectionFailed):
        resolve(Destination(f"-oProxyCommand=touch${{IFS}}{touched}", config_file=str(tmp_path / "empty")))
    assert called[0][-2] == "--"
    assert not touched.exists()


# --- pieces --------------------------------------------------------------------------------------------------


def test_options_are_read_with_all_of_their_values() -> None:
    lines = ["user alice", "IdentityFile a", "identityfile b c", "", "  proxyjump none", "flag"]
    assert parse_options(lines) == {
        "user": ["alice"],
        "identityfile": ["a", "b c"],
        "proxyjump": ["none"],
        "flag": [""],
    }


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (SshSettings("x", "login", "alice"), "login"),
        (SshSettings("x", "login", "alice", 2222), "[login]:2222"),
        (SshSettings("x", "login", "alice", 2222, host_key_alias="uni"), "uni"),
    ],
)
def test_the_name_in_known_hosts(settings: SshSettings, name: str) -> None:
    assert settings.known_as == name


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", {}),
        ("PubkeyAuthentication no", {"methods": ("keyboard-interactive", "password")}),
        ("PasswordAuthentication no", {"methods": ("publickey", "keyboard-interactive")}),
        ("KbdInteractiveAuthentication no", {"methods": ("publickey", "password")}),
        ("PreferredAuthentications password,gssapi-with-mic,publickey", {"methods": ("password", "publickey")}),
        ("NumberOfPasswordPrompts 1", {"password_prompts": 1}),
        ("IdentityAgent none", {"identity_agent": "none"}),
        ("IdentityAgent SSH_AUTH_SOCK", {"identity_agent": None}),
        ("IdentityAgent $THE_AGENT", {"identity_agent": "/its/socket"}),
        ("IdentityAgent ${THE_AGENT}", {"identity_agent": "/its/socket"}),
        ("IdentityAgent $NO_AGENT", {"identity_agent": "none"}),
        ("IdentityAgent ~/a-%h", {"identity_agent": f"{HOME}/a-x"}),
        ("CertificateFile /a/%n-cert.pub", {"certificate_files": (Path("/a/x-cert.pub"),)}),
        ("HashKnownHosts yes", {"hash_known_hosts": True}),
        ("ConnectionAttempts 3", {"connection_attempts": 3}),
        ("AddressFamily inet6", {"address_family": "inet6"}),
        ("BindAddress 127.0.0.2", {"bind_address": "127.0.0.2"}),
        ("ProxyJump bob@[::1]:22,carol@hop:44", {"proxy_jump": ("bob@[::1]:22", "carol@hop:44")}),
        ('UserKnownHostsFile "/a b/known" /c', {"user_known_hosts": (Path("/a b/known"), Path("/c"))}),
    ],
)
def test_settings_of_logging_in(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, expected: dict[str, object]
) -> None:
    monkeypatch.setenv("THE_AGENT", "/its/socket")
    monkeypatch.delenv("NO_AGENT", raising=False)
    (tmp_path / "config").write_text(f"Host x\n  {config}\n")
    settings = resolve(Destination("x", config_file=str(tmp_path / "config")))
    usual = {"methods": ("publickey", "keyboard-interactive", "password"), "password_prompts": 3}
    usual |= {"identity_agent": None, "certificate_files": (), "hash_known_hosts": False, "connection_attempts": 1}
    usual |= {"address_family": "any", "bind_address": None}
    assert {name: getattr(settings, name) for name in usual | expected} == usual | expected


def test_files_that_are_included(way: str, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("Host other\n  Port 1\nHost x\n  User alice\n")
    (tmp_path / "b.conf").write_text(f"Include {tmp_path}/c.conf\nHost x\n  HostName 192.0.2.1\n")
    (tmp_path / "c.conf").write_text("Host x\n  ProxyJump hop\n")
    (tmp_path / "config").write_text(f"Include {tmp_path}/[ab].conf {tmp_path}/none*\nPort 2222\nHost *\n  User bob\n")
    settings = resolve(Destination("x", config_file=str(tmp_path / "config")))
    assert (settings.user, settings.hostname, settings.port) == ("alice", "192.0.2.1", 2222)
    assert settings.proxy_jump == ("hop",)


@pytest.mark.parametrize("below", ["Host x", "Match host x"])
def test_an_include_that_only_ssh_can_follow_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    (tmp_path / "config").write_text(f"{below}\n  Include more\n")
    with pytest.raises(ConnectionFailed, match="cannot be read without an ssh") as caught:
        resolve(Destination("x", config_file=str(tmp_path / "config")))
    assert "Include more" in caught.value.why
    (tmp_path / "config").write_text(f"Include {tmp_path}/config\n")
    with pytest.raises(ConnectionFailed, match="cannot be read"):
        resolve(Destination("x", config_file=str(tmp_path / "config")))


def test_an_identity_file_of_none_means_none(way: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("IdentityFile none\n")
    assert resolve(Destination("x", config_file=str(tmp_path / "config"))).identity_files == ()
