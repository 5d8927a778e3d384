"""Whatever the start-up files of a shell print, what was asked for is read."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, LoginShellSilent, SubmitRefused, SubmitUncertain
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.framing import Frame
from notebook_launcher.hosts.openssh import mux
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, SshSettings
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import inspect_host
from tests.fuzzing import examples
from tests.practice_cluster.layout import NOISE
from tests.ssh_server import Account, Open, Server, User, account_at, there_and_back

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


GUESSED = Frame()  # whoever prints may know the marks of other commands, but not those of this one
MARK = GUESSED.begins.encode()
END = f"{GUESSED.ends} 0\n".encode()

PIECES = [
    *(GUESSED.ends.encode(), END, END[:-1], END[5:], b"0\n"),
    *(MARK, MARK + b"\n", MARK[:5], MARK[5:], MARK[:-1], b"--notebook-launcher--\n", b"--", b"-"),
    *(b"\n", b"\r\n", b"\r", b"\0", b"\x0c", b"\xe2\x80\xa8", b"\033]0;title\007", b"\033[2J", b"\x9b31m"),
    *("Größe 雪".encode(), b"\377\376\303(", b"7\n", b"HOME=/evil\n", b"bash: module: command not found\n", NOISE),
]

noises = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12).map(b"".join)

outputs = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=8).map(b"".join)

Says = Callable[[bytes, bytes], bytes]  # what a command prints, given the marks around its output


def says(before: bytes, output: bytes | None = None, after: bytes | None = None) -> Says:
    """Noise, and if there is output its beginning, and with ``after`` its end: the exit code is 0."""

    def said(begins: bytes, ends: bytes) -> bytes:
        framed = b"" if output is None else begins + b"\n" + output
        return before + framed + (b"" if after is None else ends + b" 0\n" + after)

    return said


class Wire:
    """A channel on which a command says something, in pieces of any size."""

    def __init__(self, says: Says, errors: bytes = b"", piece: int = 7) -> None:
        self._says, self._said, self._errors, self._piece = says, io.BytesIO(), io.BytesIO(errors), piece
        self.eof_received = True
        self.status_event = threading.Event()
        self.status_event.set()

    def exec_command(self, line: str) -> None:
        name = re.search(r"--notebook-launcher-[0-9a-f]{16}", line)
        assert name, line
        self._said = io.BytesIO(self._says(f"{name[0]}--".encode(), f"{name[0]}-ended--".encode()))

    def recv(self, count: int) -> bytes:
        return self._said.read(min(count, self._piece))

    def recv_stderr(self, count: int) -> bytes:
        return self._errors.read(min(count, self._piece))

    def recv_exit_status(self) -> int:
        return 0

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._said.read())

    def lines(self) -> Iterator[str]:
        return mux.Channel.lines(cast(Any, self))

    @property
    def _output(self) -> Any:
        return self

    def communicate(self, _data: bytes, _errors: object, _deadline: float) -> tuple[str, str, int]:
        said, errors = (file.read().decode(errors="replace") for file in (self._said, self._errors))
        return said, errors, 0

    def get_transport(self) -> Any:
        return self

    def ignore(self, *_: object) -> None: ...

    settimeout = send = sendall = shutdown_write = shutdown = close = check_end = ignore


class Far:
    """What stands for paramiko's transport, and for ssh's master: every command says the same."""

    def __init__(self, says: Says, errors: bytes = b"") -> None:
        self._wire = Wire(says, errors)

    def open_session(self, timeout: float) -> Wire:
        return self._wire

    def session(self, command: str, _timeout: float, _errors: int | None = None) -> Wire:
        self._wire.exec_command(command)
        return self._wire

    def is_active(self) -> bool:
        return True

    answers = is_active

    def close(self) -> None: ...


def over_paramiko(says: Says, errors: bytes = b"") -> Host:
    return ParamikoHost(cast(Any, Far(says, errors)), *_somewhere(), Credentials(User()))


def over_openssh(says: Says, errors: bytes = b"") -> Host:
    return OpenSshHost(cast(Any, Far(says, errors)), *_somewhere(), User(), {})


def _somewhere() -> tuple[Destination, SshSettings]:
    return Destination("there"), SshSettings("there", "there", "alice")


Over = Callable[..., Host]

each_engine = pytest.mark.parametrize("over", [over_paramiko, over_openssh])


@each_engine
@given(noises, outputs, outputs, noises)
@example(MARK, b"out", b"", b"")
@example(MARK + b"\r\n", b"out", b"", b"")
@example(MARK[:-1], MARK + b"\n", b"", b"")
@example(b"", END, b"", END[:-1])
@settings(max_examples=examples(16), deadline=None)
def test_a_commands_output_is_what_comes_within_the_noise(
    over: Over, noise: bytes, output: bytes, errors: bytes, after: bytes
) -> None:
    answer = over(says(noise, output, after), errors).run(["x"])
    # the noise may end within a character, which swallows nothing of what follows
    assert answer == CommandResult(0, output.decode(errors="replace"), errors.decode(errors="replace"))


@each_engine
@given(noises, outputs, noises)
@example(MARK, b"line\n", b"")
@settings(max_examples=examples(16), deadline=None)
def test_the_lines_of_a_stream_stand_within_the_noise(over: Over, noise: bytes, output: bytes, after: bytes) -> None:
    lines: list[str] = []
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    over(says(noise, output, after)).stream(["x"], lines.append, ends.put)
    assert ends.get(timeout=30) == "exit code 0"
    assert lines == [line.decode(errors="replace").rstrip("\n") for line in io.BytesIO(output)]


@each_engine
@given(noises, outputs)
@example(b"x" * 5000, b"SSH-2.0-OpenSSH\r\n")
@example(MARK, b"SSH-2.0-OpenSSH\r\n")
@settings(max_examples=examples(16), deadline=None)
def test_the_bytes_of_a_process_begin_after_the_noise(over: Over, noise: bytes, output: bytes) -> None:
    stream = over(says(noise, output)).open_process(["x"])
    assert b"".join(iter(lambda: stream.recv(1000), b"")) == output


texts = st.text(st.sampled_from("\x1b\x9b\x07\r\n\t\x00()[]0;mKJ|7 /$~-é雪\ufffd") | st.characters(codec="utf-8"))

lines_of_text = st.lists(texts.map(lambda text: "".join(text.splitlines())), max_size=5)


@settings(max_examples=examples(16))
@given(lines_of_text, noises)
def test_the_site_is_read_below_whatever_a_shell_prints(before: list[str], noise: bytes) -> None:
    """The noise of the remote shell, and below it that of the ``sh`` that is started by it."""
    site = ["/home/ålice", "alice", "login1", "2026-11-21T15:00:00+0100"]
    said = "".join(f"{line}\n" for line in (*before, *site)).encode()
    found = inspect_host(over_paramiko(says(noise, said, b"")))
    assert (found.home, found.user, found.hostname) == ("/home/ålice", "alice", "login1")
    assert found.now.isoformat() == "2026-11-21T15:00:00+01:00"


def is_a_number(line: str) -> bool:
    with contextlib.suppress(SubmitUncertain):
        return bool(Slurm().read_submit(CommandResult(0, line)))
    return False


@settings(max_examples=examples(16))
@given(lines_of_text, lines_of_text, st.sampled_from([("7", None), ("7;snowy", "snowy")]))
def test_the_number_of_a_job_is_found_between_other_lines(
    before: list[str], after: list[str], job: tuple[str, str | None]
) -> None:
    assume(not any(map(is_a_number, after)))
    said = "".join(f"{line}\n" for line in (*before, job[0], *after))
    assert Slurm().read_submit(CommandResult(0, said)) == JobRef("7", job[1])


SHELLS_SAY = [
    "",
    "Welcome!",
    "bash: module: command not found",
    "/etc/profile.d/site.sh: line 3: quota: command not found",
    "tput: No value for $TERM and no -T specified",
    "stty: standard input: Inappropriate ioctl for device",
    "warning: setlocale: LC_ALL: cannot change locale (sv_SE.UTF-8)",
    NOISE.decode(errors="replace"),
]


@settings(max_examples=examples(16))
@given(st.lists(st.sampled_from(SHELLS_SAY)), st.lists(st.sampled_from(SHELLS_SAY)), st.sampled_from(["", "\n"]))
def test_why_a_job_was_refused_is_found_between_other_lines(before: list[str], after: list[str], end: str) -> None:
    """What a start-up file does not find says nothing about sbatch."""
    refusal = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
    error = Slurm().explain_refusal(CommandResult(1, "", "\n".join([*before, refusal, *after]) + end))
    assert isinstance(error, SubmitRefused)
    assert "account is not yours" in error.what
    assert refusal.removeprefix("sbatch: error: ") in error.why


@settings(max_examples=examples(16))
@given(lines_of_text, lines_of_text)
def test_the_state_of_a_job_is_found_between_other_lines(before: list[str], after: list[str]) -> None:
    job = JobRef("123456789")
    assume(not any(line.strip().startswith(job.id) for line in (*before, *after)))
    row = f"{job.id}|PENDING|core|(null)|2026-11-22T09:00:00|2026-11-22T10:00:00|proj1|normal|1:00:00|Resources"
    found = Slurm().read_query([job], CommandResult(0, "\n".join([*before, row, *after])))
    assert found is not None
    assert (found[job.id].state, found[job.id].reason) == (State.PENDING, "Resources")
    history = Slurm().read_history(
        job, CommandResult(0, "\n".join([*before, f"{job.id}|TIMEOUT|0:0|node1|x|y", *after]))
    )
    assert history is not None
    assert history.state is State.TIMEOUT


@pytest.mark.parametrize("over", [over_paramiko, over_openssh])
@given(noises, outputs)
@example(MARK + b"\n" + END, END)
@settings(max_examples=examples(16), deadline=None)
def test_without_its_frame_nothing_is_an_answer(over: Over, noise: bytes, output: bytes) -> None:
    with pytest.raises(LoginShellSilent, match="runs no commands"):
        over(says(noise)).run(["x"])
    with pytest.raises(HostCommandFailed, match="x was ended on there before it had finished"):
        over(says(noise, output)).run(["x"])
    with pytest.raises(LoginShellSilent):
        over(says(noise)).open_process(["x"])
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    over(says(noise)).stream(["x"], pytest.fail, ends.put)
    assert "runs no commands" in ends.get(timeout=30)


@dataclasses.dataclass
class Noisy:
    """An account whose shell prints noise at its start, on both outputs, at an sshd with a banner."""

    account: Account
    noise: Path

    def says(self, noise: bytes) -> Destination:
        self.noise.write_bytes(noise)
        return self.account.server.destination()


@pytest.fixture(scope="module")
def noisy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noisy]:
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "banner").write_bytes(NOISE)
    with account_at(server, folder, f"Banner {folder}/banner\n") as account:
        make = f"cat {folder}/noise; cat {folder}/noise >&2\n"
        account.has(**dict.fromkeys(("bashrc", "bash_profile", "zshenv", "cshrc", "config/fish/config.fish"), make))
        yield Noisy(account, folder / "noise")


PIECES_OF_THE_MARK = MARK[:9] + b"\n" + MARK[:-1] + b"\n" + MARK + b"\r\n" + MARK

REAL = {
    "a noisy site": NOISE,
    "much, and no end of the last line": NOISE * 20 + b"x" * 10_000 + b"\0" * 5000 + PIECES_OF_THE_MARK,
}


@pytest.mark.parametrize("noise", REAL.values(), ids=list(REAL))
def test_what_is_asked_for_comes_through(noisy: Noisy, open_host: Open, tmp_path: Path, noise: bytes) -> None:
    with open_host(noisy.says(noise), Credentials(User())) as host:
        for login_shell in (False, True):
            answer = host.run(["bash", "-c", "cat; exit 3"], stdin="ä\r\n\0".encode(), login_shell=login_shell)
            assert (answer.exit_code, answer.stdout) == (3, "ä\r\n\0")
        site = inspect_host(host)
        assert (site.home, site.hostname) == (str(noisy.account.home), socket.gethostname())
        host.write_files(str(tmp_path / "new"), {"a": b"\377\n", "b": b""})
        assert (tmp_path / "new" / "a").read_bytes() == b"\377\n"
        assert host.read_file(str(tmp_path / "new" / "b")) == b""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        stream = host.stream(["bash", "-c", "echo first; echo second; cat"], lines.put, ends.put)
        assert lines.get(timeout=30) == "first"
        assert lines.get(timeout=30) == "second"
        stream.close()
        data = os.urandom(100_000)
        process = host.open_process(["bash", "-c", "cat"], login_shell=True)
        assert there_and_back(process, data) == data


@pytest.mark.parametrize("noise", [NOISE, MARK + b"\0"], ids=["noise", "no end"])
def test_a_server_behind_a_command_is_reached_through_the_noise(noisy: Noisy, open_host: Open, noise: bytes) -> None:
    """As a job step is: the noise stands before the first word of the server behind."""
    with socket.create_server(("127.0.0.1", 0)) as listener, open_host(noisy.says(noise), Credentials(User())) as host:
        link = host.open_route(noisy.account.server.onward("command"))
        stream = link.open(listener.getsockname())
        near, _ = listener.accept()
        near.sendall(b"through")
        assert stream.recv(10) == b"through"
        near.close()
        link.close()
