"""``env create``: creates an environment on the cluster from a file of packages, and adds it to the profile."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from notebook_launcher.core import events
from notebook_launcher.core.errors import EnvironmentFailed, LauncherError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.package_data import LIBRARY, job_script
from notebook_launcher.core.text import joined
from notebook_launcher.core.view import View
from notebook_launcher.environments.images import LAST_LINES, script_result
from notebook_launcher.environments.job_command import run_directly, run_in_job
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.edit import (
    Values,
    changed,
    checked_text,
    new_profile_text,
    save_profile,
    user_profile_text,
)
from notebook_launcher.profiles.models import Environment
from notebook_launcher.profiles.store import user_profile_path
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import environment_lines, new_id

_SCRIPTS = ("create_environment.sh", "build_steps.sh", *LIBRARY)


class NewEnvironment(Frozen):
    """The request: the file of packages, the name in the profile, and a virtual environment's folder or conda name."""

    file: Path
    name: str
    venv: str | None = None
    conda: str | None = None

    @property
    def is_conda(self) -> bool:
        """Whether conda creates it, from an environment.yml."""
        return self.file.suffix in (".yml", ".yaml")


def create_environment(
    plan: Plan, creation: NewEnvironment, view: View, prompts: Prompts, interrupts: Interrupts, *, job: bool
) -> None:
    """Create an environment from a file of packages, with JupyterLab added, and add it to the user's profile.

    ``job``: in a job instead of on the login node. Raises ``UsageError`` or ``EnvironmentFailed``.
    """
    content = _checked_file(creation)
    cluster = _profile_name(plan.target)
    _refuse_existing(plan.target, creation.name)
    with open_context(plan.target, view, prompts, interrupts, submits=job) as context:
        target = context.site.expand(creation.conda or creation.name if creation.is_conda else creation.venv or "")
        if "/" in target and not target.startswith("/"):
            target = f"{context.site.home}/{target}"
        checked_text(
            cluster, profile_with_environment(cluster, plan, creation, target)
        )  # before all the work, not after it
        output: list[str] = []
        answer: dict[str, str] = {}

        def on_line(line: str, where: str) -> bool:
            if result := script_result(line, work):
                answer.update([result])
            elif line:
                output.append(line)
                view.show(events.Building(creation.file.name, where, line))
            return bool(result)

        with _work_folder(plan, context, creation, content) as work:
            argv = ["bash", f"{work}/create_environment.sh", "conda" if creation.is_conda else "venv", work, target]
            stop = f"{work}/stop"
            if job and not context.scheduler.same_machine:
                reason = run_in_job(
                    _bare(plan),
                    context,
                    lambda _session: argv,
                    on_line,
                    stop,
                    purpose="env create",
                    directly="leave out --job",
                )
            else:
                reason = run_directly(context, argv, on_line, stop)
        if "made" not in answer:
            why = answer.get("failed") or reason
            if output:
                why = "\n".join([joined(why, "Its last output:"), *output[-LAST_LINES:]])
            raise EnvironmentFailed(f"No environment was created from {creation.file}.", why=why)
    path = save_profile(cluster, profile_with_environment(cluster, plan, creation, target))
    view.show(events.Saved(f"environment {creation.name}: launch-notebook -- {creation.name}", str(path)))


def _bare(plan: Plan) -> Plan:
    return replace(plan, environment_name=None, environment=Environment(), container=None, path=())


def _checked_file(creation: NewEnvironment) -> bytes:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", creation.name):
        raise UsageError(f"“{creation.name}” is not a name for an environment.", hint="letters, digits, . _ and -")
    if creation.is_conda and creation.venv:
        raise UsageError("An environment.yml is for conda.", hint="leave out --venv, or give a requirements.txt")
    if not creation.is_conda and creation.conda:
        raise UsageError("A requirements.txt is for pip.", hint="leave out --conda, or give an environment.yml")
    try:
        return creation.file.read_bytes()
    except OSError as error:
        raise UsageError(f"{creation.file} cannot be read.", why=error.strerror or str(error)) from None


def _profile_name(target: LaunchTarget) -> str:
    if target.cluster is None:
        raise UsageError(
            "The environment needs a profile to be saved in.",
            hint="name one with --cluster, or make one: launch-notebook init user@login",
        )
    return target.cluster


def _refuse_existing(target: LaunchTarget, name: str) -> None:
    if name in target.profile.environments:
        raise UsageError(f"There is an environment “{name}” already.", hint="take another name with --name")


@contextlib.contextmanager
def _work_folder(plan: Plan, context: Context, creation: NewEnvironment, content: bytes) -> Iterator[str]:
    work = f"{context.root}/make-{new_id(context.clock())}"
    scripts = {name: job_script(name).read_bytes() for name in _SCRIPTS}
    loaded = Environment(modules=plan.environment.modules, module_use=plan.environment.module_use)
    file = "environment.yml" if creation.is_conda else "requirements.txt"
    context.host.write_files(work, {**scripts, file: content, "session.env": environment_lines(loaded).encode()})
    try:
        yield work
    finally:
        with contextlib.suppress(LauncherError):  # a killed process does not clean up after itself
            context.host.run(["bash", f"{work}/create_environment.sh", "tidy", work])
        with contextlib.suppress(LauncherError):
            context.host.run(["rm", "-rf", "--", work])


def profile_with_environment(cluster: str, plan: Plan, creation: NewEnvironment, target: str) -> str:
    """Return the content of the user's own profile file with the environment added; the rest is unchanged."""
    values: Values = {
        ("environments", creation.name, "description"): f"made of {creation.file.name}",
        ("environments", creation.name, "modules"): list(plan.environment.modules) or None,
        ("environments", creation.name, "conda" if creation.is_conda else "venv"): target,
    }
    text = user_profile_text(cluster)
    return changed(new_profile_text(cluster) if text is None else text, values, str(user_profile_path(cluster)))
