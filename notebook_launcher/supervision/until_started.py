"""Waiting until a job that was queued has started, where the keyboard is somebody else's."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Mapping

from notebook_launcher.core.errors import Interrupted, JobCancelled, JobFailed, JobLost, JobTimedOut
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp
from notebook_launcher.jobs.cancel import end_after, end_job
from notebook_launcher.session.context import Stage, View
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.supervisor import Attendance, End, GaveUp
from notebook_launcher.tunnel.routes import Node


def await_start(stage: Stage, session: Session, first: events.Event) -> str:
    """Show the ``first`` event, wait until the job that we have just queued has started, and return its node's name.

    The keyboard is left alone. Where it does not come to that the job is ended. Raises a ``LauncherError``, also
    ``Interrupted``, or ``HungUp``.
    """
    waiting: _UntilStarted | None = None
    node = ""
    try:
        deaf = dataclasses.replace(stage, view=_NoKeyboard(stage.view))
        waiting = _UntilStarted(deaf, session, ours=True)
        stage.view.show(first)
        waiting.follow()
    except _Started as started:
        node = started.node
    except End:
        end_job(stage, session)
        raise Interrupted("Interrupted before the job had started.") from None
    except GaveUp as gave_up:
        end_after(stage, session, gave_up.error)
        raise gave_up.error from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut):
        raise
    except HungUp:  # nobody will come back to it
        end_job(stage, session)
        raise
    except Exception as error:
        end_after(stage, session, error)
        raise
    finally:
        if waiting is not None:
            waiting.close()
    return node


class _Started(Exception):
    """The job has started."""

    def __init__(self, node: str) -> None:
        self.node = node


class _UntilStarted(Attendance):
    """Up to the job's first word."""

    def _started(self, data: Mapping[str, object]) -> None:
        self._no_more_mending()
        raise _Started(str(Node.from_started(data)))

    def _show_running(self, node: str) -> None:
        self._stage.view.show(events.Asking(f"job {self._job} runs on {node}; its script is starting"))


class _NoKeyboard:
    """A view that leaves the keyboard to somebody else."""

    def __init__(self, view: View) -> None:
        self.show = view.show

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing."""
