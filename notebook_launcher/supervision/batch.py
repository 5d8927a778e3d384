"""Seeing a run through: how far its notebook is, its end, and what it has made, which is fetched whatever the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import (
    ConnectionLost,
    HostKeyChanged,
    HostKeyUnknown,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobTimedOut,
    LauncherError,
    NotebookFailed,
    SchedulerSilent,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.text import printable
from notebook_launcher.core.timestamps import moment
from notebook_launcher.jobs.cancel import end_after, end_job, ended_from, say_left, still_there, typed
from notebook_launcher.jobs.watcher import Progressed
from notebook_launcher.notebook.results import fetch_results, results_folder
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Stage, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.supervisor import Attendance, End, GaveUp, Leave
from notebook_launcher.usage.bill_command import show_bill

KEYS_OURS = "Ctrl-C ends the job, and fetches what there is; d and ENTER leaves it running, for you to come back to."
KEYS_COMING_BACK = "Ctrl-C, or d and ENTER, leaves the notebook running."
_LONGEST_TITLE = 60  # characters
_OUTPUTS = "outputs"  # what this machine remembers by that name: where a run's results were wanted
_MOST_OUTPUTS = 200  # runs


def remember_output(session: Session, output: Path) -> None:
    """Keep, on this machine, the folder that was named for a run's results: for who comes back to it."""
    state.remember(_OUTPUTS, session.id, str(output.absolute()), at_most=_MOST_OUTPUTS)


def usual_output(session: Session) -> Path:
    """Return where a run's results go without ``--output``: where it was begun with one, there; else ``runs``."""
    return Path(state.remembered(_OUTPUTS, session.id) or "runs")


def attend_run(stage: Stage, session: Session, *, ours: bool, first: events.Event, output: Path | None = None) -> None:
    """Show the ``first`` event, follow a run to its end, and fetch what it has made into a folder below ``output``.

    ``output``: ``None`` for that which the run was begun with on this machine, else ``runs``. ``ours``: we have just
    queued it: Ctrl-C ends its job, as does what goes wrong before it runs. Else it is left as it is. Raises a
    ``LauncherError`` where it did not end well, with what there is fetched before; ``Interrupted`` after Ctrl-C of
    ours; ``HungUp`` where the terminal was closed, which leaves it running.
    """
    output = output or usual_output(session)
    run = _new_run(stage, session, ours=ours)
    try:
        stage.view.show(first)
        run.follow()
    except _Finished as finished:
        try:
            _show_results(stage, session, output, finished.event)
        finally:
            show_bill(stage, session)
    except End:
        run.stop_mending()
        end_job(stage, session)
        made = _show_results(stage, session, output) if run.held else None
        show_bill(stage, session)
        raise Interrupted("Interrupted: the notebook did not come to its end.", mend=_look_into(made)) from None
    except Leave:
        say_left(stage, session)
    except GaveUp as gave_up:
        raise _lost(stage, session, gave_up.error) from None
    except SchedulerSilent as error:
        raise still_there(stage, session, error) from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut, NotebookFailed) as error:
        made = _show_results(stage, session, output) if run.held else None
        show_bill(stage, session)
        if isinstance(error, NotebookFailed):
            # what is said of a cell in general names the notebook; a script leaves none, nor does what did not come
            without = f"what there is of it is fetched by: {typed(stage, session, 'results')}"
            looked = [_look_into(made) or without] if run.is_cell_to_blame else [error.mend, _look_into(made)]
            error.mend = "; ".join(filter(None, looked))
        raise
    except Exception as error:  # an error of ours, too: a job that is of no use to anybody is not left behind
        if run.held:
            say_left(stage, session)
        elif ours:
            end_after(stage, session, error)
        raise
    finally:
        run.close()


class _Finished(Exception):
    """The notebook has come to its end."""

    def __init__(self, event: events.NotebookRan) -> None:
        self.event = event


def _new_run(stage: Stage, session: Session, *, ours: bool) -> _Run:
    """Return who follows a run; a job of ours that nobody can follow is ended."""
    try:
        return _Run(stage, session, ours=ours)
    except Exception as error:
        if ours:
            end_after(stage, session, error)
        raise


class _Run(Attendance):
    """Tells how far the notebook is. ``held``: whether the job has begun, so that there may be results.

    ``is_cell_to_blame``: it failed by an error in a cell, which the notebook itself shows.
    """

    program = "notebook"

    def __init__(self, stage: Stage, session: Session, *, ours: bool) -> None:
        super().__init__(stage, session, ours=ours)
        self._told: events.CellRuns | None = None
        self._keys_told = False
        self.is_cell_to_blame = False

    def _interrupted(self) -> NoReturn:
        raise End if self._ours else Leave

    def _typed_words(self, words: list[str]) -> None:
        self._note(KEYS_OURS if self._ours else KEYS_COMING_BACK)

    def _begins(self, data: Mapping[str, object]) -> None:
        self.held = True

    def _forget_run(self, sentence: str) -> None:
        self._told = None
        super()._forget_run(sentence)

    def _other(self, item: object) -> None:
        if not isinstance(item, Progressed):
            return
        event = self._how_far(item.data)
        before = self._told
        if event is None or (before and (before.cell, before.done) == (event.cell, event.done)):
            return
        self._told = event
        self.held = True
        self._stage.view.show(event)
        if before is None:
            if self._stage.prompts.asks and not self._keys_told:  # once, also where the job begins anew
                self._keys_told = True
                self._note(KEYS_OURS if self._ours else KEYS_COMING_BACK)
            self._holding.begins()

    def _how_far(self, data: Mapping[str, object]) -> events.CellRuns | None:
        """Read ``progress.json``; ``None`` where it makes no sense."""
        cells, done, cell = (data.get(key) for key in ("cells", "done", "cell"))
        if not _is_count(cells) or not _is_count(done) or not (cell is None or _is_count(cell)):
            return None
        title = " ".join(printable(str(data.get("title") or "")).split())
        shown = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
        seconds = self._seconds(data)
        return events.CellRuns(self._session.id, self._job.id, cell, done, cells, shown, seconds)  # type: ignore[arg-type]

    def _seconds(self, data: Mapping[str, object]) -> float:
        """Return how long it has run; who comes back in the middle of a long cell has only the clock for that."""
        now = self._stage.clock()
        started, updated = (moment(str(data.get(key) or ""), now) for key in ("started", "updated"))
        if started is None:
            return 0.0
        by_the_job = (updated - started).total_seconds() if updated else 0.0
        by_the_clock = (now - started).total_seconds() if data.get("cell") else 0.0
        return round(max(0.0, by_the_job, by_the_clock), 1)

    def _ended_well(self, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished":
            told = self._told
            cells = told.cells if told else 0
            is_last = told is not None and told.done == told.cells
            seconds = told.seconds if told and is_last else _between(record, self._run)
            name = self._session.record.notebook or "notebook.ipynb"
            raise _Finished(events.NotebookRan(self._session.id, self._job.id, name, cells, seconds))

    def _conclude(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        is_cancelled = status is None or status.state is State.CANCELLED
        error = self._how_it_ended(record, status)
        if is_cancelled and (machine := ended_from(self._stage, self._session, str(record.get("ended") or ""))):
            raise JobCancelled(f"Job {self._job} was ended by another launch-notebook, on {machine}.")
        self.is_cell_to_blame = record.get("cause") == "notebook-failed"
        if self.is_cell_to_blame and isinstance(error, NotebookFailed):
            error.log = ()  # the message has the error's own last line, and the notebook all of it
        raise error


def _between(record: Mapping[str, object], run: Mapping[str, object]) -> float:
    """Return the seconds from the job's first word to its last, where its progress was not heard to the end."""
    ended, started = moment(str(record.get("ended") or "")), moment(str(run.get("started") or ""))
    if ended is None or started is None or not (ended.tzinfo and started.tzinfo):
        return 0.0
    return max(0.0, (ended - started).total_seconds())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000


# --- the end -------------------------------------------------------------------------------------------------


def _show_results(
    stage: Stage, session: Session, output: Path, ran: events.NotebookRan | None = None
) -> events.ResultsFetched | None:
    """Fetch what the run has made, and say where it is; where that fails after a good end, it is an error."""
    stage.view.show(events.Asking("fetching what the notebook has made"))
    try:
        made = fetch_results(stage, session, results_folder(session, output))
    except LauncherError as error:
        command = typed(stage, session, "results")
        if ran is None:  # why it ended matters more
            stage.view.show(
                events.Noted(f"What it made could not be fetched: {error.what} Fetch it with:\n  {command}")
            )
            return None
        raise type(error)(
            error.what,
            why=f"{error.why} The notebook has come to its end; what it made is on {stage.host.label}.".strip(),
            mend=f"fetch it with: {command}",
        ) from None
    if ran is not None:
        stage.view.show(ran)
    if made.files or made.left:
        stage.view.show(made)
    return made


def _look_into(made: events.ResultsFetched | None) -> str:
    if made is None:
        return ""
    if made.notebook in made.files:
        return f"its outputs up to there: {Path(made.folder) / made.notebook}"
    printed = f"{made.notebook.removesuffix('.ipynb')}.out"  # of a run as a script
    return f"what it printed up to there, with the traceback: {Path(made.folder) / printed}" * (printed in made.files)


def _lost(stage: Stage, session: Session, error: LauncherError) -> LauncherError:
    if isinstance(error, HostKeyChanged | HostKeyUnknown):  # coming back would end the same way
        error.why += f" The notebook goes on: job {job_of(session)}."
        return error
    why = f"{error.what} {error.why}".strip()
    return still_there(stage, session, ConnectionLost("The connection to the cluster is lost.", why=why))
