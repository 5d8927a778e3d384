"""The record of a running cluster on disk, by which any later command finds it, or cleans up after it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import processes
from .errors import NotPossibleHereError

RUN_ROOT = Path(os.environ.get("PRACTICE_CLUSTER_ROOT") or "/var/tmp/notebook-launcher-practice")
"""The directory of running clusters; with different values, several clusters of a generation can be up at once."""


@dataclass
class State:
    """The record of one cluster. `pids` maps a name (box, `switch`, `door`) to process id and start time."""

    complete: bool = False
    pam_slurm: bool = False
    pids: dict[str, tuple[int, int]] = field(default_factory=dict)
    artefacts: list[str] = field(default_factory=list)
    door_text: str = ""
    profile: str | None = None

    def remember(self, name: str, pid: int) -> None:
        """Record a process together with its start time."""
        self.pids[name] = (pid, processes.birth(pid) or 0)

    def pid(self, name: str) -> int:
        """Return the id of a recorded process."""
        return self.pids[name][0]

    def alive(self) -> dict[str, int]:
        """Return the recorded processes that are still running."""
        return {name: pid for name, (pid, birth) in self.pids.items() if processes.birth(pid) == birth}

    def is_healthy(self) -> bool:
        """Return whether the start was completed and every recorded process is running."""
        return self.complete and len(self.alive()) == len(self.pids)


def directory(generation: str) -> Path:
    """Return the directory of a running cluster."""
    return RUN_ROOT / generation


def prepare_root() -> None:
    """Create the directory of all clusters; it is in a world-writable directory, so it must belong to root."""
    RUN_ROOT.mkdir(mode=0o755, exist_ok=True)
    found = RUN_ROOT.lstat()
    if RUN_ROOT.is_symlink() or found.st_uid != 0:
        raise NotPossibleHereError(f"{RUN_ROOT} belongs to somebody else: remove it first.")


def load(generation: str) -> State:
    """Return the record of a cluster; an empty one if there is none, or if it cannot be read."""
    return _read(directory(generation))


def _read(place: Path) -> State:
    try:
        fields = json.loads((place / "state.json").read_text())
        fields["pids"] = {name: (pid, birth) for name, (pid, birth) in fields["pids"].items()}
        return State(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return State()


def save(generation: str, state: State) -> None:
    """Write the record atomically."""
    path = directory(generation) / "state.json"
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(state)))
    temporary.rename(path)


def artefacts_in_use() -> list[Path]:
    """Return the artefacts used by any running cluster, wherever its record is: all share one cache."""
    return [Path(artefact) for place in processes.marks() for artefact in _read(place).artefacts]
