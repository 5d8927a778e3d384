"""What can go wrong with the practice cluster, one class per kind of answer."""


class ClusterError(Exception):
    """Something did not work; the message is a whole sentence for the person at the keyboard."""

    exit_code = 1


class NotPossibleHereError(ClusterError):
    """This machine cannot hold a practice cluster: not Linux, not root, or a program is missing."""

    exit_code = 3


class MirrorError(ClusterError):
    """A mirror does not answer, or what it has does not fit together just now: tomorrow it may."""


class ReleaseUnusableError(ClusterError):
    """A Debian that changes from day to day cannot be installed today: not a fault of what is tested."""

    exit_code = 4


class NotUpError(ClusterError):
    """A command needs a running cluster and there is none."""
