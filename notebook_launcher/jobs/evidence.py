"""Reads what explains why a job is pending or was refused: as little as needed, and without failing the session."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import zip_longest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ClusterRefused, HostCommandFailed, SubmitRefused, UsageError
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import explain
from notebook_launcher.diagnosis.node_fit import SIZE_FLAGS
from notebook_launcher.diagnosis.request_check import SchedulerReport
from notebook_launcher.hosts.base import RUN_TIMEOUT, CommandRunner, Host
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Evidence

SLOW = 20.0  # seconds; a scheduler that takes longer is busy


def gather_evidence(
    host: CommandRunner, cluster_info: ClusterInfo, status: JobStatus, request: Request, user: str
) -> Evidence:
    """Read what is needed to explain why a job is pending, with one command for each part.

    ``user``: the user's name on the cluster. A part whose command fails or is slow stays ``None``, and so do the limits
    if the job's account and QOS are not known. Raises ``ConnectionLost``.
    """
    needed = explain.evidence_needed(status.reason)
    cluster = status.job.cluster
    request = as_queued(request, status)
    partition = request.flags.get("partition")
    partitions = limits = ahead = None
    if "partitions" in needed:
        partitions = cluster_info.read_partitions(run_query(host, cluster_info.partitions(cluster)))
    if "limits" in needed and status.account and status.qos:
        limits = cluster_info.read_limits(request, run_query(host, cluster_info.limits(user, cluster)))
    if "ahead" in needed and partition:
        ahead = cluster_info.read_ahead(status.job.id, run_query(host, cluster_info.ahead(partition, cluster)))
    return Evidence(request, partition, partitions, limits, ahead)


def as_queued(request: Request, status: JobStatus) -> Request:
    """Return the request with the account, QOS, partition and walltime that the scheduler reports for the job.

    An unreported account or QOS is left out. An unreported walltime or partition stays as requested.
    """
    flags = {name: value for name, value in request.flags.items() if name not in ("account", "qos")}
    reported = {"account": status.account, "qos": status.qos, "partition": status.partition, "time": status.walltime}
    flags |= {name: value for name, value in reported.items() if value}
    try:
        return Request(flags)
    except UsageError:  # an unknown form of walltime
        return Request({**flags, "time": request.flags.get("time")})


def run_query(host: CommandRunner, command: Sequence[str]) -> CommandResult:
    """Run one command that may fail; a slow one counts as failed. Raises ``ConnectionLost``."""
    try:
        return host.run(command, login_shell=True, timeout=SLOW)
    except HostCommandFailed as error:
        return CommandResult(1, stderr=error.what)


def read_report(
    host: Host,
    cluster_info: ClusterInfo,
    request: Request,
    user: str,
    report: SchedulerReport,
    others: Sequence[Sequence[str]] = (),
    *,
    timeout: float = RUN_TIMEOUT,
) -> list[CommandResult]:
    """Read what explains a refusal into ``report``, and run ``others``, with one login; return the others' results.

    The partitions are read unless they are known; features, the sizes of nodes and licences only if the request names
    some. Raises what ``run_queries`` raises.
    """
    cluster = request.clusters
    partitions = [] if report.partitions is not None else [cluster_info.partitions(cluster)]
    features = [cluster_info.features(cluster) or ["false"]] if "constraint" in request.flags else []
    sizes = [cluster_info.node_sizes(cluster) or ["false"]] if SIZE_FLAGS & request.flags.keys() else []
    licences = [cluster_info.licences(cluster) or ["false"]] if "licenses" in request.flags else []
    commands = [
        cluster_info.nodes(cluster),
        cluster_info.limits(user, cluster),
        cluster_info.accounts(user, cluster) or ["false"],
        cluster_info.reservations(cluster) or ["false"],
    ]
    optional = [*partitions, *features, *sizes, *licences]
    answers = run_queries(host, [*commands, *optional, *others], timeout=timeout)
    nodes, limits, accounts, reservations, *rest = answers
    report.nodes, report.limits = cluster_info.read_nodes(nodes), cluster_info.read_limits(request, limits)
    report.account, report.qos = cluster_info.read_defaults(request, limits)
    report.accounts, report.own_qos = cluster_info.read_accounts(accounts), cluster_info.read_qos(accounts)
    report.user = user
    report.reservations = cluster_info.read_reservations(reservations)
    if partitions:
        report.partitions = cluster_info.read_partitions(rest.pop(0))
    if features:
        report.features = cluster_info.read_features(rest.pop(0))
    if sizes:
        report.sizes = cluster_info.read_node_sizes(rest.pop(0))
    if licences:
        report.licences = cluster_info.read_licences(rest.pop(0))
    return rest


def read_refusal_report(
    refusal: SubmitRefused,
    host: Host,
    cluster_info: ClusterInfo,
    request: Request,
    user: str,
    report: SchedulerReport,
    *,
    timeout: float = RUN_TIMEOUT,
) -> None:
    """Read what explains this refusal into ``report``, as ``read_report``; for a refused cluster, only the clusters.

    A cluster that does not exist, or does not answer, cannot be queried for anything else.
    """
    if isinstance(refusal, ClusterRefused):
        [answer] = run_queries(host, [cluster_info.clusters() or ["false"]], timeout=timeout)
        report.clusters = cluster_info.read_clusters(answer)
    else:
        read_report(host, cluster_info, request, user, report, timeout=timeout)


def run_queries(host: Host, commands: Sequence[Sequence[str]], *, timeout: float = RUN_TIMEOUT) -> list[CommandResult]:
    """Run several commands in sequence in one login shell, which may take longer to start than all of them to run.

    A command without a result counts as failed. Raises ``ConnectionLost`` or ``HostCommandFailed``.
    """
    output = host.run(["sh", "-c", _TOGETHER, "ask", *map(shlex.join, commands)], login_shell=True, timeout=timeout)
    *outputs, _ = re.split(rf"\n{_MARK} ([0-9]{{1,9}})\n", f"{output.stdout}\n")
    errors = f"{output.stderr}\n".split(f"\n{_MARK}\n")
    answers = zip_longest(outputs[::2], outputs[1::2], errors[: len(outputs) // 2], fillvalue="")
    found = [CommandResult(int(code), stdout, stderr) for stdout, code, stderr in answers]
    return [*found, *[CommandResult(1)] * len(commands)][: len(commands)]


_MARK = "--answered--"
# On one line, because csh, which may be the login shell, cannot quote a newline.
_TOGETHER = (
    f'for command do sh -c "$command" </dev/null; code=$?; echo; echo "{_MARK} $code"; echo >&2; echo {_MARK} >&2; done'
)
