"""``submit`` and ``report``: job scripts, their steps and job arrays with a real Slurm and its accounting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.scripts.templates import find_template
from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

Start = Callable[..., Session]

#: starts a task on each of two nodes, uses a file beside it, its input, a variable and arguments, and reports a result
#: as a training does
SCRIPT = r"""#!/bin/bash -l
#SBATCH --job-name=mine --time=0:05:00   # minutes
#SBATCH -N 2 --ntasks-per-node=1 --mem=200M
#SBATCH --output=%x-%j.out
printf 'in %s of %s with %s and %s\n' "${PWD##*/}" "$(basename "$SLURM_SUBMIT_DIR")" "$EPOCHS" "$*"
source ./beside.sh
read -r line && echo "it reads: $line"
srun bash -c 'echo "task $SLURM_PROCID on $SLURMD_NODENAME"; sleep 3'
echo '{"notebook-launcher": 1, "epochs": 3, "images": 300}'
exit "${CODE:-0}"
"""


@pytest.fixture
def scripts(cluster: PracticeCluster) -> Iterator[Callable[..., str]]:
    """Create the script on the laptop; yield a function that runs a command of alice's and returns its output."""

    def run(*argv: str, box: str = "laptop") -> str:
        return cluster.run(box, "alice", list(argv), check=True).stdout

    made = "rm -rf lab && mkdir lab && printf '%s' \"$1\" >lab/mine.sh && echo 'echo \"beside it\"' >lab/beside.sh"
    run("sh", "-c", made, "make", SCRIPT.replace("\n", "\r\n"))
    yield run
    run("rm", "-rf", "lab")


def test_a_script_of_ones_own_from_the_laptop_to_what_it_used(
    cluster: PracticeCluster, start: Start, scripts: Callable[..., str]
) -> None:
    """Its #SBATCH lines apply unless flags replace them, files are sent with it, and Windows line ends are removed."""
    along = ("--with", "lab/beside.sh", "--input", "lab/beside.sh")
    sent = start("submit", "lab/mine.sh", *along, "-t", "4", "--", "EPOCHS=3", "--fast", "a b")
    sent.expect(r"Removed from the copy that is sent: Windows line ends \(CRLF\) of mine.sh\.")
    sent.expect(r"Script mine.sh, which asks for -t 0:05:00 .*beside.sh.*go\s+with\s+it")
    sent.expect("it may run for 4 minutes")
    sent.expect("in work of work with 3 and --fast a b")
    sent.expect("beside it")
    sent.expect("it reads: echo .beside it.")
    sent.expect(r"task \d on node\d")
    sent.expect(r"task \d on node\d")
    sent.expect("The script mine.sh finished after 0:0")
    sent.expect(r"Job \d+ \(mine.sh\): COMPLETED")
    sent.expect(r"time +4 min +\d")
    sent.expect(r"0 \(srun\) +2 tasks on node\[1-2\]")
    assert sent.end() == 0, sent.printed
    shown = start("report", sent.job_id)
    for text in (r"State +COMPLETED", r"Timelimit +0:04:00", "CPUTime", "ReqMem", r"AllocTRES +billing"):
        shown.expect(text)
    assert shown.end() == 0
    listed = start("list", columns=200)  # wide enough for other sessions in the list
    listed.expect("mine.sh")
    assert listed.end() == 0
    assert_nothing_left(cluster)


def test_a_script_that_fails_and_a_job_that_was_submitted_by_hand(
    cluster: PracticeCluster, start: Start, scripts: Callable[..., str]
) -> None:
    sent = start("submit", "lab/mine.sh", "--with", "lab/beside.sh", "-N", "1", "--", "CODE=3")
    sent.expect(r"Job \d+ \(mine.sh\): FAILED")
    sent.expect("The script mine.sh on node1 ended with exit code 3")
    assert sent.end() == 39, sent.printed
    by_hand = scripts(
        *("sh", "-c", "sbatch --parsable --wait --time=3 --job-name='a|b' --output=/dev/null --wrap='exit 2' || :"),
        box="login",
    ).strip()
    *_, line = scripts("launch-notebook", "report", by_hand, "--json").splitlines()
    event = json.loads(line)
    columns = {one["column"]: one["value"] for one in event["columns"]}
    assert (event["job"], event["job_name"], event["state"], event["session"]) == (by_hand, "a|b", "FAILED", None)
    assert columns["ExitCode"] == "2:0" and columns["Timelimit"] == "0:03:00" and columns["NodeList"] == "node1"
    unknown = start("report", "999999")
    unknown.expect("Nothing is known of job 999999")
    assert unknown.end() == 40
    assert_nothing_left(cluster)


def test_all_tasks_of_a_job_array_are_followed_and_a_failed_one_is_named(
    cluster: PracticeCluster, start: Start, scripts: Callable[..., str]
) -> None:
    """``--array`` replaces the script's own; each task has its own output file, and the third waits for another one."""
    text = """#!/bin/bash
#SBATCH --array=1-9 --time=5 -p devcore --output=%x-%A_%a.out
echo "task $SLURM_ARRAY_TASK_ID in ${PWD##*/}"
exit "$((SLURM_ARRAY_TASK_ID == 2 ? 3 : 0))"
"""
    scripts("sh", "-c", "printf '%s' \"$1\" >lab/sweep.sh", "make", text)
    sent = start("submit", "lab/sweep.sh", "--array", "1-3%2")
    sent.expect(r"Job \d+ \(sweep.sh\): 2 COMPLETED, 1 FAILED")
    sent.expect(r"tasks +3 +2 completed +67 %")
    sent.expect(r"2 +FAILED +node\d")
    sent.expect(r"1 of 3 tasks of sweep.sh did not finish: task 2 \(exit code 3\)\.")
    assert sent.end() == 39, sent.printed
    assert all(f"{number}: task {number} in work" in sent.printed for number in (1, 2, 3))
    shown = scripts("launch-notebook", "logs", sent.session_id)
    assert f"{sent.job_id}_3.out <==" in shown and "\ntask 3 in work\n" in shown
    assert_nothing_left(cluster)


def test_a_template_comes_with_nothing_and_is_printed_for_the_cluster(
    cluster: PracticeCluster, start: Start, scripts: Callable[..., str]
) -> None:
    if find_template("first-job") is None:
        pytest.skip("there are no bundled job scripts here")
    sent = start("submit", "first-job", "--detach")
    assert sent.end() == 0
    again = start("connect", sent.session_id)
    again.expect("Hello from job")
    again.expect("The script first-job.sh finished")
    assert again.end() == 0
    printed = scripts("sh", "-c", "launch-notebook jobscript first-job -t 3 -A proj1")
    assert "#SBATCH --time=3\n" in printed and "#SBATCH --account=proj1\n" in printed
    assert_nothing_left(cluster)
