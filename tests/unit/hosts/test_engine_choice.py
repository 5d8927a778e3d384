"""Which SSH engine is taken, and why: ``choose`` by facts, and the facts of this machine."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AuthenticationFailed, ConnectionFailed
from notebook_launcher.hosts import engine_choice
from notebook_launcher.hosts.base import NoPrompts
from notebook_launcher.hosts.engine_choice import EngineFacts, Wanted, choose, gather, open_ssh_host
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.paramiko.negotiation import only_in_openssh
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, from_options, resolve

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPq5Ae2nCVtEuHRBmkCqdZoEkMvZb5xVEJ2wRJ1X3Pw2"


def settings(**options: str) -> SshSettings:
    return from_options(Destination("login"), {name: [value] for name, value in options.items()})


# --- the choice ----------------------------------------------------------------------------------------------


def test_paramiko_unless_something_needs_openssh() -> None:
    choice = choose(settings(), "auto", EngineFacts())
    assert str(choice) == "paramiko: the ssh configuration asks for nothing that only OpenSSH has"


def test_a_user_without_a_name_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")  # as in a container

    monkeypatch.setattr(getpass, "getuser", no_entry)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(Destination("login")).user == ""
    assert resolve(Destination("login", user="alice")).user == "alice"
    (tmp_path / "config").write_text("Host login\n  User %u\n")
    with pytest.raises(ConnectionFailed, match="cannot be read") as caught:
        resolve(Destination("login", config_file=str(tmp_path / "config")))
    assert "export USER" in caught.value.hint


def test_without_any_name_the_way_to_give_one_is_told() -> None:
    with pytest.raises(ConnectionFailed, match="Your name on login") as caught:
        choose(SshSettings("login", "login", ""), "auto", EngineFacts())
    assert "--host you@login" in caught.value.hint


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (EngineFacts(live_master=str(Path.home() / ".ssh/cm-login")), r"~/\.ssh/cm-login"),
        (EngineFacts(ticket=True), "Kerberos ticket"),
        (EngineFacts(hardware_key=Path("/keys/id_sk")), "/keys/id_sk"),
        (EngineFacts(only_authority=True), "certificate authority"),
        (EngineFacts(algorithms="Ciphers 3des-ctr"), "Ciphers 3des-ctr"),
    ],
)
def test_a_fact_that_needs_openssh(facts: EngineFacts, word: str) -> None:
    choice = choose(settings(), "auto", facts)
    assert choice.engine == "openssh"
    assert re.search(word, choice.reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pkcs11provider", "/usr/lib/opensc-pkcs11.so"),
        ("proxyusefdpass", "yes"),
        ("knownhostscommand", "/usr/bin/known %H"),
        ("hostbasedauthentication", "yes"),
        ("verifyhostkeydns", "yes"),
    ],
)
def test_a_setting_that_needs_openssh(name: str, value: str) -> None:
    choice = choose(settings(**{name: value}), "auto", EngineFacts())
    assert choice.engine == "openssh"
    assert value in choice.reason
    assert "{" not in choice.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gssapiauthentication", "yes"),  # which Debian and Red Hat say for everybody
        ("pkcs11provider", "none"),
        ("proxyusefdpass", "no"),
        ("knownhostscommand", "none"),
        ("hostbasedauthentication", "no"),
        ("verifyhostkeydns", "false"),
        ("verifyhostkeydns", "ask"),
        ("controlpath", "/nowhere/socket"),
        ("controlmaster", "auto"),
    ],
)
def test_a_setting_that_does_not(name: str, value: str) -> None:
    assert choose(settings(**{name: value}), "auto", EngineFacts()).engine == "paramiko"


@pytest.mark.parametrize("wanted", ["paramiko", "openssh"])
def test_what_is_asked_for_is_taken(wanted: Wanted) -> None:
    for facts in (EngineFacts(), EngineFacts(ticket=True)):
        assert str(choose(settings(), wanted, facts)) == f"{wanted}: asked for"


def test_without_an_ssh_it_is_always_paramiko() -> None:
    facts = EngineFacts(has_ssh=False)
    assert choose(settings(hostbasedauthentication="yes"), "auto", facts).engine == "paramiko"
    assert choose(settings(), "paramiko", facts).engine == "paramiko"
    with pytest.raises(ConnectionFailed) as caught:
        choose(settings(), "openssh", facts)
    assert "paramiko" in caught.value.hint


# --- the facts -----------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs come first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_windows_and_machines_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gather(settings(), windows=True) == EngineFacts(has_ssh=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert gather(settings()) == EngineFacts(has_ssh=False)


def test_a_ticket_counts_only_where_it_may_be_used(programs: Path) -> None:
    program(programs, "klist", '[ "$1" = -s ]')
    assert gather(settings(gssapiauthentication="yes")).ticket
    assert not gather(settings(gssapiauthentication="no")).ticket
    program(programs, "klist", "exit 1")
    assert not gather(settings(gssapiauthentication="yes")).ticket


def test_no_klist_no_ticket(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "ssh").symlink_to(shutil.which("ssh") or "")
    (programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")
    monkeypatch.setenv("PATH", str(programs))
    assert not gather(settings(gssapiauthentication="yes")).ticket


@pytest.mark.parametrize(
    ("public", "private", "found"),
    [
        ("sk-ssh-ed25519@openssh.com AAAA", True, True),
        ("sk-ecdsa-sha2-nistp256@openssh.com AAAA", True, True),
        ("sk-ssh-ed25519@openssh.com AAAA", False, False),
        (KEY, True, False),
    ],
)
def test_a_key_in_hardware(tmp_path: Path, public: str, private: bool, found: bool) -> None:
    key = tmp_path / "id"
    key.with_name("id.pub").write_text(public)
    if private:
        key.write_text("")
    assert gather(settings(identityfile=str(key))).hardware_key == (key if found else None)


@pytest.mark.parametrize(
    ("lines", "only"),
    [
        ([f"@cert-authority *.example.org {KEY}"], True),
        ([f"@cert-authority *.example.org {KEY}", f"login.example.org {KEY}"], False),
        ([f"@cert-authority *.example.org {KEY}", f"other.example.org {KEY}"], True),
        ([f"@cert-authority *.example.com {KEY}"], False),
        ([f"@cert-authority *.example.org,!login.example.org {KEY}"], False),
        ([f"login.example.org {KEY}"], False),
        ([], False),
    ],
)
def test_a_server_known_by_an_authority_alone(tmp_path: Path, lines: list[str], only: bool) -> None:
    (tmp_path / "one").write_text("".join(f"{line}\n" for line in lines[1:]))
    (tmp_path / "two").write_text("".join(f"{line}\n" for line in lines[:1]))
    found = gather(
        settings(
            hostname="login.example.org",
            userknownhostsfile=f"{tmp_path}/one {tmp_path}/two",
            globalknownhostsfile=str(tmp_path / "not-there"),
        )
    )
    assert found.only_authority is only


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("Ciphers chacha20-poly1305@openssh.com", "Ciphers chacha20-poly1305@openssh.com"),
        ("Ciphers chacha20-poly1305@openssh.com,aes256-ctr", "Ciphers chacha20-poly1305@openssh.com"),  # the preferred
        ("Ciphers aes256-ctr,chacha20-poly1305@openssh.com", ""),  # paramiko has what is preferred
        ("Ciphers ^aes256-gcm@openssh.com", ""),
        ("MACs ^umac-128@openssh.com", "MACs umac-128@openssh.com"),
        ("KexAlgorithms +diffie-hellman-group1-sha1", "KexAlgorithms diffie-hellman-group1-sha1"),
        ("HostKeyAlgorithms +ssh-r*", "HostKeyAlgorithms ssh-rsa"),
        ("KexAlgorithms curve25519-sha256,ecdh-sha2-nistp256", ""),
        ("HostKeyAlgorithms +ssh-rsa", "HostKeyAlgorithms ssh-rsa"),
        ("HostKeyAlgorithms -ecdsa*", ""),
        ("PubkeyAcceptedAlgorithms +ssh-rsa", "PubkeyAcceptedAlgorithms ssh-rsa"),
        ("PubkeyAcceptedAlgorithms ssh-ed25519", ""),
        ("PubkeyAcceptedAlgorithms -ssh-ed25519", ""),
        ("PubkeyAcceptedAlgorithms sk-*", "PubkeyAcceptedAlgorithms sk-"),
    ],
)
def test_algorithms_that_only_openssh_has(tmp_path: Path, lines: str, found: str) -> None:
    (tmp_path / "config").write_text(f"Host login\n  {lines}\n")
    settings = resolve(Destination("login", config_file=str(tmp_path / "config")))
    facts = gather(settings)
    assert facts.algorithms.startswith(found) and bool(facts.algorithms) == bool(found)
    assert choose(settings, "auto", facts).engine == ("openssh" if found else "paramiko")


def test_an_old_ssh_has_another_name_for_the_kinds_of_keys() -> None:
    """As ``ssh -G`` of 8.4 prints them, where the configuration adds a kind."""
    usual = {"pubkeyacceptedkeytypes": ["ssh-ed25519,rsa-sha2-256"]}
    added = {"pubkeyacceptedkeytypes": ["ssh-ed25519,rsa-sha2-256,ssh-dss"]}
    assert only_in_openssh(usual, usual) == ""
    assert only_in_openssh(added, usual) == "PubkeyAcceptedKeyTypes ssh-dss"


def test_a_control_socket_where_nobody_answers(tmp_path: Path) -> None:
    assert gather(settings(controlpath=str(tmp_path / "none"))).live_master is None
    stale = tmp_path / "ctl"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    assert gather(settings(controlpath=str(stale))).live_master is None


def test_this_machines_own_configuration_is_no_reason(tmp_path: Path) -> None:
    """What ssh says about a host that no configuration names: all that is on by default."""
    (tmp_path / "config").write_text("")
    found = resolve(Destination("login.example.org", config_file=str(tmp_path / "config")))
    assert choose(found, "auto", EngineFacts()).engine == "paramiko"


@pytest.mark.parametrize(("wanted", "engine"), [("auto", "paramiko"), ("openssh", "openssh")])
def test_a_host_is_opened_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted, engine: str
) -> None:
    (tmp_path / "config").write_text("")
    opened: list[str] = []

    def opener(engine: str) -> object:
        opened.append(engine)
        return lambda destination, credentials, settings: destination

    monkeypatch.setattr(engine_choice, "_opener", opener)
    destination = Destination("login.example.org", config_file=str(tmp_path / "config"))
    host, choice = open_ssh_host(destination, NoPrompts(), wanted)
    assert (host, choice.engine, opened) == (destination, engine, [engine])


@pytest.mark.parametrize(
    ("wanted", "helps", "asked", "tried"),
    [
        ("auto", True, False, ["paramiko", "openssh"]),
        ("paramiko", True, False, ["paramiko"]),
        ("auto", False, False, ["paramiko"]),
        ("auto", True, True, ["paramiko"]),  # nobody is asked for the same again
    ],
)
@pytest.mark.parametrize("kind", [ConnectionFailed, AuthenticationFailed])
def test_ssh_has_a_try_where_it_may_get_in(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[ConnectionFailed | AuthenticationFailed],
    wanted: Wanted,
    helps: bool,
    asked: bool,
    tried: list[str],
) -> None:
    (tmp_path / "config").write_text("")
    opened: list[str] = []

    def opener(engine: str) -> Callable[[Destination, Credentials, SshSettings], str]:
        def open_it(_: Destination, credentials: Credentials, settings: SshSettings) -> str:
            opened.append(engine)
            if engine == "openssh":
                return "in"
            if asked:
                credentials.secret("Password: ")
            error = kind("It does not let us in.", why="Too many authentication failures")
            error.openssh_may_help = helps
            raise error

        return open_it

    monkeypatch.setattr(engine_choice, "_opener", opener)
    destination = Destination("login.example.org", config_file=str(tmp_path / "config"))
    if tried == ["paramiko"]:
        with pytest.raises(kind):
            open_ssh_host(destination, NoPrompts(), wanted)
    else:
        host, choice = open_ssh_host(destination, NoPrompts(), wanted)
        assert host == "in"  # type: ignore[comparison-overlap]
        assert str(choice) == "openssh: paramiko could not log in: Too many authentication failures"
    assert opened == tried


def test_openssh_is_imported_without_what_windows_lacks() -> None:
    script = (
        "import sys, socket\n"
        "for name in ('fcntl', 'pwd', 'grp', 'termios', 'resource'): sys.modules[name] = None\n"
        "del socket.AF_UNIX, socket.send_fds\n"
        "import notebook_launcher.hosts.openssh.host, notebook_launcher.hosts.engine_choice\n"
        "from notebook_launcher.hosts.ssh_config import Destination, from_options\n"
        "settings = from_options(Destination('login'), {'controlpath': ['/tmp/x']})\n"
        "assert notebook_launcher.hosts.openssh.host.live_master(settings) is None\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "LOGNAME": "alice"})
