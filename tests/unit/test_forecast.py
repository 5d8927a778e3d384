"""When a request would start and what is free, asked of doubles of Slurm's commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import explain
from notebook_launcher.diagnosis.explain import Explanation
from tests import paths

RECORDED = paths.RECORDED / "24.11"


# --- the commands, with doubles of Slurm's ---------------------------------------------------------------------

SCONTROL = f"""\
case "$*" in
    *assoc_mgr*) sed '/^Cluster|/,$d' {RECORDED}/limits.txt ;;
    *config*) echo "PrivateData = ${{HIDDEN:-none}}" ;;
    *) echo "PartitionName=core Default=YES MaxTime=10-00:00:00 State=UP TotalNodes=3"
       echo "PartitionName=devcore MaxTime=01:00:00 State=UP TotalNodes=2"
       echo "PartitionName=gpu MaxTime=2-00:00:00 State=UP TotalNodes=1" ;;
esac
"""


SINFO = """\
for partition in core gpu; do
    echo "g1 $partition mixed- 3/13/0/16 gpu:t4:2,gpu:a100:4 gpu:t4:2(IDX:0-1),gpu:a100:3(IDX:2-4) none"
done
for partition in core devcore; do echo "n1 $partition idle 0/20/0/20 (null) (null) none"; done
"""


SQUEUE = f"cat {RECORDED}/waiting.txt\n"


SACCTMGR = "true\n"


# in how many minutes what would start; the first pattern that matches counts
SBATCH = """\
case "$*" in
%s
esac
at=$(date -d "+$minutes minutes" +%%FT%%T)
partition=$(echo "$*" | sed -n 's/.*--partition=\\([^ ]*\\).*/\\1/p')
echo "sbatch: Job 7 to start at $at using 1 processors on nodes g1 in partition ${partition:-core}" >&2
"""


@dataclass
class Doubles:
    """A machine with commands called as Slurm's; which are asked what is kept."""

    folder: Path
    asked: Path

    def put(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.asked}\n{body}')
        path.chmod(0o755)

    def start(self, **minutes: str) -> None:
        """Say in how many minutes a request starts, by a piece of its flags; ``_`` is any other."""
        cases = [f"{'*' if key == '_' else f'*{key}*'}) {value} ;;" for key, value in minutes.items()]
        self.put("sbatch", SBATCH % "\n".join(cases))

    def tests(self) -> list[str]:
        """The tests that Slurm was asked for."""
        return [line for line in self.asked.read_text().splitlines() if line.startswith("sbatch")]


def minutes(count: int) -> str:
    return f"minutes={count}"


def refused(text: str) -> str:
    return f'echo "allocation failure: {text}" >&2; exit 1'


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doubles:
    """This machine as a login node, without profiles, 80 columns wide."""
    folder = tmp_path / "bin"
    folder.mkdir()
    doubles = Doubles(folder, tmp_path / "asked")
    for name, body in (("scontrol", SCONTROL), ("sinfo", SINFO), ("squeue", SQUEUE), ("sacctmgr", SACCTMGR)):
        doubles.put(name, body)
    doubles.start(_=minutes(0))
    doubles.asked.write_text("")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")
    return doubles


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command; its exit code and what it printed."""

    def told(*words: str) -> tuple[int, str]:
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.err + captured.out

    return told


Told = Callable[..., tuple[int, str]]


def test_when_something_starts_now_nothing_else_is_asked_for(slurm: Doubles, told: Told) -> None:
    code, text = told("when", "-t", "2:00:00", "--gpus", "t4:1", "-p", "gpu")
    assert code == 0
    assert "Now on g1 in partition gpu, with -t 2:00:00 -p gpu --gpus t4:1\n" in text
    assert slurm.tests() == ["sbatch --test-only --gpus=t4:1 --partition=gpu --time=2:00:00 --wrap=true"]


def test_what_would_start_sooner_is_listed_by_its_start(slurm: Doubles, told: Told) -> None:
    slurm.start(devcore=minutes(0), a100=minutes(30), core=refused("Invalid qos specification"), _=minutes(80))
    code, text = told("when", "-t", "2:00:00", "--gpus", "t4:1", "-p", "gpu")
    assert code == 0
    lines = [line.rstrip() for line in text.splitlines()]
    start = next(place for place, line in enumerate(lines) if "(in 1 h 20 min) on g1 in partition gpu" in line)
    assert re.fullmatch(r"≈ (\w{3} )?\d\d:\d\d \(in 1 h 20 min\) on g1 in .*--gpus t4:1", lines[start])
    below = [re.sub(r"≈ .*\(in", "≈ (in", re.sub(r" {2,}", "  ", line)) for line in lines[start + 1 :]]
    assert "Asking about 5 alternatives" in lines[:start]  # on standard error
    assert below == [
        "",
        "Sooner:",
        "  now  -t 1:00:00 -p devcore --gpus 0  devcore (g1)",
        "  ≈ (in 30 min)  --gpus a100:1  gpu (g1)",
        "No sooner: -t 1:00:00; -t 0:30:00",
        "Not possible: -p core",
        "",
        "This is the scheduler's estimate as of now: "
        "jobs that end early or late, and new ones ahead of yours, change it.",
    ]
    assert len(slurm.tests()) == 6


def test_as_json_there_is_one_event_for_the_request_and_one_for_each_variation(slurm: Doubles, told: Told) -> None:
    slurm.start(devcore=minutes(0), a100=minutes(30), core=refused("Invalid qos specification"), _=minutes(80))
    code, text = told("when", "-t", "2:00:00", "--gpus", "t4:1", "-p", "gpu", "--json")
    found = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [event["event"] for event in found] == [
        "querying",
        "forecast",
        "querying",
        *["alternative"] * 5,
        "forecast_done",
    ]
    forecast, others = found[1], found[3:8]
    assert (forecast["flags"], forecast["partition"], forecast["exit_code"]) == (
        "-t 2:00:00 -p gpu --gpus t4:1",
        "gpu",
        0,
    )
    assert 79 * 60 < forecast["seconds"] <= 80 * 60
    start = datetime.fromisoformat(forecast["start"])
    assert abs(start - datetime.now(timezone.utc) - timedelta(minutes=80)) < timedelta(minutes=1)
    assert [(event["flags"], event["sooner"], bool(event["start"])) for event in others] == [
        ("-t 1:00:00 -p devcore --gpus 0", True, True),
        ("--gpus a100:1", True, True),
        ("-t 1:00:00", False, True),
        ("-t 0:30:00", False, True),
        ("-p core", False, False),
    ]
    assert others[0]["seconds"] == 0
    assert others[4]["what"]


def test_of_several_partitions_each_is_asked_about(slurm: Doubles, told: Told) -> None:
    """Slurm answers for the first one only."""
    slurm.start(**{"partition=gpu": minutes(90), "partition=core": minutes(40), "_": minutes(95)})
    code, text = told("when", "-t", "1:00:00", "--gpus", "1", "-p", "gpu,core")
    assert code == 0
    assert "(in 40 min)" in text
    assert "-p gpu,core" in text
    asked = [re.search(r"--partition=\S+", line) for line in slurm.tests()]
    assert [word.group(0) for word in asked[:2] if word] == ["--partition=gpu", "--partition=core"]
    assert "--partition=gpu,core" not in slurm.asked.read_text()


@pytest.mark.parametrize(
    ("starts", "code", "asked", "says"),
    [
        pytest.param({}, 0, "abcd", "Partitions core, x were not asked about: it may start sooner", id="not all"),
        pytest.param({"=": minutes(0)}, 0, "abcd", "Partitions core, x were not asked about.", id="now"),
        pytest.param(
            {f"={name}?--time": refused("Requested node configuration is not available") for name in "abcd"},
            0,
            ["a", "b", "c", "d", "core", "x"],
            "on g1 in partition core, with ",
            id="the first four refuse",
        ),
        pytest.param(
            {"=": refused("Requested node configuration is not available")},
            57,
            ["a", "b", "c", "d", "core", "x"],
            "configuration is not available",
            id="all refuse",
        ),
    ],
)
def test_of_many_partitions_more_are_asked_about_until_one_takes_it(
    slurm: Doubles, told: Told, starts: dict[str, str], code: int, asked: Sequence[str], says: str
) -> None:
    slurm.start(**{f"partition{key}": value for key, value in starts.items()}, _=minutes(50))
    slurm.put("scontrol", scontrol_with(*"abcdx"))
    found, text = told("when", "-t", "0:10:00", "-p", "a,b,c,d,core,x", "-n", "1")
    assert found == code, text
    assert says in text
    tests = [re.findall(r"--partition=(\S+)", line)[0] for line in slurm.tests()]
    assert tests[: len(asked)] == list(asked)
    assert ("not asked about" in text) is (len(asked) == 4)


@pytest.mark.parametrize("asked", ["core,nope", "nope,core", "core,devcore,gpu,a,b,nope"])
def test_one_partition_that_does_not_exist_is_a_refusal_in_all(slurm: Doubles, told: Told, asked: str) -> None:
    slurm.put("scontrol", scontrol_with("a", "b"))
    slurm.start(nope=refused("Invalid partition name specified"), _=minutes(0))
    code, text = told("when", "-t", "0:10:00", "-p", asked)
    assert code == 51
    assert "Now on" not in text


def test_nothing_is_sooner_than_the_begin_time(slurm: Doubles, told: Told) -> None:
    slurm.start(_=minutes(600))
    code, text = told("when", "-t", "2:00:00", "--begin", "now+10hours")
    assert (code, len(slurm.tests())) == (0, 1)
    assert "(in 10 h)" in text


# --- requests that cannot start --------------------------------------------------------------------------------


def test_a_refusal_is_an_answer_with_the_refusals_exit_code(slurm: Doubles, told: Told) -> None:
    slurm.start(t4=refused("Requested node configuration is not available"), _=minutes(5))
    code, text = told("when", "-t", "2:00:00", "--gpus", "t4:9", "-p", "gpu", "--json")
    forecast = next(event for event in map(json.loads, text.splitlines()) if event["event"] == "forecast")
    assert code == forecast["exit_code"] != 0
    assert forecast["start"] is None
    assert "Requested node configuration is not available" in forecast["why"]
    assert forecast["what"]
    assert forecast["hint"]
    # a shorter walltime would not hint that
    assert [re.findall(r"--time=\S+", line) for line in slurm.tests()] == [["--time=2:00:00"], ["--time=1:00:00"]]


def test_a_refusal_is_explained_as_at_a_launch(slurm: Doubles, told: Told) -> None:
    slurm.start(_=refused("Requested node configuration is not available"))
    code, text = told("when", "-t", "2:00:00", "-p", "core", "-N", "9")
    assert code == 57
    assert "Slurm would refuse the job. It asks for 9 nodes, and partition core has 3." in text and "-N 3" in text
    assert "refused" not in text, "nothing was submitted"


def test_where_all_nodes_are_drained_it_waits_until_one_is_back(slurm: Doubles, told: Told) -> None:
    """Slurm's test then says what it says of nodes that there are not; a launch is queued and waits."""
    slurm.put("sinfo", 'echo "n1 devcore drained 0/0/20/20 (null) (null) coffee"\n'
                       'echo "g1 core mixed 3/13/0/16 (null) (null) none"\n')  # fmt: skip
    slurm.start(devcore=refused("Requested node configuration is not available"), _=minutes(5))
    code, text = told("when", "-p", "devcore", "-t", "20")
    assert code == 0 and "\nThe only node of partition devcore that could run the job is out of service" in text
    assert "waits until" in text and "never" not in text and "Without that" not in text
    slurm.put("sinfo", "true")
    code, text = told("when", "-p", "devcore", "-t", "20")
    assert code == 57 and "could run the job" not in text, "of nodes that are not known nothing is said"


def test_what_would_start_instead_is_shown_below_a_refusal(slurm: Doubles, told: Told) -> None:
    slurm.start(t4=refused("Requested node configuration is not available"), _=minutes(0))
    _, text = told("when", "-t", "2:00:00", "--gpus", "t4:9", "-p", "gpu")
    assert re.search(r"^This would start:\n  now  -t 1:00:00 -p devcore --gpus 0 ", text, re.M)


def test_what_no_variation_mends_is_not_varied(slurm: Doubles, told: Told) -> None:
    slurm.start(_=refused("Invalid account or account/partition combination specified"))
    slurm.put("sacctmgr", 'echo "practice|proj1|normal"\n')
    code, text = told("when", "-t", "2:00:00", "-A", "nope", "--gpus", "t4:1")
    assert (code, len(slurm.tests())) == (50, 1)
    assert "The account nope is not yours. Yours are: proj1." in text
    assert "estimate" not in text


def test_a_cluster_that_does_not_exist_is_answered_with_those_that_do(slurm: Doubles, told: Told) -> None:
    """The answers are those of Slurm 24.11."""
    unknown = "'snwy' can't be reached now, or it is an invalid entry for --cluster."
    slurm.put("sbatch", """echo "sbatch: error: No cluster 'snwy' known by database." >&2; exit 1""")
    for name in ("sinfo", "scontrol", "squeue"):
        slurm.put(name, f'echo "{name}: error: {unknown}" >&2; exit 1')
    slurm.put("sacctmgr", "printf 'practice\\nsnowy\\n'\n")
    expected = "There is no cluster snwy. The clusters are: snowy, practice."
    for code, command in ((61, ("when", "-M", "snwy", "-t", "20")), (17, ("queue", "-M", "snwy"))):
        found, text = told(*command)
        assert found == code
        assert expected in " ".join(text.split()) and "did you mean -M snowy?" in text


def test_what_the_test_does_not_see_and_can_never_start_is_told(
    slurm: Doubles, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's test knows neither the partition's time limit nor those of accounts and QOS."""

    def beyond(request: Request, evidence: object) -> Explanation | None:
        too_long = request.walltime > timedelta(days=2)
        return Explanation("partition gpu allows 2 days", "try -t 2-00:00:00", never=True) if too_long else None

    monkeypatch.setattr(explain, "never_starts", beyond)
    code, text = told("when", "-t", "3-0", "-p", "gpu", "--gpus", "1")
    assert code == 23
    assert "by the limits that can be read, it would never start: partition gpu allows 2 days." in text
    assert "→ try -t 2-00:00:00" in text
    assert re.search(r"now +-t 2-00:00:00 ", text)
    assert not [line for line in slurm.tests()[1:] if "--time=3-0" in line]


def test_a_limit_that_is_used_up_is_told_and_what_counts_on_it_is_not_offered(slurm: Doubles, told: Told) -> None:
    """Of account proj1's two GPUs one is in use."""
    slurm.start(_=minutes(0))
    code, text = told("when", "-t", "2:00:00", "-p", "gpu", "--gpus", "t4:2", "-A", "proj1")
    assert code == 0
    assert "Account proj1 allows 2 GPUs for all who share it, and 1 is in use" in text
    assert "Without that: now on g1 in partition gpu, with " in text
    assert [line for line in slurm.tests()[1:] if "gpus" in line] == []
    assert re.search(r"now +-t 1:00:00 -p devcore --gpus 0 ", text)


def scontrol_with(*partitions: str) -> str:
    last = next(line for line in SCONTROL.splitlines() if line.endswith(";;") and "gpu" in line)
    more = "".join(f'; echo "PartitionName={partition} MaxTime=2-00:00:00 State=UP"' for partition in partitions)
    return SCONTROL.replace(last, last.replace(" ;;", f"{more} ;;"))


def sinfo_with(partition: str) -> str:
    return f"{SINFO}echo 'n1 {partition} idle 0/20/0/20 (null) (null) none'\n"


def test_a_partition_where_jobs_make_room_for_others_is_marked(slurm: Doubles, told: Told) -> None:
    slurm.put("scontrol", scontrol_with("scavenge PreemptMode=REQUEUE"))
    slurm.put("sinfo", sinfo_with("scavenge"))
    slurm.start(scavenge=minutes(0), _=minutes(80))
    _, text = told("when", "-t", "2:00:00", "-p", "core")
    assert re.search(r"^  now +-p scavenge +scavenge \(g1\) \* *$", text, re.M)
    assert "\n  * A job there may be preempted.\n" in text


def test_a_partition_that_is_closed_at_the_moment_is_told(slurm: Doubles, told: Told) -> None:
    slurm.put("scontrol", SCONTROL.replace("MaxTime=01:00:00 State=UP", "MaxTime=01:00:00 State=DOWN"))
    _, text = told("when", "-t", "0:30:00", "-p", "devcore")
    assert "Partition devcore is closed at the moment: it waits until that is opened." in text
    assert re.search(r"^  now +-p core ", text, re.M)


def test_a_partition_that_is_closed_to_the_default_account_is_told_and_not_offered(slurm: Doubles, told: Told) -> None:
    """Slurm's test does not look at AllowAccounts; alice's default account is proj1."""
    slurm.put("scontrol", scontrol_with("urgent AllowAccounts=proj2"))
    slurm.put("sinfo", sinfo_with("urgent"))
    slurm.start(_=minutes(80))
    told("when", "-t", "2:00:00", "-p", "core")
    assert [line for line in slurm.tests() if "urgent" in line] == []
    slurm.start(_=minutes(0))
    _, text = told("when", "-t", "2:00:00", "-p", "urgent")
    assert "Account proj1 may not use partition urgent" in text


def test_limits_that_could_not_be_read_are_said_to_be_left_out(slurm: Doubles, told: Told) -> None:
    slurm.put("scontrol", SCONTROL.replace("sed", "exit 1; sed"))
    _, text = told("when", "-t", "2:00:00")
    assert "limits of your accounts and QOS could not be read" in text


@pytest.mark.parametrize(("flag", "words"), [("--hold", "released"), ("--dependency=afterok:6", "--dependency")])
def test_what_holds_a_job_back_and_is_not_tested_is_told(slurm: Doubles, told: Told, flag: str, words: str) -> None:
    code, text = told("when", "-t", "2:00:00", flag)
    assert code == 0
    assert re.search(rf"^(It|The estimate) .*{words}", text, re.M)


def test_no_time_and_no_refusal_is_no_answer(slurm: Doubles, told: Told) -> None:
    slurm.put("sbatch", "echo 'sbatch: all is well' >&2\n")
    code, text = told("when", "-t", "2:00:00")
    assert code == 17
    assert "sbatch: all is well" in text


def test_a_scheduler_that_is_away_is_an_error_and_no_forecast(slurm: Doubles, told: Told) -> None:
    slurm.start(_=refused("Unable to contact slurm controller (connect failure)"))
    code, text = told("when", "-t", "2:00:00", "--json")
    found = [json.loads(line)["event"] for line in text.splitlines()]
    assert (code, found) == (63, ["querying", "error"])


def test_a_scheduler_that_falls_silent_in_between_is_a_note(slurm: Doubles, told: Told) -> None:
    slurm.start(**{"partition=gpu": minutes(90), "_": refused("Unable to contact slurm controller (connect failure)")})
    code, text = told("when", "-t", "2:00:00", "-p", "gpu", "--gpus", "a100:1")
    assert code == 0
    assert "(in 1 h 30 min)" in text
    assert "did not answer for the alternatives" in text


@pytest.mark.parametrize("words", [["when", "--", "tf-gpu"], ["when", "--array=1-3"], ["when", "-t", "soon"]])
def test_what_cannot_be_asked_is_a_usage_error(slurm: Doubles, told: Told, words: list[str]) -> None:
    code, _ = told(*words)
    assert (code, slurm.tests()) == (2, [])


# --- what is free, in a terminal and not -----------------------------------------------------------------------


def test_the_queue_fits_eighty_columns_and_is_plain_text_in_a_pipe(slurm: Doubles, told: Told) -> None:
    code, text = told("queue")
    assert code == 0
    assert "\x1b" not in text
    assert [line.rstrip() for line in text.splitlines()] == [
        "Asking the scheduler what is free",
        "Partition       Limit           Free  Busy  Out  Waiting  GPUs asked",
        "core (default)  10 days  a100      1     3    0        1           0",
        "                         t4        0     2    0",
        "                         cores    20     0    0",
        "devcore         1 hour   cores    20     0    0        0           0",
        "gpu             2 days   a100      1     3    0       12          18",
        "                         t4        0     2    0",
        "",
        "GPUs in all: a100 1 of 4 free, t4 0 of 2 free.",
        "Cores: those of nodes without GPUs.",
        "Waiting: 13 jobs (18 GPUs asked for), none of them yours.",
    ]


def test_a_queue_that_is_not_told_is_no_empty_queue(slurm: Doubles, told: Told) -> None:
    slurm.put("squeue", "echo 'slurm_load_jobs error: Access/permission denied' >&2; exit 1\n")
    _, text = told("queue")
    rows = [line.split() for line in text.splitlines() if line.startswith(("core ", "devcore ", "gpu "))]
    assert [row[-2:] for row in rows] == [["?", "?"]] * 3
    assert text.splitlines()[-1] == "The scheduler does not report which jobs wait."


def test_hidden_jobs_are_said_to_be_hidden(slurm: Doubles, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "jobs,usage")
    slurm.put("squeue", "true\n")
    _, text = told("queue")
    assert text.splitlines()[-1] == "Waiting: 0 jobs of yours. Other people's jobs are hidden from you here."


def test_the_queue_as_json(slurm: Doubles, told: Told) -> None:
    _, text = told("queue", "--json")
    event = json.loads(text.splitlines()[-1])
    assert event["gpus"] == [
        {"type": "a100", "free": 1, "busy": 3, "unavailable": 0},
        {"type": "t4", "free": 0, "busy": 2, "unavailable": 0},
    ]
    assert [(partition["name"], partition["pending"]) for partition in event["partitions"]] == [
        ("core", 1),
        ("devcore", 0),
        ("gpu", 12),
    ]
    assert (event["pending"], event["pending_gpus"], event["yours"], event["hidden"]) == (13, 18, 0, False)


def test_the_other_cluster_is_asked_about_by_every_command(slurm: Doubles, told: Told) -> None:
    told("queue", "-M", "snowy")
    asked = slurm.asked.read_text().splitlines()
    assert len(asked) == 4
    assert [line for line in asked if "--clusters=snowy" not in line] == []


def test_a_scheduler_that_tells_nothing_of_its_nodes(slurm: Doubles, told: Told) -> None:
    slurm.put("sinfo", "echo 'slurm_load_partitions: Access/permission denied' >&2; exit 1\n")
    code, text = told("queue")
    assert code == 17
    assert "Access/permission denied" in text


@pytest.mark.parametrize("command", ["when", "queue"])
def test_without_a_scheduler_there_is_no_queue(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    monkeypatch.setattr("notebook_launcher.planning.target.shutil.which", lambda name: None)
    code, text = told(command)
    assert code == 0
    assert "There is no queue on this machine" in text
    assert f"launch-notebook {command} --cluster NAME" in text, "what to type to ask a cluster"
    code, text = told(command, "--cluster", "here")
    assert code == 0
    assert "There is no queue on this machine" in text and "--cluster NAME" not in text
