"""sshd.sh: an SSH server into one session, for its keys and nobody else."""

from __future__ import annotations

import contextlib
import getpass
import http.server
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import psutil
import pytest

from notebook_launcher.core.package_data import JOB_FILES, job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, STAND_IN, Job, as_user, make_key, permissions

pytestmark = pytest.mark.real_time


SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")


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
    for name in JOB_FILES:
        shutil.copy(job_script(name), job.dir)
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
        transport.start_client(timeout=30)
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
        transport.start_client(timeout=30)
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
        wait_until(lambda: not any(map(is_alive, processes)))
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
        wait_until(lambda: not any(map(is_alive, processes)))
    sshd_job.send(signal.SIGTERM)
    assert sshd_job.exit()["cause"] == "stopped"
