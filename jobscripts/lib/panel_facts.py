"""The session's data for the panel in JupyterLab's page, from the files in its directory and the job's environment.

It does not need JupyterLab, wait or write. Python 3.6 must be able to read it.
"""

import csv
import datetime
import json
import math
import os
from collections import deque
from pathlib import Path

MOST_SAMPLES = 60  # five minutes, with one every 5 s
MOST_BYTES = 64 * 1024  # read of a file at once
LONGEST_TEXT = 300
FAR_AWAY = 10 * 365 * 86400  # seconds: Slurm's end time is later than that if there is no time limit


def session_facts(folder, environ):
    """Return the data of a session; ``None`` for unknown values. Times are seconds since 1970, memory is in MiB.

    ``panel.json`` has the launcher's data on the request, ``environ`` Slurm's variables; a job that was submitted by
    hand has only the latter.
    """
    names = ("panel", "started", "idle", "notice", "next_job")
    requested, started, idle, notice, next_job = (read_object(folder / f"{name}.json") for name in names)
    class_ends = seconds(notice.get("ends"))
    began = number(environ.get("SLURM_JOB_START_TIME")) or seconds(started.get("started"))
    price = number(requested.get("price_per_hour"))
    return {
        "session": folder.name,
        "job": text(started.get("job")),
        "node": text(started.get("node")),
        "partition": text(environ.get("SLURM_JOB_PARTITION")),
        "began": began,
        "walltime": number(requested.get("walltime_seconds")),
        "ends": earlier(end_of(began, requested, environ), class_ends),
        "cores": number(environ.get("SLURM_CPUS_ON_NODE")) or number(requested.get("cores")),
        "memory_mib": memory_of(environ) or number(requested.get("memory_mib")),
        "price": {"per_hour": price, "unit": text(requested.get("unit"))} if price else None,
        "connect": text(requested.get("connect")),
        "bill": text(requested.get("bill")),
        "renew": text(requested.get("renew")),
        "next": {"job": text(next_job.get("job")), "begins": seconds_of_zone(next_job.get("begins"))}
        if text(next_job.get("session"))
        else None,
        "idle": {
            "why": text(idle.get("why")),
            "ends": seconds(idle.get("ends")),
            "message": text(idle.get("message")),
        }
        if idle
        else None,
        "notice": {"message": text(notice.get("message")), "ends": class_ends} if class_ends else None,
    }


def earlier(end, class_ends):
    """Return when the session ends: with its walltime, or earlier with its class."""
    return min(end, class_ends) if end and class_ends else end or class_ends


def end_of(began, requested, environ):
    """Return when the walltime ends, according to the scheduler, or else by the requested walltime."""
    end = number(environ.get("SLURM_JOB_END_TIME"))
    walltime = number(requested.get("walltime_seconds"))
    if not end and began and walltime:
        end = began + walltime
    return end if end and began and end - began < FAR_AWAY else None


def memory_of(environ):
    """Return the memory that Slurm has allocated to the job on this node."""
    whole, cores = number(environ.get("SLURM_MEM_PER_NODE")), number(environ.get("SLURM_CPUS_ON_NODE"))
    each = number(environ.get("SLURM_MEM_PER_CPU"))
    return whole or (each and cores and each * cores)


class Samples:
    """The newest samples in ``usage.csv``, read as it grows."""

    COLUMNS = 10

    def __init__(self, path):
        self.path = path
        self._file, self._rest = None, b""  # the file's inode and read position; an incomplete line
        self._samples = deque(maxlen=MOST_SAMPLES)

    def read(self):
        """Return the samples, the newest last: ``time``, ``cores``, ``memory_mib``, ``gpus``.

        A sample may be incomplete until the next call; it is then the last one.
        """
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                offset = self._file[1] if self._file and self._file[0] == status.st_ino else None
                if offset is None or offset > status.st_size:
                    self._samples.clear()
                    self._rest, offset = b"", max(0, status.st_size - MOST_BYTES)
                offset = max(offset, status.st_size - MOST_BYTES)
                file.seek(offset)
                new = file.read(MOST_BYTES)
                self._file = status.st_ino, offset + len(new)
        except OSError:
            return list(self._samples)
        lines = (self._rest + new).split(b"\n")
        self._rest = lines.pop()[-LONGEST_TEXT:]
        for line in lines:
            for row in csv.reader([line.decode("utf-8", "replace").replace("\0", "")]):
                self._take(row)
        return list(self._samples)

    def _take(self, row):
        at = seconds(row[0]) if len(row) == self.COLUMNS else None
        if at is None:
            return  # the heading, or a damaged line
        if not self._samples or self._samples[-1]["time"] != at:
            self._samples.append({"time": at, "cores": number(row[2]), "memory_mib": number(row[3]), "gpus": []})
        if row[4]:
            self._samples[-1]["gpus"].append(
                {
                    "index": text(row[4]),
                    "name": text(row[5]),
                    "percent": number(row[6]),
                    "memory_mib": number(row[7]),
                    "total_mib": number(row[8]),
                }
            )


# ----------------------------------------------------------------------------------------------- reading values


def read_object(path):
    """Return the object in a JSON file; an empty one if there is none."""
    try:
        with Path(path).open("rb") as file:
            value = json.loads(file.read(MOST_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def number(value):
    """Return a number that is not negative; ``None`` for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and found >= 0 else None


def seconds_of_zone(stamp):
    """Return a time with a zone (``2026-11-21T02:45:00+01:00``) as seconds since 1970."""
    try:
        return datetime.datetime.strptime(stamp[:-3] + stamp[-2:], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (TypeError, ValueError):
        return None


def text(value):
    """Return a string, shortened if too long; ``None`` for anything else, and for an empty one."""
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None


def seconds(stamp):
    """Return a time in the format of the session's files (``2026-11-21T01:45:00Z``) as seconds since 1970."""
    try:
        time = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")
    except (TypeError, ValueError):
        return None
    return time.replace(tzinfo=datetime.timezone.utc).timestamp()
