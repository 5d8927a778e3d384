"""Why a submit command refused a job: a table maps its messages to what they mean, and what to type.

Each scheduler has a table of its own, in ``submit_errors.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ClusterRefused,
    LauncherError,
    NoRoom,
    SchedulerAway,
    SchedulerMissing,
    SubmitRefused,
)
from notebook_launcher.core.frozen import Frozen

_NOT_REFUSED = (SchedulerAway, NoRoom, ClusterRefused)  # the request was not examined


class RefusalMessage(Frozen):
    """One row: a pattern of the submit command's message, the error for it, what it means, and what to type."""

    pattern: str
    kind: type[SubmitRefused]
    meaning: str
    hint: str


class RefusalTable(Frozen):
    """The messages of one submit command; the first matching row of ``rows`` applies, whatever the case of letters.

    ``title``: the scheduler's name in sentences; ``flags``: what to type to see the command's flags. ``missing``: the
    pattern of messages that say that the scheduler is not installed, or not set up; ``missing_what``,
    ``missing_hint``: the text and the hint of the error then. ``answer_lost``: the pattern of messages after which the
    job may have been queued, since the scheduler was reached and its answer was lost; ``jobs``: the command that shows
    whether it was.
    """

    title: str
    command: str
    rows: Sequence[RefusalMessage]
    flags: str
    answer_lost: str
    jobs: str
    missing: str = r"(?!)"  # matches nothing: then only a submit command that is not found shows it
    missing_what: str = ""
    missing_hint: str = "check that this is the cluster's login node; name another one with --host or in a profile"

    def explain(
        self,
        answer: CommandResult,
        message: str,
        *,
        searched: str | None = None,
        reword: Callable[[RefusalMessage], tuple[str, str]] = lambda row: (row.meaning, row.hint),
    ) -> LauncherError:
        """Return the error for a message, with the message and what it means.

        It is a plain ``SubmitRefused`` for an unknown message, and ``SchedulerMissing`` if the scheduler is not
        installed. ``searched``: the text that the patterns are matched with, if not the message. ``reword``: returns
        the meaning and the hint of a row for this message.
        """
        if answer.exit_code == 127 or re.search(rf"\b{self.command}: command not found|{self.missing}", message):
            what = self.missing_what or f"{self.command} is not found there."
            return SchedulerMissing(what, why=message, hint=self.missing_hint)
        why = f"{self.command}: {message or f'exit code {answer.exit_code}, no message'}"
        text = message if searched is None else searched
        row = next((row for row in self.rows if re.search(row.pattern, text, re.I)), None)
        if row is None:
            return SubmitRefused(f"{self.title} refused the job.", why=why, hint=self.flags)
        meaning, hint = reword(row)
        if row.kind is SchedulerAway and re.search(self.answer_lost, text, re.I):
            look = f"look with: {self.jobs}   and try again if the job is not there soon"
            error = SchedulerAway(meaning, why=why, hint=look)
            error.may_have_heard = True
            return error
        opening = "The job was not queued." if row.kind in _NOT_REFUSED else f"{self.title} refused the job."
        return row.kind(f"{opening} {meaning}", why=why, hint=hint)
