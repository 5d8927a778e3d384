"""Documents that several people edit together are saved by the server, when the session is about to end.

The rooms are stand-ins of those of jupyter-collaboration, in the two forms that it has had: they save a while after the
last change, and each change begins to wait anew.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.jobscripts.written_usage import loaded

saving = loaded("panel_saving")


class Document:
    """``is_known``: whether somebody has noted in it whether it has changed; not at first, in version 1."""

    def __init__(self, dirty: bool) -> None:
        self._dirty, self.is_known = dirty, True

    @property
    def dirty(self) -> bool:
        if not self.is_known:
            raise KeyError("dirty")
        return self._dirty

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        self._dirty, self.is_known = dirty, True


class Room:
    """Of jupyter-collaboration 1 to 3. ``fails``: how often the disk is full."""

    def __init__(self, path: str = "a.ipynb", *, dirty: bool = True, fails: int = 0, delay: float | None = 60) -> None:
        self._file, self._last_modified = SimpleNamespace(path=path), 0
        self._document, self._save_delay, self._saving_document = Document(dirty), delay, None
        self.fails, self.goes_on, self.tries = fails, False, 0

    def _on_document_change(self, _target: str, _event: object) -> None:
        if self._saving_document is not None:
            self._saving_document.cancel()
        self._saving_document = asyncio.get_running_loop().create_task(self._maybe_save())

    async def _maybe_save(self) -> None:
        assert self._save_delay is not None
        await asyncio.sleep(self._save_delay)
        self.tries += 1
        if self.tries > self.fails:
            self._last_modified += 1
            self._document.dirty = self.goes_on


class NewRoom(Room):
    """Since 4.0: what a change begins is left out where nobody wants autosave."""

    def _save_to_disc(self) -> None:
        super()._on_document_change("", None)

    def _on_document_change(self, _target: str, _event: object) -> None:
        pass


def server(*rooms: object) -> Any:
    extension = SimpleNamespace(ywebsocket_server=SimpleNamespace(rooms=dict(enumerate(rooms))))
    found = {"jupyter_server_ydoc": [extension], "jupyterlab": [SimpleNamespace()]}
    return saving.SharedDocuments(SimpleNamespace(extension_manager=SimpleNamespace(extension_apps=found)))


@pytest.mark.parametrize("kind", [Room, NewRoom])
@pytest.mark.parametrize("goes_on", [False, True], ids=["", "is edited all the time"])
def test_what_has_changed_is_saved_at_once(kind: type[Room], goes_on: bool) -> None:
    async def act() -> None:
        room, unchanged, never = kind(fails=1), kind(dirty=False), kind(delay=None)
        room.goes_on, room._document.is_known = goes_on, goes_on
        room._saving_document = asyncio.get_running_loop().create_task(room._maybe_save())
        shared = server(room, unchanged, SimpleNamespace(), never)
        assert shared.has_changed()
        assert await shared.save() == []
        assert (room._last_modified, unchanged.tries, never.tries, room._save_delay) == (1, 0, 0, 60)
        assert shared.has_changed() == goes_on

    asyncio.run(act())


def test_what_cannot_be_saved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "SHARED_WITHIN", 0.5)
    rooms = Room("full.ipynb", fails=99), Room("kept.ipynb")
    assert asyncio.run(server(*rooms).save()) == ["full.ipynb"]
    assert rooms[0]._save_delay == 60


class SlowRoom(Room):
    """Writing takes these seconds, one time after the other; what is broken off has written nothing."""

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self.seconds = iter(seconds)

    async def _maybe_save(self) -> None:
        await asyncio.sleep(next(self.seconds))
        await super()._maybe_save()


def test_two_savings_at_once_leave_a_room_as_it_was() -> None:
    """The job may be ended while somebody waits for what is being saved; what is typed meanwhile is saved, too."""

    async def act() -> None:
        room = SlowRoom(0.02, 0.3, 0.02, 0.02)
        shared = server(room)
        first = asyncio.ensure_future(shared.save())
        await asyncio.sleep(0.01)
        assert await asyncio.gather(first, shared.save()) == [[], []]
        assert (room._save_delay, room.tries, list(room.seconds)) == (60, 2, [0.02, 0.02])  # neither was broken off

    asyncio.run(act())


@pytest.mark.parametrize("app", [SimpleNamespace(), SimpleNamespace(extension_manager=7)])
def test_where_there_are_no_rooms_nothing_is_saved(app: object) -> None:
    shared = saving.SharedDocuments(app)
    assert not shared.has_changed()
    assert asyncio.run(shared.save()) == []


def test_rooms_of_another_shape_are_left_alone() -> None:
    assert not server(SimpleNamespace(_save_delay=1)).has_changed()


def test_a_room_of_another_shape_does_not_keep_the_others_from_being_saved() -> None:
    waits = SimpleNamespace(done=lambda: False)
    odd = SimpleNamespace(_save_delay=1), SimpleNamespace(_save_delay=1, _saving_document=waits)
    room = Room()
    shared = server(odd[0], room, odd[1])
    assert shared.has_changed()
    assert asyncio.run(shared.save()) == [saving.UNNAMED]
    assert room.tries == 1


class Page:
    """A page's connection, which answers a ping, or not."""

    def __init__(self, saver: Any, *, is_there: bool = True) -> None:
        self._saver, self._is_there = saver, is_there

    def ping(self, _data: bytes) -> None:
        if self._is_there:
            time.sleep(0.001)  # as long as an answer takes at least
            self._saver.heard(self)


def saver_of_pages(folder: Path, *are_there: bool) -> tuple[Any, list[dict[str, bool]]]:
    """Return what has pages save, and the list of what they are told; ``are_there``: which of them answer a ping."""
    told: list[dict[str, bool]] = []
    logger = SimpleNamespace(emit=lambda *, schema_id, data: told.append(data))
    saver = saving.Saving(SimpleNamespace(event_logger=logger), folder, None)
    saver.pages = {Page(saver, is_there=is_there) for is_there in are_there}
    return saver, told


def test_a_page_whose_network_broke_is_not_waited_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is not told for minutes. One that answers a ping and nothing else is there: its tab may sleep."""
    monkeypatch.setattr(saving, "ANSWERS_WITHIN", 0.1)
    saver, _told = saver_of_pages(tmp_path, True, False)
    (gone,) = (page for page in saver.pages if not page._is_there)
    assert asyncio.run(saver.save_now()) == {"pages": 1, "answered": 0, "unsaved": []}
    assert len(saver.pages) == 1
    saver.heard(gone)
    assert len(saver.pages) == 2


@pytest.mark.parametrize("ends", [False, True], ids=["asked twice", "the job is ended meanwhile"])
def test_who_asks_does_not_take_the_answers_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The first of two pages answers before the second request, and the other one afterwards."""
    monkeypatch.setattr(saving, "ANSWERS_WITHIN", 20)

    async def act() -> None:
        saver, told = saver_of_pages(tmp_path, True, True)
        first = asyncio.ensure_future(saver.save_now())
        while len(told) < 1:
            await asyncio.sleep(0)
        saver.report("one", ["full.ipynb"])
        stopped: list[int] = []
        later = saver._end(lambda number, _frame: stopped.append(number), 15) if ends else saver.save_now()
        second = asyncio.ensure_future(later)
        while len(told) < 2:
            await asyncio.sleep(0)
        saver.report("other", [])
        assert await first == {"pages": 2, "answered": 2, "unsaved": ["full.ipynb"]}
        assert not second.done()
        saver.report("one", [])
        answer = await second
        assert stopped == [15] if ends else answer == {"pages": 2, "answered": 2, "unsaved": []}
        assert saver.requests == []

    asyncio.run(act())
