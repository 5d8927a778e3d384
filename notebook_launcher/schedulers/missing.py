"""A machine without any of the supported schedulers: what it has instead, and the error that says so.

Without this error, JupyterLab would start on the login node of a cluster with another scheduler.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.core.text import listed
from notebook_launcher.schedulers.kinds import KINDS, titles

#: commands by which other schedulers are recognized, the most certain first; several have ``qsub`` and ``qstat``
OTHERS = {
    "pbsnodes": "Torque",
    "condor_submit": "HTCondor",
    "oarsub": "OAR",
    "qsub": "Torque or another PBS",
    "qstat": "Torque or another PBS",
}

_OURS = tuple(kind.command for kind in KINDS)
_MODULES = tuple(name for kind in KINDS for name in kind.modules)

#: Bash, for a login shell: prints which of the schedulers' commands are found. If none of them is supported, it also
#: prints the matching modules, listed in a login shell of its own that a timeout can end. It prints an empty line
#: first, since start-up files may have printed an incomplete one. All on one line: csh cannot quote a newline.
FIND_SCHEDULERS = (
    f"{PLAIN_BASH}"
    f"echo; for one in {' '.join((*_OURS, *OTHERS))}; do type -P $one >/dev/null && echo command $one; done; "
    f"[[ -n $(type -P {' '.join(_OURS)}) ]] || "
    "timeout 15 bash -lc 'module -t avail' 2>&1 </dev/null | "
    f"sed -n -E 's/^({'|'.join(_MODULES)})/module &/p' | head -n 20; exit 0"
)
_MODULE = re.compile(rf"module ((?:{'|'.join(_MODULES)})(?:/[A-Za-z0-9._+-]{{1,60}})?)(?:\(.*)?")


def read_found(text: str) -> tuple[list[str], list[str]]:
    """Return the commands and the modules (at most three) that ``FIND_SCHEDULERS`` has found."""
    lines = text.split("\n")
    commands = [name for name in (*_OURS, *OTHERS) if f"command {name}" in lines]
    return commands, [found[1] for line in lines if (found := _MODULE.fullmatch(line))][:3]


def loading(modules: Sequence[str]) -> str:
    """Return the command that loads the first of these modules, in the site's default version."""
    return f"module load {modules[0].partition('/')[0]}"


def setting(cluster: str, lines: Sequence[str], *, host: str = "") -> str:
    """Return the command that writes ``login_setup`` into the user's profile; ``host``: for a new profile."""
    words = [
        cluster,
        *(["--host", host] if host else []),
        "--set",
        f"login_setup={json.dumps(list(lines), ensure_ascii=False)}",
    ]
    return f"launch-notebook clusters edit {shlex.join(words)}"


def missing_scheduler(
    machine: str,
    found: Collection[str] = (),
    modules: Sequence[str] = (),
    *,
    is_here: bool = False,
    cluster: str | None = None,
    login: str | None = None,
    setup: Sequence[str] = (),
) -> SchedulerMissing:
    """Return the error for a machine without any of the supported schedulers.

    ``found``: the commands of ``OTHERS`` that it has; ``modules``: those that may provide a scheduler's commands;
    ``is_here``: it is the user's own machine, not a login node. ``cluster``: the profile's name, if there is one;
    ``setup``: its ``login_setup``, which has already run; ``login``: the login node as it was typed.
    """
    there = "here" if is_here else "there"
    other = next((name for command, name in OTHERS.items() if command in found), None)
    why = f"A login shell {there} finds none of {listed(list(_OURS))}."
    hint = f"check that {machine} is the login node"
    if modules:
        why = f"A module may provide the commands: {listed(list(modules))}."
        line = loading(modules)
        hint = f"first run: {line}" if is_here else _load(login or machine, line, cluster, setup)
    elif other:
        commands = listed([one for one in OTHERS if one in found])
        why = f"Its scheduler is not supported: {other} (found: {commands})."
        hint = f"use a cluster with {titles('or')}: --cluster NAME"
    elif not is_here:
        hint += '; for a machine without a scheduler, write a profile with its host and scheduler = "local"'
    if is_here:
        hint += "   or run JupyterLab on this machine itself: --cluster here"
    error = SchedulerMissing(f"None of {titles()} was found on {machine}.", why=why, hint=hint)
    error.names_instead, error.names_module = True, bool(modules)
    return error


def _load(login: str, line: str, cluster: str | None, setup: Sequence[str]) -> str:
    """Return the hint that lets the profile load a module on the login node."""
    if line in setup:
        return f"login_setup has run it, and it brought no such command; try it there, after: ssh {login}"
    if cluster:
        return f"let login_setup load it before each command there: {setting(cluster, [*setup, line])}"
    return f"save a profile that loads it before each command there, with login_setup: launch-notebook init {login}"
