"""Whether a scheduler takes each part of a request, and why it refused one, by what the cluster reports."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConstraintRefused,
    GresRefused,
    LicenceRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.name_suggestions import names_for, nearest
from notebook_launcher.diagnosis.out_of_service import waits_for_nodes
from notebook_launcher.diagnosis.request_check import (
    SchedulerReport,
    assess_gpus,
    assess_walltime,
    explain_refusal,
    reword_refusal,
)
from notebook_launcher.schedulers.cluster_info import Node, Partition, ReservationInfo
from notebook_launcher.schedulers.slurm.cluster_info import SlurmClusterInfo
from tests import paths

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)
SLURM = SlurmClusterInfo()


def recorded(name: str) -> CommandResult:
    return CommandResult(0, (paths.RECORDED / "24.11" / name).read_text())


@pytest.fixture
def report() -> SchedulerReport:
    """What a real Slurm reported: core (at most 2 nodes), node, devcore (1 hour), gpu (1 node: 2 t4, 4 a100)."""
    return SchedulerReport(
        SLURM.read_partitions(recorded("partitions.txt")),
        SLURM.read_nodes(recorded("nodes.txt")),
        ("proj1", "proj2"),
        (ReservationInfo("lab1", users="alice"),),
    )


def why(refusal: SubmitRefused, report: SchedulerReport, **flags: str) -> tuple[str, str]:
    request = Request({"time": "1:00:00", **{name.replace("_", "-"): value for name, value in flags.items()}})
    found = explain_refusal(refusal, request, report, NOW)
    return (found.found, found.hint) if found else ("", "")


def test_a_walltime_is_not_judged_by_a_partition_that_does_not_exist(report: SchedulerReport) -> None:
    request = Request({"time": "30-0", "partition": "nope", "gpus": "1"})
    for finding in (assess_walltime(request, ["nope"], report), assess_gpus(request, ["nope"], report)):
        assert (finding.result, finding.found) == ("skipped", "not checked: there is no partition nope")
    assert assess_walltime(request, ["core", "nope"], report).result == "skipped"
    assert assess_walltime(request, ["core"], report).result == "fault"
    assert assess_walltime(Request({"time": "1:00:00"}), ["core"], report).result == "ok"


def test_a_walltime_without_a_partition_is_not_said_to_fit() -> None:
    no_default = SchedulerReport((Partition("thin"), Partition("gpu")))
    request = Request({"time": "30-0"})
    assert assess_walltime(request, no_default.partitions_of(request), no_default).result == "unknown"


def test_too_many_nodes_are_named(report: SchedulerReport) -> None:
    refusal = SizeRefused("Slurm refused the job. No node …", why="sbatch: …", hint="ask for less")
    assert why(refusal, report, nodes="9") == (
        "It asks for 9 nodes, and partition core allows 2 at most.",
        "try -N 2, or another partition with -p",
    )
    assert why(refusal, report, nodes="9", partition="gpu")[0] == "It asks for 9 nodes, and partition gpu has 1."
    assert why(refusal, report, nodes="1", ntasks="9") == ("", "")  # nothing here shows the cause


def test_more_cores_than_a_partition_has_are_answered_with_how_many_it_has() -> None:
    nodes = (Node("n1", "core", "idle", True, 16, 0), Node("n2", "core", "idle", True, 16, 0),
             Node("b1", "big", "idle", True, 800, 0))  # fmt: skip
    there = SchedulerReport((Partition("core", is_default=True), Partition("big")), nodes)
    assert why(SizeRefused("Refused. No."), there, ntasks="500") == (
        "It asks for 500 cores, and partition core has 32.",
        "ask for at most 32 cores, or name a larger partition: -p big (800 cores)",
    )
    assert why(SizeRefused("Refused. No."), there, ntasks="16", cpus_per_task="3", partition="core")[0] == (
        "It asks for 48 cores, and partition core has 32."
    )
    assert why(SizeRefused("Refused. No."), there, ntasks="500", partition="big") == ("", "")


@pytest.mark.parametrize(
    ("flags", "found", "hint"),
    [
        ({"gpus": "h100:1"}, "There is no GPU h100 in partition gpu; there are 4 × a100, 2 × t4.", "--gpus a100:1"),
        (
            {"gres": "gpu:a100:5"},
            "It asks for 5 GPUs of type a100, and a node of partition gpu has 4 at most.",
            "fewer",
        ),
        ({"gpus": "two"}, "There is no GPU two", "--gpus takes a number or TYPE:NUMBER, for example --gpus "),
        ({"gpus": "7"}, "It asks for 7 GPUs, and partition gpu has 6.", "fewer"),
        ({"gpus": "t4:2,a100:4"}, "", ""),
        ({"gpus": "1", "partition": "devcore"}, "There are no GPUs in partition devcore", "-p core"),
    ],
)
def test_gpus_that_are_not_there(report: SchedulerReport, flags: dict[str, str], found: str, hint: str) -> None:
    for refusal in (SizeRefused("Refused. No."), GresRefused("Refused. No such GPU.")):
        text, command = why(refusal, report, **{"partition": "gpu", **flags})
        assert text.startswith(found) and bool(text) is bool(found) and hint in command


def test_names_that_do_not_exist_are_answered_with_those_that_do(report: SchedulerReport) -> None:
    text, hint = why(PartitionRefused("Refused."), report, partition="devcor")
    assert (text, hint) == (  # core is closed
        "There is no partition devcor. Open to you: devcore, node, gpu.",
        "did you mean -p devcore?",
    )
    text, hint = why(AccountRefused("Refused."), report, account="nix")
    assert (text, hint) == ("The account nix is not yours. Yours are: proj1, proj2.", "name one of these with -A")
    text, hint = why(ReservationRefused("Refused."), report, reservation="lab2")
    assert text == "There is no reservation lab2, or it is over. The reservations are: lab1."
    assert hint == "did you mean lab1?"


def test_a_walltime_that_is_refused_is_compared_with_the_partition(report: SchedulerReport) -> None:
    refusal = WalltimeRefused("Refused. Too long.", why="sbatch: …")
    assert why(refusal, report, time="5:00:00", partition="devcore") == (
        "Its walltime of 5 hours is longer than partition devcore allows (1:00:00).",
        "ask for less: -t 1:00:00",
    )
    # the least walltime may be what is wrong, and another -t would not help
    assert why(refusal, report, time="6:00:00", time_min="5:00:00", partition="devcore") == ("", "")


@pytest.mark.parametrize("kind", [AccountRefused, PartitionRefused, WalltimeRefused, SizeRefused, GresRefused])
def test_without_a_report_a_refusal_stays_as_it_is(kind: type[SubmitRefused]) -> None:
    error = kind("Slurm refused the job. It says no.", why="sbatch: no", hint="try another")
    reword_refusal(error, Request({"time": "1:00:00", "gpus": "1", "partition": "x"}), SchedulerReport(), NOW)
    assert (error.what, error.why, error.hint) == ("Slurm refused the job. It says no.", "sbatch: no", "try another")


def test_the_schedulers_own_message_stays(report: SchedulerReport) -> None:
    error = SizeRefused("Slurm refused the job. No node.", why="sbatch: Requested node configuration", hint="less")
    reword_refusal(error, Request({"time": "1:00:00", "nodes": "9"}), report, NOW)
    assert error.what == "Slurm refused the job. It asks for 9 nodes, and partition core allows 2 at most."
    assert error.why == "sbatch: Requested node configuration" and error.exit_code == SizeRefused.exit_code


def test_a_request_that_is_too_large_and_too_long_is_told_both(report: SchedulerReport) -> None:
    error = SizeRefused("Slurm refused the job. No node.", why="sbatch: Requested node configuration", hint="less")
    reword_refusal(error, Request({"time": "20-0", "nodes": "9", "partition": "core"}), report, NOW)
    assert error.what == (
        "Slurm refused the job. It asks for 9 nodes, and partition core allows 2 at most. "
        "Its walltime of 20 days is longer than partition core allows (10-00:00:00)."
    )
    assert error.hint == "try -N 2, or another partition with -p; ask for less time: -t 10-00:00:00"


def test_nodes_of_several_partitions_count_once() -> None:
    nodes = tuple(Node("g1", name, "idle", True, 16, 0, {"t4": 2}) for name in ("gpu", "core"))
    report = SchedulerReport((Partition("gpu"), Partition("core")), nodes)
    assert why(SizeRefused("Refused. No."), report, partition="gpu,core", gpus="3")[0] == (
        "It asks for 3 GPUs, and partition gpu, core has 2."
    )


NO_NODE = SizeRefused("Refused.", why="sbatch: allocation failure: Requested node configuration is not available")


def _drained(*names: str) -> tuple[Node, ...]:
    """Two nodes of core and one with GPUs; these are drained."""
    places = {"n1": ("core", {}), "n2": ("core", {}), "g1": ("gpu", {"a100": 4})}
    return tuple(
        Node(name, partition, "drain" if name in names else "idle", name not in names, 16, 0, gpus)
        for name, (partition, gpus) in places.items()
    )


@pytest.mark.parametrize(
    ("flags", "drained", "expected"),
    [
        (
            {"partition": "core"},
            ("n1", "n2"),
            "None of the 2 nodes of partition core that could run the job is in service",
        ),
        (
            {"partition": "gpu", "gpus": "a100:1"},
            ("g1",),
            "The only node of partition gpu that could run the job is out of",
        ),
        ({"gpus": "1"}, ("g1",), "The only node of the cluster that could run the job is out of"),
        ({"partition": "core"}, ("n1",), ""),
        ({"partition": "core", "nodes": "9"}, ("n1", "n2"), ""),  # it never has as many
        ({"partition": "gpu", "gpus": "a100:8"}, ("g1",), ""),
        ({"partition": "gpu", "gpus": "h100:1"}, ("g1",), ""),
    ],
)
def test_a_job_waits_for_nodes_that_are_out_of_service(
    flags: dict[str, str], drained: tuple[str, ...], expected: str
) -> None:
    report = SchedulerReport((Partition("core", nodes=2), Partition("gpu", nodes=1)), _drained(*drained))
    text = waits_for_nodes(NO_NODE, Request(flags), report, NOW)
    assert bool(text) == bool(expected) and text.startswith(expected)
    assert waits_for_nodes(WalltimeRefused("Refused."), Request(flags), report, NOW) == ""


# --- what there is, instead of a command that no laptop has --------------------------------------------------------


def test_choices_are_few_and_short_and_the_closest_comes_first() -> None:
    names = [*(f"part{number}" for number in range(30)), "devcore", "evil\x1b[31m", "-x", "x" * 90, "a b"]
    assert names_for("devcor", names) == "devcore, part0, part1, part2, part3, part4, part5, part6 and 23 more"
    assert nearest("devcor", names) == ["devcore"]
    assert nearest("evil", names) == []  # it would have to be typed
    many = [f"part{number}" for number in range(300_000)]
    began = time.monotonic()
    assert names_for("devcor", ["devcore", *many]).startswith("devcore, part0, part1, ")
    assert time.monotonic() - began < 20, "whatever a server sends, a bounded number is compared"
    assert names_for("x", ["-x", "a b"]) == "names that cannot be typed" and names_for("x", []) == ""


def test_partitions_that_the_user_may_not_use_are_left_out() -> None:
    partitions = (
        Partition("urgent", is_up=True, accounts=frozenset({"proj2"})),
        Partition("old", is_up=False),
        Partition("core", is_up=True, denied_accounts=frozenset({"proj9"})),
    )
    bob, alice = (
        SchedulerReport(partitions, accounts=("proj1",)),
        SchedulerReport(partitions, accounts=("proj1", "proj2")),
    )
    missing = PartitionRefused("Refused. No.")
    assert why(missing, bob, partition="urgnt") == (
        "There is no partition urgnt. Open to you: core.",
        "name one of these with -p, or none",
    )
    assert why(missing, alice, partition="urgnt") == (
        "There is no partition urgnt. Open to you: urgent, core.",
        "did you mean -p urgent?",
    )
    assert why(missing, alice, partition="urgnt", account="proj1")[0].endswith("Open to you: core.")
    closed = (Partition("old", is_up=False), Partition("gpu", is_up=False))  # none is open: all are named
    assert why(missing, SchedulerReport(closed), partition="core")[0].endswith("core. The partitions are: old, gpu.")
    # one that is there and refuses, and none where one has to be named
    denied = PartitionRefused("Slurm refused the job. You may not use this partition.", hint="choose another")
    assert why(denied, bob, partition="urgent") == ("You may not use this partition.", "choose another with -p: core")
    nameless = PartitionRefused("Slurm refused the job. No partition was named.", hint="name one")
    assert why(nameless, bob) == ("No partition was named.", "name one with -p: core")
    several = PartitionRefused("Refused. One at a time.", hint="name one partition with -p")
    assert why(several, bob, partition="core,urgent") == ("", "")  # its own hint is the better one


def test_qos_that_the_account_has(report: SchedulerReport) -> None:
    report.own_qos = {"proj1": ("normal", "short"), "proj2": ("normal", "gold")}
    refusal = QosRefused("Slurm refused the job. The QOS does not exist or is not yours.", hint="list them")
    assert why(refusal, report, qos="shrt", account="proj1") == (
        "There is no QOS shrt, or it is not yours. Yours with account proj1: short, normal.",
        "did you mean -q short?",
    )
    report.account = "proj2"
    assert why(refusal, report, qos="vip")[0].endswith("Yours with account proj2: normal, gold.")
    assert why(refusal, report, qos="vip")[1] == "name one of these with -q, or none"
    report.account = None
    assert why(refusal, report, qos="vip")[0].endswith("Yours: normal, short, gold.")
    relative = QosRefused("Refused. The QOS is for one partition alone.", hint="name one with -p")
    assert why(relative, report, qos="gold") == ("", "")
    # one that is theirs is not for this partition
    assert why(refusal, report, qos="gold")[0] == "The QOS does not exist or is not yours."
    report.partitions = (Partition("core", is_default=True, qos=frozenset({"short"})),)
    assert why(refusal, report, qos="gold") == (
        "QOS gold may not be used in partition core.",
        "name another with -q: short",
    )


FEATURES = {"core": ("skylake", "thin"), "gpu": ("skylake", "gpu")}


@pytest.mark.parametrize(
    ("flags", "found", "hint"),
    [
        (
            {"constraint": "thn"},
            "No node of partition core has the feature thn. Its nodes have: thin, skylake.",
            "did you mean -C thin?",
        ),
        (
            {"constraint": "[rack1*2&thin|!skylake]"},
            "No node of partition core has the feature rack1. Its nodes have: skylake, thin.",
            "name one of these with -C, or none",
        ),
        (
            {"constraint": "gpu"},
            "No node of partition core has the feature gpu. Its nodes have: skylake, thin.",
            "partition gpu has it: -p gpu",
        ),
        (
            {"constraint": "fast", "partition": "core,gpu"},
            "No node of partition core, gpu has the feature fast. ",
            "-C",
        ),
        (
            {"constraint": "fast", "partition": "devcore"},
            "No node of partition devcore has any feature.",
            "leave out -C",
        ),
        ({"constraint": "skylake&thin"}, "", ""),
        ({"constraint": "thin|gpu"}, "", ""),  # one of them is enough
        (
            {"nodelist": "node9"},
            "There is no node node9. The nodes are: node1, node2, gpu1.",
            "did you mean -w node1 or -w node2?",
        ),
        ({"nodelist": "node[1-9]"}, "", ""),  # nothing here shows which
    ],
)
def test_features_and_nodes_that_are_there(
    report: SchedulerReport, flags: dict[str, str], found: str, hint: str
) -> None:
    report.features = {**FEATURES, "devcore": ()}
    text, command = why(ConstraintRefused("Refused. No node.", hint="list them"), report, **flags)
    assert text.startswith(found) and bool(text) is bool(found) and hint in command
    if "constraint" in flags:  # Slurm says that as well if a feature is only in another partition
        assert why(SizeRefused("Refused. Not available."), report, **flags) == (text, command)


def test_the_closest_type_of_gpu_comes_first(report: SchedulerReport) -> None:
    refusal = GresRefused("Refused. No such GPU.")
    assert why(refusal, report, partition="gpu", gpus="a1000:1") == (
        "There is no GPU a1000 in partition gpu; there are 4 × a100, 2 × t4.",
        "name one that is there, for example --gpus a100:1",
    )
    assert why(refusal, report, gres="tape:1") == ("No such GPU.", "partition core has these GPUs: 4 × a100, 2 × t4")
    none = SchedulerReport((Partition("cpu"),), (Node("n1", "cpu", "idle", True, 16, 0),))
    assert why(refusal, none, partition="cpu", gpus="1") == ("There are no GPUs in partition cpu.", "leave out --gpus")


def test_reservations_of_others_and_those_that_are_over_are_left_out(report: SchedulerReport) -> None:
    report.user = "bob"
    report.reservations = (
        ReservationInfo("lab1", users="alice"),
        ReservationInfo("over", end="2026-11-01T00:00:00+0000"),
        ReservationInfo("later", accounts="proj1,proj7"),
        ReservationInfo("without", users="-bob"),
        ReservationInfo("both", users="bob", accounts="proj7"),
    )
    refusal = ReservationRefused("Refused. No.")
    assert why(refusal, report, reservation="lab2") == (
        "There is no reservation lab2, or it is over. Open to you: later.",
        "ask whoever made it, or go without it",
    )
    assert why(refusal, report, reservation="latr")[1] == "did you mean later?"
    report.reservations = report.reservations[:1]
    assert why(refusal, report, reservation="lab2") == (
        "There is no reservation lab2, or it is over. None is open to you.",
        "ask whoever made it, or go without it",
    )


SIZES = "core|20|128000\ncore|20|256000\nfat|64|1536000\nsmall|4|8192\n"
OPEN = (Partition("core"), Partition("fat"), Partition("small"))


@pytest.mark.parametrize(
    ("flags", "found", "hint"),
    [
        (
            {"cpus_per_task": "30"},
            "It asks for 30 cores on one node, and the largest node of partition core has 20 cores.",
            "ask for at most -c 20, or name a partition with larger nodes: -p fat (64 cores)",
        ),
        (
            {"ntasks": "30", "nodes": "1"},
            "It asks for 30 cores on one node, and the largest node of partition core has 20 cores.",
            "ask for at most 20 cores on each node, or name",
        ),
        (
            {"mem": "900G"},
            "It asks for 900G of memory on one node, and the largest node of partition core has 250G of memory.",
            "ask for at most --mem=250G, or name a partition with larger nodes: -p fat (1500G of memory)",
        ),
        (
            {"mem_per_cpu": "100G", "cpus_per_task": "4"},
            "It asks for 400G of memory on one node, and the largest node of partition core has 250G of memory.",
            "ask for at most 250G of memory on each node, or name",
        ),
        ({"mem": "9T"}, "It asks for 9216G of memory on one node", "ask for at most --mem=250G"),
        ({"cpus_per_task": "20", "mem": "250G"}, "", ""),
        (
            {"ntasks": "60", "nodes": "2"},
            "It asks for 30 cores on one node, and the largest node of partition core has 20 cores.",
            "ask for at most 20 cores on each node, or name",
        ),
        (
            {"ntasks_per_node": "16", "cpus_per_task": "2", "nodes": "2"},
            "It asks for 32 cores on one node, and the largest node of partition core has 20 cores.",
            "ask for at most 20 cores on each node, or name",
        ),
        ({"ntasks": "30"}, "", ""),  # which may be on several nodes
        # with --ntasks it is a maximum
        ({"ntasks": "2", "ntasks_per_node": "64", "cpus_per_task": "2"}, "", ""),
        ({"ntasks": "2", "ntasks_per_node": "64", "mem_per_cpu": "100G"}, "", ""),
        ({"ntasks": "64", "ntasks_per_node": "16", "nodes": "4"}, "", ""),
        ({"ntasks": "64", "ntasks_per_node": "16", "nodes": "1"}, "", ""),  # it is not the size of nodes that is wrong
        ({"mem": "0"}, "", ""),
        ({"mem": "lots"}, "", ""),
        ({"cpus_per_task": "30", "overcommit": ""}, "", ""),
    ],
)
def test_a_request_that_no_node_can_hold_is_told_the_largest(flags: dict[str, str], found: str, hint: str) -> None:
    sizes = SLURM.read_node_sizes(CommandResult(0, SIZES))
    told = why(
        SizeRefused("Slurm refused the job. Too much."), SchedulerReport(OPEN, sizes=sizes), partition="core", **flags
    )
    assert told[0].startswith(found) and told[1].startswith(hint)
    assert bool(told[0]) == bool(found)


def test_a_partition_whose_name_cannot_be_typed_is_not_named() -> None:
    odd = ("x;reboot", "$(reboot)", "-x", "x" * 500, "x\x1b[31m", "fat", "fat")
    sizes = SLURM.read_node_sizes(CommandResult(0, SIZES + "".join(f"{name}|64|1536000\n" for name in odd)))
    report = SchedulerReport((Partition("core"), *(Partition(name) for name in odd)), sizes=sizes)
    hint = why(SizeRefused("Slurm refused the job. Too much."), report, partition="core", cpus_per_task="30")[1]
    assert hint == "ask for at most -c 20, or name a partition with larger nodes: -p fat (64 cores)"


def test_without_the_sizes_of_nodes_nothing_is_said_of_them() -> None:
    for answer in ("", "nonsense\n", "core|many|some\n", "core|0|0\n", "core|20\n"):
        assert SLURM.read_node_sizes(CommandResult(0, answer)) is None
    assert why(SizeRefused("No."), SchedulerReport(OPEN), partition="core", mem="900G") == ("", "")
    sizes = SLURM.read_node_sizes(CommandResult(0, SIZES))
    assert why(SizeRefused("No."), SchedulerReport(OPEN, sizes=sizes), partition="other", mem="900G") == ("", "")


# --- licences and clusters -----------------------------------------------------------------------------------------

LICENCES = """\
LicenseName=lab1 Total=1 Used=0 Free=1 Reserved=1 Remote=no
LicenseName=matlab Total=4 Used=1 Free=3 Reserved=0 Remote=no
LicenseName=ansys@flex Total=20 Used=0 Free=20 Reserved=0 Remote=yes
"""


@pytest.mark.parametrize(
    ("typed", "found", "hint"),
    [
        ("matlb", "There is no licence matlb. The licences are: matlab, lab1, ansys@flex.", "did you mean -L matlab?"),
        ("matlab:2,ansys:1", "There is no licence ansys. The licences are: ansys@flex, lab1, matlab.", "ansys@flex?"),
        ("qz", "There is no licence qz. The licences are: lab1, matlab, ansys@flex.", "name one of these with -L"),
        ("matlab:9", "It asks for 9 of the licence matlab, and the cluster has 4.", "ask for at most -L matlab:4"),
        ("lab1|matlab=5", "It asks for 5 of the licence matlab", "-L matlab:4"),
        ("matlab:4,ansys@flex:20", "", ""),
        ("matlab:lots", "", ""),
    ],
)
def test_a_refused_licence_is_told_which_there_are(typed: str, found: str, hint: str) -> None:
    report = SchedulerReport(licences=SLURM.read_licences(CommandResult(0, LICENCES)))
    text, command = why(LicenceRefused("Slurm refused the job. Not known."), report, licenses=typed)
    assert text.startswith(found) and bool(text) is bool(found)
    assert hint in command


def test_where_there_are_no_licences_that_is_said() -> None:
    none = SLURM.read_licences(CommandResult(0, "No licenses configured in Slurm.\n"))
    refusal = LicenceRefused("Slurm refused the job. Not known.")
    assert why(refusal, SchedulerReport(licences=none), licenses="matlab") == (
        "There is no licence matlab: the cluster has none.",
        "leave out -L",
    )
    unread = SLURM.read_licences(CommandResult(1, "", "slurm_load_licenses error: Socket timed out"))
    assert unread is None and why(refusal, SchedulerReport(licences=unread), licenses="matlab") == ("", "")


def test_an_unknown_cluster_is_answered_with_those_that_there_are() -> None:
    refusal = ClusterRefused("The job was not queued. There is no such cluster.")
    report = SchedulerReport(clusters=SLURM.read_clusters(CommandResult(0, "practice\nsnowy\n")))
    assert why(refusal, report, clusters="practice,snwy") == (
        "There is no cluster snwy. The clusters are: snowy, practice.",
        "did you mean -M snowy?",
    )
    text, hint = why(refusal, report, clusters="atlantis")
    assert (text, hint) == (
        "There is no cluster atlantis. The clusters are: practice, snowy.",
        "name one of these with -M, or none",
    )
    for there in ("snowy", "SNOWY", "all", "practice, snowy"):  # one of them does not answer
        assert why(refusal, report, clusters=there) == ("", "")
    for nothing in (CommandResult(1, "", "DBD_GET_CLUSTERS failure"), CommandResult(0, "")):
        unread = SchedulerReport(clusters=SLURM.read_clusters(nothing))
        assert why(refusal, unread, clusters="atlantis") == ("", "")


def test_names_that_others_chose_are_not_typed_into_a_terminal() -> None:
    odd = ("x;reboot", "$(reboot)", "-x", "x\x1b[31m", "snowy")
    found = why(ClusterRefused("No. No."), SchedulerReport(clusters=odd), clusters="snwy")
    assert found == ("There is no cluster snwy. The clusters are: snowy.", "did you mean -M snowy?")
