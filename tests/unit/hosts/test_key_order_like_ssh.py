"""Keys are offered in the order of the real ssh, and none that it leaves out: a server hangs up after a few of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.ssh_server import ENGINES
from tests.unit.hosts.login_servers import (
    Sshd,
    Start,
    User,
    add,
    agent,
    authority,
    certify,
    get_in,
    make_key,
    public,
    start,
)

__all__ = ["agent", "authority", "start"]

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

NAMES = tuple("abcdefgh")


@pytest.fixture(scope="module")
def patient(start: Start) -> Sshd:
    """A server that lets nobody in, and does not mind how many keys are tried."""
    server = start(MaxAuthTries="30")
    server.allow("")
    return server


@pytest.fixture(scope="module")
def usual(start: Start) -> Sshd:
    """A server that hangs up after six failures, as they do by default, with all that sshd agrees on by default."""
    return start(KexAlgorithms="+curve25519-sha256")  # which is one of them


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Path:
    """A folder of keys."""
    folder = tmp_path_factory.mktemp("keys")
    for name in NAMES:
        make_key(folder / name, "ed25519")
    make_key(folder / "rsa", "rsa")
    make_key(folder / "ecdsa", "ecdsa")
    make_key(folder / "locked", "ed25519", "opén sesame")
    make_key(folder / "pem", "ecdsa", "opén sesame", "-m", "PEM")
    (folder / "pem.pub").unlink()
    make_key(folder / "certified")
    certify(authority, folder / "certified", "kept")
    certify(authority, folder / "certified", "other.pub")
    (folder / "kept").rename(folder / "certified-cert.pub")
    return folder


def offered(server: Sshd, before: int) -> list[str]:
    """Return the fingerprints of the keys that the server has refused since its log was so long."""
    return re.findall(r"Failed publickey for .*?ssh2: (\S+ SHA256:\S+)", server.log[before:])


SCENES: dict[str, tuple[str, str, dict[str, str]]] = {
    "files": ("a b c locked pem d", "", {}),
    "files, some of them in the agent, in its order": ("a b c d e", "e x b a", {}),
    "the agent's order among named keys": ("a b c d e f g h", "h g f e d c b a", {}),
    "of the agent only the named ones": ("b c", "c d b a", {"IdentitiesOnly": "yes"}),
    "no key of another kind": ("rsa a ecdsa b", "c ecdsa", {"PubkeyAcceptedAlgorithms": "ssh-ed25519"}),
    "only RSA": ("rsa a", "b rsa", {"PubkeyAcceptedAlgorithms": "rsa-sha2-512"}),
    "all but some": ("rsa a ecdsa", "", {"PubkeyAcceptedAlgorithms": "-ecdsa*"}),
    "no RSA key as short as that": ("rsa a", "rsa b", {"RequiredRSASize": "3072"}),
    "certificates beside the keys": ("certified a", "", {}),
    "a named certificate, and not those beside the keys": ("certified a", "", {"CertificateFile": "FOLDER/other.pub"}),
    "no certificate": ("certified a", "", {"PubkeyAcceptedAlgorithms": "ssh-ed25519"}),
}


@pytest.mark.parametrize("scene", SCENES)
def test_keys_are_offered_in_sshs_order(patient: Sshd, agent: Path, keys: Path, tmp_path: Path, scene: str) -> None:
    files, loaded, options = SCENES[scene]
    for name in loaded.replace("x", "f").split():
        add(agent, keys / name)
    destination = patient.config(
        tmp_path / "config",
        IdentityFile=";".join(str(keys / name) for name in files.split()),
        IdentityAgent=str(agent),
        BatchMode="yes",
        **{name: value.replace("FOLDER", str(keys)) for name, value in options.items()},
    )
    before = len(patient.log)
    subprocess.run(["ssh", "-F", str(destination.config_file), "-n", "server"], check=False, capture_output=True)
    real = offered(patient, before)
    before = len(patient.log)
    with pytest.raises(AuthenticationFailed):
        get_in(destination)
    assert offered(patient, before) == real
    assert real


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_key_behind_seven_others_that_ssh_does_not_offer_before_it(
    usual: Sshd, agent: Path, keys: Path, tmp_path: Path, engine: str
) -> None:
    """The configuration names it last, but the agent has it first."""
    usual.allow(public(keys / "h"))
    add(agent, *(keys / name for name in reversed(NAMES)))
    files = ";".join(str(keys / name) for name in NAMES)
    destination = usual.config(tmp_path / "config", IdentityFile=files, IdentityAgent=str(agent))
    with ENGINES[engine](destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"


@pytest.mark.parametrize("engine", list(ENGINES))
def test_too_many_keys_are_told_with_what_helps(usual: Sshd, keys: Path, tmp_path: Path, engine: str) -> None:
    """Not even ssh gets in: the server hangs up before the right key."""
    usual.allow(public(keys / "h"))
    files = {"IdentityFile": ";".join(str(keys / name) for name in NAMES)}
    with pytest.raises(AuthenticationFailed) as caught:
        ENGINES[engine](usual.config(tmp_path / "config", **files), Credentials(User()))
    assert "IdentitiesOnly yes" in caught.value.hint
    assert str(keys / "a") in caught.value.why
