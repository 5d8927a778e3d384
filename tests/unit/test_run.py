"""What a run takes along to its session."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from notebook_launcher import run
from notebook_launcher.cli.views.errors import json_line
from notebook_launcher.core import events
from notebook_launcher.launch import Payload
from notebook_launcher.notebook.prepare import Prepared

PREPARED = Prepared("train.ipynb", b"{}", 9, {"EPOCHS": 1}, {"helper.py": b"x = 1\n"}, None)


def payload(prepared: Prepared, *, here: bool) -> Payload:
    return run._payload(prepared, "notebook", here=here)


def test_on_the_same_machine_the_kernel_works_in_the_notebooks_own_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_bytes(b"x = 1\n")
    prepared = Prepared("train.ipynb", b"{}", 1, {}, {"helper.py": b"x = 1\n"}, tmp_path)
    assert payload(prepared, here=True).lines["folder"] == str(tmp_path) and payload(prepared, here=True).sent == ()
    assert "folder" not in payload(prepared, here=False).lines and payload(prepared, here=False).sent == ("helper.py",)
    odd = tmp_path / "a,b:c"
    odd.mkdir()
    (odd / "helper.py").write_bytes(b"x = 1\n")
    unseen = dataclasses.replace(prepared, folder=odd)  # no container can be shown it
    assert "folder" not in payload(unseen, here=True).lines and payload(unseen, here=True).sent == ("helper.py",)
    elsewhere = Prepared("train.ipynb", b"{}", 1, {}, {"data.csv": b"1\n"}, tmp_path)  # named from another folder
    assert "folder" not in payload(elsewhere, here=True).lines and payload(elsewhere, here=True).sent == ("data.csv",)


def test_what_the_launcher_lends_is_sent_though_the_kernel_works_in_the_notebooks_own_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_bytes(b"x = 1\n")
    dependencies = {"helper.py": b"x = 1\n", "timing.py": b"ours"}
    prepared = Prepared("train.ipynb", b"{}", 1, {}, dependencies, tmp_path, helpers=("timing.py",))
    made = payload(prepared, here=True)
    assert made.lines["folder"] == str(tmp_path) and made.sent == ("timing.py",)
    assert run._queued(prepared, here=True).files == ("timing.py",)
    assert set(json.loads(made.files["sent.json"])["files"]) == {"timing.py"}
    assert payload(prepared, here=False).sent == ("helper.py", "timing.py")


def test_what_is_noted_of_parameters_is_json_for_every_reader() -> None:
    odd = {"RATE": float("nan"), "LIMITS": [1.5, float("-inf")]}
    noted = payload(dataclasses.replace(PREPARED, parameters=odd), here=False).files["sent.json"]
    assert json.loads(noted, parse_constant=pytest.fail)["parameters"] == {"RATE": "nan", "LIMITS": [1.5, "-inf"]}
    line = json_line(events.NotebookPrepared("train.ipynb", 9, dict(odd), ()))
    assert json.loads(line, parse_constant=pytest.fail)["parameters"]["RATE"] == "nan"
