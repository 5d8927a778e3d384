"""The one-page instruction for students, in its three forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.classroom import handout as handout_module
from notebook_launcher.cli.app import run
from notebook_launcher.profiles.store import bundled_profiles

COURSE = """\
name = "gpulab"
description = "What a <GPU> is *good* for"
contact = "lab@uni.example"
class_folder = "/proj/class"
"""


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "uni.toml").write_text('host = "login.uni.example"\n')
    (tmp_path / "course.toml").write_text(COURSE + 'cluster = "uni"\n[defaults]\ngpus = 1\n')
    return tmp_path


def test_a_page_with_all_that_a_student_needs(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handout_module, "find_browser", lambda: None)
    words = ["classroom", "handout", "--course", "course.toml", "--thinlinc", "desktop.uni.example"]
    assert run([*words, "--install", "pipx install <launcher>"]) == 0
    printed = capsys.readouterr()
    said = " ".join((printed.out + printed.err).split())
    assert "No PDF: no browser was found" in said
    assert "Students need the profile “uni”, which does not come with the launcher: give them your file " in said
    markdown, html = ((course / f"gpulab-handout.{ending}").read_text() for ending in ("md", "html"))
    for text in (markdown, html):
        for word in (
            "Linux",
            "macOS",
            "Windows",
            "ThinLinc",
            "lab@uni.example",
            "launch-notebook doctor",
            "/proj/class",
        ):
            assert word in text, word
    assert f"    launch-notebook --course {course}/course.toml\n" in markdown
    assert "What a \\<GPU\\> is \\*good\\* for" in markdown and "&lt;GPU&gt;" in html and "<GPU>" not in html
    assert "- `launch-notebook list` shows your sessions; `launch-notebook stop` ends them." in markdown
    assert "<li><code>launch-notebook list</code> shows your sessions; <code>" in html
    assert "<pre>pipx install &lt;launcher&gt;</pre>" in html
    assert "Your teacher gives you the file `uni.toml`." in markdown
    assert "`launch-notebook init login.uni.example --name uni`" in markdown
    assert "this ends the job, and frees the GPU for somebody else." in markdown
    assert (course / "gpulab-handout.html").stat().st_mode & 0o777 == 0o644
    assert run(words) == 2, "it is there already"
    assert run([*words, "--force", "--pdf"]) == 2, "no browser"
    assert run([*words, "--force", "--out", "."]) == 2, "a folder"


def test_a_course_without_gpus_on_a_bundled_cluster(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handout_module, "find_browser", lambda: None)
    (course / "plain.toml").write_text(f'name = "plain"\ncluster = "{bundled_profiles()[0]}"\n')
    assert run(["classroom", "handout", "--course", "plain.toml"]) == 0
    page = (course / "plain-handout.md").read_text()
    assert "this ends the job, and frees the node." in page and "profile" not in page


def test_the_line_of_a_course_on_the_web_has_its_digest() -> None:
    kept = handout_module.SavedCourse(None, (), Path(), "https://uni.example/course.toml", "3f0c", "2026-11-01")  # type: ignore[arg-type]
    assert handout_module.line_to_type(kept) == "launch-notebook --course 'https://uni.example/course.toml#sha256=3f0c'"


def test_a_browser_prints_it(tmp_path: Path) -> None:
    page, browser = tmp_path / "page.html", tmp_path / "chromium"
    page.write_text("<p>page</p>")
    script = 'for word; do case $word in --print-to-pdf=*) echo "%PDF-1.4" >"${word#*=}";; esac; done'
    browser.write_text(f"#!/bin/sh\n{script}\n")
    browser.chmod(0o755)
    assert handout_module.print_pdf(str(browser), page) == b"%PDF-1.4\n"
    browser.write_text("#!/bin/sh\necho 'no display' >&2; exit 1\n")
    with pytest.raises(handout_module.CopyFailed) as raised:
        handout_module.print_pdf(str(browser), page)
    assert raised.value.why == "no display"
