"""Small files written and read, on every host."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import FolderUnsafe, HostCommandFailed
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.file_writing import make_mark
from notebook_launcher.hosts.local import LocalHost
from tests.ssh_server import running

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]

MARK = make_mark()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("name", ["new/a/b", "with space", "'quote' $(touch pwned)", "-dash", "ünï"])
def test_files_are_written_for_their_owner_alone(host: Host, tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    before = os.umask(0o000)
    try:
        host.write_files(str(directory), {"token": b"secret", "empty": b"", "binary": bytes(range(256))})
    finally:
        os.umask(before)
    assert mode(directory) == 0o700
    assert {path.name: (mode(path), path.read_bytes()) for path in directory.iterdir()} == {
        "token": (0o600, b"secret"),
        "empty": (0o600, b""),
        "binary": (0o600, bytes(range(256))),
    }
    assert abs((directory / "token").stat().st_mtime - time.time()) < 60
    if "/" in name:
        assert mode(tmp_path / "new") == 0o700


def test_an_open_folder_is_closed_and_other_files_in_it_stay(host: Host, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "old").write_text("old")
    (tmp_path / "token").write_text("old")
    (tmp_path / "token").chmod(0o644)
    host.write_files(str(tmp_path), {"token": b"new"})
    assert mode(tmp_path) == 0o700
    assert (mode(tmp_path / "token"), (tmp_path / "token").read_text()) == (0o600, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "token"]


def test_a_file_is_never_seen_half(host: Host, tmp_path: Path) -> None:
    size = 1 << 18
    host.write_files(str(tmp_path), {"file": b"a" * size})
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((tmp_path / "file").read_bytes())
            time.sleep(0.001)

    reader = threading.Thread(target=look)
    reader.start()
    for letter in b"bcdef":
        host.write_files(str(tmp_path), {"file": bytes([letter]) * size})
    stop.set()
    reader.join()
    assert {(len(content), len(set(content))) for content in seen} == {(size, 1)}


def test_where_files_cannot_be_written_it_is_told(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostCommandFailed) as caught:
        host.write_files(str(tmp_path / "file" / "below"), {"token": b"x"})
    assert host.label in caught.value.what
    assert "Not a directory" in caught.value.why


@pytest.mark.parametrize("prepared", [False, True])
def test_files_are_written_and_a_command_is_run_at_once(host: Host, tmp_path: Path, prepared: bool) -> None:
    """It has the umask of the login, no input, and what the login exports: it may be the one that submits the job."""
    directory = str(tmp_path / "a b/new")
    words = ["bash", "-c", 'umask; cat "$1"; cat; pwd; echo careful >&2; exit 5', "-", f"{directory}/token"]
    umask, here = host.run(["bash", "-c", "umask; pwd"], login_shell=True).stdout.split("\n")[:2]
    if prepared:
        host.prepare_login_shell()
    argv, stdin = host.files_then(directory, {"token": b"secret\n"}, words, MARK)
    answer = host.after_files(directory, host.run_prepared(argv, stdin=stdin), MARK)
    assert answer == CommandResult(5, f"{umask}\nsecret\n{here}\n", "careful\n")
    assert mode(tmp_path / "a b/new") == 0o700


def test_what_a_login_exports_reaches_a_command_behind_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`module` is a function, which dash would drop; what BASH_ENV names may print."""
    (tmp_path / "env").write_text("echo noise\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    monkeypatch.setenv("BASH_FUNC_module%%", "() { echo a module; }")
    monkeypatch.setenv("BASH_FUNC_exec%%", "() { echo not this one; }")
    host, directory = LocalHost(), str(tmp_path / "new")
    argv, stdin = host.files_then(directory, {"token": b"x"}, ["bash", "-c", "module"], MARK)
    assert host.after_files(directory, host.run(argv, stdin=stdin), MARK).stdout == "noise\na module\n"


def test_files_are_written_whatever_the_login_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As conda's own `tar`, options for it, or functions in place of commands; the command itself gets all of it."""
    (tmp_path / "bin").mkdir()
    for name in ("tar", "mv", "id", "ls", "sh"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho not this one\nexit 9\n")
        (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv(f"BASH_FUNC_{name}%%", "() { echo nor this one; return 8; }")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("TAR_OPTIONS", "--no-such-option")
    host, directory = LocalHost(), str(tmp_path / "new")
    words = ["bash", "-c", 'echo "$TAR_OPTIONS"; type -p mkdir tar; cat "$1"', "-", f"{directory}/token"]
    argv, stdin = host.files_then(directory, {"token": b"secret\n"}, words, MARK)
    printed = host.after_files(directory, host.run(argv, stdin=stdin), MARK).stdout
    assert printed.startswith("--no-such-option\n") and printed.endswith("secret\n")


def test_what_a_login_prints_is_taken_for_no_mark(tmp_path: Path) -> None:
    marks = {make_mark() for _ in range(3)}
    assert len(marks) == 3
    answer = CommandResult(1, "launch-notebook: writing\nlaunch-notebook: written\n7\n", "tar: Disk quota exceeded")
    with pytest.raises(HostCommandFailed, match="could not be written"):
        LocalHost().after_files(str(tmp_path), answer, marks.pop())


def test_nothing_is_run_where_the_files_cannot_be_written(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "below")
    argv, stdin = host.files_then(below, {"token": b"x"}, ["touch", str(tmp_path / "run")], MARK)
    answer = host.run(argv, stdin=stdin)
    with pytest.raises(HostCommandFailed, match="could not be written"):
        host.after_files(below, answer, MARK)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_place_of_a_file_keeps_the_command_from_running(tmp_path: Path) -> None:
    """So a launcher that has lost its answer can stop it, however late it comes."""
    (tmp_path / "new/submit.sh").mkdir(parents=True)
    directory, files = str(tmp_path / "new"), {"session.json": b"{}", "submit.sh": b"x", "token": b"x"}
    argv, stdin = LocalHost().files_then(directory, files, ["touch", str(tmp_path / "run")], MARK)
    answer = LocalHost().run(argv, stdin=stdin)
    assert answer.exit_code == 1 and "submit.sh" in answer.stderr
    assert not (tmp_path / "run").exists() and not any((tmp_path / "new/submit.sh").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(
    ("owner", "group", "bits", "why", "hint"),
    [
        (0, 0, 0o777, "everybody may write in it", "chmod go-w"),
        (2, 0, 0o777, "everybody may write in it", "name another folder"),
        (0, 12345, 0o775, "group 12345 may write in it", "chmod go-w"),
        (12345, 0, 0o755, "it belongs to user 12345", "name another folder"),
        (12345, 0, 0o1777, "it belongs to user 12345", "name another folder"),
        (0, 12345, 0o1777, "", ""),  # as /tmp: what is one's own there, nobody else can rename
        (0, 12345, 0o755, "", ""),
    ],
)
def test_nothing_is_written_where_others_may_rename_a_folder_on_the_way(
    tmp_path: Path, owner: int, group: int, bits: int, why: str, hint: str
) -> None:
    """Else they could put a folder of theirs in its place, whose script the launcher would run."""
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, owner, group)
    shared.chmod(bits)
    if not why:
        LocalHost().write_files(f"{shared}/root/new", {"token": b"x"})
        return
    argv, stdin = LocalHost().files_then(f"{shared}/root/new", {"token": b"x"}, ["touch", str(tmp_path / "run")], MARK)
    with pytest.raises(FolderUnsafe, match="would not be safe"):
        LocalHost().after_files(f"{shared}/root/new", LocalHost().run(argv, stdin=stdin), MARK)
    assert not (tmp_path / "run").exists()
    with pytest.raises(FolderUnsafe) as caught:
        LocalHost().write_files(f"{shared}/root/new", {"token": b"x"})
    assert caught.value.why == f"Others could replace them by way of {shared}: {why}."
    assert caught.value.hint.startswith(hint)
    assert not (shared / "root").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of somebody else")
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o775, 0), (0o755, 12345)])
def test_a_folder_that_is_there_already_is_looked_at_itself(tmp_path: Path, mode: int, owner: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, owner, 12345)
    shared.chmod(mode)
    with pytest.raises(FolderUnsafe):
        LocalHost().write_files(str(shared), {"token": b"x"})
    assert (list(shared.iterdir()), stat.S_IMODE(shared.stat().st_mode)) == ([], mode)


def test_what_is_above_the_home_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "lab" / "home"
    home.mkdir(parents=True)
    home.parent.chmod(0o777)
    monkeypatch.setenv("HOME", str(home))
    LocalHost().write_files(f"{home}/new", {"token": b"x"})
    home.chmod(0o777)
    with pytest.raises(FolderUnsafe):
        LocalHost().write_files(f"{home}/other", {"token": b"x"})


@pytest.mark.skipif(not shutil.which("setfacl"), reason="access lists are made with setfacl")
@pytest.mark.parametrize(("entry", "is_safe"), [("u:12345:rwx", False), ("g:12345:r-x", True), ("g:12345:rwx", False)])
def test_an_access_list_counts(tmp_path: Path, entry: str, is_safe: bool) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    if subprocess.run(["setfacl", "-m", f"{entry},m::rwx", shared], check=False).returncode:
        pytest.skip("no access lists on this file system")
    if is_safe:
        LocalHost().write_files(f"{shared}/new", {"token": b"x"})
        return
    with pytest.raises(FolderUnsafe) as caught:
        LocalHost().write_files(f"{shared}/new", {"token": b"x"})
    assert "access list" in caught.value.why


def test_neither_a_link_to_such_a_folder_nor_one_in_it_hides_it(host: Host, tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared / "below", own):
        folder.mkdir(parents=True)
    (own / "link").symlink_to(shared / "below")
    (shared / "link").symlink_to(own)
    shared.chmod(0o777)
    for root in (own / "link", shared / "link"):
        with pytest.raises(FolderUnsafe, match="would not be safe"):
            host.write_files(f"{root}/new", {"token": b"x"})
        assert not (root / "new").exists()


def test_what_is_written_shows_in_no_process(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a tar that takes its time, so that there is something to see
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tar").write_text('#!/bin/sh\nsleep 0.5\nexec /bin/tar "$@"\n')
    (tmp_path / "bin" / "tar").chmod(0o755)
    secret = "token-0123456789-secret"
    seen: list[str] = []
    writer = threading.Thread(target=lambda: host.write_files(str(tmp_path / "s"), {"token": secret.encode()}))
    if isinstance(host, LocalHost):
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    writer.start()
    while writer.is_alive():
        seen += running(secret)
    assert seen == []
    assert (tmp_path / "s" / "token").read_text() == secret


def test_a_file_is_read(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "a 'file' $(x)"
    path.write_text("one\r\ntwö\n\n")
    assert host.read_file(str(path)) == "one\r\ntwö\n\n".encode()
    assert host.read_file(str(tmp_path / "not there")) is None
    assert host.read_file(str(tmp_path)) is None
    path.write_text("")
    assert host.read_file(str(path)) == b""


def test_the_end_of_a_file(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    assert host.tail(str(path), 2) == ["line 98", "line 99"]
    assert len(host.tail(str(path))) == 15
    assert host.tail(str(tmp_path / "not there")) == []


def test_the_reason_comes_in_the_language_that_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LC_ALL counts more than LC_MESSAGES."""
    (tmp_path / "mkdir").write_text('#!/bin/sh\necho "mkdir: in the language ${LC_ALL-none}" >&2\nexit 1\n')
    (tmp_path / "mkdir").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "sv_SE.UTF-8")
    with pytest.raises(HostCommandFailed) as caught:
        LocalHost().write_files(str(tmp_path / "new"), {"token": b"x"})
    assert caught.value.why == "mkdir: in the language C"


@pytest.mark.parametrize(
    ("error", "what", "hint"),
    [
        (
            "mkdir: cannot create directory '/home/me/x': Read-only file system",
            "is on a read-only file system",
            "session_root",
        ),
        ("mkdir: cannot create directory '/home/me/x': Permission denied", "could not be written", "session_root"),
        ("tar: session.json: Cannot write: No space left on device", "could not be written", "quota -s"),
        ("tar: session.json: Cannot write: Disk quota exceeded", "could not be written", "quota -s"),
    ],
)
def test_the_hint_is_about_what_is_wrong(
    error: str, what: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost()
    monkeypatch.setattr(host, "run", lambda *_, **__: CommandResult(1, "", f"{error}\n"))
    with pytest.raises(HostCommandFailed) as caught:
        host.write_files("/home/me/x", {})
    assert what in caught.value.what and error in caught.value.why and hint in caught.value.hint
