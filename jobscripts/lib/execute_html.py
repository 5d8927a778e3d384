"""The HTML copy of a notebook that was run, for ``execute.py``: made by nbconvert, where the environment has it."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from execute_common import one_line, say

WITHIN = 120.0  # seconds
MOST_BYTES = 2**25  # of the notebook: nbconvert takes up several times its size of the job's memory
#: the end of a copy that was made here: a file of that name without it is the user's
MARK = b"\n<!-- a copy made by notebook-launcher -->\n"
# without the grammars of rfc3987_syntax, as in execute.py
CODE = """import sys
sys.modules.setdefault("rfc3987_syntax", None)
from nbconvert.nbconvertapp import main
main()
"""


async def make_html(run: Any, stop: asyncio.Future[int]) -> None:
    """Put an HTML copy beside the notebook, unless the job is stopped meanwhile. The log alone says what fails."""
    copy, page = run.work / f"{run.stem}.html", run.session / "runtime" / "copy.html"
    try:
        if stop.done() or not run.result.exists() or not _may_write(copy):
            return
        if importlib.util.find_spec("nbconvert") is None:
            say("no HTML copy is made: nbconvert is not installed")
        elif run.result.stat().st_size > MOST_BYTES:
            say(f"no HTML copy is made: the notebook is larger than {MOST_BYTES // 2**20} MiB")
        elif why := await _convert(run.result, page, stop):
            say(f"no HTML copy was made: {why}")
        else:
            with page.open("ab") as file:
                file.write(MARK)
            page.replace(copy)
    except OSError as error:
        say(f"no HTML copy was made: {one_line(error)}")
    finally:
        with contextlib.suppress(OSError):
            page.unlink()


def _may_write(copy: Path) -> bool:
    if not copy.exists():
        return True
    with copy.open("rb") as file:
        file.seek(max(0, copy.stat().st_size - len(MARK)))
        return file.read() == MARK


async def _convert(notebook: Path, page: Path, stop: asyncio.Future[int]) -> str:
    """Run nbconvert, and return why there is no page; "": there is one."""
    options = ["--to", "html", f"--output-dir={page.parent}", f"--output={page.stem}", glob.escape(str(notebook))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-c", CODE, *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    ended = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.wait({ended, stop}, timeout=WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            return "the job was ended" if stop.done() else f"nbconvert took more than {WITHIN:.0f} s"
        lines = [line for line in (ended.result()[1] or b"").decode("utf-8", "replace").splitlines() if line.strip()]
        return "" if process.returncode == 0 else one_line((lines or [f"exit code {process.returncode}"])[-1])
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await ended
