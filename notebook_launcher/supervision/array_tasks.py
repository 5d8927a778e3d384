"""What the tasks of a job array report and print, line by line over one channel, as ``watch_tasks.sh`` says it."""

from __future__ import annotations

import contextlib
import queue
import re
import time
from collections.abc import Collection, Mapping

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.quantities import plural
from notebook_launcher.core.text import listed
from notebook_launcher.jobs.follow import LINE_COST, FileLine, GrowingFile, ReadEnded, lines_of
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.usage.task_counts import FINISHED, count_tasks, end_of_task, ran_for

#: lines of the launcher's own job script, in a log that is shared with the user's
_OUR_LINES = re.compile(r"\d\d:\d\d:\d\d notebook-launcher: ")
_LINE = re.compile(r"(started|exit|gone|log) (\d{1,9})(e?)(?: (.*))?", re.A | re.S)


class _Lines(GrowingFile):
    """The lines of ``watch_tasks.sh``. ``shown``: how many lines of each log have been shown, by its name there."""

    def __init__(
        self, directory: str, shown: Mapping[str, int], inbox: queue.SimpleQueue[object], *, follow: bool
    ) -> None:
        super().__init__(directory, 1, inbox, follow=follow)
        self._shown = shown

    def _command(self) -> list[str]:
        known = [f"{name}:{count}" for name, count in self._shown.items()]
        how = "follow" if self._follow else "once"
        return ["bash", f"{self.path}/watch_tasks.sh", self.path, how, *known]

    def _take_in(self, line: str) -> None:
        self._unread += len(line) + LINE_COST
        self._inbox.put(FileLine(self, line, 0))


class ArrayTasks:
    """The tasks of a job array: what is known of each, shown as it changes, and the lines that they print.

    ``total``: how many there are. ``exits``: the ``exit.json`` of those that have ended, by number.
    """

    def __init__(self, context: Context, session: Session, total: int) -> None:
        self._context, self._session, self.total = context, session, total
        self._job = job_of(session).id
        self._started: dict[int, Mapping[str, object]] = {}
        self._seen: set[int] = set()  # have started, perhaps before they were requeued
        self.exits: dict[int, Mapping[str, object]] = {}
        self._shown: dict[str, int] = {}
        self._progress: events.TasksProgress | None = None
        self._lines: _Lines | None = None
        self._exit_requests = context.interrupts.exit_requests
        self._restart_at: float | None = None

    @property
    def started(self) -> frozenset[int]:
        """The numbers of the tasks that run, or ran."""
        return frozenset(self._started)

    @property
    def unsuccessful(self) -> dict[int, Mapping[str, object]]:
        """The ``exit.json`` of the tasks that ended otherwise than with exit code 0, by number."""
        return {number: record for number, record in sorted(self.exits.items()) if record.get("cause") != FINISHED}

    def begin(self) -> None:
        """Read what there is, and what comes. Raises ``ConnectionLost``; ``check`` tries it again."""
        self.close()
        self._restart_at = time.monotonic()  # until it has begun
        self._lines = _Lines(self._session.directory, self._shown, self._context.interrupts.inbox, follow=True)
        self._lines.start(self._context.host)
        self._restart_at = None

    def check(self) -> None:
        """Continue if the reading broke; call it while there is a connection. Raises ``ConnectionLost``."""
        if self._restart_at is not None and time.monotonic() >= self._restart_at:
            self.begin()

    def handle(self, item: object) -> None:
        """Take a line that has arrived. In front of an interrupt nothing is shown: there may be megabytes."""
        if not isinstance(item, FileLine | ReadEnded) or item.of is not self._lines:
            return
        if isinstance(item, FileLine):
            item.taken()
            if self._context.interrupts.exit_requests == self._exit_requests:
                self._read(item.text)
        else:
            self._restart_at = time.monotonic() + self._context.timing.reread_pause

    def show_rest(self) -> None:
        """Show what had not arrived when the array ended, as far as it can be read, or until Ctrl-C."""
        self.close()
        inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        file = _Lines(self._session.directory, self._shown, inbox, follow=False)
        with contextlib.suppress(LauncherError):
            for line in lines_of(self._context, file, inbox):
                self._read(line.text)

    def close(self) -> None:
        """Read no more; may be called twice."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    # --- one line

    def _read(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            return  # a sign of life
        kind, number, text = match[1], int(match[2]), match[4] or ""
        if kind == "log":
            name = match[2] + match[3]
            self._shown[name] = self._shown.get(name, 0) + 1
            if not _OUR_LINES.match(text):
                self._context.view.show(events.LogLine(text, number))
        elif kind == "gone":
            self._started.pop(number, None)
            self.exits.pop(number, None)
            self._show_progress()
        elif data := json_object(text):
            self._file_written(kind, number, data)

    def _file_written(self, kind: str, number: int, data: Mapping[str, object]) -> None:
        known = self._started if kind == "started" else self.exits
        if known.get(number) == data:
            return  # a new reading reports everything again
        known[number] = data
        if kind == "started":
            if data.get("new_log") is True and number in self._seen:
                for name in (str(number), f"{number}e"):
                    self._shown.pop(name, None)
            self._seen.add(number)
            self.exits.pop(number, None)
            self._context.view.show(events.TaskStarted(self._session.id, self._job, number, node_of(data)))
        else:
            self._context.view.show(self._ended(number, data))
        self._show_progress()

    def _ended(self, number: int, data: Mapping[str, object]) -> events.TaskEnded:
        code, started = data.get("exit_code"), self._started.get(number, {})
        return events.TaskEnded(
            session=self._session.id,
            job=self._job,
            task=number,
            node=node_of(data),
            cause=str(data.get("cause") or ""),
            exit_code=code if type(code) is int else None,
            seconds=ran_for(started, data),
            state=end_of_task(started, data, self._session.record.flags),
        )

    def _show_progress(self) -> None:
        counts = count_tasks(self.total, self._started, self.exits, self._session.record.flags)
        event = events.TasksProgress(
            session=self._session.id,
            job=self._job,
            tasks=self.total,
            waiting=counts.waiting,
            running=counts.running,
            finished=counts.finished,
            failed=counts.failed,
            cancelled=counts.cancelled,
        )
        if event != self._progress:
            self._progress = event
            self._context.view.show(event)


def node_of(data: Mapping[str, object]) -> str:
    """Return the node in a file of a task's; "": none."""
    node = data.get("node")
    return node if isinstance(node, str) else ""


def named(numbers: Collection[int]) -> str:
    """Return the numbers of tasks for a sentence, neighbours joined: ``tasks 1-3, 7``."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    shown = [str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups]
    return f"{plural('task', len(numbers))} {listed(shown, 8)}"
