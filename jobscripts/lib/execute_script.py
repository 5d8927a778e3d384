"""Runs a notebook as a script for ``execute.py``: nbconvert makes it, and the same Python runs it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from execute_common import COLOUR, KERNEL_ENDS_WITHIN, GaveUp, duration, one_line, replace, say, sentence

ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning|Iteration)\b.*")

#: the beginning of a script made by this module: a file of that name without it belongs to the user
SCRIPT_MARK = "# Made by nbconvert from "


class Script:
    """The notebook, made into a script by nbconvert and run by the same Python."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.out = run.work / f"{run.stem}.out"
        self.process: Any = None

    async def work(self) -> str:
        """Run the script, and return a sentence on the outcome. Raises ``GaveUp``."""
        run = self.run
        path, text = self._make()
        say(f"running {one_line(path.name)} in {one_line(run.folder)}, its output goes to {one_line(self.out)}")
        environ = {**os.environ, "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"}
        if run.folder != run.work:  # as in a notebook, modules beside it can be imported
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(run.folder), environ.get("PYTHONPATH"))))
        # IPython if the notebook has %magics, !commands or display(), which plain Python does not know
        needs_ipython = re.search(r"\bget_ipython\(|^\s*display\(", text, re.M) and importlib.util.find_spec("IPython")
        command = [sys.executable, *(("-m", "IPython") if needs_ipython else ()), str(path)]
        with self.out.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, cwd=str(run.folder), env=environ
            )
            code = await self.process.wait()
        if code:
            raise GaveUp("kernel-died" if code < 0 else "notebook-failed", self._why(code))
        run.done = len(run.own)
        run.tell()
        return f"The notebook finished, as a script, in {duration(run.seconds)}."

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
        """Return a sentence on how the script failed."""
        if code == -signal.SIGKILL:
            return "The script was killed, perhaps because it ran out of memory: ask for more."
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"The script crashed (signal {signal.Signals(-code).name})."
        last = last_error(self.out) or f"exit code {code}, without a word"
        return sentence(f"The notebook failed as a script: {last}")

    async def stop(self) -> None:
        """End the script; its output has already been written."""
        if self.process is not None and self.process.returncode is None:
            for end in (self.process.terminate, self.process.kill):
                with contextlib.suppress(ProcessLookupError):
                    end()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.process.wait(), KERNEL_ENDS_WITHIN)
                    break
        self.run.tell()

    async def give_up(self, error: GaveUp) -> None:
        """Do nothing: all output has already been written."""


def last_error(path: Path) -> str:
    """Return the line of a script's output that names the error."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65536))
        lines = COLOUR.sub("", file.read().decode("utf-8", "replace")).splitlines()
        lines = [line.rstrip() for line in lines if line.strip()]
        named = [line for line in lines[-200:] if ERROR_LINE.fullmatch(line) and "Traceback (most recent" not in line]
        return one_line((named or lines[-1:] or [""])[-1])
    return ""
