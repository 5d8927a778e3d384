"""``launch-notebook`` in this process, where no terminal and no signal matters: a process of its own takes a second."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from notebook_launcher.cli import app

LaunchNotebook = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def launch_notebook(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> LaunchNotebook:
    """Run ``launch-notebook`` with these arguments, and other environment variables; nobody can be asked."""

    def launch_notebook(*arguments: str, **environment: str) -> CompletedProcess[str]:
        capfd.readouterr()
        with monkeypatch.context() as patched, Path(os.devnull).open() as nothing:
            patched.setattr("sys.stdin", nothing)
            for name, value in environment.items():
                patched.setenv(name, value)
            code = app.run(arguments)
        shown = capfd.readouterr()
        return CompletedProcess(arguments, code, shown.out, shown.err)

    return launch_notebook
