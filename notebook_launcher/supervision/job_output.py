"""Shows what a batch job prints, line by line, while it runs."""

from __future__ import annotations

import contextlib
import re
import time

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.jobs.follow import FileLine, GrowingFile, ReadEnded, read_rest
from notebook_launcher.session.context import Context


def printed_file(notebook: str, *, is_script: bool) -> str:
    """Return the file in a session's directory to which a run prints. ``notebook``: the notebook's file name."""
    return f"work/{notebook.removesuffix('.ipynb')}.out" if is_script else "runtime/printed"


class JobOutput:
    """Shows the lines of one file of a batch job as they are written, each once; a requeued job begins anew.

    ``path``: of the file on the cluster, which need not exist yet. ``noise``: lines that begin with it are not shown.
    """

    def __init__(self, context: Context, path: str, noise: re.Pattern[str] | None = None) -> None:
        self._context, self._path, self._noise = context, path, noise
        self._file: GrowingFile | None = None
        self._shown = 0  # lines
        self._exit_requests = context.interrupts.exit_requests
        self._restart_at: float | None = None

    def job_started(self, *, goes_on: bool = False) -> None:
        """Start reading at the first line. Raises ``ConnectionLost``; ``check`` then tries again.

        ``goes_on``: start after the lines that were already shown, because a restarted job may append to the same log.
        """
        self._shown = self._shown if goes_on else 0
        self._begin()

    def job_requeued(self) -> None:
        """Stop reading until the job has started again, because its next run writes the same file."""
        self.close()
        self._file = self._restart_at = None

    def _begin(self) -> None:
        self.close()
        self._restart_at = time.monotonic()  # so that ``check`` tries again if this fails
        self._file = GrowingFile(self._path, self._shown + 1, self._context.interrupts.inbox, follow=True)
        self._file.start(self._context.host)
        self._restart_at = None

    def handle(self, item: object) -> None:
        """Handle an item of the inbox: show a line of the file, or restart the reading later if it has ended.

        Lines from an earlier reading are ignored, as they are read again. Once an interrupt has arrived, the lines
        before it are not shown, because there may be megabytes of them.
        """
        if not isinstance(item, FileLine | ReadEnded) or item.of is not self._file:
            return
        if isinstance(item, FileLine):
            item.taken()
            if self._context.interrupts.exit_requests == self._exit_requests:  # else an interrupt is in the inbox
                self._show(item)
        else:
            self._restart_at = time.monotonic() + self._context.timing.reread_pause

    def check(self) -> None:
        """Continue if the reading broke; to be called while there is a connection. Raises ``ConnectionLost``."""
        if self._restart_at is not None and time.monotonic() >= self._restart_at:
            self._begin()

    def show_rest(self) -> None:
        """Show the lines that had not arrived when the run ended, as far as they can be read, or until Ctrl-C."""
        if self._file is None:
            return
        self.close()
        self._file = None
        with contextlib.suppress(LauncherError):
            for line in read_rest(self._context, self._path, self._shown + 1):
                self._show(line)

    def _show(self, line: FileLine) -> None:
        self._shown = line.number  # lower than before if the file was begun anew
        if self._noise is None or not self._noise.match(line.text):
            self._context.view.show(events.LogLine(line.text))

    def close(self) -> None:
        """Stop reading; may be called twice."""
        if self._file is not None:
            self._file.close()
