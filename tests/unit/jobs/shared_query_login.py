"""A login node on which several launchers run shared_query.sh at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from notebook_launcher.core.package_data import job_script

SCRIPT = job_script("shared_query.sh")


BASH = os.environ.get("NBL_TEST_BASH", "bash")


# notes the run, waits for a file where it is told to, and says what it is told to
COMMAND = """\
#!/bin/sh
echo "$$" >>"$0.ran"
[ ! -e "$0.wait" ] || while [ ! -e "$0.go" ]; do sleep 0.02; done
cat "$0.says"
[ ! -e "$0.fails" ] || { cat "$0.fails" >&2; exit 3; }
"""


@dataclass
class Asked:
    """What one call printed."""

    exit_code: int
    age: float
    asked_for: str
    clock: datetime
    said: str
    errors: str


class Login:
    """A login node's home: sessions, their scripts, and a scheduler's command that counts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "sessions"
        self.folder = self.root / ".asked"
        self.command = home / "squeue"
        self.constants: dict[str, int] = {}  # of shared_query.sh, where a test does not wait that long
        self.root.mkdir()
        self.command.write_text(COMMAND)
        self.command.chmod(0o755)
        self.says("7|PENDING\n")

    def session(self, name: str) -> Path:
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        text = SCRIPT.read_text()
        for name, value in self.constants.items():
            text, found = re.subn(rf"^readonly {name}=\d+$", f"readonly {name}={value}", text, flags=re.M)
            assert found == 1
        (directory / "shared_query.sh").write_text(text)
        return directory

    # --- the scheduler

    def _about(self, what: str) -> Path:
        return self.command.with_name(f"squeue.{what}")

    def says(self, text: str) -> None:
        self._about("says").write_text(text)

    def fails(self, text: str) -> None:
        self._about("fails").write_text(text)

    def works(self) -> None:
        self._about("fails").unlink()

    def is_slow(self) -> None:
        self._about("wait").touch()

    def answers(self) -> None:
        """Let those that wait for it, and all later ones, have their answer."""
        self._about("go").touch()

    @property
    def runs(self) -> list[int]:
        """The process of each run so far."""
        ran = self._about("ran")
        return [int(line) for line in ran.read_text().splitlines()] if ran.exists() else []

    # --- those who ask

    def begin(self, *, max_age: float = 0, session: str = "one", alone: bool = False) -> subprocess.Popen[str]:
        small = [str(self.command), "alone", "--together"] if alone else []
        script = self.session(session) / "shared_query.sh"
        return subprocess.Popen(
            [BASH, str(script), str(self.folder / "squeue-1"), f"{max_age:.2f}", *small, str(self.command), "a b", "*"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, *, max_age: float = 0, session: str = "one", alone: bool = False) -> Asked:
        return finish(self.begin(max_age=max_age, session=session, alone=alone))

    # --- the files

    def file(self, end: str = "") -> Path:
        """The one file with this ending; without one, that of the answer."""
        machine = Path("/proc/sys/kernel/hostname").read_text().strip()
        return self.folder / f"squeue-1.{machine}{end}"

    def grows_older(self, seconds: float) -> None:
        """Let the answer, and the marks of those who asked, have been written so much earlier."""
        for path in [self.file(), *self.folder.glob("*.by.*")]:
            if path.exists():
                boot, moment, *rest = path.read_text().split(" ", 2)
                path.write_text(" ".join([boot, f"{int(moment) - int(100 * seconds)}", *rest]) + ("\n" * (not rest)))


def finish(process: subprocess.Popen[str]) -> Asked:
    try:
        stdout, stderr = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    first, _, said = stdout.lstrip("\n").partition("\n")  # one who waits prints empty lines
    age, clock, asked_for = first.split()
    at = datetime.strptime(clock, "%Y-%m-%dT%H:%M:%S%z")
    return Asked(process.returncode, float(age), asked_for, at, said, stderr)


def waits(process: subprocess.Popen[str]) -> bool:
    """Whether it has a child, which is the ``sleep`` of one whose turn it is not."""
    return bool(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
