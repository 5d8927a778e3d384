"""Decides how much the far end of a channel may send ahead: enough to keep the network busy, and little more.

All channels share one connection, on which data arrive in the order in which they were sent. If a far end may send 2 MB
ahead, as with OpenSSH, the response to a key in a terminal waits behind all of it: 1.6 s at 10 Mbit/s.
"""

from __future__ import annotations

LEAST, FIRST, MOST = 64 * 1024, 512 * 1024, 2 * 1024 * 1024  # bytes; ``MOST`` is what OpenSSH and paramiko always allow
QUEUE = 0.1  # seconds of data that may be queued on the way
PAUSE = 0.3  # seconds without data, beyond a round trip; a packet of 32 KB takes longer only below 0.9 Mbit/s
GRANTS = 8  # window adjustments for one whole window
SMALL = 8 * 1024  # bytes; a far end that has more to send sends packets of at least 16 KB


class ReceiveWindow:
    """The window of one channel: how many bytes the far end may send before they are received.

    While data arrive without a pause, the time for a whole window gives the rate. The next window has what arrives at
    this rate in a round trip plus ``QUEUE``. A window with a pause shows nothing, because the far end may have had
    nothing to send. A lower rate shows nothing either if mostly small packets arrived.
    """

    def __init__(self, round_trip: float, now: float) -> None:
        self._round_trip = round_trip
        self.size = self._allowed = FIRST
        self._began = self._last = now
        self._left = self.size  # bytes until a whole window has arrived
        self._idle = 0.0  # seconds of waiting for small packets

    def received(self, count: int, now: float) -> int:
        """Count received bytes, and return how many more bytes the far end is to be allowed."""
        self._allowed -= count
        self._left -= count
        pause = now - self._last
        self._idle += pause if count < SMALL else 0.0
        if pause > self._round_trip + PAUSE:
            self._begin(now)
        elif self._left <= 0:
            self._adapt(self.size - self._left, now - self._began)
            self._begin(now)
        self._last = now
        grant = self.size - self._allowed
        if grant < self.size // GRANTS:
            return 0
        self._allowed += grant
        return grant

    def _adapt(self, count: int, seconds: float) -> None:
        within = int(count * (self._round_trip + QUEUE) / max(seconds, 1e-6))
        if within < self.size and self._idle > seconds / 2:
            return
        self.size = max(LEAST, min(within, 2 * self.size, MOST))

    def _begin(self, now: float) -> None:
        self._began, self._left, self._idle = now, self.size, 0.0
