"""The limits on a user's accounts and QOS, from what Slurm's controller and its database show to everybody.

``scontrol show assoc_mgr`` prints limits together with their current use. The rest comes from ``sacctmgr``: the default
QOS of an account, a QOS's flags, and its limits per user and per account if these have not used it yet.

If several sources set the same limit, the first of these applies (Slurm's guide to resource limits): the partition's
QOS, the job's QOS (these two are reversed with ``OverPartQOS``), the accounts, whose limits all apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.cluster_info import Limit

Fields = dict[str, str]
#: Slurm's name of a limit, which is the same for an account and for a QOS, and the limit
Named = tuple[str, Limit]

# One line: csh, as a login shell, cannot quote a newline. $1: the user, $2: another cluster, or empty.
_COMMAND = (
    'scontrol ${2:+--clusters="$2"} show assoc_mgr users="$1" flags=users,assoc,qos; '
    'sacctmgr --parsable2 show assoc where user="$1" format=cluster,account,partition,defaultqos; '
    "sacctmgr --parsable2 show qos format=name,flags,maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa; "
    'scontrol ${2:+--clusters="$2"} --oneliner show partition'
)

# Slurm's names of limits, as scontrol writes them -> the limited resource, as in Limit.on; {} stands for the name of a
# trackable resource. Minima (MinTRESPJ) and shares are not limits that keep a job pending.
_COUNTS = {
    "GrpJobs": "jobs",
    "GrpSubmitJobs": "submitted jobs",
    "GrpWall": "walltime",
    "MaxJobs": "jobs",
    "MaxJobsPU": "jobs",
    "MaxJobsPA": "jobs",
    "MaxSubmitJobs": "submitted jobs",
    "MaxSubmitJobsPU": "submitted jobs",
    "MaxSubmitJobsPA": "submitted jobs",
    "MaxWallPJ": "walltime",
}
_RESOURCES = {
    "GrpTRES": "{}",
    "GrpTRESMins": "{} minutes",
    "GrpTRESRunMins": "running {} minutes",
    "MaxTRESPJ": "{}",
    "MaxTRESPN": "{}",
    "MaxTRESMinsPJ": "{} minutes",
    "MaxTRESPU": "{}",
    "MaxTRESPA": "{}",
    "MaxTRESRunMinsPU": "running {} minutes",
    "MaxTRESRunMinsPA": "running {} minutes",
}
# a QOS's names of limits -> an account's names of the same limits
_SAME = {"MaxJobsPU": "MaxJobs", "MaxSubmitJobsPU": "MaxSubmitJobs"}
_PER = {"PJ": "job", "PN": "node", "PU": "user", "PA": "account"}
# sacctmgr's headings -> scontrol's names of the same limits
_HEADINGS = {
    "MaxTRESPU": "MaxTRESPU",
    "MaxJobsPU": "MaxJobsPU",
    "MaxSubmitPU": "MaxSubmitJobsPU",
    "MaxTRESPA": "MaxTRESPA",
    "MaxJobsPA": "MaxJobsPA",
    "MaxSubmitPA": "MaxSubmitJobsPA",
}


@dataclass
class _Qos:
    """One QOS: its own limits, and the records of each user and account that uses it, with their use."""

    fields: Fields = field(default_factory=dict)
    users: dict[str, Fields] = field(default_factory=dict)
    accounts: dict[str, Fields] = field(default_factory=dict)


@dataclass
class _AssocRecords:
    """All parsed records. ``defaults``: the default QOS, by cluster, account and partition.

    ``from_database``: the database's record of each QOS, by sacctmgr's headings.
    """

    users: list[Fields] = field(default_factory=list)
    associations: list[Fields] = field(default_factory=list)
    qos: dict[str, _Qos] = field(default_factory=dict)
    defaults: dict[tuple[str, str, str], str] = field(default_factory=dict)
    from_database: dict[str, Fields] = field(default_factory=dict)
    partitions: list[Fields] = field(default_factory=list)


def limits_command(user: str, cluster: str | None) -> list[str]:
    """Return the command; parts of it may fail, and the rest is still useful."""
    return ["sh", "-c", _COMMAND, "limits", user, cluster or ""]


def parse_limits(request: Request, text: str) -> tuple[Limit, ...] | None:
    """Return the limits that apply to this request; ``None`` if there are no records of its account or QOS."""
    assoc = _parse(text)
    own = _own_association(assoc, request)
    names = _qos_of(assoc, request, own)
    if own is None and not any(name in assoc.qos for name, _ in names):
        return None
    user, account = (own["UserName"], own["Account"]) if own else ("", "")
    sources = [_of_qos(assoc, name, of, user, account) for name, of in names]
    sources += [_of_associations(assoc, own)] if own else []
    return tuple(_first_of_each(sources))


def read_defaults(request: Request, text: str) -> tuple[str | None, str | None]:
    """Return the account and the QOS of this request; ``None`` if not known."""
    assoc = _parse(text)
    own = _own_association(assoc, request)
    return (own["Account"] if own else request.flags.get("account")), _qos_name(assoc, request, own)


def _first_of_each(sources: Iterable[Iterable[Named]]) -> Iterator[Limit]:
    """Yield each limit from the first source that sets it."""
    set_before: set[tuple[str, str]] = set()
    for source in sources:
        limits = list(source)
        yield from (limit for name, limit in limits if (name, limit.on) not in set_before)
        set_before |= {(name, limit.on) for name, limit in limits}


# --- parsing ---------------------------------------------------------------------------------------------------


def pairs(text: str) -> Fields:
    """Parse ``NAME=value`` pairs, whose values must not contain spaces."""
    return dict(re.findall(r"(?:^|(?<=\s))(\w+)=(\S*)", text))


def _parse(text: str) -> _AssocRecords:
    assoc = _AssocRecords()
    records = _Records(assoc)
    heading: list[str] = []
    for line in text.splitlines():
        if line.startswith("Cluster|") or line.startswith("Name|"):
            heading = line.split("|")
        elif line.startswith("PartitionName="):
            assoc.partitions.append(pairs(line))
        elif heading and line.count("|") == len(heading) - 1:
            _add_row(assoc, dict(zip(heading, line.split("|"), strict=True)))
        else:
            records.add(line.strip())
    return assoc


def _add_row(assoc: _AssocRecords, row: Fields) -> None:
    if "Name" in row:
        assoc.from_database[row["Name"]] = row
    else:
        place = (row["Cluster"], row.get("Account", ""), row.get("Partition", ""))
        assoc.defaults[place] = row.get("Def QOS", "")


class _Records:
    """Parses the lines of ``scontrol show assoc_mgr``; a line belongs to the record that began before it."""

    def __init__(self, assoc: _AssocRecords) -> None:
        self._assoc = assoc
        self._fields: Fields = {}
        self._qos: _Qos | None = None
        self._people: dict[str, Fields] | None = None

    def add(self, line: str) -> None:
        found = pairs(line)
        if line.startswith("UserName="):
            self._assoc.users.append(found)
        elif line.startswith("ClusterName="):
            self._qos, self._people, self._fields = None, None, {}
            self._assoc.associations.append(self._fields)
        elif line.startswith("QOS=") and (name := _bare(found.get("QOS", ""))):
            self._qos, self._people = _Qos(), None
            self._assoc.qos[name], self._fields = self._qos, self._qos.fields
        elif self._qos and line in ("Account Limits", "User Limits"):
            self._people = self._qos.accounts if line.startswith("Account") else self._qos.users
        elif self._people is not None and line and not found:
            self._fields = self._people.setdefault(line, {})
        self._fields.update(found)


def _bare(name: str) -> str:
    """Return ``short`` for ``short(2)``: the controller appends an id."""
    return name.partition("(")[0]


# --- which of them apply ---------------------------------------------------------------------------------------


def _partition_of(assoc: _AssocRecords, request: Request) -> list[Fields]:
    """Return the requested partitions, or the default one."""
    requested = (request.flags.get("partition") or "").split(",")
    chosen = [partition for partition in assoc.partitions if partition.get("PartitionName") in requested]
    return chosen or [partition for partition in assoc.partitions if partition.get("Default") == "YES"]


def _own_association(assoc: _AssocRecords, request: Request) -> Fields | None:
    """Return the user's association with the requested account, preferably one for the requested partition."""
    default = next((user["DefAccount"] for user in assoc.users if user.get("DefAccount")), None)
    account = request.flags.get("account") or default
    if not account:
        return None  # otherwise it would match incomplete records, which have none either
    mine = [record for record in assoc.associations if record.get("UserName") and record.get("Account") == account]
    names = {partition.get("PartitionName") for partition in _partition_of(assoc, request)}
    special = [record for record in mine if record.get("Partition") and record["Partition"] in names]
    general = [record for record in mine if not record.get("Partition")]
    return next(iter(special + general), None)


def _qos_name(assoc: _AssocRecords, request: Request, own: Fields | None) -> str | None:
    """Return the requested QOS, or the account's default."""
    name = request.flags.get("qos")
    if name is not None or own is None:
        return name
    place = (own.get("ClusterName", ""), own["Account"])
    return assoc.defaults.get((*place, own.get("Partition", ""))) or assoc.defaults.get((*place, "")) or None


def _qos_of(assoc: _AssocRecords, request: Request, own: Fields | None) -> list[tuple[str, str]]:
    """Return the QOS that apply, each with a description; those with precedence come first."""
    name = _qos_name(assoc, request, own)
    names = []
    for partition in _partition_of(assoc, request):
        theirs = partition.get("QoS", "")
        if theirs not in ("N/A", "", "(null)", name):
            names.append((theirs, f"partition {partition['PartitionName']} (QOS {theirs})"))
    if not name:
        return names
    over = "overpartqos" in assoc.from_database.get(name, {}).get("Flags", "").lower().split(",")
    return [(name, f"QOS {name}"), *names] if over else [*names, (name, f"QOS {name}")]


def _of_associations(assoc: _AssocRecords, own: Fields) -> Iterator[Named]:
    """Yield the limits of the user's own association, and the group limits of the accounts above it.

    An account's ``Max…`` limits are inherited by its users' associations, so the user's own has them already.
    """
    yield from _limits(own, f"account {own['Account']}", "user")
    name, seen = own["Account"], set[str]()
    while name and name not in seen:
        seen.add(name)
        record = next((r for r in assoc.associations if r.get("Account") == name and not r.get("UserName")), {})
        shared = {key: value for key, value in record.items() if key.startswith("Grp")}
        yield from _limits(shared, f"account {name}", "group")
        name = _bare(record.get("ParentAccount", ""))


def _of_qos(assoc: _AssocRecords, name: str, of: str, user: str, account: str) -> Iterator[Named]:
    """Yield a QOS's limits: those for each job, for all who share it, and for this user and account."""
    qos = assoc.qos.get(name, _Qos())
    yield from _limits(qos.fields, of, "group")
    row = assoc.from_database.get(name, {})
    for by_name, names, ending in ((qos.users, _names(user), "PU"), (qos.accounts, {account}, "PA")):
        record = next((fields for key, fields in by_name.items() if key in names), None)
        if record is not None:
            yield from _limits(record, of, "group")
        else:  # they have not used it yet, so the controller has no record of them
            rest = {ours: row[theirs] for theirs, ours in _HEADINGS.items() if theirs in row and ours.endswith(ending)}
            yield from _limits(rest, of, "group", used="0" if name in assoc.qos else None)


def _names(user: str) -> set[str]:
    """Return a user's names in a list of a QOS's users: ``alice(2001)`` in 24.11, ``2001`` in 22.05."""
    return {user, *re.findall(r"\((\d+)\)$", user)} - {""}


# --- one limit -------------------------------------------------------------------------------------------------


def _limits(fields: Mapping[str, str], of: str, whose: str, used: str | None = None) -> Iterator[Named]:
    """Yield the limits in a record.

    ``whose``: to whom limits apply whose name does not say it; ``used``: the use of those whose record has none.
    """
    for name, text in fields.items():
        per = _PER.get(name[-2:], "user" if name.startswith("Max") else whose)
        if name in _COUNTS:
            items: Iterable[tuple[str, str]] = [("", text)]
        elif name in _RESOURCES:
            items = (part.partition("=")[::2] for part in text.split(","))
        else:
            continue
        for resource, value in items:
            limit, in_use = _value_and_use(value)
            if limit is not None:
                on = _COUNTS.get(name) or _RESOURCES[name].format(resource)
                in_use = used if in_use is None and per not in ("job", "node") else in_use
                named = _SAME.get(name, name)
                yield named, Limit(of, on, per, _written(on, limit), None if in_use is None else _written(on, in_use))


def _value_and_use(text: str) -> tuple[str | None, str | None]:
    """Return 5 and 1 for ``5(1)``; ``N(1)`` and an empty text mean no limit."""
    match = re.fullmatch(r"(\d+[KMGT]?|\d[\d:-]*)(?:\((\d+)(?:\.\d+)?\))?", text, re.A)
    return (match[1], match[2]) if match else (None, None)


def _written(on: str, value: str) -> str:
    """Return minutes of walltime and MiB of memory as sbatch accepts them; the controller prints plain numbers."""
    if not re.fullmatch(r"\d{1,15}", value, re.A):
        return value
    number = int(value)
    if on == "walltime":
        clock = f"{number % 1440 // 60:02d}:{number % 60:02d}:00"
        return f"{number // 1440}-{clock}" if number >= 1440 else clock
    if on == "mem" and number:
        return memory_as_typed(number)
    return value
