"""Translates the flags of a request, which are sbatch's, to those of ``bsub``.

The same flags are supported in a profile and on the command line:

===========================================  ===================================================================
``partition = "gpuv100"``                    ``-q gpuv100``; a list ``a,b`` is ``-q "a b"``
``time = "2:00:00"``                         ``-W 2:00``, rounded up to minutes; an unlimited walltime is refused
``ntasks``, ``cpus-per-task``                ``-n`` with their product; ``cpus-per-gpu`` × GPUs in place of the latter.
                                             ``nodes = 1`` and ``ntasks-per-node`` are accepted; more nodes are not
(always)                                     ``-R span[hosts=1]``
``mem-per-cpu = "5G"``                       ``-R rusage[mem=5GB]``: per core, as at sites that reserve memory per task
``mem = "20G"``, ``mem-per-gpu``             the same, divided by the cores, rounded up to MiB
``gpus = 2``, ``gpus-per-node = 2``,         ``-gpu num=2:mode=exclusive_process``. A type (``a100:2``) is refused: the
``gres = "gpu:2"``                           profile's ``[gpu.types]`` lead to a queue or a ``constraint``
``constraint = "gpu80gb"``                   ``-R select[gpu80gb]``: LSF's own expression, without brackets
``begin``                                    ``-b month:day:hour:minute``, on the cluster's clock
``account``                                  ``-P``
``reservation``                              ``-U``
``nodelist = "n1,n2"``                       ``-m "n1 n2"``; each by its full name, not ``n[1-2]``
``job-name``, ``output``, ``error``          ``-J``, ``-o`` (``-oo`` with ``open-mode = "truncate"``), ``-e``; in names
                                             ``%j`` is LSF's ``%J``
``exclusive``, ``hold``, ``requeue``         ``-x``, ``-H``, ``-r``
``mail-user``, ``mail-type``                 ``-u``, ``-B`` for BEGIN, ``-N`` for END, both for ALL; others are refused
``signal = "USR1@120"``                      ``-wa USR1 -wt 2``: minutes, rounded up; all of the job's processes get it
===========================================  ===================================================================

Any other flag is refused by name before anything is submitted.
"""

from __future__ import annotations

import math
import re

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.schedulers.translation import OF_ONE_HOST, FlagTranslation, up_to_minute, with_job

_PLAIN = {"exclusive": "-x", "hold": "-H", "requeue": "-r"}
#: the flags of sbatch that are translated to those of bsub; all others are refused
TRANSLATED = frozenset(
    {
        *("job-name", "output", "error", "open-mode", "partition", "account", "reservation", "nodelist", "time"),
        *("begin", "constraint", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "mem"),
        *("mem-per-cpu", "mem-per-gpu", "mail-user", "mail-type", "signal", *_PLAIN, *OF_ONE_HOST),
    }
)


class Translation(FlagTranslation):
    """The translation of one request's flags to those of bsub."""

    title, command = "LSF", "bsub"

    def arguments(self) -> list[str]:
        """Return bsub's arguments in a fixed order. Raises ``UsageError`` for a flag that cannot be translated."""
        arguments = [
            *self._name_and_log(),
            *self._queue_and_nodes(),
            *self._walltime(),
            *self._resources(),
            *self._warning(),
            *self._mail(),
        ]
        self.refuse_rest()
        return arguments

    def _name_and_log(self) -> list[str]:
        name = self.take("job-name") or self.submission.session_id
        if "[" in name or "]" in name:
            raise UsageError(f"On LSF the name “{name}” would make a job array.", hint="choose a name without brackets")
        output, error, mode = self.take("output"), self.take("error"), self.take("open-mode")
        over = "o" if mode == "truncate" else ""
        arguments = ["-J", name, f"-o{over}", with_job(output or self.submission.log, "%J")]
        return [*arguments, *([f"-e{over}", with_job(error, "%J")] if error else [])]

    def _queue_and_nodes(self) -> list[str]:
        pairs = (
            ("-q", _list(self.take("partition"))),
            ("-P", self.take("account")),
            ("-U", self.take("reservation")),
            ("-m", _list(self.plain("nodelist", "n1,n2"))),
        )
        return [word for flag, value in pairs if value for word in (flag, value)]

    def _walltime(self) -> list[str]:
        minutes = -(-self.seconds() // 60)
        return ["-W", f"{minutes // 60}:{minutes % 60:02d}", *self._begin()]

    def _begin(self) -> list[str]:
        at = self.begin()  # ``None`` if it has passed: LSF would take it as next year's
        return ["-b", f"{up_to_minute(at):%m:%d:%H:%M}"] if at else []

    def _resources(self) -> list[str]:
        gpus = self.gpus(
            "On LSF, GPUs are requested by number; a type is requested with a queue or a select string.",
            "for example: -p QUEUE --gpus 1",
        )
        cores = self.cores(gpus)
        needs = [f"select[{feature}]"] if (feature := self.plain("constraint", "gpu80gb")) else []
        needs.append("span[hosts=1]")
        if each := math.ceil(self.memory(cores, gpus) / cores):
            needs.append(f"rusage[mem={memory_as_typed(each)}B]")
        arguments = ["-n", str(cores), "-R", " ".join(needs)]
        arguments += ["-gpu", f"num={gpus}:mode=exclusive_process"] if gpus else []
        return [*arguments, *(word for name, word in _PLAIN.items() if self.has(name))]

    def _warning(self) -> list[str]:
        text = self.take("signal")
        if text is None:
            return []
        match = re.fullmatch(r"(?:[BR]{1,2}:)?(?:SIG)?(?P<name>[A-Z]+[12]?)(?:@(?P<seconds>\d{1,5}))?", text, re.A)
        if match is None:
            raise UsageError(
                f"--signal={text} cannot be asked for on LSF.", hint="name the signal, for example: --signal=USR1@120"
            )
        minutes = max(1, -(-int(match["seconds"] or 60) // 60))  # sbatch's default is a minute before the end
        return ["-wa", match["name"], "-wt", str(minutes)]

    def _mail(self) -> list[str]:
        user, types = self.take("mail-user"), self.take("mail-type") or ""
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
    """Return comma-separated names separated by spaces, as LSF writes them."""
    return " ".join(text.replace(",", " ").split()) if text else None
