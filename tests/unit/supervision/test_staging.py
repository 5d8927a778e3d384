"""What a job reports about a copy of its environment on the node: read, and shown."""

from __future__ import annotations

import pytest

from notebook_launcher.cli.views.environments import staging_text
from notebook_launcher.core import events
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.supervision.staging import not_staged_note, read_staging

JOB = JobRef("7")
REPORT = {"version": 1, "node": "n1", "path": "/proj/torch.sif", "state": "copying", "done": 3_240_000_000}


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ({"bytes": 7_400_000_000}, "copying torch.sif to n1, 3.2 of 7.4 GB"),
        ({"bytes": None}, "copying torch.sif to n1, 3.2 GB"),
        ({"state": "waiting", "done": 0}, "another job is copying torch.sif to n1, 0.0 GB"),
        ({"state": "kept", "done": None}, "torch.sif is on n1 from an earlier job; starting it there"),
        ({"done": -1, "bytes": True}, "copying torch.sif to n1"),
        ({"path": "", "node": None, "done": "3"}, "copying  to "),
    ],
)
def test_how_far_it_is(report: dict[str, object], text: str) -> None:
    event = read_staging(JOB, REPORT | report)
    assert event is not None
    assert staging_text(event) == text


def test_what_a_hostile_node_writes_stays_one_short_line() -> None:
    event = read_staging(JOB, REPORT | {"state": "failed", "why": "a\nb\x1b[2J" + "x" * 9999, "path": "/p\r\n"})
    assert isinstance(event, events.Staging)
    note = not_staged_note(event)
    assert note.startswith("/p was not staged on n1, because a b")
    assert note.isprintable()
    assert len(note) < 500
    assert read_staging(JOB, REPORT | {"state": "\x1b[2J"}) is None
    assert read_staging(JOB, REPORT | {"state": ["copying"]}) is None
