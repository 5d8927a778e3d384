"""A notebook run from top to bottom as a job, with a real kernel."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.jobscripts.execute_run import (
    NAME,
    STEM,
    code_cells,
    execute_outputs,
    new_run,
    notebook,
    progress,
    result,
    text_of,
)
from tests.unit.jobscripts.job import Job, permissions, read_json

pytestmark = pytest.mark.real_time


CELLS = (
    "# Where am I?",
    "import os, sys, ipykernel\nprint(os.getcwd())\n"
    "print({k: os.environ[k] for k in os.environ if k.startswith('NBL_')})\n"
    "print(ipykernel.get_connection_info())",
    "# Data\n\n```\n# no heading\n```",
    "import beside\nbeside.ANSWER",
    "",
    "for i in range(200):\n    print(f'\\r{i} %', end='', flush=True)\nprint()\nprint('late')",
    "## Too much\n\nand *more* of it",
    "line = 'x' * 999\nfor i in range(4_000):\n    print(i, line)",
    "1 / 0",
    "from IPython.display import display, clear_output\nfor i in range(1010):\n    display(i)\nraise KeyError('late')",
    "for i in range(3):\n    clear_output(wait=True)\n    display(f'picture {i}')\nos.write(2, b'to the log?')\ninput",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A notebook that finished, of a kernel that is not installed here, with a module beside it."""
    content = notebook(*CELLS, kernel="course 2019")
    for cell in code_cells(content)[5:7]:
        cell.metadata["tags"] = ["raises-exception"]
    code_cells(content)[3].metadata["jupyter"] = {"source_hidden": True}
    code_cells(content)[4].metadata["jupyter"] = {"source_hidden": False}
    job = new_run(tmp_path_factory.mktemp("whole"), content, "html=yes")
    (job.dir / "work").mkdir(mode=0o700)
    (job.dir / "work" / "beside.py").write_text("ANSWER = 42\n")
    job.env["SLURM_JOB_ID"] = "7"
    job.start(umask=0o027)
    yield job
    job.end()


def test_a_notebook_is_run_from_top_to_bottom(whole: Job) -> None:
    report = whole.exit()
    assert (report["cause"], report["exit_code"]) == ("finished", 0)
    assert re.fullmatch(r"The notebook finished: 7 cells in 0:\d\d\.", report["message"])
    cells = code_cells(result(whole))
    assert [cell.execution_count for cell in cells] == [1, 2, None, 3, 4, 5, 6, 7], "there is nothing in one of them"
    assert text_of(cells[1]) == "42", "a module beside it can be imported"
    assert whole.processes() == []
    assert not (whole.root / "work" / "ran").exists() and not (whole.dir / "work" / "ran").exists()


def test_where_a_notebook_runs(whole: Job) -> None:
    whole.exit()
    folder, environ, connection = text_of(code_cells(result(whole))[0]).split("\n", 2)
    assert folder == str(whole.dir / "work")
    assert f"'NBL_RESULTS': '{whole.dir / 'work'}/results.jsonl'" in environ
    assert f"'NBL_USAGE_CSV': '{whole.dir}/usage.csv'" in environ
    ours = ("NBL_NOTEBOOK", "NBL_CAUSE_FILE", "NBL_KERNEL_FOLDER")
    assert not any(name in environ for name in ours), "what is ours alone"
    sockets = (whole.dir / "runtime" / "kernels").read_text().strip()
    assert '"ipc"' in connection and sockets in connection, "no port by which others could read what it prints"
    assert not Path(sockets).exists(), "the job takes the folder away"
    assert "the kernel course 2019 is not installed; going on with python3" in whole.log.read_text()


def test_what_is_printed_again_and_again_stands_once(whole: Job) -> None:
    whole.exit()
    assert text_of(code_cells(result(whole))[3]) == "199 %\nlate\n"


def test_a_cell_that_prints_too_much_keeps_its_beginning_and_its_end(whole: Job) -> None:
    whole.exit()
    text = text_of(code_cells(result(whole))[4])
    assert 2 * 2**20 < len(text) < 2.3 * 2**20
    assert text.startswith("0 xxx") and "\n3999 xxx" in text[-1100:]
    assert re.search(r"\n\[notebook-launcher: [12]\.\d MiB of what this cell has printed are left out\]\n", text)


def test_a_cell_may_fail_where_its_tag_says_so(whole: Job) -> None:
    whole.exit()
    cells = code_cells(result(whole))
    assert cells[5].outputs[-1].ename == "ZeroDivisionError"
    assert [output.output_type for output in cells[6].outputs].count("display_data") == execute_outputs.OUTPUTS_KEPT
    assert "11 further outputs" not in text_of(cells[6]) and "10 further outputs" in text_of(cells[6])
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
    made = {NAME, f"{STEM}.html", "beside.py"}
    assert {path.name for path in (whole.dir / "work").iterdir()} - {"__pycache__"} == made
    assert not (whole.dir / "__pycache__").exists(), "nothing that would keep the record from being removed"


def test_what_is_printed_is_there_to_be_followed(whole: Job) -> None:
    whole.exit()
    printed = whole.dir / "runtime" / "printed"
    assert permissions(printed) == 0o600
    lines = printed.read_text().splitlines()
    assert lines[0] == str(whole.dir / "work")
    begin = lines.index("199 %")
    assert lines[begin + 1 : begin + 3] == ["late", "0 " + "x" * 999] and len(lines) > 4_000


def test_beside_it_lies_an_html_copy(whole: Job) -> None:
    assert whole.exit()["cause"] == "finished"
    page = whole.dir / "work" / f"{STEM}.html"
    assert permissions(page) == 0o640
    text = page.read_text()
    assert "<html" in text and "Where am I?" in text and "KeyError" in text


def test_in_the_html_copy_collapsed_cells_are_collapsed(whole: Job) -> None:
    """Their code, not what they print; nothing is lost."""
    assert whole.exit()["cause"] == "finished"
    text = (whole.dir / "work" / f"{STEM}.html").read_text()
    (collapsed,) = re.findall(r"<details.*?</details>", text, re.DOTALL)
    summary, code = collapsed.split("</summary>")
    assert "<code>for i in range(200):</code> … (4 lines)" in summary
    assert html.unescape(re.sub("<[^>]+>", "", code)).strip() == code_cells(result(whole))[3].source
    assert "199 %" in text.replace(collapsed, "")


def test_a_notebook_has_no_server(whole: Job) -> None:
    whole.exit()
    assert not (whole.dir / "endpoint.json").exists()
    assert read_json(whole.dir / "started.json")["node"] == os.uname().nodename
    assert not list((whole.dir / "runtime").glob("jpserver-*"))
