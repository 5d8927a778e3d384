"""PBS Professional and OpenPBS: ``qsub``, ``qstat`` and ``qdel`` as text.

Written from recorded output of OpenPBS's commands, and tested with a mock of them; never tested on a cluster that runs
PBS. Requests have the flags of sbatch, which are translated: see ``translation``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitUncertain
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, JobStatus, Scheduler, Submission
from notebook_launcher.schedulers.pbs import submit_errors
from notebook_launcher.schedulers.pbs.cluster_info import PbsInfo
from notebook_launcher.schedulers.pbs.job_records import read_accounts, read_records, read_status
from notebook_launcher.schedulers.pbs.translation import TRANSLATED, SiteResources, Translation, job_name
from notebook_launcher.schedulers.translation import UNSUBMITTED

_JOB_ID = re.compile(r"\d{1,12}(?:\[\])?(?:\.[\w.-]+)?", re.A)
# 153: some of the jobs are unknown; 35: some have finished, and PBS keeps no history
_ANSWERED = (0, 153, 35)
_AWAY = re.compile(r"cannot connect to server|Couldn't connect to cluster|Unknown Host", re.I)
_GPU_NAMES = (
    f"{PLAIN_BASH}export LC_ALL=C; "
    "pbsnodes -av | sed -n -E 's/^ *resources_available\\.(n?gpus?) = .*/\\1/p' | sort -u; exit 0"
)
_OWN = (
    f'{PLAIN_BASH}export LC_ALL=C; jobs=$(qselect -u "$(id -un)") || exit; '
    "[[ -z $jobs ]] || qstat -f $jobs; code=$?; ((code == 153 || code == 35)) && exit 0; exit $code"
)


class Pbs(Scheduler):
    """PBS's commands, and parsers of their output. It cannot run steps inside a job."""

    name = "pbs"
    title = "PBS"
    programs = ("qsub", "qstat", "qdel", "qselect")
    version_command = ("qstat", "--version")
    several_nodes = False
    directive = "#PBS"
    translated_flags = tuple(sorted(TRANSLATED))
    lists_flags = "for PBS in docs/pbs.md"
    lists_partitions = "qstat -Qf"
    lists_past_jobs = "qstat -x -u $USER"

    def __init__(self) -> None:
        self._site = SiteResources()
        self.cluster_info = PbsInfo(self._check, lambda: self._site.gpu)

    def _check(self, request: Request) -> None:
        """Raise ``UsageError`` for a flag that cannot be translated."""
        Translation(request, UNSUBMITTED).arguments(self._site)

    def configure(self, options: Mapping[str, str]) -> None:
        """Apply the site's names of its resources."""
        self._site = SiteResources.read(options)

    def site_options(self) -> list[str]:
        """Return ``pbsnodes``, filtered to the names of resources that may be GPUs."""
        return ["bash", "-c", _GPU_NAMES]

    def read_site_options(self, answer: CommandResult) -> dict[str, str]:
        """Return the name of the resource for GPUs, if there is exactly one and it is not the default ``ngpus``."""
        names = {
            name for line in answer.stdout.splitlines() if (name := line.strip()) in ("ngpus", "gpus", "ngpu", "gpu")
        }
        return {"gpu": names.pop()} if len(names) == 1 and "ngpus" not in names else {}

    def submit_by_hand(self, script: str) -> str:
        """Return ``qsub`` with the script."""
        return f"qsub {script}"

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the ``qsub`` command. Raises ``UsageError`` for a flag that cannot be translated.

        A login shell runs the job script on the node, so that modules work as on the login node. The environment is not
        passed on, because qsub refuses variables with quotes.
        """
        words = Translation(request, submission).arguments(self._site)
        return ["qsub", *words, "--", "/bin/bash", "-l", submission.script, submission.directory]

    def read_submit(self, answer: CommandResult) -> JobRef:
        """Parse ``7.server`` from the last such line; a site's hooks may print other lines around it.

        Also raises ``SubmitUncertain``: success without a job id.
        """
        if answer.exit_code != 0:
            raise self.explain_refusal(answer)
        for line in reversed(answer.stdout.splitlines()):
            if _JOB_ID.fullmatch(line.strip()):
                return JobRef(line.strip())
        raise SubmitUncertain(
            "qsub took the job, but its number could not be read.",
            why=f"It printed: {answer.stdout.strip() or 'nothing'}",
            hint="look with: qstat -u $USER   and end it with: qdel JOB",
        )

    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error for qsub's message, with the message and what it means."""
        return submit_errors.explain(answer)

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return ``qstat`` for these jobs, including finished ones as long as PBS keeps their history."""
        return ["env", "LC_ALL=C", "qstat", "-x", "-f", *(job.id for job in jobs)]

    def query_own(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all of the user's pending and running jobs."""
        return ["bash", "-c", _OWN]

    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Parse the jobs; qstat fails if one of them is unknown, but still prints the others."""
        if answer.exit_code not in _ANSWERED or _AWAY.search(answer.stderr):
            return None
        wanted = {_number(job.id): job for job in jobs}
        found = {}
        for job_id, attributes in read_records(answer.stdout):
            if job := wanted.get(_number(job_id)):
                found[job.id] = read_status(job, attributes)
        return found

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Return whether qstat says that there is no such job, or that it has finished and no history is kept."""
        number = re.escape(_number(job.id))
        return re.search(rf"Unknown Job Id {number}\b|qstat: {number}\S* Job has finished", answer.stderr) is not None

    def history(self, job: JobRef) -> None:
        """Return ``None``: ``query`` includes the history."""

    def history_typed(self, job: JobRef) -> str:
        """Return ``qstat`` with the history."""
        return f"qstat -x -f {job.id}"

    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return ``None``: see ``history``."""
        return None

    def accounting(self, job: JobRef) -> list[str]:
        """Return ``qstat`` for one job, which reports what it uses and has used."""
        return self.query([job])

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Parse what the job used."""
        accounts = self.read_report(job, answer)
        return accounts.record if accounts else None

    def report(self, job: JobRef) -> list[str]:
        """Return the same command as ``accounting``."""
        return self.query([job])

    def read_report(self, job: JobRef, answer: CommandResult) -> JobAccounts | None:
        """Parse all that qstat reports about the job."""
        for job_id, attributes in read_records(answer.stdout):
            if _number(job_id) == _number(job.id):
                return read_accounts(job, attributes, self._site.gpu)
        return None

    def cancel(self, job: JobRef) -> list[str]:
        """Return ``qdel``: SIGTERM, and SIGKILL some seconds later."""
        return ["qdel", job.id]

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return ``qstat`` for all of the user's pending and running jobs, which includes their commands."""
        return ["bash", "-c", _OWN]

    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the jobs whose name is the session's, or whose script is in its directory."""
        if answer.exit_code != 0 or _AWAY.search(answer.stderr):
            return None
        return [
            JobRef(job_id)
            for job_id, found in read_records(answer.stdout)
            if found.get("Job_Name") == job_name(session_id)
            or f"/{session_id}/" in found.get("Submit_arguments", "") + found.get("argument_list", "")
        ]


def _number(job_id: str) -> str:
    """Return an id without the server's name, which is not always written in full."""
    return job_id.partition(".")[0]
