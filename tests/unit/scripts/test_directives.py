"""Which of a script's lines count on a cluster, and the file that it reads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from notebook_launcher import submit
from notebook_launcher.core.errors import ScriptInvalid, UsageError
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.scripts.directives import check_scheduler_found, for_scheduler, with_input
from notebook_launcher.scripts.prepare import PreparedScript, prepare_script

LAPTOP = LocalMachine("laptop")
BOTH = "#!/bin/sh\n#SBATCH -t 5\n#BSUB -W 0:10\n"


def script(tmp_path: Path, text: str) -> PreparedScript:
    path = tmp_path / "job.sh"
    path.write_text(text)
    return prepare_script(str(path))


@pytest.mark.parametrize(
    ("text", "scheduler", "flags"),
    [
        (BOTH, "slurm", {"time": "5"}),
        (BOTH, "lsf", {"time": "0:10:00"}),
        (BOTH, "auto", {"time": "5"}),
        ("#!/bin/sh\n#SBATCH -t 5\n#PBS -q x\n", "lsf", {"time": "5"}),
        ("#!/bin/sh\n#BSUB -W 0:10 -o x.out\n", "auto", {"time": "0:10:00"}),
        ("#!/bin/sh\n#BSUB -W 0:10\n", "local", {"time": "0:10:00"}),
        ("#!/bin/sh\n#SBATCH --ignore-pbs\n#PBS -q x\n", "slurm", {}),
        ("#!/bin/sh\n", "lsf", {}),
    ],
)
def test_the_lines_of_the_clusters_scheduler_count(
    tmp_path: Path, text: str, scheduler: str, flags: dict[str, str]
) -> None:
    assert for_scheduler(script(tmp_path, text), scheduler, "uni").directives.flags == flags


def test_what_is_left_out_and_where_it_prints_is_said(tmp_path: Path) -> None:
    text = "#!/bin/sh\n#BSUB -W 0:10 -o gpu_%J.out -e gpu_%J.err -Q 99\n"
    assert for_scheduler(script(tmp_path, text), "lsf", "dtu").notes == (
        "Left out of what the #BSUB lines ask for: -Q 99.",
        "What it prints goes to the session's log, not to gpu_%J.out and gpu_%J.err: launch-notebook logs",
    )
    (note,) = for_scheduler(script(tmp_path, "#!/bin/sh\n#PBS -q x\n"), "local", None).notes
    assert note == "The script's #PBS lines have no effect here: there is no scheduler."


@pytest.mark.parametrize(
    ("lines", "scheduler", "what", "hint"),
    [
        (
            "#BSUB -W 0:10 -n 4",
            "slurm",
            "#BSUB lines, for LSF, and uni has Slurm",
            "#SBATCH --ntasks=4\n  #SBATCH --time",
        ),
        ("#BSUB -w x", "slurm", "#BSUB lines, for LSF", "#SBATCH --time=1:00:00"),
        ("#PBS -q x\n#$ -t 1", "lsf", "#PBS and #$ lines, for PBS and Grid Engine, and uni has LSF", "#SBATCH --time"),
        ("#PBS -q x", "auto", "for PBS, and uni has another scheduler", "#SBATCH --time"),
        ("#PBS -q x", "gridengine", "for PBS, and uni has Grid Engine.", "#SBATCH --time"),
        ("#PBS -q x", "pbs", "for PBS, which are not read here.", "with qsub job.sh, or write what it needs"),
        ("#$ -t 1", "gridengine", "for Grid Engine, which are not read here.", "with qsub -cwd job.sh, or write"),
    ],
)
def test_lines_for_another_scheduler_alone_are_refused(
    tmp_path: Path, lines: str, scheduler: str, what: str, hint: str
) -> None:
    with pytest.raises(ScriptInvalid) as caught:
        for_scheduler(script(tmp_path, f"#!/bin/sh\n{lines}\n"), scheduler, "uni")
    assert what in caught.value.what and hint in caught.value.hint


@pytest.mark.parametrize(
    ("lines", "found", "refused"),
    [
        ("#BSUB -W 0:10", "pbs", True),
        ("#BSUB -W 0:10", "slurm", True),
        ("#BSUB -W 0:10", "lsf", False),
        ("#BSUB -W 0:10\n#SBATCH -t 10", "slurm", False),
        ("#SBATCH -t 10", "slurm", False),
    ],
)
def test_which_scheduler_there_is_may_be_known_only_after_login(
    tmp_path: Path, lines: str, found: str, refused: bool
) -> None:
    own = for_scheduler(script(tmp_path, f"#!/bin/sh\n{lines}\n"), "auto", None)
    check_scheduler_found(own, "lsf", found, None)  # as the profile says
    with pytest.raises(ScriptInvalid, match="for LSF, and this cluster has") if refused else contextlib.nullcontext():
        check_scheduler_found(own, "auto", found, None)


def test_on_lsf_its_own_lines_become_flags_of_bsub(tmp_path: Path) -> None:
    own = script(tmp_path, "#!/bin/sh\n#BSUB -q gpuv100 -W 0:10 -wa USR1 -wt 2\n#SBATCH --gpus=4\n")
    plan, used = submit.planned(LaunchOptions({"time": "5"}, cluster="dtu"), LAPTOP, own)
    flags = plan.request.flags
    assert (flags["partition"], flags["time"], flags["signal"]) == ("gpuv100", "5", "B:USR1@120")
    assert used.directives.flags["time"] == "0:10:00"


@pytest.mark.parametrize(
    ("flags", "queue"), [({}, "gpuv100"), ({"gpus": "a100:1"}, "gpua100"), ({"partition": "mine"}, "mine")]
)
def test_the_queue_of_a_bundled_script_is_an_example(flags: dict[str, str], queue: str) -> None:
    plan, used = submit.planned(LaunchOptions(flags, cluster="dtu"), LAPTOP, prepare_script("gpu-check"))
    assert plan.request.flags["partition"] == queue and used.directives.others
    assert plan.request.gpus == 1


def test_flags_that_the_scheduler_has_nothing_like_are_named(tmp_path: Path) -> None:
    own = script(tmp_path, "#!/bin/sh\n#SBATCH --signal=B:USR1@60 --qos=high -n 2 -o x\n")
    plan, sent = submit.planned(LaunchOptions({"account": "a1"}, cluster="casper"), LAPTOP, own)
    assert sent.notes == ("Left out of the script's lines: --qos, --signal; PBS has nothing like it.",)
    assert "qos" not in plan.request.flags and plan.request.flags["ntasks"] == "2"


# --- its standard input ----------------------------------------------------------------------------------------


def test_a_file_of_this_folder_goes_along_and_is_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("1\n")
    own = script(tmp_path, "#!/bin/sh\n#SBATCH --input=gone.txt\ncat\n")
    plan, sent = submit.planned(LaunchOptions({"input": "in.txt"}, cluster="dtu"), LAPTOP, own)
    assert sent.stdin == "in.txt" and sent.files == {"in.txt": b"1\n"} and "input" not in plan.request.flags
    assert submit._payload(plan, sent, (), here=False).lines["input"] == "in.txt"
    with pytest.raises(UsageError, match=r"The file gone.txt, .* is not in this folder"):
        submit.planned(LaunchOptions({}, cluster="dtu"), LAPTOP, own)
    here = with_input(own, "gone.txt", is_remote=False)  # as with sbatch: the job finds out
    assert here.stdin == "gone.txt" and here.files == {}


@pytest.mark.parametrize("name", ["/data/in.txt", "/dev/null", None])
def test_a_file_of_the_cluster_stays_there(tmp_path: Path, name: str | None) -> None:
    sent = with_input(script(tmp_path, "#!/bin/sh\n"), name, is_remote=True)
    assert sent.files == {} and sent.stdin == (None if name == "/dev/null" else name)


@pytest.mark.parametrize("name", ["", "a\nb", "in-%j.txt", "../in.txt", "~/in.txt", "job.sh", "folder"])
def test_an_input_that_cannot_go_along_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        with_input(script(tmp_path, "#!/bin/sh\n"), name, is_remote=True)
