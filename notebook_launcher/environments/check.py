"""``env check``: enters an environment as a job would, and reports what works there."""

from __future__ import annotations

import contextlib
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.finding import Finding, fault, ok, unknown, warning
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.package_data import job_files, job_script
from notebook_launcher.core.text import one_line
from notebook_launcher.core.view import View
from notebook_launcher.environments.job_command import run_directly, run_in_job
from notebook_launcher.environments.listing import describe_software
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.launch import Payload, session_env
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import how_to_add_jupyterlab
from notebook_launcher.session.record import json_object, new_id


def check_environment(plan: Plan, view: View, prompts: Prompts, interrupts: Interrupts, *, node: bool) -> None:
    """Enter an environment and report what works there: on the login node, or with ``node`` in a job on a compute node.

    Raises ``ChecksFailed``, which names the faults, and what submitting a job raises.
    """
    with open_context(plan.target, view, prompts, interrupts, submits=node) as context:
        checks = CheckRunner(view)
        found = probe_environment(plan, context, "check", node=node)
        for name, finding in findings(plan, found, gpus=node and plan.request.gpus > 0):
            checks.report(name, finding)
        checks.summarise()


@dataclass
class EnvironmentReport:
    """What probe.py reports, in lines that begin with ``mark``. ``output``: the last of all other lines.

    The environment's own code can print such lines as well. Only values that probe.py could report are accepted:
    single lines or lists of them; ``gpus`` is a number.
    """

    mark: str
    values: dict[str, object] = field(default_factory=dict)
    output: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_OUTPUT))
    where: str = ""
    complete: bool = False

    def take(self, line: str, where: str) -> bool:
        """Read one line, printed on the machine ``where``, and return whether the report is complete."""
        self.where = where
        if line.startswith(f"{self.mark} "):
            self._add(json_object(line[len(self.mark) :]))
        elif text := one_line(line, LONGEST_LINE):
            self.output.append(text)
        return self.complete

    def _add(self, found: Mapping[str, object]) -> None:
        for name, value in found.items():
            most = LONGEST_LINE if name in _LONG_TEXTS else _LONGEST_VERSION
            if name in _TEXTS and isinstance(value, str | int | float) and (text := one_line(str(value), most)):
                self.values[name] = text
            elif name in _LISTS and isinstance(value, list):
                self.values[name] = [one_line(item, LONGEST_LINE) for item in value if isinstance(item, str)]
            elif name == "gpus" and type(value) is int and 0 <= value <= _MOST_GPUS:
                self.values[name] = value
        self.complete = self.complete or "end" in found


_TEXTS = frozenset({"python", "prefix", "jupyterlab", "ipykernel", "kernel", "kernel_seconds", "torch", "tensorflow"})
_LONG_TEXTS = frozenset({"prefix", "kernel", "torch", "tensorflow"})  # they may contain an error message
_LISTS = frozenset({"packages", "conda", "channels"})
_MOST_OUTPUT = 200  # lines
_MOST_GPUS = 1024
LONGEST_LINE, _LONGEST_VERSION = 500, 100  # characters


def probe_environment(plan: Plan, context: Context, what: str, *, node: bool) -> EnvironmentReport:
    """Run probe.py in the environment, and return what it found."""
    with _folder(plan, context) as work:
        mark = work.rpartition("/")[2]
        found = EnvironmentReport(mark)

        def on_line(line: str, where: str) -> bool:
            if line and not line.startswith(f"{mark} "):
                context.view.show(events.Building(f"looking into {plan.environment_name or 'it'}", where, line))
            return found.take(line, where)

        command = f'{_FIND_PYTHON}; exec "$python" {shlex.quote(f"{work}/probe.py")} {what} {mark}'
        argv = ["bash", f"{work}/shell.sh", work, "inside", command]
        if node and not context.scheduler.same_machine:
            run_in_job(plan, context, lambda _session: argv, on_line, purpose="env check", directly="leave out --node")
        else:
            run_directly(context, argv, on_line)
    return found


# the Python of jupyter-lab if there is one, otherwise the first on the PATH
_FIND_PYTHON = (
    'python=$(command -v jupyter-lab || :); python=${python%/*}/python3; [ -x "$python" ] || '
    "python=$(command -v python3 || command -v python)"
)


@contextlib.contextmanager
def _folder(plan: Plan, context: Context) -> Iterator[str]:
    """Write the files of a session's directory that are needed to enter an environment; remove them afterwards."""
    work = f"{context.root}/look-{new_id(context.clock())}"
    probe = job_script("probe.py").read_bytes()
    env = session_env(plan, context.scheduler, context.site, Payload("shell"))
    context.host.write_files(work, {**job_files(), "probe.py": probe, "session.env": env.encode()})
    context.host.write_files(f"{work}/runtime", {"folder": f"{context.site.home}\n".encode()})
    try:
        yield work
    finally:
        with contextlib.suppress(LauncherError):
            context.host.run(["rm", "-rf", "--", work])


def findings(plan: Plan, found: EnvironmentReport, *, gpus: bool) -> Iterator[tuple[str, Finding]]:
    """Yield the findings with the names of the checks. ``gpus``: whether GPUs are expected."""
    values = found.values
    if "python" not in values:
        output = [
            line.removeprefix("notebook-launcher: ") for line in found.output if line.startswith("notebook-launcher:")
        ]
        why = (output or found.output or ["Nothing was answered."])[-1]
        yield "environment", fault(why, "see what it comes to: launch-notebook env show NAME")
        return
    software = describe_software(plan.environment.changed(container=plan.container), plan.target)
    yield "environment", ok(f"{software}, on {found.where}")
    yield "Python", ok(f"{values['python']} in {values.get('prefix')}")
    lab = values.get("jupyterlab")
    hint = how_to_add_jupyterlab(plan.environment, plan.container)
    yield "JupyterLab", ok(str(lab)) if lab else fault("There is no JupyterLab in it.", hint)
    kernel = values.get("kernel")
    if kernel == "ok":
        yield "kernel", ok(f"starts within {values.get('kernel_seconds')} s, ipykernel {values.get('ipykernel')}")
    else:
        yield "kernel", fault(str(kernel or "It did not start."), hint if lab else "")
    for package in ("torch", "tensorflow"):
        if package in values:
            text = str(values[package])
            yield package, fault(text, "") if text.startswith("cannot") else ok(text)
    if gpus:
        count = values.get("gpus")
        if count is None:
            yield "GPU", unknown("neither torch nor tensorflow is there to ask")
        elif count == 0:
            yield "GPU", warning("None is seen, although the job has one.", "check that it is a build for GPUs")
        else:
            yield "GPU", ok(f"{count} seen")
