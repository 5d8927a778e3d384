"""Where questions appear: on the terminal, also where standard output or standard error is redirected."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ASKS = """
import queue, sys
from notebook_launcher.cli.prompts import TerminalPrompts
from notebook_launcher.cli.views.base import BaseView
view = BaseView()
prompts = TerminalPrompts(view, interactive=True)
if sys.argv[1] == "listening":
    view.listen(queue.SimpleQueue())
answer = prompts.confirm("Is it?") if sys.argv[2] == "yes or no" else prompts.line("Is it?")
open(sys.argv[3], "w").write(repr(answer))
"""
# a terminal that is not that of the session, as in some containers
ELSEWHERE = "import os, sys; os.setsid() if os.fork() == 0 else (os.wait(), os._exit(0)); exec(sys.argv.pop(1))"


@pytest.mark.parametrize("streams", [(1,), (2,), (1, 2)], ids=["stdout", "stderr", "both"])
@pytest.mark.parametrize("kind", ["yes or no", "a line"])
@pytest.mark.parametrize("listening", ["listening", "idle"])
@pytest.mark.parametrize("session", ["of the session", "elsewhere"])
def test_a_question_is_seen_although_the_output_is_redirected(
    tmp_path: Path, streams: tuple[int, ...], kind: str, listening: str, session: str
) -> None:
    code = [ASKS] if session == "of the session" else [ELSEWHERE, ASKS]
    child, terminal = pty.fork()
    if child == 0:
        log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
        for stream in streams:
            os.dup2(log, stream)
        os.execv(sys.executable, [sys.executable, "-c", *code, listening, kind, str(tmp_path / "answer")])
    shown = _until(terminal, b"Is it?")
    os.write(terminal, b"yes\n")
    with contextlib.suppress(OSError):  # the terminal ends with the process
        _until(terminal, b"never printed")
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"Is it?" in shown
    assert (tmp_path / "answer").read_text() == ("True" if kind == "yes or no" else "'yes'")
    assert "Is it?" not in (tmp_path / "log").read_text()


def _until(terminal: int, text: bytes) -> bytes:
    """Return what a terminal shows until this text; all that it shows within some seconds without it."""
    shown, deadline = b"", time.monotonic() + 15
    while text not in shown and select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
        shown += os.read(terminal, 1000)
    return shown
