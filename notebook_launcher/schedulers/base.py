"""What every scheduler package offers: pairs of a command to run and a reading of what it answered.

Nothing here runs a command. ``CommandResult`` is what some host got from running one.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.cluster_info import ClusterInfo


@dataclass(frozen=True)
class JobRef:
    """A job as the scheduler names it. ``cluster``: the other cluster it went to with ``-M``, else ``None``."""

    id: str
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.id} on {self.cluster}" if self.cluster else self.id


class State(enum.Enum):
    """What a job is doing, each member with every spelling of it; see ``State.read``."""

    PENDING = (
        "PENDING",
        "PD",
        "CONFIGURING",
        "CF",
        "REQUEUED",
        "RQ",
        "REQUEUE_HOLD",
        "RH",
        "REQUEUE_FED",
        "RF",
        "SPECIAL_EXIT",
        "SE",
        "RESV_DEL_HOLD",
        "RD",
        "POWER_UP_NODE",
    )
    RUNNING = ("RUNNING", "R", "SIGNALING", "SI", "STAGE_OUT", "SO", "RESIZING", "RS", "EXPEDITING")
    SUSPENDED = ("SUSPENDED", "S", "STOPPED", "ST")
    COMPLETING = ("COMPLETING", "CG")
    COMPLETED = ("COMPLETED", "CD")
    FAILED = ("FAILED", "F", "LAUNCH_FAILED", "RECONFIG_FAIL")
    CANCELLED = ("CANCELLED", "CA")
    TIMEOUT = ("TIMEOUT", "TO")
    OUT_OF_MEMORY = ("OUT_OF_MEMORY", "OOM")
    NODE_FAIL = ("NODE_FAIL", "NF")
    PREEMPTED = ("PREEMPTED", "PR")
    BOOT_FAIL = ("BOOT_FAIL", "BF")
    DEADLINE = ("DEADLINE", "DL")
    REVOKED = ("REVOKED", "RV")
    UNKNOWN = ("UNKNOWN",)

    @classmethod
    def read(cls, word: str) -> State:
        """Return the state that a scheduler spells so; ``UNKNOWN`` for a word that is not known."""
        first = word.split()[0].rstrip("+").upper() if word.split() else ""  # sacct: "CANCELLED by 2001", "CANCELLED+"
        return next((state for state in cls if first in state.value), cls.UNKNOWN)

    @property
    def waits(self) -> bool:
        """Not started yet, may still start."""
        return self is State.PENDING

    @property
    def ended(self) -> bool:
        """Will do nothing any more."""
        return self not in (State.PENDING, State.RUNNING, State.SUSPENDED, State.COMPLETING, State.UNKNOWN)


@dataclass(frozen=True)
class JobStatus:
    """One job at one moment. What was not told is ``None``, never a guess.

    ``start``: when it started or, while it waits, the scheduler's estimate; ``ends``: when its walltime is over,
    or it was (ISO; where that has no zone, on the cluster's clock).
    ``by``: who cancelled it, as the scheduler names them (Slurm: the user's number). ``partition``: where it waits or
    runs. ``account``, ``qos``, ``walltime``: the job's own, whatever was asked for, in the scheduler's words (a
    walltime as ``2:00:00`` or ``UNLIMITED``).
    """

    job: JobRef
    state: State
    reason: str | None = None
    node: str | None = None
    start: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    by: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    walltime: str | None = None
    ends: str | None = None


@dataclass(frozen=True)
class Submission:
    """What a scheduler needs besides the request: where the job script, its log and its session directory are.

    ``now``: what the cluster's clock shows, with its zone.
    """

    session_id: str
    directory: str
    script: str
    log: str
    now: datetime | None = None


@dataclass(frozen=True)
class AccountingRecord:
    """What the scheduler's accounting tells of a job that is over; ``None``: not told.

    Seconds, MiB, joules. ``cpu_used``: in which its processes kept a core busy; ``cpu_reserved``: in which it had one.
    ``memory_peak``: the largest of any of its steps. ``gpus`` and ``cores``: what it was given. ``earlier``: seconds of
    the runs after which it was put back into the queue; all else is of its last one. ``complete``: whether all figures
    are in; the last ones come some seconds after its end.
    """

    job: JobRef
    state: State = State.UNKNOWN
    wall: int | None = None
    walltime: int | None = None
    cores: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    partition: str | None = None
    cpu_used: float | None = None
    cpu_reserved: int | None = None
    memory_peak: float | None = None
    memory_asked: float | None = None
    joules: float | None = None
    earlier: int = 0
    complete: bool = True


class Scheduler(ABC):
    """One kind of scheduler. Commands are argument lists; readings never raise on odd text, except where said."""

    name: str
    #: whether the launcher and the job share one machine, so that nothing needs to be tunnelled to a node
    same_machine: bool = False
    #: the commands that it is asked by: first the one that queues, which tells its version with ``--version``
    programs: tuple[str, ...] = ()
    #: what it tells beyond one's own job; ``None``: nothing
    cluster_info: ClusterInfo | None = None

    @abstractmethod
    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the command that queues the job."""

    @abstractmethod
    def read_submit(self, answer: CommandResult) -> JobRef:
        """Return the queued job. Raises ``SubmitRefused`` or ``SchedulerMissing`` with the scheduler's reason."""

    @abstractmethod
    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return the command that tells the states of jobs (all on the same cluster)."""

    def query_own(self, cluster: str | None) -> list[str] | None:
        """Return the command that tells the states of all of this user's jobs there, for several launchers to share.

        Its answer is read by ``read_query`` as well. ``None``: each job is asked for by itself, which costs nobody.
        """
        return None

    def query_alone(self, job: JobRef) -> list[str]:
        """Return the command that tells the state of one job with the least work for the scheduler.

        Its answer, too, is read by ``read_query``.
        """
        return self.query([job])

    @abstractmethod
    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Return states by job id, without those that the scheduler does not show; ``None``: it could not answer."""

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Whether an answer that does not show a job says that there is none; ``answer``: to a question about it."""
        return True

    @abstractmethod
    def history(self, job: JobRef) -> list[str] | None:
        """Return the command that tells how a job ended that has left the queue, ``None`` where there is none."""

    @abstractmethod
    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return how the job ended, ``None`` where nothing is known of it."""

    def runs(self, job: JobRef) -> list[str] | None:
        """Return the command that tells of every run of a job that was put back into the queue."""
        return None

    def read_earlier_run(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return how the last run ended that is over, ``None`` where nothing is known of one."""
        return None

    @abstractmethod
    def cancel(self, job: JobRef) -> list[str]:
        """Return the command that ends a job, queued or running."""

    def cancel_all(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return the command that ends several jobs (all on the same cluster): that for one takes more ids."""
        return [*self.cancel(jobs[0]), *(job.id for job in jobs[1:])]

    def cancel_typed(self, job: JobRef) -> list[str]:
        """Return the same as a user would type it."""
        return self.cancel(job)

    def step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:
        """Return the command that runs another one inside a running job, on its first node, with stdin and stdout.

        Both must pass any byte at once. ``None``: the scheduler has no such thing.
        """
        return None

    def terminal_step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:
        """Return the command that runs another one inside a running job with a terminal of its own.

        ``None``: the scheduler has no such thing.
        """
        return None

    def accounting(self, job: JobRef) -> list[str] | None:
        """Return the command that tells what a job used that is over, ``None`` where there is none."""
        return None

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Return what the job was given and used, ``None`` where nothing is known."""
        return None

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return where a job's errors and its output are, the likeliest first, from the flags it was queued with.

        ``node``: where it ran, ``None`` where it did not come to that. A name that cannot be told whole is left out.
        """
        return [path for path in (flags.get("output"),) if path]

    @abstractmethod
    def find(self, session_id: str, request: Request) -> list[str]:
        """Return the command that looks for the job of a session whose id was never read."""

    @abstractmethod
    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the session's jobs that are queued or running (normally none or one); ``None``: no answer."""

    @abstractmethod
    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error that tells why a submission was refused."""
