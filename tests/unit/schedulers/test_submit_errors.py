"""Submissions that Slurm did not take: its words, told in ours, with an error and an exit code for each cause."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core import errors
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    LauncherError,
    SchedulerAway,
    SchedulerMissing,
    SubmitRefused,
    SubmitUncertain,
)
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.paths import RECORDED

SLURM = Slurm()


def test_several_lines_of_sbatch_are_told_apart() -> None:
    said = (
        "sbatch: error: invalid partition specified: gpuu\nsbatch: error: Batch job submission failed: Invalid name\n"
    )
    assert refused(said).why == "sbatch: invalid partition specified: gpuu; Batch job submission failed: Invalid name"


def recorded() -> list[tuple[str, str, str]]:
    """Return the kind of error, what was asked, and what sbatch printed."""
    blocks = re.split(r"^-- ", (RECORDED / "sbatch_refusals.txt").read_text(), flags=re.M)[1:]
    rows = []
    for block in blocks:
        head, _, said = block.partition("\n")
        versions, kind, asked = head.split(" | ")
        assert set(versions.split()) <= {"26.05", "24.11", "22.05"}
        rows.append((kind, asked, said))
    return rows


def unprovoked() -> list[tuple[str, str]]:
    """Return the kind of error, and the text of Slurm's table of errors."""
    lines = (RECORDED / "sbatch_errors.txt").read_text().splitlines()
    return [(kind, text) for kind, _, text in (line.partition(" | ") for line in lines if not line.startswith("#"))]


def refused(stderr: str, exit_code: int = 1) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        SLURM.read_submit(CommandResult(exit_code, "", stderr))
    return caught.value


def test_what_sbatch_printed_is_told_in_its_words_and_in_ours() -> None:
    for kind, asked, said in recorded():
        error = refused(said)
        assert type(error) is getattr(errors, kind), asked
        assert isinstance(error, SubmitRefused)
        assert error.what.endswith(".") and error.hint, asked
        assert error.why.startswith("sbatch: ")
        assert "sbatch: error:" not in error.why and "sbatch: fatal:" not in error.why
        for line in said.splitlines():
            assert re.sub(r"^sbatch: (error: |fatal: )?", "", line).strip() in error.why


def test_a_flag_with_an_invalid_value_is_named_with_an_example() -> None:
    memory = refused("sbatch: error: Invalid --mem specification\n")
    assert memory.what == "Slurm refused the job. --mem has a value that it cannot have."
    assert memory.hint == "for example: --mem 16G, or --mem 500M"
    assert "--gpus takes a number or TYPE:NUMBER" in refused("sbatch: error: Invalid --gpus specification\n").hint
    other = refused("sbatch: error: Invalid --open-mode specification\n")
    assert "--open-mode has a value that it cannot have." in other.what
    assert other.hint


def test_the_rest_of_slurms_table_of_errors() -> None:
    for kind, text in unprovoked():
        error = refused(f"sbatch: error: Batch job submission failed: {text}\n")
        assert type(error) is getattr(errors, kind), text
        assert error.hint, text


def test_both_lists_are_read() -> None:
    assert len(recorded()) == 82
    assert len(unprovoked()) == 107
    kinds = {kind for kind, _, _ in recorded()}
    all_kinds = {kind.__name__ for kind in (SubmitRefused, *SubmitRefused.__subclasses__())}
    assert kinds == all_kinds, "each kind of refusal was seen on a real Slurm"


@pytest.mark.parametrize(
    ("said", "what", "hint"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "Slurm refused the job. The account is not yours on this cluster, or may not use this partition.",
            "name one of yours with -A",
        ),
        (
            "sbatch: error: invalid partition specified: cor\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "Slurm refused the job. There is no partition of that name.",
            "sinfo -s",
        ),
        (
            "sbatch: error: CPU count per node can not be satisfied\n"
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "Slurm refused the job. No node there has that many cores.",
            "ask for less, or another partition",
        ),
        (
            "sbatch: error: QOSMaxGRESPerUser\n"
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
            "size and/or time limits)",
            "Slurm refused the job. With it, you would use more GPUs (GRES) at once than the QOS allows one user.",
            "ask for less, or try another QOS with -q; on the login node, see the limit with: "
            "sacctmgr show qos format=name,MaxTRESPU",
        ),
        (
            "sbatch: error: AssocMaxSubmitJobLimit\n"
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
            "size and/or time limits)",
            "Slurm refused the job. You have as many jobs, waiting and running, as your account allows one user.",
            "end other jobs of yours: squeue --me",
        ),
        (
            "sbatch: error: QOSMaxWallDurationPerJobLimit\n"
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (…)",
            "Slurm refused the job. Its walltime is longer than the QOS allows one job.",
            "ask for less with -t",
        ),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (…)",
            "Slurm refused the job. A limit of your account or QOS does not allow this job now.",
            "squeue --me",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            "The job was not queued. The scheduler does not answer at the moment.",
            "try again in a minute",
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "The scheduler does not answer at the moment.",
            "look with: squeue --me",
        ),
        (
            "sbatch: error: No cluster 'snwy' known by database.",
            "The job was not queued. There is no such cluster to send jobs to with -M.",
            "sacctmgr show clusters",
        ),
        (
            "sbatch: error: Batch job submission failed: Disk quota exceeded",
            "The job was not queued. There is no room left",
            "quota -s",
        ),
        (
            "sbatch: error: Batch job submission failed: Something new in Slurm 31.05",
            "Slurm refused the job.",
            "sbatch --help",
        ),
        (
            "sbatch: error: lua: name your supervisor with --comment\n"
            "sbatch: error: Batch job submission failed: Unspecified error",
            "Slurm refused the job. A rule of the site does not allow it.",
            "message",
        ),
    ],
)
def test_what_it_means_and_what_to_type(said: str, what: str, hint: str) -> None:
    error = refused(said)
    assert error.what.startswith(what)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "may_have_heard"),
    [
        ("Socket timed out on send/recv operation", True),  # seen: Slurm queued the job when it woke up
        ("Unable to contact slurm controller (receive failure)", True),
        ("Zero Bytes were transmitted or received", True),
        ("Unable to contact slurm controller (connect failure)", False),
        ("Unable to contact slurm controller (send failure)", False),
        ("Protocol authentication error", False),
    ],
)
def test_whether_slurm_may_have_queued_the_job_all_the_same(text: str, may_have_heard: bool) -> None:
    error = refused(f"sbatch: error: Batch job submission failed: {text}\n")
    assert isinstance(error, SchedulerAway)
    assert error.may_have_heard is may_have_heard
    assert error.what.startswith("The job was not queued.") is not may_have_heard


def test_a_number_printed_before_a_refusal_is_not_a_job() -> None:
    with pytest.raises(SubmitRefused):
        SLURM.read_submit(CommandResult(1, "Hours left:\n1234\n", "sbatch: error: Invalid qos specification\n"))


def test_an_answer_without_a_number_is_no_refusal() -> None:
    with pytest.raises(SubmitUncertain) as caught:
        SLURM.read_submit(CommandResult(0, "queued, thank you\n"))
    assert "queued, thank you" in caught.value.why
    assert "squeue --me" in caught.value.hint


@pytest.mark.parametrize(
    "answer", [CommandResult(127), CommandResult(127, "", "bash: line 1: exec: sbatch: not found\n")]
)
def test_no_sbatch_there(answer: CommandResult) -> None:
    with pytest.raises(SchedulerMissing, match="not found"):
        SLURM.read_submit(answer)


def test_a_refusal_without_a_word() -> None:
    assert refused("").why == "sbatch: exit code 1, no message"


ALL_SAID = "\n".join(said for _, _, said in recorded())


@given(
    st.one_of(
        st.text(max_size=80),
        st.tuples(st.integers(0, len(ALL_SAID)), st.integers(0, 200)).map(lambda cut: ALL_SAID[cut[0] : sum(cut)]),
    ),
    st.text(max_size=20),
    st.sampled_from([1, 2, 126, 127, 255, -9]),
)
def test_no_words_make_us_stumble(stderr: str, stdout: str, exit_code: int) -> None:
    error = SLURM.explain_refusal(CommandResult(exit_code, stdout, stderr))
    assert isinstance(error, SubmitRefused | SchedulerMissing)
    assert error.what.strip() and error.hint.strip()
