"""Follows a session, its growing files on the cluster and its state, until it ends or the user interrupts.

Everything uses one connection, which is re-established if it breaks; nothing is read twice.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host, LineStream
from notebook_launcher.jobs.messages import FileAppeared, StatusChanged
from notebook_launcher.jobs.polling import Polling
from notebook_launcher.jobs.watcher import JobWatcher, WatcherStopped
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.tunnel.reconnect import ReconnectFailed, Reconnection, ReconnectSucceeded

TICK = 1.0  # seconds
RECONNECT_FOR = 3600.0  # seconds for which reconnecting is attempted
LAST_LINES_WITHIN = 1.5  # seconds after the session's end for the last lines to arrive: another machine wrote them
MOST_UNREAD = 4 * 1024 * 1024  # characters of buffered lines; a job may print faster than a terminal can show
LINE_COST = 200  # characters that are added for each line, as even an empty line takes up memory
FINAL_STATUS_WITHIN = 20.0  # seconds after the job's end for the scheduler to report whether it is requeued


class FileLine(Frozen):
    """One line of a file, without its newline. ``number``: the line's number in the file, from 1."""

    of: GrowingFile
    text: str
    number: int

    @property
    def path(self) -> str:
        """The file's path."""
        return self.of.path

    def taken(self) -> None:
        """Count the line as read, so that more may be buffered; to be called after taking it from the inbox."""
        self.of.make_room(self.text)


class ReadEnded(Frozen):
    """No more lines will come from a file. ``reason``: why."""

    of: GrowingFile
    reason: str


class GrowingFile:
    """Reads a file on the cluster, line by line, into an inbox.

    ``first``: the number of the first line; negative: so many lines before the end, not counting lines that match
    ``noise`` (an expression that works in ``grep -E`` and in Python). ``follow``: continue with lines that are written
    later, even if the file does not exist yet.
    """

    def __init__(
        self, path: str, first: int, inbox: queue.SimpleQueue[object], *, follow: bool, noise: str = ""
    ) -> None:
        self.path, self._first, self._inbox, self._follow, self._noise = path, first, inbox, follow, noise
        self._numbered = False
        self._stream: LineStream | None = None
        self._reading: object = None  # identifies the current stream: late lines of an earlier one are dropped
        self._unread, self._changed = 0, threading.Condition()

    def start(self, host: Host) -> None:
        """Start, or continue from the last line. Raises ``ConnectionLost``."""
        self.close()
        self._numbered, reading = False, object()
        self._reading = reading
        self._stream = host.stream(self._command(), functools.partial(self._read, reading), self._ended)

    def _command(self) -> list[str]:
        words = [self.path, str(self._first), "follow" if self._follow else "", self._noise]
        return ["bash", "-c", _READ_LINES, "read-lines", *words]

    def close(self) -> None:
        """Stop; may be called twice."""
        with self._changed:
            self._reading = None
            self._changed.notify_all()
        if self._stream:
            self._stream.close()
            self._stream = None

    def make_room(self, text: str) -> None:
        """Count a line as taken."""
        with self._changed:
            self._unread -= len(text) + LINE_COST
            self._changed.notify_all()

    def _read(self, reading: object, line: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._unread < MOST_UNREAD or reading is not self._reading)
            if reading is self._reading:
                self._take_in(line)

    def _take_in(self, line: str) -> None:
        if self._numbered:
            self._unread += len(line) + LINE_COST
            self._inbox.put(FileLine(self, line, self._first))
            self._first += 1
        elif re.fullmatch(r"[0-9]{1,18}", line):
            self._first, self._numbered = int(line), True

    def _ended(self, reason: str) -> None:
        self._inbox.put(ReadEnded(self, reason))


# It first prints the number of the first line, so that a broken stream can be continued at the right place. If lines
# that were read are gone, as in the log of a requeued job, it begins with the first line of the file. The last line may
# have no newline, and then is not counted. The command ends with its standard input, so a lost connection leaves no
# tail behind. On one line, because csh, which may be the login shell, cannot quote a newline.
_READ_LINES = PLAIN_BASH + (
    '{ have=$(wc -l <"$1") || have=0; } 2>/dev/null; from=$2; '
    'if [ $from -lt 0 ] && [ -n "$4" ]; then '
    'from=$(LC_ALL=C grep -anvE -e "$4" -- "$1" 2>/dev/null | tail -n $2 | head -n 1 | cut -d: -f1); '
    "from=${from:-$((have + 1))}; elif [ $from -lt 0 ]; then from=$((have + from + 1)); "
    "elif [ $from -gt $((have + 2)) ]; then from=1; fi; if [ $from -lt 1 ]; then from=1; fi; echo $from; "
    'if [ "$3" != follow ]; then exec tail -n +$from -- "$1" 2>/dev/null; fi; '
    'tail -n +$from -F -- "$1" 2>/dev/null & cat >/dev/null; kill $! 2>/dev/null'
)


def read_lines(context: Context, paths: Sequence[str], first: int, noise: str = "") -> Iterator[FileLine]:
    """Yield the lines that files have now, one file after the other, until the user interrupts.

    ``first``, ``noise``: see ``GrowingFile``.
    """
    inbox, exit_requests = context.interrupts.inbox, context.interrupts.exit_requests
    for path in paths:
        file = GrowingFile(path, first, inbox, follow=False, noise=noise)
        file.start(context.host)
        with contextlib.closing(file):
            try:
                while not isinstance(item := inbox.get(timeout=RUN_TIMEOUT), ReadEnded):
                    if isinstance(item, Interrupt):
                        _handle_interrupt(item)
                        return
                    if isinstance(item, FileLine):
                        item.taken()
                        if context.interrupts.exit_requests == exit_requests:  # else an interrupt is in the inbox
                            yield item
            except queue.Empty:
                raise HostCommandFailed(f"{path} cannot be read on {context.host.label}: there is no reply.") from None
        if not context.host.alive:
            raise ConnectionLost(f"The connection to {context.host.label} is lost.", why=item.reason)


def read_rest(context: Context, path: str, first: int) -> Iterator[FileLine]:
    """Yield the lines that a file has now, from line ``first``, until the user interrupts.

    The interrupt, and everything else in the inbox, stays there for others. Raises ``ConnectionLost``.
    """
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    yield from lines_of(context, GrowingFile(path, first, inbox, follow=False), inbox)


def lines_of(context: Context, file: GrowingFile, inbox: queue.SimpleQueue[object]) -> Iterator[FileLine]:
    """Yield the lines of a file that is not followed, as ``read_rest``. ``inbox``: the file's inbox."""
    exit_requests, silent_since = context.interrupts.exit_requests, time.monotonic()
    with contextlib.closing(file):
        file.start(context.host)
        while context.interrupts.exit_requests == exit_requests and time.monotonic() < silent_since + RUN_TIMEOUT:
            try:
                item = inbox.get(timeout=TICK / 4)
            except queue.Empty:
                continue
            if not isinstance(item, FileLine):
                return
            item.taken()
            yield item
            silent_since = time.monotonic()


def _handle_interrupt(interrupt: Interrupt) -> None:
    if interrupt.kind == "leave":
        raise HungUp


class SessionFollower:
    """Follows the files of a session as they grow, and the session's state.

    ``files``: paths, each with the number of its first line; ``noise``: see ``GrowingFile``.
    """

    def __init__(self, context: Context, session: Session, files: Sequence[tuple[str, int]], noise: str = "") -> None:
        self._context, self._session, self._job = context, session, job_of(session)
        self._inbox = context.interrupts.inbox
        self._files = [GrowingFile(path, first, self._inbox, follow=True, noise=noise) for path, first in files]
        self._watcher = self._new_watcher()
        self._reconnection: Reconnection | None = None
        self._lost_at: float | None = None
        self._begin_at: float | None = 0.0  # when to (re)start all streams
        self._over_at: float | None = None
        self.ended = False

    def items(self) -> Iterator[FileLine | FileAppeared | StatusChanged | None]:
        """Yield lines and events as they come, ``None`` about once a second, until the session's end or an interrupt.

        Raises ``ConnectionLost`` if reconnecting failed.
        """
        exit_requests = self._context.interrupts.exit_requests
        try:
            while self._over_at is None or time.monotonic() < self._over_at:
                self._check_connection()
                item = self._next()
                if isinstance(item, Interrupt):
                    _handle_interrupt(item)
                    return
                self._handle(item)
                if self._context.interrupts.exit_requests != exit_requests:
                    continue  # the interrupt is in the inbox, perhaps behind megabytes of lines
                if item is None or isinstance(item, FileLine | FileAppeared | StatusChanged):
                    yield item
            self.ended = True
        finally:
            self._close()

    def _next(self) -> object:
        with contextlib.suppress(queue.Empty):
            return self._inbox.get(timeout=TICK / 4 if self._over_at else TICK)
        return None

    def _handle(self, item: object) -> None:
        if isinstance(item, FileAppeared):
            self._file_appeared(item)
        elif isinstance(item, StatusChanged):
            self._status_changed(item)
        elif isinstance(item, FileLine):
            item.taken()
            if self._over_at:
                self._over_at = max(self._over_at, time.monotonic() + LAST_LINES_WITHIN / 3)
        elif isinstance(item, WatcherStopped | ReadEnded):
            self._broke(item)
        elif isinstance(item, ReconnectSucceeded):
            self._reconnection, self._begin_at = None, 0.0
        elif isinstance(item, ReconnectFailed):
            raise ConnectionLost(
                f"Reconnecting to {self._context.host.label} failed.", why=item.error.what
            ) from item.error

    # --- its end

    def _file_appeared(self, item: FileAppeared) -> None:
        if item.name == "exit":
            self._watcher.poll_now()
            may_go_on = item.data.get("cause") == "stopped"  # also recorded by a job that is requeued
            self._over_at = time.monotonic() + (FINAL_STATUS_WITHIN if may_go_on else LAST_LINES_WITHIN)
        elif item.name == "started":
            self._over_at = None

    def _status_changed(self, item: StatusChanged) -> None:
        if item.status is None or item.status.state.ended:
            self._over_at = time.monotonic() + LAST_LINES_WITHIN
        elif item.status.state.waits:
            if self._over_at is not None:
                self._context.view.show(events.Note(f"Job {self._job} was put back into the queue."))
            self._over_at = None

    # --- its connection

    def _check_connection(self) -> None:
        if (
            self._reconnection is None
            and self._watcher.silent_for > self._context.timing.lost_after
            and self._begin_at is None
        ):
            self._lost(f"nothing was heard for {self._watcher.silent_for:.0f} s")
        if self._begin_at is not None and time.monotonic() >= self._begin_at:
            self._begin_at = None
            try:
                self._begin()
            except ConnectionLost as error:
                self._lost(error.what)

    def _begin(self) -> None:
        self._watcher.close()
        self._watcher = self._new_watcher(self._watcher.polling)
        self._watcher.start()
        for file in self._files:
            file.start(self._context.host)
        if self._lost_at is not None:
            seconds, self._lost_at = time.monotonic() - self._lost_at, None
            self._context.view.show(events.Reconnected(self._job.id, round(seconds, 1)))

    def _new_watcher(self, polling: Polling | None = None) -> JobWatcher:
        context, directory = self._context, self._session.directory
        return JobWatcher(
            context.host, context.scheduler, self._job, directory, self._inbox, polling=polling, timing=context.timing
        )

    def _broke(self, item: WatcherStopped | ReadEnded) -> None:
        is_ours = item.watcher is self._watcher if isinstance(item, WatcherStopped) else item.of in self._files
        if not is_ours or self._reconnection is not None or self._begin_at is not None or self._over_at is not None:
            return
        if self._context.host.alive and not (isinstance(item, WatcherStopped) and item.connection):
            self._begin_at = time.monotonic() + self._context.timing.reread_pause
        else:
            self._lost(item.reason)

    def _lost(self, reason: str) -> None:
        self._lost_at = time.monotonic()
        self._context.view.show(events.Disconnected(self._job.id, reason))
        self._reconnection = Reconnection.of_context(self._context, deadline=time.monotonic() + RECONNECT_FOR)

    def _close(self) -> None:
        if self._reconnection:
            self._reconnection.stop()
        self._watcher.close()
        for file in self._files:
            file.close()
