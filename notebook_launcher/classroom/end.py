"""``classroom end``: notifies each session, then ends those that the teacher may end, and names the rest.

A session can be ended in two ways. The scheduler cancels it if the teacher is allowed to do so (operators, and
coordinators of the account). And a session that reports to the class folder ends by itself, because its student has
agreed to the course: it reads the file ``end`` there, which counts only if the owner of the folder wrote it.
"""

from __future__ import annotations

import contextlib
import queue
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from notebook_launcher.classroom.class_folder import HEARTBEAT, MOST_OF_HEARTBEAT, parse_report, read_folder
from notebook_launcher.classroom.class_jobs import ClassJobs, is_settled
from notebook_launcher.classroom.class_members import find_class
from notebook_launcher.classroom.roster import Student
from notebook_launcher.classroom.student_states import ClassOf
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AnswerMissing,
    ConnectionLost,
    HostCommandFailed,
    LauncherError,
    UsageError,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.quantities import counted, duration_text, time_left
from notebook_launcher.core.text import listed, one_line, printable
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.user_jobs import UserJob
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context

NOTICE = "end"  # the file in the class folder
LONGEST_WAIT = 60  # minutes from the notice to the end
AT_ONCE = 200  # jobs in one command
GONE_WITHIN = 90.0  # seconds in which ended jobs leave the queue
QUERY_EVERY = 5.0
BEFORE_THE_END = 15  # seconds from a notice to the end, at least: sessions check for a notice every 5 s
DEFAULT_MESSAGE = "Please save your work."
_LONGEST_MESSAGE = 300  # characters
# Students may write there: a predictable name could be a link that they made, and `end` could be a folder.
WRITE_NOTICE = (
    'new=$(mktemp -- "$1/.end.XXXXXXXX") || exit; '
    'cat >"$new" && chmod 644 "$new" && mv -fT -- "$new" "$1/end" || { rm -f "$new"; exit 1; }'
)
_REMOVE = 'rm -f -- "$1/end"'
# scancel: error: Kill job error on job id 7: Access/permission denied
_REFUSED = re.compile(r"job(?: step)? (?:id )?(\d+)(?:[^:\n]*): (.*(?:denied|not permitted|Invalid user id).*)", re.I)


class EndOptions(Frozen):
    """Options of the command. ``minutes``: from the notice to the end; 0: none. ``message``: for the students.

    ``sure``: do not ask for confirmation. ``reservation``, ``account``: see ``find_class``.
    """

    minutes: int = 5
    message: str = DEFAULT_MESSAGE
    sure: bool = False
    reservation: str | None = None
    account: str | None = None


def end_class(
    target: LaunchTarget,
    students: Sequence[Student],
    options: EndOptions,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
) -> None:
    """Notify every session of the class, wait, and end them all; show whose sessions have ended and whose have not.

    Ctrl-C during the wait withdraws the notice, and ends nothing. Raises ``AnswerMissing`` if nobody could be asked or
    the answer was no, ``UsageError``, ``SchedulerSilent``, and ``CancelFailed`` if sessions could not be ended.
    """
    if not 0 <= options.minutes <= LONGEST_WAIT:
        raise UsageError(f"--in {options.minutes} is not possible.", hint=f"0 to {LONGEST_WAIT} minutes")
    with open_context(target, view, prompts, interrupts) as context:
        group = find_class(
            target, students, context.clock().date(), reservation=options.reservation, account=options.account
        )
        _ClassEnding(context, group, options).run()


class _ClassEnding:
    """Ends one class."""

    def __init__(self, context: Context, group: ClassOf, options: EndOptions) -> None:
        self._context, self._group, self._options = context, group, options
        self._jobs = ClassJobs(context, group)
        self._why = ""
        self._notice_may_exist = False

    def run(self) -> None:
        """Confirm, notify, wait, end the sessions, and report."""
        live = self._live()
        if self._jobs.jobs is None:
            raise HostCommandFailed(
                "The scheduler does not answer, so nothing was ended.", hint="try again in a minute"
            )
        if not live:
            self._context.view.show(events.ClassEnded((), (), ()))
            return
        self._confirm(live)
        self._context.interrupts.defer()  # from here on there may be a notice, which an interrupt must not leave behind
        notified = self._notify(live)
        if not self._wait(bool(notified)):
            self._take_back()
            self._context.view.show(events.Note("Nothing was ended, and the notice is withdrawn."))
            return
        denied = self._cancel(live)
        left = self._await_end(live, notified)
        with contextlib.suppress(LauncherError):  # a notice that stays is harmless: it names jobs that have ended
            self._take_back()
        self._report(live, left, notified, denied)

    def _live(self) -> list[UserJob]:
        """Query the scheduler, and return the jobs of the class that have not ended."""
        self._jobs.query()
        known, users = self._jobs.known, {one.user for one in self._group.students}
        ours = [job for job in self._jobs.jobs or () if job.id in known and (not users or job.user in users)]
        # a job that is no longer on any list has ended, too
        return [job for job in ours if not is_settled(job) and self._group.may_end(job)]

    def _confirm(self, live: Sequence[UserJob]) -> None:
        if self._options.sure:
            return
        users = sorted({job.user for job in live})
        text = f"End {counted(len(live), 'session')} of {counted(len(users), 'student')} ({listed(users, 8)})?"
        answer = self._context.prompts.confirm(text)
        if not answer:
            raise AnswerMissing(
                "Nothing was ended.",
                why="The answer was no." if answer is not None else "Nobody could be asked.",
                hint="" if answer is not None else "to end them without a question: --yes",
            )

    # --- the notice

    def _notify(self, live: Sequence[UserJob]) -> frozenset[str]:
        """Write the notice; return the jobs whose sessions report to the class folder, and so will read it."""
        folder, view = self._group.folder, self._context.view
        if folder is None:
            view.show(events.Note("The sessions get no notice: the course has no class_folder."))
            return frozenset()
        try:
            facts, files = read_folder(self._context.host, folder, HEARTBEAT, MOST_OF_HEARTBEAT)
            if facts.problem or facts.owner != self._context.site.user or not facts.is_sticky:
                why = facts.problem or f"{folder} must belong to you and have the sticky bit"
                view.show(events.Note(f"The sessions get no notice: {why}."))
                return frozenset()
            self._write(folder, live)
        except HostCommandFailed as error:
            view.show(events.Note(f"The sessions get no notice: {error.what} {error.why}".strip()))
            return frozenset()
        now = self._context.clock()
        reports = [parse_report(one.user, one.text, now) for one in files if not one.problem]
        return frozenset(
            job.id for job in live if any(one and (one.user, one.job) == (job.user, job.id) for one in reports)
        )

    def _write(self, folder: str, live: Sequence[UserJob]) -> None:
        message = one_line(self._options.message, _LONGEST_MESSAGE)
        jobs = " ".join(job.id for job in live)
        text = f"version=1\nends={int(self._ends_at().timestamp())}\njobs={jobs}\nmessage={message}\n"
        self._notice_may_exist = True
        answer = self._context.host.run(["sh", "-c", WRITE_NOTICE, "notice", folder], stdin=text.encode())
        if answer.exit_code != 0:
            raise HostCommandFailed(f"{folder}/{NOTICE} could not be written.", why=answer.stderr.strip()[-300:])

    def _ends_at(self) -> datetime:
        return self._context.clock() + timedelta(seconds=max(60 * self._options.minutes, BEFORE_THE_END))

    def _take_back(self) -> None:
        """Remove the notice if it may exist. Raises ``HostCommandFailed`` if it may still exist afterwards."""
        folder = self._group.folder
        if not self._notice_may_exist or folder is None:
            return
        try:
            answer = self._run(["sh", "-c", _REMOVE, "notice", folder])
            why = answer.stderr.strip()[-300:] if answer.exit_code else ""
        except LauncherError as error:
            answer, why = None, f"{error.what} {error.why}".strip()
        if answer is None or answer.exit_code:
            raise HostCommandFailed(
                "The notice could not be withdrawn: the sessions that have read it still end.",
                why=why,
                hint=f"on the login node, type: rm {folder}/{NOTICE}",
            )

    def _run(self, command: Sequence[str], *, login_shell: bool = False) -> CommandResult:
        """Run an idempotent command; if the connection has broken, reconnect and run it again."""
        host = self._context.host
        try:
            return host.run(command, login_shell=login_shell)
        except ConnectionLost:
            host.reconnect()
            return host.run(command, login_shell=login_shell)

    def _wait(self, has_notice: bool) -> bool:
        """Wait until the time of the end; return ``False`` if the user pressed Ctrl-C."""
        seconds = max(60 * self._options.minutes, BEFORE_THE_END) if has_notice else 60 * self._options.minutes
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._context.view.show(
                events.Querying(f"the class ends in {time_left(left)}; Ctrl-C withdraws the notice")
            )
            try:
                item = self._context.interrupts.inbox.get(timeout=min(left, 1.0 if left < 90 else 15.0))
            except queue.Empty:
                continue
            if isinstance(item, Interrupt):
                return False
        return True

    # --- the end

    def _cancel(self, live: Sequence[UserJob]) -> frozenset[str]:
        """Cancel the jobs; return those that the scheduler refuses to cancel."""
        denied = set[str]()
        scheduler, jobs = self._context.scheduler, [JobRef(job.id, self._group.cluster) for job in live]
        for first in range(0, len(jobs), AT_ONCE):
            self._context.view.show(events.Querying(f"ending {counted(len(jobs), 'job')}"))
            some = jobs[first : first + AT_ONCE]
            answer = self._run(scheduler.cancel_all(some), login_shell=True)
            for match in _REFUSED.finditer(answer.stderr):
                denied.add(match[1])
                self._why = f"The scheduler says: {printable(match[2]).strip()}."
        return frozenset(denied)

    def _await_end(self, live: Sequence[UserJob], notified: frozenset[str]) -> frozenset[str]:
        """Wait until the jobs have left the queue; return those that are still there."""
        left = frozenset(job.id for job in live)
        until = time.monotonic() + GONE_WITHIN
        while True:
            try:
                left &= frozenset(job.id for job in self._live())
            except HostCommandFailed as error:
                self._context.view.show(events.Querying(f"{error.what} It is asked again"))
            wait = duration_text(GONE_WITHIN)
            if not left or time.monotonic() > until:
                return left
            self._context.view.show(
                events.Querying(f"{counted(len(left), 'session')} left; waiting for {wait} at most")
            )
            try:
                if isinstance(self._context.interrupts.inbox.get(timeout=QUERY_EVERY), Interrupt):
                    return left
            except queue.Empty:
                pass

    def _report(
        self, live: Sequence[UserJob], left: frozenset[str], notified: frozenset[str], denied: frozenset[str]
    ) -> None:
        ended = sorted({job.user for job in live if job.id not in left})
        asked = sorted({job.user for job in live if job.id in left and job.id in notified})
        refused = sorted({job.user for job in live if job.id in left and job.id not in notified})
        why = self._why if denied & left else "They are still in the queue."
        if denied & left:
            why += " Ask the cluster's support to make you a coordinator of the account."
        event = events.ClassEnded(tuple(ended), tuple(asked), tuple(refused), why if refused else "")
        self._context.view.show(event)
        if refused:
            jobs = [job.id for job in live if job.id in left and job.id not in notified]
            raise _not_ended(refused, jobs, why)


def _not_ended(users: Sequence[str], jobs: Sequence[str], why: str) -> LauncherError:
    from notebook_launcher.core.errors import CancelFailed

    return CancelFailed(
        f"{counted(len(jobs), 'session')} of the class could not be ended: {listed(users, 8)}.",
        why=why,
        hint=f"somebody who may do so can type: scancel {' '.join(jobs[:50])}",
    )
