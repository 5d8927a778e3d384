"""Every flag of ``sbatch`` in its manual (22.05 to 26.05), the closest match, and how flags are typed."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import GPU_FLAGS

Argument = Literal["none", "required", "optional"]


class Flag(Frozen):
    """One flag: its long name without dashes, its letter if it has one, and whether a value follows."""

    name: str
    letter: str = ""
    argument: Argument = "required"


_REQUIRED = """
account:A acctg-freq array:a batch bb bbf begin:b chdir:D cluster-constraint clusters:M comment constraint:C container
container-id container-type core-spec:S cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot
dependency:d distribution:m error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind gpu-freq gpus:G
gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J kill-on-invalid-dep licenses:L
mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile:F nodelist:w nodes:N
ntasks:n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output:o partition:p power prefer
priority profile qos:q reservation resources segment signal sockets-per-node switches thread-spec threads-per-core
time:t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_OPTIONAL = "exclusive get-user-env nice no-kill:k oom-kill-step propagate resv-ports"
_NONE = """
contiguous hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s parsable quiet:Q reboot requeue
spread-job spread-segments consolidate-segments stepmgr test-only use-min-nodes wait:W
"""

# Flags that do not work with a notebook, and why.
REFUSED = {
    "array": "a notebook is one job; start the command several times for several sessions",
    "test-only": "it would queue nothing; --dry-run shows the submit command",
    "wrap": "the job script of the launcher is what runs; for a batch job use sbatch itself",
}

# Flags that the launcher implements itself or always sets: accepted, but not passed on.
FULFILLED = {
    "parsable": "the launcher always asks for the short answer",
    "quiet": "the launcher needs the job's number, which sbatch would keep to itself",
    "wait": "the launcher waits by itself",
    "ignore-pbs": "the job script has no #PBS lines",
}


def _flags(words: str, argument: Argument) -> list[Flag]:
    return [Flag(*word.partition(":")[::2], argument) for word in words.split()]


FLAGS: tuple[Flag, ...] = tuple(
    sorted(
        [*_flags(_REQUIRED, "required"), *_flags(_OPTIONAL, "optional"), *_flags(_NONE, "none")],
        key=lambda flag: flag.name,
    )
)
BY_NAME = {flag.name: flag for flag in FLAGS}


def closest(word: str, others: tuple[str, ...] = ()) -> str | None:
    """Return the flag whose name is closest to ``word`` (with its dashes), ``None`` if none is similar.

    The last part of a name counts as well, if no other flag has it: ``--name`` is close to ``--job-name``.
    """
    name = word.lstrip("-").partition("=")[0]
    names = [*BY_NAME, *(other.lstrip("-") for other in others)]
    for known in (names, ends := _last_parts(names)):
        if starts := [one for one in known if len(name) > 2 and one.startswith(name)]:
            near = min(starts, key=len)
            return f"--{ends.get(near, near)}"
    near_names = difflib.get_close_matches(name, [*names, *ends], n=1, cutoff=0.5)
    return f"--{ends.get(near_names[0], near_names[0])}" if near_names else None


def _last_parts(names: Sequence[str]) -> dict[str, str]:
    """Return the last parts of names that occur once, each with its name."""
    parts = Counter(name.rpartition("-")[2] for name in set(names))
    found = {part: name for name in names if (part := name.rpartition("-")[2]) != name and parts[part] == 1}
    return {part: name for part, name in found.items() if len(part) > 2}


_SHOWN_FIRST = ("time", "partition", "gpus", "gres")  # what people look for first, in the order they type it


def as_typed(flags: Mapping[str, str | None]) -> str:
    """Return flags as people type them: ``-t 1:00:00 --gpus a100:1``."""
    names = sorted(
        flags, key=lambda name: (_SHOWN_FIRST.index(name) if name in _SHOWN_FIRST else len(_SHOWN_FIRST), name)
    )
    return " ".join(_typed(name, flags[name]) for name in names)


def _typed(name: str, value: str | None) -> str:
    flag = BY_NAME.get(name)
    if value is None:
        return f"--{name}"
    if flag is not None and flag.letter and flag.argument == "required" and name not in GPU_FLAGS:
        return f"-{flag.letter} {shlex.quote(value)}"
    return f"--{name}{' ' if flag is None or flag.argument == 'required' else '='}{shlex.quote(value)}"
