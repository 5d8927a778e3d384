"""A practice cluster on one machine: real Slurm, OpenSSH and Apptainer in Linux namespaces.

`python3 tests/practice_cluster up` starts it; see docs/practice-cluster.md. Tests use `PracticeCluster`.
"""

from .cluster import PracticeCluster
from .errors import ClusterError, NotPossibleHereError, NotUpError
from .layout import BOXES, GENERATIONS, USERS
from .totp import one_time_code

__all__ = [
    "BOXES",
    "GENERATIONS",
    "USERS",
    "ClusterError",
    "NotPossibleHereError",
    "NotUpError",
    "PracticeCluster",
    "one_time_code",
]
