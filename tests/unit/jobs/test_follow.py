"""A file that grows, read line by line, as it is read on a login node."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.follow import FileLine, GrowingFile, ReadEnded
from tests.doubles import wait_until

pytestmark = pytest.mark.real_time  # files that grow while a real tail reads them


class Reading:
    """A file that is read, and what came of it."""

    def __init__(self, path: Path, first: int, *, follow: bool, noise: str = "") -> None:
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.file = GrowingFile(str(path), first, self._inbox, follow=follow, noise=noise)
        self.file.start(LocalHost())

    def lines(self, count: int) -> list[str]:
        """Wait for so many lines."""
        found = []
        while len(found) < count:
            item = self._inbox.get(timeout=30)
            assert isinstance(item, FileLine), item
            found.append(item.text)
        return found

    def rest(self) -> list[str]:
        """Wait for the end."""
        found = []
        while not isinstance(item := self._inbox.get(timeout=30), ReadEnded):
            assert isinstance(item, FileLine)
            found.append(item.text)
        return found


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "it's a log.txt"
    yield path
    wait_until(lambda: not readers(), what="nobody reads it any more")


def readers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            found += [child] if "tail" in child.name() else []
    return found


@pytest.mark.parametrize(
    ("first", "found"),
    [(1, ["1", "2", "3", "4"]), (3, ["3", "4"]), (-2, ["3", "4"]), (-99, ["1", "2", "3", "4"]), (5, [])],
)
def test_a_file_as_it_is(path: Path, first: int, found: list[str]) -> None:
    path.write_text("1\n2\n3\n4\n")
    assert Reading(path, first, follow=False).rest() == found


@pytest.mark.parametrize(("first", "found"), [(-1, ["2", "noise"]), (-2, ["1", "noise", "2", "noise"]), (3, ["noise"])])
def test_what_is_left_out_does_not_count(path: Path, first: int, found: list[str]) -> None:
    path.write_text("1\nnoise\n2\nnoise")
    assert Reading(path, first, follow=False, noise="^no?ise").rest() == (found if first < 0 else ["2", "noise"])


def test_a_line_that_is_not_whole_yet_is_the_last_one(path: Path) -> None:
    path.write_text("1\n2\nhal")
    assert Reading(path, -1, follow=False).rest() == ["2", "hal"]


def test_no_file(path: Path) -> None:
    assert Reading(path, -200, follow=False).rest() == []


@pytest.mark.real_time
def test_a_file_that_is_not_there_yet_is_waited_for(path: Path) -> None:
    reading = Reading(path, -200, follow=True)
    time.sleep(0.3)
    path.write_text("one\n")
    assert reading.lines(1) == ["one"]
    with path.open("a") as file:
        file.write("two\n")
    assert reading.lines(1) == ["two"]
    reading.file.close()


def test_begun_anew_it_goes_on_where_it_was(path: Path) -> None:
    path.write_text("".join(f"{number}\n" for number in range(100)))
    reading = Reading(path, -3, follow=True)
    assert reading.lines(3) == ["97", "98", "99"]
    reading.file.close()
    with path.open("a") as file:
        file.write("100\n101\n")
    reading.file.start(LocalHost())  # as over a new connection
    assert reading.lines(2) == ["100", "101"]
    reading.file.close()


def test_begun_anew_after_it_was_cut_short(path: Path) -> None:
    """As Slurm does with a requeued job's own ``--output``."""
    path.write_text("".join(f"{number}\n" for number in range(100)))
    reading = Reading(path, 1, follow=True)
    reading.lines(100)
    reading.file.close()
    path.write_text("a second run\n")
    reading.file.start(LocalHost())
    assert reading.lines(1) == ["a second run"]
    reading.file.close()


def test_begun_anew_a_line_without_an_end_is_not_read_again(path: Path) -> None:
    path.write_text("1\n2\nhal")
    reading = Reading(path, 1, follow=False)
    assert reading.rest() == ["1", "2", "hal"]
    reading.file.start(LocalHost())
    assert reading.rest() == []
