"""Words for images and environments that are made, and for environments as they are listed and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.core.events import launch as events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def building_words(event: events.Building) -> str:
    """Return what is said while something is made: the last thing that the program said."""
    return f"{event.what} on {event.where}: {event.line or 'beginning'}"


def made_words(event: events.ImageMade) -> list[str]:
    """Return what is said of an image that is there."""
    size = f"{event.bytes / 1e9:.1f} GB" if event.bytes >= 1e9 else f"{max(1, round(event.bytes / 1e6))} MB"
    return [
        f"The image is there, {size}, after {event.seconds:.0f} s: {event.path}",
        f"  use it:  launch-notebook -- {event.path}",
        f'  and no other:  digest = "{event.digest}" in an environment of a profile',
    ]


def show_environments(console: Console, event: events.EnvironmentsListed | events.EnvironmentShown) -> None:
    """Print the environments of a place, or what one comes to."""
    lines = _listed(event) if isinstance(event, events.EnvironmentsListed) else _shown(event)
    for line in lines:
        console.print(printable(line), soft_wrap=True, highlight=False, markup=False)


def _listed(event: events.EnvironmentsListed) -> list[str]:
    if not event.environments:
        return [f"There are no environments here ({event.origin}). Name an image, --module, --conda or --venv."]
    width = max(len(seen.environment) for seen in event.environments)
    lines = [f"Environments ({event.origin}):"]
    for seen in event.environments:
        mark = "*" if seen.chosen else " "
        lines.append(f"{mark} {seen.environment:{width}}  {seen.description or seen.how}")
        if seen.description:
            lines.append(f"  {'':{width}}  {seen.how}")
    if any(seen.chosen for seen in event.environments):
        lines.append("* is meant where none is named; another one: launch-notebook -- NAME")
    return lines


def _shown(event: events.EnvironmentShown) -> list[str]:
    lines = [f"{event.environment or 'The environment without a name'}: {event.description or event.how}"]
    lines += [f"  {event.how}"] if event.description else []
    lines += [f"  from {layer}" for layer in event.layers]
    lines += [f"  its image is pulled from {event.source}"] if event.source else []
    lines += [f"  its image is built of {event.definition}"] if event.definition else []
    lines += ["", "What a job reads of it (session.env):", *(f"  {line}" for line in event.session_env.splitlines())]
    return [*lines, *([""] if event.notes else []), *event.notes]
