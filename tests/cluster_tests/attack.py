"""What describes an attack: the attacker, the aim, the method, the code that runs it, and the required outcome."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from notebook_launcher.core.text import printable
from tests.cluster_tests import in_box
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

NODE = "node1"
SESSIONS = "/home/alice/.notebook-launcher/sessions"
ESCAPES = "\x1b]0;title\x07\x1b[2J\x1b]8;;http://evil.example\u200b\u202e\U000e0041"
PWNED = "/tmp/pwned /home/*/pwned /pwned /home/*/.notebook-launcher/pwned"


class By(Enum):
    """The attackers, as in the headings of the documentation."""

    LAPTOP = "Another user of your machine"
    LOGIN = "Another user of the login node"
    NODE = "Another user of the compute node"
    STUDENT = "Another student of the class"
    BAD_LOGIN = "A login node that is not what it seems"
    BAD_NODE = "A compute node that is not what it seems"
    CONTENT = "Whoever wrote a course, a profile, a file or a name"


@dataclass
class Scene:
    """Alice's session, which is under attack, and methods that run programs on the practice cluster."""

    cluster: PracticeCluster
    session: Session
    others: list[Session] = field(default_factory=list)

    def run(
        self, box: str, user: str, script: str, *words: str, login: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script in a box, with ``words`` as its arguments."""
        argv = ["bash", "-c", script, "bash", *words]
        if login:
            return self.cluster.run(box, user, argv, **options)
        return in_box.run(self.cluster, box, user, argv, **options)

    def must(self, box: str, user: str, script: str, *words: str, **options: Any) -> str:
        """Run a script that must succeed, and return its output."""
        done = self.run(box, user, script, *words, **options)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self, box: str, user: str, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """Run a program in a box during the block."""
        with subprocess.Popen(
            self.cluster.argv(box, user, argv, login=False), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as program:  # fmt: skip
            try:
                yield program
            finally:
                program.kill()

    @contextlib.contextmanager
    def program(self, box: str, name: str, script: str) -> Iterator[None]:
        """Let this shell script run in place of a program of a box during the block."""
        path = f"/usr/local/bin/{name}"
        try:
            text = f"#!/bin/sh\n{script}\n"
            self.must(box, "root", f"cat >{path}; chmod 755 {path}", input=text)
            yield
        finally:
            self.must(box, "root", f"rm -f {path}")

    def launcher(self, *words: str, **env: str) -> tuple[int, str]:
        """Run launch-notebook without a terminal, and return its exit code and its unmodified output."""
        done = in_box.launcher(self.cluster, "laptop", "alice", *words, **env)
        return done.returncode, f"{done.stdout}{done.stderr}"

    def terminal(self, *words: str, user: str = "alice") -> Session:
        """Start launch-notebook in a terminal of the laptop."""
        self.others.append(in_box.launch(self.cluster, "laptop", *words, user=user, columns=200))
        return self.others[-1]

    @property
    def token(self) -> str:
        return self.session.token

    @property
    def directory(self) -> str:
        """The session directory."""
        return f"{SESSIONS}/{self.session.session_id}"

    @property
    def port_here(self) -> int:
        """The tunnel's port on the laptop."""
        return int(self.session.url.split(":")[2].partition("/")[0])

    @functools.cached_property
    def port(self) -> int:
        """JupyterLab's port on the node."""
        return int(self.record("endpoint.json")["port"])

    @functools.cached_property
    def ssh_port(self) -> int:
        """The port of the session's SSH server on the node."""
        return int(self.record("started.json")["ssh_port"])

    @functools.cached_property
    def socket_folder(self) -> str:
        """The folder of the connection to the node on the laptop, with ssh's control socket and the session's key."""
        return self.must("laptop", "root", "dirname $(ls -t /tmp/nl-ssh-*/key | head -n 1)").strip()

    def record(self, name: str) -> dict[str, Any]:
        """Return the content of one of the session's JSON files."""
        return dict(json.loads(self.must("login", "root", f"cat {self.directory}/{name}")))

    def process(self, box: str, pattern: str) -> int:
        """Return the id of alice's first process whose command line matches."""
        return next(
            pid for pid, user, args in self.cluster.processes(box) if user == "alice" and re.search(pattern, args)
        )

    @property
    def launcher_process(self) -> int:
        return self.process("laptop", r"launch-notebook --new")

    @property
    def jupyter_process(self) -> int:
        return self.process(NODE, r"/jupyter-lab ")


# Runs the attack, and returns its outcome in a few words.
Act = Callable[[Scene], str]


@dataclass(frozen=True)
class Attack:
    """One attack.

    ``aim``: what the attacker wants, which is also the attack's name; ``how``: what is tried, in words and commands;
    ``act``: runs the attack; ``comes``: a regular expression for the whole outcome; ``protects``: what stops the
    attack.
    """

    by: By
    aim: str
    how: str
    act: Act
    comes: str
    protects: str


# --- shared by attacks ---------------------------------------------------------------------------------------------


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a program's errors, without its prefix, and with paths and numbers replaced by “…”."""
    lines = printable(done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
    return re.sub(r"(?<!\w)/\S*|\b\d{3,}\b| for job \d+", "…", lines[-1].rpartition(": ")[2]).strip(" …")


def each_once(words: Sequence[str]) -> str:
    """Return the distinct outcomes of several attempts."""
    return ", ".join(f"“{word}”" for word in dict.fromkeys(words))


def looked_for(box: str, tries: dict[str, str], *, owner: str = "alice") -> Act:
    """Return an attack in which bob runs commands whose output matches a pattern for the owner, but not for him."""

    def act(scene: Scene) -> str:
        seen = []
        for script, found in tries.items():
            filled, pattern = fill(scene, script), fill(scene, found)
            assert re.search(pattern, said(scene.run(box, owner, filled))), f"there is nothing to be found: {filled}"
            done = scene.run(box, "bob", filled)
            assert not re.search(pattern, said(done)) and scene.token not in said(done), f"bob has found it: {filled}"
            seen.append(complaint(done))
        return each_once(seen)

    return act


def fill(scene: Scene, script: str) -> str:
    """Replace words such as ``DIR``, ``JOB`` and ``PORT`` in a script by the session's values."""
    names = {
        "DIR": lambda: scene.directory, "JOB": lambda: scene.session.job_id, "FOLDER": lambda: scene.socket_folder,
        "LAUNCHER": lambda: scene.launcher_process, "JUPYTER": lambda: scene.jupyter_process,
        "TOKEN": lambda: re.escape(scene.token), "SESSION": lambda: scene.session.session_id,
        "HERE": lambda: scene.port_here, "SSHPORT": lambda: scene.ssh_port, "PORT": lambda: scene.port,
    }  # fmt: skip
    return re.sub(rf"\b({'|'.join(names)})\b", lambda match: str(names[match[0]]()), script)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout}{done.stderr}"


def refused(box: str, *tries: str, user: str = "bob", unharmed: str = "true") -> Act:
    """Return an attack whose commands must all fail; afterwards ``unharmed``, run by root in the box, must succeed."""

    def act(scene: Scene) -> str:
        seen = []
        for script in tries:
            done = scene.run(box, user, fill(scene, script))
            assert done.returncode != 0, f"this was not refused: {script}\n{said(done)}"
            seen.append(complaint(done))
        scene.must(box, "root", fill(scene, unharmed))
        return each_once(seen)

    return act


def status(scene: Scene, box: str, user: str, url: str, *options: str, data: str | None = None) -> str:
    """Return the status of the response to an HTTP request, or “no answer”."""
    words = ["curl", "-s", "-o", "/dev/null", "-m", "10", "-w", "%{http_code}", *options, url]
    code = scene.run(box, user, shlex.join(words)).stdout
    return "no answer" if code == "000" else code


WEBSOCKET = (
    *("-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13"),
    *("-H", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="),
)


def error_of(printed: str) -> str:
    """Return the first line of launch-notebook's last error message."""
    found = re.findall(r"launch-notebook: (.*)", printable(printed))
    return f"“{found[-1].strip()}”" if found else f"no error: {printable(printed)[-500:]}"


def assert_no_escapes(printed: str) -> None:
    """Check that a text does not move the terminal's cursor, set its title, or contain invisible characters."""
    bad = re.findall("\x1b[\\]P_^X]|\x07|\x1b\\[2J|[\u200b\u202e\u2066\U000e0041]", printed)
    assert not bad, (bad, printed)


def nothing_was_run(scene: Scene) -> None:
    """Check that no box has a file ``pwned``, which the commands hidden in names would create."""
    for box in ("laptop", "login", NODE):
        scene.must(box, "root", f"! ls -d {PWNED} 2>/dev/null")


def printed_by(session: Session) -> str:
    """Return the raw output of a terminal."""
    return session._seen + (session.child.buffer or "")


@contextlib.contextmanager
def forged_session(scene: Scene, name: str = "20200101-000000-evil", **files: dict[str, Any]) -> Iterator[str]:
    """Copy the session under another name with changed records, as a hostile job could write them; yield the name.

    ``files``: changes of the records by name, such as ``started``; for ``exit``, the whole record.
    """
    try:
        rename = f"sed -i s/{scene.session.session_id}/{name}/g {SESSIONS}/{name}/session.json"
        scene.must("login", "alice", f"cp -r {scene.directory} {SESSIONS}/{name} && {rename}")
        for record, changes in files.items():
            text = json.dumps({**scene.record(f"{record}.json"), **changes} if record != "exit" else changes)
            scene.must("login", "alice", f"cat >{SESSIONS}/{name}/{record}.json", input=text + "\n")
        yield name
    finally:
        scene.must("login", "alice", f"rm -rf {SESSIONS}/{name}")
