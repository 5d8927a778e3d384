"""What a scheduler reports about the jobs of several users, for a teacher: pairs of a command and a parser. Pure.

Not every site lets everybody see the jobs of others. ``None`` means not reported, which is not the same as none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.schedulers.base import State


class Selection(Frozen):
    """Whose jobs are listed: those of ``users``; if that is empty, those of a ``reservation`` or an ``account``."""

    users: tuple[str, ...] = ()
    account: str | None = None
    reservation: str | None = None


class UserJob(Frozen):
    """A job of any user, in any state. ``None``: not reported.

    ``start``: when it started or, while it is pending, when the scheduler expects it to start. ``ends``: when it ended
    or, while it runs, when its walltime ends. Both are in ISO format; without a zone, on the cluster's clock.
    ``walltime``: as the scheduler writes it. ``gpus``: how many it has or, while it is pending, requests. ``by``: who
    cancelled it. ``name``: chosen by its user, so it may be any text.
    """

    id: str
    user: str
    state: State
    name: str = ""
    partition: str | None = None
    node: str | None = None
    start: str | None = None
    ends: str | None = None
    walltime: str | None = None
    account: str | None = None
    reservation: str | None = None
    gpus: int | None = None
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    by: str | None = None


class UserJobs(ABC):
    """Pairs of a command and a parser. Parsers never raise on unexpected text."""

    @abstractmethod
    def jobs(self, whose: Selection, cluster: str | None, mark: str) -> list[str]:
        """Return the command that lists the jobs of these users, including those that ended a short while ago.

        ``mark``: a random word that marks each line, so that no text chosen by a user can pass for a line.
        """

    @abstractmethod
    def read_jobs(self, answer: CommandResult, mark: str) -> tuple[UserJob, ...] | None:
        """Return those of these jobs that this user may see; ``None``: the scheduler did not answer."""

    @abstractmethod
    def ended_jobs(self, whose: Selection, cluster: str | None, since: datetime, mark: str) -> list[str]:
        """Return the command that lists from the history the jobs that ran or ended after a time.

        ``mark``: a random word that separates the fields.
        """

    @abstractmethod
    def read_ended_jobs(self, answer: CommandResult, mark: str) -> tuple[UserJob, ...] | None:
        """Return those of these jobs that have ended, without their GPUs; ``None``: the history did not answer."""

    @abstractmethod
    def members(self, users: Sequence[str], account: str) -> list[str]:
        """Return the command that lists which of these users may use an account."""

    @abstractmethod
    def read_members(self, answer: CommandResult) -> frozenset[str] | None:
        """Return the users that may use the account; ``None``: the scheduler did not answer."""
