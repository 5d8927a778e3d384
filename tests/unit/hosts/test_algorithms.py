"""Lists of algorithms in an ssh configuration, compared with what the real ssh makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from notebook_launcher.hosts.algorithms import allows, are_own_ciphers, assembled, quickest_first
from notebook_launcher.hosts.ssh_config import builtin_options

LISTS = [
    *(("Ciphers", "cipher", value) for value in (
        "aes256-ctr", "aes256-ctr,aes128-ctr", "+aes256-cbc", "+aes128-ctr", "-aes*", "-*-ctr,chacha20*", "-aes25?-ctr",
        "^aes256-gcm@openssh.com", "^aes256-cbc,aes256-ctr",
    )),
    *(("HostKeyAlgorithms", "key-sig", value) for value in (
        "ecdsa*", "*", "+ssh-d*", "-*cert*", "^rsa-*,sk-*", "ssh-ed2551?,rsa-sha2-512", "rsa-sha2-512,rsa*",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("option", "query", "value"), LISTS)
def test_a_list_is_assembled_as_the_real_ssh_does(tmp_path: Path, option: str, query: str, value: str) -> None:
    (tmp_path / "config").write_text(f"{option} {value}\n")
    printed = subprocess.run(["ssh", "-G", "-F", tmp_path / "config", "x"], capture_output=True, text=True, check=True)
    real = next(line for line in printed.stdout.splitlines() if line.startswith(f"{option.lower()} ")).split()[1]
    known = subprocess.run(["ssh", "-Q", query], capture_output=True, text=True, check=True).stdout.split()
    assert ",".join(assembled(value, builtin_options()[option.lower()][0].split(","), known)) == real


def test_of_unknown_names_nothing_is_left() -> None:
    assert assembled("3des-ctr,rot13", ["aes128-ctr"], ["aes128-ctr"]) == ()


@pytest.mark.parametrize(
    ("value", "allowed"),
    [("", True), ("ssh-ed25519", False), ("ssh-rsa,rsa-sha2-*", True), ("+ssh-dss", True), ("^ssh-dss", True),
     ("-rsa-sha2-256", True), ("-rsa*", False), ("-ssh-*", True), ("[r]sa-sha2-512", False)],
)  # fmt: skip
def test_whether_a_list_allows_one_of_several_names(value: str, allowed: bool) -> None:
    assert allows(value, ["rsa-sha2-512", "rsa-sha2-256"]) is allowed


def test_the_quickest_cipher_comes_first_unless_somebody_has_chosen() -> None:
    newer = (
        "chacha20-poly1305@openssh.com,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr"
    )
    for default in (builtin_options()["ciphers"][0], newer):
        first, *others = quickest_first(default, default.split(","))
        assert first == "aes128-gcm@openssh.com" and {first, *others} == set(default.split(","))
    assert quickest_first("", ("aes128-ctr", "aes256-gcm@openssh.com"))[0] == "aes256-gcm@openssh.com"
    chosen = "aes256-ctr,aes128-gcm@openssh.com"
    assert ",".join(quickest_first(chosen, chosen.split(","))) == chosen


def test_the_list_of_this_machine_s_ssh_is_known() -> None:
    """A new one is to be added, or the quickest cipher is not used with it."""
    assert are_own_ciphers(builtin_options()["ciphers"][0])
