"""What a cluster tells of itself becomes a profile that can be read: recordings of both generations, hostile text."""

from __future__ import annotations

import os
import re
import subprocess
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.discovery import init as surveying
from notebook_launcher.discovery.cluster_survey import read_node, read_parts, read_survey
from notebook_launcher.discovery.findings import findings, probe_findings
from notebook_launcher.discovery.profile_text import (
    Choice,
    Draft,
    Login,
    Probed,
    Spelling,
    choose_account,
    choose_gpu_partition,
    choose_partition,
    login_pattern,
    next_step,
    profile_text,
)
from notebook_launcher.hosts.base import Nobody
from notebook_launcher.profiles.layers import parse_layer
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.profiles.store import checked_profile

RECORDED = Path(__file__).parent / "recorded" / "survey"
SCRIPT = Path(__file__).parent.parent / "jobscripts" / "survey.sh"
DOCS = Path(__file__).parent.parent / "docs" / "clusters.md"
DAY = date(2026, 11, 22)
GENERATIONS = ("22.05", "24.11")
each = pytest.mark.parametrize("generation", GENERATIONS)


def draft_of(text: str, other: str | None = None, probed: Probed | None = None) -> Draft:
    survey = read_survey(text, DAY, other)
    account = choose_account(survey)
    return Draft(
        "uni",
        Login("login.uni.example", "alice"),
        "launch-notebook init alice@login.uni.example",
        survey,
        account,
        choose_partition(survey, account.value),
        choose_gpu_partition(survey, account.value),
        Spelling(confirmed=True),
        probed,
    )


def recorded(name: str, generation: str) -> str:
    return (RECORDED / f"{name}-{generation}.txt").read_text()


def profile_of(draft: Draft) -> ClusterProfile:
    return checked_profile([parse_layer(profile_text(draft).encode(), "uni.toml")])


# ---- recordings -----------------------------------------------------------------------------------------------


@each
def test_a_cluster_that_tells_everything(generation: str) -> None:
    draft = draft_of(recorded("lmod", generation))
    profile = profile_of(draft)
    assert (profile.host, profile.user, profile.login_nodes) == ("login.uni.example", "alice", ())
    assert profile.defaults == {"account": "proj1"}
    assert profile.cpu.flags == {"partition": "core"}
    assert profile.gpu.flags == {"partition": "gpu", "gpus-per-node": "{count}"}
    assert {kind: dict(rule.flags) for kind, rule in profile.gpu.types.items()} == {
        "t4": {"gpus-per-node": "t4:{count}"},
        "a100": {"gpus-per-node": "a100:{count}"},
    }
    assert isinstance(profile.max_time, dict)
    assert profile.max_time["gpu"] == "2-00:00:00"
    text = profile_text(draft)
    assert '# account = "proj2"' in text
    assert "urgent" not in text.partition("[gpu.flags]")[2], "it is open to another account only"
    assert "snowy" in text
    assert f"Slurm {generation}" in text


@each
def test_another_cluster_of_the_same_slurm(generation: str) -> None:
    profile = profile_of(draft_of(recorded("snowy", generation), other="snowy"))
    assert profile.defaults == {"account": "proj1", "clusters": "snowy"}
    assert profile.cpu.flags == {"partition": "core"}, "every node has a GPU, and jobs without one still go there"
    assert profile.gpu.flags["partition"] == "core"
    assert list(profile.gpu.types) == ["t4"]


@each
def test_what_could_not_be_read_stands_there_as_a_comment(generation: str) -> None:
    draft = draft_of(recorded("no-accounting", generation))
    assert profile_of(draft).defaults == {}
    told = "not read: sacctmgr show assoc said: You are not running a supported accounting_storage plugin"
    assert f"# account: {told}" in profile_text(draft)
    checks = {check.check: check for check in findings(draft)}
    assert checks["account"].result == "unknown"
    assert told in checks["account"].found
    assert checks["partitions"].result == "ok"


def test_a_controller_that_does_not_answer() -> None:
    draft = draft_of(recorded("no-slurmctld", "24.11"))
    profile = profile_of(draft)
    assert profile.defaults == {"account": "proj1"}
    assert (profile.cpu.flags, profile.gpu.flags, profile.max_time) == ({}, {}, None)
    assert "GPUs: not known; not read: sinfo said:" in profile_text(draft)
    assert {check.check for check in findings(draft) if check.result == "unknown"} >= {
        "partitions",
        "partition",
        "GPUs",
    }


@each
def test_environment_modules_are_read_as_well(generation: str) -> None:
    draft = draft_of(recorded("environment-modules", generation))
    assert draft.survey.software.module_system is not None
    assert draft.survey.software.module_system.startswith("Modules Release")
    assert "jupyterlab/4" in draft.survey.software.modules
    assert '# modules = ["jupyterlab/4"]' in profile_text(draft)


def test_no_container_command_is_said() -> None:
    draft = draft_of(recorded("no-container", "24.11"))
    checks = {check.check: check for check in findings(draft)}
    assert (checks["container command"].result, "--probe" in checks["container command"].mend) == ("unknown", True)
    assert "No command for images was found on the login node" in profile_text(draft)


@each
def test_what_a_job_found_out_is_filled_in(generation: str) -> None:
    software = read_node(recorded("node", generation))
    assert software is not None
    draft = draft_of(recorded("lmod", generation), probed=Probed("gpu1", "step", ("node-ssh",), software))
    profile = profile_of(draft)
    assert (profile.stream, profile.container.command) == ("step", "apptainer")
    assert "not open: node-ssh" in profile_text(draft)
    assert [check.result for check in probe_findings(draft.probed, draft) if draft.probed] == [
        *("ok", "ok", "ok"),
        "warning",
    ]


def test_the_next_step_is_an_environment_where_there_is_no_jupyterlab() -> None:
    text = recorded("lmod", "24.11")
    without = draft_of(text.replace("|jupyterlab/", "|other/"))
    assert "--set environments.mine.container=" in next_step(without)
    assert "--cluster uni --dry-run -- mine" in next_step(without)
    assert """--set environments.mine.modules='["jupyterlab/4"]'""" in next_step(draft_of(text))
    there = text.replace("part jupyter\ncode 1", "part jupyter\n|/usr/bin/jupyter-lab\ncode 0")
    assert next_step(draft_of(there)) == "Read it, and use it with: launch-notebook --cluster uni --dry-run"


def test_a_node_of_another_kind_than_the_login_node() -> None:
    text = recorded("node", "24.11").replace("|x86_64", "|aarch64")
    told = "part gpus\n|GPU 0: NVIDIA GH200 120GB (UUID: GPU-1)\ncode 0\nend"
    draft = draft_of(recorded("lmod", "24.11"), probed=Probed("gn1", None, (), read_node(text.replace("end", told))))
    assert profile_of(draft).node_arch == "aarch64"
    assert draft.probed is not None
    checks = {check.check: check for check in probe_findings(draft.probed, draft)}
    assert checks["way to the node"].result == "fault"
    assert "aarch64" in checks["node"].mend
    assert checks["node: GPUs"].found == "NVIDIA GH200 120GB"


def test_the_example_in_the_documentation_is_what_is_written() -> None:
    software = read_node(recorded("node", "24.11"))
    written = profile_text(draft_of(recorded("lmod", "24.11"), probed=Probed("gpu1", "node-ssh", (), software)))
    shown = re.search(r"```toml\n(# Read on.*?)```", DOCS.read_text(), re.S)
    assert shown is not None
    assert shown[1] == written


# ---- what is chosen -------------------------------------------------------------------------------------------


def sinfo(*lines: str, accounts: tuple[str, ...] = ("p1",), default: str = "") -> str:
    parts = {
        "version": ["slurm 25.05.1"],
        "sinfo": list(lines),
        "config": ["ClusterName = here"],
        "associations": [f"here|{account}||normal|normal" for account in accounts],
        "default_account": [default],
    }
    return "survey 1\n" + "".join(
        f"part {name}\n" + "".join(f"|{line}\n" for line in told) + "code 0\n" for name, told in parts.items()
    )


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
    assert surveying.name_for(host) == name


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
        surveying.initialise(surveying.Wish("login", name="../x"), None, None, None)  # type: ignore[arg-type]


# ---- hostile text ---------------------------------------------------------------------------------------------

HOSTILE = [
    'evil"',
    "evil'''",
    'a"\nhost = "elsewhere',
    "\x1b]0;title\x07name",
    "a\x00b",
    "$(reboot)",
    "`reboot`",
    "-p",
    "[gpu]",
    "x\u2028host = 1",
    "x\rhost = 'other'",
    "ü" * 300,
    "# comment",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_no_name_of_the_clusters_gets_into_a_value_or_out_of_a_comment(word: str) -> None:
    lines = [
        f"{word}|{word}*|up|1:00:00|4|idle|gpu:{word}:4|{word}|64|1",
        "core|core*|up|1:00:00|4|idle|(null)|x|1|1",
    ]
    text = sinfo(*lines, accounts=(word, "p1"), default=word)
    text += f"part modules\n|jupyter{word}\ncode 0\npart module_system\n|{word}\ncode 0\n"
    text += f"part home\n|{word}\ncode 0\npart clusters\n!{word}\ncode 1\npart hostname\n|{word}\ncode 0\n"
    text += f"part quota_commands\n|/usr/bin/{word}quota\ncode 0\npart runtimes\n|/bin/{word}\ncode 0\n"
    profile = profile_of(draft_of(text))
    assert profile.host == "login.uni.example"
    assert profile.defaults == {"account": "p1"}
    assert profile.cpu.flags == {"partition": "core"}
    assert profile.gpu.flags == {}
    assert (profile.environments, profile.stream) == ({}, "auto")


foreign = st.text(st.characters(codec="utf-8"), max_size=60)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["|", "!", "part ", "code ", ""]), foreign), max_size=30))
def test_any_answer_becomes_a_profile_that_can_be_read(lines: list[tuple[str, str]]) -> None:
    names = ["sinfo", "partitions", "associations", "default_account", "modules", "module_system", "home", "hostname"]
    text = "survey 1\n" + "".join(
        f"part {names[number % len(names)]}\n{mark}{line}\ncode 0\n" for number, (mark, line) in enumerate(lines)
    )
    draft = draft_of(text)
    assert profile_of(draft).host == "login.uni.example"
    assert all("\n" not in check.found for check in findings(draft))


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_no_line_end_but_the_scripts_own_begins_a_part(end: str) -> None:
    lie = f"x{end}part associations{end}|here|lie||a|a{end}code 0"
    parts = read_parts(f"survey 1\npart home\n|{lie}\n!{lie}\ncode 0\nend\n")
    assert parts.keys() == {"home"}
    assert len(parts["home"].lines) == len(parts["home"].said.splitlines()) == 1


def test_many_lines_are_read_in_their_time() -> None:
    began = time.monotonic()
    parts = read_parts("survey 1\npart modules\n" + "|x\n" * 100_000 + "!y\n" * 100_000 + "code 0\n")
    assert len(parts["modules"].lines) == 100_000
    assert time.monotonic() - began < 60  # it takes one second; in squares of the lines it would take hours


def test_a_cluster_with_lsf_is_called_so_and_gets_no_job_of_slurms() -> None:
    draft = draft_of("survey 1\npart version\ncode 127\npart lsf\n|/usr/bin/bsub\ncode 0\n")
    profile = profile_of(draft)
    assert profile.scheduler == "lsf"
    assert "(LSF)" in profile.description
    assert surveying._probing(surveying.Wish("login", probe="gpu"), draft, Nobody()) is None


def test_the_full_name_of_the_login_node_is_taken() -> None:
    told = "survey 1\npart hostname\n|login3\ncode 0\npart hostname_f\n|{}\ncode 0\n"
    assert read_survey(told.format("login3.uni.example"), DAY).hostname == "login3.uni.example"
    assert read_survey(told.format("localhost.localdomain"), DAY).hostname == "login3"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("a file")
    with pytest.raises(ProfileError, match=r"uni\.toml cannot be written"):
        surveying._keep(draft_of(recorded("lmod", "24.11")), tmp_path / "clusters" / "uni.toml")


def test_what_a_start_up_file_prints_before_is_passed_over() -> None:
    assert read_parts("Welcome!\npart sinfo\n|x\nsurvey 1\npart machine\n|x86_64\ncode 0\nend\n").keys() == {"machine"}
    assert read_parts("bash: not found\n") == {}


# ---- the script -----------------------------------------------------------------------------------------------


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


def test_what_is_slow_or_hangs_costs_its_own_answer_only(tmp_path: Path) -> None:
    began = time.monotonic()
    programs = {
        "sinfo": 'echo "slurm 25.05.1"; [[ $* == *version* ]] || sleep 60',
        "scontrol": "[[ $* == *partition* ]] || sleep 60 & echo ClusterName = here",
        "sacctmgr": '[[ $* == *clusters* ]] || exit 1; trap "" TERM; while :; do sleep 1; done',
    }
    read = read_survey(survey(tmp_path, programs, "login", NBL_SURVEY_SECONDS="1"), DAY)
    assert time.monotonic() - began < 25
    assert read.version == "25.05.1"
    assert read.partitions is None
    assert read.why_not("sinfo") == "sinfo took too long"
    assert read.cluster == "here", "what it left behind in the background is not waited for"
    assert read.why_not("clusters") == "sacctmgr show clusters took too long", "it had to be killed"
    assert read.home is not None


def test_all_of_it_ends_in_its_time_whatever_drips_in_the_background(tmp_path: Path) -> None:
    began = time.monotonic()
    drips = '(for _ in {1..25}; do echo "slurm 25.05.1"; sleep 1; done) & exit'
    script = SCRIPT.read_text().replace("ALL_SECONDS=70", "ALL_SECONDS=4")
    told = survey(tmp_path, {"sinfo": "sleep 1", "scontrol": drips, "sacctmgr": drips}, "login", script=script)
    assert time.monotonic() - began < 10
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


# ---- what the user is asked -----------------------------------------------------------------------------------


class Typist:
    """Somebody at a terminal, who types these answers."""

    asks = True

    def __init__(self, *answers: str) -> None:
        self.answers, self.questions = list(answers), list[str]()

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        assert echo, "it is no secret"
        self.questions.append(text)
        return self.answers.pop(0)

    def confirm(self, text: str) -> bool | None:
        raise AssertionError(text)


@pytest.mark.parametrize(
    ("answers", "value", "questions"),
    [(("p2",), "p2", 1), (("",), None, 1), (("nonsense", "p1"), "p1", 2), (("a", "b", "c"), None, 3)],
)
def test_several_accounts_are_asked_about(answers: tuple[str, ...], value: str | None, questions: int) -> None:
    text = sinfo("a|a*|up|1:00:00|1|idle|(null)|x|1|1", accounts=("p1", "p2"))
    typist = Typist(*answers)
    choice = surveying.chosen("account", draft_of(text).account, typist)
    assert (choice.value, len(typist.questions)) == (value, questions)
    assert "p1, p2" in typist.questions[0]


def test_nothing_is_asked_where_the_choice_is_clear() -> None:
    typist = Typist()
    draft = draft_of(recorded("lmod", "24.11"))
    for choice in (draft.account, draft.partition, draft.gpu_partition):
        assert surveying.chosen("anything", choice, typist) == choice
    assert typist.questions == []
