"""A machine without Slurm and LSF: what it has instead, and the error that says so.

JupyterLab would otherwise start on the login node of a cluster with another scheduler, which nobody wants.
"""

from __future__ import annotations

from collections.abc import Collection

from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.core.text import listed, printable

#: commands by which other schedulers are known, the surest first; Grid Engine and PBS both have ``qsub``
OTHERS = {
    "qconf": "Grid Engine",
    "pbsnodes": "PBS",
    "condor_submit": "HTCondor",
    "oarsub": "OAR",
    "qsub": "PBS or Grid Engine",
}

#: Bash, for a login shell: prints the names of the schedulers' commands that are found; without ``sbatch`` and ``bsub``
#: also ``module NAME`` for modules that may bring them. On one line: csh, as a login shell, cannot quote a newline.
LOOK = (
    f"for one in sbatch bsub {' '.join(OTHERS)}; do type -P $one >/dev/null && echo $one; done; "
    "type -P sbatch >/dev/null || type -P bsub >/dev/null || [[ $(type -t module) != function ]] || "
    "module -t avail 2>&1 | sed -nE 's,^((slurm|lsf)(/[A-Za-z0-9._+-]+)?)(\\(.*)?$,module \\1,p' | head -n 3; exit 0"
)


def missing_scheduler(
    machine: str, found: Collection[str] = (), modules: Collection[str] = (), *, is_here: bool = False
) -> SchedulerMissing:
    """Return the error for a machine without Slurm and LSF.

    ``found``: the commands of ``OTHERS`` that it has; ``modules``: those that may bring a scheduler's commands;
    ``is_here``: it is the user's machine, not one that was logged in to.
    """
    there = "here" if is_here else "there"
    other = next((name for command, name in OTHERS.items() if command in found), None)
    why = f"A login shell {there} finds neither sbatch nor bsub."
    hint = f"check that {machine} is the login node"
    if modules:
        names = [printable(name) for name in modules]
        why = f"A module may provide the commands: {listed(names)}."
        hint = f"add this line to ~/.bash_profile {there}: module load {names[0]}"
    elif other:
        commands = listed([one for one in OTHERS if one in found])
        why = f"Its scheduler is not supported: {other} (found: {commands})."
        hint = "use a cluster with Slurm or LSF: --cluster NAME"
    elif not is_here:
        hint += '; for a machine without a scheduler, write a profile with its host and scheduler = "local"'
    if is_here:
        hint += "   or run JupyterLab on this machine itself: --cluster here"
    return SchedulerMissing(f"Neither Slurm nor LSF was found on {machine}.", why=why, hint=hint)
