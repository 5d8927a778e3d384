"""Settings, cores and threads in ``notebooks/timing.py``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.unit.notebooks.timing_doubles import (
    NOTEBOOKS,
    fake_tensorflow,
    fake_torch,
    timing,
)

pytestmark = pytest.mark.usefixtures("nothing_set")


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
