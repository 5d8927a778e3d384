"""Checks of this machine and of the login node: clocks, keys, login shells, homes, quotas."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    FolderUnsafe,
    HostKeyChanged,
    LauncherError,
)
from notebook_launcher.core.finding import ok
from notebook_launcher.doctor.checks import login
from notebook_launcher.doctor.checks.login import INSPECT_HOME
from notebook_launcher.doctor.findings import (
    assess_clock,
    assess_home,
    assess_keys,
    assess_login_shell,
    assess_quota,
    assess_root,
    assess_ssh_files,
    read_home,
)
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from tests.doubles import FakePrompts, RecordingView
from tests.unit.doctor.check_results import NOW, results


@pytest.mark.parametrize(
    ("error", "steps"),
    [
        (ConnectionFailed("nowhere.example is not known."), ["fault", "skipped", "skipped"]),
        (HostKeyChanged("The host key of login has changed."), ["ok", "fault", "skipped"]),
        (AuthenticationFailed("login does not let bob in."), ["ok", "ok", "fault"]),
    ],
)
def test_a_login_that_fails_is_told_where_it_failed(
    error: LauncherError, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_host(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(login, "open_host", open_host)
    shown = RecordingView()
    checks = CheckRunner(shown)
    checks.report("ssh here", ok("paramiko"))
    target = cast(LaunchTarget, SimpleNamespace(destination="login"))
    assert login.log_in(checks, target, FakePrompts()) is None
    assert [results(shown)[step] for step in login.LOGGED_IN] == steps


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
    found = assess_clock(there, NOW)
    assert found.result == result and said in found.found


def test_keys_that_others_may_read() -> None:
    found = assess_keys({"~/.ssh/id_rsa": 0o644, "~/.ssh/id_ed25519": 0o600})
    assert found and found.result == "warning" and found.hint == "chmod 600 ~/.ssh/id_rsa"
    assert assess_keys({}) is None


def test_login_shells() -> None:
    noisy = assess_login_shell("tcsh", ["Welcome", "to the site"], 0.4)
    assert noisy.result == "ok" and "2 lines at each login" in noisy.found
    assert assess_login_shell("bash", [], 12.0).result == "warning"
    assert assess_login_shell("bash", [], 0.4, has_setup=True).found == "bash, ready within 0.4 s, login_setup included"
    assert assess_login_shell("bash", [], 12.0, has_setup=True).hint.startswith("look into login_setup in the profile")


def test_nothing_that_others_planted_is_written_to(tmp_path: Path) -> None:
    shared, theirs = tmp_path / "scratch", tmp_path / "theirs"
    shared.mkdir()
    theirs.write_text("precious")
    looking = subprocess.Popen(["sh", "-s", "--", str(shared / "sessions")], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    for folder in (shared, tmp_path):
        (folder / f".launch-notebook-checks-{looking.pid}").symlink_to(theirs)
    told, _ = looking.communicate(INSPECT_HOME)
    assert "root-write ok" in told
    assert theirs.read_text() == "precious"
    assert len(list(shared.iterdir())) == 1, "only what was planted is there"


def test_a_home_is_looked_at_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    home.chmod(0o775)
    root = home / "a/b/sessions"
    told = subprocess.run(["sh", "-s", "--", str(root)], input=INSPECT_HOME, text=True, capture_output=True, check=True,
                          env={**os.environ, "HOME": str(home)})  # fmt: skip
    seen = read_home(told.stdout)
    assert seen.home.path == str(home) and seen.home.writes and seen.home.free and seen.root.mode == ""
    assert assess_home(seen.home).result == "ok"
    assert assess_root(seen.root) == ok(f"{root} can be made")
    assert list(home.iterdir()) == [home / ".ssh"]  # nothing stays
    loose = assess_ssh_files(seen.modes or {})
    assert loose and loose.result == "warning" and loose.hint.endswith(f"chmod go-w {home}")


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
    found = assess_home(read_home(f"home-path /home/a\nhome-disk 1000 900\nhome-write {said}\n").home)
    assert found.result == result and words in found.found and bool(found.hint) == (result == "fault")


def test_a_home_with_little_room_and_one_that_is_small_by_itself() -> None:
    assert assess_home(read_home("home-path /h\nhome-disk 50000000 1000\nhome-write ok").home).result == "warning"
    assert assess_home(read_home("home-path /h\nhome-disk 8192 4000\nhome-write ok").home).result == "ok"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_session_folder_that_a_launch_refuses_is_refused_in_the_same_words(tmp_path: Path, is_there: bool) -> None:
    """Others may rename in the folder above it, or in the folder itself."""
    shared = tmp_path / "shared"
    root = shared / "sessions"
    shared.mkdir()
    if is_there:
        root.mkdir()
    (root if is_there else shared).chmod(0o777)
    host, shown = LocalHost(), RecordingView()
    with pytest.raises(FolderUnsafe) as caught:
        host.write_files(f"{root}/new", {"token": b"x"})
    target = LaunchTarget(ClusterProfile(session_root=str(root)), None, None, "local")
    login.check_login_node(CheckRunner(shown), host, target)
    [check] = [check for check in shown.all(events.CheckResult) if check.check == login.ROOT]
    refused = caught.value
    assert (check.result, check.hint) == ("fault", refused.hint)
    assert check.found == f"{refused.what.replace('/new', '')} {refused.why}"


@pytest.mark.parametrize(
    ("mode", "result"), [("drwxr-xr-x", "ok"), ("drwxrwxr-x", "warning"), ("drwx----w-", "warning")]
)
def test_who_may_write_where_sessions_lie(mode: str, result: str) -> None:
    assert assess_root(read_home(f"root-path /r\nroot-mode {mode}\nroot-write ok").root).result == result


@pytest.mark.parametrize(
    ("code", "said", "result"),
    [(0, "home  12 GiB of 30 GiB (40%)", "ok"), (0, "blocks 97.5 % used\nmore", "warning"), (1, "not found", "unknown"),
     (0, "", "unknown")],
)  # fmt: skip
def test_what_a_site_says_of_quotas(code: int, said: str, result: str) -> None:
    assert assess_quota(["myquota"], code, said).result == result
