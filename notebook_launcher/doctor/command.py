"""``doctor``: checks everything that a launch needs, in the order in which it is needed.

Each check is reported when it is done; checks that depend on a failed one are skipped. It leaves no job behind, and no
files except the session directory of a job that failed, with its log.
"""

from __future__ import annotations

from collections.abc import Callable

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import LauncherError, SchedulerMissing
from notebook_launcher.core.finding import Finding, of_error, ok, warning
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.view import View
from notebook_launcher.diagnosis.request_check import SchedulerReport
from notebook_launcher.doctor.checks.cold_start import check_cold_start
from notebook_launcher.doctor.checks.course import check_course, check_reservations
from notebook_launcher.doctor.checks.login import (
    HOME,
    LOGGED_IN,
    LOGIN_SHELL,
    ROOT,
    check_login_node,
    check_this_machine,
    log_in,
)
from notebook_launcher.doctor.checks.node import NODE, check_node
from notebook_launcher.doctor.checks.queue import (
    ACCEPTED,
    PROGRAMS,
    WALLTIME,
    check_accounting,
    check_capacity,
    check_flags,
    check_request,
    check_scheduler,
)
from notebook_launcher.doctor.checks.software import (
    DIGEST,
    ENVIRONMENT,
    IMAGE,
    JUPYTERLAB,
    check_environment,
    check_image,
)
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.launch import session_env
from notebook_launcher.planning.plan import Plan, make_plan
from notebook_launcher.planning.site_translation import MAY_BE_REFUSED
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.context import Context
from notebook_launcher.session.open_context import find_scheduler
from notebook_launcher.session.record import Site
from notebook_launcher.tunnel.routes import last_route

#: additional checks; their arguments are the results so far, the context, the plan and the scheduler's report
MoreChecks = Callable[[CheckRunner, Context, Plan, SchedulerReport], None]

#: additional checks before all others
FirstChecks = Callable[[CheckRunner], None]

PROFILE = "profile"
_LATER = (
    "home",
    "scheduler",
    "image",
    "environment",
)  # reported as skipped if there is no connection


def doctor(
    options: LaunchOptions,
    here: LocalMachine,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    node: bool | None = None,
    first: FirstChecks | None = None,
    more: MoreChecks | None = None,
) -> None:
    """Check everything that this launch would need, and report each finding.

    ``node``: whether a short job checks a compute node as well; ``None``: the user is asked. ``first``: additional
    checks before all others; ``more``: additional checks after those of the scheduler and the software. Raises
    ``ChecksFailed`` with the faults when all checks are done, and ``Interrupted``.
    """
    checks = CheckRunner(view)
    if first is not None:
        first(checks)
    target, plan = _plan(checks, options, here)
    if target is not None:
        checks.contact = target.contact
        _Doctor(checks, target, plan, here, prompts, interrupts, node, more).run()
    checks.summarise()


def _plan(checks: CheckRunner, options: LaunchOptions, here: LocalMachine) -> tuple[LaunchTarget | None, Plan | None]:
    """Return the target and the plan; ``None`` for what the profile and the flags do not make possible."""
    try:
        target = find_target(options, here)
        plan = make_plan(options, here)
    except LauncherError as error:
        checks.report(PROFILE, of_error(error))
        try:
            return find_target(options, here), None
        except LauncherError:
            return None, None
    checks.report(PROFILE, _profile(plan))
    for note in filter(None, (*plan.notes, plan.environment_notice)):
        if MAY_BE_REFUSED not in note:  # those are reported after the scheduler has been queried
            checks.report("as understood", ok(note))
    return target, plan


def _profile(plan: Plan) -> Finding:
    target, request = plan.target, plan.request
    name = target.cluster or (f"no profile, {target.host}" if target.host else "no profile, this machine")
    gpus = counted(request.gpus, "GPU")
    environment = plan.environment_name or plan.container or "the plain environment"
    report = f"{name}: {environment}, {gpus}, {request.walltime.as_text()}"
    if target.profile.status == "retired":
        successor = f": {target.profile.successor} came after it" if target.profile.successor else ""
        return warning(f"{report}. This cluster is retired{successor}.", "see: launch-notebook clusters")
    return ok(report)


class _Doctor:
    """All checks of a target, in order; ``plan`` is ``None`` if the profile or the flags are invalid."""

    def __init__(
        self,
        checks: CheckRunner,
        target: LaunchTarget,
        plan: Plan | None,
        here: LocalMachine,
        prompts: Prompts,
        interrupts: Interrupts,
        node: bool | None,
        more: MoreChecks | None = None,
    ) -> None:
        self._checks, self._target, self._plan, self._here = checks, target, plan, here
        self._prompts, self._interrupts = CountedPrompts(prompts), interrupts
        self._node, self._more = node, more

    def run(self) -> None:
        """Check this machine, log in, and check everything there."""
        if self._target.course is not None:
            check_course(self._checks, self._target.course, self._here.today)
        check_this_machine(self._checks, self._target)
        host = log_in(self._checks, self._target, self._prompts)
        if host is None:
            for name in _LATER:
                self._checks.skip_unless_passed(name, LOGGED_IN)
            return
        with host:
            self._check_after_login(host)

    def _check_after_login(self, host: Host) -> None:
        there = check_login_node(self._checks, host, self._target)
        if there is None:
            return
        site, root = there
        if not self._checks.passed(LOGIN_SHELL):
            for name in (PROGRAMS, "start", IMAGE, ENVIRONMENT):
                self._checks.skip_unless_passed(name, [LOGIN_SHELL])
            return
        try:
            scheduler = self._scheduler(host, root)
        except SchedulerMissing as error:
            self._checks.report(PROGRAMS, of_error(error))
            for name in ("start", IMAGE, ENVIRONMENT):
                self._checks.skip_unless_passed(name, [PROGRAMS])
            return
        check_scheduler(self._checks, host, scheduler, self._target)
        plan = self._plan
        if plan is None:
            for name in ("start", IMAGE, ENVIRONMENT):
                self._checks.skip_unless_passed(name, [PROFILE])
            return
        context = Context(plan.target, host, site, scheduler, root, self._checks.view, self._prompts, self._interrupts)
        check_flags(self._checks, context, plan.request)
        report = check_request(self._checks, host, scheduler, plan.request, site.user, site.clock())
        if report.refusal is None and self._checks.passed(WALLTIME):
            for note in plan.notes:
                if MAY_BE_REFUSED in note:
                    self._checks.report("profile's limits", warning(note, "ask for less"))
        check_accounting(self._checks, host, scheduler)
        if (course := self._target.course) is not None:
            check_reservations(self._checks, course, report, site.clock(), plan.request.flags.get("reservation"))
            check_capacity(self._checks, plan.request, report)
        check_image(self._checks, host, plan, site, for_others=course is not None)
        self._software(context, plan, site)
        if self._more is not None:
            self._more(self._checks, context, plan, report)

    def _scheduler(self, host: Host, root: str) -> Scheduler:
        kind = self._target.scheduler
        found = kind if kind != "auto" else find_scheduler(host, self._target)
        return make_scheduler(found, root, self._target.profile.scheduler_options)

    def _software(self, context: Context, plan: Plan, site: Site) -> None:
        needs = [HOME, ROOT, *ACCEPTED, IMAGE, DIGEST]
        checks_node = bool(self._node) and all(map(self._checks.passed, needs))
        check_environment(
            self._checks,
            context.host,
            plan,
            context.root,
            lambda: session_env(plan, context.scheduler, site),
            checks_node=checks_node,
        )
        if self._checks.passed(ENVIRONMENT):
            check_cold_start(self._checks, context.host, plan, site)
        if self._checks.skip_unless_passed(NODE, needs if self._node else [*needs, ENVIRONMENT, JUPYTERLAB]):
            return
        if self._wants_node(context.scheduler):
            check_node(self._checks, context, plan, needs)
        elif self._more is None:
            self._checks.skip(
                NODE,
                "not requested: --node checks one with a short job. "
                f"Route to the nodes: {last_route(plan.target.name)}",
            )

    def _wants_node(self, scheduler: Scheduler) -> bool:
        if self._node is not None or not self._prompts.asks:
            return bool(self._node)
        where = "here" if scheduler.same_machine else "on a compute node"
        return bool(self._prompts.confirm(f"Start a job of five minutes at most, to look {where}?"))
