"""Run a notebook from top to bottom, as a job does: with Jupyter's own executor, and nothing to look at it with.

    NBL_SESSION_DIR=DIR NBL_NOTEBOOK=NAME.ipynb python execute.py

jupyterlab.sh becomes this with ``program=notebook``. It reads ``DIR/input.ipynb`` and writes ``DIR/work/NAME.ipynb``
after every cell, and every few seconds while a cell prints; with ``NBL_NOTEBOOK_TO=script`` it makes
``DIR/work/NAME.py`` and runs that, with its output in ``DIR/work/NAME.out``. ``DIR/progress.json`` tells how far it has
come. At its end it leaves a cause and a sentence in the file that ``NBL_CAUSE_FILE`` names; docs/job-script.md has all
of that.

It runs in whatever Python the user's container has: Python 3.8 must be able to read it, and it needs nothing but
nbformat and nbclient (nbconvert, to make a script), which come with JupyterLab.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
import traceback
import unicodedata
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbclient.util import ensure_async

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

WRITE_EVERY = 5.0  # seconds between two writes of the notebook while a cell runs; NBL_WRITE_SECONDS changes that
WRITE_SHARE = 20  # to write takes at most one such part of the time
KERNEL_ENDS_WITHIN = 3.0  # seconds for a kernel that is to end because the job does
# A kernel finds its ports free before it takes them: of several that start on one node at once, one may come too late.
KERNEL_ATTEMPTS = 3
LATE_OUTPUT = 10  # seconds for which the last outputs of a cell that is done are waited for

# Of what a cell prints, so many characters of its beginning and of its end are kept.
TEXT_KEPT = 2**20
# Of its figures, tables and other outputs, so many, and so many characters of them in all.
OUTPUTS_KEPT, OUTPUT_SIZE_KEPT = 1000, 32 * 2**20

HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*")
COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# what a kernel says of its ports as it starts, and the places of a crash in every thread
ASIDE = re.compile(r'.*IPKernelApp\] WARNING|File ".*", line \d|(Current thread|Thread) 0x|Extension modules:')
ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning|Iteration)\b.*")

#: the first line of a script that was made here: a file of that name without it is somebody else's
SCRIPT_MARK = "# Made by nbconvert from "


class GaveUp(Exception):
    """The run is over, with a cause for exit.json and a sentence that tells it."""

    def __init__(self, cause: str, sentence: str, cell: int | None = None) -> None:
        super().__init__(sentence)
        self.cause, self.sentence, self.cell = cause, sentence, cell


# ------------------------------------------------------------------------------------------------------------- words


def say(text: str) -> None:
    """Write a line into the job's log, as the job script does."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')} notebook-launcher: {text}", file=sys.stderr, flush=True)


def one_line(text: object, most: int = 300) -> str:
    """Return the first line of a text that says something, without colours and control characters."""
    lines = (line.strip() for line in COLOUR.sub("", str(text)).splitlines())
    line = next((line for line in lines if line), "")
    line = "".join(" " if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char for char in line).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it has one."""
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def duration(seconds: float) -> str:
    """Return ``0:42`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """Return ``1 cell``, ``9 cells``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def utc_now() -> str:
    """Return the time as it stands in all of the session's files."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# ------------------------------------------------------------------------------------------- what the notebook holds


class Step(NamedTuple):
    """One code cell: where it stands in the notebook, and the heading above it."""

    index: int
    title: str


def steps_of(notebook: Any) -> list[Step]:
    """Return the code cells that there is something to run in."""
    steps, title = [], ""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            title = last_heading(cell.source) or title
        elif cell.cell_type == "code" and cell.source.strip():
            steps.append(Step(index, title))
    return steps


def last_heading(source: str) -> str:
    """Return the last heading of a Markdown text, as plain words; nothing where it has none."""
    heading, fence = "", ""
    for line in source.splitlines():
        mark = line.strip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and (match := HEADING.fullmatch(line)):
            heading = match[1]
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return one_line(re.sub(r"<[^>]*>|[*`]|\b_+|_+\b", "", heading), 60)


# --------------------------------------------------------------------------------------------------- a cell's outputs


class Printed:
    """What a cell prints, as a terminal would show it: its beginning and, where that is much, its end."""

    def __init__(self, room: int = TEXT_KEPT) -> None:
        self.room = room  # characters of the beginning, and as many of the end
        self.size = 0
        self.left_out = 0
        self._beginning: list[str] = []
        self._end: collections.deque[str] = collections.deque()
        self._end_size = 0
        self._line = ""  # the one that may be written over yet

    def add(self, text: str) -> None:
        """Go on printing."""
        text = self._line + text
        done = text.rfind("\n") + 1
        self._keep("\n".join(map(written_over, text[:done].split("\n"))) if done else "")
        self._line = written_over(text[done:])
        if len(self._line) > self.room:
            self._keep(self._line)
            self._line = ""

    def _keep(self, text: str) -> None:
        space = self.room - self.size
        if space > 0:
            self._beginning.append(text[:space])
            self.size += len(text[:space])
            text = text[space:]
        if not text:
            return
        self.left_out += max(0, len(text) - self.room)
        text = text[-self.room :]
        piece = self.room // 16  # what goes again goes in pieces
        self._end.extend(text[start : start + piece] for start in range(0, len(text), piece))
        self._end_size += len(text)
        while self._end_size - len(self._end[0]) >= self.room:
            gone = len(self._end.popleft())
            self._end_size -= gone
            self.left_out += gone

    def __str__(self) -> str:
        gap = ""
        if self.left_out:
            gap = f"\n[notebook-launcher: {self.left_out / 2**20:.1f} MiB of what this cell has printed are left out]\n"
        return "".join([*self._beginning, gap, *self._end, self._line])


def written_over(line: str) -> str:
    r"""Return what is seen of a line with ``\r`` and ``\b`` in it: progress bars draw themselves again and again."""
    if "\r" in line:
        kept = line.rstrip("\r")
        line = kept.rpartition("\r")[2] + line[len(kept) :]
    if "\b" in line:
        seen: list[str] = []
        for char in line:
            if char != "\b":
                seen.append(char)
            elif seen:
                seen.pop()
        line = "".join(seen)
    return line


class Client(NotebookClient):  # type: ignore[misc]
    """Jupyter's executor, with bounds on what a cell may leave in memory and in the notebook."""

    news = False  # whether there are outputs that have not been written

    def __init__(self, notebook: Any, **settings: Any) -> None:
        super().__init__(notebook, **settings)
        self._printed: list[tuple[Any, Printed]] = []
        self._forget()

    def _forget(self) -> None:
        """Begin with a cell, or anew with its outputs."""
        self._printed = []
        self._outputs = self._output_size = self._left_out = self._left_out_size = 0
        self._notice: Any = None

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Take one message of the kernel."""
        self.news = self.news or msg["msg_type"] not in ("status", "execute_input")
        return super().process_message(msg, cell, cell_index)

    def clear_output(self, outs: Any, msg: Any, cell_index: int) -> None:
        """Forget what a cell has shown, now or with its next output."""
        super().clear_output(outs, msg, cell_index)
        if not outs:
            self._forget()

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        """Take one output: text joins that of its kind before it, the rest comes until it is too much."""
        if self.clear_before_next_output:
            self._forget()
        if self.output_hook_stack[msg["parent_header"].get("msg_id")]:  # a widget shows it
            return super().output(outs, msg, display_id, cell_index)
        if msg["msg_type"] == "stream":
            return self._print(outs, msg, display_id, cell_index)
        size = size_of(msg["content"])
        self._outputs += 1
        self._output_size += size
        if self._outputs > OUTPUTS_KEPT or self._output_size > OUTPUT_SIZE_KEPT:
            if msg["msg_type"] != "error":
                self._outputs -= 1
                self._output_size -= size
                self._leave_out(outs, size)
                return None
            shorten_error(msg["content"])
        return super().output(outs, msg, display_id, cell_index)

    def _print(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        text, msg["content"]["text"] = msg["content"]["text"], ""
        known = len(outs)
        output = super().output(outs, msg, display_id, cell_index)
        # only what is at the end goes on, unless there are very many pieces: a cell that writes on both streams in turn
        mine = [pair for pair in self._printed if pair[0].name == output.name]
        if mine and len(outs) > 1 and (outs[-2] is mine[-1][0] or len(outs) > OUTPUTS_KEPT):
            del outs[known:]
            output, printed = mine[-1]
        else:
            spent = sum(printed.size for _, printed in self._printed)
            printed = Printed(max(TEXT_KEPT - spent, 4096))
            self._printed.append((output, printed))
        printed.add(text)
        return output

    def _leave_out(self, outs: Any, size: int) -> None:
        self._left_out += 1
        self._left_out_size += size
        if self._notice is None:
            self._notice = nbformat.v4.new_output("stream", name="stderr", text="")
            outs.append(self._notice)

    def settle(self) -> None:
        """Put into the notebook what the running cell has printed."""
        for output, printed in self._printed:
            output["text"] = str(printed)
        if self._notice is not None:
            self._notice["text"] = (
                f"[notebook-launcher: {counted(self._left_out, 'further output')} of this cell "
                f"({self._left_out_size / 2**20:.1f} MiB) left out]\n"
            )
        self.news = False

    def begin_cell(self) -> None:
        """Begin with another cell."""
        self._forget()


def size_of(content: Any) -> int:
    """Return about how many characters an output takes."""
    if isinstance(content, dict):
        return sum(map(size_of, content.values()))
    if isinstance(content, (list, tuple)):
        return sum(map(size_of, content))
    return len(content) if isinstance(content, str) else 8


def shorten_error(content: Any) -> None:
    """Keep the end of a traceback that is out of all proportion."""
    content["evalue"] = str(content.get("evalue", ""))[:1000]
    content["traceback"] = ["[notebook-launcher: the beginning of this traceback is left out]"] + [
        str(line)[-1000:] for line in content.get("traceback", [])[-20:]
    ]


# ----------------------------------------------------------------------------------------------------------- the run


class Run:
    """One run: its files, and how far it has come."""

    def __init__(self, environ: Any) -> None:
        self.session = Path(environ["NBL_SESSION_DIR"])
        self.work = self.session / "work"
        name = environ.pop("NBL_NOTEBOOK", "") or "notebook.ipynb"
        self.stem = name[: -len(".ipynb")] if name.endswith(".ipynb") else name
        self.to_script = environ.pop("NBL_NOTEBOOK_TO", "") == "script"
        self.folder = self._choose_folder(environ.pop("NBL_NOTEBOOK_FOLDER", ""))
        self.job = environ.pop("NBL_NOTEBOOK_JOB", "")
        self.place = environ.pop("NBL_NOTEBOOK_PLACE", "this environment")  # where ipykernel should be, and the mend
        self.start_timeout = int(environ.pop("NBL_NOTEBOOK_START_TIMEOUT", "") or 600)
        self.cause_file = Path(environ.pop("NBL_CAUSE_FILE", "") or self.session / "runtime" / "cause")
        self.write_every = float(environ.pop("NBL_WRITE_SECONDS", "") or WRITE_EVERY)
        self.notebook: Any = None
        self.steps: list[Step] = []
        self.done = 0
        self.cell: int | None = None  # the one that runs, counted from 1
        self.failed: int | None = None
        self.error = ""
        self.started = utc_now()
        self.began = time.monotonic()
        self.unwritten = ""  # why the notebook could not be written, the last time

    def _choose_folder(self, wanted: str) -> Path:
        folder = Path(wanted or self.work)
        if folder.is_dir():
            return folder
        say(f"the folder {one_line(folder)} is not there; the notebook runs in {one_line(self.work)}")
        return self.work

    @property
    def result(self) -> Path:
        """Where the notebook goes that was run."""
        return self.work / f"{self.stem}.ipynb"

    def where(self, cell: int) -> str:
        """Return ``4 of 9 (Train)``."""
        title = self.steps[cell - 1].title
        return f"{cell} of {len(self.steps)}{f' ({title})' if title else ''}"

    def read(self) -> None:
        """Read the notebook, without the outputs that it may hold."""
        path = self.session / "input.ipynb"
        try:
            self.notebook = nbformat.read(str(path), as_version=4)
            for cell in self.notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            self.steps = steps_of(self.notebook)
        except FileNotFoundError:
            raise GaveUp("notebook-failed", f"There is no notebook to run: {path} is missing.") from None
        except Exception as error:
            raise GaveUp("notebook-failed", sentence(f"The notebook cannot be read: {one_line(error)}")) from None

    def write(self, state: str = "running") -> None:
        """Write the notebook as it is now. What cannot be written is told, and tried again with the next cell."""
        self.notebook.metadata["notebook_launcher"] = {"job": self.job, "state": state, "cell": self.cell}
        try:
            replace(self.result, nbformat.v4.writes_json(self.notebook) + "\n", self.session / "runtime")
            self.unwritten = ""
        except OSError as error:
            if not self.unwritten:
                say(f"{one_line(self.result)} could not be written: {error.strerror}")
            self.unwritten = error.strerror or str(error)

    def begin(self) -> None:
        """Write progress.json for the first time; the job's script waits for it. Raises ``GaveUp``."""
        try:
            self._write_progress()
        except OSError as error:
            text = f"{self.session / 'progress.json'} cannot be written: {error.strerror}"
            raise GaveUp("session-unusable", sentence(one_line(text, 1000))) from None

    def tell(self) -> None:
        """Write progress.json; a run that has begun does not end where that cannot be done."""
        with contextlib.suppress(OSError):
            self._write_progress()

    def _write_progress(self) -> None:
        progress = {
            "version": 1,
            "job": self.job,
            "cells": len(self.steps),
            "done": self.done,
            "cell": self.cell,
            "title": self.steps[self.cell - 1].title if self.cell else "",
            "started": self.started,
            "updated": utc_now(),
            "failed": self.failed,
            "error": self.error,
        }
        text = json.dumps(progress, ensure_ascii=False, separators=(",", ":")) + "\n"
        replace(self.session / "progress.json", text, self.session / "runtime", mode=0o600)

    def conclude(self, cause: str, text: str) -> None:
        """Leave the cause where the job's script finds it."""
        with contextlib.suppress(OSError):
            replace(self.cause_file, f"{cause} {text}\n", self.session / "runtime", mode=0o600)


def replace(path: Path, text: str, scratch: Path, mode: int = 0o666) -> None:
    """Replace a file at once, so that no reader ever sees half of it. ``scratch``: a folder of the same file system."""
    new = scratch / f"new-{os.getpid()}"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


# --------------------------------------------------------------------------------------------------- cell after cell


class KernelsWords:
    """The last words of the kernel's own process. What a cell prints comes another way; this is how it crashes."""

    MOST = 16384

    def __init__(self) -> None:
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)
        self._heard = b""
        asyncio.get_running_loop().add_reader(self._ear, self._hear)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._ear, 65536)
            if not said:
                asyncio.get_running_loop().remove_reader(self._ear)
            self._heard = (self._heard + said)[-self.MOST :]

    def close_mouth(self) -> None:
        """Leave it to the kernel."""
        os.close(self.mouth)
        self.mouth = -1

    def close(self) -> None:
        """Listen no more."""
        asyncio.get_running_loop().remove_reader(self._ear)
        for end in (self._ear, self.mouth):
            if end >= 0:
                os.close(end)

    def lines(self) -> list[str]:
        """Return the last lines."""
        for _ in range(16):
            self._hear()
        lines = [one_line(line) for line in self._heard.decode("utf-8", "replace").splitlines()]
        return [line for line in lines if line and not ASIDE.match(line)][-8:]


class Cells:
    """The notebook, executed cell after cell."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.client = Client(
            run.notebook,
            kernel_name=choose_kernel(run),
            timeout=None,  # the walltime ends it
            startup_timeout=run.start_timeout,
            iopub_timeout=LATE_OUTPUT,
            log=quiet_logger(),
        )
        self.words = KernelsWords()
        self.oom_kills = oom_kills()

    async def work(self) -> str:
        """Run all cells, and return the sentence on it. Raises ``GaveUp``."""
        keeper = asyncio.ensure_future(self._keep_writing())
        try:
            await self._start_kernel()
            for number, step in enumerate(self.run.steps, 1):
                await self._run_cell(number, step)
        finally:
            keeper.cancel()
        self.run.cell = None
        self.run.tell()
        self.write("finished")
        await self._end_kernel(now=False)
        spent = duration(time.monotonic() - self.run.began)
        return f"The notebook came to its end: {counted(self.run.done, 'cell')} in {spent}."

    async def _start_kernel(self) -> None:
        client, run = self.client, self.run
        for attempt in range(1, KERNEL_ATTEMPTS + 1):
            try:
                answer = await self._start_kernel_once()
                break
            except (RuntimeError, OSError) as error:
                self._repeat_words()
                text = f"The kernel {client.kernel_name} did not start: {one_line(error)}"
                if attempt == KERNEL_ATTEMPTS or "died" not in str(error):
                    raise GaveUp("kernel-died", sentence(text)) from None
                say(f"{sentence(text)} Trying once more")
                await self._end_kernel(now=True)
                self.words.close()
                self.words = KernelsWords()
        if answer and "language_info" in answer["content"]:
            run.notebook.metadata["language_info"] = answer["content"]["language_info"]
        say(f"running {one_line(run.stem)}.ipynb in {one_line(run.folder)}, kernel {client.kernel_name}")

    async def _start_kernel_once(self) -> Any:
        """Start a kernel, and return what it tells of itself. Raises ``RuntimeError`` or ``OSError``."""
        client, words = self.client, self.words
        client.create_kernel_manager()
        await client.async_start_new_kernel(
            cwd=str(self.run.folder), env=self._environ(), stdout=words.mouth, stderr=words.mouth
        )
        words.close_mouth()
        await client.async_start_new_kernel_client()
        return await client.async_wait_for_reply(await ensure_async(client.kc.kernel_info()))

    def _environ(self) -> dict[str, str]:
        """Return the kernel's environment: modules that were sent, which the folder it works in lacks, can be imported.

        The path of the environment goes before that folder, so nothing is put there that it has itself.
        """
        folder, work = self.run.folder, self.run.work
        sent = [] if folder == work else [path.name for path in work.glob("*.py")]
        if not sent or any((folder / name).exists() for name in sent):
            return dict(os.environ)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(work))))
        return {**os.environ, "PYTHONPATH": path}

    async def _run_cell(self, number: int, step: Step) -> None:
        run, client = self.run, self.client
        run.cell = number
        run.tell()
        client.begin_cell()
        began = time.monotonic()
        try:
            await client.async_execute_cell(run.notebook.cells[step.index], step.index, execution_count=number)
        except CellExecutionError as error:
            text = f"{one_line(error.ename)}: {one_line(error.evalue)}".rstrip(": ")
            raise GaveUp("notebook-failed", sentence(f"Cell {run.where(number)} failed: {text}"), number) from None
        except DeadKernelError:
            text = await self._why_dead(number)
            raise GaveUp("kernel-died", text, number) from None
        run.done = number
        self.write()
        title = f", {step.title}" if step.title else ""
        say(f"cell {number} of {len(run.steps)}{title}, {time.monotonic() - began:.0f} s")

    def write(self, state: str = "running") -> None:
        """Write the notebook, with what the running cell has printed so far."""
        self.client.settle()
        with contextlib.suppress(Exception):  # widgets are the least of it
            self.client.set_widgets_metadata()
        self.run.write(state)

    async def _keep_writing(self) -> None:
        pause = self.run.write_every
        while True:
            await asyncio.sleep(pause)
            if self.client.news:
                began = time.monotonic()
                self.write()
                pause = max(self.run.write_every, WRITE_SHARE * (time.monotonic() - began))

    def note(self, text: str) -> None:
        """Leave a word in the notebook, in the cell that runs."""
        if self.run.cell:
            cell = self.run.notebook.cells[self.run.steps[self.run.cell - 1].index]
            cell.outputs.append(
                nbformat.v4.new_output("stream", name="stderr", text=f"\n[notebook-launcher: {text}]\n")
            )

    async def stop(self) -> None:
        """Keep what there is, and end the kernel with all that it has started."""
        self.note("the job was ended while this cell ran")
        self.write("stopped")
        self.run.tell()
        await self._end_kernel(now=True)

    async def give_up(self, error: GaveUp) -> None:
        """Keep what there is of a run that has failed."""
        if error.cause == "kernel-died":
            self.note(error.sentence)
        self.write("failed")
        await self._end_kernel(now=True)

    async def _end_kernel(self, *, now: bool) -> None:
        manager = self.client.km
        if manager is None:
            return
        with contextlib.suppress(Exception):  # the job's script ends what is left
            if await ensure_async(manager.is_alive()):
                ending = ensure_async(manager.shutdown_kernel(now=now))
                await asyncio.wait_for(ending, KERNEL_ENDS_WITHIN if now else None)
        with contextlib.suppress(Exception):
            await ensure_async(manager.cleanup_resources())

    async def _why_dead(self, number: int) -> str:
        """Return in a sentence how the kernel has died."""
        code = await self._exit_status()
        self._repeat_words()
        cell = f"cell {self.run.where(number)}"
        if code == -signal.SIGKILL and oom_kills() > self.oom_kills:
            return f"The kernel was killed in {cell}, because the job's memory was used up: ask for more."
        if code == -signal.SIGKILL:
            return f"The kernel was killed in {cell}, perhaps for want of memory: ask for more."
        if code == 0:
            return f"The kernel ended by itself before {cell} was done: does a cell call exit()?"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"The kernel crashed in {cell} (signal {signal.Signals(-code).name})."
        return f"The kernel died in {cell}{'' if code is None else f' (exit code {code})'}."

    async def _exit_status(self) -> int | None:
        manager = self.client.km
        with contextlib.suppress(Exception):
            if getattr(manager, "provisioner", None) is not None:  # jupyter_client 7 and newer
                return await manager.provisioner.poll()  # type: ignore[no-any-return]
            return manager.kernel.poll()  # type: ignore[no-any-return]
        return None

    def _repeat_words(self) -> None:
        for line in self.words.lines():
            say(f"the kernel said: {line}")


def choose_kernel(run: Run) -> str:
    """Return the kernel that the notebook names, or the plain Python one where that is not here."""
    from jupyter_client.kernelspec import KernelSpecManager

    metadata = run.notebook.metadata
    spec = metadata.get("kernelspec", {})
    wanted = str(spec.get("name") or "python3")
    language = str(spec.get("language") or metadata.get("language_info", {}).get("name") or "python")
    manager, reasons = KernelSpecManager(), []
    for name in dict.fromkeys((wanted, "python3")):
        if name != wanted and language.lower() not in ("python", "ipython"):
            break
        if lack := lacking(manager, name):
            reasons.append(lack)
            continue
        if name != wanted:
            say(f"{reasons[0]}; going on with {name}")
        return name
    reason = reasons[-1]
    raise GaveUp("jupyter-missing", f"There is no kernel to run the notebook: {reason}, in {run.place}.")


def lacking(manager: Any, name: str) -> str:
    """Return what keeps a kernel from being started, or nothing."""
    try:
        program = manager.get_kernel_spec(name).argv[0]
    except Exception:  # there is none of that name, or its file is damaged
        return f"the kernel {one_line(name)} is not installed"
    if shutil.which(str(Path(program).expanduser())) is None:
        return f"the kernel {one_line(name)} starts {one_line(program)}, which is not there"
    return ""


def quiet_logger() -> logging.Logger:
    """Return a logger that lets warnings through, as short lines of the job's log; errors are told otherwise."""
    logger = logging.getLogger("notebook-launcher")
    logger.propagate = False

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.WARNING:
                say(one_line(record.getMessage(), 200))

    logger.handlers = [Handler()]
    return logger


def oom_kills() -> int:
    """Return how often the kernel of the system has killed something of this cgroup for want of memory; 0: not told."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                root = Path("/sys/fs/cgroup", controllers)
                group = root / path.lstrip("/")
                # a scheduler may account for the job some steps above the process
                for folder in (group, *list(group.parents)[:3]):
                    for name in ("memory.events", "memory.oom_control"):
                        with contextlib.suppress(OSError):
                            if match := re.search(r"^oom_kill (\d+)", (folder / name).read_text(), re.M):
                                return int(match[1])
    return 0


# ------------------------------------------------------------------------------------------------------- as a script


class Script:
    """The notebook, made into a script by nbconvert and run by the same Python."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.out = run.work / f"{run.stem}.out"
        self.process: Any = None

    async def work(self) -> str:
        """Run it, and return the sentence on it. Raises ``GaveUp``."""
        run = self.run
        path, text = self._make()
        say(f"running {one_line(path.name)} in {one_line(run.folder)}, its output goes to {one_line(self.out)}")
        environ = {**os.environ, "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"}
        if run.folder != run.work:  # as in a notebook, what lies beside it can be imported
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(run.folder), environ.get("PYTHONPATH"))))
        # IPython where the notebook has %magics, !commands or display(): plain Python does not know these
        needs_ipython = re.search(r"\bget_ipython\(|^\s*display\(", text, re.M) and importlib.util.find_spec("IPython")
        command = [sys.executable, *(("-m", "IPython") if needs_ipython else ()), str(path)]
        with self.out.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, cwd=str(run.folder), env=environ
            )
            code = await self.process.wait()
        if code:
            raise GaveUp("kernel-died" if code < 0 else "notebook-failed", self._why(code))
        run.done = len(run.steps)
        run.tell()
        return f"The notebook came to its end, as a script, in {duration(time.monotonic() - run.began)}."

    def _make(self) -> tuple[Path, str]:
        from nbconvert import ScriptExporter

        run = self.run
        metadata = run.notebook.metadata
        language = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        if str(language or "python").lower() not in ("python", "ipython"):
            text = f"The notebook is in {one_line(language)}, and only one in Python can run as a script."
            raise GaveUp("notebook-failed", text)
        metadata["language_info"] = {"name": "python", "nbconvert_exporter": "python", "file_extension": ".py"}
        text, _ = ScriptExporter().from_notebook_node(run.notebook)
        text = f"{SCRIPT_MARK}{one_line(run.stem)}.ipynb\n{text}"
        path = run.work / f"{run.stem}.py"
        if path.exists() and not self._is_ours(path):  # a module that the notebook imports
            path = run.work / f"{run.stem}-notebook.py"
        replace(path, text, run.session / "runtime")
        return path, text

    def _is_ours(self, path: Path) -> bool:
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(1000).startswith(SCRIPT_MARK)
        return False

    def _why(self, code: int) -> str:
        """Return in a sentence how the script has failed."""
        if code == -signal.SIGKILL:
            return "The script was killed, perhaps for want of memory: ask for more."
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"The script crashed (signal {signal.Signals(-code).name})."
        last = last_error(self.out) or f"exit code {code}, without a word"
        return sentence(f"The notebook failed as a script: {last}")

    async def stop(self) -> None:
        """End the script; what it has printed is written already."""
        if self.process is not None and self.process.returncode is None:
            for end in (self.process.terminate, self.process.kill):
                with contextlib.suppress(ProcessLookupError):
                    end()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.process.wait(), KERNEL_ENDS_WITHIN)
                    break
        self.run.tell()

    async def give_up(self, error: GaveUp) -> None:
        """All there is of it has been written."""


def last_error(path: Path) -> str:
    """Return the line that names the error, of a script's output."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65536))
        lines = COLOUR.sub("", file.read().decode("utf-8", "replace")).splitlines()
        lines = [line.rstrip() for line in lines if line.strip()]
        named = [line for line in lines[-200:] if ERROR_LINE.fullmatch(line) and "Traceback (most recent" not in line]
        return one_line((named or lines[-1:] or [""])[-1])
    return ""


# ------------------------------------------------------------------------------------------------------- the program


async def run_until_stopped(run: Run) -> int:
    """Run the notebook until it ends or a signal comes, and return the exit code."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()
    for number in SIGNALS:
        loop.add_signal_handler(number, lambda number=number: stop.done() or stop.set_result(number))
    job: Cells | Script | None = None
    try:
        run.read()
        run.begin()
        job = Script(run) if run.to_script else Cells(run)
        work = asyncio.ensure_future(job.work())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and work.exception() is not None:
            # some schedulers send a signal to all processes of a job: the kernel may have had it first
            await asyncio.wait({stop}, timeout=0.5)
        if stop.done() and not (work.done() and work.exception() is None):
            await job.stop()
            # at once, and without a word on what the executor was in the middle of
            os._exit(128 + stop.result())
        run.conclude("finished", work.result())
        code = 0
    except Exception as error:
        code = 1
        await give_up(run, job, error if isinstance(error, GaveUp) else broken_off(error))
    if run.unwritten:
        text = f"The notebook ran, but {run.result} could not be written: {run.unwritten}."
        run.conclude("session-unusable", one_line(text, 1000))
        code = 1
    return code


async def give_up(run: Run, job: Cells | Script | None, error: GaveUp) -> None:
    """Keep what there is, and tell why there is no more."""
    run.failed, run.error = error.cell, error.sentence
    if job is not None:
        await job.give_up(error)
    run.tell()
    run.conclude(error.cause, error.sentence)


def broken_off(error: Exception) -> GaveUp:
    """Return what is said of an error that nobody has foreseen; the job's log has all of it."""
    traceback.print_exception(type(error), error, error.__traceback__)
    text = f"What runs the notebook broke off with {type(error).__name__}: {one_line(error)}"
    return GaveUp("jupyter-failed", sentence(text))


def main() -> int:
    """Run what the environment says, and return the exit code."""
    warnings.simplefilter("ignore")
    return asyncio.run(run_until_stopped(Run(os.environ)))


if __name__ == "__main__":
    sys.exit(main())
