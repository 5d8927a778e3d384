"""Waits until a submitted job has started, without using the keyboard."""

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
    """Show the ``first`` event, wait until the submitted job has started, and return its node's name.

    The keyboard is not read. If the job does not start, it is cancelled. Raises a ``LauncherError``, such as
    ``Interrupted``, or ``HungUp``.
    """
    with cancelled_on_failure(context, session):
        supervisor = _StartSupervisor(dataclasses.replace(context, view=_NoKeyboard(context.view)), session, ours=True)
    supervisor.supervise(first)
    return supervisor.node


class _StartSupervisor(Supervisor):
    """Follows the job until its script has started. ``node``: where it runs."""

    node = ""

    def _read_started(self, data: Mapping[str, object]) -> None:
        self._settle_login()
        self.node = str(JobNode.from_started(data))
        raise Finished

    def _show_running(self, node: str) -> None:
        self._context.view.show(events.Querying(f"job {self._job} runs on {node}; its script is starting"))

    # --- ways to exit; the job is cancelled, because nobody will reconnect to the session

    def _stop(self) -> None:
        cancel_job(self._context, self._session)
        raise Interrupted("Interrupted before the job had started.") from None

    def _finish(self, finished: Finished) -> None:
        """Report nothing: the job has started."""

    def _connection_error(self, error: LauncherError) -> LauncherError:
        cancel_after_failure(self._context, self._session, error)
        return error

    def _silent_scheduler_error(self, error: SchedulerSilent) -> LauncherError:
        cancel_after_failure(self._context, self._session, error)
        return error

    def _hung_up(self) -> None:
        cancel_job(self._context, self._session)


class _NoKeyboard:
    """A view that does not read the keyboard."""

    def __init__(self, view: View) -> None:
        self.show = view.show

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing, because the keyboard belongs to another program."""
