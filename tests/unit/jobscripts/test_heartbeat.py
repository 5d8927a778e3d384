"""What a session leaves in the class folder, and what it does when the teacher ends the class."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles import wait_until
from tests.paths import JOBSCRIPTS
from tests.unit.jobscripts.job import BASH

pytestmark = pytest.mark.real_time
ME = getpass.getuser()


class Beating:
    """A session without JupyterLab, and its heartbeat."""

    def __init__(self, folder: Path) -> None:
        self.dir, self.class_, self.course = folder / "session", folder / "class", folder / "course"
        for one in (self.dir / "runtime", self.class_, self.course / "week2"):
            one.mkdir(parents=True)
        self.class_.chmod(0o3770)
        self.program = subprocess.Popen(["sleep", "60"], start_new_session=True)
        self.script: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [str(self.dir), str(self.class_), str(self.course), str(os.getpid()), str(self.program.pid)]
        env = {**os.environ, "SLURM_JOB_ID": "7", "NBL_HEARTBEAT_SECONDS": "2", "TZ": "CET-1"}
        self.script = subprocess.Popen(
            [BASH, JOBSCRIPTS / "lib" / "heartbeat.sh", *words], env=env, stderr=subprocess.PIPE
        )

    @property
    def beat(self) -> dict[str, object]:
        try:
            return dict(json.loads((self.class_ / ME / "heartbeat.json").read_text()))
        except FileNotFoundError:
            return {}

    def close(self) -> None:
        for one in (self.program, self.script):
            if one is not None:
                one.kill()
                one.wait()
                if one.stderr:
                    one.stderr.close()


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[Beating]:
    one = Beating(tmp_path)
    yield one
    one.close()


def test_what_is_left_and_what_is_not(beating: Beating) -> None:
    (beating.course / "week2" / "results.jsonl").write_text('{"name": "fit"}\n')
    (beating.dir / "endpoint.json").write_text('{"port": 40123}')
    beating.start()
    assert wait_until(lambda: beating.beat.get("state") == "running")
    own = beating.class_ / ME
    assert own.stat().st_mode & 0o777 == 0o750 and (own / "heartbeat.json").stat().st_mode & 0o777 == 0o640
    assert wait_until(lambda: (own / "results.jsonl").exists())
    assert (own / "results.jsonl").read_text() == '{"name": "fit"}\n'
    (beating.dir / "idle.json").write_text("{}")
    assert wait_until(lambda: beating.beat.get("state") == "idle")
    record = {"version": 1, "cause": "image-missing", "message": f"It was in {beating.dir}", "exit_code": 1}
    (beating.dir / "exit.json").write_text(json.dumps(record, separators=(",", ":")))
    assert beating.script is not None
    beating.script.send_signal(signal.SIGTERM)
    assert beating.script.wait(30) == 0
    last = beating.beat
    assert (last["state"], last["cause"], last["exit_code"], last["job"]) == ("ended", "image-missing", 1, "7")
    assert set(last) == {"version", "job", "state", "since", "written", "interval", "cause", "exit_code"}


def test_the_teachers_notice_and_the_end(beating: Beating) -> None:
    ends = int(time.time()) + 4  # it may be late, and shows the notice before that
    notice = beating.class_ / "end"
    notice.write_text(f'version=1\nends={ends}\njobs=6 7\nmessage=Save\x1b"it" \\ now.\n')
    beating.start()
    told = beating.dir / "notice.json"
    assert wait_until(told.exists)
    said = json.loads(told.read_text())
    assert said["message"] == 'Save "it" \\ now.'
    assert said["ends"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    assert beating.program.wait(30) == -signal.SIGTERM
    assert (beating.dir / "runtime" / "cause").read_text() == "class-ended The teacher has ended the class.\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_elses_does_not_keep_a_notice_alive(beating: Beating) -> None:
    notice = beating.class_ / "end"
    notice.write_text(f"version=1\nends={int(time.time()) + 60}\njobs=7\nmessage=Home.\n")
    beating.start()
    assert wait_until((beating.dir / "notice.json").exists)
    os.chown(notice, 65534, -1)
    assert wait_until(lambda: not (beating.dir / "notice.json").exists())


@pytest.mark.parametrize("spoil", ["mode", "jobs", "link", "version"])
def test_a_notice_that_does_not_count(beating: Beating, spoil: str, tmp_path: Path) -> None:
    text = f"version={'2' if spoil == 'version' else '1'}\nends=1\njobs={'6' if spoil == 'jobs' else '7'}\n"
    notice = tmp_path / "elsewhere" if spoil == "link" else beating.class_ / "end"
    notice.write_text(text)
    if spoil == "link":
        (beating.class_ / "end").symlink_to(notice)
    if spoil == "mode":
        beating.class_.chmod(0o2770)
    beating.start()
    assert wait_until(lambda: beating.beat.get("state") == "starting")
    time.sleep(0.3)
    assert not (beating.dir / "notice.json").exists() and beating.program.poll() is None


def test_a_folder_that_is_not_ones_own(beating: Beating) -> None:
    (beating.class_ / ME).symlink_to(beating.course)
    beating.start()
    assert beating.script is not None and beating.script.stderr is not None
    assert beating.script.wait(30) == 1
    assert b"is not a folder of this user: the teacher does not see this session" in beating.script.stderr.read()
