"""The idle guard as a module, and usage.csv as a sampler writes it, at times that a test chooses."""

from __future__ import annotations

import importlib.util
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.usage_samples import COLUMNS

_spec = importlib.util.spec_from_file_location("idle_guard", job_script("idle_guard.py"))
assert _spec is not None and _spec.loader is not None
guard: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(guard)

BEGAN = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)


class Sampler:
    """Writes rows as the job's sampler does."""

    def __init__(self, path: Path, began: datetime = BEGAN) -> None:
        self.path, self.began = path, began
        self.path.write_text(",".join(COLUMNS) + "\n")

    def sample(self, second: float, *percents: str, cores: str = "0.01") -> None:
        moment = (self.began + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self.path.open("a") as file:
            for index, percent in enumerate(percents):
                file.write(f'{moment},{second:.0f},{cores},900,{index},"Tesla T4, 16",{percent},5000,15360,27.1\n')
            if not percents:
                file.write(f"{moment},{second:.0f},{cores},900,,,,,,\n")

    def usage(self) -> Any:
        usage = guard.Usage(self.path, 15)
        usage.read()
        return usage
