"""Slurm: cancelling, finding a session's job, and the spellings of states."""

from __future__ import annotations

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.schedulers.slurm_doubles import bare

SLURM = Slurm()


ID = "20261121-014455-k3f9"


DIRECTORY = f"/home/alice/.notebook-launcher/sessions/{ID}"


# --- cancel, find --------------------------------------------------------------------------------------------


def test_cancel() -> None:
    assert bare(SLURM.cancel(JobRef("7"))) == ["scancel", "7"]
    assert bare(SLURM.cancel(JobRef("7", "snowy"))) == ["scancel", "--clusters=snowy", "7"]


def test_a_cancel_that_a_user_is_to_type_is_short() -> None:
    assert SLURM.cancel_typed(JobRef("7", "snowy")) == ["scancel", "--clusters=snowy", "7"]


def test_find_asks_for_ones_own_jobs_where_they_went() -> None:
    words = ["squeue", "--noheader", "--me", "--format=%i|%j|%o"]
    assert bare(SLURM.find(ID, Request()), job=False) == words  # without -M, where SLURM_CLUSTERS sends submissions
    assert "--clusters=snowy" in SLURM.find(ID, Request({"clusters": "snowy"}))


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("", []),
        (f"7|{ID}|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"7|mine|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"CLUSTER: snowy\n7|{ID}|x\n", [JobRef("7", "snowy")]),
        (f"7|other|/x.sh\n8|{ID}x|/home/alice/{ID}-copy/x\n", []),
        (f"note\n7|a name | with pipes|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"7_[1-3]|{ID}|x\n7_0|{ID}|x\n", [JobRef("7")]),
    ],
)
def test_find_reads_the_sessions_jobs(text: str, jobs: list[JobRef]) -> None:
    assert SLURM.read_find(ID, CommandResult(0, text)) == jobs


def test_find_without_an_answer() -> None:
    assert (
        SLURM.read_find(ID, CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")) is None
    )


# --- states --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_spelling_of_a_state_is_read_and_belongs_to_one(state: State) -> None:
    for word in state.value:
        assert State.read(word) is state
        assert State.read(word.lower()) is state
        assert [other for other in State if word in other.value] == [state]


@pytest.mark.parametrize(
    ("word", "state"),
    [("CANCELLED by 0", State.CANCELLED), ("COMPLETED+", State.COMPLETED), ("", State.UNKNOWN), (" ", State.UNKNOWN)],
)
def test_odd_words_for_states(word: str, state: State) -> None:
    assert State.read(word) is state


def test_waiting_running_and_ended_do_not_overlap() -> None:
    assert not any(state.waits and state.ended for state in State)
    assert not State.UNKNOWN.ended
    assert not State.COMPLETING.ended
    assert {state for state in State if state.waits} == {State.PENDING}
