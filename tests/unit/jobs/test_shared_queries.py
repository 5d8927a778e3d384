"""Queries that launchers share: what is printed, who asks, what is left behind; and its reader in Python."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.package_data import job_script
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs import shared_queries
from tests.doubles import wait_until
from tests.unit.jobs.shared_query_login import Login, finish, waits

SCRIPT = job_script("shared_query.sh")


BASH = os.environ.get("NBL_TEST_BASH", "bash")


SOMEBODY = 1  # another user's number: "daemon" on every Unix


# --- what is printed -----------------------------------------------------------------------------------------


def test_the_first_answer_is_ours(login: Login) -> None:
    login.says("7|PENDING\n8|a * b\n\n")
    told = login.ask()
    assert (told.exit_code, told.age, told.asked_for, told.errors) == (0, 0, "together", "")
    assert told.said.rstrip("\n") == "7|PENDING\n8|a * b"
    assert abs(datetime.now(timezone.utc) - told.clock) < timedelta(seconds=5)


def test_nothing_said_is_an_answer(login: Login) -> None:
    login.says("")
    assert login.ask().said == login.ask(max_age=60).said == ""
    assert len(login.runs) == 1


def test_everything_stays_private(login: Login) -> None:
    login.ask(alone=True)
    login.ask(alone=True, session="two")
    assert stat.S_IMODE(login.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in login.folder.iterdir()} == {0o600}
    kept = {path.name.removeprefix(login.file().name) for path in login.folder.iterdir()}
    assert kept == {"", ".by.one", ".by.two"}, "no turn and no half answer is left"


# --- who asks ------------------------------------------------------------------------------------------------


def test_of_twenty_at_once_one_asks(login: Login) -> None:
    login.is_slow()
    callers = [login.begin(max_age=5, session=f"s{number}") for number in range(20)]
    wait_until(lambda: login.runs)
    login.answers()
    told = [finish(caller) for caller in callers]
    assert len(login.runs) == 1
    assert [answer.said for answer in told] == ["7|PENDING\n"] * 20
    assert sorted(answer.age > 0 for answer in told) == [False] + [True] * 19


def test_a_young_answer_is_shared_and_an_old_one_is_not(login: Login) -> None:
    login.ask()
    login.says("7|RUNNING\n")
    login.grows_older(30)
    shared = login.ask(max_age=60, session="two")
    assert shared.said == "7|PENDING\n"
    assert 30 <= shared.age <= 33
    assert login.ask(max_age=29.9, session="two").said == "7|RUNNING\n"
    assert len(login.runs) == 2


def test_what_was_asked_before_is_not_taken_for_what_is_asked_now(login: Login) -> None:
    """A question that is on its way may have left before our job was queued."""
    login.is_slow()
    earlier = login.begin()
    wait_until(lambda: len(login.runs) == 1)
    later = login.begin(session="two")
    wait_until(lambda: waits(later))
    login.says("7|RUNNING\n")
    login.answers()
    assert finish(earlier).age == finish(later).age == 0
    assert len(login.runs) == 2


def test_who_waited_for_another_ones_answer_is_told_that_it_is_not_theirs(login: Login) -> None:
    """Both want an answer from after their call; one has the turn, and the other one's call was before that."""
    login.folder.mkdir(mode=0o700)
    login.file(".turn").write_text(f"{os.getpid()}\n")  # somebody who lives has it
    login.is_slow()
    callers = [login.begin(session=name) for name in ("one", "two")]
    wait_until(lambda: all(map(waits, callers)))
    assert not login.runs
    login.file(".turn").unlink()
    wait_until(lambda: login.runs)
    login.answers()
    assert sorted(finish(caller).age for caller in callers) == [0, 0.01]
    assert len(login.runs) == 1


# --- one alone -----------------------------------------------------------------------------------------------


def test_one_alone_asks_the_smaller_question_and_keeps_nothing(login: Login) -> None:
    told = [login.ask(alone=True) for _ in range(2)]
    assert [(answer.asked_for, answer.age) for answer in told] == [("alone", 0)] * 2
    assert not login.file().exists()


def test_two_ask_together_until_one_has_been_gone_for_minutes(login: Login) -> None:
    login.ask(alone=True)
    assert login.ask(alone=True, session="two").asked_for == "together"
    shared = login.ask(alone=True, max_age=20)
    assert (shared.asked_for, shared.age > 0) == ("together", True)
    login.grows_older(400)
    assert login.ask(alone=True, session="two").asked_for == "alone"
    assert not login.file(".by.one").exists()


def test_one_alone_passes_on_a_failure(login: Login) -> None:
    login.fails("Socket timed out\n")
    told = login.ask(alone=True)
    assert (told.exit_code, told.errors) == (3, "Socket timed out\n")


# --- what is left --------------------------------------------------------------------------------------------


def test_what_was_left_long_ago_is_removed_in_passing(login: Login) -> None:
    login.ask(alone=True, session="ended")
    login.ask(session="ended")
    ours = [
        f"squeue-0a1b.{place}{end}"
        for place in ("here", "other.node")
        for end in ("", ".turn", ".new.7", ".errors.7", ".by.one", ".turn.of.7")
    ]
    others = ["notes", "notes.txt", "x-1"]
    for name in ours + others:
        (login.folder / name).touch()
    (login.folder / "squeue-2.here").mkdir()
    (login.folder / "squeue-3.here").symlink_to("notes")
    young = login.folder / "squeue-0a1c.here"
    young.touch()
    for path in login.folder.iterdir():
        if path != young:
            os.utime(path, (time.time() - 4000,) * 2, follow_symlinks=False)
    login.ask(alone=True, session="new")
    kept = {path.name for path in login.folder.iterdir()}
    assert kept == {*others, young.name, "squeue-2.here", "squeue-3.here", login.file(".by.new").name}


@pytest.mark.parametrize("alone", [True, False])
def test_the_folder_does_not_grow(login: Login, alone: bool) -> None:
    """With each new session, and with each new question."""
    for number in range(5):
        told = subprocess.run(
            [
                BASH,
                str(login.session(f"s{number}") / "shared_query.sh"),
                str(login.folder / f"squeue-{number}"),
                "5.00",
                *(["true", "--together"] if alone else []),
                "true",
            ],
            capture_output=True,
            check=True,
        )
        assert told.stderr == b""
        [path] = login.folder.iterdir()
        os.utime(path, (time.time() - 4000,) * 2)


# --- clocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, -24 * 400])
def test_an_answer_from_the_future_is_damaged(login: Login, hours: int) -> None:
    login.ask()
    login.grows_older(3600 * hours)
    assert login.ask(max_age=10**6).age == 0
    assert len(login.runs) == 2


def test_an_answer_from_before_the_machine_was_started_anew_has_no_age(login: Login) -> None:
    login.ask()
    _, rest = login.file().read_text().split(" ", 1)
    login.file().write_text(f"0e0e0e0e-6987-4792-82c8-fdfbef7d0728 {rest}")
    assert login.ask(max_age=60).age == 0


def test_the_time_of_files_means_nothing(login: Login) -> None:
    login.ask()
    login.grows_older(30)
    os.utime(login.file(), (time.time() + 10**6, time.time() + 10**6))
    assert login.ask(max_age=20).age == 0


# --- what others have put there ------------------------------------------------------------------------------


def foreign_folder(login: Login) -> None:
    login.folder.mkdir(mode=0o777)
    os.chown(login.folder, SOMEBODY, SOMEBODY)


def linked_folder(login: Login) -> None:
    (login.home / "elsewhere").mkdir()
    login.folder.symlink_to(login.home / "elsewhere")


def no_folder(login: Login) -> None:
    login.folder.write_text("")


needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="makes files of another user")


@pytest.mark.parametrize("obstacle", [pytest.param(foreign_folder, marks=needs_root), linked_folder, no_folder])
def test_where_nothing_can_be_kept_it_just_asks(login: Login, obstacle: Callable[[Login], None]) -> None:
    obstacle(login)
    told = [login.ask(max_age=60), login.ask(max_age=60, session="two", alone=True)]
    assert [(answer.exit_code, answer.age, answer.said) for answer in told] == [(0, 0, "7|PENDING\n")] * 2
    assert len(login.runs) == 2
    assert login.folder.is_file() or list(login.folder.iterdir()) == []
    login.fails("no\n")
    assert login.ask().exit_code == 3


@needs_root
def test_a_folder_that_cannot_be_written_is_no_obstacle() -> None:
    """As another user than root, who may write everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        login = Login(Path(folder))
        script = login.session("one") / "shared_query.sh"
        login.folder.mkdir(mode=0o500)
        for path in (login.home, *login.home.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
        told = subprocess.run(
            [BASH, str(script), str(login.folder / "squeue-1"), "60.00", str(login.command)],
            capture_output=True,
            text=True,
            timeout=20,
            user=SOMEBODY,
            group=SOMEBODY,
            extra_groups=[],
        )
    assert (told.returncode, told.stderr) == (0, "")
    assert re.fullmatch(r"0 \S+ together\n7\|PENDING\n", told.stdout)


def foreign(path: Path) -> None:
    path.write_text(f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} 1 0 5\nfalse\n")
    os.chown(path, SOMEBODY, SOMEBODY)


def link(path: Path) -> None:
    path.with_name("target").write_text(f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} 1 0 5\nfalse\n")
    path.symlink_to("target")


def damaged(path: Path) -> None:
    path.write_bytes(b"\xff\x00 1 \n\n; rm -rf x\n")


def no_numbers(path: Path) -> None:
    path.write_text(f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} 08 09\nfalse\n")


def cut_off(path: Path) -> None:
    path.write_text(f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} 1")


def half(path: Path) -> None:
    path.write_text(f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} 1 0 14\n7|PEN")


@pytest.mark.parametrize("put", [pytest.param(foreign, marks=needs_root), link, damaged, no_numbers, cut_off, half])
def test_an_answer_that_is_not_ours_is_not_believed(login: Login, put: Callable[[Path], None]) -> None:
    login.folder.mkdir(mode=0o700)
    put(login.file())
    assert login.ask(max_age=10**6).said == "7|PENDING\n"
    assert not login.file().is_symlink()
    assert login.ask(max_age=60).age > 0, "and it was replaced, not written through"
    target = login.folder / "target"
    assert not target.exists() or target.read_text().endswith("false\n")


@pytest.mark.real_time  # the script waits for the turn
def test_a_link_in_place_of_the_turn_is_not_written_through(login: Login) -> None:
    login.folder.mkdir(mode=0o700)
    login.file(".turn").symlink_to("nowhere")
    assert login.ask().said == "7|PENDING\n"
    assert not (login.folder / "nowhere").exists()


def test_together_asks_through_the_script_of_the_session(
    login: Login, together: tuple[Host, shared_queries.SharedQueries]
) -> None:
    first = together[1].query([str(login.command), "a b"], 0.9)
    again = together[1].query([str(login.command), "a b"], 60.9)
    other = together[1].query([str(login.command), "other"], 60)
    assert first and again and other
    assert first.answer == CommandResult(0, "7|PENDING\n")
    assert first.age == other.age == 0 < again.age < 5
    assert again.answer == first.answer
    assert first.clock.tzinfo is not None
    assert len(login.runs) == 2


def test_without_the_script_nothing_is_asked(tmp_path: Path) -> None:
    """A session that an earlier version began, or whose directory was removed."""
    assert (
        shared_queries.SharedQueries(LocalHost(), str(tmp_path / "gone")).query(["touch", str(tmp_path / "x")], 5)
        is None
    )
    assert not (tmp_path / "x").exists()


def test_a_host_that_shares_counts_what_it_had_to_ask(
    login: Login, together: tuple[Host, shared_queries.SharedQueries]
) -> None:
    sharing = shared_queries.SharingHost(*together, 60)
    command = [str(login.command)]
    assert sharing.run(command) == sharing.run(command) == CommandResult(0, "7|PENDING\n")
    assert sharing.queries_run == len(login.runs) == 1
    assert sharing.run(["cat"], stdin=b"x") == CommandResult(0, "x")
    assert sharing.queries_run == 2


class Says:
    """A host on which every command prints the same."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout

    def run(self, *_: object, **__: object) -> CommandResult:
        return CommandResult(0, self.stdout)


FIRST = "12.34 2026-11-21T18:28:25+0100 together"


@given(st.lists(st.text(st.characters(exclude_characters="0123456789"))), st.text())
def test_the_first_line_is_found_after_what_a_shell_says(before: list[str], said: str) -> None:
    noise = "".join(f"{line}\n" for line in before)
    told = shared_queries.SharedQueries(Says(f"{noise}{FIRST}\n{said}"), "/s/one").query(["squeue"], 5)  # type: ignore[arg-type]
    assert told is not None
    assert (told.age, told.alone, told.answer.stdout) == (12.34, False, said)
    assert told.clock.isoformat() == "2026-11-21T18:28:25+01:00"


@given(st.one_of(st.text(), st.from_regex(r"\d+(\.\d+)? \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (alone|together)\n")))
@pytest.mark.real_time
def test_no_text_makes_the_reader_stumble(text: str) -> None:
    told = shared_queries.SharedQueries(Says(text), "/s/one").query(["squeue"], 5)  # type: ignore[arg-type]
    assert told is None or told.age >= 0
