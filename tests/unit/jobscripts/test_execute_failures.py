"""Notebooks that fail, are stopped, or find no kernel."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import nbformat
import pytest

from notebook_launcher.core.errors import OutOfMemory
from notebook_launcher.core.package_data import job_script
from notebook_launcher.diagnosis import exit_causes
from tests.doubles import wait_until
from tests.unit.jobscripts.execute_run import (
    NAME,
    STEM,
    code_cells,
    notebook,
    progress,
    progress_if_there,
    result,
    run_here,
    text_of,
)
from tests.unit.jobscripts.job import VENV_BIN, Job, library, read_json

pytestmark = pytest.mark.real_time


def test_a_cell_that_fails(run: Callable[..., Job], tmp_path: Path) -> None:
    """What there is stays, with the traceback. Here the notebook lies on the same machine, in a folder of its own."""
    folder = tmp_path / "my folder"
    folder.mkdir()
    (folder / "beside.py").write_text("ANSWER = 43\n")
    job = run(
        "# Load",
        "import beside, os, sent\nprint(beside.ANSWER, os.getcwd())",
        "# **Train** a `net`",
        "print('before')\nraise ValueError('\\x1b[31mred\\nand more')",
        "print('never')",
        settings=(f"folder={folder}",),
    )
    (job.dir / "work").mkdir(mode=0o700)
    (job.dir / "work" / "sent.py").write_text("")  # a module that the folder lacks is found where it was sent
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("notebook-failed", 1)
    assert report["message"] == "Cell 2 of 3 (Train a net) failed: ValueError: red."
    first, failed, never = code_cells(result(job))
    assert text_of(first) == f"43 {folder}\n"
    assert text_of(failed) == "before\n" and failed.outputs[-1].traceback
    assert never.outputs == [] and never.execution_count is None, "not even what it printed another time"
    told = progress(job)
    assert (told["done"], told["cell"], told["failed"], told["title"]) == (1, 2, 2, "Train a net")
    assert told["error"] == report["message"]
    assert job.processes() == []


def test_a_job_that_is_stopped_keeps_what_there_is_and_begins_anew(run: Callable[..., Job]) -> None:
    job = run(
        "import os, subprocess, time\nopen('state', 'w').write('kept')\nprint('first')",
        "subprocess.Popen(['sleep', '300'])\nprint('so far', flush=True)\ntime.sleep(300)",
        "print('never')",
        alone=True,
    )
    work = job.dir / "work"
    work.mkdir()
    (work / "results.jsonl").write_text("sent along\n")
    (work / f"{STEM}.out").write_text("sent along, too\n")
    job.start()
    wait_until(lambda: progress_if_there(job).get("cell") == 2, 120)
    wait_until(lambda: "so far" in text_of(code_cells(result(job))[1]))  # written while the cell runs
    with (work / "results.jsonl").open("a") as file:
        file.write("measured\n")
    job.send(signal.SIGTERM)
    wait_until((job.dir / "exit.json").exists)
    cells = code_cells(result(job))
    assert "the job was ended while this cell ran" in text_of(cells[1]), "written before exit.json is"
    report = job.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 143)
    assert text_of(cells[0]) == "first\n" and text_of(cells[1]).startswith("so far\n") and not cells[2].outputs
    assert (progress(job)["done"], progress(job)["cell"], progress(job)["failed"]) == (1, 2, None)
    assert job.processes() == [], "nor what the kernel had started"
    # the scheduler puts it back into the queue
    job.in_a_scheduler()
    nbformat.write(notebook("print(open('state').read(), open('results.jsonl').read())"), job.dir / "input.ipynb")
    job.start()
    wait_until(lambda: not (job.dir / "exit.json").exists())
    assert job.exit()["cause"] == "finished"
    (cell,) = code_cells(result(job))
    assert text_of(cell) == "kept sent along\n\n", "not what the first run had measured"
    assert "so far" in (work / "earlier-1" / NAME).read_text()
    assert (work / "earlier-1" / "results.jsonl").read_text() == "sent along\nmeasured\n"
    assert progress(job)["cells"] == 1
    assert (work / f"{STEM}.out").read_text() == "sent along, too\n", "it is no script's"


def test_what_a_run_has_measured_before_its_notebook_was_written_is_not_taken_for_sent(tmp_path: Path) -> None:
    (function,) = re.findall(r"^prepare_work\(\) \{\n.*?^\}\n", job_script("jupyterlab.sh").read_text(), re.M | re.S)
    code = f"{function}\nexport NBL_SESSION_DIR=$1 want_notebook=x.ipynb want_to=notebook; prepare_work 2>&1"
    assert library(code, str(tmp_path)) == ""
    (tmp_path / "work" / "results.jsonl").write_text("measured\n")  # and is put back into the queue in its first cell
    assert library(code, str(tmp_path)).endswith("what an earlier run has left is in work/earlier-1\n")
    assert (tmp_path / "work" / "earlier-1" / "results.jsonl").read_text() == "measured\n"
    assert not (tmp_path / "work" / "results.jsonl").exists()


def test_what_an_earlier_run_of_a_script_has_printed_goes_aside(tmp_path: Path) -> None:
    (function,) = re.findall(r"^prepare_work\(\) \{\n.*?^\}\n", job_script("jupyterlab.sh").read_text(), re.M | re.S)
    code = f"{function}\nexport NBL_SESSION_DIR=$1 want_notebook=x.ipynb want_to=script; prepare_work 2>&1"
    library(code, str(tmp_path))
    (tmp_path / "work" / "x.out").write_text("epoch 0\n")
    library(code, str(tmp_path))
    assert not (tmp_path / "work" / "x.out").exists(), "who follows the next run would see it again"
    assert (tmp_path / "work" / "earlier-1" / "x.out").read_text() == "epoch 0\n"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own kernels, outside of a virtual environment."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    monkeypatch.setenv("PATH", f"{VENV_BIN}:{os.environ['PATH']}")
    return tmp_path / "jupyter" / "kernels"


def test_a_run_that_cannot_tell_that_it_has_begun_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "progress.json" / "in the way").mkdir(parents=True)
    cause = f"session-unusable {tmp_path}/progress.json cannot be written: Is a directory."
    assert run_here(tmp_path, notebook("open('ran', 'w')")) == (1, cause)
    assert not (tmp_path / "work" / "ran").exists()


def test_a_kernel_that_is_killed(run: Callable[..., Job]) -> None:
    """As by the system when there is no memory left; the process beside it is another cell's."""
    job = run("# Grow", "import os, time\nprint('before')\ntime.sleep(1)\nos.kill(os.getpid(), 9)", "print(1)")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("kernel-died", 1)
    message = "The kernel was killed in cell 1 of 2 (Grow), perhaps because it ran out of memory: ask for more."
    assert report["message"] == message
    cell = code_cells(result(job))[0]
    assert text_of(cell) == f"before\n\n[notebook-launcher: {message}]\n"
    assert progress(job)["failed"] == 1
    assert job.processes() == []


def test_a_kernel_that_crashes_is_quoted_in_the_log(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel keeps what its process had as standard error; what a crash writes there tells the cause."""
    words = "terminate called after throwing an instance of 'std::bad_alloc'"
    cell = f"import os, sys\nos.write(sys.stderr._original_stdstream_copy, b{words!r})\nos.abort()"
    cause = "kernel-died The kernel crashed in cell 1 of 1 (signal SIGABRT)."
    assert run_here(tmp_path, notebook(cell)) == (1, cause)
    log = capsys.readouterr().err
    assert f"the kernel said: {words}" in log
    behind = exit_causes.cause_in_log(log.splitlines())
    assert behind is not None and behind[0].kind is OutOfMemory, "which the launcher reads there"


def test_a_notebook_whose_runner_is_killed(run: Callable[..., Job]) -> None:
    job = run("import time\ntime.sleep(300)", alone=True)
    job.start()
    wait_until(lambda: progress_if_there(job).get("cell") == 1, 120)
    job.process_with("execute.py").kill()
    report = job.exit()
    assert (report["cause"], report["exit_code"]) == ("kernel-died", 137)
    assert report["message"].startswith("The notebook on ") and "JupyterLab" not in report["message"]
    wait_until(lambda: job.processes() == [])


def test_what_is_no_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, cause = run_here(tmp_path, "<html>")
    assert code == 1 and cause.startswith("notebook-failed The notebook cannot be read: ")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (("A = 0", "A = 1", "", "assert A"), "finished The notebook finished: 2 cells in "),
        (("A = 0", "A = 0", "# Train", "assert A"), "notebook-failed Cell 2 of 2 (Train) failed: AssertionError"),
        (("A = 0", "A = B", "1"), "notebook-failed The cell that sets the parameters failed: NameError"),
    ],
)
def test_the_cell_that_sets_the_parameters_is_not_counted(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cells: tuple[str, ...], sentence: str
) -> None:
    content = notebook(*cells)
    code_cells(content)[1].metadata["tags"] = ["injected-parameters"]
    _, cause = run_here(tmp_path, content)
    assert cause.startswith(sentence)
    assert read_json(tmp_path / "progress.json")["cells"] == len(list(filter(None, cells))) - 1 - ("# Train" in cells)
    assert ("the cell that sets the parameters, 0 s" in capsys.readouterr().err) == ("B" not in cells[1])


def test_the_duration_in_the_message_is_the_one_in_progress_json(kernels: Path, tmp_path: Path) -> None:
    """Not the longer time until the kernel has ended; the launcher shows the one, the log the other."""
    slow_end = "import atexit, time\natexit.register(time.sleep, 3)"
    code, cause = run_here(tmp_path, notebook(slow_end))
    progress = read_json(tmp_path / "progress.json")
    started, updated = (datetime.fromisoformat(progress[key]) for key in ("started", "updated"))
    seconds = int((updated - started).total_seconds())
    assert (code, cause) == (0, f"finished The notebook finished: 1 cell in 0:{seconds:02}.")


def test_a_result_that_cannot_be_written(kernels: Path, tmp_path: Path) -> None:
    cell = "import os\nos.rename(os.getcwd(), '../elsewhere')\nopen('../work', 'w').close()"
    code, cause = run_here(tmp_path, notebook(cell))
    assert code == 1 and cause.startswith("session-unusable ")
    assert "could not be written: Not a directory" in cause


def test_an_environment_that_cannot_run_notebooks(run: Callable[..., Job], tmp_path: Path) -> None:
    job = run("1")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text(f"PATH='{venv}/bin':/usr/bin:/bin\n")
    for name in ("python", "python3"):
        job.tool(name, "#!/bin/sh\nexit 1\n")
        (venv / "bin" / name).symlink_to(job.bin / name)
    job.ask("program=notebook", f"venv={venv}")
    report = job.run()
    assert report["cause"] == "jupyter-missing"
    expected = "There is no Python that can run notebooks (with nbformat nbclient) in"
    hint = "install it there with: pip install nbformat nbclient ipykernel."
    assert report["message"] == f"{expected} the virtual environment {venv}; {hint}"
    assert not (job.dir / "progress.json").exists()


def test_a_kernel_for_another_language(kernels: Path, tmp_path: Path) -> None:
    content = notebook("x <- 1", kernel="ir", language="R")
    cause = "There is no kernel to run the notebook: the kernel ir is not installed, in the plain environment."
    assert run_here(tmp_path, content, NBL_NOTEBOOK_PLACE="the plain environment") == (1, f"jupyter-missing {cause}")


def add_kernel(kernels: Path, name: str, program: str, *words: str) -> None:
    (kernels / name).mkdir(parents=True, exist_ok=True)
    spec = {"argv": [program, *words, "-f", "{connection_file}"], "display_name": name, "language": "python"}
    (kernels / name / "kernel.json").write_text(json.dumps(spec))


def test_a_kernel_whose_program_is_gone(kernels: Path, tmp_path: Path) -> None:
    """A user's own, in a home that the container sees, of an environment that it does not."""
    add_kernel(kernels, "python3", "/gone/bin/python", "-m", "ipykernel_launcher")
    code, cause = run_here(tmp_path, notebook("1"))
    assert code == 1 and cause.startswith("jupyter-missing ")
    assert "the kernel python3 starts /gone/bin/python, which is not there" in cause


@pytest.mark.parametrize(("deaths", "cause"), [(2, "finished"), (3, "kernel-died")])
def test_a_kernel_that_does_not_start_is_tried_again(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], deaths: int, cause: str
) -> None:
    shy = tmp_path / "shy"
    count = f'echo x >>"$0.tries"; [ "$(wc -l <"$0.tries")" -gt {deaths} ] || {{ echo too late >&2; exit 1; }}'
    shy.write_text(f'#!/bin/sh\n{count}\nexec {VENV_BIN}/python -m ipykernel_launcher "$@"\n')
    shy.chmod(0o755)
    add_kernel(kernels, "shy", str(shy))
    assert run_here(tmp_path, notebook("print('here')", kernel="shy"))[1].partition(" ")[0] == cause
    log = capsys.readouterr().err
    assert log.count("Trying once more") == 2
    assert log.count("too late") == deaths


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("#!/opt/conda/bin/python3\n", "/opt/conda/bin/python3"),
        ("#! /opt/conda/bin/python3 -E\nimport sys\n", "/opt/conda/bin/python3"),
        ("#!/bin/sh\n'''exec' \"/a path/bin/python\" \"$0\" \"$@\"\n' '''\n", "/a path/bin/python"),
        ("#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n' '''\n", "/long/bin/python"),
        ("#!/usr/bin/env python3\nx\n", ""),
        ('#!/bin/sh\nexec /opt/jupyter "$@"\n', ""),
        ("", ""),
        ("\0\1\2", ""),
    ],
)
def test_whose_python_jupyterlab_has(text: str, python: str, tmp_path: Path) -> None:
    script = job_script("enter.sh").read_text()
    (function,) = re.findall(r"^python_of\(\) \{\n.*?^\}\n", script, re.M | re.S)
    (tmp_path / "jupyter-lab").write_text(text)
    assert library(f'{function}\npython_of "$1"', str(tmp_path / "jupyter-lab")).strip() == python
