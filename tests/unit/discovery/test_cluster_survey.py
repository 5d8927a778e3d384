"""Output of the survey script is read as data, whatever text a cluster prints."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.discovery import init
from notebook_launcher.discovery.cluster_survey import read_parts, read_survey
from notebook_launcher.discovery.findings import findings
from notebook_launcher.hosts.base import NoPrompts
from tests.fuzzing import examples
from tests.unit.discovery.surveys import DAY, draft_of, profile_of, recorded, sinfo

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
    assert (profile.environments, profile.route) == ({}, "auto")


foreign = st.text(st.characters(codec="utf-8"), max_size=60)


@settings(max_examples=examples(24), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["|", "!", "part ", "code ", ""]), foreign), max_size=30))
@pytest.mark.real_time
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
    assert len(parts["home"].lines) == len(parts["home"].message.splitlines()) == 1


def test_many_lines_are_read_in_their_time() -> None:
    began = time.monotonic()
    parts = read_parts("survey 1\npart modules\n" + "|x\n" * 100_000 + "!y\n" * 100_000 + "code 0\n")
    assert len(parts["modules"].lines) == 100_000
    assert time.monotonic() - began < 60  # it takes one second; in squares of the lines it would take hours


@pytest.mark.parametrize(
    ("command", "name", "title"),
    [("bsub", "lsf", "LSF"), ("pbs_rsub", "pbs", "PBS"), ("qconf", "gridengine", "Grid Engine")],
)
def test_a_cluster_with_another_scheduler_is_called_so_and_gets_no_job_of_slurms(
    command: str, name: str, title: str
) -> None:
    draft = draft_of(f"survey 1\npart version\ncode 127\npart others\n|/opt/bin/{command}\ncode 1\n")
    profile = profile_of(draft)
    assert profile.scheduler == name
    assert f"({title})" in profile.description
    assert init._probing(init.InitRequest("login", probe="gpu"), draft, NoPrompts()) is None


def test_the_full_name_of_the_login_node_is_taken() -> None:
    told = "survey 1\npart hostname\n|login3\ncode 0\npart hostname_f\n|{}\ncode 0\n"
    assert read_survey(told.format("login3.uni.example"), DAY).hostname == "login3.uni.example"
    assert read_survey(told.format("localhost.localdomain"), DAY).hostname == "login3"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("a file")
    with pytest.raises(ProfileError, match=r"uni\.toml cannot be written"):
        init._save(draft_of(recorded("lmod", "24.11")), tmp_path / "clusters" / "uni.toml")


def test_what_a_start_up_file_prints_before_is_passed_over() -> None:
    assert read_parts("Welcome!\npart sinfo\n|x\nsurvey 1\npart machine\n|x86_64\ncode 0\nend\n").keys() == {"machine"}
    assert read_parts("bash: not found\n") == {}
