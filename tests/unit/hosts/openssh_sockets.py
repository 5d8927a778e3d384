"""A folder for the sockets of masters."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for sockets, which is empty before and after."""
    tmp_path_factory.getbasetemp()  # pytest's own is where it was
    folder = Path(f"/tmp/nl-test-{os.getpid()}")  # a short name
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    left = list(folder.iterdir())
    subprocess.run(["rm", "-rf", folder], check=True)
    assert left == []
