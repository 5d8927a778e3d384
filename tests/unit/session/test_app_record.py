"""What a node says of the programs beside JupyterLab is hostile until checked."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_launcher.session.app_record import AppRecord, read_app_records

GOOD: dict[str, Any] = {"name": "board", "title": "Board", "state": "running", "message": "", "restarts": 2, "odd": 1}


def read(*apps: object) -> tuple[AppRecord, ...]:
    return read_app_records({"version": 1, "apps": list(apps)}, AppRecord)


def test_what_makes_sense() -> None:
    record = AppRecord(name="board", title="Board", state="running", restarts=2)
    assert read(GOOD, GOOD | {"title": ""}) == (record, record.model_copy(update={"title": "board"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("name", name) for name in ("", "../x", "A", "x" * 40, "x\n", "\ud800", 7, True, None, ["board"])),
        *(("state", state) for state in ("odd", ["running"], None)),
    ],
)
def test_what_makes_no_sense_is_left_out(key: str, value: object) -> None:
    assert read(GOOD | {key: value}, GOOD, [GOOD], "odd", None) == read(GOOD)


def test_no_value_steers_the_terminal_or_fills_it() -> None:
    (record,) = read(GOOD | {"title": "\x1b[2J\x1b]0;pwned\x07a\nb\ud800", "message": "x\n" * 1000})
    assert (record.title, len(record.message), "\n" in record.message) == ("a b", 500, False)
    (record,) = read(GOOD | {"log": ["a\x1b[2Jb\nc", 7, "x" * 1000, *["y"] * 1000]})
    assert record.log == ("ab c", "x" * 200, "y", "y")
    assert len(read(*[GOOD] * 1000)) == 20


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("log", "odd", ()),
        ("title", 7, "board"),
        ("message", {}, ""),
        *(("restarts", count, 0) for count in (-3, True, "2", 2.5, 10**400)),
    ],
)
def test_what_is_only_shown_may_be_odd(key: str, value: object, shown: object) -> None:
    assert getattr(read(GOOD | {key: value})[0], key) == shown


@pytest.mark.parametrize("data", [None, [], 7, {}, {"apps": {}}, {"apps": "odd"}])
def test_no_list_of_programs(data: object) -> None:
    assert read_app_records(data, AppRecord) == ()
