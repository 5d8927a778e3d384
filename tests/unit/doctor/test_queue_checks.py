"""What a checkup was told is judged rightly: homes, clocks, the way to an image, reservations; and told in order."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from notebook_launcher.cli.views.checks import checked_words, show_check
from notebook_launcher.core.check_runner import Round
from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import (
    AccountRefused,
    ChecksFailed,
    ConnectionLost,
    HostCommandFailed,
    ReservationRefused,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.doctor.bounded_command import run_tethered
from notebook_launcher.doctor.checks import software
from notebook_launcher.doctor.checks.course import check_reservations
from notebook_launcher.doctor.checks.login import LOOK_AT_HOME
from notebook_launcher.doctor.checks.node import judge_gpus
from notebook_launcher.doctor.checks.queue import Told, check_accounting, check_request
from notebook_launcher.doctor.checks.software import LOOK_AT_IMAGE, check_environment
from notebook_launcher.doctor.command import doctor
from notebook_launcher.doctor.findings import (
    Finding,
    Image,
    Step,
    covers,
    expand,
    fault,
    gpu_types,
    judge_account,
    judge_booking,
    judge_clock,
    judge_for_others,
    judge_home,
    judge_image,
    judge_keys,
    judge_login_shell,
    judge_programs,
    judge_quota,
    judge_root,
    judge_ssh_files,
    ok,
    read_home,
    read_image,
    room_in,
    roughly,
    sessions_on,
)
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.launch import session_env
from notebook_launcher.planning.plan import Ask, Here, Place, Plan
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile, Environment, Reservation
from notebook_launcher.schedulers.cluster_info import Booking, Node
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.cluster_info import SlurmOutlook
from notebook_launcher.session.record import look_at

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


class Shown:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def listen(self, inbox: object) -> None:
        raise AssertionError("nobody types here")

    @property
    def results(self) -> dict[str, str]:
        return {event.check: event.result for event in self.events if isinstance(event, events.Checked)}


# --- a round ---------------------------------------------------------------------------------------------------


def raising(error: Exception) -> Callable[[], Finding]:
    def look() -> Finding:
        raise error

    return look


def test_what_builds_on_a_fault_is_skipped_and_what_builds_on_that_too() -> None:
    shown = Shown()
    round_ = Round(shown)
    assert round_.check("home", lambda: ok("fine"))
    assert not round_.check("account", raising(AccountRefused("Not yours.", mend="take another one")))
    assert not round_.check("start", raising(AssertionError("it is not asked")), needs=["home", "account"])
    assert not round_.check("node", raising(AssertionError("it is not asked")), needs=["start"])
    assert round_.check("image", lambda: ok("there"), needs=["home", "never looked at"])
    assert shown.results == {"home": "ok", "account": "fault", "start": "skipped", "node": "skipped", "image": "ok"}
    with pytest.raises(ChecksFailed, match=r"A check failed: account\.") as failed:
        round_.sum_up()
    assert failed.value.mend == "take another one"
    assert shown.events[-1] == events.CheckedAll(2, ("account",), (), (), ("start", "node"))


def test_no_answer_in_time_is_no_fault_and_a_lost_connection_ends_all_that_follows() -> None:
    shown = Shown()
    round_ = Round(shown)
    assert round_.check("quota", raising(HostCommandFailed("myquota did not answer within 30 s on login.")))
    assert round_.check("nothing to say", lambda: None)
    round_.check("scheduler", raising(ConnectionLost("The connection to login is lost.")))
    round_.check("image", raising(AssertionError("it is not asked")))
    assert shown.results == {"quota": "unknown", "connection": "fault", "image": "skipped"}


@pytest.mark.parametrize("check", ["image", "environment", "JupyterLab"])
def test_nothing_is_promised_while_the_software_is_not_found_out(check: str) -> None:
    for event in (events.CheckedAll(9, (), (check,), (), ()), events.CheckedAll(9, (), (), (check,), ())):
        assert checked_words(event).startswith("No fault was found. 9 checks passed;")
    clock = events.CheckedAll(9, (), ("clock",), (), ())
    assert checked_words(clock).startswith("Nothing is in the way of a launch.")


def test_an_environment_that_hangs_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "ENTER_WITHIN", 1.0)
    place = Place(ClusterProfile(), None, None, "local")
    plan = Plan(place, Request({}), "slow", Environment(activate="sleep 987.25"), None)
    shown = Shown()
    old = tmp_path / ".checkup-1-old"
    old.mkdir()
    os.utime(old, (0, 0))
    host = LocalHost()
    check_environment(Round(shown), host, plan, str(tmp_path),
                      lambda: session_env(plan, Local(str(tmp_path)), look_at(host)), node_tells=False)  # fmt: skip
    assert shown.results == {"environment": "warning"}
    assert "1 s" in shown.events[-1].found and "doctor --node" in shown.events[-1].mend  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == [], "what a killed checkup left goes as well"
    assert subprocess.run(["pgrep", "-f", "sleep 987[.]25"], capture_output=True).returncode == 1


def test_a_command_on_a_tether_tells_what_it_says_and_how_it_ended() -> None:
    script = "echo out; echo err >&2; exit 3"
    code, lines = run_tethered(LocalHost(), ["sh", "-c", script], 10)
    assert (code, sorted(filter(None, lines))) == (3, ["err", "out"])


def test_lsf_is_not_asked_what_it_cannot_tell() -> None:
    shown = Shown()
    nobody = cast(Host, None)  # it is not asked
    told = check_request(Round(shown), nobody, Lsf(), Request({"time": "2:00:00"}), "alice", NOW)
    check_accounting(Round(shown), nobody, Lsf())
    assert shown.results == dict.fromkeys(("account", "walltime", "start"), "unknown")
    assert told.partitions is None


def test_a_round_without_faults_raises_nothing() -> None:
    round_ = Round(Shown())
    round_.tell("clock", Finding("warning", "late"))
    round_.sum_up()


# --- this machine and the login node -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "result", "said"),
    [
        (timedelta(seconds=3), "ok", "as here"),
        (timedelta(hours=1), "warning", "1 hour ahead of"),
        (-timedelta(days=400), "warning", "400 days behind"),
    ],
)
def test_two_clocks(ahead: timedelta, result: str, said: str) -> None:
    there = (NOW + ahead).astimezone(timezone(timedelta(hours=9)))  # another zone is no other time
    found = judge_clock(there, NOW)
    assert found.result == result and said in found.found


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1, "1 second"), (59, "59 seconds"), (3599, "1 hour"), (5400, "90 minutes"), (172800, "2 days"), (0, "0 seconds")],
)
def test_spans_are_told_in_the_unit_that_tells_them_well(seconds: int, said: str) -> None:
    assert roughly(timedelta(seconds=seconds)) == said


def test_keys_that_others_may_read() -> None:
    found = judge_keys({"~/.ssh/id_rsa": 0o644, "~/.ssh/id_ed25519": 0o600})
    assert found and found.result == "warning" and found.mend == "chmod 600 ~/.ssh/id_rsa"
    assert judge_keys({}) is None


def test_login_shells() -> None:
    noisy = judge_login_shell("tcsh", ["Welcome", "to the site"], 0.4)
    assert noisy.result == "ok" and "2 lines at each login" in noisy.found
    assert judge_login_shell("bash", [], 12.0).result == "warning"


def test_nothing_that_others_planted_is_written_to(tmp_path: Path) -> None:
    shared, theirs = tmp_path / "scratch", tmp_path / "theirs"
    shared.mkdir()
    theirs.write_text("precious")
    looking = subprocess.Popen(["sh", "-s", "--", str(shared / "sessions")], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    for folder in (shared, tmp_path):
        (folder / f".launch-notebook-checks-{looking.pid}").symlink_to(theirs)
    told, _ = looking.communicate(LOOK_AT_HOME)
    assert "root-write ok" in told
    assert theirs.read_text() == "precious"
    assert len(list(shared.iterdir())) == 1, "only what was planted is there"


def test_a_home_is_looked_at_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    home.chmod(0o775)
    root = home / "a/b/sessions"
    told = subprocess.run(["sh", "-s", "--", str(root)], input=LOOK_AT_HOME, text=True, capture_output=True, check=True,
                          env={**os.environ, "HOME": str(home)})  # fmt: skip
    seen = read_home(told.stdout)
    assert seen.home.path == str(home) and seen.home.writes and seen.home.free and seen.root.mode == ""
    assert judge_home(seen.home).result == "ok"
    assert judge_root(seen.root) == ok(f"{root} can be made")
    assert list(home.iterdir()) == [home / ".ssh"]  # nothing stays
    loose = judge_ssh_files(seen.modes or {})
    assert loose and loose.result == "warning" and loose.mend.endswith(f"chmod go-w {home}")


@pytest.mark.parametrize(
    ("said", "result", "words"),
    [
        ("ok", "ok", "can be written"),
        ("cat: write error: No space left on device", "fault", "is full"),
        ("cat: write error: Disk quota exceeded", "fault", "is full"),
        ("sh: 3: cannot create /home/a/x: Read-only file system", "fault", "read-only"),
        ("sh: 3: cannot create /home/a/x: Permission denied", "fault", "Permission denied"),
    ],
)
def test_why_a_home_cannot_be_written(said: str, result: str, words: str) -> None:
    found = judge_home(read_home(f"home-path /home/a\nhome-disk 1000 900\nhome-write {said}\n").home)
    assert found.result == result and words in found.found and bool(found.mend) == (result == "fault")


def test_a_home_with_little_room_and_one_that_is_small_by_itself() -> None:
    assert judge_home(read_home("home-path /h\nhome-disk 50000000 1000\nhome-write ok").home).result == "warning"
    assert judge_home(read_home("home-path /h\nhome-disk 8192 4000\nhome-write ok").home).result == "ok"


@pytest.mark.parametrize(
    ("mode", "result"), [("drwxr-xr-x", "ok"), ("drwxrwxr-x", "warning"), ("drwx----w-", "warning")]
)
def test_who_may_write_where_sessions_lie(mode: str, result: str) -> None:
    assert judge_root(read_home(f"root-path /r\nroot-mode {mode}\nroot-write ok").root).result == result


@pytest.mark.parametrize(
    ("code", "said", "result"),
    [(0, "home  12 GiB of 30 GiB (40%)", "ok"), (0, "blocks 97.5 % used\nmore", "warning"), (1, "not found", "unknown"),
     (0, "", "unknown")],
)  # fmt: skip
def test_what_a_site_says_of_quotas(code: int, said: str, result: str) -> None:
    assert judge_quota(["myquota"], code, said).result == result


# --- the scheduler -----------------------------------------------------------------------------------------------


def test_commands_that_are_not_found() -> None:
    assert judge_programs({"sbatch": "", "squeue": ""}, "").result == "fault"
    assert judge_programs({"sbatch": "/usr/bin/sbatch", "sacct": ""}, "slurm 24.11").result == "warning"
    assert judge_programs({"sbatch": "/usr/bin/sbatch"}, "slurm 24.11") == ok("slurm 24.11: sbatch")


def test_accounts() -> None:
    refusal = AccountRefused("There is no such account.", why="Invalid account", mend="sacctmgr show assoc")
    assert judge_account("proj1", ("proj1",), None).result == "ok"
    assert judge_account("from-a-plugin", ("proj1",), None).result == "ok"  # the scheduler takes it: it knows better
    near = judge_account("prj1", ("proj1", "other"), refusal)
    assert (
        near.found == "The account prj1 is not yours. Yours are: proj1, other."
        and near.mend == "did you mean -A proj1?"
    )
    assert judge_account("proj1", None, refusal).mend == "sacctmgr show assoc"


LAB = Booking("lab1", "2026-11-20T08:00:00+0000", "2026-11-27T18:00:00+0000", "gpu[1-2]", "alice,bob")


def test_reservations() -> None:
    assert judge_booking("lab1", (LAB,), NOW, None).result == "ok"
    assert "for users alice,bob" in judge_booking("lab1", (LAB,), NOW, None).found
    assert judge_booking("lab", (LAB,), NOW, None).mend == "did you mean lab1?"
    assert judge_booking("lab1", (LAB,), NOW + timedelta(days=9), None).found.startswith("The reservation is over")
    refused = judge_booking("lab1", (LAB,), NOW, ReservationRefused("Access denied."))
    assert refused.result == "fault" and "alice,bob" in refused.mend
    assert judge_booking("lab1", None, NOW, None).result == "unknown"
    early = judge_booking("lab1", (LAB,), NOW - timedelta(days=9), None)
    assert early.result == "ok" and "waits until then" in early.found


def course_checks(now: datetime, *names: str, asked: str | None = None) -> tuple[Shown, Round]:
    """Check a course with lab1 and one of a later day, where there are reservations with these names."""
    shown = Shown()
    round_ = Round(shown)
    course = CourseProfile(name="c", reservations=(
        Reservation(name="lab1", first=date(2026, 11, 20), last=date(2026, 11, 27)),
        Reservation(name="gpulab-2", first=date(2026, 12, 1), last=date(2026, 12, 1)),
    ))  # fmt: skip
    there = tuple(dataclasses.replace(LAB, name=name, end="2026-12-02T00:00:00+0000") for name in names)
    check_reservations(round_, course, Told(bookings=there), now, asked)
    return shown, round_


def test_who_stumbles_over_a_reservation_of_a_later_day() -> None:
    shown, round_ = course_checks(NOW, "lab1")
    assert shown.results == {"reservation lab1": "ok", "reservation gpulab-2": "fault"}
    with pytest.raises(ChecksFailed) as failed:
        round_.sum_up()
    assert failed.value.why == "Students on 2026-12-01 would stumble over that."
    assert "--reservation" not in failed.value.mend
    round_.tell("account", fault("Not yours.", "another"))
    with pytest.raises(ChecksFailed) as failed:
        round_.sum_up()
    assert failed.value.why == "Students on 2026-12-01 and a launch would stumble over that."


def test_a_reservation_is_told_once_and_one_whose_days_are_over_is_missed_by_nobody() -> None:
    assert course_checks(NOW, "lab1", "gpulab-2", asked="lab1")[0].results == {"reservation gpulab-2": "ok"}
    later = course_checks(NOW + timedelta(days=8), "gpulab-2")[0]
    assert later.results == {"reservation lab1": "ok", "reservation gpulab-2": "ok"}


def test_whether_a_reservation_covers_the_days_of_a_course() -> None:
    assert covers(LAB, date(2026, 11, 20), date(2026, 11, 27), NOW)
    assert not covers(LAB, date(2026, 11, 20), date(2026, 11, 28), NOW)


def test_the_short_form_of_nodes() -> None:
    assert expand("gpu[1-3,07],login,n[08-10]-ib") == [
        "gpu1", "gpu2", "gpu3", "gpu07", "login", "n08-ib", "n09-ib", "n10-ib",
    ]  # fmt: skip
    assert expand("") == []


def test_how_much_room_there_is() -> None:
    nodes = [Node("gpu1", "gpu", "idle", True, 16, 0, {"t4": 2}), Node("gpu1", "core", "idle", True, 16, 0, {"t4": 2}),
             Node("gpu2", "gpu", "down", False, 16, 0, {"t4": 2}), Node("n1", "core", "idle", True, 20, 0)]  # fmt: skip
    assert [node.name for node in room_in(["gpu1", "gpu2"], [], nodes)] == ["gpu1"]
    assert {node.name for node in room_in(None, ["core"], nodes)} == {"gpu1", "n1"}
    assert {node.name for node in room_in(None, ["gpu", "core"], nodes)} == {"gpu1", "n1"}


@pytest.mark.parametrize(
    ("flags", "count"),
    [({"gpus": "a100:2"}, 1), ({"gpus": "t4:2"}, 4), ({"gres": "gpu:3"}, 4), ({"gpus-per-node": "16"}, 0),
     ({"gpus": "t4:1,a100:1"}, 2), ({"ntasks": "4"}, 0)],
)  # fmt: skip
def test_room_is_counted_by_type_and_node_by_node(flags: dict[str, str | None], count: int) -> None:
    nodes = [Node("g1", "gpu", "idle", True, 16, 0, {"t4": 8}), Node("g2", "gpu", "idle", True, 16, 0, {"a100": 2}),
             Node("g3", "gpu", "idle", True, 16, 0, {"": 4, "h100": 2})]  # fmt: skip
    extra = [Node("g4", "gpu", "idle", True, 16, 0, {"t4": 2, "a100": 2})] if "," in (flags.get("gpus") or "") else []
    assert sessions_on([*nodes, *extra], Request(flags)) == count


def test_types_of_gpus_that_are_named() -> None:
    assert gpu_types(Request({"gpus": "a100:1"})) == {"a100"}
    assert gpu_types(Request({"gres": "gpu:t4:1,scratch:5"})) == {"t4"}
    assert gpu_types(Request({"gpus": "2"})) == gpu_types(Request({"gres": "gpu:1"})) == set()


def test_accounts_and_reservations_are_read_as_slurm_writes_them() -> None:
    outlook = SlurmOutlook()
    told = "practice\npractice|proj1\npractice|proj2\nsnowy|proj7\npractice|proj1\n"
    assert outlook.read_accounts(Answer(0, told)) == ("proj1", "proj2")
    assert outlook.read_accounts(Answer(1, "practice\n", "Slurm accounting storage is disabled")) is None
    line = (
        "ReservationName=lab1 StartTime=2026-11-21T23:14:20 EndTime=2027-11-21T23:14:20 Duration=365-00:00:00 "
        "Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=core Flags=ANY_NODES TRES=(null) "
        "Users=alice Groups=(null) Accounts=proj1 Licenses=lab1:1 State=ACTIVE BurstBuffer=(null)\n"
    )
    assert outlook.read_bookings(Answer(0, line)) == (
        Booking("lab1", "2026-11-21T23:14:20", "2027-11-21T23:14:20", "", "alice", "proj1"),
    )
    assert outlook.read_bookings(Answer(0, "No reservations in the system\n")) == ()
    assert outlook.read_bookings(Answer(1)) is None


# --- images ------------------------------------------------------------------------------------------------------


def look_at_image(path: Path | str, folder: Path) -> Image:
    words = ["sh", "-s", "--", str(path)]
    told = subprocess.run(words, input=LOOK_AT_IMAGE, text=True, capture_output=True, check=True, cwd=folder)
    return read_image(str(path), told.stdout)


def test_an_image_is_known_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "good.sif").write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\00001\0")
    (tmp_path / "bad.sif").write_text("Bootstrap: docker\n")
    (tmp_path / "it is.sqsh").write_bytes(b"hsqs\0\0")
    (tmp_path / "folder").mkdir()
    kinds = [look_at_image(tmp_path / name, tmp_path).kind for name in ("good.sif", "bad.sif", "it is.sqsh", "folder")]
    assert kinds == ["sif", "other", "squashfs", "folder"]
    assert judge_image(look_at_image("good.sif", tmp_path)).result == "ok"
    assert judge_image(look_at_image(tmp_path / "bad.sif", tmp_path)).result == "fault"


def test_the_way_to_an_image_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    found = judge_image(look_at_image(tmp_path / "images/2026/tf.sif", tmp_path))
    assert found.result == "fault" and found.found.endswith(f"ends at {tmp_path}/images.")


def test_an_image_with_a_name_like_it_is_offered(tmp_path: Path) -> None:
    (tmp_path / "jupyterlab.sif").touch()
    found = judge_image(look_at_image(tmp_path / "jupyterlabb.sif", tmp_path))
    assert found.mend.startswith(f"did you mean {tmp_path}/jupyterlab.sif?")
    assert judge_image(look_at_image("jupyterlabb.sif", tmp_path)).mend.startswith("did you mean")
    assert judge_image(look_at_image(tmp_path / "quite-another", tmp_path)).mend.startswith(f"see: ls {tmp_path}")


def test_the_folder_that_keeps_a_user_out_is_named() -> None:
    steps = (Step("/proj", "drwxr-xr-x", "root", "root"), Step("/proj/lab", "drwxr-x---", "eva", "lab", enters=False))
    found = judge_image(Image("/proj/lab/tf.sif", "unknown", None, steps))
    assert found.found.startswith("You may not enter /proj/lab, where") and "ask eva" in found.mend


@pytest.mark.parametrize(
    ("folder", "image", "result", "mend"),
    [
        ("drwxr-xr-x", "-rw-r--r--", "ok", ""),
        ("drwx--x--x", "-r--r--r--", "ok", ""),
        ("drwxr-x---", "-rw-r--r--", "warning", "getent group lab"),
        ("drwx------", "-rw-r--r--", "fault", "chmod a+x /proj/lab"),
        ("drwxr-xr-x", "-rw-------", "fault", "chmod a+r /proj/lab/tf.sif"),
        ("drwxr-x---+", "-rw-r--r--", "unknown", "getfacl /proj/lab"),
    ],
)
def test_whether_a_whole_course_can_read_an_image(folder: str, image: str, result: str, mend: str) -> None:
    steps = (Step("/proj/lab", folder, "eva", "lab"), Step("/proj/lab/tf.sif", image, "eva", "lab"))
    found = judge_for_others(Image("/proj/lab/tf.sif", "sif", 1, steps))
    assert found.result == result and mend in found.mend


# --- a node, the view --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "result", "said"),
    [
        ("visible 0\nseen GPU 0: Tesla T4\n", "ok", "GPU 0: Tesla T4"),
        ("visible 0,1\ndevice /dev/nvidia0\ndevice /dev/nvidia1\n", "ok", "2 for this job (0,1)"),
        ("visible \n", "fault", "no GPU device"),
    ],
)
def test_whether_a_job_sees_its_gpus(told: str, result: str, said: str) -> None:
    found = judge_gpus(told)
    assert found.result == result and said in found.found


def shown(check: events.Checked, *, terminal: bool, encoding: str = "utf-8") -> list[str]:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=buffer, width=80, force_terminal=terminal, color_system=None)
    show_check(console, check)
    buffer.seek(0)
    return buffer.read().splitlines()


LONG = events.Checked(
    "image", "fault", "You may not enter \x1b[31m/proj/lab, " + "where the image should be, " * 4, "ask eva"
)


def test_a_check_fits_80_columns_in_a_terminal_and_is_one_line_for_a_program() -> None:
    lines = shown(LONG, terminal=True)
    assert max(map(len, lines)) <= 80 and len(lines) == 4
    assert lines[0].startswith("✗ image               You may not enter /proj/lab,")
    assert lines[-1] == "                      → ask eva"
    assert len(shown(LONG, terminal=False)) == 2


def test_a_long_name_has_a_line_of_its_own_in_a_terminal() -> None:
    check = events.Checked("reservation gpulab-2", "fault", "There is none.", "ask for it")
    blanks = 22 * " "
    assert shown(check, terminal=True) == ["✗ reservation gpulab-2", f"{blanks}There is none.", f"{blanks}→ ask for it"]
    assert shown(check, terminal=False)[0] == "✗ reservation gpulab-2  There is none."


def test_how_words_were_understood_is_well_and_what_the_scheduler_decides_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = tmp_path / "notebook-launcher" / "clusters" / "uni.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        'host = "127.0.0.1:1"\nmax_time = { devcore = "1:00:00" }\n'
        '[[translations]]\nwhen = { clusters = "old" }\nset = { clusters = false }\nnote = "there is one cluster."\n'
    )
    shown = Shown()
    ask = Ask({"partition": "devcore", "time": "3:00:00", "clusters": "old"}, "uni")
    prompts = cast(Prompts, SimpleNamespace(asks=False))
    with pytest.raises(ChecksFailed):
        doctor(ask, Here("laptop", False), shown, prompts, Interrupts())
    told = [event for event in shown.events if isinstance(event, events.Checked) and event.check == "as understood"]
    assert [(event.result, event.found) for event in told] == [("ok", "-M old is left out: there is one cluster.")]


def test_marks_where_there_are_none() -> None:
    assert shown(events.Checked("clock", "ok", "fine"), terminal=False, encoding="ascii")[0].startswith("ok clock")


def test_a_check_is_data_as_well() -> None:
    assert json.loads(json.dumps(LONG.data()))["result"] == fault("", "").result
