"""The cluster that the user has just chosen is the default once the request has been checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from notebook_launcher.core.errors import AnswerMissing, UsageError
from notebook_launcher.planning.first_run import complete_options
from notebook_launcher.planning.new_default import save_new_default, with_default_saved
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine, find_target
from notebook_launcher.profiles import load_configuration
from tests.unit.planning.conftest import LaunchNotebook
from tests.unit.planning.first_user import FirstUser

LAPTOP, LOGIN = LocalMachine("laptop"), LocalMachine("login", ("slurm",))


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with nothing chosen."""
    folder = tmp_path / "config"
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(folder))
    (folder / "clusters").mkdir(parents=True)
    (folder / "clusters" / "uni.toml").write_text('host = "login.uni.example"\nlogin_nodes = ["login"]\n')
    return folder


def run(told: FirstUser) -> None:
    """Ask which cluster is meant, and make it the default, as a launch does."""
    options = complete_options(LaunchOptions(), LAPTOP, told, told)  # type: ignore[arg-type]
    save_new_default(find_target(options, LAPTOP), told)  # type: ignore[arg-type]


def test_a_cluster_is_the_default_once_the_request_has_been_checked(config: Path) -> None:
    """And with a flag that only the cluster knows, once that has accepted it."""
    told = FirstUser("uni")
    options = complete_options(LaunchOptions({"array": "0-3"}), LAPTOP, told, told)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--array"):
        make_plan(options, LAPTOP)
    new = replace(options, flags={"container-image": "x"})
    plan = with_default_saved(make_plan(new, LAPTOP), told)  # type: ignore[arg-type]
    assert (load_configuration().cluster, plan.target.arguments()) == (None, ["--cluster", "uni"])
    plan = with_default_saved(make_plan(replace(options, flags={}), LAPTOP), told)  # type: ignore[arg-type]
    assert (load_configuration().cluster, plan.target.arguments()) == ("uni", [])
    assert plan.command == "--cluster uni"


def test_with_the_default_it_is_said_how_to_change_and_undo_it(config: Path, launch_notebook: LaunchNotebook) -> None:
    run(told := FirstUser(""))
    assert told.questions == ["Which one, or you@login? (ENTER: always this machine) "]
    assert "\n  launch-notebook clusters use NAME\n  launch-notebook clusters use --unset" in told.said
    assert launch_notebook("clusters", "use", "--unset").returncode == 0
    with pytest.raises(AnswerMissing):
        run(FirstUser(None))


def test_this_machine_is_what_it_was_before(config: Path) -> None:
    run(FirstUser(""))
    plan = make_plan(LaunchOptions(), LAPTOP)
    assert (plan.target.cluster, plan.target.arguments()) == (None, [])
    (config / "config.toml").write_text('cluster = "uni"')
    assert make_plan(LaunchOptions(cluster="here"), LAPTOP).target.arguments() == ["--cluster", "here"]
    assert make_plan(LaunchOptions(cluster="here"), LOGIN).target.scheduler == "slurm"


def test_a_retired_cluster_is_saved_under_its_own_name(config: Path) -> None:
    """The successor may have one itself some day, and the flags of the retired one are translated."""
    (config / "clusters" / "old.toml").write_text('status = "retired"\nsuccessor = "uni"\nhost = "gone"\n')
    run(FirstUser("old"))
    assert load_configuration().cluster == "old"
