"""What was read of a cluster and what was not, each as one check with what can be done about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from notebook_launcher.core.events.launch import Checked
from notebook_launcher.discovery.cluster_survey import Survey, one_line
from notebook_launcher.discovery.profile_text import Choice, Draft, Probed, Spelling, gpu_types

_LOOK = "look at the profile"


def findings(draft: Draft) -> Iterator[Checked]:
    """Yield a check for each thing that a profile should know."""
    survey = draft.survey
    yield _scheduler(survey)
    yield _partitions(survey)
    yield _chosen("partition", draft.partition, "take away the # before one in [cpu.flags]")
    yield _gpus(draft)
    yield _chosen("account", draft.account, "put yours into [defaults]: account = …")
    yield _clusters(survey)
    yield _images(survey)
    yield _modules(survey)
    if survey.home:
        yield Checked("home", "ok", survey.home)
    else:
        yield _unknown("home", survey, "home")
    if survey.quota:
        yield Checked("quota", "ok", " ".join(survey.quota))
    else:
        others = ", ".join(survey.quota_candidates)
        yield Checked("quota", "unknown", f"not tried: {others}" if others else "no command was found that tells it")
    if survey.strange:
        found = f"{survey.strange} names that no partition or account can have were left out"
        yield Checked("names", "warning", found, "look at: sinfo; sacctmgr show assoc")


def accepted(what: str, spelling: Spelling | None, said: str, refused: bool) -> Checked:
    """Return the scheduler's word on a sample of what the profile asks for."""
    asked = f"--{spelling.flag}={spelling.value().format(count=1)}" if spelling else "a short job"
    if not said:
        return Checked(what, "ok", f"sbatch --test-only takes {asked}")
    return Checked(what, "warning" if refused else "unknown", f"{asked}: {one_line(said)}", _LOOK)


def probe_findings(probed: Probed, draft: Draft) -> Iterator[Checked]:
    """Yield what a job found out about the compute nodes."""
    if probed.stream:
        yield Checked("way to the node", "ok", f"{probed.stream}, to {probed.node}")
    else:
        yield Checked(
            "way to the node",
            "fault",
            f"none of those tried leads to {probed.node}",
            "launch with --stream job-sshd, and see whether that one does",
        )
    node = probed.software
    if node is None:
        yield Checked("node", "unknown", f"{probed.node} did not tell what is there")
        return
    login = draft.survey.software.machine
    same = node.machine == login
    yield Checked(
        "node",
        "ok" if same else "warning",
        f"{probed.node}: {node.machine}",
        "" if same else f"the login node is {login}: images and environments must be made for {node.machine}",
    )
    yield Checked(
        "node: containers",
        "ok" if node.runtimes else "warning",
        ", ".join(node.runtimes) or "none",
        "" if node.runtimes else "a module may bring one; or use modules, conda or a virtual environment",
    )
    yield Checked(
        "node: JupyterLab",
        "ok" if node.has_jupyter else "warning",
        "jupyter-lab is on PATH" if node.has_jupyter else "not on PATH",
        "" if node.has_jupyter else "an environment has to bring it: see [environments] in the profile",
    )
    if node.gpus:
        yield Checked("node: GPUs", "ok", ", ".join(node.gpus))


def _scheduler(survey: Survey) -> Checked:
    if survey.version:
        return Checked("scheduler", "ok", f"Slurm {survey.version}" + (f", {survey.cluster}" if survey.cluster else ""))
    if survey.has_lsf:
        return Checked("scheduler", "warning", "LSF (bsub)", "of LSF nothing more is read: fill in the profile")
    return _unknown("scheduler", survey, "version")


def _partitions(survey: Survey) -> Checked:
    if survey.partitions is None:
        return _unknown("partitions", survey, "sinfo", "partitions")
    names = ", ".join(partition.name for partition in survey.partitions[:12])
    if not survey.part("partitions").ok:
        return Checked(
            "partitions", "warning", f"{names}; {survey.why_not('partitions')}", "who may use which is not known"
        )
    return Checked("partitions", "ok", names)


def _gpus(draft: Draft) -> Checked:
    choice = draft.gpu_partition
    kinds = ", ".join(gpu_types(draft))
    if choice.value:
        return Checked("GPUs", "ok", f"{kinds or 'of no named type'}; partition {choice.value} ({choice.why})")
    if choice.candidates:
        return _chosen("GPUs", choice, "take away the # before one in [gpu.flags]")
    return Checked("GPUs", "unknown" if draft.survey.partitions is None else "ok", choice.why)


def _chosen(what: str, choice: Choice, mend: str) -> Checked:
    others = f"; also {', '.join(choice.candidates[:8])}" if choice.candidates else ""
    if choice.value:
        return Checked(what, "ok", f"{choice.value} ({choice.why}){others}")
    return Checked(what, "warning" if choice.candidates else "unknown", f"{choice.why}{others}", mend)


def _clusters(survey: Survey) -> Checked:
    if survey.clusters is None:
        return _unknown("accounting", survey, "clusters")
    others = [name for name in survey.clusters if name != survey.cluster]
    return Checked("accounting", "ok", f"yes; other clusters: {', '.join(others)}" if others else "yes")


def _images(survey: Survey) -> Checked:
    found = survey.software.runtimes
    if found:
        return Checked("container command", "ok", f"{', '.join(found)} on the login node")
    return Checked(
        "container command",
        "unknown",
        "none on the login node; compute nodes may have one",
        "see what they have: --probe",
    )


def _modules(survey: Survey) -> Checked:
    software = survey.software
    if software.module_system is None:
        return Checked("modules", "ok", "none here")
    if not survey.part("modules").ok:
        return _unknown("modules", survey, "modules")
    return Checked(
        "modules", "ok", f"{software.module_system}; {len(software.modules) + len(software.hidden)} of interest"
    )


def _unknown(what: str, survey: Survey, *names: str) -> Checked:
    return Checked(what, "unknown", f"not read: {survey.why_not(*names)}", _LOOK)
