"""The story of ``bench``: the combinations of a matrix run as jobs, some at once, and one report of what they measured.

What is done is noted in the bench's folder (``ledger.py``) at each step. Whatever ends this program, the same command
goes on: it finds the jobs that it has queued, and queues only what is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import queue
import random
import shlex
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Protocol

from notebook_launcher.bench.charts import draw_all, why_no_plots
from notebook_launcher.bench.journal import FILE, RESULTS, RUNS, Bench, Ledger, check_same, hold, write_whole
from notebook_launcher.bench.matrix import Combination, Kind, Matrix, beside, check_size, find, parse, with_parameters
from notebook_launcher.bench.report import as_csv, as_html, as_markdown, make_report
from notebook_launcher.core.errors import (
    AccountRefused,
    BenchIncomplete,
    ClusterRefused,
    ConnectionLost,
    CopyFailed,
    HostCommandFailed,
    Interrupted,
    LauncherError,
    LicenceRefused,
    LimitRefused,
    NotebookInvalid,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SchedulerSilent,
    SubmitRefused,
    SubmitUncertain,
    UsageError,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import joined
from notebook_launcher.core.timestamps import moment
from notebook_launcher.diagnosis import explain
from notebook_launcher.hosts.base import LineStream, Prompts
from notebook_launcher.jobs.cancel import ANSWER_WITHIN
from notebook_launcher.jobs.cancel_many import end_jobs
from notebook_launcher.jobs.lookup import look, with_jobs
from notebook_launcher.jobs.outcome import exit_record, final_status, how_it_ended
from notebook_launcher.jobs.polling import QUESTION, Pace
from notebook_launcher.jobs.session_index import Catalogue
from notebook_launcher.jobs.session_index import Entry as Seen
from notebook_launcher.notebook.prepare import Prepared, prepare
from notebook_launcher.planning.first_run import Questions, settle
from notebook_launcher.planning.plan import Ask, Here, Place, Plan, make_plan, useless_flags_note
from notebook_launcher.run import fetch_results, queue_run
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.local import HONOURED
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Stage, View
from notebook_launcher.session.record import Session, discard_session, json_object, read_job
from notebook_launcher.transfer.paths import listed
from notebook_launcher.tunnel.reconnect import GivenUp, Mended, Mending
from notebook_launcher.usage.cost_estimate import price_of

NOTEBOOK = "beginner-tensorflow"
AT_ONCE, MOST_AT_ONCE = 4, 50
STREAMS = 6  # sessions that are followed by a stream of their own: sshd allows ten in one connection
LOOK_WITHIN = 60.0  # seconds for one look at the sessions
SEEN_WITHIN = 90.0  # seconds in which another login node shows a new directory: NFS remembers for 60 what was there
APPEARS_WITHIN = 20.0  # seconds in which a job shows whose launcher was killed while it was queued
MEND_WITHIN = 600.0  # seconds for which a lost connection is tried again
MOST_MENDS = 5  # of a connection that breaks again before anything came of it
AWAY_WITHIN = 300.0  # seconds for which a scheduler that takes no jobs is tried again
AGAIN_AFTER = 5.0  # seconds
PLOTS = "report-plots"
#: a refusal that the next combination would meet as well, unless the matrix varies what it is about
_OF_ALL = (AccountRefused, PartitionRefused, QosRefused, ReservationRefused, ClusterRefused, LicenceRefused)
_SHOWN_WHY = 10  # failed combinations in the last sentence
_NAMED = 6  # sessions in a command that is to be typed
_SAME = "the same command goes on from here: nothing is run twice"


@dataclass(frozen=True)
class BenchWish:
    """What is wanted of a bench. ``output``: its folder; ``None``: ``./bench-NAME``. ``command``: as it was typed.

    ``pairs``: parameters that are the same in all combinations. ``sure``: also for more combinations than are usual.
    """

    matrix: str
    notebook: str = NOTEBOOK
    pairs: tuple[tuple[str, str], ...] = ()
    companions: tuple[Path, ...] = ()
    at_once: int = AT_ONCE
    output: Path | None = None
    baseline: str = ""
    retry_failed: bool = False
    fresh: bool = False
    sure: bool = False
    command: str = ""


@dataclass(frozen=True)
class _Part:
    """One combination, ready to be queued."""

    combination: Combination
    plan: Plan
    prepared: Prepared


class Asks(Questions, Prompts, Protocol):
    """Asks lines, secrets, and yes or no."""


def bench(ask: Ask, here: Here, wish: BenchWish, view: View, prompts: Asks, interrupts: Interrupts) -> None:
    """Run what is missing of a matrix, and write the report of all that there is.

    Raises ``UsageError`` or ``NotebookInvalid`` for what cannot be run, ``BenchIncomplete`` where combinations failed
    (the report is written), ``Interrupted`` and ``HungUp``, which leave jobs to be found by the next call, and what
    ends the work for good; the same command goes on then.
    """
    matrix = with_parameters(parse(wish.matrix), wish.pairs)
    check_size(matrix, sure=wish.sure)
    _check(matrix, ask, wish)
    whole = _prepare(wish)
    others = {"module": ask.modules, "conda": ask.conda, "venv": ask.venv, "uv": ask.uv, "engine": ask.engine,
              "course": ask.course}  # fmt: skip
    asked = beside(ask.flags, others, ask.words)
    ask = settle(ask, here, view, prompts)
    parts = _parts(matrix, ask, here, wish, whole)
    baseline = find([part.combination for part in parts.values()], wish.baseline).name if wish.baseline else ""
    place = next(iter(parts.values())).plan.place
    if place.scheduler == "local":
        _refuse_without_scheduler(matrix)
    about = {"notebook": whole.name, "digest": digest_of(whole), "place": place.name, "asked": asked}
    folder = wish.output or Path(f"bench-{Path(whole.name).stem}")

    def fresh(old: Ledger) -> None:
        _refuse_with_jobs(old, folder, place, lambda: open_stage(place, view, prompts, interrupts))

    now = datetime.now().astimezone()
    with hold(folder, **about, now=now, fresh=fresh if wish.fresh else None) as there:
        check_same(there.ledger, **about, folder=folder)
        if there.renew(**about):
            view.show(events.Noted("It was changed since, and there are no results yet: what failed is run again."))
        there.take([part.combination for part in parts.values()], matrix=wish.matrix, command=wish.command)
        for name in there.names("failed") if wish.retry_failed else ():
            if name in parts:
                there.put_back(name)
        notes = (note for part in parts.values() for note in (*part.plan.notes, *part.prepared.notes))
        for note in dict.fromkeys((*whole.notes, *notes)):
            view.show(events.Noted(note))
        try:
            if any(name in parts for name in there.names("planned")) or there.names("queued"):
                with _telling_of_earlier(there, place), open_stage(place, view, prompts, interrupts) as stage:
                    if stage.scheduler.same_machine:
                        _refuse_without_scheduler(matrix)
                    _Running(stage, there, parts, wish).run()
            else:
                view.show(_step(there, "Every combination was run already; nothing is queued."))
        except (Exception, HungUp):
            with contextlib.suppress(Exception):  # what ended the work matters more
                if there.names("done"):
                    write_report(there, baseline, view, quietly=True)
            raise
        write_report(there, baseline, view)
        _raise_for_failed(there, parts)


def _refuse_without_scheduler(matrix: Matrix) -> None:
    """Raises ``UsageError`` for axes without effect where no scheduler gives a job its share of the machine."""
    idle = [axis.name for axis in matrix.axes
            if axis.kind in ("cores", "gpus") or (axis.kind == "flag" and axis.name not in HONOURED)]  # fmt: skip
    if idle:
        has = "has" if len(idle) == 1 else "have"
        raise UsageError(f"{listed(idle)} {has} no effect on this machine, and cannot be an axis here.",
                         why="No scheduler allots them: each job has the whole machine, and all measure the same.",
                         mend="vary env or the notebook's parameters, or name a cluster with --cluster or --host"
                         )  # fmt: skip


@contextlib.contextmanager
def _telling_of_earlier(there: Bench, place: Place) -> Iterator[None]:
    """Tell of the jobs that an earlier call has queued where this one is interrupted before it has looked at them."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        sessions = [session for name in there.names("queued") if (session := there[name].session)]
        if not sessions or (isinstance(error, Interrupted) and error.mend.startswith(_SAME)):  # that tells more
            raise
        jobs = "One job was" if len(sessions) == 1 else f"{len(sessions)} jobs were"
        raise Interrupted("Interrupted.", why=f"{jobs} queued before, and may run.",
                          mend=f"{_SAME}; {_to_end(sessions, place)}") from None  # fmt: skip


def _to_end(sessions: Sequence[str], place: Place) -> str:
    """Return what ends the jobs of these sessions."""
    few = len(sessions) <= _NAMED
    words = ["launch-notebook", "stop", *place.arguments(), *(sessions if few else ["--all"])]
    of_all = "" if few else " (that ends all of your sessions there)"
    return f"to end the jobs: {shlex.join(words)}{of_all}"


def _prepare(wish: BenchWish) -> Prepared:
    """Return the notebook with what goes with it, but without what earlier runs have made: results, and benches.

    A run would take such results for its own, and what a bench writes would make the notebook another one each time.
    """
    whole = prepare(wish.notebook, (), wish.companions)
    if not wish.companions:
        return whole
    imported = prepare(wish.notebook, ()).companions
    left = [name for name in whole.companions if name not in imported and _is_made_by_us(name, whole.companions)]
    if not left:
        return whole
    note = f"Not sent with the notebook, as earlier runs have made it: {listed(left)}. Under another name it is sent."
    kept = {name: content for name, content in whole.companions.items() if name not in left}
    return dataclasses.replace(whole, companions=kept, notes=(*whole.notes, note))


def _is_made_by_us(name: str, all_names: Container[str]) -> bool:
    path = PurePosixPath(name)
    above = [part.as_posix() for part in path.parents][:-1]  # the last one is the notebook's own folder
    in_ours = bool(above) and (above[-1] == RUNS or above[-1].startswith("bench-"))
    return path.name == RESULTS or in_ours or any(f"{folder}/{FILE}" in all_names for folder in above)


def _refuse_with_jobs(
    old: Ledger, folder: Path, place: Place, opened: Callable[[], contextlib.AbstractContextManager[Stage]]
) -> None:
    """See that no job of a bench is forgotten with its ledger. Raises ``UsageError``, which names the sessions."""
    queued = [entry.session for entry in old.entries if entry.state == "queued" and entry.session]
    if queued and old.place == place.name:
        with opened() as stage:
            live = {entry.session.id for entry in with_jobs(stage, look(stage, timeout=LOOK_WITHIN).entries)
                    if entry.session.id in queued and entry.live}  # fmt: skip
        queued = [session for session in queued if session in live]
    if queued:
        jobs = "a job" if len(queued) == 1 else f"{len(queued)} jobs"
        raise UsageError(f"The bench in {folder} has {jobs} in the queue or running on {old.place}.",
                         why="With --fresh nothing would tell of them any more.",
                         mend="\n".join(["end them, one by one, or name another folder with --output:",
                                         *(f"  launch-notebook stop {session}" for session in queued)]))  # fmt: skip


def _check(matrix: Matrix, ask: Ask, wish: BenchWish) -> None:
    if not 1 <= wish.at_once <= MOST_AT_ONCE:
        raise UsageError(f"--at-once is 1 to {MOST_AT_ONCE}.", why="A queue is for others, too.")
    if flag := matrix.said_twice(list(ask.flags)):
        raise UsageError(f"--{flag} is said beside the matrix, which says it for each combination.",
                         mend=f"leave out --{flag}, or take it out of the matrix")  # fmt: skip
    if ask.words and "env" in matrix.kinds():
        raise UsageError("The environment stands in the matrix (env=…) and after -- as well.",
                         mend="leave out one of the two")  # fmt: skip


def _parts(matrix: Matrix, ask: Ask, here: Here, wish: BenchWish, whole: Prepared) -> dict[str, _Part]:
    """Return all combinations, ready to be queued, by name. What is wrong with any of them is raised here."""
    parts = {}
    for one in matrix.combinations():
        environment = one.value("env")
        words = ((environment,) if environment else ()) if environment is not None else ask.words
        flags = {**ask.flags, **one.flags()}
        plan = make_plan(dataclasses.replace(ask, flags=flags, words=words), here)
        try:
            prepared = prepare(wish.notebook, one.pairs())
        except NotebookInvalid as error:
            raise _with_axes(error, one) from None
        # each in a folder of its own, also where the notebook's is seen there: several run at once
        prepared = dataclasses.replace(prepared, folder=None, companions=whole.companions)
        parts[one.name] = _Part(one, dataclasses.replace(plan, command=f"bench {wish.command}".strip()), prepared)
    return parts


def _with_axes(error: NotebookInvalid, combination: Combination) -> NotebookInvalid:
    """Say what else could have been meant by the name of an axis."""
    if combination.pairs():
        error.why = joined(error.why, "The other axes of a matrix are env, cores, gpus and long flags of sbatch.")
    return error


def digest_of(prepared: Prepared) -> str:
    """Return the SHA-256 of what a notebook does: its cells' sources, and the files that go with it; no outputs."""
    cells = json_object(prepared.content).get("cells")
    told = [
        [cell.get("cell_type"), cell.get("source")]
        for cell in (cells if isinstance(cells, list) else [])
        if isinstance(cell, dict)
    ]
    hashed = hashlib.sha256(json.dumps(told).encode())
    for name, content in sorted(prepared.companions.items()):
        hashed.update(f"\0{name}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.hexdigest()


# --- the report ---------------------------------------------------------------------------------------------------


def write_report(there: Bench, baseline: str, view: View, *, quietly: bool = False) -> None:
    """Write the report into the bench's folder, in three forms, and say so unless ``quietly``."""
    ledger, folder = there.ledger, there.folder
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    report = make_report(ledger.notebook, ledger.matrix, f"launch-notebook bench {ledger.command}".strip(), made,
                         there.ran(), baseline)  # fmt: skip
    missing = why_no_plots() if report.rows else ""
    report = dataclasses.replace(report, plots=() if missing else tuple(draw_all(report)), missing=missing)
    paths = [folder / f"report.{ending}" for ending in ("html", "md", "csv")]
    try:
        for plot in report.plots:
            write_whole(folder / PLOTS / f"{plot.name}.png", plot.png)
        for path, text in zip(paths, (as_html(report), as_markdown(report, PLOTS), as_csv(report)), strict=True):
            write_whole(path, text.encode())
    except OSError as error:
        raise CopyFailed(f"The report could not be written into {folder}.", why=error.strerror or str(error),
                         mend="make room, and give the same command again: nothing is run twice") from None  # fmt: skip
    if missing and not quietly:
        view.show(events.Noted(missing))
    if not quietly:
        failed = tuple((ran.name, ran.why) for ran in report.runs if ran.state == "failed")
        html, markdown, table = map(str, paths)
        view.show(events.BenchReported(str(folder), html, markdown, table, len(report.rows), failed))


def _raise_for_failed(there: Bench, names: Collection[str]) -> None:
    """Raise ``BenchIncomplete`` where of these combinations some failed, or their results are not here."""
    failed = [there[name] for name in there.names("failed") if name in names]
    left = [there[name] for name in there.names("queued") if there[name].why]
    if not failed and not left:
        return
    lacking = [*failed, *left]
    reasons = {entry.why.removeprefix(f"Job {entry.job}: ") for entry in lacking}
    if len(lacking) > 1 and len(reasons) == 1:
        told = [f"all {len(lacking)}: {reasons.pop()}"]
    else:
        told = [f"{entry.name}: {entry.why}" for entry in lacking[:_SHOWN_WHY]]
        told += [f"and {len(lacking) - _SHOWN_WHY} more"] if len(lacking) > _SHOWN_WHY else []
    what = [f"{len(failed)} of {len(names)} combinations failed."] if failed else []
    what += [f"The results of {len(left)} could not be fetched."] if left else []
    ways = ["to run what failed once more: the same command with --retry-failed"] if failed else []
    ways += ["to fetch what is missing: the same command; nothing is run twice"] if left else []
    others = ["the report has the others"] if there.names("done") else []
    raise BenchIncomplete(" ".join(what), why="\n".join(told), mend="; ".join([*others, *ways]))


def _step(there: Bench, what: str) -> events.BenchStep:
    queued = [there[name] for name in there.names("queued")]
    running = tuple(entry.name for entry in queued if entry.started)
    waiting = tuple(name for name in there.names("planned", "queued") if name not in running)
    done, failed = tuple(there.names("done")), tuple(there.names("failed"))
    return events.BenchStep(str(there.folder), what, waiting, running, done, failed)


# --- the jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    """What a session's own files told, over its stream: ``started`` or ``exit``."""

    session: str
    name: str
    data: Mapping[str, object]


@dataclass
class _Active:
    """A combination whose job is in the queue or runs, as far as is known. ``doubts``: looks that did not find it.

    ``waits``: why it waits, as was said last.
    """

    name: str
    session: Session
    stream: LineStream | None = None
    doubts: int = 0
    waits: str = ""


@dataclass
class _Running:
    """Queues what is missing, some at once, and follows it to its end."""

    stage: Stage
    there: Bench
    parts: Mapping[str, _Part]
    wish: BenchWish
    active: dict[str, _Active] = field(default_factory=dict)  # by session
    _pace: Pace = field(default_factory=lambda: Pace(time.monotonic, random.SystemRandom()))
    _look_at: float = 0.0
    _queue_at: float = 0.0
    _room: int = MOST_AT_ONCE  # jobs that the scheduler lets us have in the queue
    _away_since: float | None = None
    _accepted: bool = False
    _silence_told: bool = False
    _mends: int = 0  # since the last look
    _unfetched: set[str] = field(default_factory=set)  # names of those whose results do not come today
    _too_much: dict[str, LauncherError] = field(default_factory=dict)  # refused by a limit with nothing of ours there

    def run(self) -> None:
        """Do all that there is to do. Raises ``Interrupted``, ``HungUp``, and what ends the work for good."""
        self.stage.interrupts.defer()
        if getattr(self.stage.prompts, "asks", False):
            self.stage.view.listen(self.stage.interrupts.inbox)  # so that Ctrl-C can take back a question
        try:
            self._unless_lost(self._find_again)
            self._tell_price()
            while self._gaps() or self.active or self._judge_limits():
                if self._may_queue():
                    self._unless_lost(self._queue_next)
                else:
                    self._wait()
                self._take_interrupts()
                if self.active and time.monotonic() >= self._look_at:
                    self._unless_lost(self._look)
        finally:
            for one in self.active.values():
                self._close(one)

    def _gaps(self) -> list[str]:
        return [name for name in self.there.names("planned") if name in self.parts and name not in self._too_much]

    def _may_queue(self) -> bool:
        # jobs that share a machine without a scheduler would slow each other down
        most = 1 if self.stage.scheduler.same_machine else min(self.wish.at_once, self._room)
        return bool(self._gaps()) and len(self.active) < most and time.monotonic() >= self._queue_at

    def _say(self, what: str) -> None:
        self.stage.view.show(_step(self.there, what))

    def _note(self, text: str) -> None:
        self.stage.view.show(events.Noted(text))

    def _tell_price(self) -> None:
        gaps = self._gaps()
        if self.stage.scheduler.same_machine and gaps:
            asked = {flag for name in gaps for flag in self.parts[name].plan.asked}
            if note := useless_flags_note(asked):
                self._note(note)
            if len(gaps) > 1 and self.wish.at_once > 1:
                self._note("On this machine one job runs at a time, whatever --at-once says: several would slow each "
                           "other down.")  # fmt: skip
        priced = [price_of(self.parts[name].plan, self.stage.scheduler) for name in gaps]
        known = [one for one in priced if one is not None]
        if known:
            count = "one job" if len(known) == 1 else f"{len(known)} jobs"
            cost = sum(one.cost for one in known)
            reckoning = f"{count}, each until its walltime is over"
            self.stage.view.show(dataclasses.replace(known[0], cost=cost, reckoning=reckoning))

    # --- what an earlier launcher has queued

    def _find_again(self) -> None:
        """Find the sessions that are noted as queued; what never got a job is a gap again."""
        names = [name for name in self.there.names("queued")
                 if self.there[name].session not in self.active and name not in self._unfetched]  # fmt: skip
        if not names:
            return
        catalogue = self._look_for(names)
        seen = {entry.session.id: entry for entry in catalogue.entries}
        for name in names:
            entry = self.there[name]
            found = seen.get(entry.session or "")
            session = self._with_job(found.session) if found else None
            if found is None:
                self._see_that_no_job_is_there(entry.session or "")
            if session is None:
                self.there.put_back(name)
                self._say(f"{name} was not queued; it is queued again.")
            else:
                self.there.change(name, job=str(session.job))
                self._follow(name, session)
        if self.active:
            jobs = "One job that was" if len(self.active) == 1 else f"{len(self.active)} jobs that were"
            self._say(f"{jobs} queued before {'is' if len(self.active) == 1 else 'are'} found.")
        self._take_looks(catalogue)

    def _look_for(self, names: Collection[str]) -> Catalogue:
        """Look at the sessions, and once more for a while where those of some of these combinations are not listed."""
        sessions = {self.there[name].session for name in names}
        deadline, pause, is_told = time.monotonic() + self._longest_unseen(names), 0.1, False
        while True:
            catalogue = look(self.stage, sure=False, timeout=LOOK_WITHIN)
            listed_now = {entry.session.id for entry in catalogue.entries}
            left = deadline - time.monotonic()
            if listed_now.issuperset(sessions) or (is_told and left <= 0):
                return catalogue
            if not is_told:
                self._note("Not all sessions of this bench are seen; they are looked for once more.")
            is_told = True
            self._take_interrupts()
            time.sleep(max(0.1, min(pause, left)))
            pause = min(3 * pause, 5.0)

    def _longest_unseen(self, names: Collection[str]) -> float:
        """Return for how many seconds more a session of these may be there and not be seen."""
        times = [moment(self.there[name].queued, self.stage.clock()) for name in names]
        ages = [(self.stage.clock() - at).total_seconds() if at else 0.0 for at in times]
        return min(SEEN_WITHIN, max(SEEN_WITHIN - age for age in ages))

    def _see_that_no_job_is_there(self, session: str) -> None:
        """Ask for the job of a session whose directory is not seen. Raises ``SchedulerSilent`` unless there is none."""
        jobs = self._in_queue(session, next(iter(self.parts.values())).plan.request)
        if jobs != []:
            why = f"Its directory is not seen, but its job is: {jobs[0]}." if jobs else "The scheduler does not say."
            raise SchedulerSilent(f"Whether session {session} was queued is not known.", why=why, mend=self._go_on())

    def _with_job(self, session: Session) -> Session | None:
        """Return a session with its job, ``None`` where there is none for certain; then its directory is gone, too.

        Whoever queued it may have been killed while ``sbatch`` was at it, which goes on without us: it gets its time.
        Raises ``SchedulerSilent`` where nobody says.
        """
        deadline, pause = time.monotonic() + APPEARS_WITHIN, 0.5
        while True:
            if session.job or (job := read_job(self.stage.host, session.directory)):
                return session if session.job else dataclasses.replace(session, job=job)
            queued = self._in_queue(session.id, Request(session.record.flags))
            if queued:
                return dataclasses.replace(session, job=queued[0])
            if time.monotonic() + pause > deadline or (queued == [] and self._is_settled(session)):
                break
            self._take_interrupts()
            time.sleep(pause)
            pause = min(2 * pause, 3.0)
        if queued is None:
            raise SchedulerSilent(f"Whether session {session.id} was queued is not known: the scheduler does not say.",
                                  mend=self._go_on())  # fmt: skip
        discard_session(self.stage.host, session)  # without it submit.sh cannot queue anything any more
        return None

    def _in_queue(self, session: str, request: Request) -> list[JobRef] | None:
        """Return a session's jobs that the scheduler's queue has, ``None`` where it does not answer."""
        scheduler = self.stage.scheduler
        with contextlib.suppress(HostCommandFailed):
            command = scheduler.find(session, request)
            return scheduler.read_find(session, self.stage.host.run(command, login_shell=True, timeout=ANSWER_WITHIN))
        return None

    def _is_settled(self, session: Session) -> bool:
        """Whether nobody can be queueing a session any more: it is some time ago, and ``sbatch`` is not at it."""
        at = moment(self.there[self._name_of(session)].queued)
        if at is None or (self.stage.clock() - at).total_seconds() < APPEARS_WITHIN:
            return False
        return self.stage.host.run(["test", "-e", f"{session.directory}/submit.out"]).exit_code != 0

    def _name_of(self, session: Session) -> str:
        return next(entry.name for entry in self.there.ledger.entries if entry.session == session.id)

    # --- queueing

    def _queue_next(self) -> None:
        name = self._gaps()[0]
        part = self.parts[name]
        # interrupts stay in our own inbox: none may keep a job from being noted
        stage = self._apart()
        try:
            session, _ = queue_run(part.plan, stage, part.prepared, written=lambda made: self._noted(name, made))
        except LauncherError as error:
            self._not_queued(name, error)
            return
        self._accepted, self._away_since = True, None
        self.there.change(name, job=str(session.job))
        self._follow(name, session)
        self._say(f"{name} is queued: job {session.job}.")

    def _noted(self, name: str, session: Session) -> None:
        now = self.stage.clock().isoformat(timespec="seconds")
        self.there.change(name, state="queued", session=session.id, queued=now)

    def _not_queued(self, name: str, error: LauncherError) -> None:
        """Decide what comes of a combination that could not be queued. Raises what ends the work."""
        if isinstance(error, ConnectionLost | SubmitUncertain):
            if isinstance(error, SubmitUncertain) and self.stage.host.alive:
                self._find_again()  # by now it is known, or it is certain that there is none
                return
            raise ConnectionLost(error.what, why=error.why)
        if self.there[name].state == "queued":
            self.there.put_back(name)
        if isinstance(error, SchedulerAway):
            self._is_away(error)
        elif isinstance(error, LimitRefused) and self.active:
            self._room = len(self.active)
            self._note(f"No more than {self._room} jobs are taken at once: {error.what}")
        elif isinstance(error, LimitRefused) and self._varies("cores", "gpus", "flag"):
            self._too_much[name] = error  # it may be too large by itself: others tell
        elif isinstance(error, LimitRefused) and self._accepted:
            self._is_away(error)  # jobs of another command, that end some time
        elif isinstance(error, SubmitRefused) and not (self._is_for_all(error) and not self._accepted):
            self._fails(name, error)
        else:
            raise error

    def _is_for_all(self, error: SubmitRefused) -> bool:
        return isinstance(error, LimitRefused) or (isinstance(error, _OF_ALL) and not self._varies("flag"))

    def _varies(self, *kinds: Kind) -> bool:
        """Whether the matrix has an axis of these kinds with more than one value."""
        axes = next(iter(self.parts.values())).combination.axes
        return any(axis.kind in kinds and len(axis.values) > 1 for axis in axes)

    def _judge_limits(self) -> bool:
        """Decide on those that a limit refused, once all others are done; return whether any was left to decide on.

        Where others were taken it was their size. Raises the refusal where none was: it is of them all.
        """
        refused, self._too_much = self._too_much, {}
        for name, error in refused.items():
            if not self._accepted:
                error.mend = joined(error.mend, self._go_on())
                raise error
            self._fails(name, error)
        return bool(refused)

    def _fails(self, name: str, error: LauncherError) -> None:
        self.there.change(name, state="failed", why=joined(error.what, error.why), kind=error.kind)
        self._say(f"{name} failed: {error.what}")

    def _is_away(self, error: SchedulerAway | LimitRefused) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._note(f"{error.what} It is tried again.")
        if now - self._away_since > AWAY_WITHIN:
            error.mend = self._go_on()
            raise error
        self._queue_at = now + AGAIN_AFTER

    def _go_on(self) -> str:
        return _SAME

    # --- following

    def _follow(self, name: str, session: Session) -> None:
        self.active[session.id] = one = _Active(name, session)
        self._open_stream(one)
        self._pace.news()
        self._look_at = time.monotonic() + self._pace.after_answer()

    def _open_stream(self, one: _Active) -> None:
        """Follow a session's files where there is room for that; the looks at all of them tell the same, later."""
        if one.stream is not None or sum(other.stream is not None for other in self.active.values()) >= STREAMS:
            return
        words = ["bash", f"{one.session.directory}/watch.sh", one.session.directory]
        with contextlib.suppress(HostCommandFailed):
            one.stream = self.stage.host.stream(words, self._listener(one.session.id), lambda _why: None)

    def _listener(self, session: str) -> Callable[[str], None]:
        def heard(line: str) -> None:
            name, _, text = line.partition(" ")
            if name in ("started", "exit"):
                self.stage.interrupts.inbox.put(_Told(session, name, json_object(text)))

        return heard

    def _close(self, one: _Active) -> None:
        stream, one.stream = one.stream, None
        if stream is not None:
            with contextlib.suppress(LauncherError, OSError):
                stream.close()

    def _wait(self) -> None:
        """Wait until something happens, or the next look is due."""
        due = [self._look_at] if self.active else []
        due += [self._queue_at] if self._gaps() and self._queue_at > time.monotonic() else []
        pause = min(due, default=time.monotonic()) - time.monotonic()
        with contextlib.suppress(queue.Empty):
            self._act_on(self.stage.interrupts.inbox.get(timeout=max(0.0, min(pause, LOOK_WITHIN))))

    def _take_interrupts(self) -> None:
        """Act on all that has come meanwhile."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._act_on(self.stage.interrupts.inbox.get_nowait())

    def _act_on(self, item: object) -> None:
        if isinstance(item, Interrupt):
            if item.kind == "leave":
                raise HungUp
            self._interrupted()
        elif isinstance(item, _Told) and (one := self.active.get(item.session)):
            if item.name == "started":
                self._has_started(one, item.data)
            elif item.data:
                self._unless_lost(lambda: self._has_said_its_last_word(one, item.data))

    def _has_started(self, one: _Active, data: Mapping[str, object]) -> None:
        started = str(data.get("started") or "")
        at, now = moment(started), self.stage.clock()
        if at is None or self.there[one.name].started == started:
            return
        at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
        queued = moment(self.there[one.name].queued, now) or at
        waited = max(0.0, round((at - queued).total_seconds(), 1))
        self.there.change(one.name, started=started, in_queue=waited)
        self._pace.news()
        self._say(f"{one.name} runs on {data.get('node') or 'its node'}, after {waited:.0f} s in the queue.")

    def _look(self) -> None:
        """Look at all sessions with one command, and ask the scheduler once."""
        try:
            catalogue = look(self.stage, sure=False, timeout=LOOK_WITHIN)
        except HostCommandFailed as error:  # it took too long, mostly: a connection that is dead without a word
            if not self.stage.host.remote:
                error.mend = self._go_on()
                raise
            raise ConnectionLost(error.what, why=error.why) from None
        self._mends = 0
        self._take_looks(catalogue)

    def _take_looks(self, catalogue: Catalogue) -> None:
        seen = {entry.session.id: entry for entry in catalogue.entries}
        for one in list(self.active.values()):
            if one.session.id in self.active:
                self._seen(one, seen.get(one.session.id))
        self._tell_why_they_wait(seen)
        states = [seen[one].seen.state for one in self.active if one in seen]
        is_silent = bool(states) and all(state == "unknown" for state in states)
        if is_silent and not self._silence_told:
            self._note("The scheduler does not answer; it is asked again, and the jobs go on.")
        self._silence_told = is_silent
        if states and not is_silent:
            self._pace.spend(QUESTION)
        self._look_at = time.monotonic() + (self._pace.after_silence() if is_silent else self._pace.after_answer())
        for one in self.active.values():
            self._open_stream(one)

    def _tell_why_they_wait(self, seen: Mapping[str, Seen]) -> None:
        """Say why jobs wait, those of one reason together: once, and again when it is another one."""
        news: dict[str, list[str]] = {}
        for one in self.active.values():
            entry = seen.get(one.session.id)
            if entry is None or entry.seen.state != "waiting" or entry.reason in (None, "", "None"):
                continue
            told = explain.pending(entry.reason, job=str(entry.seen.job))
            if told.summary == one.waits:
                continue
            one.waits = told.summary
            if told.never or "is held" in told.summary:  # that does not pass by itself
                how = "can never start" if told.never else "does not start by itself"
                end = f"to end it: launch-notebook stop {one.session.id}"
                self._note(
                    f"{one.name} {how}: {told.summary}. What helps: {'; '.join(filter(None, (told.action, end)))}"
                )
            else:
                news.setdefault(told.summary, []).append(one.name)
        for summary, names in news.items():
            self._say(f"{listed(names)} {'waits' if len(names) == 1 else 'wait'}: {summary}.")

    def _seen(self, one: _Active, entry: Seen | None) -> None:
        if entry is None:
            one.doubts += 1
            if one.doubts > 1:  # a file server may be behind once
                self._over(one, "failed", "Its session directory is gone, and its results with it.", "JobLost")
            return
        if entry.record.started:
            self._has_started(one, entry.record.started)
        if entry.record.exited:
            self._has_said_its_last_word(one, entry.record.exited)
        elif not entry.live:
            one.doubts += 1
            if one.doubts > 1:  # its last word may be on its way
                self._has_ended(one, {})
        else:
            one.doubts = 0

    # --- the end of one

    def _has_said_its_last_word(self, one: _Active, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished":
            try:
                self._fetch(one)
            except CopyFailed as error:
                self._not_fetched(one, error)
            else:
                self._over(one, "done")
        else:
            self._has_ended(one, record)

    def _has_ended(self, one: _Active, record: Mapping[str, object]) -> None:
        """Find out how a job ended that did not end well; it may be back in the queue as well."""
        record = record or exit_record(self.stage, one.session)
        try:  # where the job says itself what failed, the scheduler knows no better
            settled = record.get("cause") not in (None, "stopped")
            status = None if settled else final_status(self._apart(), one.session, record)
        except SchedulerSilent:
            return  # it is looked at again
        if status is not None and (status.state.waits or not status.state.ended):
            self.there.change(one.name, started=None, in_queue=None)
            one.doubts = 0
            return
        error = how_it_ended(self._apart(), one.session, record, status, None)
        with contextlib.suppress(CopyFailed):
            self._fetch(one)
        self._over(one, "failed", error.what, error.kind)

    def _apart(self) -> Stage:
        """Return the stage as of now, with an inbox of its own, for what must not take from ours."""
        apart = Interrupts()
        apart.defer()
        site = dataclasses.replace(self.stage.site, now=self.stage.clock())
        return dataclasses.replace(self.stage, interrupts=apart, site=site, opened_at=time.time())

    def _fetch(self, one: _Active) -> None:
        """Fetch what a run has made, and note its image. Raises ``ConnectionLost`` or ``CopyFailed``."""
        fetch_results(self._apart(), one.session, self.there.runs_folder(one.name))
        note = json_object(self.stage.host.read_file(f"{one.session.directory}/image.json") or b"")
        self.there.change(one.name, image=str(note.get("digest") or ""))

    def _not_fetched(self, one: _Active, error: CopyFailed) -> None:
        """Leave the results of one there, for the next time. Raises the error where the next would not come either."""
        said = error.__context__
        if isinstance(said, OSError) and said.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            error.mend = joined(error.mend, self._go_on())
            raise error
        self._unfetched.add(one.name)
        self._gone(one)
        self.there.change(one.name, why=joined("Its results could not be fetched.", error.what, error.why))
        self._note(f"The results of {one.name} could not be fetched: {error.what} The same command tries it again.")

    def _gone(self, one: _Active) -> None:
        self.active.pop(one.session.id, None)
        self._close(one)
        self._room = max(self._room, len(self.active) + 1)

    def _over(self, one: _Active, state: str, why: str = "", kind: str = "") -> None:
        self._gone(one)
        self.there.change(one.name, state=state, why=why, kind=kind)
        self._pace.news()
        self._say(f"{one.name} is done." if state == "done" else f"{one.name} failed: {why}")

    # --- what goes wrong

    def _unless_lost(self, act: Callable[[], None]) -> None:
        """Act; a connection that breaks meanwhile is mended, and what was to be done comes up again."""
        try:
            act()
        except ConnectionLost as error:
            self._mends += 1
            if not self.stage.host.remote or self._mends > MOST_MENDS:
                error.mend = self._go_on()
                raise
            self._mend(error)

    def _mend(self, error: LauncherError) -> None:
        """Make the connection anew. Raises ``ConnectionLost`` where that fails for good."""
        for one in self.active.values():
            self._close(one)
        self._note(f"{error.what} It is made anew; the jobs go on.")
        inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        began = time.monotonic()
        mending = Mending(self.stage.host, self.stage.prompts, inbox, deadline=began + MEND_WITHIN, pause=0.0,
                          is_lost=lambda: True)  # fmt: skip
        try:
            item = self._mended(inbox, began + MEND_WITHIN + LOOK_WITHIN)
        finally:
            mending.stop()
        if not isinstance(item, Mended):
            why = joined(error.what, item.error.what) if isinstance(item, GivenUp) else error.what
            jobs = f"{len(self.active)} jobs go on." if self.active else ""
            raise ConnectionLost("The connection could not be made anew.", why=joined(why, jobs), mend=self._go_on())
        self._note(f"Connected again, after {time.monotonic() - began:.0f} s.")
        self._look_at = time.monotonic()
        self._unless_lost(self._find_again)

    def _mended(self, inbox: queue.SimpleQueue[object], deadline: float) -> object:
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return inbox.get(timeout=0.2)
            with contextlib.suppress(queue.Empty):
                item = self.stage.interrupts.inbox.get_nowait()
                if isinstance(item, Interrupt):
                    if item.kind == "leave":
                        raise HungUp
                    raise self._left("The connection is lost, so nothing could be ended.")
        return None

    def _interrupted(self) -> None:
        """Leave the jobs, or end them where the user says so. Raises ``Interrupted``."""
        sessions = [one.session for one in self.active.values()]
        if not sessions:
            raise Interrupted("Interrupted.", why="Nothing of it is in the queue.", mend=self._go_on())
        asks = getattr(self.stage.prompts, "asks", False)
        jobs = "One job of this bench is" if len(sessions) == 1 else f"{len(sessions)} jobs of this bench are"
        if asks and self.stage.prompts.confirm(f"{jobs} in the queue or running. Let them go on?") is False:
            self._end_all()
            raise Interrupted("Interrupted.", why="The jobs were ended; what was done is kept.", mend=self._go_on())
        raise self._left("")

    def _end_all(self) -> None:
        """End the jobs, but keep what has come to its end meanwhile: the answer may have taken its time."""
        with contextlib.suppress(LauncherError):
            self._look()
        running = list(self.active.values())
        if running:
            end_jobs(self.stage, [one.session for one in running])
        for one in running:
            record: Mapping[str, object] = {}
            with contextlib.suppress(LauncherError):
                record = exit_record(self.stage, one.session)
            if record.get("cause") == "finished":  # just before it would have been ended
                self._has_said_its_last_word(one, record)
            else:
                self._gone(one)
                self.there.put_back(one.name)

    def _left(self, why: str) -> Interrupted:
        count = len(self.active)
        jobs = "One job goes on." if count == 1 else f"{count} jobs go on."
        end = _to_end([one.session.id for one in self.active.values()], self.stage.place)
        return Interrupted("Interrupted.", why=joined(why, jobs), mend=f"{self._go_on()}; {end}" if count else
                           self._go_on())  # fmt: skip
