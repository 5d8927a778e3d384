"""The jobs of several users, from ``squeue`` and ``sacct``: one command for all of them.

A user chooses the name of a job, which may contain any separator, and newlines. So the name comes last, and an
unpredictable random word follows the job id in each line of squeue, and separates the fields of sacct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import State
from notebook_launcher.schedulers.slurm.clean_env import on_cluster, with_clean_env
from notebook_launcher.schedulers.slurm.cluster_info import requested_gpus
from notebook_launcher.schedulers.user_jobs import Selection, UserJob, UserJobs

# squeue's manual, --Format: type[:[.][size][suffix]]. A longer value is truncated to its size; the reason and the name
# are free text, but only the last field may contain the suffix.
_FIELDS = (
    *("UserName:64", "State:20", "Partition:64", "NodeList:128", "StartTime:32", "EndTime:32", "TimeLimit:20"),
    *("Account:64", "Reservation:64", "tres-alloc:256", "tres-per-job:128", "tres-per-node:128", "tres-per-task:128"),
    *("NumNodes:16", "NumTasks:16", "exit_code:16", "Reason:128", "Name:64"),
)
_SEPARATOR = "|"
_HISTORY = "JobIDRaw,User,State,ExitCode,NodeList,Start,End,Timelimit,Partition,Account,Reservation,JobName"
_NO_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.A)
_NO_VALUE = frozenset({"", "N/A", "None", "NONE", "Unknown", "None assigned", "(null)", "NOT_SET", "Partition_Limit"})
_JOB = re.compile(r"\d{1,12}", re.A)


class SlurmUserJobs(UserJobs):
    """Slurm's commands, and parsers of their output."""

    def jobs(self, whose: Selection, cluster: str | None, mark: str) -> list[str]:
        """Return ``squeue`` for all of these jobs, which costs slurmctld two RPCs."""
        first = f"JobID:20{_SEPARATOR}{mark}{_SEPARATOR}"
        fields = ",".join([first, *(f"{field}{_SEPARATOR}" for field in _FIELDS)])
        where = on_cluster(cluster) or ["--local"]
        words = ["squeue", *where, "--noheader", "--states=all", *_selected(whose), f"--Format={fields}"]
        return with_clean_env(words, of_a_job=True)

    def read_jobs(self, answer: CommandResult, mark: str) -> tuple[UserJob, ...] | None:
        """Parse the lines with the mark; all others are parts of a job's name."""
        if answer.exit_code != 0:
            return None
        rows = (line.split(_SEPARATOR, len(_FIELDS) + 1) for line in answer.stdout.split("\n"))
        found = [[field.strip() for field in row] for row in rows if len(row) == len(_FIELDS) + 2 and row[1] == mark]
        return tuple(_job(row[0], *row[2:]) for row in found if _JOB.fullmatch(row[0]) and row[2])

    def ended_jobs(self, whose: Selection, cluster: str | None, since: datetime, mark: str) -> list[str]:
        """Return ``sacct`` for all of these jobs: slurmdbd answers it, without load on slurmctld."""
        begin = since.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        words = ["--noheader", "--parsable2", f"--delimiter={mark}", "--allocations"]
        words += [f"--starttime={begin}", f"--format={_HISTORY}"]
        everybody = [] if whose.users else ["--allusers"]
        words = ["sacct", *on_cluster(cluster), *words, *everybody, *_selected(whose, accounts="accounts")]
        return with_clean_env(words, "TZ=UTC0", of_a_job=True)

    def read_ended_jobs(self, answer: CommandResult, mark: str) -> tuple[UserJob, ...] | None:
        """Parse the rows of jobs that have ended; a line with fewer marks is a part of a job's name."""
        if answer.exit_code != 0:
            return None
        return tuple(job for job in _past(answer.stdout, mark) if job.state.ended)

    def members(self, users: Sequence[str], account: str) -> list[str]:
        """Return ``sacctmgr`` for the associations of these users with the account."""
        where = [f"account={account}", f"user={','.join(users)}"]
        return ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", *where, "format=account,user"]

    def read_members(self, answer: CommandResult) -> frozenset[str] | None:
        """Parse ``account|user``; the account itself has a row without a user."""
        if answer.exit_code != 0:
            return None
        rows = [line.strip().split("|") for line in answer.stdout.splitlines() if line.count("|") == 1]
        return frozenset(user for _, user in rows if user)


def _selected(whose: Selection, accounts: str = "account") -> list[str]:
    if whose.users:
        return [f"--{'users' if accounts == 'account' else 'user'}={','.join(whose.users)}"]
    if whose.reservation and accounts == "account":  # sacct has no such flag
        return [f"--reservation={whose.reservation}"]
    return [f"--{accounts}={whose.account}"] if whose.account else []


def _job(
    job_id: str,
    user: str,
    state: str,
    partition: str,
    node: str,
    start: str,
    ends: str,
    walltime: str,
    account: str,
    reservation: str,
    allocated: str,
    per_job: str,
    per_node: str,
    per_task: str,
    nodes: str,
    tasks: str,
    exit_code: str,
    reason: str,
    name: str,
) -> UserJob:
    """Return the job in one row of squeue."""
    read = State.read(state)
    code, signal = _exit(exit_code)
    return UserJob(
        job_id,
        user,
        read,
        name=name.removesuffix(_SEPARATOR).strip(),
        partition=_value(partition),
        node=_value(node),
        start=_value(start),
        ends=None if read.waits else _value(ends),
        walltime=_value(walltime),
        account=_value(account),
        reservation=_value(reservation),
        gpus=requested_gpus(
            allocated, per_job, (per_node, whole_number(nodes)), (per_task, whole_number(tasks.partition("-")[0]))
        ),
        reason=_value(reason),
        exit_code=code if read.ended else None,
        signal=signal if read.ended else None,
    )


def _exit(text: str) -> tuple[int | None, int | None]:
    """Return the exit code and the signal from ``code:signal`` or, in Slurm 22.05, from a wait status."""
    code, colon, signal = text.partition(":")
    status = whole_number(code)
    if status is None or colon:
        return status, whole_number(signal) or None
    return status >> 8 & 0xFF, status & 0x7F or None


def _past(text: str, mark: str) -> Iterator[UserJob]:
    """Yield the jobs in the rows of sacct; rows with another number of fields are skipped."""
    for line in text.split("\n"):
        row = [field.strip() for field in line.split(mark)]
        if len(row) != _HISTORY.count(",") + 1 or not _JOB.fullmatch(row[0]) or not row[1]:
            continue
        job_id, user, state, exit_code, node, start, end, walltime, partition, account, reservation, name = row
        code, signal = _exit(exit_code)
        by = re.fullmatch(r"CANCELLED by (\S+)", state)
        yield UserJob(
            job_id,
            user,
            State.read(state),
            name=name,
            partition=_value(partition),
            node=_value(node),
            start=_in_utc(start),
            ends=_in_utc(end),
            walltime=_value(walltime),
            account=_value(account),
            reservation=_value(reservation),
            exit_code=code,
            signal=signal,
            by=by[1] if by else None,
        )


def _in_utc(time: str) -> str | None:
    return f"{time}+0000" if _NO_ZONE.fullmatch(time) else _value(time)


def _value(value: str) -> str | None:
    return None if value in _NO_VALUE else value
