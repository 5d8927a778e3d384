"""``run``: sends a notebook to the cluster, executes it there from top to bottom, and fetches its results."""

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
from pathlib import Path
from typing import Literal

from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, NotebookInvalid, ScriptInvalid, SessionNotFound, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.text import finite
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import RUN_TIMEOUT, Prompts
from notebook_launcher.jobs.cancel import cancel_job, report_detached
from notebook_launcher.jobs.lookup import choose_on_host, read_session_index, select_session
from notebook_launcher.jobs.session_index import IndexedSession
from notebook_launcher.jobs.unlisted_flags import check_request
from notebook_launcher.launch import (
    OfferImage,
    Payload,
    dry_run,
    no_offer,
    notes_before,
    queue_payload,
    software_warning,
    submitted,
)
from notebook_launcher.notebook.prepare import Prepared
from notebook_launcher.notebook.results import SENT, fetch_results, results_folder
from notebook_launcher.planning.course_commands import course_used
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import check_software, inspects_image
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.batch import save_output, supervise_run, usual_output
from notebook_launcher.supervision.job_output import printed_file
from notebook_launcher.usage.cost_estimate import Costing

__all__ = [
    "RunRequest",
    "dry_run_notebook",
    "fetch_results",
    "queue_run",
    "results",
    "run_notebook",
    "with_run_command",
]

To = Literal["notebook", "script"]
SLOWEST = 100_000  # bytes per second: the slowest connection for which the timeout of sending allows
SLOW_AFTER = 2.0  # seconds after which the progress of sending is shown


class RunRequest(Frozen):
    """The request for a run. ``output``: the local folder for the results of runs; ``None``: ``runs``.

    ``to``: what is executed: the notebook, or a script made from it. ``detach``: do not wait for its end. ``follow``:
    show its output while it runs.
    """

    output: Path | None = None
    to: To = "notebook"
    detach: bool = False
    follow: bool = False

    def printed(self, notebook: str) -> str | None:
        """Return the file in the session's directory to follow, if any. ``notebook``: the notebook's file name."""
        return printed_file(notebook, is_script=self.to == "script") if self.follow else None


def run_notebook(
    plan: Plan,
    prepared: Prepared,
    request: RunRequest,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    offer_image: OfferImage = no_offer,
) -> int:
    """Submit a notebook, follow it to its end, fetch its results, and return the exit code: 0.

    Raises a ``LauncherError`` if the run failed, after fetching the results so far (``NotebookFailed``: a cell failed);
    ``Interrupted`` after cancelling the job; ``HungUp`` (a closed terminal), which leaves the job running.
    """
    scripts = int(inspects_image(plan))
    with open_context(plan.target, view, prompts, interrupts, submits=True, scripts=scripts) as context:
        check_request(context, plan.request.flags)
        costing = Costing(plan, context)
        if plan.target.course:
            view.show(course_used(plan.target.course))
        check = functools.partial(
            check_software, context.host, context.site, plan, same_machine=context.scheduler.same_machine
        )
        warning = software_warning(plan, context, check, offer_image)
        notes = notes_before(plan, context.scheduler, context.site, "notebook")
        for note in (*prepared.notes, *notes, *([warning] if warning else [])):
            view.show(events.Note(note))
        view.show(_queued(prepared, here=not context.host.remote))
        session, _ = queue_run(
            plan, context, prepared, request.to, costing, html=True, written=functools.partial(_remember, request)
        )
        first = submitted(plan, context, session)
        if request.detach:
            detach_submitted(context, session, first)
        else:
            printed = request.printed(prepared.name)
            supervise_run(context, session, ours=True, first=first, output=request.output, printed=printed)
    return 0


def _remember(request: RunRequest, session: Session) -> None:
    if request.output:
        save_output(session, request.output)


def detach_submitted(context: Context, session: Session, first: events.Event) -> None:
    """Detach from a submitted batch job, unless the user has interrupted. Raises ``Interrupted`` or ``HungUp``."""
    context.view.show(first)
    kinds = {interrupt.kind for interrupt in _interrupts(context)}
    if "leave" in kinds:
        raise HungUp
    if kinds:
        cancel_job(context, session)
        raise Interrupted("Interrupted before the job had started.")
    report_detached(context, session, is_queued=session.record.scheduler != "local")


def with_run_command(plan: Plan, arguments: Sequence[str]) -> Plan:
    """Return the plan with the command that repeats the run; the run's own arguments come first."""
    return dataclasses.replace(plan, command=f"{shlex.join(arguments)} {plan.command}".strip())


def dry_run_notebook(plan: Plan, prepared: Prepared, request: RunRequest, view: View) -> None:
    """Show the submit command, the session file and the files to send, without connecting."""
    for note in prepared.notes:
        view.show(events.Note(note))
    view.show(_queued(prepared, here=plan.target.destination is None))
    dry_run(plan, view, lambda here: _payload(prepared, request.to, here=here, html=True))


def queue_run(
    plan: Plan,
    context: Context,
    prepared: Prepared,
    to: To = "notebook",
    costing: Costing | None = None,
    *,
    html: bool = False,
    written: Callable[[Session], None] = lambda _session: None,
) -> tuple[Session, Access]:
    """Create the session of one run, with all its files, and submit its job; from then on interrupts are deferred.

    ``costing``: shows the price first; without it only slow progress is shown. ``html``: whether the job makes an HTML
    copy of the notebook, which takes seconds. ``written``: called with the session once its files are written, before
    its job is submitted. Raises what ``queue_job`` raises, and ``NotebookInvalid`` for dependencies that cannot be
    sent.
    """
    payload = _payload(prepared, to, here=not context.host.remote, html=html)

    def send(context: Context, session: Session) -> None:
        if payload.send:
            payload.send(context, session)
        written(session)

    return queue_payload(
        plan,
        context,
        dataclasses.replace(payload, send=send),
        before_queueing=costing.show_price if costing else lambda: None,
    )


def results(
    target: LaunchTarget, prefix: str, output: Path | None, view: View, prompts: Prompts, interrupts: Interrupts
) -> events.ResultsFetched:
    """Fetch the results of a run so far; without a name, those of the running one, or of the last one.

    ``output``: as in ``RunRequest``; ``None``: the same as when the run was started on this machine. Raises
    ``SessionNotFound``, and ``UsageError`` for a session that is not a run.
    """
    with open_context(target, view, prompts, interrupts) as context:
        entry = _the_run(context, prefix)
        session = select_session(context, entry)
        view.show(events.Querying("fetching the results"))
        made = fetch_results(context, session, results_folder(session, output or usual_output(session)))
        view.show(made)
        if not made.complete and (why := _incomplete_note(entry)):
            view.show(events.Note(why))
        return made


def _the_run(context: Context, prefix: str) -> IndexedSession:
    index = read_session_index(context)
    if not prefix:
        runs = tuple(entry for entry in index.entries if entry.session.record.program == "notebook")
        if not runs and index.entries:
            raise SessionNotFound(
                f"No notebook was run on {context.host.label}.", hint="run one: launch-notebook run NOTEBOOK"
            )
        index = dataclasses.replace(index, entries=runs)
    entry = choose_on_host(context, index, prefix, "results", ended_too=True)
    if entry.session.record.program != "notebook":
        raise UsageError(
            f"Session {entry.session.id} is not a run of a notebook.",
            why="Only a run has results to fetch.",
            hint="fetch files of yours with: launch-notebook copy login:FOLDER .",
        )
    return entry


def _incomplete_note(entry: IndexedSession) -> str:
    """Return a sentence on why the results are not complete."""
    seen = entry.summary
    if entry.live:
        far = f" (cell {seen.done} of {seen.cells} is done)" if seen.done is not None and seen.cells else ""
        return "Its job is still pending." if seen.state == "pending" else f"The notebook has not finished yet{far}."
    message = (entry.record.exited or {}).get("message")
    return str(message) if message else f"The notebook did not finish: {seen.detail or 'nobody knows why'}."


# --- the files to send ---------------------------------------------------------------------------------------


def _queued(prepared: Prepared, *, here: bool) -> events.NotebookPrepared:
    sent = tuple(_sent(prepared, _kernel_folder(prepared, here=here)))
    return events.NotebookPrepared(prepared.name, prepared.cells, dict(prepared.parameters), sent)


def _sent(prepared: Prepared, folder: Path | None) -> Mapping[str, bytes]:
    """Return the files to copy to the session's folder: all, or those missing from the kernel's working folder."""
    return {name: prepared.dependencies[name] for name in prepared.helpers} if folder else prepared.dependencies


def _payload(prepared: Prepared, to: To, *, here: bool, html: bool = False) -> Payload:
    """Return a session's payload. ``here``: whether the job sees this machine's files. ``html``: see ``queue_run``."""
    folder = _kernel_folder(prepared, here=here)
    dependencies = _sent(prepared, folder)
    record = {
        "version": 1,
        "notebook": prepared.name,
        "to": to,
        "cells": prepared.cells,
        "parameters": dict(prepared.parameters),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in dependencies.items()},
    }
    return Payload(
        "notebook",
        {
            "notebook": prepared.name,
            "to": to,
            **({"folder": str(folder)} if folder else {}),
            **({"html": "yes"} if html and to == "notebook" else {}),
        },
        prepared.name,
        tuple(dependencies),
        {"input.ipynb": prepared.content, SENT: _as_json(record)},
        lambda context, session: send_beside(context, session, dependencies),
    )


def _as_json(record: Mapping[str, object]) -> bytes:
    return (json.dumps(finite(record), default=str, allow_nan=False) + "\n").encode()


def _kernel_folder(prepared: Prepared, *, here: bool) -> Path | None:
    """Return the notebook's own folder if the kernel can work in it: it is on this machine, and complete.

    ``None``: the notebook and its files are copied to the session's folder, because some of them are elsewhere, or the
    folder's name has a character that cannot be passed to a container. The launcher's own modules are always imported
    from the session's folder.
    """
    folder = prepared.folder
    if not here or folder is None or not str(folder).isprintable() or set(":,") & set(str(folder)):
        return None
    own = {name: content for name, content in prepared.dependencies.items() if name not in prepared.helpers}
    return folder if all(_is_same(folder / name, content) for name, content in own.items()) else None


def _is_same(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def send_beside(context: Context, session: Session, dependencies: Mapping[str, bytes], kind: str = "notebook") -> None:
    """Copy the dependencies to the notebook's or script's working folder. An interrupt takes effect at once."""
    if not dependencies:
        return
    size = sum(map(len, dependencies.values()))
    done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def send() -> None:
        try:
            files = {f"work/{name}": content for name, content in dependencies.items()}
            context.host.write_files(session.directory, files, timeout=RUN_TIMEOUT + size / SLOWEST)
            done.put(None)
        except Exception as error:
            done.put(error)

    threading.Thread(target=send, name="send dependencies", daemon=True).start()
    error = _until_done(context, done, f"sending {len(dependencies)} files with the {kind} ({file_size(size)})")
    if isinstance(error, ValueError):  # a file name that tar does not accept
        invalid = NotebookInvalid if kind == "notebook" else ScriptInvalid
        raise invalid(f"A file cannot be sent with the {kind}.", why=str(error), hint="give it a shorter name")
    if error is not None:
        raise error


def _until_done(context: Context, done: queue.SimpleQueue[Exception | None], what: str) -> Exception | None:
    """Wait until everything is sent, showing progress if it takes long. Raises ``Interrupted``."""
    waited = 0.0
    while True:
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.25)
        waited += 0.25
        if waited == SLOW_AFTER:
            context.view.show(events.Querying(what))
        _refuse_if_interrupted(context)


def _refuse_if_interrupted(context: Context) -> None:
    """Raise ``Interrupted`` if the user has pressed Ctrl-C."""
    if _interrupts(context):
        raise Interrupted("Interrupted.", why="No job was started.")


def _interrupts(context: Context) -> list[Interrupt]:
    """Return the interrupts in the inbox without removing them."""
    items: list[object] = []
    with contextlib.suppress(queue.Empty):
        while True:
            items.append(context.interrupts.inbox.get_nowait())
    for item in items:
        context.interrupts.inbox.put(item)
    return [item for item in items if isinstance(item, Interrupt)]
