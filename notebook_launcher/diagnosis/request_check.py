"""Whether a scheduler accepts each part of a request, and why it refused the whole. Pure: reports in, findings out."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConstraintRefused,
    GresRefused,
    LauncherError,
    LicenceRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.core.finding import Finding, fault, of_error, ok, unknown, warning
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import Request, gpu_items
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.suggestions import as_hint
from notebook_launcher.core.text import listed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.licence_fit import assess_licences
from notebook_launcher.diagnosis.name_suggestions import (
    MOST_NAMES,
    closest_first,
    name_one,
    names_for,
    nearest,
    open_partitions,
    own_qos,
    usable_reservations,
)
from notebook_launcher.diagnosis.node_fit import assess_cores, assess_node_size
from notebook_launcher.diagnosis.partition_fit import Obstacle, may_use, too_long, wrong_size
from notebook_launcher.schedulers.cluster_info import (
    Licence,
    Limit,
    Node,
    NodeSize,
    Partition,
    ReservationInfo,
    StartEstimate,
)

#: refusals of a name for which the cluster has alternatives
NAMED = (
    AccountRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    ConstraintRefused,
    LicenceRefused,
    ClusterRefused,
)
#: all refusals that the scheduler's reports on partitions, nodes, accounts, licences and the like may explain
EXPLAINED = (*NAMED, WalltimeRefused, GresRefused, SizeRefused)


@dataclass
class SchedulerReport:
    """What the scheduler reported. ``None``: no answer.

    ``tests``: requests, one for each partition, with what the scheduler answered when it tested them. ``user``: the
    user's name there. ``own_qos``: the user's QOS with each account. ``features``: those of each partition's nodes.
    ``clusters``: those to which jobs can be sent.
    """

    partitions: tuple[Partition, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    accounts: tuple[str, ...] | None = None
    reservations: tuple[ReservationInfo, ...] | None = None
    limits: Sequence[Limit] | None = None
    account: str | None = None
    qos: str | None = None
    tests: list[tuple[Request, StartEstimate]] = field(default_factory=list)
    user: str = ""
    own_qos: Mapping[str, tuple[str, ...]] | None = None
    features: Mapping[str, tuple[str, ...]] | None = None
    sizes: tuple[NodeSize, ...] | None = None
    licences: tuple[Licence, ...] | None = None
    clusters: tuple[str, ...] | None = None

    @property
    def refusal(self) -> LauncherError | None:
        """Why the request is refused; ``None`` if one of its partitions accepts it."""
        refusals = [would.refusal for _, would in self.tests]
        return None if None in refusals else next(iter(refusals), None)

    def refused(self, kind: type[LauncherError]) -> LauncherError | None:
        """Return the refusal if it is of this kind."""
        return self.refusal if isinstance(self.refusal, kind) else None

    def partitions_of(self, request: Request) -> list[str]:
        """Return the partitions that a request names, or else the default one; empty if that is not known."""
        names = [name.strip() for name in (request.flags.get("partition") or "").split(",") if name.strip()]
        return names or [partition.name for partition in self.partitions or () if partition.is_default]

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those of these partitions that do not exist; none if the partitions are not known."""
        known = None if self.partitions is None else {partition.name for partition in self.partitions}
        return [name for name in names if known is not None and name not in known]


# --- the parts of a request ---------------------------------------------------------------------------------------


def assess_partition(names: Sequence[str], report: SchedulerReport, account: str | None = None) -> Finding:
    """Assess whether the partitions exist, are open, and accept the request. ``account``: that of the request."""
    known = {partition.name: partition for partition in report.partitions or ()}
    usable, is_shortened = open_partitions(report.partitions or (), account, report.accounts)
    if missing := report.missing(names):
        near = nearest(missing[0], usable)
        return fault(
            f"There is no partition {missing[0]}. {'Open to you' if is_shortened else 'The partitions are'}: "
            f"{names_for(missing[0], usable)}.",
            name_one("-p", near),
        )
    closed = [name for name in names if name in known and known[name].is_up is False]
    opened = [name for name in usable if known[name].is_up]
    if closed and len(closed) == len(names):
        return fault(
            f"Partition {', '.join(closed)} is closed at the moment: it takes no jobs, or starts none.",
            f"choose another with -p: {names_for(closed[0], opened)}; the cluster's support knows why"
            if opened
            else "no partition is open at the moment: ask the cluster's support",
        )
    if refusal := report.refused(PartitionRefused):
        others = names_for("", [name for name in usable if name not in names])
        if not others or len(names) > 1:  # of several, one may be enough: the refusal says so
            return of_error(refusal)
        return fault(_meaning_of(refusal), f"{'choose another' if names else 'name one'} with -p: {others}")
    if closed:
        return warning(f"Of {', '.join(names)}, {', '.join(closed)} is closed at the moment.", "leave it out of -p")
    if not names:
        return ok("none is asked for: the cluster chooses")
    nodes = "" if len(names) > 1 else f", of {counted(known[names[0]].nodes, 'node')}" if known[names[0]].nodes else ""
    return ok(f"{', '.join(names)}{nodes}: open")


def assess_walltime(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding:
    """Assess the walltime by the limits of its partitions; it is not checked if one of them does not exist."""
    refusal = report.refused(WalltimeRefused)
    if missing := report.missing(names):
        return _not_checked(missing)
    by_least = refusal is not None and "time-min" in request.flags  # then that flag may be what is wrong
    if not by_least and (obstacle := _everywhere(too_long, request, names, report)):
        forever = "" if refusal else " It would wait for ever."
        return fault(f"{_sentence(obstacle)}{forever}", f"ask for less: {obstacle.instead}")
    if refusal:
        return of_error(refusal)
    walltime = as_typed({"time": request.flags.get("time")})
    if not names:
        return unknown(f"{walltime}: not checked, as the cluster chooses the partition, and so its limit, at launch.")
    return ok(f"{walltime} is within the limit")


def assess_size(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding | None:
    """Return the fault if the request is refused because of its number of nodes; ``None`` if nothing shows that."""
    if report.refused(SizeRefused) and (obstacle := _everywhere(wrong_size, request, names, report)):
        return fault(_sentence(obstacle), f"try {obstacle.instead}, or another partition with -p")
    return None


def assess_gpus(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding:
    """Assess whether the partitions have the GPUs of a request."""
    refusal = report.refused(GresRefused)
    request_text = f"{request.gpus} asked for"
    if missing := report.missing(names):
        return _not_checked(missing)
    if report.nodes is None:
        unread = f"{request_text}; the scheduler did not report which GPUs there are."
        return of_error(refusal) if refusal else unknown(unread)
    nodes = [node for node in report.nodes if node.partition in names or not names]
    there = gpus_of(nodes)
    if report.refusal is not None and (lack := _lacking(request, names, nodes, report.nodes)):
        return lack
    return of_error(refusal) if refusal else ok(f"{request_text}; in the partition are {kinds_of(there)}")


def _lacking(
    request: Request, names: Sequence[str], nodes: Sequence[Node], everywhere: Sequence[Node]
) -> Finding | None:
    """Return the fault if these nodes have no such GPUs, or too few of them."""
    there, where = gpus_of(nodes), _where(names)
    unknown_types = gpu_types(request) - there.keys() if "" not in there else set()
    if request.gpus and (unknown_types or not there):
        others = sorted({node.partition for node in everywhere if unknown_types <= node.gpus.keys() and node.gpus})
        kinds = sorted(unknown_types)
        near = closest_first(kinds[0], list(there)) if kinds else []
        hint = "leave out --gpus"
        if others:
            hint = f"another partition has it: -p {others[0]}"
        elif near and ":" not in (request.flags.get("gpus") or ":"):
            hint = f"--gpus takes a number or TYPE:NUMBER, for example --gpus {near[0]}:1"
        elif near:
            hint = f"name one that is there, for example --gpus {near[0]}:1"
        if not there:
            return fault(f"There are no GPUs in {where}.", hint)
        there_are = kinds_of({kind: count for kind, count in there.items() if kind in near})
        return fault(f"There is no GPU {', '.join(kinds)} in {where}; there are {there_are}.", hint)
    for flag, value in request.flags.items():
        is_total = flag == "gpus"
        for kind, count in gpu_items(flag, value or "") or ():
            sizes = [sum(n for name, n in node.gpus.items() if kind in (None, name)) for node in _once(nodes)]
            most = sum(sizes) if is_total else max(sizes, default=0)
            if count > most:
                of_type = f"GPU{'' if count == 1 else 's'}{f' of type {kind}' if kind else ''}"
                has = f"{where} has {most}" if is_total else f"a node of {where} has {most} at most"
                return fault(f"It asks for {count} {of_type}, and {has}.", "ask for fewer GPUs")
    return None


def kinds_of(gpus: Mapping[str, int]) -> str:
    """Return the number of GPUs of each type, as text."""
    return listed([f"{count} × {kind or 'GPU'}" for kind, count in gpus.items()], MOST_NAMES) or "none"


def _not_checked(missing: Sequence[str]) -> Finding:
    return Finding("skipped", f"not checked: there is no partition {missing[0]}")


def _everywhere(
    check: Callable[[Request, Partition], Obstacle | None],
    request: Request,
    names: Sequence[str],
    report: SchedulerReport,
) -> Obstacle | None:
    """Return the first obstacle if the request meets one in each of its partitions."""
    places = [partition for partition in report.partitions or () if partition.name in names]
    obstacles = [obstacle for place in places if (obstacle := check(request, place))]
    return obstacles[0] if places and len(obstacles) == len(places) else None


def _sentence(obstacle: Obstacle) -> str:
    return f"{obstacle.why[0].upper()}{obstacle.why[1:]}."


def account_refusal(request: Request, report: SchedulerReport) -> LauncherError | None:
    """Return the refusal if the account is its cause, which Slurm may report as a refusal of the partition."""
    account, yours = request.flags.get("account"), report.accounts
    if report.refusal is not None and account and yours and account not in yours:
        return report.refusal
    return report.refused(AccountRefused)


def assess_account(requested: str | None, yours: Sequence[str] | None, refusal: LauncherError | None) -> Finding:
    """Assess the account.

    ``yours``: the accounts that the user may use, ``None``: not known. ``refusal``: that of the account, if any.
    """
    there = f"Yours are: {names_for(requested or '', yours)}." if yours else ""
    if refusal is None:
        if requested is None:
            return ok("none is asked for" + (f"; yours are {names_for('', yours)}" if yours else ""))
        return ok(f"{requested} is yours" if yours and requested in yours else f"{requested} is accepted")
    near = nearest(requested or "", yours or ())
    hint = (
        as_hint(near, "-A {}")
        if near and requested not in near
        else "name one of these with -A"
        if yours
        else refusal.hint
    )
    if requested is None:
        return fault(f"{refusal.what} {there}".strip(), hint)
    if yours and requested not in yours:
        return fault(f"The account {requested} is not yours. {there}", hint)
    return fault(f"{refusal.what} {refusal.why}".strip(), hint)


def assess_reservation(
    name: str,
    reservations: Sequence[ReservationInfo] | None,
    now: datetime,
    refusal: LauncherError | None,
    usable: Sequence[str] | None = None,
) -> Finding:
    """Assess a reservation. ``refusal``: that of a request with this reservation, if the scheduler tested one.

    ``usable``: the names of the reservations that the user may use, ``None``: not known.
    """
    if reservations is None:
        return unknown(f"The scheduler did not report its reservations; {name} could not be checked.")
    reservation = next((one for one in reservations if one.name == name), None)
    if reservation is None:
        names = [one.name for one in reservations] if usable is None else usable
        near, for_you = nearest(name, names), len(names) < len(reservations)
        there = "None is open to you." if for_you else "There are none."
        if names:
            there = f"{'Open to you' if for_you else 'The reservations are'}: {names_for(name, names)}."
        hint = as_hint(near) or "ask whoever made it, or go without it"
        return fault(f"There is no reservation {name}, or it is over. {there}", hint)
    when = f"{name}: {span_of(reservation, now.tzinfo)}"
    end = parse_iso(reservation.end, now)
    if end is not None and end <= now:
        return fault(f"The reservation is over: {when}.", "go without it, or ask for another one")
    if refusal is not None:
        return fault(
            f"You may not use the reservation {name}. {refusal.why}".strip(),
            f"it is for {whom(reservation)}: ask whoever made it to add you",
        )
    start = parse_iso(reservation.start, now)
    future = "; a job with it waits until then" if start is not None and start > now else ""
    return ok(f"{when}, for {whom(reservation)}{future}")


def assess_qos(request: Request, report: SchedulerReport, refusal: LauncherError) -> Finding:
    """Assess the QOS of a request that was refused because of it."""
    name, places = request.flags.get("qos"), report.partitions_of(request)
    account, yours = own_qos(request.flags.get("account") or report.account, report.own_qos)
    if not name or not yours or "-p" in refusal.hint:  # the QOS is only for one partition
        return of_error(refusal)
    allowing = [one for one in report.partitions or () if one.name in places]
    usable = [qos for qos in yours if all(may_use(qos, one.qos, one.denied_qos) for one in allowing)] or list(yours)
    if name not in yours:
        near, whose = nearest(name, usable), f" with account {account}" if account else ""
        return fault(
            f"There is no QOS {name}, or it is not yours. Yours{whose}: {names_for(name, usable)}.",
            name_one("-q", near),
        )
    others = [qos for qos in usable if qos != name]
    hint = f"name another with -q: {names_for(name, others)}" if others else refusal.hint
    if name not in usable:
        return fault(f"QOS {name} may not be used in {_where(places)}.", hint)
    return fault(_meaning_of(refusal), hint)


def assess_features(request: Request, names: Sequence[str], report: SchedulerReport) -> Finding | None:
    """Return the fault if the request names a feature that no node there has; ``None`` if nothing shows that."""
    if report.features is None:
        return None
    there = [feature for name in names or report.features for feature in report.features.get(name, ())]
    constraint = re.sub(r"\*\d+", "", request.flags.get("constraint") or "")
    # With alternatives, a feature that only nodes of other partitions have is no fault; one that no node has is.
    known = {*there, *(one for features in report.features.values() for one in features if _SOME.search(constraint))}
    missing = next((feature for feature in _FEATURES.findall(constraint) if feature not in known), None)
    if missing is None or report.missing(names):
        return None
    if not there:
        return fault(f"No node of {_where(names)} has any feature.", "leave out -C")
    near = nearest(missing, there)
    hint = name_one("-C", near)
    if others := [name for name, features in report.features.items() if missing in features]:
        hint = f"partition {others[0]} has it: -p {others[0]}"
    found = f"No node of {_where(names)} has the feature {missing}. Its nodes have: {names_for(missing, there)}."
    return fault(found, hint)


# the features between the operators, and the operators with which not all are needed: sbatch's manual, --constraint
_FEATURES, _SOME = re.compile(r"[^\s&|,!*()\[\]]+"), re.compile(r"[|!\[]")


def assess_nodelist(nodelist: str | None, nodes: Sequence[Node] | None) -> Finding | None:
    """Return the fault if one of the nodes does not exist; ``None`` if nothing shows that."""
    there = [node.name for node in nodes or ()]
    wanted = [name.strip() for name in (nodelist or "").split(",")]
    if not there or not nodelist or not all(map(_NODE.fullmatch, wanted)):
        return None  # a file, or a range of nodes
    missing = next((name for name in wanted if name not in there), None)
    if missing is None:
        return None
    near = nearest(missing, there)
    found = f"There is no node {missing}. The nodes are: {names_for(missing, there)}."
    return fault(found, name_one("-w", near))


_NODE = re.compile(r"[\w.-]+")


def assess_clusters(typed: str | None, clusters: Sequence[str] | None) -> Finding | None:
    """Return the fault if ``-M`` names a cluster that does not exist; ``None`` if nothing shows that."""
    names = [name.strip() for name in (typed or "").split(",") if name.strip()]
    there = {name.lower() for name in clusters or ()}  # Slurm also accepts names in capitals
    missing = next((name for name in names if name.lower() not in {*there, "all"}), None)
    if missing is None or not clusters:
        return None
    found = f"There is no cluster {missing}. The clusters are: {names_for(missing, clusters)}."
    return fault(found, name_one("-M", nearest(missing, clusters)))


def _where(partitions: Sequence[str]) -> str:
    return f"partition {', '.join(partitions)}" if partitions else "the cluster"


def _meaning_of(refusal: LauncherError) -> str:
    """Return what a refusal means, without its first sentence, “Slurm refused the job”."""
    return refusal.what.partition(". ")[2] or refusal.what


def span_of(reservation: ReservationInfo, zone: tzinfo | None) -> str:
    """Return the start and end of a reservation, on the cluster's clock."""
    moments = [parse_iso(text) for text in (reservation.start, reservation.end)]
    first, last = (f"{at.astimezone(zone) if at.tzinfo else at:%Y-%m-%d %H:%M}" if at else "?" for at in moments)
    return f"{first} to {last}"


def whom(reservation: ReservationInfo) -> str:
    """Return who may use a reservation."""
    named = (("user", reservation.users), ("account", reservation.accounts))
    return " and ".join(f"{kind}{'s' if ',' in names else ''} {names}" for kind, names in named if names) or "all"


def gpu_types(request: Request) -> set[str]:
    """Return the types of GPUs that a request names; none if any type will do."""
    return {kind for flag, value in request.flags.items() for kind, _ in gpu_items(flag, value or "") or () if kind}


def gpus_of(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of GPUs of each type, sorted by type; a node that is listed twice counts once."""
    found: dict[str, int] = {}
    for node in _once(nodes):
        for kind, count in node.gpus.items():
            found[kind] = found.get(kind, 0) + count
    return dict(sorted(found.items()))


def _once(nodes: Iterable[Node]) -> list[Node]:
    """Return each node once; nodes in several partitions are listed for each of them."""
    return list({node.name: node for node in nodes}.values())


# --- a refusal ----------------------------------------------------------------------------------------------------


def reword_refusal(refusal: SubmitRefused, request: Request, report: SchedulerReport, now: datetime) -> None:
    """Replace a refusal's general meaning and its hint by specific ones, if the cluster's report shows the cause.

    If the walltime is too long as well, it adds that.

    Arguments as for ``explain_refusal``.
    """
    if found := explain_refusal(refusal, request, report, now):
        opening = refusal.what.partition(". ")[0]  # “Slurm refused the job”
        refusal.what, refusal.hint = f"{opening}. {found.found}", found.hint
    names = report.partitions_of(request)
    if not isinstance(refusal, SizeRefused | GresRefused) or report.missing(names):
        return
    if obstacle := _everywhere(too_long, request, names, report):
        refusal.what += f" {_sentence(obstacle)}"
        refusal.hint = "; ".join(filter(None, [refusal.hint, f"ask for less time: {obstacle.instead}"]))


def explain_refusal(refusal: SubmitRefused, request: Request, report: SchedulerReport, now: datetime) -> Finding | None:
    """Return why the scheduler refused a request, with a hint, according to its report; ``None`` if that is unclear.

    ``report``: its ``tests`` are ignored. The scheduler's own message is not repeated. ``now``: on the cluster's clock.
    """
    named = copy.copy(refusal)
    named.why = ""
    report = replace(report, tests=[(request, StartEstimate(refusal=named))])
    names, flags = report.partitions_of(request), request.flags
    findings: list[Finding | None] = []
    if account := account_refusal(request, report):
        findings.append(assess_account(flags.get("account") or report.account, report.accounts, account))
    if isinstance(refusal, PartitionRefused):
        findings.append(assess_partition(names, report, flags.get("account")))
    if isinstance(refusal, QosRefused):
        findings.append(assess_qos(request, report, named))
    if isinstance(refusal, ReservationRefused) and (reserved := flags.get("reservation")):
        usable = usable_reservations(report.reservations or (), report.user, report.accounts, now)
        findings.append(assess_reservation(reserved, report.reservations, now, named, usable))
    if isinstance(refusal, ConstraintRefused):
        findings.append(assess_nodelist(flags.get("nodelist"), report.nodes))
    if isinstance(refusal, ConstraintRefused | SizeRefused):
        findings.append(assess_features(request, names, report))
    if isinstance(refusal, LicenceRefused):
        findings.append(assess_licences(flags.get("licenses"), report.licences))
    if isinstance(refusal, ClusterRefused):
        findings.append(assess_clusters(flags.get("clusters"), report.clusters))
    if isinstance(refusal, WalltimeRefused):
        findings.append(assess_walltime(request, names, report))
    if isinstance(refusal, SizeRefused):
        findings.append(assess_size(request, names, report))
        usable, _ = open_partitions(report.partitions or (), flags.get("account"), report.accounts)
        findings.append(assess_node_size(request, names, report.sizes or (), usable))
        findings.append(assess_cores(request, names, report.nodes or (), usable))
    if isinstance(refusal, SizeRefused | GresRefused) and request.gpus:
        findings.append(assess_gpus(request, names, report))
    if isinstance(refusal, GresRefused) and "gres" in flags and not request.gpus and report.nodes:
        there = gpus_of(node for node in report.nodes if node.partition in names or not names)
        findings.append(fault(_meaning_of(refusal), f"{_where(names)} has these GPUs: {kinds_of(there)}"))
    return next((one for one in findings if one and one.result == "fault" and one.found != refusal.what), None)
