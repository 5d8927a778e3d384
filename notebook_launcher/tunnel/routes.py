"""The routes to a compute node. They differ in how the SSH connection *to the node* is carried.

``node-ssh``  the node's own SSH server, for sites that let users in where they have a job;
``step``      an SSH server of our own inside the job, on the standard input and output of a job step: needs neither a
              port nor a permission;
``reverse``   the same server, behind an SSH connection that the job itself makes to the login node: needs no port, and
              no connections to the node;
``job-sshd``  an SSH server of our own that the job has started on a port of the node;
``direct``    none: Jupyter listens on the node's own address, where everybody on the cluster can reach it. Only on
              request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from notebook_launcher.core import local_state
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostCommandFailed,
    HostKeyUnknown,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import Host, NextHop, Route
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.session.credentials import SessionKeys
from notebook_launcher.session.record import Session
from notebook_launcher.tunnel.calls import call_job, expect_no_calls, join_command

LAST_ROUTES = "routes"  # the file with the routes that last worked from this machine, by cluster

# errors that rule out one route, but not the next; OSError: a full folder for temporary files, for example
_FAILURES = (
    NodeUnreachable,
    ConnectionFailed,
    AuthenticationFailed,
    HostKeyUnknown,
    HostCommandFailed,
    OSError,
)


class JobNode(Frozen):
    """The compute node, as the job describes it.

    ``names``: the node's, the best first. ``host_keys``: of its own SSH server. ``ssh_port``: of the job's SSH server.
    """

    names: tuple[str, ...]
    host_keys: tuple[str, ...] = ()
    ssh_port: int | None = None

    @classmethod
    def from_started(cls, started: Mapping[str, object]) -> JobNode:
        """Parse ``started.json``; damaged values count as missing."""
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


class NodeTarget(Frozen):
    """The node to reach: from which host, for which session and job. ``keys``: makes the keys when first called."""

    host: Host
    scheduler: Scheduler
    session: Session
    job: JobRef
    node: JobNode
    keys: Callable[[], SessionKeys]


def find_route(
    target: NodeTarget,
    wanted: str,
    cluster: str,
    *,
    asks: bool = True,
    ends_calls: bool = False,
    trying: Callable[[str], None] = lambda _name: None,
) -> tuple[str, Route]:
    """Return the name of an open route to the node, and the route.

    ``wanted``: one of ``ROUTES``, ``direct``, or ``auto``: the route that last worked for ``cluster``, then the others
    in order; the user is asked for a secret only if nothing works without one, and never without ``asks``. ``trying``
    is called with the name of each route before it is tried, with "" if the user may be asked. ``ends_calls``: if
    ``auto`` finds another route for a job that waits for calls, the job stops waiting for them; only for a launcher
    that knows that no other one has reached the job by a call. Raises ``NodeUnreachable`` with all attempts, and
    ``HostKeyChanged`` if the node is not the job's.
    """
    if target.scheduler.same_machine or wanted == "direct":
        return "direct", target.host.open_route()
    tried: list[str] = []
    hint = (
        "see in your site's documentation whether you may ssh to a node where your job runs. "
        "If nothing else works: --route direct, which opens Jupyter's port to everybody on the cluster"
    )
    attempts = [(name, asking and asks) for name, asking in _attempts(wanted, cluster)]
    for name, asking in attempts:
        trying("" if asking and name == "node-ssh" else name)
        try:
            route = ROUTES[name](target, asking)
        except _FAILURES as error:
            tried.append(_described(name, error))
            if name == wanted == "reverse" and isinstance(error, NodeUnreachable):
                hint = error.hint
            if asks and not asking and isinstance(error, AuthenticationFailed | HostKeyUnknown):
                attempts.append((name, True))
        else:
            if ends_calls and wanted == "auto" and name != "reverse" and may_need_call(wanted, cluster):
                expect_no_calls(target.host, target.session.directory)
            local_state.remember(LAST_ROUTES, cluster, name)
            return name, route
    raise NodeUnreachable(
        f"No route to {target.node} was found from {target.host.label}.",
        why=" ".join(dict.fromkeys(tried)),
        hint=hint,
    )


def _attempts(wanted: str, cluster: str) -> list[tuple[str, bool]]:
    if wanted != "auto":
        return [(wanted, True)]
    last = local_state.remembered(LAST_ROUTES, cluster)
    return [(name, False) for name in sorted(ROUTES, key=lambda name: name != last)]


def last_route(cluster: str) -> str:
    """Return a phrase on the route to a cluster's nodes that last worked from this machine."""
    last = local_state.remembered(LAST_ROUTES, cluster)
    return f"{last} worked last" if last else "none was used from here yet"


def wanted_route(session: Session, of_profile: str) -> str:
    """Return the route to a session's node: the profile's, unless JupyterLab was started for ``direct``."""
    return "direct" if session.record.route == "direct" else of_profile


def may_need_sshd(route: str, cluster: str) -> bool:
    """Return whether a job should start an SSH server: if the route needs one, or if no other is known to work."""
    return route == "job-sshd" or (
        route == "auto" and local_state.remembered(LAST_ROUTES, cluster) in (None, "job-sshd")
    )


def may_need_call(route: str, cluster: str) -> bool:
    """Return whether a job should wait for calls from a login node, for the same reasons as ``may_need_sshd``."""
    return route == "reverse" or (route == "auto" and local_state.remembered(LAST_ROUTES, cluster) in (None, "reverse"))


def _described(name: str, error: LauncherError | OSError) -> str:
    text = f"{error.what} {error.why}" if isinstance(error, LauncherError) else str(error)
    return f"{name}: {text}".strip()


def _node_ssh(target: NodeTarget, asking: bool) -> Route:
    """Open SSH to the node's own server, with the login node's credentials."""
    return _to_port(target, 22, target.node.host_keys, None, asking)


def _step(target: NodeTarget, asking: bool) -> Route:
    """Open SSH to our own server in a job step."""
    directory = target.session.directory
    command = target.scheduler.step(target.job, ["bash", f"{directory}/sshd.sh", "step", directory])
    if command is None:
        raise NodeUnreachable(f"The scheduler {target.scheduler.name} has no job steps.")
    keys = target.keys()
    hop = NextHop(str(target.node), None, tuple(command), (keys.host,), keys.client, asking)
    return target.host.open_route(hop)


def _reverse(target: NodeTarget, asking: bool) -> Route:
    """Open SSH to our own server, behind a connection that the job makes to this login node."""
    keys, directory = target.keys(), target.session.directory
    tag = call_job(target.host, directory, str(target.node))
    command = tuple(join_command(directory, tag))
    return target.host.open_route(NextHop(str(target.node), None, command, (keys.host,), keys.client, asking))


def _job_sshd(target: NodeTarget, asking: bool) -> Route:
    """Open SSH to the server that the job has started on a port."""
    if target.node.ssh_port is None:
        raise NodeUnreachable("The job has started no SSH server.")
    keys = target.keys()
    return _to_port(target, target.node.ssh_port, (keys.host,), keys.client, asking)


def _to_port(target: NodeTarget, port: int, host_keys: tuple[str, ...], key: str | None, asking: bool) -> Route:
    """Try the node's names in order: not every login node can resolve all of them."""
    problems = []
    for name in target.node.names:
        try:
            return target.host.open_route(NextHop(name, (name, port), (), host_keys, key, asking))
        except ConnectionFailed as error:
            problems.append(f"{error.what} {error.why}".strip())
    raise NodeUnreachable(f"Its port {port} cannot be reached.", why=" ".join(problems) or "It reported no name.")


#: the routes to a node, in the order in which ``auto`` tries them
ROUTES: dict[str, Callable[[NodeTarget, bool], Route]] = {
    "node-ssh": _node_ssh,
    "step": _step,
    "reverse": _reverse,
    "job-sshd": _job_sshd,
}
