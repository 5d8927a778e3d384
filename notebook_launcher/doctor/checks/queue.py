"""The scheduler, and whether it takes the request: asked as for a launch, without queueing anything."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from notebook_launcher.core.check_runner import Round
from notebook_launcher.core.errors import (
    AccountRefused,
    GresRefused,
    LauncherError,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    WalltimeRefused,
)
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.timestamps import moment
from notebook_launcher.diagnosis.partition_fit import too_long
from notebook_launcher.diagnosis.start_constraints import Rules
from notebook_launcher.doctor.findings import (
    Finding,
    expand,
    fault,
    gpu_types,
    gpus_of,
    judge_account,
    judge_booking,
    judge_programs,
    of_error,
    ok,
    room_in,
    roughly,
    sessions_on,
    unknown,
    warning,
)
from notebook_launcher.hosts.base import Host
from notebook_launcher.jobs.evidence import ask, ask_together
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.schedulers.cluster_info import Booking, Limit, Node, Outlook, Partition, WouldStart

PROGRAMS, ANSWERS = "scheduler", "scheduler answers"
PARTITION, ACCOUNT, WALLTIME, RESERVATION, GPUS, START = (
    "partition", "account", "walltime", "reservation", "GPUs", "start",
)  # fmt: skip
TAKEN = (PROGRAMS, ANSWERS, PARTITION, ACCOUNT, WALLTIME, RESERVATION, GPUS, "QOS", START)
WITHIN = 30.0  # seconds for one word of the scheduler
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


def check_scheduler(round_: Round, host: Host, scheduler: Scheduler) -> None:
    """Check that the scheduler's commands are there and answer."""
    if scheduler.same_machine:
        round_.tell(PROGRAMS, ok(f"{scheduler.name}: jobs run on {host.label} itself, and wait for nobody"))
        return
    if not scheduler.programs:
        round_.tell(PROGRAMS, unknown(f"{scheduler.name}: only a launch, or --node, tells whether it takes jobs."))
        return
    round_.check(PROGRAMS, lambda: _programs(host, scheduler), doing="looking for the scheduler")


def _programs(host: Host, scheduler: Scheduler) -> Finding:
    answer = host.run(["sh", "-c", _FIND, "find", *scheduler.programs], login_shell=True, timeout=WITHIN)
    pairs = [line.split(" ", 1) for line in answer.stdout.splitlines() if line.startswith(scheduler.programs)]
    found = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    paths = {name: found.get(name, "").strip() for name in scheduler.programs}
    version = (answer.stdout.splitlines() or [""])[-1].strip()
    return judge_programs(paths, version or scheduler.name)


@dataclass
class Told:
    """What the scheduler told. ``None``: it did not."""

    partitions: tuple[Partition, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    accounts: tuple[str, ...] | None = None
    bookings: tuple[Booking, ...] | None = None
    limits: Sequence[Limit] | None = None
    account: str | None = None
    qos: str | None = None
    tests: list[tuple[Request, WouldStart]] = field(default_factory=list)

    @property
    def refusal(self) -> LauncherError | None:
        """Why the request is refused; ``None`` where one of its partitions takes it."""
        refusals = [would.refusal for _, would in self.tests]
        return None if None in refusals else next(iter(refusals), None)

    def refused(self, kind: type[LauncherError]) -> LauncherError | None:
        """Return the refusal where it is of this kind."""
        return self.refusal if isinstance(self.refusal, kind) else None


def check_request(round_: Round, host: Host, scheduler: Scheduler, request: Request, user: str, now: datetime) -> Told:
    """Check what is asked for, one thing after the other, and when it would start."""
    told, outlook = Told(), scheduler.outlook
    if outlook is None:
        for name in (ACCOUNT, WALLTIME, START) if not scheduler.same_machine else ():
            round_.tell(name, unknown(f"Nothing can be asked of {scheduler.name} before a launch.",
                                      "only a launch tells, or: launch-notebook doctor --node"))  # fmt: skip
        return told
    if not round_.check(ANSWERS, lambda: _answers(host, outlook, request, told), needs=[PROGRAMS],
                        doing="asking the scheduler"):  # fmt: skip
        for name in (PARTITION, ACCOUNT, WALLTIME, START):
            round_.skip(name, f"not checked: it needs {ANSWERS if round_.is_well(PROGRAMS) else PROGRAMS}")
        return told
    names = _partitions_of(request, told.partitions)
    _ask_all(host, outlook, request, names, user, told)
    asked = request.flags
    round_.check(PARTITION, lambda: _partition(names, told))
    account = told.refused(AccountRefused)
    if account is None and told.refusal is not None and asked.get("account") and told.accounts:
        account = told.refusal if asked["account"] not in told.accounts else None
    round_.check(ACCOUNT, lambda: judge_account(asked.get("account") or told.account, told.accounts, account))
    if asked.get("qos") or told.refused(QosRefused):
        round_.check("QOS", lambda: _plain(told.refused(QosRefused), asked.get("qos") or "none"))
    if reserved := asked.get("reservation"):
        refusal = told.refused(ReservationRefused)
        round_.check(RESERVATION, lambda: judge_booking(reserved, told.bookings, now, refusal))
    round_.check(WALLTIME, lambda: _walltime(request, names, told))
    if request.gpus or told.refused(GresRefused):
        round_.check(GPUS, lambda: _gpus(request, names, told))
    round_.check(START, lambda: _start(request, told, now), needs=[*_BELONGS.values()])
    return told


def _answers(host: Host, outlook: Outlook, request: Request, told: Told) -> Finding:
    answer = ask(host, outlook.partitions(request.clusters))
    told.partitions = outlook.read_partitions(answer)
    if told.partitions is None:
        said = (answer.stderr.strip() or answer.stdout.strip() or "it said nothing").splitlines()[-1]
        return fault(f"The scheduler does not answer: {said}", "it may be restarting: try again later, or ask "
                     "the cluster's support")  # fmt: skip
    names = ", ".join(partition.name for partition in told.partitions)
    return ok(f"its partitions are {names}")


def _partitions_of(request: Request, partitions: Sequence[Partition] | None) -> list[str]:
    asked = [name.strip() for name in (request.flags.get("partition") or "").split(",") if name.strip()]
    return asked or [partition.name for partition in partitions or () if partition.is_default]


def _ask_all(host: Host, outlook: Outlook, request: Request, names: Sequence[str], user: str, told: Told) -> None:
    """Ask for everything by one login: a test for each partition, and what explains what it says."""
    cluster = request.clusters
    each = [Request({**request.flags, "partition": name}) for name in names[:4]] if len(names) > 1 else [request]
    others = [outlook.nodes(cluster), outlook.limits(user, cluster),
              outlook.accounts(user, cluster) or ["false"], outlook.bookings(cluster) or ["false"]]  # fmt: skip
    answers = ask_together(host, [*others, *(outlook.would_start(one) for one in each)])
    nodes, limits, accounts, bookings, *tests = answers
    told.nodes, told.limits = outlook.read_nodes(nodes), outlook.read_limits(request, limits)
    told.account, told.qos = outlook.read_defaults(request, limits)
    told.accounts, told.bookings = outlook.read_accounts(accounts), outlook.read_bookings(bookings)
    told.tests = [(one, outlook.read_would_start(test)) for one, test in zip(each, tests, strict=True)]


# --- one thing after the other ---------------------------------------------------------------------------------


def _plain(refusal: LauncherError | None, asked: str) -> Finding:
    return of_error(refusal) if refusal else ok(f"{asked} is accepted")


def _partition(names: Sequence[str], told: Told) -> Finding:
    known = {partition.name: partition for partition in told.partitions or ()}
    missing = [name for name in names if name not in known]
    if missing:
        near = difflib.get_close_matches(missing[0], list(known), n=1)
        return fault(f"There is no partition {missing[0]}. There are: {', '.join(known)}.",
                     f"did you mean -p {near[0]}?" if near else "name one of these with -p, or none")  # fmt: skip
    closed = [name for name in names if known[name].is_up is False]
    opened = [name for name in known if known[name].is_up]
    if closed and len(closed) == len(names):
        return fault(f"Partition {', '.join(closed)} is closed at the moment: jobs there wait, or are refused.",
                     f"open ones are: {', '.join(opened) or 'none'}; the cluster's support knows why")  # fmt: skip
    if refusal := told.refused(PartitionRefused):
        return of_error(refusal)
    if closed:
        return warning(f"Of {', '.join(names)}, {', '.join(closed)} is closed at the moment.", "leave it out of -p")
    if not names:
        return ok("none is asked for: the cluster chooses")
    asked = "" if len(names) > 1 else f", of {_nodes(known[names[0]].nodes)}" if known[names[0]].nodes else ""
    return ok(f"{', '.join(names)}{asked}: open")


def _nodes(count: int | None) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _walltime(request: Request, names: Sequence[str], told: Told) -> Finding:
    if refusal := told.refused(WalltimeRefused):
        return of_error(refusal)
    places = [partition for partition in told.partitions or () if partition.name in names]
    obstacles = [obstacle for place in places if (obstacle := too_long(request, place))]
    if places and len(obstacles) == len(places):
        why = obstacles[0].why
        return fault(f"{why[0].upper()}{why[1:]}. It would wait for ever.", f"ask for less: {obstacles[0].instead}")
    return ok(f"{as_typed({'time': request.flags.get('time')})} is within the limit")


def _gpus(request: Request, names: Sequence[str], told: Told) -> Finding:
    if refusal := told.refused(GresRefused):
        return of_error(refusal)
    asked = f"{request.gpus} asked for"
    if told.nodes is None:
        return unknown(f"{asked}; what GPUs there are was not told.")
    there = gpus_of(node for node in told.nodes if node.partition in names or not names)
    missing = gpu_types(request) - there.keys() if "" not in there else set()
    if told.refusal is not None and (missing or not there):
        kinds = ", ".join(sorted(missing)) or "at all"
        others = sorted({node.partition for node in told.nodes if missing <= node.gpus.keys() and node.gpus})
        mend = f"another partition has it: -p {others[0]}" if others else "see: launch-notebook queue"
        return fault(f"There is no GPU {kinds} in partition {', '.join(names)}; there are {_counted(there)}.", mend)
    return ok(f"{asked}; in the partition are {_counted(there)}")


def _counted(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {kind or 'GPU'}" for kind, count in gpus.items()) or "none"


def _start(request: Request, told: Told, now: datetime) -> Finding:
    """Tell when it would start, or why it never will."""
    if told.refusal is not None:
        return of_error(told.refusal)
    rules = Rules(told.partitions, lambda _: told.limits, told.account, told.qos)
    open_ones = [(one, would) for one, would in told.tests if would.refusal is None]
    nevers = [rules.never(one, would.partition) for one, would in open_ones]
    if nevers and None not in nevers:
        never = nevers[0]
        assert never is not None  # noqa: S101  # none of them is
        return fault(f"It could be queued and would never start: {never.summary}.", never.action)
    held_up = [rules.held_up(one, would.partition) for one, would in open_ones]
    moments = [(at, would) for _, would in open_ones if (at := moment(would.start, now))]
    if held_up and all(held_up):
        return warning(held_up[0], "see what else would do: launch-notebook when")
    if not moments:
        return unknown("When it would start was not told.", "see: launch-notebook when")
    at, would = min(moments, key=lambda one: one[0])
    where = f" on {would.nodes}" if would.nodes else ""
    if at - now <= AT_ONCE:
        return ok(f"it would start at once{where}, with {as_typed(request.flags)}")
    return ok(f"it would start at {at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}, in {roughly(at - now)}{where}")


# --- besides ---------------------------------------------------------------------------------------------------


def check_accounting(round_: Round, host: Host, scheduler: Scheduler) -> None:
    """Check whether the accounting answers, by which a session's bill and end are told."""
    command = scheduler.history(JobRef("1"))
    if command is None or scheduler.same_machine or scheduler.accounting(JobRef("1")) is None:
        return

    def look() -> Finding:
        answer = ask(host, command)
        if answer.exit_code == 0:
            return ok("it answers")
        said = (answer.stderr.strip() or "it said nothing").splitlines()[-1]
        return warning(f"It does not answer: {said}", "sessions work without; what they used is told less exactly")

    round_.check("accounting", look, needs=[PROGRAMS, ANSWERS], doing="asking the accounting")


def check_room(round_: Round, request: Request, told: Told) -> None:
    """Tell for how many sessions like this one there is room at one time: in the reservation, or the partition."""
    names = _partitions_of(request, told.partitions)
    booking = next((one for one in told.bookings or () if one.name == request.flags.get("reservation")), None)
    reserved = expand(booking.nodes) if booking and booking.nodes else None

    def look() -> Finding:
        if not told.nodes:
            return unknown("What nodes there are was not told.")
        nodes = room_in(reserved, names, told.nodes)
        where = f"reservation {booking.name}" if booking and reserved else f"partition {', '.join(names) or '?'}"
        if request.gpus:
            count = sessions_on(nodes, request)
            like_this = f"{count} session{'' if count == 1 else 's'} like this one at a time"
            return ok(f"{where} has {_counted(gpus_of(nodes))} in service: {like_this}")
        cores = sum(node.cores or 0 for node in nodes)
        return ok(f"{where} has {cores} cores in service, of which each session has its share")

    round_.check("room", look, needs=[ANSWERS, PARTITION])
