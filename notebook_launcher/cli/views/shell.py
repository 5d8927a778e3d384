"""The text shown just before a terminal opens."""

from __future__ import annotations

from notebook_launcher.core import events


def shell_text(event: events.ShellOpening) -> str:
    """Return the text shown just before a terminal opens."""
    where = "outside of the container" if not event.inside else event.environment or "its environment"
    job = f"job {event.job}"
    ends = f"ends {job} as well" if event.ends_job else f"leaves {job} as it is"
    return f"A terminal on {event.node}, {'in ' if event.inside else ''}{where}: exit closes it and {ends}."
