"""A notebook as a job: the real job script, the real execute.py, Jupyter's own executor and real kernels."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.job import VENV_BIN, Job, read_json

# Quotes, what a shell would run, a space, and a dash at the beginning: all that may be in the name of a file.
NAME = """-x "it's" $(touch ran) `touch ran`; & ünï.ipynb"""


STEM = NAME.removesuffix(".ipynb")


def load_execute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", job_script("execute.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes look themselves up there
    spec.loader.exec_module(module)
    return module


execute = load_execute()


execute_common, execute_html, execute_outputs, execute_script = (
    sys.modules[f"execute_{part}"] for part in ("common", "html", "outputs", "script")
)


def notebook(*cells: str, kernel: str = "python3", language: str = "python") -> Any:
    """A notebook; a cell that begins with # and a space, or with text and no code, is Markdown."""
    made = [
        new_markdown_cell(cell) if cell.startswith("#") else new_code_cell(cell, execution_count=7) for cell in cells
    ]
    kernelspec = {"name": kernel, "display_name": kernel, "language": language}
    return new_notebook(cells=made, metadata={"kernelspec": kernelspec})


class Run(Job):
    """A job that runs a notebook; on a busy machine Jupyter takes its time to load."""

    def exit(self) -> dict[str, Any]:
        assert self.process is not None
        self.process.wait(120)
        return super().exit()


def new_run(root: Path, content: Any, *settings: str, name: str = NAME) -> Job:
    """A job that will run this notebook."""
    job = Run(root)
    job.ask("program=notebook", f"notebook={name}", f"path={VENV_BIN}", *settings)
    nbformat.write(content, job.dir / "input.ipynb")
    job.env["NBL_WRITE_SECONDS"] = "0.3"
    return job


def run_here(session: Path, content: Any, **environ: str) -> tuple[int, str]:
    """Run a notebook (or text that is none) in this process; return the exit code, and what is said of the end."""
    for folder in ("runtime", "work"):
        (session / folder).mkdir(parents=True)
    text = content if isinstance(content, str) else nbformat.writes(content)
    (session / "input.ipynb").write_text(text)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # where it is set a kernel leaves its standard error alone
        run = execute.Run({"NBL_SESSION_DIR": str(session), **environ})
        code = asyncio.run(execute.run_until_stopped(run))
    return code, (session / "runtime" / "cause").read_text().rstrip("\n")


def result(job: Job, name: str = NAME) -> Any:
    """The notebook that came of it."""
    return nbformat.read(job.dir / "work" / name, as_version=4)


def code_cells(made: Any) -> list[Any]:
    return [cell for cell in made.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    """What a cell has printed and returned."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(parts)


def progress(job: Job) -> dict[str, Any]:
    return read_json(job.dir / "progress.json")


def progress_if_there(job: Job) -> dict[str, Any]:
    return progress(job) if (job.dir / "progress.json").exists() else {}
