"""Logins by certificates, and by the keys of an agent."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AuthenticationFailed
from tests.unit.hosts.login_servers import (
    Sshd,
    User,
    add,
    agent,
    authority,
    certify,
    certifying,
    get_in,
    make_key,
    public,
    server,
    start,
)

__all__ = ["agent", "authority", "certifying", "server", "start"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize(
    ("kind", "passphrase", "where"),
    [("ed25519", "", "beside"), ("ed25519", "opén sesame", "named"), ("rsa", "", "named"), ("ecdsa", "", "beside")],
)
def test_certificates(
    certifying: Sshd, authority: Path, tmp_path: Path, kind: str, passphrase: str, where: str
) -> None:
    make_key(tmp_path / "key", kind, passphrase)
    options = {"IdentityFile": f"{tmp_path}/key"}
    if where == "named":
        options["CertificateFile"] = str(certify(authority, tmp_path / "key", "elsewhere.pub"))
    else:
        certify(authority, tmp_path / "key")
    user = User(passphrase)
    get_in(certifying.config(tmp_path / "config", **options), user)
    assert len(user.asked) == (1 if passphrase else 0)
    assert "Accepted publickey" in certifying.log


def test_a_certificate_does_not_keep_its_key_from_being_used(server: Sshd, authority: Path, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    certify(authority, tmp_path / "key")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key"))


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("ed25519", "environment"), ("rsa", "environment"), ("ecdsa", "environment"), ("ed25519", "path"),
        ("ed25519", "variable"), ("ed25519", "default word"),
    ],
)  # fmt: skip
def test_the_agents_key(
    server: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    server.allow(make_key(tmp_path / "key", kind))
    add(agent, tmp_path / "key")
    monkeypatch.setenv("SSH_AUTH_SOCK" if how in ("environment", "default word") else "MY_AGENT", str(agent))
    word = {"path": str(agent), "variable": "$MY_AGENT", "default word": "SSH_AUTH_SOCK"}.get(how)
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/none", IdentityAgent=word or "remove")
    if word is None:
        config = tmp_path / "config"
        config.write_text(config.read_text().replace("  IdentityAgent remove\n", ""))
    get_in(destination)


@pytest.mark.parametrize("value", ["none", "/no/such/agent", "$NO_SUCH_VARIABLE"])
def test_an_agent_that_is_not_wanted_or_not_there(
    server: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    server.allow(make_key(tmp_path / "key"))
    add(agent, tmp_path / "key")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    with pytest.raises(AuthenticationFailed):
        get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/none", IdentityAgent=value))


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\1\5", b"\0\0\0\5\x0c\0\0\0\x09", b"\xff\xff\xff\xff"])
def test_a_broken_agent_is_passed_over(server: Sshd, tmp_path: Path, answer: bytes) -> None:
    server.allow(make_key(tmp_path / "key"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "broken"))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection = listener.accept()[0]
                connection.recv(100)
                connection.sendall(answer)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        options = {"IdentityFile": f"{tmp_path}/key", "IdentityAgent": f"{tmp_path}/broken"}
        get_in(server.config(tmp_path / "config", **options))


@pytest.mark.parametrize("only", ["yes", "no"])
def test_of_many_keys_in_the_agent_the_named_one_comes_first(
    server: Sshd, agent: Path, tmp_path: Path, only: str
) -> None:
    """The server hangs up after three; the key's file is locked, and the agent has it open."""
    keys = [tmp_path / f"key{number}" for number in range(8)]
    for key in keys:
        make_key(key)
    add(agent, *keys)
    server.allow(public(keys[7]))
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "opén sesame", "-f", keys[7]], check=True)
    options = {"IdentityAgent": str(agent), "IdentitiesOnly": only}
    for identity in (keys[7], Path(f"{keys[7]}.pub")):
        user = User("opén sesame")
        get_in(server.config(tmp_path / "config", IdentityFile=str(identity), **options), user)
        assert user.asked == []
    if only == "yes":
        with pytest.raises(AuthenticationFailed) as caught:
            get_in(server.config(tmp_path / "config", IdentityFile=f"{keys[0]}.pub", **options))
        assert "key0" in caught.value.why
        assert "key1" not in caught.value.why


@pytest.mark.parametrize(
    ("where", "kind"), [("in the agent", "ed25519"), ("in the agent", "rsa"), ("named", "rsa"), ("beside", "ed25519")]
)
def test_certificates_for_the_agents_keys(
    certifying: Sshd, authority: Path, agent: Path, tmp_path: Path, where: str, kind: str
) -> None:
    make_key(tmp_path / "key", kind)
    certificate = certify(authority, tmp_path / "key", None if where != "named" else "elsewhere.pub")
    add(agent, tmp_path / "key")
    (tmp_path / "key").unlink()
    options = {"IdentityAgent": str(agent), "IdentityFile": f"{tmp_path}/key"}
    if where == "named":
        options["CertificateFile"] = str(certificate)
    elif where == "in the agent":
        certificate.unlink()
    get_in(certifying.config(tmp_path / "config", **options))
