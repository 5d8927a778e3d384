"""A job script run as a job runs it: real bash, real processes, a JupyterLab or what stands for it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.processes import words_of

BASH = os.environ.get("NBL_TEST_BASH", "bash")


VENV_BIN = Path(sys.executable).parent


T = TypeVar("T")


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode) & 0o777


def read_json(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") == 1, "one line each"
    document = json.loads(text)
    assert isinstance(document, dict)
    assert document["version"] == 1
    return document


def read_json_if_there(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.exists() else None


def as_user(name: str | None) -> dict[str, Any]:
    """Return the arguments with which Popen runs a program as this user."""
    return {} if name is None else {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


JUPYTERLAB = job_script("jupyterlab.sh")

# What a job does before it becomes JupyterLab, in the order of `enter`, and what it fails with.
SET_UP = """
source "$0"
export NBL_SESSION_DIR=$1 NBL_CAUSE_FILE=$1/runtime/cause NBL_CONTAINER_FILE=$1/runtime/container
mkdir -p "$1/runtime"
read_settings "$1/session.env"
set_up_node
if [[ -n $want_container ]]; then prepare_container; else activate; fi
"""


def command_of(process: psutil.Process) -> list[str]:
    """Its words; none of one that ended since it was listed."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return list(process.cmdline())
    return []


@dataclass
class Job:
    """A session directory, a home, and the job that runs in them."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    user: str | None = None  # whose job it is, if not of whoever runs the tests
    script: Path = JUPYTERLAB

    def __post_init__(self) -> None:
        self.dir = self.root / "sessions" / "20261121-014455-k3f9"
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.bin = self.root / "bin"
        self.log = self.root / "job.log"
        for made in (self.home, self.work, self.bin):
            made.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8"} | self.env

    def ask(self, *lines: str) -> None:
        """Write session.env, as a launcher does. What the job uses is only sampled where a test asks for it."""
        self.dir.mkdir(parents=True, exist_ok=True)
        if not any(line.startswith("usage=") for line in lines):
            lines = ("usage=0", *lines)
        (self.dir / "session.env").write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def tool(self, name: str, text: str) -> Path:
        """Put a command on the job's PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def start(self, *, umask: int = 0o027, under: Sequence[str] = ()) -> None:
        """Start it in a session of its own; ``under``: the command that runs it."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*under, BASH, str(self.script), str(self.dir)],
                cwd=self.work,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=umask,
                start_new_session=True,
                **as_user(self.user),
            )

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def started(self) -> dict[str, Any]:
        return wait_until(lambda: self._look_for("started"))

    def endpoint(self) -> dict[str, Any]:
        return wait_until(lambda: self._look_for("endpoint"))

    def exit(self) -> dict[str, Any]:
        """Wait for the job's end, and return what it says about it."""
        assert self.process is not None
        code = self.process.wait(30)
        report = read_json(self.dir / "exit.json")
        assert report["exit_code"] == code
        assert report["message"][0].isupper() and report["message"].endswith(".")
        assert report["message"] in self.log.read_text(), "the log tells it, too"
        return report

    def run(self) -> dict[str, Any]:
        self.start()
        return self.exit()

    def in_a_scheduler(self) -> None:
        """Let it be a scheduler's job, which need not look through all of the node's processes for what is left."""
        self.env["PBS_JOBID"] = "7.pbs"

    def processes(self) -> list[psutil.Process]:
        """All processes that have to do with this session."""
        found = []
        for pid in filter(self._is_ours, psutil.pids()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def commands(self) -> list[str]:
        """What is run by these; one that ends while it is looked at is left out."""
        found = []
        for process in self.processes():
            if command := command_of(process):
                found.append(" ".join(command))
        return found

    def process_with(self, word: str) -> psutil.Process:
        """The one that has such a word in its command."""
        return wait_until(lambda: next((one for one in self.processes() if word in " ".join(command_of(one))), None))

    def _is_ours(self, pid: int) -> bool:
        if f"HOME={self.home}".encode() in words_of(pid, "environ") or bytes(self.dir) in words_of(pid, "cmdline"):
            return True
        # what else sshd has started cannot be told from any other sshd
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/fd/2").startswith(f"{self.dir}/")  # noqa: PTH115 - of hundreds of processes
        return False

    def _look_for(self, name: str) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return read_json_if_there(self.dir / f"{name}.json")

    def end(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.process is not None:
            self.process.wait(30)


# A JupyterLab that starts in no time. It answers as the real one does, and misbehaves where a test asks for it.
STAND_IN = f"""#!{sys.executable} -S
import http.server, json, os, pathlib, signal, subprocess, sys, time

mode = os.environ.get("STAND_IN", "")
if mode == "fails":
    sys.exit(7)
if mode == "ends":
    sys.exit(0)
if mode == "silent":
    time.sleep(60)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "300"], start_new_session=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if mode == "open" else 403)
        self.end_headers()
    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
token = pathlib.Path(os.environ["NBL_SESSION_DIR"], "token").read_text()
facts = {{"base_url": "/", "hostname": "0.0.0.0" if mode == "public" else "127.0.0.1", "password": False,
         "pid": os.getpid(), "port": server.server_address[1], "secure": False, "url": "u",
         "token": "another" if mode == "another token" else token}}
runtime = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
(runtime / f"jpserver-{{os.getpid()}}.json").write_text(json.dumps(facts, indent=2))
server.serve_forever()
"""


def set_up(job: Job, *lines: str, then: str = "") -> tuple[str, str]:
    """Set up what session.env asks for, as a job does before it becomes JupyterLab, and run some code there.

    Return what the job would say that it failed with, its cause first ("" if it did not), and what was printed.
    """
    job.ask(*lines)
    cause = job.dir / "runtime" / "cause"
    cause.unlink(missing_ok=True)
    argv = [BASH, "-c", SET_UP + then, str(job_script("lib.sh")), str(job.dir)]
    done = subprocess.run(argv, cwd=job.work, env=job.env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)  # fmt: skip
    assert cause.exists() or done.returncode == 0, done.stderr
    with job.log.open("a") as log:
        log.write(done.stderr)
    return cause.read_text() if cause.exists() else "", done.stdout


def token_of(job: Job) -> str:
    token = (job.dir / "token").read_text()
    assert re.fullmatch("[0-9a-f]{48}", token)
    return token


def call(job: Job, path: str, data: bytes | None = None, method: str | None = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{job.endpoint()['port']}/{path}", data=data, method=method)
    request.add_header("Authorization", f"token {token_of(job)}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


# Notes how it was called, one argument a line, and runs the command with the image's own PATH.
LIKE_APPTAINER = """#!/bin/bash
printf '%s\\n' "$@" >"$HOME/called"
[ -z "$BREAK" ] || { echo "FATAL: container creation failed" >&2; exit 255; }
while [ "$1" != /bin/bash ]; do shift; done
shift
export PATH=$HOME/inside:/usr/bin:/bin INSIDE=yes
exec bash "$@"
"""


def image(job: Job) -> str:
    return f"container={job.root}/an image.sif"


def called(job: Job) -> list[str]:
    return (job.home / "called").read_text().splitlines()


def make_key(path: Path) -> str:
    """Make a key pair and return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


def library(code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(
        [BASH, "-c", f'source "$0"\n{code}', str(job_script("lib.sh")), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env=env or {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    ).stdout


def module_system(job: Job, text: str) -> Path:
    """A directory for $MODULESHOME whose init script defines `module`."""
    init = job.root / "modules" / "init" / "bash"
    init.parent.mkdir(parents=True)
    init.write_text(f"export MODULEPATH=/sw/modules\n{text}\n")
    return init.parent.parent


def write_evil_settings(home: Path) -> None:
    """Everything with which users have opened their server, in all the places from which Jupyter reads it."""
    settings = home / ".jupyter"
    settings.mkdir()
    lines = [f"c.{section}.{name} = {value!r}\n" for section in ("ServerApp",) for name, value in OPEN_DOOR.items()]
    lines += ["c.IdentityProvider.token = ''\n", "c.PasswordIdentityProvider.token = ''\n"]
    for name in ("jupyter_server_config.py", "jupyter_lab_config.py", "jupyter_notebook_config.py"):
        (settings / name).write_text("".join(lines))
    sections: dict[str, dict[str, object]] = {name: dict(OPEN_DOOR) for name in ("ServerApp", "NotebookApp", "LabApp")}
    sections |= {name: {"token": ""} for name in ("IdentityProvider", "PasswordIdentityProvider")}
    for name in ("jupyter_config.json", "jupyter_server_config.json", "jupyter_lab_config.json"):
        (settings / name).write_text(json.dumps(sections))


OPEN_DOOR = {"token": "", "password": "", "ip": "0.0.0.0", "port": 8888, "allow_origin": "*"}
