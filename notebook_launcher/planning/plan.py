"""Combines the command line and the profile into one plan. Nothing is contacted, so mistakes show early."""

from __future__ import annotations

import difflib
import shlex
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
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
from notebook_launcher.schedulers.missing import OTHERS

SchedulerName = Literal["slurm", "lsf", "local", "auto"]
THIS_MACHINE = "here"  # the profile name that means no cluster: the user's own machine


@dataclass(frozen=True)
class LaunchOptions:
    """What the user typed: the scheduler's flags by long name, the cluster or host, the arguments after ``--``.

    ``course_files``: the course, if it is read for this run only and not saved.
    """

    flags: Mapping[str, str | None] = field(default_factory=dict)
    _: KW_ONLY
    cluster: str | None = None
    host: str | None = None
    ssh_config: str | None = None
    arguments: tuple[str, ...] = ()
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
    """The user's machine and its date. ``has_lsf``: whether ``bsub`` is found on it.

    ``full_name``: its name with the domain, if known; looked up only where there is a scheduler. ``others``: commands
    of schedulers that are not supported.
    """

    hostname: str
    has_slurm: bool
    has_lsf: bool = False
    today: date = field(default_factory=date.today, compare=False)
    full_name: str = ""
    others: tuple[str, ...] = ()

    def has(self, scheduler: str) -> bool:
        """Whether this machine can submit to a scheduler; always true for ``local``."""
        return {"slurm": self.has_slurm, "lsf": self.has_lsf}.get(scheduler, True)

    @property
    def has_scheduler(self) -> bool:
        """Whether this machine can submit to Slurm or LSF."""
        return self.has_slurm or self.has_lsf

    @classmethod
    def detect(cls) -> LocalMachine:
        """Return this machine."""
        has_slurm, has_lsf = (shutil.which(command) is not None for command in ("sbatch", "bsub"))
        name = socket.gethostname()
        if has_slurm or has_lsf:
            return cls(name, has_slurm, has_lsf, full_name=_full_name(name))
        return cls(name, False, others=tuple(command for command in OTHERS if shutil.which(command)))


def _full_name(hostname: str) -> str:
    """Return what ``hostname -f`` prints."""
    try:
        return socket.getaddrinfo(hostname, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        return ""


@dataclass(frozen=True)
class LaunchTarget:
    """Where to launch: the profile and its name, the login node (``None``: this machine), the kind of scheduler.

    Scheduler ``auto``: the user named only a host, so the scheduler is detected there. ``course``: the course whose
    settings are already merged into the profile. ``instead_of``: the retired cluster that the user named; the target
    is its successor, as ``notes`` explain, which are shown before the login. ``is_explicit``: the user named this
    machine, whatever is configured. ``is_default``: it is what the configuration says, whether named or not.
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
    is_default: bool = False

    @property
    def name(self) -> str:
        """The name under which this machine remembers the target."""
        return self.cluster or self.host or "this machine"

    def arguments(self) -> list[str]:
        """Return the flags that select the same target again; the default cluster needs none."""
        argv = ["--course", self.course.name] if self.course else []
        is_implied = self.is_default or (self.course and self.course.cluster == self.cluster)
        if self.cluster and not is_implied:
            argv += ["--cluster", self.cluster]
        argv += ["--host", self.host] if self.host else []
        argv += ["--cluster", THIS_MACHINE] if self.is_explicit and not self.is_default else []
        others = (("--ssh-config", self.ssh_config), ("--engine", self.engine))
        return [*argv, *(word for name, value in others if value for word in (name, value))]


@dataclass(frozen=True)
class Plan:
    """All that a launch needs before it contacts anything. ``user_flags``: the names of the flags that the user typed.

    ``command``: the arguments that repeat the launch, without the program's name. ``idle_stop``: seconds of idleness
    after which the session ends, 0: never. ``always_new``: whether to ignore a session that is already running.
    ``notes``: what the user should know about how the options were read. ``gpu_type``: the type of the GPUs according
    to the profile, if known. ``container_typed``: whether the user named the container, rather than the profile.
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
    always_new: bool = False
    notes: tuple[str, ...] = ()
    gpu_type: str | None = None
    container_typed: bool = False


def find_target(options: LaunchOptions, here: LocalMachine) -> LaunchTarget:
    """Return the target: from --host, --course, --cluster, the configuration, this machine's scheduler, or ``local``.

    Raises ``ProfileError``, ``UsageError``, or ``AnswerMissing`` if the login node is not configured.
    """
    target = resolve_target(options, here)
    if needs_host(target, here):
        raise AnswerMissing(
            f"The login node of “{target.cluster}” is not known.",
            hint=f"save it: launch-notebook clusters edit {target.cluster} --host you@login.example.org",
        )
    return target


def needs_host(target: LaunchTarget, here: LocalMachine) -> bool:
    """Whether the profile's login node is still unknown, and this machine is not one."""
    profile = target.profile
    is_login_node = profile.scheduler != "local" and here.has(profile.scheduler)
    return target.destination is None and "host" in profile.ask and not profile.host and not is_login_node


def resolve_target(options: LaunchOptions, here: LocalMachine) -> LaunchTarget:
    """Return the target as ``find_target`` does, even if the login node is not known yet."""
    target = _resolve_target(options, here)
    overrides = {key: value for key, value in (("engine", options.engine), ("route", options.route)) if value}
    return replace(target, profile=target.profile.model_copy(update=overrides), engine=options.engine)


def _resolve_target(options: LaunchOptions, here: LocalMachine) -> LaunchTarget:
    if options.host and options.cluster:
        raise UsageError("--host and --cluster exclude each other.", hint="a profile names its own host")
    if options.host and options.course:
        raise UsageError("--host and --course exclude each other.", hint="a course names its own cluster")
    if options.host:
        destination = Destination.parse(options.host, config_file=options.ssh_config)
        return LaunchTarget(ClusterProfile(), None, destination, "auto", options.host, options.ssh_config)
    course, files = _course(options)
    configuration = load_configuration()
    name = options.cluster or (course.cluster if course else None) or configuration.cluster
    is_default = course is None and configuration.course is None and name == configuration.cluster
    if name == THIS_MACHINE and name not in profile_names():
        if course:
            raise no_course_here(course)
        name = None
    if course and not name:
        raise ProfileError(f"The course “{course.name}” names no cluster.", hint="name it as well: --cluster NAME")
    if name:
        succession = _succession(name)
        old, name = name if succession.notes else None, succession.name
        over = course_layers(course, files, _day(options, here), profile_layers(name)) if course else ()
        profile = load_profile(name, over) if over else succession.profile
        own = () if profile.successor else profile.translations  # lead to the successor
        translations = (*succession.translations, *own)
        profile = profile.model_copy(update={"translations": translations})
        if profile.host is None or _is_login_node(profile, here):
            return LaunchTarget(
                profile,
                name,
                None,
                profile.scheduler,
                course=course,
                instead_of=old,
                notes=succession.notes,
                is_default=is_default,
            )
        destination = Destination.parse(
            profile.host, user=profile.user, port=profile.port, config_file=options.ssh_config or profile.ssh_config
        )
        return LaunchTarget(
            profile,
            name,
            destination,
            profile.scheduler,
            ssh_config=options.ssh_config,
            course=course,
            instead_of=old,
            notes=succession.notes,
            is_default=is_default,
        )
    kind: SchedulerName = "slurm" if here.has_slurm else "lsf" if here.has_lsf else "local"
    is_explicit = options.cluster == THIS_MACHINE
    is_default = is_explicit and is_default
    return LaunchTarget(ClusterProfile(), None, None, kind, is_explicit=is_explicit, is_default=is_default)


def no_course_here(course: CourseProfile) -> UsageError:
    """Return the error for using a course with ``--cluster here``."""
    instead = f"--cluster {course.cluster}" if course.cluster not in (None, THIS_MACHINE) else "--cluster NAME"
    return UsageError(
        f"The course “{course.name}” needs a cluster, and “{THIS_MACHINE}” is this machine.",
        hint=f"with the course: {instead}   or on this machine, without it: --cluster {THIS_MACHINE}",
    )


@dataclass(frozen=True)
class _Succession:
    """The cluster that is in use today, and how flags of its predecessors are translated."""

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
        notes.append(f"{profile.notice or f'{names[-1]} is retired.'} Using its successor, {profile.successor}.")
        names.append(profile.successor)
    return _Succession(names[-1], profile, tuple(translations), tuple(notes))


def _course(options: LaunchOptions) -> tuple[CourseProfile | None, tuple[Layer, ...]]:
    """Return the selected course, if any, and its files."""
    if options.course_files:
        return options.course_files.course, options.course_files.layers
    name = options.course or (None if options.cluster else load_configuration().course)
    if name is None:
        return None, ()
    kept = saved_course(name)
    return kept.course, kept.layers


def _day(options: LaunchOptions, here: LocalMachine) -> date:
    """Return the day on which the job begins, by the user's clock, as far as it is known."""
    begin = options.flags.get("begin")
    at = parse_begin(begin, datetime.combine(here.today, datetime.now().time())).at if begin else None
    return at.date() if at else here.today


def _course_notes(course: CourseProfile, options: LaunchOptions, here: LocalMachine) -> list[str]:
    """Return what the user should know about the course today."""
    day, notes = _day(options, here), [course.notice] if course.notice else []
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


def _is_login_node(profile: ClusterProfile, here: LocalMachine) -> bool:
    """Whether this machine is already the profile's login node, so that no connection is needed."""
    if not here.has(profile.scheduler):
        return False
    host = (profile.host or "").rpartition("@")[2].partition(":")[0]
    patterns = (*profile.login_nodes, host)
    # a pattern with a dot matches full names only, so that it does not match the login node of another cluster
    names = {here.hostname, here.hostname.partition(".")[0], here.full_name}
    return any(fnmatch(mine, pattern) for mine in names for pattern in patterns)


def make_plan(options: LaunchOptions, here: LocalMachine, target: LaunchTarget | None = None) -> Plan:
    """Return the plan for the given options; ``target``: if already known (``find_target``).

    Raises ``UsageError``, ``ProfileError`` or ``EnvironmentUnknown``.
    """
    for name, reason in REFUSED.items():
        if name in options.flags:
            raise UsageError(f"--{name} cannot be used here: {reason}.")
    for name, value in _values(options):
        if any(c in value for c in "\n\r\0"):
            raise UsageError(f"The value of {name} has more than one line.")
    target = target or find_target(options, here)
    translated = translate_flags(target.profile, options.flags, target.cluster)
    request = Request(translated.flags)
    chosen, environment, container = chosen_environment(options, target)
    path = _local_jupyter_path(target) if environment.is_plain and not container else ()
    idle = target.profile.idle_stop if options.idle_stop is None else options.idle_stop
    return Plan(
        target,
        request,
        chosen,
        environment,
        container,
        path,
        frozenset(options.flags),
        options.forwards,
        _relaunch_arguments(options, target),
        parse_idle(idle) if idle else 0,
        options.always_new,
        (*translated.notes, *(_course_notes(target.course, options, here) if target.course else ())),
        translated.gpu_type,
        container_typed=container is not None and options.arguments[-1:] != (chosen,) and bool(options.arguments),
    )


def _relaunch_arguments(options: LaunchOptions, target: LaunchTarget) -> str:
    """Return the arguments that repeat this launch, quoted for a shell; no begin time, which has passed by then."""
    flags = as_typed({name: value for name, value in options.flags.items() if name != "begin"})
    argv: list[str] = []
    pairs = (("route", options.route), ("idle-stop", options.idle_stop), *_activations(options))
    for name, value in pairs:
        argv += [f"--{name}", value] if value else []
    argv += [word for name in options.modules for word in ("--module", name)]
    argv += [word for port in options.forwards for word in ("--forward", str(port))]
    argv += ["--", *options.arguments] if options.arguments else []
    # the flags are in the retired cluster's terms; and it is repeated later, when the default may be another one
    named = replace(target, cluster=target.instead_of or target.cluster, is_default=False)
    return " ".join(filter(None, (shlex.join(named.arguments()), flags, shlex.join(argv))))


def _activations(options: LaunchOptions) -> tuple[tuple[str, str | None], ...]:
    return (("conda", options.conda), ("venv", options.venv), ("uv", options.uv))


def _values(options: LaunchOptions) -> list[tuple[str, str]]:
    """Return all that the user typed, with its option: each becomes a line of a file, or an argument of a command."""
    pairs = [
        *((f"--{name}", value) for name, value in options.flags.items()),
        *(("--module", name) for name in options.modules),
        *((f"--{name}", value) for name, value in _activations(options)),
        *(("what comes after --", word) for word in options.arguments),
    ]
    return [(name, value) for name, value in pairs if value is not None]


def begin_note(request: Request, now: datetime) -> str | None:
    """Return the note about the begin time, if there is one; ``now`` is the cluster's clock."""
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
    """Return the note about a JupyterLab that listens on the node's own address."""
    if profile.route != "direct":
        return None
    return (
        "With --route direct JupyterLab listens on the compute node's own address: everybody on the cluster can reach "
        "its port, and only the token keeps them out."
    )


def useless_flags_note(flags: Iterable[str]) -> str | None:
    """Return the note about flags that have no effect without a scheduler."""
    useless = sorted(f"--{name}" for name in flags if name not in HONOURED)
    if not useless:
        return None
    return f"There is no scheduler there: {', '.join(useless)} {'have' if len(useless) > 1 else 'has'} no effect."


def _local_jupyter_path(target: LaunchTarget) -> tuple[str, ...]:
    """Return the folder of the JupyterLab installed beside the launcher, if the job runs on this machine."""
    if target.destination is None and target.scheduler == "local":
        return (str(Path(sys.executable).parent),)
    return ()


def chosen_environment(options: LaunchOptions, target: LaunchTarget) -> tuple[str | None, Environment, str | None]:
    """Return the selected environment: its name, its settings on this cluster, and its image.

    Raises ``UsageError`` or ``EnvironmentUnknown``.
    """
    late = [word for word in options.arguments if word.startswith("-")]
    if late:
        raise UsageError(
            f"Flags come before the two dashes: {' '.join(late)}",
            hint="for example: launch-notebook -t 2:00:00 -- tf-mkl container.sif",
        )
    if len(options.arguments) > 2:
        raise UsageError(
            f"After -- come the environment and the container, no more: {' '.join(options.arguments)}",
            hint="for example: launch-notebook -- tf-mkl container.sif",
        )
    words = list(options.arguments)
    profile = target.profile
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
        base = _environment_named(name, profile, target) if name else Environment()
        container = words[1] if len(words) > 1 else None
    environment = base.model_copy(
        update={key: value for key, value in (("modules", options.modules), *_activations(options)) if value}
    )
    image = container or environment.container
    if image is None:
        return name, environment, None
    return name, _with_containers_of(profile, environment), image_path(image, profile)


def _with_containers_of(profile: ClusterProfile, environment: Environment) -> Environment:
    """Add the cluster's container settings to an environment with an image; the environment's own come first."""
    return environment.model_copy(
        update={
            "container_command": environment.container_command or profile.container.command,
            "modules": (*environment.modules, *profile.container.modules),
            "bind": (*profile.container.bind, *environment.bind),
        }
    )


def _environment_named(name: str, profile: ClusterProfile, target: LaunchTarget) -> Environment:
    if name in profile.environments:
        return profile.environments[name]
    names = sorted(profile.environments)
    near = difflib.get_close_matches(name, names, n=1)
    where = f"The profile “{target.cluster}”" if target.cluster else "This place (it has no profile)"
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
    """Return an image's path: a bare file name is looked up in the profile's image folder, but not ``name:tag``."""
    if "/" in image or ":" in image or not profile.image_dir:
        return image
    return f"{profile.image_dir.rstrip('/')}/{image}"
