"""Checks the image and the environment, as far as the login node can see them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import HostCommandFailed, LauncherError
from notebook_launcher.core.finding import Finding, fault, ok, unknown, warning
from notebook_launcher.core.package_data import LIBRARY, job_script
from notebook_launcher.diagnosis import exit_causes
from notebook_launcher.diagnosis.image_check import BY_FILE, INSPECT_IMAGE, assess_image, read_image
from notebook_launcher.doctor.bounded_command import CommandTimeout, run_bounded
from notebook_launcher.doctor.checks.login import HOME, ROOT
from notebook_launcher.doctor.findings import assess_for_others
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.preflight import image_hint
from notebook_launcher.session.record import Site

IMAGE, ENVIRONMENT, JUPYTERLAB, DIGEST = "image", "environment", "JupyterLab", "image digest"
PATH_TIMEOUT = 30.0  # seconds to inspect the path to an image
ENTER_TIMEOUT = 90.0  # seconds for modules, the first start of an image, and an activation
DIGEST_TIMEOUT = 180.0  # seconds for the digest of an image of many gigabytes
# Removes the folder of the finished check, and those of killed checks that are more than an hour old.
_REMOVE = (
    'rm -rf -- "$1"; find "${1%/*}/" -maxdepth 1 -type d -name ".checkup-*" -mmin +60 -exec rm -rf -- {} + 2>/dev/null'
)

_SCRIPTS = ("checkup.sh", *LIBRARY)


def check_image(checks: CheckRunner, host: Host, plan: Plan, site: Site, *, for_others: bool) -> None:
    """Check the image and the path to it; ``for_others``: whether to check that others can read it as well."""
    if plan.container is None:
        return
    command = plan.environment.container_command
    if "://" in plan.container or command not in BY_FILE:
        checks.report(IMAGE, unknown(f"{plan.container} is found by {command or 'the container command'} on the node."))
        return
    path = site.expand(plan.container)
    text = ""

    def inspect() -> Finding:
        nonlocal text
        text = host.run(["sh", "-s", "--", path], stdin=INSPECT_IMAGE.encode(), timeout=PATH_TIMEOUT).stdout
        image = read_image(path, text)
        finding, hint = assess_image(image), image_hint(plan)
        return replace(finding, hint=hint) if hint and image.kind == "missing" else finding

    well = checks.check(IMAGE, inspect, doing="looking for the image")
    if well and for_others:
        checks.check("image for all", lambda: assess_for_others(read_image(path, text)))
    if digest := plan.environment.digest:
        checks.check(DIGEST, lambda: _digest(host, path, digest), needs=[IMAGE], doing=f"reading all of {path}")


def _digest(host: Host, path: str, wanted: str) -> Finding:
    code, lines = run_bounded(host, ["sha256sum", "--", path], DIGEST_TIMEOUT)
    output = " ".join(lines).strip()
    found = "sha256:" + output.partition(" ")[0].lstrip("\\")
    if code != 0:
        return unknown(f"The digest could not be taken: {output}")
    if found != wanted:
        return fault(
            f"{path} is not the required image: its digest is {found}, and not {wanted}.",
            "use the image that the profile or the course names, or change `digest` there",
        )
    return ok(f"it is the required one: {wanted[:19]}…")


# --- the environment -------------------------------------------------------------------------------------------


def check_environment(
    checks: CheckRunner, host: Host, plan: Plan, root: str, session_env: Callable[[], str], *, checks_node: bool
) -> None:
    """Look for JupyterLab on the login node as a job would on its node.

    ``checks_node``: whether a compute node will be checked as well, which is more reliable: then problems are warnings.
    """
    if plan.target.profile.node_arch:
        what = (
            f"The nodes are {plan.target.profile.node_arch}, and the login node is not: it cannot try what runs there."
        )
        checks.report(ENVIRONMENT, unknown(what))
        return
    needs = [HOME, ROOT, IMAGE, DIGEST]
    if checks.skip_unless_passed(ENVIRONMENT, needs):
        return
    name = plan.environment_name or "the plain environment"
    found: list[tuple[str, Finding]] = []

    def inspect() -> Finding:
        try:
            passed, cause, sentence = _run_check(host, root, session_env())
        except CommandTimeout:
            what = f"{name} was not ready within {ENTER_TIMEOUT:.0f} s on the login node; it was ended."
            return warning(
                what,
                "is it slow, or does it ask for something? Try its lines by hand there"
                + ("" if checks_node else "; check on a node with: launch-notebook doctor --node"),
            )
        found.extend(_assessed(plan, name, passed, cause, sentence, checks_node=checks_node))
        return found[0][1]

    checks.check(ENVIRONMENT, inspect, doing=f"trying {name} on the login node")
    for other, finding in found[1:]:
        checks.report(other, finding)


def _assessed(
    plan: Plan, name: str, passed: list[str], cause: str, sentence: str, *, checks_node: bool
) -> list[tuple[str, Finding]]:
    """Return the findings on the environment, and on JupyterLab in it if that was reached."""
    where = "on the login node" if plan.target.destination or plan.target.scheduler != "local" else "here"
    if cause in ("container-command-missing", "bind-missing", "not-tried"):
        return [(ENVIRONMENT, unknown(f"{name} was not entered {where}: {sentence}"))]
    bad = warning if checks_node or _is_absent(cause) else fault
    hint = exit_causes.BY_SCRIPT[cause].hint if cause in exit_causes.BY_SCRIPT else exit_causes.LOG
    if cause and cause != "jupyter-missing":
        return [(ENVIRONMENT, bad(f"{name}: {sentence}", hint))]
    how = ", ".join(
        filter(
            None,
            (
                f"modules {' '.join(plan.environment.modules)}" if plan.environment.modules else "",
                plan.container or "",
                f"conda {plan.environment.conda}" if plan.environment.conda else "",
                f"venv {plan.environment.venv}" if plan.environment.venv else "",
                f"uv {plan.environment.uv}" if plan.environment.uv else "",
            ),
        )
    )
    findings = [(ENVIRONMENT, ok(f"{name} can be entered {where}" + (f": {how}" if how else "")))]
    if not cause:
        return [*findings, (JUPYTERLAB, ok("it is in the environment"))]
    if plan.environment.is_plain and not plan.container:  # compute nodes may have programs that the login node lacks
        return [*findings, (JUPYTERLAB, unknown(f"There is none {where}; the nodes may have one.", hint))]
    place = f"the image {plan.container}" if plan.container else f"the environment {name}"
    return [*findings, (JUPYTERLAB, bad(f"There is no JupyterLab in {place}.", hint))]


def _is_absent(cause: str) -> bool:
    """Return whether the login node may lack something that the compute nodes have."""
    return cause == "module-command-missing"


def _run_check(host: Host, root: str, session_env: str) -> tuple[list[str], str, str]:
    """Return the steps that succeeded, and the cause and the message of the first that did not."""
    name = f".checkup-{os.getpid()}-{secrets.token_hex(4)}"
    scripts = {script: job_script(script).read_bytes() for script in _SCRIPTS}
    with _folder(host, f"{root}/{name}", {**scripts, "session.env": session_env.encode()}) as directory:
        code, lines = run_bounded(host, ["bash", f"{directory}/checkup.sh", directory], ENTER_TIMEOUT)
    passed = [line.partition(" ")[2] for line in lines if line.startswith("passed ")]
    failed = next((line for line in lines if line.startswith("failed ")), "")
    _, cause, sentence = (*failed.split(" ", 2), "", "", "")[:3]
    errors = [line.removeprefix("said ") for line in lines if line.startswith("said ")]
    messages = [line for line in errors if line.strip() and "notebook-launcher:" not in line]
    if "see the job's log" in sentence:
        sentence = sentence.partition(": see the job's log")[0] + (f": {messages[-1].strip()}" if messages else ".")
    elif cause == "container-failed" and messages:
        sentence += f" {messages[-1].strip()}"
    if not failed and "jupyterlab" not in passed:
        raise HostCommandFailed(
            "The environment check reported no result.", why=(messages or [f"exit code {code}"])[-1]
        )
    return passed, cause, sentence


@contextlib.contextmanager
def _folder(host: Host, path: str, files: dict[str, bytes]) -> Iterator[str]:
    """Create a folder with files that only this user can read, and remove it afterwards."""
    try:
        host.write_files(path, files)
        yield path
    finally:
        with contextlib.suppress(LauncherError):
            host.run(["sh", "-c", _REMOVE, "remove", path], timeout=PATH_TIMEOUT)
