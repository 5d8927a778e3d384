"""sessions.sh over real directories: what it tells of each session, and what it tidies up."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.package_data import JOB_FILES, job_script
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.session_choice import describe_state
from notebook_launcher.jobs.session_index import JobQueue, build_index, parse_listing
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.session.credentials import new_keys
from notebook_launcher.session.record import new_session, session_files
from tests.fuzzing import examples
from tests.session_directories import NOW, ODDITIES, ago, name_of, plant, record
from tests.unit.jobs.listed_sessions import LONG_AGO, look, row, run

BASH = os.environ.get("NBL_TEST_BASH") or shutil.which("bash") or "bash"


SCRIPT = job_script("sessions.sh").read_bytes()


A, B, C = (name_of(ago(hours=hours), number) for hours, number in ((3, 1), (2, 2), (1, 3)))


SLURM = JobQueue("slurm")


FILES = ("session.json", "started.json", "endpoint.json", "exit.json", "idle.json", "job")


CONTROLS = {*map(chr, range(32)), "\x7f"} - {"\n"}


def test_what_each_session_tells(tmp_path: Path) -> None:
    plant(tmp_path, A, ago(hours=3), ended=ago(hours=1))
    plant(tmp_path, B, ago(hours=2), job="8;snowy", started=ago(hours=1), listens=True, secrets=True)
    plant(tmp_path, C, ago(hours=1), job=None)
    first, second, third = look(tmp_path).entries
    assert (first.session.id, first.session.job, first.record.has_secrets) == (A, JobRef("7"), False)
    assert first.record.exited is not None and first.record.exited["cause"] == "stopped"
    assert second.session.job == JobRef("8", "snowy") and second.record.has_secrets
    assert second.record.started is not None and second.record.endpoint is not None and second.record.exited is None
    assert third.session.job is None and third.record.started is None


def test_how_far_a_notebook_has_come(tmp_path: Path) -> None:
    progress = '{"version":1,"cells":9,"done":3}'
    (plant(tmp_path, A, started=NOW) / "progress.json").write_text(progress + "\n")
    assert f"\n{A} progress {progress}\n" in run(tmp_path)


def test_what_a_notebook_has_left_is_never_removed(tmp_path: Path) -> None:
    for name in (A, B):
        record = plant(tmp_path, name, ended=NOW)
        for ours in ("input.ipynb", "execute.py", "progress.json", "progress.json.new.7", "results.sent", "usage.csv"):
            (record / ours).touch()
        (record / "work").mkdir()
    (tmp_path / B / "work" / "exit.json").touch()
    run(tmp_path, "tidy", "--remove", A, B)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == [
        Path(B),
        Path(B, "work"),
        Path(B, "work", "exit.json"),
    ]
    assert parse_listing(run(tmp_path), str(tmp_path), NOW).damaged == ()


def test_no_program_is_started_to_list(tmp_path: Path) -> None:
    plant(tmp_path, A, secrets=True, started=NOW, ended=NOW)
    assert f"{A} session" in run(tmp_path, path="/nowhere")


@pytest.mark.parametrize("place", ["not there", "empty", "file"])
def test_a_place_without_sessions(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    told = run(tmp_path / place)
    assert told.startswith("sessions 1\n") and told.endswith("end\n")
    assert parse_listing(told, str(tmp_path), NOW).unreadable is (place == "file")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_odd_file_hides_no_other_session(tmp_path: Path, file: str, oddity: str) -> None:
    plant(tmp_path, A, ago(hours=3), job="6")
    odd = plant(tmp_path, B, ago(hours=2), started=ago(hours=2), listens=True)
    plant(tmp_path, C, ago(hours=1), job="8")
    (odd / file).unlink(missing_ok=True)
    ODDITIES[oddity](odd / file)
    began = time.monotonic()
    told = run(tmp_path)
    assert time.monotonic() - began < 30
    assert not CONTROLS & set(told)
    reading = parse_listing(told, str(tmp_path), NOW)
    names = [record.session.id for record in reading.records]
    assert reading.whole
    assert [name for name in names if name != B] == [A, C]
    if file == "session.json":
        # without it, it is no session; a link or a folder in its place is noticed
        assert reading.damaged == (B,) and B not in names
    else:
        assert B in names and reading.damaged == ()


def test_what_only_looks_like_a_session(tmp_path: Path) -> None:
    plant(tmp_path, A)
    (tmp_path / B).write_text("a file")
    os.mkfifo(tmp_path / C)
    elsewhere = plant(tmp_path / "elsewhere", name_of(NOW, 9))
    (tmp_path / name_of(NOW, 9)).symlink_to(elsewhere)
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(tmp_path)  # a socket's path may not be long
        one.bind(name_of(NOW, 10))
        os.chdir("/")
    for odd in ("-rf", "a b", "$(touch x)", "\x1b[2J", "é", ".asked", "*", "20261121-120000-AAAA", f"{A}x", "\n"):
        plant(tmp_path, odd)
    (tmp_path / name_of(NOW, 11)).mkdir()
    (tmp_path / name_of(NOW, 11) / "mine.txt").touch()
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    assert [record.session.id for record in reading.records] == [A]
    assert set(reading.damaged) == {B, C, name_of(NOW, 9), name_of(NOW, 10)}
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_somebody_elses_is_passed_over(tmp_path: Path) -> None:
    plant(tmp_path, A)
    os.chown(plant(tmp_path, B), 65534, 65534)
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    assert [record.session.id for record in reading.records] == [A] and reading.damaged == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_server_that_gives_all_to_somebody_else_is_not_an_empty_place(tmp_path: Path) -> None:
    for name in (A, B):
        os.chown(plant(tmp_path, name), 65534, 65534)
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    assert (reading.records, reading.damaged, reading.foreign) == ((), (A, B), True)


@pytest.mark.real_time
def test_thousands_of_entries(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"other {number}").touch()
    for number in range(250):
        plant(tmp_path, name_of(NOW, number), ended=NOW if number < 200 else None)
    began = time.monotonic()
    told = run(tmp_path)
    print(f"sessions.sh: 250 sessions among 3000 other entries in {time.monotonic() - began:.3f} s")
    assert len(parse_listing(told, str(tmp_path), NOW).records) == 250


def test_a_start_up_file_that_prints_does_no_harm(tmp_path: Path) -> None:
    plant(tmp_path, A)
    noisy = "Welcome!\n20261121-010101-aaaa session {}\n" + run(tmp_path)
    assert [record.session.id for record in parse_listing(noisy, str(tmp_path), NOW).records] == [A]


@pytest.mark.parametrize("text", ["", "command not found\n", "sessions 2\nend\n"])
def test_no_answer_is_not_an_empty_place(text: str) -> None:
    assert not parse_listing(text, "/root", NOW).whole


LINES = ("sessions 1", "end", f"{A} session {{}}", f"{A} job 7", f"{A} exit -", A, f"{A} ", "unreadable", "\x85")


@given(st.text() | st.lists(st.sampled_from(LINES)).map("\n".join))
def test_any_answer_can_be_read(text: str) -> None:
    build_index(parse_listing(text, "/root", NOW), {}, NOW)


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=200)))
def test_any_content_hides_no_other_session(tmp_path: Path, content: dict[str, bytes]) -> None:
    root = tmp_path / f"{time.monotonic_ns()}"
    plant(root, A, job="6")
    odd = plant(root, B)
    for file, data in content.items():
        (odd / file).write_bytes(data)
    reading = parse_listing(run(root), str(root), NOW)
    assert reading.whole and reading.records[0].session.id == A
    assert {record.session.id for record in reading.records} | set(reading.damaged) == {A, B}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=5,
)


DATES = st.datetimes().map(datetime.isoformat) | st.just("0001-01-01T00:00:00Z") | st.just("9999-12-31T23:59:59+00:00")


ASKED = {"created": DATES, "flags": st.just({"time": "999999999-1"}), "scheduler": ANYTHING, "environment": ANYTHING}


SAID = ("started", "ended", "node", "job", "cause")


@given(
    st.fixed_dictionaries({}, optional={key: kind | ANYTHING for key, kind in ASKED.items()}),
    st.fixed_dictionaries({}, optional=dict.fromkeys(SAID, DATES | ANYTHING)),
    st.sampled_from(State),
    DATES | st.text(),
    st.sampled_from([timedelta(hours=14), timedelta(hours=-12)]),
)
@pytest.mark.real_time
def test_any_record_can_be_joined(
    asked: dict[str, object], said: dict[str, object], state: State, start: str, zone: timedelta
) -> None:
    text = json.dumps(record(A, NOW) | asked)
    files = "".join(f"{A} {name} {json.dumps(said)}\n" for name in ("started", "endpoint"))
    ended = f"{A} exit {json.dumps(said)}\n" if "ended" in said else ""
    now = NOW.astimezone(timezone(zone))
    reading = parse_listing(f"sessions 1\n{A} session {text}\n{A} job 7\n{files}{ended}end\n", "/root", now)
    index = build_index(reading, {SLURM: row(state, start=start, walltime=start)}, now)
    for entry in index.entries:
        describe_state(entry, now)
        json.dumps(entry.summary.data())
    assert len(index.entries) + len(index.damaged) == 1


UNTIL = "2026-10-22T12:00:00Z"


def test_old_records_are_removed_while_listing(tmp_path: Path) -> None:
    plant(tmp_path, A, LONG_AGO, ended=LONG_AGO)
    (tmp_path / A / "runtime").mkdir()
    (tmp_path / A / "runtime" / "kernel-1.json").touch()
    plant(tmp_path, B, ended=ago(days=29))
    told = run(tmp_path, "list", UNTIL)
    assert A not in told and not (tmp_path / A).exists()
    assert f"{B} session" in told and (tmp_path / B / "job.log").exists()
    assert f"{A} session" not in run(tmp_path)


def test_what_job_commands_left_goes_with_the_old_records(tmp_path: Path) -> None:
    """Images and environments that were being made when the launcher was killed."""
    old = ("image-20261001-014455-k3f7", "look-20261001-014455-k3f7", "make-20261001-014455-k3f7")
    kept = ("image-20261120-014455-k3f7", "image-20261001-014455", "image-mine", "image-digests")
    for name in (*old, *kept):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lib.sh").touch()
    (tmp_path / f"{old[0]}.log").touch()
    run(tmp_path)
    assert (tmp_path / old[0]).exists()
    run(tmp_path, "list", UNTIL)
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_a_record_goes_as_a_whole(tmp_path: Path) -> None:
    """With all that a launcher writes, that jobs add, and that either may have been interrupted in writing."""
    session = new_session(
        str(tmp_path), Request({}), scheduler="slurm", cluster=None, host=None, environment=None, now=LONG_AGO
    )
    LocalHost().write_files(session.directory, session_files(session, "", "token", new_keys()[1]))
    directory = Path(session.directory)
    (directory / "runtime").mkdir()
    (directory / ".new.a1B2c3").mkdir()
    jobs = ("job", "started.json", "endpoint.json", "exit.json", "idle.json", "usage.csv", "sshd_config", "local.state")
    for name in (*jobs, "ended-from", "endpoint.json.new.4711", "new_key.12.pub", "submit.code", ".new.a1B2c3/token"):
        (directory / name).touch()
    run(tmp_path, "tidy", "--remove", session.id)
    assert list(tmp_path.iterdir()) == []


def test_what_the_user_put_there_stays(tmp_path: Path) -> None:
    directory = plant(tmp_path, A, LONG_AGO, ended=LONG_AGO)
    (directory / "results.csv").write_text("precious")
    (directory / "notebooks").mkdir()
    (directory / "notebooks" / "token").write_text("precious")
    run(tmp_path, "list", UNTIL)
    assert sorted(path.name for path in directory.iterdir()) == ["notebooks", "results.csv"]
    assert (directory / "notebooks" / "token").read_text() == "precious"
    reading = parse_listing(run(tmp_path), str(tmp_path), NOW)
    assert reading.records == reading.damaged == (), "it is no session any more, and none that is damaged"


@pytest.mark.parametrize("why", ["no exit.json", "secrets", "damaged exit.json", "a job that runs again", "link"])
def test_what_may_live_or_is_not_ours_is_never_removed(tmp_path: Path, why: str) -> None:
    directory = plant(
        tmp_path,
        A,
        LONG_AGO,
        ended=None if why == "no exit.json" else LONG_AGO,
        secrets=why in ("secrets", "a job that runs again"),
    )
    if why == "damaged exit.json":
        (directory / "exit.json").write_text('{"ended":"2026-10-01T')
    if why == "link":
        directory.rename(tmp_path / "mine")
        directory.symlink_to(tmp_path / "mine")
    before = sorted(path.name for path in directory.iterdir())
    run(tmp_path, "list", UNTIL)
    assert sorted(path.name for path in directory.iterdir()) == before


def test_not_too_many_at_once(tmp_path: Path) -> None:
    for number in range(30):
        plant(tmp_path, name_of(LONG_AGO, number), LONG_AGO, ended=LONG_AGO)
    assert parse_listing(run(tmp_path, "list", UNTIL), str(tmp_path), NOW).removed == 20
    assert len(list(tmp_path.iterdir())) == 10
    assert parse_listing(run(tmp_path, "list", UNTIL), str(tmp_path), NOW).removed == 10
    assert list(tmp_path.iterdir()) == []
    assert parse_listing(run(tmp_path, "list", UNTIL), str(tmp_path), NOW).removed == 0


@pytest.mark.parametrize(("days", "left"), [("7", ["new", "used"]), ("0", ["used"])])
def test_scripts_that_no_session_shares_any_more_go_with_an_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: str, left: list[str]
) -> None:
    monkeypatch.setenv("NBL_UNUSED_DAYS", days)
    used, new = (tmp_path / ".scripts" / version for version in ("used", "new"))
    for version in (used, new):
        version.mkdir(parents=True)
        (version / "lib.sh").touch()
    kept = plant(tmp_path, B)
    (kept / "lib.sh").hardlink_to(used / "lib.sh")
    plant(tmp_path, A, LONG_AGO, ended=LONG_AGO)
    run(tmp_path, "list", UNTIL)
    assert sorted(path.name for path in (tmp_path / ".scripts").iterdir()) == left


def test_secrets_and_scripts_go_and_the_record_stays(tmp_path: Path) -> None:
    directory = plant(tmp_path, A, ended=NOW)
    (directory / "dask-key.pem").touch()
    assert f"{A} secrets\n" in run(tmp_path, "list")
    shutil.rmtree(directory)
    directory = plant(tmp_path, A, secrets=True, ended=NOW)
    ours = ("dask-ca.pem", "dask-cert.pem", "dask-key.pem", "ray-ca.pem", "ray-ca-key.pem", "ray-token")
    for name in (*JOB_FILES, *ours, "mine.py"):
        (directory / name).write_text("# a script")
    (directory / "runtime").mkdir()
    (directory / "runtime" / "jpserver-12.json").write_text("a token")
    (directory / "runtime" / "ray-node1-key.pem").write_text("a key")
    (directory / "runtime" / "sshd.log").touch()
    other = plant(tmp_path, B, secrets=True)
    run(tmp_path, "tidy", A, "../elsewhere", "--remove")
    names = {path.name for path in directory.iterdir()}
    assert names == {"session.json", "session.env", "job", "job.log", "exit.json", "runtime", "mine.py"}
    assert [path.name for path in (directory / "runtime").iterdir()] == ["sshd.log"]
    assert (other / "token").exists()


@pytest.mark.parametrize(
    ("about", "left"), [({"scheduler": "local"}, True), ({"flags": {"scheduler": "local"}}, False)]
)
def test_scripts_stay_for_the_launchers_own_scheduler_and_not_for_a_flag_of_that_name(
    tmp_path: Path, about: dict[str, object], left: bool
) -> None:
    directory = plant(tmp_path, A, secrets=True, ended=NOW)
    (directory / "session.json").write_text(json.dumps(record(A, NOW, **about), separators=(",", ":")))
    (directory / "local.sh").write_text("# a script")
    run(tmp_path, "tidy", A, "--remove")
    assert (directory / "local.sh").exists() is left and not (directory / "token").exists()


FOR_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
SWAPS = """#!/bin/sh
mv "$ROOT/$ID" "$ROOT/.aside" && ln -s "$PRIVATE" "$ROOT/$ID"
PATH=$REALLY exec "${0##*/}" "$@"
"""


@pytest.mark.parametrize("words", [("list", UNTIL), ("tidy", A), ("tidy", "--remove", A)])
@pytest.mark.parametrize(
    ("mode", "owner", "removes"),
    [
        (0o770, None, False),
        (0o707, None, False),
        (0o1777, None, True),
        (0o700, None, True),
        pytest.param(0o1777, 12345, False, marks=FOR_ROOT),  # its owner may rename what is there all the same
        pytest.param(0o755, 12345, False, marks=FOR_ROOT),
    ],
)
def test_nothing_is_removed_where_others_may_swap_a_directory_meanwhile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    mode: int,
    owner: int | None,
    removes: bool,
) -> None:
    """A link to a private folder could be put in its place as `rm` begins, and files there have the same names."""
    root, private, programs = (tmp_path / name for name in ("sessions", "private", "programs"))
    for folder in (root, private / "runtime", programs):
        folder.mkdir(parents=True)
    for name in ("token", "authorized_keys", "lib.sh", "runtime/jpserver-1.json"):
        (private / name).touch()
    plant(root, A, LONG_AGO, secrets=words[0] == "tidy", ended=LONG_AGO)
    if owner is not None:
        os.chown(root, owner, owner)
    root.chmod(mode)
    before = sorted(private.rglob("*"))
    if not removes:
        (programs / "rm").write_text(SWAPS)
        (programs / "rm").chmod(0o755)
    for name, value in {"ROOT": root, "ID": A, "PRIVATE": private, "REALLY": os.environ["PATH"]}.items():
        monkeypatch.setenv(name, str(value))
    told = run(root, *words, path=f"{programs}{os.pathsep}{os.environ['PATH']}")
    assert sorted(private.rglob("*")) == before
    assert (root / A / "token").exists() is (words[0] == "tidy" and not removes)
    assert words[0] == "tidy" or (f"{A} session" in told) is not removes


COUNTS = """#!/bin/sh
printf '%s\\n' "$*" >>"$COUNTED"
PATH=$REALLY exec "${0##*/}" "$@"
"""


@pytest.mark.parametrize("words", [(), ("--remove",)])
def test_many_sessions_are_not_too_long_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    names = [name_of(LONG_AGO, number) for number in range(12)]
    for name in names:
        directory = plant(tmp_path / "root", name, LONG_AGO, secrets=True, ended=LONG_AGO)
        for script in JOB_FILES:
            (directory / script).touch()
    counted = tmp_path / "counted"
    monkeypatch.setenv("COUNTED", str(counted))
    monkeypatch.setenv("REALLY", os.environ["PATH"])
    (tmp_path / "bin").mkdir()
    for tool in ("rm", "rmdir"):
        (tmp_path / "bin" / tool).write_text(COUNTS)
        (tmp_path / "bin" / tool).chmod(0o755)
    run(tmp_path / "root", "tidy", *words, *names, path=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    commands = [line.split() for line in counted.read_text().splitlines()]
    assert max(map(len, commands)) <= 202 and len(commands) > 2
    assert not list((tmp_path / "root").glob("*/*.sh")) and not list((tmp_path / "root").glob("*/token"))
    if words:
        assert list((tmp_path / "root").iterdir()) == []
    else:
        assert not any(path.endswith((".sh", ".py")) for path in commands[0]), "what is secret goes first"


def test_a_forgotten_record_goes(tmp_path: Path) -> None:
    plant(tmp_path, A, LONG_AGO, secrets=True)
    plant(tmp_path, B, LONG_AGO, secrets=True)
    run(tmp_path, "tidy", "--remove", A)
    assert [path.name for path in tmp_path.iterdir()] == [B]
