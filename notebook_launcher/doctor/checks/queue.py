"""Checks the scheduler, and whether it accepts the request, without submitting anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    AccountRefused,
    GresRefused,
    LauncherError,
    LicenceRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerMissing,
    WalltimeRefused,
)
from notebook_launcher.core.finding import Finding, fault, of_error, ok, unknown, warning
from notebook_launcher.core.quantities import counted, duration_text
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import as_typed, unlisted
from notebook_launcher.core.text import joined
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.licence_fit import assess_licences
from notebook_launcher.diagnosis.name_suggestions import usable_reservations
from notebook_launcher.diagnosis.out_of_service import HINT, waits_for_nodes
from notebook_launcher.diagnosis.request_check import (
    SchedulerReport,
    account_refusal,
    assess_account,
    assess_clusters,
    assess_features,
    assess_gpus,
    assess_nodelist,
    assess_partition,
    assess_qos,
    assess_reservation,
    assess_size,
    assess_walltime,
    gpus_of,
    kinds_of,
)
from notebook_launcher.diagnosis.start_before_submission import estimate_before_submission
from notebook_launcher.diagnosis.start_constraints import StartConstraints
from notebook_launcher.doctor.findings import (
    assess_programs,
    expand,
    nodes_in_service,
    sessions_on,
)
from notebook_launcher.hosts.base import Host
from notebook_launcher.jobs.evidence import read_report, run_query
from notebook_launcher.jobs.unlisted_flags import check_unlisted_flags
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.schedulers.cluster_info import ClusterInfo
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import find_scheduler, find_scheduler_commands

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

# not "$1" -V for all schedulers: some would submit a job read from standard input
_FIND = (
    'version=$1; shift; for name do printf "%s %s\\n" "$name" "$(command -v "$name")"; done; '
    "$version 2>&1 </dev/null | head -n 1"
)
_BELONGS: dict[type[LauncherError], str] = {
    PartitionRefused: PARTITION,
    AccountRefused: ACCOUNT,
    WalltimeRefused: WALLTIME,
    ReservationRefused: RESERVATION,
    GresRefused: GPUS,
    QosRefused: "QOS",
}


def check_scheduler(checks: CheckRunner, host: Host, scheduler: Scheduler, target: LaunchTarget) -> None:
    """Check that the scheduler's commands exist and answer."""
    if scheduler.same_machine:
        checks.report(PROGRAMS, ok(f"{scheduler.name}: jobs run on {host.label} itself, and wait for nobody"))
        return
    if not scheduler.programs:
        checks.report(PROGRAMS, unknown(f"{scheduler.title}: only a launch, or --node, shows whether it takes jobs."))
        return
    checks.check(PROGRAMS, lambda: _programs(host, scheduler, target), doing="looking for the scheduler")


def _programs(host: Host, scheduler: Scheduler, target: LaunchTarget) -> Finding:
    words = ["sh", "-c", _FIND, "find", " ".join(scheduler.version_command), *scheduler.programs]
    answer = host.run(words, login_shell=True, timeout=TIMEOUT)
    pairs = [line.split(" ", 1) for line in answer.stdout.splitlines() if line.startswith(scheduler.programs)]
    found = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    paths = {name: found.get(name, "").strip() for name in scheduler.programs}
    version = (answer.stdout.splitlines() or [""])[-1].strip()
    finding = assess_programs(paths, version or scheduler.title)
    return finding if paths[scheduler.programs[0]] else _with_found_schedulers(finding, host, target)


def _with_found_schedulers(finding: Finding, host: Host, target: LaunchTarget) -> Finding:
    """Return the fault that the scheduler's commands are missing with a module or another scheduler that was found."""
    commands, modules = find_scheduler_commands(host)
    if not commands and not modules:
        return finding
    try:
        find_scheduler(host, target)
    except SchedulerMissing as error:
        return fault(joined(finding.found, error.why), error.hint)
    return finding


def check_flags(checks: CheckRunner, context: Context, request: Request) -> None:
    """Check the flags that only the cluster's own submit command may know."""
    if not (flags := unlisted(request.flags)):
        return

    def inspect() -> Finding:
        check_unlisted_flags(context, flags)
        return ok(f"{context.scheduler.programs[0]} accepts {as_typed(flags)}")

    checks.check("flags", inspect, needs=[PROGRAMS])


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
                    f"{scheduler.title} cannot be queried before a launch.",
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
    names = report.partitions_of(request)
    _query_all(host, scheduler, request, names, user, report)
    flags = request.flags
    checks.check(PARTITION, lambda: assess_partition(names, report, flags.get("account")))
    account = account_refusal(request, report)
    checks.check(ACCOUNT, lambda: assess_account(flags.get("account") or report.account, report.accounts, account))
    if flags.get("qos") or report.refused(QosRefused):
        checks.check("QOS", lambda: _qos(request, report))
    if reserved := flags.get("reservation"):
        refusal = report.refused(ReservationRefused)
        usable = usable_reservations(report.reservations or (), user, report.accounts, now)
        checks.check(RESERVATION, lambda: assess_reservation(reserved, report.reservations, now, refusal, usable))
    checks.check(WALLTIME, lambda: assess_walltime(request, names, report))
    if request.gpus or report.refused(GresRefused):
        checks.check(GPUS, lambda: assess_gpus(request, names, report))
    checks.check(START, lambda: _start(request, names, report, now), needs=[*_BELONGS.values()])
    return report


def _answers(host: Host, cluster_info: ClusterInfo, request: Request, report: SchedulerReport) -> Finding:
    answer = run_query(host, cluster_info.partitions(request.clusters))
    report.partitions = cluster_info.read_partitions(answer)
    if report.partitions is None:
        if (named := request.clusters) and (command := cluster_info.clusters()):
            clusters = cluster_info.read_clusters(run_query(host, command))
            if unknown_cluster := assess_clusters(named, clusters):
                return unknown_cluster
        message = (answer.stderr.strip() or answer.stdout.strip() or "it printed nothing").splitlines()[-1]
        return fault(
            f"The scheduler does not answer: {message}",
            "it may be restarting: try again later, or ask the cluster's support",
        )
    names = ", ".join(partition.name for partition in report.partitions)
    return ok(f"its partitions are {names}")


def _query_all(
    host: Host, scheduler: Scheduler, request: Request, names: Sequence[str], user: str, report: SchedulerReport
) -> None:
    """Query everything in one go: a test of the request in each partition, and the reports that explain the results."""
    cluster_info = scheduler.cluster_info
    assert cluster_info is not None  # noqa: S101  # checked by the caller
    each = [Request({**request.flags, "partition": name}) for name in names[:4]] if len(names) > 1 else [request]
    commands = [command for one in each if (command := cluster_info.estimate_start(one)) is not None]
    tests = read_report(host, cluster_info, request, user, report, commands)
    if commands:
        report.tests = [(one, cluster_info.read_start_estimate(test)) for one, test in zip(each, tests, strict=True)]
    else:
        report.tests = [(request, estimate_before_submission(request, report, None, scheduler.title))]


# --- the parts of the request ----------------------------------------------------------------------------------


def _qos(request: Request, report: SchedulerReport) -> Finding:
    refusal = report.refused(QosRefused)
    return assess_qos(request, report, refusal) if refusal else ok(f"{request.flags.get('qos') or 'none'} is accepted")


def _start(request: Request, names: Sequence[str], report: SchedulerReport, now: datetime) -> Finding:
    """Assess when the request would start, or why it never would."""
    if text := waits_for_nodes(report.refusal, request, report, now):
        return warning(text, HINT)
    if report.refusal is not None:
        flags, by_licence = request.flags, report.refused(LicenceRefused)
        missing = assess_nodelist(flags.get("nodelist"), report.nodes) or assess_features(request, names, report)
        if by_licence and not missing:
            missing = assess_licences(flags.get("licenses"), report.licences)
        return missing or assess_size(request, names, report) or of_error(report.refusal)
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
    if not moments and (later := next((would.message for _, would in open_ones if would.is_later), "")):
        return unknown(later)
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
    """Check whether the accounting answers, from which usage reports and the ends of sessions are read."""
    command = scheduler.history(JobRef("1"))
    if command is None or scheduler.same_machine or scheduler.accounting(JobRef("1")) is None:
        return

    def inspect() -> Finding:
        answer = run_query(host, command)
        if scheduler.history_answers(answer):
            return ok("it answers")
        message = (answer.stderr.strip() or "it printed nothing").splitlines()[-1]
        return warning(f"It does not answer: {message}", "sessions work without it; their usage reports are less exact")

    checks.check("accounting", inspect, needs=[PROGRAMS, ANSWERS], doing="asking the accounting")


def check_capacity(checks: CheckRunner, request: Request, report: SchedulerReport) -> None:
    """Report how many sessions like this one fit in the reservation or the partition at the same time."""
    names = report.partitions_of(request)
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
            return ok(f"{where} has {kinds_of(gpus_of(nodes))} in service: {like_this}")
        cores = sum(node.cores or 0 for node in nodes)
        return ok(f"{where} has {cores} cores in service, of which each session has its share")

    checks.check("room", inspect, needs=[ANSWERS, PARTITION])
