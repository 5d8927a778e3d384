"""The values of a new profile, chosen from the cluster's report. Pure.

Each choice names the command that it comes from. What is unclear stays open, with its candidates.
"""

from __future__ import annotations

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.discovery.cluster_survey import ClusterSurvey, Software, SurveyedPartition


class Login(Frozen):
    """The login node as the user typed it, for the profile."""

    host: str
    user: str | None = None
    port: int | None = None
    ssh_config: str | None = None
    engine: str | None = None


class Choice(Frozen):
    """A value for the profile. ``value``: the best one, ``None`` if that is unclear; ``why``: the reason, as text.

    ``candidates``: the alternatives, the best first. ``needed``: whether jobs are refused without a value.
    """

    value: str | None
    why: str
    candidates: tuple[str, ...] = ()
    needed: bool = False

    def with_value(self, value: str) -> Choice:
        """Return the choice with the user's own value."""
        others = tuple(name for name in self.candidates if name != value)
        return Choice(value, "your answer", others)


class Spelling(Frozen):
    """How to request GPUs on this cluster. ``confirmed``: the scheduler accepted it; ``message``: its answer if not."""

    flag: str = "gpus-per-node"
    confirmed: bool = False
    message: str = ""

    def value(self, kind: str = "") -> str:
        """Return the flag's value in a profile, for GPUs of a type or (if empty) of any type."""
        parts = (["gpu"] if self.flag == "gres" else []) + ([kind] if kind else [])
        return ":".join([*parts, "{count}"])


class ProbeResult(Frozen):
    """The findings of a short job. ``route``: the first route that works; ``closed``: those that do not.

    ``software``: that of the node, ``None`` if not reported.
    """

    node: str
    route: str | None
    closed: tuple[str, ...] = ()
    software: Software | None = None


class Draft(Frozen):
    """Everything for the profile. ``login_setup``: what a login shell had to run to find the scheduler."""

    name: str
    login: Login
    command: str
    survey: ClusterSurvey
    account: Choice
    partition: Choice
    gpu_partition: Choice
    spelling: Spelling = Spelling()
    probed: ProbeResult | None = None
    login_setup: tuple[str, ...] = ()


# --- choosing ----------------------------------------------------------------------------------------------------


def choose_account(survey: ClusterSurvey) -> Choice:
    """Choose the account: the user's default one, or the only one."""
    accounts = survey.accounts or ()
    if survey.other_scheduler:
        return Choice(None, f"{survey.other_scheduler.title} does not report which accounts are yours")
    if survey.accounts is None:
        return Choice(None, f"not read: {survey.failure_of('associations')}")
    if not accounts:
        return Choice(None, f"sacctmgr shows no account of yours on {survey.cluster or 'this cluster'}")
    others = tuple(name for name in accounts if name != survey.default_account)
    if survey.default_account:
        return Choice(survey.default_account, "sacctmgr: your default account", others)
    if len(accounts) == 1:
        return Choice(accounts[0], "sacctmgr show assoc: your only account")
    return Choice(None, "sacctmgr show assoc: you have several", accounts, needed=True)


def choose_partition(survey: ClusterSurvey, account: str | None) -> Choice:
    """Choose the partition for jobs without GPUs: the default one, or the only one that is open to the user."""
    if survey.partitions is None:
        return Choice(None, f"not read: {survey.failure_of('sinfo', 'partitions')}")
    usable = usable_partitions(survey, account)
    usable = [partition for partition in usable if not partition.only_gpus] or usable
    names = tuple(partition.name for partition in usable)
    default = next((partition.name for partition in usable if partition.is_default), None)
    if default:
        return Choice(default, f"{survey.source}: the default", tuple(name for name in names if name != default))
    if len(names) == 1:
        return Choice(names[0], f"{survey.source}: the only one without GPUs that is open to you")
    return Choice(
        None,
        f"{survey.source}: there is no default" if names else f"{survey.source}: none is open to you",
        names,
        bool(names),
    )


def choose_gpu_partition(survey: ClusterSurvey, account: str | None) -> Choice:
    """Choose the partition for jobs with GPUs.

    It is the only one whose nodes all have GPUs, else the default one if its nodes all do, else the only one with any.
    """
    if survey.partitions is None:
        return Choice(None, f"not read: {survey.failure_of('sinfo', 'partitions')}")
    having = [partition for partition in usable_partitions(survey, account) if partition.gpus]
    if not having:
        return Choice(None, f"{survey.source}: no partition that is open to you has GPUs")
    lasting = [partition for partition in having if not partition.preemptible] or having
    made_for = [partition for partition in lasting if partition.only_gpus]
    default = [partition for partition in made_for if partition.is_default]
    ordered = list(dict.fromkeys(partition.name for partition in (*made_for, *lasting, *having)))
    for group, why in (
        (made_for, f"{survey.source}: all its nodes have GPUs"),
        (default, f"{survey.source}: the default, and all its nodes have GPUs"),
        (having, f"{survey.source}: the only one with GPUs"),
    ):
        if len(group) == 1:
            value = group[0].name
            return Choice(value, why, tuple(name for name in ordered if name != value))
    return Choice(None, f"{survey.source}: several have GPUs", tuple(ordered))


def usable_partitions(survey: ClusterSurvey, account: str | None) -> list[SurveyedPartition]:
    """Return the partitions that accept the user's jobs, with this account if known."""
    mine = frozenset([account]) if account else frozenset(survey.accounts or ())

    def lets_in(partition: SurveyedPartition) -> bool:
        if partition.is_up is False or (partition.groups is not None and not partition.groups & survey.groups):
            return False
        if not mine:
            return True
        allowed = mine if partition.accounts is None else mine & partition.accounts
        return bool(allowed - partition.denied_accounts)

    return [partition for partition in survey.partitions or () if lets_in(partition)]


def gpu_types(draft: Draft) -> dict[str, list[SurveyedPartition]]:
    """Return the types of GPUs, each with the partitions that have it; the chosen GPU partition comes first."""
    usable = usable_partitions(draft.survey, draft.account.value)
    chosen = draft.gpu_partition.value
    usable.sort(key=lambda partition: (partition.name != chosen, partition.preemptible, not partition.only_gpus))
    kinds = {kind: None for partition in usable for kind in partition.gpus if kind}
    return {kind: [partition for partition in usable if kind in partition.gpus] for kind in kinds}


def sample_flags(draft: Draft, spelling: Spelling | None = None) -> dict[str, str | None]:
    """Return the flags of a short job as the profile would request it, for the scheduler to test.

    ``spelling``: how to request a GPU; ``None``: without GPUs.
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
