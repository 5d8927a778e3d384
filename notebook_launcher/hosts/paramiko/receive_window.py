"""How much the far end of a channel may send ahead: as much as keeps the network busy, and little more.

All channels share one connection, in which whatever was sent first arrives first. A far end that may send 2 MB ahead,
as with OpenSSH, lets a key that is pressed in a terminal wait behind all of it: 1.6 s at 10 Mbit/s.
"""

from __future__ import annotations

LEAST, FIRST, MOST = 64 * 1024, 512 * 1024, 2 * 1024 * 1024  # bytes; ``MOST`` is what OpenSSH and paramiko always allow
QUEUE = 0.1  # seconds of data that may wait on their way
PAUSE = 0.3  # seconds, beside a round trip, without data; a packet of 32 KB takes longer only below 0.9 Mbit/s
GRANTS = 8  # in which a window is given
SMALL = 8 * 1024  # bytes; a far end that has more to send fills its packets, with 16 KB at least


class ReceiveWindow:
    """The window of one channel: the far end may have sent so many bytes that were not received yet.

    While data arrive without a pause, a window full of them shows how many bytes arrive in a second. The next window
    has what arrives within a round trip, and within ``QUEUE``. A window with a pause shows nothing: the far end may
    have had nothing to send. Nor does one that is smaller because most of the time little arrived at once.
    """

    def __init__(self, round_trip: float, now: float) -> None:
        self._round_trip = round_trip
        self.size = self._allowed = FIRST
        self._began = self._last = now
        self._left = self.size  # until a window full has arrived
        self._idle = 0.0  # seconds after which little arrived

    def received(self, count: int, now: float) -> int:
        """Note received bytes, and return how many more bytes the far end is to be allowed."""
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
