"""Every bundled notebook runs from top to bottom, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_runs_from_top_to_bottom(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    if path.name == "hello.ipynb":
        assert outputs.startswith("Hello\n")
        assert "node: " in outputs
