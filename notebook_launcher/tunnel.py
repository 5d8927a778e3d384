"""The tunnel: a port on this machine that leads to Jupyter's port on the compute node's 127.0.0.1.

What differs from site to site is only the byte stream over which an SSH connection *to the node* is made (``STREAMS``);
the forwarding on top is the same. Where the job runs on the very host that we are connected to, none is needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from notebook_launcher.errors import ConnectionFailed, JupyterSilent, LauncherError, NodeUnreachable
from notebook_launcher.hosts.base import ByteStream, Host, Prompts

if TYPE_CHECKING:
    import paramiko


@dataclass(frozen=True)
class Node:
    """The compute node, as the job describes it: its names, the best first, and its SSH host keys."""

    names: tuple[str, ...]
    host_keys: tuple[str, ...] = ()

    @classmethod
    def from_started(cls, started: Mapping[str, object]) -> Node:
        """Read ``started.json``; damaged parts count as absent."""
        names = [name for name in _strings(started.get("node_names")) if _is_host_name(name)]
        return cls(tuple(names), tuple(_strings(started.get("host_keys"))))

    def __str__(self) -> str:
        return self.names[0] if self.names else "the node"


@dataclass(frozen=True)
class Endpoint:
    """Where Jupyter listens: a port on the node's 127.0.0.1, and the path that its URLs begin with."""

    port: int
    base_url: str = "/"
    secure: bool = False

    @classmethod
    def from_file(cls, data: Mapping[str, object]) -> Endpoint:
        """Read ``endpoint.json``. Raises ``JupyterSilent`` where it holds no port."""
        port = data.get("port")
        if not isinstance(port, int) or not 0 < port < 65536:
            raise JupyterSilent("The port file of the session holds no port.", why=json.dumps(dict(data))[:200])
        return cls(port, str(data.get("base_url") or "/"), data.get("secure") is True)

    def url(self, local_port: int, token: str) -> str:
        """Return the address for the browser."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://127.0.0.1:{local_port}{self.base_url}lab?token={quote(token, safe='')}"


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_host_name(name: str) -> bool:
    return bool(name) and not name.startswith("-") and all(c.isalnum() or c in ".-_" for c in name)


class Tunnel(ABC):
    """A way to a session's node. Made early, while Jupyter still starts; ``forward`` opens ports on it."""

    @abstractmethod
    def forward(self, port: int) -> int:
        """Open a port here that leads to a port of the node's 127.0.0.1, and return its number."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether bytes can still pass."""

    @abstractmethod
    def close(self) -> None:
        """Close every port and connection; may be called twice."""


class NoTunnel(Tunnel):
    """The job runs on this very machine: its port is our port."""

    alive = True

    def forward(self, port: int) -> int:
        """Return the port itself."""
        return port

    def close(self) -> None:
        """Nothing was opened."""


class SshTunnel(Tunnel):
    """Ports forwarded by sshtunnel over a transport that is authenticated already."""

    def __init__(self, transport: paramiko.Transport, *, owned: bool) -> None:
        self._transport = transport
        self._owned = owned
        self._forwarders: list[Any] = []

    def forward(self, port: int) -> int:
        """Open a free port of 127.0.0.1; the system chooses it, so that sessions never clash."""
        forwarder = _forwarder(self._transport, port)
        try:
            forwarder.start()
        except Exception as error:  # sshtunnel's own family has no common base worth naming
            raise NodeUnreachable("The tunnel's local port could not be opened.", why=str(error)) from None
        self._forwarders.append(forwarder)
        return int(forwarder.local_bind_port)

    @property
    def alive(self) -> bool:
        """Whether the transport is."""
        return self._transport.is_active()

    def close(self) -> None:
        """Close the ports, and the transport where it is ours alone."""
        while self._forwarders:
            with contextlib.suppress(Exception):
                self._forwarders.pop().stop_forwarding()
        if self._owned:
            self._transport.close()


def _forwarder(transport: paramiko.Transport, port: int) -> Any:
    import logging

    import sshtunnel

    class Forwarder(sshtunnel.SSHTunnelForwarder):  # type: ignore[misc]
        """sshtunnel on a transport that exists: it would log in by itself, and ask for a second factor again."""

        daemon_forward_servers = True
        daemon_transport = True
        _server_list: list[Any]

        def _connect_to_gateway(self) -> None:
            self._transport = transport

        def stop_forwarding(self) -> None:
            """Close the listening port and leave the transport, which others use."""
            for server in self._server_list:
                server.shutdown()
                server.server_close()
            self.is_alive = False
            del self._server_list[:], self._transport

        def __del__(self) -> None:
            pass  # the base class would close the transport

    return Forwarder(
        ("127.0.0.1", 22),  # not connected to: the transport is there
        ssh_config_file=None,
        ssh_username="-",
        ssh_password="-",  # noqa: S106
        allow_agent=False,
        host_pkey_directories=[],
        local_bind_address=("127.0.0.1", 0),
        remote_bind_address=("127.0.0.1", port),
        set_keepalive=0,
        logger=logging.getLogger("sshtunnel"),
    )


def open_tunnel(host: Host, node: Node, *, same_machine: bool, stream: str, prompts: Prompts) -> Tunnel:
    """Return a way to the node where the job runs.

    ``same_machine``: the job runs on ``host`` itself. ``stream``: a name in ``STREAMS``, or ``auto``. Raises
    ``NodeUnreachable`` with every way that was tried, ``HostKeyChanged`` where the node is not the job's.
    """
    if same_machine and not host.remote:
        return NoTunnel()
    if same_machine:
        return SshTunnel(host.transport, owned=False)  # type: ignore[attr-defined]
    tried = []
    for name in STREAMS if stream == "auto" else (stream,):
        try:
            return SshTunnel(STREAMS[name](host, node, prompts), owned=True)
        except (NodeUnreachable, ConnectionFailed) as error:
            tried.append(f"{name}: {error.what} {error.why}".strip())
    raise NodeUnreachable(
        f"No way to {node} was found from {host.label}.",
        why=" ".join(tried),
        mend="does this site let you ssh to a node where your job runs? its documentation tells",
    )


def _node_ssh(host: Host, node: Node, prompts: Prompts) -> paramiko.Transport:
    """SSH to the node's own server, through ``host``: for sites that let you in where you have a job."""
    from notebook_launcher.errors import AuthenticationFailed
    from notebook_launcher.hosts.paramiko import ParamikoHost, connect
    from notebook_launcher.hosts.ssh_auth import Credentials
    from notebook_launcher.hosts.ssh_settings import Destination, resolve

    name, byte_stream = _first_open(host, node.names)
    if isinstance(host, ParamikoHost):
        # the same user and keys as on the login node; its name there is not one that our ssh_config knows
        settings = dataclasses.replace(
            host.settings,
            destination=name,
            hostname=name,
            port=22,
            host_key_alias=None,
            proxy_jump=(),
            proxy_command=None,
        )
        credentials = host.credentials
    else:
        settings, credentials = resolve(Destination(name)), Credentials(prompts)
    try:
        return connect(settings, credentials, byte_stream, node.host_keys)
    except AuthenticationFailed as error:
        raise NodeUnreachable(error.what, why=error.why) from None


def _first_open(host: Host, names: Sequence[str]) -> tuple[str, ByteStream]:
    problems = []
    for name in names:
        try:
            return name, host.open_stream((name, 22))
        except OSError as error:
            problems.append(f"{name}: {error}")
    raise NodeUnreachable("The node's ssh port cannot be reached.", why="; ".join(problems) or "it told no name")


#: the ways to a node, in the order in which ``auto`` tries them
STREAMS = {"node-ssh": _node_ssh}


def check_jupyter(local_port: int, endpoint: Endpoint, token: str, patience: float = 20.0) -> None:
    """Ask Jupyter for its status through the tunnel until it answers, at most ``patience`` seconds.

    Raises ``JupyterSilent`` where it does not, or refuses our token.
    """
    import http.client

    deadline = time.monotonic() + patience
    pause = 0.01
    while True:
        try:
            status = _status(local_port, endpoint, token)
        except (OSError, http.client.HTTPException) as error:
            problem: LauncherError = JupyterSilent(
                "JupyterLab runs, but does not answer through the tunnel.", why=repr(error)
            )
        else:
            if status == 200:
                return
            problem = JupyterSilent(
                f"What listens on the session's port answers {status} and not as our JupyterLab would.",
                mend="another program may have taken the port; start again",
            )
            if status in (401, 403):
                raise problem
        if time.monotonic() > deadline:
            raise problem
        time.sleep(pause)  # Jupyter writes its port file about 10 ms before it answers
        pause = min(2 * pause, 0.5)


def _status(port: int, endpoint: Endpoint, token: str) -> int:
    import http.client

    if endpoint.secure:
        import ssl

        # the certificate is for the node's public name; the way there is our own tunnel
        context = ssl._create_unverified_context()  # noqa: S323
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=5, context=context
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", f"{endpoint.base_url}api/status", headers={"Authorization": f"token {token}"})
        return connection.getresponse().status
