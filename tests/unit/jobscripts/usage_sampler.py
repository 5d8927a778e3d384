"""usage.sh at work beside a process that stands for the job's script."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.usage_samples import Sample, read_samples
from tests import paths
from tests.doubles import wait_until
from tests.processes import kill_with_variable

RECORDED = paths.RECORDED / "gpu"


BASH = os.environ.get("NBL_TEST_BASH", "bash")


CGROUPS = Path("/sys/fs/cgroup")


# the variable by which all that a job has started is found again
MARK = "NBL_TEST_SAMPLER"


BUSY = "while True: pass"


IDLE = "import time; time.sleep(600)"


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
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.dir, self.bin, self.notes = self.root / "session", self.root / "bin", self.root / "notes"
        for made in (self.dir, self.bin, self.notes):
            made.mkdir()
        self.said = self.root / "log"
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8"} | self.env

    def job(self, code: str) -> subprocess.Popen[bytes]:
        """Start what stands for the job's script."""
        env = os.environ | {MARK: str(self.root)}
        self.script = subprocess.Popen([sys.executable, "-Sc", code], env=env, start_new_session=True)
        return self.script

    def start(self, seconds: int = 1, job: str = IDLE, keeping: int = 0) -> None:
        """Start it; ``keeping``: how many rows its file may have, in place of the number that it is shipped with."""
        script, program = self.script or self.job(job), job_script("usage.sh")
        if keeping:
            program = shutil.copytree(program.parent, self.root / "lib") / program.name
            text = program.read_text()
            assert text.count("readonly MOST_ROWS=32000") == 1
            program.write_text(text.replace("MOST_ROWS=32000", f"MOST_ROWS={keeping}"))
        with self.said.open("ab") as log:
            self.process = subprocess.Popen(
                [BASH, str(program), str(self.dir), str(seconds), str(script.pid)],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
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

    def samples(self, count: int = 0, seconds: float = 60) -> list[Sample]:
        """The samples, once there are so many."""
        wait_until(lambda: len(read_samples(self.rows())) >= count, seconds, f"{count} samples: {self.rows()}")
        return read_samples(self.rows())

    def end(self) -> str:
        """End the sampler, and return what it has logged."""
        assert self.process is not None
        self.process.terminate()
        return self.log()

    def log(self) -> str:
        """What it has logged, once it has ended."""
        assert self.process is not None
        self.process.wait(20)
        return self.said.read_text()

    def clear(self) -> None:
        """End all that has been started, and what that has started."""
        for pid in self.gpu_programs():
            os.kill(pid, signal.SIGKILL)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        kill_with_variable(MARK, str(self.root))
        for process in (self.script, self.process):
            if process is not None:
                process.wait(20)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


New = Callable[..., Sampler]


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
