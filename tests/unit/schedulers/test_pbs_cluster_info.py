"""What PBS tells of queues and hosts, by recordings of OpenPBS, and in the form that its guides have for more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core import errors
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.cluster_info import Node
from notebook_launcher.schedulers.pbs.cluster_info import read_queues
from notebook_launcher.schedulers.pbs.commands import Pbs
from tests import paths
from tests.unit.schedulers import recordings

INFO = Pbs().cluster_info
assert INFO is not None


def recorded(name: str) -> CommandResult:
    return recordings.recorded(paths.RECORDED / "pbs", name)


QUEUES = recorded("04-qstat-Qf").stdout
SERVER = "Server: node1\n    server_state = Active\n    default_queue = workq\n    query_other_jobs = True\n\n"
# queues that only some nodes serve: by an attribute of the node, and by a resource of the queue's chunks
TWO_QUEUES = """
Queue: cpu
    queue_type = Execution
    resources_default.walltime = 3600
    default_chunk.ncpus = 1
    default_chunk.Qlist = cpu
    acl_group_enable = True
    acl_groups = phys,chem@uni
    enabled = True
    started = True

Queue: gpu
    queue_type = Execution
    resources_max.nodect = 1
    default_chunk.Qlist = gpu
    enabled = True
    started = True

Queue: route
    queue_type = Route
    route_destinations = cpu,gpu
    enabled = True
    started = True

Queue: own
    queue_type = Execution
    enabled = True
    started = True
"""
VNODES = """
n1
     Mom = n1
     state = free
     resources_available.host = n1
     resources_available.ncpus = 0
     resources_available.Qlist = cpu,gpu

n1[0]
     Mom = n1
     state = free
     resources_available.host = n1
     resources_available.ncpus = 32
     resources_available.ngpus = 2
     resources_available.Qlist = cpu,gpu
     resources_assigned.ncpus = 8
     resources_assigned.ngpus = 1

n2
     Mom = n2
     state = offline,down
     resources_available.host = n2
     resources_available.ncpus = 16
     queue = own

"""


def test_queues_with_their_limits() -> None:
    found = INFO.read_partitions(CommandResult(0, QUEUES + SERVER))
    assert found and [(one.name, one.is_default, one.is_up) for one in found] == [
        ("workq", True, True),
        ("small", False, True),
        ("closed", False, False),
        ("stopped", False, False),
        ("slurmlike", False, True),
    ]
    assert [one.walltime and one.walltime.as_text() for one in found] == [None, "10 minutes", None, None, None]
    assert read_queues(QUEUES)[4].users == {"root"}
    assert INFO.read_partitions(recorded("141-server-down-qstat")) is None


def test_who_may_use_a_queue_and_how_long_without_a_walltime() -> None:
    cpu, gpu, route, _ = read_queues(TWO_QUEUES)
    assert (cpu.groups, cpu.usual, gpu.groups, gpu.most_hosts) == ({"phys", "chem"}, "1:00:00", None, 1)
    assert not route.runs


def test_hosts_with_what_is_in_use() -> None:
    found = INFO.read_nodes(CommandResult(0, f"{recorded('106-pbsnodes-a-busy').stdout}\n{QUEUES}"))
    assert found and [one.partition for one in found] == ["workq", "small", "closed", "stopped", "slurmlike"]
    assert found[0] == Node("node1", "workq", "job-busy", True, 2, 2)
    idle = INFO.read_nodes(CommandResult(0, f"{recorded('06-pbsnodes-a-idle').stdout}\n{QUEUES}"))
    assert idle and (idle[0].available, idle[0].cores_used) == (True, 0)


def test_hosts_are_in_the_queues_that_they_serve_with_all_their_parts() -> None:
    found = INFO.read_nodes(CommandResult(0, VNODES + TWO_QUEUES))
    assert found == (
        Node("n1", "cpu", "free", True, 32, 8, {"": 2}, {"": 1}),
        Node("n1", "gpu", "free", True, 32, 8, {"": 2}, {"": 1}),
        Node("n1", "own", "free", True, 32, 8, {"": 2}, {"": 1}),
        Node("n2", "own", "offline,down", False, 16, 0),
    )


def test_who_waits() -> None:
    found = INFO.read_pending_jobs(recorded("105-qstat-w"))
    assert found and [(one.id, one.user, one.partition, one.cores) for one in found] == [
        ("42.node1", "pbsuser", "workq", 1),
        ("44.node1", "pbsuser", "workq", 2),
        ("45.node1", "pbsuser", "workq", 2),
        ("46.node1", "pbsuser", "workq", 1),
    ]
    assert INFO.read_pending_jobs(recorded("141-server-down-qstat")) is None
    assert INFO.read_private_data(CommandResult(0, SERVER)) is False
    assert INFO.read_private_data(CommandResult(0, "")) is None


def test_no_start_is_estimated_and_flags_are_checked() -> None:
    assert INFO.estimate_start(Request({"time": "1:00:00"})) is None
    with pytest.raises(errors.UsageError, match="--qos"):
        INFO.estimate_start(Request({"time": "1:00:00", "qos": "high"}))


@given(
    st.sampled_from([QUEUES + SERVER, VNODES + TWO_QUEUES, recorded("105-qstat-w").stdout]).flatmap(recordings.damaged)
)
def test_damaged_tables_break_nothing(text: str) -> None:
    for code in (0, 255):
        INFO.read_partitions(CommandResult(code, text))
        INFO.read_nodes(CommandResult(code, text))
        INFO.read_pending_jobs(CommandResult(code, text))
        INFO.read_private_data(CommandResult(code, text))


@given(st.integers(0, len(QUEUES)))
def test_a_cut_table_has_fewer_queues_and_none_that_is_wrong(at: int) -> None:
    whole = INFO.read_partitions(CommandResult(0, QUEUES)) or ()
    assert set(INFO.read_partitions(CommandResult(0, QUEUES[:at])) or ()) <= set(whole)
