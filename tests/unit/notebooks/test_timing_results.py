"""notebooks/timing.py: what it measures is right, and what it cannot measure it refuses."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import timeit
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import timing  # noqa: E402

matplotlib.use("Agg")

_SCHEDULED = re.compile(r"SLURM_|LSB_|PBS_|NBL_|NCPUS|NSLOTS|QUEUE|JOB_ID|OMP_|TF_NUM|.*_NUM_THREADS|VECLIB_")


@pytest.fixture(autouse=True)
def _nobody_has_set_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if _SCHEDULED.match(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # what use_threads sets is gone afterwards
    for name in ("torch", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("1", 5, 1),
        (" 12 ", 5, 12),
        ("", 5, 5),
        ("0.5", 1.0, 0.5),
        ("2", 1.0, 2.0),
        ("True", False, True),
        ("0", True, False),
        ("off", True, False),
        ("/data/x", "y", "/data/x"),
        ("1,2, 4", [8], [1, 2, 4]),
        ("relu gelu", ["tanh"], ["relu", "gelu"]),
    ],
)
def test_a_setting_comes_from_the_environment_in_the_type_of_its_default(
    monkeypatch: pytest.MonkeyPatch, text: str, default: object, value: object
) -> None:
    monkeypatch.setenv("EPOCHS", text)
    found = timing.setting("EPOCHS", default)  # type: ignore[type-var]
    assert found == value
    assert type(found) is type(value)


def test_without_the_variable_the_default_counts() -> None:
    assert timing.setting("EPOCHS", 5) == 5


@pytest.mark.parametrize(
    ("text", "default"),
    [("five", 5), ("1.5", 5), ("1e3", 5), ("nan", 0.5), ("inf", 0.5), ("maybe", True), ("1,x", [1])],
)
def test_nonsense_in_a_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str, default: object) -> None:
    monkeypatch.setenv("EPOCHS", text)
    with pytest.raises(timing.TimingError, match=f"EPOCHS={re.escape(text)} in the environment is not"):
        timing.setting("EPOCHS", default)  # type: ignore[type-var]


def test_a_setting_can_have_a_smallest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHS", "0")
    with pytest.raises(timing.TimingError, match="too small: 1 at least"):
        timing.setting("EPOCHS", 5, least=1)


# --------------------------------------------------------------------------------------------------- cores and threads


@pytest.mark.parametrize(
    ("variables", "cores"),
    [
        ({}, 64),
        ({"SLURM_CPUS_ON_NODE": "4"}, 4),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS": "8"}, 8),  # sbatch -n 8
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2", "SLURM_STEP_ID": "0"}, 2),  # one of four tasks of srun
        ({"SLURM_JOB_CPUS_PER_NODE": "6(x2)"}, 6),
        ({"SLURM_CPUS_PER_TASK": "3"}, 3),
        ({"LSB_DJOB_NUMPROC": "5"}, 5),
        ({"NSLOTS": "7"}, 7),
        ({"SLURM_CPUS_ON_NODE": "100"}, 64),  # a practice cluster pretends to have more than there are
        ({"SLURM_CPUS_ON_NODE": "nonsense"}, 64),
    ],
)
def test_cores_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], cores: int) -> None:
    monkeypatch.setattr(timing, "_affinity", lambda: 64)
    monkeypatch.setattr(timing, "_quota", lambda: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert timing.allotted_cores() == cores


def test_the_kernels_word_and_the_cgroups_quota_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "16")
    monkeypatch.setattr(timing, "_affinity", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(timing, "_quota", lambda: None)
    assert timing.allotted_cores() == 8
    monkeypatch.setattr(timing, "_quota", lambda: 3)
    assert timing.allotted_cores() == 3


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("0::/job_7/step\n", {"job_7/cpu.max": "250000 100000", "job_7/step/cpu.max": "max 100000"}, 3),
        ("0::/job_7\n", {"job_7/cpu.max": "max 100000"}, None),
        (
            "5:memory:/x\n4:cpu,cpuacct:/job_7\n",
            {"cpu,cpuacct/job_7/cpu.cfs_quota_us": "400000", "cpu,cpuacct/job_7/cpu.cfs_period_us": "100000"},
            4,
        ),
        (
            "4:cpu:/job_7\n",
            {"cpu/job_7/cpu.cfs_quota_us": "-1", "cpu/job_7/cpu.cfs_period_us": "100000"},
            None,
        ),
        ("", {}, None),
    ],
)
def test_a_quota_is_read_from_both_versions_of_cgroups(
    tmp_path: Path, cgroup: str, files: dict[str, str], cores: int | None
) -> None:
    (tmp_path / "cgroup").write_text(cgroup)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text + "\n")
    assert timing._quota(tmp_path / "cgroup", tmp_path / "fs") == cores


def test_threads_follow_the_allotment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "allotted_cores", lambda: 4)
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    assert timing.use_allotted_threads() == 4
    assert {os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"4"}
    assert os.environ["NUMEXPR_NUM_THREADS"] == os.environ["TF_NUM_INTRAOP_THREADS"] == "4"
    assert sys.modules["torch"].get_num_threads() == 4
    assert timing.fingerprint(timing.Device("cpu", "x", "torch"))["threads"] == 4


def test_numpy_uses_the_threads_that_were_allotted() -> None:
    """In a process of its own: what OpenBLAS was told before it began."""
    program = (
        "import os, timing; timing.use_threads(1); import numpy as np; np.ones((400, 400)) @ np.ones((400, 400)); "
    )
    program += "print(len(os.listdir('/proc/self/task')))"
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "1", "importing timing must not start a library's threads"


LATE = """
import os, sys
sys.modules["threadpoolctl"] = None  # as if it were not there
{first}
import numpy as np
import timing
timing.use_threads(1)
a = np.ones((400, 400))
a @ a
print(timing.fingerprint()["threads"], timing.from_times("x", [1.0]).fingerprint["threads"])
"""


@pytest.mark.parametrize(
    ("first", "threads"),
    [
        ("", None),
        ("os.environ['OPENBLAS_NUM_THREADS'] = '4'", None),
        ("import timing; timing.use_threads(1)", 1),
        ("import timing; timing.use_threads(2)", None),
        ("import timing; os.environ.update(timing.thread_variables(1))", 1),
    ],
)
def test_threads_that_numpy_was_told_too_late_are_not_believed(first: str, threads: int | None) -> None:
    """OpenBLAS reads its variables once, when it is loaded; without threadpoolctl nobody reaches it later."""
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    program = LATE.replace("{first}", first)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == [str(threads)] * 2


def test_threadpoolctl_is_asked_what_numpy_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = types.ModuleType("threadpoolctl")
    found = [{"user_api": "openmp", "num_threads": 9}, {"user_api": "blas", "num_threads": 3}]
    pools.threadpool_info = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "threadpoolctl", pools)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert timing.fingerprint()["threads"] == 3


@pytest.mark.parametrize("started", [False, True])
def test_tensorflow_is_told_unless_it_has_begun(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", fake_tensorflow(started))
    if started:
        with pytest.raises(timing.TimingError, match=r"TensorFlow computes already.*Restart the kernel"):
            timing.use_threads(3)
    else:
        timing.use_threads(3)
        assert sys.modules["tensorflow"].config.threading.get_intra_op_parallelism_threads() == 3
        timing.use_threads(3)  # all cells run again


def test_tensorflow_that_has_begun_with_the_right_number_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    timing.use_threads(3)
    monkeypatch.setitem(sys.modules, "tensorflow", fake_tensorflow(True))
    assert timing.use_threads(3) == 3


def test_no_threads_are_refused() -> None:
    with pytest.raises(timing.TimingError, match="1 at least"):
        timing.use_threads(0)


# ------------------------------------------------------------------------------------------ libraries that are not here


def fake_torch(*, gpus: int = 0, pending: Callable[[], None] = lambda: None) -> types.ModuleType:
    """As much of PyTorch as timing asks: devices, threads, and a wait."""
    torch = types.ModuleType("torch")
    threads = [1]
    cuda = types.SimpleNamespace(
        is_available=lambda: gpus > 0,
        is_initialized=lambda: gpus > 0,
        device_count=lambda: gpus,
        get_device_name=lambda i: f"Card {i}",
        memory_reserved=lambda i: 0,
        current_device=lambda: 0,
        synchronize=lambda i=None: pending(),
    )
    torch.__dict__.update(
        cuda=cuda,
        set_num_threads=lambda count: threads.__setitem__(0, count),
        get_num_threads=lambda: threads[0],
        __version__="2.99",
        version=types.SimpleNamespace(cuda="12.4", hip=None),
    )
    return torch


def fake_tensorflow(started: bool) -> types.ModuleType:
    tensorflow = types.ModuleType("tensorflow")
    numbers = {"intra": 0, "inter": 0}

    def setter(which: str) -> Callable[[int], None]:
        def set_threads(count: int) -> None:
            if started:
                raise RuntimeError("cannot be modified after initialization")
            numbers[which] = count

        return set_threads

    threads = types.SimpleNamespace(
        get_intra_op_parallelism_threads=lambda: numbers["intra"],
        get_inter_op_parallelism_threads=lambda: numbers["inter"],
        set_intra_op_parallelism_threads=setter("intra"),
        set_inter_op_parallelism_threads=setter("inter"),
    )
    details = types.SimpleNamespace(get_device_details=lambda gpu: {"device_name": "Card T"})
    config = types.SimpleNamespace(threading=threads, list_physical_devices=lambda kind: [], experimental=details)
    tensorflow.__dict__.update(config=config, __version__="2.98")
    return tensorflow


def test_devices_are_those_of_the_library_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=2))
    found = timing.devices()
    assert [(d.kind, d.library, d.place) for d in found] == [
        ("cpu", "torch", "cpu"),
        ("gpu", "torch", "cuda:0"),
        ("gpu", "torch", "cuda:1"),
    ]
    assert timing.best_device() == found[1]
    assert found[1].name == "Card 0"
    assert found[1].is_gpu
    assert not found[0].is_gpu


def test_tensorflows_devices_have_tensorflows_names(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = fake_tensorflow(False)
    waited: list[int] = []
    tensorflow.config.list_physical_devices = lambda kind: ["a card"]
    tensorflow.test = types.SimpleNamespace(  # type: ignore[attr-defined]
        experimental=types.SimpleNamespace(sync_devices=lambda: waited.append(1))
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    cpu, gpu = timing.devices("tensorflow")
    assert (cpu.place, gpu.place, gpu.name) == ("/CPU:0", "/GPU:0", "Card T")
    gpu.synchronise()
    cpu.synchronise()
    assert waited == [1]


def test_without_a_library_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.importlib.util, "find_spec", lambda name: None)
    assert [device.kind for device in timing.devices()] == ["cpu"]
    assert timing.best_device().library == ""
    with pytest.raises(timing.TimingError, match="torch or tensorflow"):
        timing.devices("pytorch")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(timing.TimingError, match="torch cannot be imported here"):
        timing.devices("torch")


# --------------------------------------------------------------------------------------------------------- fingerprint


def test_a_fingerprint_tells_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"version":1,"digest":"sha256:abc","image":"/home/me/x.sif"}')
    monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "practice")
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu")
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=1))
    told = timing.fingerprint(timing.best_device())
    assert told["gpu"] == "Card 0"
    assert told["container"] == "sha256:abc"
    assert (told["scheduler"], told["cluster"], told["partition"], told["job"]) == ("slurm", "practice", "gpu", "42")
    assert told["libraries"]["torch"] == "2.99"
    assert told["libraries"]["cuda"] == "12.4"
    assert told["cores_allotted"] >= 1
    assert json.loads(json.dumps(told)) == told


def test_a_fingerprint_tells_which_operations_tensorflow_was_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert timing.fingerprint()["onednn"] is None
    monkeypatch.setitem(sys.modules, "tensorflow", fake_tensorflow(False))
    assert timing.fingerprint()["onednn"] == "0"


def test_a_fingerprint_names_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"version":1,"digest":"sha256:abc","image":"/home/secret-user/x.sif"}')
    monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
    monkeypatch.setenv("USER", "secret-user")
    monkeypatch.setenv("PBS_JOBID", "17.secret-server.example.org")
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-node")
    told = json.dumps(timing.fingerprint())
    assert "secret" not in told
    assert os.uname().nodename not in told
    assert '"job": "17"' in told


def test_what_is_not_known_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = timing.fingerprint()
    assert {told[key] for key in ("gpu", "driver", "container", "scheduler", "job")} == {None}
    for text in ("", "{", "[]", '{"digest": null}'):
        (tmp_path / "image.json").write_text(text)
        monkeypatch.setenv("NBL_SESSION_DIR", str(tmp_path))
        assert timing.fingerprint()["container"] is None


# ---------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize(
    ("count", "out", "covered"),  # from tables of the binomial distribution
    [
        (1, 0, 0.0),
        (2, 0, 0.5),
        (5, 0, 0.9375),
        (6, 0, 0.96875),
        (8, 0, 0.9921875),
        (9, 1, 0.9609375),
        (20, 5, 0.958611),
    ],
)
def test_the_interval_of_the_median_is_that_of_order_statistics(count: int, out: int, covered: float) -> None:
    assert timing._ranks(count, 0.95) == (out, pytest.approx(covered, abs=1e-6))


class Simulated:
    """A clock, and a function that takes the time it is told: the same on a machine that is busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, take: Callable[[], float], step: float = 50e-9) -> None:
        self.now = 0.0
        self.calls = 0
        self._take, self._step = take, step
        monkeypatch.setattr(timing, "_clock", self.read)

    def read(self) -> float:
        self.now += self._step
        return self.now

    def work(self) -> None:
        self.calls += 1
        self.now += self._take()


def test_the_true_median_lies_in_the_interval_whatever_the_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lognormal times around 10 ms: the 95 % interval holds the true median of most of 300 runs."""
    held, errors = 0, []
    for seed in range(300):
        chance = random.Random(seed)
        clock = Simulated(monkeypatch, lambda chance=chance: 0.010 * chance.lognormvariate(0, 0.1))  # type: ignore[misc]
        m = timing.measure(clock.work, name="jittery", budget=30)
        held += m.low <= 0.010 <= m.high
        errors.append(abs(m.median / 0.010 - 1))
        assert m.narrow
    assert held >= 0.90 * 300  # a little under 95 %: it stops when it is narrow, which a lucky series is sooner
    assert statistics.median(errors) < 0.02


def test_an_outlier_does_not_move_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([0.010] * 4 + [5.0] + [0.010] * 1000)
    clock = Simulated(monkeypatch, lambda: next(taken))
    m = timing.measure(clock.work, name="outlier", min_repeats=20, budget=60)
    assert max(m.times) > 4.9
    assert m.median == pytest.approx(0.010, rel=1e-3)
    assert m.high == pytest.approx(0.010, rel=1e-3)
    assert m.narrow


def test_the_first_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0] + [0.010] * 1000)
    m = timing.measure(Simulated(monkeypatch, lambda: next(taken)).work, name="cold")
    assert max(m.times) < 0.011
    assert m.warmup == 1


def test_it_repeats_until_the_interval_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = timing.measure(Simulated(monkeypatch, lambda: 0.01).work, name="steady")
    chance = random.Random(1)
    wild = timing.measure(
        Simulated(monkeypatch, lambda: 0.01 * chance.lognormvariate(0, 0.2)).work, name="wild", budget=60
    )
    assert len(steady.times) in (6, 7)
    assert len(wild.times) > 100
    assert steady.narrow
    assert wild.narrow


def test_a_spent_budget_ends_it_and_the_interval_says_how_much_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    clock = Simulated(monkeypatch, lambda: chance.uniform(0.5, 1.5))
    m = timing.measure(clock.work, name="wild", budget=20)
    assert not m.narrow
    assert sum(m.times) < 22
    assert "not within ±2 %" in str(m)
    slow = timing.measure(Simulated(monkeypatch, lambda: 60.0).work, name="slow", budget=10, min_repeats=2)
    assert len(slow.times) == 2
    assert (slow.covered, slow.narrow) == (0.5, False)
    assert "50 % interval" in str(slow)


def test_short_calls_are_timed_several_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Simulated(monkeypatch, lambda: 10e-6)
    m = timing.measure(clock.work, name="short")
    assert m.calls_per_time >= 20
    assert m.median == pytest.approx(10e-6, rel=0.01)
    assert timing.measure(Simulated(monkeypatch, lambda: 0.1).work, name="long").calls_per_time == 1


@pytest.mark.parametrize("hiccup", [300e-6, 0.5])
def test_a_hiccup_in_the_first_call_is_not_taken_for_a_long_one(monkeypatch: pytest.MonkeyPatch, hiccup: float) -> None:
    taken = iter([10e-6, hiccup])
    m = timing.measure(Simulated(monkeypatch, lambda: next(taken, 10e-6)).work, name="short", budget=0.3)
    assert m.calls_per_time >= 20
    assert m.median == pytest.approx(10e-6, rel=0.01)


def test_a_coarse_clock_is_refused_or_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of 1 ms: what lasts 100 µs is timed ten thousand times together, or not at all."""

    class Coarse(Simulated):
        def read(self) -> float:
            return round(super().read(), 3)

    clock = Coarse(monkeypatch, lambda: 100e-6, step=1e-6)
    assert timing.measure(clock.work, name="coarse", budget=30).median == pytest.approx(100e-6, rel=0.01)
    with pytest.raises(timing.TooShort, match=r"at a time are needed.*larger budget"):
        timing.measure(Coarse(monkeypatch, lambda: 100e-6, step=1e-6).work, name="coarse", budget=0.5)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"warmup": -1}, "warmup"),
        ({"min_repeats": 0}, "min_repeats"),
        ({"min_repeats": 9, "max_repeats": 8}, "max_repeats"),
        ({"precision": 0}, "precision"),
        ({"confidence": 95}, "confidence"),
        ({"budget": 0}, "budget"),
        ({"work": 0}, "work"),
    ],
)
def test_impossible_wishes_are_refused(wishes: dict[str, float], message: str) -> None:
    with pytest.raises(timing.TimingError, match=message):
        timing.measure(lambda: time.sleep(0.001), name="sleep", **wishes)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ on a real clock


def test_a_sleep_of_known_length() -> None:
    m = timing.measure(lambda: time.sleep(0.020), name="sleep", work=2, unit="naps", budget=3)
    assert 0.020 <= m.median < 0.022  # the kernel wakes late, never early
    assert m.low <= m.median <= m.high
    assert m.throughput == pytest.approx(2 / m.median)


def test_a_jittery_sleep() -> None:
    chance = random.Random(3)
    m = timing.measure(lambda: time.sleep(chance.uniform(0.002, 0.006)), name="jittery", precision=0.05, budget=3)
    assert m.low <= 0.0043  # the true median of what is slept is 4 ms, and waking takes a little
    assert m.high >= 0.0039
    assert 0.0035 < m.median < 0.0048


def test_a_sleep_with_an_outlier() -> None:
    naps = iter([0.005] * 5 + [0.5])
    m = timing.measure(lambda: time.sleep(next(naps, 0.005)), name="outlier", min_repeats=15, budget=3)
    assert 0.005 <= m.median < 0.006
    assert max(m.times) > 0.4


def test_what_is_too_short_is_right_or_refused() -> None:
    with pytest.raises(timing.TooShort, match="to call a function that does nothing takes"):
        timing.measure(lambda: None, name="nothing")
    numbers = list(range(200))
    ratios = []
    for _ in range(25):  # in short rounds, as many calls at a time: what else the machine does hits both
        m = timing.measure(lambda: sum(numbers), name="sum", budget=0.02)
        assert m.calls_per_time > 50
        alone = timeit.repeat(lambda: sum(numbers), number=m.calls_per_time, repeat=len(m.times))
        ratios.append(m.median * m.calls_per_time / statistics.median(alone))
    assert 0.85 < statistics.median(ratios) < 1.18


def test_the_collector_of_garbage_is_as_it_was() -> None:
    import gc

    seen: list[bool] = []

    def fn() -> None:
        seen.append(gc.isenabled())
        time.sleep(0.001)
        if len(seen) > 2:
            raise KeyError

    with pytest.raises(KeyError):
        timing.measure(fn, name="raises")
    assert gc.isenabled()
    assert seen[1] is False


# -------------------------------------------------------------------------------------------- a device that works later


class LaterDevice(timing.Device):
    """A GPU that is none: a queue, worked off by a thread, as a GPU works off what is launched."""

    def start(self) -> None:
        work: queue.Queue[float | None] = queue.Queue()
        object.__setattr__(self, "work", work)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (seconds := self.work.get()) is not None:  # type: ignore[attr-defined]
            time.sleep(seconds)
            self.work.task_done()  # type: ignore[attr-defined]

    def launch(self, seconds: float) -> None:
        """Return at once; the work takes ``seconds``, later."""
        self.work.put(seconds)  # type: ignore[attr-defined]

    def synchronise(self) -> None:
        self.work.join()  # type: ignore[attr-defined]


@pytest.fixture
def later() -> Iterator[LaterDevice]:
    device = LaterDevice("gpu", "Simulated", "")
    device.start()
    yield device
    device.launch(0)
    device.work.put(None)  # type: ignore[attr-defined]


def test_a_device_is_waited_for(later: LaterDevice) -> None:
    m = timing.measure(lambda: later.launch(0.005), name="kernel", device=later, budget=2)
    assert 0.005 <= m.median < 0.0065
    assert m.synchronised
    assert m.device is later


def test_calls_that_only_queue_work_are_caught(later: LaterDevice) -> None:
    with pytest.raises(timing.Unsynchronised, match=r"then worked for another .* time to queue the work, not to do it"):
        timing.measure(lambda: later.launch(0.005), name="kernel", device=later, synchronise=False, budget=2)


def test_a_backlog_that_shows_only_in_the_end_is_caught(later: LaterDevice) -> None:
    """The first call is as long as it looks; those of the series leave work behind."""
    calls = iter(range(10_000))

    def fn() -> None:
        time.sleep(0.006)
        if next(calls) > 2:
            later.launch(0.012)

    with pytest.raises(timing.Unsynchronised, match="calls returned after"):
        timing.measure(fn, name="backlog", device=later, synchronise=False, max_repeats=6, budget=2)


def test_a_function_that_waits_by_itself_is_believed_but_not_compared(later: LaterDevice) -> None:
    def fn() -> None:
        later.launch(0.002)
        later.synchronise()

    m = timing.measure(fn, name="own wait", device=later, synchronise=False, budget=0.2)
    assert not m.synchronised
    assert "not synchronised" in str(m)
    with pytest.raises(timing.Unsynchronised, match=r"own wait was timed without waiting for the GPU"):
        timing.compare(m, m)


def test_a_gpu_that_was_not_named_is_found(monkeypatch: pytest.MonkeyPatch, later: LaterDevice) -> None:
    """The usual trap: the model lies on the GPU, and the CPU's clock is read."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=1, pending=later.synchronise))
    with pytest.raises(timing.Unsynchronised, match=r"say which, by device=timing\.best_device\(\)"):
        timing.measure(lambda: later.launch(0.005), name="forward", budget=1)
    with pytest.raises(timing.Unsynchronised, match="say which"):
        for _ in timing.Laps("fit", 2):
            later.launch(0.05)
    named = timing.Device("gpu", "Card 0", "torch", "cuda:0")
    m = timing.measure(lambda: later.launch(0.005), name="forward", device=named, budget=1)
    assert 0.005 <= m.median < 0.0065


def test_a_gpu_that_was_left_alone_is_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the wait for it is long now and then: something else has the core."""
    waits = itertools.count(1)

    def wait() -> None:  # without sleeping, as CUDA does
        until = time.perf_counter() + (0.02 if next(waits) % 6 == 0 else 0.0005)
        while time.perf_counter() < until:
            pass

    held_up = fake_torch(gpus=1, pending=wait)
    monkeypatch.setitem(sys.modules, "torch", held_up)
    for _ in range(3):
        m = timing.measure(lambda: time.sleep(0.002), name="on the CPU", budget=0.1)
        assert m.synchronised
    assert next(waits) > 12


def test_laps_wait_for_the_device(later: LaterDevice) -> None:
    laps = timing.Laps("fit", 4, device=later, work=100, unit="images", parameters={"size": 3})
    for lap in laps:
        later.launch(0.05 if lap == 0 else 0.01)
    assert len(laps) == len(laps.seconds) == 4
    m = laps.measurement
    assert len(m.times) == 3
    assert (m.warmup, m.work, m.unit, m.parameters["size"]) == (1, 100, "images", 3)
    assert 0.010 <= m.median < 0.015
    assert m.synchronised


def test_a_single_lap_counts_and_has_no_interval() -> None:
    laps = timing.Laps("fit", 1)
    with pytest.raises(timing.TimingError, match="no round has come to its end"):
        _ = laps.measurement
    for _ in laps:
        time.sleep(0.005)
    m = laps.measurement
    assert (m.warmup, len(m.times), m.covered, m.narrow) == (0, 1, 0, False)
    assert m.low == m.high == m.median
    assert "one time only, so no interval" in str(m)


def test_a_lap_that_is_left_does_not_count() -> None:
    laps = timing.Laps("fit", 5)
    for lap in laps:
        if lap == 3:
            break
    assert len(laps.seconds) == 3
    with contextlib.suppress(KeyError):
        for _ in laps:
            raise KeyError
    assert laps.seconds == []
    with pytest.raises(timing.TimingError, match="1 at least"):
        timing.Laps("fit", 0)


# ------------------------------------------------------------------------------------------------------------- results


def some(
    name: str = "fit", times: tuple[float, ...] = (0.010, 0.011, 0.012) * 4, **about: object
) -> timing.Measurement:
    device = timing.Device("cpu", "Some CPU", "torch")
    filled: dict[str, object] = {"device": device, "work": 64, "unit": "images", "fingerprint": {"cpu": "Some CPU"}}
    return timing.Measurement(name, times, **{**filled, **about})  # type: ignore[arg-type]


def test_a_record_is_one_line_with_all_that_was_promised(tmp_path: Path) -> None:
    m = some(parameters={"size": np.int64(3), "rate": np.float32(0.5), "odd": float("nan"), "path": Path("x")})
    timing.record(m, tmp_path / "r.jsonl")
    some().record(tmp_path / "r.jsonl")
    first, second = (tmp_path / "r.jsonl").read_text().splitlines()
    told = json.loads(first)
    assert set(told) >= {
        *("version", "name", "parameters", "times", "median", "low", "high", "iqr", "work", "unit", "throughput"),
        *("synchronised", "warmup", "device", "recorded", "fingerprint"),
    }
    assert told["version"] == 1
    assert told["parameters"] == {"size": 3, "rate": 0.5, "odd": "nan", "path": "x"}
    assert told["device"] == {"kind": "cpu", "name": "Some CPU", "library": "torch"}
    assert told["recorded"].endswith("+00:00")
    assert (tmp_path / "r.jsonl").stat().st_mode & 0o077 == 0
    assert json.loads(second)["median"] == 0.011
    assert [item["name"] for item in timing.read_records(tmp_path / "r.jsonl")] == ["fit", "fit"]


def test_results_go_where_the_run_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    some().record()
    assert len(timing.read_records()) == 1
    assert (tmp_path / "results.jsonl").exists()
    monkeypatch.setenv("NBL_RESULTS", str(tmp_path / "elsewhere.jsonl"))
    assert timing.read_records() == []
    some("other").record()
    assert timing.read_records()[0]["name"] == "other"
    with pytest.raises(timing.TimingError, match=r"could not be written: No such file"):
        some().record(tmp_path / "missing" / "r.jsonl")


def test_text_that_is_no_text_is_recorded_all_the_same() -> None:
    """A path that is not UTF-8, from os.environ or sys.argv, has lone surrogates in it."""
    some(parameters={"file": "caf\udce9", "name": "é"}).record()
    assert timing.read_records()[0]["parameters"] == {"file": "caf\udce9", "name": "é"}
    assert timing.results_path().read_bytes().isascii()


def test_it_records_where_there_is_neither_pread_nor_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "pread")
    monkeypatch.setattr(timing, "fcntl", None)
    some("one").record()
    with timing.results_path().open("ab") as file:
        file.write(b"half a")
    some("two").record()
    some("three").record()
    assert [item["name"] for item in timing.read_records()] == ["one", "two", "three"]


KILLED = """
import os, signal, sys, timing
write = os.write
def half(descriptor, line):
    write(descriptor, line[:len(line) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = half
timing.from_times("killed", [0.1, 0.2]).record()
"""


def test_a_line_half_written_by_one_that_was_killed_spoils_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    some("before").record()
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not timing.results_path().read_bytes().endswith(b"\n")
    assert [item["name"] for item in timing.read_records()] == ["before"]
    some("after").record()
    found = timing.read_records()
    assert [item["name"] for item in found] == ["before", "after"]
    assert found.skipped == 1
    assert "results.jsonl: 1 line could not be read, and was left out.\n" in capfd.readouterr().err


WRITER = """
import sys, timing
times = tuple(0.001 * (i + 1) for i in range(1000))
m = timing.Measurement(sys.argv[1], times, timing.cpu_device(), fingerprint={"x": 1})
for _ in range(20):
    m.record()
"""


def test_several_processes_append_without_mixing_lines() -> None:
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, f"w{i}"], env=environment) for i in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    found = timing.read_records()
    assert found.skipped == 0
    assert sorted(item["name"] for item in found) == sorted(["w0", "w1", "w2", "w3"] * 20)
    assert all(len(item["times"]) == 1000 for item in found)


def test_a_lock_that_nobody_gives_back_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import fcntl

    lock = timing._lock
    monkeypatch.setattr(timing, "_lock", lambda descriptor: lock(descriptor, 0.2))
    with (tmp_path / "results.jsonl").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        some().record()
    assert len(timing.read_records()) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1, "name": "x"}',
        json.dumps({**some().as_dict(), "times": []}).encode(),
        json.dumps({**some().as_dict(), "times": ["x"]}).encode(),
        json.dumps({**some().as_dict(), "device": None}).encode(),
        json.dumps({key: value for key, value in some().as_dict().items() if key != "recorded"}).encode(),
        json.dumps({**some().as_dict(), "recorded": None}).encode(),
        json.dumps({**some().as_dict(), "median": "<"}).encode(),
        json.dumps({**some().as_dict(), "high": float("nan")}).encode(),
        json.dumps({**some().as_dict(), "times": [10**400]}).encode(),
        json.dumps({**some().as_dict(), "low": 10**400}).encode(),
        b"[" * 5000,
    ],
)
def test_lines_that_are_none_are_left_out(line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n\n")
    some().record(path)
    assert len(timing.read_records(path)) == 1
    assert "1 line could not be read" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- comparison


def jittered(name: str, seconds: float, seed: int, count: int = 60, **about: object) -> timing.Measurement:
    chance = random.Random(seed)
    return some(name, tuple(seconds * chance.lognormvariate(0, 0.05) for _ in range(count)), **about)


def test_a_speed_up_has_an_interval_that_holds_the_true_one() -> None:
    held = 0
    for seed in range(100):
        row = timing.compare(jittered("cpu", 0.030, seed), jittered("gpu", 0.010, 1000 + seed)).rows[1]
        assert row.low < row.speedup < row.high
        assert row.differs
        held += row.low <= 3 <= row.high
    assert held >= 88


def test_the_same_numbers_give_the_same_interval_also_from_records(tmp_path: Path) -> None:
    a, b = jittered("cpu", 0.030, 1), jittered("gpu", 0.010, 2)
    for m in (a, b):
        m.record()
    first, again, from_file = timing.compare(a, b), timing.compare([a, b]), timing.compare(*timing.read_records())
    assert first.rows[1].low == again.rows[1].low
    assert from_file.rows[1].low == pytest.approx(first.rows[1].low, rel=1e-6)


def test_another_baseline() -> None:
    a, b = jittered("cpu", 0.030, 1), jittered("gpu", 0.010, 2)
    for baseline in ("gpu", 1, -1):
        found = timing.compare(a, b, baseline=baseline)
        assert found.baseline == 1
        assert found.rows[0].speedup == pytest.approx(1 / 3, rel=0.05)
    for nonsense in ("tpu", 7):
        with pytest.raises(timing.TimingError, match="There are: cpu, gpu"):
            timing.compare(a, b, baseline=nonsense)


def test_no_difference_is_said_to_be_none() -> None:
    found = timing.compare(jittered("one", 0.01, 1), jittered("other", 0.01, 2))
    assert found.rows[1].differs is False
    assert "other: no difference from one can be told." in found.table()


def test_too_few_times_have_no_or_an_honest_interval() -> None:
    one = timing.compare(some("a", (0.2,)), some("b", (0.1,))).rows[1]
    assert one.speedup == 2
    assert one.differs is None
    few = timing.compare(some("a", (0.2, 0.3)), some("b", (0.1, 0.12)))
    assert (few.rows[1].low, few.rows[1].high) == (pytest.approx(0.2 / 0.12), pytest.approx(3.0))
    assert "a: only 2 times, so ± covers 50 %." in few.table()


@pytest.mark.parametrize("about", [{"work": 128}, {"unit": "batches"}, {"work": None}])
def test_different_work_is_not_compared(about: dict[str, object]) -> None:
    with pytest.raises(timing.DifferentWork, match="Measure the same work in both"):
        timing.compare(some("a"), some("b", **about))


def test_times_of_unknown_origin_are_not_compared() -> None:
    handed = timing.from_times("by hand", [0.1, 0.2, 0.3], work=64, unit="images")
    with pytest.raises(timing.Unsynchronised, match="by hand was timed without waiting"):
        timing.compare(some(), handed)
    with pytest.raises(timing.Unsynchronised, match="by hand"):
        timing.compare(some(), handed.as_dict())
    told = timing.from_times("by hand", [0.1, 0.2, 0.3], work=64, unit="images", synchronised=True)
    assert timing.compare(some(), told).rows[1].speedup < 1


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(timing.TimingError, match="two measurements at least; there is 1"):
        timing.compare(some())
    with pytest.raises(timing.TimingError, match="two measurements at least; there is none"):
        timing.compare([])
    with pytest.raises(timing.TimingError, match="neither a measurement nor a recorded one"):
        timing.compare(some(), {"name": "x"})


def test_the_same_name_is_told_apart_by_what_differs() -> None:
    gpu = timing.Device("gpu", "Card", "torch")
    labels = [row.label for row in timing.compare(some(), some(device=gpu)).rows]
    assert labels == ["fit, CPU", "fit, GPU"]
    four, two = some(fingerprint={"threads": 4}), some(fingerprint={"threads": 2})
    assert [row.label for row in timing.compare(four, two).rows] == ["fit, 4 threads", "fit, 2 threads"]
    sizes = [some(parameters={"layers": layers}) for layers in (2, 4)]
    assert [row.label for row in timing.compare(sizes).rows] == ["fit, layers 2", "fit, layers 4"]
    assert [row.label for row in timing.compare(some(), some()).rows] == ["fit (1)", "fit (2)"]


def test_a_table_is_read_by_people() -> None:
    found = timing.compare(jittered("<cpu>", 0.0301, 1), jittered("gpu", 0.0102, 2))
    lines = found.table().splitlines()
    assert re.search(r"time per call\s+throughput\s+speed-up", lines[0])
    assert re.search(r"^<cpu>\s+CPU Some CPU\s+30\.\d ms ± 0\.\d\s+2,1\d0 images/s\s+1 \(baseline\)", lines[2])
    assert re.search(r"gpu .* [23]\.\d\d \(2\.\d\d to [23]\.\d\d\)", lines[3]), lines[3]
    assert "95 % intervals" in lines[-1]
    assert str(found) == found.table()
    assert "&lt;cpu&gt;" in found._repr_html_()
    assert "<cpu>" not in found._repr_html_()


@pytest.mark.parametrize("fast", [0.01, 0.0001])
def test_a_plot_has_units_and_error_bars(fast: float, tmp_path: Path) -> None:
    ax = timing.compare(jittered("cpu", 0.030, 1), jittered("gpu", fast, 2)).plot()
    assert ax.get_xlabel() == "time per call (ms): median, 95 % interval; shorter is faster"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cpu", "gpu"]
    assert ax.get_xscale() == ("linear" if fast == 0.01 else "log")
    assert any(hasattr(container, "has_xerr") and container.has_xerr for container in ax.containers)
    assert ax.texts[0].get_text() == "baseline"
    assert re.fullmatch(r"[\d.]+ ×", ax.texts[1].get_text())
    same = timing.compare(jittered("cpu", 0.030, 1), jittered("gpu", fast, 2)).plot(ax=ax)
    assert same is ax
    ax.figure.savefig(tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("seconds", "spread", "text"),
    [
        (0.0123, 0.0004, "12.3 ms ± 0.4"),
        (0.0123, None, "12.3 ms"),
        (0.5, 0.0001, "500.00 ms ± 0.10"),
        (59.94, 3.0, "60 s ± 3"),
        (0.99996, None, "1.00 s"),
        (999.96e-6, None, "1.00 ms"),
        (1.5e-6, 2e-8, "1.50 µs ± 0.02"),
        (21.4e-9, None, "21.4 ns"),
        (4000.0, None, "4,000 s"),
        (0.0123, 1e-9, "12.300 ms ± 0.001"),
    ],
)
def test_times_have_units_and_sensible_digits(seconds: float, spread: float | None, text: str) -> None:
    assert timing.duration(seconds, spread) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12345.6, "images", "12,300 images/s"),
        (1.234e12, "FLOP", "1.23 TFLOP/s"),
        (2.5e6, "cells", "2.50 M cells/s"),
        (0.5, "epochs", "0.500 epochs/s"),
        (7.0, "", "7.00 /s"),
    ],
)
def test_rates_too(value: float, unit: str, text: str) -> None:
    assert timing.rate(value, unit) == text


def test_the_names_that_notebooks_use_are_there() -> None:
    assert all(hasattr(timing, name) for name in timing.__all__)
    for error in (timing.Unsynchronised, timing.DifferentWork, timing.TooShort):
        assert issubclass(error, timing.TimingError)


def test_it_needs_nothing_to_be_imported() -> None:
    """Neither numpy nor matplotlib before they are needed, and nothing of the launcher."""
    program = (
        "import sys; before = set(sys.modules); import timing; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=NOTEBOOKS, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['timing']"
