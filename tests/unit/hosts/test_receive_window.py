"""How much a server may send ahead in one channel, beside a network of so many bytes a second."""

from __future__ import annotations

import pytest

from notebook_launcher.hosts.paramiko.receive_window import FIRST, LEAST, MOST, ReceiveWindow

PIECE = 32 * 1024


class Network:
    """A server that always has something to send, and a network with a queue; both in imagined time."""

    def __init__(self, rate: float, round_trip: float) -> None:
        self.rate, self.round_trip, self.now = rate, round_trip, 0.0
        self.window = ReceiveWindow(round_trip, 0.0)
        self._free_at = 0.0  # the network
        self._under_way: list[tuple[float, int]] = []  # when a piece arrives, and its bytes
        self._allowed(round_trip, FIRST)

    def _allowed(self, when: float, count: int) -> None:
        """The server hears at a moment that it may send more, and does."""
        while count:
            piece = min(count, PIECE)
            self._free_at = max(self._free_at, when) + piece / self.rate
            self._under_way.append((self._free_at, piece))
            count -= piece

    def download(self, count: int) -> float:
        """Receive so many bytes, and return the seconds."""
        began = self.now
        while count > 0:
            self.now, piece = self._under_way.pop(0)
            count -= piece
            self._allowed(self.now + self.round_trip, self.window.received(piece, self.now))
        return self.now - began

    @property
    def queue(self) -> float:
        """Seconds for which what another channel sends now waits behind this one's data."""
        return max(0.0, self._free_at - self.now - self.round_trip)


@pytest.mark.parametrize("round_trip", [0.001, 0.03, 0.15])
@pytest.mark.parametrize("rate", [0.25e6, 1.25e6, 12.5e6, 125e6])
def test_the_network_is_kept_busy_with_a_short_queue(rate: float, round_trip: float) -> None:
    network = Network(rate, round_trip)
    network.download(20 * MOST)  # it has found the rate
    seconds = network.download(5 * MOST)
    # a channel carries no more than its window in a round trip, whatever the network could
    assert 5 * MOST / seconds > 0.8 * min(rate, MOST / round_trip)
    assert network.queue < 0.2 or network.window.size == LEAST


def test_a_server_that_sends_now_and_then_may_send_as_much_at_once_as_before() -> None:
    window, now = ReceiveWindow(0.03, 0.0), 0.0
    for _ in range(100):
        now += 2.0
        window.received(1000, now)
    assert window.size == FIRST


def test_a_server_that_sends_a_little_all_the_time_may_send_as_much_at_once_as_before() -> None:
    window, now = ReceiveWindow(0.03, 0.0), 0.0
    for _ in range(2 * FIRST // 1000):
        now += 0.1
        window.received(1000, now)
    assert window.size == FIRST


def test_what_is_allowed_is_never_more_than_the_window_and_all_of_it_is_given_again() -> None:
    window, now, allowed = ReceiveWindow(0.03, 0.0), 0.0, FIRST
    for number in range(2000):
        now += 0.5 if 500 < number < 600 else 0.01
        count = min(allowed, 1 + 7919 * number % PIECE)
        assert count, "the server waits for ever"
        allowed += window.received(count, now) - count
        assert 0 <= allowed <= MOST
    assert LEAST <= window.size <= MOST
