"""Supervises one job with JupyterLab: waits until it answers, stays attached, cancels it; always cleans up.

Jobs that continue each other are in ``next_jobs``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import (
    ConnectionLost,
    HostKeyChanged,
    HostKeyUnknown,
    Interrupted,
    JobCancelled,
    JupyterSilent,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.jobs.cancel import cancel_job, cancelled_from, report_detached
from notebook_launcher.jobs.messages import FileAppeared, StatusChanged
from notebook_launcher.jobs.outcome import idle_message
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Context
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.own_computer import show_ssh_login
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.end_check import EndCheck, EndChecked
from notebook_launcher.supervision.jupyter_port import JupyterPort
from notebook_launcher.supervision.supervisor import (
    ConnectionGivenUp,
    DetachRequested,
    Finished,
    StopRequested,
    Supervisor,
)
from notebook_launcher.supervision.workers import show_workers
from notebook_launcher.tunnel.forwarding import (
    Endpoint,
    PortChecked,
    PortOwner,
    SameMachine,
    Tunnel,
    port_error,
    port_owner,
    read_port,
)
from notebook_launcher.tunnel.node_connection import (
    JupyterAnswered,
    NodeConnection,
    NodeUnconnected,
    RouteOpened,
    RouteSlow,
)
from notebook_launcher.tunnel.routes import NodeTarget, find_route, wanted_route
from notebook_launcher.usage.bill_command import show_bill

KEYS_ATTACHED = (
    "ENTER alone, or Ctrl-C, ends the session and its job; d and ENTER detaches: it runs on; "
    "f PORT forwards a port (f 6006, f 6006:16006)."
)
KEYS_CONNECTED = (
    "ENTER alone ends the session and its job; Ctrl-C, or d and ENTER, detaches: it runs on; "
    "f PORT forwards a port (f 6006, f 6006:16006)."
)
KEYS_WAITING = "JupyterLab is not ready yet. Ctrl-C cancels the job; d and ENTER detaches, for you to come back later."
KEYS_CONNECTING = "JupyterLab is not ready yet. Ctrl-C, or d and ENTER, detaches; the session goes on."
KEYS_PORTS_WAITING = (
    "The ports are not open yet. ENTER, or Ctrl-C, leaves; the session goes on. f PORT adds another one."
)
KEYS_PORTS = "ENTER, or Ctrl-C, closes the ports here; the session goes on. f PORT forwards another one."

CONFIRM_WITHIN = 60.0  # seconds within which a second ENTER or Ctrl-C confirms the first


class JupyterSupervisor(Supervisor):
    """Waits until JupyterLab answers through the tunnel, and stays attached; or only forwards ports of the node.

    ``ports``: forward only these. ``place``: the folder or notebook that the address opens.
    """

    keys_waiting = (KEYS_WAITING, KEYS_CONNECTING)

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
        super().__init__(context, session, ours=ours)
        self._access = access
        here = context.scheduler.same_machine and not context.host.remote
        self._tunnel = SameMachine() if here else Tunnel()
        self._port = JupyterPort(context, session, self._note)
        self._has_left_port = False  # whether the next session may have the port
        self._node_connection: NodeConnection | None = None
        self._endpoint: Endpoint | None = None
        self._has_route = False  # whether the tunnel runs over the connection to the node
        self._is_used = False  # whether the connection to the node is already in use
        self._is_reached = False
        self._only_ports = bool(ports)
        if self._only_ports:
            self.keys_waiting = (KEYS_PORTS_WAITING, KEYS_PORTS_WAITING)
        self._place = place
        self._forwards = [*ports, *((port, 0) for port in context.forwards)]
        self._sure_until = 0.0  # until when another request to end the session confirms the first
        self._end_check = EndCheck(self._inbox, access.token)
        self._ends_at_once = False  # after SIGTERM, for example: the pages save only once the job is being ended
        self._forwarded: set[tuple[int, int]] = set()  # of this run: ports of its node, with the local numbers
        self._other_users_ports: set[int] = set()  # of this run: ports of other users, which were not forwarded

    def close(self) -> None:
        """Close everything here."""
        try:
            super().close()
            local_state.forget_attached(self._session.id)
            if self._node_connection is not None:
                self._node_connection.close()
            self._tunnel.close()
        finally:
            if self._has_left_port:  # here, because only now is it free
                self._port.left()

    # --- ways to exit

    def _stop(self) -> None:
        endpoint, is_ours = self._endpoint, False
        if endpoint is not None and self._is_reached and self._tunnel.alive:
            self._save(endpoint)
            is_ours = self._port.shut_while_ours(self._tunnel, endpoint, self._access.token)
        self._cancel()
        self._has_left_port = is_ours
        if not self.attached:
            raise Interrupted("Interrupted before JupyterLab was ready.")
        show_bill(self._context, self._session)

    def _save(self, endpoint: Endpoint) -> None:
        if self._ends_at_once:
            return
        if unsaved := self._end_check.save(self._tunnel.jupyter(endpoint), endpoint):
            self._context.view.show(events.NotSaved(self._session.id, self._job.id, unsaved))

    def _finish(self, finished: Finished) -> None:
        self._cancel(str(finished))
        show_bill(self._context, self._session)

    def _cancel(self, text: str = "") -> None:
        cancel_job(self._context, self._session, text)

    def _report_exit(self, error: LauncherError) -> None:
        if self.attached:
            show_bill(self._context, self._session)

    def _detach(self) -> None:
        self._port.warn_of_free()
        super()._detach()

    def _connection_error(self, error: LauncherError) -> LauncherError:
        self._port.warn_of_free()
        if not isinstance(error, HostKeyChanged | HostKeyUnknown):
            return super()._connection_error(error)
        error.why += f" The session goes on: job {self._job}."  # reconnecting would fail the same way
        report_detached(self._context, self._session)
        return error

    # --- input from the user

    def _handle_line(self, words: list[str]) -> None:
        if not words and self._only_ports:
            raise DetachRequested
        if words:
            was_asked, self._sure_until = time.monotonic() < self._sure_until, 0.0
            if was_asked and words in (["n"], ["no"]):
                self._note("The session keeps running.")
                return
        elif self.attached:
            self._end_requested()
            return
        if len(words) == 2 and words[0] in ("f", "forward"):
            self._forward_typed(words[1])
            return
        # an impatient ENTER must not cost the position in the queue
        if self._only_ports:
            keys = KEYS_PORTS if self.attached else KEYS_PORTS_WAITING
        elif self._ours:
            keys = KEYS_ATTACHED if self.attached else KEYS_WAITING
        else:
            keys = KEYS_CONNECTED if self.attached else KEYS_CONNECTING
        self._note_keys([] if words[:1] in (["f"], ["forward"]) else words, keys)

    def _interrupted(self, *, at_once: bool) -> None:
        self._ends_at_once = at_once
        if at_once or not self._ours or not self.attached:
            super()._interrupted(at_once=at_once)
        self._end_requested()

    def _end_requested(self) -> None:
        """End the session; at the first request only after documents are saved and if no kernel is busy.

        The user is told beforehand what a second request does.
        """
        now, endpoint = time.monotonic(), self._endpoint
        is_reached = endpoint is not None and self._is_reached and self._tunnel.alive
        if endpoint is None or not is_reached or not self._has_keys or now < self._sure_until:
            raise StopRequested
        self._sure_until = until = now + CONFIRM_WITHIN
        asked = "Asking JupyterLab to save open documents and to report busy kernels"
        self._note(f"{asked}; {self._end_keys} again ends the session now.")
        self._end_check.start(self._tunnel.jupyter(endpoint), endpoint, until)

    @property
    def _end_keys(self) -> str:
        return "ENTER or Ctrl-C" if self._ours else "ENTER"

    @property
    def _ends_too(self) -> str:
        """What else a second request does, as text that follows “to end the session and its job anyway”."""
        return ""

    def _end_checked(self, item: EndChecked) -> None:
        """End the session if nothing is lost by that; otherwise, or if that is not known, ask the user to confirm."""
        if item.until != self._sure_until:
            return  # the user has typed something else meanwhile
        self._end_check.told()
        if item.loses_nothing:
            raise StopRequested
        self._note(
            f"{item.text} Press {self._end_keys} again within {CONFIRM_WITHIN:.0f} s to end the session and its job "
            f"anyway{self._ends_too}, or d and ENTER to detach and leave it running."
        )

    def _forward_typed(self, word: str) -> None:
        ports = read_port(word)
        if ports is None:
            self._note(f"“{word}” is not a port (1 to 65535); for example: f 6006")
        elif self.attached and ports[0] in self._other_users_ports:
            self._open_port(ports[0], ports[1] or ports[0], PortOwner.OTHERS)  # requested again
        elif self.attached:
            self._forward(ports)
        else:
            self._forwards.append(ports)
            ready = "its job runs" if self._only_ports else "JupyterLab is ready"
            self._note(f"Port {word} will be forwarded as soon as {ready}.")

    def _forward(self, *ports: tuple[int, int]) -> None:
        """Forward ports once Jupyter has reported, over the open tunnel, whose programs listen there."""
        if not ports:
            return
        endpoint, wanted = self._endpoint, [(port, requested or port) for port, requested in ports]
        if endpoint is None or not self._tunnel.alive:
            for port, requested in wanted:
                self._open_port(port, requested, PortOwner.UNKNOWN)
            return
        inbox, node, token = self._inbox, str(self._node), self._access.token
        local_port = self._tunnel.jupyter(endpoint)

        def check() -> None:
            for port, requested in wanted:
                inbox.put(PortChecked(node, port, requested, port_owner(local_port, endpoint, token, port)))

        threading.Thread(target=check, daemon=True).start()

    def _port_checked(self, item: PortChecked) -> None:
        port, requested = item.port, item.requested
        if not self.attached:  # the job was put back into the queue meanwhile
            if (port, requested) not in [(known, number or known) for known, number in self._forwards]:
                self._forwards.append((port, requested))
        elif item.node != str(self._node):
            self._forward((port, requested))  # it runs on another one by now
        elif item.owner is PortOwner.OTHERS:
            self._other_users_ports.add(port)
            numbers = f"{port}" if port == requested else f"{port}:{requested}"
            self._note(
                f"Port {port} of {item.node} belongs to another user's program, so it is not forwarded: that program "
                f"would get what you type there. To forward it all the same, type again: f {numbers}"
            )
        else:
            self._open_port(port, requested, item.owner)

    def _open_port(self, port: int, requested: int, owner: PortOwner) -> None:
        local_port = self._tunnel.forward(port, requested)
        own, plain = self._tunnel.addresses(local_port)
        plain = "" if owner is PortOwner.OTHERS else plain
        if (port, requested) in self._forwarded:
            self._note(f"Port {port} of {self._node} is open already: {own}{f' or {plain}' if plain else ''}")
            return
        self._forwarded.add((port, requested))
        if requested != local_port:
            self._note(port_error(requested))
        self._context.view.show(events.PortForwarded(str(self._node), port, local_port, own, plain))

    # --- the connection

    def _check_connections(self) -> None:
        if self._is_reached and not self._tunnel.alive:
            self._node_lost("the connection to the compute node broke")

    def _login_lost(self) -> None:
        if self._node_connection is not None:
            # JupyterLab keeps what is typed if it knows that it is disconnected, and loses it otherwise
            self._node_connection.close()

    def _login_recovered(self) -> None:
        if self.attached and self._tunnel.alive:
            self._settle_login()
            self._is_reached = True
            self._login.show_restored()
        else:
            super()._login_recovered()

    def _login_restored(self) -> None:
        """Reconnect to the compute node, if the job has started."""
        if self._run:
            self._connect_node(0.0)
        else:
            self._login.show_restored()

    def _node_lost(self, reason: str) -> None:
        """Start to reconnect to the compute node, which is unreachable although the login node is reachable."""
        self._login.show_broken(reason)
        self._connect_node(self._login.next_pause())

    # --- reports of the job

    def _job_started(self, data: Mapping[str, object]) -> None:
        self._connect_node(0.0)

    def _file_written(self, item: FileAppeared) -> None:
        endpoint = Endpoint.from_file(item.data)
        if endpoint != self._endpoint:
            if self._endpoint is not None:
                self._port.spoil()
            self._endpoint, self._is_used = endpoint, False
            self._use_node_connection()

    def _forget_run(self, sentence: str) -> None:
        """Close the connection to the node, because the job will run on another one; the local ports stay."""
        if self._node_connection is not None:
            self._node_connection.close()
        self._tunnel.pause_forwarding()
        self._port.spoil()
        self._node_connection = self._endpoint = None
        self._has_route = self._is_used = self._is_reached = False
        self._sure_until = 0.0  # a request to end the session was for the run that is over
        self._forwarded.clear()
        self._other_users_ports.clear()
        super()._forget_run(sentence)

    # --- the connection to the node

    def _connect_node(self, pause: float) -> None:
        if self._node_connection is not None:
            self._node_connection.close()
        context, launch_target = self._context, self._context.target
        target = NodeTarget(context.host, context.scheduler, self._session, self._job, self._node, self._access.keys)
        route = wanted_route(self._session, launch_target.profile.route)
        self._has_route = self._is_used = self._is_reached = False
        is_first = self._ours and not self.attached  # later, another launcher may use a route that needs calls
        self._node_connection = NodeConnection(
            self._inbox,
            lambda trying: find_route(target, route, launch_target.name, ends_calls=is_first, trying=trying),
            pause,
        )

    def _handle_other(self, item: object) -> None:
        if isinstance(item, PortChecked):
            self._port_checked(item)
        elif isinstance(item, EndChecked):
            self._end_checked(item)
        if not isinstance(item, RouteOpened | RouteSlow | JupyterAnswered | NodeUnconnected):
            return
        if item.by is not self._node_connection:
            return  # from an earlier run of the job, or an earlier connection
        if isinstance(item, RouteSlow):
            self._note(f"Still trying to reach {self._node} with the route “{item.name}”.")
        elif isinstance(item, NodeUnconnected):
            self._node_connection_failed(item.error)
        elif isinstance(item, RouteOpened):
            if item.by.route is not None:
                self._tunnel.run_over(item.by.route)
                self._has_route = True
            self._context.view.show(events.TunnelOpened(str(self._node), item.by.route_name))
            if (
                self._endpoint is None and not self._login.is_reconnecting
            ):  # Jupyter is still starting, which may take a while
                self._login.show_restored()
            self._use_node_connection()
        else:
            self._on_answer(item.local_port)

    def _use_node_connection(self) -> None:
        if not self._node_connection or not self._has_route or self._is_used:
            return
        if self._only_ports and self._session.record.route != "direct":  # with direct, the endpoint has the address
            self._is_used = True
            self._on_answer(0)
        elif self._endpoint:
            if (
                self._node_connection.route_name == "direct"
                and not self._context.scheduler.same_machine
                and self._endpoint.is_private
            ):
                # on the login node, that address may belong to another user, who would receive the token
                raise NodeUnreachable(
                    f"JupyterLab of session {self._session.id} does not listen on an address of {self._node}.",
                    why="It was not launched with --route direct, or found no such address there.",
                    hint="take another route, or none",
                )
            self._is_used = True
            if self._only_ports:
                self._tunnel.address = self._endpoint.address
                self._on_answer(0)
                return
            local_port = self._port.open(self._tunnel, self._endpoint)
            self._node_connection.use(local_port, self._endpoint, self._access.token)

    def _on_answer(self, local_port: int) -> None:
        """Handle that Jupyter answers through the tunnel, or that ports can be forwarded: the first time, or again."""
        self._is_reached = True
        self._login.show_restored()
        if local_port:
            self._port.answered(local_port)
        if self.attached:
            return
        self.attached = True
        dashboard: Sequence[tuple[int, int]] = ()
        if local_port and self._endpoint is not None:
            self._show_ready(local_port, self._endpoint.url(local_port, self._access.token, self._place))
            show_ssh_login(self._context, self._session, local_port)
            dashboard = show_workers(self._context, self._session, str(self._node), self._endpoint)
        self._forward(*dashboard, *self._forwards)
        if self._only_ports:
            self._context.view.show(events.Note(KEYS_PORTS))
        self._attached_status.attach()

    def _show_ready(self, local_port: int, url: str) -> None:
        node = str(self._node)
        self._context.view.show(events.Ready(self._session.id, self._job.id, node, url, local_port, self._ours))

    def _node_connection_failed(self, error: Exception) -> None:
        """Raise the error of a first attempt; retry a connection that has worked as long as the job may run."""
        if self._login.is_reconnecting:
            return  # another connection will be opened
        if isinstance(error, ConnectionLost) or not self._context.host.alive:
            self._login.reconnect("the connection to the cluster broke")
        elif not self.attached and isinstance(error, JupyterSilent) and not self._tunnel.alive:
            self._node_lost("the connection to the compute node broke")
        elif not self.attached or isinstance(error, HostKeyChanged):
            if self._still_runs():
                if self._login.is_silent and not isinstance(error, HostKeyChanged | HostKeyUnknown):
                    self._login.reconnect_silent()
                else:
                    raise error
        elif time.monotonic() > self._reconnect_deadline():
            raise ConnectionGivenUp(error if isinstance(error, LauncherError) else LauncherError(repr(error)))
        else:
            what = error.what if isinstance(error, LauncherError) else repr(error)
            self._node_lost(what)

    def _still_runs(self) -> bool:
        """Query whether the job still runs: if it has ended or was requeued, the failed connection is no error."""
        try:
            answer_within = self._context.host_timing.answer_within
            status = query_status(self._context.host, self._context.scheduler, self._job, answer_within)
        except NoAnswer:
            return True
        if status is None or status.state.ended or status.state.waits:
            self._status_changed(StatusChanged(status))
            return False
        return status.state is not State.COMPLETING  # if it is, its end will be reported soon

    # --- its end

    def _raise_if_finished(self, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished" and self.attached:
            raise Finished("JupyterLab was shut down, and its job has ended.")
        if sentence := idle_message(record):
            raise Finished(sentence)

    def _raise_exit(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        is_cancelled = status is None or status.state is State.CANCELLED
        ended = str(record.get("ended") or "")
        if self.attached and is_cancelled and (machine := cancelled_from(self._context, self._session, ended)):
            raise Finished(
                f"The session was ended by another launch-notebook, on {machine}; job {self._job} has ended."
            )
        error = self._exit_error(record, status)
        if self.attached and isinstance(error, JobCancelled) and error.by_user:
            raise Finished(error.what)
        raise error
