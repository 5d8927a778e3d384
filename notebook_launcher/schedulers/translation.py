"""The common part of translating sbatch's flags for other schedulers: each flag is read, and the rest is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import ClassVar

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import GPU_FLAGS, Request, parse_begin, parse_gres
from notebook_launcher.core.sbatch_options import FULFILLED
from notebook_launcher.schedulers.base import Submission

#: those of the flags that request GPUs that can be translated for a job on one host
OF_ONE_HOST = ("gpus", "gpus-per-node", "gres")
#: for a request that is translated but not submitted
UNSUBMITTED = Submission("verified", "/", "true", "/dev/null")
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


class FlagTranslation:
    """Translates the flags of one request; each flag that is read is removed, so that those left can be refused.

    ``title``: the scheduler's name in sentences; ``command``: its submit command. Methods raise ``UsageError`` for a
    value that cannot be translated.
    """

    title: ClassVar[str]
    command: ClassVar[str]

    def __init__(self, request: Request, submission: Submission) -> None:
        self.request, self.submission = request, submission
        self._flags = {name: value for name, value in request.flags.items() if name not in FULFILLED}

    def refuse_rest(self) -> None:
        """Raise ``UsageError`` if there are flags that were not read."""
        if not self._flags:
            return
        named = ", ".join(f"--{name}" for name in sorted(self._flags))
        raise UsageError(
            f"On {self.title} there is nothing like {named}.",
            why=f"The flags are those of sbatch; these have no counterpart among those of {self.command}.",
            hint="leave it out, or take it out of the profile with: FLAG = false",
        )

    def take(self, name: str) -> str | None:
        """Remove a flag and return its value."""
        return self._flags.pop(name, None)

    def has(self, name: str) -> bool:
        """Remove a flag whose value does not matter; return whether it was there."""
        return self._flags.pop(name, ...) is not ...

    def number(self, flag: str) -> int | None:
        """Remove a flag and return its value as a number, ``None`` if it is not set."""
        text = self.take(flag)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,6}", text, re.A):
            raise UsageError(f"--{flag}={text} is not a number.")
        return int(text)

    def counts(self, flag: str) -> list[tuple[str, int]]:
        """Remove a flag and return its names and counts. A unit is refused, since units differ between schedulers."""
        text = (self.take(flag) or "").strip()
        if re.search(r":[0-9]+[kmgt]\s*(?:,|$)", text, re.I):
            raise UsageError(
                f"--{flag}={text} cannot be asked for on {self.title}.",
                why="There is a unit in it.",
                hint=f"write a plain number: --{flag}=NAME:2",
            )
        return [] if text.lower() == "none" else parse_gres(text)

    def plain(self, flag: str, example: str) -> str | None:
        """Remove a flag and return its value; brackets are refused, since only Slurm expands them."""
        value = self.take(flag)
        if value and re.search(r"[][]", value):
            raise UsageError(
                f"--{flag}={value} cannot be asked for on {self.title}.",
                why="It contains brackets.",
                hint=f"for example: --{flag}={example}",
            )
        return value

    def seconds(self) -> int:
        """Return the walltime in seconds; an unlimited one is refused."""
        self.take("time")
        walltime = self.request.walltime
        if walltime.is_unlimited:
            raise UsageError(
                f"On {self.title} no walltime without a limit can be asked for.", hint="for example: -t 24:00:00"
            )
        return int(walltime.total_seconds())

    def begin(self) -> datetime | None:
        """Return the begin time on the cluster's clock, ``None`` if there is none or it has passed."""
        text = self.take("begin")
        if text is None:
            return None
        now = self.submission.now or datetime.now().astimezone()
        at = parse_begin(text, now).at
        if at is None:
            raise UsageError(
                f"“{text}” is not understood as a begin time on {self.title}.",
                hint="for example: -b 15:00, -b now+2hours or -b 2026-11-22T09:00",
            )
        at = at.astimezone(now.tzinfo)
        return at if at > now else None

    def gpus(self, why: str, hint: str) -> int:
        """Return the number of GPUs; ``why``, ``hint``: for the error if a GPU type or another GRES is requested."""
        counts = [
            self._gpus_of(flag, why, hint) for flag in sorted(GPU_FLAGS & self._flags.keys()) if flag in OF_ONE_HOST
        ]
        return max(counts, default=0)

    def _gpus_of(self, flag: str, why: str, hint: str) -> int:
        text = self.take(flag) or ""
        items = parse_gres(text if flag == "gres" else f"gpu:{text}")
        if [name for name, _ in items] != ["gpu"]:
            raise UsageError(f"--{flag}={text} cannot be asked for on {self.title}.", why=why, hint=hint)
        return items[0][1]

    def cores(self, gpus: int) -> int:
        """Return the number of cores, all on one host."""
        nodes = self.take("nodes") or "1"
        if nodes not in ("1", "1-1"):
            raise UsageError(f"--nodes={nodes}: on {self.title} a session is on one host.", hint="leave out --nodes")
        tasks, on_node = self.number("ntasks"), self.number("ntasks-per-node")
        each, of_gpu = self.number("cpus-per-task"), self.number(self.of_gpus("cpus-per-gpu", gpus))
        return max(1, (tasks or on_node or 1) * (each or (of_gpu or 0) * gpus or 1))

    def of_gpus(self, flag: str, gpus: int) -> str:
        """Return the name of a flag that counts per GPU; if it is set without GPUs, it is refused."""
        if flag in self._flags and not gpus:
            raise UsageError(f"--{flag}={self._flags[flag]} asks for nothing without GPUs.", hint="with --gpus 1")
        return flag

    def memory(self, cores: int, gpus: int) -> float:
        """Return the total memory in MiB, 0 if none is requested."""
        of_gpus = self.of_gpus("mem-per-gpu", gpus)
        whole, of_core, of_gpu = (self._mib(flag) for flag in ("mem", "mem-per-cpu", of_gpus))
        return whole or (of_core or 0) * cores or (of_gpu or 0) * gpus

    def _mib(self, flag: str) -> float | None:
        text = self.take(flag)
        if text is None:
            return None
        match = re.fullmatch(r"(\d{1,9})([KMGT]?)B?", text.strip().upper(), re.A)
        if match is None or int(match[1]) == 0:
            raise UsageError(f"--{flag}={text} cannot be asked for on {self.title}.", hint=f"for example: --{flag}=8G")
        return int(match[1]) * _MIB[match[2]]


class QsubTranslation(FlagTranslation):
    """The common part of the two commands called ``qsub``, Grid Engine's and PBS's.

    ``mail_letters``: the letters of ``-m`` for each type of ``--mail-type``; ``resource``: the pattern of a resource's
    name.
    """

    command = "qsub"
    mail_letters: ClassVar[Mapping[str, str]]
    resource: ClassVar[re.Pattern[str]]

    def other_gres(self) -> list[str]:
        """Return the resources of ``--gres`` other than GPUs; the GPUs stay in the flag, for ``gpus``."""
        items = self.counts("gres")
        if gpus := [f"{name}:{count}" for name, count in items if name.partition(":")[0] == "gpu"]:
            self._flags["gres"] = ",".join(gpus)
        return [self._count("gres", name, count) for name, count in items if name.partition(":")[0] != "gpu"]

    def licences(self) -> list[str]:
        """Return the resources of ``--licenses``."""
        return [self._count("licenses", name, count) for name, count in self.counts("licenses")]

    def _count(self, flag: str, name: str, count: int) -> str:
        if not self.resource.fullmatch(name):
            raise UsageError(f"--{flag}={name}:{count} cannot be asked for on {self.title}.", hint=f"--{flag}=NAME:2")
        return f"{name}={count}"

    def switches(self) -> list[str]:
        """Return the arguments for flags without a value."""
        switches = (("hold", ["-h"]), ("requeue", ["-r", "y"]), ("no-requeue", ["-r", "n"]))
        return [word for flag, words in switches if self.has(flag) for word in words]

    def mail(self) -> list[str]:
        """Return the arguments for e-mail: to whom, and when."""
        user, types = self.take("mail-user"), [one for one in (self.take("mail-type") or "").upper().split(",") if one]
        if strange := [one for one in types if one not in self.mail_letters]:
            raise UsageError(
                f"--mail-type={','.join(strange)} cannot be asked for on {self.title}.",
                why="It writes when a job begins, when it ends, and when it is aborted.",
                hint="for example: --mail-type=END,FAIL",
            )
        letters = "".join(dict.fromkeys("".join(self.mail_letters[one] for one in types)))
        return [*(["-M", user] if user else []), *(["-m", letters] if letters else [])]


def up_to_minute(at: datetime) -> datetime:
    """Return a time rounded up to the next full minute."""
    if not at.second and not at.microsecond:
        return at
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1)


def with_job(name: str, job: str) -> str:
    """Return a file name with ``%j`` replaced by a job's id, or by the scheduler's own pattern for it."""
    return re.sub(r"%[jJ]", lambda _: job, name)


def signal_of(code: int | None) -> int | None:
    """Return the signal that a shell's exit code stands for (128 plus the signal), ``None`` if it does not."""
    return code - 128 if code is not None and 128 < code < 192 else None
