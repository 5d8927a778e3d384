"""A home folder here with sessions that have ended, for the commands that look at them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from notebook_launcher.core.usage_samples import COLUMNS


class Home:
    """A home folder with sessions in it, and the command as its user types it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def session(self, name: str, *, rows: int = 0, log: str = "", **record: object) -> Path:
        """Make a session that has ended, two hours ago."""
        directory = self._folder / ".notebook-launcher/sessions" / name
        directory.mkdir(parents=True, mode=0o700)
        began = datetime.now(timezone.utc) - timedelta(hours=3)
        told = {
            "id": name,
            "created": began.isoformat(),
            "scheduler": "local",
            "log": f"{directory}/job.log",
            "flags": {"time": "2:00:00", "ntasks": "2", "mem": "8G"},
            "environment": "torch",
        }
        (directory / "session.json").write_text(json.dumps(told | record))
        (directory / "job").write_text(name)
        (directory / "started.json").write_text(json.dumps({"job": name, "node": "gpu1", "started": began.isoformat()}))
        ended = {"cause": "finished", "message": "", "exit_code": 0, "ended": (began + timedelta(hours=1)).isoformat()}
        (directory / "exit.json").write_text(json.dumps(ended))
        (directory / "job.log").write_text(log)
        if rows:
            (directory / "usage.csv").write_text("".join(f"{line}\n" for line in self._usage(began, rows)))
        return directory

    @staticmethod
    def _usage(began: datetime, rows: int) -> list[str]:
        times = [(began + timedelta(seconds=5 * place), 5 * place) for place in range(rows)]
        return [
            ",".join(COLUMNS),
            *(
                f"{at:%Y-%m-%dT%H:%M:%SZ},{seconds},1.5,{1024 + seconds},0,Tesla T4,{seconds % 100},4096,16384,60.5"
                for at, seconds in times
            ),
        ]

    def type(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code, and what was printed to standard output and error."""
        self._capsys.readouterr()
        code = run(words)
        out, err = self._capsys.readouterr()
        return code, out, err
