"""From what was typed to a plan: where to go, with which environment, image and flags."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    ClusterUnavailable,
    ConnectionFailed,
    EnvironmentUnknown,
    ProfileError,
    UsageError,
)
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.launch import notes_before
from notebook_launcher.planning.plan import begin_note, make_plan, useless_flags_note
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.profiles import ClusterProfile, load_profile
from notebook_launcher.profiles.store import bundled_profiles
from notebook_launcher.schedulers.kinds import SchedulerName
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import Program, Site

LAPTOP = LocalMachine("laptop")
LOGIN = LocalMachine("rackham3.uni.example", ("slurm",))

PROFILE = """
host = "alice@rackham.uni.example:2222"
login_nodes = ["rackham[0-9]*"]
environment = "tf-gpu"
image_dir = "~/images/"

[defaults]
account = "proj1"
gres = "gpu:t4:1"
time = "1:00:00"

[environments.tf-gpu]
container = "gpu.sif"

[environments.tf-mkl]
container = "/sw/mkl.sif"
modules = ["a/1"]

[environments."odd/one"]
"""


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with one profile that is not chosen yet."""
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "uni.toml").write_text(PROFILE)
    (tmp_path / "clusters" / "here.toml").write_text('scheduler = "local"\n')
    return tmp_path


def choose(configuration: Path, cluster: str) -> None:
    (configuration / "config.toml").write_text(f'cluster = "{cluster}"\n')


# --- where ---------------------------------------------------------------------------------------------------


def test_without_a_word_it_is_this_machine() -> None:
    assert find_target(LaunchOptions(), LAPTOP) == LaunchTarget(ClusterProfile(), None, None, "local", no_default=True)
    assert find_target(LaunchOptions(), LOGIN) == LaunchTarget(ClusterProfile(), None, None, "slurm")


def test_a_default_cluster_without_a_profile_is_named_as_the_default(configuration: Path) -> None:
    """Its profile may have been removed, and the user has typed no name."""
    choose(configuration, "practice")
    with pytest.raises(ProfileError, match="“practice” is the default cluster, and there is no profile") as caught:
        find_target(LaunchOptions(), LAPTOP)
    assert "launch-notebook clusters use --unset" in caught.value.hint
    with pytest.raises(ProfileError, match="There is no cluster profile “practice”"):
        find_target(LaunchOptions(cluster="practice"), LAPTOP)


@pytest.mark.parametrize("here", [LAPTOP, LOGIN])
def test_the_configured_cluster_goes_before_this_machine(configuration: Path, here: LocalMachine) -> None:
    choose(configuration, "uni")
    assert find_target(LaunchOptions(), here).cluster == "uni"


@pytest.mark.parametrize("here", [LAPTOP, LOGIN])
def test_cluster_goes_before_the_configured_one(configuration: Path, here: LocalMachine) -> None:
    choose(configuration, "uni")
    target = find_target(LaunchOptions(cluster="here"), here)
    assert (target.cluster, target.destination, target.scheduler) == ("here", None, "local")


@pytest.mark.parametrize("here", [LAPTOP, LOGIN])
def test_host_goes_before_everything(configuration: Path, here: LocalMachine) -> None:
    choose(configuration, "uni")
    target = find_target(LaunchOptions(host="bob@other:22", ssh_config="cfg"), here)
    assert target.destination == Destination("other", "bob", 22, "cfg")
    assert (target.cluster, target.scheduler, target.profile) == (None, "auto", ClusterProfile())


def test_host_and_cluster_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        find_target(LaunchOptions(host="login", cluster="uni"), LAPTOP)


def test_a_host_that_is_an_option_is_refused() -> None:
    with pytest.raises(ConnectionFailed, match="does not name a login node"):
        find_target(LaunchOptions(host="-oProxyCommand=touch /tmp/x"), LAPTOP)


def test_a_configured_cluster_without_a_profile_is_told(configuration: Path) -> None:
    choose(configuration, "gone")
    with pytest.raises(ProfileError, match="gone"):
        find_target(LaunchOptions(), LAPTOP)


@pytest.mark.parametrize(
    ("here", "remote"),
    [
        (LAPTOP, True),
        (LocalMachine("otherlaptop.uni.example"), True),
        (LOGIN, False),
        (LocalMachine("rackham1", ("slurm",)), False),
        (LocalMachine("rackham.uni.example", ("slurm",)), False),
        (LocalMachine("rackham", ("slurm",)), True),  # neither the profile's host nor one of its login nodes
        (LocalMachine("rackham3"), True),  # the name alone is not enough
        (LocalMachine("othercluster1", ("slurm",)), True),
        (LocalMachine("rackham", ("slurm",), full_name="rackham.uni.example"), False),
    ],
)
def test_the_same_words_on_the_laptop_and_on_the_login_node(here: LocalMachine, remote: bool) -> None:
    target = find_target(LaunchOptions(cluster="uni"), here)
    assert target.scheduler == "slurm"
    assert target.destination == (Destination("rackham.uni.example", "alice", 2222) if remote else None)


def test_a_login_node_of_the_same_name_elsewhere_is_another(configuration: Path) -> None:
    words = 'host = "login.uni.example"\nlogin_nodes = ["login[0-9]*.uni.example"]\n'
    (configuration / "clusters" / "uni.toml").write_text(words)
    ours, other = (
        LocalMachine("login2", ("slurm",), full_name=f"login2.{domain}.example") for domain in ("uni", "other")
    )
    assert find_target(LaunchOptions(cluster="uni"), ours).destination is None
    assert find_target(LaunchOptions(cluster="uni"), other).destination == Destination("login.uni.example")


def test_what_the_profile_says_of_ssh(configuration: Path) -> None:
    (configuration / "clusters" / "uni.toml").write_text('host = "login"\nuser = "carol"\nport = 7\nssh_config = "f"\n')
    assert find_target(LaunchOptions(cluster="uni"), LAPTOP).destination == Destination("login", "carol", 7, "f")
    configured = LaunchOptions(cluster="uni", ssh_config="g")
    assert find_target(configured, LAPTOP).destination == Destination("login", "carol", 7, "g")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LaunchOptions(), []),
        (LaunchOptions(cluster="uni"), ["--cluster", "uni"]),
        (LaunchOptions(cluster="uni", ssh_config="my config"), ["--cluster", "uni", "--ssh-config", "my config"]),
        (LaunchOptions(host="bob@other"), ["--host", "bob@other"]),
        (LaunchOptions(host="other", ssh_config="f"), ["--host", "other", "--ssh-config", "f"]),
    ],
)
def test_the_words_that_lead_back(options: LaunchOptions, words: list[str]) -> None:
    target = find_target(options, LAPTOP)
    assert target.arguments() == words


# --- environment and image -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name", "container"),
    [
        ((), "tf-gpu", "~/images/gpu.sif"),
        (("tf-mkl",), "tf-mkl", "/sw/mkl.sif"),
        (("tf-mkl", "other.sif"), "tf-mkl", "~/images/other.sif"),
        (("tf-mkl", "./other.sif"), "tf-mkl", "./other.sif"),
        (("tf-gpu", "/proj/x.sif"), "tf-gpu", "/proj/x.sif"),
        (("x.sif",), None, "~/images/x.sif"),
        (("/proj/x",), None, "/proj/x"),
        (("odd/one",), "odd/one", None),
    ],
)
def test_the_words_after_two_dashes(words: tuple[str, ...], name: str | None, container: str | None) -> None:
    plan = make_plan(LaunchOptions(cluster="uni", arguments=words), LAPTOP)
    assert (plan.environment_name, plan.container) == (name, container)
    assert plan.environment.modules == (("a/1",) if name == "tf-mkl" else ())


def test_an_image_needs_no_profile() -> None:
    plan = make_plan(LaunchOptions(arguments=("container.sif",)), LAPTOP)
    assert (plan.environment_name, plan.container) == (None, "container.sif")


def test_without_anything_the_environment_is_plain() -> None:
    plan = make_plan(LaunchOptions(), LOGIN)
    assert plan.environment.is_plain
    assert (plan.environment_name, plan.container, plan.path) == (None, None, ())


def test_flags_go_over_the_environment() -> None:
    options = LaunchOptions(cluster="uni", arguments=("tf-mkl",), modules=("b/2", "c/3"), conda="dl", venv="~/v")
    environment = make_plan(options, LAPTOP).environment
    assert (environment.modules, environment.conda, environment.venv) == (("b/2", "c/3"), "dl", "~/v")
    assert environment.container == "/sw/mkl.sif"


def test_an_unknown_environment_is_told_with_those_there_are() -> None:
    with pytest.raises(EnvironmentUnknown) as caught:
        make_plan(LaunchOptions(cluster="uni", arguments=("tf-mlk",)), LAPTOP)
    assert "“tf-mlk”" in caught.value.what
    assert "tf-gpu, tf-mkl" in caught.value.why
    assert caught.value.hint == "did you mean -- tf-mkl?"


def test_of_environments_that_are_as_close_each_is_named(configuration: Path) -> None:
    (configuration / "clusters" / "uni.toml").write_text(PROFILE.replace("tf-gpu", "tf-pip"))
    with pytest.raises(EnvironmentUnknown) as caught:
        make_plan(LaunchOptions(cluster="uni", arguments=("tf-gpu",)), LAPTOP)
    assert caught.value.hint == "did you mean -- tf-pip or -- tf-mkl?"


def test_an_unknown_environment_without_a_profile() -> None:
    with pytest.raises(EnvironmentUnknown) as caught:
        make_plan(LaunchOptions(arguments=("tf-mkl",)), LAPTOP)
    assert "none" in caught.value.why
    assert "--module" in caught.value.hint


@pytest.mark.parametrize("words", [("tf-mkl", "x.sif", "more"), ("x.sif", "tf-mkl")])
def test_too_many_words_or_the_wrong_way_round(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="After --"):
        make_plan(LaunchOptions(cluster="uni", arguments=words), LAPTOP)


# --- flags ---------------------------------------------------------------------------------------------------


def test_the_users_flags_over_the_profiles() -> None:
    plan = make_plan(LaunchOptions({"gpus": "2", "time": "2:00:00"}, cluster="uni"), LAPTOP)
    assert plan.request.flags == {"account": "proj1", "gpus": "2", "time": "2:00:00"}
    assert plan.user_flags == {"gpus", "time"}


@pytest.mark.parametrize("flag", ["array", "wrap", "test-only"])
def test_flags_that_cannot_go_with_a_notebook(flag: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag} cannot be used here"):
        make_plan(LaunchOptions({flag: "1"}, cluster="uni"), LAPTOP)


@pytest.mark.parametrize("character", ["\n", "\r", "\0"])
def test_nothing_typed_may_have_more_than_one_line(character: str) -> None:
    value = f"a{character}b.sif"
    for options in (
        LaunchOptions({"comment": value}),
        LaunchOptions(arguments=(value,)),
        LaunchOptions(modules=("a", value)),
        LaunchOptions(conda=value),
        LaunchOptions(venv=value),
    ):
        with pytest.raises(UsageError, match="more than one line"):
            make_plan(options, LAPTOP)


def test_where_the_job_runs_on_this_machine_our_own_jupyterlab_counts() -> None:
    beside_us = (str(Path(sys.executable).parent),)
    assert make_plan(LaunchOptions(), LAPTOP).path == beside_us
    assert make_plan(LaunchOptions(cluster="here"), LAPTOP).path == beside_us
    assert make_plan(LaunchOptions(host="other"), LAPTOP).path == ()
    assert make_plan(LaunchOptions(cluster="uni"), LAPTOP).path == ()


# --- notes ---------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize("begin", [None, "15:00", "now+1hour", "2026-11-20T10:00", "112226"])
def test_no_note_on_the_begin_time(begin: str | None) -> None:
    assert begin_note(Request({"begin": begin} if begin else {}), NOW) is None


def test_a_begin_time_that_has_passed_is_told() -> None:
    note = begin_note(Request({"begin": "9:00"}), NOW)
    assert note is not None
    assert "14:30 there" in note
    assert "tomorrow, Sunday 2026-11-22 09:00" in note


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        ([], None),
        (["time", "begin", "job-name", "output"], None),
        (["gpus"], "--gpus has no effect"),
        (["time", "qos", "account"], "--account, --qos have no effect"),
        (["chdir"], "--chdir has no effect"),
    ],
)
def test_flags_without_effect_are_told(asked: list[str], note: str | None) -> None:
    told = useless_flags_note(asked)
    assert told is None if note is None else told is not None and note in told


# --- retired clusters ----------------------------------------------------------------------------------------

OLD = """
status = "retired"
successor = "new"
notice = "Old was switched off on 2026-01-30."

[[translations]]
when = { partition = "core" }
drop = ["partition"]
note = "there is no such partition."
"""
NEW = """
host = "new.uni.example"
[gpu.flags]
gres = "gpu:{count}"
[environments.torch]
[[translations]]
when = { ntasks = "*" }
drop = ["ntasks"]
set = { cpus-per-task = "{ntasks}" }
note = "cores are -c."
"""


@pytest.fixture
def retired(configuration: Path) -> Path:
    (configuration / "clusters" / "old.toml").write_text(OLD)
    (configuration / "clusters" / "new.toml").write_text(NEW)
    return configuration


@pytest.mark.usefixtures("retired")
def test_a_launch_on_a_retired_cluster_goes_to_its_successor() -> None:
    flags = {"partition": "core", "ntasks": "4", "gpus": "1"}
    plan = make_plan(LaunchOptions(flags, cluster="old", arguments=("torch",)), LAPTOP)
    assert plan.target.cluster == "new"
    assert plan.target.destination == Destination("new.uni.example")
    assert plan.request.flags == {"cpus-per-task": "4", "gres": "gpu:1", "time": "0:59:00"}
    assert plan.environment_name == "torch"
    assert (*plan.target.notes, *plan.notes) == (
        "Old was switched off on 2026-01-30. Using its successor, new.",
        "-p core is left out: there is no such partition.",
        "-n 4 is now -c 4: cores are -c.",
    )


@pytest.mark.usefixtures("retired")
def test_the_same_again_is_in_the_words_of_the_retired_one() -> None:
    """What leads back to the session names the successor, what asks anew has words that must be translated again."""
    plan = make_plan(LaunchOptions({"partition": "core"}, cluster="old"), LAPTOP)
    assert plan.target.arguments() == ["--cluster", "new"]
    assert plan.command == "--cluster old -p core"
    again = make_plan(LaunchOptions({"partition": "core"}, cluster="new"), LAPTOP)
    assert again.request.flags["partition"] == "core"
    assert again.notes == ()


def test_the_configured_cluster_may_be_a_retired_one(retired: Path) -> None:
    choose(retired, "old")
    assert find_target(LaunchOptions(), LAPTOP).cluster == "new"


def test_successors_of_successors(retired: Path) -> None:
    (retired / "clusters" / "older.toml").write_text('status = "retired"\nsuccessor = "old"\n')
    target = find_target(LaunchOptions(cluster="older"), LAPTOP)
    assert (target.cluster, target.instead_of) == ("new", "older")
    assert target.notes == (
        "older is retired. Using its successor, old.",
        "Old was switched off on 2026-01-30. Using its successor, new.",
    )


def test_successors_in_a_circle_are_told(retired: Path) -> None:
    (retired / "clusters" / "new.toml").write_text('status = "retired"\nsuccessor = "old"\n')
    with pytest.raises(ProfileError, match="in a circle") as caught:
        find_target(LaunchOptions(cluster="old"), LAPTOP)
    assert caught.value.why == "old → new → old"


def test_a_retired_cluster_without_a_successor_is_refused(retired: Path) -> None:
    (retired / "clusters" / "old.toml").write_text('host = "login"\nstatus = "retired"\nnotice = "Gone since May."\n')
    with pytest.raises(ClusterUnavailable, match="Gone since May"):
        make_plan(LaunchOptions(cluster="old"), LAPTOP)


def test_who_still_has_a_retired_cluster_may_say_so(configuration: Path) -> None:
    """Then its words are its own again."""
    names = [name for name in bundled_profiles() if load_profile(name).status == "retired"]
    name = next(name for name in names if load_profile(name).host)
    (configuration / "clusters" / f"{name}.toml").write_text(f'base = "{name}"\nstatus = "active"\n')
    old = next(iter(load_profile(name).gpu.types))
    plan = make_plan(LaunchOptions({"gpus-per-node": f"{old}:1", "account": "NAISS2026-22-1"}, cluster=name), LAPTOP)
    assert plan.target.cluster == name
    assert plan.request.flags["gpus-per-node"] == f"{old}:1"


# --- the default cluster in commands that are shown ----------------------------------------------------------------


def test_the_default_cluster_is_not_repeated_in_hints(retired: Path) -> None:
    new = LaunchOptions({"partition": "core"}, cluster="new")
    assert find_target(new, LAPTOP).arguments() == ["--cluster", "new"]
    choose(retired, "new")
    for options in (new, LaunchOptions()):
        target = find_target(options, LAPTOP)
        assert target.is_default and target.arguments() == []
        assert target.arguments_anywhere() == ["--cluster", "new"]
    assert find_target(LaunchOptions(cluster="old"), LAPTOP).arguments() == ["--cluster", "new"], "of its successor"
    # what repeats a launch is saved, and the default may be another one by then
    assert make_plan(new, LAPTOP).command == "--cluster new -p core"


def test_this_machine_as_the_default_is_not_repeated(configuration: Path) -> None:
    (configuration / "clusters" / "here.toml").unlink()
    assert find_target(LaunchOptions(), LAPTOP).arguments_anywhere() == ["--cluster", "here"]
    here = LaunchOptions(cluster="here")
    assert find_target(here, LAPTOP).arguments() == ["--cluster", "here"]
    choose(configuration, "here")
    assert find_target(here, LAPTOP).arguments() == [] == find_target(LaunchOptions(), LAPTOP).arguments()


def test_the_default_cluster_is_named_where_a_course_would_be_used(configuration: Path) -> None:
    (configuration / "config.toml").write_text('cluster = "pelle"\ncourse = "gone"\n')
    assert find_target(LaunchOptions(cluster="pelle"), LAPTOP).arguments() == ["--cluster", "pelle"]


def test_a_flag_that_is_close_to_another_one_is_noted_before_the_login() -> None:
    plan = make_plan(LaunchOptions({"walltime": "2:00:00"}, host="login"), LAPTOP)
    assert plan.target.notes == ("--walltime is close to --time: did you mean that?",)


def test_what_a_profile_says_of_an_environment_is_noted_unless_other_software_is_named() -> None:
    """Whether the default one of Snellius has JupyterLab is not known."""
    flags = {"time": "1:00:00"}

    def notes(program: Program = "jupyterlab", **named: object) -> str:
        plan = make_plan(LaunchOptions(flags, cluster="snellius", **named), LAPTOP)  # type: ignore[arg-type]
        return " ".join(notes_before(plan, Slurm(), Site("/home/a", "a", "login", datetime.now(timezone.utc)), program))

    said = "It is not known whether the module Anaconda3/2024.06-1 has JupyterLab."
    assert said in notes() and said in notes(arguments=("anaconda",))
    for others in ({"conda": "mine"}, {"venv": "~/v"}, {"arguments": ("torch",)}, {"arguments": ("anaconda", "x.sif")}):
        assert "JupyterLab" not in notes(**others), others
    programs: tuple[Program, ...] = ("shell", "notebook")
    for program in programs:
        assert "JupyterLab" not in notes(program), "which needs none"
    assert not any("JupyterLab" in note for note in make_plan(LaunchOptions(flags, cluster="snellius"), LAPTOP).notes)


def test_workers_on_several_nodes_need_slurm() -> None:
    def planned(scheduler: SchedulerName, **flags: str) -> str:
        target = LaunchTarget(ClusterProfile(), None, None, scheduler)
        return make_plan(LaunchOptions(flags, distributed="dask"), LocalMachine("laptop"), target).command

    assert planned("slurm", nodes="4").endswith("--with dask")
    planned("lsf", nodes="1")
    with pytest.raises(UsageError, match="needs Slurm; this cluster has LSF"):
        planned("lsf", nodes="4")
