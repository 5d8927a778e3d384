"""Checks the scheduler, and whether it accepts the request, without submitting anything."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    AccountRefused,
    GresRefused,
    LauncherError,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    WalltimeRefused,
)
from notebook_launcher.core.finding import Finding, fault, of_error, ok, unknown, warning
from notebook_launcher.core.quantities import counted, duration_text
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.partition_fit import too_long
from notebook_launcher.diagnosis.start_constraints import StartConstraints
from notebook_launcher.doctor.findings import (
    expand,
    gpu_types,
    gpus_of,
    judge_account,
    judge_programs,
    judge_reservation,
    nodes_in_service,
    sessions_on,
)
from notebook_launcher.hosts.base import Host
from notebook_launcher.jobs.evidence import run_queries, run_query
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.schedulers.cluster_info import (
    ClusterInfo,
    Limit,
    Node,
    Partition,
    ReservationInfo,
    StartEstimate,
)

PROGRAMS, ANSWERS = "scheduler", "scheduler answers"
PARTITION, ACCOUNT, WALLTIME, RESERVATION, GPUS, START = (
    "partition",
    "account",
    "walltime",
    "reservation",
    "GPUs",
    "start",
)
ACCEPTED = (PROGRAMS, ANSWERS, PARTITION, ACCOUNT, WALLTIME, RESERVATION, GPUS, "QOS", START)
TIMEOUT = 30.0  # seconds for one query of the scheduler
AT_ONCE = timedelta(minutes=1)

_FIND = 'for name do printf "%s %s\\n" "$name" "$(command -v "$name")"; done; "$1" -V 2>&1 | head -n 1'
_BELONGS: dict[type[LauncherError], str] = {
    PartitionRefused: PARTITION,
    AccountRefused: ACCOUNT,
    WalltimeRefused: WALLTIME,
    ReservationRefused: RESERVATION,
    GresRefused: GPUS,
    QosRefused: "QOS",
}


def check_scheduler(checks: CheckRunner, host: Host, scheduler: Scheduler) -> None:
    """Check that the scheduler's commands exist and answer."""
    if scheduler.same_machine:
        checks.report(PROGRAMS, ok(f"{scheduler.name}: jobs run on {host.label} itself, and wait for nobody"))
        return
    if not scheduler.programs:
        checks.report(PROGRAMS, unknown(f"{scheduler.name}: only a launch, or --node, tells whether it takes jobs."))
        return
    checks.check(PROGRAMS, lambda: _programs(host, scheduler), doing="looking for the scheduler")


def _programs(host: Host, scheduler: Scheduler) -> Finding:
    answer = host.run(["sh", "-c", _FIND, "find", *scheduler.programs], login_shell=True, timeout=TIMEOUT)
    pairs = [line.split(" ", 1) for line in answer.stdout.splitlines() if line.startswith(scheduler.programs)]
    found = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    paths = {name: found.get(name, "").strip() for name in scheduler.programs}
    version = (answer.stdout.splitlines() or [""])[-1].strip()
    return judge_programs(paths, version or scheduler.name)


@dataclass
class SchedulerReport:
    """What the scheduler reported. ``None``: no answer."""

    partitions: tuple[Partition, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    accounts: tuple[str, ...] | None = None
    reservations: tuple[ReservationInfo, ...] | None = None
    limits: Sequence[Limit] | None = None
    account: str | None = None
    qos: str | None = None
    tests: list[tuple[Request, StartEstimate]] = field(default_factory=list)

    @property
    def refusal(self) -> LauncherError | None:
        """Why the request is refused; ``None`` if one of its partitions accepts it."""
        refusals = [would.refusal for _, would in self.tests]
        return None if None in refusals else next(iter(refusals), None)

    def refused(self, kind: type[LauncherError]) -> LauncherError | None:
        """Return the refusal if it is of this kind."""
        return self.refusal if isinstance(self.refusal, kind) else None


def check_request(
    checks: CheckRunner, host: Host, scheduler: Scheduler, request: Request, user: str, now: datetime
) -> SchedulerReport:
    """Check each part of the request, and when it would start."""
    report, cluster_info = SchedulerReport(), scheduler.cluster_info
    if cluster_info is None:
        for name in (ACCOUNT, WALLTIME, START) if not scheduler.same_machine else ():
            checks.report(
                name,
                unknown(
                    f"{scheduler.name} cannot be queried before a launch.",
                    "submit a short job to find out: launch-notebook doctor --node",
                ),
            )
        return report
    if not checks.check(
        ANSWERS, lambda: _answers(host, cluster_info, request, report), needs=[PROGRAMS], doing="asking the scheduler"
    ):
        for name in (PARTITION, ACCOUNT, WALLTIME, START):
            checks.skip(name, f"not checked: it needs {ANSWERS if checks.passed(PROGRAMS) else PROGRAMS}")
        return report
    names = _partitions_of(request, report.partitions)
    _query_all(host, cluster_info, request, names, user, report)
    flags = request.flags
    checks.check(PARTITION, lambda: _partition(names, report))
    account = report.refused(AccountRefused)
    if account is None and report.refusal is not None and flags.get("account") and report.accounts:
        account = report.refusal if flags["account"] not in report.accounts else None
    checks.check(ACCOUNT, lambda: judge_account(flags.get("account") or report.account, report.accounts, account))
    if flags.get("qos") or report.refused(QosRefused):
        checks.check("QOS", lambda: _plain(report.refused(QosRefused), flags.get("qos") or "none"))
    if reserved := flags.get("reservation"):
        refusal = report.refused(ReservationRefused)
        checks.check(RESERVATION, lambda: judge_reservation(reserved, report.reservations, now, refusal))
    checks.check(WALLTIME, lambda: _walltime(request, names, report))
    if request.gpus or report.refused(GresRefused):
        checks.check(GPUS, lambda: _gpus(request, names, report))
    checks.check(START, lambda: _start(request, report, now), needs=[*_BELONGS.values()])
    return report


def _answers(host: Host, cluster_info: ClusterInfo, request: Request, report: SchedulerReport) -> Finding:
    answer = run_query(host, cluster_info.partitions(request.clusters))
    report.partitions = cluster_info.read_partitions(answer)
    if report.partitions is None:
        message = (answer.stderr.strip() or answer.stdout.strip() or "it printed nothing").splitlines()[-1]
        return fault(
            f"The scheduler does not answer: {message}",
            "it may be restarting: try again later, or ask the cluster's support",
        )
    names = ", ".join(partition.name for partition in report.partitions)
    return ok(f"its partitions are {names}")


def _partitions_of(request: Request, partitions: Sequence[Partition] | None) -> list[str]:
    names = [name.strip() for name in (request.flags.get("partition") or "").split(",") if name.strip()]
    return names or [partition.name for partition in partitions or () if partition.is_default]


def _query_all(
    host: Host, cluster_info: ClusterInfo, request: Request, names: Sequence[str], user: str, report: SchedulerReport
) -> None:
    """Query everything with one login: a test for each partition, and what explains its result."""
    cluster = request.clusters
    each = [Request({**request.flags, "partition": name}) for name in names[:4]] if len(names) > 1 else [request]
    others = [
        cluster_info.nodes(cluster),
        cluster_info.limits(user, cluster),
        cluster_info.accounts(user, cluster) or ["false"],
        cluster_info.reservations(cluster) or ["false"],
    ]
    answers = run_queries(host, [*others, *(cluster_info.estimate_start(one) for one in each)])
    nodes, limits, accounts, reservations, *tests = answers
    report.nodes, report.limits = cluster_info.read_nodes(nodes), cluster_info.read_limits(request, limits)
    report.account, report.qos = cluster_info.read_defaults(request, limits)
    report.accounts, report.reservations = (
        cluster_info.read_accounts(accounts),
        cluster_info.read_reservations(reservations),
    )
    report.tests = [(one, cluster_info.read_start_estimate(test)) for one, test in zip(each, tests, strict=True)]


# --- the parts of the request ----------------------------------------------------------------------------------


def _plain(refusal: LauncherError | None, name: str) -> Finding:
    return of_error(refusal) if refusal else ok(f"{name} is accepted")


def _partition(names: Sequence[str], report: SchedulerReport) -> Finding:
    known = {partition.name: partition for partition in report.partitions or ()}
    missing = [name for name in names if name not in known]
    if missing:
        near = difflib.get_close_matches(missing[0], list(known), n=1)
        return fault(
            f"There is no partition {missing[0]}. There are: {', '.join(known)}.",
            f"did you mean -p {near[0]}?" if near else "name one of these with -p, or none",
        )
    closed = [name for name in names if known[name].is_up is False]
    opened = [name for name in known if known[name].is_up]
    if closed and len(closed) == len(names):
        return fault(
            f"Partition {', '.join(closed)} is closed at the moment: jobs there wait, or are refused.",
            f"open ones are: {', '.join(opened) or 'none'}; the cluster's support knows why",
        )
    if refusal := report.refused(PartitionRefused):
        return of_error(refusal)
    if closed:
        return warning(f"Of {', '.join(names)}, {', '.join(closed)} is closed at the moment.", "leave it out of -p")
    if not names:
        return ok("none is asked for: the cluster chooses")
    nodes = "" if len(names) > 1 else f", of {counted(known[names[0]].nodes, 'node')}" if known[names[0]].nodes else ""
    return ok(f"{', '.join(names)}{nodes}: open")


def _walltime(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding:
    if refusal := report.refused(WalltimeRefused):
        return of_error(refusal)
    places = [partition for partition in report.partitions or () if partition.name in names]
    obstacles = [obstacle for place in places if (obstacle := too_long(request, place))]
    if places and len(obstacles) == len(places):
        why = obstacles[0].why
        return fault(f"{why[0].upper()}{why[1:]}. It would wait for ever.", f"ask for less: {obstacles[0].instead}")
    return ok(f"{as_typed({'time': request.flags.get('time')})} is within the limit")


def _gpus(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding:
    if refusal := report.refused(GresRefused):
        return of_error(refusal)
    request_text = f"{request.gpus} asked for"
    if report.nodes is None:
        return unknown(f"{request_text}; the scheduler did not report which GPUs there are.")
    there = gpus_of(node for node in report.nodes if node.partition in names or not names)
    missing = gpu_types(request) - there.keys() if "" not in there else set()
    if report.refusal is not None and (missing or not there):
        kinds = ", ".join(sorted(missing)) or "at all"
        others = sorted({node.partition for node in report.nodes if missing <= node.gpus.keys() and node.gpus})
        hint = f"another partition has it: -p {others[0]}" if others else "see: launch-notebook queue"
        return fault(f"There is no GPU {kinds} in partition {', '.join(names)}; there are {_kinds_of(there)}.", hint)
    return ok(f"{request_text}; in the partition are {_kinds_of(there)}")


def _kinds_of(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {kind or 'GPU'}" for kind, count in gpus.items()) or "none"


def _start(request: Request, report: SchedulerReport, now: datetime) -> Finding:
    """Report when it would start, or why it never will."""
    if report.refusal is not None:
        return of_error(report.refusal)
    rules = StartConstraints(report.partitions, lambda _: report.limits, report.account, report.qos)
    open_ones = [(one, would) for one, would in report.tests if would.refusal is None]
    nevers = [rules.never(one, would.partition) for one, would in open_ones]
    if nevers and None not in nevers:
        never = nevers[0]
        assert never is not None  # noqa: S101  # none of them is
        return fault(f"It could be queued and would never start: {never.summary}.", never.action)
    held_up = [rules.delays(one, would.partition) for one, would in open_ones]
    moments = [(at, would) for _, would in open_ones if (at := parse_iso(would.start, now))]
    if held_up and all(held_up):
        return warning(held_up[0], "see what would start instead: launch-notebook when")
    if not moments:
        return unknown("The scheduler did not report a start time.", "see: launch-notebook when")
    at, would = min(moments, key=lambda one: one[0])
    where = f" on {would.nodes}" if would.nodes else ""
    if at - now <= AT_ONCE:
        return ok(f"it would start at once{where}, with {as_typed(request.flags)}")
    wait = duration_text((at - now).total_seconds())
    return ok(f"it would start at {at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}, in {wait}{where}")


# --- other checks ----------------------------------------------------------------------------------------------


def check_accounting(checks: CheckRunner, host: Host, scheduler: Scheduler) -> None:
    """Check whether the accounting answers, which reports a session's usage and end."""
    command = scheduler.history(JobRef("1"))
    if command is None or scheduler.same_machine or scheduler.accounting(JobRef("1")) is None:
        return

    def inspect() -> Finding:
        answer = run_query(host, command)
        if answer.exit_code == 0:
            return ok("it answers")
        message = (answer.stderr.strip() or "it printed nothing").splitlines()[-1]
        return warning(f"It does not answer: {message}", "sessions work without it; their usage reports are less exact")

    checks.check("accounting", inspect, needs=[PROGRAMS, ANSWERS], doing="asking the accounting")


def check_capacity(checks: CheckRunner, request: Request, report: SchedulerReport) -> None:
    """Report how many sessions like this one fit at the same time: in the reservation, or the partition."""
    names = _partitions_of(request, report.partitions)
    reservation = next((one for one in report.reservations or () if one.name == request.flags.get("reservation")), None)
    reserved = expand(reservation.nodes) if reservation and reservation.nodes else None

    def inspect() -> Finding:
        if not report.nodes:
            return unknown("The scheduler did not report its nodes.")
        nodes = nodes_in_service(reserved, names, report.nodes)
        where = (
            f"reservation {reservation.name}" if reservation and reserved else f"partition {', '.join(names) or '?'}"
        )
        if request.gpus:
            count = sessions_on(nodes, request)
            like_this = f"{counted(count, 'session')} like this one at a time"
            return ok(f"{where} has {_kinds_of(gpus_of(nodes))} in service: {like_this}")
        cores = sum(node.cores or 0 for node in nodes)
        return ok(f"{where} has {cores} cores in service, of which each session has its share")

    checks.check("room", inspect, needs=[ANSWERS, PARTITION])
