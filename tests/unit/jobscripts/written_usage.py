"""The idle guard as a module, and usage.csv as a sampler writes it, at times that a test chooses."""

from __future__ import annotations

import importlib.util
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.usage_samples import COLUMNS


def loaded(name: str) -> Any:
    """Return a module of the job scripts."""
    spec = importlib.util.spec_from_file_location(name, job_script(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # the guard imports the rules
    spec.loader.exec_module(module)
    return module


rules = loaded("idle_rules")
guard = loaded("idle_guard")

BEGAN = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)


class Sampler:
    """Writes rows as the job's sampler does."""

    def __init__(self, path: Path, began: datetime = BEGAN) -> None:
        self.path, self.began = path, began
        if not self.path.exists():
            self.path.write_text(",".join(COLUMNS) + "\n")

    def sample(self, second: float, *percents: str, cores: str = "0.01") -> None:
        moment = (self.began + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self.path.open("a") as file:
            for index, percent in enumerate(percents):
                file.write(f'{moment},{second:.0f},{cores},900,{index},"Tesla T4, 16",{percent},5000,15360,27.1\n')
            if not percents:
                file.write(f"{moment},{second:.0f},{cores},900,,,,,,\n")

    def usage(self) -> Any:
        usage = rules.Usage(self.path, 15)
        usage.read()
        return usage
