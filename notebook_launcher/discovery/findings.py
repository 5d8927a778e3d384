"""What could be read about a cluster and what could not, each as one check with a hint. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from notebook_launcher.core.events import CheckResult
from notebook_launcher.core.text import one_line
from notebook_launcher.discovery.cluster_survey import LONGEST_MESSAGE, ClusterSurvey
from notebook_launcher.discovery.profile_draft import Choice, Draft, ProbeResult, Spelling, gpu_types

_CHECK_PROFILE = "see the comment in the profile"


def findings(draft: Draft) -> Iterator[CheckResult]:
    """Yield a check for each item of a profile."""
    survey = draft.survey
    yield _scheduler(survey)
    yield _partitions(survey)
    yield _chosen("partition", draft.partition, "choose one in the profile: remove the # before it in [cpu.flags]")
    yield _gpus(draft)
    yield _chosen("account", draft.account, "add yours to the profile: account = … in [defaults]")
    if survey.other_scheduler is None:
        yield _clusters(survey)
    for name, value in survey.options.items():
        yield CheckResult(name, "ok", f"scheduler_options: {value}")
    yield _images(survey)
    yield _modules(survey)
    if survey.home:
        yield CheckResult("home", "ok", f"file system {survey.home}")
    else:
        yield _unknown("home", survey, "home")
    if survey.quota:
        yield CheckResult("quota", "ok", " ".join(survey.quota))
    else:
        others = ", ".join(survey.quota_candidates)
        yield CheckResult(
            "quota",
            "unknown",
            f"not read; these commands may report it: {others}" if others else "no command was found that reports it",
        )
    if survey.invalid_names:
        found = f"{survey.invalid_names} names were left out: no partition or account can have such a name"
        yield CheckResult(
            "names",
            "warning",
            found,
            f"see: {survey.source}{'' if survey.other_scheduler else '; sacctmgr show assoc'}",
        )


def accepted(what: str, spelling: Spelling | None, message: str, refused: bool) -> CheckResult:
    """Return the scheduler's answer to a sample job with the profile's flags."""
    requested = f"--{spelling.flag}={spelling.value().format(count=1)}" if spelling else "a short job"
    if not message:
        return CheckResult(what, "ok", f"sbatch --test-only accepts {requested}")
    return CheckResult(
        what, "warning" if refused else "unknown", f"{requested}: {one_line(message, LONGEST_MESSAGE)}", _CHECK_PROFILE
    )


def probe_findings(probed: ProbeResult, draft: Draft) -> Iterator[CheckResult]:
    """Yield a check for each item that a job found out about the compute nodes."""
    if probed.route:
        yield CheckResult("route to the node", "ok", f"{probed.route}, to {probed.node}")
    else:
        yield CheckResult(
            "route to the node",
            "fault",
            f"no route to {probed.node} works",
            "see docs/ssh.md for what each route needs, or launch with --route direct, which opens Jupyter's port to "
            "everybody on the cluster",
        )
    node = probed.software
    if node is None:
        yield CheckResult("node", "unknown", f"{probed.node} did not report its software")
        return
    login = draft.survey.software.machine
    same = node.machine == login
    yield CheckResult(
        "node",
        "ok" if same else "warning",
        f"{probed.node}: {node.machine}",
        "" if same else f"the login node is {login}: images and environments must be made for {node.machine}",
    )
    yield CheckResult(
        "node: containers",
        "ok" if node.runtimes else "warning",
        ", ".join(node.runtimes) or "none",
        "" if node.runtimes else "a module may provide one; or use modules, conda or a virtual environment",
    )
    yield CheckResult(
        "node: JupyterLab",
        "ok" if node.has_jupyter else "warning",
        "jupyter-lab is on PATH" if node.has_jupyter else "not on PATH",
        "" if node.has_jupyter else "an environment has to provide it: see [environments] in the profile",
    )
    if node.gpus:
        yield CheckResult("node: GPUs", "ok", ", ".join(node.gpus))


def _scheduler(survey: ClusterSurvey) -> CheckResult:
    if survey.version:
        return CheckResult(
            "scheduler", "ok", f"Slurm {survey.version}" + (f", {survey.cluster}" if survey.cluster else "")
        )
    if kind := survey.other_scheduler:
        return CheckResult("scheduler", "ok", f"{kind.title} ({kind.command})")
    return _unknown("scheduler", survey, "version")


def _partitions(survey: ClusterSurvey) -> CheckResult:
    if survey.partitions is None:
        return _unknown("partitions", survey, "sinfo", "partitions")
    names = ", ".join(partition.name for partition in survey.partitions[:12])
    if not survey.part("partitions").ok:
        return CheckResult(
            "partitions",
            "warning",
            f"{names}; {survey.failure_of('partitions')}",
            "which of them you may use is not known",
        )
    return CheckResult("partitions", "ok", names)


def _gpus(draft: Draft) -> CheckResult:
    choice = draft.gpu_partition
    kinds = ", ".join(gpu_types(draft))
    if choice.value:
        return CheckResult("GPUs", "ok", f"{kinds or 'of no named type'}; partition {choice.value} ({choice.why})")
    if choice.candidates:
        return _chosen("GPUs", choice, "choose one in the profile: remove the # before it in [gpu.flags]")
    return CheckResult("GPUs", "unknown" if draft.survey.partitions is None else "ok", choice.why)


def _chosen(what: str, choice: Choice, hint: str) -> CheckResult:
    others = f"; others: {', '.join(choice.candidates[:8])}" if choice.candidates else ""
    if choice.value:
        return CheckResult(what, "ok", f"{choice.value} ({choice.why}){others}")
    return CheckResult(what, "warning" if choice.candidates else "unknown", f"{choice.why}{others}", hint)


def _clusters(survey: ClusterSurvey) -> CheckResult:
    if survey.clusters is None:
        return _unknown("accounting", survey, "clusters")
    others = [name for name in survey.clusters if name != survey.cluster]
    return CheckResult("accounting", "ok", f"available; other clusters: {', '.join(others)}" if others else "available")


def _images(survey: ClusterSurvey) -> CheckResult:
    found = survey.software.runtimes
    if found:
        return CheckResult("container command", "ok", f"{', '.join(found)} on the login node")
    return CheckResult(
        "container command",
        "unknown",
        "none on the login node; compute nodes may have one",
        "see what they have: --probe",
    )


def _modules(survey: ClusterSurvey) -> CheckResult:
    software = survey.software
    if software.module_system is None:
        return CheckResult("modules", "ok", "none here")
    if not survey.part("modules").ok:
        return _unknown("modules", survey, "modules")
    count = len(software.modules) + len(software.hidden)
    found = f"{software.module_system}; {count} for Python, Jupyter or containers"
    return CheckResult("modules", "ok", found)


def _unknown(what: str, survey: ClusterSurvey, *names: str) -> CheckResult:
    return CheckResult(what, "unknown", f"not read: {survey.failure_of(*names)}", _CHECK_PROFILE)
