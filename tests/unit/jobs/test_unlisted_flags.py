"""Flags that the launcher does not know: from the command line to a stand-in for a newer sbatch on this machine.

That a real sbatch answers these questions in the same words is shown by ``tests/cluster_tests/test_unlisted_flags.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.cli import app
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    HostCommandFailed,
    LauncherError,
    SchedulerAway,
    SchedulerMissing,
    SchedulerSilent,
    SubmitRefused,
    UsageError,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.unlisted_flags import check_unlisted_flags
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles import load_configuration
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.kinds import SchedulerName
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import inspect_host
from tests.doubles import Answer, FakeHost, FakePrompts, RecordingView

# Has --container-image with a value, --fresh-nodes without, --shared-gpu with an optional one, and those that a launch
# sets; reads its words in their order, as getopt does. It submits nothing: the site refuses every account.
SBATCH = r"""#!/bin/sh
echo "$*" >>"$SBATCH_LOG"
refuse() { echo "sbatch: $*" >&2; echo 'Try "sbatch --help" for more information' >&2; exit 1; }
swallow=
for word do
  test -z "$swallow" || { swallow=; continue; }
  case $word in
    --help) echo 'Usage: sbatch [OPTIONS(0)...]'; echo '      --container-image        the image (a plugin)'
            echo '      --fresh-nodes           boot them'; echo '      --wrap[=command string] wrap it'; exit 0 ;;
    --usage) printf 'Usage: sbatch [-N nnodes] [-n ntasks]\n              [--shared-gpu[=how]]\n'; exit 0 ;;
    --container-image=never) echo "sbatch: error: Invalid --container-image specification" >&2; exit 1 ;;
    --container-image) swallow=yes ;;
    --fresh-nodes=*) refuse "option '--fresh-nodes' doesn't allow an argument" ;;
    --container-image=*|--fresh-nodes|--shared-gpu|--shared-gpu=*|--parsable|--test-only) ;;
    --job-name=*|--time=*|--output=*|--open-mode=*|--gpus=*|--ntasks=*|--cpus-per-task=*) ;;
    --*) refuse "unrecognized option '$word'" ;;
  esac
done
echo "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified" >&2
exit 1
"""


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put the stand-in on the PATH; return the words of its calls so far."""
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    log.touch()
    (folder / "sbatch").write_text(SBATCH)
    (folder / "sbatch").chmod(0o755)
    for other in ("squeue", "scancel", "scontrol", "srun", "sacct", "sinfo"):
        (folder / other).symlink_to("/bin/false")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_LOG", str(log))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    return lambda: log.read_text().splitlines()


def submissions(calls: list[str]) -> list[str]:
    asks = {"--usage", "--help", "--test-only", "-V"}
    return [call for call in calls if not asks & set(call.split())]


def a_context(host: LocalHost | FakeHost, scheduler: Scheduler | None = None) -> Context:
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    site, prompts = inspect_host(LocalHost()), CountedPrompts(FakePrompts())
    return Context(target, host, site, scheduler or Slurm(), "/sessions", RecordingView(), prompts, Interrupts())


# --- the whole way -------------------------------------------------------------------------------------------------


def test_a_new_course_is_the_default_once_the_cluster_has_accepted_the_flags(
    sbatch: Callable[[], list[str]], tmp_path: Path
) -> None:
    profile, course = tmp_path / "config" / "clusters" / "uni.toml", tmp_path / "course.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "slurm"\nhost = "uni"\nlogin_nodes = ["*"]\n')
    course.write_text('name = "lab"\ncluster = "uni"\n')
    typed = ["-t", "10", "--course", str(course)]
    assert app.run([*typed, "--zzz=1"]) == UsageError.exit_code
    assert load_configuration().course is None
    assert app.run([*typed, "--fresh-nodes"]) == AccountRefused.exit_code
    assert load_configuration().course == "lab"


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        ("--container-image=oci", "--container-image=oci"),
        ("--fresh-nodes", "--fresh-nodes"),
        ("--shared-gpu --container-image=", "--container-image="),
        ("--shared-gpu=half", "--shared-gpu=half"),
    ],
)
def test_a_flag_that_the_clusters_sbatch_has_is_passed_on(
    sbatch: Callable[[], list[str]], typed: str, passed_on: str
) -> None:
    assert app.run([*typed.split(), "-t", "10"]) == AccountRefused.exit_code
    [submission] = submissions(sbatch())
    assert f" {passed_on} " in submission and "--time=10" in submission


COMMANDS = {
    "launch": [],
    "run": ["run", "notebook.ipynb"],
    "bench": ["bench", "notebook.ipynb", "--matrix", "cores=1,2"],
    "shell": ["shell", "-c", "date"],
    "when": ["when"],
    "env check": ["env", "check", "--node"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_it_does_not_have_is_refused_before_anything_is_submitted(
    sbatch: Callable[[], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None, "id": "a"}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebook.ipynb").write_text(json.dumps(notebook))
    assert app.run([*COMMANDS[command], "--container-kind=oci"]) == UsageError.exit_code
    told = capsys.readouterr().err
    assert "There is no flag --container-kind." in told
    assert "Neither the launcher nor sbatch on " in told
    assert "did you mean --container-image?" in told
    assert submissions(sbatch()) == [] != sbatch()
    assert len(sbatch()) == 3  # the flag itself, and the two lists


def test_doctor_names_it_among_the_faults(sbatch: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["doctor", "--no-node", "--container-kind=oci", "--json"]) != 0
    checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [flags] = [check for check in checks if check.get("check") == "flags"]
    assert flags["result"] == "fault" and "--container-kind" in flags["found"]
    assert "--container-image" in flags["hint"]
    assert submissions(sbatch()) == []


def test_a_preset_keeps_it_as_it_was_typed(
    sbatch: Callable[[], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "config" / "clusters" / "uni.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "slurm"\n')
    assert app.run(["--cluster", "uni", "--container-image=oci", "--save", "oci"]) == AccountRefused.exit_code
    assert "--container-image=oci" in profile.read_text()
    first = submissions(sbatch())
    assert app.run(["again", "oci", "--cluster", "uni"]) == AccountRefused.exit_code
    again = submissions(sbatch())[len(first) :]
    assert len(first) == len(again) == 1 and " --container-image=oci " in again[0]


def test_no_preset_is_saved_with_a_flag_that_does_not_exist(sbatch: Callable[[], list[str]], tmp_path: Path) -> None:
    profile = tmp_path / "config" / "clusters" / "uni.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "slurm"\n')
    assert app.run(["--cluster", "uni", "--container-kind=oci", "--save", "oci"]) == UsageError.exit_code
    assert "oci" not in profile.read_text()


def test_a_dry_run_tells_that_it_was_not_checked(
    sbatch: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--container-image=oci", "--dry-run"]) == 0
    told = capsys.readouterr()
    shown = " ".join((told.out + told.err).split())
    assert "--container-image=oci" in shown
    assert "Not checked in this dry run: --container-image. A launch asks the cluster's sbatch about it" in shown
    assert sbatch() == []


def test_a_dry_run_names_the_flag_that_may_be_meant(
    sbatch: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--walltime=2:00:00", "--container-image=oci", "--dry-run"]) == 0
    told = capsys.readouterr()
    shown = " ".join((told.out + told.err).split())
    assert "--walltime is close to --time: did you mean that?" in shown
    assert "--container-image is close" not in shown


@pytest.mark.parametrize("name", ["uenv", "environment", "tmpfs", "tmpdir", "nvme", "lustre", "jobid"])
def test_flags_of_plugins_are_not_taken_for_slips(sbatch: Callable[[], list[str]], name: str) -> None:
    assert app.run([f"--{name}=x", "--dry-run"]) == 0


# --- what sbatch says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "error", "what", "hint"),
    [
        ({"container-image": None}, UsageError, "sbatch on ", "write --container-image=VALUE"),
        ({"fresh-nodes": "yes"}, UsageError, "sbatch on ", "write --fresh-nodes"),
        ({"shared-gpus": None}, UsageError, "There is no flag --shared-gpus.", "did you mean --shared-gpu?"),
        ({"zzz": "1"}, UsageError, "There is no flag --zzz.", "--help   or on the login node: sbatch --help"),
        ({"container-image": "never"}, SubmitRefused, "sbatch on ", "sbatch: Invalid --container-image specification"),
    ],
)  # fmt: skip
def test_what_cannot_be_passed_on_is_refused_with_the_reason(
    sbatch: Callable[[], list[str]], flags: dict[str, str | None], error: type[LauncherError], what: str, hint: str
) -> None:
    with pytest.raises(error) as caught:
        check_unlisted_flags(a_context(LocalHost()), {"time": "10", **flags})
    assert caught.value.what.startswith(what)
    assert hint in f"{caught.value.hint} {caught.value.why}"
    assert submissions(sbatch()) == []


def test_each_is_asked_about_once(sbatch: Callable[[], list[str]]) -> None:
    context = a_context(LocalHost())
    check_unlisted_flags(context, {"container-image": "oci"})
    check_unlisted_flags(context, {"container-image": "oci", "time": "10"})
    assert len(sbatch()) == 1
    with pytest.raises(UsageError):
        check_unlisted_flags(context, {"container-image": None})  # typed in another way


def test_nothing_is_asked_about_flags_that_are_known() -> None:
    host = FakeHost()
    check_unlisted_flags(a_context(host), {"time": "10", "container": "/image", "gpus": "1"})
    assert host.ran == []


def test_without_slurm_nothing_is_asked() -> None:
    host = FakeHost()
    with pytest.raises(UsageError, match="There is no flag --container-image"):
        check_unlisted_flags(a_context(host, Lsf()), {"container-image": "oci"})
    assert host.ran == []


@pytest.mark.parametrize("scheduler", ["lsf", "local"])
def test_where_the_profile_names_another_scheduler_it_is_refused_before_the_login(scheduler: SchedulerName) -> None:
    target = LaunchTarget(ClusterProfile(), "uni", None, scheduler)
    with pytest.raises(UsageError, match="There is no flag --zzz") as caught:
        make_plan(LaunchOptions({"zzz": "1"}), LocalMachine("laptop"), target)
    assert "sbatch --help" not in caught.value.hint
    assert ("docs/lsf.md" in caught.value.hint) == (scheduler == "lsf")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (CommandResult(0, "\n--answered-- 124\n" * 3, "\n--answered--\n" * 3), SchedulerSilent),
        (CommandResult(1, "", "no sbatch for you"), LauncherError),
        (CommandResult(0, "Usage: sbatch\n" * 99, ""), LauncherError),
        (
            CommandResult(0, "\n--answered-- 0\n" * 3, "unrecognized option '--other'\n--answered--\n" * 3),
            LauncherError,
        ),
        (HostCommandFailed("It did not answer."), HostCommandFailed),
    ],
)
@pytest.mark.parametrize("value", ["oci", None])
def test_without_a_clear_answer_the_flag_is_not_accepted(
    answer: Answer, error: type[LauncherError], value: str | None
) -> None:
    context = a_context(FakeHost(answer))
    with pytest.raises(error) as caught:
        check_unlisted_flags(context, {"container-image": value})
    assert "write --container-image=VALUE" not in caught.value.hint
    assert not context.accepted_flags


def refused(exit_code: int, message: str) -> CommandResult:
    return CommandResult(0, f"\n--answered-- {exit_code}\n", f"{message}\n\n--answered--\n")


@pytest.mark.parametrize("value", ["oci", None])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(127, "sh: 1: sbatch: not found"), SchedulerMissing),
        (
            refused(1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"),
            SchedulerAway,
        ),
        (refused(1, "sbatch: fatal: Could not establish a configuration source"), SchedulerAway),
        (CommandResult(0, "", ""), SchedulerAway),
    ],
)
def test_a_trial_that_failed_is_not_told_as_a_job_that_was_submitted(
    answer: CommandResult, error: type[LauncherError], value: str | None
) -> None:
    with pytest.raises(error) as caught:
        check_unlisted_flags(a_context(FakeHost(answer)), {"container-image": value})
    shown = str(caught.value)
    assert not getattr(caught.value, "may_have_heard", False)
    assert "squeue" not in caught.value.hint and "the job" not in shown
    assert "without a value" not in shown and "VALUE" not in caught.value.hint


def test_of_each_of_several_flags_there_is_time_to_hear() -> None:
    """Each has 15 seconds; the connection waits a little longer than all of them."""
    timeouts = []

    class Slow(FakeHost):
        def run(self, *_words: object, timeout: float = 0.0, **_named: object) -> CommandResult:
            timeouts.append(timeout)
            return CommandResult(0, "\n--answered-- 124\n" * 4, "\n--answered--\n" * 4)

    with pytest.raises(SchedulerSilent):
        check_unlisted_flags(a_context(Slow()), {f"flag{number}x": None for number in range(4)})
    assert timeouts == [75.0]


def test_lists_of_flags_are_read_with_the_same_limit() -> None:
    assert all(command[:3] == ["env", "LC_ALL=C", "timeout"] for command in Slurm().list_flags())


def test_names_that_a_hostile_answer_lists_are_names_and_few() -> None:
    listed = "\n".join([*(f"  --flag-{i}x" for i in range(9000)), "  --evil\x1b[2J", "  --zzzz;rm", f"  --{'z' * 99}"])
    text = f"{listed}\n--answered-- 0\n"
    refusal = "sbatch: unrecognized option '--zzzzzz=1'\n\n--answered--\n"
    with pytest.raises(UsageError) as caught:
        check_unlisted_flags(
            a_context(FakeHost(CommandResult(0, f"\n--answered-- 1\n{text}{text}", refusal * 3))), {"zzzzzz": "1"}
        )
    assert "There is no flag --zzzzzz." in str(caught.value)
    assert not {"\x1b", ";"} & set(caught.value.hint) and len(caught.value.hint) < 200
