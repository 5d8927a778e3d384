"""``when`` and ``queue``, which submit nothing: when a request would start, what is free, and what is pending."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    DependencyRefused,
    HostCommandFailed,
    JobNeverStarts,
    LauncherError,
    LicenceRefused,
    LimitRefused,
    NoRoom,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SchedulerMissing,
    SchedulerSilent,
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.core.finding import Finding
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import Request, parse_begin
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.view import View
from notebook_launcher.diagnosis import alternatives, cluster_load
from notebook_launcher.diagnosis.out_of_service import waits_for_nodes
from notebook_launcher.diagnosis.request_check import NAMED, SchedulerReport, assess_clusters, reword_refusal
from notebook_launcher.diagnosis.start_before_submission import estimate_before_submission
from notebook_launcher.diagnosis.start_constraints import StartConstraints
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.evidence import read_refusal_report, run_queries, run_query
from notebook_launcher.jobs.unlisted_flags import check_request
from notebook_launcher.planning.plan import Plan, begin_note, useless_flags_note
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Node, Partition
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.usage.cost_estimate import Costing

NOW = timedelta(minutes=1)  # a start within this time counts as now; a smaller difference is not mentioned
MOST_PARTITIONS = 4  # partitions to query at once; more only if all of these refuse

#: shown by ``when`` if no cluster is configured
NO_CLUSTER = (
    "No cluster is configured, and this machine has no queue to wait in. To ask a cluster (list them with: "
    "launch-notebook clusters):\n"
    "  launch-notebook when --cluster NAME\n"
    "  launch-notebook when --host you@login.example.org"
)
_WORTH = (
    "This is the scheduler's estimate as of now: jobs that end early or late, and new ones ahead of yours, change it."
)
_ASK_A_CLUSTER = " To ask a cluster (list them with: launch-notebook clusters):\n  launch-notebook queue --cluster NAME"
_NO_LIMITS = "The limits of your accounts and QOS could not be read, and are not in it."
_LATER = "try again in a minute"
_PREEMPTED = "A job there may be preempted."
_PREEMPTS = "It would preempt other people's jobs."
_NOTHING_READ = StartConstraints(None, lambda _: None)
_NOT_TESTED = {  # flags that delay a job, which a test does not consider
    "hold": "It is queued on hold, and starts only once it is released.",
    "dependency": "The estimate does not wait for what --dependency names.",
}
# refusals that no variation can avoid; and those that only a shorter walltime may avoid
_HOPELESS = (AccountRefused, QosRefused, ReservationRefused, LicenceRefused, ClusterRefused, DependencyRefused, NoRoom)
_TOO_LONG = (WalltimeRefused, LimitRefused, JobNeverStarts)


def when(plan: Plan, view: View, prompts: Prompts, interrupts: Interrupts) -> int:
    """Show when the request would start, and what would start sooner; return the exit code. Nothing is submitted.

    Raises a ``LauncherError`` if there was no answer; a refused request is an answer, not an error.
    """
    with open_context(plan.target, view, prompts, interrupts, submits=True, prepares=False) as context:
        check_request(context, plan.request.flags)
        _show_notes(plan, context)
        if context.scheduler.cluster_info is None:
            _require_no_queue(context)
            view.show(_without_a_queue(plan.request, context.clock()))
            return 0
        costing = Costing(plan, context)
        code = _Forecaster(context, context.scheduler.cluster_info, plan.request).run()
        costing.show_price()
        return code


def queue(target: LaunchTarget, cluster: str | None, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Show what is free and what is pending. ``cluster``: another cluster of the same scheduler, as with ``-M``.

    Raises ``SchedulerSilent`` if the scheduler reports nothing about its nodes.
    """
    with open_context(target, view, prompts, interrupts, submits=True, prepares=False) as context:
        cluster_info = context.scheduler.cluster_info
        if cluster_info is None:
            _require_no_queue(context)
            ask = _ASK_A_CLUSTER if target.name == "this machine" and not target.is_explicit else ""
            view.show(events.Note(f"There is no queue on {context.host.label}: jobs start at once.{ask}"))
            return
        view.show(events.Querying("asking the scheduler what is free"))
        commands = [
            cluster_info.nodes(cluster),
            cluster_info.partitions(cluster),
            cluster_info.pending_jobs(cluster),
            cluster_info.private_data(cluster),
        ]
        answers = run_queries(context.host, commands)
        nodes = cluster_info.read_nodes(answers[0])
        if nodes is None:
            message = answers[0].stderr.strip()
            if unknown := _unknown_cluster(context, cluster_info, cluster):
                raise SchedulerSilent(unknown.found, why=message, hint=unknown.hint)
            if answers[0].exit_code == 127:
                raise SchedulerMissing("The scheduler's commands are not found there.", why=message)
            raise SchedulerSilent("The scheduler reports nothing about its nodes.", why=message, hint=_LATER)
        partitions, waiting = cluster_info.read_partitions(answers[1]), cluster_info.read_pending_jobs(answers[2])
        view.show(
            cluster_load.count_load(
                nodes, partitions, waiting, cluster_info.read_private_data(answers[3]), context.site.user
            )
        )


def _unknown_cluster(context: Context, cluster_info: ClusterInfo, cluster: str | None) -> Finding | None:
    """Return a fault if there is no cluster of that name; ``None`` if there may be one."""
    if not cluster or not (command := cluster_info.clusters()):
        return None
    return assess_clusters(cluster, cluster_info.read_clusters(run_query(context.host, command)))


def _show_notes(plan: Plan, context: Context) -> None:
    useless = useless_flags_note(plan.user_flags) if context.scheduler.same_machine else None
    for note in (*plan.notes, begin_note(plan.request, context.site.now), useless):
        if note:
            context.view.show(events.Note(note))


def _require_no_queue(context: Context) -> None:
    """Raise ``SchedulerSilent`` if the scheduler cannot report on its queue."""
    if not context.scheduler.same_machine:
        raise SchedulerSilent(
            f"On {context.host.label} it is not known what is free, nor when a job would start.",
            why=f"With {context.scheduler.name}, the launcher only queries your own jobs.",
            hint="ask with the scheduler's own commands, or launch and see why it waits",
        )


def _without_a_queue(request: Request, now: datetime) -> events.Forecast:
    start = max(now, _begin(request, now))
    note = "There is no queue on this machine: a launch starts at once."
    return events.Forecast(_flags(request), _iso(start), _seconds(start, now), None, None, note=note)


def _begin(request: Request, now: datetime) -> datetime:
    """Return the earliest possible start of the request, as far as known without the scheduler."""
    return (parse_begin(request.begin, now).at if request.begin else None) or now


def _as_forecast(what: str) -> str:
    """Return the text of a refusal for a request that was not submitted."""
    text = what.replace(" refused the job.", " would refuse the job.", 1)
    return text.replace("The job was not queued.", "The job would not be queued.", 1)


def _flags(request: Request) -> str:
    return as_typed(request.flags)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _seconds(start: datetime, now: datetime) -> int:
    return int((start - now).total_seconds()) if start - now > NOW else 0


# --- when --------------------------------------------------------------------------------------------------------


class _Start(Frozen):
    """When a request would start, by the cluster's clock in its time zone; or why it cannot.

    ``delays``: what may delay it beyond the test's result; empty: nothing known. ``preempts``: other jobs would be
    preempted. ``flags``: of a variation, the flags that it changes.
    """

    request: Request
    at: datetime | None
    partition: str | None = None
    nodes: str | None = None
    refusal: LauncherError | None = None
    delays: str = ""
    preempts: bool = False
    flags: str = ""

    def is_after(self, time: datetime) -> bool:
        """Whether it starts noticeably later than ``time``, as far as known."""
        return self.at is None or bool(self.delays) or self.at - time > NOW

    @property
    def order(self) -> tuple[bool, bool, bool, float]:
        """The sort key: the earliest start first, then delayed ones, those waiting for nodes, and refused ones."""
        return self.refusal is not None, self.at is None, bool(self.delays), self.at.timestamp() if self.at else 0.0


class _Forecaster:
    """Estimates the start of one request, and then of its variations."""

    def __init__(self, context: Context, cluster_info: ClusterInfo, request: Request) -> None:
        self._context, self._outlook, self._request = context, cluster_info, request
        self._partitions: tuple[Partition, ...] | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._rules = _NOTHING_READ
        self._unasked: Sequence[Request] = ()

    @property
    def _now(self) -> datetime:
        """The cluster's clock."""
        return self._context.clock()

    def run(self) -> int:
        """Show the request's start, then those of its variations; return the exit code."""
        if self._outlook.estimate_start(self._request) is None:
            return self._run_without_tests()
        starts = self._estimate_request()
        start = next(filter(self._is_mistyped, starts), min(starts, key=lambda one: one.order))
        self._context.view.show(self._forecast(start))
        others: list[_Start] = []
        if not isinstance(start.refusal, _HOPELESS) and start.is_after(
            max(self._now, _begin(self._request, self._now))
        ):
            others = self._estimate_variations(start, [one.request for one in starts])
        for other in sorted(others, key=lambda one: one.order):
            self._context.view.show(self._variation(other, start))
        self._context.view.show(events.ForecastDone(_iso(self._now), self._worth([start, *others])))
        return start.refusal.exit_code if start.refusal else 0

    def _run_without_tests(self) -> int:
        """Show what is known if the scheduler cannot test requests: what it would refuse, and what is free now.

        Raises ``SchedulerSilent`` if it reports nothing.
        """
        cluster, cluster_info = self._request.clusters, self._outlook
        self._context.view.show(events.Querying("asking the scheduler what is free"))
        partitions, nodes, waiting = run_queries(
            self._context.host,
            [cluster_info.partitions(cluster), cluster_info.nodes(cluster), cluster_info.pending_jobs(cluster)],
        )
        report = SchedulerReport(cluster_info.read_partitions(partitions), cluster_info.read_nodes(nodes))
        if report.partitions is None:
            if partitions.exit_code == 127:
                raise SchedulerMissing("The scheduler's commands are not found there.", why=partitions.stderr.strip())
            raise SchedulerSilent(
                "The scheduler does not report its partitions.", why=partitions.stderr.strip(), hint=_LATER
            )
        queued = cluster_info.read_pending_jobs(waiting)
        would = estimate_before_submission(self._request, report, queued, self._context.scheduler.title)
        delays = "" if would.refusal else would.message
        self._context.view.show(self._forecast(_Start(self._request, None, refusal=would.refusal, delays=delays)))
        self._context.view.show(events.ForecastDone(_iso(self._now), ""))
        return would.refusal.exit_code if would.refusal else 0

    def _worth(self, starts: Sequence[_Start]) -> str:
        """Return a sentence on how reliable the estimates are; "" if there are none."""
        if all(start.at is None for start in starts):
            return ""
        return _WORTH if self._rules.limits(self._request) is not None else f"{_WORTH} {_NO_LIMITS}"

    # --- queries ---

    def _estimate_request(self) -> list[_Start]:
        """Estimate the request in each of its partitions until one accepts it, and read the other evidence.

        Raises ``SchedulerSilent``, ``SchedulerMissing`` or ``SchedulerAway`` if there was no answer.
        """
        requests, cluster, cluster_info = _one_partition_each(self._request), self._request.clusters, self._outlook
        self._context.view.show(events.Querying("asking the scheduler when this would start"))
        tests = [cluster_info.estimate_start(request) or [] for request in requests[:MOST_PARTITIONS]]
        *answers, partitions, nodes = run_queries(
            self._context.host, [*tests, cluster_info.partitions(cluster), cluster_info.nodes(cluster)]
        )
        self._partitions, self._nodes = cluster_info.read_partitions(partitions), cluster_info.read_nodes(nodes)
        starts = self._assessed(requests[: len(answers)], answers)
        left = sorted(requests[len(answers) :], key=self._is_listed)
        while left and (not self._is_listed(left[0]) or all(start.refusal for start in starts)):
            more, left = left[:MOST_PARTITIONS], left[MOST_PARTITIONS:]
            starts += self._assessed(
                more, run_queries(self._context.host, [cluster_info.estimate_start(one) or [] for one in more])
            )
        self._unasked = left
        return starts

    def _is_listed(self, request: Request) -> bool:
        """Whether the request's partition is among those that were read; also true if none were read."""
        name = request.flags.get("partition")
        return self._partitions is None or any(partition.name == name for partition in self._partitions)

    def _is_mistyped(self, start: _Start) -> bool:
        """Whether the partition does not exist: Slurm then refuses the request in all the others, too."""
        return isinstance(start.refusal, PartitionRefused) and not self._is_listed(start.request)

    def _assessed(self, requests: Sequence[Request], answers: Sequence[CommandResult]) -> list[_Start]:
        """Return the scheduler's estimates, supplemented by what its test does not consider."""
        starts = [self._waiting(self._read(*each)) for each in zip(requests, answers, strict=True)]
        if self._rules is _NOTHING_READ and not all(isinstance(start.refusal, _HOPELESS) for start in starts):
            self._rules = self._read_rules()
        return [self._checked(start) for start in starts]

    def _read_rules(self) -> StartConstraints:
        """Read the limits of accounts and QOS; without them, only the partitions' limits are considered."""
        cluster_info = self._outlook
        answers = run_query(self._context.host, cluster_info.limits(self._context.site.user, self._request.clusters))
        account, qos = cluster_info.read_defaults(self._request, answers)
        return StartConstraints(
            self._partitions, lambda request: cluster_info.read_limits(request, answers), account, qos
        )

    def _waiting(self, start: _Start) -> _Start:
        """Return a start that is not refused if only its nodes are out of service: a job would then be queued."""
        report = SchedulerReport(self._partitions, self._nodes)
        delays = waits_for_nodes(start.refusal, start.request, report, self._now)
        return replace(start, refusal=None, delays=delays) if delays else start

    def _checked(self, start: _Start) -> _Start:
        """Return a start supplemented by what the test does not consider."""
        if start.refusal or start.at is None:
            return start
        never = self._rules.never(start.request, start.partition)
        if never is None:
            return replace(start, delays=self._rules.delays(start.request, start.partition))
        what = f"It could be queued; by the limits that can be read, it would never start: {never.summary}."
        refusal = JobNeverStarts(what, hint=never.action)
        return replace(start, at=None, refusal=refusal)

    def _estimate_variations(self, start: _Start, requested: Sequence[Request]) -> list[_Start]:
        """Estimate the variations that have no estimate yet; a missing answer is ignored."""
        rules = self._rules
        found = alternatives.find_alternatives(
            start.request, self._partitions, self._nodes, rules.account, rules.qos, self._is_worth_a_test
        )
        others = [variation for variation in found[1:] if variation.request not in requested]
        if start.refusal and not isinstance(start.refusal, _TOO_LONG):
            others = [variation for variation in others if not _differs_in_time_alone(start.request, variation.request)]
        if not others:
            return []
        self._context.view.show(events.Querying(f"asking about {counted(len(others), 'alternative')}"))
        try:
            answers = run_queries(
                self._context.host, [self._outlook.estimate_start(other.request) or [] for other in others]
            )
            starts = [
                self._waiting(self._read(other.request, answer)) for other, answer in zip(others, answers, strict=True)
            ]
        except (HostCommandFailed, SchedulerSilent, SchedulerAway) as error:
            self._context.view.show(events.Note(f"The scheduler did not answer for the alternatives: {error.what}"))
            return []
        return [replace(one, flags=other.flags) for one, other in zip(starts, others, strict=True)]

    def _is_worth_a_test(self, request: Request) -> bool:
        return self._rules.never(request, None) is None and not self._rules.delays(request, None)

    def _read(self, request: Request, answer: CommandResult) -> _Start:
        would = self._outlook.read_start_estimate(answer)
        if would.is_later:
            return _Start(request, None, delays=would.message)
        if isinstance(would.refusal, SchedulerAway):
            raise SchedulerAway("The scheduler does not answer at the moment.", why=would.refusal.why, hint=_LATER)
        if isinstance(would.refusal, SchedulerMissing):
            raise would.refusal
        at = parse_iso(would.start, self._context.site.now)
        if at is None and would.refusal is None:
            raise SchedulerSilent("The scheduler did not say when this would start.", why=would.message)
        return _Start(request, at, would.partition, would.nodes, would.refusal, preempts=bool(would.preempts))

    # --- showing ---

    def _forecast(self, start: _Start) -> events.Forecast:
        left_out = [note for flag, note in _NOT_TESTED.items() if flag in self._request.flags]
        note = " ".join(filter(None, [self._preemption(start), self._unestimated_note(start), *left_out]))
        event = events.Forecast(
            _flags(self._request), *self._at(start), start.partition, start.nodes, start.delays, note
        )
        refusal = start.refusal
        if refusal is None:
            return event
        if isinstance(refusal, SubmitRefused) and self._outlook.estimate_start(self._request) is not None:
            self._explain(refusal, start.request)
        return replace(
            event, what=_as_forecast(refusal.what), why=refusal.why, hint=refusal.hint, exit_code=refusal.exit_code
        )

    def _explain(self, refusal: SubmitRefused, request: Request) -> None:
        """Replace the general meaning of a refusal by what this cluster reports, as a launch does."""
        report, site = SchedulerReport(self._partitions, self._nodes), self._context.site
        if isinstance(refusal, NAMED):
            with contextlib.suppress(LauncherError):  # what was already read may explain it
                read_refusal_report(refusal, self._context.host, self._outlook, request, site.user, report)
        reword_refusal(refusal, request, report, self._now)

    def _variation(self, other: _Start, start: _Start) -> events.Alternative:
        sooner = other.at is not None and start.is_after(other.at)
        note = "" if self._preemption(start) == self._preemption(other) else self._preemption(other)
        what = _as_forecast(other.refusal.what) if other.refusal else ""
        return events.Alternative(other.flags, *self._at(other), other.partition, other.nodes, sooner, note, what)

    def _unestimated_note(self, start: _Start) -> str:
        names = [request.flags["partition"] or "" for request in self._unasked]
        if not names or start.at is None:
            return ""
        which = f"Partition {names[0]} was" if len(names) == 1 else f"Partitions {', '.join(names)} were"
        return f"{which} not asked about{': it may start sooner there' if start.is_after(self._now) else ''}."

    def _at(self, start: _Start) -> tuple[str | None, int | None]:
        return (_iso(start.at), _seconds(start.at, self._now)) if start.at else (None, None)

    def _preemption(self, start: _Start) -> str:
        """Return a note about jobs that would be preempted; "" for a request that cannot start."""
        if start.at is None:
            return ""
        if start.preempts:
            return _PREEMPTS
        return _PREEMPTED if self._rules.may_be_preempted(start.partition) else ""


def _differs_in_time_alone(one: Request, other: Request) -> bool:
    return {**one.flags, "time": None} == {**other.flags, "time": None}


def _one_partition_each(request: Request) -> list[Request]:
    """Return a request for each of the request's partitions, because a test covers only one."""
    requested = re.split(r"\s*,\s*", request.flags.get("partition") or "")
    names = list(dict.fromkeys(name for name in requested if name))
    if len(names) < 2:
        return [request]
    return [Request({**request.flags, "partition": name}) for name in names]
