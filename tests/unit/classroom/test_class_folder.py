"""What students leave in the class folder is read as if each of them were an attacker."""

from __future__ import annotations

import getpass
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.classroom.class_folder import StudentFile, parse_report, read_folder, read_reports
from notebook_launcher.classroom.collect import _read
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.hosts.local import LocalHost
from tests.doubles import FakeHost

ME = getpass.getuser()
NOW = datetime(2026, 11, 24, 13, 30, tzinfo=timezone.utc)
BEAT = {"version": 1, "job": "7", "state": "running", "since": "2026-11-24T13:20:00Z",
        "written": "2026-11-24T13:29:50Z", "interval": 30}  # fmt: skip


def beat(**others: object) -> str:
    return json.dumps({**BEAT, **others})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir(0o770)
    own = tmp_path / "class" / ME
    own.mkdir(0o750)
    (own / "heartbeat.json").write_text("{}")
    (own / "heartbeat.json").chmod(0o640)
    return tmp_path / "class"


def read(folder: Path, most: int = 100) -> list[StudentFile]:
    return read_folder(LocalHost(), str(folder), "heartbeat.json", most)[1]


def test_a_file_of_a_students_own(folder: Path) -> None:
    folder.chmod(0o3770)
    facts, files = read_folder(LocalHost(), str(folder), "heartbeat.json", 100)
    assert files == [StudentFile(ME, "{}")]
    assert (facts.owner, facts.mode, facts.is_sticky, facts.is_open, facts.passes_group_on) == (
        ME,
        0o3770,
        True,
        True,
        True,
    )
    (folder / "end").write_text("no folder of a student's")
    (folder / ".hidden").mkdir()
    assert read(folder) == files


def test_without_a_list_the_results_of_all_who_have_a_folder_are_read(folder: Path) -> None:
    (folder / ME / "results.jsonl").write_text("{}")
    (folder / ME / "results.jsonl").chmod(0o640)
    (folder / "judy").mkdir(0o750)
    problem = "others may write the folder"
    (folder / "judy").chmod(0o770)
    assert list(_read(LocalHost(), str(folder), [])) == [StudentFile("judy", problem=problem), StudentFile(ME, "{}")]
    assert list(_read(LocalHost(), str(folder), ["nobody"])) == []


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (lambda own, file: (file.unlink(), file.symlink_to("/etc/passwd")), "symbolic links"),
        (lambda own, file: (file.unlink(), os.mkfifo(file, 0o600)), "it is not a regular file"),
        (lambda own, file: (file.unlink(), file.mkdir()), "irectory|not a regular file"),
        (lambda own, file: file.write_text("x" * 101), "it is larger than 100 bytes"),
        (lambda own, file: file.chmod(0o660), "others may write the file"),
        (lambda own, file: own.chmod(0o777), "others may write the folder"),
    ],
)  # fmt: skip
def test_what_is_not_read(folder: Path, attack: object, why: str) -> None:
    own = folder / ME
    attack(own, own / "heartbeat.json")  # type: ignore[operator]
    [found] = read(folder)
    assert found.text == "" and any(word in found.problem for word in why.split("|")), found


def test_a_link_in_the_place_of_the_folder_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    (folder / ME).rename(tmp_path / "mine")
    (folder / ME).symlink_to(tmp_path / "mine")
    assert read(folder) == []


def test_a_folder_under_somebody_elses_name_is_refused(folder: Path) -> None:
    (folder / ME).rename(folder / "carol")
    [found] = read(folder)
    assert found == StudentFile("carol", problem=f"the folder belongs to {ME}")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_that_belongs_to_somebody_else(folder: Path) -> None:
    os.chown(folder / ME / "heartbeat.json", 65534, 65534)
    [found] = read(folder)
    assert found.problem == "the file belongs to nobody"


def test_a_folder_that_is_not_there_and_a_login_node_without_python(folder: Path) -> None:
    facts, files = read_folder(LocalHost(), f"{folder}/none", "heartbeat.json", 100)
    assert files == [] and facts.problem == f"{folder}/none cannot be read: No such file or directory"
    with pytest.raises(HostCommandFailed) as raised:
        read_folder(FakeHost(CommandResult(127, "", "python3: not found")), "/class", "heartbeat.json", 100)
    assert raised.value.why == "python3: not found" and "python3" in raised.value.hint


def test_a_report() -> None:
    found = parse_report("alice", beat(cause="image-missing", exit_code=1), NOW)
    assert found is not None
    assert (found.job, found.state, found.cause, found.exit_code) == ("7", "running", "image-missing", 1)
    assert found.since == NOW - timedelta(minutes=10)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '"x"', "{" * 5000, "\x00" * 200, '{"job": 7}',
        beat(job="7; rm -rf ~"), beat(job=["7"]), beat(state="\x1b[31m"), beat(state=None), beat(written="soon"),
        beat(written="2026-11-24T14:30:00Z"), beat(written=None),
    ],
)  # fmt: skip
def test_what_is_no_report(text: str) -> None:
    assert parse_report("alice", text, NOW) is None


def test_no_text_of_a_students_is_passed_on() -> None:
    found = parse_report("alice", beat(cause="<script>\x1b]0;x\x07", exit_code="1", since="never", interval=-1), NOW)
    assert found is not None
    assert (found.cause, found.exit_code, found.since, found.interval) == ("", None, None, 30)


def test_all_reports_of_a_class(folder: Path) -> None:
    (folder / ME / "heartbeat.json").write_text(beat())
    (folder / "carol").mkdir()
    (folder / "carol" / "heartbeat.json").write_text(beat())
    reports, problem = read_reports(LocalHost(), str(folder), NOW)
    assert list(reports) == [ME] and problem == (
        f"Some reports in the class folder are not read: carol (the folder belongs to {ME})."
    )
    assert read_reports(LocalHost(), f"{folder}/none", NOW)[1].startswith("The class folder ")
