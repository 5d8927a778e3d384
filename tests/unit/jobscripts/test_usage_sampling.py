"""usage.sh: what a job uses, measured on real processes and in real cgroups where there are any.

There is no GPU here. A stand-in for nvidia-smi plays what is in tests/recorded/gpu, and the README there says where
that comes from. Set NBL_TEST_BASH to try another bash.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import queue
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from notebook_launcher.core.package_data import job_files
from notebook_launcher.core.usage_samples import COLUMNS, GpuSample, Sample, read_samples
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.watcher import IdleTold, Sampled, Watch
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.conftest import clear, wait_until
from tests.practice_cluster import PracticeCluster
from tests.unit.jobscripts.test_sshd import STAND_IN, Job

JOBSCRIPTS = Path(__file__).parent.parent / "jobscripts"
RECORDED = Path(__file__).parent / "recorded" / "gpu"
BASH = os.environ.get("NBL_TEST_BASH", "bash")
CGROUPS = Path("/sys/fs/cgroup")

BUSY = "while True: pass"
# children that live for a third of a sample each, one after the other
BUSY_IN_CHILDREN = """\
import subprocess, sys
while True:
    subprocess.run([sys.executable, "-Sc", "import time; e = time.time() + 0.3\\nwhile time.time() < e: pass"])
"""
DAEMON = """\
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        open({pid!r}, "w").write(str(os.getpid()))
        while True: pass
    time.sleep(1.5)
    os._exit(0)
os.wait()
time.sleep(600)
"""
BIG = "held = b'x' * (200 << 20); import time; time.sleep(600)"

# Plays a recording as `nvidia-smi -l SECONDS` does, a loop at a time and the last one again and again.
NVIDIA_SMI = """\
#!/bin/bash
printf '%s\\n' "$*" >>{notes}/arguments
printf '%s\\n' "$$" >>{notes}/pids
mapfile -t lines <{recording}
for ((i = 0; ; i = i + {gpus} < ${{#lines[@]}} ? i + {gpus} : i)); do
  printf '%s\\n' "${{lines[@]:i:{gpus}}}"
  sleep 0.5
done
"""


@dataclass
class Sampler:
    """A session directory, a process that stands for the job's script, and usage.sh that looks at it."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    script: subprocess.Popen[bytes] | None = None
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.dir, self.bin, self.notes = self.root / "session", self.root / "bin", self.root / "notes"
        for made in (self.dir, self.bin, self.notes):
            made.mkdir()
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8"} | self.env

    def job(self, code: str) -> subprocess.Popen[bytes]:
        """Start what stands for the job's script."""
        self.script = subprocess.Popen([sys.executable, "-Sc", code], start_new_session=True)
        return self.script

    def start(self, seconds: int = 1, job: str = BUSY) -> None:
        script = self.script or self.job(job)
        self.process = subprocess.Popen(
            [BASH, str(JOBSCRIPTS / "usage.sh"), str(self.dir), str(seconds), str(script.pid)],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def nvidia_smi(self, recording: str, gpus: int) -> None:
        self.tool(
            "nvidia-smi",
            NVIDIA_SMI.format(notes=self.notes, recording=shlex.quote(str(RECORDED / recording)), gpus=gpus),
        )

    def tool(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def noted(self, name: str) -> list[str]:
        path = self.notes / name
        return path.read_text().splitlines() if path.exists() else []

    def gpu_programs(self) -> list[int]:
        """Those that still run."""
        return [int(pid) for pid in self.noted("pids") if is_alive(int(pid))]

    def rows(self) -> list[str]:
        path = self.dir / "usage.csv"
        return path.read_text().splitlines() if path.exists() else []

    def samples(self, count: int = 0, seconds: float = 15) -> list[Sample]:
        """The samples, once there are so many."""
        wait_until(lambda: len(read_samples(self.rows())) >= count, seconds, f"{count} samples: {self.rows()}")
        return read_samples(self.rows())

    def end(self) -> str:
        """End the sampler, and return what it has logged."""
        assert self.process is not None
        self.process.terminate()
        return self.log()

    def log(self) -> str:
        assert self.process is not None
        return self.process.communicate(timeout=5)[1]

    def clear(self) -> None:
        for process in (self.script, self.process):
            if process is not None and process.poll() is None:
                process.kill()
            if process is not None:
                process.wait(5)
        for pid in self.gpu_programs():
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


New = Callable[..., Sampler]


@pytest.fixture
def new(tmp_path: Path) -> Iterator[New]:
    """Make samplers: several at work at the same time, so that nobody waits for one after the other."""
    made: list[Sampler] = []

    def new(**env: str) -> Sampler:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Sampler(folder, env))
        return made[-1]

    yield new
    for sampler in made:
        sampler.clear()


@pytest.fixture
def sampler(new: New) -> Sampler:
    return new()


def used(samples: list[Sample], begun: float) -> float:
    """The processor time in the samples, in seconds, of a sampler that began so many seconds after its job."""
    moments = [begun, *(sample.seconds for sample in samples)]
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    return sum(gap * (sample.cpu_cores or 0) for gap, sample in zip(gaps, samples, strict=True))


def processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def cores(samples: list[Sample]) -> float:
    return used(samples, samples[0].seconds - 1) / len(samples)


# ------------------------------------------------------------------------------------------------ processor, memory


def test_processor_and_memory_of_a_process_and_its_children(sampler: Sampler) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-Sc', {BIG!r}])\n{BUSY}"
    begun = time.time()
    sampler.start(job=code)
    samples = sampler.samples(3)
    assert sampler.script is not None
    script = psutil.Process(sampler.script.pid)
    really = sum(map(processor_time, [script, *script.children()]))
    measured = used(samples, samples[0].seconds - 1)
    # others may use this machine too, so what it got counts; some of it before the first look and after the last
    assert 0.6 * really < measured < really + 0.05
    memory = samples[-1].memory_mib
    assert memory is not None and 200 <= memory < 260
    assert sampler.rows()[0] == ",".join(COLUMNS)
    assert stat.S_IMODE((sampler.dir / "usage.csv").stat().st_mode) == 0o600
    assert abs(samples[0].time.timestamp() - begun) < 4, "in UTC"
    assert abs((samples[-1].seconds - samples[0].seconds) - (len(samples) - 1)) < 0.4, "on a steady grid"


def test_processes_that_come_and_go(new: New, tmp_path: Path) -> None:
    """Children that end within a sample, a daemon that leaves its parent and its session, a name that is none."""
    brief, daemon, odd = new(), new(), new()
    pid, program = tmp_path / "pid", tmp_path / ") R 1 1 (x\n) S"
    shutil.copy("/bin/sleep", program)
    brief.start(job=BUSY_IN_CHILDREN)
    daemon.start(job=DAEMON.format(pid=str(pid)))
    odd.start(job=f"import subprocess; subprocess.Popen([{str(program)!r}, '20']); import time; time.sleep(600)")
    try:
        samples = brief.samples(3)
        assert brief.script is not None and daemon.script is not None
        times = psutil.Process(brief.script.pid).cpu_times()
        really = times.user + times.system + times.children_user + times.children_system
        measured = used(samples, samples[0].seconds - 1)
        assert 0.5 * really < measured < really + 0.7, "what has ended is not lost, nor counted twice"
        process, before = psutil.Process(int(pid.read_text())), daemon.samples(3)
        assert daemon.script.pid not in {above.pid for above in process.parents()}
        really = -processor_time(process)
        samples = daemon.samples(len(before) + 2)
        really += processor_time(process)
        assert used(samples[len(before) :], samples[len(before) - 1].seconds) > 0.4 * really
        assert odd.samples(3)[-1].cpu_cores is not None and odd.samples()[-1].memory_mib
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_it_ends_with_the_job_and_says_what_it_cost(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start(60)
    wait_until(sampler.gpu_programs, 5, "nvidia-smi runs")
    assert sampler.script is not None and sampler.process is not None
    sampler.script.kill()  # and it is not waited for: it lingers on, dead
    log = sampler.log()
    assert sampler.process.returncode == 0
    assert "usage.csv has 0 more samples; sampling took " in log and "% of one core" in log
    assert sampler.gpu_programs() == []


def test_it_ends_at_once_when_it_is_told_to(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start(3600)
    wait_until(sampler.gpu_programs, 5, "nvidia-smi runs")
    begun = time.monotonic()
    assert "sampling took" in sampler.end()
    assert time.monotonic() - begun < 0.8
    assert sampler.gpu_programs() == []


def test_a_killed_sampler_leaves_no_nvidia_smi(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start()
    wait_until(sampler.gpu_programs, 5, "nvidia-smi runs")
    assert sampler.process is not None
    sampler.process.kill()
    wait_until(lambda: not sampler.gpu_programs(), 3, "it is ended by its next word")


def test_a_second_run_goes_on_in_the_same_file(sampler: Sampler) -> None:
    """As after a requeue; the first one was killed while it wrote."""
    whole = "2026-11-21T01:44:55Z,5.0,0.50,100,,,,,,"
    (sampler.dir / "usage.csv").write_text(f"{','.join(COLUMNS)}\n{whole}\n{whole[:30]}")
    sampler.start()
    samples = sampler.samples(2)
    assert (samples[0].seconds, samples[0].cpu_cores) == (5.0, 0.5)
    assert sampler.rows()[:3] == [",".join(COLUMNS), whole, whole[:30]]
    assert sum(row.startswith("time,") for row in sampler.rows()) == 1


def test_the_file_does_not_grow_for_ever(sampler: Sampler) -> None:
    def row(number: int, gpu: int) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_800_000_000 + number))
        cores, memory, percent = {4001: ("3.75", 100, 50), 5001: ("0.50", 900, 99 * gpu)}.get(number, ("0.50", 100, 50))
        return f"{stamp},{number}.0,{cores},{memory},{gpu},NVIDIA A100,{percent},1,2,3.0\n"

    file = sampler.dir / "usage.csv"
    file.write_text(",".join(COLUMNS) + "\n" + "".join(row(n, gpu) for n in range(15999) for gpu in (0, 1)))
    sampler.start()
    wait_until(lambda: file.read_bytes().count(b"\n") < 25000, 15, "rows are left out")
    samples = read_samples(sampler.rows())
    assert 19_000 < len(sampler.rows()) < 21_000
    assert all(len(sample.gpus) == 2 for sample in samples[:-5]), "whole samples"
    assert [s.seconds for s in samples[:3]] == [0, 2, 4], "of the old ones every other"
    assert (max(s.cpu_cores or 0 for s in samples), max(s.memory_mib or 0 for s in samples[:-5])) == (3.75, 900), (
        "peaks stay"
    )
    assert max(gpu.percent or 0 for s in samples for gpu in s.gpus) == 99
    assert samples[7000].seconds - samples[6999].seconds == 1, "of the new ones all"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(sampler.dir.glob("*.new*"))


def test_where_nothing_can_be_written(sampler: Sampler) -> None:
    (sampler.dir / "usage.csv").mkdir()
    sampler.start()
    assert "is not sampled: " in sampler.log()


# ----------------------------------------------------------------------------------------------------------- cgroups


@pytest.fixture
def job_cgroups() -> Iterator[Callable[..., list[Path]]]:
    """Make real cgroups as Slurm does, for job 4242."""
    made: list[Path] = []

    def make(*controllers: str) -> list[Path]:
        for controller in controllers:
            top = CGROUPS / controller
            if os.geteuid() != 0 or not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
                pytest.skip(f"there is no cgroup {top} to make one in")
            place = top / f"nbl_test_{os.getpid()}" / "job_4242" / "step_batch"
            place.mkdir(parents=True)
            made.append(place)
        return made[-len(controllers) :]

    yield make
    for place in made:
        for pid in map(int, (place / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in (place, place.parent, place.parent.parent):
            with_patience = time.monotonic() + 5
            while time.monotonic() < with_patience:
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def joined(sampler: Sampler, places: list[Path]) -> psutil.Process:
    """Start a job's script that sleeps in these cgroups, and beside it what is busy there and no child of it."""
    joins = "".join(f"open({str(place / 'cgroup.procs')!r}, 'w').write(str(os.getpid()));" for place in places)
    script = sampler.job(f"import os, time; {joins} time.sleep(600)")
    wait_until(lambda: "job_4242" in Path(f"/proc/{script.pid}/cgroup").read_text(), 5, "it has moved")
    beside = subprocess.Popen([sys.executable, "-Sc", f"import os; {joins} held = b'x' * (100 << 20)\n{BUSY}"])
    sampler.start()
    return psutil.Process(beside.pid)


def test_the_jobs_own_cgroup_counts(new: New, job_cgroups: Callable[..., list[Path]]) -> None:
    """What the scheduler counts is seen, also where it is no child of the job's script; the node's is not."""
    first, second = new(SLURM_JOB_ID="4242"), new(SLURM_JOB_ID="4242")
    other, node = new(SLURM_JOB_ID="42"), new()
    beside_first = joined(first, job_cgroups("cpuacct", "memory"))
    beside_second = joined(second, job_cgroups("unified"))
    for sampler in (other, node):
        sampler.script = first.script
        sampler.start()
    for sampler, beside in ((first, beside_first), (second, beside_second)):
        samples = sampler.samples(3)
        really = processor_time(beside)
        assert 0.4 * really < used(samples, samples[0].seconds - 1) < really + 0.5
    memory = first.samples()[-1].memory_mib
    assert memory is not None and 100 <= memory < 150
    memory = second.samples()[-1].memory_mib
    assert memory is not None and memory < 50, "none is accounted there, so it is that of the job's processes"
    for sampler in (other, node):
        assert cores(sampler.samples(2)) < 0.1


# -------------------------------------------------------------------------------------------------------------- GPUs


def gpus_of(sampler: Sampler, wanted: Callable[[Sample], object]) -> tuple[GpuSample, ...]:
    wait_until(lambda: any(map(wanted, read_samples(sampler.rows()))), 10, f"GPUs in {sampler.rows()}")
    return next(filter(wanted, read_samples(sampler.rows()))).gpus


def test_what_gpus_tell(new: New) -> None:
    two, odd, divided, amd = new(), new(), new(), new()
    two.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    odd.nvidia_smi("nvidia-smi-odd.csv", 8)
    divided.nvidia_smi("nvidia-smi-mig.csv", 2)
    amd.tool("rocm-smi", f"#!/bin/bash\ncat {shlex.quote(str(RECORDED / 'rocm-smi.csv'))}\n")
    for sampler in (two, odd, divided, amd):
        sampler.start(job="import time; time.sleep(600)")
    gpus = gpus_of(two, lambda sample: sample.gpus and sample.gpus[0].percent == 100)
    assert gpus[0] == GpuSample("0", "NVIDIA A100-SXM4-40GB", 100, 31782, 40960, 398.02)
    assert [gpu.index for gpu in gpus] == ["0", "1"]
    assert two.noted("arguments") == [
        "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,power.draw --format=csv,noheader,nounits -l 1"
    ], "one that runs all the time"
    assert gpus_of(odd, lambda sample: len(sample.gpus) == 4) == (
        GpuSample("0", "GeForce GTX 960", None, 412, 2002, None),
        GpuSample("1", "Tesla T4", None, None, 15360, None),
        GpuSample("2", "Made  by hand   or   worse", 12, 100, 200, 9.5),
        GpuSample("4", "NVIDIA GB10", 41, None, None, 10.22),
    )
    assert not any(set(row) & set('"|[]') for row in odd.rows())
    first, second = gpus_of(divided, lambda sample: len(sample.gpus) == 2)
    assert (first.percent, first.memory_mib, first.watts) == (None, 13241, 118.9)
    assert (second.percent, second.memory_mib) == (None, None)
    # never tried on a real card: the output is composed, as the README beside it says
    first, second = gpus_of(amd, lambda sample: len(sample.gpus) == 2)
    assert first == GpuSample("0", "AMD INSTINCT MI250 (MCM) OAM AC MBA", 88, 32768, 65520, 237)
    assert (second.percent, second.watts) == (12, None)


UUID = "GPU-10fb0fbd-2696-43f3-467f-d280d906a107"
PART = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
WHOSE: list[tuple[dict[str, str], str | None]] = [
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1,3", "SLURM_JOB_GPUS": "5,7"}, "-i 1,3"),
    ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "5"}, "-i 5"),
    ({"CUDA_VISIBLE_DEVICES": UUID}, f"-i {UUID}"),
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": PART}, "-l 1"),
    ({}, "-l 1"),
    # others on the node may have some; they are no business of such a job's
    ({"SLURM_JOB_ID": "7"}, None),
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
    ({"CUDA_VISIBLE_DEVICES": ""}, None),
]


def test_only_the_jobs_gpus_are_looked_at(new: New) -> None:
    samplers = [(new(**variables), asked) for variables, asked in WHOSE]
    for sampler, _ in samplers:
        sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
        sampler.start(job="import time; time.sleep(600)")
    for sampler, asked in samplers:
        sampler.samples(1)
        if asked is None:
            assert sampler.noted("arguments") == [] and sampler.samples()[-1].gpus == (), sampler.env
        else:
            wait_until(lambda one=sampler: one.noted("arguments"), 5, "nvidia-smi runs")
            assert sampler.noted("arguments")[0].endswith(asked), sampler.env


BROKEN = {
    "exec yes 'GPU 0: all is well'": "talks nonsense",
    "exec cat /dev/zero": "",
    "exec tr '\\0' x </dev/zero": "talks nonsense",
    "echo 'No devices were found'; exit 6": "has ended",
    "echo '0, NVIDIA A100, 1, 2, 3, 4'": "has ended",
    "trap '' TERM; printf '0, Half a l'; exec sleep 600": "",
}


def test_a_broken_nvidia_smi_disturbs_nobody(new: New) -> None:
    samplers = [(new(), program, said) for program, said in BROKEN.items()]
    for sampler, program, _ in samplers:
        sampler.tool("nvidia-smi", f"#!/bin/bash\nprintf '%s\\n' $$ >>{sampler.notes}/pids\n{program}\n")
        sampler.start(job="import time; time.sleep(600)")
    for sampler, program, said in samplers:
        samples = sampler.samples(3)
        assert samples[2].seconds - samples[0].seconds < 3, program
        assert samples[2].cpu_cores is not None and samples[2].gpus == (), program
        log = sampler.end()
        assert said in log and "sampling took" in log, (program, log)
        assert len(sampler.noted("pids")) == 1, "it is not tried again at once"
        assert sampler.gpu_programs() == []


# ----------------------------------------------------------------------------------------------------- over the watch


def heard(inbox: queue.SimpleQueue[object], kind: type[Any], seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        item = inbox.get(timeout=max(0.01, deadline - time.monotonic()))
        if isinstance(item, kind):
            return item


def test_the_launcher_hears_of_it(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start()
    shutil.copy(JOBSCRIPTS / "watch.sh", sampler.dir)
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    host = LocalHost()
    watch = Watch(host, Slurm(), JobRef("7"), str(sampler.dir), inbox)
    watch.start()
    try:
        sample = heard(inbox, Sampled).sample
        assert sample.cpu_cores is not None and sample.cpu_cores > 0.2
        while len(sample.gpus) != 2:
            sample = heard(inbox, Sampled).sample
        (sampler.dir / "idle.json").write_text('{"version":1,"since":"2026-11-21T01:44:55Z"}\n')
        assert heard(inbox, IdleTold).data == {"version": 1, "since": "2026-11-21T01:44:55Z"}
        (sampler.dir / "idle.json").unlink()
        assert heard(inbox, IdleTold).data is None
    finally:
        watch.close()
        host.close()


# ------------------------------------------------------------------------------------------ with the job's script


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    job.tool("jupyter-lab", STAND_IN)
    job.tool("nvidia-smi", "#!/bin/bash\nwhile :; do echo '0, NVIDIA T4, 1, 2, 3, 4'; sleep 0.5; done\n")
    yield job
    job.end()


def niceness(job: Job) -> set[int]:
    found = set()
    for process in job.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if any("usage.sh" in word for word in process.cmdline()):
                found.add(process.nice())
    return found


def beside(job: Job) -> list[str]:
    return [command for command in job.commands() if "usage.sh" in command or "nvidia-smi" in command]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_job_starts_it_and_leaves_none(job: Job, how: signal.Signals) -> None:
    job.ask("usage=1")
    job.start()
    job.endpoint()
    wait_until(lambda: len(beside(job)) == 2, 5, "both run")
    assert niceness(job) == {10}
    job.send(how)
    if how == signal.SIGTERM:
        assert job.exit()["cause"] == "stopped"
        assert job.processes() == []
    else:
        wait_until(lambda: not beside(job), 4, "it has noticed")
    assert "sampling took" in job.log.read_text()


@pytest.mark.parametrize(("asked", "runs"), [("usage=0", False), ("usage=3601", True), ("usage=$(id)", True)])
def test_what_may_be_asked(job: Job, asked: str, runs: bool) -> None:
    job.ask(asked)
    job.start()
    job.endpoint()
    assert bool(beside(job)) == runs
    assert ("is neither 0 nor a number of seconds" in job.log.read_text()) == runs


# ------------------------------------------------------------------------------------------------ a job under Slurm

# In place of JupyterLab: what counts here is that a child of it is busy.
BUSY_LAB = "#!/bin/bash\npython3 -Sc 'while True: pass' &\nwait\n"
SUBMIT = """\
rm -rf busy && mkdir -p busy/bin && tar -xf - -C busy && chmod 755 busy/bin/jupyter-lab &&
printf 'usage=1\\npath=%s/busy/bin\\n' "$HOME" >busy/session.env &&
sbatch --parsable --gpus=1 --output=busy/job.log busy/jupyterlab.sh ~/busy
"""


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def submit(cluster: PracticeCluster) -> str:
    files = {**job_files(), "bin/jupyter-lab": BUSY_LAB.encode()}
    argv = cluster.argv("login", "alice", ["bash", "-c", SUBMIT])
    done = subprocess.run(argv, input=archive(files), capture_output=True, check=True)
    return done.stdout.decode().strip()


def samplers_of(cluster: PracticeCluster, node: str) -> list[str]:
    return [args for _, _, args in cluster.processes(node) if "usage.sh" in args or "nvidia-smi" in args]


@contextlib.contextmanager
def nvidia_smi_on(cluster: PracticeCluster, node: str) -> Iterator[None]:
    line = (RECORDED / "nvidia-smi-two-a100.csv").read_text().splitlines()[2]
    loop = f"#!/bin/bash\nwhile :; do echo '{line}'; sleep 1; done\n"
    place = "/usr/local/bin/nvidia-smi"
    cluster.root(node, ["sh", "-c", f"cat >{place} && chmod 755 {place}"], input=loop, check=True)
    try:
        yield
    finally:
        cluster.root(node, ["rm", "-f", place])


def test_a_job_under_slurm(cluster: PracticeCluster) -> None:
    """A busy child of what stands for JupyterLab is seen over the watch; the job is cancelled, and nothing is left."""
    with nvidia_smi_on(cluster, "gpu1"):
        try:
            job = submit(cluster)
            argv = cluster.argv("login", "alice", ["bash", "busy/watch.sh", "busy"])
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watch:
                assert watch.stdin is not None and watch.stdout is not None
                told = [line for line in itertools.islice(watch.stdout, 10) if line.startswith("usage ")]
                watch.stdin.close()
            samples = [sample for line in told for sample in read_samples(line.split(" ", 1)[1].split("|"))]
            assert len(samples) >= 2, told
            assert max(sample.cpu_cores or 0 for sample in samples) > 0.2
            assert samples[-1].gpus == (GpuSample("0", "NVIDIA A100-SXM4-40GB", 97, 31782, 40960, 384.77),)
            assert len(samplers_of(cluster, "gpu1")) == 2
            cluster.run("login", "alice", ["scancel", job], check=True)
            wait_until(lambda: not cluster.squeue(), 30, "the job is gone")
            assert samplers_of(cluster, "gpu1") == []
            log = cluster.run("login", "alice", ["cat", "busy/job.log"]).stdout
            assert "sampling took" in log, log
        finally:
            clear(cluster)
