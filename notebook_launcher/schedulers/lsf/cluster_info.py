"""What LSF reports besides the user's own jobs: queues, hosts, their GPUs, and pending jobs.

It estimates a start only for jobs that are queued already, and has no limits that everybody can read. Tables are
requested in wide format, in which no name is truncated.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Node, Partition, QueuedJob, read_walltime

_PART = "--- part ---"
# -X lists each host of a group separately; not all versions have that flag. The other commands are useful only if the
# hosts could be listed.
_HOSTS = (
    f"{PLAIN_BASH}export LC_ALL=C; bhosts -w -X 2>/dev/null || bhosts -w || exit; "
    f"for one in 'bqueues -l' 'bmgroup -w' 'bhosts -gpu -w'; do echo '{_PART}'; $one 2>/dev/null; done; exit 0"
)
_APART = "^"
_FORMAT = f'jobid user queue nreq_slot delimiter="{_APART}"'
_WAITING = (
    f'{PLAIN_BASH}export LC_ALL=C; {{ errors=$(bjobs -u all -p -noheader -o "$0" 2>&1 >&3); code=$?; }} 3>&1; '
    "[[ $errors != *'option -- '*o* ]] || exec bjobs -u all -p -w; "
    "[[ -z $errors ]] || printf '%s\\n' \"$errors\" >&2; exit $code"
)
_NO_JOBS = re.compile(r"No (?:unfinished |pending )?job found", re.I)

_QUEUE = re.compile(r"^QUEUE: ([\w.-]{1,64})[ \t]*$", re.M | re.A)
_STATUS = re.compile(r"^PRIO +NICE +STATUS .*\n *-?\d+ +-?\d+ +(\w+:\w+)", re.M | re.A)
_MINUTES = re.compile(r" *(\d{1,9})(?:\.\d+)? min\b", re.A)
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,127}", re.A)
# states in which a host runs jobs, and accepts more when resources become free, from the manual of bhosts
_IN_SERVICE = frozenset({"ok", "closed_Full", "closed_Excl", "closed_cu_Excl", "closed_Busy"})
_MOST_NESTED = 5  # levels of host groups inside host groups


class Queue(Frozen):
    """One queue. ``longest``: its maximum run limit in minutes; ``usual``: its default run limit, without ``-W``.

    ``hosts``: words as LSF prints them: names, groups with a slash, ``all``. ``None``: not reported.
    """

    name: str
    is_default: bool
    status: str | None
    longest: int | None
    usual: int | None
    hosts: tuple[str, ...] | None


class LsfInfo(ClusterInfo):
    """Pairs of a command and a parser. ``check``: raises ``UsageError`` for a request that cannot be translated."""

    def __init__(self, check: Callable[[Request], object]) -> None:
        self._check = check

    def partitions(self, cluster: str | None) -> list[str]:
        """Return ``bqueues`` for all queues."""
        return ["env", "LC_ALL=C", "bqueues", "-l"]

    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Return the queues, with their maximum run limits."""
        found = tuple(map(_partition, read_queues(answer.stdout))) if answer.exit_code == 0 else ()
        return found or None

    def nodes(self, cluster: str | None) -> list[str]:
        """Return ``bhosts``, and the commands that show which hosts are in which queue, and their GPUs."""
        return ["bash", "-c", _HOSTS]

    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Return each host once for each queue that has it; queues whose hosts cannot be resolved have none."""
        hosts, queues, groups, gpus = [*answer.stdout.split(f"{_PART}\n"), "", "", ""][:4]
        rows = list(_hosts(hosts))
        if answer.exit_code != 0 or not rows:
            return None
        members, there = _groups(groups), [row[0] for row in rows]
        of_queue = {one.name: _members(one.hosts, members, there) for one in read_queues(queues)}
        in_hosts = _gpus(gpus)
        return tuple(
            _node(row, name, in_hosts.get(row[0], []))
            for name, names in of_queue.items()
            for row in rows
            if row[0] in names
        )

    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return ``bjobs`` for all pending jobs."""
        return ["bash", "-c", _WAITING, _FORMAT]

    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Return the pending jobs, without the GPUs that they request."""
        jobs = tuple(_waiting(answer.stdout))
        if jobs or _NO_JOBS.search(f"{answer.stderr}\n{answer.stdout}"):
            return jobs
        return jobs if answer.exit_code == 0 else None

    def estimate_start(self, request: Request) -> None:
        """Return ``None``: LSF estimates a start only for jobs in the queue."""
        self._check(request)


def read_queues(text: str) -> Iterator[Queue]:
    """Yield the complete queues of ``bqueues -l``: those with their hosts, or followed by another queue."""
    parts = _QUEUE.split(text)
    for at, (name, block) in enumerate(zip(parts[1::2], parts[2::2], strict=True)):
        is_last = 2 * at + 3 >= len(parts)
        hosts = re.search(r"^HOSTS:[ \t]*(\S.*)\n", block, re.M)
        if is_last and hosts is None:
            continue
        status = _STATUS.search(block)
        usual, rest = _without_defaults(block)
        yield Queue(
            name,
            is_default=re.search(r"This is (?:the default queue|one of the default queues)", block) is not None,
            status=status[1] if status else None,
            longest=_run_limit(rest),
            usual=_run_limit(usual),
            hosts=None if hosts is None else ("all",) if hosts[1].startswith("all hosts") else tuple(hosts[1].split()),
        )


def _without_defaults(block: str) -> tuple[str, str]:
    """Return the section of default limits, and the rest."""
    match = re.search(r"^DEFAULT LIMITS:[ \t]*\n(?P<text>.*?)(?=^[A-Z]|\Z)", block, re.M | re.S)
    return (match["text"], block[: match.start()] + block[match.end() :]) if match else ("", block)


def _run_limit(text: str) -> int | None:
    """Return the minutes under the heading RUNLIMIT, which may share its line with other headings."""
    lines = text.split("\n")
    for heading, values in itertools.pairwise(lines):
        if heading.startswith(" ") and (found := re.search(r"(?<= )RUNLIMIT\b", heading)):
            match = _MINUTES.match(values[found.start() :])
            return int(match[1]) if match else None
    return None


def _walltime(minutes: int | None) -> Walltime | None:
    return None if minutes is None else read_walltime(f"{minutes // 60}:{minutes % 60:02d}:00")


def _partition(queue: Queue) -> Partition:
    return Partition(
        queue.name,
        is_default=queue.is_default,
        is_up=None if queue.status is None else queue.status == "Open:Active",
        walltime=_walltime(queue.longest),
        usual=_walltime(queue.usual),
    )


# --- hosts ----------------------------------------------------------------------------------------------------------


def _hosts(text: str) -> Iterator[tuple[str, str, int | None, int]]:
    """Yield the name, the status, the slots and the slots in use of each host in ``bhosts -w``."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 9 and _NAME.fullmatch(fields[0]) and all(map(str.isdecimal, fields[4:])):
            yield fields[0], fields[1], whole_number(fields[3]), sum(map(int, fields[5:]))


def _node(row: tuple[str, str, int | None, int], queue: str, gpus: list[tuple[str, bool]]) -> Node:
    name, status, slots, used = row
    full = slots is not None and used >= slots  # older versions report it only as closed
    counts = {kind: sum(1 for other, _ in gpus if other == kind) for kind, _ in gpus}
    busy = {kind: sum(1 for other, is_used in gpus if other == kind and is_used) for kind in counts}
    return Node(
        name,
        queue,
        status,
        status in _IN_SERVICE or (status == "closed" and full),
        cores=slots,
        cores_used=slots if status.endswith("_Excl") else used if slots is None else min(used, slots),
        gpus=counts,
        gpus_used=busy if counts else None,
    )


def _gpus(text: str) -> dict[str, list[tuple[str, bool]]]:
    """Return the model of each of a host's GPUs, and whether it is in use, from ``bhosts -gpu -w``.

    A line that begins with spaces belongs to the host before it.
    """
    found: dict[str, list[tuple[str, bool]]] = {}
    host = ""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 9 and not line.startswith(" "):
            host = fields.pop(0) if _NAME.fullmatch(fields[0]) else ""
        if len(fields) == 8 and host and fields[0].isdecimal() and all(map(str.isdecimal, fields[4:])):
            jobs, _, _, reserved = map(int, fields[4:])
            found.setdefault(host, []).append((fields[1], jobs + reserved > 0))
    return found


def _groups(text: str) -> dict[str, tuple[str, ...]]:
    """Return the members of each group in ``bmgroup -w``, whose first line is a heading."""
    _, _, rows = text.partition("\n")
    return {words[0]: tuple(words[1:]) for words in map(str.split, rows.splitlines()) if len(words) > 1}


def _members(
    words: tuple[str, ...] | None, groups: Mapping[str, tuple[str, ...]], there: list[str], nested: int = 0
) -> frozenset[str]:
    """Return the hosts that these words name; none if a word is not understood, or no words were reported."""
    found: set[str] = set()
    without: set[str] = set()
    for word in words or ():
        name = re.sub(r"\+\d*$", "", word.removeprefix("~"))  # “~”: excluded; “+1”: preferred
        if name == "all":
            some = frozenset(there)
        elif name in there:
            some = frozenset([name])
        elif (members := groups.get(name.removesuffix("/"))) and nested < _MOST_NESTED:
            some = _members(members, groups, there, nested + 1)
        else:
            return frozenset()
        (without if word.startswith("~") else found).update(some)
    return frozenset(found - without)


def _waiting(text: str) -> Iterator[QueuedJob]:
    """Yield the jobs of ``bjobs -o``, or of its default table, which does not show their cores."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(_APART)]
        words = line.split()
        if len(fields) == 4 and fields[0].isdecimal():
            yield QueuedJob(fields[0], fields[1], fields[2], cores=whole_number(fields[3]))
        elif len(words) >= 7 and words[0].isdecimal() and words[2] in ("PEND", "PSUSP"):
            yield QueuedJob(words[0], words[1], words[3])
