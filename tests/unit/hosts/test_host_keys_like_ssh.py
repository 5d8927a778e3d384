"""Host keys are taken as the real ssh takes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AuthenticationFailed, HostKeyChanged, HostKeyUnknown
from tests.unit.hosts.login_servers import Sshd, authority, get_in, host_keys, server, start

__all__ = ["authority", "host_keys", "server", "start"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


# What a new key may be added to, or what ought to keep it from being added.
UNDECIDED = [
    "127.0.0.1 OTHER", "127.0.0.1 RSA", "[127.0.0.1]:PORT OTHER", "[127.0.0.1]:PORT RSA",
    "@revoked * KEY|[127.0.0.1]:PORT KEY", "[127.0.0.1]:1 KEY", "", "# 127.0.0.1 KEY",
    "@cert-authority 127.0.0.1 KEY", "[127.0.0.1]:PORT nonsense",
]  # fmt: skip
LINES = [
    *UNDECIDED, "[127.0.0.1]:PORT KEY", "127.0.0.1 KEY",
    "[127.0.0.1]:PORT RSA|127.0.0.1 KEY", "[127.0.0.1]:PORT OTHER|127.0.0.1 KEY",
    "[127.0.0.1]:PORT OTHER|[127.0.0.1]:PORT KEY", "@revoked 127.0.0.1 KEY|[127.0.0.1]:PORT KEY",
    "@revoked 127.0.0.1 KEY|127.0.0.1 KEY", "@revoked * RSA|127.0.0.1 KEY",
    "* KEY", "*.0.0.1 KEY", "[*]:PORT KEY", "127.0.0.1:PORT KEY", "!127.0.0.1,* KEY",
    "![127.0.0.1]:PORT,* KEY", "login,[127.0.0.1]:PORT,127.0.0.2 KEY", "[127.0.0.1]:PORT KEY comment # more",
]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "strict"), [*((one, "yes") for one in LINES), *((one, "accept-new") for one in UNDECIDED)]
)
def test_host_keys_are_taken_as_the_real_ssh_takes_them(
    server: Sshd, tmp_path: Path, host_keys: dict[str, str], lines: str, strict: str
) -> None:
    for word, text in {"PORT": str(server.port), "KEY": server.host_key, **host_keys}.items():
        lines = lines.replace(word, text)
    known = tmp_path / "known"
    options = {"UserKnownHostsFile": str(known), "BatchMode": "yes", "PreferredAuthentications": "password"}
    destination = server.config(tmp_path / "config", StrictHostKeyChecking=strict, **options)
    text = lines.replace("|", "\n") + "\n"
    known.write_text(text)
    command = ["ssh", "-F", str(destination.config_file), "-n", "server", "true"]
    said = subprocess.run(command, capture_output=True, check=False, timeout=20, text=True).stderr
    taken = "Permission denied" in said  # which comes after the host key
    assert taken or "Host key verification failed" in said
    written = known.read_text()
    known.write_text(text)
    with pytest.raises((AuthenticationFailed, HostKeyUnknown, HostKeyChanged)) as caught:
        get_in(destination)
    if isinstance(caught.value, AuthenticationFailed):
        assert taken
        assert known.read_text() == written
    else:
        assert not taken or lines.startswith("@revoked 127.0.0.1")  # the one thing in which we are stricter
