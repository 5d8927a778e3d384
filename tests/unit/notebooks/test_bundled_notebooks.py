"""The bundled notebooks: how they are made and stored, and that they run as scripts.

They run here in small, in the Python that ``NOTEBOOKS_PYTHON`` names, else in this one. Where it has neither PyTorch
nor TensorFlow, what needs them is skipped: all of them run on the practice cluster, as notebooks, in their containers.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from notebook_launcher.diagnosis.exit_causes import missing_module_hint
from tests.notebook_parameters import NEEDS, SMALL
from tests.paths import DOCS, ROOT

pytestmark = pytest.mark.real_time

FOLDER = ROOT / "notebooks"
PATHS = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
MEASURING = sorted(PATHS.keys() - {"hello"})  # which says where it runs, and measures nothing
PYTHON = os.environ.get("NOTEBOOKS_PYTHON") or sys.executable

every = pytest.mark.parametrize("name", PATHS)
measuring = pytest.mark.parametrize("name", MEASURING)
# these run as scripts in tests of their own
others = pytest.mark.parametrize("name", [name for name in MEASURING if name not in ("compare", "core-scaling")])


RECORDS = re.compile(r"\.record\(")


@functools.lru_cache
def notebook(name: str) -> nbformat.NotebookNode:
    return nbformat.read(PATHS[name], as_version=4)


def code_cells(name: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook(name).cells if cell.cell_type == "code"]


def code(name: str) -> str:
    return "\n\n".join(cell.source for cell in code_cells(name)) + "\n"


def words(name: str) -> str:
    return "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "markdown")


# ------------------------------------------------------------------------------------------------------ as it is stored


def test_there_are_small_parameters_for_each() -> None:
    assert SMALL.keys() == PATHS.keys(), "tests/notebook_parameters.py has the notebooks, and nothing else"
    assert NEEDS.keys() <= PATHS.keys()


@every
def test_is_a_notebook_without_outputs_or_traces_of_its_author(name: str) -> None:
    nbformat.validate(notebook(name))
    assert notebook(name).metadata.kernelspec.name == "python3"
    assert notebook(name).metadata.keys() <= {"kernelspec", "language_info"}
    for cell in notebook(name).cells:
        assert cell.metadata.keys() <= {"tags", "jupyter"}, f"{cell.id}: {dict(cell.metadata)}"
        assert cell.metadata.get("jupyter") in (None, {"source_hidden": True})
        assert cell.source.strip(), f"{cell.id} is empty"
        assert "attachments" not in cell
    for cell in code_cells(name):
        assert cell.outputs == [], f"clear the outputs of {cell.id} before committing"
        assert cell.execution_count is None, f"clear the outputs of {cell.id} before committing"


@every
def test_only_cells_of_helpers_are_collapsed(name: str) -> None:
    """Of `compare`, which computes nothing, all that is not to be changed: it is read for its results."""
    collapsed = [cell for cell in code_cells(name) if cell.metadata.get("jupyter")]
    if name == "compare":
        assert {cell.id for cell in code_cells(name)} - {cell.id for cell in collapsed} == {"libraries", "parameters"}
    else:
        for cell in collapsed:
            statements = ast.parse(cell.source).body
            kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.Import, ast.ImportFrom, ast.If)
            assert all(isinstance(one, kinds) for one in statements), cell.id
            assert "parameters" not in cell.metadata.get("tags", [])
            assert not RECORDS.search(cell.source) or cell.id == "measure"


@every
def test_begins_with_a_title_and_what_it_does(name: str) -> None:
    first = notebook(name).cells[0]
    assert first.cell_type == "markdown"
    title, _, rest = first.source.partition("\n\n")
    assert re.fullmatch(r"# \S[^\n]+", title)
    assert re.fullmatch(r"[A-Z].+[.?:]\**", rest.partition("\n\n")[0], re.DOTALL), "a sentence below the title"


@every
def test_is_short(name: str) -> None:
    assert len(code_cells(name)) <= 15
    lengths = {cell.id: len(cell.source.splitlines()) for cell in code_cells(name)}
    assert not {cell: length for cell, length in lengths.items() if length > 30}
    assert max(map(len, code(name).splitlines())) <= 120


@every
def test_is_plain_python(name: str) -> None:
    """No magic and no shell: it has to run as a script as well, and to be read by people who know Python."""
    ast.parse(code(name), feature_version=(3, 9))
    assert "get_ipython" not in code(name)


NETWORK = re.compile(
    r"https?://|load_data\(|url(open|retrieve)|get_file\(|download|requests|hub\.|wget|curl|pip install"
)


@every
def test_asks_for_no_network(name: str) -> None:
    lines = [line for line in code(name).splitlines() if NETWORK.search(line) and "download=False" not in line]
    assert not lines


@every
def test_names_no_place_of_this_or_another_machine(name: str) -> None:
    text = "\n".join(cell.source for cell in notebook(name).cells)
    assert not re.search(r"(?<![\w.~*}])/(home|root|proj|work|scratch|mnt|opt|usr|var|tmp|Users)\b", text)


@every
def test_is_in_english_and_finished(name: str) -> None:
    text = words(name) + code(name)
    assert not re.search(r"\b(TODO|FIXME|XXX|lorem)\b", text)
    assert not re.search(r"[^\x00-\xff–—‘’“”…×→≤≥≈√µ−·²³⁰-⁹]", text), "letters of another language"
    common = len(re.findall(r"\b(the|a|is|of|and|it|to|in|what|are|that|not|your|each)\b", words(name), re.IGNORECASE))
    assert common >= 0.15 * len(re.findall(r"\b[A-Za-z]+\b", words(name)))


@measuring
def test_its_only_clock_is_timing(name: str) -> None:
    assert re.search(r"^import timing$", code(name), re.MULTILINE)
    assert not re.search(r"^\s*(import|from) (time|timeit)\b|perf_counter|%time", code(name), re.MULTILINE)


@measuring
def test_its_parameters_are_settings_and_in_the_docs(name: str) -> None:
    tagged = [cell for cell in code_cells(name) if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1, "one cell has the tag `parameters`"
    docs = (DOCS / "notebooks.md").read_text()
    names = []
    for statement in ast.parse(tagged[0].source).body:
        assert isinstance(statement, ast.Assign), "the cell sets parameters, and nothing else"
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        call = ast.unparse(statement.value)
        assert call.startswith(f"timing.setting('{target.id}', "), f"{target.id} is not settable from the environment"
        assert f"`{target.id}`" in docs, f"docs/notebooks.md does not know {target.id}"
        names.append(target.id)
    assert SMALL[name].keys() <= set(names)
    assert f"`{name}`" in docs


# --------------------------------------------------------------------------------------------------------- as it is run


@functools.lru_cache
def installed() -> frozenset[str]:
    """Return which of the libraries the notebooks' Python has."""
    names = sorted({name for needed in NEEDS.values() for name in needed})
    script = f"import importlib.util as u; print(*[name for name in {names!r} if u.find_spec(name)])"
    return frozenset(subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with timing.py and what else lies beside the notebooks, as a student has it, and the trainer."""
    shutil.copytree(ROOT / "jobscripts" / "training", tmp_path / "training")
    for path in FOLDER.iterdir():
        if path.is_file() and path.suffix != ".ipynb":
            shutil.copy(path, tmp_path)
    return tmp_path


def need(name: str) -> None:
    if name in NEEDS and not installed() & set(NEEDS[name]):
        pytest.skip(f"needs {' or '.join(NEEDS[name])}: NOTEBOOKS_PYTHON=… names a Python that has it")


def in_place(place: Path, script: str, *arguments: str, **environment: object) -> subprocess.CompletedProcess[str]:
    """Run Python there, with these environment variables and few others; it has to succeed."""
    told = {"HOME": str(place), "PATH": os.environ["PATH"], "MPLCONFIGDIR": str(place / ".matplotlib")}
    told |= {key: str(int(value) if isinstance(value, bool) else value) for key, value in environment.items()}
    argv = [PYTHON, "-c", script, *arguments]
    done = subprocess.run(argv, cwd=place, env=told, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done


# Draws without a screen, and tells at the end what every figure's axes are called.
AS_SCRIPT = """
import json, runpy, sys
import matplotlib
matplotlib.use("Agg")
runpy.run_path(sys.argv[1], run_name="__main__")
import matplotlib.pyplot as plt
axes = [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]
def told(axis):
    if not len(axis.get_ticklocs()):
        return "nothing to read"
    return axis.get_label_text() or " ".join(label.get_text() for label in axis.get_ticklabels())
print("AXES", json.dumps([[told(ax.xaxis), told(ax.yaxis), len(ax.figure.axes)] for ax in axes]))
"""


def outputs(name: str, place: Path, **parameters: object) -> str:
    """Run it as a script, and return what it printed; every axis has a name, and nothing warns."""
    (place / f"{name}.py").write_text(code(name))
    done = in_place(place, AS_SCRIPT, f"{name}.py", **(SMALL[name] | parameters))
    axes = json.loads(done.stdout.rpartition("AXES ")[2])
    nameless = [names for *names, _ in axes if not all(re.search("[a-z]", name, re.IGNORECASE) for name in names)]
    assert not nameless
    assert not re.search("warning", done.stderr, re.IGNORECASE), done.stderr
    return done.stdout


@others
def test_runs_as_a_script_and_its_axes_have_names(name: str, place: Path) -> None:
    need(name)
    outputs(name, place)


# --------------------------------------------------------------------------------------------------- what they say


RECORD = """
import sys, timing
for file, threads, work, seconds, synchronised, kind in eval(sys.argv[1]):
    timing.use_threads(threads)
    device = timing.Device("gpu", "A100", "torch") if kind == "gpu" else timing.cpu_device()
    times = [seconds, 1.01 * seconds, 0.99 * seconds] * 3
    timing.from_times("fit", times, device=device, work=work, unit="images", parameters={"EXTRA_LAYERS": 1},
                      synchronised=synchronised).record(file)
"""
RECORDED = [
    ("runs/a/results.jsonl", 1, 1000, 4.0, True, "cpu"),
    ("runs/b/results.jsonl", 4, 1000, 9.0, True, "cpu"),
    ("runs/b/results.jsonl", 4, 1000, 2.0, True, "cpu"),  # the same once more
    ("runs/b/results.jsonl", 4, 5000, 1.0, True, "cpu"),
    ("results.jsonl", 4, 1000, 0.1, False, "gpu"),
]


def test_compare_without_results_says_how_to_get_some(place: Path) -> None:
    said = outputs("compare", place)
    assert "There are no results yet." in said
    assert "launch-notebook run" in said


def test_compare_puts_the_same_work_side_by_side_and_says_what_it_leaves_out(place: Path) -> None:
    for folder in ("a", "b"):
        (place / "runs" / folder).mkdir(parents=True)
    in_place(place, RECORD, repr(RECORDED))
    shutil.copy(place / "runs/a/results.jsonl", place / "copy.jsonl")  # what is in two files counts once
    for parameters in ({}, {"RESULTS": "copy.jsonl results.jsonl runs/*/results.jsonl"}):
        said = outputs("compare", place, **parameters)
        assert "4 threads is 2.00 times as fast as 1 thread (1.9" in said
        assert "Left out, as the same was measured again later: 1" in said
        assert "fit (5,000 images): a single result, 1.00 s; the others did other work" in said
        assert "fit, 100 ms: the GPU was not waited for" in said


OF_A_BENCH = """
import timing
for cores, seconds in ((1, 0.2), (2, 0.1)):
    print_on = {"threads": None, "cores_allotted": cores}
    for name, work in (("sinus", None), ("cosinus", 5.0)):
        file = f"runs/bench-mine.cores={cores},gpus=0/results.jsonl"
        timing.Measurement(name, (seconds, 1.01 * seconds, 0.99 * seconds) * 3, timing.cpu_device(), work,
                           fingerprint=print_on).record(file)
"""


def test_compare_puts_the_combinations_of_a_bench_side_by_side_with_or_without_work(place: Path) -> None:
    for cores in (1, 2):
        (place / f"runs/bench-mine.cores={cores},gpus=0").mkdir(parents=True)
    in_place(place, OF_A_BENCH)
    said = outputs("compare", place)
    assert "4 results in 2 files\n" in said
    assert "measured again later" not in said
    assert "sinus (bench-mine):\n  2 cores is 2.00 times as fast as 1 core (1.9" in said
    assert "cosinus (5):\n  2 cores is 2.00 times as fast as 1 core (1.9" in said
    assert "Not compared" not in said


def test_core_scaling_uses_no_more_cores_than_the_job_has(place: Path) -> None:
    said = outputs("core-scaling", place, SLURM_CPUS_ON_NODE=1, CORES="1,2,64", LIBRARY="numpy")
    assert "numpy, with threads: 1\n" in said
    assert "Left out, as the job has not so many cores: 2, 64. Ask for more: -n 64" in said
    assert "With one core there is nothing to fit." in said
    assert "on one core, and no other is allotted." in said


@pytest.mark.parametrize("name", sorted(PATHS.keys() - {"hello"}))
def test_a_missing_library_is_named_at_once_with_what_to_type(name: str, place: Path) -> None:
    """In JupyterLab nobody else says it; in a run, the launcher knows this message of Python's."""
    first = code_cells(name)[0].source
    lacking = first.replace("matplotlib.pyplot", "matplotlib").replace("matplotlib", "nothing_of_that_name")
    assert lacking != first
    argv = [PYTHON, "-c", lacking]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "ModuleNotFoundError: No module named 'nothing_of_that_name': this environment lacks nothing"
    )
    has_it = r"(torch and tensorflow, if listed, have|(torch|tensorflow), if listed, has) what is missing"
    assert "launch-notebook env list" in last and re.search(has_it, last)
    assert missing_module_hint(last)


# Made-up times, so that one kind of work is slower with more threads, and the other is quicker.
SLOWER = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import timing
counts, library = [1, 2, 4], "numpy"
def line(name, threads, seconds):
    return timing.from_times(name, [seconds, 1.01 * seconds, 0.99 * seconds] * 3, device=timing.cpu_device(), work=1,
                             unit="FLOP", parameters={"threads": threads}, synchronised=True).record()
slow, quick = ([line("slow", n, 1.0 + n) for n in counts], [line("quick", n, 1.0 / n + 0.1) for n in counts])
scaling = {"slow": slow, "quick": quick}
{cells}
print("LEGEND", [text.get_text() for text in left.get_legend().get_texts()])
"""


def test_core_scaling_fits_no_law_to_what_is_slower_with_more_threads(place: Path) -> None:
    cells = "\n\n".join(cell("core-scaling", ident) for ident in ("amdahl", "fits", "plot", "answer"))
    said = in_place(place, SLOWER.replace("{cells}", cells)).stdout
    assert "slow: more threads are slower, which Amdahl's law cannot describe; it is not fitted" in said
    assert "quick: serial share" in said
    assert "More threads make it slower: sharing costs more than it saves" in said
    legend = said.rpartition("LEGEND ")[2]
    assert legend.count("Amdahl") == 1
    assert not [share for share in re.findall(r"([\d.]+) %", said) if float(share) > 100]


def cell(name: str, ident: str) -> str:
    return next(one.source for one in code_cells(name) if one.id == ident)


# Numpy's threads in the process that is started: whether OpenBLAS has begun with as many as it was told.
APART = """
import inspect, json, os, subprocess, sys
from pathlib import Path
import numpy as np
import timing
{cell}
def product(): pass
def training(): pass
def measured(*arguments):
    np.ones((300, 300)) @ np.ones((300, 300))
    return len(__import__("os").listdir("/proc/self/task"))
print(measured_apart("numpy", 1, 1, 1, 1.0))
"""


def test_core_scaling_tells_another_process_its_threads_before_numpy_is_there(place: Path) -> None:
    (place / "apart.py").write_text(APART.replace("{cell}", cell("core-scaling", "measure")))
    done = in_place(place, "import runpy; runpy.run_path('apart.py')", OPENBLAS_NUM_THREADS=4, OMP_NUM_THREADS=4)
    assert done.stdout == "1\n"


def test_core_scaling_records_with_how_many_threads_each_was(place: Path) -> None:
    assert "AXES [[" in outputs("core-scaling", place, LIBRARY="numpy")
    lines = [json.loads(line) for line in (place / "results.jsonl").read_text().splitlines()]
    assert [line["parameters"]["threads"] for line in lines] == [line["fingerprint"]["threads"] for line in lines]
    assert lines[0]["parameters"] == {"SIZE": 256, "threads": 1}


SCALED = """
import timing
library, counts, fits = "numpy", {counts}, {"x": (10.0, 8.0, 12.5)}
scaling = {"x": [timing.from_times("x", [1 / n] * 6, synchronised=True).as_dict() for n in counts]}
{cell}
"""


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1, 2, 4], "10.0 % of it is serial (8.0 % to 12.5 %): by this law no more than 8 to 12.5 times as fast"),
        ([1, 2], "From two points no limit is told"),
    ],
)
def test_core_scaling_tells_a_limit_with_its_interval_or_none(place: Path, counts: list[int], said: str) -> None:
    script = SCALED.replace("{counts}", repr(counts)).replace("{cell}", cell("core-scaling", "answer"))
    told = in_place(place, script).stdout
    assert said in told
    assert ("times as fast, with however many cores" in told) == (len(counts) > 2)


NEWER = """
import timing, sys
for version, seconds, onednn in (("1.0", 1.0, "1"), ("2.13", 3.0, "1"), ("2.13", 6.0, "0")):
    print_on = {"threads": 2, "libraries": {"torch": version}, "onednn": onednn}
    timing.Measurement("fit", (seconds, 1.01 * seconds, 0.99 * seconds) * 3, timing.Device("cpu", "x", "torch"), 2.0,
                       "FLOP", {"n": 1024, "library": "torch", "threads": 7}, fingerprint=print_on).record()
"""


def test_compare_is_not_misled_by_a_parameter_of_the_name_of_a_trait(place: Path) -> None:
    in_place(place, NEWER)
    said = outputs("compare", place)
    assert "3 results in 1 file\n" in said
    assert "measured again later" not in said
    assert "torch 1.0, oneDNN 1 is 6.00 times as fast as torch 2.13, oneDNN 0" in said


CHECKED = """
import numpy as np, torch
from torch import nn
class device: is_gpu = False
BATCH, WORKERS, IMAGE = 64, 0, 8
{cell}
images, labels = np.zeros(({images}, 4, 4), np.float32), np.arange({images}) % 10
learn, check, distinct = loaders(5, 400)
print(len(check.dataset), len(set(check.dataset.chosen.tolist())), distinct)
"""


@pytest.mark.parametrize(("images", "distinct"), [(4000, 100), (200, 25)])
def test_resnet_torch_knows_how_many_different_images_it_has_checked(place: Path, images: int, distinct: int) -> None:
    """They are what the interval of the accuracy comes from: with all of MNIST there are more than are looked at."""
    need("resnet-torch")
    defined = cell("resnet-torch", "data-views") + "\n" + cell("resnet-torch", "data-loaders").partition("\nimages,")[0]
    script = CHECKED.replace("{cell}", defined).replace("{images}", str(images))
    assert in_place(place, script).stdout.split() == ["100", str(distinct), str(distinct)]


SHOWN = """
import sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import timing
{show}
show(plt.subplots()[0], "epochs")
"""


def test_resnet_torch_saves_its_figures_where_there_is_no_page_for_them(place: Path) -> None:
    drawn = cell("resnet-torch", "plots")
    (show,) = (one for one in ast.parse(drawn).body if isinstance(one, ast.FunctionDef))
    said = in_place(place, SHOWN.replace("{show}", ast.unparse(show))).stdout
    assert said == "Saved resnet-torch-epochs.png\n"
    assert (place / "resnet-torch-epochs.png").stat().st_size > 1000


def test_gpu_usage_has_students_t_for_few_epochs(place: Path) -> None:
    """An epoch's mean varies: half the 95 % interval of n of them is t(n - 1) standard errors."""
    table = """
import math, numpy as np
{cell}
def within(began, ended): return np.arange(40) == began if began == ended else np.arange(40) >= 0
for count in (3, 11, 17, 20):
    samples = {"x": np.arange(40.0)}
    epochs = [{"began": one, "ended": one} for one in range(count)]
    half = mean_interval({"began": 0, "ended": 1, "epochs": epochs}, "x")[1]
    print(round(half / (np.std(np.arange(count), ddof=1) / math.sqrt(count)), 2))
"""
    script = table.replace("{cell}", cell("gpu-usage", "intervals"))
    assert in_place(place, script).stdout.split() == ["4.3", "2.23", "2.12", "2.11"]


@pytest.mark.parametrize("name", ["beginner-tensorflow", "beginner-torch"])
def test_what_extra_layers_cost_is_what_the_formula_says(name: str) -> None:
    """Forward and backward: an extra pair beyond none is 24 % of the arithmetic, beyond one 19 %."""
    first, hidden, last = 784 * 128, 128 * 128, 128 * 10
    source = cell(name, "limit")
    assert "operations = 6 * sum(kernels) - 2 * kernels[0]" in source
    said = re.search(r"print\((f\"One extra pair more.*)\)\n", source)
    assert said
    for kernels, share in (([first, last], "24 %"), ([first, hidden, last], "19 %")):
        assert share in eval(said[1], {"operations": 6 * sum(kernels) - 2 * kernels[0]})
    assert not re.search(r"\d %", words(name))
