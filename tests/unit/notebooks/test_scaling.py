"""The notebook ``scaling``, with a stand-in for PyTorch whose trainings take a time that is known.

With PyTorch it runs on the practice cluster: ``tests/cluster_tests/test_notebooks.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.doubles import wait_until
from tests.paths import ROOT
from tests.processes import kill_with_variable, with_variable

pytestmark = pytest.mark.real_time

TORCH = """
__version__ = "stand-in"
class cuda:
    is_available = staticmethod(lambda: False)
def set_num_threads(count): pass
def get_num_threads(): return 1
"""
# As torchrun does: each process in a session of its own, and ended when torchrun is told to end.
TORCHRUN = """
import os, signal, subprocess, sys
standalone, many, *command = sys.argv[1:]
assert standalone == "--standalone"
count = int(many.removeprefix("--nproc-per-node="))
def start(rank):
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count)}
    return subprocess.Popen([sys.executable, *command], env=environment, start_new_session=True)
children = []
def end(*_):
    for child in children:
        child.terminate()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
children += map(start, range(count))
sys.exit(max(child.wait() for child in children))
"""
# One process does 1000 images/s. Strong scaling loses a tenth with each more, and weak scaling a twentieth.
TRAINER = """
import json, os, sys
from pathlib import Path
told = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert told["accelerator"] == "cpu" and os.environ["OMP_NUM_THREADS"] == "1"
images, batch = int(told["images"]), int(told["batch-size"])
assert batch % count == 0 and images % batch == 0
weak = batch // count == 64
seconds = images / 1000 / count / (1 - (0.05 if weak else 0.1) * (count - 1))
epochs = [{"seconds": 99.0}] + [{"seconds": seconds}] * (int(told["max-epochs"]) - 1)
result = {"epochs": epochs, "images_per_second": images / seconds, "communication_share": 0.08 * (count - 1)}
if rank == 0:
    Path(told["output"], "result.json").write_text(json.dumps(result))
"""
# Dask's client, which computes at once, and where 4 workers with 2 threads each would be.
DASK = """
class Client:
    def nthreads(self):
        return {f"tls://10.0.0.{1 + number // 2}:{number}": 2 for number in (3, 1, 0, 2)}
    def submit(self, function, *arguments, workers, pure):
        assert set(workers) < set(self.nthreads()) and not pure
        used.update(workers)
        return function(*arguments)
    def scatter(self, data, workers, broadcast, hash):
        return data
    def gather(self, results):
        return results
used = set()
def wait(futures, timeout):
    assert timeout > 0
class get_task_stream:
    def __init__(self, client):
        self.data = [{"startstops": [{"action": "compute", "start": 0, "stop": 0}, {"action": "transfer"}]}]
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
"""
HANGS = """
import os, time
open("begun-" + os.environ["RANK"], "w").close()
print("waits", flush=True)
time.sleep(120)
"""
# Draws without a screen, on as many cores as are named.
BEGIN = """
import matplotlib
matplotlib.use("Agg")
import timing
timing.allotted_cores = lambda: {cores}
"""
CALL = """
import itertools, json, os, subprocess, sys, tempfile
from pathlib import Path
import timing
{cells}
train(2, {{"images": 64}}, 1, {limit})
"""
MARK = "SCALING_TEST"  # in the environment of every process that is started here


def cells(*names: str) -> str:
    there = nbformat.read(ROOT / "notebooks" / "scaling.ipynb", as_version=4).cells
    return "\n\n".join(one.source for one in there if one.cell_type == "code" and (not names or one.id in names)) + "\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with timing.py, and stand-ins for PyTorch and the trainer; nothing that was started there is left."""
    shutil.copy(ROOT / "notebooks" / "timing.py", tmp_path)
    files = {"torch/__init__.py": TORCH, "torch/distributed/__init__.py": "", "torch/distributed/run.py": TORCHRUN}
    for name, text in {**files, "training/train_ddp.py": TRAINER}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    kill_with_variable(MARK, str(tmp_path))


def start(place: Path, script: str, **parameters: object) -> subprocess.Popen[str]:
    told = {"HOME": str(place), "PATH": os.environ["PATH"], "MPLCONFIGDIR": str(place / ".matplotlib")}
    told |= {"PYTHONPATH": str(place), MARK: str(place), **{name: str(value) for name, value in parameters.items()}}
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    return subprocess.Popen(command, cwd=place, env=told, stdout=pipe, stderr=pipe, text=True)


def said(place: Path, script: str, **parameters: object) -> str:
    out, complaints = start(place, script, **parameters).communicate(timeout=120)
    assert not complaints
    return out


def test_it_takes_no_more_processes_than_cores_and_a_batch_that_can_be_split(place: Path) -> None:
    most = cells("libraries", "found", "parameters", "counts", "sizes", "train", "end", "run", "table")
    few = {"SCALING": "strong", "ROUNDS": 1, "EPOCHS": 3}
    told = said(place, BEGIN.format(cores=3) + most, PROCESSES="1,2,4", BATCH=64, IMAGES=100, **few)
    assert "Processes: 1, 2, 3; each has a core of its own, and threads: 1\n" in told
    assert "batches of 66 images" in told  # 64 cannot be split into 3 parts
    assert "Left out, as the job has not so many cores: 4. Ask for more: -n 4\n" in told
    assert "There are few times of each (2), so the intervals cover less than 95 %" in told


def test_the_figures_are_those_of_the_trainer(place: Path) -> None:
    told = said(place, BEGIN.format(cores=4) + cells(), PROCESSES="1,2,4", BATCH=64, IMAGES=1000, HIDDEN=16)
    assert "round 1/2: 1 process, batch 64: 1,000 images/s\nround 1/2: 2 processes, strong, batch 64: 1,800" in told
    assert "round 2/2: 4 processes, weak, batch 256: 3,400 images/s\nround 2/2: 4 processes, strong" in told  # and back
    table = [line.split() for line in told.splitlines() if line.startswith(("strong ", "weak ")) and "%" in line]
    figures = {(row[0], int(row[1])): (row[2], row[3], *row[-4:]) for row in table if row[1].isdigit()}
    assert figures["strong", 1] == ("1,000", "1.00", "100", "%", "0", "%")
    assert figures["strong", 4] == ("2,800", "2.80", "70", "%", "24", "%")
    assert figures["weak", 4] == ("3,400", "3.40", "85", "%", "24", "%")
    assert "strong scaling: 4 cores are 2.80 times as fast as one (2.80 to 2.80, 95 %); efficiency 70 %.\n" in told
    assert "24 % of a step is communication: most of what is lost.\n" in told
    assert max(map(len, told.splitlines())) <= 120
    lines = [json.loads(line) for line in (place / "results.jsonl").read_text().splitlines()]
    assert {line["name"] for line in lines} == {"scaling: strong", "scaling: weak"}
    assert {line["work"] for line in lines} == {1024}
    assert [len(line["times"]) for line in lines] == [6] * 6  # enough for an interval


def test_with_one_core_there_is_nothing_to_scale(place: Path) -> None:
    told = said(place, BEGIN.format(cores=1) + cells(), PROCESSES="1,2", IMAGES=640, BATCH=64, ROUNDS=1)
    assert "With one core there is nothing to scale; only its speed is measured.\n" in told
    assert told.count("round ") == 1
    assert told.endswith(
        "One core trains on 1,000 images/s. There is no second one to compare with: ask for more, such as -n 2.\n"
    )


def test_without_a_gpu_none_is_used_in_its_place(place: Path) -> None:
    child = start(place, BEGIN.format(cores=1) + cells(), ACCELERATOR="gpu")
    assert "PyTorch sees none here. Ask for some: --gpus 2" in child.communicate(timeout=120)[1].splitlines()[-1]


def test_the_workers_of_dask_are_measured_where_there_are_some_even_without_pytorch(place: Path) -> None:
    shutil.rmtree(place / "torch")
    (place / "dask").mkdir()
    (place / "dask" / "distributed.py").write_text(DASK)
    begin = BEGIN.format(cores=2)
    small = {"HIDDEN": 4, "BATCH": 60, "IMAGES": 300, "EPOCHS": 2}
    script = begin + cells() + "\nimport dask.distributed\nprint(len(dask.distributed.used), 'were used')\n"
    told = said(place, script, DASK_SCHEDULER_ADDRESS="tls://10.0.0.1:1", PROCESSES="1,2,4,8", **small)
    assert "Workers of Dask: 1, 2, 4; each computes with threads: 2\n" in told
    assert "batches of 64 images for one worker, 512 images in an epoch\n" in told  # for 4 workers with 2 threads
    assert "Left out, as the job has not so many workers: 8. Ask for more: --nodes, or -c\n" in told
    assert "round 1/2: 1 worker, batch 64: " in told and "round 1/2: 4 workers, weak, batch 256: " in told
    assert "scaling   workers   images/s" in told and "4 were used" in told
    assert "100 % of a step is communication: most of what is lost." in told  # nothing was computed
    assert max(map(len, told.splitlines())) <= 120


@pytest.mark.parametrize(("accelerator", "says"), [("dask", "--with dask"), ("tpu", "gpu, cpu, dask or auto.")])
def test_without_workers_of_dask_none_are_measured(place: Path, accelerator: str, says: str) -> None:
    begin = BEGIN.format(cores=1) + cells("libraries", "found", "parameters", "counts")
    child = start(place, begin, ACCELERATOR=accelerator)
    assert child.communicate(timeout=120)[1].splitlines()[-1].endswith(says)


@pytest.mark.parametrize(
    ("processes", "says"),
    [
        ("two", "PROCESSES is two: it has to be whole numbers from 1, such as 1,2,4."),
        ("0,2", "PROCESSES is 0,2: it has to be whole numbers from 1, such as 1,2,4."),
        ("1,2,3,4,5,6,7,8", "Choose numbers that divide each other, as in PROCESSES=1,2,4,8, or a smaller BATCH."),
    ],
)
def test_counts_that_make_no_sense_are_refused(place: Path, processes: str, says: str) -> None:
    child = start(place, BEGIN.format(cores=8) + cells(), PROCESSES=processes)
    assert child.communicate(timeout=120)[1].splitlines()[-1].endswith(says)


def called(place: Path, limit: float) -> subprocess.Popen[str]:
    """Begin a training without the rest of the notebook."""
    return start(place, CALL.format(cells=cells("train", "end"), limit=limit))


def test_a_training_that_does_not_end_is_ended_with_all_its_processes(place: Path) -> None:
    (place / "training" / "train_ddp.py").write_text(HANGS)
    complaint = called(place, 6).communicate(timeout=120)[1]
    assert "The training with 2 processes failed (no end after 6 s):\nwaits\nwaits\n" in complaint
    wait_until(lambda: not with_variable(MARK, str(place)), 20, "all processes ended")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with the one that started them")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_or_killed_kernel(place: Path, how: signal.Signals) -> None:
    (place / "training" / "train_ddp.py").write_text(HANGS)
    with called(place, 100) as kernel:
        wait_until(lambda: len([*place.glob("begun-*")]) == 2, 20, "two processes that train")
        kernel.send_signal(how)
        kernel.communicate(timeout=60)
    wait_until(lambda: not with_variable(MARK, str(place)), 20, "all processes ended")


def test_without_the_trainer_it_says_where_to_get_it(place: Path) -> None:
    shutil.rmtree(place / "training")
    last = called(place, 10).communicate(timeout=60)[1].splitlines()[-1]
    assert "`launch-notebook notebooks copy scaling`" in last and "--with training" in last
