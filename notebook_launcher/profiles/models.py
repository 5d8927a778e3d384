"""The shape of a cluster profile, of the environments in it, and of a course profile on top of it."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from notebook_launcher.errors import UsageError
from notebook_launcher.request import parse_idle, parse_walltime

# Values travel to the job script as lines of text: one line each.
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^\n\r\x00]*$")]
# A flag of the scheduler: ``true`` is a flag without a value, ``false`` takes away what a lower layer has.
FlagValue = str | int | bool
ContainerCommand = Literal[
    "apptainer", "singularity", "charliecloud", "podman", "podman-hpc", "enroot", "pyxis", "shifter"
]
SchedulerKind = Literal["slurm", "lsf", "local"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Environment(_Strict):
    """A named way to get software on the node. Empty: ``jupyter lab`` as the node finds it.

    ``modules`` are loaded on the node; ``conda``, ``venv`` or ``uv``, and then ``activate`` apply inside the container
    where there is one, otherwise on the node. ``source`` and ``definition`` say where the image comes from, for
    ``image pull`` and ``image build``; ``digest``: what the image must be (``sha256:…``).
    """

    description: str = ""
    container: Line | None = None
    container_command: ContainerCommand | None = None
    source: Line | None = None
    definition: Line | None = None
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    bind: tuple[Line, ...] = ()
    modules: tuple[Line, ...] = ()
    module_use: tuple[Line, ...] = ()
    conda: Line | None = None
    venv: Line | None = None
    uv: Line | None = Field(default=None, description="folder of a uv project; its .venv is used")
    activate: Line | tuple[Line, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    gpu: Literal["auto", "nvidia", "amd", "none"] = "auto"
    start_timeout: int = Field(default=600, ge=1, description="seconds until Jupyter must listen")

    @field_validator("env")
    @classmethod
    def _names_and_lines(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"“{name}” is not a name for an environment variable")
            if re.search(r"[\n\r\0]", value):
                raise ValueError(f"the value of {name} has more than one line")
        return env

    @property
    def is_plain(self) -> bool:
        """Says nothing about where JupyterLab comes from."""
        return not (self.container or self.modules or self.conda or self.venv or self.uv or self.activate)


class Rates(_Strict):
    """What an hour costs, in the site's own unit; what is absent costs nothing.

    ``gpu_hour``: of one GPU, or by type. ``core_hour``: of one core. ``node_hour``: of one node.
    """

    gpu_hour: float | dict[str, float] = 0.0
    core_hour: float = Field(default=0.0, ge=0)
    node_hour: float = Field(default=0.0, ge=0)


class Price(Rates):
    """The rates of a cluster, and of single partitions where these differ.

    ``rule``: whether what a job has is added up, or the dearest part counts alone, as with Slurm's MAX_TRES.
    """

    unit: Line
    rule: Literal["sum", "max"] = "sum"
    partitions: dict[str, Rates] = Field(default_factory=dict)


class Budget(_Strict):
    """How much is left of an account: a command on the login node, and where the number stands in its output.

    ``pattern``: a regular expression whose group ``left`` is the number, searched line by line; ``{account}`` in it
    is the account's name.
    """

    command: tuple[Line, ...]
    pattern: Line

    @field_validator("pattern")
    @classmethod
    def _finds_a_number(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern.replace("{account}", "x")).groupindex
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        if "left" not in groups:
            raise ValueError("has no group (?P<left>…) for the number that is left")
        return pattern


class AccountRule(_Strict):
    """Who pays: whether an account must be given, what it looks like, and the endings that some sites want.

    ``gpu_suffix`` and ``cpu_suffix``: what the name ends in for jobs with and without GPUs; added where it is missing.
    """

    required: bool = False
    pattern: Line | None = None
    example: Line | None = None
    gpu_suffix: Line | None = None
    cpu_suffix: Line | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        return pattern


class Flags(_Strict):
    """Flags that a kind of job gets here, where the user does not say otherwise.

    In values, ``{count}`` is the number of GPUs and ``{type}`` their type as it was typed. ``per_gpu``: numbers that
    grow with the GPUs, ``cpus-per-task = 18``.
    """

    description: str = ""
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    per_gpu: dict[str, int] = Field(default_factory=dict)


class GpuRule(Flags):
    """How GPUs are asked for here; ``types`` stand on top of it, by the name that ``--gpus NAME:2`` takes.

    ``default``: how many where nothing is said. ``required``: why a job without any is not possible here.
    """

    default: int = Field(default=0, ge=0)
    default_type: Line | None = None
    required: Line | None = None
    types: dict[str, Flags] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _knows_its_default(self) -> GpuRule:
        if self.default_type is not None and self.default_type not in self.types:
            raise ValueError(f"default_type = “{self.default_type}” is not among [gpu.types]")
        return self


class Translation(_Strict):
    """Words of another time or place that are put into this cluster's own; applied in order, each told to the user.

    ``when``: flags that must all be there, with ``*`` for anything (``gpu:t4:*``). ``drop``: flags that go away.
    ``set``: flags that come; in their values ``{gres}`` is what ``*`` stood for in ``when``'s gres. ``note``: why, in a
    sentence.
    """

    when: dict[str, Line]
    drop: tuple[Line, ...] = ()
    set: dict[str, FlagValue] = Field(default_factory=dict)
    note: Line


class Unavailable(_Strict):
    """Why no session can be launched there, and the way that does work."""

    why: Line
    instead: Line


class Container(_Strict):
    """What runs images on the compute nodes: the command, the modules that bring it, what every image sees besides."""

    command: ContainerCommand | None = None
    modules: tuple[Line, ...] = ()
    bind: tuple[Line, ...] = ()


class ClusterProfile(_Strict):
    """How one cluster wants to be asked; see ``docs/profiles.md`` for every key.

    ``base``: the profile that this one stands on. ``status``: whether the cluster is in use; a retired one names its
    ``successor``, and its ``translations`` lead there. ``ask``: what a user is asked at the first launch.
    """

    base: Line | None = None
    description: str = ""
    status: Literal["active", "retired", "unknown"] = "active"
    successor: Line | None = None
    notice: Line | None = Field(default=None, description="a sentence that is told at each launch")
    advice: tuple[Line, ...] = Field(default=(), description="sentences for `clusters show` and the first run")
    docs: tuple[Line, ...] = Field(default=(), description="links to the site's own pages")
    unavailable: Unavailable | None = None
    ask: tuple[Literal["host", "user", "account", "partition"], ...] = ()
    host: Line | None = Field(default=None, description="login node, as ssh knows it; absent: this machine")
    user: Line | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    ssh_config: Line | None = None
    login_nodes: tuple[Line, ...] = ()
    scheduler: SchedulerKind = "slurm"
    engine: Literal["auto", "paramiko", "openssh"] = "auto"
    stream: Literal["auto", "node-ssh", "step", "job-sshd", "direct"] = "auto"
    node_suffix: Line | None = Field(default=None, description="ending of a node's name on the network of the nodes")
    node_arch: Line | None = Field(default=None, description="what `uname -m` says on GPU nodes, where it differs")
    session_root: Line = "~/.notebook-launcher/sessions"
    environment: Line | None = None
    image_dir: Line | None = None
    container: Container = Container()
    idle_stop: Line | None = Field(default=None, description="a time without use that ends a session: 30m")
    gpu_idle: Literal["warn", "end"] = "warn"
    usage_seconds: int = Field(default=5, ge=0, le=3600, description="seconds between two samples of use; 0: none")
    keep_days: int = Field(default=30, ge=1, description="days for which the record of an ended session is kept")
    account: AccountRule = AccountRule()
    gpu: GpuRule = GpuRule()
    cpu: Flags = Flags()
    max_time: Line | dict[str, Line] | None = Field(default=None, description="longest walltime, or by partition")
    translations: tuple[Translation, ...] = ()
    price: Price | None = None
    budget: Budget | None = None
    quota_command: tuple[Line, ...] = ()
    defaults: dict[str, FlagValue] = Field(default_factory=dict)
    environments: dict[str, Environment] = Field(default_factory=dict)

    @field_validator("idle_stop")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        return _checked_idle(text)

    @field_validator("max_time")
    @classmethod
    def _are_walltimes(cls, times: str | dict[str, str] | None) -> str | dict[str, str] | None:
        for text in times.values() if isinstance(times, dict) else [times] if times else []:
            try:
                parse_walltime(text)
            except UsageError as error:
                raise ValueError(f"{error.what} {error.why}") from None
        return times

    @field_validator("host")
    @classmethod
    def _is_a_host(cls, host: str | None) -> str | None:
        if host is not None and (host.startswith("-") or re.search(r"\s", host)):
            raise ValueError(f"“{host}” is not the name of a host")
        return host


def _checked_idle(text: str | None) -> str | None:
    if text is not None:
        try:
            parse_idle(text)
        except UsageError as error:
            raise ValueError(f"{error.what} {error.why}") from None
    return text


class Reservation(_Strict):
    """Nodes that are kept for a course from one day to another, both included. Days are those of the user's clock."""

    name: Line
    first: date
    last: date

    @model_validator(mode="after")
    def _has_its_order(self) -> Reservation:
        if self.last < self.first:
            raise ValueError(f"ends ({self.last}) before it begins ({self.first})")
        return self


class CourseProfile(_Strict):
    """What a course puts on top of a cluster profile; see ``docs/courses.md`` for every key.

    ``cluster``: the cluster profile's name. ``base``: another course file that this one stands on, beside it.
    ``image``: the image of the environments that name none. ``notebooks``: files beside the course file, or below it,
    that are copied into ``folder`` in the student's home on the cluster. ``contact``: whom to ask.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    description: str = ""
    base: Line | None = None
    cluster: Line | None = None
    contact: Line | None = None
    first: date | None = None
    last: date | None = None
    account: Line | None = None
    reservations: tuple[Reservation, ...] = ()
    environment: Line | None = None
    image: Line | None = None
    image_dir: Line | None = None
    idle_stop: Line | None = None
    gpu_idle: Literal["warn", "end"] | None = None
    notice: Line | None = None
    notebooks: tuple[Line, ...] = ()
    folder: Line | None = None
    defaults: dict[str, FlagValue] = Field(default_factory=dict)
    environments: dict[str, Environment] = Field(default_factory=dict)

    @field_validator("idle_stop")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        return _checked_idle(text)

    @field_validator("notebooks")
    @classmethod
    def _stay_below(cls, notebooks: tuple[str, ...]) -> tuple[str, ...]:
        for name in notebooks:
            if name.startswith(("/", "~")) or ".." in name.split("/"):
                raise ValueError(f"“{name}” does not lie beside the course file")
        return notebooks
