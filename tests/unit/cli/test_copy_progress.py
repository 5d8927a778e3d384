"""What is said of a copy that is done."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from notebook_launcher.cli.views.copy_progress import CopyView
from notebook_launcher.core import events


@pytest.mark.parametrize(
    ("destination", "begins"),
    [
        ("login:", "Copied to login:~: 2 files, "),
        ("login:data/", "Copied to login:data/: 2 files, "),
        ("/here", "Copied to /here: 2 files, "),
    ],
)
def test_where_files_were_copied_to(destination: str, begins: str) -> None:
    file = io.StringIO()
    CopyView(Console(file=file, width=200)).show(events.Copied("x", destination, 2, 0, 500, 0, 1.0))
    assert file.getvalue().startswith(begins)
