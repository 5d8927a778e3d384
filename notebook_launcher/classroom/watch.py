"""``classroom watch``: shows the state of every student of a class, again and again, until Ctrl-C."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from notebook_launcher.classroom.class_folder import read_reports
from notebook_launcher.classroom.class_jobs import ClassJobs
from notebook_launcher.classroom.class_members import find_class
from notebook_launcher.classroom.roster import Student
from notebook_launcher.classroom.student_states import ClassOf, Report, states_of, totals
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionLost,
    CopyFailed,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
    UsageError,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timestamps import iso
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.tunnel.reconnect import REFUSED_TIMES

LEAST_SECONDS, DEFAULT_SECONDS = 10, 30  # between two updates
JITTER = 0.1  # a pause is extended by a random fraction of it up to this
GIVE_UP_AFTER = 1800.0  # seconds without a connection to the login node


class WatchOptions(Frozen):
    """Options of the command. ``every``: seconds between two updates; ``once``: only one.

    ``html``: a file that is written at each update. ``anonymous``: show numbers instead of names. ``serve``: serve the
    page on this machine. ``reservation``, ``account``: see ``find_class``.
    """

    every: int = DEFAULT_SECONDS
    once: bool = False
    html: Path | None = None
    serve: bool = False
    anonymous: bool = False
    reservation: str | None = None
    account: str | None = None


def watch(
    target: LaunchTarget,
    students: Sequence[Student],
    options: WatchOptions,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
) -> None:
    """Show the class once, or repeatedly until Ctrl-C. ``students``: those on the roster; may be empty.

    Raises ``UsageError``, ``SchedulerSilent``, or ``ConnectionLost`` after half an hour without the login node.
    """
    if options.every < LEAST_SECONDS:
        raise UsageError(
            f"--every {options.every} would ask the scheduler too often.", hint=f"{LEAST_SECONDS} seconds at least"
        )
    with open_context(target, view, prompts, interrupts) as context:
        group = find_class(
            target, students, context.clock().date(), reservation=options.reservation, account=options.account
        )
        watching = _Watching(context, group, options)
        if options.once:
            watching.update()
            return
        # Nothing is changed on the cluster, so Ctrl-C need not wait for a login node that hangs.
        try:
            _watch_on(watching, options, view)
        except KeyboardInterrupt:
            interrupts.defer()


def _watch_on(watching: _Watching, options: WatchOptions, view: View) -> None:
    if not options.serve:
        watching.go_on(lambda _seen: None)
        return
    from notebook_launcher.classroom.page_server import PageServer

    with PageServer() as server:
        view.show(events.ClassPage(server.url))
        watching.go_on(lambda seen: server.put(_page(seen, options, refresh=True)))


class _Watching:
    """Reads the state of a class, and shows it."""

    def __init__(self, context: Context, group: ClassOf, options: WatchOptions) -> None:
        self._context, self._group, self._options = context, group, options
        self._jobs = ClassJobs(context, group)
        self._unread = ""
        self._lost_since: float | None = None
        self._asked_before = self._refused = 0

    def update(self) -> events.ClassSeen:
        """Read and show the state once. Raises ``ConnectionLost`` or ``HostCommandFailed``."""
        if self._jobs.jobs is None:
            self._context.view.show(events.Querying("asking the scheduler about the class"))
        self._jobs.query()
        return self._show(self._read_reports())

    def go_on(self, act: Callable[[events.ClassSeen], None]) -> NoReturn:
        """Read and show the state repeatedly, and call ``act`` with it; an interrupt ends that."""
        while True:
            act(self._update_if_possible())
            time.sleep(self._options.every * random.uniform(1.0, 1.0 + JITTER))  # noqa: S311

    def _update_if_possible(self) -> events.ClassSeen:
        """Read and show the state; if that fails, show the last one with the reason.

        Raises ``ConnectionLost`` after ``GIVE_UP_AFTER``, and any error that makes another login pointless.
        """
        try:
            if self._lost_since is not None:
                self._context.host.reconnect()
            seen = self.update()
        except (ConnectionLost, HostCommandFailed) as error:
            problem: LauncherError = error
        except LauncherError as error:
            if self._lost_since is None or not self._is_worth_another(error):
                raise
            problem = error
        else:
            self._lost_since, self._refused = None, 0
            return seen
        if isinstance(problem, ConnectionLost) or not self._context.host.alive:
            if self._lost_since is None:
                self._lost_since, self._asked_before = time.monotonic(), self._context.prompts.count
            if time.monotonic() - self._lost_since > GIVE_UP_AFTER:
                raise problem
        self._jobs.problem = f"{problem.what} It is tried again; these are the last known states."
        return self._show({})

    def _is_worth_another(self, error: LauncherError) -> bool:
        """Whether to log in again after this error: servers block repeated failures, and a user is asked only once."""
        self._refused += isinstance(error, AuthenticationFailed)
        has_asked = self._context.prompts.count > self._asked_before
        final = isinstance(error, HostKeyChanged | HostKeyUnknown)
        return not (final or self._refused >= REFUSED_TIMES or (self._refused and has_asked))

    def _read_reports(self) -> Mapping[str, Report]:
        """Return the reports of the sessions; show a note once if the folder cannot be read."""
        folder = self._group.folder
        if folder is None:
            return {}
        found, problem = read_reports(self._context.host, folder, self._context.clock())
        if problem and problem != self._unread:
            self._context.view.show(events.Note(problem))
        self._unread = problem
        return found

    def _show(self, reports: Mapping[str, Report]) -> events.ClassSeen:
        jobs, now = self._jobs, self._context.clock()
        students = states_of(self._group, jobs.jobs, reports, now, jobs.known, jobs.nobody)
        sums, gpus = totals(students), jobs.gpus
        seen = events.ClassSeen(
            self._group.title,
            iso(now) or "",
            students,
            dict(sums.counts),
            sums.gpus_used,
            sums.gpus_pending,
            gpus.total,
            gpus.free,
            jobs.problem,
        )
        self._context.view.show(seen)
        if self._options.html:
            _write(self._options.html, _page(seen, self._options, refresh=False))
        return seen


def _page(seen: events.ClassSeen, options: WatchOptions, *, refresh: bool) -> str:
    from notebook_launcher.classroom.page import class_page

    return class_page(seen, anonymous=options.anonymous, refresh=options.every if refresh else None)


def _write(path: Path, text: str) -> None:
    from notebook_launcher.bench.journal import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise CopyFailed(f"{path} could not be written.", why=error.strerror or str(error)) from None
