"""One exception class per cause: what happened, why we think so, what to type next.

Every class carries the exit code of the command, so that a script can tell the causes apart. The codes are
documented in ``docs/errors.md``; a test checks that they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class LauncherError(Exception):
    """An error for the user; shown as a message, never as a traceback.

    ``what`` happened, ``why`` we think so (evidence, often the tool's own message), ``hint``: what to type or do next,
    ``log``: the last lines of the job's log, if they explain it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", hint: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.log = tuple(log)

    @property
    def kind(self) -> str:
        """The cause's name in ``--json`` output, for example ``SubmitRefused``."""
        return type(self).__name__


class OurBug(LauncherError):
    """Something in launch-notebook itself went wrong; the message says where the details are and how to report it."""

    exit_code = 70


class UsageError(LauncherError):
    """The command line asks for something impossible; raised before anything is submitted."""

    exit_code = 2


class ProfileError(LauncherError):
    """A cluster profile or the configuration is missing, cannot be read, or has a wrong key or value."""

    exit_code = 3


class EnvironmentUnknown(LauncherError):
    """The environment named after ``--`` is not in the profile."""

    exit_code = 4


class ClusterUnavailable(LauncherError):
    """No session can be launched on this cluster: it is retired, or forbids forwarding; the message says what works."""

    exit_code = 5


class AnswerMissing(LauncherError):
    """A required value, such as the account, is missing, and there is no terminal to ask on; the message names it."""

    exit_code = 6


class DigestDiffers(LauncherError):
    """A course file or an image does not have the expected digest."""

    exit_code = 7


class ChecksFailed(LauncherError):
    """``doctor`` or ``env check`` found a fault that would make a launch fail."""

    exit_code = 8


class FetchFailed(LauncherError):
    """A course file or a notebook could not be downloaded."""

    exit_code = 9


class ConnectionFailed(LauncherError):
    """The login node cannot be reached: name, network, port, or the server closed the connection.

    ``openssh_may_help``: it was paramiko that could not connect, and the system's ``ssh`` may be able to.
    """

    exit_code = 10
    openssh_may_help = False


class AuthenticationFailed(LauncherError):
    """The login node (or compute node) did not authenticate this user. ``openssh_may_help``: see ConnectionFailed."""

    exit_code = 11
    openssh_may_help = False


class HostKeyUnknown(LauncherError):
    """The server's host key is unknown, and the user declined it or could not be asked."""

    exit_code = 12


class HostKeyChanged(LauncherError):
    """The server's host key differs from the known one; nothing was sent to it."""

    exit_code = 13


class NodeUnreachable(LauncherError):
    """The job runs, but no route to its compute node could be opened."""

    exit_code = 14


class ConnectionLost(LauncherError):
    """The connection to the login node broke while the session lives on."""

    exit_code = 15


class HostCommandFailed(LauncherError):
    """A command of the launcher failed on the login node: disk full, no shell, no permission, timeout.

    ``may_have_run``: the command may have had an effect; ``may_go_on``: it may still be at work in its directory.
    """

    exit_code = 16
    may_have_run = True
    may_go_on = False


class LoginShellSilent(HostCommandFailed):
    """The login shell runs no commands, or their output is lost: a start-up file ends, replaces or redirects it."""

    exit_code = 18


class LoginSetupFailed(LoginShellSilent):
    """A line of the profile's ``login_setup`` failed, or ended the login shell: no command was run after it."""

    exit_code = 29


class SchedulerSilent(LauncherError):
    """The scheduler does not report how the job ended; the session may go on."""

    exit_code = 17


class AddressRefused(ConnectionFailed):
    """The login node refuses this machine's address for a while, after failed logins from it."""

    exit_code = 19


class LoginBusy(ConnectionFailed):
    """The login node kept closing new connections before any login, for as long as the launcher tried."""

    exit_code = 44


class SubmitRefused(LauncherError):
    """The scheduler refused the job; nothing is queued."""

    exit_code = 20


class AccountRefused(SubmitRefused):
    """The user does not have this account on the cluster, or it is not allowed in this partition."""

    exit_code = 50


class PartitionRefused(SubmitRefused):
    """There is no such partition, it is closed, or the user may not use it."""

    exit_code = 51


class QosRefused(SubmitRefused):
    """There is no such QOS, or the user may not use it there."""

    exit_code = 52


class ReservationRefused(SubmitRefused):
    """There is no such reservation, it is over, or it is not for this user."""

    exit_code = 53


class WalltimeRefused(SubmitRefused):
    """The requested walltime, begin time or deadline is not allowed there."""

    exit_code = 54


class GresRefused(SubmitRefused):
    """The cluster has no such GPU or other GRES."""

    exit_code = 55


class ConstraintRefused(SubmitRefused):
    """No node has the requested feature or name."""

    exit_code = 56


class SizeRefused(SubmitRefused):
    """No node can ever provide the request: cores, nodes, memory, GPUs of that type, or all of it together."""

    exit_code = 57


class LicenceRefused(SubmitRefused):
    """The cluster does not have the requested licence, or never that many."""

    exit_code = 58


class LimitRefused(SubmitRefused):
    """A limit of the account, the QOS or the cluster does not allow this job: its size, its length, or one more job."""

    exit_code = 59


class NoRoom(SubmitRefused):
    """A disk is full or a quota is used up, the user's or the scheduler's: the job's files could not be written."""

    exit_code = 60


class ClusterRefused(SubmitRefused):
    """There is no cluster of that name to submit to, or other clusters cannot be reached at the moment."""

    exit_code = 61


class DependencyRefused(SubmitRefused):
    """The dependency is invalid: its job is unknown or did not end as required, or its syntax is wrong."""

    exit_code = 62


class SchedulerAway(SubmitRefused):
    """The scheduler did not answer the submission: it is restarting, too busy, or its machine is down.

    ``may_have_heard``: the connection was made but no answer came, so the job may have been queued all the same.
    """

    exit_code = 63
    may_have_heard = False


class SchedulerMissing(LauncherError):
    """The scheduler's commands are not found where they are expected.

    ``names_instead``: the message says what was found in their place. ``names_module``: what was found is a module.
    """

    exit_code = 21
    names_instead = False
    names_module = False


class SubmitUncertain(LauncherError):
    """It is not known whether the job was queued; the message has its name and how to look for it."""

    exit_code = 22


class JobNeverStarts(LauncherError):
    """The scheduler accepted a request that it can never start; the job has been cancelled."""

    exit_code = 23


class ImageFailed(LauncherError):
    """An image could not be built or pulled; an existing one is unchanged."""

    exit_code = 24


class EnvironmentFailed(LauncherError):
    """An environment could not be exported or created."""

    exit_code = 25


class FolderUnsafe(LauncherError):
    """Another user could replace the folder for the session's files; nothing was written."""

    exit_code = 27


class ImageNotMade(LauncherError):
    """The environment's image does not exist yet, and the user can build or pull it; nothing was submitted."""

    exit_code = 28


class JobFailed(LauncherError):
    """The job failed by itself, before or during its use."""

    exit_code = 30


class OutOfMemory(JobFailed):
    """The job needed more memory than it had requested, or than its GPU has."""

    exit_code = 80


class NodeFailed(JobFailed):
    """The compute node failed under the job."""

    exit_code = 81


class Preempted(JobFailed):
    """The job was preempted by one with a higher priority, and not requeued."""

    exit_code = 82


class BootFailed(JobFailed):
    """The compute node could not be prepared for the job: it did not boot, or the output file could not be opened."""

    exit_code = 83


class DeadlinePassed(JobFailed):
    """The job could not finish before its deadline."""

    exit_code = 84


class Revoked(JobFailed):
    """Another cluster of the federation runs the job."""

    exit_code = 85


class ModuleFailed(JobFailed):
    """A module could not be loaded on the compute node, or there is no ``module`` command."""

    exit_code = 90


class ImageUnusable(JobFailed):
    """The container image is missing on the compute node, or not readable."""

    exit_code = 91


class BindMissing(JobFailed):
    """A bind mount's source is missing on the compute node."""

    exit_code = 92


class ContainerFailed(JobFailed):
    """There is no container command on the compute node, or it could not run the image."""

    exit_code = 93


class ActivationFailed(JobFailed):
    """The conda environment, the virtual environment or the activation code did not work on the compute node."""

    exit_code = 94


class JupyterMissing(JobFailed):
    """There is no JupyterLab in the environment."""

    exit_code = 95


class JupyterCrashed(JobFailed):
    """JupyterLab exited unexpectedly, or was stopped because it accepted requests without a token."""

    exit_code = 96


class JupyterSlow(JobFailed):
    """JupyterLab did not listen within the time that the environment allows."""

    exit_code = 97


class HomeUnusable(JobFailed):
    """A disk, mostly the user's home folder, is not writable on the compute node: full, over quota or read-only."""

    exit_code = 98


class WorkersFailed(JobFailed):
    """The workers of ``--with`` did not start: Dask or Ray is missing in the environment, or not all have joined."""

    exit_code = 99


class JobCancelled(LauncherError):
    """Somebody cancelled the job: the user from elsewhere (``by_user``), an operator, the scheduler."""

    exit_code = 31
    by_user = False


class JobTimedOut(LauncherError):
    """The job reached its walltime."""

    exit_code = 32


class JobLost(LauncherError):
    """The scheduler no longer knows the job, and neither the scheduler nor the job's log shows how it ended."""

    exit_code = 33


class JupyterSilent(LauncherError):
    """The tunnel is open, but Jupyter does not answer through it as it should."""

    exit_code = 34


class JobSilent(LauncherError):
    """The job runs, but its script has not written anything into the session's directory."""

    exit_code = 35


class NotebookInvalid(LauncherError):
    """A file is not a valid notebook, or it has no parameter of a given name; nothing was queued."""

    exit_code = 26


class NotebookFailed(LauncherError):
    """A cell of a notebook in a batch job raised an error, or its kernel died; the results so far were fetched."""

    exit_code = 36


class ScriptInvalid(LauncherError):
    """A job script cannot be submitted: it is missing, not text, too large, or does not begin with ``#!``."""

    exit_code = 38


class ScriptFailed(LauncherError):
    """A submitted job script ended with an exit code other than 0; the last lines that it printed are shown."""

    exit_code = 39


class BenchIncomplete(LauncherError):
    """The report was written, but some combinations of the matrix failed or were not run; it lists them."""

    exit_code = 37


class RosterInvalid(LauncherError):
    """A list of students cannot be read, is empty, or has a line that is not a user name."""

    exit_code = 43


class SessionNotFound(LauncherError):
    """The cluster has no session with that name, or none at all."""

    exit_code = 40


class NothingMeasured(LauncherError):
    """There are no samples of the resources that a session used."""

    exit_code = 42


class CancelFailed(LauncherError):
    """The job could not be cancelled, or still exists after it was; the message has its id."""

    exit_code = 41


class CopyRefused(LauncherError):
    """Nothing was copied: a source is missing or unreadable, the destination exists, or there is not enough space."""

    exit_code = 100


class CopyFailed(LauncherError):
    """A copy stopped: a disk is full, a source changed or vanished, or the connection was lost.

    The part copied so far is kept, and the same command continues from there.
    """

    exit_code = 101


class Interrupted(LauncherError):
    """Ctrl-C before the session was usable, or during a run or a copy; the job, if there was one, is cancelled."""

    exit_code = 130
