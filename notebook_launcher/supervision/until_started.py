"""Waiting until a queued job has started, where the keyboard belongs to somebody else."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, LauncherError, SchedulerSilent
from notebook_launcher.core.view import View
from notebook_launcher.jobs.cancel import cancel_after_failure, cancel_job, cancelled_on_failure
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.supervisor import Finished, Supervisor
from notebook_launcher.tunnel.routes import JobNode


def await_start(context: Context, session: Session, first: events.Event) -> str:
    """Show the ``first`` event, wait until the job that we have just queued has started, and return its node's name.

    The keyboard is left alone. Where it does not come to that the job is cancelled. Raises a ``LauncherError``, also
    ``Interrupted``, or ``HungUp``.
    """
    with cancelled_on_failure(context, session):
        supervisor = _StartSupervisor(dataclasses.replace(context, view=_NoKeyboard(context.view)), session, ours=True)
    supervisor.supervise(first)
    return supervisor.node


class _StartSupervisor(Supervisor):
    """Up to the job's first line. ``node``: where it has started."""

    node = ""

    def _read_started(self, data: Mapping[str, object]) -> None:
        self._settle_login()
        self.node = str(JobNode.from_started(data))
        raise Finished

    def _show_running(self, node: str) -> None:
        self._context.view.show(events.Querying(f"job {self._job} runs on {node}; its script is starting"))

    # --- what each way out means: nobody will come back to it

    def _stop(self) -> None:
        cancel_job(self._context, self._session)
        raise Interrupted("Interrupted before the job had started.") from None

    def _finish(self, finished: Finished) -> None:
        """Do nothing: it has started."""

    def _connection_error(self, error: LauncherError) -> LauncherError:
        cancel_after_failure(self._context, self._session, error)
        return error

    def _silent_scheduler_error(self, error: SchedulerSilent) -> LauncherError:
        cancel_after_failure(self._context, self._session, error)
        return error

    def _hung_up(self) -> None:
        cancel_job(self._context, self._session)


class _NoKeyboard:
    """A view that leaves the keyboard to somebody else."""

    def __init__(self, view: View) -> None:
        self.show = view.show

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing."""
