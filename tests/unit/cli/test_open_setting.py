"""Whether the browser is opened: by what was typed, the setting, and the answer to one question."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.cli.open_setting import wants_browser
from notebook_launcher.core.errors import ProfileError
from tests.doubles import RecordingView


class Answers:
    """Gives one answer; ``asked``: how often."""

    asks = True

    def __init__(self, answer: bool | None) -> None:
        self.answer, self.asked = answer, 0

    def confirm(self, text: str) -> bool | None:
        self.asked += 1
        return self.answer


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    return tmp_path / "config.toml"


@pytest.mark.parametrize(
    ("setting", "typed", "opens"),
    [
        ("always", None, True),
        ("never", None, False),
        ("ask", None, False),  # as nobody can be asked
        ("always", False, False),
        ("never", True, True),
    ],
)
def test_the_setting_counts_unless_something_was_typed(
    configuration: Path, setting: str, typed: bool | None, opens: bool
) -> None:
    configuration.write_text(f'open = "{setting}"\n')
    assert wants_browser(typed, RecordingView()) is opens


def test_without_a_display_nothing_is_asked_or_opened(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    questions = Answers(answer=True)
    assert not wants_browser(None, RecordingView(), questions)
    configuration.write_text('open = "always"\n')
    assert not wants_browser(None, RecordingView(), questions)
    assert questions.asked == 0


@pytest.mark.parametrize("answer", [True, False])
def test_the_answer_is_kept_and_the_rest_of_the_file_too(configuration: Path, answer: bool) -> None:
    configuration.write_text('cluster = "uni"  # mine\n')
    questions = Answers(answer)
    assert [wants_browser(None, RecordingView(), questions) for _ in range(2)] == [answer, answer]
    assert questions.asked == 1
    value = "always" if answer else "never"
    assert configuration.read_text() == f'cluster = "uni"  # mine\nopen = "{value}"\n'


def test_no_answer_is_not_kept(configuration: Path) -> None:
    assert not wants_browser(None, RecordingView(), Answers(None))
    assert not configuration.exists()


def test_another_value_is_a_mistake(configuration: Path) -> None:
    configuration.write_text('open = "alway"\n')
    with pytest.raises(ProfileError) as error:
        wants_browser(None, RecordingView())
    assert error.value.hint == "did you mean always?"
