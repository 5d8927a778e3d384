"""The rules of ``idle_guard.py``: what counts as use of a session, and when to warn and to end it.

Pure except for reading files: nothing here waits, or ends anything. Python 3.6 must be able to read it.
"""

import csv
import datetime
import json
import os
import re
from collections import namedtuple
from pathlib import Path
from urllib.parse import parse_qs

WARNED_FOR = 300  # seconds from the warning to the end; half of idle_stop if that is less
GPU_WARNED_FOR = 600  # the same for an unused GPU, but at least a minute
CORES_OF_USE = 0.5  # so many busy cores are a computation; an unused JupyterLab needs hundredths

# Automatic requests that change something: JupyterLab saves its layout whenever it has listed the files, every ten
# seconds; jupyterlab-git polls with POST.
POLLS = re.compile(r"/lab/api/workspaces/|/git/")
# Automatic requests of the server and its pages to a kernel: when they connect, or from time to time.
QUIET = frozenset(
    name + "_request" for name in ("kernel_info", "comm_info", "history", "debug", "usage", "interrupt", "shutdown")
)

Notice = namedtuple("Notice", "why since ends message sentence is_over")
Notice.__doc__ = (
    """A warning or an end: why (``unused``, ``gpu``), since when, and when it ends the session, if it does."""
)


# ------------------------------------------------------------------------------------------------------- the decision


class IdleTimer:
    """Decides when to warn and when to end. Times are seconds of a monotonic clock; the caller supplies all facts."""

    def __init__(self, idle_stop, ends_for_gpu, now):
        self.idle_stop = idle_stop
        self.grace = min(WARNED_FOR, idle_stop / 2)
        self.gpu_grace = idle_stop / 2 if idle_stop < 60 else min(GPU_WARNED_FOR, max(60, idle_stop / 2))
        self.ends_for_gpu = ends_for_gpu
        self.used_at = self.busy_at = self.checked_at = now
        self.warned_at = self.gpu_warned_at = None

    def use(self, now):
        """Note that the session is being used."""
        self.used_at = now
        self.warned_at = None

    def check(self, now, busy, gpus=0, gpu_idle_since=None, at_most=60):
        """Return the current notice; ``None`` if there is none.

        ``busy``: whether something runs. ``gpus``, ``gpu_idle_since``: the number of GPUs, and since when all of them
        have been idle (``None``: not known). ``at_most``: seconds between two checks; a longer gap, for instance while
        the job was suspended, does not count as time without use.
        """
        missed = now - self.checked_at
        if missed > at_most:
            self.used_at += missed
            self.warned_at = self.gpu_warned_at = None
        self.checked_at = now
        if busy:
            self.busy_at = now
            self.use(now)
        notices = [notice for notice in (self._unused(now), self._gpu_unused(now, gpus, gpu_idle_since)) if notice]
        return (
            min(notices, key=lambda notice: (not notice.is_over, notice.ends is None, notice.ends or 0))
            if notices
            else None
        )

    def _unused(self, now):
        if now < self.used_at + self.idle_stop - self.grace:
            return None
        if self.warned_at is None:
            self.warned_at = now
        ends = self.warned_at + self.grace
        so_far, left, in_all = in_words(self.idle_stop - self.grace), in_words(self.grace), in_words(self.idle_stop)
        message = f"Nobody has used JupyterLab for {so_far}: the session ends in {left} unless somebody does."
        sentence = f"Nobody used JupyterLab for {in_all}, so the session was ended, as --idle-stop asked."
        return Notice("unused", self.used_at, ends, message, sentence, now >= ends)

    def _gpu_unused(self, now, gpus, since):
        if since is None or now < since + self.idle_stop:
            self.gpu_warned_at = None
            return None
        if self.gpu_warned_at is None:
            self.gpu_warned_at = now
        ends = None
        # Never end while something runs, nor immediately between two cells.
        if self.ends_for_gpu and now - self.busy_at >= min(60, self.gpu_grace / 2):
            ends = max(self.gpu_warned_at, self.busy_at) + self.gpu_grace
        name, have, it, they_are = (
            ("The GPU", "has", "it", "it is") if gpus == 1 else (f"The {gpus} GPUs", "have", "them", "they are")
        )
        in_all, left = in_words(self.idle_stop), in_words(self.gpu_grace)
        so = f"others may wait for {it}" if ends is None else f"the session ends in {left} unless {they_are} used"
        message = f"{name} {have} done nothing for {in_all}: {so}."
        sentence = f"{name} did nothing for {in_all}, so the session was ended, as gpu_idle asked."
        return Notice("gpu", since, ends, message, sentence, ends is not None and now >= ends)


def in_words(seconds):
    """Return a duration in words: “30 minutes”."""
    count = max(1, round(seconds))
    for size, unit in ((3600, "hour"), (60, "minute"), (1, "second")):
        if count % size == 0:
            count //= size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return ""


# ------------------------------------------------------------------------------------------------------ observations


class Kernel:
    """The state of one kernel, from the messages on its IOPub channel.

    Jupyter's own state of a kernel follows the last message: it is “idle” as soon as anything is answered while a long
    cell runs, such as a request on another channel, or a widget in a subshell.
    """

    def __init__(self):
        self.running = set()  # requests that it is executing
        self.stream = None

    def receive(self, frames):
        """Handle one message, and return whether it results from use."""
        start = frames.index(b"<IDS|MSG>") + 2
        header, parent = (json.loads(bytes(frame).decode("utf-8")) for frame in frames[start : start + 2])
        asked = parent.get("msg_type")
        if asked in QUIET:
            return False
        if header["msg_type"] != "status":
            return True
        state = json.loads(bytes(frames[start + 3]).decode("utf-8"))["execution_state"]
        if state == "busy":
            self.running.add(parent.get("msg_id"))
        elif state == "idle":
            self.running.discard(parent.get("msg_id"))
        else:  # it has just been started or restarted
            self.running.clear()
        return bool(asked)

    def close(self):
        """Stop listening."""
        stream, self.stream = self.stream, None
        if stream is not None and not stream.closed():
            stream.close()


def is_use(method, path, query, accept):
    """Whether a request comes from a person's action, rather than from the polling of an open tab."""
    if method not in ("GET", "HEAD", "OPTIONS"):
        return not POLLS.search(path)
    if method != "GET":
        return False
    if "/api/contents/" in path:  # the file browser's listings have no type
        wanted = parse_qs(query)
        return wanted.get("type", [""])[0] in ("file", "notebook") and wanted.get("content", ["1"])[0] != "0"
    return "text/html" in accept or "/files/" in path


SHELLS = frozenset(("sh", "bash", "zsh", "fish", "tcsh", "csh", "ksh", "mksh", "dash", "ash"))


def is_waiting_shell(arguments):
    """Whether a process with these arguments is an interactive shell, not one that runs a script or a command.

    If it is in the foreground of a terminal, it is at its prompt, because it gives every program its own process group.
    """
    if not arguments or Path(arguments[0]).name.lstrip("-") not in SHELLS:
        return False
    rest = arguments[1:]
    while rest:
        if rest[0] in ("--rcfile", "--init-file"):
            rest = rest[2:]
        elif rest[0].startswith("-") and (rest[0].startswith("--") or "c" not in rest[0]):
            rest = rest[1:]
        else:
            return False
    return True


def is_terminal_busy(fd, shell):
    """Whether a program runs in the foreground of a terminal. ``fd``: our end of it; ``shell``: its first process."""
    foreground = os.tcgetpgrp(fd)
    try:
        arguments = Path(f"/proc/{foreground}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return foreground != shell
    return not is_waiting_shell([os.fsdecode(argument) for argument in arguments])


class Usage:
    """Reads ``usage.csv`` as it grows. Its columns are those of ``notebook_launcher/core/usage_samples.py``.

    ``longest``: seconds between two samples; after a longer gap, samples are missing. Times are UTC, in seconds.
    """

    TIME, CORES, GPU, PERCENT, COLUMNS = 0, 2, 4, 6, 10

    def __init__(self, path, longest):
        self.path, self.longest = path, longest
        self.gpus = set()
        self.idle_since = None  # since when all GPUs have been reported idle
        self.sampled_at = None
        self.computed_at = None  # the time of the last sample that shows a computation
        self._offset, self._rest = 0, b""
        self._sample_time, self._rows = None, []

    def read(self):
        """Read new lines."""
        try:
            if self.path.stat().st_size < self._offset:
                self._offset, self._rest = 0, b""
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read(1 << 20)
        except FileNotFoundError:
            return
        self._offset += len(new)
        lines = (self._rest + new).split(b"\n")
        self._rest = lines.pop()
        for line in lines:  # separately, so that a damaged line does not affect others
            for row in csv.reader([line.decode("utf-8", "replace").replace("\0", "")]):
                self._take(row)

    def gpus_idle_since(self, now):
        """Return since when all GPUs have been idle; ``None`` if that is not known right now."""
        is_fresh = self.sampled_at is not None and -self.longest < now - self.sampled_at < self.longest
        return self.idle_since if is_fresh else None

    def _take(self, row):
        if len(row) != self.COLUMNS:
            return
        try:
            sample_time = datetime.datetime.strptime(row[self.TIME] + "+0000", "%Y-%m-%dT%H:%M:%SZ%z").timestamp()
        except ValueError:
            return  # the heading
        if sample_time != self._sample_time:
            self._evaluate()
            self._sample_time, self._rows = sample_time, []
        self._rows.append(row)

    def _evaluate(self):
        """Evaluate a sample whose rows have all been read."""
        if not self._rows:
            return
        if self.sampled_at is not None and self._sample_time <= self.sampled_at:
            return  # read before: the file was thinned out
        last, self.sampled_at = self.sampled_at, self._sample_time
        percents = {row[self.GPU]: number(row[self.PERCENT]) for row in self._rows if row[self.GPU]}
        self.gpus.update(percents)
        is_whole = bool(percents) and set(percents) == self.gpus and None not in percents.values()
        in_a_row = last is not None and self._sample_time - last <= self.longest
        if not is_whole or any(percents.values()):
            self.idle_since = None
        elif self.idle_since is None or not in_a_row:
            self.idle_since = self._sample_time
        if any(percents.values()) or (number(self._rows[0][self.CORES]) or 0) >= CORES_OF_USE:
            self.computed_at = self._sample_time


def number(text):
    """Return a reported number; ``None`` if there is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None
