"""What Grid Engine reports besides the user's own jobs: queues, hosts, pending jobs, and whether a job could start now.

It has no account limits that everybody can read, and does not estimate when a job would start later.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.cluster_info import (
    ClusterInfo,
    Node,
    Partition,
    QueuedJob,
    StartEstimate,
    read_walltime,
)
from notebook_launcher.schedulers.gridengine import submit_errors
from notebook_launcher.schedulers.gridengine.listing import read_entries

_JOBS = "--- jobs that run ---"
_HOSTS = (
    PLAIN_BASH + f"export LC_ALL=C; qhost -xml -q -F || exit; echo '{_JOBS}'; "
    "qstat -u '*' -s r -xml -r 2>/dev/null; exit 0"
)
_WAITING = ["env", "LC_ALL=C", "qstat", "-u", "*", "-s", "p", "-xml", "-r"]
_NOW, _EVER = "now", "ever"
# -w p: whether it could start with what is in use now; -w v: whether it could start on an empty cluster. It comes after
# all other arguments, since the last -w counts: otherwise a profile's qsub = "-w e" would submit a job
_VERIFY = (
    f'{PLAIN_BASH}export LC_ALL=C TZ=UTC0; qsub "$@" -w p -b y true >/dev/null 2>&1 && '
    f"printf '{_NOW} %(%FT%T)T+00:00\\n' -1 && exit; qsub \"$@\" -w v -b y true >/dev/null && echo '{_EVER}'"
)
_HOST = re.compile(r"<host name='([^'<>]+)'>((?:(?!<host ).)*?)</host>", re.S)
_RESOURCE = re.compile(r"<resourcevalue name='([^'<>]+)'[^<>]*>(\d+)(?:\.\d+)?</resourcevalue>", re.A)
_QUEUE = re.compile(r"<queue name='([^'<>]+)'>(.*?)</queue>", re.S)
_VALUE = re.compile(r"name='([a-z_]+)'>([^<>]*)<")
# letters of the queue states in which no jobs start, from the manual of qstat: alarm, unreachable, disabled, …
_CLOSED = frozenset("auACDEdsSco")
_HELD = frozenset("hEd")


class GridEngineInfo(ClusterInfo):
    """Pairs of a command and a parser.

    ``verified``: returns the arguments of qsub for a request; ``gpu``: returns the name of the resource for GPUs.
    """

    def __init__(self, verified: Callable[[Request], list[str]], gpu: Callable[[], str]) -> None:
        self._verified, self._gpu = verified, gpu

    def ahead(self, partition: str, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all pending jobs, in their order."""
        return _WAITING

    def read_ahead(self, job_id: str, answer: CommandResult) -> int | None:
        """Return how many jobs are ahead of this one, ``None`` if it is not listed. Held jobs do not count."""
        if answer.exit_code != 0:
            return None
        waiting = [job["JB_job_number"] for job in read_entries(answer.stdout) if not _HELD & set(job.get("state", ""))]
        return waiting.index(job_id) if job_id in waiting else None

    def partitions(self, cluster: str | None) -> list[str]:
        """Return ``qconf`` for all queues."""
        return ["qconf", "-sq", "*"]

    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Return the queues, with their general walltime limit: those of single hosts and host groups are ignored."""
        blocks = re.split(r"^qname +", answer.stdout.replace("\\\n", " "), flags=re.M)[1:]
        if answer.exit_code != 0 or not blocks:
            return None
        return tuple(filter(None, map(_partition, blocks)))

    def nodes(self, cluster: str | None) -> list[str]:
        """Return ``qhost`` with queues and resources, and ``qstat`` with the resources of all running jobs."""
        return ["bash", "-c", _HOSTS]

    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Return each host once for each of its queues. Its GPUs are the free ones and those of running jobs."""
        hosts, _, jobs = answer.stdout.partition(f"{_JOBS}\n")
        if answer.exit_code != 0 or "</qhost>" not in hosts:
            return None
        return tuple(_nodes(hosts, self._gpu(), _gpus_in_use(jobs, self._gpu())))

    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all pending jobs."""
        return _WAITING

    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Return the pending jobs."""
        if answer.exit_code != 0 or "<job_info" not in answer.stdout:
            return None
        gpu = f"hard_request {self._gpu()}"
        return tuple(
            QueuedJob(
                job["JB_job_number"],
                job.get("JB_owner", ""),
                job.get("hard_req_queue", ""),
                cores=whole_number(job.get("slots")),
                gpus=whole_number(job.get(gpu, "0")),
            )
            for job in read_entries(answer.stdout)
        )

    def read_private_data(self, answer: CommandResult) -> bool:
        """Return ``False``: everybody can see all jobs."""
        return False

    def estimate_start(self, request: Request) -> list[str]:
        """Return ``qsub`` with a verification in place of the submission."""
        return ["bash", "-c", _VERIFY, "verify", *self._verified(request)]

    def read_start_estimate(self, answer: CommandResult) -> StartEstimate:
        """Return that it would start now, or why it never would; otherwise that the time is not known."""
        word, _, now = answer.stdout.strip().rpartition("\n")[2].partition(" ")
        if answer.exit_code != 0:
            return StartEstimate(refusal=submit_errors.explain(answer), message=answer.stderr.strip())
        if word == _NOW and now:
            return StartEstimate(start=now)
        if word != _EVER and not now:
            return StartEstimate(message=answer.stdout.strip())
        message = "It could run there, but not now, and Grid Engine does not estimate when."
        return StartEstimate(message=message, is_later=True)


def _partition(block: str) -> Partition | None:
    fields = {key: value.strip() for key, value in re.findall(r"^([a-z_]+) +(.*)$", block.partition("\n")[2], re.M)}
    name = block.partition("\n")[0].strip()
    if not re.fullmatch(r"[\w.-]{1,64}", name, re.A) or "h_rt" not in fields:
        return None
    projects = fields.get("projects", "NONE").partition(",[")[0]
    accounts = None if projects == "NONE" else frozenset(projects.replace(",", " ").split())
    return Partition(name, walltime=_walltime(fields["h_rt"].partition(",[")[0]), accounts=accounts)


def _walltime(text: str) -> Walltime | None:
    """Parse a time limit of qconf: ``48:00:00``, seconds, or ``INFINITY``."""
    if text == "INFINITY":
        return Walltime.parse("UNLIMITED")
    return read_walltime(text if ":" in text else f"0:0:{text}")


def _nodes(text: str, gpu: str, in_use: Mapping[str, int]) -> Iterator[Node]:
    for host in _HOST.finditer(text):
        name, resources = html.unescape(host[1]), dict(_RESOURCE.findall(host[2]))
        used = in_use.get(name, 0)
        gpus = {"": int(resources[gpu]) + used} if gpu in resources else {}
        for queue in _QUEUE.finditer(host[2]):
            values = dict(_VALUE.findall(queue[2]))
            state = values.get("state_string", "").strip()
            yield Node(
                name,
                html.unescape(queue[1]),
                state or "available",
                not _CLOSED & set(state),
                cores=whole_number(values.get("slots")),
                cores_used=whole_number(values.get("slots_used")),
                gpus=gpus,
                gpus_used={"": used} if gpus else None,
            )


def _gpus_in_use(text: str, gpu: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for job in read_entries(text):
        host = job.get("queue_name", "").rpartition("@")[2]
        found[host] += whole_number(job.get(f"hard_request {gpu}", "0")) or 0
    return found
