"""What this machine remembers: only a cache, so nothing that happens to it may be noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.local_state import is_private, lock_file, remember, remembered, state_folder
from notebook_launcher.profiles import valid_tables
from notebook_launcher.profiles.models import ClusterProfile


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_nothing_is_known_at_first_and_nothing_is_made(folder: Path) -> None:
    assert remembered("routes", "uni") is None
    assert not folder.exists()


def test_what_is_kept_is_found(folder: Path) -> None:
    remember("routes", "uni", "step")
    remember("routes", "Universität 雪", "direct")
    remember("other", "uni", "x")
    assert remembered("routes", "uni") == "step"
    assert remembered("routes", "Universität 雪") == "direct"
    assert remembered("other", "uni") == "x" and remembered("other", "hpc") is None
    assert sorted(path.name for path in folder.iterdir()) == ["other.json", "routes.json"]


def test_it_is_nobody_else_s(folder: Path) -> None:
    remember("routes", "uni", "step")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "routes.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["remember", "lock", "table"])
def test_whatever_makes_the_folder_it_is_nobody_else_s(folder: Path, how: str) -> None:
    moved = folder / "above" / "state"
    before = os.umask(0o002)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOTEBOOK_LAUNCHER_STATE", str(moved))
            if how == "remember":
                remember("routes", "uni", "step")
            elif how == "lock":
                lock_file("ssh", "uni")
            else:
                valid_tables.keep(ClusterProfile(), {})
    finally:
        os.umask(before)
    for one in (moved, moved.parent, folder):
        assert one.stat().st_mode & 0o777 == 0o700, one


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_a_folder_that_others_may_enter_is_closed_to_them(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    remember("routes", "uni", "step")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_like_tmp_is_left_as_it_is(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    remember("routes", "uni", "step")
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert not is_private()


def test_a_file_that_is_somebody_else_s_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember("routes", "uni", "step")
    real = os.fstat

    def somebody_else_s(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10]))

    monkeypatch.setattr(os, "fstat", somebody_else_s)
    assert remembered("routes", "uni") is None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_read(folder: Path, mode: int) -> None:
    remember("routes", "uni", "step")
    (folder / "routes.json").chmod(mode)
    assert remembered("routes", "uni") is None


def test_a_link_and_a_pipe_are_not_read(folder: Path) -> None:
    remember("routes", "uni", "step")
    (folder / "routes.json").rename(folder / "elsewhere")
    (folder / "routes.json").symlink_to("elsewhere")
    assert remembered("routes", "uni") is None
    (folder / "routes.json").unlink()
    os.mkfifo(folder / "routes.json", 0o600)
    assert remembered("routes", "uni") is None


def test_a_new_word_replaces_the_old_one(folder: Path) -> None:
    for word in ("step", "node-ssh", "step"):
        remember("routes", "uni", word)
        assert remembered("routes", "uni") == word


def test_the_same_word_is_not_written_again(folder: Path) -> None:
    remember("routes", "uni", "step")
    before = (folder / "routes.json").stat()
    remember("routes", "uni", "step")
    after = (folder / "routes.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


DAMAGED = [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"\0", b'{"uni": 7}', b'{"uni": null, "hpc": "step"}',
           b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_written_anew(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "routes.json").write_bytes(content)
    assert remembered("routes", "uni") is None
    remember("routes", "uni", "step")
    assert remembered("routes", "uni") == "step"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | st.just(b'{"a": "b"}'))
def test_no_content_is_noticed(folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "routes.json").write_bytes(content)
    word = remembered("routes", "uni")
    assert word is None or isinstance(word, str)
    remember("routes", "uni", "step")
    assert remembered("routes", "uni") == "step"


def test_a_good_part_of_a_damaged_file_is_kept(folder: Path) -> None:
    folder.mkdir()
    (folder / "routes.json").write_bytes(DAMAGED[8])
    remember("routes", "uni", "direct")
    assert json.loads((folder / "routes.json").read_text()) == {"hpc": "step", "uni": "direct"}


@pytest.mark.parametrize("obstacle", ["a file", "a folder for a file", "a folder without permission"])
def test_where_nothing_can_be_written_nothing_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    if obstacle == "a file":
        folder.write_text("I am no folder")
    elif obstacle == "a folder for a file":
        (folder / "routes.json").mkdir(parents=True)
    else:
        monkeypatch.setattr(os, "mkdir", refuses)  # who runs the tests may be root, whom no mode stops
    remember("routes", "uni", "step")
    assert remembered("routes", "uni") is None
    assert not folder.is_dir() or [path.name for path in folder.iterdir()] == ["routes.json"], "nothing is left over"


def refuses(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_full_disk_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember("routes", "uni", "step")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    remember("routes", "uni", "direct")
    assert remembered("routes", "uni") == "step"
    assert [path.name for path in folder.iterdir()] == ["routes.json"], "no half a file is left over"


def test_many_writers_leave_a_whole_file(folder: Path) -> None:
    """Whose word is kept is chance; that the file is whole is not."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: remember("routes", f"cluster{number % 5}", f"word{number}"), range(200)))
    known = json.loads((folder / "routes.json").read_text())
    assert known and all(cluster.startswith("cluster") and word.startswith("word") for cluster, word in known.items())
    assert [path.name for path in folder.iterdir()] == ["routes.json"]


def test_two_programs_at_once(folder: Path) -> None:
    program = (
        "import sys\nfrom notebook_launcher.core.local_state import remember, remembered\n"
        "for n in range(100):\n"
        "    remember('routes', sys.argv[1], str(n))\n"
        "    assert remembered('routes', 'neither') is None\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, name]) for name in ("uni", "hpc")]
    assert [one.wait(60) for one in running] == [0, 0]
    known = json.loads((folder / "routes.json").read_text())
    assert known.keys() <= {"uni", "hpc"} and "99" in known.values()
    assert [path.name for path in folder.iterdir()] == ["routes.json"]


def test_without_a_wish_it_lies_where_the_system_keeps_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTEBOOK_LAUNCHER_STATE")
    assert "notebook-launcher" in str(state_folder())
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", "")
    assert "notebook-launcher" in str(state_folder()), "an empty wish is none"
