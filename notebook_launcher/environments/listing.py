"""``env list`` and ``env show``: shows the environments of a profile, and what one of them consists of."""

from __future__ import annotations

from collections.abc import Iterator

from notebook_launcher.core import events
from notebook_launcher.core.view import View
from notebook_launcher.planning.plan import chosen_environment, image_path
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.profiles.layers import merge, origin
from notebook_launcher.profiles.models import Environment
from notebook_launcher.profiles.store import profile_layers
from notebook_launcher.session.record import environment_lines


def list_environments(target: LaunchTarget, view: View) -> None:
    """Show the environments of a target. No host is contacted."""
    profile = target.profile
    seen = tuple(
        events.EnvironmentEntry(
            name, environment.description, describe_software(environment, target), name == profile.environment
        )
        for name, environment in profile.environments.items()
    )
    view.show(events.EnvironmentsListed(_origin(target), seen))


def show_environment(options: LaunchOptions, view: View) -> None:
    """Show an environment in full. No host is contacted. Raises ``EnvironmentUnknown`` or ``UsageError``."""
    target = find_target(options, LocalMachine.detect())
    name, environment, container, _ = chosen_environment(options, target)
    own = target.profile.environments.get(name or "", Environment())
    lines = environment_lines(environment, container=container)
    view.show(
        events.EnvironmentShown(
            name or "",
            environment.description,
            describe_software(own if name else environment, target),
            _layers(target, name),
            own.source,
            own.definition,
            lines,
            tuple(_notes(environment, container)),
        )
    )


def describe_software(environment: Environment, target: LaunchTarget) -> str:
    """Return a text on where an environment's software comes from."""
    image = image_path(environment.container, target.profile) if environment.container else None
    parts = [
        f"container {image}" if image else "",
        f"modules {', '.join(environment.modules)}" if environment.modules else "",
        f"conda {environment.conda}" if environment.conda else "",
        f"venv {environment.venv}" if environment.venv else "",
        f"uv {environment.uv}" if environment.uv else "",
        "activation code" if environment.activate else "",
    ]
    return " + ".join(filter(None, parts)) or "JupyterLab as the node has it"


def _origin(target: LaunchTarget) -> str:
    of = f"profile {target.cluster}" if target.cluster else "no profile"
    return f"{of}, course {target.course.name}" if target.course else of


def _layers(target: LaunchTarget, name: str | None) -> tuple[str, ...]:
    if target.cluster is None or name is None:
        return ()
    layers = profile_layers(target.cluster)
    keys = ["environments", name]
    files = [origin([layer], keys) for layer in layers if name in (merge([layer]).get("environments") or {})]
    course = target.course
    return (*files, *([f"course {course.name}"] if course and name in course.environments else []))


def _notes(environment: Environment, container: str | None) -> Iterator[str]:
    if container and environment.digest is None:
        yield 'No digest is set, so whatever image is at this path is used. Pin it with `digest = "sha256:…"`.'
    if environment.activate:
        yield "Its activation code is run by a shell: use it only if you trust its author."
    if environment.conda and container:
        yield "The conda environment is looked for inside the container."
