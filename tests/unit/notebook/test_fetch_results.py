"""Fetching what a run has made, from a session on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_launcher.cli.views import runs
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, Interrupted
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.base import ByteStream, NoPrompts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.notebook import results as results_module
from notebook_launcher.notebook.results import MOST_FILES, fetch_results, results_folder
from notebook_launcher.session.record import Session
from notebook_launcher.transfer import protocol
from tests.doubles import FakeHost, wait_until
from tests.unit.notebook.conftest import FinishedRun
from tests.unit.supervision.fake_login import SESSION_ID
from tests.unit.transfer.answering_host import Answer

pytestmark = pytest.mark.real_time


def test_what_a_run_has_made_comes_into_one_folder_for_this_user_alone(made: FinishedRun) -> None:
    made.writes("work/figures/loss.png", b"\x89PNG")
    made.writes("work/__pycache__/helper.pyc", b"no")
    made.writes("image.json", '{"digest": "abc"}')
    made.writes("sent.json", '{"parameters": {"EPOCHS": 1}, "cells": 9, "to": "notebook", "files": {}}')
    old = os.umask(0o000)
    try:
        fetched = made.fetch()
    finally:
        os.umask(old)
    assert (
        fetched.files == ("train.ipynb", "figures/loss.png", "usage.csv")
        and fetched.complete
        and not fetched.not_fetched
    )
    assert made.record["parameters"] == {"EPOCHS": 1} and made.record["image"] == {"digest": "abc"}
    assert made.record["cause"] == "finished"
    files = [path for path in made.here.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600} and made.here.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in files) == ["loss.png", "run.json", "train.ipynb", "usage.csv"]


def test_fetching_again_brings_only_what_is_new(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    made.ends("stopped")
    first = made.fetch()
    streamed: list[str] = []
    inner = results_module._Fetching._streamed

    def noting(self: results_module._Fetching, wanted: list[str], *others: object) -> object:
        streamed.extend(wanted)
        return inner(self, wanted, *others)

    monkeypatch.setattr(results_module._Fetching, "_streamed", noting)
    assert made.fetch() == first and [name for name in streamed if not name.endswith(".json")] == []
    made.writes("work/train.ipynb", '{"cells": [1]}')
    made.writes("work/out.csv", "a\n")
    made.ends("finished")
    again = made.fetch()
    assert again.complete and again.files == ("train.ipynb", "out.csv", "usage.csv")
    assert made.text("train.ipynb") == '{"cells": [1]}'


def test_a_file_that_was_changed_here_is_left_and_the_new_one_put_beside_it(made: FinishedRun) -> None:
    made.fetch()
    (made.here / "train.ipynb").write_text("mine")
    assert made.fetch().files[0] == "train.ipynb" and made.text("train.ipynb") == "mine"  # nothing new there
    made.writes("work/train.ipynb", "second")
    assert "train.fetched.ipynb" in made.fetch().files
    assert (made.text("train.ipynb"), made.text("train.fetched.ipynb")) == ("mine", "second")
    made.writes("work/train.ipynb", "the third")
    made.fetch()
    assert (made.text("train.ipynb"), made.text("train.fetched.ipynb")) == ("mine", "the third")
    (made.here / "train.fetched.ipynb").write_text("mine, too")
    made.writes("work/train.ipynb", "and the fourth")
    made.fetch()
    assert made.text("train.fetched.ipynb") == "mine, too" and made.text("train.fetched-2.ipynb") == "and the fourth"


def test_what_was_sent_does_not_come_back_unless_it_was_changed(made: FinishedRun) -> None:
    files = {"helper.py": b"x = 1\n", "data.csv": b"1\n"}
    for name, content in files.items():
        made.writes(f"work/{name}", content)
    made.sent = tuple(files)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    made.writes("sent.json", json.dumps({"files": digests}))
    assert made.fetch().files == ("train.ipynb", "usage.csv")
    made.writes("work/data.csv", "2\n")
    assert made.fetch().files == ("train.ipynb", "data.csv", "usage.csv")


def test_names_and_links_from_the_cluster_lead_nowhere(made: FinishedRun, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (made.directory / "work" / "link").symlink_to(secret)
    made.writes("work/run.json", "not yours")
    made.writes("work/usage.csv", "nor this")
    made.writes("work/a\nb", "odd")
    made.writes("work/\x1b[31mred", "odd")
    made.writes(b"work/\xff".decode(errors="surrogateescape"), "odd")
    (made.here / "out").mkdir(parents=True)
    (made.here / "elsewhere").mkdir()
    (made.here / "sub").symlink_to(made.here / "elsewhere")  # a link of the user's own is not written through
    made.writes("work/sub/x", "x")
    fetched = made.fetch()
    assert set(fetched.files) == {"train.ipynb", "usage.csv", "run.fetched.json", "usage.fetched.csv"}
    assert made.record["session"] == SESSION_ID and made.text("usage.csv") == "time\n1\n"
    assert len(fetched.not_fetched) == 4 and not any(
        character in "".join(fetched.not_fetched) for character in "\n\x1b"
    )
    assert list((made.here / "elsewhere").iterdir()) == []
    assert not any(path.read_text(errors="replace") == "secret" for path in made.here.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "./x", "a//x", "", "x\0y", "-".join(["long"] * 60)])
def test_a_hostile_listing_names_nothing_outside(made: FinishedRun, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert results_module._name(f"work/{name}") is None


def test_a_record_of_what_was_fetched_that_was_tampered_with_is_not_believed(made: FinishedRun) -> None:
    made.fetch()
    record = made.record
    kept = {"name": "../../x", "sha256": "0", "bytes": 1, "time": "1"}
    record["fetched"] = {"work/train.ipynb": kept, "usage.csv": 7, "work/y": {"odd": 1}}
    (made.here / "run.json").write_text(json.dumps(record))
    assert made.fetch().files == ("train.ipynb", "usage.csv")


def test_what_is_too_much_is_told_with_its_path(made: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "MOST_BYTES", 1000)
    monkeypatch.setattr(results_module, "MOST_FILES", 4)
    made.writes("work/model.bin", b"x" * 1001)
    left = made.fetch().not_fetched
    assert left == (f"{made.work}/model.bin (1001 bytes)",)
    for number in range(5):
        made.writes(f"work/{number}", "x")
    fetched = made.fetch()
    assert len(fetched.files) == 4 and "more than 4 files" in fetched.not_fetched[-1] and MOST_FILES == 1000


class DeadNetwork(FakeHost):
    """A connection that falls silent at one of these calls, in which Ctrl-C is pressed."""

    def __init__(self, interrupts: Interrupts, at: str) -> None:
        super().__init__()
        self.interrupts, self.at = interrupts, at
        self.alive = at != "reconnect"
        self.ended = threading.Event()
        self.replaces: list[bool] = []

    def fall_silent(self) -> None:
        self.interrupts.arrive("end")
        assert self.ended.wait(20)
        raise ConnectionLost("The connection to login is lost.")

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        self.interrupts.arrive("end")
        assert self.ended.wait(20)
        self.replaces.append(replace())

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        if self.at == "open":
            self.fall_silent()
        if self.at == "broken":
            self.interrupts.arrive("end")
            raise ConnectionLost("The connection to login is lost.")
        return Silent()

    def run(self, *_: object, **__: object) -> CommandResult:  # type: ignore[override]
        self.fall_silent()
        return CommandResult(0)


class Silent(Answer):
    """A stream over which nothing comes."""

    def __init__(self) -> None:
        super().__init__(())

    def recv(self, count: int, /) -> bytes:
        raise TimeoutError


@pytest.mark.parametrize("at", ["reconnect", "open", "test", "broken"])
def test_ctrl_c_ends_it_at_once_on_a_dead_network(made: FinishedRun, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "TEST_AFTER", 0.0)
    context = made.context
    context.host = host = DeadNetwork(made.interrupts, at)
    context.prompts = CountedPrompts(NoPrompts())
    began = time.monotonic()
    try:
        with pytest.raises(Interrupted) as caught:
            fetch_results(context, made.session, made.here)
        assert time.monotonic() - began < 10
    finally:
        host.ended.set()
    assert caught.value.hint == f"fetch the rest with: launch-notebook results --cluster practice {SESSION_ID}"
    if at == "reconnect":
        wait_until(lambda: host.replaces == [False], what="the new connection is not wanted any more")


def test_a_process_that_is_there_too_late_is_closed() -> None:
    late, closed = threading.Event(), list[str]()

    def start() -> str:
        assert late.wait(20)
        return "process"

    with pytest.raises(KeyError):
        protocol.call_polling(start, lambda: {}["interrupted"], closed.append)
    late.set()
    wait_until(lambda: closed == ["process"])


def test_nothing_is_there_yet(made: FinishedRun) -> None:
    for name in ("usage.csv", "work/train.ipynb", "exit.json"):
        (made.directory / name).unlink()
    fetched = made.fetch()
    assert fetched.files == () and not fetched.complete
    assert runs.results_text(fetched) == ("There are no results of train.ipynb to fetch.", [])


def test_a_session_that_is_gone_is_an_error(made: FinishedRun, tmp_path: Path) -> None:
    made.directory.rename(tmp_path / "gone")
    with pytest.raises(CopyFailed):
        made.fetch()
    assert not any(path.name.startswith(".part-") for path in tmp_path.rglob("*"))


def test_results_that_cannot_be_kept_are_an_error(made: FinishedRun) -> None:
    made.here.write_text("a file")
    with pytest.raises(CopyFailed, match="cannot be kept"):
        made.fetch()


@pytest.mark.parametrize(
    ("name", "folder"), [("train.ipynb", "train"), ("../a b.ipynb", "a_b"), (".ipynb", "ipynb"), (None, "notebook")]
)
def test_the_folders_name_is_made_of_harmless_characters(made: FinishedRun, name: str | None, folder: str) -> None:
    record = replace(made.session.record, notebook=name)
    found = results_folder(Session(record, "/d"), Path("runs"))
    assert found == Path("runs") / f"{folder}-{SESSION_ID}"


@pytest.mark.parametrize("stem", ["n" * 249, "日" * 80])
def test_the_folders_name_is_short_enough_for_any_file_system(made: FinishedRun, stem: str) -> None:
    record = replace(made.session.record, notebook=f"{stem}.ipynb")
    name = results_folder(Session(record, "/d")).name
    assert len(name.encode()) < 250 and name.startswith(stem[:60]) and name.endswith(SESSION_ID)
