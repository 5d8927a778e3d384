"""Combines the command line and the profile into one plan. It contacts nothing, so that mistakes show early."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from notebook_launcher.core.errors import EnvironmentUnknown, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request, override_flags, parse_begin, parse_idle
from notebook_launcher.core.sbatch_options import REFUSED, as_typed, near_flag, unlisted
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.planning.apps import RequestedApp, notes_on_apps, requested_apps, with_dask, with_icon_data
from notebook_launcher.planning.site_translation import translate_flags
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target, first_day
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.profiles.bundled_images import is_made_by_user
from notebook_launcher.profiles.courses import notebook_to_open, reservation_on
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.schedulers.local import HONOURED
from notebook_launcher.schedulers.make import make_scheduler


class Plan(Frozen):
    """All that a launch needs before it contacts anything. ``user_flags``: the names of the flags that the user typed.

    ``command``: the arguments that repeat the launch, without the program's name. ``idle_stop``: seconds of idleness
    after which the session is ended, 0: never. ``panel``: whether JupyterLab's page has the session's panel.
    ``always_new``: whether to ignore a session that is already running. ``notes``: what the user should know about how
    the options were interpreted. ``gpu_type``: the type of the GPUs according to the profile, if known.
    ``container_typed``: whether the user named the container, and not the profile. ``open_at``: the folder or notebook
    that JupyterLab opens, if the user named one; ``course_notebook``: the course's notebook that it opens otherwise.
    ``environment_notice``: the profile's sentence about the environment. ``distributed``, ``local_lab``,
    ``placeholders``: see ``LaunchOptions``.
    """

    target: LaunchTarget
    request: Request
    environment_name: str | None
    environment: Environment
    container: str | None
    path: tuple[str, ...] = ()
    user_flags: frozenset[str] = frozenset()
    forwards: tuple[int, ...] = ()
    command: str = ""
    idle_stop: int = 0
    panel: bool = True
    always_new: bool = False
    notes: tuple[str, ...] = ()
    gpu_type: str | None = None
    container_typed: bool = False
    open_at: str | None = None
    course_notebook: str | None = None
    placeholders: tuple[str, ...] = ()
    environment_notice: str | None = None
    distributed: str | None = None
    local_lab: tuple[str, ...] = ()
    apps: tuple[RequestedApp, ...] = ()


def _course_notes(course: CourseProfile, options: LaunchOptions, here: LocalMachine) -> list[str]:
    """Return what the user should know about the course on the day of the launch."""
    day, notes = first_day(options, here), [course.notice] if course.notice else []
    go_without = f"to go without it: --cluster NAME, or launch-notebook course forget {course.name}"
    if course.first and day < course.first:
        notes.append(f"The course “{course.name}” begins on {course.first}; {go_without}")
    if course.last and day > course.last:
        notes.append(f"The course “{course.name}” ended on {course.last}; {go_without}")
    reservation = reservation_on(course, day)
    if reservation and "reservation" not in options.flags:
        notes.append(f"The course's reservation {reservation.name} is used, which is there until {reservation.last}.")
    elif course.reservations and not reservation and (later := [r for r in course.reservations if r.first > day]):
        following = min(later, key=lambda one: one.first)
        notes.append(
            f"The course has no reservation on {day}; the next one, {following.name}, begins on {following.first}."
        )
    return notes


def make_plan(
    options: LaunchOptions,
    here: LocalMachine,
    target: LaunchTarget | None = None,
    *,
    script_flags: Mapping[str, str | None] | None = None,
    allows_array: bool = False,
) -> Plan:
    """Return the plan for these options; ``target``: that of ``find_target``, if it is already known.

    ``script_flags``: the flags in a job script, which have priority over the profile's, as typed flags have over them.
    ``allows_array``: whether it may be a job array.

    Raises ``UsageError``, ``ProfileError`` or ``EnvironmentUnknown``.
    """
    typed = options = with_dask(options)
    if script_flags:
        options = replace(options, flags=override_flags(script_flags, options.flags))
    _check_values(options, allows_array=allows_array)
    target = target or find_target(options, here)
    if target.scheduler not in ("slurm", "auto"):
        for name in unlisted(options.flags):
            raise make_scheduler(target.scheduler, "").no_such_flag(name)
    translated = translate_flags(target.profile, options.flags, target.cluster, options.placeholders)
    request = Request(translated.flags)
    _check_distributed(options, request, target)
    if near := near_flags_note(request):
        target = replace(target, notes=(*target.notes, near))
    chosen = chosen_environment(options, target)
    is_plain = chosen.environment.is_plain and not chosen.image
    idle = target.profile.idle_stop if options.idle_stop is None else options.idle_stop
    course_notes = _course_notes(target.course, options, here) if target.course else []
    on_time = Walltime.note_on_minutes(options.flags.get("time") or "")
    return Plan(
        target=target,
        request=request,
        environment_name=chosen.name,
        environment=chosen.environment,
        container=chosen.image,
        path=_local_jupyter_path(target) if is_plain else (),
        user_flags=frozenset(options.flags),
        forwards=options.forwards,
        local_lab=options.local_lab,
        apps=with_icon_data(requested_apps(options.apps, target.profile), target, options.course_files),
        command=_relaunch_arguments(typed, target),
        idle_stop=parse_idle(idle) if idle else 0,
        panel=target.profile.panel and not options.no_panel,
        always_new=options.always_new,
        notes=(*([on_time] if on_time else []), *translated.notes, *course_notes, *notes_on_apps(options.apps, target)),
        gpu_type=translated.gpu_type,
        container_typed=chosen.image_typed,
        open_at=options.open_at,
        course_notebook=notebook_to_open(target.course, first_day(options, here)) if target.course else None,
        placeholders=options.placeholders,
        environment_notice=_environment_notice(chosen, options),
        distributed=options.distributed,
    )


def _check_values(options: LaunchOptions, *, allows_array: bool) -> None:
    for name, reason in REFUSED.items():
        if name in options.flags and not (allows_array and name == "array"):
            raise UsageError(f"--{name} cannot be used here: {reason}.")
    for name, value in _values(options):
        if any(c in value for c in "\n\r\0"):
            raise UsageError(f"The value of {name} has more than one line.")


def _check_distributed(options: LaunchOptions, request: Request, target: LaunchTarget) -> None:
    """Raise ``UsageError`` for workers on several nodes if the scheduler cannot start them there."""
    if not options.distributed or request.flags.get("nodes") in (None, "1"):
        return
    scheduler = make_scheduler(target.scheduler, "")
    if not scheduler.several_nodes:
        raise UsageError(
            f"--with {options.distributed} on several nodes needs Slurm; this cluster has {scheduler.title}.",
            hint=f"use one node, with more cores: --with {options.distributed} -n 16",
        )


def _environment_notice(chosen: ChosenEnvironment, options: LaunchOptions) -> str | None:
    """Return the profile's sentence about the environment, unless the user named an image or software of their own."""
    return None if chosen.image_typed or _names_own_software(options) else chosen.environment.notice


def _relaunch_arguments(options: LaunchOptions, target: LaunchTarget) -> str:
    """Return the arguments that repeat this launch, quoted for a shell, without the begin time, which will be past."""
    flags = as_typed({name: value for name, value in options.flags.items() if name != "begin"})
    argv: list[str] = []
    pairs = (
        ("route", options.route),
        ("idle-stop", options.idle_stop),
        ("open-at", options.open_at),
        ("with", options.distributed),
        *_activations(options),
    )
    for name, value in pairs:
        argv += [f"--{name}", value] if value else []
    argv += ["--no-panel"] if options.no_panel else []
    argv += ["--local-lab"] if options.local_lab else []
    argv += [word for app in options.apps for word in ("--app", app)]
    argv += [word for name in options.modules for word in ("--module", name)]
    argv += [word for port in options.forwards for word in ("--forward", str(port))]
    argv += ["--", *options.arguments] if options.arguments else []
    # the flags are those of the retired cluster, if the user named one; the default cluster may change later
    named = replace(target, cluster=target.instead_of or target.cluster, is_default=False)
    return " ".join(filter(None, (shlex.join(named.arguments()), flags, shlex.join(argv))))


def _activations(options: LaunchOptions) -> tuple[tuple[str, str | None], ...]:
    return (("conda", options.conda), ("venv", options.venv), ("uv", options.uv))


def _values(options: LaunchOptions) -> list[tuple[str, str]]:
    """Return all values that the user typed, each with its option; they become lines of files, or arguments."""
    pairs = [
        *((f"--{name}", value) for name, value in options.flags.items()),
        *(("--module", name) for name in options.modules),
        *((f"--{name}", value) for name, value in _activations(options)),
        *(("what comes after --", word) for word in options.arguments),
    ]
    return [(name, value) for name, value in pairs if value is not None]


def begin_note(request: Request, now: datetime) -> str | None:
    """Return a note if the begin time means tomorrow; ``now``: on the cluster's clock."""
    if request.begin is None:
        return None
    begin = parse_begin(request.begin, now)
    if begin.tomorrow and begin.at is not None:
        return (
            f"{begin.text} has passed for today (it is {now:%H:%M} there): "
            f"the job begins tomorrow, {begin.at:%A %Y-%m-%d %H:%M}."
        )
    return None


def unlisted_flags_note(request: Request) -> str | None:
    """Return a dry run's note about flags that only the cluster's sbatch may know, ``None`` if there are none."""
    names = sorted(f"--{name}" for name in unlisted(request.flags))
    if not names:
        return None
    *others, last = names
    return (
        f"Not checked in this dry run: {' and '.join([*filter(None, [', '.join(others)]), last])}. A launch asks the "
        f"cluster's sbatch about {'them' if others else 'it'} before it submits the job."
    )


def near_flags_note(request: Request) -> str | None:
    """Return a note about such flags that are close to a known one; it is shown before the login."""
    near = {f"--{name}": near_flag(name) for name in sorted(unlisted(request.flags))}
    return " ".join(f"{name} is close to {one}: did you mean that?" for name, one in near.items() if one) or None


def open_port_note(profile: ClusterProfile) -> str | None:
    """Return a note if JupyterLab will listen on the node's own network address."""
    if profile.route != "direct":
        return None
    return (
        "With --route direct JupyterLab listens on the compute node's own address: everybody on the cluster can reach "
        "its port, and only the token keeps them out."
    )


def useless_flags_note(flags: Iterable[str]) -> str | None:
    """Return a note about flags that have no effect without a scheduler."""
    useless = sorted(f"--{name}" for name in flags if name not in HONOURED)
    if not useless:
        return None
    return f"There is no scheduler there: {', '.join(useless)} {'have' if len(useless) > 1 else 'has'} no effect."


def _local_jupyter_path(target: LaunchTarget) -> tuple[str, ...]:
    """Return the folder of the JupyterLab that is installed with the launcher, if the job runs on this machine."""
    if target.destination is None and target.scheduler == "local":
        return (str(Path(sys.executable).parent),)
    return ()


class ChosenEnvironment(NamedTuple):
    """The selected environment: its name, its settings on this cluster, its image, and whether the user named that."""

    name: str | None
    environment: Environment
    image: str | None
    image_typed: bool


def chosen_environment(options: LaunchOptions, target: LaunchTarget) -> ChosenEnvironment:
    """Return the environment that the user or the profile selects.

    Raises ``UsageError`` for wrong words after ``--``, and ``EnvironmentUnknown``.
    """
    late = [word for word in options.arguments if word.startswith("-")]
    if late:
        raise UsageError(
            f"Flags come before the two dashes: {' '.join(late)}",
            hint="for example: launch-notebook -t 2:00:00 -- tf-mkl tensorflow.sif",
        )
    if len(options.arguments) > 2:
        raise UsageError(
            f"After -- come the environment and the image, no more: {' '.join(options.arguments)}",
            hint="for example: launch-notebook -- tf-mkl tensorflow.sif",
        )
    words = list(options.arguments)
    profile = target.profile
    name: str | None = None
    container: str | None = None
    if words and words[0] not in profile.environments and _looks_like_image(words[0]):
        container = words.pop(0)  # only an image, as on a site without a profile
        if words:
            raise UsageError(
                f"After -- the environment comes first and the container second: -- {words[0]} {container}"
            )
        base = Environment()
    else:
        name = words[0] if words else profile.environment
        if not words and _names_own_software(options) and _image_is_made_by_user(name, profile):
            name = None  # the software that the user named is not inside that image
        base = _environment_named(name, profile, target) if name else Environment()
        container = words[1] if len(words) > 1 else None
    environment = base.changed(
        **{key: value for key, value in (("modules", options.modules), *_activations(options)) if value}
    )
    image = container or environment.container
    if image is None:
        return ChosenEnvironment(name, environment, None, image_typed=False)
    with_containers = _with_containers_of(profile, environment)
    return ChosenEnvironment(name, with_containers, image_path(image, profile), image_typed=bool(container))


def _names_own_software(options: LaunchOptions) -> bool:
    return bool(options.modules or any(value for _, value in _activations(options)))


def _image_is_made_by_user(name: str | None, profile: ClusterProfile) -> bool:
    return name in profile.environments and is_made_by_user(profile.environments[name])


def _with_containers_of(profile: ClusterProfile, environment: Environment) -> Environment:
    """Add the cluster's container settings to an environment with an image; its own settings have precedence."""
    return environment.changed(
        container_command=environment.container_command or profile.container.command,
        modules=(*environment.modules, *profile.container.modules),
        bind=(*profile.container.bind, *environment.bind),
    )


def _environment_named(name: str, profile: ClusterProfile, target: LaunchTarget) -> Environment:
    if name in profile.environments:
        return profile.environments[name]
    names = sorted(profile.environments)
    where = f"The profile “{target.cluster}”" if target.cluster else "This place (it has no profile)"
    raise EnvironmentUnknown(
        f"There is no environment “{name}”.",
        why=f"{where} has: {', '.join(names) or 'none'}.",
        hint=did_you_mean(name, names, "-- {}")
        or "name an image (-- /path/image.sif), a module (--module NAME) or a conda environment (--conda NAME)",
    )


def _looks_like_image(word: str) -> bool:
    return "/" in word or word.endswith((".sif", ".simg", ".img", ".sqsh"))


def image_path(image: str, profile: ClusterProfile) -> str:
    """Return an image's path: a bare file name, but not ``name:tag``, is one in the profile's ``image_dir``."""
    if "/" in image or ":" in image or not profile.image_dir:
        return image
    return f"{profile.image_dir.rstrip('/')}/{image}"
