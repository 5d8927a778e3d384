"""Reads the jobs of a class from the scheduler: with one query of the queue, and of the history only if necessary."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from notebook_launcher.classroom.class_members import selection
from notebook_launcher.classroom.student_states import ClassOf
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, SchedulerSilent
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.doctor.findings import expand, nodes_in_service
from notebook_launcher.jobs.evidence import run_queries
from notebook_launcher.schedulers.base import State
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Node, ReservationInfo
from notebook_launcher.schedulers.make import make_user_jobs
from notebook_launcher.schedulers.user_jobs import Selection, UserJob, UserJobs
from notebook_launcher.session.context import Context

HISTORY = timedelta(hours=3)  # sessions that ended this long before the first query are still shown
NODES_EVERY = 4  # the nodes are queried every so many times
TIMEOUT = 40.0  # seconds for one query

_HIDDEN = (
    "This cluster hides other people's jobs from you (PrivateData=jobs), so the students' jobs cannot be shown. "
    "Ask the cluster's support to make you a coordinator of the account."
)


class Gpus(Frozen):
    """The number of GPUs of the class's nodes in service, and how many of them are free; ``None``: not reported."""

    total: int | None = None
    free: int | None = None


class ClassJobs:
    """The jobs of a class, updated by each ``query``. ``jobs``: ``None`` until the scheduler has answered once.

    ``problem``: why they are outdated or incomplete, in a sentence. ``known``: the ids of the class's jobs.
    ``nobody``: names on the roster that no user has; the scheduler is not asked about them.
    """

    def __init__(self, context: Context, group: ClassOf) -> None:
        """Raises ``SchedulerSilent`` if the scheduler does not list other users' jobs."""
        self._context, self._group = context, group
        self._user_jobs, self._info = _lists(context)
        self._queries = 0
        self._by_id: dict[str, UserJob] = {}
        self._nodes: tuple[Node, ...] | None = None
        self._reservation: ReservationInfo | None = None
        self._is_hidden = False
        self._needs_history = True
        self._known = set[str]()
        self.nobody = frozenset[str]()
        self.jobs: tuple[UserJob, ...] | None = None
        self.problem = ""

    @property
    def known(self) -> frozenset[str]:
        """The ids of all jobs that were found to belong to the class, including those that have ended."""
        return frozenset(self._known)

    @property
    def gpus(self) -> Gpus:
        """The GPUs of the reservation's nodes, or without a reservation, of the partition's."""
        if self._nodes is None:
            return Gpus()
        named = expand(self._reservation.nodes) if self._reservation and self._reservation.nodes else None
        nodes = nodes_in_service(named, self._group.partitions, self._nodes)
        total = sum(sum(node.gpus.values()) for node in nodes)
        used = [sum((node.gpus_used or {}).values()) for node in nodes if node.gpus_used is not None]
        return Gpus(total, max(0, total - sum(used)) if len(used) == len(nodes) else None)

    def query(self) -> None:
        """Query the scheduler once, in one command. Raises ``ConnectionLost`` or ``HostCommandFailed``."""
        if self._queries == 0:
            self.nobody = self._names_without_user()
        mark, whose, cluster = secrets.token_hex(8), self._whose(), self._group.cluster
        commands = [self._user_jobs.jobs(whose, cluster, mark)]
        asks_history, asks_nodes = self._needs_history, self._queries % NODES_EVERY == 0
        if asks_history:
            since = self._context.clock() - HISTORY
            commands.append(self._user_jobs.ended_jobs(whose, cluster, since, mark))
        if asks_nodes:
            commands.append(self._info.nodes(cluster))
        if is_first := self._queries == 0:
            commands += [self._info.private_data(cluster), self._info.reservations(cluster) or ["false"]]
        self._queries += 1
        answers = run_queries(self._context.host, commands, timeout=TIMEOUT)
        now = self._user_jobs.read_jobs(answers.pop(0), mark)
        past = self._user_jobs.read_ended_jobs(answers.pop(0), mark) if asks_history else ()
        if asks_nodes:
            self._nodes = self._info.read_nodes(answers.pop(0)) or self._nodes
        if is_first:
            self._read_once(*answers)
        self._merge(now, past, asked_history=asks_history)

    def _whose(self) -> Selection:
        """Return whose jobs to query: without roster names that are not users, for which sacct would return nothing."""
        whose = selection(self._group)
        return replace(whose, users=tuple(user for user in whose.users if user not in self.nobody))

    def _names_without_user(self) -> frozenset[str]:
        """Return the names on the roster that no user has; none if they cannot be looked up, or if it would be all."""
        names = frozenset(one.user for one in self._group.students)
        if not names:
            return names
        try:
            answer = self._context.host.run(["getent", "passwd", *sorted(names)], timeout=TIMEOUT)
        except HostCommandFailed:
            return frozenset()
        # getent(1) exits with 2 if some of the names were not found; without getent, nothing is known
        found = {line.partition(":")[0].casefold() for line in answer.stdout.splitlines()}
        missing = frozenset(name for name in names if name.casefold() not in found)
        return missing if answer.exit_code in (0, 2) and missing < names else frozenset()

    def _read_once(self, private: CommandResult, reservations: CommandResult) -> None:
        self._is_hidden = self._info.read_private_data(private) is True
        listed = self._info.read_reservations(reservations) or ()
        self._reservation = next((one for one in listed if one.name == self._group.reservation), None)

    def _merge(self, now: Sequence[UserJob] | None, past: Sequence[UserJob] | None, *, asked_history: bool) -> None:
        if now is None:
            self.problem = "The scheduler does not answer; these are the last known states."
            return
        listed = {job.id: job for job in now}
        gone = [key for key, job in self._by_id.items() if key not in listed and not is_settled(job)]
        for job in past or ():
            if job.id not in listed:
                before = self._by_id.get(job.id, job)
                self._by_id[job.id] = replace(job, gpus=before.gpus)
        self._by_id |= listed
        still_gone = [key for key in gone if not self._by_id[key].state.ended]
        if asked_history:
            for key in still_gone:
                self._by_id[key] = replace(self._by_id[key], state=State.UNKNOWN)
        # jobs that have just left the queue without a known outcome are looked up in the history next time
        self._needs_history = bool(still_gone) and not asked_history
        self._known |= {job_id for job_id, job in self._by_id.items() if self._group.has(job)}
        self.jobs = tuple(self._by_id.values())
        sees_others = any(job.user != self._context.site.user for job in self.jobs)
        self.problem = _HIDDEN if self._is_hidden and not sees_others else ""


def is_settled(job: UserJob) -> bool:
    """Whether the state of a job that is no longer in the queue is final."""
    return job.state.ended or job.state is State.UNKNOWN


def _lists(context: Context) -> tuple[UserJobs, ClusterInfo]:
    user_jobs, info = make_user_jobs(context.scheduler), context.scheduler.cluster_info
    if user_jobs is None or info is None:
        raise SchedulerSilent(
            f"On {context.host.label} the jobs of a class cannot be listed.",
            why=f"With {context.scheduler.name}, the launcher only queries your own jobs.",
            hint="ask with the scheduler's own commands",
        )
    return user_jobs, info
