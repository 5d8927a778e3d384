"""The flags of a request, which are sbatch's, as those of ``bsub``.

They are so in a profile as on the command line. These are supported:

===========================================  ===================================================================
``partition = "gpuv100"``                    ``-q gpuv100``; a list ``a,b`` is ``-q "a b"``
``time = "2:00:00"``                         ``-W 2:00``, rounded up to minutes; no limit cannot be asked for
``ntasks``, ``cpus-per-task``                ``-n`` with their product; ``cpus-per-gpu`` × GPUs in place of the latter.
                                             ``nodes = 1`` and ``ntasks-per-node`` are understood; more nodes are not
(always)                                     ``-R span[hosts=1]``
``mem-per-cpu = "5G"``                       ``-R rusage[mem=5GB]``: per core, as sites count that reserve per task
``mem = "20G"``, ``mem-per-gpu``             the same, divided by the cores, rounded up to MiB
``gpus = 2``, ``gpus-per-node = 2``,         ``-gpu num=2:mode=exclusive_process``. A type (``a100:2``) is refused: the
``gres = "gpu:2"``                           profile's ``[gpu.types]`` lead to a queue or a ``constraint``
``constraint = "gpu80gb"``                   ``-R select[gpu80gb]``: LSF's own expression, without brackets
``begin``                                    ``-b month:day:hour:minute``, on the cluster's clock
``account``                                  ``-P``
``reservation``                              ``-U``
``nodelist = "n1,n2"``                       ``-m "n1 n2"``; each by its name, no ``n[1-2]``
``job-name``, ``output``, ``error``          ``-J``, ``-o`` (``-oo`` with ``open-mode = "truncate"``), ``-e``; in names
                                             ``%j`` is LSF's ``%J``
``exclusive``, ``hold``, ``requeue``         ``-x``, ``-H``, ``-r``
``mail-user``, ``mail-type``                 ``-u``, ``-B`` for BEGIN, ``-N`` for END, both for ALL; no others
``signal = "USR1@120"``                      ``-wa USR1 -wt 2``: minutes, rounded up; all of the job's processes get it
===========================================  ===================================================================

Any other flag is refused by name, before anything is submitted.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.core.request import GPU_FLAGS, Request, parse_begin, parse_gres
from notebook_launcher.core.sbatch_options import FULFILLED
from notebook_launcher.schedulers.base import Submission

_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_PLAIN = {"exclusive": "-x", "hold": "-H", "requeue": "-r"}
_OF_ONE_HOST = ("gpus", "gpus-per-node", "gres")
#: the flags of sbatch that are translated to those of bsub: all others are refused
TRANSLATED = frozenset(
    {
        *("job-name", "output", "error", "open-mode", "partition", "account", "reservation", "nodelist", "time"),
        *("begin", "constraint", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "mem"),
        *("mem-per-cpu", "mem-per-gpu", "mail-user", "mail-type", "signal", *_PLAIN, *_OF_ONE_HOST),
    }
)


class Translation:
    """Translates the flags of one request to bsub's; each flag that is read is removed from those left."""

    def __init__(self, request: Request, submission: Submission) -> None:
        self._request, self._submission = request, submission
        self._flags = {name: value for name, value in request.flags.items() if name not in FULFILLED}

    def arguments(self) -> list[str]:
        """Return bsub's arguments in a fixed order. Raises ``UsageError``."""
        arguments = [
            *self._name_and_log(),
            *self._queue_and_nodes(),
            *self._walltime(),
            *self._resources(),
            *self._warning(),
            *self._mail(),
        ]
        if self._flags:
            named = ", ".join(f"--{name}" for name in sorted(self._flags))
            raise UsageError(
                f"On LSF there is nothing like {named}.",
                why="The flags are those of sbatch; these have no counterpart among those of bsub.",
                hint="leave it out, or take it out of the profile with: FLAG = false",
            )
        return arguments

    def _take(self, name: str) -> str | None:
        return self._flags.pop(name, None)

    def _has(self, name: str) -> bool:
        """Remove a flag whose value does not matter; return whether it was there."""
        return self._flags.pop(name, ...) is not ...

    def _name_and_log(self) -> list[str]:
        name = self._take("job-name") or self._submission.session_id
        if "[" in name or "]" in name:
            raise UsageError(f"On LSF the name “{name}” would make a job array.", hint="a name without brackets")
        output, error, mode = self._take("output"), self._take("error"), self._take("open-mode")
        over = "o" if mode == "truncate" else ""
        arguments = ["-J", name, f"-o{over}", with_job(output or self._submission.log, "%J")]
        return [*arguments, *([f"-e{over}", with_job(error, "%J")] if error else [])]

    def _queue_and_nodes(self) -> list[str]:
        pairs = (
            ("-q", _list(self._take("partition"))),
            ("-P", self._take("account")),
            ("-U", self._take("reservation")),
            ("-m", _list(self._plain("nodelist", "n1,n2"))),
        )
        return [word for flag, value in pairs if value for word in (flag, value)]

    def _plain(self, flag: str, example: str) -> str | None:
        """Remove a flag and return its value, without brackets: LSF has no such name lists, and uses brackets itself.

        Raises ``UsageError``.
        """
        value = self._take(flag)
        if value and re.search(r"[][]", value):
            raise UsageError(
                f"--{flag}={value} cannot be asked for on LSF.",
                why="There are brackets in it.",
                hint=f"for example: --{flag}={example}",
            )
        return value

    def _walltime(self) -> list[str]:
        self._take("time")
        walltime = self._request.walltime
        if walltime.is_unlimited:
            raise UsageError("On LSF no walltime without a limit can be asked for.", hint="for example: -t 24:00:00")
        minutes = -(-int(walltime.total_seconds()) // 60)
        return ["-W", f"{minutes // 60}:{minutes % 60:02d}", *self._begin()]

    def _begin(self) -> list[str]:
        text = self._take("begin")
        if text is None:
            return []
        now = self._submission.now or datetime.now().astimezone()
        at = parse_begin(text, now).at
        if at is None:
            raise UsageError(
                f"“{text}” is not understood as a begin time on LSF.",
                hint="for example: -b 15:00, -b now+2hours or -b 2026-11-22T09:00",
            )
        at = at.astimezone(now.tzinfo)
        if at.second or at.microsecond:
            at = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return ["-b", f"{at:%m:%d:%H:%M}"] if at > now else []  # a time that has passed would be next year's

    def _resources(self) -> list[str]:
        gpus = self._gpus()
        cores = self._cores(gpus)
        needs = [f"select[{feature}]"] if (feature := self._plain("constraint", "gpu80gb")) else []
        needs.append("span[hosts=1]")
        if memory := self._memory(cores, gpus):
            needs.append(f"rusage[mem={memory}]")
        arguments = ["-n", str(cores), "-R", " ".join(needs)]
        arguments += ["-gpu", f"num={gpus}:mode=exclusive_process"] if gpus else []
        return [*arguments, *(word for name, word in _PLAIN.items() if self._has(name))]

    def _gpus(self) -> int:
        counts = [self._gpus_of(flag) for flag in sorted(GPU_FLAGS & self._flags.keys()) if flag in _OF_ONE_HOST]
        return max(counts, default=0)

    def _gpus_of(self, flag: str) -> int:
        text = self._take(flag) or ""
        items = parse_gres(text if flag == "gres" else f"gpu:{text}")
        if [name for name, _ in items] != ["gpu"]:
            raise UsageError(
                f"--{flag}={text} cannot be asked for on LSF.",
                why="GPUs are asked for by their number there, and by a queue or a select string where types differ.",
                hint="for example: -p QUEUE --gpus 1",
            )
        return items[0][1]

    def _cores(self, gpus: int) -> int:
        nodes = self._take("nodes") or "1"
        if nodes not in ("1", "1-1"):
            raise UsageError(f"--nodes={nodes}: on LSF a session is on one host.", hint="leave out --nodes")
        tasks, on_node = self._number("ntasks"), self._number("ntasks-per-node")
        each, of_gpu = self._number("cpus-per-task"), self._number(self._of_gpus("cpus-per-gpu", gpus))
        return max(1, (tasks or on_node or 1) * (each or (of_gpu or 0) * gpus or 1))

    def _of_gpus(self, flag: str, gpus: int) -> str:
        """Return the name of a flag that counts by GPUs. Raises ``UsageError`` if it is set without GPUs."""
        if flag in self._flags and not gpus:
            raise UsageError(f"--{flag}={self._flags[flag]} asks for nothing without GPUs.", hint="with --gpus 1")
        return flag

    def _number(self, flag: str) -> int | None:
        text = self._take(flag)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,6}", text, re.A):
            raise UsageError(f"--{flag}={text} is not a number.")
        return int(text)

    def _memory(self, cores: int, gpus: int) -> str | None:
        """Return the memory that each core reserves, as ``5GB`` or ``1500MB``."""
        of_gpus = self._of_gpus("mem-per-gpu", gpus)
        whole, of_core, of_gpu = (self._mib(flag) for flag in ("mem", "mem-per-cpu", of_gpus))
        total = whole or (of_core or 0) * cores or (of_gpu or 0) * gpus
        each = math.ceil(total / cores)
        return None if not each else f"{memory_as_typed(each)}B"

    def _mib(self, flag: str) -> float | None:
        text = self._take(flag)
        if text is None:
            return None
        match = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", text.strip().upper(), re.A)
        if match is None or int(match[1]) == 0:
            raise UsageError(f"--{flag}={text} cannot be asked for on LSF.", hint=f"for example: --{flag}=8G")
        return int(match[1]) * _MIB[match[2]]

    def _warning(self) -> list[str]:
        text = self._take("signal")
        if text is None:
            return []
        match = re.fullmatch(r"(?:[BR]{1,2}:)?(?:SIG)?(?P<name>[A-Z]+[12]?)(?:@(?P<seconds>\d{1,5}))?", text, re.A)
        if match is None:
            raise UsageError(
                f"--signal={text} cannot be asked for on LSF.", hint="by name, for example: --signal=USR1@120"
            )
        minutes = max(1, -(-int(match["seconds"] or 60) // 60))  # by default, sbatch sends it a minute before the end
        return ["-wa", match["name"], "-wt", str(minutes)]

    def _mail(self) -> list[str]:
        user, types = self._take("mail-user"), self._take("mail-type") or ""
        mail_types = set(types.upper().split(","))
        if mail_types - {"BEGIN", "END", "ALL", "NONE", ""}:
            raise UsageError(
                f"--mail-type={types} cannot be asked for on LSF.",
                why="It writes when a job begins and when it ends, at no other time.",
                hint="for example: --mail-type=END",
            )
        arguments = ["-u", user] if user else []
        arguments += ["-B"] if mail_types & {"BEGIN", "ALL"} else []
        return arguments + (["-N"] if mail_types & {"END", "ALL"} else [])


def _list(text: str | None) -> str | None:
    """Return comma-separated names in LSF's form: separated by spaces."""
    return " ".join(text.replace(",", " ").split()) if text else None


def with_job(name: str, job: str) -> str:
    """Return a file's name with the job's id, or LSF's ``%J``, in place of ``%j`` and ``%J``."""
    return re.sub(r"%[jJ]", lambda _: job, name)
