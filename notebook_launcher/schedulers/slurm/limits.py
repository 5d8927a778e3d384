"""The limits on a user's accounts and QOS, from what Slurm's controller and its database tell everybody about them.

``scontrol show assoc_mgr`` tells limits together with what of them is in use. What it leaves out comes from
``sacctmgr``: which QOS an account takes by default, a QOS's flags, and its limits for each user and account where
this one has not used it yet.

Where several set the same limit, one counts (Slurm's guide to resource limits): that of the partition's QOS, else of
the job's QOS (the other way round with ``OverPartQOS``), else of the accounts, of which each counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.cluster_info import Limit

Fields = dict[str, str]
#: a limit with Slurm's name for it, which is the same at an account and at a QOS
Named = tuple[str, Limit]

# One line: a csh, as a login shell, cannot quote more. $1: the user, $2: another cluster, or nothing.
_ASK = (
    'scontrol ${2:+--clusters="$2"} show assoc_mgr users="$1" flags=users,assoc,qos; '
    'sacctmgr --parsable2 show assoc where user="$1" format=cluster,account,partition,defaultqos; '
    "sacctmgr --parsable2 show qos format=name,flags,maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa; "
    'scontrol ${2:+--clusters="$2"} --oneliner show partition'
)

# Slurm's names of limits, as scontrol writes them -> what is limited; for those on trackable resources, what is added
# to the resource's name. Minima (MinTRESPJ) and shares are no limits that one waits for.
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
# what the same limit is called at an account
_SAME = {"MaxJobsPU": "MaxJobs", "MaxSubmitJobsPU": "MaxSubmitJobs"}
_PER = {"PJ": "job", "PN": "node", "PU": "user", "PA": "account"}
# sacctmgr's headings -> the same limits as scontrol names them
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
    """One QOS: limits for all, and those for each user and account that uses it, with what they use."""

    fields: Fields = field(default_factory=dict)
    users: dict[str, Fields] = field(default_factory=dict)
    accounts: dict[str, Fields] = field(default_factory=dict)


@dataclass
class _Book:
    """All that was told. ``defaults``: the QOS taken where none is named, by cluster, account and partition.

    ``told``: what the database has of each QOS, under its own headings.
    """

    users: list[Fields] = field(default_factory=list)
    associations: list[Fields] = field(default_factory=list)
    qos: dict[str, _Qos] = field(default_factory=dict)
    defaults: dict[tuple[str, str, str], str] = field(default_factory=dict)
    told: dict[str, Fields] = field(default_factory=dict)
    partitions: list[Fields] = field(default_factory=list)


def limits_command(user: str, cluster: str | None) -> list[str]:
    """Return the command; parts of it may fail and the rest still tell something."""
    return ["sh", "-c", _ASK, "limits", user, cluster or ""]


def parse_limits(request: Request, text: str) -> tuple[Limit, ...] | None:
    """Return the limits that apply to this request; ``None`` where nothing was told of the user's accounts or QOS."""
    book = _read_book(text)
    own = _own_association(book, request)
    names = _qos_of(book, request, own)
    if own is None and not any(name in book.qos for name, _ in names):
        return None
    user, account = (own["UserName"], own["Account"]) if own else ("", "")
    sources = [_of_qos(book, name, of, user, account) for name, of in names]
    sources += [_of_associations(book, own)] if own else []
    return tuple(_that_count(sources))


def read_defaults(request: Request, text: str) -> tuple[str | None, str | None]:
    """Return the account and the QOS that this request counts on; ``None`` where that was not told."""
    book = _read_book(text)
    own = _own_association(book, request)
    return (own["Account"] if own else request.flags.get("account")), _qos_name(book, request, own)


def _that_count(sources: Iterable[Iterable[Named]]) -> Iterator[Limit]:
    """Yield the limits of the first source that sets each."""
    set_before: set[tuple[str, str]] = set()
    for source in sources:
        limits = list(source)
        yield from (limit for name, limit in limits if (name, limit.on) not in set_before)
        set_before |= {(name, limit.on) for name, limit in limits}


# --- what was told ---------------------------------------------------------------------------------------------


def pairs(text: str) -> Fields:
    """Return ``NAME=value`` pairs; values have no spaces in what is read so."""
    return dict(re.findall(r"(?:^|(?<=\s))(\w+)=(\S*)", text))


def _read_book(text: str) -> _Book:
    book = _Book()
    records = _Records(book)
    heading: list[str] = []
    for line in text.splitlines():
        if line.startswith("Cluster|") or line.startswith("Name|"):
            heading = line.split("|")
        elif line.startswith("PartitionName="):
            book.partitions.append(pairs(line))
        elif heading and line.count("|") == len(heading) - 1:
            _add_row(book, dict(zip(heading, line.split("|"), strict=True)))
        else:
            records.add(line.strip())
    return book


def _add_row(book: _Book, row: Fields) -> None:
    if "Name" in row:
        book.told[row["Name"]] = row
    else:
        place = (row["Cluster"], row.get("Account", ""), row.get("Partition", ""))
        book.defaults[place] = row.get("Def QOS", "")


class _Records:
    """Takes the lines of ``scontrol show assoc_mgr`` one by one; a line belongs to the record that began before it."""

    def __init__(self, book: _Book) -> None:
        self._book = book
        self._fields: Fields = {}
        self._qos: _Qos | None = None
        self._people: dict[str, Fields] | None = None

    def add(self, line: str) -> None:
        found = pairs(line)
        if line.startswith("UserName="):
            self._book.users.append(found)
        elif line.startswith("ClusterName="):
            self._qos, self._people, self._fields = None, None, {}
            self._book.associations.append(self._fields)
        elif line.startswith("QOS=") and (name := _bare(found.get("QOS", ""))):
            self._qos, self._people = _Qos(), None
            self._book.qos[name], self._fields = self._qos, self._qos.fields
        elif self._qos and line in ("Account Limits", "User Limits"):
            self._people = self._qos.accounts if line.startswith("Account") else self._qos.users
        elif self._people is not None and line and not found:
            self._fields = self._people.setdefault(line, {})
        self._fields.update(found)


def _bare(name: str) -> str:
    """``short(2)`` → ``short``: the controller adds its number."""
    return name.partition("(")[0]


# --- which of them apply ---------------------------------------------------------------------------------------


def _partition_of(book: _Book, request: Request) -> list[Fields]:
    """Return the partitions asked for, or the default one."""
    requested = (request.flags.get("partition") or "").split(",")
    chosen = [partition for partition in book.partitions if partition.get("PartitionName") in requested]
    return chosen or [partition for partition in book.partitions if partition.get("Default") == "YES"]


def _own_association(book: _Book, request: Request) -> Fields | None:
    """Return the user's own record with the account asked for; one for the request's partition goes first."""
    default = next((user["DefAccount"] for user in book.users if user.get("DefAccount")), None)
    account = request.flags.get("account") or default
    mine = [record for record in book.associations if record.get("UserName") and record.get("Account") == account]
    names = {partition.get("PartitionName") for partition in _partition_of(book, request)}
    special = [record for record in mine if record.get("Partition") and record["Partition"] in names]
    general = [record for record in mine if not record.get("Partition")]
    return next(iter(special + general), None)


def _qos_name(book: _Book, request: Request, own: Fields | None) -> str | None:
    """Return the QOS asked for, or the one that the account takes by default."""
    name = request.flags.get("qos")
    if name is not None or own is None:
        return name
    place = (own.get("ClusterName", ""), own["Account"])
    return book.defaults.get((*place, own.get("Partition", ""))) or book.defaults.get((*place, "")) or None


def _qos_of(book: _Book, request: Request, own: Fields | None) -> list[tuple[str, str]]:
    """Return the names of the QOS that apply, with the words for them; the one that counts more goes first."""
    name = _qos_name(book, request, own)
    names = []
    for partition in _partition_of(book, request):
        theirs = partition.get("QoS", "")
        if theirs not in ("N/A", "", "(null)", name):
            names.append((theirs, f"partition {partition['PartitionName']} (QOS {theirs})"))
    if not name:
        return names
    over = "overpartqos" in book.told.get(name, {}).get("Flags", "").lower().split(",")
    return [(name, f"QOS {name}"), *names] if over else [*names, (name, f"QOS {name}")]


def _of_associations(book: _Book, own: Fields) -> Iterator[Named]:
    """Yield the limits of the user's own record, and those that all share on the accounts above it.

    An account's ``Max…`` are what its users' records inherit: they are in the user's own record already.
    """
    yield from _limits(own, f"account {own['Account']}", "user")
    name, seen = own["Account"], set[str]()
    while name and name not in seen:
        seen.add(name)
        record = next((r for r in book.associations if r.get("Account") == name and not r.get("UserName")), {})
        shared = {key: value for key, value in record.items() if key.startswith("Grp")}
        yield from _limits(shared, f"account {name}", "group")
        name = _bare(record.get("ParentAccount", ""))


def _of_qos(book: _Book, name: str, of: str, user: str, account: str) -> Iterator[Named]:
    """Yield a QOS's limits: on a job, on all who share it, and on this user and account."""
    qos = book.qos.get(name, _Qos())
    yield from _limits(qos.fields, of, "group")
    row = book.told.get(name, {})
    for told, names, ending in ((qos.users, _names(user), "PU"), (qos.accounts, {account}, "PA")):
        record = next((fields for key, fields in told.items() if key in names), None)
        if record is not None:
            yield from _limits(record, of, "group")
        else:  # not used by them: the controller tells no limit, and none of it is in use
            rest = {ours: row[theirs] for theirs, ours in _HEADINGS.items() if theirs in row and ours.endswith(ending)}
            yield from _limits(rest, of, "group", used="0" if name in book.qos else None)


def _names(user: str) -> set[str]:
    """``alice(2001)`` is written so in 24.11's list of a QOS's users, and ``2001`` in that of 22.05."""
    return {user, *re.findall(r"\((\d+)\)$", user)} - {""}


# --- one limit -------------------------------------------------------------------------------------------------


def _limits(fields: Mapping[str, str], of: str, whose: str, used: str | None = None) -> Iterator[Named]:
    """Yield the limits in a record. ``whose``: for whom those are that do not say it. ``used``: where none is told."""
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
    """``5(1)`` → 5 and 1; ``N(1)`` and nothing are no limit."""
    match = re.fullmatch(r"(\d+[KMGT]?|\d[\d:-]*)(?:\((\d+)(?:\.\d+)?\))?", text, re.A)
    return (match[1], match[2]) if match else (None, None)


def _written(on: str, value: str) -> str:
    """Write minutes of walltime and MiB of memory as people type them; the controller has bare numbers."""
    if not re.fullmatch(r"\d{1,15}", value, re.A):
        return value
    number = int(value)
    if on == "walltime":
        clock = f"{number % 1440 // 60:02d}:{number % 60:02d}:00"
        return f"{number // 1440}-{clock}" if number >= 1440 else clock
    if on == "mem" and number:
        return memory_as_typed(number)
    return value
