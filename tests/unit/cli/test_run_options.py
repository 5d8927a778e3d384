"""What is typed after ``run``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from notebook_launcher.cli import app
from notebook_launcher.cli.run_options import dependencies_and_workers


@pytest.mark.parametrize("words", [["status"], ["connect"], ["results"]])
def test_who_forgets_the_cluster_is_told_of_the_profile_that_there_is(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("notebook_launcher.jobs.lookup.user_profiles", lambda: ["mine"])
    assert app.run(words) == 40
    said = capsys.readouterr().err
    assert "There is no session on this machine." in said and "You have a profile named mine." in said
    assert "--cluster mine" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.ipynb -p gpu --gpus 1", "--partition gpu"),
        ("train.ipynb -p gpu -t 10", "--partition gpu"),
        ("-p gpu train.ipynb", "--partition gpu"),
        ("-p gpu -N1 train.ipynb", "run train.ipynb --partition gpu"),
        ("-p gpu -t1:00:00 train.ipynb", "run train.ipynb --partition gpu"),
        ("-p gpu -t 1:00:00 train.ipynb", "run train.ipynb --partition gpu"),
        ("~nobody-here/train.ipynb", "cannot be inspected"),
        ("train.ipynb --with ~nobody-here/x", "cannot be inspected"),
        ("train.ipynb --output ~nobody-here/x", "--output DIR"),
        (f"train.ipynb --output {'x' * 300}", "--output DIR"),
        (f"train.ipynb --with {'x' * 300}", "cannot be inspected"),
        (f"{'x' * 300}.ipynb", "cannot be inspected"),
        ("train.ipynb -p gpu", "--partition gpu"),  # a flag of ours follows
        ("train.ipynb -p EPOCHS=3 -t 10", "run train.ipynb -p EPOCHS 3"),
        ("-p EPOCHS=3 train.ipynb", "run train.ipynb -p EPOCHS 3"),
        ("train.ipynb -p EPOCHS abc", "is a number, and “abc” is none"),
        ("", "Which notebook?"),
        ("train.ipynb tf-gpu", "Unexpected argument: “tf-gpu”."),
        ("train.ipynb --output train.ipynb", "is not a folder"),
        ("train.ipynb --array 1", "array"),
    ],
)
def test_what_is_typed_wrongly_is_said(
    words: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "train.ipynb")
    assert app.run(["run", *words.split(), "--cluster", "here"]) in (2, 26)
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_parameter_in_one_word_at_the_end_is_shown_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["run", "train.ipynb", "-p", "EPOCHS=3"]) == 2
    assert "→ -p EPOCHS 3; for the partition" in capsys.readouterr().err


def test_parameters_go_in_and_scheduler_flags_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "train.ipynb")
    words = "run train.ipynb -p EPOCHS -5 --host u@h --partition gpu -n 4 -t 10 --to script --dry-run -- env.sif"
    assert app.run(words.split()) == 0
    shown = capsys.readouterr()
    assert "--partition=gpu" in shown.out and "--ntasks=4" in shown.out and "to=script" in shown.out
    assert "EPOCHS=-5" in shown.out + shown.err and "container=env.sif" in shown.out
    assert not re.search(r"^(sshd|idle_stop|folder)=", shown.out, re.M)


def write_notebook(path: Path) -> None:
    source = "EPOCHS = 5\n"
    code: dict[str, object] = {"cell_type": "code", "id": "a", "outputs": [], "execution_count": None}
    code |= {"metadata": {"tags": ["parameters"]}, "source": source}
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [code]}))


def test_dask_after_with_is_no_file() -> None:
    assert dependencies_and_workers(("data.csv", "dask", "./dask")) == (("data.csv", "./dask"), "dask")
    assert dependencies_and_workers(("data.csv",)) == (("data.csv",), None)
