"""A stand-in for LSF's ``bsub``: runs a job script on this machine, at once, with the variables that LSF sets.

    python3 bsub.py [-n N] [-o FILE] ... <script

Real: the script is read from standard input and run by its own interpreter; ``#BSUB`` lines are parsed as LSF does, and
flags override them; ``%J`` and ``%I``; one run for each index of an array; ``-Q`` requeues a job. Not real: no job
waits, no limit is enforced, and GPUs are only numbers in CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST_JOB = 101
REQUEUES = 3


def options(script: str, flags: list[str]) -> dict[str, str]:
    """Return the options by letter; all options that the scripts use have a value."""
    words = [word for line in re.findall(r"^#BSUB\s+(.*)$", script, re.M) for word in shlex.split(line, comments=True)]
    found: dict[str, str] = {}
    for source in (words, flags):
        if len(source) % 2 or not all(flag.startswith("-") for flag in source[::2]):
            sys.exit(f"bsub: each option has a value here: {source}")
        found.update(zip(source[::2], source[1::2], strict=True))
    return found


def main() -> int:
    script = sys.stdin.read()
    wanted = options(script, sys.argv[1:])
    job = FIRST_JOB
    while Path(f".lsbatch-{job}").exists():
        job += 1
    Path(f".lsbatch-{job}").touch()
    queue = wanted.get("-q", "hpc")
    print(f"Job <{job}> is submitted to queue <{queue}>.", flush=True)
    name, _, indices = wanted.get("-J", "NONAME").partition("[")
    first, _, last = indices.rstrip("]").partition("-")
    codes = [
        run(script, wanted, job, queue, name, index) for index in range(int(first or 0), int(last or first or 0) + 1)
    ]
    return max(codes)


def run(script: str, wanted: dict[str, str], job: int, queue: str, name: str, index: int) -> int:
    cores, host = int(wanted.get("-n", "1")), socket.gethostname()
    gpus = re.search(r"num=(\d+)", wanted.get("-gpu", ""))
    scheduled = ("SLURM_", "PBS_", "SGE_", "JOB_ID")
    env = {key: value for key, value in os.environ.items() if not key.startswith(scheduled)} | {
        **{"LSB_JOBID": str(job), "LSB_JOBINDEX": str(index), "LSB_JOBNAME": name, "LSB_QUEUE": queue},
        **{"LSB_HOSTS": " ".join([host] * cores), "LSB_MCPU_HOSTS": f"{host} {cores}"},
        **{"LSB_DJOB_NUMPROC": str(cores), "LS_SUBCWD": str(Path.cwd()), "LSB_BATCH_JID": str(job)},
    }
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(int(gpus[1]))))
    with tempfile.NamedTemporaryFile("w", suffix=".shell", delete=False) as file:
        file.write(script)
    Path(file.name).chmod(0o700)
    try:
        for _ in range(REQUEUES):
            with output(wanted, "-o", job, index) as out, output(wanted, "-e", job, index, out) as errors:
                code = subprocess.run(
                    [file.name], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
                ).returncode
            if str(code) not in wanted.get("-Q", "").split():
                break
        return code
    finally:
        Path(file.name).unlink()


def output(wanted: dict[str, str], flag: str, job: int, index: int, otherwise: object = None):  # type: ignore[no-untyped-def]
    name = wanted.get(flag)
    if name is None:
        return os.fdopen(os.dup(otherwise.fileno()), "a") if otherwise else Path(f"{job}.out").open("a")  # type: ignore[attr-defined]
    return Path(name.replace("%J", str(job)).replace("%I", str(index))).open("a")


if __name__ == "__main__":
    sys.exit(main())
