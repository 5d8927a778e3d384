"""The client's half where there is no POSIX. It stands for Windows, on which nobody has run it yet.

A child process does without what Windows does not have: modules, parts of ``os``, ``signal`` and ``socket``, ``sh``,
and in the end ``ssh``. Python's own library, and those of others, are left to find their own way: they would choose
their other half by the platform's name, which cannot be changed here. So it shows that *we* need nothing of POSIX, and
not that all is well on Windows: paths, consoles, Pageant and proxy commands are different there, and are not seen here.
"""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import notebook_launcher
from notebook_launcher.session.record import SESSION_ID
from tests.ssh_server import Server, echo, server

__all__ = ["echo", "server"]

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

ROOT = Path(notebook_launcher.__file__).parent.parent

WITHOUT_POSIX = """\
import builtins, os, signal, socket, sys, sysconfig
# the libraries of others, which have a half for Windows, and choose it by the platform's name
import asyncio, click, cryptography, getpass, platformdirs, pydantic, rich.console, sshtunnel, subprocess, tempfile
import rich.status, rich.text, tenacity, webbrowser
from notebook_launcher.hosts.paramiko.library import paramiko
for name in [name for name in sys.modules if name.partition(".")[0] == "notebook_launcher"]:
    del sys.modules[name]

GONE = {
    os: "chown fchmod fchown fork forkpty getegid geteuid getgid getgroups getpgid getpgrp getsid getuid initgroups "
        "killpg lchown mkfifo nice openpty pread pwrite setegid seteuid setgid setgroups setpgid setsid setuid statvfs "
        "fstatvfs sysconf tcgetpgrp tcsetpgrp uname wait wait3 wait4 ST_NOEXEC O_NOFOLLOW O_CLOEXEC",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 "
            "SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
    socket: "AF_UNIX MSG_DONTWAIT SO_REUSEPORT TCP_USER_TIMEOUT recv_fds send_fds",
}
for module, names in GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

MODULES = {"crypt", "curses", "fcntl", "grp", "nis", "posix", "pty", "pwd", "readline", "resource", "spwd", "syslog",
           "termios", "tty", "_posixsubprocess"}
imported, libraries = builtins.__import__, sysconfig.get_path("stdlib")

def without(name, globals=None, locals=None, fromlist=(), level=0):
    file = str((globals or {}).get("__file__") or "")
    pythons_own = file.startswith(libraries) and "site-packages" not in file
    if level == 0 and name.partition(".")[0] in MODULES and not pythons_own and file:
        raise ModuleNotFoundError(f"No module named {name!r}, as on Windows", name=name)
    return imported(name, globals, locals, fromlist, level)

builtins.__import__ = without
"""

IMPORTS = """
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
from notebook_launcher.hosts.engine_choice import gather
from notebook_launcher.hosts.openssh.host import live_master
from notebook_launcher.hosts.ssh_config import SshSettings
settings = SshSettings("x", "x", "alice", options={"controlpath": ("/tmp/none",)})
assert live_master(settings) is None
assert not gather(settings, windows=True).has_ssh
print("imported")
"""

PARAMIKO = """
import queue, threading
from pathlib import Path
from notebook_launcher.hosts.base import NextHop, NoPrompts
from notebook_launcher.hosts.engine_choice import open_ssh_host
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.tunnel.forwarding import Tunnel

config, echo, port2, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
keys = Path(sys.argv[5])
host, choice = open_ssh_host(Destination("server", config_file=config), NoPrompts(), "auto")
assert choice.engine == "paramiko", choice

def echoed(port):
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"there and back" * 10000)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while data := connection.recv(65536):
            parts.append(data)
    return b"".join(parts) == b"there and back" * 10000

with host:
    answer = host.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in", login_shell=True)
    assert (answer.exit_code, answer.stdout) == (3, "in"), answer
    host.write_files(folder, {"a": b"one", "b": b"two\\n"})
    assert host.read_file(f"{folder}/b") == b"two\\n"
    lines, ends = queue.SimpleQueue(), queue.SimpleQueue()
    stream = host.stream(["sh", "-c", "echo up; echo heard; cat"], lines.put, ends.put)
    assert lines.get(timeout=30) == "up"
    assert lines.get(timeout=30) == "heard"
    stream.close()
    onward = NextHop("node", ("127.0.0.1", port2), host_keys=((keys / "host_key.pub").read_text(),),
                    key=(keys / "user_key").read_text())
    tunnel = Tunnel()
    tunnel.run_over(host.open_route(onward))
    port = tunnel.forward(echo)
    assert echoed(port)
    host.reconnect()
    assert host.run(["echo", "again"]).stdout == "again\\n"
    tunnel.run_over(host.open_route())
    assert tunnel.forward(echo) == port and echoed(port)
    tunnel.close()
print("reached")
"""

COMMAND = """
from notebook_launcher.cli import main
main(sys.argv[1:])
"""


def without_posix(program: str, *arguments: str, path: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has nothing of POSIX; ``path``: where other programs are found, if any are."""
    argv = [sys.executable, "-c", WITHOUT_POSIX + program, *arguments]
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    variables = {**kept, "PATH": path, "USER": "alice", "PYTHONPATH": str(ROOT), "COLUMNS": "200", **env}
    return subprocess.run(argv, env=variables, capture_output=True, text=True, check=False, timeout=50,
                          encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL)  # fmt: skip


TRIED = """
for program in sys.argv[1:]:
    try:
        exec(program)
    except (AttributeError, ImportError):
        continue
    print(program)
"""


def test_nothing_of_posix_is_left_for_us() -> None:
    """Each of these works in any other Python here; that they fail is what the other tests build on."""
    of_ours = "import types; exec(compile('import {}', 'x', 'exec'), {{'__file__': '/notebook_launcher/x.py'}})"
    programs = [*map(of_ours.format, ("fcntl", "termios", "pwd", "resource", "tty")), "os.fork", "os.getuid",
                "os.killpg", "os.setsid", "signal.SIGHUP", "signal.SIGKILL", "socket.AF_UNIX"]  # fmt: skip
    without = without_posix(TRIED, *programs)
    assert (without.stdout, without.returncode) == ("", 0), without.stderr
    argv = [sys.executable, "-c", f"import os, signal, socket, sys\n{TRIED}", *programs]
    plain = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert plain.stdout.splitlines() == programs


def test_every_module_is_imported() -> None:
    """The engine openssh too, although only a system with control sockets chooses it: what asks for it imports it."""
    found = [module.name for module in pkgutil.walk_packages(notebook_launcher.__path__, "notebook_launcher.")]
    names = [name for name in found if not name.endswith("__main__") and "_data" not in name]
    assert {
        "notebook_launcher.cli.app",
        "notebook_launcher.hosts.openssh.host",
        "notebook_launcher.tunnel.forwarding",
    } <= {*names}
    done = without_posix(IMPORTS, *names)
    assert (done.stdout, done.returncode) == ("imported\n", 0), done.stderr


@pytest.mark.parametrize("ssh", [True, False], ids=["with ssh", "without ssh"])
def test_the_way_to_the_cluster_and_through_it(server: Server, echo: int, tmp_path: Path, ssh: bool) -> None:
    """Without an ssh program the configuration is read by ours; Windows has one, but with no control sockets."""
    config = tmp_path / "config"
    config.write_text(Path(server.config).read_text() + "  IdentityAgent none\n  GSSAPIAuthentication no\n")
    arguments = (str(config), str(echo), str(server.port2), str(tmp_path / "there"), str(server.folder))
    done = without_posix(PARAMIKO, *arguments, path=os.environ["PATH"] if ssh else "")
    assert (done.stdout, done.returncode) == ("reached\n", 0), done.stderr
    assert (tmp_path / "there" / "a").read_text() == "one"


OLD_CONSOLE = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}


def test_help() -> None:
    done = without_posix(COMMAND, "--help", **OLD_CONSOLE)
    assert done.returncode == 0, done.stderr
    assert "--reservation" in done.stdout


def test_dry_run_on_an_old_console(tmp_path: Path) -> None:
    words = ("--dry-run", "--host", "alice@x", "-t", "1:00:00", "-b", "now+1hour", "--", "/images/x.sif")
    done = without_posix(COMMAND, *words, NOTEBOOK_LAUNCHER_CONFIG=str(tmp_path), **OLD_CONSOLE)
    assert done.returncode == 0, done.stderr
    assert "container=/images/x.sif" in done.stdout
    assert "sbatch --parsable --begin=now+1hour" in done.stdout
    assert "$HOME/.notebook-launcher/sessions/" in done.stdout
    assert SESSION_ID.search(done.stdout)


def test_an_error_is_a_sentence(tmp_path: Path) -> None:
    """Also for what is missing: with neither a host nor sh, there is nothing here that could run JupyterLab."""
    done = without_posix(COMMAND, "--cluster", "here", NOTEBOOK_LAUNCHER_CONFIG=str(tmp_path))
    assert done.returncode in range(1, 64), done.stderr
    assert done.stderr.startswith("launch-notebook: "), done.stderr
    assert "Traceback" not in done.stderr
    closed = without_posix(COMMAND, "--host", "alice@127.0.0.1:1", NOTEBOOK_LAUNCHER_CONFIG=str(tmp_path))
    assert closed.returncode == 10, closed.stderr
    assert "port 1 cannot be reached" in closed.stderr
