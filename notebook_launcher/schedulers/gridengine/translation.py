"""Translates sbatch's flags to those of Grid Engine's ``qsub``; docs/gridengine.md lists them for users."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.schedulers.translation import OF_ONE_HOST, QsubTranslation, with_job

#: the flags of sbatch that are translated to those of qsub; all others are refused
TRANSLATED = frozenset(
    {
        *("job-name", "output", "error", "partition", "account", "reservation", "nodelist", "exclude", "time", "begin"),
        *("constraint", "licenses", "dependency", "exclusive", "hold", "requeue", "no-requeue", "open-mode"),
        *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu"),
        *("mail-user", "mail-type", *OF_ONE_HOST),
    }
)
_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "bea", "NONE": ""}
# from the manual sge_types, object_name and job_name
_NOT_IN_NAMES = re.compile(r"[\s/:'\\@*?,=\"]")
_RESOURCE = re.compile(r"[A-Za-z][\w.-]*", re.A)


class SiteResources(Frozen):
    """How a site names its resources, according to a profile's ``scheduler_options``.

    ``parallel_environment``: the one that provides several cores of one host. ``gpu``: the resource for the number of
    GPUs of the whole job. ``memory``: the resource for memory; ``memory_per``: whether it is counted per ``core`` or
    per ``job``. ``exclusive``: a resource that requests a whole host; ``None``: there is none. ``constraint``: whether
    a constraint is a ``resource`` (``-l``) or a variable of the job's ``context`` (``-ac``), which some sites read.
    ``qsub``: additional arguments of qsub.
    """

    parallel_environment: str = "smp"
    gpu: str = "gpu"
    memory: str = "h_vmem"
    memory_per: str = "core"
    exclusive: str | None = None
    constraint: str = "resource"
    qsub: tuple[str, ...] = field(default_factory=tuple)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SiteResources:
        """Return the names from these options. Raises ``ProfileError`` for an unknown option or an invalid value."""
        words: tuple[str, ...] = ()
        values = dict(options)
        for name, value in options.items():
            if name not in cls.__dataclass_fields__:
                known = ", ".join(sorted(cls.__dataclass_fields__))
                raise ProfileError(f"scheduler_options has “{name}”, which Grid Engine does not have: {known}.")
            if name != "qsub" and not _RESOURCE.fullmatch(value):
                raise ProfileError(f"scheduler_options.{name} = “{value}” is not the name of a resource.")
        if values.get("memory_per", "core") not in ("core", "job"):
            raise ProfileError(f"scheduler_options.memory_per = “{values['memory_per']}” is neither core nor job.")
        if values.get("constraint", "resource") not in ("resource", "context"):
            text = values["constraint"]
            raise ProfileError(f"scheduler_options.constraint = “{text}” is neither resource nor context.")
        try:
            words = tuple(shlex.split(values.pop("qsub", "")))
        except ValueError:
            raise ProfileError("scheduler_options.qsub has a quote that is not closed.") from None
        return cls(**values, qsub=words)


class Translation(QsubTranslation):
    """The translation of one request's flags to those of qsub."""

    title, mail_letters, resource = "Grid Engine", _MAIL, _RESOURCE

    def arguments(self, site: SiteResources) -> list[str]:
        """Return qsub's arguments in a fixed order. Raises ``UsageError`` for a flag that cannot be translated."""
        arguments = [
            *self._name_and_log(),
            *self._queue(),
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
        if name[:1].isdecimal() or _NOT_IN_NAMES.search(name):
            raise UsageError(
                f"On Grid Engine a job cannot be called “{name}”.",
                why="A name begins with no digit, and has no spaces, quotes or any of / : @ * ? , = \\ in it.",
                hint="for example: -J training",
            )
        output, error, mode = self.take("output"), self.take("error"), self.take("open-mode")
        if mode == "truncate":
            raise UsageError(
                "--open-mode=truncate cannot be asked for on Grid Engine.", why="It appends to a file that is there."
            )
        arguments = ["-N", name, "-o", with_job(output or self.submission.log, "$JOB_ID")]
        return [*arguments, *(["-e", with_job(error, "$JOB_ID")] if error else ["-j", "y"])]

    def _queue(self) -> Iterator[str]:
        pairs = (("-q", "partition"), ("-P", "account"), ("-ar", "reservation"))
        for flag, name in pairs:
            if value := self.take(name):
                yield from (flag, value)

    def _begin_and_dependency(self) -> Iterator[str]:
        if at := self.begin():
            yield from ("-a", f"{at:%Y%m%d%H%M.%S}")
        if dependency := self.take("dependency"):
            kind, _, jobs = dependency.partition(":")
            if kind != "afterany" or not re.fullmatch(r"\d+(:\d+)*", jobs, re.A):
                raise UsageError(
                    f"--dependency={dependency} cannot be asked for on Grid Engine.",
                    why="It waits until other jobs are over, however they ended.",
                    hint="for example: --dependency=afterany:123",
                )
            yield from ("-hold_jid", jobs.replace(":", ","))

    def _resources(self, site: SiteResources) -> Iterator[str]:
        seconds = self.seconds()
        others = self.other_gres()
        gpus = self.gpus(
            "On Grid Engine, GPUs are requested by number; a type, with a queue or a resource.",
            "for example: -p QUEUE --gpus 1, or -C RESOURCE=TYPE --gpus 1",
        )
        cores = self.cores(gpus)
        yield from ("-l", f"h_rt={seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}")
        if memory := self.memory(cores, gpus):
            each = memory if site.memory_per == "job" else memory / cores
            yield from ("-l", f"{site.memory}={memory_as_typed(math.ceil(each))}")
        if gpus:
            yield from ("-l", f"{site.gpu}={gpus}")
        for request in (*others, *self.licences(), *self._hosts()):
            yield from ("-l", request)
        if constraint := self.plain("constraint", "cpu_type=skylake"):
            yield from ("-l" if site.constraint == "resource" else "-ac", constraint)
        if self.has("exclusive"):
            if site.exclusive is None:
                raise UsageError(
                    "On Grid Engine a whole host is a resource of the site, and the profile does not name it.",
                    hint='name it:  [scheduler_options]  exclusive = "RESOURCE"; or ask for all cores of a host: -n',
                )
            yield from ("-l", f"{site.exclusive}=true")
        if cores > 1:
            yield from ("-pe", site.parallel_environment, str(cores))

    def _hosts(self) -> list[str]:
        """Return one resource request for both flags: of two for the same resource, only the last one counts."""
        named, without = (
            "|".join(names.replace(",", " ").split()) if (names := self.plain(flag, "n1,n2")) else ""
            for flag in ("nodelist", "exclude")
        )
        if named and without:
            return [f"hostname=({named})&!({without})"]
        return [f"hostname={named or f'!({without})'}"] if named or without else []


def job_name(session_id: str) -> str:
    """Return the name of a session's job; it cannot be the session's id, since names must not begin with a digit."""
    return f"nb-{session_id}"
