"""The models of a cluster profile, its environments, and of a course profile: frozen dataclasses.

The types of their keys are in ``key_types``, with what each checks. Only what reads a file imports those
(``validation``), because pydantic takes half of the time in which a command starts.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import field
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.safe_regex import RegexTimeout, search
from notebook_launcher.schedulers.kinds import SchedulerKind

if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self

if TYPE_CHECKING:
    from notebook_launcher.profiles.key_types import (
        Account,
        AppIcon,
        AppName,
        Argument,
        BalancePattern,
        Command,
        Contact,
        Count,
        CountOrNone,
        CourseFlags,
        CourseName,
        Digest,
        Ending,
        Folder,
        HomeFolder,
        Host,
        HostPattern,
        IdleTime,
        Line,
        Lines,
        MaxTime,
        Notebooks,
        Pattern,
        Port,
        Presets,
        Rate,
        SampleSeconds,
        Sentence,
        SharedFolder,
        TypeName,
        UrlPath,
        User,
        Variables,
        YesNo,
    )

# A flag of the scheduler: ``true`` is a flag without a value, ``false`` removes one of a lower layer.
FlagValue = str | int | bool
ContainerCommand = Literal[
    "apptainer", "singularity", "charliecloud", "podman", "podman-hpc", "enroot", "pyxis", "shifter"
]


class Table(Frozen):
    """A table of a file, as ``validation`` returns it; one that is made in the code is not checked."""

    __pydantic_config__: ClassVar[dict[str, bool | str]] = {"extra": "forbid", "defer_build": True}

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values. Raises ``TypeError`` for a name that is no key of this table."""
        if strange := sorted(values.keys() - self.__dataclass_fields__.keys()):
            raise TypeError(f"{type(self).__name__} has no field: {', '.join(strange)}")
        new = copy.copy(self)
        vars(new).update(values)
        return new


class Environment(Table):
    """A named set of software for the node. Empty: ``jupyter lab`` as installed on the node.

    ``notice``: a sentence that is shown before each launch with it.
    ``modules`` are loaded on the node; ``conda``, ``venv`` or ``uv``, and then ``activate`` apply inside the container
    where there is one, otherwise on the node. ``source`` and ``definition`` say where the image comes from, for
    ``image pull`` and ``image build``; ``digest``: what the image must be (``sha256:…``).
    """

    description: Sentence = ""
    notice: Line | None = None
    container: Argument | None = None
    container_command: ContainerCommand | None = None
    source: Argument | None = None
    definition: Argument | None = None
    digest: Digest | None = None
    bind: tuple[Argument, ...] = ()
    modules: tuple[Argument, ...] = ()
    module_use: tuple[Argument, ...] = ()
    conda: Argument | None = None
    venv: Argument | None = None
    uv: Argument | None = None  # the folder of a uv project; its .venv is used
    activate: Line | tuple[Line, ...] = ()
    env: Variables = field(default_factory=dict)
    gpu: Literal["auto", "nvidia", "amd", "none"] = "auto"
    start_timeout: Count = 600  # seconds until Jupyter must listen
    stage: YesNo | None = None  # whether it is copied to the node's own disk; absent: as the cluster's profile says

    @property
    def is_plain(self) -> bool:
        """Whether it does not say where JupyterLab comes from."""
        return not (self.container or self.modules or self.conda or self.venv or self.uv or self.activate)


class Rates(Table):
    """The price of an hour, in the site's own unit; what is absent costs nothing.

    ``gpu_hour``: of one GPU, or by type. ``core_hour``: of one core. ``node_hour``: of one node. ``least_cores``: the
    fewest that are charged on a node.
    """

    gpu_hour: Rate | dict[Line, Rate] = 0.0
    core_hour: Rate = 0.0
    node_hour: Rate = 0.0
    least_cores: CountOrNone = 0


class Price(Rates):
    """The rates of a cluster, and of partitions where these differ.

    ``rule``: whether the parts are added up, or only the most expensive one counts, as with Slurm's MAX_TRES.
    """

    unit: Line = field(kw_only=True)
    rule: Literal["sum", "max"] = "sum"
    partitions: dict[Line, Rates] = field(default_factory=dict)


class Budget(Table):
    """The balance of an account: a command on the login node, and a pattern for its output.

    ``pattern``: a regular expression whose group ``left`` is the number, searched line by line; ``{account}`` in it
    is the account's name.
    """

    command: Command
    pattern: BalancePattern


class AccountRule(Table):
    """The account rules: whether an account is required, what it looks like, and the suffixes of some sites.

    ``gpu_suffix`` and ``cpu_suffix``: suffixes for jobs with and without GPUs; added where missing.
    """

    required: YesNo = False
    pattern: Pattern | None = None
    example: Line | None = None
    gpu_suffix: Ending | None = None
    cpu_suffix: Ending | None = None

    def fits(self, name: str) -> bool:
        """Whether a name looks like an account of this cluster, ignoring case, or there is no pattern."""
        try:
            return not self.pattern or search(self.pattern, name, whole=True, any_case=True) is not None
        except RegexTimeout:
            return True


class Flags(Table):
    """Flags for a kind of job, unless the user sets them.

    In values, ``{count}`` is the number of GPUs and ``{type}`` their type as the site spells it; ``{type}:`` is dropped
    if no type is named. ``per_gpu``: numbers per GPU, ``cpus-per-task = 18``.
    """

    description: Sentence = ""
    flags: dict[str, FlagValue] = field(default_factory=dict)
    per_gpu: dict[str, Count] = field(default_factory=dict)


class GpuRule(Flags):
    """How to request GPUs; ``types`` override it, by the name in ``--gpus NAME:2``.

    ``default``: the number if none is given. ``required``: why a job without GPUs is not possible.
    ``whole_partitions``: where a job gets all GPUs of its node if it gives no number, and how many these are. ``most``:
    how many a job may have, by partition and QOS; exceeding it shows a note.
    """

    default: CountOrNone = 0
    default_type: TypeName | None = None
    required: Line | None = None
    whole_partitions: dict[Line, Count] = field(default_factory=dict)
    most: dict[Line, Count] = field(default_factory=dict)
    types: dict[TypeName, Flags] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.default_type is not None and self.default_type not in self.types:
            types = ", ".join(self.types) or "none"
            raise ValueError(f"default_type = “{self.default_type}” is not among [gpu.types], which has: {types}")


class Translation(Table):
    """Flags of another time or cluster, translated to this cluster's; applied in order, each with a note.

    ``when``: flags that must all be set, with ``*``, ``?`` and ``[…]`` as in file names, ignoring case (``gpu:t4:*``).
    ``drop``: flags to remove. ``set``: flags to add; in their values ``{gres}`` is what the last ``*`` matched in
    ``when``'s gres, or all of it without one. ``note``: why, in a sentence.
    """

    when: dict[str, Line]
    drop: tuple[Line, ...] = ()
    set: dict[str, FlagValue] = field(default_factory=dict)
    note: Line = field(kw_only=True)


class Unavailable(Table):
    """Why no session can be launched there, and what works instead."""

    why: Line
    instead: Line


class Container(Table):
    """How images run on the compute nodes: the command, the modules that it needs, and bind mounts for every image.

    ``build``: where images are built, in a job or, if compute nodes have no internet, on the login node.
    """

    command: ContainerCommand | None = None
    build: Literal["job", "login"] = "job"
    modules: tuple[Argument, ...] = ()
    bind: tuple[Argument, ...] = ()


class App(Table):
    """A program that ``--app NAME`` starts beside JupyterLab, in its environment.

    ``command``: its words, no shell's; in them ``{socket}`` is the Unix socket on which it has to listen, ``{folder}``
    the folder that the user named, else JupyterLab's. ``health``: the path that answers once it is ready.
    ``icon``: a name of ``icons.KNOWN``, or a file beside the profile or course.
    """

    command: Command
    title: Line | None = None
    health: UrlPath = "/"
    icon: AppIcon | None = None

    def __post_init__(self) -> None:
        if not any("{socket}" in word for word in self.command):
            raise ValueError(
                "command needs {socket}, the Unix socket on which the program is to listen: every user of the node "
                "could reach a port"
            )


class ClusterProfile(Table):
    """The settings of one cluster; see ``docs/profiles.md`` for every key.

    ``base``: the profile that this one extends. ``status``: whether the cluster is in use; a retired one names its
    ``successor``, and its ``translations`` lead there. ``ask``: what to ask a user at the first launch.
    """

    base: Line | None = None
    description: Sentence = ""
    status: Literal["active", "retired", "unknown"] = "active"
    successor: Line | None = None
    notice: Line | None = None  # a sentence that is shown at each launch
    advice: tuple[Line, ...] = ()  # sentences for `clusters show` and the first run
    docs: tuple[Line, ...] = ()  # links to the site's own pages
    contact: Contact | None = None  # the cluster's support: an e-mail address or a web page
    unavailable: Unavailable | None = None
    ask: tuple[Literal["host", "user", "account", "partition"], ...] = ()
    host: Host | None = None  # the login node, as ssh knows it; absent: this machine
    user: User | None = None
    port: Port | None = None
    ssh_config: Argument | None = None
    login_nodes: tuple[HostPattern, ...] = ()
    login_setup: Lines = ()  # bash on the login node, before each command there
    scheduler: SchedulerKind = "slurm"
    scheduler_options: dict[Line, Line] = field(default_factory=dict)  # what its flags need to know of the site
    engine: Literal["auto", "paramiko", "openssh"] = "auto"
    route: Literal["auto", "node-ssh", "step", "reverse", "job-sshd", "direct"] = "auto"
    node_suffix: Ending | None = None  # the ending of a node's name on the network of the nodes
    node_arch: Ending | None = None  # what `uname -m` says on GPU nodes, where it differs
    session_root: Folder = "~/.notebook-launcher/sessions"
    environment: Line | None = None
    image_dir: Argument | None = None
    bundled_images: YesNo = False  # whether it has environments of the launcher's own definition files
    container: Container = field(default_factory=Container)
    idle_stop: IdleTime | None = None  # a time without use that ends a session: 30m
    gpu_idle: Literal["warn", "end"] = "warn"
    fast_start: YesNo = True  # whether JupyterLab's start leaves out what it does not need
    panel: YesNo = True  # whether JupyterLab's page has the session's panel
    stage: YesNo = False  # whether environments are copied to the node's own disk first
    stage_dir: Folder | None = None  # where on the node; absent: its folder for temporary files
    stage_limit: Count = 50  # GB of copies that a user has on a node
    usage_seconds: SampleSeconds = 5  # between two samples of use; 0: none
    keep_days: Count = 30  # days for which the record of an ended session is kept
    account: AccountRule = field(default_factory=AccountRule)
    gpu: GpuRule = field(default_factory=GpuRule)
    cpu: Flags = field(default_factory=Flags)
    max_time: MaxTime | None = None  # the longest walltime, or by partition and QOS
    translations: tuple[Translation, ...] = ()
    price: Price | None = None
    budget: Budget | None = None
    quota_command: tuple[Line, ...] = ()
    defaults: dict[str, FlagValue] = field(default_factory=dict)
    environments: dict[Argument, Environment] = field(default_factory=dict)
    apps: dict[AppName, App] = field(default_factory=dict)  # programs for --app
    presets: Presets = field(default_factory=dict)  # launches by name: the flags as they are typed
    _chosen: ClassVar[frozenset[str]] = frozenset()  # not in a file; each profile has its own

    @property
    def chosen(self) -> frozenset[str]:
        """Flags in ``defaults`` that a course or the user set: they have priority over ``gpu`` and ``cpu``."""
        return self._chosen

    def choose(self, flags: frozenset[str]) -> None:
        """Record which flags were set by upper layers; only the merging code knows."""
        object.__setattr__(self, "_chosen", flags)


class Reservation(Table):
    """Nodes reserved for a course from one day to another, both inclusive, by the user's clock.

    ``open_at``: the notebook that JupyterLab opens with on these days, instead of the course's own.
    """

    name: Account
    first: date
    last: date
    open_at: Argument | None = None

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"ends ({self.last}) before it begins ({self.first})")


class CourseProfile(Table):
    """The settings that a course adds to a cluster profile; see ``docs/courses.md`` for every key.

    ``cluster``: the cluster profile's name. ``base``: another course file that this one extends, beside it. ``image``:
    the image of the environments without one. ``notebooks``: files beside the course file, or below it, that are copied
    into ``folder`` in the student's home on the cluster. ``open_at``: the one of them that JupyterLab opens with.
    ``contact``: whom to ask. ``class_folder``: a folder on the cluster in which each session leaves its state and the
    results of timings, for the teacher.
    """

    name: CourseName
    description: Sentence = ""
    base: Argument | None = None
    cluster: Line | None = None
    contact: Contact | None = None
    first: date | None = None
    last: date | None = None
    account: Account | None = None
    reservations: tuple[Reservation, ...] = ()
    environment: Line | None = None
    image: Argument | None = None
    image_dir: Argument | None = None
    idle_stop: IdleTime | None = None
    gpu_idle: Literal["warn", "end"] | None = None
    notice: Line | None = None
    notebooks: Notebooks = ()
    folder: HomeFolder | None = None
    class_folder: SharedFolder | None = None
    open_at: Argument | None = None
    defaults: CourseFlags = field(default_factory=dict)
    environments: dict[Argument, Environment] = field(default_factory=dict)
    apps: dict[AppName, App] = field(default_factory=dict)  # programs for --app


class Configuration(Table):
    """The user's ``config.toml``: the defaults without --cluster, --host and --course.

    ``cluster``: a cluster profile. ``course``: a saved course, which names its own cluster and has priority. ``open``:
    whether JupyterLab is opened in the browser where there is a display; ``ask``: the next launch asks.
    """

    cluster: str | None = None
    course: str | None = None
    open: Literal["ask", "always", "never"] = "ask"


#: every kind of table, by its name
TABLES = {
    kind.__name__: kind
    for kind in (
        *(Environment, Rates, Price, Budget, AccountRule, Flags, GpuRule, Translation, Unavailable, Container),
        *(App, ClusterProfile, Reservation, CourseProfile, Configuration),
    )
}
