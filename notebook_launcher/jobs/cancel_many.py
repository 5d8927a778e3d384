"""Cancels several sessions at once: with one command for all jobs in one queue, and one query per round."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from notebook_launcher.core import events
from notebook_launcher.core.errors import CancelFailed
from notebook_launcher.jobs.cancel import JobCancellation, record_cancel_request
from notebook_launcher.jobs.lookup import query_states
from notebook_launcher.jobs.session_index import JobQueue
from notebook_launcher.jobs.status import NoAnswer
from notebook_launcher.schedulers.base import Scheduler, State
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.context import Context, job_of, session_and_job
from notebook_launcher.session.record import Session

AT_ONCE = 200  # jobs in one command


def cancel_jobs(context: Context, sessions: Sequence[Session]) -> None:
    """Cancel the jobs of several sessions, wait until the schedulers report their end, and show that for each.

    A broken connection is re-established for this. Raises ``CancelFailed`` with the names of those that may remain, and
    the command that cancels them.
    """
    for session in sessions:
        context.view.show(events.Stopping(str(job_of(session))))
    record_cancel_request(context, sessions)
    ending = _CancellationOfMany(context, sessions)
    if ending.wait_until_ended():
        return
    left = list(ending.left.values())
    problem = ending.problem
    why = f"{problem.what} {problem.why}".strip() if problem else ending.silence or ending.refusal
    commands = "; ".join(
        shlex.join(_scheduler(context, queue).cancel_all([job_of(session) for session in some]))
        for queue, some in _by_queue(left).items()
    )
    raise CancelFailed(
        f"{len(left)} of {len(sessions)} sessions may still be there: {', '.join(session.id for session in left)}.",
        why=why or "They were cancelled, and are not gone yet.",
        hint=f"check whether they run; end them with: {commands}",
    )


class _CancellationOfMany(JobCancellation):
    """Cancels several jobs and waits for their end. ``left``: the sessions whose jobs remain, by name."""

    def __init__(self, context: Context, sessions: Sequence[Session]) -> None:
        super().__init__(context, sessions[0])
        self.left = {session.id: session for session in sessions}

    def _check_ended(self) -> bool:
        queues = _by_queue(list(self.left.values()))
        if time.monotonic() - self._cancelled_at >= self._timing.cancel_again_after:
            self._cancelled_at, self.refusal = time.monotonic(), ""
            for queue, sessions in queues.items():
                self._cancel(queue, sessions)
        silence = ""
        for queue, sessions in queues.items():
            silence = self._query(queue, sessions) or silence
        self.silence = ""
        if silence:
            self._on_no_answer(silence)
        return not self.left

    def _query(self, queue: JobQueue, sessions: Sequence[Session]) -> str:
        """Query all jobs at once, and those missing in the answer one by one; return why there was no answer, or ""."""
        states = query_states(self._context, queue, [job_of(session) for session in sessions])
        if states is None:
            return "it did not answer a query for several jobs"
        silence = ""
        for session in sessions:
            status = states.get(job_of(session).id)
            try:
                if status is None or status.state is State.REVOKED:
                    has_ended = self._has_ended(_scheduler(self._context, queue), session)
                else:
                    self._last[session.id], has_ended = status, status.state.ended
                if has_ended:
                    self._ended(session)
            except NoAnswer as error:
                silence = error.reason
        return silence

    def _cancel(self, queue: JobQueue, sessions: Sequence[Session]) -> None:
        """Cancel the jobs. Those that have just ended are refused, which does not matter."""
        scheduler = _scheduler(self._context, queue)
        for first in range(0, len(sessions), AT_ONCE):
            command = scheduler.cancel_all([job_of(session) for session in sessions[first : first + AT_ONCE]])
            answer = self._context.host.run(command, login_shell=True, timeout=self._answer_within)
            messages = answer.stderr.strip().splitlines()
            if answer.exit_code and messages:
                self.refusal = f"Not all could be cancelled: {messages[-1]}"

    def _ended(self, session: Session) -> None:
        del self.left[session.id]
        text = f"{session_and_job(session)} {self.how_it_ended(session)}."
        self._context.view.show(events.Ended(session.id, job_of(session).id, text))


def _scheduler(context: Context, queue: JobQueue) -> Scheduler:
    return make_scheduler(queue.scheduler, context.root)


def _by_queue(sessions: Sequence[Session]) -> dict[JobQueue, list[Session]]:
    found: dict[JobQueue, list[Session]] = {}
    for session in sessions:
        found.setdefault(JobQueue(session.record.scheduler, job_of(session).cluster), []).append(session)
    return found
