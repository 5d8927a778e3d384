"""The exceptions of the practice cluster, one class per cause."""


class ClusterError(Exception):
    """Something failed; the message is a complete sentence for the user."""

    exit_code = 1


class NotPossibleHereError(ClusterError):
    """This machine cannot run a practice cluster: not Linux, not root, or a program is missing."""

    exit_code = 3


class MirrorError(ClusterError):
    """A mirror does not answer, or its packages are temporarily inconsistent."""


class ReleaseUnusableError(ClusterError):
    """A Debian release that changes daily cannot be installed today, which is not a fault of the tested code."""

    exit_code = 4


class NotUpError(ClusterError):
    """A command needs a running cluster and there is none."""
