"""The sampler of a job's use, in a job on the practice cluster."""

from __future__ import annotations

import contextlib
import io
import itertools
import subprocess
import tarfile
from collections.abc import Iterator

from notebook_launcher.core.package_data import job_files
from notebook_launcher.core.usage_samples import GpuSample, Sample, read_samples
from tests.conftest import clear
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.unit.jobscripts.usage_sampler import RECORDED

# In place of JupyterLab: its child process keeps a core busy.
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
    """The watcher reports the use of a busy process and of a GPU; the samplers end when the job is cancelled."""
    with nvidia_smi_on(cluster, "gpu1"):
        try:
            job = submit(cluster)
            argv = cluster.argv("login", "alice", ["bash", "busy/watch.sh", "busy"])
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watch:
                assert watch.stdin is not None and watch.stdout is not None
                samples: list[Sample] = []
                for line in itertools.islice(watch.stdout, 60):  # with the watcher's heartbeats: a minute or two
                    if line.startswith("usage "):
                        samples += read_samples(line.split(" ", 1)[1].split("|"))
                    if len(samples) >= 2 and samples[-1].gpus:
                        break
                watch.stdin.close()
            assert max(sample.cpu_cores or 0 for sample in samples) > 0.05  # low, because the machine is busy
            assert samples[-1].gpus == (GpuSample("0", "NVIDIA A100-SXM4-40GB", 97, 31782, 40960, 384.77),)
            # a sampler that starts a program counts twice until that program is loaded
            wait_until(lambda: len(samplers_of(cluster, "gpu1")) == 2, 30, "there is one of each")
            cluster.run("login", "alice", ["scancel", job], check=True)
            wait_until(lambda: not cluster.squeue(), 30, "the job is gone")
            wait_until(lambda: not samplers_of(cluster, "gpu1"), 30, "they have ended with it")
            log = cluster.run("login", "alice", ["cat", "busy/job.log"]).stdout
            assert "sampling took" in log, log
        finally:
            clear(cluster)
