"""``image.sh``: images pulled whole, and known again by their digest."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script

pytestmark = pytest.mark.real_time

APPTAINER = """#!/bin/bash
# pulls what it is told to, or fails
[[ $1 != --version ]] || { echo 'apptainer version 9'; exit; }
[[ $1 == pull ]] || exit 3
[[ $4 != *broken ]] || { echo 'FATAL: no such image' >&2; exit 255; }
printf '%s' "$4" >"$3"
"""


def image_sh(folder: Path, *words: str) -> list[str]:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "apptainer").write_text(APPTAINER)
    (folder / "bin" / "apptainer").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:/usr/bin:/bin", "TMPDIR": str(folder)}
    done = subprocess.run(["bash", job_script("image.sh"), *words], env=env, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_an_image_is_pulled_whole_and_known_again(tmp_path: Path) -> None:
    work, image = tmp_path / "work", tmp_path / "an image.sif"
    work.mkdir()
    (work / "session.env").touch()
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://it")
    note = json.loads(said[-1].removeprefix("nbl-image work "))
    digest = "sha256:" + hashlib.sha256(b"docker://it").hexdigest()
    assert (note["digest"], note["bytes"], image.read_text()) == (digest, 11, "docker://it")
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://other")
    assert "--force" in said[-1]
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://broken", "force")
    assert said[-1].startswith("nbl-failed work apptainer ended with exit code 255")
    assert image.read_text() == "docker://it"
    assert {path.name for path in tmp_path.iterdir()} == {"an image.sif", "an image.sif.json", "bin", "work"}

    session = tmp_path / "sessions" / "20261121-014455-k3f7"
    session.mkdir(parents=True)
    (session / "session.env").write_text(f"container={image}\n")
    image_sh(tmp_path, "note", str(session))
    found = json.loads((session / "image.json").read_text())
    assert (found["digest"], found["told_by"]) == (digest, f"{image}.json")


def test_an_image_with_another_digest_than_the_demanded_one_is_not_put_in_place(tmp_path: Path) -> None:
    work, image = tmp_path / "work", tmp_path / "i.sif"
    work.mkdir()
    (work / "session.env").touch()
    digest = "sha256:" + hashlib.sha256(b"docker://it").hexdigest()
    (work / "digest").write_text("sha256:" + "6" * 64 + "\n")
    assert image_sh(tmp_path, "pull", str(work), str(image), "docker://it")[-1] == f"nbl-differs work {digest}"
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "work"}
    (work / "digest").write_text(f"{digest}\n")
    assert image_sh(tmp_path, "pull", str(work), str(image), "docker://it")[-1].startswith("nbl-image work ")
    assert image.read_text() == "docker://it"


def test_a_digest_is_taken_where_nobody_noted_it_and_kept_for_the_next_session(tmp_path: Path) -> None:
    image = tmp_path / "i.sif"
    image.write_bytes(b"one")
    told = []
    for name in ("20261121-014455-k3f7", "20261121-014456-k3f7"):
        session = tmp_path / "sessions" / name
        session.mkdir(parents=True)
        (session / "session.env").write_text(f"container={image}\n")
        image_sh(tmp_path, "note", str(session))
        found = json.loads((session / "image.json").read_text())
        assert found["digest"] == "sha256:" + hashlib.sha256(b"one").hexdigest()
        told.append(found["told_by"])
    assert told == ["this session", "an earlier session"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of somebody else")
@pytest.mark.parametrize("what", ["file", "link", "folder", "open folder"])
def test_no_digest_is_believed_that_somebody_else_noted(tmp_path: Path, what: str) -> None:
    """A group's folder for sessions: anybody of it may have been there first."""
    image, noted = tmp_path / "i.sif", tmp_path / "sessions" / "image-digests"
    image.write_bytes(b"one")
    noted.mkdir(parents=True, mode=0o700)
    found = image.stat()
    note = noted / f"{found.st_ino}-{found.st_size}-{int(found.st_mtime)}-{int(found.st_ctime)}"
    theirs = tmp_path / "theirs" if what == "link" else note
    theirs.write_text("sha256:" + "6" * 64 + "\n")
    if what == "link":
        note.symlink_to(theirs)
    if what in ("file", "link"):
        os.chown(theirs, 1234, 1234)
    elif what == "folder":
        os.chown(noted, 1234, 1234)
    else:
        noted.chmod(0o770)
    session = tmp_path / "sessions" / "20261121-014455-k3f7"
    session.mkdir(parents=True)
    (session / "session.env").write_text(f"container={image}\n")
    image_sh(tmp_path, "note", str(session))
    assert json.loads((session / "image.json").read_text())["told_by"] == "this session"


def test_no_folder_is_an_image_to_be_replaced_and_what_killed_makers_left_is_removed(tmp_path: Path) -> None:
    work, image = tmp_path / "work", tmp_path / "there"
    work.mkdir()
    image.mkdir()
    (work / "session.env").touch()
    said = image_sh(tmp_path, "pull", str(work), str(image), "docker://it", "force")
    assert "is a folder" in said[-1]
    assert list(image.iterdir()) == []

    image.rmdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    kept = [tmp_path / f"notebook-launcher-image-{os.uname().nodename}-{os.getpid()}-abcdefgh",
            tmp_path / ".there.image-new"]  # fmt: skip
    gone = [tmp_path / f"notebook-launcher-image-{os.uname().nodename}-{dead.pid}-abcdefgh",
            tmp_path / ".there.image-old"]  # fmt: skip
    for room, half in (kept, gone):
        (room / "rootfs").mkdir(parents=True)
        half.touch()
    os.utime(gone[1], (1, 1))
    assert image_sh(tmp_path, "pull", str(work), str(image), "docker://it")[-1].startswith("nbl-image work ")
    assert [path.exists() for path in kept + gone] == [True, True, False, False]


def test_an_image_that_changed_in_place_has_another_digest(tmp_path: Path) -> None:
    image = tmp_path / "i.sif"
    digests = []
    for name, content in (("20261121-014455-k3f7", b"one"), ("20261121-014456-k3f7", b"two")):
        image.write_bytes(content)
        os.utime(image, (1_700_000_000, 1_700_000_000))
        session = tmp_path / "sessions" / name
        session.mkdir(parents=True)
        (session / "session.env").write_text(f"container={image}\n")
        image_sh(tmp_path, "note", str(session))
        digests.append(json.loads((session / "image.json").read_text())["digest"])
        time.sleep(1.1)  # the time of a change is known to a second
    assert digests == ["sha256:" + hashlib.sha256(content).hexdigest() for content in (b"one", b"two")]


def test_of_an_image_that_was_replaced_since_it_was_entered_no_digest_is_noted(tmp_path: Path) -> None:
    (tmp_path / "i.sif").write_bytes(b"new")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "image").write_text("1-2-3-4\n")
    (tmp_path / "session.env").write_text(f"container={tmp_path}/i.sif\n")
    image_sh(tmp_path, "note", str(tmp_path))
    assert json.loads((tmp_path / "image.json").read_text())["digest"] is None


def test_a_note_beside_an_image_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "i.sif").write_bytes(b"one")
    os.mkfifo(tmp_path / "i.sif.json")
    digest = "sha256:" + hashlib.sha256(b"one").hexdigest()
    (tmp_path / "session.env").write_text(f"container={tmp_path}/i.sif\ndigest={digest}\n")
    env = {**os.environ, "NBL_CAUSE_FILE": str(tmp_path / "cause")}
    argv = ["bash", job_script("image.sh"), "check", tmp_path]
    assert subprocess.run(argv, env=env, capture_output=True, timeout=30).returncode == 0


def test_a_digest_that_was_noted_of_an_older_file_does_not_count(tmp_path: Path) -> None:
    image, session = tmp_path / "i.sif", tmp_path / "session"
    session.mkdir()
    image.write_bytes(b"new")
    wrong = "sha256:" + "0" * 64
    Path(f"{image}.json").write_text(json.dumps({"digest": wrong, "bytes": 3, "modified": 1}))
    (session / "session.env").write_text(f"container={image}\ndigest={wrong}\n")
    env = {**os.environ, "NBL_CAUSE_FILE": str(tmp_path / "cause")}
    done = subprocess.run(["bash", job_script("image.sh"), "check", session], env=env, capture_output=True)
    assert done.returncode == 1
    assert (tmp_path / "cause").read_text().startswith("image-differs ")


@pytest.mark.parametrize(("image", "kind"), [("docker://it", "reference"), ("/usr", "directory")])
def test_what_is_no_file_has_no_digest_and_is_told_as_what_it_is(tmp_path: Path, image: str, kind: str) -> None:
    (tmp_path / "session.env").write_text(f"container={image}\n")
    image_sh(tmp_path, "note", str(tmp_path))
    found = json.loads((tmp_path / "image.json").read_text())
    assert (found["kind"], found["digest"]) == (kind, None)
