"""A login node with one Slurm job, which does what a test wants, when the test wants it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ConnectionFailed,
    ConnectionLost,
    HostCommandFailed,
)
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, NextHop, OnEnd, OnLine, Prompts, Route
from tests.doubles import FakePrompts

PATIENCE = 8.0  # seconds in which anything that should happen has happened; only a failing test waits so long
SESSION_ID = "20261121-014455-abcd"  # of the session that is come back to


class Hooks:
    """What a test wants done, once, when the command comes to a step; each is run on the thread that comes there."""

    def __init__(self) -> None:
        self._at: dict[str, Callable[[], object]] = {}

    @property
    def waiting(self) -> set[str]:
        """The steps that nobody has come to yet."""
        return set(self._at)

    def at(self, step: str, act: Callable[[], object]) -> None:
        self._at[step] = act

    def reached(self, step: str) -> None:
        if step in self._at:
            self._at.pop(step)()


class FakeStream(LineStream):
    """What watch.sh would say."""

    def __init__(self, on_line: OnLine, on_end: OnEnd) -> None:
        self.on_line, self.on_end = on_line, on_end
        self.closed = self.ended = False

    def ends(self, reason: str) -> None:
        if not self.closed and not self.ended:
            self.ended = True
            self.on_end(reason)

    def send(self, line: str) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FakeHost(Host):
    """A login node with one job, number 7. ``answers`` replaces the model's answer to one kind of command.

    ``connection``: how often it was made anew. Where it is broken (``drops``) nothing runs; where it is ``silent``
    nothing is heard, but nothing ends either. ``outcomes``: what the next attempts to make it anew do or raise, before
    they succeed, unless the host is not ``reachable``.
    """

    label = "login"
    remote = True

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.ran: list[tuple[str, str]] = []
        self.answers: dict[str, Callable[[], CommandResult]] = {}
        self.files: dict[str, str] = {}
        self.sent: list[bytes] = []  # to be written, each time
        self.shared_scripts: list[str] = []  # the versions of the job scripts that sessions have left
        self.state, self.reason, self.node = "PENDING", "Priority", ""
        self.history = ""
        self.scancel_works = True
        self.streams: list[FakeStream] = []
        self.closed = False
        self.shell_waits = False
        self.prompts: Prompts = FakePrompts(asks=False)
        self.connection, self.connected, self.reachable, self.silent = 0, True, True, False
        self.outcomes: list[Exception | Callable[[], object]] = []
        self.attempts = 0
        self.task_lines: list[str] = []  # what watch_tasks.sh would say
        self.task_watches: list[tuple[list[str], FakeStream]] = []  # its arguments, and the stream
        self._written: dict[str, str] = {}
        self._unheard: list[str] = []
        self._asked = 0
        self._changed = threading.Condition()

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> CommandResult:
        if argv[:1] == ["bash"] and argv[3:4] == ["write-files-then"]:
            return self._write_then(argv[5], argv[6], argv[7:], stdin)
        kind = _kind(argv)
        if kind == "write":
            self.sent.append(stdin)
        self.ran.append((kind, " ".join(_without_env(argv))))
        self.hooks.reached(kind)
        try:
            self._reaches(argv)
            answer = self.answers[kind]() if kind in self.answers else self._answer(kind, argv)
            if "/shared_query.sh" in " ".join(argv[:2]):
                answer = replace(answer, stdout=f"0 2026-11-21T12:00:00+0100 alone\n{answer.stdout}")
            return answer
        finally:
            with self._changed:
                self._asked += kind == "squeue"
                self._changed.notify_all()

    def prepare_login_shell(self) -> None:
        self.shell_waits = True

    def end_login_shell(self) -> None:
        self.shell_waits = False

    def run_prepared(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 90.0) -> CommandResult:
        self.shell_waits = False
        return super().run_prepared(argv, stdin=stdin, timeout=timeout)

    def _write_then(self, mark: str, directory: str, argv: Sequence[str], stdin: bytes) -> CommandResult:
        wrote = self.run(["sh", "-c", "", "write-files", directory], stdin=stdin)
        if wrote.exit_code:
            return replace(wrote, stdout=f"{mark}: writing\n{wrote.stdout}")
        answer = self.run(argv)
        return replace(answer, stdout=f"{mark}: writing\n{mark}: written\n{answer.stdout}")

    def _reaches(self, argv: Sequence[str]) -> None:
        if not self.connected:
            raise ConnectionLost("The connection to login is lost.")
        if self.silent:
            raise HostCommandFailed(f"{argv[0]} did not answer within 90 s.")

    def _answer(self, kind: str, argv: Sequence[str]) -> CommandResult:
        if kind == "site":
            return CommandResult(0, "/home/alice\nalice\nlogin\n2026-11-21T12:00:00+0100\n")
        if kind == "sbatch":
            return CommandResult(0, "7\n")
        if kind == "squeue":
            return self.row()
        if kind == "sacct":
            return CommandResult(0, self.history)
        if kind == "scancel" and self.scancel_works and self.state in ("PENDING", "RUNNING", "SUSPENDED"):
            self.state = "CANCELLED"
        if kind == "list":
            record = self.files.get("session.json")
            known = f"{SESSION_ID} session {record}\n{SESSION_ID} job 7\n" if record else ""
            known += "".join(f"scripts {digest}\n" for digest in self.shared_scripts)
            return CommandResult(0, f"sessions 1\n{known}end\n")
        if kind == "mkdir":
            return CommandResult(1, "", "File exists")  # submit.sh is there
        if kind == "own":
            return self.row() if self.state else CommandResult(0)
        if kind == "head":
            name = argv[-1].rpartition("/")[2]
            return CommandResult(0, self.files[name]) if name in self.files else CommandResult(1)
        return CommandResult(0)

    def row(self) -> CommandResult:
        """What squeue says; ``state`` "" is a job that it has forgotten."""
        if not self.state:
            return CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified")
        return CommandResult(0, f"7|{self.state}|core|{self.node}|N/A|N/A|proj1|normal|59:00|{self.reason}\n")

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        self._reaches(argv)
        self.hooks.reached("watch")
        stream = FakeStream(on_line, on_end)
        if len(argv) > 1 and argv[1].endswith("/watch_tasks.sh"):
            return self._watch_tasks(stream, [*argv[3:]])
        for line in list(self._written.values()):  # as watch.sh: what is there is told first
            on_line(line)
        with self._changed:
            self.streams.append(stream)
            self._changed.notify_all()
        return stream

    def _watch_tasks(self, stream: FakeStream, words: list[str]) -> FakeStream:
        known = {name: int(count) for name, _, count in (word.partition(":") for word in words[1:])}
        for line in self.task_lines:
            name = line.split()[1] if line.startswith("log ") else ""
            if known.get(name, 0) > 0:
                known[name] -= 1
            else:
                stream.on_line(line)
        self.task_watches.append((words, stream))
        if words[0] == "once":
            stream.ends("that was all")
        return stream

    def tasks_say(self, *lines: str) -> None:
        """Let the tasks of a job array write their files, and print."""
        self.task_lines += lines
        for line in lines:
            self.task_watches[-1][1].on_line(line)

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise OSError("there is nothing")

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise HostCommandFailed("there is nothing")

    def open_route(self, hop: NextHop | None = None) -> Route:
        raise ConnectionFailed("there is nothing")

    @property
    def alive(self) -> bool:
        return self.connected and not self.closed

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        with self._changed:
            self.attempts += 1
            self._changed.notify_all()
        self.hooks.reached("reconnect")
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            outcome()
        if not self.reachable:
            raise ConnectionFailed("login port 22 cannot be reached.", why="No route to host")
        if not replace():
            return
        self.connected = False
        self._end_streams("replaced")
        self.connection += 1
        self.connected, self.silent = True, False

    def close(self) -> None:
        self.closed = True

    # --- what the test does with it

    @property
    def watched(self) -> FakeStream:
        """The stream, once it is open."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.streams, PATIENCE), "nobody follows the session"
        return self.streams[-1]

    def says(self, name: str, **data: object) -> None:
        """Let the job write one of its files; it is in the inbox when this returns, unless nothing comes through."""
        if name == "started":
            self._written.clear()
        line = self._written[name] = f"{name} {json.dumps(data)}"
        if self.silent:
            self._unheard.append(line)
        elif self.connected:
            self.watched.on_line(line)

    def starts(self, node: str = "n1", **started: object) -> None:
        """Let the job start. Its own word comes first, so that the order of events is the same every time."""
        self.says("started", node_names=[node], **started)
        self.state, self.reason, self.node = "RUNNING", "None", node
        if self.connected:
            self.noticed()

    def drops(self, *, reachable: bool = True) -> None:
        """Break the connection, and tell everybody."""
        self.reachable, self.connected = reachable, False
        self._end_streams("the connection broke")

    def _end_streams(self, reason: str) -> None:
        for stream in (*self.streams, *(stream for _, stream in self.task_watches)):
            stream.ends(reason)

    def beats(self) -> None:
        """Give signs of life from now on."""

        def beat() -> None:
            while not self.closed:
                if self.connected and not self.silent:
                    self.watched.on_line(".")
                time.sleep(0.05)

        threading.Thread(target=beat, daemon=True).start()

    def falls_silent(self) -> None:
        """The network is cut: nothing comes through, also no new connection."""
        self.silent, self.reachable = True, False

    def is_heard_again(self) -> None:
        """The network is whole, and what was sent meanwhile arrives."""
        self.silent, self.reachable = False, True
        for line in self._unheard:
            self.watched.on_line(line)

    def is_tried(self, times: int) -> None:
        """Wait until there were so many attempts to make the connection anew."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.attempts >= times, PATIENCE), f"tried {self.attempts} times"

    def requeued(self) -> None:
        self.state, self.reason, self.node = "PENDING", "BeginTime", ""

    def noticed(self) -> None:
        """Wait until the scheduler was asked anew, and once more: the first answer is in the inbox by then."""
        with self._changed:
            began = self._asked
            assert self._changed.wait_for(lambda: self._asked >= began + 3, PATIENCE), "nobody asks the scheduler"

    def count(self, kind: str) -> int:
        return sum(ran == kind for ran, _ in self.ran)

    def commands(self, kind: str) -> list[str]:
        return [command for ran, command in self.ran if ran == kind]


def _kind(argv: Sequence[str]) -> str:
    argv = _without_env(argv)
    if argv[0] == "bash" and argv[1].endswith("/submit.sh"):
        return "sbatch"
    if argv[0] == "bash" and argv[1].endswith("/shared_query.sh"):
        return "squeue" if "--me" in argv else _kind(argv[4:])
    if argv[0] == "squeue":
        return "squeue" if "--me" not in argv else "own" if "--states=all" in argv else "find"
    if list(argv[:2]) == ["bash", "-s"]:
        return "list"
    if argv[0] == "sh":
        return {"write-files": "write", "read-bill": "bill", "ask": "ask"}.get(argv[3] if len(argv) > 3 else "", "site")
    return argv[0]


def _without_env(argv: Sequence[str]) -> Sequence[str]:
    """Return the command that ``env -u NAME NAME=value COMMAND`` runs."""
    if argv[0] != "env":
        return argv
    return next(argv[n:] for n in range(1, len(argv)) if argv[n - 1] != "-u" and argv[n] != "-u" and "=" not in argv[n])
