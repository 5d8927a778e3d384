"""The flags in ``sbatch``'s manual (22.05 to 26.05), the closest match to a name, and flags as they are typed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.suggestions import similar, slips

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
    "quiet": "the launcher needs the job's id, which sbatch would keep to itself",
    "wait": "the launcher waits by itself",
    "ignore-pbs": "the job script has no #PBS lines",
}

# Flags of sbatch that print something and queue nothing.
_QUEUE_NOTHING = ("autocomplete", "help", "usage", "version")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", re.A)
_LONGEST_NAME = 60  # characters; Slurm's longest flag has twenty


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

    The last part of a name is compared, too, if no other flag has it: ``--name`` is close to ``--job-name``.
    """
    name = word.lstrip("-").partition("=")[0]
    names = [*BY_NAME, *(other.lstrip("-") for other in others)]
    for known in (names, ends := _last_parts(names)):
        if starts := [one for one in known if len(name) > 2 and one.startswith(name)]:
            near = min(starts, key=len)
            return f"--{ends.get(near, near)}"
    near_names = similar(name, [*names, *ends], cutoff=0.5)
    return f"--{ends.get(near_names[0], near_names[0])}" if near_names else None


# --- flags that are not listed: of a newer sbatch, or of a site's plugins; see ``jobs/unlisted_flags.py`` ---


def is_flag_name(name: str) -> bool:
    """Whether a flag could have this name, without its dashes."""
    return _NAME.fullmatch(name) is not None and len(name) <= _LONGEST_NAME


def may_be_newer(name: str, own: Sequence[str] = ()) -> bool:
    """Whether an unlisted flag may belong to a newer sbatch, rather than be a typo; ``own``: the launcher's flags.

    False if sbatch would read it as an abbreviation of a listed flag: its parser takes ``--wra`` for ``--wrap``.
    """
    known = {*BY_NAME, *_QUEUE_NOTHING, *(other.lstrip("-") for other in own)}
    if not is_flag_name(name) or name in known:
        return False
    return name not in _OTHER_NAMES and not any(_is_slip(name, other) for other in known)


# What people type for --mem and --time; no plugin has these flags.
_OTHER_NAMES = ("memory", "timelimit")


def _is_slip(name: str, known: str) -> bool:
    """Whether a name is a prefix of a known one, or a likely typo of it."""
    typed, meant = _where_they_differ(name.split("-"), known.split("-"))
    if len(typed) == len(meant) < 5 and sorted(typed) != sorted(meant):  # short words differ by a letter: uenv, venv
        return False
    return known.startswith(name) or slips(typed, meant) <= (1 if len(meant) < 9 else 2)


def near_flag(name: str, own: Sequence[str] = ()) -> str | None:
    """Return the listed flag that an unlisted one may stand for: the closest, if one contains the other, or nearly."""
    near = closest(name, tuple(own))
    if near is None:
        return None
    part = near.rpartition("-")[2]
    return near if near[2:] in name or name in near or slips(name, part) <= 1 else None


def _where_they_differ(parts: list[str], others: list[str]) -> tuple[str, str]:
    """Return two names without their common first and last parts, which would make them look more alike."""
    for place in (0, -1):
        while parts and others and parts[place] == others[place]:
            parts, others = (parts[1:], others[1:]) if place == 0 else (parts[:-1], others[:-1])
    return "-".join(parts), "-".join(others)


def unlisted(flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the flags that only the cluster's own sbatch can know."""
    return {name: value for name, value in flags.items() if name not in BY_NAME}


def no_such_flag(
    name: str, why: str = "", known: Sequence[str] | None = None, *, nearness: float = 0.5, lists: str = ""
) -> UsageError:
    """Return the error for a flag that does not exist.

    ``known``: the flags of a cluster; the message suggests those at least as similar as ``nearness``, from 0 to 1.
    ``lists``: the command that lists them.
    """
    if known is None:
        near = [found] if (found := closest(name)) else []
    else:
        beginning = [one for one in known if one.startswith(name) or name.startswith(f"{one}-")]
        listed = [one for one in known if f"--{one}" == closest(name)]  # --job-name for --name
        close = similar(name, known, cutoff=nearness)
        near = [f"--{one}" for one in (*beginning, *listed, *close)]
    hint = f"did you mean {' or '.join(list(dict.fromkeys(near))[:3])}?" if near else ""
    all_flags = "list the flags with: launch-notebook --help" + (f"   or {lists}" if lists else "")
    return UsageError(f"There is no flag --{name}.", why=why, hint=hint or all_flags)


# Since 26.05; a user who types --type means --mail-type.
_SELDOM_MEANT = ("container-type",)


def _last_parts(names: Sequence[str]) -> dict[str, str]:
    """Return the last parts that only one name has, each with that name."""
    names = [name for name in names if name not in _SELDOM_MEANT]
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
    import shlex

    from notebook_launcher.core.request import GPU_FLAGS

    flag = BY_NAME.get(name)
    if value is None:
        return f"--{name}"
    if flag is not None and flag.letter and flag.argument == "required" and name not in GPU_FLAGS:
        return f"-{flag.letter} {shlex.quote(value)}"
    return f"--{name}{' ' if flag is not None and flag.argument == 'required' else '='}{shlex.quote(value)}"
