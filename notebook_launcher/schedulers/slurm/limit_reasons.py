"""Slurm's reasons that name a limit (``AssocGrpGRES``, ``QOSMaxCpuPerUserLimit``, ...), parsed by their parts.

There are nearly two hundred, all composed in the same way: who sets the limit; whether it is a group limit, a maximum
or a minimum; the limited resource; whether its amount or its minutes are limited; and for whom. See Slurm's guide to
resource limits.
"""

from __future__ import annotations

import re
from typing import Literal

from notebook_launcher.core.frozen import Frozen

Per = Literal["job", "node", "user", "account", "group"]


class LimitReason(Frozen):
    """A limit that a reason names.

    ``by``: who sets it. ``resource``: what is limited, a key of ``RESOURCES``. ``measure``: the amount in use, the
    minutes in total, or the remaining minutes of running jobs. ``per``: whose use counts; ``group``: that of all who
    share the account or QOS. ``least``: whether it is a minimum.
    """

    by: Literal["account", "QOS"]
    resource: str
    per: Per
    measure: Literal["amount", "minutes", "running minutes"] = "amount"
    least: bool = False

    @property
    def on(self) -> str:
        """The limited resource, as in ``Limit.on``; for GRES, licences and burst buffers only its prefix."""
        name = RESOURCES[self.resource].tres
        return {"amount": name, "minutes": f"{name} minutes", "running minutes": f"running {name} minutes"}[
            self.measure
        ]


class Resource(Frozen):
    """A limited resource: its name in messages, and Slurm's name for it, or the beginning of that."""

    noun: str
    tres: str
    minutes: str = ""  # the name of its use over time
    counted: bool = True  # whether messages say "fewer" instead of "less"


RESOURCES = {
    "cpu": Resource("CPUs", "cpu", "CPU minutes"),
    "node": Resource("nodes", "node", "node minutes"),
    "mem": Resource("memory", "mem", "memory minutes", counted=False),
    "gres": Resource("GPUs (GRES)", "gres/", "GPU (GRES) minutes"),
    "license": Resource("licences", "license/", "licence minutes"),
    "bb": Resource("burst-buffer space", "bb/", "burst-buffer minutes", counted=False),
    "billing": Resource("billing units", "billing", "billing minutes"),
    "energy": Resource("energy", "energy", "energy minutes", counted=False),
    "unknown": Resource(
        "of a resource of the site's own", "", "minutes of a resource of the site's own", counted=False
    ),
    "jobs": Resource("jobs", "jobs"),
    "submit": Resource("jobs", "submitted jobs"),
    "wall": Resource("walltime", "walltime", counted=False),
}

_LIMIT_REASON = re.compile(
    r"(?P<by>Assoc|QOS)?(?P<kind>Grp|Max|Min)"
    r"(?P<resource>Cpu|Node|Mem(?:ory)?|GRES|License|BB|Billing|Energy|Unknown|SubmitJobs?|Jobs|Wall(?:Duration)?)"
    r"(?P<measure>Minutes|RunMin(?:ute)?s)?(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?",
    re.I,
)
_PER: dict[str, Per] = {"job": "job", "node": "node", "user": "user", "account": "account"}


def parse_limit_reason(word: str) -> LimitReason | None:
    """Return the limit that a reason names, ``None`` if it names none."""
    found = _LIMIT_REASON.fullmatch(word)
    if found is None:
        return None
    kind, measure = found["kind"].lower(), (found["measure"] or "").lower()
    unnamed: Per = {"grp": "group", "min": "job"}.get(kind, "user")  # type: ignore[assignment]
    return LimitReason(
        "account" if (found["by"] or "").lower() == "assoc" else "QOS",
        re.sub(r"^(mem|wall|submit).*", r"\1", found["resource"].lower()),
        _PER.get((found["per"] or "").lower(), unnamed),
        "amount" if not measure else "running minutes" if measure.startswith("run") else "minutes",
        least=kind == "min",
    )


# --- as text -------------------------------------------------------------------------------------------------------


def summary(limit: LimitReason) -> str:
    """Return a sentence that says which limit holds the job back, without numbers."""
    thing = RESOURCES[limit.resource]
    owner = "your account" if limit.by == "account" else "the QOS"
    if limit.least:
        return f"it asks for {'fewer' if thing.counted else 'less'} {thing.noun} than {owner} demands of a job"
    if limit.resource in ("jobs", "submit"):
        return _as_many_jobs(limit)
    if limit.resource == "wall":
        return _walltime(limit, owner)
    if limit.per == "node":
        return f"it asks for more {thing.noun} on one node than {owner} allows"
    if limit.per == "job":
        noun = thing.noun if limit.measure == "amount" else f"{thing.minutes} (size times walltime)"
        return f"it asks for more {noun} than {owner} allows one job"
    if limit.measure == "minutes":
        return f"{_they_have(limit)} used up {_their(limit)} {thing.minutes}, or too few are left for this job"
    if limit.measure == "running minutes":
        return f"with it, {_they(limit)} would have more {thing.minutes} ahead in running jobs than {_may(limit)}"
    return f"with it, {_they(limit)} would use more {thing.noun} at once than {_may(limit)}"


def action(limit: LimitReason) -> str:
    """Return what helps, without numbers."""
    thing = RESOURCES[limit.resource]
    other = "try another account with -A" if limit.by == "account" else "try another QOS with -q"
    if limit.least:
        return f"ask for more, or {other}"
    if is_for_one_job(limit) or limit.per == "node":
        word = "fewer" if thing.counted else "less"
        less = (
            "less with -t"
            if limit.resource == "wall"
            else word
            if limit.measure == "amount"
            else f"{word}, or less time"
        )
        return f"ask for {less}, or {other}"
    if limit.measure == "minutes" or limit.resource == "wall":
        return f"ask whoever runs the project for more, or {other}"
    return f"it starts when other jobs {_of_theirs(limit)} have ended"


def is_for_one_job(limit: LimitReason) -> bool:
    """Return whether it limits a single job: then it does not help if other jobs end."""
    return limit.per == "job"


def _walltime(limit: LimitReason, owner: str) -> str:
    if limit.per == "group":
        return f"{_they_have(limit)} used up {_their(limit)} walltime, or too little is left for this job"
    return f"its walltime is longer than {owner} allows one job"


def _as_many_jobs(limit: LimitReason) -> str:
    jobs = "jobs at once" if limit.resource == "jobs" else "jobs, waiting and running,"
    have = "run" if limit.resource == "jobs" else "have"
    if limit.per == "account" or (limit.per == "group" and limit.by == "account"):
        have = {"run": "runs", "have": "has"}[have]
    return f"{_they(limit)} {have} as many {jobs} as {_may(limit)}"


def _they(limit: LimitReason) -> str:
    everybody = "your account's group" if limit.by == "account" else "all who use the QOS"
    return {"user": "you", "account": "your account", "group": everybody}[limit.per]


def _they_have(limit: LimitReason) -> str:
    return f"{_they(limit)} {'has' if limit.by == 'account' else 'have'}"


def _their(limit: LimitReason) -> str:
    return "its" if limit.by == "account" else "their"


def _may(limit: LimitReason) -> str:
    if limit.per == "group":
        return "it may" if limit.by == "account" else "they may"
    owner = "your account" if limit.by == "account" else "the QOS"
    return f"{owner} allows one {limit.per}"


def _of_theirs(limit: LimitReason) -> str:
    everybody = "of your group" if limit.by == "account" else "of the QOS"
    return {"user": "of yours", "account": "of your account", "group": everybody}[limit.per]


# --- how to show its size --------------------------------------------------------------------------------------------

_COLUMNS = {  # of sacctmgr, by what is limited and for whom
    ("amount", "group"): "GrpTRES",
    ("minutes", "group"): "GrpTRESMins",
    ("running minutes", "group"): "GrpTRESRunMins",
    ("jobs", "group"): "GrpJobs",
    ("submit", "group"): "GrpSubmit",
    ("wall", "group"): "GrpWall",
    ("amount", "job"): "MaxTRES",
    ("minutes", "job"): "MaxTRESMins",
    ("wall", "job"): "MaxWall",
    ("amount", "node"): "MaxTRESPerNode",
    ("jobs", "user"): "MaxJobsPU",
    ("submit", "user"): "MaxSubmitPU",
    ("amount", "user"): "MaxTRESPU",
    ("running minutes", "user"): "MaxTRESRunMinsPU",
    ("jobs", "account"): "MaxJobsPA",
    ("submit", "account"): "MaxSubmitPA",
    ("amount", "account"): "MaxTRESPA",
    ("running minutes", "account"): "MaxTRESRunMinsPA",
}


def command(limit: LimitReason, account: str | None = None) -> str:
    """Return the command that a user types to see the limit's size. ``account``: the job's, if known."""
    what = limit.resource if limit.resource in ("jobs", "submit", "wall") else limit.measure
    column = "MinTRES" if limit.least else _COLUMNS.get((what, limit.per), "MaxTRES")
    if limit.by == "QOS":
        return f"sacctmgr show qos format=name,{column}"
    # the account's own record has the group limits; the user's record has those per user
    which = f"account={account}" if account else "tree"
    return f"sacctmgr show assoc {which} format=account,user,{column.removesuffix('PU')}"
