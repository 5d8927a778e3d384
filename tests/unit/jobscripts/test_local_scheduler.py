"""The scheduler for a machine that has none: real jobs, real processes, no stand-ins."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from tests.conftest import ignored
from tests.doubles import wait_until

pytestmark = pytest.mark.real_time

BASH = os.environ.get("NBL_TEST_BASH", "bash")

T = TypeVar("T")


class Row(NamedTuple):
    """A line of `local.sh queue`."""

    id: str
    state: str
    reason: str
    node: str
    start: str
    end: str
    exit: str


@dataclass
class Scheduler:
    root: Path

    def run(self, action: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(job_script("local.sh")), action, "--root", str(self.root), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            cwd=self.root.parent,
            umask=0o027,
            env=env,
        )

    def submit(self, code: str, *options: str, id: str = "job-1", seconds: int = 60) -> None:
        """Submit a script with this code. `$marked` in it starts a process that the test will look for."""
        marked = self.root.parent / "marked"
        marked.write_text(f"#!/bin/bash\nexec -a nbl-test-{self.root.parent.name} sleep 300\n")
        marked.chmod(0o755)
        script = self.root.parent / f"{id}.sh"
        script.write_text(f"marked={marked}\n{code}\n")
        done = self.run("submit", "--id", id, "--time", str(seconds), *options, "--", str(script), "an argument")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{id}\n", "")

    def queue(self, *ids: str) -> list[Row]:
        done = self.run("queue", *ids)
        assert (done.returncode, done.stderr) == (0, "")
        return [Row(*line.split("|")) for line in done.stdout.splitlines()]

    def job(self, id: str = "job-1") -> Row:
        (row,) = self.queue(id)
        return row

    def until(self, *states: str, id: str = "job-1") -> Row:
        row = self.job(id)
        wait_until(lambda: self.job(id).state in states)
        row = self.job(id)
        assert row.node == os.uname().nodename
        return row

    def output(self, id: str = "job-1") -> str:
        return (self.root / id / "job.log").read_text()

    def supervisor(self, id: str = "job-1") -> int:
        return int((self.root / id / "local.state").read_text().split()[1])

    def leftovers(self) -> list[psutil.Process]:
        """The marked processes, and all that have to do with this scheduler."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            return False
        return f"nbl-test-{self.root.parent.name}" in words or str(self.root.parent) in words


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(tmp_path / "sessions")
    yield scheduler
    for process in scheduler.leftovers():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def test_a_job_that_completes(local: Scheduler) -> None:
    before = int(time.time())
    local.submit('echo "$NBL_JOB_ID $NBL_JOB_NAME $1"; pwd; umask; read -r || echo no input; exit 0', "--name", "mine")
    row = local.until("COMPLETED")
    assert (row.id, row.reason, row.exit) == ("job-1", "None", "0")
    assert before <= int(row.start) <= int(row.end) <= time.time()
    assert local.output().splitlines() == ["job-1 mine an argument", str(local.root.parent), "0027", "no input"]
    assert local.leftovers() == []


def test_a_job_that_fails(local: Scheduler) -> None:
    local.submit("echo oh >&2; exit 3")
    assert local.until("FAILED").exit == "3"
    assert local.output() == "oh\n"


def test_a_script_that_is_not_there(local: Scheduler) -> None:
    done = local.run("submit", "--id", "x", "--time", "9", "--", "/nowhere/script.sh")
    assert done.returncode == 0
    assert local.until("FAILED", id="x").exit == "127"
    assert "/nowhere/script.sh" in local.output("x")


def test_a_script_of_another_language(local: Scheduler) -> None:
    script = local.root.parent / "program"
    script.write_text("#!/bin/cat\n")
    script.chmod(0o755)
    local.run("submit", "--id", "x", "--time", "9", "--", str(script))
    local.until("COMPLETED", id="x")
    assert local.output("x") == "#!/bin/cat\n"


def test_a_running_job_shows_its_planned_end(local: Scheduler) -> None:
    local.submit("sleep 300", seconds=100)
    row = local.job()
    assert (row.state, row.exit) == ("RUNNING", "")
    assert int(row.end) == int(row.start) + 100


def test_a_job_without_a_walltime(local: Scheduler) -> None:
    local.submit("sleep 300", seconds=0)
    assert local.job().end == ""


def test_it_has_a_session_of_its_own_and_no_terminal(local: Scheduler) -> None:
    """So it outlives the launcher, its terminal and its ssh connection, whose pipes it does not hold open either."""
    local.submit("grep SigIgn /proc/self/status; ls -l /proc/$$/fd; $marked")
    wait_until(local.leftovers)
    supervisor = local.supervisor()
    assert os.getsid(supervisor) == supervisor
    assert os.getsid(supervisor) != os.getsid(0)
    assert psutil.Process(supervisor).terminal() is None
    output = wait_until(lambda: local.output() if "/dev/null" in local.output() else "")
    assert ignored(output.split()[1]) == set()
    assert "pipe:" not in local.output()


def test_output_is_appended_to_the_file_that_is_there(local: Scheduler) -> None:
    log = local.root.parent / "mine.log"
    log.write_text("before\n")
    log.chmod(0o600)
    local.submit("echo after", "--output", str(log))
    local.until("COMPLETED")
    assert log.read_text() == "before\nafter\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_state_is_one_line_for_the_user_alone(local: Scheduler) -> None:
    local.submit("exit 0")
    local.until("COMPLETED")
    state = local.root / "job-1" / "local.state"
    assert len(state.read_text().split()) == 8
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE((local.root / "job-1").stat().st_mode) == 0o700


def test_a_job_for_later(local: Scheduler) -> None:
    begin = int(time.time()) + 4
    local.submit("exit 0", "--begin", str(begin))
    row = local.job()
    assert (row.state, row.reason, row.start, row.end, row.exit) == ("PENDING", "BeginTime", str(begin), "", "")
    assert int(local.until("COMPLETED").start) >= begin


def test_cancelling_a_pending_job(local: Scheduler) -> None:
    local.submit("touch ran", "--begin", str(int(time.time()) + 600))
    assert local.run("cancel", "job-1").returncode == 0
    row = local.until("CANCELLED")
    assert (row.start, row.exit) == ("", "")
    assert not (local.root.parent / "ran").exists()
    assert local.leftovers() == []


def test_cancelling_a_running_job(local: Scheduler) -> None:
    """A job that ends at TERM has the word; what it leaves behind, also in sessions of its own, is ended."""
    local.submit(
        'trap "echo ended; exit 9" TERM\nsetsid $marked &\n$marked &\nnohup $marked &\nwhile :; do sleep 0.1; done'
    )
    wait_until(lambda: len(local.leftovers()) >= 5)
    begin = time.monotonic()
    assert local.run("cancel", "job-1").returncode == 0
    assert time.monotonic() - begin < 9  # it does not wait for the job, which may take 10 s
    assert local.until("CANCELLED").exit == "9"
    assert "ended" in local.output()
    assert local.leftovers() == []


def test_cancelling_what_does_not_want_to_end(local: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBL_GRACE_SECONDS", "3")
    local.submit('trap "" TERM; setsid $marked & while :; do sleep 0.1; done')
    wait_until(lambda: len(local.leftovers()) >= 3)
    local.run("cancel", "job-1")
    assert local.job().state == "RUNNING", "it has its time"
    assert local.until("CANCELLED").exit == "137"
    assert local.leftovers() == []


def test_the_walltime(local: Scheduler) -> None:
    local.submit('trap "exit 4" TERM; $marked & wait', seconds=1)
    row = local.until("TIMEOUT")
    assert row.exit == "4"
    assert 1 <= int(row.end) - int(row.start) <= 9
    assert local.leftovers() == []


def test_a_job_script_that_is_killed(local: Scheduler) -> None:
    local.submit("echo $$ > pid; setsid $marked & $marked & wait")
    pid = int(wait_until(lambda: _text(local.root.parent / "pid")))
    wait_until(lambda: len(local.leftovers()) >= 4)
    os.kill(pid, signal.SIGKILL)
    assert local.until("FAILED").exit == "137"
    assert local.leftovers() == []


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def test_processes_left_behind_by_a_job_that_completed(local: Scheduler) -> None:
    local.submit("setsid $marked & $marked & exit 0")
    local.until("COMPLETED")
    assert local.leftovers() == []


def test_a_supervisor_that_is_ended(local: Scheduler) -> None:
    local.submit("$marked")
    wait_until(local.leftovers)
    os.kill(local.supervisor(), signal.SIGTERM)
    local.until("CANCELLED")
    assert local.leftovers() == []


def test_a_supervisor_that_vanished(local: Scheduler) -> None:
    local.submit("setsid $marked & $marked")
    wait_until(lambda: len(local.leftovers()) >= 4)
    os.kill(local.supervisor(), signal.SIGKILL)
    row = local.until("NODE_FAIL")
    assert (row.reason, row.exit) == ("None", "")
    assert local.run("cancel", "job-1").returncode == 0
    assert local.job().state == "NODE_FAIL"
    assert wait_until(lambda: local.leftovers() == [])


def test_a_reboot(local: Scheduler) -> None:
    """After it, the supervisor's number belongs to some other process, which nobody may touch."""
    stranger = subprocess.Popen(["sleep", "60"])
    directory = local.root / "job-1"
    directory.mkdir(parents=True)
    line = f"RUNNING {stranger.pid} 12345678.42 0 1000 2000 - {os.uname().nodename}\n"
    (directory / "local.state").write_text(line)
    local.run("cancel", "job-1")
    assert local.job().state == "NODE_FAIL"
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_job_of_another_machine(local: Scheduler) -> None:
    """With a shared home another machine's jobs are seen, and cannot be judged or cancelled."""
    directory = local.root / "job-1"
    directory.mkdir(parents=True)
    (directory / "local.state").write_text("RUNNING 1 12345678.42 0 1000 2000 - elsewhere\n")
    assert local.queue() == [Row("job-1", "RUNNING", "None", "elsewhere", "1000", "2000", "")]
    done = local.run("cancel", "job-1")
    assert done.returncode == 1
    assert "elsewhere" in done.stderr


def test_jobs_do_not_disturb_each_other(local: Scheduler) -> None:
    """Not even one that was submitted from the other: it has inherited everything."""
    inner = local.root.parent / "inner.sh"
    goes_on = local.root.parent / "goes on"
    inner.write_text(f"until [ -e '{goes_on}' ]; do sleep 0.1; done; echo survived")
    local.submit(
        f"{BASH} {job_script('local.sh')} submit --root {local.root} --id inner --time 60 -- {inner}", id="outer"
    )
    local.until("COMPLETED", id="outer")
    assert local.job("inner").state == "RUNNING"
    goes_on.touch()
    local.until("COMPLETED", id="inner")
    assert local.output("inner") == "survived\n"
    assert [row.id for row in local.queue()] == ["inner", "outer"]


def test_a_batch_job_submitted_from_a_job_is_not_ours(local: Scheduler) -> None:
    """On a machine with a scheduler as well, that one's jobs inherit our mark, and are left alone."""
    local.submit("SLURM_JOB_ID=7 setsid $marked & until grep -qs nbl-test /proc/$!/cmdline; do sleep 0.05; done")
    local.until("COMPLETED")
    assert len(local.leftovers()) == 1


def test_an_unknown_job(local: Scheduler) -> None:
    local.submit("exit 0")
    for action in ("queue", "cancel"):
        done = local.run(action, "nothing", "job-1")
        assert done.returncode == 1
        assert "no job nothing" in done.stderr
    assert local.run("queue", "nothing", "job-1").stdout.startswith("job-1|"), "the others are still told"
    assert local.run("queue", "../outside").returncode == 1


def test_no_jobs(local: Scheduler) -> None:
    assert local.queue() == []


def test_an_id_is_used_once(local: Scheduler) -> None:
    local.submit("exit 0")
    done = local.run("submit", "--id", "job-1", "--time", "9", "--", "x.sh")
    assert done.returncode == 2
    assert "already" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["submit", "--time", "9", "--", "x"], "--id"),
        (["submit", "--id", "../x", "--time", "9", "--", "x"], "--id"),
        (["submit", "--id", "x", "--time", "1:00", "--", "x"], "--time"),
        (["submit", "--id", "x", "--time", "$(id)", "--", "x"], "--time"),
        (["submit", "--id", "x", "--time", "9"], "script"),
        (["submit", "--id"], "--id"),
        (["queue", "--all"], "--all"),
        (["hold", "x"], "hold"),
    ],
)
def test_mistakes_are_named(local: Scheduler, arguments: list[str], word: str) -> None:
    done = local.run(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert not local.root.exists()


def test_without_setsid(local: Scheduler, tmp_path: Path) -> None:
    """As on macOS."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            link = tools / tool.name
            if tool.name != "setsid" and not link.exists():
                link.symlink_to(tool)
    script = tmp_path / "job.sh"
    script.write_text("sleep 0.3")
    done = local.run("submit", "--id", "x", "--time", "9", "--", str(script), env={"PATH": str(tools)})
    assert done.stdout == "x\n", done.stderr
    assert os.getsid(local.supervisor("x")) == local.supervisor("x")
    local.until("COMPLETED", id="x")
