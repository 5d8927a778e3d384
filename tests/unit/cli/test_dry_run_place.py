"""What a dry run says of the notebook that JupyterLab would open with."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.cli.app import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train.ipynb", "--host", "me@login.example.org"],
            "train.ipynb would be copied to the cluster, unless the same",
        ),
        (["--host", "me@login.example.org", "--open-at", "there"], "JupyterLab would open with there, if it is there."),
    ],
)
def test_a_dry_run_says_what_would_be_copied_and_opened(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.ipynb").write_text("{}")
    assert run([*words, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
