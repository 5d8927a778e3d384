"""The command ``bench``: runs the combinations of a matrix as jobs, several at a time, and writes one report.

Each step is recorded in the bench's folder (``journal``). However the program ended, running the same command again
continues the bench: it finds the jobs submitted before, and submits only the missing ones.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from notebook_launcher.bench.combinations import (
    ReadyCombination,
    digest_of,
    make_ready,
    prepare_notebook,
    records_times,
)
from notebook_launcher.bench.journal import BenchFolder, Journal, check_same, lock_folder
from notebook_launcher.bench.matrix import Matrix, beside, check_size, find, parse, with_parameters
from notebook_launcher.bench.messages import CONTINUE, cancel_hint, stop_command
from notebook_launcher.bench.report_files import raise_for_failed, write_report
from notebook_launcher.bench.request import BENCH_TIMING, MOST_AT_ONCE, BenchRequest, BenchTiming
from notebook_launcher.bench.runner import Runner
from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, UsageError
from notebook_launcher.core.interrupts import HungUp, Interrupts
from notebook_launcher.core.sbatch_options import unlisted
from notebook_launcher.core.text import listed
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.lookup import read_session_index, with_jobs
from notebook_launcher.jobs.unlisted_flags import check_request
from notebook_launcher.launch import OfferImage, no_offer, software_warning
from notebook_launcher.planning.first_run import LinePrompts, complete_options
from notebook_launcher.planning.new_default import save_new_default
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.schedulers.local import HONOURED
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import check_software

_RECORDS_NONE = (
    "{name} seems to record no times. Then the report has no results, and only compares how long the jobs took as a "
    "whole. To record times, use timing.measure(…).record() in the notebook: see docs/bench.md."
)

Connect = Callable[[], contextlib.AbstractContextManager[Context]]


class BenchPrompts(LinePrompts, Prompts, Protocol):
    """Prompts for lines, secrets, and yes or no."""


def bench(
    options: LaunchOptions,
    here: LocalMachine,
    request: BenchRequest,
    view: View,
    prompts: BenchPrompts,
    interrupts: Interrupts,
    timing: BenchTiming = BENCH_TIMING,
    offer_image: OfferImage = no_offer,
) -> None:
    """Run the missing combinations of a matrix, and write the report of all results.

    Raises ``UsageError`` or ``NotebookInvalid`` for invalid input, ``BenchIncomplete`` if combinations failed (the
    report is written), ``Interrupted`` and ``HungUp``, which leave jobs running for the next call to find, and any
    other error that stops the bench. In every case the same command continues the bench.
    """
    matrix = _matrix(options, request)
    notebook = prepare_notebook(request)
    asked = _other_options(options)
    ready = make_ready(matrix, complete_options(options, here, view, prompts), here, request, notebook)
    baseline = find([one.combination for one in ready.values()], request.baseline).name if request.baseline else ""
    target = next(iter(ready.values())).plan.target
    if target.scheduler == "local":
        _refuse_without_scheduler(matrix)
    if not unlisted(options.flags):  # else once the cluster has accepted those
        target = save_new_default(target, view)
    about = {"notebook": notebook.name, "digest": digest_of(notebook), "place": target.name, "asked": asked}
    path = request.output or Path(f"bench-{Path(notebook.name).stem}")

    def connect() -> contextlib.AbstractContextManager[Context]:
        return open_context(target, view, prompts, interrupts, submits=True, prepares=False)

    def before_fresh(old: Journal) -> None:
        _refuse_with_jobs(old, path, target, connect, timing)

    now = datetime.now().astimezone()
    with lock_folder(path, **about, now=now, fresh=before_fresh if request.fresh else None) as folder:
        check_same(folder.journal, **about, folder=path)
        if folder.update_settings(**about):
            view.show(events.Note("The notebook has changed, and there are no results yet: what failed is run again."))
        folder.add([one.combination for one in ready.values()], matrix=request.matrix, command=request.command)
        if request.retry_failed:
            _put_failed_back(folder, ready)
        _show_notes(view, notebook.notes, ready)
        try:
            if any(name in ready for name in folder.names("planned")) or folder.names("queued"):
                if not records_times(notebook):
                    view.show(events.Note(_RECORDS_NONE.format(name=notebook.name)))
                with _naming_earlier_jobs(folder, target), connect() as context:
                    if context.scheduler.same_machine:
                        _refuse_without_scheduler(matrix)
                    check_request(context, options.flags)
                    planned = [ready[name] for name in folder.names("planned") if name in ready]
                    _check_environments(context, planned, offer_image)
                    Runner(context, folder, ready, request.at_once, timing).run()
            else:
                view.show(folder.progress("All combinations were run before; nothing is queued."))
        except (Exception, HungUp):
            with contextlib.suppress(Exception):  # the original error matters more
                if folder.names("done"):
                    write_report(folder, baseline, view, quietly=True)
            raise
        write_report(folder, baseline, view)
        raise_for_failed(folder, ready)


# --- the request -------------------------------------------------------------------------------------------------


def _matrix(options: LaunchOptions, request: BenchRequest) -> Matrix:
    """Return the matrix. Raises ``UsageError`` if it is invalid, or conflicts with the other options."""
    matrix = with_parameters(parse(request.matrix), request.pairs)
    check_size(matrix, sure=request.sure)
    if not 1 <= request.at_once <= MOST_AT_ONCE:
        raise UsageError(f"--at-once is 1 to {MOST_AT_ONCE}.", why="Others use the queue as well.")
    if flag := matrix.conflicting_flag(list(options.flags)):
        raise UsageError(
            f"--{flag} is given beside the matrix, which sets it for each combination.",
            hint=f"leave out --{flag}, or take it out of the matrix",
        )
    if options.arguments and "env" in matrix.kinds():
        raise UsageError(
            "The environment is given in the matrix (env=…) and after -- as well.", hint="leave out one of the two"
        )
    return matrix


def _other_options(options: LaunchOptions) -> str:
    others = {
        "module": options.modules,
        "conda": options.conda,
        "venv": options.venv,
        "uv": options.uv,
        "engine": options.engine,
        "course": options.course,
    }
    return beside(options.flags, others, options.arguments)


def _refuse_without_scheduler(matrix: Matrix) -> None:
    """Raise ``UsageError`` for axes that have no effect on a machine without a scheduler."""
    idle = [
        axis.name
        for axis in matrix.axes
        if axis.kind in ("cores", "gpus") or (axis.kind == "flag" and axis.name not in HONOURED)
    ]
    if idle:
        raise UsageError(
            f"{listed(idle)} {'has' if len(idle) == 1 else 'have'} no effect on this machine, and cannot be an axis "
            "here.",
            why="There is no scheduler to allot them: each job has the whole machine, and all measure the same.",
            hint="vary env or the notebook's parameters, or name a cluster with --cluster or --host",
        )


def _check_environments(context: Context, planned: Collection[ReadyCombination], offer_image: OfferImage) -> None:
    """Show warnings about the software of the jobs, once per environment, and raise if an image is missing.

    An image that can be built or pulled is offered first.
    """
    plans = {(one.plan.environment_name, one.plan.container): one.plan for one in planned}
    for plan in plans.values():
        same_machine = context.scheduler.same_machine
        check = functools.partial(check_software, context.host, context.site, plan, same_machine=same_machine)
        if warning := software_warning(plan, context, check, offer_image):
            context.view.show(events.Note(warning))


def _put_failed_back(folder: BenchFolder, names: Collection[str]) -> None:
    for name in folder.names("failed"):
        if name in names:
            folder.put_back(name)


def _show_notes(view: View, notebook_notes: tuple[str, ...], ready: dict[str, ReadyCombination]) -> None:
    """Show each note once, however many combinations it applies to."""
    notes = (note for one in ready.values() for note in (*one.plan.notes, *one.prepared.notes))
    for note in dict.fromkeys((*notebook_notes, *notes)):
        view.show(events.Note(note))


# --- jobs of an earlier call -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _naming_earlier_jobs(folder: BenchFolder, target: LaunchTarget) -> Iterator[None]:
    """List the jobs of an earlier call in the error if the bench stops before it has found them again."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        sessions = [session for name in folder.names("queued") if (session := folder[name].session)]
        if not sessions or (isinstance(error, Interrupted) and error.hint.startswith(CONTINUE)):  # more specific
            raise
        jobs = "One job was" if len(sessions) == 1 else f"{len(sessions)} jobs were"
        why, hint = f"{jobs} queued before, and may run.", f"{CONTINUE}; {cancel_hint(sessions, target)}"
        raise Interrupted("Interrupted.", why=why, hint=hint) from None


def _refuse_with_jobs(old: Journal, path: Path, target: LaunchTarget, connect: Connect, timing: BenchTiming) -> None:
    """Check that discarding a bench's journal loses no job. Raises ``UsageError``, which names the sessions."""
    queued = [entry.session for entry in old.entries if entry.state == "queued" and entry.session]
    if queued and old.place == target.name:
        with connect() as context:
            entries = with_jobs(context, read_session_index(context, timeout=timing.lookup_within).entries)
            live = {entry.session.id for entry in entries if entry.session.id in queued and entry.live}
        queued = [session for session in queued if session in live]
    if queued:
        jobs = "a job" if len(queued) == 1 else f"{len(queued)} jobs"
        stops = [f"  {stop_command([session], target)}" for session in queued]
        raise UsageError(
            f"The bench in {path} has {jobs} in the queue or running on {old.place}.",
            why="With --fresh, no record of them would be left.",
            hint="\n".join(["cancel them one by one, or name another folder with --output:", *stops]),
        )
