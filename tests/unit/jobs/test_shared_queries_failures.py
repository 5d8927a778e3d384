"""Shared queries where commands fail or hang, launchers are killed, and disks are full."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.unit.jobs.shared_query_login import Login, finish, waits

pytestmark = pytest.mark.real_time  # the script waits, for turns and for commands that hang

SCRIPT = job_script("shared_query.sh")


BASH = os.environ.get("NBL_TEST_BASH", "bash")


# --- failures ------------------------------------------------------------------------------------------------


def test_a_failure_is_passed_on_and_shared_for_a_moment(login: Login) -> None:
    login.fails("slurm_load_jobs error: Unable to contact slurm controller\n")
    told = [login.ask(max_age=max_age, session=name) for name, max_age in (("one", 60), ("two", 60), ("three", 0))]
    assert [(answer.exit_code, answer.age > 0) for answer in told] == [(3, False), (3, True), (3, True)]
    assert {answer.errors for answer in told} == {"slurm_load_jobs error: Unable to contact slurm controller\n"}
    assert {answer.said for answer in told} == {""}
    assert len(login.runs) == 1


def test_a_failure_is_no_answer(login: Login) -> None:
    login.fails("Socket timed out\n")
    login.ask()
    login.grows_older(15)
    login.works()
    told = login.ask(max_age=60)
    assert (told.exit_code, told.age, told.said) == (0, 0, "7|PENDING\n")


def test_a_failure_after_an_answer_takes_its_place(login: Login) -> None:
    login.ask()
    login.fails("Socket timed out\n")
    login.ask()
    assert login.ask(max_age=5).exit_code == 3


@pytest.mark.parametrize("alone", [True, False])
def test_a_command_that_hangs_is_ended(login: Login, alone: bool) -> None:
    login.constants["COMMAND_SECONDS"] = 1
    login.is_slow()
    told = login.ask(alone=alone)
    assert (told.exit_code, told.said) == (124, "")
    assert told.errors == f"{login.command} gave no answer within 1 s\n"


# --- those who are killed ------------------------------------------------------------------------------------


def test_when_the_one_who_asks_is_killed_one_other_asks(login: Login) -> None:
    login.is_slow()
    victim = login.begin(max_age=5)
    wait_until(lambda: len(login.runs) == 1)
    others = [login.begin(max_age=0, session=f"s{number}") for number in range(8)]
    for other in others:
        wait_until(functools.partial(waits, other))  # one that only began after the next question would need another
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    wait_until(lambda: len(login.runs) == 2)
    login.answers()
    assert [finish(other).said for other in others] == ["7|PENDING\n"] * 8
    assert len(login.runs) == 2
    assert not login.file(".turn").exists()


@pytest.mark.parametrize("left", ["", "0", "-1", "x y", "99999999"])
def test_a_turn_that_nobody_has_is_not_waited_for_for_ever(login: Login, left: str) -> None:
    """It is given up after a while, which is a short one here."""
    login.constants["PATIENCE_SECONDS"] = 1
    login.folder.mkdir(mode=0o700)
    login.file(".turn").write_text(left)
    assert login.ask().said == "7|PENDING\n"
    assert not login.file(".turn").exists()


def test_one_that_hangs_is_not_waited_for_for_ever(login: Login) -> None:
    login.constants["PATIENCE_SECONDS"] = 1
    login.is_slow()
    hanging = login.begin()
    wait_until(lambda: login.runs)
    os.kill(hanging.pid, signal.SIGSTOP)
    login.answers()
    assert login.ask(session="two").said == "7|PENDING\n"
    os.kill(hanging.pid, signal.SIGCONT)
    assert finish(hanging).said == "7|PENDING\n"
    assert login.ask(max_age=60).age > 0


# --- a full disk ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(login: Login) -> Iterator[None]:
    """The folder has a file system of its own, of some pages and some files."""
    login.folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=20,mode=700", "tmpfs", str(login.folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield
    subprocess.run(["umount", "--lazy", str(login.folder)], check=True)


def no_bytes(login: Login) -> None:
    with contextlib.suppress(OSError), (login.folder / "full").open("wb", buffering=0) as file:
        while True:
            file.write(b"x")
    (login.folder / "empty").touch()
    with pytest.raises(OSError):
        (login.folder / "empty").write_text("x")


def no_files(login: Login) -> None:
    with contextlib.suppress(OSError):
        for number in range(1000):
            (login.folder / f"full-{number}").touch()
    with pytest.raises(OSError):
        (login.folder / "more").touch()


def nothing_left(_: Login) -> None:
    """There was nobody before."""


def turn_of_one_who_died(login: Login) -> None:
    login.file(".turn").write_text("99999999\n")


def empty_turn(login: Login) -> None:
    login.file(".turn").touch()


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("left", [nothing_left, turn_of_one_who_died, empty_turn])
@pytest.mark.parametrize("full", [no_bytes, no_files])
def test_on_a_full_disk_each_asks_for_itself(
    login: Login, full: Callable[[Login], None], left: Callable[[Login], None]
) -> None:
    login.constants["PATIENCE_SECONDS"] = 1
    left(login)
    full(login)
    told = [login.ask(max_age=60), login.ask(max_age=60, session="two", alone=True)]
    assert [(answer.exit_code, answer.age, answer.said) for answer in told] == [(0, 0, "7|PENDING\n")] * 2
    assert len(login.runs) == 2
    if full is no_bytes:  # what one who died left may have made room for a mark
        assert [path.name for path in login.folder.glob("squeue*") if not path.stat().st_size] == []
        assert not login.file(".turn").exists()
    assert not login.file().exists()


def test_where_nothing_may_be_written_each_asks_for_itself(login: Login) -> None:
    """A limit on the size of files does as a quota does: they can be made, and stay empty."""
    script = login.session("one") / "shared_query.sh"
    told = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 0 && exec "$@"',
            "-",
            BASH,
            str(script),
            str(login.folder / "squeue-1"),
            "60.00",
            "echo",
            "7",
        ],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert re.fullmatch(r"0 \S+ together\n7\n", told.stdout)
    assert list(login.folder.iterdir()) == []


def test_a_turn_that_cannot_be_taken_over_is_not_waited_for_for_ever(login: Login) -> None:
    """Somebody, who lives, has put a directory there."""
    login.constants.update(PATIENCE_SECONDS=1, TAKING_OVER_SECONDS=1)
    login.file(".turn").mkdir(parents=True, mode=0o700)
    login.folder.chmod(0o700)
    assert login.ask().said == "7|PENDING\n"


def test_one_who_waits_ends_when_nobody_listens(login: Login) -> None:
    login.folder.mkdir(mode=0o700)
    login.file(".turn").write_text(f"{os.getpid()}\n")  # somebody who lives has it
    waiting = login.begin()
    wait_until(lambda: waits(waiting))
    assert waiting.stdout is not None
    waiting.stdout.close()
    assert waiting.wait(timeout=30) != 0
    assert not login.runs
