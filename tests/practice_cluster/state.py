"""What a running cluster leaves on disk about itself, so that any later command finds it, or cleans up after it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import processes
from .errors import NotPossibleHereError

RUN_ROOT = Path(os.environ.get("PRACTICE_CLUSTER_ROOT") or "/var/tmp/notebook-launcher-practice")
"""Where running clusters are kept; named by the environment, several of one generation can be up at once."""


@dataclass
class State:
    """The record of one cluster. `pids` maps a name (box, `switch`, `door`) to process number and birth."""

    complete: bool = False
    pam_slurm: bool = False
    pids: dict[str, tuple[int, int]] = field(default_factory=dict)
    artefacts: list[str] = field(default_factory=list)
    door_text: str = ""
    profile: str | None = None

    def remember(self, name: str, pid: int) -> None:
        """Record a process together with its birth."""
        self.pids[name] = (pid, processes.birth(pid) or 0)

    def pid(self, name: str) -> int:
        """Return the number of a recorded process."""
        return self.pids[name][0]

    def alive(self) -> dict[str, int]:
        """Return the recorded processes that still are what they were."""
        return {name: pid for name, (pid, birth) in self.pids.items() if processes.birth(pid) == birth}

    def is_healthy(self) -> bool:
        """Return whether the start was completed and every recorded process lives."""
        return self.complete and len(self.alive()) == len(self.pids)


def directory(generation: str) -> Path:
    """Return the directory of a running cluster."""
    return RUN_ROOT / generation


def prepare_root() -> None:
    """Make the directory of all clusters; everybody may write beside it, so it must be root's own."""
    RUN_ROOT.mkdir(mode=0o755, exist_ok=True)
    found = RUN_ROOT.lstat()
    if RUN_ROOT.is_symlink() or found.st_uid != 0:
        raise NotPossibleHereError(f"{RUN_ROOT} belongs to somebody else: remove it first.")


def load(generation: str) -> State:
    """Return the record of a cluster, an empty one if there is none or none that can be read."""
    return _read(directory(generation))


def _read(place: Path) -> State:
    try:
        fields = json.loads((place / "state.json").read_text())
        fields["pids"] = {name: (pid, birth) for name, (pid, birth) in fields["pids"].items()}
        return State(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return State()


def save(generation: str, state: State) -> None:
    """Write the record, whole or not at all."""
    path = directory(generation) / "state.json"
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(state)))
    temporary.rename(path)


def artefacts_in_use() -> list[Path]:
    """Return the artefacts that some running cluster stands on, wherever it is kept: all share one cache."""
    return [Path(artefact) for place in processes.marks() for artefact in _read(place).artefacts]
