"""Makes an HTML copy of an executed notebook for ``execute.py``, if the environment has nbconvert."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import importlib.util
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from execute_common import one_line, say

WITHIN = 120.0  # seconds
UNTIL_KILLED = 5.0  # seconds; a process that waits for a file server ends only when that answers
MOST_BYTES = 2**25  # of the notebook: nbconvert needs several times as much of the job's memory
#: the end of a copy made by this module: a file of that name without it is the user's
MARK = b"\n<!-- a copy made by notebook-launcher -->\n"
# Without the working directory, which comes first for `python -c`; without the grammars of rfc3987_syntax, as in
# execute.py. nbconvert would show the code of a collapsed cell in full, so the user's or nbconvert's template is
# extended by a block with <details>, which needs no script.
CODE = """import sys
sys.path[:] = [path for path in sys.path if path]
sys.modules.setdefault("rfc3987_syntax", None)
from nbconvert.exporters.html import HTMLExporter
from nbconvert.nbconvertapp import main
from traitlets import default

COLLAPSED = '''
{%- block input -%}
{%- if (cell.metadata.jupyter or {}).source_hidden and cell.source.strip() -%}
{%- set lines = cell.source.strip().splitlines() -%}
<details style="flex: 1 1 auto; min-width: 0">
<summary style="padding: 5px; cursor: pointer; overflow-wrap: anywhere">
<code>{{ lines[0] | e }}</code> … ({{ lines | length }} line{{ "s" if lines | length > 1 }})
</summary>
<div style="display: table; table-layout: fixed; width: 100%">{{ super() }}</div>
</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock input -%}'''

class WithCollapsedCells(HTMLExporter):
    @default("raw_template")
    def _extend_template(self):
        return "{%- extends " + repr(self.template_file) + " -%}" + COLLAPSED

main()
"""
FORMAT = "__main__.WithCollapsedCells"


async def make_html(run: Any, stop: asyncio.Future[int]) -> None:
    """Write an HTML copy beside the notebook, unless the job is stopped meanwhile. Failures are only logged."""
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
            with page.open("r+b") as file:  # nbconvert may report success without having written a page
                file.seek(0, os.SEEK_END)
                file.write(MARK)
            page.replace(copy)
    except OSError as error:
        say(f"no HTML copy was made: {one_line(error)}")
    finally:
        with contextlib.suppress(OSError):
            page.unlink()


def _may_write(copy: Path) -> bool:
    """Whether the name is free, or a copy made by this module; does not block on a pipe."""
    try:
        found = copy.lstat()
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    with copy.open("rb") as file:
        file.seek(max(0, found.st_size - len(MARK)))
        return file.read() == MARK


async def _convert(notebook: Path, page: Path, stop: asyncio.Future[int]) -> str:
    """Run nbconvert, and return why there is no page; "" if there is one."""
    options = ["--to", FORMAT, f"--output-dir={page.parent}", f"--output={page.stem}", glob.escape(str(notebook))]
    # A file, because a pipe would not end as long as a process started by nbconvert holds it.
    with tempfile.TemporaryFile(dir=page.parent) as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-B", "-c", CODE, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            # Otherwise nbconvert creates all exporters to list them in its help, which takes a quarter of the time.
            env={**os.environ, "PYTHONWARNINGS": "ignore", "NBCONVERT_DISABLE_CONFIG_EXPORTERS": "1"},
            # nbconvert reads settings and templates from its working directory, which must not be writable by others.
            cwd=page.parent,
            start_new_session=True,
        )
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ended, stop}, timeout=WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return "the job was ended" if stop.done() else f"nbconvert took more than {WITHIN:.0f} s"
            code = ended.result()
            return "" if code == 0 else one_line(_last_line(errors) or f"exit code {code}")
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.wait({ended}, timeout=UNTIL_KILLED)


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
    lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
