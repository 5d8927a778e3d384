"""The models of a cluster profile, its environments, and of a course profile."""

from __future__ import annotations

import re
import shlex
import unicodedata
import warnings
from datetime import date
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    field_validator,
    model_validator,
)

from notebook_launcher.core.common_options import place_of_command
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.file_model import FileModel
from notebook_launcher.core.request import parse_idle
from notebook_launcher.core.safe_regex import RegexTimeout, search
from notebook_launcher.core.walltime import Walltime

_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})  # controls, format characters such as zero-width spaces, line separators


def _one_line(text: str) -> str:
    if re.search(r"[\n\r]", text):
        raise ValueError("has more than one line")
    if any(unicodedata.category(sign) in _UNSEEN and sign != "\t" for sign in text):
        raise ValueError("has a character that cannot be seen")
    return text


def _not_a_flag(text: str) -> str:
    if text.startswith("-"):
        raise ValueError(f"“{text}” begins with a dash, and would be taken for a flag")
    return text


def _looks_like(pattern: str, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"“{text}” is not {what}")
        return text

    return AfterValidator(check)


# Values travel to the job script as lines of text: one line each.
Sentence = Annotated[str, AfterValidator(_one_line)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_one_line)]
# A line that becomes a command's argument: no value of a profile is ever a flag.
Argument = Annotated[Line, AfterValidator(_not_a_flag)]
# Whom to ask; it stands inside the sentences of errors.
Contact = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_one_line)
]
# Commands and patterns have only visible characters; any others could only do harm.
Host = Annotated[Line, _looks_like(r"(?!-)[^\s'\"`;&<>|(){}$\\]+", "the name of a host")]
User = Annotated[Line, _looks_like(r"(?!-)[^\s'\"`;&<>|(){}$]+", "the name of a user")]
HostPattern = Annotated[Line, _looks_like(r"(?!-)[\w.*?\[\]!-]+", "a pattern for names of hosts")]
Account = Annotated[Line, _looks_like(r"(?!-)[\w.:@+/%-]+", "the name of an account")]
Ending = Annotated[Line, _looks_like(r"[\w.-]+", "the end of a name")]
TypeName = Annotated[Line, _looks_like(r"(?!-)[\w.+-]+", "the name of a kind of GPU")]
Folder = Annotated[Line, _looks_like(r"[/~$].*", "a folder that begins with /, ~ or $HOME")]
StrictInteger = Annotated[int, Field(strict=True)]
Count = Annotated[StrictInteger, Field(ge=1)]
Rate = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
YesNo = Annotated[bool, Field(strict=True)]
# A flag of the scheduler: ``true`` is a flag without a value, ``false`` removes one of a lower layer.
FlagValue = str | int | bool
ContainerCommand = Literal[
    "apptainer", "singularity", "charliecloud", "podman", "podman-hpc", "enroot", "pyxis", "shifter"
]
SchedulerKind = Literal["slurm", "lsf", "local"]


class _Strict(FileModel):
    model_config = ConfigDict(extra="forbid")


class Environment(_Strict):
    """A named set of software for the node. Empty: ``jupyter lab`` as installed on the node.

    ``modules`` are loaded on the node; ``conda``, ``venv`` or ``uv``, and then ``activate`` apply inside the container
    where there is one, otherwise on the node. ``source`` and ``definition`` say where the image comes from, for
    ``image pull`` and ``image build``; ``digest``: what the image must be (``sha256:…``).
    """

    description: Sentence = ""
    container: Argument | None = None
    container_command: ContainerCommand | None = None
    source: Argument | None = None
    definition: Argument | None = None
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    bind: tuple[Argument, ...] = ()
    modules: tuple[Argument, ...] = ()
    module_use: tuple[Argument, ...] = ()
    conda: Argument | None = None
    venv: Argument | None = None
    uv: Argument | None = Field(default=None, description="folder of a uv project; its .venv is used")
    activate: Line | tuple[Line, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    gpu: Literal["auto", "nvidia", "amd", "none"] = "auto"
    start_timeout: StrictInteger = Field(default=600, ge=1, description="seconds until Jupyter must listen")

    @field_validator("env")
    @classmethod
    def _names_and_lines(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"“{name}” is not a name for an environment variable")
            try:
                _one_line(value)  # the user agrees to what is shown of it
            except ValueError as error:
                raise ValueError(f"the value of {name} {error}") from None
        return env

    @property
    def is_plain(self) -> bool:
        """Whether it does not say where JupyterLab comes from."""
        return not (self.container or self.modules or self.conda or self.venv or self.uv or self.activate)


class Rates(_Strict):
    """The price of an hour, in the site's own unit; what is absent costs nothing.

    ``gpu_hour``: of one GPU, or by type. ``core_hour``: of one core. ``node_hour``: of one node. ``least_cores``: the
    fewest that are charged on a node.
    """

    gpu_hour: Rate | dict[Line, Rate] = 0.0
    core_hour: Rate = 0.0
    node_hour: Rate = 0.0
    least_cores: StrictInteger = Field(default=0, ge=0)


class Price(Rates):
    """The rates of a cluster, and of partitions where these differ.

    ``rule``: whether the parts are added up, or only the most expensive one counts, as with Slurm's MAX_TRES.
    """

    unit: Line
    rule: Literal["sum", "max"] = "sum"
    partitions: dict[Line, Rates] = Field(default_factory=dict)


class Budget(_Strict):
    """The balance of an account: a command on the login node, and a pattern for its output.

    ``pattern``: a regular expression whose group ``left`` is the number, searched line by line; ``{account}`` in it
    is the account's name.
    """

    command: tuple[Line, ...] = Field(min_length=1)
    pattern: Line

    @field_validator("command")
    @classmethod
    def _begins_with_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        _not_a_flag(command[0])
        return command

    @field_validator("pattern")
    @classmethod
    def _finds_a_number(cls, pattern: str) -> str:
        if "left" not in _expression(pattern.replace("{account}", "x")).groupindex:
            raise ValueError("has no group (?P<left>…) for the number that is left")
        return pattern


class AccountRule(_Strict):
    """The account rules: whether an account is required, what it looks like, and the suffixes of some sites.

    ``gpu_suffix`` and ``cpu_suffix``: suffixes for jobs with and without GPUs; added where missing.
    """

    required: YesNo = False
    pattern: Line | None = None
    example: Line | None = None
    gpu_suffix: Ending | None = None
    cpu_suffix: Ending | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        _expression(pattern or "")
        return pattern

    def fits(self, name: str) -> bool:
        """Whether a name looks like an account of this cluster, ignoring case, or there is no pattern."""
        try:
            return not self.pattern or search(self.pattern, name, whole=True, any_case=True) is not None
        except RegexTimeout:
            return True


def _expression(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a pattern that a later Python may read differently
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from None


class Flags(_Strict):
    """Flags for a kind of job, unless the user sets them.

    In values, ``{count}`` is the number of GPUs and ``{type}`` their type as the site spells it; ``{type}:`` is dropped
    if no type is named. ``per_gpu``: numbers per GPU, ``cpus-per-task = 18``.
    """

    description: Sentence = ""
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    per_gpu: dict[str, Count] = Field(default_factory=dict)


class GpuRule(Flags):
    """How to request GPUs; ``types`` override it, by the name in ``--gpus NAME:2``.

    ``default``: the number if none is given. ``required``: why a job without GPUs is not possible.
    ``whole_partitions``: where a job gets all GPUs of its node if it gives no number, and how many these are. ``most``:
    how many a job may have, by partition and QOS; exceeding it shows a note.
    """

    default: StrictInteger = Field(default=0, ge=0)
    default_type: TypeName | None = None
    required: Line | None = None
    whole_partitions: dict[Line, Count] = Field(default_factory=dict)
    most: dict[Line, Count] = Field(default_factory=dict)
    types: dict[TypeName, Flags] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_default(self) -> GpuRule:
        if self.default_type is not None and self.default_type not in self.types:
            types = ", ".join(self.types) or "none"
            raise ValueError(f"default_type = “{self.default_type}” is not among [gpu.types], which has: {types}")
        return self


class Translation(_Strict):
    """Flags of another time or cluster, translated to this cluster's; applied in order, each with a note.

    ``when``: flags that must all be set, with ``*``, ``?`` and ``[…]`` as in file names, ignoring case (``gpu:t4:*``).
    ``drop``: flags to remove. ``set``: flags to add; in their values ``{gres}`` is what the last ``*`` matched in
    ``when``'s gres, or all of it without one. ``note``: why, in a sentence.
    """

    when: dict[str, Line]
    drop: tuple[Line, ...] = ()
    set: dict[str, FlagValue] = Field(default_factory=dict)
    note: Line


class Unavailable(_Strict):
    """Why no session can be launched there, and what works instead."""

    why: Line
    instead: Line


class Container(_Strict):
    """How images run on the compute nodes: the command, the modules that it needs, and bind mounts for every image.

    ``build``: where images are built, in a job or, if compute nodes have no internet, on the login node.
    """

    command: ContainerCommand | None = None
    build: Literal["job", "login"] = "job"
    modules: tuple[Argument, ...] = ()
    bind: tuple[Argument, ...] = ()


class ClusterProfile(_Strict):
    """The settings of one cluster; see ``docs/profiles.md`` for every key.

    ``base``: the profile that this one extends. ``status``: whether the cluster is in use; a retired one names its
    ``successor``, and its ``translations`` lead there. ``ask``: what to ask a user at the first launch.
    """

    base: Line | None = None
    description: Sentence = ""
    status: Literal["active", "retired", "unknown"] = "active"
    successor: Line | None = None
    notice: Line | None = Field(default=None, description="a sentence that is shown at each launch")
    advice: tuple[Line, ...] = Field(default=(), description="sentences for `clusters show` and the first run")
    docs: tuple[Line, ...] = Field(default=(), description="links to the site's own pages")
    contact: Contact | None = Field(default=None, description="the cluster's support: an e-mail address or a web page")
    unavailable: Unavailable | None = None
    ask: tuple[Literal["host", "user", "account", "partition"], ...] = ()
    host: Host | None = Field(default=None, description="login node, as ssh knows it; absent: this machine")
    user: User | None = None
    port: StrictInteger | None = Field(default=None, ge=1, le=65535)
    ssh_config: Argument | None = None
    login_nodes: tuple[HostPattern, ...] = ()
    scheduler: SchedulerKind = "slurm"
    engine: Literal["auto", "paramiko", "openssh"] = "auto"
    route: Literal["auto", "node-ssh", "step", "job-sshd", "direct"] = "auto"
    node_suffix: Ending | None = Field(default=None, description="ending of a node's name on the network of the nodes")
    node_arch: Ending | None = Field(default=None, description="what `uname -m` says on GPU nodes, where it differs")
    session_root: Folder = "~/.notebook-launcher/sessions"
    environment: Line | None = None
    image_dir: Argument | None = None
    bundled_images: YesNo = Field(
        default=False, description="whether it has environments of the launcher's own definition files"
    )
    container: Container = Field(default_factory=Container)
    idle_stop: Line | None = Field(default=None, description="a time without use that ends a session: 30m")
    gpu_idle: Literal["warn", "end"] = "warn"
    fast_start: YesNo = Field(default=True, description="whether JupyterLab's start leaves out what it does not need")
    usage_seconds: StrictInteger = Field(
        default=5, ge=0, le=3600, description="seconds between two samples of use; 0: none"
    )
    keep_days: StrictInteger = Field(
        default=30, ge=1, description="days for which the record of an ended session is kept"
    )
    account: AccountRule = Field(default_factory=AccountRule)
    gpu: GpuRule = Field(default_factory=GpuRule)
    cpu: Flags = Field(default_factory=Flags)
    max_time: Line | dict[Line, Line] | None = Field(
        default=None, description="longest walltime, or by partition and QOS"
    )
    translations: tuple[Translation, ...] = ()
    price: Price | None = None
    budget: Budget | None = None
    quota_command: tuple[Line, ...] = ()
    defaults: dict[str, FlagValue] = Field(default_factory=dict)
    environments: dict[Argument, Environment] = Field(default_factory=dict)
    presets: dict[str, Line] = Field(default_factory=dict, description="launches by name: the flags as they are typed")
    _chosen: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def chosen(self) -> frozenset[str]:
        """Flags in ``defaults`` that a course or the user set: they have priority over ``gpu`` and ``cpu``."""
        return self._chosen

    def choose(self, flags: frozenset[str]) -> None:
        """Record which flags were set by upper layers; only the merging code knows."""
        self._chosen = flags

    @field_validator("idle_stop")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        return _checked_idle(text)

    @field_validator("presets")
    @classmethod
    def _are_launches(cls, presets: dict[str, str]) -> dict[str, str]:
        for name, typed in presets.items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
                raise ValueError(f"“{name}” cannot be the name of a preset; only letters, digits, _ and - are allowed")
            try:
                words = shlex.split(typed)
            except ValueError as error:
                raise ValueError(f"the flags of {name} cannot be read: {error}") from None
            if not _is_launch(words):
                raise ValueError(f"{name} = “{typed}” is not a launch; write its flags, such as: -t 2:00:00 --gpus 1")
            if any(word.partition("=")[0] == "--save" for word in words):
                raise ValueError(f"{name} = “{typed}” has --save, which saves a preset; leave it out")
        return presets

    @field_validator("max_time")
    @classmethod
    def _are_walltimes(cls, times: str | dict[str, str] | None) -> str | dict[str, str] | None:
        for text in times.values() if isinstance(times, dict) else [times] if times else []:
            try:
                Walltime.parse(text)
            except UsageError as error:
                raise ValueError(f"{error.what} {error.why}".strip().rstrip(".")) from None
        return times


def _is_launch(words: list[str]) -> bool:
    """Whether words are the flags of a launch, perhaps with a notebook in front, and no command."""
    first = words[place_of_command(words) :][:1]
    return bool(words) and (words[0].endswith(".ipynb") or all(word.startswith("-") for word in first))


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _checked_idle(text: str | None) -> str | None:
    if text is not None:
        try:
            parse_idle(text)
        except UsageError as error:
            raise ValueError(f"{error.what} {error.why}".strip().rstrip(".")) from None
    return text


MOST_NOTEBOOKS = 200  # each is a file to fetch


class Reservation(_Strict):
    """Nodes reserved for a course from one day to another, both inclusive, by the user's clock."""

    name: Account
    first: date
    last: date

    @model_validator(mode="after")
    def _has_its_order(self) -> Reservation:
        if self.last < self.first:
            raise ValueError(f"ends ({self.last}) before it begins ({self.first})")
        return self


class CourseProfile(_Strict):
    """The settings that a course adds to a cluster profile; see ``docs/courses.md`` for every key.

    ``cluster``: the cluster profile's name. ``base``: another course file that this one extends, beside it. ``image``:
    the image of the environments without one. ``notebooks``: files beside the course file, or below it, that are copied
    into ``folder`` in the student's home on the cluster. ``contact``: whom to ask.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
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
    idle_stop: Line | None = None
    gpu_idle: Literal["warn", "end"] | None = None
    notice: Line | None = None
    notebooks: tuple[Argument, ...] = ()
    folder: Argument | None = None
    defaults: dict[str, FlagValue] = Field(default_factory=dict)
    environments: dict[Argument, Environment] = Field(default_factory=dict)

    @field_validator("idle_stop")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        return _checked_idle(text)

    @field_validator("defaults")
    @classmethod
    def _are_lines(cls, defaults: dict[str, FlagValue]) -> dict[str, FlagValue]:
        for name, value in defaults.items():
            try:
                _one_line(name + str(value))  # the user agrees to what is shown of it
            except ValueError as error:
                raise ValueError(f"the value of {name} {error}") from None
        return defaults

    @field_validator("name")
    @classmethod
    def _is_no_files_name(cls, name: str) -> str:
        if name.endswith(".toml"):
            raise ValueError("ends like a file's name; leave out .toml")
        return name

    @field_validator("notebooks")
    @classmethod
    def _relative_only(cls, notebooks: tuple[str, ...]) -> tuple[str, ...]:
        if len(notebooks) > MOST_NOTEBOOKS:
            raise ValueError(f"has {len(notebooks)} files, and at most {MOST_NOTEBOOKS} are copied")
        for name in notebooks:
            if name.startswith("~") or "\\" in name or {"", "..", "."} & set(name.split("/")):
                raise ValueError(f"“{name}” does not lie beside the course file")
            if _is_hidden(name):
                raise ValueError(f"“{name}” is a hidden file, which other programs may read as their configuration")
        if twice := sorted({name for name in notebooks if notebooks.count(name) > 1}):
            raise ValueError(f"“{twice[0]}” stands there twice")
        return notebooks

    @field_validator("folder")
    @classmethod
    def _is_a_visible_folder(cls, folder: str | None) -> str | None:
        if folder is not None and (".." in folder.split("/") or _is_hidden(folder)):
            raise ValueError(
                f"“{folder}” is hidden, or leads out of itself; the student's notebooks lie in plain sight"
            )
        return folder
