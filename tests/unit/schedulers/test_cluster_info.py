"""What Slurm tells beyond one's own job: recorded answers of each release, and damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SchedulerMissing, SubmitRefused
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.schedulers.cluster_info import Limit, Node, Partition, QueuedJob, StartEstimate
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests import paths

CLUSTER_INFO = Slurm.cluster_info
RELEASES = ("22.05", "24.11", "26.05")
RECORDED = paths.RECORDED  # what alice was told on the practice cluster

each_release = pytest.mark.parametrize("release", RELEASES)


def recorded(release: str, name: str) -> CommandResult:
    return CommandResult(0, (RECORDED / release / f"{name}.txt").read_text())


def said(release: str, name: str, code: int) -> CommandResult:
    return CommandResult(code, "", recorded(release, name).stdout)


# --- commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(
            CLUSTER_INFO.ahead("gpu", None),
            "SLURM_BITSTR_LEN=0 squeue --local --noheader --states=PENDING --partition=gpu --format=%i|%Q|%u|%r",
            id="ahead",
        ),
        pytest.param(CLUSTER_INFO.partitions(None), "scontrol --oneliner show partition", id="partitions"),
        pytest.param(
            CLUSTER_INFO.partitions("snowy"), "scontrol --clusters=snowy --oneliner show partition", id="partitions, -M"
        ),
        pytest.param(CLUSTER_INFO.private_data("snowy"), "scontrol --clusters=snowy show config", id="hiding, -M"),
        pytest.param(
            CLUSTER_INFO.estimate_start(
                Request({"time": "2:00:00", "gpus": "1", "exclusive": None, "wait": None, "clusters": "snowy"})
            ),
            "env SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z sbatch --test-only --clusters=snowy --exclusive --gpus=1 "
            "--time=2:00:00 --wrap=true",
            id="would start: without what the launcher fulfils by itself",
        ),
    ],
)
def test_commands(command: list[str], words: str) -> None:
    """Before these words stands what keeps a user's own variables from the command."""
    assert " ".join(command).endswith(f" {words}") or command == words.split()


@pytest.mark.parametrize(
    "command", [CLUSTER_INFO.nodes("snowy"), CLUSTER_INFO.pending_jobs("snowy"), CLUSTER_INFO.limits("alice", "snowy")]
)
def test_what_needs_a_shell_is_one_line_and_passes_names_as_words(command: list[str]) -> None:
    assert "\n" not in " ".join(command)
    script = command[command.index("-c") + 1]
    assert not {"alice", "snowy"} & set(script.replace("=", " ").split())
    assert "snowy" in command[-1] or "--clusters=snowy" in command


# --- who goes first --------------------------------------------------------------------------------------------


@each_release
def test_ahead_are_those_that_compete_and_go_first(release: str) -> None:
    """Of bob's: eight tasks of an array; not one on hold, nor one that waits for a limit; nor alice's own."""
    assert CLUSTER_INFO.read_ahead("9", recorded(release, "ahead")) == 8


@pytest.mark.parametrize(
    ("rows", "ahead"),
    [
        ("7|100|alice|Resources\n6|50|bob|Priority", 0),
        ("7|100|alice|None\n6|50|bob|BeginTime", 0),
        ("7|100|alice|Resources", None),  # nobody else is seen: they may be hidden
        ("6|200|alice|Priority\n7|100|alice|Resources", None),
        ("6|200|alice|Priority\n7|100|alice|Resources\n5|1|bob|Priority", 1),
        ("7|100|alice|Priority\n6|50|bob|Priority", None),  # it waits for others, and none is seen
        ("6|100|bob|Priority\n7|100|alice|Priority\n8|100|bob|Priority", 1),  # the same priority: who came first
        ("8|101|bob|Resources\n7|100|alice|Priority\n6|99|bob|Priority", 1),
        (
            "6|200|bob|BeginTime\n5|200|bob|Dependency\n4|0|bob|JobHeldUser\n3|200|bob|Resources\n7|100|alice|Priority",
            1,
        ),
        ("6_[1-3,8,20-30:5%2]|200|bob|Priority\n7|100|alice|Priority", 7),
        ("6_4|200|bob|Priority\n9+1|200|carol|None\n7|100|alice|Priority", 2),
        ("CLUSTER: snowy\nsqueue: warning\n6|200|bob|Priority\n7|100|alice|Priority", 1),
        ("6|200|bob|Priority", None),  # has left the queue meanwhile
        ("7|?|alice|Priority", None),
        ("", None),
    ],
)
def test_ahead(rows: str, ahead: int | None) -> None:
    assert CLUSTER_INFO.read_ahead("7", CommandResult(0, rows)) == ahead


def test_ahead_of_a_failing_squeue_is_not_known() -> None:
    assert (
        CLUSTER_INFO.read_ahead(
            "7", CommandResult(1, "6|200|bob|Priority\n7|100|alice|Priority", "slurm_load_jobs error")
        )
        is None
    )


# --- partitions ------------------------------------------------------------------------------------------------


@each_release
def test_partitions(release: str) -> None:
    found = CLUSTER_INFO.read_partitions(recorded(release, "partitions"))
    assert found == (
        Partition("core", True, False, Walltime(days=10), 0, 2, 3),
        Partition(
            "node",
            False,
            True,
            timedelta(days=10),
            0,
            None,
            2,
            accounts=frozenset({"proj1", "proj2"}),
            qos=frozenset({"short"}),
            whole_nodes=True,
        ),
        Partition("devcore", False, True, Walltime(hours=1), 0, None, 2, denied_accounts=frozenset({"proj9"})),
        Partition("gpu", False, True, Walltime(days=2), 0, None, 1),
    )


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("PartitionName=a", Partition("a")),
        ("PartitionName=a MaxTime=UNLIMITED State=UP", Partition("a", is_up=True, walltime=UNLIMITED)),
        ("PartitionName=a MaxTime=01:00:00", Partition("a", walltime=Walltime(hours=1))),
        ("PartitionName=a MaxTime=sometimes MaxNodes=many", Partition("a")),
        (
            "PartitionName=a State=INACTIVE AllowGroups=g1,g2 DenyQos=slow",
            Partition("a", is_up=False, groups=frozenset({"g1", "g2"}), denied_qos=frozenset({"slow"})),
        ),
        ("PartitionName=a Shared=EXCLUSIVE PreemptMode=OFF", Partition("a", whole_nodes=True)),
        ("PartitionName=a Exclusive=NODE OverSubscribe=NO", Partition("a", whole_nodes=True)),
        ("PartitionName=a Exclusive=USER OverSubscribe=NO", Partition("a")),
        ("PartitionName=a PreemptMode=REQUEUE", Partition("a", preemptible=True)),
        ("PartitionName=a PreemptMode=GANG,SUSPEND", Partition("a", preemptible=True)),
    ],
)
def test_a_partition(text: str, partition: Partition) -> None:
    assert CLUSTER_INFO.read_partitions(CommandResult(0, text)) == (partition,)


def test_partitions_that_are_hidden_are_not_none_at_all() -> None:
    assert (
        CLUSTER_INFO.read_partitions(CommandResult(1, "", "slurm_load_partitions error: Access/permission denied"))
        is None
    )
    assert CLUSTER_INFO.read_nodes(CommandResult(1, "", "slurm_load_partitions: Access/permission denied")) is None


# --- limits ----------------------------------------------------------------------------------------------------


def limits(release: str, **flags: str | None) -> set[Limit]:
    found = CLUSTER_INFO.read_limits(Request(dict(flags)), recorded(release, "limits"))
    assert found is not None
    return set(found)


OF_PROJ1 = {
    Limit("account proj1", "jobs", "group", "5", "1"),
    Limit("account proj1", "submitted jobs", "user", "9", "1"),
    Limit("account proj1", "gres/gpu", "job", "2"),
    Limit("account proj1", "mem", "group", "100G", "6400M"),
}


@each_release
def test_limits_of_the_default_account_and_of_the_partitions_qos(release: str) -> None:
    """The partition's QOS has not been used: its limits for each user are in the database alone."""
    found = limits(release, partition="gpu")
    assert {limit for limit in found if limit.on != "walltime"} == {
        *OF_PROJ1,
        Limit("account proj1", "jobs", "user", "4", "1"),
        Limit("account proj1", "gres/gpu", "group", "2", "1"),
        Limit("partition gpu (QOS courses)", "gres/gpu", "user", "1", "0"),
    }
    assert {(limit.of, limit.per, limit.value) for limit in found if limit.on == "walltime"} == {
        ("partition gpu (QOS courses)", "job", "02:00:00"),
        ("account proj1", "group", "69-10:40:00"),
    }


@each_release
def test_a_limit_of_the_qos_takes_the_place_of_the_same_one_of_the_account(release: str) -> None:
    found = limits(release, account="proj1", qos="short")
    assert {limit for limit in found if limit.on in ("gres/gpu", "jobs", "cpu", "node")} == {
        Limit("account proj1", "jobs", "group", "5", "1"),
        Limit("account proj1", "gres/gpu", "job", "2"),
        Limit("QOS short", "gres/gpu", "group", "4", "1"),
        Limit("QOS short", "gres/gpu", "user", "2", "1"),
        Limit("QOS short", "jobs", "user", "2", "1"),
        Limit("QOS short", "node", "job", "1"),
        Limit("QOS short", "cpu", "user", "8", "1"),
        Limit("QOS short", "cpu", "account", "16", "1"),
    }
    assert Limit("QOS short", "walltime", "job", "02:00:00") in found
    assert Limit("QOS short", "cpu minutes", "job", "6000") in found


@each_release
def test_another_account_has_other_limits(release: str) -> None:
    found = limits(release, account="proj2", qos="short")
    assert {limit.of for limit in found} == {"QOS short"}
    assert Limit("QOS short", "cpu", "account", "16", "0") in found


@each_release
def test_the_limits_on_another_cluster_are_its_own(release: str) -> None:
    assert CLUSTER_INFO.read_limits(Request({"clusters": "snowy"}), recorded(release, "snowy-limits")) == ()


@pytest.mark.parametrize(("flags", "of"), [("", "partition gpu (QOS courses)"), ("OverPartQOS", "QOS short")])
def test_the_partitions_qos_counts_more_unless_the_jobs_qos_says_otherwise(flags: str, of: str) -> None:
    told = recorded("24.11", "limits").stdout
    row = next(line for line in told.splitlines() if line.startswith("short|"))
    changed = CommandResult(0, told.replace(row, row.replace("short||", f"short|{flags}|")))
    found = CLUSTER_INFO.read_limits(Request({"partition": "gpu", "qos": "short"}), changed)
    assert [limit.of for limit in found or () if (limit.on, limit.per) == ("walltime", "job")] == [of]


@each_release
@pytest.mark.parametrize(
    ("flags", "defaults"),
    [
        ({}, ("proj1", "normal")),
        ({"account": "proj2"}, ("proj2", "normal")),
        ({"qos": "short"}, ("proj1", "short")),
        ({"account": "proj7"}, ("proj7", None)),
    ],
)
def test_the_account_and_the_qos_that_are_meant(
    release: str, flags: dict[str, str | None], defaults: tuple[str, str | None]
) -> None:
    assert CLUSTER_INFO.read_defaults(Request(flags), recorded(release, "limits")) == defaults


def test_what_is_told_of_somebody_else_only_is_nothing() -> None:
    assert CLUSTER_INFO.read_limits(Request({"account": "proj7"}), recorded("24.11", "limits")) is None
    assert CLUSTER_INFO.read_limits(Request(), CommandResult(1, "", "scontrol: error")) is None


# --- nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "state"), [("22.05", "mixed"), ("24.11", "mixed-"), ("26.05", "mixed-")])
def test_nodes(release: str, state: str) -> None:
    nodes = CLUSTER_INFO.read_nodes(recorded(release, "nodes"))
    assert nodes is not None
    assert {(node.name, node.partition) for node in nodes} == {
        ("gpu1", "core"),
        ("gpu1", "gpu"),
        *((name, partition) for name in ("node1", "node2") for partition in ("core", "node", "devcore")),
    }
    by_name = {node.name: node for node in nodes if node.partition == "core"}
    assert by_name["gpu1"] == Node("gpu1", "core", state, True, 16, 3, {"t4": 2, "a100": 4}, {"t4": 2, "a100": 3})
    assert by_name["node1"] == Node("node1", "core", "drained", False, 20, 0, {}, {}, "coffee break")
    assert by_name["node2"] == Node("node2", "core", "maint", False, 20, 0, {}, {})


@each_release
def test_nodes_of_another_cluster(release: str) -> None:
    nodes = CLUSTER_INFO.read_nodes(recorded(release, "snowy-nodes"))
    assert nodes is not None
    assert nodes[0] == Node("s1", "core", "idle", True, 16, 0, {"t4": 1}, {})


@pytest.mark.parametrize(
    ("state", "available"),
    [
        *((state, True) for state in ("idle", "mixed", "allocated", "completing", "planned", "mixed-", "idle-")),
        *((state, True) for state in ("idle~", "idle#", "allocated#", "idle%", "idle!", "mixed@", "powered_down")),
        *((state, False) for state in ("idle*", "idle$", "idle^", "mixed$", "allocated*")),
        *((state, False) for state in ("down", "down*", "drained", "draining", "drained*", "maint", "reserved")),
        *(
            (state, False)
            for state in ("fail", "failing", "future", "inval", "unknown", "blocked", "reboot^", "woolly")
        ),
    ],
)
def test_whether_jobs_can_start_on_a_node(state: str, available: bool) -> None:
    nodes = CLUSTER_INFO.read_nodes(CommandResult(0, f"n1 core {state} 0/20/0/20 (null) (null) none"))
    assert nodes == (Node("n1", "core", state, available, 20, 0, {}, {}),)


@pytest.mark.parametrize(
    ("gres", "used", "gpus", "gpus_used"),
    [
        ("gpu:4", "gpu:1(IDX:0)", {"": 4}, {"": 1}),
        ("gpu:a100:4(S:0-1)", "gpu:a100:2(IDX:0,3)", {"a100": 4}, {"a100": 2}),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", "gpu:a100:3(IDX:0-2)", {"a100": 4}, {"a100": 3}),
        (
            "gpu:a100_1g.5gb:7,gpu:a100:1",
            "gpu:a100_1g.5gb:0(IDX:N/A),gpu:a100:1(IDX:7)",
            {"a100_1g.5gb": 7, "a100": 1},
            {"a100": 1},
        ),
        ("gpu:3090:8", "gpu:3090:8(IDX:0-7)", {"3090": 8}, {"3090": 8}),
        ("scratch:100G,gpu:t4:1,shard:t4:8", "gpu:t4:1(IDX:0),shard:t4:0(0/8)", {"t4": 1}, {"t4": 1}),
        ("gpu:t4:2", "(null)", {"t4": 2}, None),
        ("lustre:1", "lustre:0", {}, {}),
    ],
)
def test_gpus_of_a_node(gres: str, used: str, gpus: dict[str, int], gpus_used: dict[str, int] | None) -> None:
    nodes = CLUSTER_INFO.read_nodes(CommandResult(0, f"n1 core* idle 0/20/0/20 {gres} {used} none"))
    assert nodes == (Node("n1", "core", "idle", True, 20, 0, gpus, gpus_used),)


# --- who waits -------------------------------------------------------------------------------------------------


@each_release
def test_waiting(release: str) -> None:
    jobs = CLUSTER_INFO.read_pending_jobs(recorded(release, "waiting"))
    assert jobs is not None
    assert {(job.id, job.user, job.partition, job.reason, job.cores, job.gpus, job.tasks) for job in jobs} == {
        ("4", "bob", "gpu", "QOSMaxWallDurationPerJobLimit", 1, 2, 1),
        ("5_[1-5,7-9%2]", "bob", "gpu", "Resources", 1, 1, 8),
        ("6", "bob", "gpu", "JobHeldUser", 1, 1, 1),
        ("7", "alice", "gpu", "QOSMaxGRESPerUser", 6, 6, 1),
        ("8", "bob", "core,node", "BeginTime", 2, 0, 1),
        ("9", "alice", "gpu", "Priority", 1, 1, 1),
    }


@each_release
def test_an_empty_queue_is_told_apart_from_none(release: str) -> None:
    assert CLUSTER_INFO.read_pending_jobs(recorded(release, "snowy-waiting")) == ()
    assert (
        CLUSTER_INFO.read_pending_jobs(
            CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
        )
        is None
    )


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=1,node=1,gres/gpu=3,gres/gpu:t4=3 gres:gpu:t4:3 N/A N/A", 3),
        ("cpu=1,node=1 gres:gpu:t4:3 N/A N/A", 3),  # a site need not count GPUs among its resources
        ("cpu=1,node=2 N/A gres/gpu:t4:2 N/A", 4),
        ("cpu=1,node=1 N/A N/A gres/gpu=1", 6),
        ("cpu=1,node=1 N/A gres:scratch:2 N/A", 0),
        ("cpu=1,node=1 N/A N/A N/A", 0),
    ],
)
def test_gpus_that_a_job_waits_for(tres: str, gpus: int) -> None:
    told = CommandResult(0, f"7 bob gpu 100 6 2 6 {tres} (Nodes required for job are DOWN)")
    assert CLUSTER_INFO.read_pending_jobs(told) == (
        QueuedJob("7", "bob", "gpu", "(Nodes required for job are DOWN)", 100, 6, gpus),
    )


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("PluginDir = /usr/lib\nPrivateData             = none\nPriorityType = x", False),
        ("JobCredentialPrivateKey = (null)\nPrivateData             = accounts,jobs,usage\n", True),
        ("PrivateData             = cloud,accounts\n", False),
        ("", None),
    ],
)
def test_whether_jobs_are_hidden(text: str, hidden: bool | None) -> None:
    assert CLUSTER_INFO.read_private_data(CommandResult(0, text)) is hidden


# --- when something would start --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "start"),
    [("22.05", "2026-11-22T03:12:20"), ("24.11", "2026-11-22T03:12:03"), ("26.05", "2026-11-24T02:20:27")],
)
def test_would_start(release: str, start: str) -> None:
    told = said(release, "starts", 0)
    assert CLUSTER_INFO.read_start_estimate(told) == StartEstimate(start, "gpu", "gpu1", message=told.stderr.strip())


@each_release
def test_would_be_refused(release: str) -> None:
    answer = CLUSTER_INFO.read_start_estimate(said(release, "refused", 1))
    assert isinstance(answer.refusal, SubmitRefused)
    assert answer.start is None
    assert "Requested node configuration is not available" in answer.refusal.why


def test_would_start_among_what_a_sites_plug_in_says() -> None:
    text = (
        "sbatch: INFO: account proj1 is charged\n"
        "sbatch: Job 7 to start at 2026-11-21T14:20:00 using 4 processors on nodes n[1-2],n7 in partition gpu\n"
        "sbatch:   Preempts: 5,6\n"
    )
    answer = CLUSTER_INFO.read_start_estimate(CommandResult(0, "", text))
    assert (answer.start, answer.partition, answer.nodes) == ("2026-11-21T14:20:00", "gpu", "n[1-2],n7")
    assert answer.preempts == ("5", "6")


def test_a_start_is_told_with_its_zone() -> None:
    text = "sbatch: Job 7 to start at 2026-11-21T14:20:00-0500 using 4 processors on nodes n1 in partition gpu\n"
    answer = CLUSTER_INFO.read_start_estimate(CommandResult(0, "", text))
    assert (answer.start, answer.partition, answer.nodes) == ("2026-11-21T14:20:00-0500", "gpu", "n1")


def test_what_is_not_understood_is_kept_as_it_was_said() -> None:
    answer = CLUSTER_INFO.read_start_estimate(CommandResult(0, "all is well", "sbatch: wrapped"))
    assert answer == StartEstimate(message="sbatch: wrapped\nall is well")


def test_no_sbatch_there_is_an_error_of_its_own() -> None:
    answer = CLUSTER_INFO.read_start_estimate(CommandResult(127, "", "env: ‘sbatch’: No such file or directory"))
    assert isinstance(answer.refusal, SchedulerMissing)


# --- damaged, cut and foreign text -----------------------------------------------------------------------------

READINGS: list[Callable[[CommandResult], object]] = [
    lambda answer: CLUSTER_INFO.read_ahead("9", answer),
    CLUSTER_INFO.read_partitions,
    lambda answer: CLUSTER_INFO.read_limits(Request({"account": "proj1", "qos": "short", "partition": "gpu"}), answer),
    lambda answer: CLUSTER_INFO.read_defaults(Request({}), answer),
    CLUSTER_INFO.read_nodes,
    CLUSTER_INFO.read_pending_jobs,
    CLUSTER_INFO.read_private_data,
    CLUSTER_INFO.read_start_estimate,
]
TEXTS = [path.read_text() for path in sorted(RECORDED.rglob("*.txt"))]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A recording of this or another command, cut, with something foreign put in."""
    text = draw(st.sampled_from(TEXTS))
    if len(text) > 4000:  # parts of the long ones, so that their middles are damaged as well
        begin = draw(st.integers(0, len(text) - 4000))
        text = text[begin : begin + 4000]
    begin, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    foreign = draw(st.text(max_size=20) | st.sampled_from(["|", "=", "(", "\n", " ", "\x00", "²", "٣", "9" * 30, ","]))
    return text[:begin] + foreign + (text[end:] if draw(st.booleans()) else text[begin:])


# a user's association without the account, which a request without an account was taken to mean
NAMELESS = "Association Records\n\nClusterName=practice UserName=alice(2001) Partition= ID=5\n"


@pytest.mark.parametrize("read", READINGS)
@example(text=NAMELESS, error="", code=0)
@given(text=damaged() | st.text(), error=st.text(max_size=60), code=st.sampled_from([0, 1, 127]))
def test_readings_never_raise(read: Callable[[CommandResult], object], text: str, error: str, code: int) -> None:
    read(CommandResult(code, text, error))
    read(CommandResult(code, error, text))


def test_a_refusal_is_an_error_to_be_shown() -> None:
    refusal = CLUSTER_INFO.read_start_estimate(CommandResult(1)).refusal
    assert isinstance(refusal, LauncherError)
    assert refusal.what
