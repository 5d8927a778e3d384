"""Token and keys of one session: what is written, how a second launcher gets in. Files and tools are real ones."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.session.credentials import (
    SessionKeys,
    join_keys,
    new_keys,
    new_tls,
    new_token,
    read_access,
    worker_files,
)

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="these tests need OpenSSH's ssh-keygen")

HOST = LocalHost()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def public_half(private: str, tmp_path: Path) -> str:
    """What OpenSSH reads from a private key: type and base64."""
    path = tmp_path / "read_key"
    path.write_text(private)
    path.chmod(0o600)
    done = subprocess.run(["ssh-keygen", "-y", "-f", path], text=True, capture_output=True, check=True)
    path.unlink()
    return " ".join(done.stdout.split()[:2])


def allowed(directory: Path) -> list[str]:
    """The lines that say something, as sshd reads it."""
    return [line for line in (directory / "authorized_keys").read_text().splitlines() if line]


@pytest.fixture
def session(tmp_path: Path) -> tuple[Path, SessionKeys]:
    """A session's directory as a launch writes it, and the keys that it kept."""
    directory = tmp_path / "it's a session"
    keys, files = new_keys()
    HOST.write_files(str(directory), files)
    return directory, keys


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """A session that was started by hand: nobody has made keys."""
    directory = tmp_path / "by hand"
    directory.mkdir()
    return directory


# --- a new session -------------------------------------------------------------------------------------------


def test_a_token_is_long_and_never_the_same() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 43, "256 bits"


def test_the_credentials_of_a_session_are_read_and_a_key_is_added_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token\n")
    access = read_access(LocalHost(), str(tmp_path))
    assert access.token == "a token"
    assert "a token" not in repr(access)
    assert not (tmp_path / "authorized_keys").exists()
    assert access.keys() is access.keys()
    assert (tmp_path / "authorized_keys").read_text().count("ssh-ed25519") == 1


def test_the_files_of_a_new_session(session: tuple[Path, SessionKeys]) -> None:
    directory, _ = session
    assert sorted(path.name for path in directory.iterdir()) == ["authorized_keys", "ssh_host_key", "ssh_host_key.pub"]
    assert mode(directory) == 0o700
    assert {mode(path) for path in directory.iterdir()} == {0o600}, "sshd refuses a host key that others can read"


def test_the_keys_belong_together(session: tuple[Path, SessionKeys], tmp_path: Path) -> None:
    directory, keys = session
    assert public_half((directory / "ssh_host_key").read_text(), tmp_path) == keys.host
    assert (directory / "ssh_host_key.pub").read_text().strip() == keys.host
    assert allowed(directory) == [f"restrict,port-forwarding {public_half(keys.client, tmp_path)}"]


def test_our_private_half_is_in_no_file(session: tuple[Path, SessionKeys]) -> None:
    directory, keys = session
    secret = "".join(keys.client.splitlines()[1:-1])
    for path in directory.iterdir():
        assert secret not in path.read_text().replace("\n", "")


def test_our_private_half_is_not_printed() -> None:
    keys, _ = new_keys()
    assert keys.client not in repr(keys) and "PRIVATE" not in repr(keys)


def test_every_session_has_its_own() -> None:
    made = [new_keys() for _ in range(5)]
    assert len({keys.host for keys, _ in made}) == len({keys.client for keys, _ in made}) == 5
    assert all(files["ssh_host_key"] != keys.client.encode() for keys, files in made)


def handshake(server: Path, client: Path) -> bool:
    """Do a server and a client with these keys accept each other, as Dask's do?"""
    ends = socket.socketpair()

    def context(folder: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
        made = ssl.create_default_context(purpose, cafile=str(folder / "dask-ca.pem"))
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        made.load_cert_chain(folder / "dask-cert.pem", folder / "dask-key.pem")
        return made

    def serve() -> None:
        with contextlib.suppress(OSError), ends[0]:
            context(server, ssl.Purpose.CLIENT_AUTH).wrap_socket(ends[0], server_side=True).sendall(b"in")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ends[1], context(client, ssl.Purpose.SERVER_AUTH).wrap_socket(ends[1]) as secured:
            return secured.recv(2) == b"in"
    except OSError:
        return False
    finally:
        thread.join()


def test_workers_of_a_session_accept_each_other_and_nobody_else(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for folder in folders:
        HOST.write_files(str(folder), new_tls("20261121-014455-k3f9"))
        assert mode(folder / "dask-key.pem") == 0o600
    ours, theirs = folders
    assert handshake(ours, ours)
    assert not handshake(ours, theirs)
    assert not handshake(theirs, ours)
    half = tmp_path / "half"  # somebody who has the public parts
    HOST.write_files(str(half), {**new_tls("x"), "dask-ca.pem": (ours / "dask-ca.pem").read_bytes()})
    assert not handshake(ours, half)


def test_ray_has_a_token_and_an_authority_that_signs_for_its_nodes() -> None:
    files = worker_files("ray", "20261121-014455-k3f9")
    assert set(files) == {"ray-ca.pem", "ray-ca-key.pem", "ray-token"}
    assert len(files["ray-token"]) >= 40 and files["ray-token"].isascii()
    authority = x509.load_pem_x509_certificate(files["ray-ca.pem"])
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key = load_pem_private_key(files["ray-ca-key.pem"], None)
    assert key.public_key() == authority.public_key()
    assert worker_files(None, "x") == {}


# --- coming back ---------------------------------------------------------------------------------------------


def test_who_comes_back_is_added(session: tuple[Path, SessionKeys], tmp_path: Path) -> None:
    directory, first = session
    before = (directory / "ssh_host_key").read_bytes()
    second = join_keys(HOST, str(directory))
    third = join_keys(HOST, str(directory))
    assert second.host == third.host == first.host
    assert len({first.client, second.client, third.client}) == 3
    assert allowed(directory) == [
        f"restrict,port-forwarding {public_half(keys.client, tmp_path)}" for keys in (first, second, third)
    ]
    assert (directory / "ssh_host_key").read_bytes() == before
    assert mode(directory / "authorized_keys") == 0o600


def test_a_session_that_was_started_by_hand(by_hand: Path, tmp_path: Path) -> None:
    keys = join_keys(HOST, str(by_hand))
    assert public_half((by_hand / "ssh_host_key").read_text(), tmp_path) == keys.host
    assert allowed(by_hand) == [f"restrict,port-forwarding {public_half(keys.client, tmp_path)}"]
    assert {mode(path) for path in by_hand.iterdir()} == {0o600}
    assert join_keys(HOST, str(by_hand)).host == keys.host


def test_a_host_key_whose_public_half_is_missing(session: tuple[Path, SessionKeys]) -> None:
    directory, keys = session
    (directory / "ssh_host_key.pub").unlink()
    assert join_keys(HOST, str(directory)).host == keys.host
    assert mode(directory / "ssh_host_key.pub") == 0o600


def test_an_empty_host_key_is_made_anew(by_hand: Path) -> None:
    """As a full disk leaves it behind."""
    for name in ("ssh_host_key", "ssh_host_key.pub"):
        (by_hand / name).touch()
    keys = join_keys(HOST, str(by_hand))
    assert keys.host.startswith("ssh-ed25519 ")


def test_a_last_line_without_an_end_is_not_glued_to_ours(session: tuple[Path, SessionKeys], tmp_path: Path) -> None:
    """Somebody has edited the file."""
    directory, _ = session
    path = directory / "authorized_keys"
    path.write_text(path.read_text().rstrip("\n"))
    keys = join_keys(HOST, str(directory))
    assert allowed(directory)[-1] == f"restrict,port-forwarding {public_half(keys.client, tmp_path)}"


@pytest.mark.parametrize("kind", ["new", "by hand"])
def test_several_at_once(session: tuple[Path, SessionKeys], by_hand: Path, kind: str) -> None:
    """Two launchers on two machines: each is let in, and all see the same server."""
    directory = session[0] if kind == "new" else by_hand
    with ThreadPoolExecutor(6) as pool:
        joined = list(pool.map(lambda _: join_keys(HOST, str(directory)), range(6)))
    assert len({keys.host for keys in joined}) == 1
    assert len(allowed(directory)) == 6 + (kind == "new")
    assert public_half((directory / "ssh_host_key").read_text(), directory) == joined[0].host


def test_a_session_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HostCommandFailed, match="No key could be added") as caught:
        join_keys(HOST, str(tmp_path / "not there"))
    assert "not there" in caught.value.why


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    directory = tmp_path / "-e $(touch pwned) 'x' ü"
    directory.mkdir()
    assert join_keys(HOST, str(directory)).host
    assert not (tmp_path / "pwned").exists() and not (directory / "pwned").exists()
