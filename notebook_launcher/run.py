"""The story of ``run``: a notebook goes to the cluster, is executed there from top to bottom, and its results come."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import queue
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from notebook_launcher.core.errors import Interrupted, NotebookInvalid, SessionNotFound, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts
from notebook_launcher.core.text import finite
from notebook_launcher.hosts.base import RUN_TIMEOUT, Prompts
from notebook_launcher.jobs.cancel import end_job, say_left
from notebook_launcher.jobs.lookup import choose_there, look, play_on
from notebook_launcher.jobs.session_index import Entry
from notebook_launcher.launch import Load, dry_run, notes_before, queue_loaded, submitted
from notebook_launcher.notebook.prepare import Prepared
from notebook_launcher.notebook.results import SENT, fetch_results, results_folder
from notebook_launcher.planning.courses import course_used
from notebook_launcher.planning.plan import Place, Plan
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Access, Stage, View
from notebook_launcher.session.preflight import lacks_jupyterlab
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.batch import attend_run, remember_output, usual_output
from notebook_launcher.transfer.paths import human
from notebook_launcher.usage.cost_estimate import Costing

__all__ = ["RunWish", "dry_run_notebook", "fetch_results", "queue_run", "results", "run_notebook", "typed_again"]

To = Literal["notebook", "script"]
SLOWEST = 100_000  # bytes a second that a line carries, at least, so that what is sent has its time
SLOW_AFTER = 2.0  # seconds after which it is said what is sent


@dataclass(frozen=True)
class RunWish:
    """What is wanted of a run. ``output``: the folder here in which each run gets one of its own; ``None``: ``runs``.

    ``to``: what is executed, the notebook or a script made of it. ``detach``: do not wait for its end.
    """

    output: Path | None = None
    to: To = "notebook"
    detach: bool = False


def run_notebook(
    plan: Plan, prepared: Prepared, wish: RunWish, view: View, prompts: Prompts, interrupts: Interrupts
) -> int:
    """Queue a notebook, follow it to its end, fetch what it made, and return the exit code: 0.

    Raises a ``LauncherError`` where it did not end well, after fetching what there is (``NotebookFailed``: a cell
    failed); ``Interrupted`` after ending the job; ``HungUp`` (a closed terminal), which leaves it running.
    """
    with open_stage(plan.place, view, prompts, interrupts) as stage:
        costing = Costing(plan, stage)
        if plan.place.course:
            view.show(course_used(plan.place.course))
        lacks = lacks_jupyterlab(stage.host, stage.site, plan.environment, plan.container)
        notes = notes_before(plan, stage.scheduler, stage.site, "notebook")
        for note in (*prepared.notes, *notes, *([lacks] if lacks else [])):
            view.show(events.Noted(note))
        view.show(_queued(prepared, here=not stage.host.remote))
        session, _ = queue_run(plan, stage, prepared, wish.to, costing, written=functools.partial(_remember, wish))
        first = submitted(plan, stage, session)
        if wish.detach:
            _leave(stage, session, first)
        else:
            attend_run(stage, session, ours=True, first=first, output=wish.output)
    return 0


def _remember(wish: RunWish, session: Session) -> None:
    if wish.output:
        remember_output(session, wish.output)


def _leave(stage: Stage, session: Session, first: events.Event) -> None:
    """Leave a run that was just queued, unless that was interrupted meanwhile. Raises ``Interrupted``, ``HungUp``."""
    stage.view.show(first)
    wishes = {interrupt.kind for interrupt in _interrupts(stage)}
    if "leave" in wishes:
        raise HungUp
    if wishes:
        end_job(stage, session)
        raise Interrupted("Interrupted before the job had started.")
    say_left(stage, session)


def typed_again(plan: Plan, words: Sequence[str]) -> Plan:
    """Return the plan with the command that asks for the same again: the run's own words go first."""
    return dataclasses.replace(plan, command=f"{shlex.join(words)} {plan.command}".strip())


def dry_run_notebook(plan: Plan, prepared: Prepared, wish: RunWish, view: View) -> None:
    """Show the submit command, the session file and what would be sent, and do nothing: not even connect."""
    for note in prepared.notes:
        view.show(events.Noted(note))
    view.show(_queued(prepared, here=plan.place.destination is None))
    dry_run(plan, view, lambda here: _load(prepared, wish.to, here=here))


def queue_run(
    plan: Plan,
    stage: Stage,
    prepared: Prepared,
    to: To = "notebook",
    costing: Costing | None = None,
    *,
    written: Callable[[Session], None] = lambda _session: None,
) -> tuple[Session, Access]:
    """Make the session of one run, with all that it needs, and queue its job; from then on interrupts are deferred.

    ``costing``: tells the price before; without it nothing is shown but that it takes long. ``written``: told the
    session once its files are there, before its job is queued. Raises what ``queue_job`` raises, and
    ``NotebookInvalid`` for companions that cannot be sent.
    """
    load = _load(prepared, to, here=not stage.host.remote)

    def send(stage: Stage, session: Session) -> None:
        load.send(stage, session)
        written(session)

    return queue_loaded(
        plan, stage, dataclasses.replace(load, send=send), before_queueing=costing.tell if costing else lambda: None
    )


def results(
    place: Place, prefix: str, output: Path | None, view: View, prompts: Prompts, interrupts: Interrupts
) -> events.ResultsFetched:
    """Fetch what a run has made so far; without a name that of the one that runs, or of the last one.

    ``output``: as in ``RunWish``; ``None``: where the run was begun on this machine, as it was told then. Raises
    ``SessionNotFound``, and ``UsageError`` for a session that is no run.
    """
    with open_stage(place, view, prompts, interrupts) as stage:
        entry = _the_run(stage, prefix)
        session = play_on(stage, entry)
        view.show(events.Asking("fetching what the notebook has made"))
        made = fetch_results(stage, session, results_folder(session, output or usual_output(session)))
        view.show(made)
        if not made.whole and (why := _why_not_whole(entry)):
            view.show(events.Noted(why))
        return made


def _the_run(stage: Stage, prefix: str) -> Entry:
    catalogue = look(stage)
    if not prefix:
        runs = tuple(entry for entry in catalogue.entries if entry.session.record.program == "notebook")
        if not runs and catalogue.entries:
            raise SessionNotFound(
                f"No notebook was run on {stage.host.label}.", mend="run one: launch-notebook run NOTEBOOK"
            )
        catalogue = dataclasses.replace(catalogue, entries=runs)
    entry = choose_there(stage, catalogue, prefix, ended_too=True)
    if entry.session.record.program != "notebook":
        raise UsageError(
            f"Session {entry.session.id} is no run of a notebook.",
            why="Only a run has results to fetch.",
            mend="fetch files of yours with: launch-notebook copy login:FOLDER .",
        )
    return entry


def _why_not_whole(entry: Entry) -> str:
    """Return in a sentence why there is no more."""
    seen = entry.seen
    if entry.live:
        far = f" (cell {seen.done} of {seen.cells} is done)" if seen.done is not None and seen.cells else ""
        return "Its job waits." if seen.state == "waiting" else f"The notebook is not at its end yet{far}."
    message = (entry.record.exited or {}).get("message")
    return str(message) if message else f"The notebook did not come to its end: {seen.about or 'nobody knows why'}."


# --- what is sent --------------------------------------------------------------------------------------------


def _queued(prepared: Prepared, *, here: bool) -> events.NotebookQueued:
    sent = tuple(_sent(prepared, _works_in(prepared, here=here)))
    return events.NotebookQueued(prepared.name, prepared.cells, dict(prepared.parameters), sent)


def _sent(prepared: Prepared, folder: Path | None) -> Mapping[str, bytes]:
    """Return what is brought into the session's folder: all, or what the folder that the kernel works in lacks."""
    return {name: prepared.companions[name] for name in prepared.lent} if folder else prepared.companions


def _load(prepared: Prepared, to: To, *, here: bool) -> Load:
    """Return what a session takes along. ``here``: whether this machine's files are seen by the job."""
    folder = _works_in(prepared, here=here)
    companions = _sent(prepared, folder)
    record = {
        "version": 1,
        "notebook": prepared.name,
        "to": to,
        "cells": prepared.cells,
        "parameters": dict(prepared.parameters),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in companions.items()},
    }
    return Load(
        "notebook",
        {"notebook": prepared.name, "to": to, **({"folder": str(folder)} if folder else {})},
        prepared.name,
        tuple(companions),
        {"input.ipynb": prepared.content, SENT: _as_json(record)},
        lambda stage, session: _send(stage, session, companions),
    )


def _as_json(record: Mapping[str, object]) -> bytes:
    return (json.dumps(finite(record), default=str, allow_nan=False) + "\n").encode()


def _works_in(prepared: Prepared, *, here: bool) -> Path | None:
    """Return the notebook's own folder where the kernel can work in it: it is on this machine, with all that it needs.

    Files that were named from elsewhere are brought together in the session's own folder, with the notebook. So they
    are where the folder's name has a sign with which a container could not be shown it. What the launcher lends is
    imported from the session's folder.
    """
    folder = prepared.folder
    if not here or folder is None or not str(folder).isprintable() or set(":,") & set(str(folder)):
        return None
    own = {name: content for name, content in prepared.companions.items() if name not in prepared.lent}
    return folder if all(_is_same(folder / name, content) for name, content in own.items()) else None


def _is_same(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _send(stage: Stage, session: Session, companions: Mapping[str, bytes]) -> None:
    """Bring the companions into the folder where the notebook runs. A wish to end it meanwhile is not put off."""
    if not companions:
        return
    size = sum(map(len, companions.values()))
    done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def send() -> None:
        try:
            files = {f"work/{name}": content for name, content in companions.items()}
            stage.host.write_files(session.directory, files, timeout=RUN_TIMEOUT + size / SLOWEST)
            done.put(None)
        except Exception as error:
            done.put(error)

    threading.Thread(target=send, name="send companions", daemon=True).start()
    error = _until_done(stage, done, f"sending {len(companions)} files with the notebook ({human(size)})")
    if isinstance(error, ValueError):  # a name that no tar takes
        raise NotebookInvalid("A file cannot be sent with the notebook.", why=str(error), mend="give it a shorter name")
    if error is not None:
        raise error


def _until_done(stage: Stage, done: queue.SimpleQueue[Exception | None], what: str) -> Exception | None:
    """Wait for the end of what is sent, and say what takes so long. Raises ``Interrupted``."""
    waited = 0.0
    while True:
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.25)
        waited += 0.25
        if waited == SLOW_AFTER:
            stage.view.show(events.Asking(what))
        _refuse_if_interrupted(stage)


def _refuse_if_interrupted(stage: Stage) -> None:
    """Raise ``Interrupted`` where the user has changed their mind."""
    if _interrupts(stage):
        raise Interrupted("Interrupted.", why="Nothing was queued.")


def _interrupts(stage: Stage) -> list[Interrupt]:
    """Return the interrupts that have come; all that has come stays where it is, in its order."""
    items: list[object] = []
    with contextlib.suppress(queue.Empty):
        while True:
            items.append(stage.interrupts.inbox.get_nowait())
    for item in items:
        stage.interrupts.inbox.put(item)
    return [item for item in items if isinstance(item, Interrupt)]
