"""The models of a cluster profile, its environments, and of a course profile: frozen dataclasses.

The types of their keys, and what each checks, are in ``key_types``. Only the code that reads files (``validation``)
imports that module, because importing pydantic takes half of a command's start-up time.
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

# A flag of the scheduler: ``true`` is a flag without a value, ``false`` removes the flag of a lower layer.
FlagValue = str | int | bool
ContainerCommand = Literal[
    "apptainer", "singularity", "charliecloud", "podman", "podman-hpc", "enroot", "pyxis", "shifter"
]


class Table(Frozen):
    """A table in a file, as ``validation`` returns it; an object that is made in code is not checked."""

    __pydantic_config__: ClassVar[dict[str, bool | str]] = {"extra": "forbid", "defer_build": True}

    def changed(self, **values: Any) -> Self:
        """Return a copy with these values changed. Raises ``TypeError`` for a name that is not a key of this table."""
        if strange := sorted(values.keys() - self.__dataclass_fields__.keys()):
            raise TypeError(f"{type(self).__name__} has no field: {', '.join(strange)}")
        new = copy.copy(self)
        vars(new).update(values)
        return new


class Environment(Table):
    """The software of a session. An empty one means JupyterLab as it is installed on the node.

    ``notice``: a sentence that is shown before each launch with it. ``modules`` are loaded on the node; ``conda``,
    ``venv`` or ``uv``, and then ``activate``, apply inside the container if there is one, otherwise on the node.
    ``source``, ``definition``: where the image comes from, for ``image pull`` and ``image build``; ``digest``: the
    digest that the image must have (``sha256:…``).
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
    start_timeout: Count = 600  # seconds within which Jupyter has to listen
    stage: YesNo | None = None  # whether it is copied to the node's own disk; ``None``: as the cluster's profile says

    @property
    def is_plain(self) -> bool:
        """Whether it does not say where JupyterLab comes from."""
        return not (self.container or self.modules or self.conda or self.venv or self.uv or self.activate)


class Rates(Table):
    """The prices of an hour, in the site's own unit; anything without a price costs nothing.

    ``gpu_hour``: for one GPU, or by type; ``core_hour``: for one core; ``node_hour``: for one node. ``least_cores``:
    the minimum number of cores that is charged on a node.
    """

    gpu_hour: Rate | dict[Line, Rate] = 0.0
    core_hour: Rate = 0.0
    node_hour: Rate = 0.0
    least_cores: CountOrNone = 0


class Price(Rates):
    """The rates of a cluster, and of partitions with different ones.

    ``rule``: ``sum`` adds up the parts; with ``max``, only the most expensive one counts, as with Slurm's MAX_TRES.
    """

    unit: Line = field(kw_only=True)
    rule: Literal["sum", "max"] = "sum"
    partitions: dict[Line, Rates] = field(default_factory=dict)


class Budget(Table):
    """How to query the balance of an account: a command on the login node, and a pattern for its output.

    ``pattern``: a regular expression whose group ``left`` is the number, searched for line by line; ``{account}`` in it
    stands for the account's name.
    """

    command: Command
    pattern: BalancePattern


class AccountRule(Table):
    """The rules for accounts: whether one is required, what its name looks like, and the suffixes of some sites.

    ``gpu_suffix``, ``cpu_suffix``: suffixes for jobs with and without GPUs, which are added if missing.
    """

    required: YesNo = False
    pattern: Pattern | None = None
    example: Line | None = None
    gpu_suffix: Ending | None = None
    cpu_suffix: Ending | None = None

    def fits(self, name: str) -> bool:
        """Return whether a name looks like an account of this cluster, ignoring case; ``True`` without a pattern."""
        try:
            return not self.pattern or search(self.pattern, name, whole=True, any_case=True) is not None
        except RegexTimeout:
            return True


class Flags(Table):
    """Flags for a kind of job, unless the user sets them.

    In values, ``{count}`` stands for the number of GPUs, and ``{type}`` for their type as the site spells it;
    ``{type}:`` is removed if no type is named. ``per_gpu``: numbers that are multiplied by that of the GPUs, such as
    ``cpus-per-task = 18``.
    """

    description: Sentence = ""
    flags: dict[str, FlagValue] = field(default_factory=dict)
    per_gpu: dict[str, Count] = field(default_factory=dict)


class GpuRule(Flags):
    """How to request GPUs; ``types`` override it, by the name in ``--gpus NAME:2``.

    ``default``: the number if none is given. ``required``: why a job without GPUs is not possible.
    ``whole_partitions``: the partitions where a job without a number gets all GPUs of its node, with their number.
    ``most``: the most GPUs of a job, by partition and QOS; a request for more shows a note.
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
    """A translation of outdated flags, or flags of another cluster, to this cluster's; applied in order, with a note.

    ``when``: flags that must all be set, with ``*``, ``?`` and ``[…]`` as in file names, ignoring case (``gpu:t4:*``).
    ``drop``: flags to remove. ``set``: flags to add; in their values, ``{gres}`` stands for what the last ``*`` of the
    gres in ``when`` matched, or for the whole gres if there is no ``*``. ``note``: why, in a sentence.
    """

    when: dict[str, Line]
    drop: tuple[Line, ...] = ()
    set: dict[str, FlagValue] = field(default_factory=dict)
    note: Line = field(kw_only=True)


class Unavailable(Table):
    """Why no session can be launched on a cluster, and what works instead."""

    why: Line
    instead: Line


class Container(Table):
    """How images are run on the compute nodes: the command, the modules that it needs, and bind mounts for every image.

    ``build``: where images are built, in a job or, if compute nodes have no internet, on the login node.
    """

    command: ContainerCommand | None = None
    build: Literal["job", "login"] = "job"
    modules: tuple[Argument, ...] = ()
    bind: tuple[Argument, ...] = ()


class App(Table):
    """A program that ``--app NAME`` starts beside JupyterLab, in its environment.

    ``command``: its words, which are not interpreted by a shell; ``{socket}`` stands for the Unix socket on which it
    has to listen, ``{folder}`` for the folder that the user named, or else JupyterLab's. ``health``: the URL path that
    answers once it is ready. ``icon``: a name in ``icons.KNOWN``, or a file beside the profile or course.
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
    host: Host | None = None  # the login node, as ssh knows it; ``None``: this machine
    user: User | None = None
    port: Port | None = None
    ssh_config: Argument | None = None
    login_nodes: tuple[HostPattern, ...] = ()
    login_setup: Lines = ()  # bash on the login node, before each command there
    scheduler: SchedulerKind = "slurm"
    scheduler_options: dict[Line, Line] = field(default_factory=dict)  # the site's names that translated flags need
    engine: Literal["auto", "paramiko", "openssh"] = "auto"
    route: Literal["auto", "node-ssh", "step", "reverse", "job-sshd", "direct"] = "auto"
    node_suffix: Ending | None = None  # the suffix of a node's name on the network of the nodes
    node_arch: Ending | None = None  # what `uname -m` prints on GPU nodes, if it differs from the login node's
    session_root: Folder = "~/.notebook-launcher/sessions"
    environment: Line | None = None
    image_dir: Argument | None = None
    bundled_images: YesNo = False  # whether it has environments from the launcher's own definition files
    container: Container = field(default_factory=Container)
    idle_stop: IdleTime | None = None  # the time without use after which a session is ended: 30m
    gpu_idle: Literal["warn", "end"] = "warn"
    fast_start: YesNo = True  # whether JupyterLab's start-up leaves out what it does not need
    panel: YesNo = True  # whether JupyterLab's page has the session's panel
    stage: YesNo = False  # whether environments are copied to the node's own disk first
    stage_dir: Folder | None = None  # where on the node; ``None``: its folder for temporary files
    stage_limit: Count = 50  # the most GB of copies that a user has on a node
    usage_seconds: SampleSeconds = 5  # between two samples of usage; 0: no samples
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
    presets: Presets = field(default_factory=dict)  # launches by name: their flags as they are typed
    _chosen: ClassVar[frozenset[str]] = frozenset()  # not a key of the file; set for each profile

    @property
    def chosen(self) -> frozenset[str]:
        """Flags in ``defaults`` that a course or the user set: they have priority over ``gpu`` and ``cpu``."""
        return self._chosen

    def choose(self, flags: frozenset[str]) -> None:
        """Record which flags upper layers have set, which only the code that merges them knows."""
        object.__setattr__(self, "_chosen", flags)


class Reservation(Table):
    """A reservation for a course from one day to another, both inclusive, by the user's clock.

    ``open_at``: the notebook that JupyterLab opens on these days, instead of the course's own.
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

    ``cluster``: the cluster profile's name. ``base``: another course file, in the same folder, that this one extends.
    ``image``: the image of the environments without one. ``notebooks``: files in the course file's folder, or below it,
    that are copied into ``folder`` in the student's home on the cluster. ``open_at``: the notebook among them that
    JupyterLab opens. ``contact``: whom to ask. ``class_folder``: a folder on the cluster where each session writes its
    state and the results of timings, for the teacher.
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
    """The user's ``config.toml``: the defaults without ``--cluster``, ``--host`` and ``--course``.

    ``cluster``: a cluster profile. ``course``: a saved course, which names its own cluster and has priority. ``open``:
    whether JupyterLab is opened in the browser if there is a display; ``ask``: the next launch asks the user.
    """

    cluster: str | None = None
    course: str | None = None
    open: Literal["ask", "always", "never"] = "ask"


#: all models of tables, by their names
TABLES = {
    kind.__name__: kind
    for kind in (
        *(Environment, Rates, Price, Budget, AccountRule, Flags, GpuRule, Translation, Unavailable, Container),
        *(App, ClusterProfile, Reservation, CourseProfile, Configuration),
    )
}
