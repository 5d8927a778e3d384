"""A new profile as a TOML file for people: each value has a comment with the command that it comes from. Pure.

What is unclear is commented out, for the user to check.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

import tomlkit
from tomlkit.container import Container
from tomlkit.items import Table

from notebook_launcher.core.text import one_line
from notebook_launcher.discovery.cluster_survey import LONGEST_MESSAGE, ClusterSurvey, Software, SurveyedPartition
from notebook_launcher.discovery.profile_draft import Choice, Draft, gpu_types, usable_partitions

_WIDTH = 110  # the most columns of a comment
_MOST = 12  # the most names in a list of candidates
#: first parts of login nodes' names that are used on many clusters
COMMON_LOGIN_NAMES = frozenset(
    {"login", "ssh", "hpc", "cluster", "head", "front", "frontend", "gateway", "access", "submit"}
)


def profile_text(draft: Draft) -> str:
    """Return the profile as TOML with comments. No text from the cluster can break out of a comment or a value."""
    doc = tomlkit.document()
    _head(doc, draft)
    _place(doc, draft)
    _route(doc, draft)
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
    """Add a comment, wrapped; whatever the text contains, it stays a comment."""
    for line in textwrap.wrap(one_line(text, 600), _WIDTH, break_long_words=False, break_on_hyphens=False):
        body.add(tomlkit.comment(line))


def _value(body: _Body, key: str, value: object, why: str = "") -> None:
    item = tomlkit.item(value)
    body.add(key, item.comment(one_line(why, LONGEST_MESSAGE)) if why else item)


def _suggestion(body: _Body, key: str, value: object, why: str = "") -> None:
    """Add a setting that is commented out."""
    assignment = f"{key} = {tomlkit.item(value).as_string()}"
    body.add(tomlkit.comment(f"{assignment}  # {one_line(why, LONGEST_MESSAGE)}" if why else assignment))


def _section(doc: Container, title: str = "") -> None:
    doc.add(tomlkit.nl())
    if title:
        _remark(doc, title)


def _head(doc: Container, draft: Draft) -> None:
    survey = draft.survey
    _remark(doc, f"Read on {survey.day} by: {draft.command}")
    _remark(
        doc,
        "Behind each value is the command that reported it. What begins with # was not clear, or is a suggestion: "
        "look at it, and take the # away. Every key: docs/profiles.md",
    )
    doc.add(tomlkit.nl())
    kind = survey.other_scheduler.title if survey.other_scheduler else "Slurm"
    what = f"{kind} {survey.version}" if survey.version else kind
    _value(doc, "description", f"{survey.cluster or draft.name} ({what}), as read on {survey.day}")


def _place(doc: Container, draft: Draft) -> None:
    login, survey = draft.login, draft.survey
    _value(doc, "host", login.host)
    for key in ("user", "port", "ssh_config", "engine"):
        if value := getattr(login, key):
            _value(doc, key, value)
    if draft.login_setup:
        _value(doc, "login_setup", list(draft.login_setup), "without it a login shell does not find the scheduler")
    if pattern := login_pattern(survey.hostname):
        _value(doc, "login_nodes", [pattern], f"hostname -f: {survey.hostname}; on these no connection is made")
    elif survey.hostname:
        _remark(doc, f"login_nodes is not known: hostname -f: {survey.hostname}, as on other clusters too")
    else:
        _remark(doc, f"login_nodes is not known. {_not_read(survey, 'hostname')}")
    if survey.other_scheduler:
        _value(
            doc, "scheduler", survey.other_scheduler.name, f"{survey.other_scheduler.command} was found, and no sinfo"
        )
        if survey.options:
            options = tomlkit.inline_table()
            options.update(survey.options)
            doc.add("scheduler_options", options.comment("what this site calls its resources"))
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


def login_pattern(hostname: str | None) -> str | None:
    """Return a pattern for the full names of all login nodes, made from that of one of them.

    For ``login3.uni.example`` it is ``login[0-9]*.uni.example``. ``None`` if names on other clusters match it as well.
    """
    short, dot, domain = (hostname or "").partition(".")
    stem = short.rstrip("0123456789")
    if not stem or stem == "localhost" or (not domain and stem.lower() in COMMON_LOGIN_NAMES):
        return None
    return f"{stem}{'[0-9]*' if stem != short else ''}{dot}{domain}"


def _route(doc: Container, draft: Draft) -> None:
    probed = draft.probed
    if probed is None:
        _section(
            doc,
            "Not known yet: which route leads to the compute nodes, and which software they have. To find out with a "
            "short job, type launch-notebook init … --probe. Until then, a launch tries the routes in turn.",
        )
        _suggestion(doc, "route", "node-ssh", f"or {'' if draft.survey.other_scheduler else 'step, '}reverse, job-sshd")
        return
    _section(doc)
    closed = f"; not open: {_list(probed.closed)}" if probed.closed else ""
    if probed.route:
        _value(doc, "route", probed.route, f"open to {probed.node} in a job on {draft.survey.day}{closed}")
    else:
        _remark(doc, f"No route to {probed.node} was found from the login node{closed}.")
        _suggestion(doc, "route", "direct", "opens Jupyter's port to everybody on the cluster")
    node = probed.software
    if node and node.machine and node.machine != draft.survey.software.machine:
        _value(doc, "node_arch", node.machine, f"uname -m on {probed.node}; images must be made for it")


def _home(doc: Container, draft: Draft) -> None:
    survey = draft.survey
    if survey.home:
        _remark(doc, f"The home folder lies on {survey.home} (stat -f ~), sessions in ~/.notebook-launcher/sessions.")
    if survey.quota:
        _value(doc, "quota_command", list(survey.quota), "it reported your quota")
    for name in survey.quota_candidates[:_MOST]:
        _suggestion(doc, "quota_command", [name], "found by its name, not tried")
    if not survey.quota and not survey.quota_candidates:
        _remark(doc, "No command was found that reports a quota.")


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
            _remark(table, f"No command for images was found on {draft.probed.node}; a module may provide one.")
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
        told = draft.survey.source if draft.survey.other_scheduler else "scontrol show partition: MaxTime"
        _section(doc, f"The longest walltime of each partition ({told}).")
        _table(doc, "max_time", table)
    elif draft.survey.other_scheduler and draft.survey.partitions:
        _section(doc, f"No partition has a longest walltime ({draft.survey.source}).")
    else:
        _section(doc, f"No longest walltime is known. {_not_read(draft.survey, 'partitions', 'sinfo')}")


def _of_partition(partition: SurveyedPartition) -> str:
    """Return more facts about a partition, in a few words."""
    facts = [f"without -t: {partition.usual}"] if partition.usual else []
    facts += [f"memory without --mem: {partition.memory} MiB"] if partition.memory else []
    facts += [f"only {_list(sorted(partition.accounts))}"] if partition.accounts else []
    facts += [f"only group {_list(sorted(partition.groups))}"] if partition.groups else []
    facts += ["jobs may be preempted"] if partition.preemptible else []
    facts += ["takes no jobs now"] if partition.is_up is False else []
    return "; ".join(facts)


def _gpus(doc: Container, draft: Draft) -> None:
    kinds, spelling = gpu_types(draft), draft.spelling
    if not any(partition.gpus for partition in usable_partitions(draft.survey, draft.account.value)):
        known = "none" if draft.survey.partitions else "not known"
        _section(doc, f"GPUs: {known}; {draft.gpu_partition.why}")
        return
    flags = tomlkit.table()
    _choice(flags, "partition", draft.gpu_partition)
    comment = (
        "sbatch --test-only takes it" if spelling.confirmed else f"not confirmed: {spelling.message or 'not asked'}"
    )
    if draft.survey.other_scheduler:
        comment = f"translated for {draft.survey.other_scheduler.title}"
    _value(flags, spelling.flag, spelling.value(), comment)
    gpu, types = tomlkit.table(is_super_table=True), tomlkit.table(is_super_table=True)
    gpu.add("flags", flags)
    for kind, partitions in kinds.items():
        types.add(kind, _gpu_type(draft, kind, partitions))
    if kinds:
        gpu.add("types", types)
    _section(doc)
    doc.add("gpu", gpu)


def _gpu_type(draft: Draft, kind: str, partitions: Sequence[SurveyedPartition]) -> Table:
    table, flags = tomlkit.table(), tomlkit.table()
    names = ", ".join(f"{partition.name} ({partition.gpus[kind]} a node)" for partition in partitions[:_MOST])
    source = draft.survey.source
    _value(table, "description", f"in {names}", source if draft.survey.other_scheduler else "sinfo: GRES")
    if not draft.survey.other_scheduler:  # with other schedulers, only a partition selects a type
        _value(flags, draft.spelling.flag, draft.spelling.value(kind))
    own = [partition.name for partition in partitions if partition.only_gpus and not partition.preemptible]
    is_elsewhere = draft.gpu_partition.value not in [partition.name for partition in partitions]
    if len(own or partitions) == 1 and (is_elsewhere or draft.survey.other_scheduler):
        _value(flags, "partition", own[0] if own else partitions[0].name, f"{source}: the only one that has it")
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
    """Return the user's next step; if JupyterLab was not found, the profile needs an environment first."""
    software, where = _software(draft)
    if software.has_jupyter:
        return f"Read it, and use it with:\n  launch-notebook --cluster {draft.name} --dry-run"
    first, value = "container", "/path/to/image-with-jupyterlab.sif"
    name = _module_with_jupyter(software)[0]
    if name in software.modules:  # not one that needs other modules first
        first, value = "modules", f"'[\"{name}\"]'"
    return (
        f"No jupyter-lab was found on {where}. Read the profile, name an environment that provides it, for example "
        "with the first of these commands, and use it with the second:\n"
        f"  launch-notebook clusters edit {draft.name} --set environments.mine.{first}={value}\n"
        f"  launch-notebook --cluster {draft.name} --dry-run -- mine"
    )


def _software(draft: Draft) -> tuple[Software, str]:
    """Return the software, and where it was found: on a compute node if a job has inspected one."""
    if draft.probed and draft.probed.software:
        return draft.probed.software, draft.probed.node
    return draft.survey.software, "the login node"


def _environments(doc: Container, draft: Draft) -> None:
    software, where = _software(draft)
    _section(
        doc,
        "Where JupyterLab comes from, by name: launch-notebook --cluster "
        f'{draft.name} -- NAME. With environment = "NAME", above all tables, it is the default.',
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
        _remark(doc, f"There is no jupyter-lab on PATH on {where}: an environment has to provide it.")
    if software.module_system is None:
        _remark(doc, f"There are no modules on {where}.")
    elif software.modules:
        _remark(doc, f"Modules on {where} ({software.module_system}): {_list(software.modules, 30)}")
    if software.hidden:
        _remark(doc, f"Others, which need a module first (see module spider NAME): {_list(software.hidden, 30)}")


def _module_with_jupyter(software: Software) -> tuple[str | None, str]:
    """Return the module that most likely contains JupyterLab, and a remark on it."""
    for names, why in (
        (software.modules, "module avail"),
        (software.hidden, "module spider shows what it needs first"),
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
    shown = list(names)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _not_read(survey: ClusterSurvey, *names: str) -> str:
    return f"Not read: {survey.failure_of(*names)}"
