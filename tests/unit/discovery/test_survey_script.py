"""``survey.sh``: bounded in time, and every answer kept apart."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from notebook_launcher.discovery.cluster_survey import read_survey
from tests.unit.discovery.surveys import DAY

pytestmark = pytest.mark.real_time

SCRIPT = job_script("survey.sh")


def survey(folder: Path, programs: dict[str, str], *words: str, script: str = "", **env: str) -> str:
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **env}
    done = subprocess.run(
        [os.environ.get("NBL_TEST_BASH", "bash"), "-s", "--", *words],
        input=script or SCRIPT.read_text(),
        env=env,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("end\n"), done.stdout
    return done.stdout


@pytest.mark.real_time
def test_what_is_slow_or_hangs_costs_its_own_answer_only(tmp_path: Path) -> None:
    began = time.monotonic()
    programs = {
        "sinfo": 'echo "slurm 25.05.1"; [[ $* == *version* ]] || sleep 60',
        "scontrol": "[[ $* == *partition* ]] || sleep 60 & echo ClusterName = here",
        "sacctmgr": '[[ $* == *clusters* ]] || exit 1; trap "" TERM; while :; do sleep 1; done',
    }
    read = read_survey(survey(tmp_path, programs, "login", NBL_SURVEY_SECONDS="1"), DAY)
    assert time.monotonic() - began < 50
    assert read.version == "25.05.1"
    assert read.partitions is None
    assert read.failure_of("sinfo") == "sinfo took too long"
    assert read.cluster == "here", "what it left behind in the background is not waited for"
    assert read.failure_of("clusters") == "sacctmgr show clusters took too long", "it had to be killed"
    assert read.home is not None


def test_all_of_it_ends_in_its_time_whatever_drips_in_the_background(tmp_path: Path) -> None:
    began = time.monotonic()
    drips = '(for _ in {1..25}; do echo "slurm 25.05.1"; sleep 1; done) & exit'
    script = SCRIPT.read_text().replace("ALL_SECONDS=70", "ALL_SECONDS=2")
    told = survey(tmp_path, {"sinfo": "sleep 1", "scontrol": drips, "sacctmgr": drips}, "login", script=script)
    assert time.monotonic() - began < 20
    assert "part quota\ncode skipped\n" in told


def test_what_a_login_shell_says_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text("echo Lmod 9.9; echo python/3\nmodule() { echo jupyter/4; }\n")
    read = read_survey(survey(tmp_path, {"sinfo": "echo slurm 25.05.1"}, "login"), DAY)
    assert read.software.modules == ("jupyter/4",)
    assert "9.9" not in str(read.software.module_system)


def test_no_part_can_begin_in_what_a_command_prints(tmp_path: Path) -> None:
    lie = "printf 'slurm 25.05.1\\nend\\npart associations\\n|x|lie||a|a\\ncode 0\\n'"
    read = read_survey(survey(tmp_path, {"sinfo": lie, "sacctmgr": "exit 1"}, "login"), DAY)
    assert read.accounts is None
    assert read.version == "25.05.1"


def test_variables_of_the_users_leave_nothing_out(tmp_path: Path) -> None:
    told = survey(tmp_path, {"sinfo": "env", "scontrol": "env"}, "login", SINFO_PARTITION="x", SLURM_CLUSTERS="y")
    assert "SINFO_PARTITION" not in told
    assert "SLURM_CLUSTERS" not in told


def test_another_cluster_is_asked_for_by_name(tmp_path: Path) -> None:
    told = survey(tmp_path, {"sinfo": 'echo "$@"', "scontrol": 'echo "$@"'}, "login", "snowy")
    assert "|--clusters=snowy --oneliner show partition\n" in told
    assert "|--clusters=snowy --noheader" in told


def test_only_programs_that_tell_a_user_a_quota_are_suggested(tmp_path: Path) -> None:
    programs = dict.fromkeys(["myquota", "repquota", "project-quota"], "exit 0")
    read = read_survey(survey(tmp_path, programs, "login"), DAY)
    assert {"myquota", "project-quota"} <= set(read.quota_candidates)
    assert "repquota" not in read.quota_candidates
    assert read.quota == ()
    with_quota = read_survey(survey(tmp_path, {"quota": "echo home 1G of 20G"}, "login"), DAY)
    assert with_quota.quota == ("quota", "-s")
