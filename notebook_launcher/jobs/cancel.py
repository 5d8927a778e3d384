"""Cancels a session's job reliably, and makes the commands with which the user comes back to a session."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import shlex
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    CancelFailed,
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LauncherError,
    LoginShellSilent,
)
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.hosts.base import RUN_TIMEOUT
from notebook_launcher.jobs.session_choice import short_name_among
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.schedulers.base import JobStatus, Scheduler, State
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session

_SLOW_FACTOR = 3  # times ``Timing.cancel_within`` if the cluster answers slowly; at most ``Timing.cancel_at_most``
# if the job ended much later than it was cancelled, it ended for another reason
BELIEVED_WITHIN = timedelta(minutes=10)
_QUICK = 5.0  # seconds to see whether a job had started: a slow file server must not delay the exit


def cancel_job(context: Context, session: Session, text: str = "") -> None:
    """Cancel a session's job, wait until the scheduler reports its end, and show that.

    A broken connection is re-established for this. Raises ``CancelFailed``, with the job and the command, if the job
    remains, its state cannot be queried, or the user does not want to wait (the second Ctrl-C; the first only shows a
    note).
    """
    job = job_of(session)
    context.view.show(events.Stopping(str(job)))
    if not text:
        record_cancel_request(context, [session])
    ending = JobCancellation(context, session)
    command = shlex.join(context.scheduler.cancel_typed(job))
    if not ending.wait_until_ended() and ending.problem is None:
        if ending.silence:
            raise CancelFailed(
                f"Job {job} may still be there.",
                why=f"The scheduler does not answer: {ending.silence}",
                hint=f"end it, once the scheduler answers again, with: {command}",
            )
        why = (
            f"It could not be cancelled: {ending.refusal}"
            if ending.refusal
            else "It was cancelled, and is not gone yet."
        )
        raise CancelFailed(f"Job {job} is still there.", why=why, hint=f"check whether it runs; end it with: {command}")
    if ending.problem is not None:
        why = f"{ending.problem.what} {ending.problem.why}".strip()
        raise CancelFailed(f"Job {job} may still be there.", why=why, hint=f"end it on the login node with: {command}")
    ended = text or f"Job {job} {ending.how_it_ended(session)}."
    context.view.show(events.Ended(session.id, job.id, ended, by_itself=bool(text)))


def record_cancel_request(context: Context, sessions: Sequence[Session]) -> None:
    """Record in the sessions' directories, for other attached launchers, from where and when they were cancelled.

    This runs on a thread, so that neither a slow file server nor a broken connection delays the exit.
    """

    def write() -> None:
        with contextlib.suppress(Exception):
            word = f"{socket.gethostname()}\n{context.clock().isoformat(timespec='seconds')}\n"
            folders = [session.directory for session in sessions]
            context.host.run(["sh", "-c", _NOTE, "ended-from", *folders], stdin=word.encode())

    threading.Thread(target=write, daemon=True).start()


_NOTE = 'umask 077; word=$(cat); for folder do printf "%s\\n" "$word" >"$folder/ended-from"; done'


def cancelled_from(context: Context, session: Session, ended: str | None = None) -> str | None:
    """Return the machine from which a launcher cancelled the session; ``None`` if none did, or it is not known.

    A record much older than the end (``ended``, as the job recorded it; else now) does not count: that cancel had
    failed.
    """
    try:
        data = context.host.read_file(f"{session.directory}/ended-from")
    except LauncherError:
        return None
    machine, _, wanted = (data or b"").decode(errors="replace").strip().partition("\n")
    now = context.clock()
    at = parse_iso(wanted, now)
    is_old = at is not None and abs((parse_iso(ended, now) or now) - at) > BELIEVED_WITHIN
    return None if is_old else machine or None


class JobCancellation:
    """Cancels a job and waits for its end.

    ``problem``: why the cluster could not be queried. ``refusal``: why the job could not be cancelled. ``silence``: the
    message of the scheduler's command if the scheduler itself did not answer.
    """

    def __init__(self, context: Context, session: Session) -> None:
        self._context, self._session, self._timing = context, session, context.host_timing
        self._cancelled_at = -self._timing.cancel_again_after
        self._interrupts = 0
        self._began = time.monotonic()
        self._deadline = self._began + self._timing.cancel_within
        self._latest = self._began + min(_SLOW_FACTOR * self._timing.cancel_within, self._timing.cancel_at_most)
        self._answer_within = self._timing.answer_within
        self._silence_noted = False
        self._last: dict[str, JobStatus | None] = {}  # what the scheduler reported last, by session
        self._are_files_slow = False
        self.problem: LauncherError | None = None
        self.silence = self.refusal = ""

    def wait_until_ended(self) -> bool:
        """Wait for the job's end, and return whether it came.

        Waits at most ``Timing.cancel_within`` seconds, plus the time that queries take, as a login shell may be slow.
        """
        pause = self._timing.cancel_check_pause
        while time.monotonic() < self._deadline:
            began = time.monotonic()
            try:
                gone, self.problem = self._check_ended(), None
                if gone:
                    return True
                self._deadline = min(self._latest, self._deadline + time.monotonic() - began)
            except LoginShellSilent as error:  # no command works there, however often it is repeated
                self.problem = error
                return False
            except (ConnectionLost, HostCommandFailed) as error:
                if not self._reconnect(error):
                    return False
            if self._user_gives_up(pause):
                return False
            pause = min(pause * 1.6, self._timing.longest_cancel_check_pause)
        return False

    def how_it_ended(self, session: Session) -> str:
        """Return the predicate of a sentence about a job that is gone, by whether it had started at all."""
        status = self._last.get(session.id)
        if (status is not None and status.node) or self._has_reported(session):
            return "has ended"
        return "was cancelled before it started"

    def _has_reported(self, session: Session) -> bool:
        """Whether the job has reported its start; true as well if that cannot be read, to claim nothing false."""
        if self._are_files_slow:  # for many jobs, wait only once
            return True
        started = ["head", "-c", "1", f"{session.directory}/started.json"]
        try:
            return self._context.host.run(started, timeout=_QUICK).exit_code == 0
        except LauncherError:
            self._are_files_slow = True
            return True

    def _check_ended(self) -> bool:
        host, scheduler = self._context.host, self._context.scheduler
        if time.monotonic() - self._cancelled_at >= self._timing.cancel_again_after:
            answer = host.run(scheduler.cancel(job_of(self._session)), login_shell=True, timeout=self._answer_within)
            self.refusal = ""
            if answer.exit_code == 0:
                self._cancelled_at = time.monotonic()
            else:
                self.refusal = (answer.stderr.strip() or "no reason given").splitlines()[-1]
        try:
            gone = self._has_ended(scheduler, self._session)
        except NoAnswer as error:
            self._on_no_answer(error.reason)
            return False
        self.silence = ""
        return gone

    def _has_ended(self, scheduler: Scheduler, session: Session) -> bool:
        """Query a session's job by itself. Raises ``NoAnswer``."""
        status = query_status(self._context.host, scheduler, job_of(session), self._answer_within)
        self._last[session.id] = status
        if status is not None and status.state is State.REVOKED:  # another cluster of the federation runs it
            return self._context.host.read_file(f"{session.directory}/exit.json") is not None
        return status is None or status.state.ended

    def _on_no_answer(self, reason: str) -> None:
        """Note that the scheduler does not answer; it may have lost the cancel, so repeat it once it answers."""
        self.silence, self._cancelled_at = reason, -self._timing.cancel_again_after
        if not self._silence_noted and time.monotonic() - self._began > self._timing.unresponsive_note_after:
            self._silence_noted = True
            self._note_once(f"The scheduler does not answer ({reason}). The job will be cancelled as soon as it does.")

    def _reconnect(self, error: LauncherError) -> bool:
        """Reconnect; if that fails, return whether another attempt is worthwhile."""
        if self.problem is None:
            self._note_once(f"{error.what} The job will be cancelled as soon as the cluster is reached again.")
        self.problem, self._cancelled_at = error, -self._timing.cancel_again_after
        if isinstance(error, HostCommandFailed):  # the login shell may be slow
            self._answer_within = min(2 * self._answer_within, RUN_TIMEOUT)
        prompts_before = self._context.prompts.count
        # an unanswered prompt must not delay the exit
        patience = threading.Timer(max(0.0, self._deadline - time.monotonic()), self._context.prompts.dismiss)
        patience.daemon = True
        patience.start()
        try:
            self._context.host.reconnect(timeout=5.0)
        except Exception as failed:
            if not isinstance(failed, LauncherError):
                self.problem = LauncherError("Reconnecting failed.", why=repr(failed))
                return False
            refused = isinstance(failed, AuthenticationFailed) and self._context.prompts.count > prompts_before
            if refused or isinstance(failed, HostKeyChanged | HostKeyUnknown):
                self.problem = failed
                return False
        finally:
            patience.cancel()
        return True

    def _user_gives_up(self, seconds: float) -> bool:
        if _interrupted_within(self._context.interrupts.inbox, seconds):
            self._interrupts += 1
            if self._interrupts == 1:
                self._note_once("The job is being cancelled. Press Ctrl-C again to leave without waiting for it.")
        return self._interrupts > 1

    def _note_once(self, text: str) -> None:
        self._context.view.show(events.Note(text))


def _interrupted_within(inbox: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait that long, or until the user presses Ctrl-C; other events are ignored."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while True:
            item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, Interrupt) and item.kind == "end":
                return True
    return False


def cancel_after_failure(context: Context, session: Session, error: Exception) -> None:
    """Cancel the job of a launch that failed; if even that fails, the error reports both."""
    try:
        cancel_job(context, session)
    except CancelFailed as failed:
        if not isinstance(error, LauncherError):  # a bug, without a field for this
            context.view.show(events.Note(f"{failed.what} {failed.hint}"))
        else:
            error.why = f"{error.why} {failed.what} {failed.why}".strip()
            error.hint = f"{failed.hint}   {error.hint}".strip()


@contextlib.contextmanager
def cancelled_on_failure(
    context: Context,
    session: Session,
    *,
    ours: bool = True,
    is_attached: Callable[[], bool] = lambda: False,
    expected: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Cancel the job if the block fails, even because of a bug, so that no useless job is left behind.

    ``ours``: whether this launch submitted the job; only then is it cancelled. ``is_attached``: whether the session is
    usable by now, so that it keeps running. ``expected``: exceptions that do not count as failures.
    """
    try:
        yield
    except expected:
        raise
    except Exception as error:
        if is_attached():
            report_detached(context, session)
        elif ours:
            cancel_after_failure(context, session, error)
        raise


def report_detached(context: Context, session: Session, *, is_queued: bool = False) -> None:
    """Show that the session keeps running, or stays in the queue, how to reconnect to it, and how to cancel it."""
    connect, stop = (launcher_command(context, session, command) for command in ("connect", "stop"))
    results = launcher_command(context, session, "results") if session.record.program == "notebook" else ""
    context.view.show(events.Detached(session.id, job_of(session).id, connect, stop, results, is_queued))


def launcher_command(context: Context, session: Session, command: str, name: str = "") -> str:
    """Return a launcher command for this session, as the user types it.

    ``name``: what to call the session; by default a short name that no other session known on this machine has.
    """
    name = name or short_name_among(session.id, (known for known, _ in local_state.known_sessions()))
    return " ".join(filter(None, [_program(), command, shlex.join(context.target.arguments()), name]))


def copy_command(context: Context, folder: str) -> str:
    """Return the command that copies a folder of the cluster here, as the user types it; "" if it is here already."""
    if not context.host.remote:
        return ""
    return " ".join([_program(), "copy", shlex.join([*context.target.arguments(), f"login:{folder}", "."])])


def command_to_repeat(context: Context, session: Session) -> str:
    """Return the command that starts a session like this one, as the user types it.

    A command from another machine uses that machine's profiles, so it is shown with the machine's name.
    """
    record = session.record
    if record.command is not None and record.launched_from in (None, socket.gethostname()):
        return f"{_program()} {_without_default(context, _quoted(record.command))}".strip()
    if record.command is not None:
        return f"on {record.launched_from}: launch-notebook {_quoted(record.command)}".strip()
    flags = {name: value for name, value in record.flags.items() if name != "begin"}  # a session of an older launcher
    words = [shlex.join(context.target.arguments()), as_typed(flags)]
    words += [shlex.join(["--", record.environment])] if record.environment else []
    return " ".join(filter(None, [_program(), *words]))


def _quoted(command: str) -> str:
    """Return recorded arguments quoted anew, because in a damaged record they could contain another command."""
    try:
        return shlex.join(shlex.split(command))
    except ValueError:  # an open quote
        return shlex.quote(command)


def _without_default(context: Context, command: str) -> str:
    """Return recorded arguments without ``--cluster NAME`` or ``--course NAME`` if that is now the default."""
    named, words = dataclasses.replace(context.target, is_default=False).arguments(), shlex.split(command)
    end = words.index("--") if "--" in words else len(words)
    # in the arguments of a run, the notebook or script comes first
    place = next((at for at in range(end) if words[at : at + len(named)] == named), None)
    if not context.target.is_default or not named or place is None:
        return command
    return shlex.join(words[:place] + words[place + len(named) :])


def still_running(context: Context, session: Session, error: LauncherError) -> LauncherError:
    """Return the error with a note that the session is still running, and the command that reconnects to it."""
    return type(error)(
        error.what,
        why=f"{error.why} The session goes on: job {job_of(session)}.".strip(),
        hint=f"come back with: {launcher_command(context, session, 'connect')}",
    )


def _program() -> str:
    """Return the program as this user types it: with its path if its virtual environment is not active."""
    if shutil.which("launch-notebook"):
        return "launch-notebook"
    return "python -m notebook_launcher" if sys.argv[0].endswith("__main__.py") else shlex.quote(sys.argv[0])
