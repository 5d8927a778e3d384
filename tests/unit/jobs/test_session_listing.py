"""The catalogue of sessions: sessions.sh over real directories, what is read from it, and which one is meant.

Set NBL_TEST_BASH to try another bash; the scripts promise to run with 4.2.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import SessionNotFound
from notebook_launcher.core.package_data import folder
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.session_index import Catalogue, Entry, Queue, choose, in_words, join, read
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import new_session, write_session
from notebook_launcher.session.session_keys import new_keys
from tests.session_directories import NOW, ODDITIES, ago, name_of, plant, record

BASH = os.environ.get("NBL_TEST_BASH") or shutil.which("bash") or "bash"
SCRIPT = (folder("jobscripts") / "sessions.sh").read_bytes()
A, B, C = (name_of(ago(hours=hours), number) for hours, number in ((3, 1), (2, 2), (1, 3)))
SLURM = Queue("slurm")
FILES = ("session.json", "started.json", "endpoint.json", "exit.json", "idle.json", "job")
CONTROLS = {*map(chr, range(32)), "\x7f"} - {"\n"}


def run(root: Path, *words: str, path: str | None = None) -> str:
    """Run sessions.sh as the launcher does. ``path``: where programs are looked for."""
    done = subprocess.run(
        [BASH, "-s", "--", str(root), *words],
        input=SCRIPT,
        capture_output=True,
        timeout=20,
        env=os.environ | ({"PATH": path} if path else {}),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode(errors="replace")


def look(root: Path, told: Mapping[Queue, Mapping[str, JobStatus] | None] | None = None) -> Catalogue:
    reading = read(run(root), str(root), NOW)
    assert reading.whole
    return join(reading, told or {}, NOW)


def row(state: State, job: str = "7", **others: str | None) -> dict[str, JobStatus]:
    return {job: JobStatus(JobRef(job), state, **others)}  # type: ignore[arg-type]


# --- sessions.sh ---------------------------------------------------------------------------------------------


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
        Path(B), Path(B, "work"), Path(B, "work", "exit.json"),
    ]  # fmt: skip
    assert read(run(tmp_path), str(tmp_path), NOW).damaged == ()


def test_no_program_is_started_to_list(tmp_path: Path) -> None:
    plant(tmp_path, A, secrets=True, started=NOW, ended=NOW)
    assert f"{A} session" in run(tmp_path, path="/nowhere")


@pytest.mark.parametrize("place", ["not there", "empty", "file"])
def test_a_place_without_sessions(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    told = run(tmp_path / place)
    assert told.startswith("sessions 1\n") and told.endswith("end\n")
    assert read(told, str(tmp_path), NOW).unreadable is (place == "file")


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
    assert time.monotonic() - began < 5
    assert not CONTROLS & set(told)
    reading = read(told, str(tmp_path), NOW)
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
    reading = read(run(tmp_path), str(tmp_path), NOW)
    assert [record.session.id for record in reading.records] == [A]
    assert set(reading.damaged) == {B, C, name_of(NOW, 9), name_of(NOW, 10)}
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_somebody_elses_is_passed_over(tmp_path: Path) -> None:
    plant(tmp_path, A)
    os.chown(plant(tmp_path, B), 65534, 65534)
    reading = read(run(tmp_path), str(tmp_path), NOW)
    assert [record.session.id for record in reading.records] == [A] and reading.damaged == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_server_that_gives_all_to_somebody_else_is_not_an_empty_place(tmp_path: Path) -> None:
    for name in (A, B):
        os.chown(plant(tmp_path, name), 65534, 65534)
    reading = read(run(tmp_path), str(tmp_path), NOW)
    assert (reading.records, reading.damaged, reading.foreign) == ((), (A, B), True)


def test_thousands_of_entries(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"other {number}").touch()
    for number in range(250):
        plant(tmp_path, name_of(NOW, number), ended=NOW if number < 200 else None)
    began = time.monotonic()
    told = run(tmp_path)
    print(f"sessions.sh: 250 sessions among 3000 other entries in {time.monotonic() - began:.3f} s")
    assert len(read(told, str(tmp_path), NOW).records) == 250


def test_a_start_up_file_that_prints_does_no_harm(tmp_path: Path) -> None:
    plant(tmp_path, A)
    noisy = "Welcome!\n20261121-010101-aaaa session {}\n" + run(tmp_path)
    assert [record.session.id for record in read(noisy, str(tmp_path), NOW).records] == [A]


@pytest.mark.parametrize("text", ["", "command not found\n", "sessions 2\nend\n"])
def test_no_answer_is_not_an_empty_place(text: str) -> None:
    assert not read(text, "/root", NOW).whole


LINES = ("sessions 1", "end", f"{A} session {{}}", f"{A} job 7", f"{A} exit -", A, f"{A} ", "unreadable", "\x85")


@given(st.text() | st.lists(st.sampled_from(LINES)).map("\n".join))
def test_any_answer_can_be_read(text: str) -> None:
    join(read(text, "/root", NOW), {}, NOW)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=200)))
def test_any_content_hides_no_other_session(tmp_path: Path, content: dict[str, bytes]) -> None:
    root = tmp_path / f"{time.monotonic_ns()}"
    plant(root, A, job="6")
    odd = plant(root, B)
    for file, data in content.items():
        (odd / file).write_bytes(data)
    reading = read(run(root), str(root), NOW)
    assert reading.whole and reading.records[0].session.id == A
    assert {record.session.id for record in reading.records} | set(reading.damaged) == {A, B}


ANYTHING = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                        lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=5)  # fmt: skip
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
def test_any_record_can_be_joined(
    asked: dict[str, object], said: dict[str, object], state: State, start: str, zone: timedelta
) -> None:
    text = json.dumps(record(A, NOW) | asked)
    files = "".join(f"{A} {name} {json.dumps(said)}\n" for name in ("started", "endpoint"))
    ended = f"{A} exit {json.dumps(said)}\n" if "ended" in said else ""
    now = NOW.astimezone(timezone(zone))
    reading = read(f"sessions 1\n{A} session {text}\n{A} job 7\n{files}{ended}end\n", "/root", now)
    catalogue = join(reading, {SLURM: row(state, start=start, walltime=start)}, now)
    for entry in catalogue.entries:
        in_words(entry, now)
        json.dumps(entry.seen.data())
    assert len(catalogue.entries) + len(catalogue.damaged) == 1


# --- tidying -------------------------------------------------------------------------------------------------

LONG_AGO = ago(days=40)
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


def test_what_errands_left_goes_with_the_old_records(tmp_path: Path) -> None:
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
    session = new_session(str(tmp_path), Request({}), scheduler="slurm", cluster=None, host=None, environment=None,
                          now=LONG_AGO)  # fmt: skip
    write_session(LocalHost(), session, "", new_keys()[1])
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
    reading = read(run(tmp_path), str(tmp_path), NOW)
    assert reading.records == reading.damaged == (), "it is no session any more, and none that is damaged"


@pytest.mark.parametrize("why", ["no exit.json", "secrets", "damaged exit.json", "a job that runs again", "link"])
def test_what_may_live_or_is_not_ours_is_never_removed(tmp_path: Path, why: str) -> None:
    directory = plant(tmp_path, A, LONG_AGO, ended=None if why == "no exit.json" else LONG_AGO,
                      secrets=why in ("secrets", "a job that runs again"))  # fmt: skip
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
    run(tmp_path, "list", UNTIL)
    assert len(list(tmp_path.iterdir())) == 10
    run(tmp_path, "list", UNTIL)
    assert list(tmp_path.iterdir()) == []


def test_secrets_go_and_the_record_stays(tmp_path: Path) -> None:
    directory = plant(tmp_path, A, secrets=True, ended=NOW)
    (directory / "runtime").mkdir()
    (directory / "runtime" / "jpserver-12.json").write_text("a token")
    (directory / "runtime" / "sshd.log").touch()
    other = plant(tmp_path, B, secrets=True)
    run(tmp_path, "tidy", A, "../elsewhere", "--remove")
    names = {path.name for path in directory.iterdir()}
    assert names == {"session.json", "session.env", "job", "job.log", "exit.json", "runtime"}
    assert [path.name for path in (directory / "runtime").iterdir()] == ["sshd.log"]
    assert (other / "token").exists()


def test_a_forgotten_record_goes(tmp_path: Path) -> None:
    plant(tmp_path, A, LONG_AGO, secrets=True)
    plant(tmp_path, B, LONG_AGO, secrets=True)
    run(tmp_path, "tidy", "--remove", A)
    assert [path.name for path in tmp_path.iterdir()] == [B]


# --- what is seen of a session -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "status", "state", "about"),
    [
        ({}, row(State.PENDING, reason="BeginTime"), "waiting", "waits for its begin time"),
        ({}, row(State.RUNNING), "starting", ""),
        ({"started": NOW}, row(State.RUNNING), "starting", ""),
        ({"started": NOW, "listens": True}, row(State.RUNNING), "running", ""),
        ({"started": NOW, "program": "shell"}, row(State.RUNNING), "running", ""),
        ({"started": NOW, "listens": True}, row(State.SUSPENDED), "suspended", ""),
        ({"started": NOW, "listens": True}, row(State.COMPLETING), "ending", ""),
        ({"started": NOW, "ended": NOW, "secrets": True}, row(State.RUNNING), "ending", ""),
        (
            {"ended": NOW, "secrets": True},
            row(State.PENDING, reason="BeginTime"),
            "waiting",
            "waits for its begin time",
        ),
        ({"ended": NOW}, {}, "ended", "stopped"),
        ({"ended": NOW, "cause": "finished"}, {}, "ended", "shut down"),
        ({"ended": NOW, "cause": "idle"}, {}, "ended", "nobody used it"),
        ({"ended": NOW, "cause": "image-missing"}, None, "ended", "image missing"),
        ({"ended": NOW, "secrets": True}, row(State.TIMEOUT), "ended", "reached its walltime"),
        ({"started": ago(hours=2), "ended": NOW}, {}, "ended", "reached its walltime"),
        ({"ended": NOW}, row(State.RUNNING), "ended", "stopped"),  # tidied up: another job of that number
        ({}, row(State.CANCELLED), "ended", "cancelled"),
        ({}, {}, "gone", "never ran"),
        ({"started": NOW}, {}, "gone", "ended without a word"),
        ({"started": NOW}, None, "unknown", "the scheduler does not answer"),
        ({"job": None}, {}, "gone", "no job is noted"),
        ({}, row(State.UNKNOWN), "unknown", "the scheduler does not answer"),
        ({"started": NOW}, row(State.REVOKED), "unknown", "it went to another cluster"),
        ({"ended": NOW, "secrets": True}, row(State.REVOKED), "ended", "stopped"),
    ],
)
def test_the_state_of_a_session(
    tmp_path: Path, files: dict[str, object], status: dict[str, JobStatus] | None, state: str, about: str
) -> None:
    plant(tmp_path, A, **files)  # type: ignore[arg-type]
    (entry,) = look(tmp_path, {SLURM: status}).entries
    assert (entry.seen.state, entry.seen.about) == (state, about)


def test_who_is_asked_for_what(tmp_path: Path) -> None:
    plant(tmp_path, A, job="6", ended=NOW)
    plant(tmp_path, B, job="7", ended=NOW, secrets=True)
    plant(tmp_path, C, job="8")
    plant(tmp_path, name_of(NOW, 8), job="8;snowy")
    plant(tmp_path, name_of(NOW, 9), job=name_of(NOW, 9), scheduler="local")
    plant(tmp_path, name_of(LONG_AGO, 9), LONG_AGO, job="1")
    reading = read(run(tmp_path), str(tmp_path), NOW)
    sure = reading.to_ask(NOW, sure=True)
    assert sure == {
        SLURM: [JobRef("8"), JobRef("7"), JobRef("1")],
        Queue("slurm", "snowy"): [JobRef("8", "snowy")],
        Queue("local"): [JobRef(name_of(NOW, 9))],
    }
    assert reading.to_ask(NOW, sure=False)[SLURM] == [JobRef("8")]


def test_the_same_number_on_two_clusters(tmp_path: Path) -> None:
    plant(tmp_path, A, job="7")
    plant(tmp_path, B, job="7;snowy")
    told = {SLURM: row(State.PENDING), Queue("slurm", "snowy"): {}}
    assert [entry.seen.state for entry in look(tmp_path, told).entries] == ["waiting", "gone"]


def test_the_time_left_is_on_the_clusters_clock(tmp_path: Path) -> None:
    plant(tmp_path, A, ago(hours=1), started=ago(hours=1), listens=True)
    reading = read(run(tmp_path), str(tmp_path), NOW)
    there = NOW.astimezone(timezone(timedelta(hours=5)))
    status = row(State.RUNNING, start="2026-11-21T16:30:00", walltime="2:00:00")
    (entry,) = join(reading, {SLURM: status}, there).entries
    assert (entry.seen.ends, entry.seen.seconds_left) == ("2026-11-21T18:30:00+05:00", 90 * 60)
    (entry,) = join(reading, {SLURM: None}, there).entries
    assert entry.seen.seconds_left is None, "what may not run has no time left"


@pytest.mark.parametrize("state", [State.NODE_FAIL, State.PREEMPTED, State.REVOKED])
def test_a_job_that_may_come_back_keeps_its_secrets(tmp_path: Path, state: State) -> None:
    plant(tmp_path, A, ended=NOW, secrets=True)
    assert not look(tmp_path, {SLURM: row(state)}).entries[0].over
    assert not look(tmp_path, {SLURM: row(State.PENDING)}).entries[0].over
    assert not look(tmp_path, {SLURM: None}).entries[0].over
    assert look(tmp_path, {SLURM: row(State.CANCELLED)}).entries[0].over
    assert look(tmp_path, {SLURM: {}}).entries[0].over


@pytest.mark.parametrize("noted", ["--user=alice", "", "all", "-9", "7 8"])
def test_what_is_no_job_never_gets_into_a_command(tmp_path: Path, noted: str) -> None:
    directory = plant(tmp_path, A, job=None)
    (directory / "job").write_text(f"{noted}\n")
    (directory / "started.json").write_text(f'{{"job": "{noted}"}}\n')
    assert look(tmp_path).entries[0].session.job is None


# --- the one that is meant -----------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> Catalogue:
    """Two that live, and one that has ended."""
    plant(tmp_path, A, ago(hours=3), job="71", started=ago(hours=3), listens=True)
    plant(tmp_path, B, ago(hours=2), job="72", environment="tf-mkl")
    plant(tmp_path, C, ago(hours=1), job="73", ended=NOW)
    return look(tmp_path, {SLURM: row(State.RUNNING, "71", start="2026-11-21T09:02:00") | row(State.PENDING, "72")})


@pytest.mark.parametrize(
    ("word", "meant"),
    [(A, A), (C, C), (A[:12], A), (B[-4:], B), (B[-3:], B), ("72", B), ("71", A)],
)
def test_the_session_that_is_meant(three: Catalogue, word: str, meant: str) -> None:
    assert choose(three, word, "login").session.id == meant


@pytest.mark.parametrize(
    ("command", "shown"),
    [("-t 20 -- '/no/such image.sif'", "such image.sif"), ("-- image.sif/", "image.sif"), ("-t 20", None), ("'", None)],
)
def test_an_image_without_an_environment_is_shown_by_its_name(tmp_path: Path, command: str, shown: str | None) -> None:
    plant(tmp_path, A, command=command, environment=None)
    assert look(tmp_path).entries[0].seen.environment == shown


def test_nobody_shuts_down_a_terminal(tmp_path: Path) -> None:
    plant(tmp_path, A, program="shell", ended=NOW, cause="finished")
    assert (entry := look(tmp_path).entries[0]).seen.state == "ended" and entry.seen.about == ""


@pytest.mark.parametrize(("word", "meant"), [(C[-4:], C), ("73", C), (C[:12], C), (A[-4:], A)])
def test_one_that_has_ended_may_be_meant(three: Catalogue, word: str, meant: str) -> None:
    assert choose(three, word, "login", ended_too=True).session.id == meant


def test_the_number_of_a_job_is_no_part_of_a_name(tmp_path: Path) -> None:
    """The last letters of a name may all be digits, and its first ones are a year."""
    digits, shown = "20261121-100000-2345", "2345"
    plant(tmp_path, digits, job="2027")
    plant(tmp_path, A, job=shown, ended=NOW)
    plant(tmp_path, B, job="2026", ended=NOW)
    three = look(tmp_path, {SLURM: row(State.RUNNING, "2027")})
    for word, meant in (("2026", B), (shown, A), ("2027", digits), (digits, digits)):
        assert choose(three, word, "login", ended_too=True).session.id == meant
    with pytest.raises(SessionNotFound) as caught:
        choose(three, "9999", "login")
    assert digits in caught.value.mend, "not its end, which is a number"


def test_without_a_word_it_is_the_one_that_lives_or_the_last(tmp_path: Path) -> None:
    plant(tmp_path, A, ended=ago(hours=2))
    plant(tmp_path, B, ended=NOW)
    assert choose(look(tmp_path), "", "login", ended_too=True).session.id == B
    plant(tmp_path, C)
    assert choose(look(tmp_path, {SLURM: row(State.PENDING)}), "", "login", ended_too=True).session.id == C


def test_several_are_told_apart(three: Catalogue) -> None:
    for word in ("", "20261121"):
        with pytest.raises(SessionNotFound) as caught:
            choose(three, word, "login")
        assert caught.value.why.splitlines() == [
            f"{B[-4:]} waits since 10:00 (tf-mkl)",
            f"{A[-4:]} runs on gpu1 since 09:02 (tf-gpu)",
        ]
        assert B[-4:] in caught.value.mend


@pytest.mark.parametrize("word", ["x", "2", "2026", "2026112", "20261122", B[-2:], "7", "../", "$(id)"])
def test_none_is_meant(three: Catalogue, word: str) -> None:
    with pytest.raises(SessionNotFound) as caught:
        choose(three, word, "login")
    assert f"“{word}” on login" in caught.value.what
    assert "runs on gpu1" in caught.value.why


def test_one_that_has_ended_is_not_connected_to_by_a_part_of_its_name(three: Catalogue) -> None:
    only_ended = Catalogue(three.entries[2:], (B,), NOW)
    with pytest.raises(SessionNotFound) as caught:
        choose(only_ended, C[-4:], "login")
    assert caught.value.what == f"Session {C} has ended at 12:00 (stopped)."
    assert caught.value.mend == f"see: launch-notebook logs {C[-4:]}, launch-notebook bill {C[-4:]}"
    with pytest.raises(SessionNotFound, match="has ended") as caught:
        choose(three, "73", "login")
    assert "runs on gpu1" in caught.value.why, "those that live are told all the same"
    with pytest.raises(SessionNotFound, match="damaged"):
        choose(only_ended, B, "login")


def test_a_session_nobody_answers_for_counts_as_live(tmp_path: Path) -> None:
    plant(tmp_path, A, started=NOW)
    entry: Entry = choose(look(tmp_path, {SLURM: None}), "", "login")
    assert entry.live and in_words(entry, NOW) == "may run on gpu1 since 12:00 (tf-gpu)"
