"""Ending a session's job for certain, and leaving one so that the user can come back."""

from __future__ import annotations

import contextlib
import queue
import shlex
import shutil
import socket
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from notebook_launcher.core.errors import (
    AuthenticationFailed,
    CancelFailed,
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    Interrupted,
    LauncherError,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.timestamps import moment
from notebook_launcher.jobs.watcher import NoAnswer, ask
from notebook_launcher.schedulers.base import Scheduler, State
from notebook_launcher.session.context import Stage, job_of
from notebook_launcher.session.record import Session

GONE_WITHIN = 120.0  # seconds that a cancelled job may take to be gone: its grace time and an epilog
CANCEL_AGAIN = 10.0  # seconds after which a cancel that did nothing is repeated
TOLD_AFTER = 3.0  # seconds for which a scheduler may be silent before that is said
ANSWER_WITHIN = 20.0  # seconds for the word that ends a job; then the connection is taken for broken
# an end that is further than this from the word that was left for it has another cause
BELIEVED_WITHIN = timedelta(minutes=10)


def end_job(stage: Stage, session: Session, text: str = "") -> None:
    """End a session's job, wait until the scheduler says that it is gone, and say so.

    A connection that is broken, or breaks now, is made anew for it. Raises ``CancelFailed``, which tells the job and
    the command, where it stays, cannot be asked for, or where the user does not want to wait (the second Ctrl-C; the
    first is answered with a word).
    """
    job = job_of(session)
    stage.view.show(events.Ending(str(job)))
    if not text:
        leave_word(stage, [session])
    ending = EndOfJob(stage, session)
    command = shlex.join(stage.scheduler.cancel_typed(job))
    if not ending.is_seen() and ending.problem is None:
        if ending.silence:
            raise CancelFailed(f"Job {job} may still be there.", why=f"The scheduler does not answer: {ending.silence}",
                               mend=f"end it, once the scheduler answers again, with: {command}")  # fmt: skip
        why = (
            f"It could not be cancelled: {ending.refusal}"
            if ending.refusal
            else "It was cancelled, and is not gone yet."
        )
        raise CancelFailed(f"Job {job} is still there.", why=why,
                           mend=f"see whether it is; end it with: {command}")  # fmt: skip
    if ending.problem is not None:
        why = f"{ending.problem.what} {ending.problem.why}".strip()
        raise CancelFailed(f"Job {job} may still be there.", why=why,
                           mend=f"end it on the login node with: {command}")  # fmt: skip
    stage.view.show(events.Ended(session.id, job.id, text or f"Job {job} is gone.", by_itself=bool(text)))


def leave_word(stage: Stage, sessions: Sequence[Session]) -> None:
    """Note in the sessions' directories, for other launchers that hold them, from where and when their end was wanted.

    On a thread: neither a slow file server nor a broken connection may hold up the end.
    """

    def note() -> None:
        with contextlib.suppress(Exception):
            word = f"{socket.gethostname()}\n{stage.clock().isoformat(timespec='seconds')}\n"
            folders = [session.directory for session in sessions]
            stage.host.run(["sh", "-c", _NOTE, "ended-from", *folders], stdin=word.encode())

    threading.Thread(target=note, daemon=True).start()


_NOTE = 'umask 077; word=$(cat); for folder do printf "%s\\n" "$word" >"$folder/ended-from"; done'


def ended_from(stage: Stage, session: Session, ended: str | None = None) -> str | None:
    """Return the machine on which a launcher was told to end the session; ``None`` where none was, or it is unknown.

    Nor is it told where that was long before the end (``ended``, as the job noted it; else now): it had failed then.
    """
    try:
        data = stage.host.read_file(f"{session.directory}/ended-from")
    except LauncherError:
        return None
    machine, _, wanted = (data or b"").decode(errors="replace").strip().partition("\n")
    now = stage.clock()
    at = moment(wanted, now)
    is_old = at is not None and abs((moment(ended, now) or now) - at) > BELIEVED_WITHIN
    return None if is_old else machine or None


class EndOfJob:
    """Cancels a job until it is gone.

    ``problem``: why the cluster could not be asked, in the end. ``refusal``: why it could not be cancelled.
    ``silence``: what the scheduler's command said where the scheduler itself gave no answer.
    """

    def __init__(self, stage: Stage, session: Session) -> None:
        self._stage, self._session = stage, session
        self._cancelled_at = -CANCEL_AGAIN
        self._interrupts = 0
        self._began = time.monotonic()
        self._deadline = self._began + GONE_WITHIN
        self._silence_told = False
        self.problem: LauncherError | None = None
        self.silence = self.refusal = ""

    def is_seen(self) -> bool:
        """Wait for the job's end, at most ``GONE_WITHIN`` seconds, and tell whether it came."""
        pause = 0.1
        while time.monotonic() < self._deadline:
            try:
                gone, self.problem = self._is_gone(), None
                if gone:
                    return True
            except (ConnectionLost, HostCommandFailed) as error:
                if not self._may_be_reached(error):
                    return False
            if self._user_leaves(pause):
                return False
            pause = min(pause * 1.6, 3.0)
        return False

    def _is_gone(self) -> bool:
        host, scheduler = self._stage.host, self._stage.scheduler
        if time.monotonic() - self._cancelled_at >= CANCEL_AGAIN:
            answer = host.run(scheduler.cancel(job_of(self._session)), login_shell=True, timeout=ANSWER_WITHIN)
            self.refusal = ""
            if answer.exit_code == 0:
                self._cancelled_at = time.monotonic()
            else:
                self.refusal = (answer.stderr.strip() or "no reason given").splitlines()[-1]
        try:
            gone = self._has_ended(scheduler, self._session)
        except NoAnswer as error:
            self._is_silent(error.reason)
            return False
        self.silence = ""
        return gone

    def _has_ended(self, scheduler: Scheduler, session: Session) -> bool:
        """Ask for a session's job by itself. Raises ``NoAnswer``."""
        status = ask(self._stage.host, scheduler, job_of(session), ANSWER_WITHIN)
        if (
            status is not None and status.state is State.REVOKED
        ):  # whatever it does on the other cluster, and ever after
            return self._stage.host.read_file(f"{session.directory}/exit.json") is not None
        return status is None or status.state.ended

    def _is_silent(self, reason: str) -> None:
        """A scheduler that is being restarted takes no cancel: it gets one when it answers."""
        self.silence, self._cancelled_at = reason, -CANCEL_AGAIN
        if not self._silence_told and time.monotonic() - self._began > TOLD_AFTER:
            self._silence_told = True
            self._say(f"The scheduler does not answer ({reason}). The job is ended as soon as it does.")

    def _may_be_reached(self, error: LauncherError) -> bool:
        """Connect anew; tell whether, if that fails, another attempt could be of use."""
        if self.problem is None:
            self._say(f"{error.what} The job is ended as soon as the cluster is reached again.")
        self.problem, self._cancelled_at = error, -CANCEL_AGAIN
        asked = self._stage.prompts.count
        # a question that nobody answers must not hold up the end
        patience = threading.Timer(max(0.0, self._deadline - time.monotonic()), self._stage.prompts.take_back)
        patience.daemon = True
        patience.start()
        try:
            self._stage.host.reconnect(timeout=5.0)
        except Exception as failed:
            if not isinstance(failed, LauncherError):
                self.problem = LauncherError("The connection could not be made anew.", why=repr(failed))
                return False
            refused = isinstance(failed, AuthenticationFailed) and self._stage.prompts.count > asked
            if refused or isinstance(failed, HostKeyChanged | HostKeyUnknown):
                self.problem = failed
                return False
        finally:
            patience.cancel()
        return True

    def _user_leaves(self, seconds: float) -> bool:
        if _interrupted_within(self._stage.interrupts.inbox, seconds):
            self._interrupts += 1
            if self._interrupts == 1:
                self._say("The job is being ended; Ctrl-C once more leaves without waiting for that.")
        return self._interrupts > 1

    def _say(self, text: str) -> None:
        self._stage.view.show(events.Noted(text))


def _interrupted_within(inbox: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait that long, or until the user presses Ctrl-C; what else happens is of no interest now."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while True:
            item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, Interrupt) and item.kind == "end":
                return True
    return False


def end_after(stage: Stage, session: Session, error: Exception) -> None:
    """End the job of a launch that failed; where even that fails, the error tells both."""
    try:
        end_job(stage, session)
    except CancelFailed as failed:
        if not isinstance(error, LauncherError):  # one of ours, with no place for this
            stage.view.show(events.Noted(f"{failed.what} {failed.mend}"))
        else:
            error.why = f"{error.why} {failed.what} {failed.why}".strip()
            error.mend = f"{failed.mend}   {error.mend}".strip()


def not_ready_yet(stage: Stage, session: Session, *, ours: bool) -> None:
    """Tell what an interrupt did to a session that was not of use yet: ended its job, as was shown, or left it."""
    if ours:
        raise Interrupted("Interrupted before JupyterLab was ready.")
    say_left(stage, session)


def say_left(stage: Stage, session: Session) -> None:
    """Say that the session goes on, how to come back to it, and how to end it."""
    come_back, stop = (typed(stage, session, command) for command in ("connect", "stop"))
    results = typed(stage, session, "results") if session.record.program == "notebook" else ""
    stage.view.show(events.Left(session.id, job_of(session).id, come_back, stop, results))


def typed(stage: Stage, session: Session, command: str, name: str = "") -> str:
    """Return a command of ours on this session, as the user can type it. ``name``: a shorter one of the session."""
    return " ".join(filter(None, [_program(), command, shlex.join(stage.place.arguments()), name or session.id]))


def same_again(stage: Stage, session: Session) -> str:
    """Return the command that starts a session like this one, as the user can type it.

    Another machine's names its profiles, which may not be known here: it comes with that machine's name before it.
    """
    record = session.record
    if record.command is not None and record.launched_from in (None, socket.gethostname()):
        return f"{_program()} {record.command}".strip()
    if record.command is not None:
        return f"on {record.launched_from}: launch-notebook {record.command}".strip()
    flags = {name: value for name, value in record.flags.items() if name != "begin"}  # an older launcher's session
    words = [shlex.join(stage.place.arguments()), as_typed(flags)]
    words += [shlex.join(["--", record.environment])] if record.environment else []
    return " ".join(filter(None, [_program(), *words]))


def still_there(stage: Stage, session: Session, error: LauncherError) -> LauncherError:
    """Return the error with the way back to the session, which it did not end."""
    return type(error)(
        error.what,
        why=f"{error.why} The session goes on: job {job_of(session)}.".strip(),
        mend=f"come back with: {typed(stage, session, 'connect')}",
    )


def _program() -> str:
    """The command as this user can type it: from a virtual environment that is not active, with its path."""
    if shutil.which("launch-notebook"):
        return "launch-notebook"
    return "python -m notebook_launcher" if sys.argv[0].endswith("__main__.py") else shlex.quote(sys.argv[0])
