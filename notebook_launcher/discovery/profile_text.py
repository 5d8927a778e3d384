"""From what a cluster told of itself to a profile that a person can read: what is chosen, and the text. Pure.

A value carries the command that it comes from. What is not clear stands there as a comment, to be looked at.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tomlkit
from tomlkit.container import Container
from tomlkit.items import Table

from notebook_launcher.discovery.cluster_survey import PartitionSeen, Software, Survey, one_line

_WIDTH = 110  # columns of a comment
_MOST = 12  # names in a list of candidates
#: first words of login nodes' names, which are those of every cluster
COMMON = frozenset({"login", "ssh", "hpc", "cluster", "head", "front", "frontend", "gateway", "access", "submit"})


@dataclass(frozen=True)
class Login:
    """The login node in the user's words, as the profile names it."""

    host: str
    user: str | None = None
    port: int | None = None
    ssh_config: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Choice:
    """What a profile should say of something. ``value``: the one sensible choice, if there is one; ``why``, in words.

    ``candidates``: what else there is, the most sensible first. ``needed``: whether no job is taken without a value.
    """

    value: str | None
    why: str
    candidates: tuple[str, ...] = ()
    needed: bool = False

    def taken(self, value: str) -> Choice:
        """Return the choice with the user's own word."""
        others = tuple(name for name in self.candidates if name != value)
        return Choice(value, "your answer", others)


@dataclass(frozen=True)
class Spelling:
    """How this cluster is asked for GPUs: the flag, and the scheduler's word on it. ``confirmed``: it took that."""

    flag: str = "gpus-per-node"
    confirmed: bool = False
    said: str = ""

    def value(self, kind: str = "") -> str:
        """Return the flag's value in a profile, for GPUs of a type or of any."""
        words = (["gpu"] if self.flag == "gres" else []) + ([kind] if kind else [])
        return ":".join([*words, "{count}"])


@dataclass(frozen=True)
class Probed:
    """What a job of a few minutes found out. ``stream``: the way to the node that was open; ``closed``: those not.

    ``software``: what there is on the node, ``None`` where it did not tell.
    """

    node: str
    stream: str | None
    closed: tuple[str, ...] = ()
    software: Software | None = None


@dataclass(frozen=True)
class Draft:
    """All that goes into a profile."""

    name: str
    login: Login
    command: str
    survey: Survey
    account: Choice
    partition: Choice
    gpu_partition: Choice
    spelling: Spelling = Spelling()
    probed: Probed | None = None


# --- what is chosen ----------------------------------------------------------------------------------------------


def choose_account(survey: Survey) -> Choice:
    """Return who pays: the account that is meant without ``-A``, or the only one."""
    accounts = survey.accounts or ()
    if survey.accounts is None:
        return Choice(None, f"not read: {survey.why_not('associations')}")
    if not accounts:
        return Choice(None, f"sacctmgr shows no account of yours on {survey.cluster or 'this cluster'}")
    others = tuple(name for name in accounts if name != survey.default_account)
    if survey.default_account:
        return Choice(survey.default_account, "sacctmgr: your default account", others)
    if len(accounts) == 1:
        return Choice(accounts[0], "sacctmgr show assoc: your only account")
    return Choice(None, "sacctmgr show assoc: you have several", accounts, needed=True)


def choose_partition(survey: Survey, account: str | None) -> Choice:
    """Return the partition for jobs without GPUs: Slurm's default, or the only one that is open to the user."""
    if survey.partitions is None:
        return Choice(None, f"not read: {survey.why_not('sinfo', 'partitions')}")
    usable = usable_partitions(survey, account)
    usable = [partition for partition in usable if not partition.only_gpus] or usable
    names = tuple(partition.name for partition in usable)
    default = next((partition.name for partition in usable if partition.is_default), None)
    if default:
        return Choice(default, "sinfo: the default", tuple(name for name in names if name != default))
    if len(names) == 1:
        return Choice(names[0], "sinfo: the only one without GPUs that is open to you")
    return Choice(None, "sinfo: there is no default" if names else "sinfo: none is open to you", names, bool(names))


def choose_gpu_partition(survey: Survey, account: str | None) -> Choice:
    """Return the partition for jobs with GPUs: the only one whose nodes all have some, or the only one with any."""
    if survey.partitions is None:
        return Choice(None, f"not read: {survey.why_not('sinfo', 'partitions')}")
    having = [partition for partition in usable_partitions(survey, account) if partition.gpus]
    if not having:
        return Choice(None, "sinfo: no partition that is open to you has GPUs")
    lasting = [partition for partition in having if not partition.preemptible] or having
    made_for = [partition for partition in lasting if partition.only_gpus]
    default = [partition for partition in made_for if partition.is_default]
    ordered = list(dict.fromkeys(partition.name for partition in (*made_for, *lasting, *having)))
    for group, why in (
        (made_for, "sinfo: all its nodes have GPUs"),
        (default, "sinfo: the default, and all its nodes have GPUs"),
        (having, "sinfo: the only one with GPUs"),
    ):
        if len(group) == 1:
            value = group[0].name
            return Choice(value, why, tuple(name for name in ordered if name != value))
    return Choice(None, "sinfo: several have GPUs", tuple(ordered))


def usable_partitions(survey: Survey, account: str | None) -> list[PartitionSeen]:
    """Return the partitions that take jobs of the user's, with this account where one is known."""
    mine = frozenset([account]) if account else frozenset(survey.accounts or ())

    def lets_in(partition: PartitionSeen) -> bool:
        if partition.is_up is False or (partition.groups is not None and not partition.groups & survey.groups):
            return False
        if not mine:
            return True
        allowed = mine if partition.accounts is None else mine & partition.accounts
        return bool(allowed - partition.denied_accounts)

    return [partition for partition in survey.partitions or () if lets_in(partition)]


def partition_named(survey: Survey, name: str | None) -> PartitionSeen | None:
    """Return a partition by its name."""
    return next((partition for partition in survey.partitions or () if partition.name == name), None)


def gpu_types(draft: Draft) -> dict[str, list[PartitionSeen]]:
    """Return the types of GPUs, each with the partitions that have it, the one for GPUs first."""
    usable = usable_partitions(draft.survey, draft.account.value)
    chosen = draft.gpu_partition.value
    usable.sort(key=lambda partition: (partition.name != chosen, partition.preemptible, not partition.only_gpus))
    kinds = {kind: None for partition in usable for kind in partition.gpus if kind}
    return {kind: [partition for partition in usable if kind in partition.gpus] for kind in kinds}


def sample_flags(draft: Draft, spelling: Spelling | None = None) -> dict[str, str | None]:
    """Return flags of a short job as the profile would ask for it, for the scheduler's word.

    ``spelling``: with a GPU, asked for so.
    """
    partition = draft.gpu_partition if spelling else draft.partition
    flags: dict[str, str | None] = {"time": "5"}
    if draft.account.value:
        flags["account"] = draft.account.value
    if partition.value:
        flags["partition"] = partition.value
    if draft.survey.other:
        flags["clusters"] = draft.survey.cluster
    if spelling:
        flags[spelling.flag] = spelling.value().format(count=1)
    return flags


# --- the text ----------------------------------------------------------------------------------------------------


def profile_text(draft: Draft) -> str:
    """Return the profile as TOML with comments. No text of the cluster's can end a comment or a value."""
    doc = tomlkit.document()
    _head(doc, draft)
    _place(doc, draft)
    _way(doc, draft)
    _home(doc, draft)
    _container(doc, draft)
    _walltimes(doc, draft)
    _gpus(doc, draft)
    _cpu(doc, draft)
    _defaults(doc, draft)
    _environments(doc, draft)
    text = tomlkit.dumps(doc)
    return re.sub(r"\n{3,}", "\n\n", text).lstrip("\n").rstrip("\n") + "\n"


_Body = Container | Table


def _remark(body: _Body, text: str) -> None:
    """Add a comment, folded; whatever the text holds, it stays one."""
    for line in textwrap.wrap(one_line(text, 600), _WIDTH, break_long_words=False, break_on_hyphens=False):
        body.add(tomlkit.comment(line))


def _value(body: _Body, key: str, value: object, why: str = "") -> None:
    item = tomlkit.item(value)
    body.add(key, item.comment(one_line(why)) if why else item)


def _suggestion(body: _Body, key: str, value: object, why: str = "") -> None:
    """Add a line that counts once its # is taken away."""
    assignment = f"{key} = {tomlkit.item(value).as_string()}"
    body.add(tomlkit.comment(f"{assignment}  # {one_line(why)}" if why else assignment))


def _section(doc: Container, title: str = "") -> None:
    doc.add(tomlkit.nl())
    if title:
        _remark(doc, title)


def _head(doc: Container, draft: Draft) -> None:
    survey = draft.survey
    _remark(doc, f"Read on {survey.day} by: {draft.command}")
    _remark(
        doc,
        "Behind a value stands the command that told it. What begins with # was not clear, or is a suggestion: "
        "look at it, and take the # away. Every key: docs/profiles.md",
    )
    doc.add(tomlkit.nl())
    kind = "LSF" if is_lsf(survey) else "Slurm"
    what = f"{kind} {survey.version}" if survey.version else kind
    _value(doc, "description", f"{survey.cluster or draft.name} ({what}), as read on {survey.day}")


def _place(doc: Container, draft: Draft) -> None:
    login, survey = draft.login, draft.survey
    _value(doc, "host", login.host)
    for key in ("user", "port", "ssh_config", "engine"):
        if value := getattr(login, key):
            _value(doc, key, value)
    if pattern := login_pattern(survey.hostname):
        _value(doc, "login_nodes", [pattern], f"hostname -f: {survey.hostname}; on these no connection is made")
    elif survey.hostname:
        _remark(doc, f"login_nodes is not known: hostname -f: {survey.hostname}, as on other clusters too")
    else:
        _remark(doc, f"login_nodes is not known. {_not_read(survey, 'hostname')}")
    if is_lsf(survey):
        _value(doc, "scheduler", "lsf", "bsub is there, and no sinfo")
    else:
        _value(
            doc,
            "scheduler",
            "slurm",
            f"sinfo --version: {survey.version}" if survey.version else _not_read(survey, "version"),
        )
    others = [name for name in survey.clusters or () if name != survey.cluster]
    if others and survey.cluster:
        _remark(
            doc,
            f"There are other clusters here, for -M NAME (sacctmgr show clusters): {_list(others)}. "
            "A profile for one of them: launch-notebook init … -M NAME",
        )


def is_lsf(survey: Survey) -> bool:
    """Whether jobs are queued by LSF, and not by Slurm."""
    return survey.has_lsf and not survey.part("version").ok


def login_pattern(hostname: str | None) -> str | None:
    """Return a pattern for the full names of all login nodes, from that of one.

    ``login3.uni.example`` is one of ``login[0-9]*.uni.example``. ``None`` where other clusters' are called so, too.
    """
    short, dot, domain = (hostname or "").partition(".")
    stem = short.rstrip("0123456789")
    if not stem or stem == "localhost" or (not domain and stem.lower() in COMMON):
        return None
    return f"{stem}{'[0-9]*' if stem != short else ''}{dot}{domain}"


def _way(doc: Container, draft: Draft) -> None:
    probed = draft.probed
    if probed is None:
        _section(
            doc,
            "Not known without a job, which launch-notebook init … --probe queues for a moment: which way "
            "leads to the compute nodes, and what there is on them. A launch tries the ways in turn.",
        )
        _suggestion(doc, "stream", "node-ssh", "or step, job-sshd")
        return
    _section(doc)
    closed = f"; not open: {_list(probed.closed)}" if probed.closed else ""
    if probed.stream:
        _value(doc, "stream", probed.stream, f"open to {probed.node} in a job on {draft.survey.day}{closed}")
    else:
        _remark(doc, f"No way to {probed.node} was found from the login node{closed}.")
        _suggestion(doc, "stream", "direct", "opens Jupyter's port to everybody on the cluster")
    node = probed.software
    if node and node.machine and node.machine != draft.survey.software.machine:
        _value(doc, "node_arch", node.machine, f"uname -m on {probed.node}; images must be made for it")


def _home(doc: Container, draft: Draft) -> None:
    survey = draft.survey
    if survey.home:
        _remark(doc, f"The home folder lies on {survey.home} (stat -f ~), sessions in ~/.notebook-launcher/sessions.")
    if survey.quota:
        _value(doc, "quota_command", list(survey.quota), "it told your quota")
    for name in survey.quota_candidates[:_MOST]:
        _suggestion(doc, "quota_command", [name], "found by its name, not tried")
    if not survey.quota and not survey.quota_candidates:
        _remark(doc, "No command was found that tells a quota.")


def _container(doc: Container, draft: Draft) -> None:
    found, node = draft.survey.software.runtimes, draft.probed.software if draft.probed else None
    table = tomlkit.table()
    if node is not None and draft.probed is not None:
        where = f"command -v on {draft.probed.node}"
        if node.runtimes:
            _value(table, "command", node.runtimes[0], where)
            for name in node.runtimes[1:]:
                _suggestion(table, "command", name, where)
        else:
            _remark(table, f"No command for images was found on {draft.probed.node}; a module may bring one.")
    elif found:
        for name in found:
            _suggestion(table, "command", name, "command -v on the login node; compute nodes may differ")
    else:
        _remark(
            table, "No command for images was found on the login node; a module, or the compute nodes, may have one."
        )
    for name in [name for name in draft.survey.software.modules if re.match("(?i)(apptainer|singularity)", name)][:3]:
        _suggestion(table, "modules", [name], "module avail")
    _table(doc, "container", table)


def _walltimes(doc: Container, draft: Draft) -> None:
    limits = [partition for partition in draft.survey.partitions or () if partition.longest]
    table = tomlkit.table()
    for partition in limits:
        _value(table, partition.name, partition.longest, _of_partition(partition))
    if limits:
        _section(doc, "The longest walltime of each partition (scontrol show partition: MaxTime).")
        _table(doc, "max_time", table)
    else:
        _section(doc, f"No longest walltime is known. {_not_read(draft.survey, 'partitions', 'sinfo')}")


def _of_partition(partition: PartitionSeen) -> str:
    """Return what else is worth knowing of a partition, in a few words."""
    words = [f"without -t: {partition.usual}"] if partition.usual else []
    words += [f"memory without --mem: {partition.memory} MiB"] if partition.memory else []
    words += [f"only {_list(sorted(partition.accounts))}"] if partition.accounts else []
    words += [f"only group {_list(sorted(partition.groups))}"] if partition.groups else []
    words += ["may have to make room for others"] if partition.preemptible else []
    words += ["takes no jobs now"] if partition.is_up is False else []
    return "; ".join(words)


def _gpus(doc: Container, draft: Draft) -> None:
    kinds, spelling = gpu_types(draft), draft.spelling
    if not any(partition.gpus for partition in usable_partitions(draft.survey, draft.account.value)):
        known = "none" if draft.survey.partitions else "not known"
        _section(doc, f"GPUs: {known}; {draft.gpu_partition.why}")
        return
    flags = tomlkit.table()
    _choice(flags, "partition", draft.gpu_partition)
    said = "sbatch --test-only takes it" if spelling.confirmed else f"not confirmed: {spelling.said or 'not asked'}"
    _value(flags, spelling.flag, spelling.value(), said)
    gpu, types = tomlkit.table(is_super_table=True), tomlkit.table(is_super_table=True)
    gpu.add("flags", flags)
    for kind, partitions in kinds.items():
        types.add(kind, _gpu_type(draft, kind, partitions))
    if kinds:
        gpu.add("types", types)
    _section(doc)
    doc.add("gpu", gpu)


def _gpu_type(draft: Draft, kind: str, partitions: Sequence[PartitionSeen]) -> Table:
    table, flags = tomlkit.table(), tomlkit.table()
    names = ", ".join(f"{partition.name} ({partition.gpus[kind]} a node)" for partition in partitions[:_MOST])
    _value(table, "description", f"in {names}", "sinfo: GRES")
    _value(flags, draft.spelling.flag, draft.spelling.value(kind))
    own = [partition.name for partition in partitions if partition.only_gpus and not partition.preemptible]
    if draft.gpu_partition.value not in [partition.name for partition in partitions] and len(own or partitions) == 1:
        _value(flags, "partition", own[0] if own else partitions[0].name, "sinfo: the only one that has it")
    table.add("flags", flags)
    return table


def _cpu(doc: Container, draft: Draft) -> None:
    flags = tomlkit.table()
    _choice(flags, "partition", draft.partition)
    cpu = tomlkit.table(is_super_table=True)
    cpu.add("flags", flags)
    _section(doc)
    doc.add("cpu", cpu)


def _defaults(doc: Container, draft: Draft) -> None:
    table = tomlkit.table()
    _choice(table, "account", draft.account)
    if draft.survey.other:
        _value(table, "clusters", draft.survey.cluster, "-M")
    _suggestion(table, "time", "2:00:00", "without it: 59 minutes")
    _section(doc, "Flags of every launch; those on the command line win.")
    _table(doc, "defaults", table)


def next_step(draft: Draft) -> str:
    """Return what to do with the profile, for a user: without a JupyterLab it needs an environment first."""
    software, where = _software(draft)
    if software.has_jupyter:
        return f"Read it, and use it with: launch-notebook --cluster {draft.name} --dry-run"
    first, value = "container", "/path/to/image-with-jupyterlab.sif"
    name = _module_with_jupyter(software)[0]
    if name in software.modules:  # and not one that needs others first
        first, value = "modules", f"'[\"{name}\"]'"
    return (
        f"No jupyter-lab was found on {where}. Read the profile, and name an environment that brings it, for example: "
        f"launch-notebook clusters edit {draft.name} --set environments.mine.{first}={value}   "
        f"Then use it with: launch-notebook --cluster {draft.name} --dry-run -- mine"
    )


def _software(draft: Draft) -> tuple[Software, str]:
    """Return what there is, and where that was seen: on a compute node if a job has looked there."""
    if draft.probed and draft.probed.software:
        return draft.probed.software, draft.probed.node
    return draft.survey.software, "the login node"


def _environments(doc: Container, draft: Draft) -> None:
    software, where = _software(draft)
    _section(
        doc,
        "Where JupyterLab comes from, by name: launch-notebook --cluster "
        f'{draft.name} -- NAME. With environment = "NAME", above all tables, it is meant without --.',
    )
    name, first = _module_with_jupyter(software)
    if name:
        doc.add(tomlkit.comment("[environments.module]"))
        _suggestion(doc, "modules", [name], first)
    doc.add(tomlkit.comment("[environments.image]"))
    _suggestion(doc, "container", "/path/to/image-with-jupyterlab.sif")
    if software.has_jupyter:
        _remark(doc, f"jupyter-lab is on PATH on {where}: a launch without an environment takes it.")
    elif draft.probed:
        _remark(doc, f"There is no jupyter-lab on PATH on {where}: an environment has to bring it.")
    if software.module_system is None:
        _remark(doc, f"There are no modules on {where}.")
    elif software.modules:
        _remark(doc, f"Modules on {where} ({software.module_system}): {_list(software.modules, 30)}")
    if software.hidden:
        _remark(doc, f"Others, which need a module first (module spider NAME tells): {_list(software.hidden, 30)}")


def _module_with_jupyter(software: Software) -> tuple[str | None, str]:
    """Return the module that is likeliest to bring JupyterLab, and a word on it."""
    for names, why in (
        (software.modules, "module avail"),
        (software.hidden, "module spider tells what it needs first"),
    ):
        found = [name for name in names if re.search("(?i)jupyter", name)]
        found = [name for name in found if re.search("(?i)jupyter-?lab", name)] or found
        if found:
            return found[-1], why
    return None, ""


def _choice(table: Table, key: str, choice: Choice) -> None:
    if choice.value:
        _value(table, key, choice.value, choice.why)
    else:
        _remark(table, f"{key}: {choice.why}")
    for name in choice.candidates[:_MOST]:
        _suggestion(table, key, name)
    if len(choice.candidates) > _MOST:
        _remark(table, f"and {len(choice.candidates) - _MOST} more")


def _table(doc: Container, name: str, table: Table) -> None:
    doc.add(name, table)


def _list(names: Iterable[str], most: int = _MOST) -> str:
    words = list(names)
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _not_read(survey: Survey, *names: str) -> str:
    return f"Not read: {survey.why_not(*names)}"
