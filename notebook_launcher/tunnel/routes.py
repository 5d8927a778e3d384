"""The ways to a compute node: what differs is only the byte stream over which an SSH connection *to the node* is made.

``node-ssh``  the node's own SSH server, for sites that let you in where you have a job;
``step``      an SSH server of our own inside the job, on the standard input and output of a job step: no port, and no
              permission is needed;
``job-sshd``  an SSH server of our own that the job has started on a port of the node;
``direct``    none: Jupyter listens on the node's own address, where everybody on the cluster reaches it. Only on wish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostCommandFailed,
    HostKeyUnknown,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.hosts.base import Host, Link, Onward
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.session.record import Session
from notebook_launcher.session.session_keys import SessionKeys

MEMORY = "streams"  # where this machine keeps what worked last, by cluster


# what speaks against one way, and not against the next; OSError: a full folder for temporary files, for example
_FAILURES = (
    NodeUnreachable,
    ConnectionFailed,
    AuthenticationFailed,
    HostKeyUnknown,
    HostCommandFailed,
    OSError,
)


@dataclass(frozen=True)
class Node:
    """The compute node, as the job describes it.

    ``names``: the best first. ``host_keys``: of its own SSH server. ``ssh_port``: where the job's SSH server listens.
    """

    names: tuple[str, ...]
    host_keys: tuple[str, ...] = ()
    ssh_port: int | None = None

    @classmethod
    def from_started(cls, started: Mapping[str, object]) -> Node:
        """Read ``started.json``; damaged parts count as absent."""
        names = [name for name in _strings(started.get("node_names")) if _is_host_name(name)]
        return cls(tuple(names), tuple(_strings(started.get("host_keys"))), _port(started.get("ssh_port")))

    def __str__(self) -> str:
        return self.names[0] if self.names else "the node"


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_host_name(name: str) -> bool:
    return bool(name) and not name.startswith("-") and all(c.isalnum() or c in ".-_" for c in name)


def _port(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536 else None


@dataclass(frozen=True)
class Crossing:
    """All that a way needs: from which host, to which node, for which session. ``keys`` are made when first needed."""

    host: Host
    scheduler: Scheduler
    session: Session
    job: JobRef
    node: Node
    keys: Callable[[], SessionKeys]


def find_way(crossing: Crossing, stream: str, about: str) -> tuple[str, Link]:
    """Return a link to the node and the name of the stream that it runs over.

    ``stream``: one of ``STREAMS``, ``direct``, or ``auto``: what worked last for ``about`` (a cluster), then each in
    order; the user is asked for a secret only when nothing works without. Raises ``NodeUnreachable`` with all that was
    tried, ``HostKeyChanged`` where the node is not the job's.
    """
    if crossing.scheduler.same_machine or stream == "direct":
        return "direct", crossing.host.link()
    tried: list[str] = []
    attempts = _attempts(stream, about)
    for name, asking in attempts:
        try:
            link = STREAMS[name](crossing, asking)
        except _FAILURES as error:
            tried.append(_told(name, error))
            if not asking and isinstance(error, AuthenticationFailed | HostKeyUnknown):
                attempts.append((name, True))
        else:
            state.remember(MEMORY, about, name)
            return name, link
    raise NodeUnreachable(
        f"No way to {crossing.node} was found from {crossing.host.label}.",
        why=" ".join(dict.fromkeys(tried)),
        mend="does this site let you ssh to a node where your job runs? its documentation tells. "
        "Where nothing else works: --stream direct, which opens Jupyter's port to everybody on the cluster",
    )


def _attempts(stream: str, about: str) -> list[tuple[str, bool]]:
    if stream != "auto":
        return [(stream, True)]
    last = state.remembered(MEMORY, about)
    return [(name, False) for name in sorted(STREAMS, key=lambda name: name != last)]


def told_of(about: str) -> str:
    """Return in words what this machine remembers of the way to a cluster's nodes."""
    last = state.remembered(MEMORY, about)
    return f"{last} worked last" if last else "none was used from here yet"


def may_need_sshd(stream: str, about: str) -> bool:
    """Return whether a job should start an SSH server of its own: where it is asked for, or nothing else has worked."""
    return stream == "job-sshd" or (stream == "auto" and state.remembered(MEMORY, about) in (None, "job-sshd"))


def _told(name: str, error: LauncherError | OSError) -> str:
    said = f"{error.what} {error.why}" if isinstance(error, LauncherError) else str(error)
    return f"{name}: {said}".strip()


def _node_ssh(crossing: Crossing, asking: bool) -> Link:
    """SSH to the node's own server, as we got in at the login node."""
    return _to_port(crossing, 22, crossing.node.host_keys, None, asking)


def _step(crossing: Crossing, asking: bool) -> Link:
    """SSH to a server of our own in a job step."""
    directory = crossing.session.directory
    command = crossing.scheduler.step(crossing.job, ["bash", f"{directory}/sshd.sh", "step", directory])
    if command is None:
        raise NodeUnreachable(f"The scheduler {crossing.scheduler.name} has no job steps.")
    keys = crossing.keys()
    onward = Onward(str(crossing.node), None, tuple(command), (keys.host,), keys.client, asking)
    return crossing.host.link(onward)


def _job_sshd(crossing: Crossing, asking: bool) -> Link:
    """SSH to the server that the job has started."""
    if crossing.node.ssh_port is None:
        raise NodeUnreachable("The job has started no SSH server.")
    keys = crossing.keys()
    return _to_port(crossing, crossing.node.ssh_port, (keys.host,), keys.client, asking)


def _to_port(crossing: Crossing, port: int, host_keys: tuple[str, ...], key: str | None, asking: bool) -> Link:
    """Try the node's names one after the other: not every login node knows every one of them."""
    problems = []
    for name in crossing.node.names:
        try:
            return crossing.host.link(Onward(name, (name, port), (), host_keys, key, asking))
        except ConnectionFailed as error:
            problems.append(f"{error.what} {error.why}".strip())
    raise NodeUnreachable(f"Its port {port} cannot be reached.", why=" ".join(problems) or "It told no name.")


#: the ways to a node, in the order in which ``auto`` tries them
STREAMS: dict[str, Callable[[Crossing, bool], Link]] = {"node-ssh": _node_ssh, "step": _step, "job-sshd": _job_sshd}
