"""What LSF tells of queues and hosts: by recordings of openlava, and in the form that LSF's manual has for its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core import errors
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.cluster_info import Node
from notebook_launcher.schedulers.lsf.cluster_info import read_queues
from notebook_launcher.schedulers.lsf.commands import Lsf
from tests import paths
from tests.unit.schedulers import recordings

INFO = Lsf().cluster_info
assert INFO is not None
PART = "--- part ---\n"

QUEUES = """
QUEUE: hpc
  -- for all.  This is the default queue.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    -    12     8     4     0     0    0     2
Interval for a host to accept two jobs is 0 seconds

DEFAULT LIMITS:
 RUNLIMIT
 15.0 min

MAXIMUM LIMITS:
 CPULIMIT                 RUNLIMIT
 9000.0 min               4320.0 min

SCHEDULING PARAMETERS
           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem
 loadSched   -     -     -     -       -     -    -     -     -      -      -

USERS: all
HOSTS:  all ~v2
-------------------------------------------------------------------------------

QUEUE: gpuv100
  --

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Inact_Adm    -    -    -    -     4     0     4     0     0    0     0

 RUNLIMIT
 1440.0 min

USERS: students/
HOSTS:  volta/
"""
HOSTS = """\
HOST_NAME          STATUS       JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV
c1                 ok              -     24      4      4      0      0      0
v1                 closed_Full     -     16     16     16      0      0      0
v2                 closed_Adm      -     16      0      0      0      0      0
"""
GROUPS = "GROUP_NAME    HOSTS\nvolta         newer/ v1\nnewer         v2\n"
GPUS = """\
HOST_NAME            GPU_ID                MODEL     MUSED      MRSV  NJOBS    RUN   SUSP    RSV
v1                        0  TeslaV100_PCIE_32GB      273M        0M      1      1      0      0
                          1  TeslaV100_PCIE_32GB      273M        0M      0      0      0      0
v2                        0  TeslaV100_PCIE_32GB     14.5G        0M      0      0      0      1
"""


def recorded(name: str) -> CommandResult:
    return recordings.recorded(paths.RECORDED / "lsf", name)


def test_queues_with_their_limits() -> None:
    found = INFO.read_partitions(CommandResult(0, QUEUES))
    assert found and [(one.name, one.is_default, one.is_up) for one in found] == [
        ("hpc", True, True),
        ("gpuv100", False, False),
    ]
    assert [one.walltime and one.walltime.as_text() for one in found] == ["3 days", "1 day"]
    assert [one.usual for one in read_queues(QUEUES)] == [15, None]
    older = INFO.read_partitions(recorded("openlava-bqueues-l"))
    assert older and older[0].walltime and older[0].walltime.as_text() == "10 minutes" and older[0].is_up


def test_hosts_of_each_queue_with_their_gpus() -> None:
    found = INFO.read_nodes(CommandResult(0, PART.join([HOSTS, QUEUES, GROUPS, GPUS])))
    v100 = "TeslaV100_PCIE_32GB"
    assert found == (
        Node("c1", "hpc", "ok", True, 24, 4),
        Node("v1", "hpc", "closed_Full", True, 16, 16, {v100: 2}, {v100: 1}),
        Node("v1", "gpuv100", "closed_Full", True, 16, 16, {v100: 2}, {v100: 1}),
        Node("v2", "gpuv100", "closed_Adm", False, 16, 0, {v100: 1}, {v100: 1}),
    )
    unknown = QUEUES.replace("volta/", "volta/ elsewhere/")
    found = INFO.read_nodes(CommandResult(0, PART.join([HOSTS, unknown, GROUPS, GPUS])))
    assert found and {one.partition for one in found} == {"hpc"}, "where its jobs run is not known for certain"


def test_older_versions_say_only_that_a_host_is_closed() -> None:
    queues = recorded("openlava-bqueues-l").stdout
    for name, used in (("openlava-bhosts", 0), ("openlava-bhosts-busy", 2)):
        found = INFO.read_nodes(CommandResult(0, f"{recorded(name).stdout}{PART}{queues}"))
        assert found and (found[0].available, found[0].cores, found[0].cores_used) == (True, 2, used)
    closed = recorded("openlava-bhosts").stdout.replace("ok    ", "closed")
    found = INFO.read_nodes(CommandResult(0, f"{closed}{PART}{queues}"))
    assert found and not found[0].available


def test_who_waits() -> None:
    found = INFO.read_pending_jobs(CommandResult(0, "7^alice^hpc^4\n8^bob^gpuv100^-\nLSF is busy\n"))
    assert found and [(one.id, one.user, one.partition, one.cores) for one in found] == [
        ("7", "alice", "hpc", 4),
        ("8", "bob", "gpuv100", None),
    ]
    older = INFO.read_pending_jobs(recorded("openlava-bjobs-u-all"))
    assert older and [one.id for one in older] == ["103", "104", "105", "106"]
    assert INFO.read_pending_jobs(recorded("openlava-bjobs-empty")) == ()
    assert INFO.read_pending_jobs(CommandResult(255, "", "LSF is down")) is None


def test_no_start_is_estimated_and_flags_are_checked() -> None:
    assert INFO.estimate_start(Request({"time": "1:00:00"})) is None
    with pytest.raises(errors.UsageError, match="--qos"):
        INFO.estimate_start(Request({"time": "1:00:00", "qos": "high"}))


@given(
    st.sampled_from([QUEUES, PART.join([HOSTS, QUEUES, GROUPS, GPUS]), "7^alice^hpc^4\n"]).flatmap(recordings.damaged)
)
def test_damaged_tables_break_nothing(text: str) -> None:
    for code in (0, 255):
        INFO.read_nodes(CommandResult(code, text))
        INFO.read_pending_jobs(CommandResult(code, text))
        INFO.read_partitions(CommandResult(code, text))


@given(st.integers(0, len(QUEUES)))
def test_a_cut_table_has_fewer_queues_and_none_that_is_wrong(at: int) -> None:
    whole = INFO.read_partitions(CommandResult(0, QUEUES)) or ()
    assert set(INFO.read_partitions(CommandResult(0, QUEUES[:at])) or ()) <= set(whole)
