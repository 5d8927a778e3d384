"""stage.sh: an environment copied to the node's own disk, kept for the next job, and what may go wrong with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script
from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, STAND_IN, Job, called, permissions, read_json, read_json_if_there

pytestmark = pytest.mark.real_time

CODE = """
source "$NBL_SESSION_DIR/lib.sh"
source "$NBL_SESSION_DIR/stage.sh"
read_settings "$NBL_SESSION_DIR/session.env"
"""
IMAGE_CODE = CODE + 'stage_image; printf "%s" "$want_container"'
SHOW = (
    'cat "$0/lib/a.py"; touch "$0/x" 2>/dev/null || echo read-only; grep -c CapEff:.0000000000000000 /proc/self/status'
)


class Node:
    """A node with a disk, and a user's image and folder on a shared file system; each call is a job there."""

    def __init__(self, root: Path) -> None:
        self.disk, self.shared, self.session = root / "disk", root / "shared", root / "session"
        for folder in (self.disk, self.shared, self.session / "runtime"):
            folder.mkdir(parents=True)
        for name in ("lib", "containers", "activate", "stage", "stage_disk", "stage_squash"):
            shutil.copy(job_script(f"{name}.sh"), self.session)
        shutil.copy(job_script("staged_mount.py"), self.session)
        self.image, self.folder = self.shared / "torch.sif", self.shared / "env"
        self.image.write_bytes(b"image" * 1000)
        (self.folder / "lib").mkdir(parents=True)
        (self.folder / "lib" / "a.py").write_text("first\n")
        # archives are tar archives, where a test asks for nothing else
        self.bin = root / "bin"
        self.bin.mkdir()
        self.tool("mksquashfs", "exit 1")
        self.path = f"{self.bin}:/usr/bin:/bin"
        self.env = {"PATH": self.path, "HOME": str(root), "NBL_SESSION_DIR": str(self.session)}
        self.env |= {"NBL_CAUSE_FILE": str(self.session / "runtime" / "cause"), "NBL_STAGE_RESERVE": "0"}

    def tool(self, name: str, text: str) -> Path:
        """Put a command before the real one."""
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)
        return self.bin / name

    @property
    def copies(self) -> Path:
        return self.disk / f"notebook-launcher-stage-{os.getuid()}"

    def start(self, code: str, *lines: str, **env: str) -> subprocess.Popen[str]:
        wanted = (f"stage_dir={self.disk}", "stage=yes", *lines)
        (self.session / "session.env").write_text("".join(f"{line}\n" for line in wanted))
        argv = [BASH, "-c", code, str(self.folder)]
        return subprocess.Popen(argv, env=self.env | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, code: str, *lines: str, **env: str) -> str:
        output, errors = self.start(code, *lines, **env).communicate(timeout=60)
        self.log = errors
        return output

    def stage(self, *lines: str, **env: str) -> Path:
        """Return the image in which a job would start."""
        return Path(self.run(IMAGE_CODE, f"container={self.image}", *lines, **env))

    def stage_folder(self, **env: str) -> str:
        """Return what a command sees of the folder, in a job with that environment."""
        code = CODE + f'stage_folders; "${{staged_way[@]}}" bash -c \'{SHOW}\' "$0"'
        return self.run(code, f"venv={self.folder}", **env)

    def beside(self, **env: str) -> None:
        """What a job does while JupyterLab runs."""
        self.run('exec bash "$NBL_SESSION_DIR/stage.sh" "$NBL_SESSION_DIR"', f"venv={self.folder}", **env)

    @property
    def told(self) -> dict[str, Any]:
        return read_json(self.session / "staging.json")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_image_is_copied_once_and_again_when_it_was_replaced(node: Node) -> None:
    copy = node.stage()
    assert copy.is_relative_to(node.copies)
    assert copy.suffix == ".sif"
    assert copy.read_bytes() == node.image.read_bytes()
    assert permissions(node.copies) == 0o700
    assert node.told["state"] == "copied"
    assert (node.stage(), node.told["state"]) == (copy, "kept")
    node.image.write_bytes(b"other" * 1000)
    assert node.stage().read_bytes() == b"other" * 1000
    assert not (node.session / "runtime" / "staging").exists()


def test_what_a_killed_job_has_left_half_made_is_not_taken_and_goes(node: Node) -> None:
    whole = node.stage()
    half = node.copies / f"new-{whole.parent.name}"
    whole.parent.rename(half)
    (half / "content.sif").write_bytes(b"ima")
    other = node.copies / ("new-" + "0" * 32)
    other.mkdir()
    assert node.stage() == whole
    assert whole.read_bytes() == node.image.read_bytes()
    assert not list(node.copies.glob("new-*"))


def test_a_copy_of_which_a_cleaner_has_taken_files_is_made_again(node: Node) -> None:
    stage = (CODE + "stage_folders", f"venv={node.folder}")
    node.beside()
    (copy,) = node.copies.glob("*/content/lib/a.py")
    lock = next(node.copies.glob("*.lock"))
    os.utime(lock, (0, 0))
    node.run(*stage)
    assert node.told["state"] == "kept"
    assert lock.stat().st_mtime > 0, "it is in use, for a cleaner"
    copy.unlink()
    node.run(*stage)
    assert (node.told["state"], copy.exists()) == ("copied", True)


def test_a_copy_that_a_crash_has_emptied_is_made_again_unless_it_is_in_use(node: Node) -> None:
    copy = node.stage()
    copy.write_bytes(b"")
    lock = f"{copy.parent}.lock"
    with subprocess.Popen(["flock", "-s", lock, "cat"], stdin=subprocess.PIPE) as user:
        wait_until(lambda: subprocess.run(["flock", "-xn", lock, "true"], check=False).returncode)
        assert node.stage() == node.image
        assert "files of its copy there were removed" in node.told["why"]
        user.communicate(b"")
    assert node.stage().read_bytes() == node.image.read_bytes()


def test_the_folder_of_copies_may_lie_in_one_that_hands_on_its_group(node: Node) -> None:
    node.disk.chmod(0o2755)
    assert node.stage() != node.image
    assert node.copies.stat().st_mode & 0o7777 == 0o2700, "else this tests nothing"


@pytest.mark.parametrize("how", ["link", "open", "place"])
def test_a_place_that_others_could_have_prepared_is_not_used(node: Node, tmp_path: Path, how: str) -> None:
    if how == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        node.copies.symlink_to(tmp_path / "elsewhere")
    elif how == "open":
        node.copies.mkdir()
        node.copies.chmod(0o777)
    else:
        node.disk.chmod(0o777)
    assert node.stage() == node.image
    assert node.told["state"] == "failed"
    assert ("others could replace" if how == "place" else "is not yours alone") in node.told["why"]
    assert node.told["why"] in node.log
    node.disk.chmod(0o1777)
    if how == "place":
        assert node.stage() != node.image, "as /tmp"


def test_the_copy_used_longest_ago_goes_when_the_limit_is_reached_but_none_in_use(node: Node) -> None:
    old = node.stage()
    (old.parent / "size").write_text("700000\n")  # as if it were large
    os.utime(old.parent / "size", (0, 2**31))
    node.image.write_bytes(b"x")
    middle = node.stage()
    (middle.parent / "size").write_text("700000\n")
    os.utime(middle.parent / "size", (1, 2**31 + 1))
    with subprocess.Popen(["flock", "-s", f"{old.parent}.lock", "cat"], stdin=subprocess.PIPE) as user:
        wait_until(lambda: subprocess.run(["flock", "-xn", f"{old.parent}.lock", "true"], check=False).returncode)
        node.image.write_bytes(b"xx")
        assert node.stage("stage_limit=1").exists()
        user.communicate(b"")
    assert (old.exists(), middle.exists()) == (True, False)
    os.truncate(node.image, 2 * 1024**3)
    assert node.stage("stage_limit=1") == node.image
    assert "exceed the limit of 1 GB" in node.told["why"]


def test_without_room_it_starts_from_where_it_is(node: Node) -> None:
    assert node.stage(NBL_STAGE_RESERVE=str(10**15)) == node.image
    assert "has no room" in node.told["why"]


def test_copies_that_nobody_has_used_for_long_go(node: Node) -> None:
    old = node.stage()
    os.utime(old.parent / "size", (0, 0))
    node.image.write_bytes(b"new")
    node.stage()
    assert not old.parent.exists()
    assert not Path(f"{old.parent}.lock").exists()


def test_of_two_jobs_at_once_one_copies(node: Node) -> None:
    node.image.write_bytes(bytes(50_000_000))
    jobs = [node.start(IMAGE_CODE, f"container={node.image}") for _ in range(2)]
    found = [job.communicate(timeout=60) for job in jobs]
    assert found[0][0] == found[1][0] != str(node.image)
    assert sum("copied" in errors for _, errors in found) == 1


def test_a_folder_is_packed_beside_jupyterlab_and_then_seen_in_its_place(node: Node) -> None:
    """The copy cannot be written, and whoever sees it has no more rights than before (root keeps those that it has)."""
    first = node.stage_folder()
    assert (first.splitlines()[0], node.told["state"]) == ("first", "later")
    (node.folder / "x").unlink()
    assert (node.session / "runtime" / "stage-later").exists()
    node.beside()
    (archive,) = node.shared.glob(".env.stage-*.tar")
    assert permissions(archive) == 0o600
    (node.folder / "lib" / "a.py").write_text("changed deep inside\n")
    expected = ["first", "read-only", "0" if os.getuid() == 0 else "1"]
    assert (node.stage_folder().splitlines(), node.told["state"]) == (expected, "kept")
    shutil.rmtree(node.copies)
    assert (node.stage_folder().splitlines(), node.told["state"]) == (expected, "copied"), "from the archive"
    (node.folder / "lib" / "new-package").touch()
    assert node.stage_folder().startswith("changed deep inside")
    node.beside()
    assert node.stage_folder().startswith("changed deep inside\nread-only\n")
    assert archive not in node.shared.glob(".env.stage-*"), "that of what was there before"


def test_archives_that_cannot_be_mounted_are_not_made(node: Node) -> None:
    node.tool("mksquashfs", ': >"$2"')
    node.tool("squashfuse_ll", "exit 1")
    node.beside()
    assert [archive.suffix for archive in node.shared.glob(".env.stage-*")] == [".tar"]


@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("mksquashfs") and shutil.which("squashfuse_ll")),
    reason="needs squashfs-tools and squashfuse; on the practice cluster, test_attached.py does the same",
)
def test_a_folders_archive_is_mounted_and_one_that_is_damaged_is_not(node: Node) -> None:
    (node.bin / "mksquashfs").unlink()
    node.beside()
    (archive,) = node.shared.glob(".env.stage-*")
    assert (archive.suffix, permissions(archive)) == (".sqfs", 0o600)
    (node.folder / "lib" / "a.py").write_text("changed deep inside\n")
    shutil.rmtree(node.copies)
    for state in ("copied", "kept"):
        assert (node.stage_folder().splitlines()[:2], node.told["state"]) == (["first", "read-only"], state)
    (copy,) = node.copies.glob("*/content.sqfs")
    servers = ["pgrep", "-f", f"^/.*squashfuse_ll -f {copy}"]
    wait_until(lambda: subprocess.run(servers, check=False).returncode == 1)
    copy.write_bytes(bytes(copy.stat().st_size))
    assert node.stage_folder().startswith("changed deep inside")
    assert "could not be mounted" in node.log


def test_a_folder_whose_neighbours_cannot_be_written_has_its_copy_all_the_same(node: Node) -> None:
    node.stage_folder()
    node.beside()
    (archive,) = node.shared.glob(".env.stage-*.tar")
    shutil.rmtree(node.copies)
    archive.chmod(0o620)
    assert node.stage_folder().startswith("first"), "nobody else could have written it"
    assert node.told["state"] == "later"
    (node.folder / "x").unlink(missing_ok=True)


def use_tar(node: Node, text: str) -> str:
    """Put another tar before the real one, and return the PATH."""
    tool = node.bin.parent / "tar" / "tar"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    return f"{tool.parent}:{node.path}"


def test_a_packing_that_stands_still_is_given_up_and_tried_three_times(node: Node) -> None:
    path = use_tar(node, "echo >>$HOME/packed; exec sleep 60")
    for _ in range(4):
        node.beside(PATH=path, NBL_STAGE_STALL_SECONDS="0")
        assert not list(node.shared.glob(".*.new-*"))
        assert not list(node.copies.glob("new-*"))
        assert "its archive was" in node.log
        if "given up" in node.log:
            assert "no more came within 0 seconds" in node.log
    assert "not done by the end of 3 jobs" in node.log
    assert (node.shared.parent / "packed").read_text() == 3 * "\n", "once in each job, and not again on the node's disk"
    for mark in node.shared.glob(".*"):
        os.utime(mark, (0, 0))
    node.beside()
    assert "copied" in node.log, "tried again later"
    assert [mark.suffix for mark in node.shared.glob(".*")] == [".tar"]


def test_a_folder_is_packed_by_one_job_at_a_time(node: Node) -> None:
    path = use_tar(node, "echo >>$HOME/packed; exec sleep 60")
    code = 'exec bash "$NBL_SESSION_DIR/stage.sh" "$NBL_SESSION_DIR"'
    first = node.start(code, f"venv={node.folder}", PATH=path)
    wait_until(lambda: (node.shared.parent / "packed").exists())
    node.disk = node.shared.parent / "other"
    node.disk.mkdir()
    node.beside()
    assert "another job is just making its archive" in node.log
    first.terminate()
    first.communicate(timeout=20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_not_packed_by_everybody(node: Node) -> None:
    os.chown(node.folder, 65534, 65534)
    assert node.stage_folder().startswith("first")
    assert node.told["state"] == "failed"
    assert "only its owner, nobody, can make one" in node.told["why"]
    node.beside()
    assert not list(node.shared.glob(".*"))


def test_without_room_for_the_archive_there_is_one_on_the_node_alone(node: Node) -> None:
    node.tool("df", 'case $3 in *shared*) echo; echo x 9 9 0 1% / ;; *) exec /bin/df "$@" ;; esac')
    node.env["NBL_STAGE_RESERVE"] = "1"
    node.beside()
    assert f"no archive can be written in {node.shared}" in node.log
    assert not list(node.shared.glob(".*"))
    assert list(node.copies.glob("*/content/lib/a.py"))


@pytest.mark.parametrize("doing", ["-c", "-xp"])
def test_what_is_half_made_beside_jupyterlab_goes_with_it(node: Node, doing: str) -> None:
    path = use_tar(node, f'[ "$1" = {doing} ] && exec sleep 60; exec /bin/tar "$@"')
    job = node.start('exec bash "$NBL_SESSION_DIR/stage.sh" "$NBL_SESSION_DIR"', f"venv={node.folder}", PATH=path)
    half = "new-*/content" if doing == "-xp" else "new-*"
    wait_until(lambda: list(node.copies.glob(half)) and list(node.shared.glob(".*.tar*")))
    job.terminate()
    job.communicate(timeout=20)
    assert not list(node.copies.glob("new-*"))
    assert not list(node.shared.glob(".*.new-*"))


@pytest.mark.parametrize(
    ("kind", "size", "is_disk"), [("xfs", 1, 1), ("tmpfs", 10**12, 0), ("overlayfs", 10**12, 1), ("overlayfs", 9, 0)]
)
def test_a_disk_is_no_memory(node: Node, kind: str, size: int, is_disk: int) -> None:
    """An overlay may be either."""
    tools = f"stat() {{ echo {kind}; }}; df() {{ echo; echo x {size} 1 1 1% /; }}; "
    assert node.run(CODE + tools + "is_own_disk /tmp && printf disk") == "disk" * is_disk


def test_an_image_that_its_runtime_keeps_is_left_where_it_is(node: Node) -> None:
    code = CODE + 'stage_image; printf "%s" "$want_container"'
    assert node.run(code, "container=docker://python:3") == "docker://python:3"
    assert "kept by what runs it" in node.told["why"]


def test_the_number_of_what_has_ended_long_ago_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        code = 'source "$0"; source "$1"; stager=$2; end_staging'
        files = (job_script("lib.sh"), job_script("job_services.sh"))
        subprocess.run([BASH, "-c", code, *files, str(other.pid)], check=True, timeout=30)
        assert other.poll() is None
        other.kill()


# ---- in a job ---------------------------------------------------------------------------------------------------


def test_a_job_enters_the_copy_of_its_image(boxed: Job) -> None:
    image = boxed.root / "an image.sif"
    boxed.ask(f"container={image}", "stage=yes", f"stage_dir={boxed.root}")
    boxed.env |= {"NBL_STAGE_RESERVE": "0", "NBL_STAGE_TOUCH_SECONDS": "0.1"}
    boxed.start()
    boxed.endpoint()
    (copy,) = boxed.root.glob("notebook-launcher-stage-*/*/content.sif")
    assert called(boxed)[-5] == str(copy)
    lock = subprocess.run(["flock", "-xn", f"{copy.parent}.lock", "true"], check=False)
    assert lock.returncode == 1, "nobody removes it as long as the job runs"
    noted = wait_until(lambda: read_json_if_there(boxed.dir / "image.json"))
    assert noted["image"] == str(image)
    for kept in (copy.parent / "size", Path(f"{copy.parent}.lock")):
        os.utime(kept, (0, 0))
        wait_until(lambda kept=kept: kept.stat().st_mtime)  # type: ignore[misc]
    boxed.send(15)
    assert boxed.exit()["cause"] == "stopped"
    assert boxed.processes() == []


def test_a_job_that_is_cancelled_while_it_copies_leaves_nothing_on_the_node(boxed: Job) -> None:
    stands_still = "case $(readlink /proc/self/fd/0) in *.sif) exec sleep 60 ;; esac"
    boxed.tool("cat", f'#!/bin/sh\n{stands_still}\nexec /bin/cat "$@"\n')
    boxed.ask(f"container={boxed.root / 'an image.sif'}", "stage=yes", f"stage_dir={boxed.root}")
    boxed.env["NBL_STAGE_RESERVE"] = "0"
    boxed.start()
    (half,) = wait_until(lambda: list(boxed.root.glob("notebook-launcher-stage-*/new-*/content.sif")))
    boxed.send(15)
    assert boxed.exit()["cause"] == "stopped"
    assert not half.parent.exists()


def test_a_users_script_runs_in_the_copy_and_its_job_holds_it(boxed: Job) -> None:
    (boxed.dir / "work").mkdir(parents=True)
    (boxed.dir / "work" / "mine.sh").write_text("#!/bin/sh\ntouch $HOME/begun\nexec sleep 60\n")
    lines = ("program=script", "script=mine.sh", "stage=yes", f"stage_dir={boxed.root}")
    boxed.ask(f"container={boxed.root / 'an image.sif'}", *lines)
    boxed.env["NBL_STAGE_RESERVE"] = "0"
    boxed.start()
    wait_until(lambda: (boxed.home / "begun").exists())
    assert (boxed.dir / "runtime" / "staged-held").exists()
    assert called(boxed)[-5].endswith("/content.sif")
    boxed.send(15)
    assert boxed.exit()["cause"] == "stopped"
    assert boxed.processes() == []


def test_a_jobs_virtual_environment_is_staged_for_the_next_one(quick: Job) -> None:
    venv = quick.root / "envs" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"PATH='{venv}/bin':$PATH\n")
    (venv / "bin" / "jupyter-lab").write_text(STAND_IN)
    (venv / "bin" / "jupyter-lab").chmod(0o755)
    (venv / "bin" / "python").symlink_to(sys.executable)
    quick.env["NBL_STAGE_RESERVE"] = "0"
    quick.tool("mksquashfs", "#!/bin/sh\nexit 1\n")
    for state in ("later", "kept"):
        quick.ask(f"venv={venv}", "stage=yes", f"stage_dir={quick.root}")
        quick.start()
        wait_until(lambda state=state: (read_json_if_there(quick.dir / "staging.json") or {}).get("state") == state)  # type: ignore[misc]
        quick.endpoint()
        assert str(venv) in " ".join(quick.commands())
        wait_until(lambda: list(quick.root.glob("notebook-launcher-stage-*/*/content/bin/jupyter-lab")))
        wait_until(lambda: "copied" in quick.log.read_text())
        quick.send(15)
        assert quick.exit()["cause"] == "stopped"
