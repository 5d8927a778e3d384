"""Where to launch: from the command line, the configuration and the profiles to a target. Nothing is contacted."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from dataclasses import KW_ONLY, field, replace
from datetime import date, datetime
from fnmatch import fnmatch

from notebook_launcher.core.errors import AnswerMissing, ProfileError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import parse_begin
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.profiles import ClusterProfile, load_configuration, load_profile
from notebook_launcher.profiles.courses import CourseFiles, course_layers, saved_course
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import Configuration, CourseProfile, Translation
from notebook_launcher.profiles.store import profile_layers, profile_names
from notebook_launcher.profiles.validation import cut
from notebook_launcher.schedulers.kinds import KINDS, SchedulerName
from notebook_launcher.schedulers.missing import OTHERS

THIS_MACHINE = "here"  # the profile name that means no cluster: the user's own machine


class LaunchOptions(Frozen):
    """What the user typed: the scheduler's flags by long name, the cluster or host, the arguments after ``--``.

    ``course_files``: the course, if it is read for this run only and not saved. ``placeholders``: the names of flags
    whose value is a placeholder, in a dry run. ``notes_shown``: notes on the target that the user has seen already.
    ``distributed``: the engine whose workers run on all nodes of the job: ``dask`` or ``ray``.
    ``local_lab``: the command of the user's own JupyterLab, if that is to use the session's kernels.
    ``apps``: the programs beside JupyterLab, each with ``=FOLDER`` if one was named. ``new_default``: the cluster or
    course was chosen for the first time, and becomes the default once the request has been checked.
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
    open_at: str | None = None
    idle_stop: str | None = None
    no_panel: bool = False
    always_new: bool = False
    course: str | None = None
    uv: str | None = None
    course_files: CourseFiles | None = None
    placeholders: tuple[str, ...] = ()
    notes_shown: tuple[str, ...] = ()
    distributed: str | None = None
    local_lab: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    new_default: bool = False


class LocalMachine(Frozen):
    """The user's machine and its date. ``schedulers``: those that it can submit to, the one to use first.

    ``full_name``: its name with the domain, if known; looked up only where there is a scheduler. ``others``: commands
    of schedulers that are not supported.
    """

    hostname: str
    schedulers: tuple[SchedulerName, ...] = ()
    today: date = field(default_factory=date.today, compare=False)
    full_name: str = ""
    others: tuple[str, ...] = ()

    def has(self, scheduler: str) -> bool:
        """Whether this machine can submit to a scheduler; always true for ``local``."""
        return scheduler in self.schedulers or scheduler not in {kind.name for kind in KINDS}

    @property
    def has_scheduler(self) -> bool:
        """Whether this machine can submit to a scheduler with a queue."""
        return bool(self.schedulers)

    @classmethod
    def detect(cls) -> LocalMachine:
        """Return this machine."""
        schedulers = tuple(kind.name for kind in KINDS if shutil.which(kind.command))
        name = socket.gethostname()
        if schedulers:
            return cls(name, schedulers, full_name=_full_name(name))
        return cls(name, others=tuple(command for command in OTHERS if shutil.which(command)))


def _full_name(hostname: str) -> str:
    """Return what ``hostname -f`` prints."""
    try:
        return socket.getaddrinfo(hostname, None, flags=socket.AI_CANONNAME)[0][3]
    except OSError:
        return ""


class LaunchTarget(Frozen):
    """Where to launch: the profile and its name, the login node (``None``: this machine), the kind of scheduler.

    Scheduler ``auto``: the user named only a host, so the scheduler is detected there. ``course``: the course whose
    settings are already merged into the profile. ``instead_of``: the retired cluster that the user named; the target
    is its successor, which the ``notes`` explain; these are shown before the login. ``is_explicit``: the user named
    this machine, whatever is configured. ``is_default``: it is what the configuration says, whether named or not.
    ``new_default``: see ``LaunchOptions``. ``no_default``: it is this machine because no cluster is named or
    configured, and no scheduler is here.
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
    new_default: bool = False
    no_default: bool = False

    @property
    def name(self) -> str:
        """The name under which this machine remembers the target."""
        return self.cluster or self.host or "this machine"

    @property
    def contact(self) -> str | None:
        """Whom to ask about the cluster: in a course, the teacher."""
        return (self.course.contact if self.course else None) or self.profile.contact

    def arguments(self) -> list[str]:
        """Return the flags that select the same target again; the default cluster or course needs none."""
        argv = ["--course", self.course.name] if self.course and not self.is_default else []
        is_implied = self.is_default or (self.course and self.course.cluster == self.cluster)
        if self.cluster and not is_implied:
            argv += ["--cluster", self.cluster]
        argv += ["--host", self.host] if self.host else []
        argv += ["--cluster", THIS_MACHINE] if self.is_explicit and not self.is_default else []
        others = (("--ssh-config", self.ssh_config), ("--engine", self.engine))
        return [*argv, *(word for name, value in others if value for word in (name, value))]

    def arguments_anywhere(self) -> list[str]:
        """Return the flags that select the same target, whatever the default cluster or course is by then."""
        is_here = not self.cluster and not self.host
        return replace(self, is_default=False, is_explicit=is_here).arguments()


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


def leads_to(configuration: Configuration, course: CourseProfile | None, cluster: str | None) -> bool:
    """Whether the configuration by itself selects this course (``None``: none) on this cluster (``None``: none)."""
    of_course = course.cluster if course else None
    is_same_course = configuration.course == (course.name if course else None)
    return is_same_course and cluster == (of_course or configuration.cluster)


def needs_host(target: LaunchTarget, here: LocalMachine) -> bool:
    """Whether the profile's login node is still unknown, and this machine is not one."""
    profile = target.profile
    is_login_node = profile.scheduler != "local" and here.has(profile.scheduler)
    return target.destination is None and "host" in profile.ask and not profile.host and not is_login_node


def resolve_target(options: LaunchOptions, here: LocalMachine) -> LaunchTarget:
    """Return the target as ``find_target`` does, even if the login node is not known yet."""
    target = _resolve_target(options, here)
    overrides = {key: value for key, value in (("engine", options.engine), ("route", options.route)) if value}
    notes = tuple(note for note in target.notes if note not in options.notes_shown)
    profile = target.profile.changed(**overrides)
    return replace(target, profile=profile, engine=options.engine, notes=notes, new_default=options.new_default)


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
    is_default = leads_to(configuration, course, name) and not options.course_files  # which are not what was saved
    no_default = name is None and not here.has_scheduler
    if name == THIS_MACHINE and name not in profile_names():
        if course:
            raise no_course_here(course)
        name = None
    if course and not name:
        raise ProfileError(f"The course “{course.name}” names no cluster.", hint="name it as well: --cluster NAME")
    if name:
        if name == configuration.cluster and not options.cluster and name not in profile_names():
            raise _default_without_profile(name)
        succession = _succession(name)
        old, name = name if succession.notes else None, succession.name
        over = course_layers(course, files, first_day(options, here), profile_layers(name)) if course else ()
        profile = load_profile(name, over) if over else succession.profile
        own = () if profile.successor else profile.translations  # lead to the successor
        translations = (*succession.translations, *own)
        profile = profile.changed(translations=translations)
        there: Destination | None = None
        if profile.host is not None and not _is_login_node(profile, here):
            there = Destination.parse(
                profile.host, user=profile.user, port=profile.port, config_file=options.ssh_config or profile.ssh_config
            )
        return LaunchTarget(
            profile,
            name,
            there,
            profile.scheduler,
            ssh_config=options.ssh_config if there else None,
            course=course,
            instead_of=old,
            notes=succession.notes,
            is_default=is_default,
        )
    kind: SchedulerName = here.schedulers[0] if here.schedulers else "local"
    is_explicit = options.cluster == THIS_MACHINE
    is_default = is_explicit and is_default
    return LaunchTarget(
        ClusterProfile(), None, None, kind, is_explicit=is_explicit, is_default=is_default, no_default=no_default
    )


def no_course_here(course: CourseProfile) -> UsageError:
    """Return the error for using a course with ``--cluster here``."""
    instead = f"--cluster {course.cluster}" if course.cluster not in (None, THIS_MACHINE) else "--cluster NAME"
    return UsageError(
        f"The course “{course.name}” needs a cluster, and “{THIS_MACHINE}” is this machine.",
        hint=f"with the course: {instead}   or on this machine, without it: --cluster {THIS_MACHINE}",
    )


def _default_without_profile(name: str) -> ProfileError:
    """Return the error for a default cluster whose profile has been removed."""
    return ProfileError(
        f"“{cut(name)}” is the default cluster, and there is no profile of that name any more.",
        why=f"The profiles are: {', '.join(profile_names())}.",
        hint="make another one the default, or none: launch-notebook clusters use NAME   or: launch-notebook clusters "
        "use --unset",
    )


class _Succession(Frozen):
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


def first_day(options: LaunchOptions, here: LocalMachine) -> date:
    """Return the day on which the job begins, by the user's clock, as far as it is known."""
    begin = options.flags.get("begin")
    at = parse_begin(begin, datetime.combine(here.today, datetime.now().time())).at if begin else None
    return at.date() if at else here.today


def _is_login_node(profile: ClusterProfile, here: LocalMachine) -> bool:
    """Whether this machine is already the profile's login node, so that no connection is needed."""
    if not here.has(profile.scheduler):
        return False
    host = (profile.host or "").rpartition("@")[2].partition(":")[0]
    patterns = (*profile.login_nodes, host)
    # a pattern with a dot matches full names only, so that it does not match the login node of another cluster
    names = {here.hostname, here.hostname.partition(".")[0], here.full_name}
    return any(fnmatch(mine, pattern) for mine in names for pattern in patterns)
