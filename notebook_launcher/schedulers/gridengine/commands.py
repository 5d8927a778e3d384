"""Grid Engine (Son of Grid Engine 8.1 and compatible ones): ``qsub``, ``qstat``, ``qacct`` and ``qdel`` as text.

Tested with Debian's 8.1.9. Requests have the flags of sbatch, which are translated: see ``translation``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitUncertain
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, JobStatus, Scheduler, Submission
from notebook_launcher.schedulers.gridengine import accounting, submit_errors
from notebook_launcher.schedulers.gridengine.cluster_info import GridEngineInfo
from notebook_launcher.schedulers.gridengine.listing import DETAILS, read_listing, status_of
from notebook_launcher.schedulers.gridengine.site_options import SITE_QUERY, read_site_options
from notebook_launcher.schedulers.gridengine.translation import TRANSLATED, SiteResources, Translation, job_name
from notebook_launcher.schedulers.translation import UNSUBMITTED, with_job

# With -notify a job receives SIGUSR2 some time before SIGKILL, at qdel and at the end of its walltime, so that it can
# clean up. It also receives SIGUSR1 before it is suspended, which would end it, and is therefore ignored.
_JOB = "trap '' USR1; exec bash -l \"$@\""

_LIST = (
    f'{PLAIN_BASH}export LC_ALL=C TZ=UTC0; list=$(qstat -u "$(id -un)" -r -xml) || exit; '
    f"printf '%s\\n' \"$list\" '{DETAILS}'; count=0; "
)
_DETAILS_OF = (
    "while read -r line; do [[ $line =~ ^'<JB_job_number>'([0-9]+)'<' ]] && job=${BASH_REMATCH[1]}; "
    "[[ $line =~ ^'<state>'[a-zA-Z]*%s'<' ]] && ((count++ < 50)) && qstat -j \"$job\" 2>&1; done <<<\"$list\"; "
)
# The details of pending jobs say why they are pending. The arguments are jobs to query if they are not in the list, one
# at a time: of several, qstat mentions only those that exist.
_QUERY = (
    f"{_LIST}{_DETAILS_OF % 'w'}"
    'for job; do [[ $list == *"<JB_job_number>$job</"* ]] || qstat -j "$job" 2>&1; done; exit 0'
)
_FIND = f"{_LIST}{_DETAILS_OF % ''}exit 0"
_NO_RECORD = re.compile(r"job id \d+ not found|no jobs running since startup", re.A)
_SUBMITTED = re.compile(r"(\d{1,12})(?:\.\d+-\d+:\d+)?", re.A)


class GridEngine(Scheduler):
    """Grid Engine's commands, and parsers of their output. It cannot run steps inside a job."""

    name = "gridengine"
    title = "Grid Engine"
    programs = ("qsub", "qstat", "qdel", "qacct")
    version_command = ("qsub", "-help")
    several_nodes = False
    forgets_cancelled = True
    history_delay = 20.0  # most sites write the accounting every 15 seconds
    directive = "#$"
    translated_flags = tuple(sorted(TRANSLATED))
    lists_flags = "for Grid Engine in docs/gridengine.md"
    lists_partitions = "qconf -sq '*'"
    lists_past_jobs = "qacct -o $USER -d 7 -j"

    def __init__(self) -> None:
        self._site = SiteResources()
        self.cluster_info = GridEngineInfo(self._verified, lambda: self._site.gpu)

    def _verified(self, request: Request) -> list[str]:
        """Return the arguments of a submission that is only verified, without the job script."""
        return Translation(request, UNSUBMITTED).arguments(self._site)

    def configure(self, options: Mapping[str, str]) -> None:
        """Apply the site's names of its resources."""
        self._site = SiteResources.read(options)

    def site_options(self) -> list[str]:
        """Return ``qconf`` for the resources, and for each parallel environment."""
        return ["bash", "-c", SITE_QUERY]

    def read_site_options(self, answer: CommandResult) -> dict[str, str]:
        """Return the names by which cores, GPUs, memory and a whole host are requested."""
        return read_site_options(answer.stdout)

    def submit_by_hand(self, script: str) -> str:
        """Return ``qsub`` with the script, to run in the current directory."""
        return f"qsub -cwd {script}"

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the ``qsub`` command. Raises ``UsageError`` for a flag that cannot be translated.

        A login shell runs the job script on the node, so that modules work as on the login node.
        """
        words = Translation(request, submission).arguments(self._site)
        script = ["bash", "-c", _JOB, "bash", submission.script, submission.directory]
        return ["qsub", "-terse", *words, "-notify", "-b", "y", "-shell", "n", *script]

    def read_submit(self, answer: CommandResult) -> JobRef:
        """Parse the job id that ``-terse`` prints; a site's wrappers may print lines around it.

        Also raises ``SubmitUncertain``: success without a job id.
        """
        if answer.exit_code != 0:
            raise self.explain_refusal(answer)
        for line in reversed(answer.stdout.splitlines()):
            if match := _SUBMITTED.fullmatch(line.strip()):
                return JobRef(match[1])
        raise SubmitUncertain(
            "qsub took the job, but its number could not be read.",
            why=f"It printed: {answer.stdout.strip() or 'nothing'}",
            hint="look with: qstat   and end it with: qdel JOB",
        )

    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error for qsub's message, with the message and what it means."""
        return submit_errors.explain(answer)

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return ``qstat`` for all of the user's jobs, and for each of ``jobs`` that is not among them."""
        return ["bash", "-c", _QUERY, "query", *(job.id for job in jobs)]

    def query_own(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all of the user's jobs, with the details of the pending ones."""
        return ["bash", "-c", _QUERY, "query"]

    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Parse the list; ``None`` if it is incomplete."""
        listing = read_listing(answer.stdout) if answer.exit_code == 0 else None
        if listing is None:
            return None
        wanted = [job.id for job in jobs if job.id in listing.jobs]
        return {one: status_of(listing.jobs[one], listing.details.get(one)) for one in wanted}

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Return whether qstat says that there is no such job; its absence from the list does not mean that."""
        listing = read_listing(answer.stdout)
        return listing is not None and job.id in listing.unknown

    def history(self, job: JobRef) -> list[str]:
        """Return ``qacct`` for one job; the accounting file is written with a delay, of 15 seconds at most sites."""
        return ["env", "LC_ALL=C", "TZ=UTC0", "qacct", "-j", job.id]

    def history_answers(self, answer: CommandResult) -> bool:
        """Return whether qacct could read the accounting file, even if the job is not in it."""
        return answer.exit_code == 0 or _NO_RECORD.search(f"{answer.stdout}\n{answer.stderr}") is not None

    def history_typed(self, job: JobRef) -> str:
        """Return ``qacct``."""
        return f"qacct -j {job.id}"

    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Parse how the job ended; one that was cancelled before it started has no record."""
        return accounting.read_end(job, answer.stdout, self._site) if answer.exit_code == 0 else None

    def accounting(self, job: JobRef) -> list[str]:
        """Return ``qacct`` for one job."""
        return self.history(job)

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Parse what the job used; ``None`` while it runs."""
        return accounting.read_use(job, answer.stdout, self._site) if answer.exit_code == 0 else None

    def report(self, job: JobRef) -> list[str]:
        """Return ``qacct`` for one job."""
        return self.history(job)

    def read_report(self, job: JobRef, answer: CommandResult) -> JobAccounts | None:
        """Parse all that qacct reports; ``None`` while the job runs."""
        return accounting.read_accounts(job, answer.stdout, self._site) if answer.exit_code == 0 else None

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return the files of ``--error`` and ``--output``."""
        names = (with_job(flags.get(name) or "", job.id) for name in ("error", "output"))
        return [name for name in names if name and "$" not in name]

    def cancel(self, job: JobRef) -> list[str]:
        """Return ``qdel``."""
        return ["qdel", job.id]

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return ``qstat`` for all of the user's jobs, with their details."""
        return ["bash", "-c", _FIND, "find"]

    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the jobs whose name is the session's, or whose script is in its directory."""
        listing = read_listing(answer.stdout) if answer.exit_code == 0 else None
        if listing is None:
            return None
        commands = {job.id: job.command for job in listing.details.values()}
        found = [
            JobRef(job.id)
            for job in listing.jobs.values()
            if job.name == job_name(session_id) or f"/{session_id}/" in commands.get(job.id, "")
        ]
        if not found and listing.jobs.keys() - commands.keys() - listing.unknown:
            return None  # it may be a job without details: there were too many, or the output was truncated
        return found
