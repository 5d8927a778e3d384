"""A login node over SSH with the system's ``ssh``: one master process, whose control socket carries everything.

For logins that only OpenSSH supports (Kerberos, security keys, smart cards, an existing master connection). A master
logs in once; every command and connection is a request on its control socket. There are no control sockets on Windows,
but this module must be importable there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionFailed, HostCommandFailed
from notebook_launcher.hosts.algorithms import are_own_ciphers, quickest_first
from notebook_launcher.hosts.base import (
    ByteStream,
    HostRoute,
    LineStream,
    NextHop,
    NoPrompts,
    OnEnd,
    OnLine,
    Prompts,
    Route,
)
from notebook_launcher.hosts.commands import bound_to_stdin, relay_command
from notebook_launcher.hosts.delegated_connection import DelegatedConnection
from notebook_launcher.hosts.framing import Frame, FramedLines, NoFrame, command_line
from notebook_launcher.hosts.login_setup import LoginSetup
from notebook_launcher.hosts.openssh.master import OwnMaster, SocketFolder, as_options, ssh_program, start_master
from notebook_launcher.hosts.openssh.mux import PROHIBITED, Channel, Master, Refused
from notebook_launcher.hosts.output import TooMuchOutput
from notebook_launcher.hosts.paramiko.host_keys import known_keys
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.remote import RemoteHost
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, resolve
from notebook_launcher.hosts.terminal import POLL_EVERY, copy_output, run_in_terminal

OWN_MARKS = ("af21 cs1", "lowdelay throughput")  # the default IPQoS of OpenSSH, and of Debian
SSH_FAILED = 255  # the exit code of an ssh whose connection broke, and of some programs


def live_master(settings: SshSettings) -> str | None:
    """Return the control socket of the user's own master, if one answers on it."""
    path = settings.options.get("controlpath", ("none",))[0]
    if path == "none" or not hasattr(socket, "AF_UNIX"):
        return None
    try:
        Master(path).close()
    except OSError:
        return None
    return path


def _users_master(settings: SshSettings) -> Master | None:
    """Return the user's own master if its connection works: a master with a dead network still answers locally."""
    path = live_master(settings)
    with contextlib.suppress(OSError):
        if path:
            master = Master(path)
            with contextlib.closing(master.session("true", settings.connect_timeout)) as probe:
                probe.settimeout(settings.connect_timeout)
                while probe.recv(4096):
                    pass
            return master
    return None


def _open_master(destination: Destination, settings: SshSettings, prompts: Prompts, memory: dict[str, str]) -> Master:
    users = _users_master(settings)
    if users is not None:
        return users
    options = ["-F", str(Path(destination.config_file).expanduser())] if destination.config_file else []
    options += ["-l", destination.user] if destination.user else []
    options += ["-p", str(destination.port)] if destination.port else []
    values = {"ConnectTimeout": str(max(1, round(settings.connect_timeout)))}
    if settings.strict == "no":  # an unknown key is accepted; a changed one is refused, as always
        values["StrictHostKeyChecking"] = "accept-new"
    if settings.options.get("forkafterauthentication") == ("yes",):
        values["ForkAfterAuthentication"] = "no"
    values |= _quick(settings)
    return start_master(SocketFolder(), [*options, *as_options(values)], settings, prompts, memory)


def _quick(settings: SshSettings) -> dict[str, str]:
    """Return options for a faster connection, for which the user's configuration has no values.

    To ssh, a master is not interactive: by default it marks its packets as bulk data, which wireless networks delay.
    The fastest ciphers are those for which processors have instructions.
    """
    ciphers, marks = (settings.options.get(name, ("",))[0] for name in ("ciphers", "ipqos"))
    values = {"Ciphers": ",".join(quickest_first(ciphers, ciphers.split(",")))} if are_own_ciphers(ciphers) else {}
    return values | ({"IPQoS": marks.split()[0]} if marks in OWN_MARKS else {})


class OpenSshHost(RemoteHost):
    """A login node. ``open`` connects; everything runs over one master, the user's own if there is one."""

    def __init__(
        self,
        master: Master,
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
        self._memory = memory  # the secrets that worked, for the next login
        self._may_forward = True  # until the login node forbids it

    @classmethod
    def open(
        cls, destination: Destination, credentials: Credentials, settings: SshSettings | None = None
    ) -> OpenSshHost:
        """Connect and log in, or use the user's own master. ``settings``: the destination's, if they are known.

        Raises ``ConnectionFailed``, ``HostKeyChanged``, ``HostKeyUnknown`` or ``AuthenticationFailed``.
        """
        settings, memory = settings or resolve(destination), dict[str, str]()
        master = _open_master(destination, settings, credentials.prompts, memory)
        return cls(master, destination, settings, credentials.prompts, memory)

    def _completed(self, line: str, name: str, stdin: bytes, timeout: float) -> CommandResult:
        """Run a line in a session of its own."""
        deadline, master = time.monotonic() + timeout, self._master  # reconnecting may replace it meanwhile
        errors, masters_errors = socket.socketpair()
        with errors:
            with masters_errors:
                channel = self._execute(line, errors=masters_errors.fileno())
            try:
                output, errors_text, code = channel.communicate(stdin, errors, deadline)
            except TimeoutError:
                raise HostCommandFailed(f"{name} did not answer within {timeout:.0f} s on {self.label}.") from None
            except TooMuchOutput as error:
                raise error.as_error(name, self.label) from None
            finally:
                channel.close()
        if code is None and not master.answers():
            raise self._lost()
        return CommandResult(-1 if code is None else code, output, errors_text)

    def _execute(self, line: str, *, errors: int | None = None) -> Channel:
        try:
            return self._master.session(line, self.settings.connect_timeout, errors)
        except OSError as error:
            if self._master.answers():
                if isinstance(error, Refused) and self._make_room():
                    return self._execute(line, errors=errors)
                raise HostCommandFailed(f"{self.label} does not run commands.", why=str(error)) from None
            raise self._lost() from None

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Follow a command in a session of its own."""
        frame = Frame()
        return _SessionStream(self._execute(frame.command_line(argv, login_shell=False)), frame, on_line, on_end)

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Attach the user's terminal to an ``ssh`` that runs over the master."""
        master = self._master
        if not master.answers():
            raise self._lost()
        command = command_line(argv, login_shell=login_shell, setup=self.login_setup)
        client = _client(master, "-tt", "-e", "none", "-o", "LogLevel=ERROR")
        code = run_in_terminal([*client, "--", "login", command], until)
        if code == SSH_FAILED and not master.answers():
            raise self._lost()
        return code

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command in a session of its own, and copy its output."""
        master, frame = self._master, Frame(self.login_setup)
        channel = self._execute(frame.command_line(bound_to_stdin(argv), login_shell=login_shell, end=False), errors=2)
        with contextlib.closing(channel):
            channel.settimeout(POLL_EVERY)
            try:
                cut_off = copy_output(frame, channel.recv, until)
            except NoFrame:
                raise self._silent(frame, "", login_shell=login_shell) from None
            if cut_off is not None:
                return cut_off
            code = channel.exit_code(5.0)
            if code is None and not master.answers():
                raise self._lost()
            return SSH_FAILED if code is None else code

    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        return self._master.connect(address, timeout)

    def delegate(self, local: socket.socket, address: tuple[str, int], timeout: float) -> DelegatedConnection | None:
        """Let the master carry a local connection; ``None`` if the login node forbids that."""
        if self._may_forward:
            with contextlib.suppress(PermissionError):
                return self._master.delegate(local, address, timeout)
            self._may_forward = False
        return None

    def _started(self, line: str) -> ByteStream:
        return self._execute(line)

    def open_route(self, hop: NextHop | None = None) -> Route:
        """Start a second master through this one, or share this one."""
        if hop is None:
            return _LoginRoute(self)
        try:
            return _OpenSshRoute(self._log_in_behind(hop))
        except ConnectionFailed:
            refusal = self._master.last_refusal() if hop.address else ""
            if hop.address is None or not refusal:
                raise
            if PROHIBITED not in refusal:
                what = f"{self.label} makes no connection to {hop.name}."
                raise ConnectionFailed(what, why=refusal) from None
        relay = dataclasses.replace(hop, address=None, command=tuple(relay_command(hop.address)))
        return _OpenSshRoute(self._log_in_behind(relay))

    def _log_in_behind(self, hop: NextHop) -> OwnMaster:
        folder, options, settings = _login_options(self, self._master, hop)
        prompts = self._prompts if hop.key is None else NoPrompts()
        here = self.settings.host_key_alias or self.settings.hostname  # the name in ssh's prompts
        return start_master(
            folder, options, settings, prompts, self._memory, asking=hop.asking, like=self.label, like_host=here
        )

    @property
    def alive(self) -> bool:
        """Whether the master process exists; it ends when its connection breaks."""
        return self._master.answers()

    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Start a new master, and end the old one if it is ours."""
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
        """End the master if it is ours, and with it everything that runs over it."""
        self.end_login_shell()
        self._master.close()


class _LoginRoute(HostRoute):
    """The host's own master."""

    def __init__(self, host: OpenSshHost) -> None:
        super().__init__(host)
        self._login = host

    def delegate(
        self, local: socket.socket, address: tuple[str, int], timeout: float = 20.0
    ) -> DelegatedConnection | None:
        return self._login.delegate(local, address, timeout)


class _SessionStream(LineStream):
    def __init__(self, channel: Channel, frame: Frame, on_line: OnLine, on_end: OnEnd) -> None:
        self._channel, self._frame = channel, frame
        self._closed = False
        threading.Thread(target=self._follow, args=(on_line, on_end), name="watch", daemon=True).start()

    def _follow(self, on_line: OnLine, on_end: OnEnd) -> None:
        reason = "closed"
        lines = FramedLines(self._frame, self._channel.lines())
        try:
            for line in lines:
                if self._closed:
                    return
                on_line(line)
            if lines.exit_code is None:
                self._channel.check_end()
            else:
                reason = f"exit code {lines.exit_code}"
        except OSError as error:
            reason = str(error)
        if not self._closed:
            on_end(reason)

    def close(self) -> None:
        self._closed = True
        self._channel.close()


# --- servers behind the login node --------------------------------------------------------------------------------

# Settings that also apply behind the login node; ssh -G prints them all.
_SAME_BEHIND = (
    "certificatefile",
    "identityagent",
    "pkcs11provider",
    "securitykeyprovider",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",  # its name before 8.5
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hostbasedauthentication",
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
# `read` reads a pipe byte by byte, so that nothing after the line is lost
_FROM_THE_MARK: Final = """\
{{
LC_ALL=C
while IFS= read -r line; do
  case $line in *{mark}) exec cat ;; esac
done
exit 1
}}"""


def _login_options(host: OpenSshHost, through: Master, hop: NextHop) -> tuple[SocketFolder, list[str], SshSettings]:
    """Return the folder, options and settings to log in to a server through a host's master.

    Raises ``ConnectionFailed``.
    """
    settings, label = host.settings, host.label
    if not _PLAIN_NAME.fullmatch(hop.name):
        raise ConnectionFailed(f"“{hop.name}” does not name a server.")
    settings = dataclasses.replace(
        settings,
        destination=hop.name,
        hostname=hop.name,
        port=22,
        host_key_alias=hop.name,
        batch=settings.batch or hop.key is not None,
        proxy_jump=(),
        proxy_command=None,  # the connection goes through the master, where no jump host can show a prompt
    )
    if not through.answers():
        raise ConnectionFailed(f"{label} makes no connection to {hop.name}.", why="the connection to it is lost")
    folder = SocketFolder()
    proxy = folder.write("proxy", f"#!/bin/sh\n{_proxy_command(through, hop, host.login_setup)}\n", 0o700)
    options = [
        *("-F", "none", "-l", settings.user),
        *as_options(
            {
                "ProxyCommand": str(proxy),
                "HostKeyAlias": hop.name,
                "UpdateHostKeys": "no",
                "BatchMode": "yes" if settings.batch else "no",
                "ConnectTimeout": str(max(1, round(settings.connect_timeout))),
                **_quick(settings),
            }
        ),
        *_trusted(folder, settings, hop),
        *_identities(folder, settings, hop),
    ]
    return folder, options, settings


def _client(master: Master, *flags: str) -> list[str]:
    """Return the arguments of an ``ssh`` that uses a master."""
    # without the master, ssh would open a connection of its own; a proxy command that fails prevents that
    control = as_options(
        {
            "ControlPath": master.path.replace("%", "%%"),
            "ControlMaster": "no",
            "ProxyCommand": "false",
            "BatchMode": "yes",
        }
    )
    return [ssh_program(), "-F", "none", *flags, *control]


def _proxy_command(through: Master, hop: NextHop, setup: LoginSetup) -> str:
    """Return a command for sh whose input and output are connected to a server."""
    client = _client(through, "-T")
    if hop.address is None:
        frame = Frame(setup)
        command = [*client, "--", "login", frame.command_line(hop.command, login_shell=True, end=False)]
        # start-up files may print before its output, which an ssh client would take for an SSH server's banner
        return f"{shlex.join(command)} | {_FROM_THE_MARK.format(mark=frame.begins)}"
    host, port = hop.address
    to = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"exec {shlex.join([*client, '-W', to, '--', 'login'])}"


def _trusted(folder: SocketFolder, settings: SshSettings, hop: NextHop) -> list[str]:
    """Return the options for the host keys that the server may have."""
    if hop.host_keys:
        revoked = [f"@revoked {hop.name} {key.kind} {key.encoded}\n" for key in known_keys(settings) if key.marker]
        vouched = [f"{hop.name} {' '.join(key.split()[:2])}\n" for key in hop.host_keys]
        known_hosts = folder.write("known_hosts", "".join([*revoked, *vouched]))
        return as_options(
            {
                "UserKnownHostsFile": str(known_hosts),
                "GlobalKnownHostsFile": "none",
                "StrictHostKeyChecking": "yes",
            }
        )
    strict = {"no": "accept-new"}.get(settings.strict, settings.strict)
    return as_options(
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


def _identities(folder: SocketFolder, settings: SshSettings, hop: NextHop) -> list[str]:
    """Return the options for the keys to offer: the key for this server, or all that are offered to the login node."""
    if hop.key is not None:
        text = hop.key if hop.key.endswith("\n") else f"{hop.key}\n"
        return as_options(
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
    return [*files, *same, *as_options({"IdentitiesOnly": "yes" if settings.identities_only else "no"})]


class _OpenSshRoute(Route):
    """A route over a master of its own."""

    def __init__(self, master: OwnMaster) -> None:
        self._master = master

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return self._master.connect(address, timeout)

    def delegate(self, local: socket.socket, address: tuple[str, int], timeout: float = 20.0) -> DelegatedConnection:
        return self._master.delegate(local, address, timeout)

    @property
    def alive(self) -> bool:
        return self._master.answers()

    def close(self) -> None:
        self._master.close()
