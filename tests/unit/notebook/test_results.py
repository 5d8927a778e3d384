"""Fetching a run's results where things go wrong: what breaks midway, what lies, and what is in the way."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from notebook_launcher.cli.views import runs
from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, Interrupted
from notebook_launcher.core.interrupts import Interrupts, Kind
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.notebook import results as results_module
from notebook_launcher.transfer import protocol
from notebook_launcher.transfer.protocol import Reply
from tests.unit.notebook.conftest import FinishedRun

pytestmark = pytest.mark.real_time

Fetching = results_module._Fetching


def breaks_after(
    monkeypatch: pytest.MonkeyPatch, origin: str, error: BaseException, then: Callable[[], None] = lambda: None
) -> None:
    """Once a file has come, the fetch breaks; only the first time."""
    inner, broken = Fetching._streamed, list[str]()

    def streamed(self: Fetching, *words: object) -> object:
        for one in inner(self, *words):  # type: ignore[arg-type]
            yield one
            if one[0] == origin and not broken:
                broken.append(origin)
                then()
                raise error

    monkeypatch.setattr(Fetching, "_streamed", streamed)


def names(made: FinishedRun) -> list[str]:
    return sorted(path.name for path in made.here.iterdir())


# --- what breaks midway --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_a_fetch_that_breaks_midway_leaves_no_stale_notebook(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    made.ends("stopped")
    if not is_first:
        made.fetch()
    made.writes("work/train.ipynb", "grown")
    made.writes("work/z.bin", "z")
    breaks_after(monkeypatch, "work/train.ipynb", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        made.fetch()
    assert made.text("train.ipynb") == "grown"
    made.writes("work/train.ipynb", "the final one")
    made.ends("finished")
    assert made.fetch().files == ("train.ipynb", "usage.csv", "z.bin")
    assert made.text("train.ipynb") == "the final one" and "train.fetched.ipynb" not in names(made)


def test_a_connection_that_breaks_is_made_anew_and_brings_the_last_state(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks_after(
        monkeypatch,
        "work/train.ipynb",
        ConnectionLost("gone"),
        lambda: made.writes("work/train.ipynb", "the final one"),
    )
    made.fetch()
    assert made.text("train.ipynb") == "the final one"
    assert names(made) == ["run.json", "train.ipynb", "usage.csv"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_launcher_that_is_killed_while_a_file_gets_its_place_takes_it_for_no_file_of_the_users(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    made.fetch()
    made.writes("work/train.ipynb", "grown")
    inner = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if target.name == "train.ipynb":
            if when == "after":
                inner(self, target)
            raise KeyboardInterrupt
        return inner(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            made.fetch()
    assert made.fetch().files == ("train.ipynb", "usage.csv") and made.text("train.ipynb") == "grown"
    made.writes("work/train.ipynb", "the final one")
    made.fetch()
    assert made.text("train.ipynb") == "the final one" and "train.fetched.ipynb" not in names(made)


def test_what_is_away_for_a_moment_is_not_forgotten(made: FinishedRun) -> None:
    made.writes("work/model.txt", "1")
    made.fetch()
    (made.directory / "work" / "earlier-1").mkdir()
    (made.directory / "work" / "train.ipynb").rename(made.directory / "work" / "earlier-1" / "train.ipynb")
    (made.directory / "work" / "model.txt").unlink()
    assert made.fetch().files == ("earlier-1/train.ipynb", "usage.csv")
    made.writes("work/train.ipynb", "the second run")
    made.writes("work/model.txt", "22")
    made.fetch()
    assert (made.text("train.ipynb"), made.text("model.txt")) == ("the second run", "22")


def test_two_fetches_at_once_take_turns(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, began, free, done = Fetching._wanted, threading.Event(), threading.Event(), list[events.ResultsFetched]()

    def wanted(self: Fetching, found: dict[str, results_module._RemoteFile]) -> list[str]:
        seen = inner(self, found)
        if not began.is_set():
            began.set()
            free.wait(20)
        return seen

    monkeypatch.setattr(Fetching, "_wanted", wanted)
    first = threading.Thread(target=lambda: done.append(made.fetch()))
    first.start()
    assert began.wait(20)
    second = threading.Thread(target=lambda: done.append(made.fetch()))
    second.start()
    deadline = time.monotonic() + 20
    while not made.shown and time.monotonic() < deadline:
        time.sleep(0.02)
    assert made.shown == [events.Querying("another launch-notebook fetches into the same folder")] and not done
    made.writes("work/train.ipynb", "grown")
    free.set()
    for thread in (first, second):
        thread.join(20)
    made.writes("work/train.ipynb", "the final one")
    made.fetch()
    assert len(done) == 2 and made.text("train.ipynb") == "the final one"
    assert names(made) == ["run.json", "train.ipynb", "usage.csv"]


def test_a_notebook_can_be_fetched_alone_before_its_job_has_ended(made: FinishedRun) -> None:
    (made.directory / "exit.json").unlink()
    made.writes("work/model.bin", b"m" * 1000)
    assert made.fetch_notebook() and names(made) == ["run.json", "train.ipynb"]
    made.ends("finished")
    assert made.fetch().files == ("train.ipynb", "model.bin", "usage.csv") and made.record["cause"] == "finished"
    assert made.fetch_notebook() and made.fetch().files == ("train.ipynb", "model.bin", "usage.csv")


def test_a_notebook_that_would_take_long_is_not_fetched_alone(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    made.writes("work/train.ipynb", b" " * (results_module.MOST_EARLY + 1))
    assert not made.fetch_notebook()
    (made.work / "train.ipynb").unlink()  # as of a run as a script
    assert not made.fetch_notebook() and not made.here.exists()
    made.writes("work/train.ipynb", "{}")
    with FileLock(local_state.lock_file("fetching", str(made.here.resolve()))), pytest.raises(CopyFailed):
        made.fetch_notebook()
    monkeypatch.setattr(results_module, "EARLY_WITHIN", -1.0)
    with pytest.raises(CopyFailed, match="takes long"):
        made.fetch_notebook()
    assert not made.shown and names(made) == []


def test_a_notebook_alone_is_not_tried_again(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "reconnect", lambda *_: pytest.fail("it reconnects"))
    breaks_after(monkeypatch, "work/train.ipynb", ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        made.fetch_notebook()


def test_a_folder_that_another_launcher_holds_is_not_waited_for_without_end(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    monkeypatch.setattr(results_module, "WAIT", 0.3)
    made.here.mkdir()
    held = FileLock(local_state.lock_file("fetching", str(made.here.resolve())))
    with held, pytest.raises(CopyFailed, match="Another launch-notebook"):
        made.fetch()


def test_parts_of_a_launcher_that_was_killed_are_taken_away_a_day_later(made: FinishedRun) -> None:
    made.fetch()
    for name, age in ((".part-abcdefgh", 90000), (".part-ijklmnop", 3600)):
        (made.here / name).mkdir()
        (made.here / name / "1").write_text("x")
        moment = time.time() - age
        os.utime(made.here / name, (moment, moment))
    (made.here / ".part-notours!").write_text("a file")
    made.fetch()
    assert ".part-abcdefgh" not in names(made) and {".part-ijklmnop", ".part-notours!"} <= set(names(made))


# --- Ctrl-C, and what takes long -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["end", "leave"])
def test_ctrl_c_and_a_hang_up_leave_a_fetch_and_keep_what_has_come(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    made.interrupts.arrive("end")  # that which ended the job: what there is is fetched after it
    made.writes("work/z.bin", "z" * 3_000_000)
    inner = Fetching._report_progress

    def pressed(self: Fetching, count: int) -> None:
        inner(self, count)
        if self._bytes > 500_000:
            made.interrupts.arrive(kind)

    monkeypatch.setattr(Fetching, "_report_progress", pressed)
    with pytest.raises(Interrupted) as raised:
        made.fetch()
    assert raised.value.exit_code == 130 and "launch-notebook results --cluster practice" in raised.value.hint
    assert made.text("usage.csv") == "time\n1\n" and "z.bin" not in names(made)
    monkeypatch.setattr(Fetching, "_report_progress", inner)
    made.interrupts = Interrupts()  # those of the next command
    assert "z.bin" in made.fetch().files


def test_ctrl_c_leaves_a_fetch_of_which_nothing_comes(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_script", lambda: b"sleep 60")
    threading.Timer(0.5, lambda: made.interrupts.arrive("end")).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        made.fetch()
    assert time.monotonic() - began < 30


def test_of_a_large_fetch_it_is_said_how_far_it_is(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "REPORT_EVERY", 0.0)
    made.writes("work/small.bin", b"x" * 1000)
    made.fetch()
    assert made.shown == []
    made.writes("work/large.bin", b"x" * (20 << 20))
    made.fetch()
    said = [event.text for event in made.shown if isinstance(event, events.Querying)]
    assert "fetching the results: 10 of 20 MiB" in said


# --- what is told --------------------------------------------------------------------------------------------


def test_what_was_seen_and_does_not_come_is_told(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    made.writes("work/gone.bin", "x")
    made.writes("work/grown.bin", "x")
    monkeypatch.setattr(results_module, "MOST_BYTES", 1000)
    inner = Fetching._wanted

    def wanted(self: Fetching, found: dict[str, results_module._RemoteFile]) -> list[str]:
        seen = inner(self, found)
        (made.directory / "work" / "gone.bin").unlink()
        made.writes("work/grown.bin", "x" * 2000)
        return seen

    monkeypatch.setattr(Fetching, "_wanted", wanted)
    fetched = made.fetch()
    assert fetched.files == ("train.ipynb", "usage.csv")
    assert set(fetched.not_fetched) == {f"{made.work}/{name} (1 bytes)" for name in ("gone.bin", "grown.bin")}


def test_a_sent_file_that_goes_while_it_is_looked_at_spoils_nothing(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.writes("work/data.csv", "1")
    made.sent = ("data.csv",)
    made.writes("sent.json", json.dumps({"files": {"data.csv": "x"}}))
    inner = Fetching._unchanged

    def unchanged(self: Fetching, found: dict[str, results_module._RemoteFile]) -> list[str]:
        (made.directory / "work" / "data.csv").unlink()
        return inner(self, found)

    monkeypatch.setattr(Fetching, "_unchanged", unchanged)
    assert made.fetch().files == ("train.ipynb", "usage.csv")


def test_a_sent_file_that_has_become_too_large_is_not_read_on_the_login_node(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_module, "MOST_BYTES", 1000)
    made.writes("work/data.csv", "x" * 1001)
    made.sent = ("data.csv",)
    inner, asked = results_module.call_verb, list[str]()

    def ask(host: LocalHost, verb: str, *words: str, **others: object) -> Reply:
        asked.append(verb)
        return inner(host, verb, *words, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(results_module, "call_verb", ask)
    assert made.fetch().not_fetched == (f"{made.work}/data.csv (1001 bytes)",) and asked == ["results"]


def left_lines(left: Sequence[str]) -> list[str]:
    told = events.ResultsFetched("s", "train.ipynb", "runs/t", ("train.ipynb",), tuple(left), True)
    return runs.results_text(told)[1]


def test_no_command_is_made_of_a_name_that_cannot_be_typed(made: FinishedRun) -> None:
    made.writes("work/a\nb", "odd")
    left = made.fetch().not_fetched
    assert left == (f"{made.work}/a\\nb (3 bytes)",)
    assert left_lines(left)[-1] == (
        f"  No command can name them. Rename what you need in {made.directory}/work there, and fetch it anew."
    )
    assert left_lines([*left, "/s/work/big (1.0 GiB)"])[-1].endswith("copy login:/s/work/big .")


def test_a_change_within_the_same_second_is_seen(made: FinishedRun) -> None:
    for content, moment in (("aaaa", 1000.25), ("bbbb", 1000.75)):
        made.writes("work/train.ipynb", content)
        os.utime(made.directory / "work" / "train.ipynb", (moment, moment))
        made.fetch()
        assert made.text("train.ipynb") == content


@pytest.mark.parametrize(
    "note",
    [
        '{"parameters": {"RATE": NaN, "MOST": [1e999, -Infinity]}}',
        '{"parameters": {"RATE": "nan", "MOST": ["inf", "-inf"]}}',
    ],
)
def test_numbers_that_json_has_none_of_stand_as_text(made: FinishedRun, note: str) -> None:
    made.writes("sent.json", note)
    made.fetch()
    record = json.loads(made.text("run.json"), parse_constant=pytest.fail)
    assert record["parameters"] == {"RATE": "nan", "MOST": ["inf", "-inf"]}


@pytest.mark.parametrize("note", ['{"a": "\\ud800"}', '{"a": ' + "[" * 800 + "]" * 800 + "}"])
def test_a_note_that_is_odd_spoils_nothing(made: FinishedRun, note: str) -> None:
    made.writes("image.json", note)
    assert made.fetch().files == ("train.ipynb", "usage.csv") and made.record["session"]
