"""Run a notebook from top to bottom in a job, with Jupyter's own executor and without a server.

    NBL_SESSION_DIR=DIR NBL_NOTEBOOK=NAME.ipynb python execute.py

jupyterlab.sh runs this with ``program=notebook``. It reads ``DIR/input.ipynb`` and writes ``DIR/work/NAME.ipynb`` after
every cell, and every few seconds while a cell prints; with ``NBL_NOTEBOOK_TO=script`` it makes ``DIR/work/NAME.py`` and
runs that, with its output in ``DIR/work/NAME.out``. ``DIR/progress.json`` has the progress. At the end it writes a
cause and a sentence to the file named by ``NBL_CAUSE_FILE``; see docs/job-script.md.

It runs in any Python that the user's container has: Python 3.8 must be able to read it, and it needs only nbformat and
nbclient (and nbconvert, to make a script), which are installed with JupyterLab.
"""

# ruff: noqa: E402 - slow parts of later imports are disabled first
from __future__ import annotations

import os
import sys


def begin_imports() -> Any:
    """Use the import cache of an earlier run (``import_cache.py``), if the job names a file for it."""
    file, folder = os.environ.pop("NBL_IMPORTS", ""), os.path.realpath(__file__).rpartition("/")[0]
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != folder]
    if not file:
        return None
    try:
        sys.path.insert(0, folder)
        try:
            import import_cache
        finally:
            del sys.path[0]
        return import_cache.Imports(file)
    except Exception:  # no reason not to run
        return None


imports = begin_imports()

import asyncio
import atexit
import contextlib
import json
import re
import secrets
import shutil
import signal
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

# jsonschema, which nbformat uses, would build 38 grammars with this library at each start, for two formats that no
# notebook uses; that takes seconds. Without the library, jsonschema skips these formats.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import nbformat
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbclient.util import ensure_async

# The other modules are beside this file.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from execute_common import KERNEL_ENDS_WITHIN, GaveUp, counted, duration, one_line, replace, say, sentence, utc
from execute_html import make_html
from execute_kernel import KernelStderr, choose_kernel, oom_kills
from execute_outputs import Client, LineFile, quiet_logger
from execute_script import Script

del sys.path[0]

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

WRITE_EVERY = 5.0  # seconds between two writes of the notebook while a cell runs; NBL_WRITE_SECONDS changes that
WRITE_SHARE = 20  # writing takes at most 1/20 of the time
# A kernel checks that its ports are free before it opens them: if several start on a node at once, one may be too late.
KERNEL_ATTEMPTS = 3
LATE_OUTPUT = 10  # seconds to wait for the last outputs of a finished cell


SETS_PARAMETERS = "injected-parameters"  # papermill's tag of the cell that sets the parameters
HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*")


# ---------------------------------------------------------------------------------------------- the notebook's cells


class Step(NamedTuple):
    """One code cell: its index in the notebook, the heading above it, and its number among the user's own cells.

    ``number``: from 1; ``None`` for the cell that sets the parameters, which is not the user's.
    """

    index: int
    title: str
    number: int | None


def steps_of(notebook: Any) -> list[Step]:
    """Return the code cells that are not empty."""
    steps, title, count = [], "", 0
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            title = last_heading(cell.source) or title
        elif cell.cell_type == "code" and cell.source.strip():
            is_own = SETS_PARAMETERS not in cell.metadata.get("tags", ())
            count += is_own
            steps.append(Step(index, title, count if is_own else None))
    return steps


def last_heading(source: str) -> str:
    """Return the last heading of a Markdown text as plain text; "" if it has none."""
    heading, fence = "", ""
    for line in source.splitlines():
        mark = line.strip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and (match := HEADING.fullmatch(line)):
            heading = match[1]
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return one_line(re.sub(r"<[^>]*>|[*`]|\b_+|_+\b", "", heading), 60)


# ----------------------------------------------------------------------------------------------------------- the run


class Run:
    """One run: its files, and its progress."""

    def __init__(self, environ: Any) -> None:
        self.session = Path(environ["NBL_SESSION_DIR"])
        self.work = self.session / "work"
        name = environ.pop("NBL_NOTEBOOK", "") or "notebook.ipynb"
        self.stem = name[: -len(".ipynb")] if name.endswith(".ipynb") else name
        self.to_script = environ.pop("NBL_NOTEBOOK_TO", "") == "script"
        self.folder = self._choose_folder(environ.pop("NBL_NOTEBOOK_FOLDER", ""))
        self.wants_html = environ.pop("NBL_NOTEBOOK_HTML", "") == "yes" and not self.to_script
        self.job = environ.pop("NBL_NOTEBOOK_JOB", "")
        self.place = environ.pop("NBL_NOTEBOOK_PLACE", "this environment")  # where ipykernel belongs, and the hint
        self.kernel_folder = environ.pop("NBL_KERNEL_FOLDER", "")  # for its sockets
        self.start_timeout = int(environ.pop("NBL_NOTEBOOK_START_TIMEOUT", "") or 600)
        self.cause_file = Path(environ.pop("NBL_CAUSE_FILE", "") or self.session / "runtime" / "cause")
        self.write_every = float(environ.pop("NBL_WRITE_SECONDS", "") or WRITE_EVERY)
        self.notebook: Any = None
        self.steps: list[Step] = []
        self.own: list[Step] = []  # without the cell that sets the parameters
        self.done = 0
        self.cell: int | None = None  # the running one, from 1
        self.failed: int | None = None
        self.error = ""
        self.started = int(time.time())
        self.began = time.monotonic()
        self.seconds = 0  # the run's duration: from the start, including the kernel's, to the last report
        self.unwritten = ""  # why the last attempt to write the notebook failed

    def _choose_folder(self, wanted: str) -> Path:
        folder = Path(wanted or self.work)
        if folder.is_dir():
            return folder
        say(f"the folder {one_line(folder)} is not there; the notebook runs in {one_line(self.work)}")
        return self.work

    @property
    def result(self) -> Path:
        """The path of the executed notebook."""
        return self.work / f"{self.stem}.ipynb"

    def where(self, cell: int) -> str:
        """Return ``4 of 9 (Train)``."""
        title = self.own[cell - 1].title
        return f"{cell} of {len(self.own)}{f' ({title})' if title else ''}"

    def read(self) -> None:
        """Read the notebook without its outputs."""
        path = self.session / "input.ipynb"
        try:
            self.notebook = nbformat.read(str(path), as_version=4)
            for cell in self.notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            self.steps = steps_of(self.notebook)
            self.own = [step for step in self.steps if step.number]
        except FileNotFoundError:
            raise GaveUp("notebook-failed", f"There is no notebook to run: {path} is missing.") from None
        except Exception as error:
            raise GaveUp("notebook-failed", sentence(f"The notebook cannot be read: {one_line(error)}")) from None

    def write(self, state: str = "running") -> None:
        """Write the notebook as it is now. A failure is reported, and writing is tried again with the next cell."""
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
        """Write progress.json; a failure does not end the run."""
        with contextlib.suppress(OSError):
            self._write_progress()

    def _write_progress(self) -> None:
        self.seconds = round(time.monotonic() - self.began)
        progress = {
            "version": 1,
            "job": self.job,
            "cells": len(self.own),
            "done": self.done,
            "cell": self.cell,
            "title": self.own[self.cell - 1].title if self.cell else "",
            "started": utc(self.started),
            "updated": utc(self.started + self.seconds),
            "failed": self.failed,
            "error": self.error,
        }
        text = json.dumps(progress, ensure_ascii=False, separators=(",", ":")) + "\n"
        replace(self.session / "progress.json", text, self.session / "runtime", mode=0o600)

    def conclude(self, cause: str, text: str) -> None:
        """Write the cause to the file that the job's script reads."""
        with contextlib.suppress(OSError):
            replace(self.cause_file, f"{cause} {text}\n", self.session / "runtime", mode=0o600)


# --------------------------------------------------------------------------------------------------- cell after cell


class Cells:
    """The notebook, executed cell after cell."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.client = Client(
            run.notebook,
            kernel_name=choose_kernel(run),
            timeout=None,  # only the walltime ends a cell
            startup_timeout=run.start_timeout,
            iopub_timeout=LATE_OUTPUT,
            log=quiet_logger(),
        )
        self.client.followed = self.printed = LineFile(run.session / "runtime" / "printed")
        self.stderr = KernelStderr()
        self.oom_kills = oom_kills()

    async def work(self) -> str:
        """Run all cells, and return a sentence on the outcome. Raises ``GaveUp``."""
        keeper = asyncio.ensure_future(self._keep_writing())
        try:
            await self._start_kernel()
            for count, step in enumerate(self.run.steps, 1):
                await self._run_cell(step, count)
        finally:
            keeper.cancel()
            self.printed.end_lines()
        self.run.cell = None
        self.run.tell()
        self.write("finished")
        await self._end_kernel(now=False)
        return f"The notebook finished: {counted(self.run.done, 'cell')} in {duration(self.run.seconds)}."

    async def _start_kernel(self) -> None:
        client, run = self.client, self.run
        self._make_kernel_folder()
        for attempt in range(1, KERNEL_ATTEMPTS + 1):
            try:
                answer = await self._start_kernel_once()
                break
            except (RuntimeError, OSError) as error:
                self._log_stderr()
                text = f"The kernel {client.kernel_name} did not start: {one_line(error)}"
                if attempt == KERNEL_ATTEMPTS or "died" not in str(error):
                    raise GaveUp("kernel-died", sentence(text)) from None
                say(f"{sentence(text)} Trying once more")
                await self._end_kernel(now=True)
                self.stderr.close()
                self.stderr = KernelStderr()
        if answer and "language_info" in answer["content"]:
            run.notebook.metadata["language_info"] = answer["content"]["language_info"]
        say(f"running {one_line(run.stem)}.ipynb in {one_line(run.folder)}, kernel {client.kernel_name}")

    def _make_kernel_folder(self) -> None:
        if not self.run.kernel_folder:
            return
        try:
            Path(self.run.kernel_folder).mkdir(mode=0o700)
        except OSError as error:
            say(f"other users of this node can read what cells run and print: {one_line(error)}")
            self.run.kernel_folder = ""
        else:
            atexit.register(shutil.rmtree, self.run.kernel_folder, ignore_errors=True)

    async def _start_kernel_once(self) -> Any:
        """Start a kernel, and return what it reports about itself. Raises ``RuntimeError`` or ``OSError``."""
        client, stderr = self.client, self.stderr
        client.create_kernel_manager()
        if self.run.kernel_folder and re.search("ipykernel|IRkernel", " ".join(client.km.kernel_spec.argv)):
            # not on ports, where every user of the node could read what it runs and prints; only if the kernel is known
            # to support Unix sockets
            client.km.transport, client.km.ip = "ipc", f"{self.run.kernel_folder}/{secrets.token_hex(4)}"
        await client.async_start_new_kernel(
            cwd=str(self.run.folder), env=self._environ(), stdout=stderr.writer, stderr=stderr.writer
        )
        stderr.close_writer()
        await client.async_start_new_kernel_client()
        return await client.async_wait_for_reply(await ensure_async(client.kc.kernel_info()))

    def _environ(self) -> dict[str, str]:
        """Return the kernel's environment, in which it can import sent modules that its working folder lacks.

        PYTHONPATH comes before the working folder, so no module is added that the folder has itself.
        """
        folder, work = self.run.folder, self.run.work
        sent = [] if folder == work else [path.name for path in work.glob("*.py")]
        if not sent or any((folder / name).exists() for name in sent):
            return dict(os.environ)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(work))))
        return {**os.environ, "PYTHONPATH": path}

    async def _run_cell(self, step: Step, count: int) -> None:
        run, client, number = self.run, self.client, step.number
        cell = f"cell {run.where(number)}" if number else "the cell that sets the parameters"
        run.cell = number
        run.tell()
        client.begin_cell()
        began = time.monotonic()
        try:
            await client.async_execute_cell(run.notebook.cells[step.index], step.index, execution_count=count)
        except CellExecutionError as error:
            text = f"{one_line(error.ename)}: {one_line(error.evalue)}".rstrip(": ")
            raise GaveUp("notebook-failed", sentence(f"{cell[0].upper()}{cell[1:]} failed: {text}"), number) from None
        except DeadKernelError:
            text = await self._why_dead(cell)
            raise GaveUp("kernel-died", text, number) from None
        run.done = number or run.done
        self.write()
        title = f", {step.title}" if step.title and number else ""
        named = f"cell {number} of {len(run.own)}{title}" if number else cell
        say(f"{named}, {time.monotonic() - began:.0f} s")

    def write(self, state: str = "running") -> None:
        """Write the notebook, with what the running cell has printed so far."""
        self.client.settle()
        with contextlib.suppress(Exception):  # widgets matter least
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
        """Add a message to the outputs of the running cell."""
        if self.run.cell:
            cell = self.run.notebook.cells[self.run.own[self.run.cell - 1].index]
            cell.outputs.append(
                nbformat.v4.new_output("stream", name="stderr", text=f"\n[notebook-launcher: {text}]\n")
            )

    async def stop(self) -> None:
        """Save the outputs so far, and end the kernel with all processes that it has started."""
        self.note("the job was ended while this cell ran")
        self.write("stopped")
        self.run.tell()
        await self._end_kernel(now=True)

    async def give_up(self, error: GaveUp) -> None:
        """Save the outputs of a run that has failed."""
        if error.cause == "kernel-died":
            self.note(error.sentence)
        self.write("failed")
        await self._end_kernel(now=True)

    async def _end_kernel(self, *, now: bool) -> None:
        manager = self.client.km
        if manager is None:
            return
        with contextlib.suppress(Exception):  # the job's script ends remaining processes
            if await ensure_async(manager.is_alive()):
                ending = ensure_async(manager.shutdown_kernel(now=now))
                await asyncio.wait_for(ending, KERNEL_ENDS_WITHIN if now else None)
        with contextlib.suppress(Exception):
            await ensure_async(manager.cleanup_resources())

    async def _why_dead(self, cell: str) -> str:
        """Return a sentence on how the kernel died in a cell."""
        code = await self._exit_status()
        self._log_stderr()
        if code == -signal.SIGKILL and oom_kills() > self.oom_kills:
            return f"The kernel was killed in {cell}, because the job's memory was used up: ask for more."
        if code == -signal.SIGKILL:
            return f"The kernel was killed in {cell}, perhaps because it ran out of memory: ask for more."
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

    def _log_stderr(self) -> None:
        for line in self.stderr.lines():
            say(f"the kernel said: {line}")


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
            # some schedulers signal all processes of a job: the kernel may have received the signal first
            await asyncio.wait({stop}, timeout=0.5)
        if stop.done() and not (work.done() and work.exception() is None):
            await job.stop()
            # at once, without a traceback of what the executor was doing
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
    if run.wants_html and job is not None:
        await make_html(run, stop)
    return code


async def give_up(run: Run, job: Cells | Script | None, error: GaveUp) -> None:
    """Save the outputs so far, and report why the run ended."""
    run.failed, run.error = error.cell, error.sentence
    if job is not None:
        await job.give_up(error)
    run.tell()
    run.conclude(error.cause, error.sentence)


def broken_off(error: Exception) -> GaveUp:
    """Return the failure for an unforeseen error; the job's log has the traceback."""
    traceback.print_exception(type(error), error, error.__traceback__)
    text = f"What runs the notebook broke off with {type(error).__name__}: {one_line(error)}"
    return GaveUp("jupyter-failed", sentence(text))


def main() -> int:
    """Run the notebook that the environment variables name, and return the exit code."""
    warnings.simplefilter("ignore")
    code = asyncio.run(run_until_stopped(Run(os.environ)))
    if imports is not None:
        with contextlib.suppress(Exception):
            imports.end()
    return code


if __name__ == "__main__":
    sys.exit(main())
