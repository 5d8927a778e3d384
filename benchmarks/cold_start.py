"""Measures how long JupyterLab takes to start from a slow shared file system, and from a copy on the node's own disk.

    make bench-cold-start            (root; uses the practice cluster, and brings it up if need be; some minutes)

The same JupyterLab is there in three forms: a virtual environment, an unpacked image, and an image file. Each open and
each stat takes 2 ms; reading is as fast as the disk. Before each start, the node's cache is dropped. Each form is
started

- from the slow file system;
- with ``stage = true`` by the first job on a node, which makes the copy (of a folder, from an existing archive);
- by the next job on that node, which uses the copy.

The very first job makes a folder's archive while its JupyterLab runs; that time is printed as well.

The job itself measures from its first line until JupyterLab answers on the node, without the launcher and the queue.
The medians of the rounds are printed, and their ratio to the start without a copy.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from notebook_launcher.core.package_data import job_files
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.slow_storage import MILLISECONDS

NODE = "node1"
SLOW = "/home/alice/cold-start"  # what lies on the slow file system
SESSIONS = "/home/alice/cold-sessions"
FORMS = {
    "virtual environment": f"venv={SLOW}/lab",
    "unpacked image": f"container={SLOW}/jupyterlab.ch",
    "image in one file": f"container={SLOW}/jupyterlab.sif",
}
PLAIN, FIRST, KEPT = "not staged", "first on a node", "next on that node"
# Scripts and pyvenv.cfg name the folder.
PREPARE = f"""\
mkdir -p {SLOW} {SESSIONS}
cp -a /sw/jupyterlab {SLOW}/lab
grep -rlI /sw/jupyterlab {SLOW}/lab/bin {SLOW}/lab/pyvenv.cfg | xargs sed -i 's:/sw/jupyterlab:{SLOW}/lab:g'
cp -a /sw/images/jupyterlab.ch {SLOW}/jupyterlab.ch
cp /sw/images/jupyterlab.sif {SLOW}/jupyterlab.sif
chown -R alice: {SLOW} {SESSIONS}
"""
LONGEST_START = 600.0  # seconds for one start


def measure(cluster: PracticeCluster, form: str, disk: str = "", *, makes_archive: bool = False) -> float:
    """Return the seconds that a job takes from its first line until JupyterLab answers; then it is cancelled.

    ``disk``: where it makes copies, if any. ``makes_archive``: return the seconds until the archive is made instead.
    """
    folder = f"{SESSIONS}/{time.time_ns()}"
    lines = [FORMS[form], "usage=0", *(["stage=yes", f"stage_dir={disk}"] if disk else [])]
    here = cluster.directory / "home" / folder.removeprefix("/home/")
    here.mkdir()
    for name, content in {**job_files(), "session.env": "\n".join([*lines, ""]).encode()}.items():
        (here / name).write_bytes(content)
    cluster.root("login", ["chown", "-R", "alice:", folder], check=True)
    with cluster.slow_files(SLOW, NODE, milliseconds=MILLISECONDS):
        submit = ["sbatch", "--parsable", f"--nodelist={NODE}", f"--output={folder}/job.log", f"{folder}/jupyterlab.sh"]
        job = cluster.run("login", "alice", [*submit, folder], check=True).stdout.strip()
        try:
            seconds = _wait(here)
            return _wait_for_archive(here) if makes_archive else seconds
        finally:
            cluster.run("login", "alice", ["scancel", job])
            while cluster.squeue():
                time.sleep(0.2)


def _wait(session: Path) -> float:
    until = time.monotonic() + LONGEST_START
    began, done, failed = (session / f"{name}.json" for name in ("started", "endpoint", "exit"))
    while not done.exists():
        if failed.exists() or time.monotonic() > until:
            raise SystemExit(f"JupyterLab did not start: {(session / 'job.log').read_text()}")
        time.sleep(0.05)
    return done.stat().st_mtime - began.stat().st_mtime


def _wait_for_archive(session: Path) -> float:
    began, until = time.monotonic(), time.monotonic() + LONGEST_START
    while "copied" not in (session / "job.log").read_text():
        if time.monotonic() > until:
            raise SystemExit(f"No archive was made: {(session / 'job.log').read_text()}")
        time.sleep(0.2)
    return time.monotonic() - began


def forget(cluster: PracticeCluster, disk: str) -> None:
    """Remove the copies from the node."""
    cluster.root(NODE, ["rm", "-rf", f"{disk}/notebook-launcher-stage-2001"], check=True)


def measure_form(cluster: PracticeCluster, form: str, disk: str) -> dict[str, float]:
    """Start one form in each way, once."""
    seconds = {PLAIN: measure(cluster, form)}
    forget(cluster, disk)
    seconds[FIRST] = measure(cluster, form, disk)
    seconds[KEPT] = measure(cluster, form, disk)
    return seconds


def main(rounds: int, forms: list[str], disk: str) -> None:
    """Measure and print."""
    cluster = PracticeCluster()
    cluster.up()
    cluster.root("login", ["rm", "-rf", SLOW, SESSIONS], check=True)
    cluster.root("login", ["sh", "-euc", PREPARE], check=True)
    found: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
    try:
        for form in forms:
            if "file" not in form:
                forget(cluster, disk)
                print(
                    f"{form}: archive and copy after {measure(cluster, form, disk, makes_archive=True):.0f} s",
                    flush=True,
                )
        for _ in range(rounds):
            for form in forms:
                found[form].append(measure_form(cluster, form, disk))
                print(form, {way: round(seconds, 2) for way, seconds in found[form][-1].items()}, flush=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error}: {error.stderr}") from None
    finally:
        cluster.root("login", ["rm", "-rf", SLOW, SESSIONS])
        forget(cluster, disk)
    print(
        f"\nseconds from the job's first line until JupyterLab answers (medians of {rounds}; each open and stat 2 ms)"
    )
    for form, measured in found.items():
        medians = {way: statistics.median(one[way] for one in measured) for way in measured[0]}
        shown = "  ".join(f"{way} {s:6.1f} ({s / medians[PLAIN]:.2f} ×)" for way, s in medians.items())
        print(f"  {form:<20} {shown}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--form", choices=list(FORMS), action="append", help="only this one")
    parser.add_argument("--disk", default="/var/tmp", help="where copies are made; /dev/shm: in memory")
    given = parser.parse_args()
    main(given.rounds, given.form or list(FORMS), given.disk)
