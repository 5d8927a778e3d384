"""The commands that inspect a session: ``status``, ``usage`` and ``logs``."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, NothingMeasured, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.timestamps import iso
from notebook_launcher.core.usage_samples import Sample
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import RUN_TIMEOUT, Prompts
from notebook_launcher.jobs.cancel import launcher_command
from notebook_launcher.jobs.follow import FileLine, SessionFollower, read_lines
from notebook_launcher.jobs.lookup import find_session
from notebook_launcher.jobs.messages import FileAppeared, StatusChanged
from notebook_launcher.jobs.outcome import NOISE
from notebook_launcher.jobs.session_index import IndexedSession, Listing, build_index
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import AccountingRecord
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session
from notebook_launcher.usage.accounting_wait import note_if_slow
from notebook_launcher.usage.app_states import read_app_states
from notebook_launcher.usage.series import Used, add_rows, used
from notebook_launcher.usage.task_counts import read_counts

SHOWN_TIME = timedelta(hours=1)  # the time that status shows; usage shows the whole
SHOWN_BYTES = 2_000_000  # read from the end of usage.csv: an hour of eight GPUs, sampled every second
MOST_BYTES = 64_000_000
SHOW_EVERY = 4.5  # seconds between two updates, at least: a little less than the usual interval of samples
APPS_EVERY = 30.0  # seconds between two checks of the programs beside JupyterLab
TASKS_EVERY = 30.0  # seconds between two checks of a job array's tasks, each of which has files of its own
ACCOUNTING_TIMEOUT = 6.0  # seconds; without an answer, the requested values are shown, and it is not queried again
LATER_TIMEOUT = 2.0  # seconds for further queries by status --watch, which Ctrl-C does not interrupt
MOST_ACCOUNTING = 3  # the most queries of the accounting: a job that has just begun may not be in it
LINES = 200  # of a log
_TASK = re.compile(r"(?P<of>.+)_(?P<task>\d{1,9})", re.A)  # a task's id as the scheduler writes it: 5_2
_MOST_LOGS = 100  # the most logs of a job array's tasks


def status(
    target: LaunchTarget, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts, *, watch: bool = False
) -> None:
    """Show a session's state and its usage in the last hour; ``watch``: keep updating until its end or Ctrl-C."""
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        inspection = _Inspection(context, *find_session(context, prefix, "status", ended_too=True))
        inspection.read()
        inspection.show()
        if watch and inspection.is_live:
            interrupts.defer()
            inspection.go_on()


def usage(
    target: LaunchTarget,
    prefix: str,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    plot: Path | None = None,
    csv: Path | None = None,
    force: bool = False,
) -> None:
    """Show what a session used over its whole time, or write it to the local files ``plot`` and ``csv``.

    Raises ``UsageError`` for a file that exists (without ``force``) or cannot be written, and ``NothingMeasured``.
    """
    for path in filter(None, (plot, csv)):
        _check_new(path, force=force)
    if plot is not None:
        from notebook_launcher.usage.plot import check_plot

        check_plot(plot)
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        inspection = _Inspection(context, *find_session(context, prefix, "usage", ended_too=True))
        rows = inspection.read(MOST_BYTES)
        if not inspection.samples:
            raise NothingMeasured(
                f"Session {inspection.session.id} has no samples of what it used.", why=inspection.why_nothing()
            )
        if csv is None and plot is None:
            inspection.show(whole=True)
        if csv is not None:
            _write(csv, lambda new: new.write_text(rows, encoding="utf-8"))
            view.show(events.FileWritten(str(csv), f"{len(inspection.samples)} samples are in {csv}"))
        if plot is not None:
            _plot(inspection, plot)
            view.show(events.FileWritten(str(plot), f"The plot is in {plot}"))


def logs(
    target: LaunchTarget,
    prefix: str,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    follow: bool = False,
    lines: int = LINES,
    everything: bool = False,
) -> None:
    """Show the last ``lines`` of a session's log (0: all); ``follow``: continue until its end or Ctrl-C.

    Lines that are not shown do not count. ``prefix``: ``5_2`` means only task 2 of the job array 5. ``everything``:
    include JupyterLab's messages that are the same in every session.

    Raises ``UsageError`` for a task of a session that is no job array, and if a running job array is to be followed.
    """
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        of_task = _TASK.fullmatch(prefix)
        session, entry = find_session(context, of_task["of"] if of_task else prefix, "logs", ended_too=True)
        if of_task and "array" not in session.record.flags:
            raise UsageError(
                f"{of_task['of']} is no job array, so it has no task {of_task['task']}.",
                hint=launcher_command(context, session, "logs"),
            )
        interrupts.defer()
        if follow and entry.live and "array" in session.record.flags:
            raise UsageError(
                "logs -f follows a single job, and this one is a job array.",
                hint=f"follow all of its tasks with: {launcher_command(context, session, 'connect')}",
            )
        task = int(of_task["task"]) if of_task else None
        paths = _log_files(context, session, entry.summary.node, task)
        noise = "" if everything else NOISE
        shown = _ShownLines(view, several=len(paths) > 1, noise=noise)
        first = -lines if lines > 0 else 1
        if follow and entry.live:
            _follow(context, session, entry, paths, first, shown)
        else:
            for line in read_lines(context, paths, first, noise):
                shown.show(line)
            if not shown.count and not interrupts.exit_requests:
                view.show(events.Note(_why_no_log(entry, paths)))


# --- a session's state ---


class _Inspection:
    """One session: its state, and its samples."""

    def __init__(self, context: Context, session: Session, entry: IndexedSession) -> None:
        self.session = session
        self._context, self._entry = context, entry
        self._status: StatusChanged | None = None
        self._read_to = 0  # the number of lines of usage.csv that were read
        self.samples: list[Sample] = []
        self._accounting = _Accounting(context, session)
        self._apps: tuple[events.AppState, ...] = ()
        self._apps_at = -APPS_EVERY
        self._tasks: events.TaskCounts | None = None
        self._tasks_at = -TASKS_EVERY
        self._is_followed = False

    @property
    def is_live(self) -> bool:
        """Whether it has not ended, as far as known."""
        return self._entry.live

    @property
    def where(self) -> str:
        """Where it runs or ran, as a phrase to append."""
        return f" on {self._entry.summary.node}" if self._entry.summary.node else ""

    @property
    def _file(self) -> str:
        return f"{self.session.directory}/usage.csv"

    def read(self, most: int = SHOWN_BYTES) -> str:
        """Read the samples from at most ``most`` bytes at the file's end, and return their rows."""
        answer = self._context.host.run(["sh", "-c", _READ_ROWS, "read-rows", self._file, str(most)])
        count, _, rows = answer.stdout.partition("\n")
        self._read_to = whole_number(count.strip()) or 0
        add_rows(self.samples, rows.splitlines())
        return rows

    def show(self, *, whole: bool = False) -> None:
        """Show the session, with its usage in the last hour or, if ``whole``, in its whole time."""
        record, shown = self.session.record, self.used(None if whole else SHOWN_TIME)
        self._context.view.show(
            events.Status(
                self._entry.summary,
                _asked_for(self.session),
                record.log,
                record.launcher,
                record.idle_stop,
                iso(shown.since),
                iso(shown.until),
                shown.series,
                whole,
                shown.notes,
                () if whole else self._apps_now(),
                None if whole else self._tasks_now(),
            )
        )

    def _apps_now(self) -> tuple[events.AppState, ...]:
        """Return the programs beside JupyterLab; they are checked at most once in ``APPS_EVERY`` seconds."""
        if not self.is_live:
            return ()
        if time.monotonic() - self._apps_at >= APPS_EVERY:
            self._apps_at = time.monotonic()
            try:
                self._apps = read_app_states(self._context.host, self.session, self._entry.record.endpoint)
            except (ConnectionLost, HostCommandFailed):
                if not self._is_followed:  # else the follower reconnects
                    raise
        return self._apps

    def _tasks_now(self) -> events.TaskCounts | None:
        """Return the states of a job array's tasks; they are read at most once in ``TASKS_EVERY`` seconds."""
        if time.monotonic() - self._tasks_at >= TASKS_EVERY:
            self._tasks_at = time.monotonic()
            timeout = LATER_TIMEOUT if self._is_followed else RUN_TIMEOUT
            try:
                found = read_counts(self._context.host, self.session, is_over=not self.is_live, timeout=timeout)
                self._tasks = found or self._tasks
            except ConnectionLost:
                if not self._is_followed:  # else the follower reconnects
                    raise
        return self._tasks

    def used(self, window: timedelta | None = None, **settings: int) -> Used:
        """Return what it used, with the limits that the scheduler has allocated."""
        if not self.samples:
            return Used()
        self._accounting.ask()
        shown = used(self.samples, self.session.record.flags, self._accounting.record, window=window, **settings)
        if not self._accounting.why_not:
            return shown
        note = f"The limits of cores and memory are those asked for: the accounting {self._accounting.why_not}."
        return dataclasses.replace(shown, notes=(*shown.notes, note))

    def why_nothing(self) -> str:
        """Return why there are no samples."""
        state = self._entry.summary.state
        if "array" in self.session.record.flags:
            report = launcher_command(self._context, self.session, "report")
            return f"Each task of a job array is a job of its own. What all of them used: {report}"
        if state == "pending":
            return "Its job has not begun."
        if state in ("starting", "running"):
            return "Its job has written none yet; the first comes some seconds after it has begun."
        return "Its job has written none: it ended before that, or the profile switches it off (usage_seconds = 0)."

    def go_on(self) -> None:
        """Show the session repeatedly, until its end or an interrupt."""
        following = SessionFollower(self._context, self.session, [(self._file, self._read_to + 1)])
        self._is_followed = True
        shown_at, is_new = time.monotonic(), False
        for item in _with_advice(following, f"status --watch {self.session.id}"):
            if isinstance(item, FileLine):
                add_rows(self.samples, [item.text])
                is_new = True
            has_changed = self._update(item)
            if has_changed:
                self._tasks_at = -TASKS_EVERY  # read them again at once: at the array's end, none runs any more
            elif self._tasks != self._tasks_now():
                has_changed = True
            if has_changed or (is_new and time.monotonic() - shown_at >= SHOW_EVERY):
                self.show()
                shown_at, is_new = time.monotonic(), False
        if following.ended and is_new:
            self.show()

    def _update(self, item: object) -> bool:
        """Handle a message of the job or the scheduler, and return whether it changed what is shown."""
        before, record = self._entry.summary, self._entry.record
        if isinstance(item, StatusChanged):
            self._status = item
        elif isinstance(item, FileAppeared) and item.name == "started":  # a requeued job starts again
            record = dataclasses.replace(record, started=item.data, endpoint=None, exited=None)
        elif isinstance(item, FileAppeared) and item.name == "endpoint":
            record = dataclasses.replace(record, endpoint=item.data)
        elif isinstance(item, FileAppeared) and item.name == "exit":
            record = dataclasses.replace(record, exited=item.data)
        else:
            return False
        if self._status is None or record.queue is None:
            self._entry = dataclasses.replace(self._entry, record=record)
            return False
        status = self._status.status
        statuses = {record.queue: {status.job.id: status} if status else {}}
        self._entry = build_index(Listing((record,)), statuses, self._context.clock()).entries[0]
        return self._entry.summary != before


class _Accounting:
    """What the scheduler has allocated to a session's job, from its accounting.

    ``why_not``: why that is not known, as the end of a sentence; empty if it is known, or if there is no accounting.
    """

    def __init__(self, context: Context, session: Session) -> None:
        self.record: AccountingRecord | None = None
        self.why_not = ""
        self._context, self._job = context, session.job
        self._command = context.scheduler.accounting(session.job) if session.job else None
        self._queries_left = MOST_ACCOUNTING if self._command else 0

    def ask(self) -> None:
        """Query it, at most ``MOST_ACCOUNTING`` times, until it reports what the job was allocated."""
        if not self._queries_left or self._job is None or self._command is None:
            return
        timeout = ACCOUNTING_TIMEOUT if self._queries_left == MOST_ACCOUNTING else LATER_TIMEOUT
        self._queries_left -= 1
        try:
            with note_if_slow(self._context.view):
                answer = self._context.host.run(self._command, login_shell=True, timeout=timeout)
        except HostCommandFailed:
            self.why_not, self._queries_left = "did not answer in time", 0
            return
        record = self._context.scheduler.read_accounting(self._job, answer)
        if record and record.cores:
            self.record, self.why_not, self._queries_left = record, "", 0
        elif answer.exit_code != 0:
            self.why_not, self._queries_left = "cannot be queried", 0
        else:
            self.why_not = "does not report what the job was allocated"


# Prints the number of lines first, and no lines that are written in the meantime. On one line: csh, as a login shell,
# cannot quote a newline.
_READ_ROWS = (
    '{ have=$(wc -l <"$1") || have=0; } 2>/dev/null; echo $have; '
    'head -n $have -- "$1" 2>/dev/null | tail -c "$2" 2>/dev/null'
)


def _asked_for(session: Session) -> str:
    """Return a session's flags as typed, without the working folder that the launcher itself made for a script."""
    own_folder = ("chdir", f"{session.directory}/work")
    flags = sorted(flag for flag in session.record.flags.items() if flag != own_folder)
    return shlex.join(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags)


def _with_advice(following: SessionFollower, command: str) -> Iterable[object]:
    """Yield the follower's items; if the connection is lost for good, raise the error with the command to continue."""
    try:
        yield from following.items()
    except ConnectionLost as error:
        hint = f"the session is not touched by that; go on with: launch-notebook {command}"
        raise ConnectionLost(error.what, why=error.why, hint=hint) from None


# --- local files ---


def _check_new(path: Path, *, force: bool) -> None:
    """Raise ``UsageError`` if the file exists already (without ``force``), or its folder does not."""
    if path.is_dir() or (path.exists() and not force):
        raise UsageError(f"{path} is there already.", hint="choose another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {path.absolute().parent}.", hint=f"make it: mkdir -p {path.parent}")


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically, through a temporary one. Raises ``UsageError`` if it cannot be written."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        os.close(descriptor)
        new = Path(name)
        try:
            write(new)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} could not be written.", why=error.strerror or str(error)) from None


def _plot(inspection: _Inspection, path: Path) -> None:
    from notebook_launcher.usage import plot as plot_module

    record = inspection.session.record
    what = f"{record.software or record.program}, {_asked_for(inspection.session)}"
    title = f"Session {record.id}{inspection.where}\n{what if len(what) <= 100 else what[:99] + '…'}"
    shown = inspection.used(values=plot_module.VALUES)
    _write(path, lambda new: plot_module.draw(shown, title, new, path.suffix.lower()))


# --- the log ---


def _log_files(context: Context, session: Session, node: str | None, task: int | None = None) -> list[str]:
    """Return the paths of the job's log files, its output first; none if they cannot be resolved yet.

    ``task``: the only task of a job array whose logs are wanted; ``None``: all.
    """
    record = session.record
    if session.job is None:
        return [record.log]
    if "array" in record.flags:
        return _logs_of_tasks(context, session, task)
    flags = {**record.flags, "output": record.log, "job-name": record.flags.get("job-name") or session.id}
    found = context.scheduler.log_files(flags, session.job, user=context.site.user, node=node)
    return [context.site.expand(path) for path in reversed(found)]


def _logs_of_tasks(context: Context, session: Session, task: int | None) -> list[str]:
    """Return the paths of the logs of a job array's tasks that have started; for each task, the output comes first."""
    command = ["sh", "-c", 'cd -- "$1/tasks" 2>/dev/null && grep -s "" /dev/null */log', "logs", session.directory]
    named = [re.fullmatch(r"(\d{1,9})/log:(/.+)", line, re.A) for line in context.host.run(command).stdout.splitlines()]
    logs = sorted((int(match[1]), match[2]) for match in named if match)
    return [path for number, path in logs if task in (None, number)][:_MOST_LOGS]


class _ShownLines:
    """Shows the lines of one log or of several; of several, each change is introduced by the log's name."""

    def __init__(self, view: View, *, several: bool, noise: str) -> None:
        self._view, self._several, self.noise = view, several, noise
        self._last = ""
        self.count = 0

    def show(self, line: FileLine) -> None:
        """Show a line, unless it is noise."""
        self.count += 1
        if self.noise and re.search(self.noise, line.text):
            return
        if self._several and line.path != self._last:
            self._last = line.path
            self._view.show(events.LogLine(f"==> {line.path} <=="))
        self._view.show(events.LogLine(line.text))


def _follow(
    context: Context, session: Session, entry: IndexedSession, paths: Sequence[str], first: int, shown: _ShownLines
) -> None:
    job = session.job
    if entry.summary.state == "pending":
        why = f" ({entry.summary.detail})" if entry.summary.detail else ""
        context.view.show(events.Note(f"Job {job} has not begun{why}: its log is shown as it comes. Ctrl-C ends that."))
    following = SessionFollower(context, session, [(path, first) for path in paths], shown.noise)
    is_noted = entry.summary.state == "pending"
    for item in _with_advice(following, f"logs -f {session.id}"):
        if isinstance(item, FileLine):
            shown.show(item)
        elif item is None and not shown.count and not is_noted:
            is_noted = True
            context.view.show(events.Note("Nothing was printed yet; it is shown as it comes. Ctrl-C ends that."))
    if following.ended:
        context.view.show(events.Note(f"The session has ended: job {job} is over."))


def _why_no_log(entry: IndexedSession, paths: Sequence[str]) -> str:
    if entry.summary.state == "pending":
        return f"Job {entry.session.job} has not begun, so there is no log yet."
    where = " and ".join(paths) if paths else entry.session.record.log
    return f"Nothing was printed to {where}."
