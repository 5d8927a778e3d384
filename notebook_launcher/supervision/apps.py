"""Supervises a session with further programs beside JupyterLab (``--app``): opens a port here for each.

Once they are shown, each that ends for good is told of as well.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.core import events, local_state
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.jobs.cancel import launcher_command
from notebook_launcher.jobs.messages import AppsReported
from notebook_launcher.session.context import Context
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.jupyter import JupyterSupervisor

if TYPE_CHECKING:
    from notebook_launcher.tunnel.apps import OpenApp


class AppsRead(Frozen):
    """The programs of a run of the job, on ``node``."""

    node: str
    apps: tuple[OpenApp, ...]


class AppsSupervisor(JupyterSupervisor):
    """Asks JupyterLab for the programs beside it once it answers, and opens a port here for each."""

    def __init__(
        self,
        context: Context,
        session: Session,
        access: Access,
        *,
        ours: bool,
        ports: Sequence[tuple[int, int]] = (),
        place: str = "",
    ) -> None:
        super().__init__(context, session, access, ours=ours, ports=ports, place=place)
        self._are_shown = False  # of this run of the job, as what follows
        self._report: Mapping[str, object] = {}  # the newest one of the job
        self._failed: set[str] = set()  # of which the user knows

    def _on_answer(self, local_port: int) -> None:
        was_attached = self.attached
        super()._on_answer(local_port)
        endpoint = self._endpoint
        if was_attached or not local_port or endpoint is None or not endpoint.has_apps:
            return
        inbox, node, token = self._inbox, str(self._node), self._access.token

        def ask() -> None:
            from notebook_launcher.tunnel.apps import read_apps  # it takes its time to load

            inbox.put(AppsRead(node, read_apps(local_port, endpoint, token)))

        threading.Thread(target=ask, daemon=True).start()

    def _handle_other(self, item: object) -> None:
        super()._handle_other(item)
        if isinstance(item, AppsRead) and self.attached and item.node == str(self._node):
            self._open(item.apps)
            self._are_shown = True
            self._show_failed()
        elif isinstance(item, AppsReported):
            self._report = item.data
            self._show_failed()

    def _forget_run(self, sentence: str) -> None:
        self._are_shown, self._report, self._failed = False, {}, set()
        super()._forget_run(sentence)

    def _open(self, apps: tuple[OpenApp, ...]) -> None:
        endpoint, token, ports = self._endpoint, self._access.token, {}
        self._failed = {app.name for app in apps if app.state == "failed"}
        for app in apps:
            ports[app.name] = local_port = self._tunnel.app(app.name, app.port)
            self._context.view.show(
                events.AppOpened(
                    self._session.id,
                    self._job.id,
                    str(self._node),
                    app.name,
                    app.title,
                    app.url(local_port),
                    local_port,
                    app.state,
                    app.message,
                    app.log,
                )
            )
        local_state.record_apps(self._session.id, ports)
        if endpoint is None or not apps:
            return
        from notebook_launcher.tunnel.apps import report_opened

        jupyters_port = self._tunnel.jupyter(endpoint)
        threading.Thread(target=report_opened, args=(jupyters_port, endpoint, token, ports), daemon=True).start()

    def _show_failed(self) -> None:
        """Show the programs that are not started again, each once; the job starts one that dies a few times more."""
        if not self._are_shown:
            return
        from notebook_launcher.session.app_record import MOST_APPS, AppRecord, read_app_records

        for record in read_app_records(self._report, AppRecord):
            if len(self._failed) >= MOST_APPS:  # a node that names others each time fills no terminal
                return
            if record.state == "failed" and record.name not in self._failed:
                self._failed.add(record.name)
                log = f"{self._session.directory}/runtime/app-{record.name}.log" if record.log else ""
                status = launcher_command(self._context, self._session, "status") if record.log else ""
                self._context.view.show(
                    events.AppFailed(
                        self._session.id,
                        self._job.id,
                        str(self._node),
                        record.name,
                        record.title,
                        record.message,
                        record.log,
                        log,
                        status,
                    )
                )
