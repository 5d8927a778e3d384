"""Every bundled notebook as a batch job: ``run`` executes it in its container, and the outputs are checked.

They run with the small parameters of tests/notebook_parameters.py, so their measurements are correct but useless.
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

from notebook_launcher.core.usage_samples import COLUMNS
from notebook_launcher.notebook.prepare import bundled
from tests.cluster_tests import in_box
from tests.cluster_tests.jupyterlab_page import chromium
from tests.conftest import assert_nothing_left
from tests.notebook_parameters import NEEDS, SMALL
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image

PROFILE = """\
host = "login"
scheduler = "slurm"
environment = "torch"
usage_seconds = 1
# half a gigabyte is read at the lowest priority, beside all other tests
login_setup = ["export NBL_DIGEST_SECONDS=300"]

[environments.torch]
container = "{torch}"

[environments.tf-mkl]
container = "{tensorflow}"
venv = "/opt/envs/tf-mkl"

[environments.tf-pip]
container = "{tensorflow}"
venv = "/opt/envs/tf-pip"
"""
AT_ONCE = 3  # each needs a core for many seconds to load its library, and the machine has few cores
ENOUGH = 12  # samples of a run's use; the notebook gpu-usage needs ten
RUN_AT_MOST = 600.0  # seconds: a run waits in the queue behind others, and other tests run at the same time

# Threads that wait for each other take many times as long on cores that other processes use as well.
CORES = {"core-scaling": "2", "scaling": "2"}
LONGER: dict[str, dict[str, object]] = {"resnet-torch": {"IMAGES": 1200}}  # so that its phases are sampled
WIDEST = 150  # characters: on the page, little more than one line

DRAWS = re.compile(r"\.plot\(|plt\.(subplots|figure)\(")
TOO_WIDE = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 200))"
RECORDS = re.compile(r"\.record\(")


@dataclass(frozen=True)
class Run:
    """A notebook in an environment."""

    notebook: str
    environment: str

    @property
    def id(self) -> str:
        return f"{self.notebook} in {self.environment}"

    @property
    def reads(self) -> bool:
        """Whether the notebook reads the results of other runs."""
        return self.notebook in ("compare", "gpu-usage")


# Every notebook once, those that need TensorFlow in the environment without oneDNN; and one more run with oneDNN.
RUNS = [
    *(Run(name, "tf-pip" if NEEDS.get(name) == ("tensorflow",) else "torch") for name in sorted(bundled())),
    Run("game-of-life", "tf-mkl"),
]
OTHERS = [run for run in RUNS if not run.reads]
# An HTML copy takes two seconds of a core, so only this run makes one. The others get a file of that name from the
# user, which they do not replace.
WITH_HTML = Run("resnet-torch", "torch")


@dataclass(frozen=True)
class Done:
    """A run that has ended: its output, its exit code, and the folder on the laptop with its results."""

    said: str
    exit_code: int
    folder: Path

    def cells(self, name: str) -> list[nbformat.NotebookNode]:
        """Return the code cells of the executed notebook."""
        notebook = nbformat.read(self.folder / f"{name}.ipynb", as_version=4)
        return [cell for cell in notebook.cells if cell.cell_type == "code"]


class Runs:
    """Runs of notebooks, several at once; ``result`` waits for one of them."""

    def __init__(self, cluster: PracticeCluster, wanted: Sequence[Run]) -> None:
        self._cluster = cluster
        self._home = cluster.directory / "laptop-home" / "alice"
        self._pool = ThreadPoolExecutor(AT_ONCE)
        before = [run for run in OTHERS if run in wanted or any(one.reads for one in wanted)]
        self._done: dict[Run, Future[Done]] = {run: self._pool.submit(self._run, run) for run in before}
        for run in wanted:  # last, because they wait for the others, which must have been started
            if run.reads:
                self._done[run] = self._pool.submit(self._run_behind, run)

    def result(self, run: Run) -> Done:
        return self._done[run].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _run_behind(self, run: Run) -> Done:
        """Run a notebook that reads the results of others, which are sent with it, in runs/ as a student has them."""
        made = [self.result(one).folder for one in OTHERS]
        there = f"given-to-{run.notebook}/runs"
        copy = ["sh", "-c", 'there=$1; shift; mkdir -p "$there"; cp -r "$@" "$there"', "copy", there]
        paths = [str(folder.relative_to(self._home)) for folder in made]
        self._cluster.run("laptop", "alice", [*copy, *paths], check=True)
        words = ["--with", there]
        if run.notebook == "gpu-usage":
            words += ["-p", "USAGE", f"runs/{best_sampled(made).name}/usage.csv"]
        return self._run(run, *words)

    def _run(self, run: Run, *words: str) -> Done:
        wanted = SMALL[run.notebook] | LONGER.get(run.notebook, {})
        parameters = [word for name, value in wanted.items() for word in ("-p", name, str(value))]
        if run != WITH_HTML:
            words += ("--with", f"pages/{run.notebook}.html")
        argv = ["run", run.notebook, *parameters, *words, "--output", "runs"]
        argv += ["--cluster", "notebooks", "-n", CORES.get(run.notebook, "1"), "--", run.environment]
        done = in_box.launcher(self._cluster, "laptop", "alice", *argv, timeout=RUN_AT_MOST)
        said = done.stdout + done.stderr
        session = re.search(r"\(session\s(\d{8}-\d{6}-[a-z2-7]{4})\)", said)
        assert session, said
        return Done(said, done.returncode, self._home / "runs" / f"{run.notebook}-{session[1]}")


def best_sampled(folders: Sequence[Path]) -> Path:
    """Return the run whose use to draw: with enough samples and its phases if there is one, else with most samples."""

    def value(folder: Path) -> tuple[bool, int]:
        samples = len((folder / "usage.csv").read_text().splitlines()) - 1
        return samples >= ENOUGH and (folder / "phases.json").exists(), samples

    return max(folders, key=value)


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, cluster: PracticeCluster) -> Iterator[Runs]:
    """The runs, which are made once for all tests of this file."""
    profile = PROFILE.format(
        torch=provide_image(cluster, "torch-cpu"), tensorflow=provide_image(cluster, "tensorflow-cpu")
    )
    write = "cat >~/.config/notebook-launcher/clusters/notebooks.toml"
    cluster.run("laptop", "alice", ["sh", "-c", write], input=profile, check=True)
    pages = [f"pages/{name}.html" for name in bundled()]
    cluster.run("laptop", "alice", ["sh", "-c", 'mkdir -p pages; touch "$@"', "touch", *pages], check=True)
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    named = [item.callspec.params.get("run") for item in here if hasattr(item, "callspec")]
    runs = Runs(cluster, [run for run in RUNS if run in named] if len(named) == len(here) else RUNS)
    yield runs
    runs.close()
    cluster.run(
        "laptop",
        "alice",
        ["sh", "-c", "rm -rf runs given-to-* pages; rm ~/.config/notebook-launcher/clusters/notebooks.toml"],
    )


each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)


@each_run
def test_a_notebook_runs_to_its_end_and_is_brought_back(made: Runs, run: Run) -> None:
    done = made.result(run)
    assert done.exit_code == 0, done.said
    assert "finished" in done.said
    about = json.loads((done.folder / "run.json").read_text())
    assert (about["cause"], about["exit_code"], about["done"]) == ("finished", 0, about["cells"])
    digest = about["image"]["digest"]  # calculated at the lowest priority: a short run may end before
    assert digest is None or digest.startswith("sha256:")
    (header, *samples) = csv.reader((done.folder / "usage.csv").read_text().splitlines())
    assert tuple(header) == COLUMNS
    assert samples, "its use was sampled"
    cells = done.cells(run.notebook)
    check_cells(cells)
    if not run.reads:  # with the results of many runs, there may be much to print
        assert not [cell.id for cell in cells if len(text_of(cell).splitlines()) > 25], "too much to be read"
    if run.notebook == "hello":
        assert text_of(cells[0]) == "Hello\n"
        assert "node: " in text_of(cells[1])
    else:
        assert len(text_of(cells[-1]).split()) >= 8, "the last cell says in words what came out"
    assert (done.folder / f"{run.notebook}.html").exists() == (run == WITH_HTML)
    source = "\n".join(cell.source for cell in nbformat.read(bundled()[run.notebook], as_version=4).cells)
    if RECORDS.search(source):
        check_records(run, done.folder / "results.jsonl", about["job"], digest)


def text_of(cell: nbformat.NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def check_cells(cells: Sequence[nbformat.NotebookNode]) -> None:
    """Check that every cell was executed, without warnings, and that those that plot have produced figures."""
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        kinds = {output.get("name", output.output_type) for output in cell.outputs}
        text = text_of(cell)
        assert kinds <= {"stdout", "display_data"}, f"{cell.id}: {text}"
        assert not re.search("warning|deprecat|traceback", text, re.IGNORECASE), f"{cell.id}: {text}"
        assert not (long := [line for line in text.splitlines() if len(line) > WIDEST]), f"{cell.id}: {long}"
        figures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert bool(figures) == bool(DRAWS.search(cell.source)), f"{cell.id} has {len(figures)} figures"


def check_records(run: Run, path: Path, job: str, digest: str) -> None:
    """Check that each measurement has the notebook's name, and the job and the image in which it was made."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records
    for record in records:
        assert record["median"] > 0
        assert record["name"].startswith(run.notebook)
        assert not record["parameters"].keys() & {"library", "device", "oneDNN"}, "bench compares equal parameters"
        assert str(record["fingerprint"]["job"]) == job
        assert record["fingerprint"]["container"] in (None, digest)
        if run.notebook == "beginner-torch":  # by itself, PyTorch would use all cores of the machine
            told = record["fingerprint"]
            assert [told[name] for name in ("cores_allotted", "threads", "scheduler")] == [1, 1, "slurm"]
            assert told["libraries"]["torch"].startswith("2.13.0")


def test_they_look_well(cluster: PracticeCluster, made: Runs, tmp_path: Path) -> None:
    """All notebooks on one HTML page in a browser: every figure is shown, and nothing is wider than the page."""
    # There is no network from which to load code for formulae and widgets, and the notebooks contain none.
    exporter: Any = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", widget_renderer_url="")  # type: ignore[no-untyped-call]
    whole = nbformat.v4.new_notebook()
    for run in RUNS:
        whole.cells += nbformat.read(made.result(run).folder / f"{run.notebook}.ipynb", as_version=4).cells
    for place, cell in enumerate(whole.cells):
        cell.id = str(place)  # several notebooks have a cell with the same id
    html = tmp_path / "whole.html"
    html.write_text(exporter.from_notebook_node(whole)[0])
    figures = sum("image/png" in output.get("data", {}) for cell in whole.cells for output in cell.get("outputs", ()))
    with chromium(cluster, tmp_path) as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.goto(html.as_uri())
        sizes = page.eval_on_selector_all("main img, body img", "all => all.map(one => one.naturalWidth)")
        assert len(sizes) == figures
        assert all(size > 200 for size in sizes)
        assert page.eval_on_selector_all(".jp-OutputArea-output, .jp-InputArea-editor", TOO_WIDE) == []


def test_each_notebook_that_comes_along_is_among_them_and_nothing_is_left(cluster: PracticeCluster, made: Runs) -> None:
    assert {run.notebook for run in RUNS} == set(bundled())
    for run in RUNS:
        made.result(run)
    assert_nothing_left(cluster)
