"""The command line with a course, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pexpect
import pytest

from notebook_launcher.core.errors import DigestDiffers, UsageError
from notebook_launcher.profiles import load_configuration
from notebook_launcher.profiles.courses import saved_courses
from tests.unit.planning.conftest import LaunchNotebook
from tests.unit.planning.courses.course_files import FILES, LAUNCHER, digest_of
from tests.unit.planning.courses.web_server import Server

pytestmark = pytest.mark.timeout(60)


@pytest.mark.real_time
def test_in_a_terminal_the_question_is_answered_and_the_launch_goes_on(web: Server, course: Path) -> None:
    child = pexpect.spawn(LAUNCHER[0], [*LAUNCHER[1:], "env", "list", "--course", web.put(FILES)],
                          encoding="utf-8", timeout=20, dimensions=(24, 80))  # fmt: skip
    child.expect("runs  conda activate tf-gpu; export X='\\$HOME'")
    child.expect(r"Use and save this course\? It decides what runs. \[yes/no\] ")
    child.sendline("yes")
    child.expect("The course gpu2026 .* is saved")
    child.expect("tf-mkl")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_every_command_takes_a_course_and_json_reports_it(
    web: Server, course: Path, launch_notebook: LaunchNotebook
) -> None:
    url = web.put(FILES)
    done = launch_notebook("list", "--course", url, "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, told[-1]["kind"]) == (6, "AnswerMissing")
    assert f"{url}#sha256={digest_of(course)}" in told[-1]["hint"]
    assert saved_courses() == []
    assert launch_notebook("env", "list", "--course", str(course)).returncode == 0
    done = launch_notebook("course", "list", "--json")
    seen = json.loads(done.stdout)
    assert (seen["event"], seen["course"], seen["default"], seen["cluster"]) == ("course_entry", "gpu2026", True, "uni")
    shown = launch_notebook("course", "show", "gpu2026")
    assert "runs  conda activate tf-gpu" in shown.stdout
    assert launch_notebook("course", "forget", "gpu2026").returncode == 0
    assert saved_courses() == []


@pytest.mark.parametrize("words", ["-t abc", "--array 0-3", "when -t abc", "--renew 1 -t 0"])
def test_a_request_that_is_refused_does_not_make_its_course_the_default(
    words: str, course: Path, configuration: Path, launch_notebook: LaunchNotebook
) -> None:
    before = (configuration / "config.toml").read_bytes()
    done = launch_notebook(*words.split(), "--course", str(course))
    assert done.returncode == UsageError.exit_code, done.stderr
    assert (configuration / "config.toml").read_bytes() == before
    assert saved_courses() == ["gpu2026"], "it was agreed to"


@pytest.mark.parametrize("by", ["file", "digest"])
def test_a_course_is_the_default_before_its_first_launch_contacts_the_cluster(
    web: Server, course: Path, by: str, launch_notebook: LaunchNotebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the launch's own hints leave it out."""
    seen: list[object] = []
    monkeypatch.setattr(
        "notebook_launcher.launch.launch",
        lambda plan, *_: seen.extend([load_configuration().course, plan.target.arguments(), plan.command]),
    )
    word = f"{web.put(FILES)}#sha256={digest_of(course)}" if by == "digest" else str(course)
    done = launch_notebook("-t", "1h", "--course", word)
    assert done.returncode == 0, done.stderr
    assert seen == ["gpu2026", [], "--course gpu2026 -t 1h"]
    assert "“gpu2026” is the default course" in done.stderr and "--cluster NAME" in done.stderr
    assert "\n  launch-notebook course forget gpu2026\n" in done.stderr
    again = launch_notebook("-t", "1h", "--course", word)
    assert "default course" not in again.stderr


def test_a_dry_run_reads_a_course_and_keeps_nothing(
    web: Server, course: Path, configuration: Path, launch_notebook: LaunchNotebook
) -> None:
    before = (configuration / "config.toml").read_bytes()
    for word in (str(course), web.put(FILES)):
        done = launch_notebook("--dry-run", "--course", word)
        assert (done.returncode, "--account=edu26" in done.stdout, "tf-gpu" in done.stdout) == (0, True, True), done
        assert "is read for this run only, and not saved" in done.stdout + done.stderr
        assert (saved_courses(), (configuration / "config.toml").read_bytes()) == ([], before)
    done = launch_notebook("--dry-run", "--course", f"{word}#sha256={'0' * 64}")
    assert done.returncode == DigestDiffers.exit_code
