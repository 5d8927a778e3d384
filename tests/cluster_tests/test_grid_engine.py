"""A real Grid Engine on the practice cluster: the tests marked ``each_scheduler`` in other files, and more of its own.

Situations that differ from Slurm's are tested as in test_situations.py.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import types
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core import errors
from notebook_launcher.core.package_data import folder
from tests.cluster_tests import in_box, test_bench, test_copy, test_doctor, test_launch, test_run, test_sessions
from tests.cluster_tests.situation import (
    CTRL_C,
    ENTER,
    READY,
    STAND_IN,
    Part,
    Situation,
    When,
    do,
    together,
    venv,
    wait_in,
)
from tests.cluster_tests.situations import LIGHT
from tests.cluster_tests.test_run import lab
from tests.cluster_tests.test_sessions import root
from tests.cluster_tests.test_situations import play
from tests.conftest import PROFILE, Session, assert_nothing_left, clear, write_profile
from tests.practice_cluster import PracticeCluster

__all__ = ["lab", "root"]  # fixtures of the tests that are run again

LAUNCH = in_box.launch
Start = Callable[..., Session]
PEOPLE = ("alice", "ivan", "grace")
BENCH_IN = ("--at-once", "2", "--", "tf-mkl")


@pytest.fixture(scope="module", autouse=True)
def _grid_engine(cluster: PracticeCluster) -> Iterator[None]:
    with cluster.grid_engine():
        for box in ("laptop", "login"):
            for user in PEOPLE:
                write_profile(cluster, box, user, PROFILE.replace('"slurm"', '"gridengine"'))
        yield
    for box in ("laptop", "login"):
        for user in PEOPLE:
            write_profile(cluster, box, user)


def _for_each_scheduler(module: types.ModuleType) -> dict[str, object]:
    """Return the tests of a module that are marked ``each_scheduler``."""
    return {
        name: test
        for name, test in vars(module).items()
        if any(mark.name == "each_scheduler" for mark in getattr(test, "pytestmark", ()))
    }


for _module in (test_sessions, test_run, test_copy, test_bench, test_doctor):
    globals().update(_for_each_scheduler(_module))
# last, because the other modules' tests create the environment `light` themselves
for _name, _test in _for_each_scheduler(test_launch).items():
    globals()[_name] = pytest.mark.usefixtures("_light")(_test)


@pytest.fixture
def alice(cluster: PracticeCluster, _grid_engine: None) -> Iterator[PracticeCluster]:
    """The cluster, for a bench on alice's laptop; what she leaves is removed at the end."""
    yield cluster
    clear(cluster)
    cluster.run("laptop", "alice", ["rm", "-rf", "lab"])


def asked(cluster: PracticeCluster, *words: str) -> tuple[int, str]:
    done = in_box.launcher(cluster, "laptop", "alice", *words)
    return done.returncode, " ".join(f"{done.stdout}{done.stderr}".split())


def test_a_bench_of_two_runs_to_its_end(alice: PracticeCluster) -> None:
    notebook = json.dumps(test_bench.NOTEBOOK).replace("work=SIZE", "work=timing.allotted_cores()")
    test_bench.write(alice, "tiny.ipynb", notebook)
    test_bench.write(alice, "timing.py", (folder("notebooks") / "timing.py").read_text())
    words = ["launch-notebook", "bench", "tiny.ipynb", "--matrix", "cores=1,2", "-t", "5", "--gpus", "0", *BENCH_IN]
    done = alice.run("laptop", "alice", test_bench.in_lab(words), timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(io.StringIO(test_bench.read(alice, "report.csv"))))
    assert [(row["state"], row["cores"], row["work"]) for row in rows] == [
        ("done", cores, f"{cores}.0") for cores in ("1", "2")
    ], rows
    assert all(0 < float(row["run_time_s"]) < 120 for row in rows), rows
    assert_nothing_left(alice)


def test_what_is_free_and_what_would_start(cluster: PracticeCluster) -> None:
    code, told = asked(cluster, "queue")
    assert code == 0 and "all.q" in told and "gpu.q" in told, told
    assert asked(cluster, "when", "-n", "1", "-t", "5")[0] == 0
    code, told = asked(cluster, "when", "-p", "gpu.q", "-t", "60:00:00")
    assert code == errors.SizeRefused.exit_code and "No queue can ever run a job like this" in told, told
    code, told = asked(cluster, "doctor", "--node", "-n", "1", "--gpus", "1", "-t", "5")
    assert code == 0 and "its partitions are all.q, gpu.q" in told and "ran on gpu1" in told, told
    assert cluster.squeue() == []


def test_init_writes_a_profile(cluster: PracticeCluster) -> None:
    code, told = asked(cluster, "init", "login", "--name", "grid", "--probe")
    text = cluster.run("laptop", "alice", ["cat", ".config/notebook-launcher/clusters/grid.toml"], check=True).stdout
    cluster.run("laptop", "alice", ["rm", ".config/notebook-launcher/clusters/grid.toml"], check=True)
    assert code == 0 and 'scheduler = "gridengine" # qconf was found, and no sinfo' in text, told + text
    assert '"gpu.q" = "2-00:00:00"' in text and "[gpu.flags]" in text, text
    assert re.search(r'route = "node-ssh" # open to node[12] in a job', text), told + text
    assert 'command = "apptainer" # command -v on node' in text, text
    assert_nothing_left(cluster)
    # Grid Engine is recognised without a profile, too
    code, told = asked(cluster, "--host", "login", "-n", "1", "-p", "nosuch", "--venv", "~/light")
    assert code == errors.PartitionRefused.exit_code, told


# --- what differs ---------------------------------------------------------------------------------------------------

FULL = "for node in node1 node2; do qsub -b y -pe smp 20 -q all.q@$node -N full -o /dev/null -j y sleep 300; done"


@contextlib.contextmanager
def all_cores_taken(cluster: PracticeCluster) -> Iterator[None]:
    """Let bob's jobs take all slots of the queue on node1 and node2."""
    cluster.run("login", "bob", ["sh", "-c", FULL], check=True)
    wait_in(cluster, "login", "[ $(qstat -u bob -s r | grep -c full) = 2 ]", 60)
    yield
    cluster.run("login", "bob", ["qdel", "-f", "-u", "bob"])


@contextlib.contextmanager
def script_with_100(cluster: PracticeCluster) -> Iterator[None]:
    """Give alice a script with exit code 100, at which Grid Engine puts the job into an error state."""
    write = "printf '#!/bin/bash\\nexit 100\\n' >hundred.sh"
    cluster.run("laptop", "alice", ["sh", "-c", write], check=True)
    yield
    cluster.run("laptop", "alice", ["rm", "-f", "hundred.sh"])


SITUATIONS = (
    Situation(Part.REFUSED, "no such queue", "`-p nosuch`", ("-n", "1", "-p", "nosuch", *LIGHT),
              (r"The partitions are: all.q, gpu.q", r"→ .*-p"), errors.PartitionRefused),
    Situation(Part.ENDS, "exit code 100", "`submit` of a script that ends with it",
              ("submit", "hundred.sh", "-n", "1", "-t", "5"), (r"ended with exit code 100",), errors.JobNeverStarts,
              arranged=script_with_100),
    Situation(Part.REFUSED, "no such project", "`-A nosuch`", ("-n", "1", "-A", "nosuch", *LIGHT),
              (r"no such project", r"→ .*qconf -sprjl"), errors.AccountRefused),
    Situation(Part.REFUSED, "no such resource", "`-C nosuch=1`", ("-n", "1", "-C", "nosuch=1", *LIGHT),
              (r"does not know these resources", r"→ .*qconf -sc"), errors.ConstraintRefused),
    Situation(Part.REFUSED, "a flag without counterpart", "`--qos=high`", ("-n", "1", "--qos=high", *LIGHT),
              (r"On Grid Engine there is nothing like --qos",), errors.UsageError),
    Situation(Part.WAITS, "no free cores", "bob's jobs have all cores of all.q, `-n 2 -p all.q`; they end",
              ("-n", "2", "-p", "all.q", *LIGHT), (r"only 0 cores are free", r"JupyterLab runs on node"), None,
              arranged=all_cores_taken,
              acts=(When("only 0 cores are free", do("login", "qdel -u bob")), ENTER)),
    Situation(Part.WAITS, "held by the user", "`--hold`, then `qrls JOB`",
              ("-n", "1", "--hold", *LIGHT), (r"held.*release.* qrls \d+", r"JupyterLab runs on"), None,
              acts=(When("is held", do("login", "qrls JOB", "alice")), ENTER)),
    Situation(Part.ENDS, "cancelled by an operator", "`qdel JOB` by root, JupyterLab runs",
              ("-n", "1", *LIGHT), (r"not known by whom",), errors.JobCancelled,
              acts=(When(READY, do("login", "qdel JOB")),)),
    Situation(Part.ENDS, "cancelled while it waits", "`qdel JOB` by alice on the login node",
              ("-n", "1", "--hold", *LIGHT), (r"cancelled",), errors.JobCancelled,
              acts=(When("is held", do("login", "qdel JOB", "alice")),)),
    Situation(Part.ENDS, "walltime over", "`-t 0:20`, and nobody ends it",
              ("-n", "1", "-t", "0:00:20", *LIGHT), (r"reached its walltime",), errors.JobTimedOut,
              acts=(When(READY, lambda *_: None),)),
    Situation(Part.INTERRUPTED, "Ctrl-C while it waits", "`-b now+1hour`, Ctrl-C",
              ("-n", "1", "-b", "now+1hour", *LIGHT), (r"Interrupted",), errors.Interrupted,
              acts=(When("waits for its begin time", CTRL_C),)),
    Situation(Part.REFUSED, "no master", "sge_qmaster is away", ("-n", "1", *LIGHT),
              (r"Grid Engine does not answer", r"→ .*again"), errors.SchedulerAway,
              arranged=lambda cluster: cluster.no_qmaster()),
)  # fmt: skip


@pytest.fixture(scope="module")
def _light(cluster: PracticeCluster, _grid_engine: None) -> Iterator[None]:
    with together(venv("light", STAND_IN))(cluster):
        yield


def test_where_nobody_may_connect_to_a_node_the_job_connects(cluster: PracticeCluster, start: Start) -> None:
    """Grid Engine has no job steps, and grace may not log in to nodes, so the job connects (route ``reverse``)."""
    with venv("light", STAND_IN, "grace")(cluster):
        session = start("-n", "1", "--verbose", *LIGHT, user="grace", columns=200)
        session.ready()
        assert re.search(r"Connected to \S+ \(reverse\)", session.printed), session.printed
        session.send("\n")
        assert session.end() == 0, session.printed
    assert_nothing_left(cluster)


@pytest.mark.usefixtures("_light")
def test_the_next_job_waits_for_its_begin_time(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "-t", "8", *LIGHT, columns=200)
    session.ready()
    code, told = asked(cluster, "renew", "--yes", session.session_id)
    queued = re.search(r"The next job is queued: job (\d+); it may run for 8 minutes, from (\d\d:\d\d)", told)
    assert code == 0 and queued, told
    job = cluster.run("login", "alice", ["qstat", "-j", queued[1]], check=True).stdout
    assert re.search(rf"execution_time: .* {queued[2]}:", job), job
    session.read_along()
    session.saw(f"The next job is queued: job {queued[1]}")
    session.send("\n")
    assert session.end() == 0
    assert f"The next job, {queued[1]}, is cancelled as well" in session.printed
    assert_nothing_left(cluster)


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize("situation", [pytest.param(one, id=one.name) for one in SITUATIONS])
def test_a_situation_is_told(cluster: PracticeCluster, start: Start, situation: Situation) -> None:
    play(cluster, start, lambda *_: None, situation)
    assert_nothing_left(cluster)
