"""The job scripts, run as a job runs them: real bash, real processes, and a real JupyterLab where its behaviour counts.

What is not real here: the container command and the module command are small stand-ins that note how they were called
(the practice cluster has the real ones), and where only the script's own behaviour is in question, JupyterLab is a
stand-in that does what its name says. The SSH server is this machine's own sshd, run as an ordinary user, as on a node:
as the user "daemon" where root runs the tests.

Set NBL_TEST_BASH to try another bash; the scripts promise to run with 4.2.
"""

from __future__ import annotations

import contextlib
import getpass
import http.server
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import paramiko
import psutil
import pytest

from tests.conftest import ignored

JOBSCRIPTS = Path(__file__).parent.parent / "jobscripts"
BASH = os.environ.get("NBL_TEST_BASH", "bash")
VENV_BIN = Path(sys.executable).parent

T = TypeVar("T")


def wait_until(what: Callable[[], T | None], seconds: float = 30) -> T:
    """The first true value of ``what()``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(0.03)
    raise AssertionError(f"not within {seconds} s")


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


@dataclass
class Job:
    """A session directory, a home, and the job that runs in them."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    user: str | None = None  # whose job it is, if not of whoever runs the tests
    script: Path = JOBSCRIPTS / "jupyterlab.sh"

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
        """Write session.env, as a launcher does."""
        self.dir.mkdir(parents=True, exist_ok=True)
        (self.dir / "session.env").write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def tool(self, name: str, text: str) -> Path:
        """Put a command on the job's PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def start(self, *, umask: int = 0o027) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [BASH, str(self.script), str(self.dir)],
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

    def processes(self) -> list[psutil.Process]:
        """All processes that have to do with this session."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def commands(self) -> list[str]:
        """What is run by these; one that ends while it is looked at is left out."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                found.append(" ".join(process.cmdline()))
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.environ().get("HOME") == str(self.home) or str(self.dir) in process.cmdline():
                return True
            # what else sshd has started cannot be told from any other sshd
            return Path(f"/proc/{process.pid}/fd/2").readlink().is_relative_to(self.dir)
        except (psutil.Error, OSError):
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
            self.process.wait(10)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


# A JupyterLab that starts in no time. It answers as the real one does, and misbehaves where a test asks for it.
STAND_IN = f"""#!{sys.executable}
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


@pytest.fixture
def quick(job: Job) -> Job:
    """A job with the stand-in for JupyterLab on its PATH."""
    job.tool("jupyter-lab", STAND_IN)
    return job


# ------------------------------------------------------------------------------------------------- a real JupyterLab

NASTY = 'it\'s "quoted" $(touch {0}/ran) `touch {0}/ran` ; touch {0}/ran && ${{HOME}} \\ ünïcödé'

OPEN_DOOR = {"token": "", "password": "", "ip": "0.0.0.0", "port": 8888, "allow_origin": "*"}


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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A real JupyterLab with a kernel, of a user with a past. Shared by the tests that only look."""
    assert (VENV_BIN / "jupyter-lab").exists(), "these tests need JupyterLab beside their Python"
    job = Job(tmp_path_factory.mktemp("lab"))
    job.env |= {
        "JUPYTER_TOKEN": "evil",
        "JUPYTER_PORT": "8888",
        "JUPYTER_IP": "0.0.0.0",
        "JUPYTER_ALLOW_INSECURE_WRITES": "1",
        "JUPYTERHUB_API_TOKEN": "hub",
        "JPY_PARENT_PID": "1",
        "XDG_RUNTIME_DIR": "/run/user/12345",
        "TMPDIR": str(job.work),
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "s1",
    }
    write_evil_settings(job.home)
    nasty = NASTY.format(job.root)
    job.ask("# a comment", "", f"setenv=NASTY={nasty}", f"unknown={nasty}", f"path={nasty}", nasty, f"path={VENV_BIN}")
    job.start(umask=0o027)
    job.endpoint()
    call(job, "api/kernels", b"{}")
    yield job
    job.end()


def token_of(job: Job) -> str:
    token = (job.dir / "token").read_text()
    assert re.fullmatch("[0-9a-f]{48}", token)
    return token


def call(job: Job, path: str, data: bytes | None = None, method: str | None = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{job.endpoint()['port']}/{path}", data=data, method=method)
    request.add_header("Authorization", f"token {token_of(job)}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_started_tells_where_the_job_runs(lab: Job) -> None:
    started = read_json(lab.dir / "started.json")
    assert lab.process is not None
    assert started["job"] == "7"
    assert started["node"] == os.uname().nodename
    assert started["node_names"][:2] == [os.uname().nodename, "s1"]
    assert started["pid"] == lab.process.pid
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", started["started"])
    keys = [path.read_text().split()[:2] for path in Path("/etc/ssh").glob("ssh_host_*_key.pub")]
    assert sorted(started["host_keys"]) == sorted(" ".join(key) for key in keys)


def test_the_port_opens_with_the_token_and_only_with_it(lab: Job) -> None:
    endpoint = lab.endpoint()
    url = f"http://127.0.0.1:{endpoint['port']}/api/status"
    for address in (url, url + "?token=", url + "?token=evil"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address, timeout=10)
        assert refused.value.code == 403
    assert call(lab, "api/status")["kernels"] == 1
    assert (endpoint["base_url"], endpoint["secure"], endpoint["job"]) == ("/", False, "7")
    assert endpoint["address"] == "127.0.0.1"


def test_it_listens_on_the_loopback_address_and_a_port_of_its_own(lab: Job) -> None:
    endpoint = lab.endpoint()
    server = psutil.Process(endpoint["pid"])
    listening = {c.laddr for c in server.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert ("127.0.0.1", endpoint["port"]) in listening
    assert {address for address, _ in listening} == {"127.0.0.1"}
    assert 8888 not in {port for _, port in listening}


def test_the_token_is_in_no_argument_no_environment_and_no_log(lab: Job) -> None:
    token = token_of(lab)
    commands = lab.commands()
    assert any("ipykernel_launcher" in command for command in commands), "kernels are looked at, too"
    assert not [command for command in commands if token in command]
    looked_at = 0
    for process in lab.processes():
        with contextlib.suppress(OSError):  # it has just ended
            assert token.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes()
            looked_at += 1
    assert looked_at >= 3, "the script, JupyterLab and a kernel"
    assert token not in lab.log.read_text()


def test_nobody_else_can_read_the_session(lab: Job) -> None:
    assert permissions(lab.dir) == 0o700
    assert permissions(lab.dir / "runtime") == 0o700
    token = token_of(lab).encode()
    holders = {path for path in lab.root.rglob("*") if path.is_file() and token in path.read_bytes()}
    assert {path.name for path in holders} == {"token", f"jpserver-{lab.endpoint()['pid']}.json"}
    assert {permissions(path) for path in holders} == {0o600}
    for name in ("started.json", "endpoint.json", "lib.sh", "jupyterlab.sh", "jupyter_server_config.py"):
        assert permissions(lab.dir / name) == 0o600, name


def test_nothing_is_left_half_written(lab: Job) -> None:
    assert not [path for path in lab.dir.iterdir() if ".new" in path.name]


def test_settings_are_taken_literally(lab: Job) -> None:
    assert not (lab.root / "ran").exists()
    environment = psutil.Process(lab.endpoint()["pid"]).environ()
    assert environment["NASTY"] == NASTY.format(lab.root)
    assert NASTY.format(lab.root) in environment["PATH"]
    assert "unknown key 'unknown'" in lab.log.read_text()


def test_jupyter_gets_a_clean_environment(lab: Job) -> None:
    environment = psutil.Process(lab.endpoint()["pid"]).environ()
    assert environment["TMPDIR"] == str(lab.work)
    assert environment["JUPYTER_RUNTIME_DIR"] == str(lab.dir / "runtime")
    assert environment["NBL_USAGE_CSV"] == str(lab.dir / "usage.csv")
    gone = {"JUPYTER_TOKEN", "JUPYTER_PORT", "JUPYTER_IP", "JUPYTERHUB_API_TOKEN", "JPY_PARENT_PID", "XDG_RUNTIME_DIR"}
    assert not gone & environment.keys()


def test_notebooks_keep_the_users_umask_and_directory(lab: Job) -> None:
    call(lab, "api/contents/made.txt", b'{"type": "file", "format": "text", "content": "x"}', "PUT")
    assert permissions(lab.work / "made.txt") == 0o640
    server = psutil.Process(lab.endpoint()["pid"])
    assert "Umask:\t0027" in Path(f"/proc/{server.pid}/status").read_text()


def test_jupyterlab_asks_nobody_outside(lab: Job) -> None:
    page = urllib.request.Request(f"http://127.0.0.1:{lab.endpoint()['port']}/lab")
    page.add_header("Authorization", f"token {token_of(lab)}")
    with urllib.request.urlopen(page, timeout=20) as answer:
        text = answer.read().decode()
    assert "Extension Manager is 'readonly'" in lab.log.read_text()
    assert '"news": {"disabled": true}' in text


def test_a_signal_ends_everything_and_is_reported(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.ask(f"path={VENV_BIN}")
    try:
        job.start()
        kernel = call(job, "api/kernels", b"{}")["id"]
        wait_until(lambda: call(job, f"api/kernels/{kernel}")["connections"] == 0)
        assert any("ipykernel_launcher" in command for command in job.commands())
        job.send(signal.SIGTERM)
        report = job.exit()
        assert (report["cause"], report["exit_code"]) == ("stopped", 143)
        assert "SIGTERM" in report["message"]
        assert job.processes() == []
    finally:
        job.end()


# -------------------------------------------------------------------------------------------------- ways to an end


def test_jupyterlab_ended_by_its_user(quick: Job) -> None:
    quick.env["STAND_IN"] = "ends"
    assert quick.run()["cause"] == "finished"


def test_jupyterlab_that_fails(quick: Job) -> None:
    quick.env["STAND_IN"] = "fails"
    report = quick.run()
    assert (report["cause"], report["exit_code"]) == ("jupyter-failed", 7)


def test_jupyterlab_that_dies_later(quick: Job) -> None:
    quick.start()
    os.kill(quick.endpoint()["pid"], signal.SIGKILL)
    report = quick.exit()
    assert (report["cause"], report["exit_code"]) == ("jupyter-failed", 137)


def test_jupyterlab_that_never_listens(quick: Job) -> None:
    quick.ask("start_timeout=1")
    quick.env["STAND_IN"] = "silent"
    report = quick.run()
    assert report["cause"] == "jupyter-silent"
    assert "within 1 seconds" in report["message"]
    assert quick.processes() == []


@pytest.mark.parametrize("program", ["jupyterlab", "notebook"])
def test_values_of_a_run_that_nobody_knows(program: str, tmp_path: Path) -> None:
    """They do not lead out of the session's directory, and are told."""
    (tmp_path / "env").write_text(f"program={program}\nnotebook=../../etc/-x\nto=$(id)\nfolder=here\n")
    told = library('read_settings "$1"; echo "$want_notebook|$want_to|$want_folder"', str(tmp_path / "env"))
    assert told.splitlines()[-1] == f"-x.ipynb|notebook|{Path.cwd()}/here"
    (tmp_path / "env").write_text("program=$(id)\nnotebook=../\n")
    assert library('read_settings "$1" 2>&1; echo "$want_program|$want_notebook"', str(tmp_path / "env")).endswith(
        "program='$(id)' is none of jupyterlab, shell and notebook; starting JupyterLab\njupyterlab|notebook.ipynb\n"
    )


def test_a_start_timeout_that_is_no_number(quick: Job) -> None:
    quick.ask("start_timeout=$(id)")
    quick.start()
    assert quick.endpoint()
    assert "is not a number of seconds" in quick.log.read_text()


def test_jupyterlab_that_lets_strangers_in_is_ended(quick: Job) -> None:
    quick.env["STAND_IN"] = "open"
    report = quick.run()
    assert report["cause"] == "jupyter-failed"
    assert "without the token" in report["message"]
    assert not (quick.dir / "endpoint.json").exists()
    assert quick.processes() == []


def test_jupyterlab_with_another_token_is_ended(quick: Job) -> None:
    """As one that could not read our settings would have."""
    quick.env["STAND_IN"] = "another token"
    assert "does not use the session's token" in quick.run()["message"]
    assert token_of(quick) not in quick.log.read_text()


def test_jupyterlab_on_a_public_address_is_ended(quick: Job) -> None:
    quick.env["STAND_IN"] = "public"
    assert "other addresses" in quick.run()["message"]
    assert quick.processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_signals(quick: Job, number: signal.Signals) -> None:
    quick.start()
    quick.endpoint()
    quick.send(number)
    report = quick.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 128 + number)
    assert quick.processes() == []


def test_a_signal_while_modules_load(quick: Job) -> None:
    """A file server that hangs must not keep a cancelled job alive."""
    quick.env["MODULESHOME"] = str(module_system(quick, "module() { sleep 300; }"))
    quick.ask("module=slow")
    quick.start()
    wait_until(lambda: any(name_of(process) == "sleep" for process in quick.processes()))
    quick.send(signal.SIGTERM)
    assert quick.exit()["cause"] == "stopped"
    assert quick.processes() == []


def name_of(process: psutil.Process) -> str:
    """Its program's name; empty for one that ended since it was listed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def test_what_does_not_end_is_killed_and_reported_before(quick: Job) -> None:
    quick.env |= {"STAND_IN": "stubborn", "NBL_GRACE_SECONDS": "3"}
    quick.start()
    quick.endpoint()
    quick.send(signal.SIGTERM)
    wait_until(lambda: (quick.dir / "exit.json").exists(), 2)
    assert quick.process is not None and quick.process.poll() is None, "it still waits"
    assert quick.exit()["cause"] == "stopped"
    assert "killing it" in quick.log.read_text()
    assert "waiting for JupyterLab to end" in quick.log.read_text()
    assert quick.processes() == [], "nor is the process in a session of its own left"


def test_a_requeued_job_forgets_its_first_run(quick: Job) -> None:
    quick.start()
    first = quick.endpoint()
    quick.send(signal.SIGTERM)
    quick.exit()
    token = token_of(quick)
    quick.env["STAND_IN"] = "silent"
    (quick.dir / "ended-from").write_text("laptop2\n")
    quick.start()
    wait_until(lambda: not (quick.dir / "exit.json").exists())
    wait_until(lambda: "started" in (read_json_if_there(quick.dir / "started.json") or {}))
    assert not (quick.dir / "endpoint.json").exists() and not (quick.dir / "ended-from").exists()
    assert not list((quick.dir / "runtime").glob(f"jpserver-{first['pid']}.json"))
    assert token_of(quick) == token


def test_a_script_that_is_killed_says_nothing(quick: Job) -> None:
    quick.start()
    quick.endpoint()
    quick.send(signal.SIGKILL)
    assert quick.process is not None
    assert quick.process.wait(10) == -signal.SIGKILL
    assert not (quick.dir / "exit.json").exists(), "the scheduler's word counts then"


# -------------------------------------------------------------------------------------- the environment of JupyterLab


def test_no_jupyterlab(job: Job) -> None:
    job.tool("python3", "#!/bin/sh\nexit 1\n")
    report = job.run()
    assert report["cause"] == "jupyter-missing"
    assert f"plain environment of {os.uname().nodename}; choose" in report["message"]


def test_jupyterlab_without_its_command(job: Job) -> None:
    """`pip install --user` puts commands where few clusters look for them."""
    package = job.home / "jupyterlab"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(job.tool("stand-in", STAND_IN), package / "__main__.py")
    job.tool("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    job.env["PYTHONPATH"] = str(job.home)
    job.start()
    assert job.endpoint()


def test_setenv_and_names_that_are_none(quick: Job) -> None:
    quick.ask("setenv=STAND_IN=fails", "setenv=NOT A NAME=1", "setenv=nothing")
    assert quick.run()["exit_code"] == 7
    assert "ignoring setenv=NOT A NAME" in quick.log.read_text()


def test_a_virtual_environment(job: Job) -> None:
    venv = job.root / "my venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"VIRTUAL_ENV='{venv}'\nPATH='{venv}/bin':$PATH\n")
    shutil.copy(job.tool("stand-in", STAND_IN), venv / "bin" / "jupyter-lab")
    job.ask(f"venv={venv}")
    assert job.run()["cause"] == "venv-missing"
    assert "lost its Python" in job.log.read_text()
    (venv / "bin" / "python").symlink_to(sys.executable)
    job.start()
    assert job.endpoint()


def test_a_missing_virtual_environment(quick: Job) -> None:
    quick.ask(f"venv={quick.root}/nowhere")
    report = quick.run()
    assert report["cause"] == "venv-missing"
    assert f"{quick.root}/nowhere" in report["message"]


CONDA = """
conda() {
  [ "$1" = activate ] && [ "$2" = "${KNOWN}" ] || { echo "EnvironmentNameNotFound: $2" >&2; return 1; }
  export CONDA_PREFIX=/envs/$2 STAND_IN=fails
}
"""


def test_a_conda_environment(quick: Job) -> None:
    script = quick.home / "miniforge3" / "etc" / "profile.d" / "conda.sh"
    script.parent.mkdir(parents=True)
    script.write_text(CONDA)
    quick.env["KNOWN"] = "course"
    quick.ask("conda=course")
    assert quick.run()["exit_code"] == 7, "activated"
    quick.ask("conda=other")
    report = quick.run()
    assert report["cause"] == "conda-missing"
    assert "other" in report["message"]


def test_a_conda_environment_without_conda(quick: Job) -> None:
    prefix = quick.root / "prefix"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    shutil.move(quick.bin / "jupyter-lab", prefix / "bin" / "jupyter-lab")
    quick.ask(f"conda={prefix}")
    quick.start()
    assert psutil.Process(quick.endpoint()["pid"]).environ()["CONDA_PREFIX"] == str(prefix)


def test_activation_code_is_run_in_order(quick: Job) -> None:
    quick.ask("activate=export A=1; set -eu", 'activate=export B="$A 2"')
    quick.start()
    assert psutil.Process(quick.endpoint()["pid"]).environ()["B"] == "1 2"


@pytest.mark.parametrize("code", ["false", "exit 0", "exit 3", "set -e; false; true", "no such 'command'", "if"])
def test_activation_code_that_fails(quick: Job, code: str) -> None:
    quick.ask(f"activate={code}")
    report = quick.run()
    assert report["cause"] == "activate-failed"
    assert code in report["message"]
    assert report["exit_code"] > 0


# ---------------------------------------------------------------------------------------------------------- modules


def module_system(job: Job, text: str) -> Path:
    """A directory for $MODULESHOME whose init script defines `module`."""
    init = job.root / "modules" / "init" / "bash"
    init.parent.mkdir(parents=True)
    init.write_text(f"export MODULEPATH=/sw/modules\n{text}\n")
    return init.parent.parent


# As Lmod: a module that is not there is an error.
LIKE_LMOD = """
export LMOD_VERSION=8 LMOD_CMD=/bin/true
module() {
  case "$1 $2" in
    "load jupyterlab/4") export LOADEDMODULES=jupyterlab/4.0.5 ;;
    "use /sw/more"|"load alias") ;;
    *) echo "Lmod has detected the following error: $2" >&2; return 1 ;;
  esac
}
"""

# As on a node without Lmod, where a job has the login node's function all the same.
LIKE_LMOD_ELSEWHERE = """
export LMOD_VERSION=8 LMOD_CMD=/not/there/lmod
module() { eval "$($LMOD_CMD bash "$@")"; }
"""

# As the old implementation in C: it complains, and reports success.
LIKE_OLD_MODULES = """
module() {
  case "$1 $2" in
    "load jupyterlab") export LOADEDMODULES=gcc:jupyterlab/4 ;;
    *) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
  esac
}
"""


def test_modules_are_loaded(quick: Job) -> None:
    quick.env["MODULESHOME"] = str(module_system(quick, LIKE_LMOD))
    quick.ask("module_use=/sw/more", "module=jupyterlab/4", "module=alias")
    quick.start()
    assert psutil.Process(quick.endpoint()["pid"]).environ()["LOADEDMODULES"] == "jupyterlab/4.0.5"


@pytest.mark.parametrize("system", [LIKE_LMOD, LIKE_LMOD_ELSEWHERE, LIKE_OLD_MODULES])
def test_a_module_that_is_not_there_ends_the_job(quick: Job, system: str) -> None:
    quick.env["MODULESHOME"] = str(module_system(quick, system))
    quick.ask("module=broken/1")
    report = quick.run()
    assert report["cause"] == "module-failed"
    assert "broken/1" in report["message"] and "module spider broken" in report["message"]


def test_old_modules_may_be_named_without_a_version(quick: Job) -> None:
    quick.env["MODULESHOME"] = str(module_system(quick, LIKE_OLD_MODULES))
    quick.ask("module=jupyterlab", "module=jupyterlab")
    quick.start()
    assert quick.endpoint()


def test_a_module_directory_that_is_not_there(quick: Job) -> None:
    quick.env["MODULESHOME"] = str(module_system(quick, LIKE_LMOD))
    quick.ask("module_use=/sw/less")
    assert quick.run()["cause"] == "module-failed"


@pytest.mark.skipif(
    any(Path(p).exists() for p in ("/etc/profile.d/lmod.sh", "/etc/profile.d/modules.sh", "/usr/share/lmod")),
    reason="this machine has environment modules",
)
def test_a_node_without_modules(quick: Job) -> None:
    quick.ask("module=jupyterlab/4")
    report = quick.run()
    assert report["cause"] == "module-command-missing"
    assert "jupyterlab/4" in report["message"]


# -------------------------------------------------------------------------------------------------------- containers

# Notes how it was called, one argument a line, and runs the command with the image's own PATH.
LIKE_APPTAINER = """#!/bin/bash
printf '%s\\n' "$@" >"$HOME/called"
[ -z "$BREAK" ] || { echo "FATAL: container creation failed" >&2; exit 255; }
while [ "$1" != /bin/bash ]; do shift; done
shift
export PATH=$HOME/inside:/usr/bin:/bin INSIDE=yes
exec bash "$@"
"""


@pytest.fixture
def boxed(job: Job) -> Job:
    """A job with a container image, a container command, and JupyterLab only inside."""
    job.tool("apptainer", LIKE_APPTAINER)
    inside = job.home / "inside"
    inside.mkdir()
    shutil.move(job.tool("jupyter-lab", STAND_IN), inside / "jupyter-lab")
    (job.root / "an image.sif").touch()
    return job


def image(job: Job) -> str:
    return f"container={job.root}/an image.sif"


def called(job: Job) -> list[str]:
    return (job.home / "called").read_text().splitlines()


def test_a_container(boxed: Job) -> None:
    data = boxed.root / "data"
    data.mkdir()
    boxed.ask(
        image(boxed),
        f"bind={data}:/data:ro,{boxed.work}",
        f"bind={data}",
        "setenv=NASTY=it's $(false)",
        "gpu=none",
        "activate=export ACTIVATED=$INSIDE",
    )
    boxed.env["TMPDIR"] = "/nowhere/tmp"
    boxed.start()
    environment = psutil.Process(boxed.endpoint()["pid"]).environ()
    assert environment["ACTIVATED"] == "yes", "activation happens inside"
    assert environment["NASTY"] == "it's $(false)"
    assert "TMPDIR" not in environment, "a directory that the container does not see"
    session = str(boxed.dir)
    binds = ["--bind", session, "--bind", f"{data}:/data:ro,{boxed.work}", "--bind", str(data)]
    command = ["/bin/bash", f"{session}/jupyterlab.sh", "--inside", session, "127.0.0.1"]
    assert called(boxed) == ["exec", *binds, "--pwd", str(boxed.work), f"{boxed.root}/an image.sif", *command]
    boxed.send(signal.SIGTERM)
    assert boxed.exit()["cause"] == "stopped"
    assert boxed.processes() == []


@pytest.mark.parametrize(("gpu", "flags"), [("nvidia", ["--nv"]), ("amd", ["--rocm"]), ("none", [])])
def test_gpu_flags(boxed: Job, gpu: str, flags: list[str]) -> None:
    boxed.ask(image(boxed), f"gpu={gpu}", "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"
    assert [word for word in called(boxed) if word in ("--nv", "--rocm")] == flags


def test_gpus_are_found(boxed: Job) -> None:
    boxed.ask(image(boxed), "setenv=STAND_IN=ends")
    boxed.run()
    there = any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/nvidia0"))
    assert ("--nv" in called(boxed)) == there


def test_a_container_command_by_name(boxed: Job) -> None:
    shutil.move(boxed.bin / "apptainer", boxed.bin / "sing")
    boxed.ask(image(boxed), f"container_command={boxed.bin}/sing", "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"


def test_singularity_will_do(boxed: Job) -> None:
    shutil.move(boxed.bin / "apptainer", boxed.bin / "singularity")
    boxed.ask(image(boxed), "setenv=STAND_IN=ends")
    assert boxed.run()["cause"] == "finished"


def test_a_missing_image(boxed: Job) -> None:
    boxed.ask(f"container={boxed.root}/none.sif")
    report = boxed.run()
    assert report["cause"] == "image-missing"
    assert f"{boxed.root}/none.sif" in report["message"]


def test_a_missing_bind(boxed: Job) -> None:
    boxed.ask(image(boxed), f"bind={boxed.work}:/work:ro,/proj/nowhere:/data")
    report = boxed.run()
    assert report["cause"] == "bind-missing"
    assert "/proj/nowhere (bind=" in report["message"]


def test_a_missing_container_command(boxed: Job) -> None:
    boxed.ask(image(boxed), "container_command=podman-hpc")
    report = boxed.run()
    assert report["cause"] == "container-command-missing"
    assert "podman-hpc" in report["message"]


def test_a_container_that_cannot_start(boxed: Job) -> None:
    boxed.env["BREAK"] = "yes"
    boxed.ask(image(boxed))
    report = boxed.run()
    assert (report["cause"], report["exit_code"]) == ("container-failed", 255)


def test_an_image_without_jupyterlab(boxed: Job) -> None:
    (boxed.home / "inside" / "jupyter-lab").unlink()
    boxed.tool("../home/inside/python3", "#!/bin/sh\nexit 1\n")
    boxed.ask(image(boxed))
    report = boxed.run()
    assert report["cause"] == "jupyter-missing"
    assert "an image.sif" in report["message"]


def test_jupyterlab_that_fails_inside(boxed: Job) -> None:
    boxed.ask(image(boxed), "setenv=STAND_IN=fails")
    assert boxed.run()["cause"] == "jupyter-failed"


# -------------------------------------------------------------------------------------- where JupyterLab listens


def addresses(getent: dict[str, str], own: str, tmp_path: Path) -> str:
    """What find_listen_address finds where the name service and the interfaces say this."""
    cases = "".join(f"{name}) echo '{address}  STREAM';;\n" for name, address in getent.items())
    for name, text in {
        "getent": f'case "$2" in\n{cases}*) exit 2;;\nesac',
        "hostname": f"echo '{own}'",
        "uname": "echo node1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    code = 'node=node1 node_names=(node1 s1) want_listen=node; find_listen_address 2>&1; echo "$listen_address"'
    return library(code, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("getent", "own", "address"),
    [
        ({"node1": "10.60.0.11"}, "192.168.7.7 10.60.0.11 fd00::2 ", "10.60.0.11"),
        ({"node1": "127.0.1.1"}, "10.60.0.11 172.17.0.1", "10.60.0.11"),
        ({"node1": "127.0.1.1", "s1": "10.61.0.11"}, "10.60.0.11 10.61.0.11", "10.61.0.11"),
        ({"node1": "10.9.9.9"}, "10.60.0.11", "10.60.0.11"),
        ({"node1": "10.60.0.11"}, "", "10.60.0.11"),
        ({}, "169.254.3.3 fe80::1 10.60.0.11", "10.60.0.11"),
        ({"node1": "127.0.1.1"}, "", "127.0.0.1"),
        ({"node1": "0.0.0.0"}, "fd00::2", "127.0.0.1"),
    ],
)
def test_the_nodes_own_address(getent: dict[str, str], own: str, address: str, tmp_path: Path) -> None:
    said, found = addresses(getent, own, tmp_path).rstrip("\n").rsplit("\n", 1)
    assert found == address
    assert ("no address of node1 was found" in said) == (address == "127.0.0.1")


def ask_server(address: str, port: int, *headers: str) -> int:
    """Return the HTTP status of a request with exactly these headers."""
    with socket.create_connection((address, port), 10) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in ("GET /api/status HTTP/1.0", *headers, "")).encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.fixture
def node_address() -> str:
    found = library('find_node_names; want_listen=node; find_listen_address 2>/dev/null; printf %s "$listen_address"')
    if found == "127.0.0.1":
        pytest.skip("this machine has no address but the loopback's")
    return found


def test_jupyterlab_on_the_nodes_address(job: Job, node_address: str) -> None:
    job.env |= {"NBL_LISTEN": "0.0.0.0"}
    write_evil_settings(job.home)
    job.ask(f"path={VENV_BIN}", "listen=node", "setenv=NBL_LISTEN=0.0.0.0")
    job.start()
    endpoint = job.endpoint()
    port, token = endpoint["port"], f"Authorization: token {token_of(job)}"
    assert endpoint["address"] == node_address
    listening = {c.laddr for c in psutil.Process(endpoint["pid"]).net_connections("tcp") if c.status == "LISTEN"}
    assert {address for address, each in listening if each == port} == {node_address}
    assert {address for address, each in listening if each != port} <= {"127.0.0.1"}
    with pytest.raises(ConnectionRefusedError):
        ask_server("127.0.0.1", port)
    here = "Host: 127.0.0.1:9999"
    assert ask_server(node_address, port, here) == 403
    assert ask_server(node_address, port, here, "Authorization: token evil") == 403
    assert ask_server(node_address, port, here, token) == 200
    for elsewhere in (f"{node_address}:{port}", "evil.example", f"{os.uname().nodename}:{port}"):
        assert ask_server(node_address, port, f"Host: {elsewhere}", token) == 403, "the name may be anybody's"
    assert f"will listen on {node_address}: whoever" in job.log.read_text()
    assert token_of(job) not in job.log.read_text()


def test_jupyterlab_elsewhere_than_asked_is_ended(quick: Job, node_address: str) -> None:
    """The stand-in does not know listen=node, and listens on 127.0.0.1."""
    quick.ask("listen=node")
    assert f"listens on other addresses than {node_address}" in quick.run()["message"]
    assert quick.processes() == []


def test_jupyterlab_never_listens_on_every_address(job: Job) -> None:
    job.ask()
    (job.dir / "token").write_text("0" * 48)
    done = subprocess.run(
        [VENV_BIN / "jupyter-lab", f"--config={JOBSCRIPTS}/jupyter_server_config.py"],
        env=job.env | {"NBL_SESSION_DIR": str(job.dir), "NBL_LISTEN": "0.0.0.0"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert "cannot listen on NBL_LISTEN='0.0.0.0'" in done.stderr


def test_values_that_nobody_knows(quick: Job) -> None:
    quick.ask("listen=everywhere", "sshd=maybe")
    quick.start()
    assert quick.endpoint()["address"] == "127.0.0.1"
    assert "ssh_port" not in quick.started()
    log = quick.log.read_text()
    assert "listen='everywhere' is neither local nor node" in log
    assert "sshd='maybe' is neither yes nor no" in log


# ------------------------------------------------------------------------------------------------- the SSH server

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")


def make_key(path: Path) -> str:
    """Make a key pair and return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


def hand_over(job: Job) -> None:
    """Give everything to the job's user, where that is somebody else."""
    if job.user is not None:
        for path in (job.root, *job.root.rglob("*")):
            shutil.chown(path, job.user)


def new_sshd_job() -> Job:
    """A job of an ordinary user, with a launcher's files, a key that is let in and one that is not."""
    assert SSHD, "these tests need OpenSSH's server; on Debian and Ubuntu: apt-get install openssh-server"
    job = Job(Path(tempfile.mkdtemp(prefix="nbl-sshd-")), user="daemon" if os.geteuid() == 0 else None)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    job.tool("jupyter-lab", STAND_IN.replace(sys.executable, python))  # a venv of root's is nothing for the user
    job.ask("sshd=yes")
    for script in filter(Path.is_file, JOBSCRIPTS.iterdir()):
        shutil.copy(script, job.dir)
    (job.dir / "session.json").write_text("{}")
    job.script = job.dir / "jupyterlab.sh"  # the checkout may be closed to the user
    make_key(job.dir / "ssh_host_key")
    make_key(job.root / "wrong_key")
    (job.dir / "authorized_keys").write_text(make_key(job.root / "key") + "\n")
    hand_over(job)
    return job


@pytest.fixture
def sshd_job() -> Iterator[Job]:
    job = new_sshd_job()
    yield job
    job.end()
    shutil.rmtree(job.root)


def step(job: Job) -> socket.socket:
    """Start sshd.sh as a job step would, and return the stream to it."""
    ours, its = socket.socketpair()
    with its, job.log.open("ab") as log:
        subprocess.Popen(
            [BASH, str(job.dir / "sshd.sh"), "step", str(job.dir)],
            env=job.env,
            stdin=its.fileno(),
            stdout=its.fileno(),
            stderr=log,
            **as_user(job.user),
        )
    return ours


@dataclass
class Door:
    """One of the ways to the SSH server: over a step's standard streams, or over the port of the job's."""

    job: Job
    port: int | None

    def __post_init__(self) -> None:
        self.user = self.job.user or getpass.getuser()
        host_key = (self.job.dir / "ssh_host_key.pub").read_text().strip()
        (self.job.root / "known_hosts").write_text(f"node {host_key}\n")

    def ssh(self, *arguments: str, key: str = "key") -> subprocess.CompletedProcess[str]:
        """Run the ssh command, which knows the server by the session's host key and by nothing else."""
        options = {
            "IdentityFile": self.job.root / key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.job.root / "known_hosts",
            "StrictHostKeyChecking": "yes",
            "HostKeyAlias": "node",
            "HostName": "127.0.0.1",
            "BatchMode": "yes",
            "ExitOnForwardFailure": "yes",
            "User": self.user,
        }
        if self.port is None:
            become = ["setpriv", f"--reuid={self.job.user}", "--clear-groups"] if self.job.user else []
            command = [*become, BASH, str(self.job.dir / "sshd.sh"), "step", str(self.job.dir)]
            options["ProxyCommand"] = shlex.join(command).replace("%", "%%")
        else:
            options["Port"] = self.port
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return subprocess.run(
            ["ssh", "-F", "none", *words, *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            input="GET / HTTP/1.0\r\n\r\n",
        )

    def transport(self) -> paramiko.Transport:
        stream = step(self.job) if self.port is None else socket.create_connection(("127.0.0.1", self.port))
        transport = paramiko.Transport(stream)
        transport.start_client(timeout=10)
        assert transport.get_remote_server_key().get_base64() in (self.job.root / "known_hosts").read_text()
        transport.auth_publickey(self.user, paramiko.Ed25519Key.from_private_key_file(str(self.job.root / "key")))
        return transport


@pytest.fixture(scope="module", params=["step", "job-sshd"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """Each way in turn has to pass the tests below."""
    job = new_sshd_job()
    if request.param == "job-sshd":
        job.start()
        yield Door(job, job.started()["ssh_port"])
    else:
        yield Door(job, None)
    job.end()
    shutil.rmtree(job.root)


@pytest.fixture(scope="module")
def greeter() -> Iterator[int]:
    """The port of a server on all of this machine's addresses, which says hello and hangs up."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"hello")

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_sshd_forwards_to_the_nodes_loopback(door: Door, greeter: int, host: str) -> None:
    assert door.ssh("-W", f"{host}:{greeter}", "node").stdout == "hello"


def test_sshd_forwards_nowhere_else(door: Door, greeter: int) -> None:
    refused = door.ssh("-W", f"127.0.0.2:{greeter}", "node")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "administratively prohibited" in refused.stderr
    assert door.ssh("-N", "-R", "0:127.0.0.1:22", "node").returncode == 255


@pytest.mark.parametrize("words", [["node"], ["-t", "-t", "node"], ["node", "touch /tmp/x"], ["-s", "node", "sftp"]])
def test_sshd_gives_no_shell(door: Door, words: list[str]) -> None:
    refused = door.ssh(*words)
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "open failed" in refused.stderr


def test_sshd_lets_nobody_else_in(door: Door, greeter: int) -> None:
    refused = door.ssh("-W", f"127.0.0.1:{greeter}", "node", key="wrong_key")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Permission denied (publickey)" in refused.stderr


def test_sshd_takes_keys_while_it_runs(door: Door, greeter: int) -> None:
    key = make_key(door.job.root / "later_key")
    with (door.job.dir / "authorized_keys").open("a") as keys:
        keys.write(f"{key}\n")
    assert door.ssh("-W", f"127.0.0.1:{greeter}", "node", key="later_key").stdout == "hello"


def test_sshd_and_paramiko(door: Door, greeter: int) -> None:
    with door.transport() as transport:
        for _ in range(2):
            channel = transport.open_channel("direct-tcpip", ("127.0.0.1", greeter), ("127.0.0.1", 0))
            channel.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert channel.makefile("rb").read() == b"hello"
        for kind, target in (("direct-tcpip", ("127.0.0.2", greeter)), ("session", None)):
            with pytest.raises(paramiko.ChannelException):
                transport.open_channel(kind, target, ("127.0.0.1", 0))


def test_nobody_else_can_read_what_sshd_needs(door: Door, greeter: int) -> None:
    assert door.ssh("-W", f"127.0.0.1:{greeter}", "node").stdout == "hello"
    files = [path for path in door.job.dir.rglob("*") if path.is_file()]
    private = [path.name for path in files if b"PRIVATE KEY" in path.read_bytes() and path.suffix != ".sh"]
    assert private == ["ssh_host_key"]
    ours = {path for path in files if path.name in {*private, "sshd_config", "sshd.pid", "sshd.log", "ssh_port"}}
    assert {permissions(path) for path in ours} == {0o600}
    assert len(ours) == (2 if door.port is None else 5)


def test_sshd_understands_its_configuration(door: Door) -> None:
    """What cannot be tried over a connection: sshd says itself what it makes of the file."""
    door.transport().close()
    done = subprocess.run(
        [str(SSHD), "-T", "-f", door.job.dir / "sshd_config"], capture_output=True, text=True, **as_user(door.job.user)
    )
    assert (done.returncode, done.stderr) == (0, "")
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    forbidden = ("agentforwarding", "streamlocalforwarding")
    assert {settings[f"allow{name}"] for name in forbidden} == {"no"}
    for name in ("x11forwarding", "permittunnel", "permittty", "gatewayports", "passwordauthentication", "usepam"):
        assert settings[name] == "no", name
    assert settings["clientaliveinterval"] == "30" and settings["allowusers"] == door.user


def test_a_private_key_that_others_could_read_is_closed(sshd_job: Job) -> None:
    (sshd_job.dir / "ssh_host_key").chmod(0o644)
    sshd_job.root.chmod(0o777)
    (sshd_job.root / "sessions").chmod(0o777)
    with Door(sshd_job, None).transport():
        assert permissions(sshd_job.dir / "ssh_host_key") == 0o600


def test_two_steps_at_once_agree_on_the_key_they_make(sshd_job: Job) -> None:
    for name in ("ssh_host_key", "ssh_host_key.pub"):
        (sshd_job.dir / name).unlink()
    transports = [paramiko.Transport(stream) for stream in [step(sshd_job), step(sshd_job)]]
    for transport in transports:
        transport.start_client(timeout=10)
    shown = {transport.get_remote_server_key().get_base64() for transport in transports}
    assert shown == {(sshd_job.dir / "ssh_host_key.pub").read_text().split()[1]}
    for transport in transports:
        transport.close()
    assert not [path for path in sshd_job.dir.iterdir() if ".new" in path.name]


def test_a_step_in_a_directory_with_an_odd_name(sshd_job: Job) -> None:
    sshd_job.dir = sshd_job.dir.rename(sshd_job.dir.with_name("it's 100%h a #name"))
    Door(sshd_job, None).transport().close()


def refused_step(job: Job, *words: str) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [BASH, str(job.dir / "sshd.sh"), *words], env=job.env, capture_output=True, text=True, **as_user(job.user)
    )
    assert done.returncode != 0
    assert done.stdout == "", "that is the connection"
    assert done.stderr.count("\n") == 1
    return done.stderr


def without_sshd(job: Job) -> None:
    """Make sshd.sh look for sshd where none is."""
    script = job.dir / "sshd.sh"
    script.write_text(script.read_text().replace("{/usr/sbin,", "{/nowhere,").replace("/sbin,", "/nowhere,"))
    assert Path("/usr/sbin/sshd").exists()
    assert "/usr/sbin," not in script.read_text()


def test_steps_that_cannot_be(sshd_job: Job) -> None:
    session = str(sshd_job.dir)
    assert "usage:" in refused_step(sshd_job)
    assert "usage:" in refused_step(sshd_job, "other", session)
    assert "is not there" in refused_step(sshd_job, "step", f"{session}x")
    (sshd_job.dir / 'a "quote').mkdir()
    hand_over(sshd_job)
    assert "has a quote" in refused_step(sshd_job, "step", f'{session}/a "quote')
    if sshd_job.user is not None:
        assert "belongs to somebody else" in refused_step(sshd_job, "step", "/")
    (sshd_job.dir / "authorized_keys").write_text("")
    assert "holds no key" in refused_step(sshd_job, "step", session)
    without_sshd(sshd_job)
    assert "sshd is not installed" in refused_step(sshd_job, "step", session)


def sshd_processes(job: Job) -> list[psutil.Process]:
    """The server, the shell that looks after it, and all that they have started."""
    server = psutil.Process(int((job.dir / "runtime" / "sshd.pid").read_text()))
    shell = server.parent()
    assert shell is not None and "sshd.sh" in " ".join(shell.cmdline())
    return [shell, *shell.children(recursive=True)]


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, "jupyterlab", "sshd.sh", "crash"])
def test_sshd_ends_with_the_job(sshd_job: Job, way: signal.Signals | str) -> None:
    """No scheduler helps here, and each connection is served in a session of its own."""
    sshd_job.start()
    pid = sshd_job.endpoint()["pid"]
    port = sshd_job.started()["ssh_port"]
    with Door(sshd_job, port).transport(), socket.create_connection(("127.0.0.1", port)) as knocking:
        assert knocking.recv(4) == b"SSH-"
        processes = sshd_processes(sshd_job)
        assert len(processes) >= 4, "a connection, and one that has not logged in"
        if isinstance(way, signal.Signals):
            sshd_job.send(way)
        elif way == "crash":  # of the shell that looks after it, and then the job ends
            processes[0].kill()
            sshd_job.send(signal.SIGTERM)
        else:
            os.kill(pid if way == "jupyterlab" else processes[0].pid, signal.SIGTERM)
        if way not in (signal.SIGKILL, "sshd.sh"):
            sshd_job.exit()
            assert [process for process in processes if is_alive(process)] == []
        wait_until(lambda: not any(map(is_alive, processes)), 5)
    if way == signal.SIGTERM:  # and is back in the queue
        sshd_job.start()
        wait_until(lambda: not (sshd_job.dir / "exit.json").exists())
        Door(sshd_job, sshd_job.started()["ssh_port"]).transport().close()


def test_a_job_without_sshd(sshd_job: Job) -> None:
    without_sshd(sshd_job)
    sshd_job.start()
    assert sshd_job.endpoint()
    assert "ssh_port" not in sshd_job.started()
    assert "there is no SSH server into this session" in sshd_job.log.read_text()
    assert "sshd is not installed" in sshd_job.log.read_text()


def test_a_job_whose_sshd_does_not_start(sshd_job: Job) -> None:
    sshd_job.tool("sshd", "#!/bin/sh\necho 'sshd: something is wrong' >&2; exit 1\n")
    sshd_job.start()
    assert sshd_job.endpoint()
    assert "ssh_port" not in sshd_job.started()
    assert f"{sshd_job.bin}/sshd does not start: sshd: something is wrong" in sshd_job.log.read_text()


# The first port is taken; the second over IPv4 only, with which sshd is content.
UNLUCKY = f"""#!/bin/bash
echo "$*" >>"$HOME/calls"
case $(grep -c . "$HOME/calls") in
  1) printf 'Bind to port 5 on 0.0.0.0 failed: Address already in use.\\r\\nNo.\\r\\n' >&2; exit 255;;
  2) printf 'Bind to port 5 on 0.0.0.0 failed: Address already in use.\\r\\n' >&2; exec {SSHD} "${{@:1:8}}";;
esac
exec {SSHD} "${{@:1:8}}"
"""


def test_ports_that_are_taken(sshd_job: Job) -> None:
    sshd_job.tool("sshd", UNLUCKY)
    sshd_job.start()
    port = sshd_job.started()["ssh_port"]
    Door(sshd_job, port).transport().close()
    calls = (sshd_job.home / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert f"-p {port} " in calls[2]
    second = calls[1].split("-p ")[1].split()[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(second)))


def test_an_sshd_that_dies_is_noted(sshd_job: Job) -> None:
    sshd_job.start()
    sshd_job.endpoint()
    with Door(sshd_job, sshd_job.started()["ssh_port"]).transport():
        processes = sshd_processes(sshd_job)
        os.kill(int((sshd_job.dir / "runtime" / "sshd.pid").read_text()), signal.SIGKILL)
        wait_until(lambda: "has ended by itself (exit code 137)" in sshd_job.log.read_text())
        wait_until(lambda: not any(map(is_alive, processes)), 3)
    sshd_job.send(signal.SIGTERM)
    assert sshd_job.exit()["cause"] == "stopped"


# ------------------------------------------------------------------------------------------------ by hand, and Slurm


def test_a_directory_that_is_there_and_open(quick: Job) -> None:
    quick.dir.mkdir(parents=True)
    quick.dir.chmod(0o755)
    (quick.dir / "token").touch(0o644)
    quick.start()
    quick.endpoint()
    assert permissions(quick.dir) == 0o700
    assert permissions(quick.dir / "token") == 0o600
    assert token_of(quick)


def test_a_token_that_is_there_is_kept(quick: Job) -> None:
    quick.ask()
    (quick.dir / "token").write_text("0" * 48)
    quick.start()
    quick.endpoint()
    assert token_of(quick) == "0" * 48


def test_slurm_runs_a_copy_of_the_script(quick: Job) -> None:
    """The library is then where `scontrol` says that the script came from, in a directory with a space."""
    spool = quick.root / "spool"
    spool.mkdir()
    copy = Path(shutil.copy(JOBSCRIPTS / "jupyterlab.sh", spool / "slurm_script"))
    origin = quick.root / "my scripts"
    shutil.copytree(JOBSCRIPTS, origin)
    quick.tool(
        "scontrol", f"#!/bin/sh\necho 'JobId=7 JobName=x'\necho '   Command={origin}/jupyterlab.sh {quick.dir}'\n"
    )
    quick.env["SLURM_JOB_ID"] = "7"
    quick.script = copy
    quick.start()
    assert quick.endpoint()["job"] == "7"


def test_a_launchers_copies_come_first(quick: Job) -> None:
    quick.ask()
    for name in ("lib.sh", "containers.sh", "jupyter_server_config.py", "jupyterlab.sh"):
        shutil.copy(JOBSCRIPTS / name, quick.dir / name)
    (quick.dir / "session.json").write_text("{}")
    with (quick.dir / "lib.sh").open("a") as library:
        library.write('find_job_id() { job_id="from the copy"; }\n')
    quick.start()
    assert quick.endpoint()["job"] == "from the copy"


def test_without_the_library(quick: Job) -> None:
    quick.script = Path(shutil.copy(JOBSCRIPTS / "jupyterlab.sh", quick.root / "alone.sh"))
    quick.start()
    assert quick.process is not None
    assert quick.process.wait(10) == 73
    assert "lib.sh" in quick.log.read_text()


def test_a_relative_directory(quick: Job) -> None:
    shown = subprocess.run(
        [BASH, str(JOBSCRIPTS / "jupyterlab.sh"), "here/"],
        cwd=quick.work,
        env=quick.env | {"STAND_IN": "ends", "CDPATH": "/tmp"},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert str(quick.work / "here") in shown.stderr
    assert read_json(quick.work / "here" / "exit.json")["cause"] == "finished"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_usage(arguments: list[str]) -> None:
    shown = subprocess.run([BASH, str(JOBSCRIPTS / "jupyterlab.sh"), *arguments], capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr.startswith("usage: ")


def test_a_directory_that_cannot_be_made(quick: Job) -> None:
    (quick.root / "sessions").write_text("a file is in the way")
    quick.start()
    assert quick.process is not None
    assert quick.process.wait(10) == 73
    assert "cannot be made" in quick.log.read_text()


def test_a_directory_that_cannot_be_written(quick: Job) -> None:
    """A full home: every file grows to nothing at all, and nothing hangs."""
    quick.dir.mkdir(parents=True)
    shown = subprocess.run(
        [BASH, "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "-", BASH, JOBSCRIPTS / "jupyterlab.sh", quick.dir],
        cwd=quick.work,
        env=quick.env,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert shown.returncode == 73
    assert "cannot be written" in shown.stderr
    assert not list(quick.dir.glob("*.json"))


def test_a_directory_name_that_no_bind_can_hold(boxed: Job) -> None:
    boxed.dir = boxed.dir.with_name("a:b")
    boxed.ask(image(boxed))
    assert boxed.run()["cause"] == "session-unusable"


def test_nothing_but_bash_is_asked_for_more_than_posix_tools() -> None:
    """No GNU-only programs on the way: what the scripts call is what every node has."""
    text = "\n".join(path.read_text() for path in JOBSCRIPTS.glob("*.sh"))
    assert not re.search(r"^\s*(jq|curl|wget|python|realpath|readlink)\b(?!=)", text, re.MULTILINE)


# ------------------------------------------------------------------------------------------------------- the library


def library(code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(
        [BASH, "-c", f'source "$0"\n{code}', str(JOBSCRIPTS / "lib.sh"), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env=env or {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    ).stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        'a "quoted" \\ back\\\\slash',
        "&&&",
        "tab\tnewline\nbell\x07escape\x1b\x7f",
        "ünï ☃ 🚀",
        "$(x) `y` %s",
    ],
)
def test_json_strings(text: str, locale: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": locale}
    assert json.loads(library('json_string "$1"; printf %s "$REPLY"', text, env=environment)) == text


def test_json_lists() -> None:
    assert json.loads(library('json_list "$@"; printf %s "$REPLY"', "a b", '"', "")) == ["a b", '"', ""]
    assert library('json_list; printf %s "$REPLY"') == "[]"


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"SLURM_JOB_ID": "7", "NBL_JOB_ID": "old"}, "7"),
        ({"PBS_JOBID": "12.server"}, "12.server"),
        ({"LSB_JOBID": "33"}, "33"),
        ({"JOB_ID": "44"}, "44"),
        ({"NBL_JOB_ID": "20261121-014455-k3f9"}, "20261121-014455-k3f9"),
        ({}, ""),
    ],
)
def test_every_schedulers_job_id(variables: dict[str, str], job: str) -> None:
    assert library('find_job_id; printf %s "$job_id"', env={"PATH": "/usr/bin:/bin"} | variables) == job


# ------------------------------------------------------------------------------------------------------- submit.sh


@dataclass
class Submission:
    dir: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(JOBSCRIPTS / "submit.sh"), str(self.dir), *command],
            capture_output=True,
            text=True,
            timeout=20,
            umask=0o027,
        )


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    return Submission(tmp_path)


def test_submit_keeps_the_answer(submission: Submission) -> None:
    done = submission.run("sh", "-c", 'echo "$1"; echo careful >&2; umask', "-", "7;snowy $(x)")
    assert (done.returncode, done.stderr) == (0, "careful\n")
    assert done.stdout.startswith("7;snowy $(x)\n")
    assert (submission.dir / "job").read_text() == done.stdout
    assert permissions(submission.dir / "job") == 0o600
    assert done.stdout.endswith("0027\n"), "the command gets the umask that was"
    assert [path.name for path in submission.dir.iterdir()] == ["job"]


def test_submit_passes_a_failure_on(submission: Submission) -> None:
    done = submission.run("sh", "-c", "echo out; echo 'sbatch: error: no' >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "sbatch: error: no\n")
    assert list(submission.dir.iterdir()) == []


def test_submit_without_the_command(submission: Submission) -> None:
    done = submission.run("no-such-sbatch")
    assert done.returncode == 127
    assert "no-such-sbatch" in done.stderr


def test_submit_does_not_submit_what_it_cannot_remember(submission: Submission) -> None:
    submission.dir = submission.dir / "missing"
    done = submission.run("touch", str(submission.dir.parent / "submitted"))
    assert done.returncode == 73
    assert not (submission.dir.parent / "submitted").exists()


@pytest.mark.parametrize("blow", [signal.SIGHUP, signal.SIGINT, None])
def test_submit_survives_its_client(submission: Submission, blow: signal.Signals | None) -> None:
    """Whoever asked hangs up, or presses Ctrl-C, while the scheduler thinks."""
    client = subprocess.Popen(
        [
            BASH,
            JOBSCRIPTS / "submit.sh",
            submission.dir,
            "sh",
            "-c",
            "sleep 0.6; grep SigIgn /proc/self/status; echo 7",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert client.stdout is not None and client.stderr is not None
    wait_until(lambda: (submission.dir / "submit.err").exists())
    time.sleep(0.2)
    client.stdout.close()
    client.stderr.close()
    if blow is not None:
        os.killpg(client.pid, blow)
    client.wait(10)
    _, mask, job = (submission.dir / "job").read_text().split()
    assert job == "7"
    assert ignored(mask) == set(), "a job of a local scheduler would ignore these signals, too"


# -------------------------------------------------------------------------------------------------------- watch.sh


class Watch:
    """watch.sh at work, and the lines it has said so far, without heartbeats."""

    def __init__(self, directory: Path, since: int = 0) -> None:
        """``since``: for how many seconds it has been at work already; bash takes that from its environment."""
        self.process = subprocess.Popen(
            [BASH, str(JOBSCRIPTS / "watch.sh"), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "SECONDS": str(since)},
        )

    def next(self) -> str:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline().decode().rstrip("\n")) == ".":
            pass
        return line

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, Watch]]:
    directory = tmp_path / "session"
    directory.mkdir()
    watch = Watch(directory)
    yield directory, watch
    watch.process.kill()
    watch.process.wait()


def replace(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_watch_tells_what_happens(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "started.json", '{"pid":1}\n')
    assert watch.next() == 'started {"pid":1}'
    replace(directory / "endpoint.json", '{"port":1,"name":"ünï \\\\ x"}\n')
    assert watch.next() == 'endpoint {"port":1,"name":"ünï \\\\ x"}'
    (directory / "endpoint.json").unlink()
    assert watch.next() == "gone endpoint"
    replace(directory / "started.json", '{"pid":2}\n')
    assert watch.next() == 'started {"pid":2}'
    replace(directory / "exit.json", "{}\n")
    assert watch.next() == "exit {}"
    shutil.rmtree(directory)
    lines = [watch.next()]
    while lines[-1] != "deleted":
        lines.append(watch.next())
    assert set(lines[:-1]) <= {"gone started", "gone exit"}
    assert watch.process.wait(5) == 0


def test_watch_tells_what_was_there_before(tmp_path: Path) -> None:
    for name in ("exit", "started", "endpoint"):
        (tmp_path / f"{name}.json").write_text("{}\n")
    shown = subprocess.run(
        [BASH, str(JOBSCRIPTS / "watch.sh"), str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert shown.stdout.splitlines() == ["started {}", "endpoint {}", "exit {}", "."]
    assert (shown.returncode, shown.stderr) == (0, "")


def test_watch_ends_with_its_client(watched: tuple[Path, Watch]) -> None:
    _, watch = watched
    assert watch.process.stdin is not None
    watch.process.stdin.close()
    assert watch.process.wait(2) == 0


def test_watch_ends_when_nobody_listens(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    assert watch.process.stdout is not None
    watch.process.stdout.close()
    (directory / "started.json").write_text("{}\n")
    watch.process.wait(3)


def test_watch_is_quick_when_it_matters_and_starts_no_process(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    watch.say("nonsense $(touch x)")
    replace(directory / "started.json", "{}\n")
    watch.next()
    begin = time.monotonic()
    replace(directory / "endpoint.json", "{}\n")
    assert watch.next() == "endpoint {}"
    assert time.monotonic() - begin < 0.5
    status = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children")
    assert not status.exists() or status.read_text() == ""


def test_watch_lets_the_file_server_rest_after_a_long_quiet_time(tmp_path: Path) -> None:
    watch = Watch(tmp_path, since=700)
    assert watch.process.stdout is not None
    lines = [watch.process.stdout.readline()]  # it has looked, and will not do so for a while
    replace(tmp_path / "started.json", "{}\n")
    while lines[-1] == b".\n":
        lines.append(watch.process.stdout.readline())
    assert lines[:2] == [b".\n", b".\n"] and lines[-1] == b"started {}\n", "signs of life go on between two looks"
    begin = time.monotonic()
    replace(tmp_path / "endpoint.json", "{}\n")
    assert watch.next() == "endpoint {}"
    assert time.monotonic() - begin < 0.5, "it is awake again"
    watch.process.kill()
    watch.process.wait()


def test_watch_tells_the_newest_sample(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    file = directory / "usage.csv"
    row = "2026-11-21T01:{:02}:00Z,{}.0,0.50,100,{},NVIDIA T4,5,6,7,8".format
    file.write_text(f"time,seconds,cpu_cores\n{row(1, 60, 0)}\n{row(2, 120, 0)}\n{row(2, 120, 1)}\n")
    assert watch.next() == f"usage {row(2, 120, 0)}|{row(2, 120, 1)}"
    with file.open("a") as being_written:
        being_written.write(f"{row(3, 180, 0)}\n{row(4, 240, 0)[:20]}")
        being_written.flush()
        assert watch.next() == f"usage {row(3, 180, 0)}", "half a line waits for its end"
        being_written.write(f"{row(4, 240, 0)[20:]}\n")
    assert watch.next() == f"usage {row(4, 240, 0)}"
    replace(file, f"{row(4, 240, 0)}\n")  # made shorter: nothing new
    replace(file, f"{row(4, 240, 0)}\n{row(5, 300, 0)}\n")
    assert watch.next() == f"usage {row(5, 300, 0)}"
    file.unlink()
    replace(directory / "exit.json", "{}\n")
    assert watch.next() == "exit {}"
    children = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children")
    assert not children.exists() or children.read_text() == "", "no process is started for it"


def test_watch_tells_that_nobody_uses_it(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "idle.json", '{"version":1}\n')
    assert watch.next() == 'idle {"version":1}'
    (directory / "idle.json").unlink()
    assert watch.next() == "gone idle"


def test_watch_tells_how_far_a_notebook_has_come(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "started.json", "{}\n")
    assert watch.next() == "started {}"
    for done in (0, 1):
        replace(directory / "progress.json", f'{{"done":{done}}}\n')
        assert watch.next() == f'progress {{"done":{done}}}'
    replace(directory / "progress.json", '{"done":2}\n')
    replace(directory / "exit.json", "{}\n")
    assert [watch.next(), watch.next()] == ['progress {"done":2}', "exit {}"], "how far it came is told before its end"
    (directory / "progress.json").unlink()
    assert watch.next() == "gone progress"


def test_watch_has_a_heartbeat(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.process.stdout is not None
    begin = time.monotonic()
    assert [watch.process.stdout.readline() for _ in range(2)] == [b".\n", b".\n"]
    assert 1 < time.monotonic() - begin < 4
    watch.process.kill()
    watch.process.wait()
