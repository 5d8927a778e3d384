"""A course's settings, and what changed in them, as lines that the user confirms."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from notebook_launcher.core.errors import (
    ProfileError,
)
from notebook_launcher.core.quantities import duration
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.courses import (
    CourseFiles,
    SavedCourse,
)
from notebook_launcher.profiles.layers import merge
from notebook_launcher.profiles.models import App, CourseProfile, Environment
from notebook_launcher.profiles.store import (
    as_flags,
)


def idle_rules(plan: Plan) -> str | None:
    """Return in a sentence when a session of a course ends by itself; ``None`` without a course or such a rule."""
    if not plan.target.course or not plan.idle_stop:
        return None
    gpu = ", or with an idle GPU" if plan.request.gpus and plan.target.profile.gpu_idle == "end" else ""
    return f"A session of this course ends by itself after {duration(plan.idle_stop)} without use{gpu}."


def summary(found: CourseFiles) -> list[str]:
    """Return a course's settings, one per line: all that a user has to know before agreeing to it."""
    course = found.course
    lines = [] if course.cluster else ["cluster: yours"]
    data = merge(found.layers)
    for key in _keys_set(data, _IN_COURSE):
        lines += _lines(course, key, data) if key != "name" else []  # the name is in the heading, with the address
    return [*(part for line in lines for part in _as_lines(line)), f"SHA-256: {found.digest}"]


def _as_lines(text: str) -> list[str]:
    """Return a setting's text as lines, all but the first marked: no value can add what looks like another setting."""
    first, *others = text.splitlines() or [""]
    return [first, *(f"  | {line}" for line in others)]


# labels of keys in a summary, where they differ from the key
_IN_COURSE = {
    "description": "what",
    "cluster": "cluster",
    "account": "account",
    "first": "from",
    "last": "to",
    "image": "image",
    "image_dir": "images in",
    "environment": "environment",
    "idle_stop": "ends without use after",
    "gpu_idle": "an idle GPU",
    "contact": "contact",
    "notice": "says at each launch",
    "reservations": "reservation",
    "defaults": "flags",
    "environments": "environment",
    "apps": "app",
    "notebooks": "notebook",
    "folder": "notebooks go to",
    "class_folder": "sessions leave their state and timing results for the teacher in",
    "open_at": "opens with",
    "base": "stands on",
}
_IN_ENVIRONMENT = {
    "notice": "says",
    "container": "image",
    "container_command": "by",
    "source": "from",
    "definition": "made by",
    "digest": "image has",
    "bind": "sees",
    "module_use": "modules from",
    "env": "sets",
    "activate": "runs ",
    "gpu": "GPU",
    "start_timeout": "seconds to start",
    "stage": "copy on the node's disk:",
}
_IN_APP = {"command": "runs", "title": "title", "health": "ready when this path answers:", "icon": "icon"}


def _keys_set(data: Mapping[str, Any], first: Mapping[str, str]) -> list[str]:
    """Return the keys of a table in the course's files, those with a label first; none is left out."""
    return [*(key for key in first if key in data), *(key for key in data if key not in first)]


def _plain(key: str) -> str:
    return key.replace("_", " ")


def _lines(course: CourseProfile, key: str, data: Mapping[str, Any]) -> list[str]:
    """Return the lines for one key of a course. ``data``: what its files say."""
    word = _IN_COURSE.get(key, _plain(key))
    if key == "environments":
        tables = zip(course.environments.items(), data[key].values(), strict=True)  # a name may have been stripped
        return [f"{word} {name}: {line}" for (name, one), table in tables for line in _environment(one, table)]
    if key == "apps":
        return [f"{word} {name}: {line}" for name, one in course.apps.items() for line in _app(one, data[key][name])]
    if key == "reservations" and course.reservations:
        return [
            f"{word} {one.name}: {one.first} to {one.last}" + (f", opens with {one.open_at}" if one.open_at else "")
            for one in course.reservations
        ]
    if key == "notebooks":
        word += f" for {course.folder or f'~/{course.name}'}"
    if key == "defaults":
        flags = as_flags(course.defaults)
        away = [f"without --{name.replace('_', '-')}" for name, value in course.defaults.items() if value is False]
        typed = [f"--{name}" + (f"={value}" if value is not None else "") for name, value in flags.items()]
        return [f"{word}: {' '.join([*map(shlex.quote, typed), *away]) or 'nothing'}"]
    return [f"{word}: {value}" for value in _values(getattr(course, key))]


def _environment(environment: Environment, data: Mapping[str, Any]) -> list[str]:
    """Return what an environment runs; lines of shell code verbatim."""
    lines = []
    for key in _keys_set(data, _IN_ENVIRONMENT):
        word = _IN_ENVIRONMENT.get(key, _plain(key))
        lines += [f"{word} {value}" for value in _values(getattr(environment, key))]
    return lines or ["as the node finds it"]


def _app(app: App, data: Mapping[str, Any]) -> list[str]:
    """Return what a program beside JupyterLab runs, its words quoted as for a shell."""
    lines = []
    for key in _keys_set(data, _IN_APP):
        value = shlex.join(app.command) if key == "command" else getattr(app, key)
        lines.append(f"{_IN_APP.get(key, _plain(key))} {value}")
    return lines


def _values(value: object) -> list[str]:
    """Return a value as lines, one for each item of a list and each key of a table."""
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()] or ["nothing"]
    if isinstance(value, tuple):
        return [str(item) for item in value] or ["nothing"]
    return [str(value) or "nothing"]


def changes(kept: SavedCourse, found: CourseFiles) -> list[str]:
    """Return what is different now, as lines with a minus and a plus."""
    try:
        old = kept.files()
    except ProfileError:  # a notebook is missing
        old = CourseFiles(kept.course, kept.layers, ("",), (b"",), {})
    before, after = summary(old)[:-1], summary(found)[:-1]
    gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)  # a diff may take minutes
    lines = [*(f"- {line}" for line in gone.elements()), *(f"+ {line}" for line in new.elements())]
    same = [[line for line in side if line not in gone and line not in new] for side in (before, after)]
    lines += ["! the other lines stand in another order"] if same[0] != same[1] else []
    digests = old.digests_beside()
    lines += [
        f"! {name} is another version"
        for name, digest in found.digests_beside().items()
        if digests.get(name, digest) != digest
    ]
    return lines or ["nothing but comments or layout"]
