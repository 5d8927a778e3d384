"""Assesses whether a class has what it needs, from reports of the scheduler and the cluster. Pure: returns findings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from notebook_launcher.classroom.class_folder import FolderFacts
from notebook_launcher.core.finding import Finding, fault, ok, unknown, warning
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, duration_text
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import listed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.request_check import span_of, whom
from notebook_launcher.diagnosis.requirements import amount_requested, amount_text, parse_amount
from notebook_launcher.doctor.findings import expand, nodes_in_service, sessions_on
from notebook_launcher.schedulers.cluster_info import Limit, Node, ReservationInfo

_MOST_NAMED = 8
_LONG = timedelta(days=365)  # instead of an unlimited walltime, which would exceed the range of dates
_WHO_MADE_IT = "ask whoever made it"
_LESSON = "The lesson"  # the subject of messages on what would fail


class Demand(Frozen):
    """The demand of a class: ``count`` sessions at the same time, each with this request."""

    sessions: int
    request: Request


def assess_members(users: Sequence[str], account: str, members: Collection[str] | None) -> Finding:
    """Assess whether each student may use the account. ``members``: ``None`` if nothing was reported."""
    if members is None:
        return unknown("The scheduler did not report who may use the account.")
    missing = [user for user in users if user not in members]
    if not members:
        return unknown(
            f"No user of {account} was reported: this cluster may hide them, or none is in it.",
            f"ask one student to type: sacctmgr show assoc where user=$USER account={account}",
        )
    if missing:
        return fault(
            f"{len(missing)} of {len(users)} may not use {account}: {listed(missing, _MOST_NAMED)}.",
            "add them to the project, or ask the cluster's support to; it may only take effect the next day",
            students=missing,
        )
    return ok(f"all {len(users)} may use {account}")


def assess_hour(
    name: str, reservation: ReservationInfo | None, begins: datetime | None, lasts: timedelta, now: datetime
) -> Finding:
    """Assess whether a reservation covers the lesson. ``begins``: ``None`` if only the scheduler knows."""
    if reservation is None:
        return fault(f"There is no reservation {name}, or it is over.", _WHO_MADE_IT, who=_LESSON)
    if begins is None:
        return unknown("When the lesson begins was not understood.", "name it as 2026-11-24T13:00 with --at")
    start, end = parse_iso(reservation.start, now), parse_iso(reservation.end, now)
    if start is None or end is None:
        return unknown(f"The scheduler did not report when {name} is.")
    lesson = f"{begins:%Y-%m-%d %H:%M} to {begins + lasts:%H:%M}"
    if start > begins or end < begins + lasts:
        return fault(
            f"{name} is from {span_of(reservation, now.tzinfo)}, and the lesson from {lesson}.",
            f"{_WHO_MADE_IT} to change it; --at and --for name another time",
            who=_LESSON,
        )
    return ok(f"{name}, {span_of(reservation, now.tzinfo)}, covers {lesson}")


def assess_users_of_reservation(reservation: ReservationInfo, users: Sequence[str], account: str | None) -> Finding:
    """Assess whether each student may use a reservation, by its users and accounts as Slurm interprets them.

    A name after ``-`` is denied; without names of a kind there is no restriction. If both users and accounts are named,
    a job must match both (scontrol(1)).
    """
    allowed, denied = _names(reservation.users)
    accounts, no_accounts = _names(reservation.accounts)
    if (accounts and account not in accounts) or account in no_accounts:
        return fault(
            f"{reservation.name} is for {whom(reservation)}, and not for the account {account or '(none is named)'}.",
            f"{_WHO_MADE_IT} to add the account",
        )
    out = [user for user in users if (allowed and user not in allowed) or user in denied]
    if out:
        return fault(
            f"{len(out)} of {len(users)} may not use {reservation.name}: {listed(out, _MOST_NAMED)}.",
            f"{_WHO_MADE_IT} to add them, or to make it for the account alone",
            students=out,
        )
    return ok(f"{reservation.name} is for {whom(reservation)}")


def _names(text: str) -> tuple[set[str], set[str]]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return {word for word in words if word[0] != "-"}, {word[1:] for word in words if word[0] == "-"}


def assess_walltime_fits(
    walltime: timedelta, lasts: timedelta, reservation: ReservationInfo | None, begins: datetime | None
) -> Finding:
    """Assess whether a session lasts as long as the lesson, and ends within the reservation."""
    if walltime < lasts:
        return warning(
            f"A session ends after {duration_text(walltime.total_seconds())}, before the lesson does "
            f"({duration_text(lasts.total_seconds())}).",
            "set a longer time in the course's defaults",
        )
    end = parse_iso(reservation.end, begins) if reservation and begins else None
    if end is not None and begins is not None and walltime > end - begins:
        by = "" if walltime > _LONG else f"{duration_text((begins + walltime - end).total_seconds())} "
        return warning(
            f"A session that starts with the lesson would end {by}after the reservation: Slurm starts no job there "
            "that ends later.",
            "set a shorter time in the course's defaults, or have the reservation prolonged",
        )
    return ok(f"a session lasts {duration_text(walltime.total_seconds())}")


def assess_room(
    demand: Demand, reservation: ReservationInfo | None, partitions: Sequence[str], nodes: Sequence[Node] | None
) -> Finding:
    """Assess whether all sessions fit at the same time, by GPUs and by cores, with each session on one node."""
    if not nodes:
        return unknown("The scheduler did not report its nodes.")
    named = expand(reservation.nodes) if reservation and reservation.nodes else None
    there = nodes_in_service(named, partitions, nodes)
    where = f"reservation {reservation.name}" if reservation and named else f"partition {', '.join(partitions) or '?'}"
    fits, by = _fitting(demand.request, there)
    if fits is None:
        return unknown(f"How many sessions fit into {where} at once could not be counted.")
    at_once = f"{counted(fits, 'session')} fit{'s' if fits == 1 else ''} into {where} at once, by its {by}"
    if fits < demand.sessions:
        text = f"{at_once}: {demand.sessions - fits} of {demand.sessions} students would wait until others end."
        how = "reserve more nodes, ask for less in the course's defaults, or let students work in groups"
        return fault(text, how, who=_LESSON) if reservation else warning(text, f"reserve nodes for the lesson, {how}")
    return ok(f"{at_once}, for {counted(demand.sessions, 'student')}")


def _fitting(request: Request, nodes: Sequence[Node]) -> tuple[int | None, str]:
    """Return how many sessions fit on some nodes, and which resource limits them."""
    cores = int(amount_requested(request, "cpu") or 0)
    known = [node.cores for node in nodes if node.cores]
    by_cores = sum(count // cores for count in known) if cores and len(known) == len(nodes) else None
    by_gpus = sessions_on(nodes, request) if request.gpus else None
    if by_gpus is not None and (by_cores is None or by_gpus <= by_cores):
        return by_gpus, "GPUs"
    return by_cores, "cores"


def assess_limits(demand: Demand, limits: Sequence[Limit] | None) -> Finding:
    """Assess whether the limits that all students share allow all sessions together."""
    if limits is None:
        return unknown("The limits of the account and QOS could not be read.", "ask the cluster's support for them")
    for limit in limits:
        if limit.per not in ("group", "account") or limit.on.endswith("minutes") or limit.on == "walltime":
            continue
        one = 1.0 if limit.on in ("jobs", "submitted jobs") else amount_requested(demand.request, limit.on)
        most = parse_amount(limit.on, limit.value)
        if one and most is not None and most < one * demand.sessions:
            fits = int(most // one)
            return fault(
                f"{limit.of} allows {amount_text(limit.on, limit.value)} for all together: "
                f"{counted(fits, 'session')} at once, and there are {demand.sessions} students.",
                "ask the cluster's support to raise it for the lesson",
                who=_LESSON,
            )
    return ok("no limit that the students share is too low for all of them")


def assess_sight(hidden: bool | None) -> Finding:
    """Assess whether the teacher sees the students' jobs. ``hidden``: whether they are hidden; ``None``: not known."""
    if hidden:
        return warning(
            "This cluster hides other people's jobs (PrivateData=jobs): classroom watch would show nobody.",
            "ask the cluster's support to make you a coordinator of the account, or set class_folder in the course",
        )
    return (
        unknown("Whether you see the students' jobs is not known.")
        if hidden is None
        else ok("you see everybody's jobs")
    )


def assess_class_folder(facts: FolderFacts) -> Finding:
    """Assess whether students can write their reports to the class folder, and nobody can replace those of others."""
    if facts.problem:
        return fault(f"The class folder {facts.problem}.", "create it: see docs/classroom.md", who=_LESSON)
    hint = f"chmod 3770 {facts.path}"
    if not facts.is_open:
        return fault(
            f"Students cannot write into {facts.path} (mode {facts.mode:04o}, group {facts.group}).", hint, who=_LESSON
        )
    if not facts.is_sticky:
        return fault(
            f"In {facts.path} students could remove each other's folders: no sticky bit (mode {facts.mode:04o}).",
            hint,
            who=_LESSON,
        )
    if not facts.passes_group_on:
        return warning(
            f"What students leave in {facts.path} would not belong to the group {facts.group}: only they can read it.",
            hint,
        )
    return ok(
        f"{facts.path} (mode {facts.mode:04o}, group {facts.group}): each student can write a folder of their own"
    )
