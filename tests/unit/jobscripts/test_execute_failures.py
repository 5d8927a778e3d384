"""A notebook as a job: the real job script, the real execute.py, Jupyter's own executor and real kernels.

A kernel takes two seconds to start, so the tests that only look share the runs; each run is a story of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from notebook_launcher.core.errors import OutOfMemory
from notebook_launcher.diagnosis import exit_causes as causes
from tests.unit.jobscripts.test_sshd import JOBSCRIPTS, VENV_BIN, Job, library, permissions, read_json, wait_until

# Quotes, what a shell would run, a space, and a dash at the beginning: all that may be in the name of a file.
NAME = """-x "it's" $(touch ran) `touch ran`; & ünï.ipynb"""
STEM = NAME.removesuffix(".ipynb")


def load_execute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", JOBSCRIPTS / "execute.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes look themselves up there
    spec.loader.exec_module(module)
    return module


execute = load_execute()


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


# ------------------------------------------------------------------------------------------------ a whole notebook

CELLS = (
    "# Where am I?",
    "import os, sys\nprint(os.getcwd())\nprint({k: os.environ[k] for k in os.environ if k.startswith('NBL_')})",
    "# Data\n\n```\n# no heading\n```",
    "import beside\nbeside.ANSWER",
    "",
    "for i in range(200):\n    print(f'\\r{i} %', end='', flush=True)\nprint()\nprint('late')",
    "## Too much\n\nand *more* of it",
    "line = 'x' * 99\nfor i in range(60_000):\n    print(i, line)",
    "1 / 0",
    "from IPython.display import display, clear_output\nfor i in range(1500):\n    display(i)\nraise KeyError('late')",
    "for i in range(3):\n    clear_output(wait=True)\n    display(f'picture {i}')\nos.write(2, b'to the log?')\ninput",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A notebook that came to its end, of a kernel that is not installed here, with a module beside it."""
    content = notebook(*CELLS, kernel="course 2019")
    for cell in code_cells(content)[5:7]:
        cell.metadata["tags"] = ["raises-exception"]
    job = new_run(tmp_path_factory.mktemp("whole"), content)
    (job.dir / "work").mkdir(mode=0o700)
    (job.dir / "work" / "beside.py").write_text("ANSWER = 42\n")
    job.env["SLURM_JOB_ID"] = "7"
    job.start(umask=0o027)
    yield job
    job.end()


def test_a_notebook_is_run_from_top_to_bottom(whole: Job) -> None:
    report = whole.exit()
    assert (report["cause"], report["exit_code"]) == ("finished", 0)
    assert re.fullmatch(r"The notebook came to its end: 7 cells in 0:\d\d\.", report["message"])
    cells = code_cells(result(whole))
    assert [cell.execution_count for cell in cells] == [1, 2, None, 3, 4, 5, 6, 7], "there is nothing in one of them"
    assert text_of(cells[1]) == "42", "a module beside it can be imported"
    assert whole.processes() == []
    assert not (whole.root / "work" / "ran").exists() and not (whole.dir / "work" / "ran").exists()


def test_where_a_notebook_runs(whole: Job) -> None:
    whole.exit()
    folder, environ = text_of(code_cells(result(whole))[0]).splitlines()
    assert folder == str(whole.dir / "work")
    assert f"'NBL_RESULTS': '{whole.dir / 'work'}/results.jsonl'" in environ
    assert f"'NBL_USAGE_CSV': '{whole.dir}/usage.csv'" in environ
    assert "NBL_NOTEBOOK" not in environ and "NBL_CAUSE_FILE" not in environ, "what is ours alone"
    assert "the kernel course 2019 is not installed; going on with python3" in whole.log.read_text()


def test_what_is_printed_again_and_again_stands_once(whole: Job) -> None:
    whole.exit()
    assert text_of(code_cells(result(whole))[3]) == "199 %\nlate\n"


def test_a_cell_that_prints_too_much_keeps_its_beginning_and_its_end(whole: Job) -> None:
    whole.exit()
    text = text_of(code_cells(result(whole))[4])
    assert 2 * 2**20 < len(text) < 2.3 * 2**20
    assert text.startswith("0 xxx") and "59999 xxx" in text[-200:]
    assert re.search(r"\n\[notebook-launcher: [34]\.\d MiB of what this cell has printed are left out\]\n", text)


def test_a_cell_may_fail_where_its_tag_says_so(whole: Job) -> None:
    whole.exit()
    cells = code_cells(result(whole))
    assert cells[5].outputs[-1].ename == "ZeroDivisionError"
    assert [output.output_type for output in cells[6].outputs].count("display_data") == execute.OUTPUTS_KEPT
    assert "501 further outputs" not in text_of(cells[6]) and "500 further outputs" in text_of(cells[6])
    assert cells[6].outputs[-1].ename == "KeyError", "an error is never left out"


def test_only_the_last_of_the_pictures_that_replace_each_other_stays(whole: Job) -> None:
    whole.exit()
    outputs = code_cells(result(whole))[7].outputs
    assert [output.data["text/plain"] for output in outputs if output.output_type == "display_data"] == ["'picture 2'"]


def test_progress_tells_how_far_it_came(whole: Job) -> None:
    whole.exit()
    told = progress(whole)
    assert told["job"] == "7"
    assert (told["cells"], told["done"], told["cell"], told["failed"], told["error"]) == (7, 7, None, None, "")
    assert told["started"] <= told["updated"]


def test_the_log_has_a_short_line_for_each_cell_and_nothing_of_the_kernels(whole: Job) -> None:
    whole.exit()
    log = whole.log.read_text()
    assert re.search(r"^\S+ notebook-launcher: cell 2 of 7, Data, 0 s$", log, re.M), "of the last heading, no code"
    assert re.search(r"^\S+ notebook-launcher: cell 4 of 7, Too much, \d+ s$", log, re.M)
    assert "xxx" not in log and "to the log?" not in log and "%" not in log.replace("% of one core", "")
    assert max(map(len, log.splitlines())) < 300


def test_whose_files_they_are(whole: Job) -> None:
    whole.exit()
    assert permissions(whole.dir / "work" / NAME) == 0o640, "the user's own umask"
    for name in ("progress.json", "execute.py", "exit.json"):
        assert permissions(whole.dir / name) == 0o600
    left = [path.name for path in (whole.dir / "runtime").iterdir()]
    assert not [name for name in left if name.startswith(("new-", "kernel-"))], (
        "nothing half-written, no keys of kernels"
    )
    assert {path.name for path in (whole.dir / "work").iterdir()} - {"__pycache__"} == {NAME, "beside.py"}


def test_a_notebook_has_no_server(whole: Job) -> None:
    whole.exit()
    assert not (whole.dir / "endpoint.json").exists()
    assert read_json(whole.dir / "started.json")["node"] == os.uname().nodename
    assert not list((whole.dir / "runtime").glob("jpserver-*"))


# --------------------------------------------------------------------------------------------------- ways to an end


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Make a job that will run a notebook of these cells."""
    jobs: list[Job] = []

    def make(*cells: str, settings: tuple[str, ...] = (), **kinds: str) -> Job:
        jobs.append(new_run(tmp_path, notebook(*cells, **kinds), *settings))
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


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
    )
    work = job.dir / "work"
    work.mkdir()
    (work / "results.jsonl").write_text("sent along\n")
    (work / f"{STEM}.out").write_text("sent along, too\n")
    job.start()
    wait_until(lambda: progress_if_there(job).get("cell") == 2, 120)
    wait_until(lambda: "so far" in text_of(code_cells(result(job))[1]), 10)  # written while the cell runs
    with (work / "results.jsonl").open("a") as file:
        file.write("measured\n")
    job.send(signal.SIGTERM)
    wait_until(lambda: (job.dir / "exit.json").exists(), 5)
    cells = code_cells(result(job))
    assert "the job was ended while this cell ran" in text_of(cells[1]), "written before exit.json is"
    report = job.exit()
    assert (report["cause"], report["exit_code"]) == ("stopped", 143)
    assert text_of(cells[0]) == "first\n" and text_of(cells[1]).startswith("so far\n") and not cells[2].outputs
    assert (progress(job)["done"], progress(job)["cell"], progress(job)["failed"]) == (1, 2, None)
    assert job.processes() == [], "nor what the kernel had started"
    # the scheduler puts it back into the queue
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


def test_what_a_run_has_measured_before_its_notebook_was_written_is_not_taken_for_sent(run: Callable[..., Job]) -> None:
    job = run("print('here')")
    assert job.run()["cause"] == "finished"
    (job.dir / "work" / NAME).unlink()  # as when the job is put back into the queue while its first cell runs
    (job.dir / "work" / "results.jsonl").write_text("measured\n")
    job.start()
    wait_until(lambda: not (job.dir / "exit.json").exists())
    assert job.exit()["cause"] == "finished"
    assert (job.dir / "work" / "earlier-1" / "results.jsonl").read_text() == "measured\n"
    assert not (job.dir / "work" / "results.jsonl").exists()


def test_a_run_that_cannot_tell_that_it_has_begun_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "progress.json" / "in the way").mkdir(parents=True)
    for folder in ("runtime", "work"):
        (tmp_path / folder).mkdir()
    nbformat.write(notebook("open('ran', 'w')"), tmp_path / "input.ipynb")
    environment = {"NBL_SESSION_DIR": str(tmp_path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, JOBSCRIPTS / "execute.py"], env=environment, timeout=60, check=False)
    assert ended.returncode == 1 and not (tmp_path / "work" / "ran").exists()
    cause = (tmp_path / "runtime" / "cause").read_text()
    assert cause == f"session-unusable {tmp_path}/progress.json cannot be written: Is a directory.\n"


def test_a_kernel_that_is_killed(run: Callable[..., Job]) -> None:
    """As by the system when there is no memory left; the process beside it is another cell's."""
    job = run("# Grow", "import os, time\nprint('before')\ntime.sleep(1)\nos.kill(os.getpid(), 9)", "print(1)")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("kernel-died", 1)
    message = "The kernel was killed in cell 1 of 2 (Grow), perhaps for want of memory: ask for more."
    assert report["message"] == message
    cell = code_cells(result(job))[0]
    assert text_of(cell) == f"before\n\n[notebook-launcher: {message}]\n"
    assert progress(job)["failed"] == 1
    assert job.processes() == []


def test_a_kernel_that_crashes_is_quoted_in_the_log(run: Callable[..., Job]) -> None:
    """The kernel keeps what its process had as standard error; what a crash writes there tells the cause."""
    words = "terminate called after throwing an instance of 'std::bad_alloc'"
    job = run(f"import os, sys\nos.write(sys.stderr._original_stdstream_copy, b{words!r})\nos.abort()")
    report = job.run()
    assert report["cause"] == "kernel-died"
    assert report["message"] == "The kernel crashed in cell 1 of 1 (signal SIGABRT)."
    log = job.log.read_text().splitlines()
    assert f"the kernel said: {words}" in "\n".join(log)
    behind = causes.behind(log)
    assert behind is not None and behind[0].kind is OutOfMemory, "which the launcher reads there"


def test_a_notebook_whose_runner_is_killed(run: Callable[..., Job]) -> None:
    job = run("import time\ntime.sleep(300)")
    job.start()
    wait_until(lambda: progress_if_there(job).get("cell") == 1, 120)
    (runner,) = [one for one in job.processes() if one.cmdline()[-1].endswith("execute.py")]
    runner.kill()
    report = job.exit()
    assert (report["cause"], report["exit_code"]) == ("kernel-died", 137)
    assert report["message"].startswith("The notebook on ") and "JupyterLab" not in report["message"]
    wait_until(lambda: job.processes() == [], 5)


def test_what_is_no_notebook(run: Callable[..., Job]) -> None:
    job = run("1")
    (job.dir / "input.ipynb").write_text("<html>")
    report = job.run()
    assert report["cause"] == "notebook-failed"
    assert report["message"].startswith("The notebook cannot be read: ")
    assert "Traceback" not in job.log.read_text()


def test_a_result_that_cannot_be_written(run: Callable[..., Job]) -> None:
    job = run("import os\nos.rename(os.getcwd(), '../elsewhere')\nopen('../work', 'w').close()")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("session-unusable", 1)
    assert "could not be written: Not a directory" in report["message"]


# --------------------------------------------------------------------------------------------- what it is run with


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
    mend = "install it there with: pip install nbformat nbclient ipykernel."
    assert report["message"] == f"{expected} the virtual environment {venv}; {mend}"
    assert not (job.dir / "progress.json").exists()


def test_a_kernel_for_another_language(run: Callable[..., Job]) -> None:
    job = run("x <- 1", kernel="ir", language="R")
    report = job.run()
    assert report["cause"] == "jupyter-missing"
    assert (
        "no kernel to run the notebook: the kernel ir is not installed, in the plain environment" in report["message"]
    )


def test_a_kernel_whose_program_is_gone(run: Callable[..., Job]) -> None:
    """A user's own, in a home that the container sees, of an environment that it does not."""
    job = run("1", kernel="python3")
    job.env["JUPYTER_PREFER_ENV_PATH"] = "0"  # as outside of a virtual environment
    spec = job.home / ".local" / "share" / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = ["/gone/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "mine", "language": "python"}))
    report = job.run()
    assert report["cause"] == "jupyter-missing"
    assert "the kernel python3 starts /gone/bin/python, which is not there" in report["message"]


@pytest.mark.parametrize(("deaths", "cause"), [(2, "finished"), (3, "kernel-died")])
def test_a_kernel_that_does_not_start_is_tried_again(run: Callable[..., Job], deaths: int, cause: str) -> None:
    job = run("print('here')", kernel="shy")
    spec = job.home / ".local" / "share" / "jupyter" / "kernels" / "shy"
    spec.mkdir(parents=True)
    shy = spec / "shy"
    count = f'echo x >>"$0.tries"; [ "$(wc -l <"$0.tries")" -gt {deaths} ] || {{ echo too late >&2; exit 1; }}'
    shy.write_text(f'#!/bin/sh\n{count}\nexec {VENV_BIN}/python -m ipykernel_launcher "$@"\n')
    shy.chmod(0o755)
    argv = [str(shy), "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "shy", "language": "python"}))
    assert job.run()["cause"] == cause
    log = job.log.read_text()
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
    script = (JOBSCRIPTS / "jupyterlab.sh").read_text()
    (function,) = re.findall(r"^python_of\(\) \{\n.*?^\}\n", script, re.M | re.S)
    (tmp_path / "jupyter-lab").write_text(text)
    assert library(f'{function}\npython_of "$1"', str(tmp_path / "jupyter-lab")).strip() == python


# ------------------------------------------------------------------------------------------------------- as a script


def test_a_notebook_as_a_script(run: Callable[..., Job]) -> None:
    job = run(
        "# Train",
        "import os, sys\nEPOCHS = int(os.environ.get('EPOCHS', 5))",
        "for epoch in range(EPOCHS):\n    print('epoch', epoch)\nprint('warned', file=sys.stderr)",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.savefig('plot.png')",
        "print(plt.get_backend().lower())",
        settings=("to=script", "setenv=EPOCHS=1"),
    )
    report = job.run()
    assert report["cause"] == "finished"
    assert re.fullmatch(r"The notebook came to its end, as a script, in 0:\d\d\.", report["message"])
    work = job.dir / "work"
    lines = (work / f"{STEM}.out").read_text().splitlines()
    assert [line for line in lines if "Matplotlib" not in line] == ["epoch 0", "warned", "agg"]
    assert (work / f"{STEM}.py").read_text().startswith(f"# Made by nbconvert from {NAME}\n")
    assert (work / "plot.png").stat().st_size > 1000, "there is no screen, and it draws all the same"
    assert (progress(job)["cells"], progress(job)["done"]) == (4, 4)
    assert not (work / NAME).exists() and job.processes() == []


def test_a_script_that_fails(run: Callable[..., Job]) -> None:
    """With %magics it is IPython that runs it; and a module of the same name, which the notebook imports, stays."""
    job = run(
        "%time x = 1", "import sys\nprint(sys.argv[0])", "raise ValueError('nothing\\nmore')", settings=("to=script",)
    )
    work = job.dir / "work"
    work.mkdir()
    (work / f"{STEM}.py").write_text("ANSWER = 42\n")
    report = job.run()
    assert (report["cause"], report["exit_code"]) == ("notebook-failed", 1)
    assert report["message"] == "The notebook failed as a script: ValueError: nothing."
    assert "Wall time" in (work / f"{STEM}.out").read_text()
    assert (work / f"{STEM}.py").read_text() == "ANSWER = 42\n"
    assert progress(job)["error"] == report["message"]


def test_a_script_that_is_stopped(run: Callable[..., Job]) -> None:
    job = run("import time\nprint('so far')\ntime.sleep(300)", settings=("to=script",))
    job.start()
    out = job.dir / "work" / f"{STEM}.out"
    wait_until(lambda: out.exists() and out.read_text() == "so far\n", 120)  # line by line
    job.send(signal.SIGTERM)
    assert job.exit()["cause"] == "stopped"
    assert job.processes() == []


# ------------------------------------------------------------------------------------------------------ its own parts


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (["a\n", "b"], "a\nb"),
        (["10 %", "\r20 %", "\r30 %\n", "done\n"], "30 %\ndone\n"),
        (["one\r\ntwo\r\n"], "one\r\ntwo\r\n"),
        (["bar 1\r", "bar 2\r", "\n"], "bar 2\r\n"),
        (["abc\b\b", "X"], "aX"),
        (["\b\b"], ""),
        (["1/5" + "\b" * 3 + "\r", "2/5\n"], "2/5\n"),
    ],
)
def test_what_is_seen_of_what_is_printed(printed: list[str], seen: str) -> None:
    text = execute.Printed()
    for part in printed:
        text.add(part)
    assert str(text) == seen


@pytest.mark.parametrize("part", ["x" * 1000, "x" * 50 + "\n", "x" * 50 + "\r", "y" * 10])
def test_whatever_is_printed_is_bounded(part: str) -> None:
    text = execute.Printed(room=2000)
    began = time.monotonic()
    for _ in range(5000):
        text.add(part)
    text.add("\nend")
    assert len(str(text)) < 3 * 2000 + 200
    assert str(text).endswith("end") and str(text)[:2000].strip("\n\r") == str(text)[:2000].strip("\n\r")
    assert time.monotonic() - began < 2


def test_the_gap_tells_how_much_is_missing() -> None:
    text = execute.Printed(room=2**20)
    for _ in range(64):
        text.add("0123456789abcde\n" * 2**12)
    kept = 64 * 2**16 - text.left_out
    assert 2 * 2**20 <= kept <= 2 * 2**20 + 2**16
    assert (
        f"\n[notebook-launcher: {text.left_out / 2**20:.1f} MiB of what this cell has printed are left out]\n"
        in str(text)
    )
    assert len(re.sub(r"\n\[.*\]\n", "", str(text))) == kept


def test_the_last_heading_above_a_cell() -> None:
    last = execute.last_heading
    assert last("text\n# One\n## Two ##\nmore") == "Two"
    assert last("```python\n# a comment\n```") == ""
    assert last("# See [the **docs**](https://example.org) and `x_y`") == "See the docs and x_y"
    assert last("#hashtag\n    # code") == ""
    assert len(last("# " + "long " * 99)) == 60
    assert last("# a\x1b[31mb\x07") == "ab"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ('Traceback (most recent call last):\n  File "x"\nValueError: no\n', "ValueError: no"),
        ("Traceback\ntorch.cuda.OutOfMemoryError: CUDA\nTried to allocate\n", "torch.cuda.OutOfMemoryError: CUDA"),
        ("\x1b[31mKeyError\x1b[39m: 'a'\n", "KeyError: 'a'"),
        ("bye\n", "bye"),
        ("", ""),
    ],
)
def test_the_line_that_names_the_error(output: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text(output)
    assert execute.last_error(tmp_path / "out") == line


def test_durations() -> None:
    assert [execute.duration(seconds) for seconds in (0.4, 42, 61, 3723)] == ["0:00", "0:42", "1:01", "1:02:03"]


def test_old_pythons_can_read_it() -> None:
    """Containers have what they have."""
    import ast

    ast.parse((JOBSCRIPTS / "execute.py").read_text(), feature_version=(3, 8))
