"""A cluster's report about itself: parses the parts that ``survey.sh`` printed. Pure.

The text is not trusted: values are validated, or left out. ``None`` means not read, which is not the same as none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import one_line
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.kinds import Kind, kind_by_command
from notebook_launcher.schedulers.slurm.cluster_info import SlurmClusterInfo
from notebook_launcher.schedulers.slurm.limits import pairs

# names of partitions, accounts, clusters and GPU types; Slurm allows other characters, but no site uses them
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,127}")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@/-]{0,127}")
_GPUS = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:,()=]+))?:(?P<count>\d{1,4})(?=,|$)", re.A)
LONGEST_MESSAGE = 200  # characters of a command's message

#: the command of each part, as a user would type it
COMMANDS = {
    "machine": "uname -m",
    "hostname": "hostname",
    "groups": "id",
    "version": "sinfo --version",
    "sinfo": "sinfo",
    "partitions": "scontrol show partition",
    "config": "scontrol show config",
    "associations": "sacctmgr show assoc",
    "default_account": "sacctmgr show user",
    "clusters": "sacctmgr show clusters",
    "runtimes": "command -v",
    "pyxis": "srun --help",
    "jupyter": "command -v jupyter-lab",
    "module_system": "module --version",
    "modules": "module avail",
    "all_modules": "module spider",
    "home": "stat -f ~",
    "quota": "quota -s",
    "gpus": "nvidia-smi -L",
}

#: commands that run images, and their names in a profile
RUNTIMES = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "ch-run": "charliecloud",
    "podman": "podman",
    "podman-hpc": "podman-hpc",
    "enroot": "enroot",
    "shifter": "shifter",
}
# administrators' programs with "quota" in their names, which every system has; they report nothing to users
_ADMINISTRATORS = frozenset(
    {
        "quotacheck",
        "quotaon",
        "quotaoff",
        "quotastats",
        "quotasync",
        "quota_nld",
        "repquota",
        "edquota",
        "setquota",
        "warnquota",
        "xqmstats",
        "xfs_quota",
        "convertquota",
        "rpc.rquotad",
        "nfsquota",
    }
)


class SurveyPart(Frozen):
    """The output of one command. ``code``: its exit code; ``None`` if it was not run, or did not end.

    ``command``: the command as a user would type it, if it is not the one in ``COMMANDS``.
    """

    name: str
    code: int | None = None
    lines: tuple[str, ...] = ()
    message: str = ""
    command: str = ""

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.code == 0

    @property
    def typed(self) -> str:
        """The command as a user would type it."""
        return self.command or COMMANDS.get(self.name, self.name)

    @property
    def failure_of(self) -> str:
        """Why the command failed, as text."""
        command = self.typed
        if self.code is None:
            return f"{command}: there was no time left for it"
        if self.code in (124, 137):  # from timeout: the command was ended, or had to be killed
            return f"{command} took too long"
        if self.code == 127:
            return f"there is no {command.split()[0]}"
        message = one_line(self.message or " ".join(self.lines), LONGEST_MESSAGE)
        return f"{command} said: {message}" if message else f"{command} ended with exit code {self.code}"


def read_parts(text: str) -> dict[str, SurveyPart]:
    """Return the output of ``survey.sh``, by part; empty if the text is not from that script."""
    # the script's lines end with \n; a command's output may contain the other line endings of splitlines()
    lines = iter(text.split("\n"))
    parts: dict[str, list[str]] = {}
    if "survey 1" not in (line.strip() for line in lines):
        return {}
    name = ""
    for line in lines:
        if line.startswith("part "):
            name = line.removeprefix("part ").strip()
            parts[name] = []
        elif name:
            parts[name].append(" ".join(line.splitlines()))
    return {name: _part(name, lines) for name, lines in parts.items()}


def _part(name: str, lines: Sequence[str]) -> SurveyPart:
    codes = [int(line[5:]) for line in lines if re.fullmatch(r"code \d{1,3}", line, re.A)]
    return SurveyPart(
        name,
        codes[-1] if codes else None,
        tuple(line[1:] for line in lines if line.startswith("|")),
        "\n".join(line[1:] for line in lines if line.startswith("!")).strip(),
    )


def is_name(text: str) -> bool:
    """Return whether this is a valid name of a partition, an account or the like."""
    return _NAME.fullmatch(text) is not None


# --- what there is ---------------------------------------------------------------------------------------------


class SurveyedPartition(Frozen):
    """One partition.

    ``gpus``: the most on one node, by type (``""`` if it has no name); ``gpu_nodes``: how many nodes have any.
    ``longest``, ``usual``: the maximum and the default walltime as sbatch accepts them; ``None`` if unlimited, or not
    reported. ``accounts``, ``groups``: those allowed, ``None``: all.
    """

    name: str
    is_default: bool = False
    is_up: bool | None = None
    longest: str | None = None
    usual: str | None = None
    memory: str | None = None
    nodes: int = 0
    gpu_nodes: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    groups: frozenset[str] | None = None
    preemptible: bool = False

    @property
    def only_gpus(self) -> bool:
        """Whether every node in it has GPUs."""
        return bool(self.gpus) and self.gpu_nodes == self.nodes


class Software(Frozen):
    """The software of one machine. ``runtimes``: the container commands, by their names in profiles, the best first.

    ``modules``: those that may contain Jupyter and related software; ``hidden``: those that need other modules first.
    """

    machine: str | None = None
    runtimes: tuple[str, ...] = ()
    has_jupyter: bool = False
    module_system: str | None = None
    modules: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class ClusterSurvey(Frozen):
    """The report of a login node. ``None``: not read; ``parts`` say why.

    ``cluster``: Slurm's name for it; ``other``: whether it is a cluster other than the login node's own (``-M``).
    ``invalid_names``: how many were left out. ``other_scheduler``: the scheduler if it is not Slurm.
    ``source``: the command that lists the partitions; ``options``: the profile's ``scheduler_options``.
    """

    day: date
    parts: Mapping[str, SurveyPart]
    other: bool = False
    hostname: str | None = None
    version: str | None = None
    cluster: str | None = None
    partitions: tuple[SurveyedPartition, ...] | None = None
    accounts: tuple[str, ...] | None = None
    default_account: str | None = None
    clusters: tuple[str, ...] | None = None
    groups: frozenset[str] = frozenset()
    other_scheduler: Kind | None = None
    software: Software = Software()
    home: str | None = None
    quota: tuple[str, ...] = ()
    quota_candidates: tuple[str, ...] = ()
    invalid_names: int = 0
    source: str = "sinfo"
    options: Mapping[str, str] = field(default_factory=dict)

    def failure_of(self, *names: str) -> str:
        """Return why the first of these parts that failed did so."""
        failed = [part.failure_of for name in names if not (part := self.part(name)).ok]
        return failed[0] if failed else f"{self.part(names[0]).typed} reported nothing"

    def part(self, name: str) -> SurveyPart:
        """Return a part, an empty one if the script did not reach it."""
        return self.parts.get(name, SurveyPart(name))


def _other_scheduler(read: ClusterSurvey) -> Kind | None:
    return kind_by_command([path.rpartition("/")[2] for path in read.part("others").lines])


def read_survey(text: str, day: date, other: str | None = None) -> ClusterSurvey:
    """Parse the output of ``survey.sh login``. ``other``: the other cluster that was surveyed, if any."""
    parts = read_parts(text)
    read = ClusterSurvey(day, parts, other=other is not None)
    config = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in _lines(read, "config"))}
    cluster = other or _first_name([config.get("ClusterName", "")])
    accounts, default, invalid_accounts = _accounts(read, cluster)
    partitions, invalid_partitions = _partitions(read)
    clusters = read.part("clusters")
    quota, candidates = _quota(read)
    return replace(
        read,
        hostname=_hostname(read),
        version=_version(read),
        cluster=cluster,
        partitions=partitions,
        accounts=accounts,
        default_account=default,
        clusters=tuple(_names(line.partition("|")[0] for line in clusters.lines)) if clusters.ok else None,
        groups=frozenset(" ".join(_lines(read, "groups")).split()),
        other_scheduler=None if read.part("version").ok else _other_scheduler(read),
        software=_software(parts),
        home=_first_line(_lines(read, "home")),
        quota=quota,
        quota_candidates=candidates,
        invalid_names=invalid_accounts + invalid_partitions,
    )


def read_node(text: str) -> Software | None:
    """Parse the output of ``survey.sh node``; ``None`` if there is none."""
    parts = read_parts(text)
    return _software(parts) if parts else None


def _lines(survey: ClusterSurvey, name: str) -> tuple[str, ...]:
    part = survey.part(name)
    return part.lines if part.ok else ()


def _first_line(lines: Iterable[str]) -> str | None:
    return next((text for line in lines if (text := one_line(line, LONGEST_MESSAGE))), None)


def _first_name(lines: Iterable[str]) -> str | None:
    return next(iter(_names(lines)), None)


def _hostname(survey: ClusterSurvey) -> str | None:
    """Return the login node's host name, with its domain if known."""
    name, full = _first_name(_lines(survey, "hostname")), _first_name(_lines(survey, "hostname_f"))
    return full if name and full and full.startswith(f"{name.partition('.')[0]}.") else name


def _names(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for line in texts if is_name(word := line.strip())))


def _version(survey: ClusterSurvey) -> str | None:
    match = re.search(r"\b(\d{2}\.\d{2}[\w.-]{0,16})", " ".join(_lines(survey, "version")), re.A)
    return match[1] if match else None


# --- accounts ---------------------------------------------------------------------------------------------------


def _accounts(survey: ClusterSurvey, cluster: str | None) -> tuple[tuple[str, ...] | None, str | None, int]:
    """Return the user's accounts on this cluster, the default account, and the number of invalid names."""
    if not survey.part("associations").ok:
        return None, None, 0
    rows = [line.split("|") for line in _lines(survey, "associations") if line.count("|") == 4]
    names = [row[1] for row in rows if cluster in (None, row[0])]
    accounts = tuple(_names(names))
    default = _first_name(_lines(survey, "default_account"))
    invalid_names = len({name for name in names if name.strip()} - set(accounts))
    return accounts, default if default in accounts else None, invalid_names


# --- partitions --------------------------------------------------------------------------------------------------


def _partitions(survey: ClusterSurvey) -> tuple[tuple[SurveyedPartition, ...] | None, int]:
    """Return the partitions from both commands' output, and the number of invalid names."""
    seen: dict[str, SurveyedPartition] = {}
    invalid_names: set[str] = set()
    for line in _lines(survey, "sinfo"):
        fields = line.split("|")
        if len(fields) == 10 and is_name(fields[0]):
            seen[fields[0]] = _with_nodes(seen.get(fields[0]) or SurveyedPartition(fields[0]), fields)
        elif len(fields) == 10:
            invalid_names.add(fields[0])
    answer = CommandResult(0, "\n".join(_lines(survey, "partitions")))
    times = {record.get("PartitionName"): record for record in map(pairs, answer.stdout.splitlines())}
    for partition in SlurmClusterInfo().read_partitions(answer) or ():
        if not is_name(partition.name):
            invalid_names.add(partition.name)
            continue
        record = times.get(partition.name, {})
        before = seen.get(partition.name) or SurveyedPartition(partition.name, nodes=partition.nodes or 0)
        seen[partition.name] = replace(
            before,
            is_default=partition.is_default,
            is_up=partition.is_up,
            longest=_walltime(record.get("MaxTime", "")) or before.longest,
            usual=_walltime(record.get("DefaultTime", "")),
            memory=next(
                (
                    f"{key}={record[key]}"
                    for key in ("DefMemPerCPU", "DefMemPerNode")
                    if record.get(key, "").isdecimal()
                ),
                None,
            ),
            accounts=partition.accounts,
            denied_accounts=partition.denied_accounts,
            groups=partition.groups,
            preemptible=partition.preemptible,
        )
    return tuple(seen.values()) or None, len(invalid_names)


def _with_nodes(partition: SurveyedPartition, fields: Sequence[str]) -> SurveyedPartition:
    """Return the partition with a line of sinfo added, which covers nodes with the same resources."""
    _, marked, state, longest, count, _, gres, features, _, _ = fields
    nodes = int(count) if re.fullmatch(r"\d{1,6}", count, re.A) else 0
    gpus = _gpus(gres)
    return replace(
        partition,
        is_default=partition.is_default or marked.endswith("*"),
        is_up=state == "up",
        longest=_walltime(longest),
        nodes=partition.nodes + nodes,
        gpu_nodes=partition.gpu_nodes + (nodes if gpus else 0),
        gpus={kind: max(number, partition.gpus.get(kind, 0)) for kind, number in {**partition.gpus, **gpus}.items()},
        features=tuple(dict.fromkeys((*partition.features, *_names(features.split(","))))),
    )


def _gpus(gres: str) -> dict[str, int]:
    """Return the number of GPUs by type; a type may occur several times, once for each socket."""
    counts: dict[str, int] = {}
    for match in _GPUS.finditer(re.sub(r"\([^)]*\)", "", gres)):
        kind = match["type"] or ""
        if int(match["count"]) and (not kind or is_name(kind)):
            counts[kind] = counts.get(kind, 0) + int(match["count"])
    return counts


def _walltime(text: str) -> str | None:
    try:
        return None if Walltime.parse(text).is_unlimited else text
    except (UsageError, OverflowError):
        return None


# --- software ----------------------------------------------------------------------------------------------------


def _software(parts: Mapping[str, SurveyPart]) -> Software:
    def lines(name: str) -> tuple[str, ...]:
        part = parts.get(name, SurveyPart(name))
        return part.lines if part.ok else ()

    found = [path.rpartition("/")[2] for path in lines("runtimes")]
    runtimes = [RUNTIMES[name] for name in RUNTIMES if name in found]
    if lines("pyxis"):
        runtimes.append("pyxis")
    has_modules = "module_system" in parts and parts["module_system"].ok
    modules = _modules(lines("modules")) if has_modules else ()
    system = _first_line(line for line in lines("module_system") if line.strip()) if has_modules else None
    return Software(
        machine=_first_name(lines("machine")),
        runtimes=tuple(runtimes),
        has_jupyter=bool(lines("jupyter")),
        module_system=system or ("module" if has_modules else None),
        modules=modules,
        hidden=tuple(name for name in _modules(lines("all_modules")) if has_modules and name not in modules),
        gpus=tuple(dict.fromkeys(_gpu_names(lines("gpus")))),
    )


def _modules(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of ``module -t avail``, without remarks (``name(default)``) and headings (``name/``)."""
    names = (re.sub(r"\s*[(<][^)>]*[)>]\s*$", "", line.strip()) for line in lines)
    return tuple(dict.fromkeys(name for name in names if _MODULE.fullmatch(name) and not name.endswith("/")))


def _gpu_names(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if match := re.match(r"GPU \d+: (.+?) \(UUID", line):
            yield one_line(match[1], 60)


def _quota(survey: ClusterSurvey) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command that prints a quota, and other programs that may do so."""
    paths = _lines(survey, "quota_commands")
    names = _names(path.rpartition("/")[2] for path in paths)
    others = tuple(name for name in names if name not in _ADMINISTRATORS and name not in ("quota", "lfs"))
    if survey.part("quota").ok and any(line.strip() for line in survey.part("quota").lines):
        return ("quota", "-s"), others
    if "lfs" in names and _first_line(_lines(survey, "home")) == "lustre":
        return ("lfs", "quota", "-h", "~"), others
    return (), others
