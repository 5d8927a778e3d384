"""The notebooks that come along as batch jobs: each executed whole by ``run``, in its container, and looked at.

In small, see notebooks_small.py: what they measure here is true, and of no use.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter

from notebook_launcher.notebooks import bundled
from notebook_launcher.samples import COLUMNS
from tests.browsing import chromium
from tests.cluster import PracticeCluster
from tests.cluster.shipped import provide_image
from tests.conftest import assert_nothing_left
from tests.notebooks_small import NEEDS, SMALL

PROFILE = """\
host = "login"
scheduler = "slurm"
environment = "torch"

[environments.torch]
container = "{torch}"

[environments.tf-mkl]
container = "{tensorflow}"
venv = "/opt/envs/tf-mkl"

[environments.tf-pip]
container = "{tensorflow}"
venv = "/opt/envs/tf-pip"
"""
AT_ONCE = 3  # each loads a library for many seconds; the machine has few cores
RUN_AT_MOST = 600.0  # seconds, in the queue behind the others and with the tests that run beside

DRAWS = re.compile(r"\.plot\(|plt\.(subplots|figure)\(")
TOO_WIDE = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 200))"
RECORDS = re.compile(r"\.record\(")


@dataclass(frozen=True)
class Run:
    """A notebook in an environment. ``given``: which results of the runs before it are sent along."""

    notebook: str
    environment: str
    to: str = "notebook"
    given: str = ""

    @property
    def id(self) -> str:
        return f"{self.notebook} in {self.environment}{' as a script' if self.to == 'script' else ''}"


def runs() -> list[Run]:
    """Return each notebook once, those that need TensorFlow without oneDNN, and one more each way."""
    every = [
        Run(name, "tf-pip" if NEEDS.get(name) == ("tensorflow",) else "torch", given=GIVEN.get(name, ""))
        for name in sorted(bundled())
    ]
    return [*every, Run("game-of-life", "tf-mkl"), Run("core-scaling", "torch", to="script")]


# What reads others' results gets those of the runs before it.
GIVEN = {"compare": "results.jsonl", "gpu-usage": "usage.csv"}
RUNS = runs()
OTHERS = [run for run in RUNS if not run.given]


@dataclass(frozen=True)
class Done:
    """A run that is over: what was said, its exit code, and the folder on the laptop with what it made."""

    said: str
    exit_code: int
    folder: Path

    def cells(self, name: str) -> list[nbformat.NotebookNode]:
        """Return the code cells of the notebook that was brought back."""
        notebook = nbformat.read(self.folder / f"{name}.ipynb", as_version=4)
        return [cell for cell in notebook.cells if cell.cell_type == "code"]


class Runs:
    """All that were asked for, several at once; who asks for one waits for it."""

    def __init__(self, cluster: PracticeCluster, wanted: Sequence[Run]) -> None:
        self._cluster = cluster
        self._home = cluster.directory / "laptop-home" / "alice"
        self._pool = ThreadPoolExecutor(AT_ONCE)
        before = [run for run in OTHERS if run in wanted or any(one.given for one in wanted)]
        self._done: dict[Run, Future[Done]] = {run: self._pool.submit(self._run, run) for run in before}
        for run in wanted:  # behind those that they wait for, so that these have begun
            if run.given:
                self._done[run] = self._pool.submit(self._run_behind, run)

    def result(self, run: Run) -> Done:
        return self._done[run].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _run_behind(self, run: Run) -> Done:
        """Give it what the others have made, all in one file; a heading is wanted once."""
        found = [self.result(one).folder / run.given for one in OTHERS]
        texts = [path.read_text() for path in found if path.exists()]
        text = texts[0] if run.given.endswith(".csv") else "".join(texts)
        given = self._home / "given" / run.notebook / run.given
        write = 'mkdir -p "$(dirname "$1")"; cat >"$1"'
        path = str(given.relative_to(self._home))
        self._cluster.run("laptop", "alice", ["sh", "-c", write, "write", path], input=text, check=True)
        return self._run(run, "--with", path)

    def _run(self, run: Run, *words: str) -> Done:
        parameters = [word for name, value in SMALL[run.notebook].items() for word in ("-p", name, str(value))]
        argv = ["launch-notebook", "run", run.notebook, *parameters, *words, "--to", run.to, "--output", "made"]
        argv += ["--cluster", "notebooks", "-n", "2", "--", run.environment]
        done = self._cluster.run("laptop", "alice", argv, timeout=RUN_AT_MOST)
        said = done.stdout + done.stderr
        session = re.search(r"\(session\s(\d{8}-\d{6}-[a-z2-7]{4})\)", said)
        assert session, said
        return Done(said, done.returncode, self._home / "made" / f"{run.notebook}-{session[1]}")


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, cluster: PracticeCluster) -> Iterator[Runs]:
    """What they make, once for all tests here."""
    profile = PROFILE.format(
        torch=provide_image(cluster, "torch-cpu"), tensorflow=provide_image(cluster, "tensorflow-cpu")
    )
    write = "cat >~/.config/notebook-launcher/clusters/notebooks.toml"
    cluster.run("laptop", "alice", ["sh", "-c", write], input=profile, check=True)
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    named = [item.callspec.params.get("run") for item in here if hasattr(item, "callspec")]
    runs = Runs(cluster, [run for run in RUNS if run in named] if len(named) == len(here) else RUNS)
    yield runs
    runs.close()
    cluster.run(
        "laptop", "alice", ["sh", "-c", "rm -rf made given; rm ~/.config/notebook-launcher/clusters/notebooks.toml"]
    )


each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)


@each_run
def test_a_notebook_runs_to_its_end_and_is_brought_back(made: Runs, run: Run) -> None:
    done = made.result(run)
    assert done.exit_code == 0, done.said
    assert "came to its end" in done.said
    about = json.loads((done.folder / "run.json").read_text())
    assert (about["cause"], about["exit_code"], about["done"]) == ("finished", 0, about["cells"])
    assert about["image"]["digest"].startswith("sha256:")
    (header, *samples) = csv.reader((done.folder / "usage.csv").read_text().splitlines())
    assert tuple(header) == COLUMNS
    assert samples, "its use was sampled"
    if run.to == "script":
        check_script(run, done)
    else:
        check_cells(done.cells(run.notebook))
    source = "\n".join(cell.source for cell in nbformat.read(bundled()[run.notebook], as_version=4).cells)
    if RECORDS.search(source):
        check_records(done.folder / "results.jsonl", about["job"], about["image"]["digest"])


def check_cells(cells: Sequence[nbformat.NotebookNode]) -> None:
    """Each was executed, none complains, and every one that draws has drawn."""
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        kinds = {output.get("name", output.output_type) for output in cell.outputs}
        text = "".join(output.get("text", "") for output in cell.outputs)
        assert kinds <= {"stdout", "display_data"}, f"{cell.id}: {text}"
        assert not re.search("warning|deprecat|traceback", text, re.IGNORECASE), f"{cell.id}: {text}"
        figures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert bool(figures) == bool(DRAWS.search(cell.source)), f"{cell.id} has {len(figures)} figures"


def check_script(run: Run, done: Done) -> None:
    """There is the script, and what it said: its last cell ends with what came out."""
    assert (done.folder / f"{run.notebook}.py").read_text().strip()
    said = (done.folder / f"{run.notebook}.out").read_text()
    assert not re.search("warning|deprecat|traceback", said, re.IGNORECASE), said
    assert len(said.split()) > 30
    assert not (done.folder / f"{run.notebook}.ipynb").exists()


def check_records(path: Path, job: str, digest: str) -> None:
    """What was measured is there, with the job and the image in which it was."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records
    for record in records:
        assert record["median"] > 0
        assert str(record["fingerprint"]["job"]) == job
        assert record["fingerprint"]["container"] in (None, digest)


def test_they_look_well(cluster: PracticeCluster, made: Runs, tmp_path: Path) -> None:
    """As a student reads them: every figure is shown, and nothing runs out of the page. Pictures stay for a look."""
    # no network: nothing is fetched for formulae and widgets, of which they have none
    exporter: Any = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", widget_renderer_url="")  # type: ignore[no-untyped-call]
    shown = [(run, made.result(run)) for run in RUNS if run.to == "notebook"]
    wide = {}
    with chromium(cluster, tmp_path) as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        for run, done in shown:
            html = tmp_path / f"{run.id}.html"
            html.write_text(exporter.from_filename(str(done.folder / f"{run.notebook}.ipynb"))[0])
            page.goto(html.as_uri())
            page.screenshot(path=tmp_path / f"{run.id}.png", full_page=True)
            sizes = page.eval_on_selector_all("main img, body img", "all => all.map(one => one.naturalWidth)")
            figures = sum(
                "image/png" in output.get("data", {}) for cell in done.cells(run.notebook) for output in cell.outputs
            )
            assert len(sizes) == figures
            assert all(size > 200 for size in sizes)
            if found := page.eval_on_selector_all(".jp-OutputArea-output, .jp-InputArea-editor", TOO_WIDE):
                wide[run.id] = found
    assert wide == {}


def test_each_notebook_that_comes_along_is_among_them_and_nothing_is_left(cluster: PracticeCluster, made: Runs) -> None:
    assert {run.notebook for run in RUNS} == set(bundled())
    for run in RUNS:
        made.result(run)
    assert_nothing_left(cluster)
