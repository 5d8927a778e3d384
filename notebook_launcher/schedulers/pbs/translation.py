"""Translates sbatch's flags to those of PBS's ``qsub``; docs/pbs.md lists them for users."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.schedulers.translation import OF_ONE_HOST, QsubTranslation

#: the flags of sbatch that are translated to those of qsub; all others are refused
TRANSLATED = frozenset(
    {
        *("job-name", "output", "error", "partition", "account", "reservation", "nodelist", "time", "begin"),
        *("constraint", "licenses", "dependency", "exclusive", "hold", "requeue", "no-requeue", "open-mode"),
        *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu"),
        *("mail-user", "mail-type", *OF_ONE_HOST),
    }
)
_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}
_RESOURCE = re.compile(r"[A-Za-z][\w-]*", re.A)
_OF_CHUNK = re.compile(r"[A-Za-z][\w-]*=[\w.+-]+(?::[A-Za-z][\w-]*=[\w.+-]+)*", re.A)
_DEPENDENCY = re.compile(
    r"after(?:ok|notok|any)?(?::\d[\w.\[\]-]*)+(?:,after(?:ok|notok|any)?(?::\d[\w.\[\]-]*)+)*", re.A
)


class SiteResources(Frozen):
    """How a site names its resources, according to a profile's ``scheduler_options``.

    ``gpu``: the resource for the number of GPUs in a chunk. ``account_flag``: qsub's flag for an account, ``A`` or
    ``P``. ``constraint``: whether a constraint is part of the ``chunk``, or a resource of the whole ``job``. ``qsub``:
    additional arguments of qsub.
    """

    gpu: str = "ngpus"
    account_flag: str = "A"
    constraint: str = "chunk"
    qsub: tuple[str, ...] = field(default_factory=tuple)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SiteResources:
        """Return the names from these options. Raises ``ProfileError`` for an unknown option or an invalid value."""
        values = dict(options)
        if strange := sorted(values.keys() - cls.__dataclass_fields__.keys()):
            known = ", ".join(sorted(cls.__dataclass_fields__))
            raise ProfileError(f"scheduler_options has “{strange[0]}”, which PBS does not have: {known}.")
        if values.get("account_flag", "A") not in ("A", "P"):
            raise ProfileError(f"scheduler_options.account_flag = “{values['account_flag']}” is neither A nor P.")
        if values.get("constraint", "chunk") not in ("chunk", "job"):
            raise ProfileError(f"scheduler_options.constraint = “{values['constraint']}” is neither chunk nor job.")
        if not _RESOURCE.fullmatch(values.get("gpu", "ngpus")):
            raise ProfileError(f"scheduler_options.gpu = “{values['gpu']}” is not the name of a resource.")
        try:
            words = tuple(shlex.split(values.pop("qsub", "")))
        except ValueError:
            raise ProfileError("scheduler_options.qsub has a quote that is not closed.") from None
        return cls(**values, qsub=words)


class Translation(QsubTranslation):
    """The translation of one request's flags to those of qsub."""

    title, mail_letters, resource = "PBS", _MAIL, _RESOURCE

    def arguments(self, site: SiteResources) -> list[str]:
        """Return qsub's arguments in a fixed order. Raises ``UsageError`` for a flag that cannot be translated."""
        arguments = [
            *self._name_and_log(),
            *self._queue(site),
            *self._begin_and_dependency(),
            *self._resources(site),
            *self.switches(),
            *self.mail(),
            *site.qsub,
        ]
        self.refuse_rest()
        return arguments

    def _name_and_log(self) -> list[str]:
        name = self.take("job-name") or job_name(self.submission.session_id)
        if not re.fullmatch(r"[A-Za-z][\w.+-]{0,229}", name, re.A):
            raise UsageError(
                f"On PBS a job cannot be called “{name}”.",
                why="A name begins with a letter, and has letters, digits and - _ + . in it.",
                hint="for example: -J training",
            )
        output, error, mode = self.take("output"), self.take("error"), self.take("open-mode")
        if mode == "append":
            raise UsageError("--open-mode=append cannot be asked for on PBS.", why="It replaces a file that is there.")
        for path in filter(None, (output, error)):
            if "%" in path:
                raise UsageError(
                    f"“{path}” cannot be the name of a log on PBS.",
                    why="PBS replaces no patterns in it.",
                    hint="choose a name without %, or leave it out",
                )
        arguments = ["-N", name, "-o", output or self.submission.log]
        return [*arguments, *(["-e", error] if error else ["-j", "oe"])]

    def _queue(self, site: SiteResources) -> Iterator[str]:
        queue, reservation = self.take("partition"), self.take("reservation")
        if queue and reservation:
            raise UsageError(
                "On PBS a reservation is a queue of its own.", hint="leave out -p, or take it out of the profile"
            )
        if queue or reservation:
            yield from ("-q", str(queue or reservation))
        if account := self.take("account"):
            yield from (f"-{site.account_flag}", account)

    def _begin_and_dependency(self) -> Iterator[str]:
        if at := self.begin():
            yield from ("-a", f"{at:%Y%m%d%H%M.%S}")
        if dependency := self.take("dependency"):
            if not _DEPENDENCY.fullmatch(dependency):
                raise UsageError(
                    f"--dependency={dependency} cannot be asked for on PBS.", hint="for example: -d afterok:123"
                )
            yield from ("-W", f"depend={dependency}")

    def _resources(self, site: SiteResources) -> Iterator[str]:
        seconds = self.seconds()
        others = self.other_gres()
        gpus = self.gpus(
            "On PBS, GPUs are requested by number; a type is requested with a queue or a resource.",
            "for example: -p QUEUE --gpus 1, or -C gpu_type=a100 --gpus 1",
        )
        cores = self.cores(gpus)
        chunk = [f"1:ncpus={cores}"]
        if gpus:
            chunk.append(f"{site.gpu}={gpus}")
        if memory := self.memory(cores, gpus):
            chunk.append(f"mem={memory_as_typed(math.ceil(memory)).lower()}b")
        constraint = self._constraint()
        of_chunk = constraint if site.constraint == "chunk" else []
        yield from ("-l", "select=" + ":".join([*chunk, *others, *self._host(), *of_chunk]))
        for text in constraint if site.constraint == "job" else ():
            yield from ("-l", text.replace(":", ","))
        yield from ("-l", f"walltime={seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}")
        if self.has("exclusive"):
            yield from ("-l", "place=exclhost")
        for licence in self.licences():
            yield from ("-l", licence)

    def _host(self) -> list[str]:
        name = self.take("nodelist")
        if name and not re.fullmatch(r"[\w.-]+", name, re.A):
            raise UsageError(f"--nodelist={name}: on PBS it is one host.", hint="for example: -w n1")
        return [f"host={name}"] if name else []

    def _constraint(self) -> list[str]:
        text = self.take("constraint")
        if text and not _OF_CHUNK.fullmatch(text):
            raise UsageError(
                f"--constraint={text} cannot be asked for on PBS.",
                why="It is a resource with its value, as in a chunk of select.",
                hint="for example: -C cpu_type=milan",
            )
        return [text] if text else []


def job_name(session_id: str) -> str:
    """Return the name of a session's job; in older versions it cannot begin with a digit, as session ids do."""
    return f"nb-{session_id}"
