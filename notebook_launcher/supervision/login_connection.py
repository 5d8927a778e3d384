"""The connection to the login node during supervision: detects when it breaks, and reconnects.

``tunnel.reconnect`` makes the attempts; the connection to the compute node is in ``supervision.jupyter``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from notebook_launcher.core import events
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.jobs.polling import Polling
from notebook_launcher.jobs.watcher import JobWatcher, WatcherStopped
from notebook_launcher.session.context import Context
from notebook_launcher.tunnel.reconnect import Reconnection


class LoginConnection:
    """The connection to the login node, with the job watcher that uses it.

    Each break is shown once, and so is each recovery. ``new_watcher`` makes a watcher with the polling state of an
    earlier one; ``deadline`` returns until when reconnecting makes sense (monotonic).
    """

    def __init__(
        self,
        context: Context,
        job_id: str,
        new_watcher: Callable[[Polling | None], JobWatcher],
        deadline: Callable[[], float],
    ) -> None:
        self._context, self._job_id, self._timing = context, job_id, context.timing
        self._new_watcher, self._deadline = new_watcher, deadline
        self._watcher = new_watcher(None)
        self._watcher_started = -self._timing.stable_after
        self._reconnection: Reconnection | None = None
        self._broken_since: float | None = None
        self._was_silent = False
        self._only_silent = False  # whether the connection being replaced may recover by itself
        self._pause = 0.0  # before a connection that did not last is replaced
        self._last_attempt = -self._timing.stable_after

    def start(self) -> None:
        """Start the watcher. Raises ``ConnectionLost``."""
        self._watcher.start()

    def close(self) -> None:
        """Stop reconnecting, and close the watcher."""
        self.stop()
        self._watcher.close()

    def stop(self) -> None:
        """Stop reconnecting."""
        if self._reconnection is not None:
            self._reconnection.stop()

    # --- its state

    @property
    def is_reconnecting(self) -> bool:
        """Whether a reconnection is under way."""
        return self._reconnection is not None

    @property
    def is_silent(self) -> bool:
        """Whether nothing was received for too long."""
        return self._watcher.silent_for > self._timing.silent_after

    @property
    def has_recovered(self) -> bool:
        """Whether a connection that was only silent has recovered, while another one is being opened."""
        return self._may_recover and self._watcher.silent_for < self._timing.silent_after / 2

    def is_lost(self) -> bool:
        """Whether the current connection will not recover by itself."""
        return not self._may_recover or self._watcher.silent_for > self._timing.lost_after

    @property
    def _may_recover(self) -> bool:
        return self._only_silent and self._context.host.alive

    # --- when it breaks

    def check_silence(self) -> None:
        """Reconnect after two silent checks in a row: right after Ctrl-Z and fg, data may still be waiting."""
        was_silent, self._was_silent = self._was_silent, self.is_silent
        if was_silent and self._was_silent and not self.is_reconnecting:
            self.reconnect_silent()

    def reconnect_silent(self) -> None:
        """Start to reconnect because nothing is received; the current connection may recover meanwhile."""
        self.reconnect(f"nothing was heard for {self._watcher.silent_for:.0f} s", only_silent=True)

    def reconnect(self, reason: str, *, only_silent: bool = False) -> None:
        """Start to reconnect, unless that is under way, because the login node is unreachable; the job may be fine."""
        self._only_silent = only_silent
        if self._reconnection is None:
            self.show_broken(reason)
            self._reconnection = Reconnection.of_context(
                self._context, deadline=self._deadline(), pause=self.next_pause(), is_lost=self.is_lost
            )

    def watcher_stopped(self, item: WatcherStopped) -> None:
        """Restart the watcher if the connection is open, because some login nodes kill long-running commands."""
        if item.watcher is not self._watcher:
            return
        if item.connection:
            self.reconnect(item.reason)
            return
        lasted, self._watcher_started = time.monotonic() - self._watcher_started, time.monotonic()
        if self.is_reconnecting or lasted < self._timing.stable_after or not self._context.host.alive:
            self.reconnect(item.reason)
        else:
            self._restart_watcher()

    # --- after reconnecting

    def restart(self) -> bool:
        """Restart the watcher over the new connection, and return whether that worked."""
        self.settle()
        self._restart_watcher()
        return not self.is_reconnecting

    def settle(self) -> None:
        """Stop reconnecting, because the connection is open."""
        self.stop()
        self._reconnection = None

    def is_present(self, reconnection: Reconnection) -> bool:
        """Whether this reconnection is the current one."""
        return reconnection is self._reconnection

    def _restart_watcher(self) -> None:
        self._watcher.close()
        self._watcher = self._new_watcher(self._watcher.polling)
        try:
            self._watcher.start()
        except HostCommandFailed as error:  # a login node that is just starting up may not run commands yet
            self.reconnect(error.what)

    def next_pause(self) -> float:
        """Return the seconds to wait before the next reconnection: 0, unless the connection breaks again and again."""
        now, timing = time.monotonic(), self._timing
        lasted, self._last_attempt = now - self._last_attempt, now
        longer = min(max(timing.remake_pause, 2 * self._pause), timing.longest_reconnect_pause)
        self._pause = 0.0 if lasted > timing.stable_after else longer
        return self._pause

    def show_broken(self, reason: str) -> None:
        """Show that the connection broke, once."""
        if self._broken_since is None:
            self._broken_since = time.monotonic()
            self._context.view.show(events.Disconnected(self._job_id, reason))

    def show_restored(self) -> None:
        """Show that the connection is back, if it was shown as broken."""
        if self._broken_since is not None:
            seconds, self._broken_since = time.monotonic() - self._broken_since, None
            self._context.view.show(events.Reconnected(self._job_id, round(seconds, 1)))
