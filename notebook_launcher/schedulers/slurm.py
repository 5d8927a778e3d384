"""Slurm, 22.05 and newer: ``sbatch``, ``squeue``, ``sacct`` and ``scancel`` as text.

The formats are asked for by field (``squeue --format``, ``sacct --parsable2``) and not as ``--json``: the JSON of
22.05 and of 24.11 differ in shape, the fields do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.answer import Answer
from notebook_launcher.errors import LauncherError, SchedulerMissing, SubmitRefused, SubmitUncertain
from notebook_launcher.flags import FULFILLED
from notebook_launcher.request import Request
from notebook_launcher.schedulers import patterns
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State, Submission

_FIELDS = "%i|%T|%N|%S|%r"  # id, state, nodes, start (or its estimate), reason; the reason last: it is free text
_HISTORY = "JobIDRaw,State,ExitCode,NodeList,Start"

# What sbatch says -> what it means, and what to do. The first match counts. Texts from Slurm's slurm_errno and sbatch.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"Invalid account or account/partition",
        "The account is not yours on this cluster, or may not use this partition.",
        "name one of yours with -A; they are listed by: sacctmgr show assoc user=$USER format=account,partition,qos",
    ),
    (
        r"invalid partition specified|Invalid partition name",
        "There is no partition of that name.",
        "the partitions are listed by: sinfo -s",
    ),
    (
        r"User's group not permitted to use this partition",
        "You may not use this partition.",
        "choose another with -p; they are listed by: sinfo -s",
    ),
    (
        r"Requested time limit is invalid|time limit.*(invalid|exceeds)|Invalid --time",
        "The walltime is longer than is allowed there.",
        "ask for less with -t; the limits are listed by: sinfo -o '%P %l'",
    ),
    (
        r"Invalid qos",
        "The QOS does not exist or is not yours.",
        "yours are listed by: sacctmgr show assoc user=$USER format=account,qos",
    ),
    (
        r"Access denied to requested reservation",
        "The reservation is not for you or your account.",
        "ask the teacher, or leave out --reservation",
    ),
    (
        r"reservation (is |requested )?(is )?invalid|Requested reservation is invalid",
        "There is no reservation of that name (or it is over).",
        "see: scontrol show reservation",
    ),
    (
        r"Invalid generic resource|gres.*(invalid|unsupported)",
        "The cluster has no such GPU (or other GRES).",
        "the kinds there are listed by: sinfo -o '%P %G'",
    ),
    (r"Invalid Trackable RESource", "The cluster has no such resource.", "see: sinfo -o '%P %G'"),
    (r"Invalid feature", "No node has the feature asked for with --constraint.", "see: sinfo -o '%P %f'"),
    (
        r"Requested node configuration is not available|[Nn]ode count specification invalid|"
        r"(CPU count|Memory).*can ?not be satisfied|More processors requested than permitted",
        "No node can ever give what is asked for in this partition.",
        "ask for less, or another partition; the nodes are listed by: sinfo -o '%P %c %m %G'",
    ),
    (r"Invalid license", "The licence asked for with -L is not known.", "see: scontrol show lic"),
    (
        r"Job violates accounting/QOS policy",
        "A limit of your account or QOS does not allow this job now.",
        "ask for less, or end other jobs of yours: squeue --me",
    ),
    (
        r"No cluster '|can't be reached now, or it is an invalid entry",
        "There is no such cluster to send jobs to with -M.",
        "they are listed by: sacctmgr show clusters format=cluster",
    ),
    (
        r"Disk quota exceeded|No space left",
        "There is no room left on the cluster's disk for the job's files.",
        "make room in your home folder",
    ),
    (
        r"Unable to contact slurm controller|Socket timed out|Connection refused|Transport endpoint",
        "The scheduler does not answer at the moment.",
        "try again in a minute",
    ),
)
_SUBMITTED = re.compile(r"(?:Submitted batch job )?(\d+)(?:(?:;| on cluster )(\S+))?", re.A)
_GONE = re.compile(r"Invalid job id specified", re.I)


class Slurm(Scheduler):
    """The commands of Slurm, and what their answers mean."""

    name = "slurm"

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the ``sbatch`` command; the flags in the order of their names, so that it can be compared."""
        flags = {name: value for name, value in request.flags.items() if name not in FULFILLED}
        flags.setdefault("job-name", submission.session_id)
        if "output" not in flags:
            flags["output"] = submission.log
            flags.setdefault("open-mode", "append")  # the log exists already, readable by its owner alone
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in sorted(flags.items())]
        return ["sbatch", "--parsable", *words, submission.script, submission.directory]

    def read_submit(self, answer: Answer) -> JobRef:
        """Read ``7`` or, with ``-M``, ``7;snowy`` from the last line that is so (site plug-ins print around it).

        Raises ``SubmitUncertain`` as well: success without a number, as from a site's wrapper around sbatch.
        """
        if answer.exit_code != 0:
            raise self.explain_refusal(answer)
        for line in reversed(answer.stdout.splitlines()):
            if match := _SUBMITTED.fullmatch(line.strip()):
                return JobRef(match[1], match[2])
        raise SubmitUncertain(
            "sbatch took the job, but its number could not be read.",
            why=f"It printed: {answer.stdout.strip() or 'nothing'}",
            mend="look with: squeue --me   and end it with: scancel JOB",
        )

    def explain_refusal(self, answer: Answer) -> LauncherError:
        """Return ``SubmitRefused`` with what sbatch said, in its words and in ours."""
        if answer.exit_code == 127 or re.search(r"\bsbatch: command not found", answer.stderr):
            return SchedulerMissing(
                "sbatch is not found there.",
                why=answer.stderr.strip(),
                mend="is this the cluster's login node? name it with --host or in a profile",
            )
        said = _without_prefix(answer.stderr) or answer.stdout.strip() or f"exit code {answer.exit_code}, no message"
        for pattern, meaning, mend in _REFUSALS:
            if re.search(pattern, answer.stderr, re.I):
                return SubmitRefused(f"Slurm refused the job. {meaning}", why=f"sbatch: {said}", mend=mend)
        return SubmitRefused("Slurm refused the job.", why=f"sbatch: {said}", mend="the flags of sbatch: sbatch --help")

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return ``squeue`` for these jobs, with those that ended a short while ago."""
        ids = ",".join(job.id for job in jobs)
        return ["squeue", *_on(jobs[0].cluster), "--noheader", "--states=all", f"--jobs={ids}", f"--format={_FIELDS}"]

    def read_query(self, jobs: Sequence[JobRef], answer: Answer) -> dict[str, JobStatus] | None:
        """Read the rows of ``query``. A job that Slurm has forgotten is left out; a failing squeue gives ``None``."""
        if answer.exit_code != 0:
            return {} if _GONE.search(answer.stderr) else None
        cluster = jobs[0].cluster if jobs else None
        wanted = {job.id for job in jobs}
        found = {}
        for row in _rows(answer.stdout, 5):
            if row[0] in wanted:
                found[row[0]] = JobStatus(
                    JobRef(row[0], cluster),
                    State.read(row[1]),
                    node=_known(row[2]),
                    start=_known(row[3]),
                    reason=_known(row[4]),
                )
        return found

    def history(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job; the site may have accounting switched off."""
        return [
            "sacct",
            *_on(job.cluster),
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={job.id}",
            f"--format={_HISTORY}",
        ]

    def read_history(self, job: JobRef, answer: Answer) -> JobStatus | None:
        """Read the last row: a requeued job has one for each run."""
        runs = self._read_runs(job, answer)
        return runs[-1] if runs else None

    def runs(self, job: JobRef) -> list[str]:
        """Return ``sacct`` for one job with all its runs."""
        return [*self.history(job), "--duplicates"]

    def read_earlier_run(self, job: JobRef, answer: Answer) -> JobStatus | None:
        """Read the last row of a run that is over: that of the run to come may follow it."""
        return next((run for run in reversed(self._read_runs(job, answer)) if run.state.ended), None)

    def _read_runs(self, job: JobRef, answer: Answer) -> list[JobStatus]:
        if answer.exit_code != 0:
            return []
        return [_past(job, *row[1:]) for row in _rows(answer.stdout, 5) if row[0] == job.id]

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return the files of ``--error`` and ``--output``, with their patterns filled in."""
        return patterns.log_files(flags, job.id, user=user, node=node)

    def cancel(self, job: JobRef) -> list[str]:
        """Return ``scancel``."""
        return ["scancel", *_on(job.cluster), job.id]

    def step(self, job: JobRef, command: Sequence[str]) -> list[str]:
        """Return an ``srun`` that shares the job's resources.

        ``--unbuffered``: srun would hold bytes back until a line ends, and the other side waits for them.
        ``--relative=0``: of several nodes the one on which the job script runs. What ``--mpi`` and the CPU binding of a
        site's defaults would do here is of no use.
        """
        words = ["srun", *_on(job.cluster), f"--jobid={job.id}", "--overlap", "--unbuffered", "--quiet", "--mpi=none"]
        return [*words, "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none", "--", *command]

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return a ``squeue`` of one's own jobs; the command tells the session where the user chose the name."""
        return ["squeue", *_on(request.clusters), "--noheader", "--me", "--format=%i|%j|%o"]

    def read_find(self, session_id: str, answer: Answer) -> list[JobRef] | None:
        """Return those whose name is the session's id, or whose script lies in its directory."""
        if answer.exit_code != 0:
            return None
        found, cluster = [], None
        for line in answer.stdout.splitlines():
            if line.startswith("CLUSTER:"):
                cluster = line.partition(":")[2].strip()
                continue
            job_id, _, rest = line.strip().partition("|")
            name, _, command = rest.partition("|")
            if job_id.isdecimal() and (name == session_id or f"/{session_id}/" in command):
                found.append(JobRef(job_id, cluster))
        return found


def _past(job: JobRef, state: str, exit_code: str, node: str, start: str) -> JobStatus:
    """Return one row of sacct. ``ExitCode`` is ``code:signal``."""
    code, _, signal = exit_code.partition(":")
    by = re.fullmatch(r"CANCELLED by (\S+)", state)
    return JobStatus(
        job,
        State.read(state),
        node=_known(node),
        start=_known(start),
        exit_code=_number(code),
        signal=_number(signal) or None,
        by=by[1] if by else None,
    )


def _on(cluster: str | None) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _rows(text: str, count: int) -> Iterator[list[str]]:
    """Yield the rows with ``count`` fields; what else is printed (``CLUSTER: x``, warnings) is passed over."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", count - 1)]
        if len(fields) == count:
            yield fields


def _known(value: str) -> str | None:
    return None if value in ("", "N/A", "None", "Unknown", "None assigned", "(null)") else value


def _number(value: str) -> int | None:
    return int(value) if value.isdecimal() else None


def _without_prefix(stderr: str) -> str:
    lines = [re.sub(r"^sbatch: (error: )?", "", line).strip() for line in stderr.splitlines()]
    return " ".join(line for line in lines if line)
