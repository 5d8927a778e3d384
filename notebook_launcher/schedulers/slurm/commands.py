"""Slurm, 22.05 and newer: ``sbatch``, ``squeue``, ``sacct`` and ``scancel`` as text.

Output is requested by field (``squeue --format``, ``sacct --parsable2``) instead of as ``--json``: the JSON of 22.05
and of 24.11 differ in shape, the fields do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitUncertain
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import FULFILLED
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import (
    AccountingRecord,
    FlagAnswer,
    JobAccounts,
    JobRef,
    JobStatus,
    Scheduler,
    State,
    StepSample,
    Submission,
)
from notebook_launcher.schedulers.slurm import accounting as slurm_accounting
from notebook_launcher.schedulers.slurm import (
    filename_patterns,
    job_report,
    running_steps,
    submit_errors,
    unlisted_flags,
)
from notebook_launcher.schedulers.slurm.array_state import of_array
from notebook_launcher.schedulers.slurm.clean_env import on_cluster, with_clean_env, without_job_variables
from notebook_launcher.schedulers.slurm.cluster_info import SlurmClusterInfo

# id, state, partition, nodes, start and end (or their estimates), account, QOS, walltime, and last the reason, since it
# is free text
_FIELDS = "%i|%T|%P|%N|%S|%e|%a|%q|%l|%r"
_FIELD_COUNT = 10
# the same fields as ``scontrol --oneliner`` prints them, with underscores for spaces in the reason
_RECORD = re.compile(
    r"^JobId=(?P<id>\d+) (?:ArrayJobId=(?P<array>\d+) )?"
    r".*?(?: Account=(?P<account>\S*) QOS=(?P<qos>\S*)(?: WCKey=\S*)?)? "
    r"JobState=(?P<state>\S+) Reason=(?P<reason>.*?) Dependency=.*?(?: TimeLimit=(?P<walltime>\S+) .*?)? "
    r"StartTime=(?P<start>\S+) EndTime=(?P<ends>\S+) .*?Partition=(?P<partition>\S+) .*? NodeList=(?P<node>\S*)",
    re.A | re.M,
)
_RECORDED = ("id", "state", "partition", "node", "start", "ends", "account", "qos", "walltime", "reason")
_HISTORY = "JobIDRaw,State,ExitCode,NodeList,Start,End"
# sacct of 22.05 prints no zone, so UTC is requested
_NO_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.A)

# NOT_SET, Partition_Limit: the job has no walltime of its own, and the partition's applies
_NO_VALUE = frozenset(
    {"", "N/A", "None", "NONE", "Unknown", "None assigned", "(null)", "NOT_SET", "Partition_Limit", "INVALID"}
)

_SUBMITTED = re.compile(r"(?:Submitted batch job )?(\d+)(?:(?:;| on cluster )(\S+))?", re.A)
_GONE = re.compile(r"Invalid job id specified", re.I)
# srun's messages that say nothing to the user
_HARMLESS = "^srun: (error: .*: task 0: Exited with exit code|cluster configuration lacks support for cpu binding)"
# Ctrl-C goes to the whole process group: the filter has to outlive the command, which may still print something
_OUTLIVING = "trap '' TERM INT; exec"
_FILTER = f"({_OUTLIVING} grep -a -v -E --line-buffered '{_HARMLESS}' >&2)"
_WITH_STDERR = PLAIN_BASH + "[[ -e /dev/fd/2 ]] || exec 2>/dev/null; "  # the caller may have closed it (2>&-)
_WITHOUT_THAT = _WITH_STDERR + (f'{{ "$@" 2>&1 >&4 | {_FILTER}; code=${{PIPESTATUS[0]}}; }} 4>&1; exit $code')
# The same without a terminal: the command's own stderr comes through file descriptor 5 and is not filtered by line,
# since a progress bar may not end its lines.
_WITHOUT_THAT_MESSAGE = _WITH_STDERR + (
    f'{{ {{ "$@" 2>&1 >&4 5>&3 3>&- 4>&- | {_FILTER}; exit "${{PIPESTATUS[0]}}"; }} '
    f'3>&1 | ({_OUTLIVING} cat >&2); exit "${{PIPESTATUS[0]}}"; }} 4>&1'
)
# states of a pending job while its nodes are powered up or booted; Slurm reports no reason then
_PREPARING = frozenset({"CONFIGURING", "CF", "POWER_UP_NODE"})


class Slurm(Scheduler):
    """Slurm's commands, and parsers of their output."""

    name = "slurm"
    lists_partitions = "sinfo"
    lists_past_jobs = "sacct --starttime=now-7days"
    title = "Slurm"
    programs = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sacct")
    version_command = ("sbatch", "-V")
    passes_gres = True
    has_arrays = True
    lists_flags = "on the login node: sbatch --help"
    cluster_info = SlurmClusterInfo()

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the ``sbatch`` command, with the flags sorted by name, so that commands can be compared."""
        flags = {name: value for name, value in request.flags.items() if name not in FULFILLED}
        flags.setdefault("job-name", submission.session_id)
        script = submission.script
        if "array" in flags:
            script = f"{submission.directory}/array_task.sh"
        if "output" not in flags:
            flags["output"] = submission.log
            flags.setdefault("open-mode", "append")  # the log exists already, readable only by its owner
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in sorted(flags.items())]
        return ["sbatch", "--parsable", *words, script, submission.directory]

    def try_flag(self, name: str, value: str | None) -> list[str]:
        """Return an ``sbatch`` command that shows whether the flag exists, and submits nothing (``unlisted_flags``)."""
        return unlisted_flags.command(name, value)

    def read_flag(self, name: str, answer: CommandResult) -> FlagAnswer:
        """Return how sbatch reacted to that flag."""
        return unlisted_flags.read(name, answer)

    def list_flags(self) -> list[list[str]]:
        """Return ``sbatch --help`` and ``--usage``, each of which leaves out some."""
        return [unlisted_flags.listing("--help"), unlisted_flags.listing("--usage")]

    def read_flag_names(self, answers: Sequence[CommandResult]) -> list[str]:
        """Return the flags in these outputs, including those of a site's plugins."""
        return unlisted_flags.names(answers)

    def read_submit(self, answer: CommandResult) -> JobRef:
        """Parse ``7`` or, with ``-M``, ``7;snowy`` from the last such line; a site's plugins may print other lines.

        Also raises ``SubmitUncertain``: success without a job id, as from a site's wrapper around sbatch.
        """
        if answer.exit_code != 0:
            raise self.explain_refusal(answer)
        for line in reversed(answer.stdout.splitlines()):
            if match := _SUBMITTED.fullmatch(line.strip()):
                return JobRef(match[1], match[2])
        raise SubmitUncertain(
            "sbatch took the job, but its number could not be read.",
            why=f"It printed: {answer.stdout.strip() or 'nothing'}",
            hint="look with: squeue --me   and end it with: scancel JOB",
        )

    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error for sbatch's message, with the message and what it means."""
        return submit_errors.explain(answer)

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return ``squeue`` for these jobs, including those that ended a short while ago."""
        ids = ",".join(job.id for job in jobs)
        words = [*on_cluster(jobs[0].cluster), "--noheader", "--states=all", f"--jobs={ids}", f"--format={_FIELDS}"]
        return with_clean_env(["squeue", *words], of_a_job=True)

    def query_own(self, cluster: str | None) -> list[str]:
        """Return ``squeue`` for all of the user's jobs, which costs slurmctld two RPCs.

        ``--local``: without it, squeue first queries whether there is a federation, which is a third RPC.
        """
        where = on_cluster(cluster) or ["--local"]
        return with_clean_env(
            ["squeue", *where, "--noheader", "--states=all", "--me", f"--format={_FIELDS}"], of_a_job=True
        )

    def query_alone(self, job: JobRef) -> list[str]:
        """Return ``scontrol`` for one job: one RPC, where squeue queries the partitions as well."""
        where = on_cluster(job.cluster) or ["--local"]
        return with_clean_env(["scontrol", *where, "--oneliner", "show", "job", job.id], of_a_job=True)

    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Parse the output of squeue or scontrol.

        A job that Slurm has forgotten, or merely does not list, is left out; ``None`` if the command failed.
        """
        if answer.exit_code != 0:
            return {} if _GONE.search(answer.stderr) else None
        cluster = jobs[0].cluster if jobs else None
        wanted = {job.id for job in jobs}
        found: dict[str, list[JobStatus]] = {}
        for fields in (*_rows(answer.stdout, _FIELD_COUNT), *_records(answer.stdout)):
            if (job_id := fields[0].partition("_")[0]) in wanted:  # 7_3, 7_[4-9]: tasks of a job array
                found.setdefault(job_id, []).append(_present(cluster, job_id, *fields[1:]))
        return {job_id: of_array(rows) for job_id, rows in found.items()}

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Return whether Slurm says that there is no such job; its absence from a list does not mean that."""
        return answer.exit_code != 0 and _GONE.search(answer.stderr) is not None

    def history(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job; the site may have accounting disabled."""
        words = ["--noheader", "--parsable2", "--allocations", f"--jobs={job.id}", f"--format={_HISTORY}"]
        return with_clean_env(["sacct", *on_cluster(job.cluster), *words], "TZ=UTC0", of_a_job=True)

    def history_typed(self, job: JobRef) -> str:
        """Return a plain ``sacct``."""
        return f"sacct -j {job.id}"

    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Parse the last row: a requeued job has one for each run."""
        runs = self._read_runs(job, answer)
        return runs[-1] if runs else None

    def runs(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job with all its runs."""
        return [*self.history(job), "--duplicates"]

    def read_earlier_run(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Parse the last row of a run that has ended; that of the next run may follow it."""
        return next((run for run in reversed(self._read_runs(job, answer)) if run.state.ended), None)

    def _read_runs(self, job: JobRef, answer: CommandResult) -> list[JobStatus]:
        if answer.exit_code != 0:
            return []
        return [_past(job, *row[1:]) for row in _rows(answer.stdout, 6) if row[0] == job.id]

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return the files of ``--error`` and ``--output``, with their patterns replaced."""
        return filename_patterns.log_files(flags, job.id, user=user, node=node)

    def cancel(self, job: JobRef) -> list[str]:
        """Return ``scancel``, without the user's variables that might restrict it to another partition or state."""
        return with_clean_env(self.cancel_typed(job), of_a_job=True)

    def cancel_typed(self, job: JobRef) -> list[str]:
        """Return a plain ``scancel``."""
        return ["scancel", *on_cluster(job.cluster), job.id]

    def accounting(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job, with its steps and its earlier runs."""
        return slurm_accounting.accounting_command(job)

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Parse these rows; ``None`` without accounting, or if the job is not in it (yet)."""
        return slurm_accounting.parse_accounting(job, answer)

    def report(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job, with all columns that a report shows."""
        return job_report.report_command(job)

    def read_report(self, job: JobRef, answer: CommandResult) -> JobAccounts | None:
        """Parse these rows; ``None`` without accounting, or if the job is not in it (yet)."""
        return job_report.parse_report(job, answer)

    def read_array_report(self, job: JobRef, answer: CommandResult) -> Mapping[int, JobAccounts]:
        """Parse the rows of all tasks."""
        return job_report.parse_array_report(job, answer)

    def running_steps(self, job: JobRef) -> list[str] | None:
        """Return ``sstat`` for one job."""
        return running_steps.steps_command(job)

    def read_running_steps(self, job: JobRef, answer: CommandResult) -> tuple[StepSample, ...]:
        """Parse these rows."""
        return running_steps.parse_steps(job, answer)

    def step(self, job: JobRef, command: Sequence[str]) -> list[str]:
        """Return an ``srun`` command that shares the job's resources.

        ``--unbuffered``: otherwise srun buffers each line until its end, while the other side waits for the data.
        """
        return _step(job, "--unbuffered", command)

    def command_step(self, job: JobRef, command: Sequence[str]) -> list[str]:
        """Return the same ``srun`` command, without srun's message that the command failed; it shows all others."""
        step = _step(job, "--unbuffered", command, "--error=/dev/fd/5")
        return ["bash", "-c", _WITHOUT_THAT_MESSAGE, "command-step", *step]

    def terminal_step(self, job: JobRef, command: Sequence[str]) -> list[str]:
        """Return an ``srun`` command that shares all of the job's resources: cores, memory and GPUs.

        ``--pty``: the first (and only) task has a terminal of its own, whose size follows that of srun's terminal. If
        the last command in a shell failed, srun's message about that is not shown.
        """
        return ["bash", "-c", _WITHOUT_THAT, "terminal-step", *_step(job, "--pty", command)]

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return ``squeue`` for the user's jobs, with their commands, since the user may have chosen the job's name."""
        return with_clean_env(["squeue", *on_cluster(request.clusters), "--noheader", "--me", "--format=%i|%j|%o"])

    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the jobs whose name is the session's id, or whose script is in its directory."""
        if answer.exit_code != 0:
            return None
        found, cluster = [], None
        for line in answer.stdout.splitlines():
            if line.startswith("CLUSTER:"):
                cluster = line.partition(":")[2].strip()
                continue
            job_id, _, rest = line.strip().partition("|")
            name, _, command = rest.partition("|")
            job_id = job_id.partition("_")[0]  # each task of a job array has a line
            job = JobRef(job_id, cluster)
            if job_id.isdecimal() and job not in found and (name == session_id or f"/{session_id}/" in command):
                found.append(job)
        return found


def _step(job: JobRef, how: str, command: Sequence[str], *more: str) -> list[str]:
    """Return an ``srun`` command for one task in a running job.

    ``--relative=0``: on the first of several nodes, where the job script runs. A site's defaults for ``--mpi`` and CPU
    binding are overridden, because they serve no purpose here.
    """
    words = ["srun", *on_cluster(job.cluster), f"--jobid={job.id}", "--overlap", how, "--quiet", "--mpi=none", *more]
    return without_job_variables([*words, "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none", "--", *command])


def _present(
    cluster: str | None,
    job_id: str,
    state: str,
    partition: str,
    node: str,
    start: str,
    ends: str,
    account: str,
    qos: str,
    walltime: str,
    reason: str,
) -> JobStatus:
    """Return the status in one row of squeue."""
    read = State.read(state)
    return JobStatus(
        JobRef(job_id, cluster),
        read,
        reason=_value(reason) or ("Configuring" if state.upper() in _PREPARING else None),
        node=_value(node),
        start=_value(start),
        partition=_value(partition),
        account=_value(account),
        qos=_value(qos),
        walltime=_value(walltime),
        ends=None if read.waits else _value(ends),
    )


def _past(job: JobRef, state: str, exit_code: str, node: str, start: str, end: str) -> JobStatus:
    """Return the status in one row of sacct. ``ExitCode`` is ``code:signal``."""
    code, _, signal = exit_code.partition(":")
    by = re.fullmatch(r"CANCELLED by (\S+)", state)
    return JobStatus(
        job,
        State.read(state),
        node=_value(node),
        start=_in_utc(start),
        exit_code=whole_number(code),
        signal=whole_number(signal) or None,
        by=by[1] if by else None,
        ends=_in_utc(end),
    )


def _in_utc(time: str) -> str | None:
    return f"{time}+0000" if _NO_ZONE.fullmatch(time) else _value(time)


def _rows(text: str, count: int) -> Iterator[list[str]]:
    """Yield the rows with ``count`` fields; other output (``CLUSTER: x``, warnings) is skipped."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", count - 1)]
        if len(fields) == count:
            yield fields


def _records(text: str) -> Iterator[list[str]]:
    """Yield the same fields as ``_rows`` from lines of ``scontrol --oneliner show job``."""
    for match in _RECORD.finditer(text):
        fields = {name: value or "" for name, value in match.groupdict().items()}
        fields["reason"] = fields["reason"].replace("_", " ")
        fields["id"] = fields["array"] or fields["id"]
        fields["walltime"] = fields["walltime"].removeprefix("00:").lstrip("0")  # 00:30:00, where squeue has 30:00
        yield [fields[name] for name in _RECORDED]


def _value(value: str) -> str | None:
    return None if value in _NO_VALUE else value
