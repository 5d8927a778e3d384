"""What a run prints, followed on a real file by real processes: each line is shown once, whatever happens between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import Timing
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.supervision.job_output import JobOutput
from tests.doubles import RecordingView, wait_until

pytestmark = pytest.mark.real_time


@pytest.fixture
def context() -> Any:
    timing = Timing(reread_pause=0.0)
    return SimpleNamespace(host=LocalHost(), view=RecordingView(), interrupts=Interrupts(), timing=timing)


def shown(context: Any) -> list[str]:
    return [event.text for event in context.view.events if isinstance(event, events.LogLine)]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def handle_until(context: Any, lines: JobOutput, count: int) -> None:
    """Handle what arrives, as the supervisor does, until so many lines are shown."""

    def handled() -> bool:
        while not context.interrupts.inbox.empty():
            lines.handle(context.interrupts.inbox.get())
        lines.check()
        return len(shown(context)) >= count

    wait_until(handled)


def test_each_line_is_shown_once(tmp_path: Path, context: Any) -> None:
    path = tmp_path / "printed"
    path.write_text("1\n2\n")
    lines = JobOutput(cast(Any, context), str(path))
    lines.show_rest()
    assert shown(context) == [], "of a job that did not start"
    lines.job_started()
    handle_until(context, lines, 2)
    assert lines._file is not None
    lines._file._ended("killed by the login node")
    append(path, "3\n")
    handle_until(context, lines, 3)
    append(path, "4\n5")
    context.interrupts.inbox.put("something else")
    lines.show_rest()
    assert shown(context) == ["1", "2", "3", "4", "5"]
    lines.show_rest()
    lines.job_started()  # put back into the queue: it prints anew
    handle_until(context, lines, 9)
    lines.close()
    assert shown(context)[5:9] == ["1", "2", "3", "4"]
