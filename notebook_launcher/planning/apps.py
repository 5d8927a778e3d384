"""Further programs in a session (``--app``): built-in ones, the profile's and the course's, as told to the job."""

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

#: the name of their file in the session's directory; ``docs/job-script.md`` describes the content
APPS_FILE = "apps.json"
DASK = "dask"  # whose dashboard is an app of its own kind: it comes with its workers


class RequestedApp(Frozen):
    """A program that the job starts: of its ``commands``, the first whose program is there.

    In their words ``{socket}`` is the Unix socket on which it listens, ``{folder}`` the ``folder`` that the user named,
    "" for JupyterLab's own. ``health``: the path that answers once it is ready. ``icon``: a name of ``icons.KNOWN``,
    the name of a file, or what ``with_pictures`` makes of that.
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
    """Return options in which ``--app dask`` is ``--with dask``. Raises ``UsageError`` if that is impossible."""
    if DASK not in options.apps:
        return options
    if options.distributed not in (None, DASK):
        raise UsageError(
            f"--app dask and --with {options.distributed} exclude each other.", hint="leave out one of them"
        )
    apps = tuple(word for word in options.apps if word != DASK)
    return dataclasses.replace(options, apps=apps, distributed=DASK)


def requested_apps(words: Sequence[str], profile: ClusterProfile) -> tuple[RequestedApp, ...]:
    """Return the programs that ``--app NAME[=FOLDER]`` names. Raises ``UsageError``."""
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


def with_pictures(
    apps: Sequence[RequestedApp], target: LaunchTarget, files: CourseFiles | None
) -> tuple[RequestedApp, ...]:
    """Return programs with the pictures of their icons that are files. ``files``: those of a course not saved.

    Raises ``ProfileError`` if one cannot be read, or is no picture.
    """
    return tuple(
        dataclasses.replace(app, icon=_picture(app, target, files)) if files_among([app.icon]) else app for app in apps
    )


def _picture(app: RequestedApp, target: LaunchTarget, files: CourseFiles | None) -> str:
    course = target.course
    if course is None or app.name not in course.apps:
        return icon_beside(profile_layers(target.cluster or ""), app.name, app.icon)
    content = files.icons[app.icon] if files else saved_course(course.name).icon(app.icon)
    return data_url(app.icon, content, f"course “{course.name}”")


def notes_on_apps(words: Sequence[str], target: LaunchTarget) -> list[str]:
    """Return a sentence for each program of the course among these: what it runs, and which program it replaces."""
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
    """Return the content of ``apps.json``, one line."""
    data = {"version": 1, "apps": [dataclasses.asdict(app) for app in apps]}
    return (json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
