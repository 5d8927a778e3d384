"""A login node that answers every verb of a copy with the bytes that a test gives, in pieces of any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.hosts.base import ByteStream
from tests.doubles import FakeHost


class Answer(ByteStream):
    """The pieces one after the other, whatever is sent; then the end, or a connection that breaks."""

    def __init__(self, pieces: Iterable[bytes], *, breaks: bool = False) -> None:
        self._pieces, self._rest, self._breaks = iter(pieces), b"", breaks
        self.count = 0

    def send(self, data: bytes, /) -> int:
        return len(data)

    def sendall(self, data: bytes, /) -> None:
        pass

    def recv(self, count: int, /) -> bytes:
        assert count > 0
        self._rest = self._rest or next(filter(None, self._pieces), b"")
        data, self._rest = self._rest[:count], self._rest[count:]
        self.count += len(data)
        if not data and self._breaks:
            raise ConnectionResetError
        return data

    def shutdown(self, how: int, /) -> None:
        pass

    def close(self) -> None:
        pass

    def settimeout(self, seconds: float | None, /) -> None:
        pass


class AnsweringHost(FakeHost):
    """Each verb gets this answer; those after the first one get ``then``, if there is one."""

    def __init__(self, *pieces: bytes, breaks: bool = False, then: bytes | None = None) -> None:
        super().__init__(CommandResult(0))
        self._pieces, self._breaks, self._then = pieces, breaks, then
        self.stream_of_answer = Answer(())

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        self.stream_of_answer = Answer(self._pieces, breaks=self._breaks)
        if self._then is not None:
            self._pieces = (self._then,)
        return self.stream_of_answer


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Data in pieces, as a network delivers it."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=5)))
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]
