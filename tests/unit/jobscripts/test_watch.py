"""watch.sh: what happens in a session directory, as it happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.job import BASH

pytestmark = pytest.mark.real_time


class Watch:
    """watch.sh at work, and the lines it has said so far, without heartbeats."""

    def __init__(self, directory: Path, since: int = 0, **variables: str) -> None:
        """``since``: for how many seconds it has been at work already; bash takes that from its environment."""
        self.process = subprocess.Popen(
            [BASH, str(job_script("watch.sh")), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "SECONDS": str(since), **variables},
        )

    def next(self) -> str:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline().decode().rstrip("\n")) == ".":
            pass
        return line

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, Watch]]:
    directory = tmp_path / "session"
    directory.mkdir()
    watch = Watch(directory)
    yield directory, watch
    watch.process.kill()
    watch.process.wait()


def replace(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_watch_tells_what_happens(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "started.json", '{"pid":1}\n')
    assert watch.next() == 'started {"pid":1}'
    replace(directory / "endpoint.json", '{"port":1,"name":"ünï \\\\ x"}\n')
    assert watch.next() == 'endpoint {"port":1,"name":"ünï \\\\ x"}'
    (directory / "endpoint.json").unlink()
    assert watch.next() == "gone endpoint"
    replace(directory / "started.json", '{"pid":2}\n')
    assert watch.next() == 'started {"pid":2}'
    replace(directory / "exit.json", "{}\n")
    assert watch.next() == "exit {}"
    shutil.rmtree(directory)
    lines = [watch.next()]
    while lines[-1] != "deleted":
        lines.append(watch.next())
    assert set(lines[:-1]) <= {"gone started", "gone exit"}
    assert watch.process.wait(30) == 0


def test_watch_tells_how_the_programs_beside_jupyterlab_are(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    (directory / "runtime").mkdir()
    for state in ("starting", "failed"):
        replace(directory / "runtime" / "apps.json", f'{{"apps": ["{state}"]}}\n')
        assert watch.next() == f'apps {{"apps": ["{state}"]}}'
    replace(directory / "apps.json", '{"apps": ["asked for"]}\n')
    shutil.rmtree(directory / "runtime")
    assert watch.next() == "gone apps"


def test_watch_tells_what_was_there_before(tmp_path: Path) -> None:
    for name in ("exit", "started", "endpoint"):
        (tmp_path / f"{name}.json").write_text("{}\n")
    shown = subprocess.run(
        [BASH, str(job_script("watch.sh")), str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert shown.stdout.splitlines() == ["started {}", "endpoint {}", "exit {}", "."]
    assert (shown.returncode, shown.stderr) == (0, "")


def test_watch_ends_with_its_client(watched: tuple[Path, Watch]) -> None:
    _, watch = watched
    assert watch.process.stdin is not None
    watch.process.stdin.close()
    assert watch.process.wait(30) == 0


def test_watch_ends_when_nobody_listens(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    assert watch.process.stdout is not None
    watch.process.stdout.close()
    (directory / "started.json").write_text("{}\n")
    watch.process.wait(30)


def test_watch_is_quick_when_it_matters_and_starts_no_process(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    watch.say("nonsense $(touch x)")
    replace(directory / "started.json", "{}\n")
    watch.next()
    begin = time.monotonic()
    replace(directory / "endpoint.json", "{}\n")
    assert watch.next() == "endpoint {}"
    assert time.monotonic() - begin < 4.5  # and not the 5 s after a long quiet time
    status = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children")
    assert not status.exists() or status.read_text() == ""


def test_watch_lets_the_file_server_rest_after_a_long_quiet_time(tmp_path: Path) -> None:
    watch = Watch(tmp_path, since=700)
    assert watch.process.stdout is not None
    lines = [watch.process.stdout.readline()]  # it has looked, and will not do so for a while
    replace(tmp_path / "started.json", "{}\n")
    while lines[-1] == b".\n":
        lines.append(watch.process.stdout.readline())
    assert lines[:2] == [b".\n", b".\n"] and lines[-1] == b"started {}\n", "signs of life go on between two looks"
    begin = time.monotonic()
    replace(tmp_path / "endpoint.json", "{}\n")
    assert watch.next() == "endpoint {}"
    assert time.monotonic() - begin < 4.5, "it is awake again"
    watch.process.kill()
    watch.process.wait()


def test_watch_tells_the_newest_sample(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    file = directory / "usage.csv"
    row = "2026-11-21T01:{:02}:00Z,{}.0,0.50,100,{},NVIDIA T4,5,6,7,8".format
    file.write_text(f"time,seconds,cpu_cores\n{row(1, 60, 0)}\n{row(2, 120, 0)}\n{row(2, 120, 1)}\n")
    assert watch.next() == f"usage {row(2, 120, 0)}|{row(2, 120, 1)}"
    with file.open("a") as being_written:
        being_written.write(f"{row(3, 180, 0)}\n{row(4, 240, 0)[:20]}")
        being_written.flush()
        assert watch.next() == f"usage {row(3, 180, 0)}", "half a line waits for its end"
        being_written.write(f"{row(4, 240, 0)[20:]}\n")
    assert watch.next() == f"usage {row(4, 240, 0)}"
    replace(file, f"{row(4, 240, 0)}\n")  # made shorter: nothing new
    replace(file, f"{row(4, 240, 0)}\n{row(5, 300, 0)}\n")
    assert watch.next() == f"usage {row(5, 300, 0)}"
    file.unlink()
    replace(directory / "exit.json", "{}\n")
    assert watch.next() == "exit {}"
    children = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children")
    assert not children.exists() or children.read_text() == "", "no process is started for it"


def test_watch_keeps_the_end_of_a_long_usage_file(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    row = "2026-11-21T01:44:55Z,{}.0,0.50,100,0,NVIDIA T4,5,6,7,8\n".format
    replace(directory / "usage.csv", "".join(row(number) for number in range(150_000)))
    assert watch.next() == f"usage {row(149_999).strip()}", "the newest, whatever was read before it"
    with (directory / "usage.csv").open("a") as file:
        file.write(row(150_000))
    assert watch.next() == f"usage {row(150_000).strip()}"
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{watch.process.pid}/status").read_text())
    assert memory and int(memory[1]) < 10_000, "of the 8 MB it keeps little"


def test_watch_tells_that_nobody_uses_it(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "idle.json", '{"version":1}\n')
    assert watch.next() == 'idle {"version":1}'
    (directory / "idle.json").unlink()
    assert watch.next() == "gone idle"


def test_watch_tells_how_far_a_notebook_has_come(watched: tuple[Path, Watch]) -> None:
    directory, watch = watched
    replace(directory / "started.json", "{}\n")
    assert watch.next() == "started {}"
    for done in (0, 1):
        replace(directory / "progress.json", f'{{"done":{done}}}\n')
        assert watch.next() == f'progress {{"done":{done}}}'
    replace(directory / "progress.json", '{"done":2}\n')
    replace(directory / "exit.json", "{}\n")
    assert [watch.next(), watch.next()] == ['progress {"done":2}', "exit {}"], "how far it came is told before its end"
    (directory / "progress.json").unlink()
    assert watch.next() == "gone progress"


@pytest.mark.parametrize(("before", "end"), [("progress", "exit"), ("started", "endpoint"), ("endpoint", "exit")])
def test_what_is_written_while_it_looks_is_told_in_its_order(tmp_path: Path, before: str, end: str) -> None:
    """A function in place of ``read`` writes two files, one after the other, when the first of them was just read."""
    (tmp_path / "looked.json").touch()
    writes = f"""() {{
      builtin read "$@"; local code=$? one
      if [[ -e {tmp_path}/looked.json && /dev/fd/0 -ef {tmp_path}/{before}.json ]]; then
        rm {tmp_path}/looked.json
        for one in {before} {end}; do echo 2 >{tmp_path}/$one.new; mv {tmp_path}/$one.new {tmp_path}/$one.json; done
      fi
      return $code
    }}"""
    (tmp_path / f"{before}.json").write_text("1\n")
    watch = Watch(tmp_path, **{"BASH_FUNC_read%%": writes})
    try:
        assert [watch.next() for _ in range(3)] == [f"{before} 1", f"{before} 2", f"{end} 2"]
    finally:
        watch.process.kill()
        watch.process.wait()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("name", "odd"),
    [
        (name, odd)
        for name in ("endpoint.json", "usage.csv")
        for odd in ("a pipe", "a device", "a folder", "zeros without end", "a line without end")
    ],
)
def test_watch_is_held_up_by_no_file_of_the_node(tmp_path: Path, name: str, odd: str) -> None:
    """The compute node that writes them may be anybody's."""
    file = tmp_path / name
    if odd == "a pipe":
        os.mkfifo(file)
    elif odd == "a device":
        file.symlink_to("/dev/zero")
    elif odd == "a folder":
        file.mkdir()
    elif odd == "a line without end":
        file.write_text("x" * 64 * 2**20)
    else:
        with file.open("wb") as sparse:
            sparse.truncate(2**40)
    watch = Watch(tmp_path)
    try:
        for name in ("exit", "idle", "started"):  # each is told by another look through the directory, or a later one
            replace(tmp_path / f"{name}.json", "{}\n")
            while watch.next() != f"{name} {{}}":
                pass
    finally:
        watch.process.kill()
        watch.process.wait()


def test_watch_has_a_heartbeat(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.process.stdout is not None
    begin = time.monotonic()
    assert [watch.process.stdout.readline() for _ in range(2)] == [b".\n", b".\n"]
    assert 1 < time.monotonic() - begin < 10
    watch.process.kill()
    watch.process.wait()
