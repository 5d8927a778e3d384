"""Programs beside JupyterLab in a session (``--app``): the built-in ones, the profile's and the course's."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import field

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget
from notebook_launcher.profiles.courses import CourseFiles, saved_course
from notebook_launcher.profiles.icons import data_url, files_among, icon_beside
from notebook_launcher.profiles.layers import merge
from notebook_launcher.profiles.models import App, ClusterProfile
from notebook_launcher.profiles.store import profile_layers

#: the name of their file in the session's directory; docs/job-script.md describes the content
APPS_FILE = "apps.json"
DASK = "dask"  # its dashboard is not an ordinary app: it comes with the workers


class RequestedApp(Frozen):
    """A program that the job starts, with the first of its ``commands`` whose program exists on the node.

    In their words, ``{socket}`` stands for the Unix socket on which it listens, and ``{folder}`` for the ``folder``
    that the user named (empty: JupyterLab's own). ``health``: the URL path that answers once it is ready. ``icon``: a
    name in ``icons.KNOWN``, a file name, or the ``data:`` URL that ``with_icon_data`` makes of that file.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...] = field(repr=False)
    folder: str = ""
    health: str = "/"
    icon: str = field(default="", repr=False)


BUILT_IN = {
    "tensorboard": RequestedApp(
        "tensorboard",
        "TensorBoard",
        (("{python}", "-B", "{session}/app_tensorboard.py", "{socket}", "{folder}"),),
        icon="chart",
    ),
    "code": RequestedApp(
        "code",
        "VS Code",
        (
            ("code-server", "--socket", "{socket}", "--socket-mode", "600", "--auth", "none", "--disable-telemetry",
             "--disable-update-check", "{folder}"),
            ("openvscode-server", "--socket-path", "{socket}", "--without-connection-token", "--telemetry-level", "off",
             "--default-folder", "{folder}"),
        ),
        health="/healthz",
        icon="code",
    ),
}  # fmt: skip


def with_dask(options: LaunchOptions) -> LaunchOptions:
    """Return the options with ``--app dask`` replaced by ``--with dask``.

    Raises ``UsageError`` if they have another ``--with``.
    """
    if DASK not in options.apps:
        return options
    if options.distributed not in (None, DASK):
        raise UsageError(
            f"--app dask and --with {options.distributed} exclude each other.", hint="leave out one of them"
        )
    apps = tuple(word for word in options.apps if word != DASK)
    return dataclasses.replace(options, apps=apps, distributed=DASK)


def requested_apps(words: Sequence[str], profile: ClusterProfile) -> tuple[RequestedApp, ...]:
    """Return the programs that ``--app NAME[=FOLDER]`` names.

    Raises ``UsageError`` for one that does not exist or is named twice, a wrong folder, and with the route ``direct``.
    """
    if words and profile.route == "direct":
        raise UsageError(
            "--app does not work with the route “direct”.",
            why="Their ports on the node would be open to the network, with nothing to protect these programs.",
            hint="take another route: --route auto",
        )
    apps = tuple(_app(word, profile) for word in words)
    names = [app.name for app in apps]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--app {twice} was given twice.", hint="name each app once")
    return apps


def with_icon_data(
    apps: Sequence[RequestedApp], target: LaunchTarget, files: CourseFiles | None
) -> tuple[RequestedApp, ...]:
    """Return the programs, with icons that are files replaced by their content as ``data:`` URLs.

    ``files``: those of a course that is not saved. Raises ``ProfileError`` if a file cannot be read, or is no icon.
    """
    return tuple(
        dataclasses.replace(app, icon=_icon_data(app, target, files)) if files_among([app.icon]) else app
        for app in apps
    )


def _icon_data(app: RequestedApp, target: LaunchTarget, files: CourseFiles | None) -> str:
    course = target.course
    if course is None or app.name not in course.apps:
        return icon_beside(profile_layers(target.cluster or ""), app.name, app.icon)
    content = files.icons[app.icon] if files else saved_course(course.name).icon(app.icon)
    return data_url(app.icon, content, f"course “{course.name}”")


def notes_on_apps(words: Sequence[str], target: LaunchTarget) -> list[str]:
    """Return a sentence for each of these programs that the course defines: what it runs, and which one it replaces."""
    course = target.course
    named = [name for name in (word.partition("=")[0] for word in words) if course and name in course.apps]
    if not named or course is None:
        return []
    below = merge(profile_layers(target.cluster)).get("apps", {}) if target.cluster else {}
    whose = dict.fromkeys(BUILT_IN, "the built-in one") | dict.fromkeys(below, "the profile's")
    return [
        f"The course's app “{name}” {f'replaces {whose[name]}, and ' if name in whose else ''}runs: "
        f"{shlex.join(course.apps[name].command)}"
        for name in named
    ]


def _app(word: str, profile: ClusterProfile) -> RequestedApp:
    name, has_folder, folder = word.partition("=")
    if "\n" in folder or "\0" in folder or (has_folder and not folder):
        raise UsageError(f"--app {name}= names no folder.", hint=f"for example: --app {name}=logs")
    known = {**BUILT_IN, **{name: _of_profile(name, app) for name, app in profile.apps.items()}}
    if name not in known:
        names = sorted({*known, DASK})
        raise UsageError(
            f"There is no app “{name}”.",
            why=f"The apps are: {', '.join(names)}.",
            hint=did_you_mean(name, names) or f"add it to the profile, below [apps.{name}]",
        )
    app = known[name]
    if folder and not any("{folder}" in part for command in app.commands for part in command):
        raise UsageError(f"The app “{name}” takes no folder.", hint=f"--app {name}")
    return dataclasses.replace(app, folder=folder)


def _of_profile(name: str, app: App) -> RequestedApp:
    return RequestedApp(name, app.title or name, (app.command,), health=app.health, icon=app.icon or "")


def apps_file(apps: Sequence[RequestedApp]) -> bytes:
    """Return the content of ``apps.json``, which is one line."""
    data = {"version": 1, "apps": [dataclasses.asdict(app) for app in apps]}
    return (json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
