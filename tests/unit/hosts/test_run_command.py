"""Commands that run to their end, on every host."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from pathlib import Path

import pytest

from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.hosts import output
from notebook_launcher.hosts.base import Host
from tests.ssh_server import NASTY

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 255])
def test_exit_codes(host: Host, code: int) -> None:
    assert host.run(["sh", "-c", f"exit {code}"]).exit_code == code


def test_the_outputs_are_kept_apart(host: Host) -> None:
    answer = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.exit_code, answer.stdout, answer.stderr) == (3, "out\n", "err\n")


def test_a_command_that_is_not_there(host: Host) -> None:
    answer = host.run(["no-such-command-here", "x"])
    assert answer.exit_code == 127
    assert "no-such-command-here" in answer.stderr


@pytest.mark.parametrize("login_shell", [False, True])
def test_nasty_arguments_arrive_as_they_are(host: Host, tmp_path: Path, login_shell: bool) -> None:
    script = 'cd "$1"; shift; for word; do printf "%s\\0" "$word"; done; ls -A'
    answer = host.run(["sh", "-c", script, "sh", str(tmp_path), *NASTY], login_shell=login_shell)
    assert answer.stdout.split("\0") == [*NASTY, ""]


def test_input_arrives_and_ends(host: Host) -> None:
    data = "äbc\n\0\r\nend".encode()
    assert host.run(["cat"], stdin=data).stdout.encode() == data
    assert host.run(["cat"]).stdout == ""


@pytest.mark.timeout(15)
@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_a_large_input_comes_back_whole(host: Host, size: int) -> None:
    data = (b"0123456789abcde\n" * (size // 16))[:size]
    assert host.run(["cat"], stdin=data, timeout=30).stdout.encode() == data


def test_a_large_input_is_read_whole(host: Host) -> None:
    data = os.urandom(1 << 20)
    answer = host.run(["sh", "-c", "sha256sum; echo done >&2"], stdin=data)
    assert answer.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert answer.stderr == "done\n"


def test_a_mebibyte_on_both_outputs_at_once(host: Host) -> None:
    script = "head -c 1048576 /dev/zero | tr '\\0' e >&2 & head -c 1048576 /dev/zero | tr '\\0' o; wait"
    answer = host.run(["sh", "-c", script], timeout=20)
    assert answer.stdout == "o" * (1 << 20)
    assert answer.stderr == "e" * (1 << 20)


@pytest.mark.parametrize("script", ["yes", "yes >&2 & exec yes", "exec tr '\\0' x </dev/zero"])
def test_a_flood_ends_soon_and_is_not_kept(host: Host, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_OUTPUT", 8 << 20)
    kept: list[int] = []
    original = output.Output.add

    def add(self: output.Output, part: bytes) -> None:
        try:
            original(self, part)
        finally:
            kept.append(len(self.text()))

    monkeypatch.setattr(output.Output, "add", add)
    with pytest.raises(HostCommandFailed, match="more than 8 MiB") as caught:
        host.run(["sh", "-c", script])
    assert caught.value.why
    assert max(kept) <= 8 << 20


def test_of_endless_errors_the_beginning_is_kept(host: Host) -> None:
    answer = host.run(["sh", "-c", "echo first >&2; head -c 5000000 /dev/zero | tr '\\0' x >&2; exit 3"])
    assert (answer.exit_code, answer.stderr[:8]) == (3, "first\nxx")
    assert len(answer.stderr) == output.MOST_ERRORS


def test_input_that_nobody_reads(host: Host) -> None:
    answer = host.run(["sh", "-c", "exec <&-; echo early; exit 5"], stdin=b"x" * (1 << 20), timeout=20)
    assert (answer.exit_code, answer.stdout) == (5, "early\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 20", id="silent"),
        pytest.param("while :; do echo x; sleep 0.2; done", id="talkative"),
        pytest.param("sleep 20 >&-", id="closed output"),
    ],
)
def test_no_command_is_waited_for_without_end(host: Host, script: str) -> None:
    began = time.monotonic()
    with pytest.raises(HostCommandFailed, match="did not answer within 1 s"):
        host.run(["sh", "-c", f"{script}; true"], timeout=1.0)
    assert time.monotonic() - began < 15
    assert host.run(["echo", "still there"]).stdout == "still there\n"


def test_several_commands_at_once(host: Host) -> None:
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda n=n: answers.put(host.run(["sh", "-c", f"sleep 0.2; echo {n}"]).stdout))
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers.get() for _ in threads) == [f"{n}\n" for n in range(5)]
