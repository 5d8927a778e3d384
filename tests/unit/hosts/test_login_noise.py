"""What a login node says of its own accord breaks no reading of what we asked for, and reaches no terminal raw.

Start-up files of shells print messages of the day, quotas and escape sequences before a command's own output, on both
outputs. Made up in all shapes against the parts that read, with only the wire replaced; then by a real sshd that says
such things before every command, over both engines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import queue
import re
import socket
import subprocess
import threading
import typing
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery
from rich.console import Console

from notebook_launcher.cli.prompts import TerminalPrompts
from notebook_launcher.cli.views import errors as report
from notebook_launcher.cli.views.text_view import BaseView, JsonView, TextView, make_view
from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import JobFailed, LauncherError, SubmitRefused, SubmitUncertain
from notebook_launcher.core.events import launch as events
from notebook_launcher.hosts.base import OUTPUT_BEGINS, Host
from notebook_launcher.hosts.openssh import mux as ssh_mux
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.connection import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, SshSettings
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import look_at
from tests.practice_cluster.layout import NOISE
from tests.unit.hosts.test_remote_host import (
    ENGINES,
    Open,
    Server,
    User,
    accepts,
    no_agent,
    open_host,
    server,
    there_and_back,
    wait_until,
)

__all__ = ["no_agent", "open_host", "server"]

pytestmark = pytest.mark.timeout(60)

MARK = OUTPUT_BEGINS.encode()
PIECES = [
    *(MARK, MARK[:5], MARK[5:], MARK[:-1], b"--", b"-"),
    *(b"\n", b"\r\n", b"\r", b"\0", b"\x0c", b"\xe2\x80\xa8", b"\033]0;title\007", b"\033[2J", b"\x9b31m"),
    *("Größe 雪".encode(), b"\377\376\303(", b"7\n", b"HOME=/evil\n", b"bash: module: command not found\n", NOISE),
]
# the mark as a whole line is what nobody says by chance
noises = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12).map(b"".join).filter(
    lambda noise: MARK + b"\n" not in noise
)  # fmt: skip
outputs = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=8).map(b"".join)


# --- reading, with the wire replaced -------------------------------------------------------------------------------


class Wire:
    """A channel on which a command says something, in pieces of any size."""

    def __init__(self, said: bytes, errors: bytes = b"", piece: int = 7) -> None:
        self._said, self._errors, self._piece = io.BytesIO(said), io.BytesIO(errors), piece
        self.eof_received = True
        self.status_event = threading.Event()
        self.status_event.set()

    def recv(self, count: int) -> bytes:
        return self._said.read(min(count, self._piece))

    def recv_stderr(self, count: int) -> bytes:
        return self._errors.read(min(count, self._piece))

    def recv_exit_status(self) -> int:
        return 0

    def makefile(self, _mode: str) -> Iterator[bytes]:
        return iter(self._said)

    def lines(self) -> Iterator[str]:
        return ssh_mux.Channel.lines(cast(Any, self))

    @property
    def _output(self) -> Any:
        return type("Output", (), {"makefile": lambda _self, _mode: io.BytesIO(self._said.read())})()

    def communicate(self, _data: bytes, _errors: object, _deadline: float) -> tuple[bytes, bytes, int]:
        return self._said.read(), self._errors.read(), 0

    def ignore(self, *_: object) -> None: ...

    settimeout = send = sendall = shutdown_write = shutdown = close = check_end = exec_command = ignore


class Far:
    """What stands for paramiko's transport, and for ssh's master: every command says the same."""

    def __init__(self, said: bytes, errors: bytes = b"") -> None:
        self._wire = Wire(said, errors)

    def open_session(self, timeout: float) -> Wire:
        return self._wire

    def session(self, _command: str, _timeout: float, _errors: int | None = None) -> Wire:
        return self._wire

    def is_active(self) -> bool:
        return True

    answers = is_active


def over_paramiko(said: bytes, errors: bytes = b"") -> Host:
    return ParamikoHost(cast(Any, Far(said, errors)), *_somewhere(), Credentials(User()))


def over_openssh(said: bytes, errors: bytes = b"") -> Host:
    return OpenSshHost(cast(Any, Far(said, errors)), *_somewhere(), User(), {})


def _somewhere() -> tuple[Destination, SshSettings]:
    return Destination("there"), SshSettings("there", "there", "alice")


Over = Callable[..., Host]
each_engine = pytest.mark.parametrize("over", [over_paramiko, over_openssh])


@each_engine
@given(noises, outputs, outputs)
@example(MARK, b"out", b"")
@example(MARK + b"\r\n", b"out", b"")
@example(MARK[:-1], MARK + b"\n", b"")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_commands_output_is_what_comes_after_the_noise(
    over: Over, noise: bytes, output: bytes, errors: bytes
) -> None:
    answer = over(noise + MARK + b"\n" + output, errors).run(["x"])
    # the noise may end within a character, which swallows nothing of what follows
    assert answer == Answer(0, output.decode(errors="replace"), errors.decode(errors="replace"))


@each_engine
@given(noises, outputs)
@example(MARK, b"line\n")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_lines_of_a_stream_begin_after_the_noise(over: Over, noise: bytes, output: bytes) -> None:
    lines: list[str] = []
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    over(noise + MARK + b"\n" + output).stream(["x"], lines.append, ends.put)
    ends.get(timeout=10)
    assert lines == [line.decode(errors="replace").rstrip("\n") for line in io.BytesIO(output)]


@each_engine
@given(noises, outputs)
@example(b"x" * 5000, b"SSH-2.0-OpenSSH\r\n")
@example(MARK, b"SSH-2.0-OpenSSH\r\n")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_bytes_of_a_process_begin_after_the_noise(over: Over, noise: bytes, output: bytes) -> None:
    stream = over(noise + MARK + b"\n" + output).open_process(["x"])
    assert b"".join(iter(lambda: stream.recv(1000), b"")) == output


texts = st.text(st.sampled_from("\x1b\x9b\x07\r\n\t\x00()[]0;mKJ|7 /$~-é雪\ufffd") | st.characters(codec="utf-8"))
lines_of_text = st.lists(texts.map(lambda text: "".join(text.splitlines())), max_size=5)


@given(lines_of_text, noises)
def test_the_site_is_read_below_whatever_a_shell_prints(before: list[str], noise: bytes) -> None:
    """The noise of the remote shell, and below it that of the ``sh`` that is started by it."""
    site = ["/home/ålice", "alice", "login1", "2026-11-21T15:00:00+0100"]
    said = "".join(f"{line}\n" for line in (*before, *site)).encode()
    found = look_at(over_paramiko(noise + MARK + b"\n" + said))
    assert (found.home, found.user, found.hostname) == ("/home/ålice", "alice", "login1")
    assert found.now.isoformat() == "2026-11-21T15:00:00+01:00"


def is_a_number(line: str) -> bool:
    with contextlib.suppress(SubmitUncertain):
        return bool(Slurm().read_submit(Answer(0, line)))
    return False


@given(lines_of_text, lines_of_text, st.sampled_from([("7", None), ("7;snowy", "snowy")]))
def test_the_number_of_a_job_is_found_between_other_lines(
    before: list[str], after: list[str], job: tuple[str, str | None]
) -> None:
    assume(not any(map(is_a_number, after)))
    said = "".join(f"{line}\n" for line in (*before, job[0], *after))
    assert Slurm().read_submit(Answer(0, said)) == JobRef("7", job[1])


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


@given(st.lists(st.sampled_from(SHELLS_SAY)), st.lists(st.sampled_from(SHELLS_SAY)), st.sampled_from(["", "\n"]))
def test_why_a_job_was_refused_is_found_between_other_lines(before: list[str], after: list[str], end: str) -> None:
    """What a start-up file does not find says nothing about sbatch."""
    refusal = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
    error = Slurm().explain_refusal(Answer(1, "", "\n".join([*before, refusal, *after]) + end))
    assert isinstance(error, SubmitRefused)
    assert "account is not yours" in error.what
    assert refusal.removeprefix("sbatch: error: ") in error.why


@given(lines_of_text, lines_of_text)
def test_the_state_of_a_job_is_found_between_other_lines(before: list[str], after: list[str]) -> None:
    job = JobRef("123456789")
    assume(not any(line.strip().startswith(job.id) for line in (*before, *after)))
    row = f"{job.id}|PENDING|core|(null)|2026-11-22T09:00:00|2026-11-22T10:00:00|proj1|normal|1:00:00|Resources"
    found = Slurm().read_query([job], Answer(0, "\n".join([*before, row, *after])))
    assert found is not None
    assert (found[job.id].state, found[job.id].reason) == (State.PENDING, "Resources")
    history = Slurm().read_history(job, Answer(0, "\n".join([*before, f"{job.id}|TIMEOUT|0:0|node1|x", *after])))
    assert history is not None
    assert history.state is State.TIMEOUT


# --- a real sshd ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Noisy:
    """An sshd that lets every command be preceded by noise, on both outputs; and by a banner."""

    server: Server
    noise: Path

    def says(self, noise: bytes) -> Destination:
        self.noise.write_bytes(noise)
        return self.server.destination()


@pytest.fixture(scope="module")
def noisy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noisy]:
    folder = tmp_path_factory.mktemp("noisy")
    noise, command = folder / "noise", folder / "command"
    noise.write_bytes(NOISE)
    (folder / "banner").write_bytes(NOISE)
    command.write_text(f'#!/bin/sh\ncat {noise}; cat {noise} >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    command.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ours = f"ForceCommand {command}\nBanner {folder}/banner\n" + (server.folder / "sshd_config").read_text()
    (folder / "sshd_config").write_text(ours)
    for name in ("user_key", "locked_key", "host_key", "host_key.pub"):
        (folder / name).write_bytes((server.folder / name).read_bytes())
        (folder / name).chmod(0o600)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {server.host_key}")
    with (folder / "log").open("w") as log:
        argv = [server.program, "-D", "-e", "-f", folder / "sshd_config", "-p", str(port)]
        daemon = subprocess.Popen(argv, stderr=log)
    there = dataclasses.replace(server, folder=folder, port=port, pid=daemon.pid)
    there.client_with(folder)
    assert wait_until(lambda: accepts(port)), (folder / "log").read_text()
    yield Noisy(there, noise)
    daemon.terminate()
    daemon.wait()


REAL = {
    "a noisy site": NOISE,
    "without a line's end": NOISE.rstrip(b"\n"),
    "pieces of the mark": MARK[:9] + b"\n" + MARK[:-1] + b"\n" + MARK + b"\r\n" + MARK,
    "much": NOISE * 5000,
    "one long line": b"x" * 300_000,
    "zeros": b"\0" * 5000,
}


@pytest.mark.parametrize("noise", REAL.values(), ids=list(REAL))
def test_what_is_asked_for_comes_through(noisy: Noisy, open_host: Open, tmp_path: Path, noise: bytes) -> None:
    with open_host(noisy.says(noise), Credentials(User())) as host:
        for login_shell in (False, True):
            answer = host.run(["sh", "-c", "cat; exit 3"], stdin="ä\r\n\0".encode(), login_shell=login_shell)
            assert (answer.exit_code, answer.stdout) == (3, "ä\r\n\0")
        site = look_at(host)
        assert (site.home, site.hostname) == (str(Path.home()), socket.gethostname())
        host.write_files(str(tmp_path / "new"), {"a": b"\377\n", "b": b""})
        assert (tmp_path / "new" / "a").read_bytes() == b"\377\n"
        assert host.read_file(str(tmp_path / "new" / "b")) == b""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        stream = host.stream(["sh", "-c", "echo first; cat"], lines.put, ends.put)
        assert lines.get(timeout=10) == "first"
        stream.send("second")
        assert lines.get(timeout=10) == "second"
        stream.close()
        data = os.urandom(100_000)
        process = host.open_process(["cat"], login_shell=True)
        assert there_and_back(process, data) == data


@pytest.mark.parametrize("noise", [NOISE, NOISE.rstrip(b"\n"), MARK, b"\0"], ids=["noise", "no end", "mark", "zero"])
def test_a_server_behind_a_command_is_reached_through_the_noise(noisy: Noisy, open_host: Open, noise: bytes) -> None:
    """As a job step is: the noise stands before the first word of the server behind."""
    with socket.create_server(("127.0.0.1", 0)) as listener, open_host(noisy.says(noise), Credentials(User())) as host:
        link = host.link(noisy.server.onward("command"))
        stream = link.open(listener.getsockname())
        near, _ = listener.accept()
        near.sendall(b"through")
        assert stream.recv(10) == b"through"
        near.close()
        link.close()


# --- questions -----------------------------------------------------------------------------------------------------

EVIL = "\033]0;owned\007\033[31m\x9b2J\u202eCode\x08\x7f"


class Asking(paramiko.ServerInterface):
    """A server whose questions are full of what a terminal would obey."""

    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_none(self, username: str) -> int:
        return AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:
        return InteractiveQuery(f"title {EVIL}", f"instructions {EVIL}\n", (f"question {EVIL}: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return AUTH_SUCCESSFUL if responses == ["known"] else AUTH_FAILED

    def get_banner(self) -> tuple[str, str]:
        return (f"banner {EVIL}\r\n", "en")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Destination]:
    key = paramiko.ECDSAKey.generate()
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError, paramiko.SSHException, EOFError):
                while True:
                    transport = paramiko.Transport(listener.accept()[0])
                    transports.append(transport)
                    transport.add_server_key(key)
                    transport.start_server(server=Asking())

        threading.Thread(target=serve, daemon=True).start()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        (tmp_path / "config").write_text(
            f"Host server\n  HostName 127.0.0.1\n  Port {port}\n  User alice\n  UserKnownHostsFile {tmp_path}/known\n"
            f"  GlobalKnownHostsFile none\n  IdentityFile {tmp_path}/no-key\n"
        )
        yield Destination("server", config_file=str(tmp_path / "config"))
    for transport in transports:
        transport.close()


TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029")


def obeyed(text: str) -> list[str]:
    """What of a text a terminal would obey, or be turned round by."""
    controls = {char for char in text if unicodedata.category(char) in ("Cc", "Cs")} - set("\n\t")
    return sorted(controls | TURNING & set(text))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal on standard input; what is asked on it, and what it answers."""
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "known"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("builtins.input", answer)
    return asked


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_servers_questions_are_asked_in_plain_words(
    asking: Destination, engine: str, terminal: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    ENGINES[engine](asking, Credentials(TerminalPrompts(BaseView(), interactive=True))).close()
    assert len(terminal) == 1
    assert "question" in terminal[0]
    assert "Code" in terminal[0]
    assert obeyed(terminal[0]) == []
    shown = capfd.readouterr()
    assert obeyed(shown.out + shown.err) == []


@pytest.mark.parametrize("engine", list(ENGINES))
def test_what_a_server_says_around_its_questions_is_shown_with_them(
    asking: Destination, engine: str, terminal: list[str]
) -> None:
    """It may be the challenge to be answered."""
    ENGINES[engine](asking, Credentials(TerminalPrompts(BaseView(), interactive=True))).close()
    assert "title" in terminal[0]
    assert "instructions" in terminal[0]


WILD = st.text(
    st.sampled_from("\x1b\x9b\x9d\x90\x07\x08\r\n\t\x00\x7f[]()0;mKJ\\ \u202e\u2066é雪") | st.characters(codec="utf-8")
)


@given(WILD, st.booleans())
@example(EVIL, True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_question_reaches_the_terminal_raw(terminal: list[str], text: str, echo: bool) -> None:
    terminal.clear()
    prompts = TerminalPrompts(BaseView(), interactive=True)
    prompts.secret(text, echo=echo)
    prompts.confirm(text)
    assert len(terminal) == 4  # what is neither yes nor no is asked for three times
    assert obeyed("".join(terminal)) == []


@given(WILD)
@example(EVIL)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_question_does_while_the_keyboard_is_listened_to(terminal: list[str], text: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        view = BaseView()
        view.listening = True
        prompts = TerminalPrompts(view, interactive=True)
        for ask in (lambda: prompts.confirm(text), lambda: prompts.secret(text, echo=True)):
            keys = threading.Thread(target=type_into, args=(view, "yes"))
            keys.start()
            assert ask() in (True, "yes")
            keys.join()
    assert obeyed(shown.getvalue()) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["maybe", "", "YES "], True),
        (["y", "n"], False),
        (["no"], False),
        (["connect", "y", "ja", "yes"], None),
        ([], None),  # Ctrl-D
    ],
)
def test_a_question_wants_yes_or_no(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch, typed: list[str], meant: bool | None
) -> None:
    answers = iter(typed)

    def answer(question: str) -> str:
        terminal.append(question)
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    assert TerminalPrompts(BaseView(), interactive=True).confirm("Is it?") is meant
    assert terminal[0] == "Is it? [yes/no] " and all("yes or no" in again for again in terminal[1:])


def type_into(view: BaseView, line: str) -> None:
    wait_until(lambda: view._answers is not None)
    view._pass_on(line, queue.SimpleQueue())


# --- what is shown -------------------------------------------------------------------------------------------------


def filled(kind: type[Any], text: str) -> Any:
    """Return an event of a kind, or a part of one, with the same text wherever there is room for one."""
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: value_of(hints[field.name], text) for field in dataclasses.fields(kind)})


def value_of(hint: Any, text: str) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind not in (type(None), ...)]
    if typing.get_origin(hint) is tuple:
        return (value_of(kinds[0], text),) * 2
    if typing.get_origin(hint) is dict:
        return {text: text}
    if len(kinds) == 1:  # or None
        return value_of(kinds[0], text)
    if dataclasses.is_dataclass(hint):
        return filled(hint, text)  # type: ignore[arg-type]
    return {int: 8888, float: 1.5, bool: True}.get(hint, text)


# dry runs show the user's own words, to be copied as they are
KINDS = [kind for kind in events.Event.__subclasses__() if kind not in (events.Planned, events.Problem)]


@pytest.mark.parametrize("verbose", [False, True])
@given(WILD)
@example(EVIL)
@settings(deadline=None, max_examples=50)
def test_no_event_is_shown_raw(verbose: bool, text: str) -> None:
    shown = io.StringIO()
    assume(text)
    with TextView(Console(file=shown, width=80, no_color=True), verbose=verbose) as view:
        for kind in KINDS:
            view.show(filled(kind, text))
    assert obeyed(shown.getvalue()) == []


def test_names_in_colons_are_no_pictures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with make_view(as_json=False) as view:
        for kind in KINDS:
            view.show(filled(kind, "a:smile:b"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    report.report(LauncherError("a:smile:b", why="a:smile:b", mend="a:smile:b"), as_json=False)
    shown = capsys.readouterr()
    assert "a:smile:b" in shown.out and shown.err.count("a:smile:b") >= 3
    assert (shown.out + shown.err).count("smile") == (shown.out + shown.err).count(":smile:") > 20
    assert not re.search("[\U0001f300-\U0001faff]", shown.out + shown.err)


@given(WILD)
@example(EVIL)
@settings(deadline=None, max_examples=50)
def test_not_even_on_the_line_that_is_written_over(text: str) -> None:
    """A terminal's waiting line is moved about by rich itself: compared with that of an event without a word."""

    def escapes(text: str) -> set[str]:
        shown = io.StringIO()
        with TextView(Console(file=shown, width=80, force_terminal=True, color_system=None)) as view:
            view.show(events.Waiting("7", "PENDING", text, f"x{text}", text))
        return set(re.findall(r"\x1b(?:\[[0-9?;]*[A-Za-z])?|[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown.getvalue()))

    assert escapes(text) <= escapes("quiet") | {"\x1b[1A"}  # a line higher


@given(WILD)
@example(EVIL)
def test_json_is_one_line_without_control_characters(text: str) -> None:
    for kind in (*KINDS, events.Planned, events.Problem):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            JsonView().show(filled(kind, text))
        assert shown.getvalue().count("\n") == 1
        assert obeyed(shown.getvalue()) == []


@given(WILD, st.sampled_from([LauncherError, JobFailed, SubmitRefused]))
@example(EVIL, JobFailed)
def test_no_error_is_shown_raw(text: str, kind: type[LauncherError]) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        report.report(kind(text, why=text, mend=text, log=[text, text]), as_json=False)
    assert obeyed(shown.getvalue()) == []
