"""Supervises a session whose kernels the user's own JupyterLab uses (``--local-lab``): files here, kernels there."""

from __future__ import annotations

import math
import queue
import time

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.text import printable
from notebook_launcher.core.view import Typed
from notebook_launcher.supervision.apps import AppsSupervisor
from notebook_launcher.supervision.local_lab_process import LabEnded, LabStarted, LocalLab
from notebook_launcher.supervision.supervisor import Finished

SAVES_WITHIN = 150.0  # seconds that JupyterLab stays open if nobody can press a key: it saves every 120 s


class LocalLabSupervisor(AppsSupervisor):
    """Starts the user's JupyterLab once the session's JupyterLab answers, and ends it with this command.

    If the session ends by itself, the user's JupyterLab stays open without kernels until the user has saved and presses
    ENTER.
    """

    _lab: LocalLab | None = None

    def close(self) -> None:
        """Close everything here, and end the user's JupyterLab."""
        try:
            super().close()
        finally:
            if self._lab is not None:
                self._lab.close()

    def _on_answer(self, local_port: int) -> None:
        super()._on_answer(local_port)
        if self._lab is not None or self._endpoint is None:
            return
        command = self._context.local_lab
        try:
            self._lab = LocalLab(command, self._endpoint, local_port, self._access.token, self._inbox)
        except OSError as error:
            self._note(f"Your own JupyterLab could not be started: {error}. {self._session_goes_on}")

    def _handle_other(self, item: object) -> None:
        super()._handle_other(item)
        if self._lab is None or not isinstance(item, LabStarted | LabEnded) or item.number != self._lab.number:
            return
        if isinstance(item, LabStarted):
            self._context.view.show(events.LocalLabReady(self._session.id, self._job.id, str(self._node), item.url))
        elif item.exit_code is None:
            self._note(f"Your own JupyterLab has no address yet: {printable(item.printed)}")
        else:
            why = f" (exit code {item.exit_code}: {printable(item.printed)})" if item.exit_code else ""
            self._note(f"Your own JupyterLab has ended{why}. {self._session_goes_on}")

    @property
    def _session_goes_on(self) -> str:
        return f"Session {self._session.id} keeps running, with its own JupyterLab at the address above."

    def _forget_run(self, sentence: str) -> None:
        super()._forget_run(sentence)
        if self._lab is not None:
            self._lab.kernels_gone()

    # --- the session has ended by itself: the user can still save what is in the page

    def _finish(self, finished: Finished) -> None:
        super()._finish(finished)
        self._let_save(str(finished))

    def _report_exit(self, error: LauncherError) -> None:
        super()._report_exit(error)
        self._let_save(error.what)

    def _connection_error(self, error: LauncherError) -> LauncherError:
        reported = super()._connection_error(error)
        self._let_save(reported.what)
        return reported

    def _let_save(self, why: str) -> None:
        """Keep the user's JupyterLab open until the user has saved; its pages are told that the kernels are dead."""
        if self._lab is None or not self._lab.is_running:
            return
        self._lab.kernels_gone()
        ends = "Press ENTER to end it." if self._has_keys else f"It ends in {SAVES_WITHIN:.0f} s."
        self._note(f"{why} Your own JupyterLab stays open without kernels, so that you can save. {ends}")
        deadline = math.inf if self._has_keys else time.monotonic() + SAVES_WITHIN
        while self._lab.is_running and time.monotonic() < deadline:
            try:
                item = self._inbox.get(timeout=self._timing.tick)
            except queue.Empty:
                continue
            if isinstance(item, Interrupt | Typed):
                return
