"""Supervises a run: shows its notebook's progress and how it ended, and always fetches its results."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import Interrupted, JobCancelled, LauncherError, NotebookFailed
from notebook_launcher.core.interrupts import HungUp
from notebook_launcher.core.text import one_line
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.cancel import (
    cancel_job,
    cancelled_from,
    cancelled_on_failure,
    launcher_command,
)
from notebook_launcher.jobs.messages import ProgressReported
from notebook_launcher.notebook.results import fetch_notebook, fetch_results, results_folder
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.batch_supervisor import BatchSupervisor
from notebook_launcher.supervision.job_output import JobOutput
from notebook_launcher.supervision.supervisor import Finished
from notebook_launcher.usage.bill_command import show_bill

KEYS_OURS = "Ctrl-C cancels the job and fetches what there is; d and ENTER detaches, for you to come back later."
KEYS_CONNECTED = "Ctrl-C, or d and ENTER, detaches; the notebook goes on."
_LONGEST_TITLE = 60  # characters
_OUTPUTS = "outputs"  # the file of this machine's state with the output folders of runs
_MOST_OUTPUTS = 200  # runs


def save_output(session: Session, output: Path) -> None:
    """Save the output folder of a run on this machine, for commands that reconnect to it."""
    local_state.remember(_OUTPUTS, session.id, str(output.absolute()), at_most=_MOST_OUTPUTS)


def usual_output(session: Session) -> Path:
    """Return a run's output folder without ``--output``: the one it was started with, if any, else ``runs``."""
    return Path(local_state.remembered(_OUTPUTS, session.id) or "runs")


def supervise_run(
    context: Context,
    session: Session,
    *,
    ours: bool,
    first: events.Event,
    output: Path | None = None,
    printed: str | None = None,
) -> None:
    """Show the ``first`` event, follow a run to its end, and fetch its results into a folder below ``output``.

    ``output``: ``None`` for the one that the run was started with on this machine, else ``runs``. ``printed``: a file
    in the session's directory, whose lines are shown as they are written. ``ours``: this launch submitted it, so Ctrl-C
    cancels its job, as do failures before it runs; otherwise the job is left alone. Raises a ``LauncherError`` if it
    failed, after fetching the results so far; ``Interrupted`` after Ctrl-C by the user; ``HungUp`` if the terminal was
    closed, which leaves it running.
    """
    with cancelled_on_failure(context, session, ours=ours):
        supervisor = _RunSupervisor(context, session, output or usual_output(session), ours=ours, printed=printed)
    supervisor.supervise(first)


class _RunSupervisor(BatchSupervisor):
    """Shows the notebook's progress. ``attached``: whether the job has started, so that there may be results."""

    program = "notebook"
    keys_waiting = (KEYS_OURS, KEYS_CONNECTED)

    def __init__(
        self, context: Context, session: Session, output: Path, *, ours: bool, printed: str | None = None
    ) -> None:
        super().__init__(context, session, ours=ours)
        self._output = output
        self._printed = [JobOutput(context, f"{session.directory}/{printed}")] if printed else []
        self._progress: events.NotebookProgress | None = None
        self._finished: events.NotebookFinished | None = None
        self._is_cell_to_blame = False  # whether it failed with an error in a cell, which the notebook itself shows

    # --- ways to exit

    def _stop(self) -> None:
        cancel_job(self._context, self._session)
        fetched = self._show_results() if self.attached else None
        show_bill(self._context, self._session)
        raise Interrupted("Interrupted: the notebook did not finish.", hint=_results_hint(fetched)) from None

    def _finish(self, finished: Finished) -> None:
        try:
            self._show_results(self._finished)
        finally:
            show_bill(self._context, self._session)

    def _report_exit(self, error: LauncherError) -> None:
        fetched = self._show_results() if self.attached else None
        show_bill(self._context, self._session)
        if isinstance(error, NotebookFailed):
            # after an error in a cell, the hint is about the notebook; a run as a script has no notebook
            fetch = f"fetch what there is with: {launcher_command(self._context, self._session, 'results')}"
            look = _results_hint(fetched)
            error.hint = (look or fetch) if self._is_cell_to_blame else "; ".join(filter(None, [error.hint, look]))

    # --- progress

    def _job_started(self, data: Mapping[str, object]) -> None:
        self.attached = True
        for printed in self._printed:
            printed.job_started()

    def _forget_run(self, sentence: str) -> None:
        self._progress = None
        super()._forget_run(sentence)

    def _handle_other(self, item: object) -> None:
        super()._handle_other(item)
        if not isinstance(item, ProgressReported):
            return
        event = self._how_far(item.data)
        before = self._progress
        if event is None or (before and (before.cell, before.done) == (event.cell, event.done)):
            return
        self._progress = event
        self.attached = True
        self._context.view.show(event)
        if before is None:
            self._show_keys(self.keys_waiting)  # once, even if the job restarts
            self._attached_status.attach()
        if event.cells and event.done == event.cells and event.cell is None:
            self._fetch_early()

    def _fetch_early(self) -> None:
        """Fetch the notebook once its last cell has run, because the job needs some more seconds for an HTML copy.

        A run as a script has no notebook. Errors are ignored: everything is fetched at the end, and a Ctrl-C is in the
        inbox as well.
        """
        folder = results_folder(self._session, self._output)
        with contextlib.suppress(LauncherError):
            if fetch_notebook(self._context, self._session, folder):
                self._context.view.show(events.Querying(f"the notebook is in {folder}; waiting for the end of its job"))

    def _how_far(self, data: Mapping[str, object]) -> events.NotebookProgress | None:
        """Read ``progress.json``; ``None`` if it is invalid."""
        cells, done, cell = (data.get(key) for key in ("cells", "done", "cell"))
        if not _is_count(cells) or not _is_count(done) or not (cell is None or _is_count(cell)):
            return None
        title = one_line(str(data.get("title") or ""), _LONGEST_TITLE)
        seconds = self._seconds(data)
        return events.NotebookProgress(self._session.id, self._job.id, cell, done, cells, title, seconds)  # type: ignore[arg-type]

    def _seconds(self, data: Mapping[str, object]) -> float:
        """Return how long the notebook has run; after reconnecting during a long cell, only the clock shows that."""
        now = self._context.clock()
        started, updated = (parse_iso(str(data.get(key) or ""), now) for key in ("started", "updated"))
        if started is None:
            return 0.0
        by_the_job = (updated - started).total_seconds() if updated else 0.0
        by_the_clock = (now - started).total_seconds() if data.get("cell") else 0.0
        return round(max(0.0, by_the_job, by_the_clock), 1)

    # --- its end

    def _raise_if_finished(self, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished":
            last = self._progress
            cells = last.cells if last else 0
            is_last = last is not None and last.done == last.cells
            seconds = last.seconds if last and is_last else _run_seconds(record, self._run)
            name = self._session.record.notebook or "notebook.ipynb"
            self._finished = events.NotebookFinished(self._session.id, self._job.id, name, cells, seconds)
            raise Finished

    def _raise_exit(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        is_cancelled = status is None or status.state is State.CANCELLED
        error = self._exit_error(record, status)
        if is_cancelled and (machine := cancelled_from(self._context, self._session, str(record.get("ended") or ""))):
            raise JobCancelled(f"Job {self._job} was ended by another launch-notebook, on {machine}.")
        self._is_cell_to_blame = record.get("cause") == "notebook-failed"
        if self._is_cell_to_blame and isinstance(error, NotebookFailed):
            error.log = ()  # the message has the error's own last line, and the notebook the whole log
        raise error

    def _show_results(self, ran: events.NotebookFinished | None = None) -> events.ResultsFetched | None:
        """Fetch the results, and show where they are; a failure is an error only after a successful run (``ran``).

        Raises ``HungUp`` if the terminal was closed; what was fetched so far is kept.
        """
        context, session = self._context, self._session
        self._show_rest()
        context.view.show(events.Querying("fetching the results"))
        try:
            made = fetch_results(context, session, results_folder(session, self._output))
        except LauncherError as error:
            if context.interrupts.hung_up:
                raise HungUp from None
            command = launcher_command(context, session, "results")
            if ran is None:  # the reason for the run's end matters more
                context.view.show(
                    events.Note(f"What it made could not be fetched: {error.what} Fetch it with:\n  {command}")
                )
                return None
            raise type(error)(
                error.what,
                why=f"{error.why} The notebook has finished; what it made is on {context.host.label}.".strip(),
                hint=f"fetch it with: {command}",
            ) from None
        if ran is not None:
            context.view.show(ran)
        if made.files or made.not_fetched:
            context.view.show(made)
        return made


def _run_seconds(record: Mapping[str, object], run: Mapping[str, object]) -> float:
    """Return the seconds from the job's start to its exit, if its progress was not read to the end."""
    ended, started = parse_iso(str(record.get("ended") or "")), parse_iso(str(run.get("started") or ""))
    if ended is None or started is None or not (ended.tzinfo and started.tzinfo):
        return 0.0
    return max(0.0, (ended - started).total_seconds())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000


# --- its results ---------------------------------------------------------------------------------------------


def _results_hint(made: events.ResultsFetched | None) -> str:
    if made is None:
        return ""
    if made.notebook in made.files:
        return f"its outputs up to there: {Path(made.folder) / made.notebook}"
    printed = f"{made.notebook.removesuffix('.ipynb')}.out"  # of a run as a script
    return f"what it printed up to there, with the traceback: {Path(made.folder) / printed}" * (printed in made.files)
