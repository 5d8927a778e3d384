"""Logins by keys in files, at a real sshd."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.unit.hosts.login_servers import Sshd, Start, User, get_in, make_key, server, start

__all__ = ["server", "start"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize(
    ("kind", "passphrase", "more"),
    [
        *((kind, "opén sesame", ()) for kind in ("ed25519", "rsa", "ecdsa")),
        *(("ecdsa", "opén sesame", more) for more in (("-b", "521"), ("-m", "PEM"), ("-m", "PKCS8"))),
        ("rsa", "opén sesame", ("-m", "PEM")),
        ("ed25519", "opén sesame", ("-Z", "aes256-gcm@openssh.com")),
        ("ed25519", "", ()), ("rsa", "", ("-m", "PEM")), ("ecdsa", "", ("-m", "PKCS8")),
    ],
)  # fmt: skip
def test_keys_of_every_format(server: Sshd, tmp_path: Path, kind: str, more: tuple[str, ...], passphrase: str) -> None:
    server.allow(make_key(tmp_path / "key", kind, passphrase, *more))
    user = User("wrong", passphrase)
    credentials = Credentials(user)
    for _ in range(2):
        get_in(server.config(tmp_path / "config", IdentityFile=str(tmp_path / "key")), credentials)
    assert user.asked == ([f"Passphrase for {tmp_path}/key: "] * 2 if passphrase else [])


@pytest.mark.parametrize("beside", [True, False])
def test_a_locked_key_that_the_server_does_not_want_stays_locked(server: Sshd, tmp_path: Path, beside: bool) -> None:
    make_key(tmp_path / "locked", passphrase="opén sesame")
    if not beside:  # OpenSSH's format has the public half in the open
        (tmp_path / "locked.pub").unlink()
    server.allow(make_key(tmp_path / "open"))
    user = User("opén sesame")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/locked;{tmp_path}/open"), user)
    assert user.asked == []


def test_a_locked_key_is_not_asked_about_when_an_earlier_one_opens(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "open"), make_key(tmp_path / "locked", passphrase="opén sesame"))
    user = User("opén sesame")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/open;{tmp_path}/locked"), user)
    assert user.asked == []


@pytest.mark.parametrize("prompts", ["2", "3"])
def test_after_wrong_passphrases_the_next_key_has_its_turn_and_nobody_is_asked_again(
    server: Sshd, tmp_path: Path, prompts: str
) -> None:
    server.allow(make_key(tmp_path / "locked", passphrase="opén sesame"), make_key(tmp_path / "open"))
    user = User("wrong")
    credentials = Credentials(user)
    files = f"{tmp_path}/locked;{tmp_path}/open"
    for _ in range(2):
        get_in(server.config(tmp_path / "config", IdentityFile=files, NumberOfPasswordPrompts=prompts), credentials)
    assert len(user.asked) == int(prompts)


def test_a_key_that_has_been_replaced_is_read_anew(server: Sshd, tmp_path: Path) -> None:
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key")
    credentials = Credentials(User("opén sesame"))
    for _ in range(2):
        server.allow(make_key(tmp_path / "key", passphrase="opén sesame"))
        get_in(destination, credentials)
        (tmp_path / "key").unlink()
        (tmp_path / "key.pub").unlink()
    assert credentials.prompt_count == 2


@pytest.mark.parametrize("content", [b"", b"\0\1", b"no key", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_damaged_keys_are_passed_over(server: Sshd, tmp_path: Path, content: bytes) -> None:
    for name in ("damaged", "damaged.pub", "damaged-cert.pub", "open-cert.pub"):
        (tmp_path / name).write_bytes(content)
    server.allow(make_key(tmp_path / "open"))
    files = f"{tmp_path}/damaged;{tmp_path}/not-there;{tmp_path};{tmp_path}/open"
    get_in(server.config(tmp_path / "config", IdentityFile=files, CertificateFile=f"{tmp_path}/damaged"))


def test_the_server_does_not_wait_for_a_passphrase(start: Start, tmp_path: Path) -> None:
    """A real LoginGraceTime: the key that was unlocked meanwhile is used in a second connection."""
    impatient = start(LoginGraceTime="1")
    impatient.allow(make_key(tmp_path / "locked", passphrase="opén sesame"))
    user = User("opén sesame", meanwhile=lambda: time.sleep(2))
    get_in(impatient.config(tmp_path / "config", IdentityFile=f"{tmp_path}/locked"), user)
    assert len(user.asked) == 1


def test_the_server_does_not_wait_for_the_host_key_to_be_compared(start: Start, tmp_path: Path) -> None:
    impatient = start(LoginGraceTime="1")
    impatient.allow(make_key(tmp_path / "key"))

    class Careful(User):
        def confirm(self, text: str) -> bool:
            time.sleep(2)
            return super().confirm(text)

    user = Careful(agrees=True)
    known = str(tmp_path / "new")
    get_in(impatient.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", UserKnownHostsFile=known), user)
    assert len(user.asked) == 1


def test_the_servers_last_word_is_told(server: Sshd, tmp_path: Path) -> None:
    for number in range(4):
        make_key(tmp_path / f"key{number}")
    server.allow("")
    files = ";".join(f"{tmp_path}/key{number}" for number in range(4))
    with pytest.raises(AuthenticationFailed) as caught:
        get_in(server.config(tmp_path / "config", IdentityFile=files))
    assert "Too many authentication failures" in caught.value.why
    assert "key0" in caught.value.why


def test_two_keys_are_wanted(start: Start, tmp_path: Path) -> None:
    both = start(AuthenticationMethods="publickey,publickey")
    both.allow(make_key(tmp_path / "one"), make_key(tmp_path / "two", passphrase="opén sesame"))
    user = User("opén sesame")
    get_in(both.config(tmp_path / "config", IdentityFile=f"{tmp_path}/one;{tmp_path}/two"), user)
    assert len(user.asked) == 1


def test_no_key_is_offered_where_the_user_does_not_want_it(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    with pytest.raises(AuthenticationFailed, match="does not let") as caught:
        get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", PubkeyAuthentication="no"))
    assert "nothing" in caught.value.why
