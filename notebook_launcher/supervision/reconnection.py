"""The connection to the login node while a session is supervised: noticed when it breaks, and made anew.

The attempts themselves are in ``tunnel.reconnect``; the connection to the compute node is in ``supervision.jupyter``.
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
    """The connection to the login node, with the job watcher that runs over it.

    That it broke is shown once, and so is that it is back. ``new_watcher`` makes a watcher, at the pace of an earlier
    one; ``deadline``: until when reconnecting makes sense (monotonic).
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
        self._only_silent = False  # whether what is being reconnected may come back by itself
        self._pause = 0.0  # before what did not last is made anew
        self._last_attempt = -self._timing.stable_after

    def start(self) -> None:
        """Start the watcher. Raises ``ConnectionLost``."""
        self._watcher.start()

    def close(self) -> None:
        """Stop reconnecting, and close the watcher."""
        self.stop()
        self._watcher.close()

    def stop(self) -> None:
        """Leave a broken connection as it is."""
        if self._reconnection is not None:
            self._reconnection.stop()

    # --- how it is

    @property
    def is_reconnecting(self) -> bool:
        """Whether it is being made anew."""
        return self._reconnection is not None

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard over it for too long."""
        return self._watcher.silent_for > self._timing.silent_after

    @property
    def has_come_back(self) -> bool:
        """Whether a connection that was only silent is heard again, while another one is being made."""
        return self._may_come_back and self._watcher.silent_for < self._timing.silent_after / 2

    def is_lost(self) -> bool:
        """Whether the present connection will not come back by itself."""
        return not self._may_come_back or self._watcher.silent_for > self._timing.lost_after

    @property
    def _may_come_back(self) -> bool:
        return self._only_silent and self._context.host.alive

    # --- what breaks

    def check_silence(self) -> None:
        """Reconnect where it was silent at two checks in a row: after Ctrl-Z and fg, all is on its way."""
        was_silent, self._was_silent = self._was_silent, self.is_silent
        if was_silent and self._was_silent and not self.is_reconnecting:
            self.reconnect_silent()

    def reconnect_silent(self) -> None:
        """Begin to reconnect because nothing is heard; the present connection may come back meanwhile."""
        self.reconnect(f"nothing was heard for {self._watcher.silent_for:.0f} s", only_silent=True)

    def reconnect(self, reason: str, *, only_silent: bool = False) -> None:
        """Begin to reconnect, unless that is under way: the login node is not reached. Of the job this says nothing."""
        self._only_silent = only_silent
        if self._reconnection is None:
            self.show_broken(reason)
            self._reconnection = Reconnection.of_context(
                self._context, deadline=self._deadline(), pause=self.next_pause(), is_lost=self.is_lost
            )

    def watcher_stopped(self, item: WatcherStopped) -> None:
        """Start the watcher anew where the connection stands: some login nodes end commands that run for long."""
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

    # --- what is made anew

    def restart(self) -> bool:
        """Start over the new connection what ran over the old one, and tell whether that worked."""
        self.settle()
        self._restart_watcher()
        return not self.is_reconnecting

    def settle(self) -> None:
        """Stop reconnecting: the connection stands."""
        self.stop()
        self._reconnection = None

    def is_given_up_by(self, reconnection: Reconnection) -> bool:
        """Whether the reconnection that has failed is the present one."""
        return reconnection is self._reconnection

    def _restart_watcher(self) -> None:
        self._watcher.close()
        self._watcher = self._new_watcher(self._watcher.polling)
        try:
            self._watcher.start()
        except HostCommandFailed as error:  # a login node that is just starting up may not run commands yet
            self.reconnect(error.what)

    def next_pause(self) -> float:
        """Return the seconds to wait before something is made anew: none, but for what breaks again and again."""
        now, timing = time.monotonic(), self._timing
        lasted, self._last_attempt = now - self._last_attempt, now
        longer = min(max(timing.remake_pause, 2 * self._pause), timing.longest_reconnect_pause)
        self._pause = 0.0 if lasted > timing.stable_after else longer
        return self._pause

    def show_broken(self, reason: str) -> None:
        """Show that the connection broke, unless that is shown."""
        if self._broken_since is None:
            self._broken_since = time.monotonic()
            self._context.view.show(events.Disconnected(self._job_id, reason))

    def show_restored(self) -> None:
        """Show that the connection is back, where it was shown as broken."""
        if self._broken_since is not None:
            seconds, self._broken_since = time.monotonic() - self._broken_since, None
            self._context.view.show(events.Reconnected(self._job_id, round(seconds, 1)))
