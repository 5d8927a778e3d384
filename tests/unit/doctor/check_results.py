"""What checks found, by name, from the events that a view was shown; and the time at which they look."""

from __future__ import annotations

from datetime import datetime, timezone

from notebook_launcher.core import events
from tests.doubles import RecordingView

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


def results(view: RecordingView) -> dict[str, str]:
    """Return the result of each check by its name."""
    return {check.check: check.result for check in view.all(events.CheckResult)}
