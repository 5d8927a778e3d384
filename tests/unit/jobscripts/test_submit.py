"""submit.sh: the answer of the scheduler is kept, whatever happens to who asked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import checksums, job_script
from tests.conftest import ignored
from tests.doubles import wait_until
from tests.unit.jobscripts.job import BASH, permissions

pytestmark = pytest.mark.real_time


@dataclass
class Submission:
    dir: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(job_script("submit.sh")), str(self.dir), *command],
            capture_output=True,
            text=True,
            timeout=20,
            umask=0o027,
        )


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    return Submission(tmp_path)


def test_submit_keeps_the_answer(submission: Submission) -> None:
    done = submission.run("sh", "-c", 'echo "$1"; echo careful >&2; umask', "-", "7;snowy $(x)")
    assert (done.returncode, done.stderr) == (0, "careful\n")
    assert done.stdout.startswith("7;snowy $(x)\n")
    assert (submission.dir / "job").read_text() == done.stdout
    assert permissions(submission.dir / "job") == 0o600
    assert done.stdout.endswith("0027\n"), "the command gets the umask that was"
    assert [path.name for path in submission.dir.iterdir()] == ["job"]


def test_submit_passes_a_failure_on(submission: Submission) -> None:
    done = submission.run("sh", "-c", "echo out; echo 'sbatch: error: no' >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "sbatch: error: no\n")
    assert list(submission.dir.iterdir()) == []


def test_submit_without_the_command(submission: Submission) -> None:
    done = submission.run("no-such-sbatch")
    assert done.returncode == 127
    assert "no-such-sbatch" in done.stderr


def test_submit_does_not_submit_what_it_cannot_remember(submission: Submission) -> None:
    submission.dir = submission.dir / "missing"
    done = submission.run("touch", str(submission.dir.parent / "submitted"))
    assert done.returncode == 73
    assert not (submission.dir.parent / "submitted").exists()


@pytest.mark.parametrize("blow", [signal.SIGHUP, signal.SIGINT, None])
def test_submit_survives_its_client(submission: Submission, blow: signal.Signals | None) -> None:
    """Whoever asked hangs up, or presses Ctrl-C, while the scheduler thinks."""
    client = subprocess.Popen(
        [
            BASH,
            job_script("submit.sh"),
            submission.dir,
            "sh",
            "-c",
            "sleep 0.6; grep SigIgn /proc/self/status; echo 7",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert client.stdout is not None and client.stderr is not None
    wait_until(lambda: (submission.dir / "submit.err").exists())
    time.sleep(0.2)
    client.stdout.close()
    client.stderr.close()
    if blow is not None:
        os.killpg(client.pid, blow)
    client.wait(30)
    _, mask, job = (submission.dir / "job").read_text().split()
    assert job == "7"
    assert ignored(mask) == set(), "a job of a local scheduler would ignore these signals, too"


# --- the job scripts, which all sessions of one version share


def session_with_scripts(root: Path, number: int, lib: str = "lib") -> Submission:
    """A session's directory as a launcher writes it, with the sums of what a launcher sends."""
    directory = root / f"20261121-01445{number}-k3f9"
    directory.mkdir(mode=0o700)
    sums = checksums({"lib.sh": b"lib", "execute.py": b"execute"})
    for name, content in (("lib.sh", lib.encode()), ("execute.py", b"execute"), ("scripts.sha256", sums)):
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o600)
    return Submission(directory)


def test_sessions_share_the_scripts_of_a_version(tmp_path: Path) -> None:
    sessions = [session_with_scripts(tmp_path, number) for number in range(3)]
    for session in sessions:
        assert session.run("true").returncode == 0
    for name in ("lib.sh", "execute.py"):
        inodes = {(session.dir / name).stat().st_ino for session in sessions}
        assert len(inodes) == 1 and permissions(sessions[2].dir / name) == 0o400
        assert (sessions[2].dir / name).read_text() == name.partition(".")[0]
    (store,) = (tmp_path / ".scripts").iterdir()
    assert permissions(store) == permissions(store.parent) == 0o700
    assert sorted(path.name for path in store.iterdir()) == ["execute.py", "lib.sh"]


@pytest.mark.parametrize("what", ["changed here", "changed there", "open to others", "a link", "a name elsewhere"])
def test_what_is_not_the_same_or_not_private_is_not_shared(tmp_path: Path, what: str) -> None:
    assert session_with_scripts(tmp_path, 1).run("true").returncode == 0
    (store,) = (tmp_path / ".scripts").iterdir()
    session = session_with_scripts(tmp_path, 2, "mine" if what == "changed here" else "lib")
    if what == "changed there":
        (store / "lib.sh").unlink()
        (store / "lib.sh").write_text("evil")
    elif what == "open to others":
        store.chmod(0o720)
    elif what == "a link":
        store.rename(tmp_path / "elsewhere")
        store.symlink_to(tmp_path / "elsewhere")
    elif what == "a name elsewhere":
        sums = session.dir / "scripts.sha256"
        sums.write_bytes(sums.read_bytes().replace(b"lib.sh", b"../lib.sh"))
    before = {path.name: path.stat().st_ino for path in session.dir.iterdir()}
    assert session.run("true").returncode == 0
    assert {path.name: path.stat().st_ino for path in session.dir.iterdir() if path.name != "job"} == before
    assert (session.dir / "lib.sh").read_text() == ("mine" if what == "changed here" else "lib")


@pytest.mark.parametrize("what", ["whole", "none", "lacks one", "changed", "open to others"])
def test_scripts_that_are_there_need_not_be_sent(tmp_path: Path, what: str) -> None:
    """Where they are not, or are not what the launcher means, nothing is submitted."""
    assert session_with_scripts(tmp_path, 1).run("true").returncode == 0
    (store,) = (tmp_path / ".scripts").iterdir()
    if what == "none":
        store.rename(tmp_path / "elsewhere")
    elif what == "lacks one":
        (store / "lib.sh").unlink()
    elif what == "changed":
        (store / "lib.sh").unlink()
        (store / "lib.sh").write_text("evil")
    elif what == "open to others":
        store.chmod(0o720)
    session = session_with_scripts(tmp_path, 2)
    for name in ("lib.sh", "execute.py"):
        (session.dir / name).unlink()
    done = session.run("touch", str(tmp_path / "submitted"))
    assert (tmp_path / "submitted").exists() == (what == "whole")
    assert (done.returncode, done.stdout) == ((0, "") if what == "whole" else (75, "job scripts needed\n"))
    names = ["execute.py", "job", "lib.sh", "scripts.sha256"] if what == "whole" else ["scripts.sha256"]
    assert sorted(path.name for path in session.dir.iterdir()) == names
    assert what != "whole" or (session.dir / "lib.sh").stat().st_ino == (store / "lib.sh").stat().st_ino


@pytest.mark.parametrize("what", ["lacks one", "changed"])
def test_a_version_that_is_not_whole_is_made_anew(tmp_path: Path, what: str) -> None:
    assert session_with_scripts(tmp_path, 1).run("true").returncode == 0
    (store,) = (tmp_path / ".scripts").iterdir()
    (store / "lib.sh").unlink()
    if what == "changed":
        (store / "lib.sh").write_text("evil")
    later = [session_with_scripts(tmp_path, number) for number in (2, 3)]
    for session in later:
        assert session.run("true").returncode == 0
    assert len({path.stat().st_ino for path in (store / "lib.sh", *(one.dir / "lib.sh" for one in later))}) == 1
    assert (store / "lib.sh").read_text() == "lib" and permissions(store) == 0o700
    assert list((tmp_path / ".scripts").iterdir()) == [store]


def test_two_login_nodes_may_make_a_version_at_once(tmp_path: Path) -> None:
    """A process of the same number on another login node has begun: what it makes is left alone."""
    session = session_with_scripts(tmp_path, 1)
    submit = 'mkdir -p .scripts/.new.$$ && touch .scripts/.new.$$/theirs && exec "$0" "$@"'
    (tmp_path / ".scripts").mkdir(mode=0o700)
    subprocess.run(
        [BASH, "-c", submit, BASH, str(job_script("submit.sh")), str(session.dir), "true"],
        cwd=tmp_path,
        check=True,
        timeout=20,
    )
    theirs, store = sorted((tmp_path / ".scripts").iterdir())
    assert theirs.name.startswith(".new.") and (theirs / "theirs").exists()
    assert sorted(path.name for path in store.iterdir()) == ["execute.py", "lib.sh"]
