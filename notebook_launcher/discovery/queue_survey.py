"""Adds what a scheduler other than Slurm reports about its queues and hosts to a cluster's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.discovery.cluster_survey import ClusterSurvey, SurveyedPartition, SurveyPart, is_name
from notebook_launcher.schedulers.cluster_info import Node, Partition


def with_queues(
    survey: ClusterSurvey,
    command: str,
    answer: CommandResult,
    partitions: Sequence[Partition] | None,
    nodes: Sequence[Node] | None,
    options: Mapping[str, str],
    user: str,
) -> ClusterSurvey:
    """Return the report with the queues that are open to a user, and with ``scheduler_options``.

    ``command``: the command that lists the queues, as a user types it; ``answer``: its result. ``partitions``,
    ``nodes``: ``None`` if not reported.
    """
    names = [one.name for one in partitions or () if is_name(one.name)]
    shown = [one for one in partitions or () if one.name in names and (one.users is None or user in one.users)]
    part = SurveyPart("sinfo", answer.exit_code, message=answer.stderr or answer.stdout[-500:], command=command)
    return replace(
        survey,
        parts={**survey.parts, "sinfo": part, "partitions": replace(part, name="partitions")},
        partitions=tuple(_surveyed(one, nodes or ()) for one in shown) or None,
        options={name: value for name, value in options.items() if is_name(value)},
        source=command,
        invalid_names=survey.invalid_names + len(partitions or ()) - len(names),
    )


def _surveyed(partition: Partition, nodes: Sequence[Node]) -> SurveyedPartition:
    theirs = [node for node in nodes if node.partition == partition.name]
    gpus: dict[str, int] = {}
    for node in theirs:
        for kind, count in node.gpus.items():
            if not kind or is_name(kind):
                gpus[kind] = max(count, gpus.get(kind, 0))
    return SurveyedPartition(
        partition.name,
        is_default=partition.is_default,
        is_up=partition.is_up,
        longest=_typed(partition.walltime),
        usual=_typed(partition.usual),
        nodes=len(theirs),
        gpu_nodes=sum(1 for node in theirs if node.gpus),
        gpus=gpus,
        accounts=partition.accounts,
        groups=partition.groups,
    )


def _typed(walltime: Walltime | None) -> str | None:
    return None if walltime is None or walltime.is_unlimited else walltime.as_typed()
