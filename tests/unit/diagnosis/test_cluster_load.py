"""What is free, busy and out of service is counted once, and nothing is guessed."""

from __future__ import annotations

from notebook_launcher.core import events
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis import cluster_load
from notebook_launcher.schedulers.cluster_info import Node, Partition, QueuedJob


def test_what_is_free_busy_and_out_of_service() -> None:
    nodes = [
        Node("g1", "gpu", "mixed", True, 16, 3, {"t4": 2, "a100": 4}, {"t4": 2, "a100": 1}),
        Node("g1", "core", "mixed", True, 16, 3, {"t4": 2, "a100": 4}, {"t4": 2, "a100": 1}),
        Node("g2", "gpu", "allocated", True, 16, 16, {"a100": 4}, {"a100": 3}),  # no core is left for the fourth
        Node("g3", "gpu", "draining", False, 16, 8, {"a100": 4}, {"a100": 1}),
        Node("n1", "core", "idle", True, 20, 0, {}, {}),
        Node("n2", "core", "drained", False, 20, 0, {}, {}),
    ]
    waiting = [
        QueuedJob("7", "alice", "gpu", gpus=2),
        QueuedJob("8_[1-3]", "bob", "core,gpu", gpus=1, tasks=3),
        QueuedJob("9", "bob", "core", gpus=0),
    ]
    partitions = [Partition("core", True, True, UNLIMITED), Partition("gpu", False, False, Walltime(days=2))]
    found = cluster_load.count_load(nodes, partitions, waiting, False, "alice")
    t4, a100 = events.ResourceLoad("t4", 0, 2, 0), events.ResourceLoad("a100", 3, 6, 3)
    assert found == events.Queue(
        (
            events.PartitionLoad(
                "core",
                True,
                True,
                "UNLIMITED",
                (events.ResourceLoad("a100", 3, 1, 0), t4),
                events.ResourceLoad("cores", 20, 0, 20),
                4,
                3,
                0,
            ),
            events.PartitionLoad(
                "gpu", False, False, "2-00:00:00", (a100, t4), events.ResourceLoad("cores", 0, 0, 0), 4, 5, 1
            ),
        ),
        (a100, t4),
        events.ResourceLoad("cores", 33, 27, 28),
        5,
        5,
        1,
        False,
    )


def test_what_is_not_told_is_not_counted_as_none() -> None:
    nodes = [Node("g1", "gpu", "idle", True, None, None, {"t4": 2}, None)]
    found = cluster_load.count_load(nodes, None, None, None, "alice")
    assert found.gpus == (events.ResourceLoad("t4", None, None, 0),)
    assert [partition.name for partition in found.partitions] == ["gpu"]
    assert (found.pending, found.pending_gpus, found.yours, found.hidden) == (None, None, None, None)
    [gpu] = found.partitions
    assert (gpu.pending, gpu.pending_gpus, gpu.yours) == (None, None, None)


def test_gpus_are_not_counted_where_one_job_does_not_tell_them() -> None:
    waiting = [QueuedJob("7", "alice", "gpu", gpus=2), QueuedJob("8", "bob", "core,gpu", gpus=None)]
    found = cluster_load.count_load(
        [], [Partition("gpu"), Partition("core"), Partition("fat")], waiting, False, "alice"
    )
    assert (found.pending, found.pending_gpus, found.yours) == (2, None, 1)
    counts = {load.name: (load.pending, load.pending_gpus, load.yours) for load in found.partitions}
    assert counts == {"gpu": (2, None, 1), "core": (1, None, 0), "fat": (0, 0, 0)}
