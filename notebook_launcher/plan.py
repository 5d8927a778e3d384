"""From what the user typed and what the profile says to one plan. Nothing is contacted: mistakes show early."""

from __future__ import annotations

import difflib
import shlex
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from notebook_launcher.dialect import speak
from notebook_launcher.errors import EnvironmentUnknown, ProfileError, UsageError
from notebook_launcher.flags import REFUSED, as_typed
from notebook_launcher.hosts.ssh_settings import Destination
from notebook_launcher.profiles import ClusterProfile, Environment, load_configuration, load_profile
from notebook_launcher.profiles.courses import course_layer, kept_course
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.request import Request, parse_begin, parse_idle
from notebook_launcher.schedulers.local import HONOURED

SchedulerName = Literal["slurm", "lsf", "local", "auto"]


@dataclass(frozen=True)
class Ask:
    """What the user typed: the scheduler's flags by long name, where to go, and the words after ``--``."""

    flags: Mapping[str, str | None] = field(default_factory=dict)
    cluster: str | None = None
    host: str | None = None
    ssh_config: str | None = None
    words: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    engine: str | None = None
    stream: str | None = None
    forwards: tuple[int, ...] = ()
    idle_stop: str | None = None
    always_new: bool = False
    course: str | None = None


@dataclass(frozen=True)
class Here:
    """The machine that the user sits at, and the day it is there."""

    hostname: str
    has_slurm: bool
    today: date = field(default_factory=date.today, compare=False)

    @classmethod
    def look(cls) -> Here:
        """Return this machine."""
        return cls(socket.gethostname(), shutil.which("sbatch") is not None)


@dataclass(frozen=True)
class Place:
    """Where to launch: the profile and its name, the login node (``None``: this machine), the kind of scheduler.

    ``auto``: a bare host says nothing of its scheduler; it is looked for there. ``course``: the course that stands on
    top of the profile, whose words are in it already.
    """

    profile: ClusterProfile
    cluster: str | None
    destination: Destination | None
    scheduler: SchedulerName
    host: str | None = None
    ssh_config: str | None = None
    engine: str | None = None
    course: CourseProfile | None = None

    @property
    def name(self) -> str:
        """What the place is remembered by on this machine."""
        return self.cluster or self.host or "this machine"

    def arguments(self) -> list[str]:
        """Return the flags that lead to the same place again."""
        words = ["--course", self.course.name] if self.course else []
        words += ["--cluster", self.cluster] if self.cluster else ["--host", self.host] if self.host else []
        others = (("--ssh-config", self.ssh_config), ("--engine", self.engine))
        return [*words, *(word for name, value in others if value for word in (name, value))]


@dataclass(frozen=True)
class Plan:
    """All that a launch needs to know before it contacts anything. ``asked``: the names of the user's own flags.

    ``command``: what asks for the same again as it is typed, without the program's name. ``idle_stop``: seconds without
    use after which the session ends by itself, 0: never. ``always_new``: whether a session that runs already is of no
    interest. ``notes``: what the user should know of how the words were understood.
    """

    place: Place
    request: Request
    environment_name: str | None
    environment: Environment
    container: str | None
    path: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()
    forwards: tuple[int, ...] = ()
    command: str = ""
    idle_stop: int = 0
    always_new: bool = False
    notes: tuple[str, ...] = ()


def find_place(ask: Ask, here: Here) -> Place:
    """Return where to launch: --host, --course, --cluster, what is configured, this machine's scheduler, or ``local``.

    Raises ``ProfileError`` or ``UsageError``.
    """
    place = _find_place(ask, here)
    said = {key: value for key, value in (("engine", ask.engine), ("stream", ask.stream)) if value}
    return replace(place, profile=place.profile.model_copy(update=said), engine=ask.engine)


def _find_place(ask: Ask, here: Here) -> Place:
    if ask.host and ask.cluster:
        raise UsageError("--host and --cluster exclude each other.", mend="a profile names its own host")
    if ask.host and ask.course:
        raise UsageError("--host and --course exclude each other.", mend="a course names its own cluster")
    if ask.host:
        destination = Destination.parse(ask.host, config_file=ask.ssh_config)
        return Place(ClusterProfile(), None, destination, "auto", ask.host, ask.ssh_config)
    course, over = _course(ask, here)
    name = ask.cluster or (course.cluster if course else None) or load_configuration().cluster
    if course and not name:
        raise ProfileError(f"The course “{course.name}” names no cluster.", mend="name it as well: --cluster NAME")
    if name:
        profile = load_profile(name, over)
        if profile.host is None or _is_login_node(profile, here):
            return Place(profile, name, None, profile.scheduler, course=course)
        destination = Destination.parse(
            profile.host, user=profile.user, port=profile.port, config_file=ask.ssh_config or profile.ssh_config
        )
        return Place(profile, name, destination, profile.scheduler, ssh_config=ask.ssh_config, course=course)
    return Place(ClusterProfile(), None, None, "slurm" if here.has_slurm else "local")


def _course(ask: Ask, here: Here) -> tuple[CourseProfile | None, list[Layer]]:
    """Return the course that is meant, if any, and what it puts on top of its cluster's profile today."""
    name = ask.course or (None if ask.cluster else load_configuration().course)
    if name is None:
        return None, []
    course, origin = kept_course(name)
    return course, [course_layer(course, here.today, origin)]


def _is_login_node(profile: ClusterProfile, here: Here) -> bool:
    """Whether the user sits on the profile's login node already, so that the same words need no connection."""
    if profile.scheduler == "slurm" and not here.has_slurm:
        return False
    host = (profile.host or "").rpartition("@")[2].partition(":")[0]
    patterns = (*profile.login_nodes, host)
    names = {here.hostname, here.hostname.partition(".")[0]}
    return any(fnmatch(mine, pattern) for mine in names for pattern in patterns)


def make_plan(ask: Ask, here: Here) -> Plan:
    """Return the plan for what was asked. Raises ``UsageError``, ``ProfileError`` or ``EnvironmentUnknown``."""
    for name, reason in REFUSED.items():
        if name in ask.flags:
            raise UsageError(f"--{name} cannot be used here: {reason}.")
    for name, value in _values(ask):
        if any(c in value for c in "\n\r\0"):
            raise UsageError(f"The value of {name} has more than one line.")
    place = find_place(ask, here)
    spoken = speak(place.profile, ask.flags)
    request = Request(spoken.flags)
    chosen, environment, container = _environment(ask, place)
    path = _own_path(place) if environment.is_plain and not container else ()
    idle = place.profile.idle_stop if ask.idle_stop is None else ask.idle_stop
    return Plan(
        place,
        request,
        chosen,
        environment,
        container,
        path,
        frozenset(ask.flags),
        ask.forwards,
        _same_again(ask, place),
        parse_idle(idle) if idle else 0,
        ask.always_new,
        spoken.notes,
    )


def _same_again(ask: Ask, place: Place) -> str:
    """Return what asks for the same once more, for a shell; a begin time has passed by then, and is left out."""
    flags = as_typed({name: value for name, value in ask.flags.items() if name != "begin"})
    words: list[str] = []
    for name, value in (("stream", ask.stream), ("idle-stop", ask.idle_stop), ("conda", ask.conda), ("venv", ask.venv)):
        words += [f"--{name}", value] if value else []
    words += [word for name in ask.modules for word in ("--module", name)]
    words += [word for port in ask.forwards for word in ("--forward", str(port))]
    words += ["--", *ask.words] if ask.words else []
    return " ".join(filter(None, (shlex.join(place.arguments()), flags, shlex.join(words))))


def _values(ask: Ask) -> list[tuple[str, str]]:
    """All that the user typed, by where it stood: each becomes a line of a file, or a word of a command."""
    pairs = [
        *((f"--{name}", value) for name, value in ask.flags.items()),
        *(("--module", name) for name in ask.modules),
        ("--conda", ask.conda),
        ("--venv", ask.venv),
        *(("what comes after --", word) for word in ask.words),
    ]
    return [(name, value) for name, value in pairs if value is not None]


def begin_note(request: Request, now: datetime) -> str | None:
    """Return what must be said about the begin time; ``now`` is the cluster's clock."""
    if request.begin is None:
        return None
    begin = parse_begin(request.begin, now)
    if begin.tomorrow and begin.at is not None:
        return (
            f"{begin.text} has passed for today (it is {now:%H:%M} there): "
            f"the job begins tomorrow, {begin.at:%A %Y-%m-%d %H:%M}."
        )
    return None


def open_port_note(profile: ClusterProfile) -> str | None:
    """Return what must be said where JupyterLab listens for more than this user."""
    if profile.stream != "direct":
        return None
    return (
        "With --stream direct JupyterLab listens on the compute node's own address: everybody on the cluster can reach "
        "its port, and only the token keeps them out."
    )


def useless_flags_note(asked: Iterable[str]) -> str | None:
    """Return what must be said where there is no scheduler to honour the user's flags."""
    useless = sorted(f"--{name}" for name in asked if name not in HONOURED)
    if not useless:
        return None
    return f"There is no scheduler there: {', '.join(useless)} {'have' if len(useless) > 1 else 'has'} no effect."


def _own_path(place: Place) -> tuple[str, ...]:
    """Where the job runs on this very machine, the JupyterLab installed beside us counts as found."""
    if place.destination is None and place.scheduler == "local":
        return (str(Path(sys.executable).parent),)
    return ()


def _environment(ask: Ask, place: Place) -> tuple[str | None, Environment, str | None]:
    late = [word for word in ask.words if word.startswith("-")]
    if late:
        raise UsageError(
            f"Flags come before the two dashes: {' '.join(late)}",
            mend="for example: launch-notebook -t 2:00:00 -- tf-mkl container.sif",
        )
    if len(ask.words) > 2:
        raise UsageError(
            f"After -- come the environment and the container, no more: {' '.join(ask.words)}",
            mend="for example: launch-notebook -- tf-mkl container.sif",
        )
    words = list(ask.words)
    profile = place.profile
    name: str | None = None
    container: str | None = None
    if words and words[0] not in profile.environments and _looks_like_image(words[0]):
        container = words.pop(0)  # an image alone, for a site without a profile
        if words:
            raise UsageError(
                f"After -- the environment comes first and the container second: -- {words[0]} {container}"
            )
        base = Environment()
    else:
        name = words[0] if words else profile.environment
        base = _named(name, profile, place) if name else Environment()
        container = words[1] if len(words) > 1 else None
    environment = base.model_copy(
        update={
            key: value for key, value in (("modules", ask.modules), ("conda", ask.conda), ("venv", ask.venv)) if value
        }
    )
    image = container or environment.container
    if image is None:
        return name, environment, None
    return name, _with_containers_of(profile, environment), _image_path(image, profile)


def _with_containers_of(profile: ClusterProfile, environment: Environment) -> Environment:
    """Add what runs images on this cluster to an environment that has one; its own words go first."""
    return environment.model_copy(
        update={
            "container_command": environment.container_command or profile.container.command,
            "modules": (*environment.modules, *profile.container.modules),
            "bind": (*profile.container.bind, *environment.bind),
        }
    )


def _named(name: str, profile: ClusterProfile, place: Place) -> Environment:
    if name in profile.environments:
        return profile.environments[name]
    names = sorted(profile.environments)
    near = difflib.get_close_matches(name, names, n=1)
    where = f"The profile “{place.cluster}”" if place.cluster else "This place (it has no profile)"
    raise EnvironmentUnknown(
        f"There is no environment “{name}”.",
        why=f"{where} has: {', '.join(names) or 'none'}.",
        mend=f"did you mean -- {near[0]}?"
        if near
        else "name an image (-- /path/image.sif), a module (--module NAME) or a conda environment (--conda NAME)",
    )


def _looks_like_image(word: str) -> bool:
    return "/" in word or word.endswith((".sif", ".simg", ".img", ".sqsh"))


def _image_path(image: str, profile: ClusterProfile) -> str:
    """A bare file name lies in the profile's image folder, if it has one; else where the job starts."""
    if "/" in image or not profile.image_dir:
        return image
    return f"{profile.image_dir.rstrip('/')}/{image}"
