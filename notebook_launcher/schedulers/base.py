"""The interface of a scheduler: pairs of a function that makes a command and one that parses its output.

Nothing here runs a command. A ``CommandResult`` comes from a host that did.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, ProfileError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import no_such_flag
from notebook_launcher.schedulers.cluster_info import ClusterInfo

#: how a submit command reacts to a flag, as it was typed
FlagAnswer = Literal["accepted", "unknown", "needs a value", "takes no value", "refused"]


class JobRef(Frozen):
    """A job as the scheduler names it. ``cluster``: the other cluster it was submitted to (``-M``), else ``None``."""

    id: str
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.id} on {self.cluster}" if self.cluster else self.id


class State(enum.Enum):
    """A job's state. The value of each member is the tuple of its spellings: see ``State.read``."""

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
        """Return the state with this spelling; ``UNKNOWN`` for an unknown word."""
        first = word.split()[0].rstrip("+").upper() if word.split() else ""  # sacct: "CANCELLED by 2001", "CANCELLED+"
        return next((state for state in cls if first in state.value), cls.UNKNOWN)

    @property
    def waits(self) -> bool:
        """Whether it has not started yet, but still may."""
        return self is State.PENDING

    @property
    def ended(self) -> bool:
        """Whether it is over, and will not run again."""
        return self not in (State.PENDING, State.RUNNING, State.SUSPENDED, State.COMPLETING, State.UNKNOWN)


class Meaning(Frozen):
    """Why a job is pending, in plain words: a summary, what helps, and whether it can never start.

    In ``action``, ``JOB`` stands for the job's id.
    """

    summary: str
    action: str = ""
    never: bool = False


class JobStatus(Frozen):
    """A job's status at one time. ``None``: not reported; nothing is guessed.

    ``start``: when it started or, while it is pending, when the scheduler expects it to start. ``ends``: when it ended
    or, while it runs, when its walltime ends. Both are in ISO format; without a zone, on the cluster's clock. ``by``:
    who cancelled it, as the scheduler names them (Slurm: a user id). ``partition``: where it is pending or running.
    ``account``, ``qos``, ``walltime``: those of the job, which may differ from the request, as the scheduler writes
    them (a walltime as ``2:00:00`` or ``UNLIMITED``). ``meaning``: what the reason means, for schedulers other than
    Slurm.
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
    meaning: Meaning | None = None


class Submission(Frozen):
    """What a scheduler needs besides the request: the paths of the job script, its log and its session directory.

    ``now``: the time on the cluster's clock, with its zone.
    """

    session_id: str
    directory: str
    script: str
    log: str
    now: datetime | None = None


class AccountingRecord(Frozen):
    """The accounting of a finished job; ``None``: not reported.

    In seconds, MiB and joules. ``cpu_used``: CPU seconds used; ``cpu_reserved``: CPU seconds allocated.
    ``memory_peak``: the highest peak of its steps. ``gpus``, ``cores``, ``memory_limit``: the totals allocated on all
    its nodes; ``cores_requested``, ``gpus_requested``, ``gpu_type_requested``, ``memory_requested``: what was
    requested, or the site's default. ``earlier``: the seconds of all runs before it was requeued; all other values are
    those of its last run. ``complete``: whether all values are final; the last ones arrive some seconds after the job's
    end.
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
    memory_limit: float | None = None
    memory_requested: float | None = None
    cores_requested: int | None = None
    gpus_requested: int | None = None
    gpu_type_requested: str | None = None
    joules: float | None = None
    earlier: int = 0
    complete: bool = True


class StepUse(Frozen):
    """What one step of a job used: the batch script itself, or one ``srun``; ``None``: not reported.

    In seconds, MiB and joules. ``memory_peak``: that of its largest task, number ``memory_task`` on ``memory_node``;
    ``memory_mean``: the mean of the peaks of its tasks. ``gpu_percent``: GPU utilization, if it is measured.
    """

    name: str
    state: State = State.UNKNOWN
    exit_code: str = ""
    tasks: int | None = None
    nodes: str = ""
    cores: int | None = None
    wall: int | None = None
    cpu_used: float | None = None
    memory_peak: float | None = None
    memory_node: str = ""
    memory_task: str = ""
    memory_mean: float | None = None
    gpu_percent: float | None = None
    joules: float | None = None


class StepSample(Frozen):
    """What one step of a running job has used so far, in CPU seconds and MiB; ``None``: not reported.

    ``cpu_mean``: the mean of its tasks; ``cpu_least``: that of the task with the least CPU time, number ``least_task``
    on ``least_node``. ``memory_peak``: that of its largest task, number ``memory_task`` on ``memory_node``.
    """

    name: str
    tasks: int | None = None
    nodes: str = ""
    cpu_mean: float | None = None
    cpu_least: float | None = None
    least_task: str = ""
    least_node: str = ""
    memory_peak: float | None = None
    memory_task: str = ""
    memory_node: str = ""
    gpu_percent: float | None = None


class JobAccounts(Frozen):
    """All that the accounting reports about one job. ``columns``: its values as printed, by the scheduler's own names.

    If these are not sacct's columns, ``meanings`` explains in plain words those to be shown, in the order in which
    they are shown; the name and the state of the job are still called ``JobName`` and ``State``.
    """

    record: AccountingRecord
    columns: Mapping[str, str]
    steps: tuple[StepUse, ...] = ()
    #: the ids of the tasks, if this is a whole job array; all other values are then those of the first task
    array: tuple[str, ...] = ()
    meanings: Mapping[str, str] | None = None

    @property
    def is_live(self) -> bool:
        """Whether the job is pending, running or suspended: more values arrive when it ends."""
        return self.record.state in (State.PENDING, State.RUNNING, State.SUSPENDED)

    @property
    def complete(self) -> bool:
        """Whether all values are final."""
        return self.record.complete


class Scheduler(ABC):
    """One kind of scheduler. Commands are argument lists; parsers never raise on unexpected text, unless documented."""

    name: str
    #: its name in sentences
    title: str = ""
    #: whether the launcher and the job share one machine, so that no tunnel is needed
    same_machine: bool = False
    #: its commands; the one that submits comes first
    programs: tuple[str, ...] = ()
    #: a command that prints its version in the first line, and submits nothing
    version_command: tuple[str, ...] = ()
    #: whether a session may have several nodes
    several_nodes: bool = True
    #: whether a job array can be submitted and followed
    has_arrays: bool = False
    #: whether it keeps no record of a job that was cancelled before it started
    forgets_cancelled: bool = False
    #: the seconds after a job's end during which it may be in neither the queue nor the history
    history_delay: float = 0.0
    #: whether ``--gres`` is passed on as it was typed
    passes_gres: bool = False
    #: the beginning of the lines with flags in its job scripts; empty: it reads none
    directive: str = "#SBATCH"
    #: the flags of sbatch that it can translate; ``None``: all that its own submit command knows
    translated_flags: tuple[str, ...] | None = None
    #: where its flags are listed, besides the launcher's ``--help``
    lists_flags: str = ""
    #: what a user types to list its partitions
    lists_partitions: str = ""
    #: what a user types to list the finished jobs of the last days
    lists_past_jobs: str = ""
    #: what it reports besides the user's own job; ``None``: nothing
    cluster_info: ClusterInfo | None = None

    def no_such_flag(self, name: str, why: str = "", known: Sequence[str] | None = None) -> UsageError:
        """Return the error for an unknown flag; ``known``: the flags that its submit command reports."""
        few = self.translated_flags  # the intended flag may not be among them, so a suggestion has to be closer
        if known or few is None:
            return no_such_flag(name, why, known or None, lists=self.lists_flags)
        return no_such_flag(name, why, few, nearness=0.7, lists=self.lists_flags)

    def configure(self, options: Mapping[str, str]) -> None:
        """Apply a profile's ``scheduler_options``. Raises ``ProfileError`` for an unknown option."""
        name = sorted(options)[0]
        raise ProfileError(
            f"scheduler_options has “{name}”, which {self.title or self.name} does not have.", hint="take it out"
        )

    def site_options(self) -> list[str] | None:
        """Return the command that shows how a site names its resources; ``None``: there is nothing to query."""
        return None

    def read_site_options(self, answer: CommandResult) -> dict[str, str]:
        """Return the ``scheduler_options`` for that site that differ from the defaults; unclear ones are left out."""
        return {}

    def submit_by_hand(self, script: str) -> str:
        """Return what a user types to submit a job script of their own; ``script``: quoted for a shell."""
        return f"sbatch {script}"

    @abstractmethod
    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the command that submits the job."""

    @abstractmethod
    def read_submit(self, answer: CommandResult) -> JobRef:
        """Return the submitted job. Raises ``SubmitRefused`` or ``SchedulerMissing`` with the scheduler's reason."""

    def try_flag(self, name: str, value: str | None) -> list[str] | None:
        """Return a command that shows how the submit command reacts to a flag; it submits nothing.

        ``None``: this scheduler has no flags beyond the launcher's list.
        """
        return None

    def read_flag(self, name: str, answer: CommandResult) -> FlagAnswer:
        """Return how the submit command reacted to that flag; ``refused``: for another reason, see its message."""
        return "unknown"

    def list_flags(self) -> list[list[str]]:
        """Return the commands that print the names of flags."""
        return []

    def read_flag_names(self, answers: Sequence[CommandResult]) -> list[str]:
        """Return the names of the long flags that were printed, without dashes."""
        return []

    @abstractmethod
    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return the command that prints the states of jobs (all on the same cluster)."""

    def query_own(self, cluster: str | None) -> list[str] | None:
        """Return the command that prints the states of all of this user's jobs, to be shared by several launchers.

        ``read_query`` parses its output as well. ``None``: each job is queried separately, which puts no load on
        anything.
        """
        return None

    def query_alone(self, job: JobRef) -> list[str]:
        """Return the command that prints the state of one job with the least load on the scheduler.

        ``read_query`` parses its output as well.
        """
        return self.query([job])

    @abstractmethod
    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Return states by job id, without jobs that are not listed; ``None``: the scheduler did not answer."""

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Return whether this answer, in which the job is not listed, says that there is no such job."""
        return True

    @abstractmethod
    def history(self, job: JobRef) -> list[str] | None:
        """Return the command that prints how a job ended that has left the queue; ``None``: there is none."""

    @abstractmethod
    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return how the job ended, ``None`` if that is not known."""

    def history_answers(self, answer: CommandResult) -> bool:
        """Return whether this answer to ``history``, even for a job that never existed, shows that it can be read."""
        return answer.exit_code == 0

    def history_typed(self, job: JobRef) -> str:
        """Return what a user types to see what the scheduler knows about a job; empty: there is no such command."""
        return ""

    def runs(self, job: JobRef) -> list[str] | None:
        """Return the command that prints every run of a requeued job."""
        return None

    def read_earlier_run(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return how the last finished run ended, ``None`` if that is not known."""
        return None

    @abstractmethod
    def cancel(self, job: JobRef) -> list[str]:
        """Return the command that cancels a job, pending or running."""

    def cancel_all(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return the command that cancels several jobs, all on the same cluster.

        The default appends the other job ids to the command for the first job.
        """
        return [*self.cancel(jobs[0]), *(job.id for job in jobs[1:])]

    def cancel_typed(self, job: JobRef) -> list[str]:
        """Return the same command as a user would type it."""
        return self.cancel(job)

    def step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:
        """Return the command that runs another one inside a running job, on its first node, with stdin and stdout.

        Both must pass on every byte immediately. ``None``: the scheduler has no such command.
        """
        return None

    @property
    def has_steps(self) -> bool:
        """Whether ``step`` can run commands inside a job."""
        return self.step(JobRef("0"), ["true"]) is not None

    def command_step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:
        """Return the same as ``step`` for a command whose output people read: its failure causes no extra message."""
        return self.step(job, command)

    def terminal_step(self, job: JobRef, command: Sequence[str]) -> list[str] | None:
        """Return the command that runs another one inside a running job with a terminal of its own.

        ``None``: the scheduler has no such command.
        """
        return None

    def accounting(self, job: JobRef) -> list[str] | None:
        """Return the command that prints what a job was allocated and, at its end, used; ``None``: there is none."""
        return None

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Return what the job was allocated and used, ``None`` if not known."""
        return None

    def report(self, job: JobRef) -> list[str] | None:
        """Return the command that prints all details of one of the user's jobs; ``None``: there is none."""
        return None

    def read_report(self, job: JobRef, answer: CommandResult) -> JobAccounts | None:
        """Return all details of that job, ``None`` if it is not known."""
        return None

    def read_array_report(self, job: JobRef, answer: CommandResult) -> Mapping[int, JobAccounts]:
        """Return the details of each task of a job array, by its number; empty if none is known."""
        return {}

    def running_steps(self, job: JobRef) -> list[str] | None:
        """Return the command that prints what the steps of a running job use; ``None``: there is none."""
        return None

    def read_running_steps(self, job: JobRef, answer: CommandResult) -> tuple[StepSample, ...]:
        """Return what these steps use; an empty tuple if it is not known."""
        return ()

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return the paths of a job's error and output files from the flags of its submission, most likely ones first.

        ``node``: where it ran, ``None`` if it did not start. Names that cannot be resolved completely are left out.
        """
        return [path for path in (flags.get("output"),) if path]

    @abstractmethod
    def find(self, session_id: str, request: Request) -> list[str]:
        """Return the command that looks for the job of a session whose job id is not known."""

    @abstractmethod
    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the session's jobs that are pending or running (normally none or one); ``None``: no answer."""

    @abstractmethod
    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error that says why a submission was refused."""
