"""The first launch asks, checks at once, and keeps; where nobody can be asked, it names the flags."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import AnswerMissing, ClusterUnavailable, SchedulerMissing, UsageError
from notebook_launcher.launch import dry_run
from notebook_launcher.planning.first_run import complete_options
from notebook_launcher.planning.new_default import save_new_default
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine, find_target
from notebook_launcher.profiles import load_configuration, load_profile
from notebook_launcher.session.open_context import open_host
from tests.conftest import Session
from tests.unit.planning.conftest import LaunchNotebook
from tests.unit.planning.first_user import FirstUser

LAUNCH = str(Path(sys.executable).with_name("launch-notebook"))
LAPTOP = LocalMachine("laptop")
NOTHING = LaunchOptions()
LOGIN = LocalMachine("login", ("slurm",))

UNI = """\
description = "Ours"
host = "login.uni.example"
login_nodes = ["login"]
ask = ["user", "partition"]
advice = ["Switch the VPN on first."]

[account]
required = true
pattern = "uni[0-9]+"
example = "uni42"
gpu_suffix = "-gpu"
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with nothing chosen, and a home without an ssh configuration."""
    folder = tmp_path / "config"
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    (folder / "clusters").mkdir(parents=True)
    (folder / "clusters" / "uni.toml").write_text(UNI)
    return folder


def run(
    told: FirstUser, options: LaunchOptions = NOTHING, here: LocalMachine = LAPTOP, *, dry_run: bool = False
) -> LaunchOptions:
    """Complete the options, and make what was chosen the default, as a launch does."""
    options = complete_options(options, here, told, told, dry_run=dry_run)  # type: ignore[arg-type]
    save_new_default(find_target(options, here), told)  # type: ignore[arg-type]
    return options


def files(config: Path) -> dict[str, str]:
    return {str(path.relative_to(config)): path.read_text() for path in config.rglob("*.toml")}


# --- which cluster ---------------------------------------------------------------------------------------------


def test_a_cluster_is_chosen_and_what_it_asks_is_kept(config: Path) -> None:
    told = FirstUser("uni", "alice", "uni7", "")
    plan = make_plan(run(told, LaunchOptions({"gpus": "1"})), LAPTOP)
    assert str(plan.target.destination) == "alice@login.uni.example"
    assert plan.request.flags["account"] == "uni7-gpu"
    assert told.kept == ["uni.toml", "config.toml"]
    assert "Switch the VPN on first." in told.said
    assert load_configuration().cluster == "uni"
    assert (config / "clusters" / "uni.toml").read_text().startswith(UNI.split("ask =")[0])
    again = FirstUser("never asked")
    run(again)
    assert again.questions == []
    assert load_profile("uni").ask == ("user",)  # the partition was said to be of no matter


@pytest.mark.parametrize("dry_run", [False, True])
def test_with_another_scheduler_nothing_starts_here_before_that_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    (tmp_path / "qsub").write_text("#!/bin/sh\n")
    (tmp_path / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    here = LocalMachine.detect()
    told = FirstUser("never asked")
    with pytest.raises(SchedulerMissing, match="None of Slurm") as caught:
        run(told, here=here, dry_run=dry_run)
    assert told.questions == []
    assert "Torque or another PBS (found: qsub)" in caught.value.why
    assert "--cluster here" in caught.value.hint
    meant = LaunchOptions(cluster="here")
    assert run(told, meant, here) == meant


@pytest.mark.parametrize(
    ("word", "meant"), [("un", "uni"), ("UNI", "uni"), ("gen", "generic"), ("here", None), ("", None)]
)
def test_the_beginning_of_a_name_will_do(config: Path, word: str, meant: str | None) -> None:
    answers = {"uni": ["alice", "uni7", ""], "generic": ["login.example", "", ""], None: []}[meant]
    told = FirstUser(word, *answers)
    target = make_plan(run(told), LAPTOP).target
    assert target.cluster == meant
    assert load_configuration().cluster == (meant or "here")
    assert target.scheduler == ("slurm" if meant else "local")
    again = FirstUser("never asked")
    run(again)
    assert again.questions == []


def test_a_wrong_name_is_asked_for_again_three_times_at_most(config: Path) -> None:
    (config / "clusters" / "unit.toml").write_text("")
    told = FirstUser("unu", "un", "you@")
    before = files(config)
    with pytest.raises(AnswerMissing) as caught:
        run(told)
    assert "There is no cluster “unu” here. Did you mean uni?" in told.said
    assert "may be uni or unit" in told.said
    assert "“you@” does not name a login node" in told.said
    assert "--cluster NAME" in caught.value.hint
    assert files(config) == before


def test_own_profiles_are_offered_first_and_those_without_a_way_in_not_at_all(config: Path) -> None:
    (config / "clusters" / "old.toml").write_text('status = "retired"\nsuccessor = "uni"\n')
    (config / "clusters" / "broken.toml").write_text("nonsense = 1\n")
    run(told := FirstUser("sn", "alice", "", ""))
    (listed,) = [event for event in told.shown if isinstance(event, events.ClustersListed)]
    offered = [one.cluster for one in listed.clusters]
    assert offered[:2] == ["broken", "uni"] and listed.clusters[0].problem
    assert {"pelle", "snellius", "generic"} < set(offered)
    assert {"old", "snowy", "alvis", "bianca"}.isdisjoint(offered)
    assert load_configuration().cluster == "snellius"  # snowy begins like it, and is not in the list


@pytest.mark.parametrize(
    "word", ["alice@login.example", "login.example", "alice@uni-alias", "alice@login.example:2222"]
)
def test_a_login_node_without_a_profile_just_goes_on(config: Path, word: str) -> None:
    before = files(config)
    options = run(told := FirstUser(word), LaunchOptions({"gpus": "1"}))
    assert options == LaunchOptions({"gpus": "1"}, host=word)
    assert make_plan(options, LAPTOP).target.scheduler == "auto"
    assert told.questions == [told.questions[0]]
    assert f"launch-notebook init {word}" in told.said
    assert files(config) == before


def test_a_login_node_that_has_a_profile_is_said_to_have_one(config: Path) -> None:
    run(told := FirstUser("bob@login.uni.example", "uni", "bob", "uni7", ""))
    assert "login.uni.example is the login node of “uni”" in told.said
    assert load_configuration().cluster == "uni"
    (config / "config.toml").unlink()
    assert run(FirstUser("bob@login.uni.example", "bob@login.uni.example")).host == "bob@login.uni.example"


def test_a_retired_one_leads_to_its_successor(config: Path) -> None:
    (config / "clusters" / "old.toml").write_text('status = "retired"\nsuccessor = "uni"\nhost = "gone"\n')
    run(told := FirstUser("old", "alice", "uni7", ""))
    assert "login.uni.example" in "".join(told.questions)
    assert load_profile("uni").user == "alice"
    target = make_plan(LaunchOptions(), LAPTOP).target
    assert target.cluster == "uni" and "Using its successor, uni." in target.notes[0]


def test_words_of_a_retired_one_are_understood_at_the_first_launch_too(config: Path) -> None:
    flags: dict[str, str | None] = {"partition": "core", "ntasks": "4", "clusters": "snowy", "gres": "gpu:t4:1"}
    named = make_plan(LaunchOptions({**flags, "account": "uppmax2026-1-7"}, cluster="snowy"), LAPTOP)
    plan = make_plan(run(FirstUser("snowy", "alice", "uppmax2026-1-7"), LaunchOptions(flags)), LAPTOP)
    assert plan.request.flags == named.request.flags
    assert {"clusters", "gres", "ntasks"}.isdisjoint(plan.request.flags)
    assert (plan.request.flags["gpus"], plan.request.flags["partition"]) == ("t4:1", "haswell")
    assert set(files(config)) == {"config.toml", "clusters/pelle.toml", "clusters/uni.toml"}
    assert plan.command.startswith("--cluster snowy")


def test_a_wrong_walltime_is_refused_before_anything_is_asked() -> None:
    told = FirstUser("never asked")
    with pytest.raises(UsageError, match="“abc” is not a walltime"):
        run(told, LaunchOptions({"time": "abc"}))
    assert told.questions == []


def test_one_without_a_way_in_is_refused_before_anything_is_asked(config: Path) -> None:
    (config / "clusters" / "shut.toml").write_text(
        'ask = ["account"]\n[unavailable]\nwhy = "No way in."\ninstead = "go"\n'
    )
    told = FirstUser("shut")
    with pytest.raises(ClusterUnavailable, match="No way in"):
        run(told)
    assert len(told.questions) == 1
    assert "config.toml" not in files(config)


@pytest.mark.parametrize(
    "options",
    [
        LaunchOptions(host="login"),
        LaunchOptions(cluster="here"),
        LaunchOptions(cluster="generic", flags={"partition": "x"}),
    ],
)
def test_who_says_where_is_not_asked_which(config: Path, options: LaunchOptions) -> None:
    told = FirstUser("login.example", "")
    run(told, options)
    assert not any(question.startswith("Which") for question in told.questions)
    assert "config.toml" not in files(config)


def test_where_jobs_can_be_queued_nothing_is_asked() -> None:
    told = FirstUser("never asked")
    assert run(told, here=LOGIN) == LaunchOptions()
    assert told.questions == []


# --- what a profile asks for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, ["user", "account", "partition"]),
        ({"account": "x"}, ["user", "partition"]),
        ({"account": "x", "partition": "y"}, ["user"]),
    ],
)
def test_only_what_nobody_has_told_is_asked(config: Path, flags: dict[str, str | None], asked: list[str]) -> None:
    answers = {"user": "alice", "account": "uni7", "partition": "gpu"}
    told = FirstUser(*(answers[one] for one in asked))
    run(told, LaunchOptions(flags, cluster="uni"))
    profile = load_profile("uni")
    assert profile.user == "alice"
    assert profile.defaults == {one: answers[one] for one in asked if one != "user"}
    assert told.kept == ["uni.toml"]
    assert load_configuration().cluster is None  # it was named this time only


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('[[translations]]\nwhen = { account = "old" }\nset = { account = "new", partition = "x" }\nnote = "n"', True),
        ('[gpu.flags]\naccount = "g"', True),
        ('[cpu.flags]\npartition = "core"\n[defaults]\naccount = "a"', False),
    ],
)
def test_what_a_profile_says_of_other_words_answers_nothing(config: Path, text: str, asked: bool) -> None:
    (config / "clusters" / "uni.toml").write_text(f'host = "a@b"\nask = ["account", "partition"]\n{text}\n')
    told = FirstUser("a1", "")
    run(told, LaunchOptions(cluster="uni"))
    assert any("account" in question for question in told.questions) == asked
    assert bool(told.questions) == asked


def test_what_a_course_says_is_not_asked(config: Path) -> None:
    course = config / "courses" / "lab" / "course.toml"
    course.parent.mkdir(parents=True)
    course.write_text('name = "lab"\ncluster = "uni"\naccount = "uni9"\n')
    told = FirstUser("alice", "")
    plan = make_plan(run(told, LaunchOptions(course="lab")), LAPTOP)
    assert not any("account" in question for question in told.questions)
    assert plan.request.flags["account"] == "uni9"
    assert "account" not in load_profile("uni").defaults


def test_a_machine_that_does_not_know_its_user_suggests_no_name(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")  # as in a container

    monkeypatch.setattr(getpass, "getuser", no_entry)
    told = FirstUser("", "alice", "uni7", "")
    run(told, LaunchOptions(cluster="uni"))
    assert told.questions[0] == "Your user name on login.uni.example: "
    assert load_profile("uni").user == "alice"


def test_an_ssh_configuration_knows_the_user(config: Path, tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text("Host login.uni.example\n  User carol\n")
    told = FirstUser("uni7", "gpu")
    run(told, LaunchOptions(cluster="uni", ssh_config=str(tmp_path / "ssh_config")))
    assert not any("user name" in question for question in told.questions)


def test_on_the_login_node_there_is_no_user_to_ask_for(config: Path) -> None:
    told = FirstUser("uni7", "")
    run(told, LaunchOptions(cluster="uni"), LOGIN)
    assert "account" in told.questions[0]
    assert load_profile("uni").user is None


@pytest.mark.parametrize("wrong", ["", "uni7; touch /tmp/x", "$(x)", "-A", "uni7\x1b[31m"])
def test_a_wrong_account_is_told_at_once(config: Path, wrong: str) -> None:
    told = FirstUser("alice", wrong, "uni7", "")
    run(told, LaunchOptions(cluster="uni"))
    assert told.questions.count(told.questions[1]) == 2
    assert load_profile("uni").defaults == {"account": "uni7"}


def test_an_account_that_looks_wrong_is_taken_when_it_is_said_again(config: Path) -> None:
    told = FirstUser("alice", "unix", "other7", "other7", "")
    run(told, LaunchOptions(cluster="uni"))
    assert "“unix” does not look like an account there; they look like uni42. If it is one, type it again." in told.said
    assert load_profile("uni").defaults == {"account": "other7"}


@pytest.mark.parametrize("right", ["uni7", "uni7-gpu"])
def test_an_account_with_its_ending_is_one(config: Path, right: str) -> None:
    run(FirstUser("alice", right, ""), LaunchOptions(cluster="uni"))
    assert load_profile("uni").defaults == {"account": right}


@pytest.mark.parametrize("wrong", ["-oProxyCommand=x", "two words", "a;b", "", "$(x)"])
def test_a_wrong_login_node_is_told_at_once(config: Path, wrong: str) -> None:
    told = FirstUser(wrong, "alice@login.example", "", "")
    run(told, LaunchOptions(cluster="generic"))
    assert load_profile("generic").host == "alice@login.example"
    assert load_profile("generic").ask == ("host",)
    assert 'base = "generic"' in (config / "clusters" / "generic.toml").read_text()


@pytest.mark.parametrize("answers", [("alice", "x", "y", "x"), ("a b", "a b", "a b"), (None,), ("alice", None)])
def test_without_a_right_answer_nothing_is_kept(config: Path, answers: Sequence[str | None]) -> None:
    before = files(config)
    with pytest.raises(AnswerMissing):
        run(FirstUser(*answers), LaunchOptions(cluster="uni"))
    assert files(config) == before


# --- nobody to ask ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "flags", "hint"),
    [
        (
            'host = "a@b"\nask = ["account", "partition"]',
            {},
            "give it: -A … -p …   or save it: KEEP --account … --partition …",
        ),
        ('host = "a@b"\n[account]\nrequired = true', {}, "give it: -A …   or save it: KEEP --account …"),
        (
            'host = "a@b"\nask = ["account", "partition"]',
            {"account": "x"},
            "give it: -p …   or save it: KEEP --partition …",
        ),
        ('ask = ["host", "account"]', {"account": "x"}, "save it: KEEP --host …"),
        ('host = "b"\nask = ["user"]', {}, "save it: KEEP --user …"),
    ],
)
def test_the_flags_are_named(config: Path, text: str, flags: dict[str, str | None], hint: str) -> None:
    (config / "clusters" / "uni.toml").write_text(text)
    with pytest.raises(AnswerMissing) as caught:
        run(FirstUser(), LaunchOptions(flags, cluster="uni"))
    assert caught.value.hint == hint.replace("KEEP", "launch-notebook clusters edit uni")
    assert caught.value.exit_code == 6


def test_with_everything_by_flags_nothing_is_missing(config: Path) -> None:
    (config / "clusters" / "uni.toml").write_text('host = "a@b"\nask = ["account", "partition"]')
    options = LaunchOptions({"account": "x", "partition": "y"}, cluster="uni")
    assert run(FirstUser(), options) == options


def test_nothing_is_configured_and_nobody_can_be_asked(config: Path) -> None:
    told = FirstUser()
    assert run(told) == LaunchOptions()
    assert "--cluster NAME" in told.said
    assert "--host" in told.said
    assert len(told.shown) == 1
    (config / "config.toml").write_text('cluster = "here"')
    quiet = FirstUser()
    run(quiet)
    assert quiet.shown == []


def test_a_dry_run_asks_and_keeps_nothing(config: Path) -> None:
    before = files(config)
    told = FirstUser("never asked")
    run(told, LaunchOptions({"account": "uni7"}, cluster="uni"), dry_run=True)
    run(told, dry_run=True)
    assert told.questions == []
    assert "Not set yet, and asked for at launch: user, partition." in told.said
    assert files(config) == before


def test_a_dry_run_without_an_account_shows_what_would_be_submitted_with_a_placeholder(config: Path) -> None:
    """The profile's example may be somebody's account; a placeholder can be nobody's."""
    told = FirstUser()
    plan = make_plan(run(told, LaunchOptions({"gpus": "1"}, cluster="uni"), dry_run=True), LAPTOP)
    dry_run(plan, told)  # type: ignore[arg-type]
    assert told.shown[0] == events.Note(
        "Not set yet, and asked for at launch: user, account, partition. Below, ACCOUNT stands for your account."
    )
    [shown] = [event for event in told.shown if isinstance(event, events.DryRun)]
    assert "--account=ACCOUNT-gpu" in shown.command and shown.placeholders == ("account",)
    assert told.said.count("ACCOUNT") == 1, "no note says that it looks wrong, or how it was changed"
    typed = make_plan(run(told, LaunchOptions({"account": "uni7"}, cluster="uni"), dry_run=True), LAPTOP)
    assert typed.placeholders == ()


def test_who_names_a_retired_cluster_is_told_its_successor_before_anything_is_asked(config: Path) -> None:
    retired = 'description = "Old"\nstatus = "retired"\nsuccessor = "uni"\nnotice = "Old was switched off."\n'
    (config / "clusters" / "old.toml").write_text(retired)
    with pytest.raises(AnswerMissing) as caught:
        run(FirstUser(), LaunchOptions(cluster="old"))
    assert caught.value.why.startswith("Old was switched off. Using its successor, uni. Nobody could be asked.")
    told = FirstUser("alice", "uni7", "")
    options = run(told, LaunchOptions(cluster="old"))
    assert told.said.startswith("Old was switched off. Using its successor, uni.\nSwitch the VPN on first.")
    open_host(replace(make_plan(options, LAPTOP).target, destination=None), told, told)  # type: ignore[arg-type]
    assert told.said.count("Using its successor") == 1, "in the whole launch"


@pytest.mark.parametrize("words", [["-A", "x", "-p", "y"], ["queue"], ["list"], ["when"]], ids=" ".join)
def test_no_command_takes_this_machine_for_a_login_node_that_is_not_known(
    words: list[str], launch_notebook: LaunchNotebook
) -> None:
    done = launch_notebook(*words, "--cluster", "generic", PATH="/usr/bin:/bin")
    assert done.returncode == 6, done.stderr
    assert "clusters edit generic --host" in done.stderr


# --- in a real terminal ----------------------------------------------------------------------------------------

Start = Callable[..., Session]


@pytest.fixture
def start() -> Start:
    kept = ("HOME", "NOTEBOOK_LAUNCHER_CONFIG", "NOTEBOOK_LAUNCHER_STATE", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color"}
    return lambda *words, columns=80: Session([LAUNCH, *words], env=environment, columns=columns)


@pytest.mark.real_time
def test_the_list_fits_and_answers_are_kept_before_anything_is_contacted(start: Start, config: Path) -> None:
    session = start()
    session.expect(r"Which one.*\) ")
    lines = session.printed.splitlines()
    assert len(lines) <= 24
    assert len(lines[-1]) <= 60, "there is room for the answer"
    assert max(map(len, lines)) <= 80
    session.send("uni\n")
    session.expect("user name on login.uni.example")
    session.send("alice\n")
    session.expect("like uni42: ")
    session.send("uni7\n")
    session.expect("partition")
    session.send("\n")
    session.expect("Saved to")
    assert session.end() == 10  # there is no such login node
    assert 'account = "uni7"' in (config / "clusters" / "uni.toml").read_text()
    assert (config / "config.toml").read_text() == 'cluster = "uni"\n'


@pytest.mark.real_time
def test_ctrl_c_leaves_nothing_half_written(start: Start, config: Path) -> None:
    before = files(config)
    session = start("--cluster", "uni")
    session.expect("user name")
    session.send("alice\n")
    session.expect("account")
    session.send("\x03")
    assert session.end() == 130
    assert "Traceback" not in session.printed
    assert files(config) == before
    assert [path.name for path in (config / "clusters").iterdir()] == ["uni.toml"]


@pytest.mark.real_time
def test_json_asks_nothing(start: Start) -> None:
    session = start("--json", "--cluster", "uni")
    assert session.end() == 6
    (event,) = [json.loads(line) for line in session.printed.replace("\n", "").replace("}{", "}\n{").splitlines()]
    assert event["kind"] == "AnswerMissing"
    assert "uni42" in event["why"]


def test_init_without_an_address_names_it_where_there_is_no_scheduler(
    launch_notebook: LaunchNotebook, tmp_path: Path
) -> None:
    for name in ("bash", "sh", "timeout", "sed", "head", "id", "date", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    done = launch_notebook("init", PATH=str(tmp_path))
    assert done.returncode == 21, done.stderr
    assert "launch-notebook init you@login.example.org" in done.stderr and "--cluster here" not in done.stderr
