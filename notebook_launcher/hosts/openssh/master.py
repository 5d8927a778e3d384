"""An ``ssh`` process that the launcher starts as a master: it logs in, passes on its prompts, and ends with it."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.openssh import askpass
from notebook_launcher.hosts.openssh.messages import DEBUG, NOT_OPENED, explained
from notebook_launcher.hosts.openssh.mux import Master
from notebook_launcher.hosts.ssh_config import SshSettings

ALIVE_EVERY, ALIVE_TRIES = 5, 3  # seconds, count: a dead network is noticed after 20 s
LOGIN_TIMEOUT = 130.0  # seconds without a message while logging in; servers time out after 120

_PREFIX = "nl-ssh-"
_STALE = 60.0  # seconds after which a folder without a lock counts as left behind
_LONGEST_FOLDER = 60  # characters of a folder; a socket's path may have about 100, and ssh temporarily adds 17
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/+-]+")  # nothing that ssh or a shell would interpret


class SocketFolder:
    """A folder for sockets (0700). Its owner holds a lock in it; folders without one are removed."""

    def __init__(self) -> None:
        import fcntl

        base = _base_for_sockets()
        _sweep(base)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._lock = (self.path / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        """Write a file that only we can read, and return its path."""
        path = self.path / name
        path.touch(mode)
        path.write_text(text, encoding="utf-8")
        return path

    def remove(self) -> None:
        """Remove the folder with its contents; may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _base_for_sockets() -> Path:
    """Return a folder with a short plain name, from which programs may be run. Raises ``ConnectionFailed``.

    The first choice is the folder for temporary files.
    """
    for folder in (tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR", ""), "/var/tmp"):  # noqa: S108
        with contextlib.suppress(OSError):
            runs_programs = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
            if len(folder) <= _LONGEST_FOLDER and _PLAIN_PATH.fullmatch(folder) and runs_programs:
                return Path(folder)
    raise ConnectionFailed(
        "There is no folder for the sockets of ssh.", hint="set TMPDIR to a folder with a short, plain name"
    )


def _sweep(base: Path) -> None:
    """Remove the folders of launchers that were killed together with their guard script."""
    import fcntl

    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid != os.getuid() or folder.is_symlink() or time.time() - about.st_mtime < _STALE:
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if somebody holds it
                shutil.rmtree(folder, ignore_errors=True)


# A master must end with the launcher, even if the launcher is killed. Its parent is this script, whose standard input
# is a pipe from the launcher, and closes with it. The script then ends everything in its process group, and removes the
# folder. The shell's own messages are dropped: nobody is left to read them, and a broken pipe would end it too early.
_GUARD: Final = """\
folder=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & master=$!
exec 2>/dev/null
{ read -r _ <&3; kill "$master"; sleep 2; kill -KILL "$master"; } & exec 3<&-
wait "$master"; code=$?
trap '' TERM; kill 0
rm -rf -- "$folder"
exit "$code"
"""


class OwnMaster(Master):
    """A master that we started, and that ends with the launcher."""

    def __init__(self, login: _MasterLogin) -> None:
        self._login = login
        super().__init__(login.socket_path)

    def last_refusal(self) -> str:
        """Return (once) its last message about a refused connection."""
        return self._login.pop_match(NOT_OPENED)

    def close(self) -> None:
        """End it, and everything that runs over it; may be called twice."""
        super().close()
        self._login.end()


class _MasterLogin:
    """An ``ssh`` that logs in, to become a master: the process with its folder, and its messages."""

    def __init__(self, folder: SocketFolder, options: Sequence[str], host: str) -> None:
        self.folder = folder
        self.socket_path = str(folder.path / "ctl")
        # only at DEBUG1 does ssh print which keys it tried, and the host key
        ours = {
            "LogLevel": "DEBUG1",
            "ControlMaster": "yes",
            "ControlPersist": "no",
            "ControlPath": self.socket_path,
            "ServerAliveInterval": str(ALIVE_EVERY),
            "ServerAliveCountMax": str(ALIVE_TRIES),
            "ClearAllForwardings": "yes",
            "ForwardX11": "no",
            "ForwardAgent": "no",
            "PermitLocalCommand": "no",
        }
        command = [ssh_program(), "-N", "-T", *as_options(ours), *options, "--", host]
        askpass_program = folder.write(
            "askpass",
            "#!/bin/sh\nexec "
            + shlex.join([sys.executable, "-I", "-S", askpass.__file__, f"{folder.path}/ask"])
            + ' "$@"',
            0o700,
        )
        environment = {
            **os.environ,
            "SSH_ASKPASS": str(askpass_program),
            "SSH_ASKPASS_REQUIRE": "force",
            # before OpenSSH 8.4, ssh used SSH_ASKPASS only with a display and without a terminal
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
        }
        # a session of its own: Ctrl-C in our terminal must not cut the connection that cancels the job
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "launch-notebook", str(folder.path), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.messages: collections.deque[str] = collections.deque(maxlen=1000)
        self.last = time.monotonic()
        self.authenticating = False
        self._around: list[str] = []
        self._listening = threading.Thread(target=self._listen, name="ssh", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        errors: IO[bytes] = self._guard.stderr  # type: ignore[assignment]
        with errors:
            for line in errors:
                text = line.decode(errors="replace").rstrip()
                self.messages.append(text)
                self.last = time.monotonic()
                self.authenticating |= b"SERVICE_ACCEPT" in line
                if b"debug1: Next authentication method" in line:
                    self._around = []
                elif not DEBUG.match(text):
                    self._around.append(text)

    def around(self) -> list[str]:
        """Return (once) the server's messages that came with its current prompt."""
        around, self._around = self._around, []
        return around

    def pop_match(self, pattern: re.Pattern[str]) -> str:
        """Return (once) the last match in the messages."""
        time.sleep(0.02)  # ssh replies on the socket before it prints the reason
        for line in reversed(list(self.messages)):
            found = pattern.search(line)
            if found:
                with contextlib.suppress(ValueError):
                    self.messages.remove(line)
                return found[1]
        return ""

    def wait(self, asker: askpass.AskpassServer, connect_timeout: float) -> bool:
        """Wait until the master listens, and return whether it does; give up early if the network is silent."""
        while not Path(self.socket_path).exists():
            with Uninterrupted():  # an interrupt could leave Popen's lock locked, and no later wait would return
                has_ended = self._guard.poll() is not None
            if has_ended or asker.declined:
                self._listening.join(1)  # one second only: a jump host's own master may keep the pipe open
                return False
            patience = LOGIN_TIMEOUT if self.authenticating else 2 * connect_timeout
            if not asker.busy and time.monotonic() - max(self.last, asker.last) > patience:
                self.messages.append("it does not answer")
                return False
            time.sleep(0.005)
        return True

    def interrupt(self) -> None:
        """Terminate the process at once; ``end`` does the rest."""
        if self._guard.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGTERM)

    def end(self) -> None:
        """End the process with its children, and remove the folder; may be called twice."""
        with contextlib.suppress(OSError):
            self._guard.stdin.close()  # type: ignore[union-attr]
        try:
            self._guard.wait(3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
        self.folder.remove()


def ssh_program() -> str:
    """Return the path of the system's ``ssh``. Raises ``ConnectionFailed`` if there is none."""
    found = shutil.which("ssh")
    if not found:
        raise ConnectionFailed(
            "There is no ssh program on this machine.", hint="install OpenSSH's client, or take the other SSH engine"
        )
    return found


@functools.cache
def prompts_name_servers() -> bool:
    """Whether ssh puts ``(USER@HOST)`` before a server's prompt, so that it cannot imitate another's: since 8.5."""
    try:
        done = subprocess.run([ssh_program(), "-V"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r"OpenSSH\D*(\d+)\.(\d+)", done.stderr)  # something else may be printed before it
    return version is not None and (int(version[1]), int(version[2])) >= (8, 5)


def as_options(values: dict[str, str]) -> list[str]:
    """Return settings as arguments of ssh."""
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def start_master(
    folder: SocketFolder,
    options: Sequence[str],
    settings: SshSettings,
    prompts: Prompts,
    memory: dict[str, str],
    *,
    asking: bool = True,
    like: str = "",
    like_host: str = "",
) -> OwnMaster:
    """Start a master and return it once it listens. If it fails, it raises as ``OpenSshHost.open``, and cleans up."""
    login = asker = None
    try:
        asker = askpass.AskpassServer(
            str(folder.path / "ask"),
            prompts,
            memory,
            settings.destination,
            like=like,
            like_host=like_host,
            asking=asking,
            on_declined=lambda: login.interrupt() if login else None,
            around=lambda: login.around() if login else [],
            has_jumps=bool(settings.proxy_jump or settings.proxy_command),
            names_servers=prompts_name_servers,
        )
        login = _MasterLogin(folder, options, settings.destination.rpartition("@")[2])
        if not login.wait(asker, settings.connect_timeout):
            raise explained(settings, list(login.messages), asker.declined, nobody_asked=asker.nobody_asked)
        asker.remember()
        return OwnMaster(login)
    except BaseException as error:
        if login:
            login.end()
        folder.remove()
        if isinstance(error, OSError):
            raise ConnectionFailed(f"No connection to {settings.destination} was made.", why=str(error)) from None
        raise
    finally:
        if asker:
            asker.close()
