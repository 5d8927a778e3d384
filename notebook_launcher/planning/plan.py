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

from notebook_launcher.core.errors import AnswerMissing, EnvironmentUnknown, ProfileError, UsageError
from notebook_launcher.core.request import Request, parse_begin, parse_idle
from notebook_launcher.core.sbatch_options import REFUSED, as_typed
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.planning.site_translation import translate_flags
from notebook_launcher.profiles import ClusterProfile, Environment, load_configuration, load_profile
from notebook_launcher.profiles.courses import CourseFiles, course_layers, reservation_on, saved_course
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import CourseProfile, Translation
from notebook_launcher.profiles.store import profile_layers, profile_names
from notebook_launcher.schedulers.local import HONOURED

SchedulerName = Literal["slurm", "lsf", "local", "auto"]
THIS_MACHINE = "here"  # in the place of a profile's name: no cluster at all, but the machine that the user sits at


@dataclass(frozen=True)
class LaunchOptions:
    """What the user typed: the scheduler's flags by long name, where to go, and the words after ``--``.

    ``course_files``: the course, where it is read for this run alone and not kept.
    """

    flags: Mapping[str, str | None] = field(default_factory=dict)
    cluster: str | None = None
    host: str | None = None
    ssh_config: str | None = None
    words: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    engine: str | None = None
    route: str | None = None
    forwards: tuple[int, ...] = ()
    idle_stop: str | None = None
    always_new: bool = False
    course: str | None = None
    uv: str | None = None
    course_files: CourseFiles | None = None


@dataclass(frozen=True)
class LocalMachine:
    """The machine that the user sits at, and the day it is there. ``has_lsf``: whether ``bsub`` is found there.

    ``full_name``: its name with the domain, as far as it is known; it is asked for only where there is a scheduler.
    """

    hostname: str
    has_slurm: bool
    has_lsf: bool = False
    today: date = field(default_factory=date.today, compare=False)
    full_name: str = ""

    def has(self, scheduler: str) -> bool:
        """Whether jobs are queued from this machine itself; with ``local`` they always can be."""
        return {"slurm": self.has_slurm, "lsf": self.has_lsf}.get(scheduler, True)

    @property
    def has_scheduler(self) -> bool:
        """Whether jobs can be queued from this machine."""
        return self.has_slurm or self.has_lsf

    @classmethod
    def detect(cls) -> LocalMachine:
        """Return this machine."""
        has_slurm, has_lsf = (shutil.which(command) is not None for command in ("sbatch", "bsub"))
        name = socket.gethostname()
        return cls(name, has_slurm, has_lsf, full_name=_full_name(name) if has_slurm or has_lsf else "")


def _full_name(hostname: str) -> str:
    """Return what ``hostname -f`` tells."""
    try:
        return socket.getaddrinfo(hostname, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        return ""


@dataclass(frozen=True)
class Place:
    """Where to launch: the profile and its name, the login node (``None``: this machine), the kind of scheduler.

    ``auto``: a bare host says nothing of its scheduler; it is looked for there. ``course``: the course that stands on
    top of the profile, whose words are in it already. ``instead_of``: the retired cluster that was named, whose
    successor this is; ``notes`` tell that. ``is_explicit``: this machine was named, whatever is configured.
    """

    profile: ClusterProfile
    cluster: str | None
    destination: Destination | None
    scheduler: SchedulerName
    host: str | None = None
    ssh_config: str | None = None
    engine: str | None = None
    course: CourseProfile | None = None
    instead_of: str | None = None
    notes: tuple[str, ...] = ()
    is_explicit: bool = False

    @property
    def name(self) -> str:
        """What the place is remembered by on this machine."""
        return self.cluster or self.host or "this machine"

    def arguments(self) -> list[str]:
        """Return the flags that lead to the same place again."""
        argv = ["--course", self.course.name] if self.course else []
        if self.cluster and not (self.course and self.course.cluster == self.cluster):
            argv += ["--cluster", self.cluster]
        argv += ["--host", self.host] if self.host else []
        argv += ["--cluster", THIS_MACHINE] if self.is_explicit else []
        others = (("--ssh-config", self.ssh_config), ("--engine", self.engine))
        return [*argv, *(word for name, value in others if value for word in (name, value))]


@dataclass(frozen=True)
class Plan:
    """All that a launch needs to know before it contacts anything. ``asked``: the names of the user's own flags.

    ``command``: what asks for the same again as it is typed, without the program's name. ``idle_stop``: seconds without
    use after which the session ends by itself, 0: never. ``always_new``: whether a session that runs already is of no
    interest. ``notes``: what the user should know of how the words were understood. ``gpu_type``: the type of its GPUs
    by the profile, where that is known.
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
    gpu_type: str | None = None


def find_place(ask: LaunchOptions, here: LocalMachine) -> Place:
    """Return where to launch: --host, --course, --cluster, what is configured, this machine's scheduler, or ``local``.

    Raises ``ProfileError`` or ``UsageError``, and ``AnswerMissing`` where only the user can tell the login node.
    """
    place = place_so_far(ask, here)
    if needs_host(place, here):
        raise AnswerMissing(
            f"The login node of “{place.cluster}” is not known.",
            hint=f"save it: launch-notebook clusters edit {place.cluster} --host you@login.example.org",
        )
    return place


def needs_host(place: Place, here: LocalMachine) -> bool:
    """Whether nobody has told yet where the login node of a profile is, and this machine is none."""
    profile = place.profile
    is_login_node = profile.scheduler != "local" and here.has(profile.scheduler)
    return place.destination is None and "host" in profile.ask and not profile.host and not is_login_node


def place_so_far(ask: LaunchOptions, here: LocalMachine) -> Place:
    """Return where to launch, as ``find_place``, also where the login node is not known yet."""
    place = _find_place(ask, here)
    overrides = {key: value for key, value in (("engine", ask.engine), ("route", ask.route)) if value}
    return replace(place, profile=place.profile.model_copy(update=overrides), engine=ask.engine)


def _find_place(ask: LaunchOptions, here: LocalMachine) -> Place:
    if ask.host and ask.cluster:
        raise UsageError("--host and --cluster exclude each other.", hint="a profile names its own host")
    if ask.host and ask.course:
        raise UsageError("--host and --course exclude each other.", hint="a course names its own cluster")
    if ask.host:
        destination = Destination.parse(ask.host, config_file=ask.ssh_config)
        return Place(ClusterProfile(), None, destination, "auto", ask.host, ask.ssh_config)
    course, files = _course(ask)
    name = ask.cluster or (course.cluster if course else None) or load_configuration().cluster
    if name == THIS_MACHINE and name not in profile_names():
        if course:
            raise no_course_here(course)
        name = None
    if course and not name:
        raise ProfileError(f"The course “{course.name}” names no cluster.", hint="name it as well: --cluster NAME")
    if name:
        succession = _succession(name)
        old, name = name if succession.notes else None, succession.name
        over = course_layers(course, files, _day(ask, here), profile_layers(name)) if course else ()
        profile = load_profile(name, over) if over else succession.profile
        own = () if profile.successor else profile.translations  # those of a retired one lead to its successor
        translations = (*succession.translations, *own)
        profile = profile.model_copy(update={"translations": translations})
        if profile.host is None or _is_login_node(profile, here):
            return Place(profile, name, None, profile.scheduler, course=course, instead_of=old, notes=succession.notes)
        destination = Destination.parse(
            profile.host, user=profile.user, port=profile.port, config_file=ask.ssh_config or profile.ssh_config
        )
        return Place(
            profile,
            name,
            destination,
            profile.scheduler,
            ssh_config=ask.ssh_config,
            course=course,
            instead_of=old,
            notes=succession.notes,
        )
    kind: SchedulerName = "slurm" if here.has_slurm else "lsf" if here.has_lsf else "local"
    return Place(ClusterProfile(), None, None, kind, is_explicit=ask.cluster == THIS_MACHINE)


def no_course_here(course: CourseProfile) -> UsageError:
    """Return the error for a course without a cluster on purpose."""
    instead = f"--cluster {course.cluster}" if course.cluster not in (None, THIS_MACHINE) else "--cluster NAME"
    return UsageError(
        f"The course “{course.name}” needs a cluster, and “{THIS_MACHINE}” is this machine.",
        hint=f"with the course: {instead}   or on this machine, without it: --cluster {THIS_MACHINE}",
    )


@dataclass(frozen=True)
class _Succession:
    """The cluster that is in use today, and how flags of those before it are translated."""

    name: str
    profile: ClusterProfile
    translations: tuple[Translation, ...] = ()
    notes: tuple[str, ...] = ()


def _succession(name: str) -> _Succession:
    """Return the successor of a retired cluster, or the cluster itself."""
    names = [name]
    translations: list[Translation] = []
    notes = []
    while (profile := load_profile(names[-1])).status == "retired" and profile.successor and not profile.unavailable:
        if profile.successor in names:
            chain = " → ".join([*names, profile.successor])
            raise ProfileError("Retired clusters succeed each other in a circle.", why=chain)
        translations += profile.translations
        notes.append(f"{profile.notice or f'{names[-1]} is retired.'} Launching on {profile.successor}.")
        names.append(profile.successor)
    return _Succession(names[-1], profile, tuple(translations), tuple(notes))


def _course(ask: LaunchOptions) -> tuple[CourseProfile | None, tuple[Layer, ...]]:
    """Return the course that is meant, if any, and its files."""
    if ask.course_files:
        return ask.course_files.course, ask.course_files.layers
    name = ask.course or (None if ask.cluster else load_configuration().course)
    if name is None:
        return None, ()
    kept = saved_course(name)
    return kept.course, kept.layers


def _day(ask: LaunchOptions, here: LocalMachine) -> date:
    """Return the day on which the job begins, by the user's clock, as far as that can be told."""
    begin = ask.flags.get("begin")
    at = parse_begin(begin, datetime.combine(here.today, datetime.now().time())).at if begin else None
    return at.date() if at else here.today


def _course_notes(course: CourseProfile, ask: LaunchOptions, here: LocalMachine) -> list[str]:
    """Return what the user should know of the course today."""
    day, notes = _day(ask, here), [course.notice] if course.notice else []
    go_without = f"to go without it: --cluster NAME, or launch-notebook course forget {course.name}"
    if course.first and day < course.first:
        notes.append(f"The course “{course.name}” begins on {course.first}; {go_without}")
    if course.last and day > course.last:
        notes.append(f"The course “{course.name}” ended on {course.last}; {go_without}")
    reservation = reservation_on(course, day)
    if reservation and "reservation" not in ask.flags:
        notes.append(f"The course's reservation {reservation.name} is used, which is there until {reservation.last}.")
    elif course.reservations and not reservation and (later := [r for r in course.reservations if r.first > day]):
        following = min(later, key=lambda one: one.first)
        notes.append(
            f"The course has no reservation on {day}; the next one, {following.name}, begins on {following.first}."
        )
    return notes


def _is_login_node(profile: ClusterProfile, here: LocalMachine) -> bool:
    """Whether the user sits on the profile's login node already, so that the same words need no connection."""
    if not here.has(profile.scheduler):
        return False
    host = (profile.host or "").rpartition("@")[2].partition(":")[0]
    patterns = (*profile.login_nodes, host)
    # a pattern with a dot fits no short name: with its domain, the login node of another cluster is not meant
    names = {here.hostname, here.hostname.partition(".")[0], here.full_name}
    return any(fnmatch(mine, pattern) for mine in names for pattern in patterns)


def make_plan(ask: LaunchOptions, here: LocalMachine, place: Place | None = None) -> Plan:
    """Return the plan for what was asked; ``place``: where, if that was found before (``find_place``).

    Raises ``UsageError``, ``ProfileError`` or ``EnvironmentUnknown``.
    """
    for name, reason in REFUSED.items():
        if name in ask.flags:
            raise UsageError(f"--{name} cannot be used here: {reason}.")
    for name, value in _values(ask):
        if any(c in value for c in "\n\r\0"):
            raise UsageError(f"The value of {name} has more than one line.")
    place = place or find_place(ask, here)
    spoken = translate_flags(place.profile, ask.flags, place.cluster)
    request = Request(spoken.flags)
    chosen, environment, container = chosen_environment(ask, place)
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
        (*place.notes, *spoken.notes, *(_course_notes(place.course, ask, here) if place.course else ())),
        spoken.gpu_type,
    )


def _same_again(ask: LaunchOptions, place: Place) -> str:
    """Return what asks for the same once more, for a shell; a begin time has passed by then, and is left out."""
    flags = as_typed({name: value for name, value in ask.flags.items() if name != "begin"})
    argv: list[str] = []
    options = (("route", ask.route), ("idle-stop", ask.idle_stop), *_activations(ask))
    for name, value in options:
        argv += [f"--{name}", value] if value else []
    argv += [word for name in ask.modules for word in ("--module", name)]
    argv += [word for port in ask.forwards for word in ("--forward", str(port))]
    argv += ["--", *ask.words] if ask.words else []
    named = replace(place, cluster=place.instead_of or place.cluster)  # the flags are those of it
    return " ".join(filter(None, (shlex.join(named.arguments()), flags, shlex.join(argv))))


def _activations(ask: LaunchOptions) -> tuple[tuple[str, str | None], ...]:
    return (("conda", ask.conda), ("venv", ask.venv), ("uv", ask.uv))


def _values(ask: LaunchOptions) -> list[tuple[str, str]]:
    """All that the user typed, by where it stood: each becomes a line of a file, or a word of a command."""
    pairs = [
        *((f"--{name}", value) for name, value in ask.flags.items()),
        *(("--module", name) for name in ask.modules),
        *((f"--{name}", value) for name, value in _activations(ask)),
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
    if profile.route != "direct":
        return None
    return (
        "With --route direct JupyterLab listens on the compute node's own address: everybody on the cluster can reach "
        "its port, and only the token keeps them out."
    )


def useless_flags_note(flags: Iterable[str]) -> str | None:
    """Return what must be said where there is no scheduler to honour the user's flags."""
    useless = sorted(f"--{name}" for name in flags if name not in HONOURED)
    if not useless:
        return None
    return f"There is no scheduler there: {', '.join(useless)} {'have' if len(useless) > 1 else 'has'} no effect."


def _own_path(place: Place) -> tuple[str, ...]:
    """Where the job runs on this very machine, the JupyterLab installed beside us counts as found."""
    if place.destination is None and place.scheduler == "local":
        return (str(Path(sys.executable).parent),)
    return ()


def chosen_environment(ask: LaunchOptions, place: Place) -> tuple[str | None, Environment, str | None]:
    """Return the environment that is meant: its name, what it comes to here, and its image.

    Raises ``UsageError`` or ``EnvironmentUnknown``.
    """
    late = [word for word in ask.words if word.startswith("-")]
    if late:
        raise UsageError(
            f"Flags come before the two dashes: {' '.join(late)}",
            hint="for example: launch-notebook -t 2:00:00 -- tf-mkl container.sif",
        )
    if len(ask.words) > 2:
        raise UsageError(
            f"After -- come the environment and the container, no more: {' '.join(ask.words)}",
            hint="for example: launch-notebook -- tf-mkl container.sif",
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
        update={key: value for key, value in (("modules", ask.modules), *_activations(ask)) if value}
    )
    image = container or environment.container
    if image is None:
        return name, environment, None
    return name, _with_containers_of(profile, environment), image_path(image, profile)


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
        hint=f"did you mean -- {near[0]}?"
        if near
        else "name an image (-- /path/image.sif), a module (--module NAME) or a conda environment (--conda NAME)",
    )


def _looks_like_image(word: str) -> bool:
    return "/" in word or word.endswith((".sif", ".simg", ".img", ".sqsh"))


def image_path(image: str, profile: ClusterProfile) -> str:
    """Return where an image is: a bare name lies in the profile's image folder, if it has one; not so ``name:tag``."""
    if "/" in image or ":" in image or not profile.image_dir:
        return image
    return f"{profile.image_dir.rstrip('/')}/{image}"
