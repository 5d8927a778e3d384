"""What several tests of Slurm's commands need."""

from __future__ import annotations

from collections.abc import Sequence


def bare(command: Sequence[str], job: bool = True) -> list[str]:
    """Return a command without what keeps a user's own variables from it, after a look at that."""
    assert command[0] == "env"
    assert "SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z" in command
    own = next(n for n, word in enumerate(command) if word in ("squeue", "sacct", "scontrol", "scancel"))
    assert ("SLURM_CLUSTERS" in command[:own]) is job
    return list(command[own:])
