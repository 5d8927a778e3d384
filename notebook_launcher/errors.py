"""One exception class per cause: what happened, why we think so, what to type next.

Every class carries the exit code of the command, so that a script can tell the causes apart. The codes are
documented in ``docs/errors.md``; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class LauncherError(Exception):
    """Something that the user should know, in words; never shown as a traceback.

    ``what`` happened, ``why`` we think so (evidence, often the tool's own words), ``mend``: what to type or do
    next, ``log``: the last lines of the job's log, when they tell more.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", mend: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.mend = mend
        self.log = tuple(log)

    @property
    def kind(self) -> str:
        """The cause's name in ``--json`` output, for example ``SubmitRefused``."""
        return type(self).__name__


class OurBug(LauncherError):
    """Something in launch-notebook itself went wrong; the message says where the details are and how to report it."""

    exit_code = 70


class UsageError(LauncherError):
    """The command line asks for something that cannot be asked; raised before anything is contacted."""

    exit_code = 2


class ProfileError(LauncherError):
    """A cluster profile or the configuration is missing, cannot be read, or has a wrong key or value."""

    exit_code = 3


class EnvironmentUnknown(LauncherError):
    """The environment named after ``--`` is not in the profile."""

    exit_code = 4


class ConnectionFailed(LauncherError):
    """The login node cannot be reached: name, network, port, or the server closed the connection."""

    exit_code = 10


class AuthenticationFailed(LauncherError):
    """The login node (or compute node) does not let this user in."""

    exit_code = 11


class HostKeyUnknown(LauncherError):
    """The server's host key is not known and nobody could be asked, or the user said no."""

    exit_code = 12


class HostKeyChanged(LauncherError):
    """The server shows another host key than the known one; nothing was sent to it."""

    exit_code = 13


class NodeUnreachable(LauncherError):
    """The job runs, but no byte stream to its compute node could be made."""

    exit_code = 14


class ConnectionLost(LauncherError):
    """The connection to the login node broke while the session lives on."""

    exit_code = 15


class HostCommandFailed(LauncherError):
    """A command of ours failed on the login node: disk full, no shell, no permission, no answer in time."""

    exit_code = 16


class SchedulerSilent(LauncherError):
    """The scheduler does not say what became of the job; the session may go on."""

    exit_code = 17


class SubmitRefused(LauncherError):
    """The scheduler refused the job; nothing is queued."""

    exit_code = 20


class SchedulerMissing(LauncherError):
    """The scheduler's commands are not found where they are expected."""

    exit_code = 21


class SubmitUncertain(LauncherError):
    """Whether the job was queued could not be found out; the message tells its name and how to look."""

    exit_code = 22


class JobNeverStarts(LauncherError):
    """The scheduler accepted a request that it can never start; the job has been cancelled."""

    exit_code = 23


class JobFailed(LauncherError):
    """The job ended before or while it was used, by a failure of its own."""

    exit_code = 30


class JobCancelled(LauncherError):
    """Somebody else cancelled the job (the user elsewhere, an operator, the scheduler's preemption)."""

    exit_code = 31


class JobTimedOut(LauncherError):
    """The job reached its walltime."""

    exit_code = 32


class JobLost(LauncherError):
    """The scheduler no longer knows the job and it left no word: node failure, restart without memory."""

    exit_code = 33


class JupyterSilent(LauncherError):
    """The tunnel stands, but Jupyter does not answer through it as it should."""

    exit_code = 34


class JobSilent(LauncherError):
    """The job runs, but its script has not written a word into the session's directory."""

    exit_code = 35


class SessionNotFound(LauncherError):
    """No session with that name, or none at all, is found on the cluster."""

    exit_code = 40


class CancelFailed(LauncherError):
    """The job could not be cancelled, or is still there after it was; the message tells its id."""

    exit_code = 41


class Interrupted(LauncherError):
    """Ctrl-C before the session was usable; the job, if there was one, is gone."""

    exit_code = 130
