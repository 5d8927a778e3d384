"""What is chosen for a profile, and what the user is asked."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import cast

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import SchedulerMissing, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.discovery import init
from notebook_launcher.discovery.cluster_survey import ClusterSurvey
from notebook_launcher.discovery.profile_draft import (
    Choice,
    Draft,
    Spelling,
)
from notebook_launcher.discovery.profile_text import login_pattern, profile_text
from notebook_launcher.hosts.base import NoPrompts, Prompts
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from tests.doubles import FakeHost, FakePrompts, RecordingView
from tests.unit.discovery.surveys import draft_of, profile_of, recorded, sinfo


def test_a_partition_is_chosen_only_where_there_is_one() -> None:
    text = sinfo(
        "small|small|up|3-00:00:00|9|idle|(null)|x|64|1", "large|large|up|infinite|9|idle|(null)|x|64|1",
        "small-g|small-g|up|3-00:00:00|4|idle|gpu:mi250:8(S:0-7)|x|64|1",
        "dev-g|dev-g|up|3:00:00|4|idle|gpu:mi250:8(S:0-7)|x|64|1",
    )  # fmt: skip
    draft = draft_of(text)
    assert draft.partition == Choice(None, "sinfo: there is no default", ("small", "large"), needed=True)
    assert draft.gpu_partition == Choice(None, "sinfo: several have GPUs", ("small-g", "dev-g"))
    profile = profile_of(draft)
    assert profile.cpu.flags == {}
    assert profile.max_time == {"small": "3-00:00:00", "small-g": "3-00:00:00", "dev-g": "3:00:00"}
    assert '# partition = "large"' in profile_text(draft)


def test_a_type_that_only_another_partition_has_brings_it_along() -> None:
    draft = draft_of(
        sinfo(
            "main|main*|up|1:00:00|9|idle|(null)|x|64|1",
            "gpu|gpu|up|1:00:00|4|idle|gpu:a100:4|x|64|1",
            "haswell|haswell|up|1:00:00|8|idle|(null)|x|16|1",
            "haswell|haswell|up|1:00:00|3|idle|gpu:t4:1|x|16|1",
        )
    )
    rules = profile_of(draft).gpu
    assert rules.flags["partition"] == "gpu"
    assert dict(rules.types["t4"].flags) == {"gpus-per-node": "t4:{count}", "partition": "haswell"}
    assert "partition" not in rules.types["a100"].flags


@pytest.mark.parametrize(
    ("accounts", "default", "value", "others"),
    [
        (("p1",), "", "p1", ()),
        (("p1", "p2"), "p2", "p2", ("p1",)),
        (("p1", "p2"), "", None, ("p1", "p2")),
        (("p1", "p2"), "not-mine", None, ("p1", "p2")),
        ((), "", None, ()),
    ],
)
def test_an_account_is_chosen_only_where_one_is_meant(
    accounts: tuple[str, ...], default: str, value: str | None, others: tuple[str, ...]
) -> None:
    choice = draft_of(sinfo("a|a*|up|1:00:00|1|idle|(null)|x|1|1", accounts=accounts, default=default)).account
    assert (choice.value, choice.candidates) == (value, others)


def test_gres_is_written_where_slurm_takes_nothing_else() -> None:
    draft = draft_of(recorded("lmod", "22.05"))
    draft = Draft(**{**vars(draft), "spelling": Spelling("gres", confirmed=True)})
    rules = profile_of(draft).gpu
    assert rules.flags["gres"] == "gpu:{count}"
    assert rules.types["t4"].flags["gres"] == "gpu:t4:{count}"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("pelle.uni.example", "pelle"),
        ("login.hpc.uni.example", "uni"),
        ("login2.big-iron.example.org", "big-iron"),
        ("login", "login"),
        ("10.1.2.3", "cluster"),
        ("fe80::1", "cluster"),
    ],
)
def test_the_name_comes_from_the_login_nodes(host: str, name: str) -> None:
    assert init.name_for(host) == name


@pytest.mark.parametrize(
    ("hostname", "pattern"),
    [
        ("login3.cluster", "login[0-9]*.cluster"),
        ("rackham.uni.example", "rackham.uni.example"),
        ("int4", "int[0-9]*"),
        ("mine", "mine"),
        ("login2", None),  # those of other clusters are called so, too
        ("front", None),
        ("localhost.localdomain", None),
        ("12", None),
        (None, None),
    ],
)
def test_a_pattern_for_all_login_nodes(hostname: str | None, pattern: str | None) -> None:
    assert login_pattern(hostname) == pattern


def test_a_profile_needs_a_name_that_can_be_a_file() -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        init.initialise(init.InitRequest("login", name="../x"), None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("looked", ["", recorded("node", "24.11")], ids=["it had not looked", "it had"])
def test_what_a_job_finds_is_not_waited_for_once_it_has_ended(looked: str) -> None:
    files = {"exit.json": b'{"message": "It was\\u001b[2J\\ncancelled."}', "survey": looked.encode()}
    view, host = RecordingView(), SimpleNamespace(read_file=lambda path: files[path.rpartition("/")[2]])
    context = cast(Context, SimpleNamespace(host=host, view=view, interrupts=Interrupts()))
    software = init._software(context, cast(Session, SimpleNamespace(directory="/s")), "n1")
    assert (software is None) is (not looked)
    assert view.notes == ("" if looked else "The job ended before it had looked at n1: It was cancelled.")


@pytest.mark.parametrize(
    ("answers", "value", "questions"),
    [(("p2",), "p2", 1), (("",), None, 1), (("nonsense", "p1"), "p1", 2), (("a", "b", "c"), None, 3)],
)
def test_several_accounts_are_asked_about(answers: tuple[str, ...], value: str | None, questions: int) -> None:
    text = sinfo("a|a*|up|1:00:00|1|idle|(null)|x|1|1", accounts=("p1", "p2"))
    prompts = FakePrompts(secrets=answers)
    choice = init.chosen("account", draft_of(text).account, prompts)
    assert (choice.value, len(prompts.asked)) == (value, questions)
    assert "p1, p2" in prompts.asked[0]
    assert all(prompts.echoed), "it is no secret"


def test_nothing_is_asked_where_the_choice_is_clear() -> None:
    prompts = FakePrompts()
    draft = draft_of(recorded("lmod", "24.11"))
    for choice in (draft.account, draft.partition, draft.gpu_partition):
        assert init.chosen("anything", choice, prompts) == choice
    assert prompts.asked == []


class HiddenSlurm(FakeHost):
    """A login node whose login shell finds Slurm only once a module is loaded."""

    def __init__(self) -> None:
        super().__init__(self.says)

    def says(self, argv: list[str]) -> CommandResult:
        if argv[1] == "-c":
            return CommandResult(0, "\nmodule slurm/24.11\n")
        hidden = "survey 1\npart version\ncode 127\n"
        loaded = sinfo("a|a*|up|1:00:00|1|idle|(null)|x|1|1")
        return CommandResult(0, loaded if self.login_setup.lines else hidden)


def read_behind_a_module(host: FakeHost, prompts: Prompts) -> ClusterSurvey:
    target = LaunchTarget(ClusterProfile(), None, Destination("login"), "slurm", "alice@login")
    context = SimpleNamespace(
        host=host, target=target, prompts=prompts, clock=lambda: datetime(2026, 11, 22, tzinfo=timezone.utc)
    )
    return init._survey(cast(Context, context), "uni", None)


def test_a_module_that_may_bring_slurm_is_loaded_if_the_user_agrees_and_written_into_the_profile() -> None:
    host = HiddenSlurm()
    survey = read_behind_a_module(host, FakePrompts(confirms=[True]))
    assert survey.version == "25.05.1"
    draft = draft_of(sinfo("a|a*|up|1:00:00|1|idle|(null)|x|1|1"))
    draft = Draft(**{**vars(draft), "login_setup": host.login_setup.lines})
    assert profile_of(draft).login_setup == ("module load slurm",)


@pytest.mark.parametrize("prompts", [NoPrompts(), FakePrompts(confirms=[False])], ids=["no terminal", "no"])
def test_no_module_is_loaded_that_the_user_has_not_agreed_to(prompts: Prompts) -> None:
    host = HiddenSlurm()
    with pytest.raises(SchedulerMissing) as caught:
        read_behind_a_module(host, prompts)
    assert host.login_setup.lines == ()
    command = "launch-notebook clusters edit uni --host alice@login --set 'login_setup=[\"module load slurm\"]'"
    assert caught.value.hint.endswith(command)
