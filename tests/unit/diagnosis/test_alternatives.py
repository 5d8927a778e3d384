"""What else could be asked for, so that it starts sooner."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.request import Request, merge_flags
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis import alternatives
from notebook_launcher.schedulers.cluster_info import Node, Partition

Flags = dict[str, str | None]


PARTITIONS = (
    Partition("core", is_default=True, is_up=True, walltime=Walltime(days=10)),
    Partition("node", is_up=True, walltime=Walltime(days=10), whole_nodes=True),
    Partition("devcore", is_up=True, walltime=Walltime(hours=1)),
    Partition("gpu", is_up=True, walltime=Walltime(days=2)),
    Partition("big", is_up=True, walltime=UNLIMITED, accounts=frozenset({"proj9"}), min_nodes=2),
    Partition("secret", is_up=True, walltime=Walltime(days=2), groups=frozenset({"staff"})),
    Partition("closed", is_up=False, walltime=Walltime(days=2)),
)


NODES = tuple(
    Node(name, partition, "idle", available, 16, 0, gpus, {})
    for name, partition, available, gpus in (
        ("n1", "core", True, {}),
        ("g1", "core", True, {"t4": 2, "a100": 4}),
        ("n1", "node", True, {}),
        ("n1", "devcore", True, {}),
        ("g1", "gpu", True, {"t4": 2, "a100": 4}),
        ("g2", "gpu", False, {"h100": 8}),
        ("g3", "secret", True, {"l40": 2}),
        ("n9", "closed", True, {}),
    )
)


def tried(flags: Flags, account: str | None = "proj1", qos: str | None = None, **others: object) -> list[str]:
    """The flags of the variations of a request, as they are typed."""
    request = Request(merge_flags({}, flags))
    found = alternatives.find_alternatives(
        request, others.get("partitions", PARTITIONS), others.get("nodes", NODES), account, qos
    )  # type: ignore[arg-type]
    assert found[0].request == request
    return [variation.flags for variation in found[1:]]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(
            {"time": "2:00:00", "partition": "gpu", "gpus": "t4:1"},
            [
                "-t 1:00:00",
                "--gpus a100:1",
                "-p core",
                "-t 1:00:00 -p devcore --gpus 0",
                "-t 0:30:00",
                "-p secret --gpus l40:1",
            ],
            id="a GPU of one type",
        ),
        pytest.param(
            {"time": "2:00:00", "partition": "gpu", "gpus": "1"},
            ["-t 1:00:00", "-p core", "-t 1:00:00 -p devcore --gpus 0", "-t 0:30:00", "-p secret"],
            id="any GPU: another type is asked for already",
        ),
        pytest.param(
            {"time": "2:00:00", "gres": "gpu:t4:2,scratch:1", "partition": "gpu"},
            [
                "-t 1:00:00",
                "--gres gpu:a100:2,scratch:1",
                "-p core",
                "-t 1:00:00 -p devcore --gpus 0",
                "-t 0:30:00",
                "-p secret --gres gpu:l40:2,scratch:1",
            ],
            id="GRES that is no GPU stays",
        ),
        pytest.param(
            {"time": "2:00:00", "gpus": "a100:4", "partition": "gpu"},
            ["-t 1:00:00", "-p core", "-t 1:00:00 -p devcore --gpus 0", "-t 0:30:00"],
            id="no other type has as many",
        ),
        pytest.param(
            {"time": "0:40:00"},
            ["-t 0:15:00", "-p devcore", "-t 0:10:00"],
            id="no GPU: not onto a node that has some, and not where a job gets whole nodes",
        ),
        pytest.param(
            {"time": "3-00:00:00", "partition": "gpu", "gpus": "1"},
            ["-t 2-00:00:00", "-p core", "-t 1:00:00 -p devcore --gpus 0", "-t 1-00:00:00", "-t 12:00:00"],
            id="the partition's limit first",
        ),
        pytest.param(
            {"time": "unlimited", "partition": "core"},
            ["-t 10-00:00:00", "-t 1:00:00 -p devcore", "-t 5-00:00:00", "-t 2-00:00:00"],
            id="no limit asked for",
        ),
        pytest.param(
            {"time": "2:00:00", "reservation": "lab1", "gpus": "t4:1"},
            ["-t 1:00:00", "--gpus a100:1", "--gpus 0", "-t 0:30:00"],
            id="a reservation stays in its partition",
        ),
        pytest.param({"time": "0:12:00", "partition": "devcore"}, ["-p core"], id="short already"),
        pytest.param({"time": "0:15:00", "partition": "nope"}, [], id="no such partition"),
    ],
)
def test_variations(flags: Flags, expected: list[str]) -> None:
    assert tried(flags) == expected


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        ({"gpus": "16"}, "--gpus 6"),
        ({"gpus": "t4:16"}, "--gpus t4:2"),
        ({"gres": "gpu:16"}, "--gres gpu:6"),
        ({"gres": "scratch:16,gpu:a100:16"}, "--gres scratch:16,gpu:a100:4"),
        ({"gres": "gpu:a100=16"}, "--gres gpu:a100=4"),
        ({"gpus-per-node": "a100:5"}, "--gpus-per-node a100:4"),
    ],
)
def test_where_so_many_gpus_are_not_there_the_most_that_fit_come_first(flags: Flags, first: str) -> None:
    assert tried({"partition": "gpu", **flags})[0] == first


def test_nothing_is_guessed_of_a_cluster_that_is_not_known() -> None:
    asked: Flags = {"time": "2:00:00", "partition": "gpu", "gpus": "t4:1"}
    assert tried(asked, partitions=None, nodes=None) == ["-t 1:00:00", "-t 0:30:00"]


def test_what_an_account_may_not_use_is_left_out() -> None:
    partitions = (
        Partition("a", is_default=True),
        Partition("b", accounts=frozenset({"proj1"})),
        Partition("c", denied_accounts=frozenset({"proj1"})),
        Partition("d", qos=frozenset({"short"})),
        Partition("e", denied_qos=frozenset({"normal"})),
        Partition("f", max_nodes=1),
    )
    nodes = [Node("n", name, "idle", True) for name in "abcdef"]
    asked: Flags = {"time": "0:10:00"}

    def allowed(account: str | None, qos: str | None = None, **more: str | None) -> set[str]:
        return set(tried({**asked, **more}, account, qos, partitions=partitions, nodes=nodes))

    assert allowed("proj1") == {"-p b", "-p d", "-p e", "-p f"}  # of a QOS that is not named nothing is known
    assert allowed("proj2", qos="normal") == {"-p c", "-p f"}
    assert allowed("proj1", nodes="2") == {"-p b", "-p d", "-p e"}


def test_what_can_never_start_takes_no_place() -> None:
    request = Request({"time": "2:00:00", "partition": "gpu", "gpus": "t4:1"})
    short = timedelta(hours=1)
    found = alternatives.find_alternatives(request, PARTITIONS, NODES, None, None, lambda other: other.walltime > short)
    assert [variation.flags for variation in found[1:]] == ["--gpus a100:1", "-p core", "-p secret --gpus l40:1"]


@given(
    time=st.sampled_from(["5", "59", "2:00:00", "1-0", "9-12:30:00", "unlimited"]),
    gpus=st.sampled_from([None, "1", "t4:1", "a100:2", "t4:1,a100:1", "odd:99"]),
    flag=st.sampled_from(["gpus", "gpus-per-node", "gres"]),
    partition=st.sampled_from([None, "core", "gpu", "core,gpu", "node", "devcore", "nope"]),
)
def test_no_variation_is_longer_or_bigger(time: str, gpus: str | None, flag: str, partition: str | None) -> None:
    prefix = "gpu:" if flag == "gres" else ""
    request = Request({"time": time, "partition": partition or "", **({flag: prefix + gpus} if gpus else {})})
    found = alternatives.find_alternatives(request, PARTITIONS, NODES, "proj1")
    assert len(found) <= alternatives.MOST
    assert len({tuple(sorted(other.request.flags.items())) for other in found}) == len(found)
    for other in found:
        assert other.request.walltime <= request.walltime
        assert other.request.gpus <= request.gpus


@pytest.mark.parametrize(
    ("flags", "typed"),
    [
        ({"gpus": "1", "time": "2:00:00", "account": "p"}, "-t 2:00:00 --gpus 1 -A p"),
        ({"exclusive": None, "nice": "-5", "comment": "it's"}, "--comment 'it'\"'\"'s' --exclusive --nice=-5"),
    ],
)
def test_flags_as_they_are_typed(flags: Flags, typed: str) -> None:
    assert as_typed(flags) == typed
