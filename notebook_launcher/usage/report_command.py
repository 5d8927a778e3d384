"""The command ``report``: what a job asked for and used, whoever submitted it; also shown when a script has ended."""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex
import time
from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, LauncherError, SessionNotFound, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.lookup import choose_on_host, read_session_index, select_session
from notebook_launcher.jobs.session_index import IndexedSession
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import JobAccounts, JobRef
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session
from notebook_launcher.usage.accounting_wait import complete_answer
from notebook_launcher.usage.array_report import MOST_TASKS, TaskOutcome, make_array_report, outcomes
from notebook_launcher.usage.bill_command import QUERY_TIMEOUT, read_bill
from notebook_launcher.usage.report import Evidence, make_report
from notebook_launcher.usage.training_result import LARGEST_FILE, TrainingResult, read_result

#: a job's id, that of a task of a job array, or of a part of a heterogeneous job
_JOB = re.compile(r"[0-9]{1,12}(?:[_+][0-9]{1,9})?", re.A)
_RESULT_TIMEOUT = 3.0  # seconds
_LAST_LINES = 50  # of a log, in which a training may report what it did

# The end of a log, and on the last line the result.json that the job wrote: that of the bundled trainers, its own, or
# the only one in runs. On one line: csh, as a login shell, cannot quote a newline.
_READ = (
    'tail -n "$3" -- "$1" 2>/dev/null; echo; cd -- "$2" 2>/dev/null || { echo; exit 0; }; '
    'new() { find "$@" -name result.json -type f -newer "$start" 2>/dev/null; }; start=$5; '
    'file=$(new "runs/$6/result.json"); [ -n "$file" ] || file=$(new ./result.json); '
    '[ -n "$file" ] || file=$(new runs -maxdepth 3); '
    '[ -z "$file" ] || [ "$(printf %s "$file" | wc -l)" -gt 0 ] || head -c "$4" -- "$file" 2>/dev/null | tr -d "\\n"; '
    "echo; exit 0"
)


def report(target: LaunchTarget, name: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Show what a job asked for and used: a session's, by its name, or any job of the user's, by its id.

    Without a name, that of the last session. Raises ``SessionNotFound`` if nothing is known of it.
    """
    with open_context(target, view, prompts, interrupts) as context:
        entry = _session_named(context, name)
        session = select_session(context, entry) if entry else None
        job = job_of(session) if session else JobRef(name)
        found = _report(context, job, session, entry.summary.state if entry else "", explained=True)
        if found is None:
            raise _nothing_known(context, job)
        for one in found if isinstance(found, list) else [found]:
            view.show(one)


def show_report(context: Context, session: Session) -> None:
    """Show what the job of a session asked for and used, once it is over; nothing if it never ran. Raises nothing."""
    try:
        if context.host.alive:
            found = _report(context, job_of(session), session, "ended", explained=False)
            if isinstance(found, events.JobReport) and found.use:
                context.view.show(found)
    except LauncherError:
        pass  # the cluster is unreachable or slow: the job is over all the same
    except Exception as error:  # a bug
        context.view.show(events.Note(f"The report on the job could not be made: {error!r}."))


def _session_named(context: Context, name: str) -> IndexedSession | None:
    """Return the session that is meant; ``None`` for the id of a job that is none of the launcher's."""
    index = read_session_index(context)
    try:
        return choose_on_host(context, index, name, "report", ended_too=True)
    except SessionNotFound as error:
        if not name or not name[:1].isdecimal():
            raise
        if not _JOB.fullmatch(name):
            raise UsageError(f"“{name}” is neither a session nor the id of a job.", hint=error.hint) from None
        return None


def _nothing_known(context: Context, job: JobRef) -> SessionNotFound:
    command = context.scheduler.report(job)
    if command is None:
        return SessionNotFound(
            f"Nothing is known of job {job}.",
            why=f"The accounting of {context.scheduler.title} is not read here, and it is no job of launch-notebook's.",
        )
    return SessionNotFound(
        f"Nothing is known of job {job} on {context.host.label}.",
        why="The accounting lists no job of yours with this id, or the cluster has none.",
        hint=f"list your last jobs there with: {context.scheduler.lists_past_jobs}",
    )


def _report(
    context: Context, job: JobRef, session: Session | None, state: str, *, explained: bool
) -> events.JobReport | list[events.Event] | None:
    """Query the accounting, and read what the session has recorded; for a job array, a list.

    Raises ``ConnectionLost``.
    """
    deadline = time.monotonic() + QUERY_TIMEOUT
    accounts = _accounts(context, job, deadline, may_be_live=state != "ended")
    if accounts and accounts.array:
        return _reports_on_array(context, job, session)
    bill = read_bill(context, session, accounts.record if accounts else None) if session else None
    evidence = Evidence(
        accounts=accounts,
        bill=bill,
        session=session.id if session else None,
        name=(session.record.script or session.record.notebook or "") if session else "",
        job=str(job),
        state=state,
        flags=session.record.flags if session else {},
        result=_training_result(context, session) if session else TrainingResult(),
    )
    return make_report(evidence, explained=explained)


def _reports_on_array(context: Context, job: JobRef, session: Session | None) -> list[events.Event]:
    """Return a note on what a job array is, and a report on all of its tasks."""
    tasks = _tasks_of(context, job, may_be_live=True)
    first = f"{job.id}_{min(tasks, default=0)}"
    explained = shlex.join(["launch-notebook", "report", first, *context.target.arguments()])
    left = f"; the first {MOST_TASKS} are listed" if len(tasks) > MOST_TASKS else ""
    note = f"Job {job} is a job array of {counted(len(tasks), 'task')}{left}. To see one explained: {explained}"
    found = make_array_report(str(job), _script_of(session), session.id if session else None, tasks, explained=True)
    return [events.Note(note), *([found] if found else [])]


def show_array_report(
    context: Context, session: Session, exits: Mapping[int, Mapping[str, object]] | None = None
) -> dict[int, TaskOutcome]:
    """Show what the tasks of a session's job array asked for and used, once it is over; return how each ended.

    ``exits``: the ``exit.json`` of tasks, by number. Raises nothing.
    """
    tasks: Mapping[int, JobAccounts] = {}
    try:
        if context.host.alive:
            tasks = _tasks_of(context, job_of(session), may_be_live=False)
            found = make_array_report(job_of(session).id, _script_of(session), session.id, tasks, explained=False)
            if found:
                context.view.show(found)
    except LauncherError:
        pass  # the cluster is unreachable or slow: the job is over all the same
    except Exception as error:  # a bug
        context.view.show(events.Note(f"The report on the job could not be made: {error!r}."))
    return outcomes(exits or {}, tasks)


class _Tasks(Frozen):
    """The accounting of a job array's tasks, by number."""

    accounts: Mapping[int, JobAccounts]

    @property
    def complete(self) -> bool:
        """Whether all values are final."""
        return all(task.complete for task in self.accounts.values())


def _tasks_of(context: Context, job: JobRef, *, may_be_live: bool) -> Mapping[int, JobAccounts]:
    """Query the accounting of a job array's tasks; empty if there is none. Raises ``ConnectionLost``."""
    command = context.scheduler.report(job)
    if command is None:
        return {}

    def read(answer: CommandResult) -> _Tasks | None:
        found = context.scheduler.read_array_report(job, answer)
        return _Tasks(found) if found else None

    deadline = time.monotonic() + QUERY_TIMEOUT
    found = complete_answer(
        *(context, command, read, deadline),
        enough=lambda tasks: may_be_live and any(task.is_live for task in tasks.accounts.values()),
    )
    return found.accounts if found else {}


def _script_of(session: Session | None) -> str:
    return (session.record.script or "") if session else ""


def _accounts(context: Context, job: JobRef, deadline: float, *, may_be_live: bool) -> JobAccounts | None:
    """Query the accounting. ``may_be_live``: whether its last values are not waited for if the job is not over."""
    command, read = context.scheduler.report(job), context.scheduler.read_report
    if command is None:
        return None
    return complete_answer(
        *(context, command, lambda answer: read(job, answer), deadline),
        enough=lambda found: may_be_live and found.is_live,
    )


def _training_result(context: Context, session: Session) -> TrainingResult:
    """Return what a submitted training has reported of itself: on the last lines of its log, or in a file."""
    if session.record.program != "script":
        return TrainingResult()
    folder = posixpath.join(session.directory, session.record.flags.get("chdir") or "work")
    command = ["sh", "-c", _READ, "read-result", _log(context, session), folder]
    command += [str(_LAST_LINES), str(LARGEST_FILE), f"{session.directory}/started.json", job_of(session).id]
    with contextlib.suppress(HostCommandFailed):
        *log, file = context.host.run(command, timeout=_RESULT_TIMEOUT).stdout.split("\n")[:-1] or [""]
        is_shared = folder != posixpath.join(session.directory, "work")
        return read_result(log, file, job_of(session).id, is_shared=is_shared)
    return TrainingResult()


def _log(context: Context, session: Session) -> str:
    record = session.record
    flags = {
        **record.flags,
        "output": record.log,
        "error": None,
        "job-name": record.flags.get("job-name") or session.id,
    }
    paths = context.scheduler.log_files(flags, job_of(session), user=context.site.user, node=None)
    return posixpath.join(context.site.home, context.site.expand(paths[0])) if paths else record.log
