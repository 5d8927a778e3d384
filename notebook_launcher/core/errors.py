"""One exception class per cause: what happened, why we think so, what to type next.

Every class carries the exit code of the command, so that a script can tell the causes apart. The codes are
documented in ``docs/errors.md``; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class LauncherError(Exception):
    """Something that the user should know, in words; never shown as a traceback.

    ``what`` happened, ``why`` we think so (evidence, often the tool's own words), ``hint``: what to type or do
    next, ``log``: the last lines of the job's log, when they tell more.
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
    """The command line asks for something that cannot be asked; raised before anything is contacted."""

    exit_code = 2


class ProfileError(LauncherError):
    """A cluster profile or the configuration is missing, cannot be read, or has a wrong key or value."""

    exit_code = 3


class EnvironmentUnknown(LauncherError):
    """The environment named after ``--`` is not in the profile."""

    exit_code = 4


class ClusterUnavailable(LauncherError):
    """No session can be launched on this cluster: it is retired, or forbids forwarding; the message has the way."""

    exit_code = 5


class AnswerMissing(LauncherError):
    """Something has to be known, such as the account, and nobody could be asked; the message names the flag."""

    exit_code = 6


class DigestDiffers(LauncherError):
    """A course file or an image is not the one whose digest was given or kept."""

    exit_code = 7


class ChecksFailed(LauncherError):
    """``doctor`` or ``env check`` found something that a launch will stumble over."""

    exit_code = 8


class FetchFailed(LauncherError):
    """A course file or a notebook could not be fetched from its address."""

    exit_code = 9


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
    """The job runs, but no route to its compute node could be opened."""

    exit_code = 14


class ConnectionLost(LauncherError):
    """The connection to the login node broke while the session lives on."""

    exit_code = 15


class HostCommandFailed(LauncherError):
    """A command of ours failed on the login node: disk full, no shell, no permission, no answer in time."""

    exit_code = 16


class SchedulerSilent(LauncherError):
    """The scheduler does not report how the job ended; the session may go on."""

    exit_code = 17


class SubmitRefused(LauncherError):
    """The scheduler refused the job; nothing is queued."""

    exit_code = 20


class AccountRefused(SubmitRefused):
    """The account is not the user's on this cluster, or may not be used in this partition."""

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
    """The walltime, begin time or deadline asked for is not allowed there."""

    exit_code = 54


class GresRefused(SubmitRefused):
    """The cluster has no such GPU or other GRES."""

    exit_code = 55


class ConstraintRefused(SubmitRefused):
    """No node has the feature or the name asked for."""

    exit_code = 56


class SizeRefused(SubmitRefused):
    """No node there can ever give what was asked for: cores, nodes, memory, GPUs of that type, all of it together."""

    exit_code = 57


class LicenceRefused(SubmitRefused):
    """The licence asked for is not known there, or there are never as many."""

    exit_code = 58


class LimitRefused(SubmitRefused):
    """A limit of the account, the QOS or the cluster does not allow this job: its size, its length, or one more."""

    exit_code = 59


class NoRoom(SubmitRefused):
    """A disk is full or a quota used up, the user's or the scheduler's: the job's files could not be written."""

    exit_code = 60


class ClusterRefused(SubmitRefused):
    """There is no cluster of that name to send jobs to, or other clusters cannot be reached at the moment."""

    exit_code = 61


class DependencyRefused(SubmitRefused):
    """The job that this one should wait for is not known or did not end as asked for, or the dependency is no such."""

    exit_code = 62


class SchedulerAway(SubmitRefused):
    """The scheduler did not answer when the job was to be queued: it is restarting, too busy, or its machine is down.

    ``may_have_heard``: it was reached, and its answer was not heard: then it may have queued the job all the same.
    """

    exit_code = 63
    may_have_heard = False


class SchedulerMissing(LauncherError):
    """The scheduler's commands are not found where they are expected."""

    exit_code = 21


class SubmitUncertain(LauncherError):
    """Whether the job was queued could not be found out; the message tells its name and how to look."""

    exit_code = 22


class JobNeverStarts(LauncherError):
    """The scheduler accepted a request that it can never start; the job has been cancelled."""

    exit_code = 23


class ImageFailed(LauncherError):
    """An image could not be built or pulled; nothing took its place."""

    exit_code = 24


class EnvironmentFailed(LauncherError):
    """An environment could not be exported or made."""

    exit_code = 25


class JobFailed(LauncherError):
    """The job ended before or while it was used, by a failure of its own."""

    exit_code = 30


class OutOfMemory(JobFailed):
    """The job needed more memory than it had asked for, or than its GPU has."""

    exit_code = 80


class NodeFailed(JobFailed):
    """The compute node failed under the job."""

    exit_code = 81


class Preempted(JobFailed):
    """The job had to make room for one that goes first, and was not put back into the queue."""

    exit_code = 82


class BootFailed(JobFailed):
    """The compute node, or what the job needs there to start, could not be made ready: a boot, its output's file."""

    exit_code = 83


class DeadlinePassed(JobFailed):
    """The job could not be done before its deadline."""

    exit_code = 84


class Revoked(JobFailed):
    """The job went on as another cluster's, where several clusters compete for it."""

    exit_code = 85


class ModuleFailed(JobFailed):
    """A module could not be loaded on the compute node, or there is no ``module`` command."""

    exit_code = 90


class ImageUnusable(JobFailed):
    """The container image is not there on the compute node, or may not be read."""

    exit_code = 91


class BindMissing(JobFailed):
    """What the container should see is not there on the compute node."""

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
    """JupyterLab ended by itself, or was ended because it let strangers in."""

    exit_code = 96


class JupyterSlow(JobFailed):
    """JupyterLab did not listen within the time that the environment gives it."""

    exit_code = 97


class HomeUnusable(JobFailed):
    """A disk cannot be written on the compute node: full, beyond a quota or read-only; mostly the user's home."""

    exit_code = 98


class JobCancelled(LauncherError):
    """Somebody cancelled the job: the user from elsewhere (``by_user``), an operator, the scheduler."""

    exit_code = 31
    by_user = False


class JobTimedOut(LauncherError):
    """The job reached its walltime."""

    exit_code = 32


class JobLost(LauncherError):
    """The scheduler no longer knows the job, and neither it nor its log left a word why."""

    exit_code = 33


class JupyterSilent(LauncherError):
    """The tunnel stands, but Jupyter does not answer through it as it should."""

    exit_code = 34


class JobSilent(LauncherError):
    """The job runs, but its script has not written a word into the session's directory."""

    exit_code = 35


class NotebookInvalid(LauncherError):
    """A file is not a notebook that could be run, or a parameter is none of its; nothing was queued."""

    exit_code = 26


class NotebookFailed(LauncherError):
    """A cell of a notebook that ran as a batch job raised an error, or its kernel died; what there is was fetched."""

    exit_code = 36


class BenchIncomplete(LauncherError):
    """The report was made, and some combinations of the matrix failed or were not run; it tells which."""

    exit_code = 37


class SessionNotFound(LauncherError):
    """No session with that name, or none at all, is found on the cluster."""

    exit_code = 40


class NothingMeasured(LauncherError):
    """There are no samples of what a session used."""

    exit_code = 42


class CancelFailed(LauncherError):
    """The job could not be cancelled, or is still there after it was; the message tells its id."""

    exit_code = 41


class CopyRefused(LauncherError):
    """Nothing was copied: a source is missing or unreadable, the destination is taken, or there is no room for it."""

    exit_code = 100


class CopyFailed(LauncherError):
    """A copy broke off: a disk is full, a source changed or vanished, the connection stayed away.

    What has been copied so far is kept, and the same command continues from there.
    """

    exit_code = 101


class Interrupted(LauncherError):
    """Ctrl-C before the session was usable; the job, if there was one, is gone."""

    exit_code = 130
