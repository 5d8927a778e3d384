"""The kinds of schedulers: their names in profiles and in messages, and the command by which each is recognized."""

from __future__ import annotations

from typing import Literal

from notebook_launcher.core.frozen import Frozen

#: a scheduler's name in profiles
SchedulerKind = Literal["slurm", "lsf", "pbs", "gridengine", "local"]
#: the same; ``auto``: it is looked for on the login node
SchedulerName = Literal["slurm", "lsf", "pbs", "gridengine", "local", "auto"]


class Kind(Frozen):
    """One kind. ``title``: its name in sentences; ``command``: a command that no other kind has.

    ``modules``: the usual names of environment modules that provide its commands.
    """

    name: SchedulerName
    title: str
    command: str
    modules: tuple[str, ...]


#: in the order in which they are looked for: sites with Slurm may have other schedulers' commands as wrappers for it
KINDS = (
    Kind("slurm", "Slurm", "sbatch", ("slurm",)),
    Kind("lsf", "LSF", "bsub", ("lsf",)),
    Kind("pbs", "PBS", "pbs_rsub", ("pbs", "openpbs")),  # Torque has pbsnodes as well
    Kind("gridengine", "Grid Engine", "qconf", ("gridengine", "sge", "uge")),
)


def kind_by_command(commands: list[str] | tuple[str, ...]) -> Kind | None:
    """Return the first kind whose command is among those found."""
    return next((kind for kind in KINDS if kind.command in commands), None)


def titles(joining: str = "and") -> str:
    """Return the names of all kinds, for a sentence."""
    *first, last = (kind.title for kind in KINDS)
    return f"{', '.join(first)} {joining} {last}"
