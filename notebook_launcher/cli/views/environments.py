"""Texts on images and environments that are being made, and on environments that are listed or shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def building_text(event: events.Building) -> str:
    """Return the text shown while something is being made: the last output of the program."""
    return f"{event.what} on {event.where}: {event.line or 'beginning'}"


def image_lines(event: events.ImageReady) -> list[str]:
    """Return lines on an image that is ready."""
    size = f"{event.bytes / 1e9:.1f} GB" if event.bytes >= 1e9 else f"{max(1, round(event.bytes / 1e6))} MB"
    return [
        f"The image is there, {size}, after {event.seconds:.0f} s: {event.path}",
        f"  use it:  launch-notebook -- {event.path}",
        f'  and no other:  digest = "{event.digest}" in an environment of a profile',
    ]


def show_environments(console: Console, event: events.EnvironmentsListed | events.EnvironmentShown) -> None:
    """Print the environments of a target, or the settings of one of them."""
    lines = _listed(event) if isinstance(event, events.EnvironmentsListed) else _shown(event)
    for line in lines:
        console.print(printable(line), soft_wrap=True, highlight=False, markup=False)


def _listed(event: events.EnvironmentsListed) -> list[str]:
    if not event.environments:
        return [f"There are no environments here ({event.origin}). Name an image, --module, --conda or --venv."]
    width = max(len(one.environment) for one in event.environments)
    lines = [f"Environments ({event.origin}):"]
    for one in event.environments:
        mark = "*" if one.default else " "
        lines.append(f"{mark} {one.environment:{width}}  {one.description or one.software}")
        if one.description:
            lines.append(f"  {'':{width}}  {one.software}")
    if any(one.default for one in event.environments):
        lines.append("* is the default; choose another one with: launch-notebook -- NAME")
    return lines


def _shown(event: events.EnvironmentShown) -> list[str]:
    lines = [f"{event.environment or 'The environment without a name'}: {event.description or event.software}"]
    lines += [f"  {event.software}"] if event.description else []
    lines += [f"  from {layer}" for layer in event.layers]
    lines += [f"  its image is pulled from {event.source}"] if event.source else []
    lines += [f"  its image is built from {event.definition}"] if event.definition else []
    lines += ["", "What a job reads of it (session.env):", *(f"  {line}" for line in event.session_env.splitlines())]
    return [*lines, *([""] if event.notes else []), *event.notes]


_STAGING = {
    "waiting": "another job is copying {name} to {node}{amount}",
    "copying": "copying {name} to {node}{amount}",
    "copied": "{name} is on {node}; starting it there",
    "kept": "{name} is on {node} from an earlier job; starting it there",
    "later": "starting {name} from its folder; the next job will find a copy",
    "failed": "starting {name} from where it is",
}


def staging_text(event: events.Staging) -> str:
    """Return the waiting line shown while an environment is being staged."""
    name = event.path.rstrip("/").rpartition("/")[2] or event.path
    return _STAGING.get(event.state, "{name} on {node}").format(name=name, node=event.node, amount=_amount(event))


def _amount(event: events.Staging) -> str:
    if event.done is None:
        return ""
    of = f" of {event.bytes / 1e9:.1f}" if event.bytes else ""
    return f", {event.done / 1e9:.1f}{of} GB"
