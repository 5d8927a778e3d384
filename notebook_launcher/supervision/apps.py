"""Supervises a session with further programs beside JupyterLab (``--app``): opens a port here for each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from notebook_launcher.core import events, local_state
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.supervision.jupyter import JupyterSupervisor

if TYPE_CHECKING:
    from notebook_launcher.tunnel.apps import OpenApp


class AppsRead(Frozen):
    """The programs of a run of the job, on ``node``."""

    node: str
    apps: tuple[OpenApp, ...]


class AppsSupervisor(JupyterSupervisor):
    """Asks JupyterLab for the programs beside it once it answers, and opens a port here for each."""

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

    def _open(self, apps: tuple[OpenApp, ...]) -> None:
        endpoint, token, ports = self._endpoint, self._access.token, {}
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
