"""The output of a notebook's cells, for ``execute.py``: as a terminal would show it, and limited in size."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import nbformat
from execute_common import counted, one_line, say
from nbclient import NotebookClient

# Characters kept of a cell's printed text, at its beginning and at its end.
TEXT_KEPT = 2**20
# Kept of its figures, tables and other outputs: their number, and their characters in total.
OUTPUTS_KEPT, OUTPUT_SIZE_KEPT = 1000, 32 * 2**20


class Printed:
    """A cell's printed text, as a terminal would show it; of a long one, the beginning and the end."""

    def __init__(self, room: int = TEXT_KEPT) -> None:
        self.room = room  # characters kept of the beginning, and as many of the end
        self.size = 0
        self.left_out = 0
        self._beginning: list[str] = []
        self._end: collections.deque[str] = collections.deque()
        self._end_size = 0
        self._line = ""  # the last line, which may still be overwritten

    def add(self, text: str) -> None:
        """Add printed text."""
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
        piece = self.room // 16  # text is dropped in pieces of this size
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
    r"""Return the visible result of a line with ``\r`` and ``\b``, such as a progress bar that redraws itself."""
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


class LineFile:
    """Writes the printed output of a notebook's cells line by line, for launchers that follow the run."""

    MOST = 8 * 2**20  # bytes; the notebook may contain more
    FULL = b"[notebook-launcher: further output is only in the notebook]\n"
    LONGEST_LINE = 2**16  # characters of a line that has not ended

    def __init__(self, path: Path) -> None:
        self._begun: dict[str, str] = {}  # by stream: the unfinished line, which may still be overwritten
        self._room = self.MOST
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def add(self, stream: str, text: str) -> None:
        """Add text printed to a stream."""
        *lines, begun = (self._begun.pop(stream, "") + text).split("\n")
        begun = written_over(begun)
        if len(begun) > self.LONGEST_LINE:
            lines, begun = [*lines, begun], ""
        self._begun[stream] = begun
        self._write(lines)

    def end_lines(self) -> None:
        """Finish the unfinished lines at the end of a cell."""
        lines, self._begun = [line for line in self._begun.values() if line], {}
        self._write(lines)

    def _write(self, lines: list[str]) -> None:
        if self._descriptor < 0 or not lines:
            return
        data = "".join(f"{written_over(line)}\n" for line in lines).encode("utf-8", "replace")
        self._room -= len(data)
        is_full = self._room < 0
        try:
            os.write(self._descriptor, self.FULL if is_full else data)
        except OSError:
            is_full = True
        if is_full:
            os.close(self._descriptor)
            self._descriptor = -1


class Client(NotebookClient):  # type: ignore[misc]
    """Jupyter's executor, with limits on what a cell may leave in memory and in the notebook."""

    news = False  # whether there are outputs that have not been written yet
    followed: LineFile | None = None  # also receives printed text

    def __init__(self, notebook: Any, **settings: Any) -> None:
        super().__init__(notebook, **settings)
        self._printed: list[tuple[Any, Printed]] = []
        self._forget()

    def _forget(self) -> None:
        """Reset the state for a new cell, or after its outputs were cleared."""
        self._printed = []
        self._outputs = self._output_size = self._left_out = self._left_out_size = 0
        self._notice: Any = None

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Handle one message from the kernel."""
        self.news = self.news or msg["msg_type"] not in ("status", "execute_input")
        return super().process_message(msg, cell, cell_index)

    def clear_output(self, outs: Any, msg: Any, cell_index: int) -> None:
        """Clear the outputs of a cell, now or with its next output."""
        super().clear_output(outs, msg, cell_index)
        if not outs:
            self._forget()

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        """Handle one output: text is appended to earlier text of its stream; others are added up to the limits."""
        if self.clear_before_next_output:
            self._forget()
        if self.output_hook_stack[msg["parent_header"].get("msg_id")]:  # captured by a widget
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
        if self.followed:
            self.followed.add(msg["content"]["name"], text)
        known = len(outs)
        output = super().output(outs, msg, display_id, cell_index)
        # only the last text output is continued, unless there are very many, as if a cell alternates between streams
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
        """Write the running cell's printed text into the notebook."""
        for output, printed in self._printed:
            output["text"] = str(printed)
        if self._notice is not None:
            self._notice["text"] = (
                f"[notebook-launcher: {counted(self._left_out, 'further output')} of this cell "
                f"({self._left_out_size / 2**20:.1f} MiB) left out]\n"
            )
        self.news = False

    def begin_cell(self) -> None:
        """Prepare for the next cell."""
        self._forget()
        if self.followed:
            self.followed.end_lines()


def size_of(content: Any) -> int:
    """Return the approximate size of an output in characters."""
    if isinstance(content, dict):
        return sum(map(size_of, content.values()))
    if isinstance(content, (list, tuple)):
        return sum(map(size_of, content))
    return len(content) if isinstance(content, str) else 8


def shorten_error(content: Any) -> None:
    """Shorten an excessively long traceback to its end."""
    content["evalue"] = str(content.get("evalue", ""))[:1000]
    content["traceback"] = ["[notebook-launcher: the beginning of this traceback is left out]"] + [
        str(line)[-1000:] for line in content.get("traceback", [])[-20:]
    ]


def quiet_logger() -> logging.Logger:
    """Return a logger that writes warnings as short lines to the job's log; errors are reported separately."""
    logger = logging.getLogger("notebook-launcher")
    logger.propagate = False

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.WARNING:
                say(one_line(record.getMessage(), 200))

    logger.handlers = [Handler()]
    return logger
