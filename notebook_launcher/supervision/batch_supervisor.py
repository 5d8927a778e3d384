"""The base class of supervisors of batch jobs, which show the lines that a job prints."""

from __future__ import annotations

from notebook_launcher.core.errors import HostKeyChanged, HostKeyUnknown, LauncherError
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.job_output import JobOutput
from notebook_launcher.supervision.supervisor import Supervisor


class BatchSupervisor(Supervisor):
    """Shows what a job prints, from the files that a subclass puts into ``_printed``."""

    def __init__(self, context: Context, session: Session, *, ours: bool) -> None:
        super().__init__(context, session, ours=ours)
        self._printed: list[JobOutput] = []

    def close(self) -> None:
        """Close everything here."""
        for printed in self._printed:
            printed.close()
        super().close()

    def _connection_error(self, error: LauncherError) -> LauncherError:
        if not isinstance(error, HostKeyChanged | HostKeyUnknown):
            return super()._connection_error(error)
        error.why += f" The {self.program} goes on: job {self._job}."  # reconnecting would fail the same way
        return error

    def _handle_line(self, words: list[str]) -> None:
        self._note_keys(words, self.keys_waiting[0] if self._ours else self.keys_waiting[1])

    def _check_connections(self) -> None:
        for printed in self._printed:
            printed.check()

    def _handle_other(self, item: object) -> None:
        for printed in self._printed:
            printed.handle(item)

    def _forget_run(self, sentence: str) -> None:
        for printed in self._printed:
            printed.job_requeued()
        super()._forget_run(sentence)

    def _show_rest(self) -> None:
        """Show the lines that have not arrived yet."""
        for printed in self._printed:
            printed.show_rest()
