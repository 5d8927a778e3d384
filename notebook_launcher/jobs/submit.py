"""Submits a session's job reliably: whatever happens meanwhile, either there is no job, or its id is known."""

from __future__ import annotations

import contextlib
import queue
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConnectionLost,
    ConstraintRefused,
    GresRefused,
    HostCommandFailed,
    Interrupted,
    LauncherError,
    LicenceRefused,
    LoginShellSilent,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SubmitRefused,
    SubmitUncertain,
    WalltimeRefused,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.core.local_state import record_submitted
from notebook_launcher.core.package_data import CHECKSUMS, JOB_FILES, digest_in
from notebook_launcher.core.request import GPU_FLAGS, Request
from notebook_launcher.core.text import joined
from notebook_launcher.diagnosis.request_check import EXPLAINED, SchedulerReport, reword_refusal
from notebook_launcher.hosts.file_writing import make_mark
from notebook_launcher.jobs.cancel import launcher_command
from notebook_launcher.jobs.evidence import read_refusal_report
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.courses import flags_of
from notebook_launcher.profiles.store import flag_tables, profile_layers, user_profiles
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, discard_session, read_job

SCRIPTS_NEEDED = (75, "\njob scripts needed\n")  # exit code and words of submit.sh: nothing was submitted
EXPLANATION_TIMEOUT = 15.0  # seconds to read why a request was refused


def queue_job(context: Context, session: Session, files: Mapping[str, bytes] | None = None) -> JobRef:
    """Submit the job, unless the user has already cancelled.

    ``files``: the session directory's files, which the same command writes first; ``None``: they are there already. An
    interrupt meanwhile shows a note, and is handled later, when the job exists and can be cancelled. Raises
    ``SubmitRefused``, ``SubmitUncertain``, ``Interrupted`` or ``HungUp``, and what ``write_files`` raises.
    """
    _refuse_if_interrupted(context)
    job = _submit(context, session, files)
    record_submitted(session.id, shlex.join(context.target.arguments_anywhere()))
    return job


def _submit(context: Context, session: Session, files: Mapping[str, bytes] | None) -> JobRef:
    submit_command = context.scheduler.submit(Request(session.record.flags), session.submission)
    command = ["bash", f"{session.directory}/submit.sh", session.directory, *submit_command]
    mark = make_mark()
    try:
        answer = _write_and_submit(context, session, files, command, mark) if files else _run_submit(context, command)
    except LoginShellSilent as error:
        return _find_queued_job(context, session, error)
    except (ConnectionLost, HostCommandFailed) as error:
        if isinstance(error, HostCommandFailed) and not error.may_have_run:
            raise
        patience = context.timing.submitted_appears_within
        return _find_queued_job(context, session, error, patience=patience, writes=bool(files))
    if files:
        answer = context.host.after_files(session.directory, answer, mark)
    return _read_submit(context, session, answer)


def _refuse_if_interrupted(context: Context) -> None:
    """Raise ``HungUp`` if the terminal was closed, ``Interrupted`` if another interrupt has arrived."""
    inbox = context.interrupts.inbox
    arrived = []
    while not inbox.empty():
        arrived.append(inbox.get_nowait())
    if any(isinstance(item, Interrupt) and item.kind == "leave" for item in arrived):
        raise HungUp
    if arrived:
        raise Interrupted("Interrupted.", why="No job was started.")


def _write_and_submit(
    context: Context, session: Session, files: Mapping[str, bytes], command: list[str], mark: str
) -> CommandResult:
    """Write the session's files and submit the job, with one command; return its result, for ``Host.after_files``.

    Most of what has to be sent are the job scripts. If an earlier session has left the same ones there, they are sent
    only if ``submit.sh`` reports that it needs them.
    """
    if digest_in(files[CHECKSUMS]) in context.shared_scripts:
        few = {name: content for name, content in files.items() if name not in JOB_FILES or name == "submit.sh"}
        answer = _run_submit(context, *context.host.files_then(session.directory, few, command, mark))
        code, words = SCRIPTS_NEEDED
        if answer.exit_code != code or not answer.stdout.endswith(words):
            return answer
        _refuse_if_interrupted(context)
    return _run_submit(context, *context.host.files_then(session.directory, files, command, mark))


def _read_submit(context: Context, session: Session, answer: CommandResult) -> JobRef:
    """Return the job from the submit command's output, or look for it if the output is unclear."""
    try:
        return context.scheduler.read_submit(answer)
    except SubmitUncertain as error:
        return _find_queued_job(context, session, error)
    except SchedulerAway as error:
        if not error.may_have_heard:
            raise
        return _find_queued_job(context, session, error, patience=context.timing.submitted_appears_within)
    except SubmitRefused as error:
        _explain(error, context, Request(session.record.flags))
        raise


def _explain(error: SubmitRefused, context: Context, request: Request) -> None:
    """Replace a refusal's general explanation by the cause that this cluster's data show, if any, as in ``doctor``."""
    cluster_info = context.scheduler.cluster_info
    if cluster_info is None or not isinstance(error, EXPLAINED):
        return
    report, site = SchedulerReport(), context.site
    with contextlib.suppress(LauncherError):  # the refusal itself is what matters to the user
        read_refusal_report(error, context.host, cluster_info, request, site.user, report, timeout=EXPLANATION_TIMEOUT)
        reword_refusal(error, request, report, site.clock())


#: the flags that each refusal is about
_ABOUT: dict[type[SubmitRefused], frozenset[str]] = {
    AccountRefused: frozenset({"account"}),
    PartitionRefused: frozenset({"partition"}),
    QosRefused: frozenset({"qos"}),
    ReservationRefused: frozenset({"reservation"}),
    WalltimeRefused: frozenset({"time"}),
    GresRefused: GPU_FLAGS,
    ConstraintRefused: frozenset({"constraint"}),
    LicenceRefused: frozenset({"licenses"}),
    ClusterRefused: frozenset({"clusters"}),
}


@contextlib.contextmanager
def discarded_if_not_queued(context: Context, session: Session) -> Iterator[None]:
    """Remove the session's directory if the block fails and certainly no job was submitted."""
    try:
        yield
    except (ConnectionLost, SubmitUncertain):
        raise
    except (Exception, HungUp) as error:
        if isinstance(error, HostCommandFailed) and error.may_go_on:
            raise
        with contextlib.suppress(LauncherError):
            discard_session(context.host, session)
        raise


@contextlib.contextmanager
def name_profile_in_refusal(plan: Plan) -> Iterator[None]:
    """Add to a refusal, if the refused flag comes from the profile or course, that it does."""
    try:
        yield
    except SubmitRefused as error:
        flags = plan.request.flags
        # not the launcher's own default walltime; any GPU flag of the user counts for all of them
        tables = (table for place, table in flag_tables(plan.target.profile) if "when" not in place)
        profile_flags = {name.replace("_", "-") for table in tables for name in table} & flags.keys()
        typed_flags = plan.user_flags | (GPU_FLAGS if plan.user_flags & GPU_FLAGS else frozenset())
        theirs = sorted((_ABOUT.get(type(error), frozenset()) & profile_flags) - typed_flags)
        if theirs and plan.target.cluster:
            named = ", ".join(f"--{name}={flags[name]}" for name in theirs)
            course = plan.target.course
            by_course = course is not None and flags_of(course) >= set(theirs)
            whose = f"course “{course.name}”" if course and by_course else f"profile “{plan.target.cluster}”"
            error.why = joined(error.why, f"The {whose} asks for it: {named}.")
            kept = "" if by_course else _edit_hint(plan.target.cluster, theirs)
            error.hint = (
                f"keep another: {kept}   or for this launch alone: {error.hint}"
                if kept
                else f"a flag of yours replaces the {whose.partition(' ')[0]}'s; {error.hint}"
            )
        if plan.target.course:  # it is the default from now on, even if no launch with it has worked yet
            error.hint += f"   or without the course: launch-notebook course forget {plan.target.course.name}"
        raise


def _edit_hint(cluster: str, flags: Sequence[str]) -> str:
    """Return the command that changes flags of the user's own profile file; "" if they are not in it."""
    top = profile_layers(cluster)[-1].data.get("defaults", {}) if cluster in user_profiles() else {}
    if not {name.replace("_", "-") for name in top}.issuperset(flags):
        return ""
    options = (f"--{name} …" if name in ("account", "partition") else f"--set defaults.{name}=…" for name in flags)
    return f"launch-notebook clusters edit {cluster} {' '.join(options)}"


class _SubmitDone(Frozen):
    answer: CommandResult | Exception


def _run_submit(context: Context, command: list[str], stdin: bytes = b"") -> CommandResult:
    """Run the submit command on a thread, and show a note if it is slow or the user presses Ctrl-C."""

    def run() -> None:
        try:
            inbox.put(_SubmitDone(context.host.run_prepared(command, stdin=stdin)))
        except Exception as error:
            inbox.put(_SubmitDone(error))

    inbox = context.interrupts.inbox
    threading.Thread(target=run, name="submit", daemon=True).start()
    with _preserved_inbox(inbox) as later:
        slow_at = time.monotonic() + context.timing.submit_slow_after
        while True:
            try:
                item = inbox.get(timeout=max(0.0, slow_at - time.monotonic()) if slow_at else None)
            except queue.Empty:
                slow_at = 0.0
                context.view.show(events.Note("The scheduler is slow to accept the job."))
                continue
            if isinstance(item, _SubmitDone):
                break
            if item in later:
                continue  # otherwise an impatient second Ctrl-C would later stop the wait for the job's end
            if isinstance(item, Interrupt) and item.kind == "end":
                context.view.show(
                    events.Note("The job is being submitted; it will be cancelled as soon as that is done.")
                )
            later.append(item)
    if isinstance(item.answer, Exception):
        raise item.answer
    return item.answer


@contextlib.contextmanager
def _preserved_inbox(inbox: queue.SimpleQueue[object]) -> Iterator[list[object]]:
    """Put the items that the block adds to the yielded list back into the inbox at its end, in order."""
    later: list[object] = []
    try:
        yield later
    finally:
        for item in later:
            inbox.put(item)


def _find_queued_job(
    context: Context, session: Session, error: LauncherError, *, patience: float = 0.0, writes: bool = False
) -> JobRef:
    """Look for a job that may have been queued although its id was not received.

    ``patience``: seconds for it to appear. ``writes``: the same command was to write the session's files first. Raises
    ``error`` itself if there is certainly no job, ``SubmitUncertain`` if the scheduler does not answer.
    """
    find = context.scheduler.find(session.id, Request(session.record.flags))
    deadline, pause = time.monotonic() + patience, context.timing.lookup_pause
    if patience:
        context.view.show(events.Note("The reply to the submission was lost; checking whether the job was queued."))
    while True:
        sure = False
        with contextlib.suppress(LauncherError):
            if not context.host.alive:
                context.host.reconnect(timeout=5.0)
            noted = read_job(context.host, session.directory)
            if noted is not None:
                return noted
            sure = isinstance(error, LoginShellSilent)  # submit.sh would have recorded a job, wherever its output went
            answer = context.host.run(find, login_shell=True, timeout=context.host_timing.answer_within)
            found = context.scheduler.read_find(session.id, answer)
            if found:
                return found[0]
            sure = found is not None and isinstance(error, SchedulerAway | LoginShellSilent)
        if time.monotonic() + pause > deadline:
            break
        time.sleep(pause)
        pause = min(2 * pause, context.timing.longest_lookup_pause)
    if not sure and writes and _is_stopped(context, session):
        if isinstance(error, HostCommandFailed):
            error.may_go_on = True
        error.why = joined(error.why, "The session's files were not written, and no job was submitted.")
        sure = True
    if sure:
        raise error
    raise SubmitUncertain(
        f"The job of session {session.id} may have been queued.",
        why=f"{error.what} {error.why}".strip(),
        hint=f"end it, if it was, with: {launcher_command(context, session, 'stop')}   "
        f"or look on {context.host.label} with: {shlex.join(find)}",
    )


def _is_stopped(context: Context, session: Session) -> bool:
    """Keep a command that writes the session's files and then submits the job from submitting; return if it worked.

    This makes a folder in place of ``submit.sh``, which is possible only after the command has made the directory and
    before it has written that file. Then the command cannot write the file, fails, and submits nothing. If there is no
    directory, the command may still begin. The directory is kept: while it is being removed, the file could be written
    after all.
    """
    directory = session.directory
    with contextlib.suppress(LauncherError):
        if context.host.run(["mkdir", "--", f"{directory}/submit.sh"]).exit_code == 0:
            with contextlib.suppress(LauncherError):  # without its record, it is not listed as a session
                context.host.run(["rm", "-f", "--", f"{directory}/session.json", f"{directory}/token"])
            return True
    return False
