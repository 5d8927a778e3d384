"""Supervises a session with JupyterLab, which may continue from one job to the next at the same local port."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NoReturn

from notebook_launcher.core import events
from notebook_launcher.core.errors import JobTimedOut, LauncherError, SchedulerSilent
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.cancel import cancel_job, cancelled_on_failure, launcher_command, still_running
from notebook_launcher.jobs.outcome import exit_record
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.apps import AppsSupervisor
from notebook_launcher.supervision.jupyter import JupyterSupervisor
from notebook_launcher.supervision.next_job_watch import cancel_apart
from notebook_launcher.supervision.renewal import HandedOver, Renewal, keep_input
from notebook_launcher.tunnel.forwarding import Tunnel

STOPPED = "stopped"  # the cause in ``exit.json`` of a job that was ended by a signal
ABOUT_THE_END = timedelta(seconds=30)  # from this long before the end on, a signal means that the walltime is over
SAVED_WITHIN = 3.0  # seconds for JupyterLab's page to save while its job is being ended
HUNG_UP_WITHIN = 20.0  # seconds to wait for a submission after the terminal was closed


def supervise_jupyter(
    context: Context,
    session: Session,
    access: Access,
    *,
    ours: bool,
    first: events.Event,
    ports: Sequence[tuple[int, int]] = (),
    place: str = "",
    renewals: int = 0,
) -> None:
    """Show the ``first`` event, and supervise a session until it ends or the user detaches.

    ``ports``: forward only these ports of its node (with their local numbers, 0: the same), whether JupyterLab runs
    there or not; the session then keeps running whatever the user does. ``ours``: this launch submitted it, so a
    failure before it is usable cancels its job; otherwise only the user cancels it, while attached. ``place``: the
    folder or notebook that the address opens, below JupyterLab's folder. ``renewals``: how many more jobs are queued
    automatically, each to continue the one before; with ``--local-lab`` there is only one job. Raises a
    ``LauncherError`` if it failed; ``HungUp`` if the terminal was closed, which leaves it running.
    """
    if ports or context.local_lab:
        with cancelled_on_failure(context, session, ours=ours):
            supervisor = _kind_for_one_job(context)(context, session, access, ours=ours, ports=ports, place=place)
        supervisor.supervise(first)
        return
    before: HandedOver | None = None
    while True:
        with cancelled_on_failure(context, session, ours=ours):
            renewing = _RenewingSupervisor(context, session, access, ours=ours, place=place, before=before)
            if before is None:
                renewing.renewal.left = renewals
        try:
            renewing.supervise(first)
            return
        except HandedOver as handed_over:
            before, session, access = handed_over, handed_over.next_session, handed_over.access
            keep_input(context.interrupts.inbox)
            first = events.Note(f"Now attached to session {session.id}: job {job_of(session)}.")
        except LauncherError as error:
            if before is not None and before.previous is not None:  # this job has not taken over from it
                raise still_running(context, before.previous, error) from None
            raise


def _kind_for_one_job(context: Context) -> type[JupyterSupervisor]:
    """Return the supervisor class for a session that does not continue in another job."""
    if not context.local_lab:
        return JupyterSupervisor
    from notebook_launcher.supervision.local_lab import LocalLabSupervisor  # imported late, because it is seldom used

    return LocalLabSupervisor


class _RenewingSupervisor(AppsSupervisor):
    """Supervises one job, and hands over to the next one as soon as that answers.

    ``before``: what the supervisor of the job before has handed over; that job is cancelled once this one's JupyterLab
    answers.
    """

    def __init__(
        self, context: Context, session: Session, access: Access, *, ours: bool, place: str, before: HandedOver | None
    ) -> None:
        super().__init__(context, session, access, ours=ours, place=place)
        self.renewal = Renewal(context, session, access)
        self._before = before
        self._pausing: threading.Timer | None = None
        if before is not None:
            self._tunnel, self._port = before.tunnel, before.port.lead_to(session)
            self._forwards = [*before.ports]
            self.renewal.left = before.renewals

    def close(self) -> None:
        """Close everything here."""
        self.renewal.close()
        super().close()

    # --- ways to exit

    @property
    def _ends_too(self) -> str:
        return " and cancel the queued next job" if self.renewal.next_session is not None else ""

    def _cancel(self, text: str = "") -> None:
        """Cancel this job first, then the one before, if it still runs, and the next one."""
        before = self._before
        with contextlib.ExitStack() as others:  # even if this job cannot be cancelled
            others.callback(self.renewal.give_up)
            if before is not None and before.previous is not None:
                previous, before.previous = before.previous, None
                others.callback(cancel_job, self._context, previous)
            super()._cancel(text)

    def _report_exit(self, error: LauncherError) -> None:
        self.renewal.give_up()
        super()._report_exit(error)

    def _detach(self) -> None:
        super()._detach()
        self.renewal.left_queued()

    def _hung_up(self) -> None:
        super()._hung_up()
        self.renewal.left_queued(HUNG_UP_WITHIN)

    # --- the next job

    def _tick(self) -> None:
        super()._tick()
        if self.attached:
            self.renewal.tick(self._attached_status.end)

    def _handle_other(self, item: object) -> None:
        if self.renewal.handle(item):
            self._hand_over(still_runs=True)
        super()._handle_other(item)

    def _forget_run(self, sentence: str) -> None:
        """Drop the next job, which would begin too early as this one is restarted; hand over if it runs already."""
        has_begun = self.renewal.has_begun()
        if self._pausing is not None:
            self._pausing.cancel()  # the port will lead to the new run
        super()._forget_run(sentence)
        if has_begun:
            self._hand_over(still_runs=True)
        self.renewal.drop()

    def _job_ended(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Continue in the next job at the end of the walltime, whatever the scheduler reports, or if it is silent."""
        record = record or exit_record(self._context, self._session)
        self._raise_if_finished(record)
        if record.get("cause") == STOPPED:
            self._pause_forwarding_soon()
        next_session = self.renewal.next_session
        if next_session is not None and self._is_time_over(record):
            if not self.renewal.has_begun():
                self._note(
                    f"The walltime of job {self._job} is over. Waiting for the next job, {job_of(next_session)}."
                )
            if self._pausing is not None:
                self._pausing.join()
            self._hand_over(still_runs=False)
        try:
            super()._job_ended(record, status)
        except SchedulerSilent:
            if not self.renewal.has_begun():
                raise
        else:
            return
        self._hand_over(still_runs=True)

    def _is_time_over(self, record: Mapping[str, object]) -> bool:
        """Whether the job was ended by a signal, or left no record of its end, when its walltime was over."""
        end, now = self._attached_status.end, self._context.clock()
        if end is None or record.get("cause") not in (None, STOPPED):
            return False
        ended = parse_iso(str(record.get("ended") or ""), now) or now
        return ended >= end - ABOUT_THE_END

    def _pause_forwarding_soon(self) -> None:
        """Stop forwarding once the page has saved: another user of the node could take the port, and get the token."""
        if self._pausing is None or not self._pausing.is_alive():
            self._pausing = threading.Timer(SAVED_WITHIN, self._tunnel.pause_forwarding)
            self._pausing.daemon = True
            self._pausing.start()

    def _raise_exit(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        if self.renewal.has_begun():
            self._hand_over(still_runs=False)
        try:
            super()._raise_exit(record, status)
        except JobTimedOut as error:
            if self.renewal.next_session is None:
                raise
            self._note(f"{error.what} Waiting for the next job, {job_of(self.renewal.next_session)}.")
        self._hand_over(still_runs=False)

    def _hand_over(self, *, still_runs: bool) -> NoReturn:
        """Hand the local ports over to the supervisor of the next job. Raises ``HandedOver``."""
        endpoint, next_session = self._endpoint, self.renewal.next_session
        assert next_session is not None  # noqa: S101  # only called if there is a next job
        is_reached = endpoint is not None and self._is_reached and self._tunnel.alive
        is_ours = (
            endpoint is not None
            and is_reached
            and self._port.shut_while_ours(self._tunnel, endpoint, self._access.token)
        )
        if not is_ours:
            self._port.spoil()
        self._tunnel.pause_forwarding()
        tunnel, self._tunnel = self._tunnel, Tunnel()
        previous = self._session if still_runs else None
        ports, left = sorted(self._forwarded), self.renewal.left
        raise HandedOver(next_session, self.renewal.access, tunnel, self._port, ports, previous, left)

    # --- taking over from the job before

    def _show_ready(self, local_port: int, url: str) -> None:
        before = self._before
        if before is None or local_port != before.local_port:
            super()._show_ready(local_port, url)
        else:
            session, continues = self._session, self._session.record.continues
            bill = launcher_command(self._context, session, "bill", continues)
            self._context.view.show(
                events.Continued(session.id, self._job.id, str(self._node), url, local_port, continues, bill)
            )
        if before is not None and before.previous is not None:
            cancel_apart(self._context, before.previous)
            before.previous = None
