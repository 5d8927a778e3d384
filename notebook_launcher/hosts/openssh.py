"""A login node over SSH by the system's ``ssh``: one master process, whose control socket carries everything.

For logins that only OpenSSH knows (Kerberos, security keys, smart cards, a connection that stands already). A master
logs in once; every command and connection is a request on its control socket, in the protocol that OpenSSH documents
as ``PROTOCOL.mux``. So a command costs no process here, shows in no list of processes, and a connection that is refused
says so. There is no control socket on Windows: nothing here may be needed to import this file there.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from notebook_launcher.answer import Answer
from notebook_launcher.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
)
from notebook_launcher.hosts import askpass
from notebook_launcher.hosts.base import (
    OUTPUT_BEGINS,
    RUN_TIMEOUT,
    ByteStream,
    HostLink,
    LineStream,
    Link,
    Nobody,
    OnEnd,
    OnLine,
    Onward,
    Prompts,
    RemoteHost,
    command_line,
    relay_command,
)
from notebook_launcher.hosts.ssh_auth import Credentials
from notebook_launcher.hosts.ssh_settings import Destination, SshSettings, resolve

ALIVE_EVERY, ALIVE_TRIES = 5, 3  # seconds, times: a dead network is noticed after 15 s
PATIENCE_FOR_ANSWERS = 130.0  # seconds without a sign while logging in; servers themselves give up after 120
_LOCAL_ANSWER = 10.0  # seconds; a master answers from memory within milliseconds


# --- the control socket ------------------------------------------------------------------------------------------

_HELLO, _VERSION = 0x00000001, 4
_NEW_SESSION, _ALIVE_CHECK, _CONNECT = 0x10000002, 0x10000004, 0x10000008
_DENIED, _FAILED, _EXITED, _ALIVE, _OPENED = 0x80000002, 0x80000003, 0x80000004, 0x80000005, 0x80000006
_NO_ESCAPE_CHARACTER = 0xFFFFFFFF


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


def _text(value: str) -> bytes:
    data = os.fsencode(value)
    return _number(len(data)) + data


class _Refused(OSError):
    """The master says no, or the far end does."""


class _Control:
    """One connection to a master's control socket. Raises ``OSError`` where the master is not there or refuses."""

    def __init__(self, path: str, timeout: float = _LOCAL_ANSWER) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            self._send(_number(_HELLO) + _number(_VERSION))
            if self._receive()[:2] != (_HELLO, _VERSION):
                raise OSError("the master speaks another version")
        except BaseException:
            self._socket.close()
            raise

    def request(self, kind: int, body: bytes = b"", descriptors: Sequence[int] = ()) -> int:
        """Ask for something, hand over open files, and return the kind of the answer."""
        self._send(_number(kind) + _number(0) + body)
        for descriptor in descriptors:
            socket.send_fds(self._socket, [b"\0"], [descriptor])
        answer, _, rest = self._receive()
        if answer in (_DENIED, _FAILED):
            raise _Refused(rest[4:].decode(errors="replace").lstrip("\0"))
        return answer

    def exit_code(self, timeout: float) -> int | None:
        """Wait for the exit code of the session; ``None`` where the session has ended without one."""
        self._socket.settimeout(max(timeout, 0.001))
        try:
            while True:
                kind, _, rest = self._receive()
                if kind == _EXITED:
                    return int.from_bytes(rest[:4], "big")
        except ConnectionError:
            return None

    def close(self) -> None:
        self._socket.close()

    def _send(self, packet: bytes) -> None:
        self._socket.sendall(_number(len(packet)) + packet)

    def _receive(self) -> tuple[int, int, bytes]:
        packet = self._exactly(int.from_bytes(self._exactly(4), "big"))
        return int.from_bytes(packet[:4], "big"), int.from_bytes(packet[4:8], "big"), packet[8:]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the ssh master is gone")
            data += part
        return data


class _Master:
    """A master that answers on its control socket. Raises ``OSError`` where none does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._control = _Control(path)
        self._lock = threading.Lock()
        if not self.answers():
            self._control.close()
            raise ConnectionRefusedError("the ssh master does not answer")

    def answers(self) -> bool:
        """Ask whether it lives, without the far end; one that is about to end does not answer."""
        with self._lock, contextlib.suppress(OSError):
            return self._control.request(_ALIVE_CHECK) == _ALIVE
        return False

    def connect(self, address: tuple[str, int], timeout: float) -> _Channel:
        """Have a TCP connection made from the far end.

        Raises ``PermissionError`` where that allows none, else another ``OSError``, with the reason where it is known.
        """
        try:
            return _Channel(self, _CONNECT, _text("") + _text(address[0]) + _number(address[1]), timeout)
        except _Refused as error:
            reason = self.last_refusal() or str(error)
            raise (PermissionError if _PROHIBITED in reason else ConnectionRefusedError)(reason) from None

    def last_refusal(self) -> str:
        """Return why the far end made no connection, where the master tells us."""
        return ""

    def session(self, command: str, timeout: float, errors: int | None = None) -> _Channel:
        """Have a command run at the far end; ``errors``: an open file for its standard error."""
        no_terminal_x11_agent_subsystem = 4 * _number(0)
        request = (
            _text("") + no_terminal_x11_agent_subsystem + _number(_NO_ESCAPE_CHARACTER) + _text("dumb") + _text(command)
        )
        if errors is not None:
            return _Channel(self, _NEW_SESSION, request, timeout, (errors,))
        with Path(os.devnull).open("wb") as nowhere:
            return _Channel(self, _NEW_SESSION, request, timeout, (nowhere.fileno(),))

    def close(self) -> None:
        """Leave it; what runs over it stays."""
        self._control.close()


class _Channel:
    """A command's standard input and output, or a connection, as a ``ByteStream``.

    Two pairs of sockets, one for each direction: of a single one the master could not close half.
    """

    def __init__(
        self, master: _Master, kind: int, request: bytes, timeout: float, more_descriptors: Sequence[int] = ()
    ) -> None:
        self._master = master
        self._control = _Control(master.path, timeout)
        self._input, masters_input = socket.socketpair()
        self._output, masters_output = socket.socketpair()
        self.send, self.sendall = self._input.send, self._input.sendall
        try:
            with masters_input, masters_output:
                descriptors = (masters_input.fileno(), masters_output.fileno(), *more_descriptors)
                if self._control.request(kind, request, descriptors) != _OPENED:
                    raise OSError("the ssh master gave an answer that is none")
        except BaseException:
            self.close()
            raise

    def recv(self, count: int) -> bytes:
        """Return what has come. Raises ``ConnectionResetError`` where the SSH connection broke."""
        data = self._output.recv(count)
        if not data:
            self.check_end()
        return data

    def check_end(self) -> None:
        """Raise ``ConnectionResetError`` where the output has ended because the SSH connection did."""
        if not self._master.answers():
            raise ConnectionResetError("the SSH connection broke")

    def communicate(self, data: bytes, errors: socket.socket, deadline: float) -> tuple[bytes, bytes, int | None]:
        """Give a command its input, and return its outputs and exit code (``None``: it ended without one).

        All at once: a command may fill either output before it has read its input. Raises ``TimeoutError``.
        """
        collected: dict[socket.socket, bytearray] = {self._output: bytearray(), errors: bytearray()}
        rest = memoryview(data)
        with selectors.DefaultSelector() as selector:
            for readable in collected:
                selector.register(readable, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            self._input.setblocking(False)
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if time.monotonic() > deadline:
                    raise TimeoutError
                for key, _ in ready:
                    file: socket.socket = key.fileobj  # type: ignore[assignment]
                    if file is self._input:
                        rest = self._send_some(rest)
                        if not rest:
                            selector.unregister(file)
                    elif part := file.recv(65536):
                        collected[file] += part
                    else:
                        selector.unregister(file)
        code = self._control.exit_code(deadline - time.monotonic())
        return bytes(collected[self._output]), bytes(collected[errors]), code

    def _send_some(self, rest: memoryview) -> memoryview:
        try:
            rest = rest[self._input.send(rest[:65536]) :]
        except BlockingIOError:
            return rest
        except OSError:  # a command that ends without reading its input
            rest = rest[:0]
        if not rest:
            self.shutdown(socket.SHUT_WR)
        return rest

    def lines(self) -> Iterator[str]:
        """Yield the lines of the output, without their ends."""
        with self._output.makefile("rb") as output:
            for line in output:
                yield line.decode(errors="replace").rstrip("\n")

    def shutdown(self, how: int) -> None:
        """End one direction, or both."""
        with contextlib.suppress(OSError):  # it has ended already
            if how != socket.SHUT_RD:
                self._input.shutdown(socket.SHUT_WR)
            if how != socket.SHUT_WR:
                self._output.shutdown(socket.SHUT_RD)

    def settimeout(self, seconds: float | None) -> None:
        """Bound each call in time."""
        self._input.settimeout(seconds)
        self._output.settimeout(seconds)

    def close(self) -> None:
        """Close both directions; the master then closes its end."""
        self.shutdown(socket.SHUT_RDWR)
        for end in (self._input, self._output, self._control):
            end.close()


# --- a master of our own -----------------------------------------------------------------------------------------

_PREFIX = "nl-ssh-"
_STALE = 60.0  # seconds after which a folder that nobody holds is one that was left behind
_LONGEST = 60  # characters; a socket's path may have about 100, and ssh adds 17 to it for a moment
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/+-]+")  # nothing that ssh or a shell would read as more than a name


class _Folder:
    """A folder of ours alone (0700) for sockets. Whoever holds the lock in it lives; the others' are swept away."""

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
        """Remove it with all that is in it; may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _base_for_sockets() -> Path:
    """Return a folder whose name is short and plain, and from which programs may be run. Raises ``ConnectionFailed``.

    The one for temporary files, where it is such a folder.
    """
    for folder in (tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR", ""), "/var/tmp"):  # noqa: S108
        with contextlib.suppress(OSError):
            runs_programs = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
            if len(folder) <= _LONGEST and _PLAIN_PATH.fullmatch(folder) and runs_programs:
                return Path(folder)
    raise ConnectionFailed(
        "There is no folder for the sockets of ssh.", mend="set TMPDIR to a folder with a short, plain name"
    )


def _sweep(base: Path) -> None:
    """Remove the folders of launchers that were killed together with what cleans up after them."""
    import fcntl

    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid != os.getuid() or folder.is_symlink() or time.time() - about.st_mtime < _STALE:
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody holds it
                shutil.rmtree(folder, ignore_errors=True)


# A master must end with us, also when we are killed. Its parent is this script, whose standard input is a pipe from us:
# it ends when we do, whatever way. Then everything in its process group is ended, and the folder removed. What the
# shell itself would say goes nowhere: nobody is left to read it, and that would end it before it is done.
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


class _OwnMaster(_Master):
    """A master that we have started, and that ends with us."""

    def __init__(self, login: _Login) -> None:
        self._login = login
        super().__init__(login.socket_path)

    def last_refusal(self) -> str:
        """Return what it said last about a connection that was refused, and forget it."""
        return self._login.take(_NOT_OPENED)

    def close(self) -> None:
        """End it, and all that runs over it; may be called twice."""
        super().close()
        self._login.end()


class _Login:
    """An ``ssh`` that logs in, to be a master: the process with its folder, and what it says."""

    def __init__(self, folder: _Folder, options: Sequence[str], host: str) -> None:
        self.folder = folder
        self.socket_path = str(folder.path / "ctl")
        # debug1: that alone tells which keys were tried, and the host key that was shown
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
        command = [_program(), "-N", "-T", *_as_options(ours), *options, "--", host]
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
            # before OpenSSH 8.4 it was the display, and no terminal, that made ssh use it
            "DISPLAY": os.environ.get("DISPLAY") or ":0",
        }
        # a session of its own: Ctrl-C in our terminal must not cut the way that ends the job
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "launch-notebook", str(folder.path), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.said: collections.deque[str] = collections.deque(maxlen=1000)
        self.last = time.monotonic()
        self.authenticating = False
        self._around: list[str] = []
        self._listening = threading.Thread(target=self._listen, name="ssh", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        errors: IO[bytes] = self._guard.stderr  # type: ignore[assignment]
        with errors:
            for line in errors:
                words = line.decode(errors="replace").rstrip()
                self.said.append(words)
                self.last = time.monotonic()
                self.authenticating |= b"SERVICE_ACCEPT" in line
                if b"debug1: Next authentication method" in line:
                    self._around = []
                elif not _DEBUG.match(words):
                    self._around.append(words)

    def around(self) -> list[str]:
        """Return (once) what the server has said with the question that it asks now."""
        said, self._around = self._around, []
        return said

    def take(self, pattern: re.Pattern[str]) -> str:
        """Return (once) what matched last in what was said."""
        time.sleep(0.02)  # it answers us before it says why
        for line in reversed(list(self.said)):
            found = pattern.search(line)
            if found:
                with contextlib.suppress(ValueError):
                    self.said.remove(line)
                return found[1]
        return ""

    def wait(self, asker: askpass.Asker, connect_timeout: float) -> bool:
        """Wait until the master listens; return whether it does. A network that is silent is not waited for long."""
        while not Path(self.socket_path).exists():
            if self._guard.poll() is not None or asker.declined:
                self._listening.join(1)  # a second: a jump's own master may keep the other end open
                return False
            patience = PATIENCE_FOR_ANSWERS if self.authenticating else 2 * connect_timeout
            if not asker.busy and time.monotonic() - max(self.last, asker.last) > patience:
                self.said.append("it does not answer")
                return False
            time.sleep(0.005)
        return True

    def interrupt(self) -> None:
        """End the process at once; the rest is ``end``'s."""
        if self._guard.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGTERM)

    def end(self) -> None:
        """End the process with all that it has started, and remove the folder; may be called twice."""
        with contextlib.suppress(OSError):
            self._guard.stdin.close()  # type: ignore[union-attr]
        try:
            self._guard.wait(3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
        self.folder.remove()


def _program() -> str:
    found = shutil.which("ssh")
    if not found:
        raise ConnectionFailed(
            "There is no ssh program on this machine.", mend="install OpenSSH's client, or take the other SSH engine"
        )
    return found


def _as_options(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def _log_in(
    folder: _Folder,
    options: Sequence[str],
    settings: SshSettings,
    prompts: Prompts,
    memory: dict[str, str],
    *,
    asking: bool = True,
    like: str = "",
    like_host: str = "",
) -> _OwnMaster:
    """Start a master and return it once it stands. Raises what opening a host raises; nothing is then left."""
    login = asker = None
    try:
        asker = askpass.Asker(
            str(folder.path / "ask"),
            prompts,
            memory,
            settings.destination,
            like=like,
            like_host=like_host,
            asking=asking,
            on_declined=lambda: login.interrupt() if login else None,
            around=lambda: login.around() if login else [],
        )
        login = _Login(folder, options, settings.destination.rpartition("@")[2])
        if not login.wait(asker, settings.connect_timeout):
            raise _explained(settings, list(login.said), asker.declined)
        asker.remember()
        return _OwnMaster(login)
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


# --- what ssh says -----------------------------------------------------------------------------------------------

_DEBUG = re.compile(r"debug\d: ")
_SHOWN_KEY = re.compile(r"debug1: Server host key: (\S+ \S+)")
_OFFERED = re.compile(r"debug1: (?:Offering public key|Trying private key): (.+?)(?: [A-Z0-9-]+ SHA256:.*)?$")
_METHOD = re.compile(r"debug1: Next authentication method: (\S+)")
_METHODS = {"keyboard-interactive": "questions", "password": "password", "gssapi-with-mic": "Kerberos"}
_OFFENDING = re.compile(r"Offending (\S+) key in (.+):(\d+)")
_NO_NAME = re.compile(r"Could not resolve hostname (\S+): (.+)")
_NO_WAY = re.compile(r"connect to (?:host|address) (\S+) port (\d+): (.+)")
# what ssh says when what leads to the server has ended; why it did was said before
_CONSEQUENCE = re.compile(
    r"kex_exchange_identification|banner exchange|stdio forwarding failed|Connection closed by UNK"
)
_PROHIBITED = "administratively prohibited"
_NOT_OPENED = re.compile(r"channel \d+: open failed: (.+)")
_DENIED_TO = re.compile(r"(?:(\S+)@(\S+): )?Permission denied \(")


def _explained(settings: SshSettings, said: Sequence[str], declined: str = "") -> LauncherError:
    """Return what a login that failed means, from all that ssh said."""
    words = [line for line in said if line and not _DEBUG.match(line)]
    text = "\n".join(words)
    if "IDENTIFICATION HAS CHANGED" in text or "REVOKED HOST KEY" in text or "marked as revoked" in text:
        return _key_changed(settings, said)
    if "Host key verification failed" in text:
        return HostKeyUnknown(
            f"The host key of {settings.known_as} is not known.",
            why=f"It shows {_shown_key(said)}.",
            mend=f"compare it with the cluster's documentation, then connect once with: ssh {settings.destination}",
        )
    denied = next((found for line in words if (found := _DENIED_TO.match(line))), None)
    if declined or denied or "Too many authentication failures" in text:
        return _refused(settings, said, denied, declined)
    return _not_reached(settings, words)


def _shown_key(said: Sequence[str]) -> str:
    return next(
        (found[1] for line in reversed(said) if (found := _SHOWN_KEY.match(line))), "one that ssh does not tell"
    )


def _key_changed(settings: SshSettings, said: Sequence[str]) -> HostKeyChanged:
    offending = next((found for line in said if (found := _OFFENDING.match(line))), None)
    if offending is None:
        return HostKeyChanged(f"The host key of {settings.known_as} is revoked.", why=f"It shows {_shown_key(said)}.")
    kind, file, line = offending.groups()
    return HostKeyChanged(
        f"The host key of {settings.known_as} is not the one that is known: somebody may be listening in. "
        "Nothing was sent.",
        why=f"{file}, line {line} has another {kind} key for it. It shows {_shown_key(said)}.",
        mend=f"If the server was really set up anew, remove that line: ssh-keygen -R '{settings.known_as}'",
    )


def _refused(
    settings: SshSettings, said: Sequence[str], denied: re.Match[str] | None, declined: str
) -> AuthenticationFailed:
    keys = [f"key {found[1]}" for line in said if (found := _OFFERED.match(line)) and Path(found[1]).exists()]
    methods = [_METHODS.get(found[1], "") for line in said if (found := _METHOD.match(line))]
    tried = list(dict.fromkeys([*keys, *filter(None, methods)]))
    user, hostname = denied.groups() if denied and denied[1] else (settings.user, settings.hostname)
    if settings.batch:
        mend = "the ssh configuration says BatchMode yes, so nothing was asked"
    elif "password" in tried:
        mend = "check the user name and the password"
    else:
        mend = f"try: ssh {settings.destination}   (does that get you in? which key or password does it use?)"
    why = f"Tried: {', '.join(tried) or 'nothing that it takes'}."
    if declined:
        why += f" Nobody answered: {declined.strip()}"
    return AuthenticationFailed(f"{hostname} does not let {user} in.", why=why, mend=mend)


def _not_reached(settings: SshSettings, words: Sequence[str]) -> ConnectionFailed:
    text = "\n".join(words)
    why = next((line for line in reversed(words) if not _CONSEQUENCE.match(line)), words[-1] if words else "")
    if unknown := _NO_NAME.search(text):
        return ConnectionFailed(
            f"The name {unknown[1]} is not known.",
            why=unknown[2],
            mend="is it spelled right, and is there a network (or a VPN to be switched on)?",
        )
    if closed := _NO_WAY.search(text):
        return ConnectionFailed(
            f"{closed[1]} port {closed[2]} cannot be reached.",
            why=closed[3],
            mend="is there a network (or a VPN to be switched on)? is the port right?",
        )
    if behind := _NOT_OPENED.search(text):
        return ConnectionFailed(f"{settings.destination} cannot be reached.", why=behind[1])
    if "onfiguration option" in text or "Bad owner or permissions" in text:
        return ConnectionFailed(f"The ssh configuration for {settings.destination} cannot be read.", why=why)
    return ConnectionFailed(f"{settings.destination} does not speak SSH with us.", why=why)


# --- the host ----------------------------------------------------------------------------------------------------


def live_master(settings: SshSettings) -> str | None:
    """Return the control socket of a master that the user has, where one answers on it."""
    path = settings.options.get("controlpath", ("none",))[0]
    if path == "none" or not hasattr(socket, "AF_UNIX"):
        return None
    try:
        _Master(path).close()
    except OSError:
        return None
    return path


def _users_master(settings: SshSettings) -> _Master | None:
    """Return the user's own master where it leads somewhere: one whose network has died still answers here."""
    path = live_master(settings)
    with contextlib.suppress(OSError):
        if path:
            master = _Master(path)
            with contextlib.closing(master.session("true", settings.connect_timeout)) as probe:
                probe.settimeout(settings.connect_timeout)
                while probe.recv(4096):
                    pass
            return master
    return None


def _open_master(destination: Destination, settings: SshSettings, prompts: Prompts, memory: dict[str, str]) -> _Master:
    users = _users_master(settings)
    if users is not None:
        return users
    options = ["-F", str(Path(destination.config_file).expanduser())] if destination.config_file else []
    options += ["-l", destination.user] if destination.user else []
    options += ["-p", str(destination.port)] if destination.port else []
    values = {"ConnectTimeout": str(max(1, round(settings.connect_timeout)))}
    if settings.strict == "no":  # an unknown key is taken; a changed one is refused, here as everywhere
        values["StrictHostKeyChecking"] = "accept-new"
    if settings.options.get("forkafterauthentication") == ("yes",):
        values["ForkAfterAuthentication"] = "no"
    return _log_in(_Folder(), [*options, *_as_options(values)], settings, prompts, memory)


class OpenSshHost(RemoteHost):
    """A login node. Made connected by ``open``; everything runs over one master, the user's own where one lives."""

    def __init__(
        self,
        master: _Master,
        destination: Destination,
        settings: SshSettings,
        prompts: Prompts,
        memory: dict[str, str],
    ) -> None:
        super().__init__()
        self.settings = settings
        self.label = settings.destination
        self._master = master
        self._destination = destination
        self._prompts = prompts
        self._memory = memory  # the secrets that opened a door, for the next time

    @classmethod
    def open(cls, destination: Destination, credentials: Credentials) -> OpenSshHost:
        """Connect and log in, or take the user's own master.

        Raises ``ConnectionFailed``, ``HostKeyChanged``, ``HostKeyUnknown`` or ``AuthenticationFailed``.
        """
        settings, memory = resolve(destination), dict[str, str]()
        master = _open_master(destination, settings, credentials.prompts, memory)
        return cls(master, destination, settings, credentials.prompts, memory)

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> Answer:
        """Run a command in a session of its own."""
        deadline, master = time.monotonic() + timeout, self._master  # there may be another one afterwards
        errors, masters_errors = socket.socketpair()
        with errors:
            with masters_errors:
                channel = self._execute(argv, login_shell=login_shell, errors=masters_errors.fileno())
            try:
                output, said, code = channel.communicate(stdin, errors, deadline)
            except TimeoutError:
                raise HostCommandFailed(f"{argv[0]} did not answer within {timeout:.0f} s on {self.label}.") from None
            finally:
                channel.close()
        if code is None and not master.answers():
            raise self._lost()
        text = output.decode(errors="replace").partition(f"{OUTPUT_BEGINS}\n")[2]
        return Answer(-1 if code is None else code, text, said.decode(errors="replace"))

    def _execute(self, argv: Sequence[str], *, login_shell: bool, errors: int | None = None) -> _Channel:
        try:
            command = command_line(argv, login_shell=login_shell)
            return self._master.session(command, self.settings.connect_timeout, errors)
        except OSError as error:
            if self._master.answers():
                raise HostCommandFailed(f"{self.label} runs no command for us.", why=str(error)) from None
            raise self._lost() from None

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Follow a command in a session of its own."""
        return _SessionStream(self._execute(argv, login_shell=False), on_line, on_end)

    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        return self._master.connect(address, timeout)

    def _started(self, argv: Sequence[str], *, login_shell: bool) -> ByteStream:
        return self._execute(argv, login_shell=login_shell)

    def link(self, onward: Onward | None = None) -> Link:
        """Make a second master through this one, or lend this one."""
        if onward is None:
            return HostLink(self)
        try:
            return _OpenSshLink(self._log_in_onward(onward))
        except ConnectionFailed:
            refusal = self._master.last_refusal() if onward.address else ""
            if onward.address is None or not refusal:
                raise
            if _PROHIBITED not in refusal:
                what = f"{self.label} makes no connection to {onward.name}."
                raise ConnectionFailed(what, why=refusal) from None
        relay = dataclasses.replace(onward, address=None, command=tuple(relay_command(onward.address)))
        return _OpenSshLink(self._log_in_onward(relay))

    def _log_in_onward(self, onward: Onward) -> _OwnMaster:
        folder, options, settings = _way_onward(self._master, self.settings, onward, self.label)
        prompts = self._prompts if onward.key is None else Nobody()
        here = self.settings.host_key_alias or self.settings.hostname  # as ssh names it in its questions
        return _log_in(
            folder, options, settings, prompts, self._memory, asking=onward.asking, like=self.label, like_host=here
        )

    @property
    def alive(self) -> bool:
        """Whether the master is there; it leaves when its connection breaks."""
        return self._master.answers()

    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Start one more master, and end the old one where it is ours."""
        self.settings = resolve(self._destination)
        settings = dataclasses.replace(self.settings, connect_timeout=min(timeout, self.settings.connect_timeout))
        new = _open_master(self._destination, settings, self._prompts, self._memory)
        if not replace():
            new.close()
            return False
        old, self._master = self._master, new
        old.close()
        return True

    def close(self) -> None:
        """End the master where it is ours, and with it all that runs over it."""
        self._master.close()


class _SessionStream(LineStream):
    def __init__(self, channel: _Channel, on_line: OnLine, on_end: OnEnd) -> None:
        self._channel = channel
        self._closed = False
        threading.Thread(target=self._follow, args=(on_line, on_end), name="watch", daemon=True).start()

    def _follow(self, on_line: OnLine, on_end: OnEnd) -> None:
        reason = "closed"
        begun = False
        try:
            for line in self._channel.lines():
                if self._closed:
                    return
                if begun:
                    on_line(line)
                begun = begun or line.endswith(OUTPUT_BEGINS)  # before it: what the shell's start-up files say
            self._channel.check_end()
        except OSError as error:
            reason = str(error)
        if not self._closed:
            on_end(reason)

    def send(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._channel.sendall((line + "\n").encode())

    def close(self) -> None:
        self._closed = True
        self._channel.close()


# --- onward ------------------------------------------------------------------------------------------------------

# What of the way to the login node holds behind it as well; ssh -G names them all.
_SAME_BEHIND = (
    "certificatefile",
    "identityagent",
    "pkcs11provider",
    "securitykeyprovider",
    "pubkeyacceptedalgorithms",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hostbasedauthentication",
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
# `read` takes byte for byte from a pipe, so that nothing of what follows is lost
_FROM_THE_MARK: Final = f"""\
{{
LC_ALL=C
while IFS= read -r line; do
  case $line in *{OUTPUT_BEGINS}) exec cat ;; esac
done
exit 1
}}"""


def _way_onward(
    through: _Master, settings: SshSettings, onward: Onward, label: str
) -> tuple[_Folder, list[str], SshSettings]:
    """Return with what to log in at a server behind the one that a master leads to. Raises ``ConnectionFailed``."""
    if not _PLAIN_NAME.fullmatch(onward.name):
        raise ConnectionFailed(f"“{onward.name}” does not name a server.")
    settings = dataclasses.replace(
        settings,
        destination=onward.name,
        hostname=onward.name,
        port=22,
        host_key_alias=onward.name,
        batch=settings.batch or onward.key is not None,
    )
    if not through.answers():
        raise ConnectionFailed(f"{label} makes no connection to {onward.name}.", why="the connection to it is lost")
    folder = _Folder()
    way = shlex.join(_way(through, onward))
    # a command's output begins with what shells say, which an ssh client takes for a server that talks nonsense
    text = f"exec {way}" if onward.address is not None else f"{way} | {_FROM_THE_MARK}"
    proxy = folder.write("proxy", f"#!/bin/sh\n{text}\n", 0o700)
    options = [
        *("-F", "none", "-l", settings.user),
        *_as_options(
            {
                "ProxyCommand": str(proxy),
                "HostKeyAlias": onward.name,
                "UpdateHostKeys": "no",
                "BatchMode": "yes" if settings.batch else "no",
                "ConnectTimeout": str(max(1, round(settings.connect_timeout))),
            }
        ),
        *_trusted(folder, settings, onward),
        *_identities(folder, settings, onward),
    ]
    return folder, options, settings


def _way(through: _Master, onward: Onward) -> list[str]:
    """Return the command whose input and output lead to a server."""
    # without its master ssh would make a connection of its own: the command that fails is in its place
    control = _as_options(
        {
            "ControlPath": through.path.replace("%", "%%"),
            "ControlMaster": "no",
            "ProxyCommand": "false",
            "BatchMode": "yes",
        }
    )
    client = [_program(), "-F", "none", "-T", *control]
    if onward.address is None:
        return [*client, "--", "login", command_line(onward.command, login_shell=True)]
    host, port = onward.address
    return [*client, "-W", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "--", "login"]


def _trusted(folder: _Folder, settings: SshSettings, onward: Onward) -> list[str]:
    """Return options that say which host keys the server may show."""
    if onward.host_keys:
        lines = "".join(f"{onward.name} {' '.join(key.split()[:2])}\n" for key in onward.host_keys)
        known_hosts = folder.write("known_hosts", lines)
        return _as_options(
            {
                "UserKnownHostsFile": str(known_hosts),
                "GlobalKnownHostsFile": "none",
                "StrictHostKeyChecking": "yes",
            }
        )
    strict = {"no": "accept-new"}.get(settings.strict, settings.strict)
    return _as_options(
        {
            "UserKnownHostsFile": _quoted(settings.user_known_hosts),
            "GlobalKnownHostsFile": _quoted(settings.system_known_hosts),
            "StrictHostKeyChecking": strict,
        }
    )


def _quoted(paths: Sequence[Path]) -> str:
    return " ".join(f'"{_literally(path)}"' for path in paths) or "none"


def _literally(path: Path) -> str:
    return str(path).replace("%", "%%")


def _identities(folder: _Folder, settings: SshSettings, onward: Onward) -> list[str]:
    """Return options that say with what we get in: the key for this server, or all that opened the login node."""
    if onward.key is not None:
        text = onward.key if onward.key.endswith("\n") else f"{onward.key}\n"
        return _as_options(
            {
                "IdentityFile": str(folder.write("key", text)),
                "IdentitiesOnly": "yes",
                "IdentityAgent": "none",
                "PreferredAuthentications": "publickey",
            }
        )
    files = [word for path in settings.identity_files for word in ("-o", f"IdentityFile={_literally(path)}")]
    same = [
        word for name in _SAME_BEHIND for value in settings.options.get(name, ()) for word in ("-o", f"{name}={value}")
    ]
    return [*files, *same, *_as_options({"IdentitiesOnly": "yes" if settings.identities_only else "no"})]


class _OpenSshLink(Link):
    """A master of its own."""

    def __init__(self, master: _OwnMaster) -> None:
        self._master = master

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return self._master.connect(address, timeout)

    @property
    def alive(self) -> bool:
        return self._master.answers()

    def close(self) -> None:
        self._master.close()
