"""What Slurm (22.05 and newer) reports besides the user's own job: partitions, limits, nodes, pending jobs, estimates.

Each query is one command. ``sinfo`` and ``squeue`` pad the fields of ``-O`` and truncate longer values, so wide fields
are requested, and the padding is removed before the output is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import Request, parse_gres
from notebook_launcher.core.sbatch_options import FULFILLED
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.cluster_info import (
    ClusterInfo,
    Licence,
    Limit,
    Node,
    NodeSize,
    Partition,
    QueuedJob,
    ReservationInfo,
    StartEstimate,
)
from notebook_launcher.schedulers.slurm import limits as slurm_limits
from notebook_launcher.schedulers.slurm import submit_errors
from notebook_launcher.schedulers.slurm.clean_env import on_cluster, with_clean_env

# On one line, for csh. The exit code is the command's own, which a pipe would hide.
_SQUEEZED = 'output=$("$@") || exit; printf "%s\\n" "$output" | tr -s " "'

_NODE_FIELDS = "NodeList:128,PartitionName:128,StateLong:64,CPUsState:64,Gres:512,GresUsed:512,Reason:128"
_JOB_FIELDS = (
    "JobArrayID:1024,UserName:64,Partition:256,PriorityLong:24,NumCPUs:16,NumNodes:16,NumTasks:16,tres-alloc:512,"
    "tres-per-job:256,tres-per-node:256,tres-per-task:256,Reason:128"
)
# For the whole list of an array's tasks: squeue truncates it to 64 characters (its manual, ENVIRONMENT VARIABLES).
_WHOLE_ARRAYS = "SLURM_BITSTR_LEN=0"

# Reasons of jobs that start as soon as resources are free, and so compete for them. Jobs with any other reason (held,
# dependency, begin time, limit) do not delay this one (squeue's manual, JOB REASON CODES).
_COMPETES = frozenset({"Priority", "Resources", "None"})

# States of nodes on which jobs can start, now or once others there have ended (sinfo's manual, NODE STATE CODES). Nodes
# in power saving are powered up for a job. All other states, also those of later versions, count as out of service.
_IN_SERVICE = frozenset(
    {
        "idle",
        "mixed",
        "mix",
        "allocated",
        "alloc",
        "completing",
        "comp",
        "planned",
        "plnd",
        "power_down",
        "powering_down",
        "powered_down",
        "powering_up",
        "power_up",
    }
)
_SUFFIXES = "*~#!%$@^-"
_OUT_OF_SERVICE_SUFFIXES = frozenset("*$^")  # not responding; maintenance; rebooting

# On one line, as above. $1: the user, $2: another cluster; if empty, the controller is queried for this one's name.
_ACCOUNTS = (
    'name=$2; test -n "$name" || name=$(scontrol show config | sed -n "s/^ClusterName *= *//p"); echo "$name"; '
    'sacctmgr --noheader --parsable2 show assoc where user="$1" format=cluster,account,qos'
)

_WILL_RUN = re.compile(
    r"Job \d+ to start at (?P<start>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d{4})?)\b(?:.*? on nodes (?P<nodes>\S+))?"
    r"(?: in partition (?P<partition>\S+))?",
    re.A,
)


class SlurmClusterInfo(ClusterInfo):
    """Slurm's commands for information about others, and parsers of their output."""

    def ahead(self, partition: str, cluster: str | None) -> list[str]:
        """Return ``squeue`` for the pending jobs of a partition, with their priorities and reasons."""
        words = ["squeue", *(on_cluster(cluster) or ["--local"]), "--noheader", "--states=PENDING"]
        return with_clean_env(
            [*words, f"--partition={partition}", "--format=%i|%Q|%u|%r"], _WHOLE_ARRAYS, of_a_job=True
        )

    def read_ahead(self, job_id: str, answer: CommandResult) -> int | None:
        """Count the jobs that have priority: a higher priority, or the same one and a lower job id.

        If no job of another user is listed, the site may hide them (``PrivateData=jobs``, slurm.conf's manual), so the
        result is not known. The same holds if the job is pending for others and none is listed ahead.
        """
        if answer.exit_code != 0:
            return None
        fields = _fields(answer.stdout, "|", 4)
        rows = [(job, whole_number(priority), user, reason) for job, priority, user, reason in fields]
        own = next((row for row in rows if row[0] == job_id), None)
        if own is None or own[1] is None or not job_id.isdecimal() or {user for _, _, user, _ in rows} == {own[2]}:
            return None
        place = (-own[1], int(job_id))
        ahead = sum(
            _tasks(job)
            for job, priority, _, reason in rows
            if priority is not None and reason in _COMPETES and (-priority, _base_id(job)) < place
        )
        return None if ahead == 0 and own[3] == "Priority" else ahead

    def partitions(self, cluster: str | None) -> list[str]:
        """Return ``scontrol show partition``."""
        return with_clean_env(["scontrol", *on_cluster(cluster), "--oneliner", "show", "partition"])

    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Parse one line for each partition; ``None`` if the user may see none."""
        records = [slurm_limits.pairs(line) for line in answer.stdout.splitlines() if "PartitionName=" in line]
        return tuple(_partition(record) for record in records if record.get("PartitionName")) or None

    def limits(self, user: str, cluster: str | None) -> list[str]:
        """Return one command that queries the controller and its database."""
        return slurm_limits.limits_command(user, cluster)

    def read_limits(self, request: Request, answer: CommandResult) -> tuple[Limit, ...] | None:
        """Return the limits of the account and the QOS of this request."""
        return slurm_limits.parse_limits(request, answer.stdout)

    def read_defaults(self, request: Request, answer: CommandResult) -> tuple[str | None, str | None]:
        """Return the request's account and QOS, or the defaults if it names none."""
        return slurm_limits.read_defaults(request, answer.stdout)

    def accounts(self, user: str, cluster: str | None) -> list[str]:
        """Return ``sacctmgr`` for the user's associations on this cluster or another one."""
        return ["sh", "-c", _ACCOUNTS, "accounts", user, cluster or ""]

    def read_accounts(self, answer: CommandResult) -> tuple[str, ...] | None:
        """Parse ``cluster|account|QOS``, after a first line with the name of the cluster (empty: not known)."""
        return tuple(self.read_qos(answer) or ()) or None

    def read_qos(self, answer: CommandResult) -> dict[str, tuple[str, ...]] | None:
        """Return the QOS of each account in the output of ``accounts``; an account may have several associations."""
        first, _, rest = answer.stdout.partition("\n")
        found: dict[str, list[str]] = {}
        for cluster, account, *names in (line.strip().split("|") for line in rest.splitlines() if "|" in line):
            if account and first.strip() in ("", cluster):
                found.setdefault(account, []).extend(filter(None, ",".join(names).split(",")))
        return {account: tuple(dict.fromkeys(names)) for account, names in found.items()} or None

    def features(self, cluster: str | None) -> list[str]:
        """Return ``sinfo``, with a line for each partition and set of features."""
        return ["sinfo", *on_cluster(cluster), "--noheader", "--format=%R|%f"]

    def read_features(self, answer: CommandResult) -> dict[str, tuple[str, ...]] | None:
        """Parse ``partition|feature,feature``; ``(null)``: none."""
        found: dict[str, list[str]] = {}
        for partition, features in _fields(answer.stdout, "|", 2):
            names = [] if features == "(null)" else features.split(",")
            found.setdefault(partition, []).extend(names)
        return {partition: tuple(dict.fromkeys(names)) for partition, names in found.items()} or None

    def node_sizes(self, cluster: str | None) -> list[str]:
        """Return ``sinfo``, with a line for each partition and size; without ``--exact`` it shows only the smallest."""
        return ["sinfo", *on_cluster(cluster), "--exact", "--noheader", "--format=%R|%c|%m"]

    def read_node_sizes(self, answer: CommandResult) -> tuple[NodeSize, ...] | None:
        """Parse ``partition|CPUs|MiB``."""
        rows = ((name, whole_number(cores), whole_number(mib)) for name, cores, mib in _fields(answer.stdout, "|", 3))
        return tuple(NodeSize(name, cores, mib) for name, cores, mib in rows if cores and mib) or None

    def reservations(self, cluster: str | None) -> list[str]:
        """Return ``scontrol show reservation``."""
        return with_clean_env(["scontrol", *on_cluster(cluster), "--oneliner", "show", "reservation"])

    def read_reservations(self, answer: CommandResult) -> tuple[ReservationInfo, ...] | None:
        """Parse one line for each reservation."""
        if answer.exit_code != 0:
            return None
        records = [slurm_limits.pairs(line) for line in answer.stdout.splitlines() if "ReservationName=" in line]
        return tuple(_reservation(record) for record in records)

    def licences(self, cluster: str | None) -> list[str]:
        """Return ``scontrol show licenses``."""
        return with_clean_env(["scontrol", *on_cluster(cluster), "--oneliner", "show", "licenses"])

    def read_licences(self, answer: CommandResult) -> tuple[Licence, ...] | None:
        """Parse ``LicenseName=matlab Total=4 Used=0 …``; a remote licence has its server's name after an ``@``."""
        if answer.exit_code != 0:
            return None
        records = [slurm_limits.pairs(line) for line in answer.stdout.splitlines() if "LicenseName=" in line]
        return tuple(Licence(one["LicenseName"], whole_number(one.get("Total"))) for one in records)

    def clusters(self) -> list[str]:
        """Return ``sacctmgr``: the clusters for ``-M`` are those in the accounting database."""
        return ["sacctmgr", "--noheader", "--parsable2", "show", "clusters", "format=cluster"]

    def read_clusters(self, answer: CommandResult) -> tuple[str, ...] | None:
        """Parse one name per line; ``None`` if the database did not answer."""
        names = tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())
        return names if answer.exit_code == 0 and names else None

    def nodes(self, cluster: str | None) -> list[str]:
        """Return ``sinfo``, with a line for each node and partition."""
        words = ["sinfo", *on_cluster(cluster), "--noheader", "--Node", f"--Format={_NODE_FIELDS}"]
        return ["sh", "-c", _SQUEEZED, "nodes", *words]

    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Parse the nodes; ``None`` if the user may see none."""
        return tuple(_node(row) for row in _fields(answer.stdout, " ", 7) if _CORES.fullmatch(row[3])) or None

    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return ``squeue`` for all pending jobs."""
        words = ["squeue", *on_cluster(cluster), "--noheader", "--states=PENDING", f"--Format={_JOB_FIELDS}"]
        return ["sh", "-c", _SQUEEZED, "waiting", *with_clean_env(words, _WHOLE_ARRAYS)]

    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Parse the jobs; an empty tuple if none is pending."""
        if answer.exit_code != 0:
            return None
        return tuple(_queued(row) for row in _fields(answer.stdout, " ", 12) if _base_id(row[0]))

    def private_data(self, cluster: str | None) -> list[str]:
        """Return ``scontrol show config``, which prints what ordinary users cannot see of others."""
        return ["scontrol", *on_cluster(cluster), "show", "config"]

    def read_private_data(self, answer: CommandResult) -> bool | None:
        """Return whether ``PrivateData`` includes ``jobs`` (slurm.conf's manual)."""
        match = re.search(r"^PrivateData\s*=\s*(\S+)", answer.stdout, re.M)
        return None if match is None else not {"jobs", "all"}.isdisjoint(match[1].lower().split(","))

    def estimate_start(self, request: Request) -> list[str]:
        """Return ``sbatch --test-only`` with the flags of a submission; nothing is submitted.

        Of several partitions, Slurm reports only the first, so each has to be queried separately.
        """
        flags = {name: value for name, value in request.flags.items() if name not in FULFILLED}
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in sorted(flags.items())]
        return with_clean_env(["sbatch", "--test-only", *words, "--wrap=true"])

    def read_start_estimate(self, answer: CommandResult) -> StartEstimate:
        """Parse ``Job 7 to start at 2026-11-21T14:20:00 using 4 processors on nodes gpu1 in partition gpu``."""
        output = f"{answer.stderr.strip()}\n{answer.stdout.strip()}".strip()
        if answer.exit_code != 0:
            return StartEstimate(refusal=submit_errors.explain(answer), message=output)
        match = _WILL_RUN.search(output)
        if match is None:
            return StartEstimate(message=output)
        others = re.search(r"^(?:sbatch: )?\s*Preempts: ([\d,]+)", output, re.M | re.A)
        preempts = tuple(others[1].strip(",").split(",")) if others else ()
        return StartEstimate(match["start"], match["partition"], match["nodes"], message=output, preempts=preempts)


def _fields(text: str, separator: str, count: int) -> Iterator[list[str]]:
    """Yield the lines with ``count`` fields, the last of which may contain the separator; other lines are skipped."""
    for line in text.splitlines():
        fields = [part.strip() for part in line.strip().split(separator, count - 1)]
        if len(fields) == count:
            yield fields


# --- partitions ------------------------------------------------------------------------------------------------


def _reservation(record: Mapping[str, str]) -> ReservationInfo:
    def value(key: str) -> str:
        found = record.get(key, "")
        return "" if found in ("(null)", "N/A") else found

    return ReservationInfo(
        record["ReservationName"],
        value("StartTime") or None,
        value("EndTime") or None,
        value("Nodes"),
        value("Users"),
        value("Accounts"),
    )


_PREEMPTS = frozenset({"REQUEUE", "CANCEL", "SUSPEND"})


def _partition(record: Mapping[str, str]) -> Partition:
    return Partition(
        record["PartitionName"],
        is_default=record.get("Default") == "YES",
        is_up=record["State"] == "UP" if "State" in record else None,
        walltime=_longest(record.get("MaxTime", "")),
        min_nodes=whole_number(record.get("MinNodes", "")),
        max_nodes=whole_number(record.get("MaxNodes", "")),
        nodes=whole_number(record.get("TotalNodes", "")),
        accounts=_allowed(record.get("AllowAccounts")),
        denied_accounts=_allowed(record.get("DenyAccounts")) or frozenset(),
        qos=_allowed(record.get("AllowQos")),
        denied_qos=_allowed(record.get("DenyQos")) or frozenset(),
        groups=_allowed(record.get("AllowGroups")),
        # 26.05 has a separate field for it
        whole_nodes=record.get("OverSubscribe", record.get("Shared")) == "EXCLUSIVE"
        or record.get("Exclusive") == "NODE",
        preemptible=not _PREEMPTS.isdisjoint(record.get("PreemptMode", "").split(",")),
    )


def _longest(text: str) -> Walltime | None:
    try:
        return Walltime.parse(text)
    except (UsageError, OverflowError):
        return None


def _allowed(text: str | None) -> frozenset[str] | None:
    if text is None or text in ("", "ALL", "N/A", "(null)"):
        return None
    return frozenset(text.split(","))


# --- nodes -----------------------------------------------------------------------------------------------------

_CORES = re.compile(r"(?P<used>\d{1,9})/\d+/(?P<out>\d+)/(?P<all>\d{1,9})", re.A)  # allocated/idle/other/total
# gpu:4, gpu:a100:4, gpu:a100:4(S:0-1), gpu:t4:1(IDX:0,3); the part in parentheses is removed before
_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?::(?P<type>[^:,()=]+))?[:=](?P<count>\d{1,9})(?=[,(]|$)", re.A)


def _node(row: Sequence[str]) -> Node:
    name, partition, state, cores, gres, gres_used, reason = row
    counts = _CORES.fullmatch(cores)
    gpus = _gpus(gres)
    return Node(
        name,
        partition.rstrip("*"),
        state,
        _in_service(state),
        cores=int(counts["all"]) if counts else None,
        cores_used=int(counts["used"]) if counts else None,
        gpus=gpus,
        gpus_used=_gpus(gres_used) if _GPUS.search(gres_used) or not gpus else None,
        reason=None if reason in ("none", "N/A", "(null)") else reason,
    )


def _gpus(gres: str) -> dict[str, int]:
    """Return the number of GPUs by type; a type may occur several times, once for each socket."""
    counts: dict[str, int] = {}
    for match in _GPUS.finditer(re.sub(r"\([^)]*\)", "", gres)):
        if int(match["count"]):
            counts[match["type"] or ""] = counts.get(match["type"] or "", 0) + int(match["count"])
    return counts


def _in_service(state: str) -> bool:
    word = state.rstrip(_SUFFIXES)
    return word.lower() in _IN_SERVICE and _OUT_OF_SERVICE_SUFFIXES.isdisjoint(state[len(word) :])


# --- pending jobs ----------------------------------------------------------------------------------------------


def _queued(row: Sequence[str]) -> QueuedJob:
    job, user, partition, priority, cores, nodes, tasks, tres, per_job, per_node, per_task, reason = row
    gpus = requested_gpus(tres, per_job, (per_node, whole_number(nodes)), (per_task, whole_number(tasks)))
    return QueuedJob(job, user, partition, reason, whole_number(priority), whole_number(cores), gpus, _tasks(job))


def requested_gpus(tres: str, per_job: str, *per: tuple[str, int | None]) -> int | None:
    """Return how many GPUs a job requests, ``None`` if that is unclear.

    ``tres``: the job's trackable resources, among which a site need not have GPUs. ``per``: a GRES request with the
    number of nodes or tasks that it is multiplied by.
    """
    in_all = re.search(r"(?:^|,)gres/gpu=(\d{1,9})(?=,|$)", tres, re.A)
    if in_all:
        return int(in_all[1])
    if count := _gres_count(per_job):
        return count
    for text, times in per:
        if count := _gres_count(text):
            return None if times is None else count * times
    return 0


def _gres_count(text: str) -> int:
    """Count GPUs in ``gres/gpu:t4:1`` (24.11), ``gres:gpu:t4:1`` (22.05), ``gres/gpu=1``; none in ``N/A``."""
    plain = re.sub(r"gres[:/]", "", text).replace("=", ":")
    return sum(count for name, count in parse_gres(plain) if re.fullmatch(r"gpu(:.*)?", name))


def _base_id(job: str) -> int:
    """Return the job id of ``7``, ``7_[1-5]`` and ``7+1``; 0 if there is none."""
    match = re.match(r"\d{1,15}(?=$|[_+])", job, re.A)
    return int(match[0]) if match else 0


def _tasks(job: str) -> int:
    """Return how many jobs a line of squeue stands for: ``7_[1-5,9,20-30:2%4]`` is twelve pending ones."""
    match = re.search(r"_\[([\d,:-]+)", job, re.A)
    if match is None:
        return 1
    count = 0
    for first, last, step in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", match[1], re.A):
        count += max(0, (int(last) - int(first)) // max(1, int(step or 1))) + 1 if last else 1
    return max(1, count)
