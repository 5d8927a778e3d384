"""The story of a checkup: everything that a launch needs, looked at in the order in which it needs it.

Each check is told as it is done; what builds on one that failed is skipped. Nothing stays behind: no job, and no file
but the session directory of a job that failed, with its log.
"""

from __future__ import annotations

from notebook_launcher.core.check_runner import Round
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import format_walltime
from notebook_launcher.doctor.checks.course import check_course, check_reservations
from notebook_launcher.doctor.checks.login import HOME, IN, ROOT, check_there, check_this_machine, log_in
from notebook_launcher.doctor.checks.node import NODE, check_node
from notebook_launcher.doctor.checks.queue import (
    TAKEN,
    WALLTIME,
    check_accounting,
    check_request,
    check_room,
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
from notebook_launcher.doctor.findings import Finding, of_error, ok, warning
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.launch import session_env
from notebook_launcher.planning.plan import Ask, Here, Place, Plan, find_place, make_plan
from notebook_launcher.planning.site_translation import MAY_BE_REFUSED
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.session.connect import find_scheduler, make_scheduler
from notebook_launcher.session.context import Stage, View
from notebook_launcher.session.record import Site
from notebook_launcher.tunnel.reconnect import CountedPrompts
from notebook_launcher.tunnel.routes import told_of

PROFILE = "profile"
_LATER = ("home", "scheduler", "image", "environment")  # told as skipped where it does not even come to a connection


def doctor(
    ask: Ask, here: Here, view: View, prompts: Prompts, interrupts: Interrupts, *, node: bool | None = None
) -> None:
    """Check everything that this launch would need, and tell each thing that was found.

    ``node``: whether a short job looks at a compute node as well; ``None``: the user is asked. Raises ``ChecksFailed``,
    which names the faults, after all that could be checked was; ``Interrupted``.
    """
    round_ = Round(view)
    place, plan = _plan(round_, ask, here)
    if place is not None:
        _Checkup(round_, place, plan, here, prompts, interrupts, node).run()
    round_.sum_up()


def _plan(round_: Round, ask: Ask, here: Here) -> tuple[Place | None, Plan | None]:
    """Return the place and the plan, as far as the profile and the flags make sense."""
    try:
        place = find_place(ask, here)
        plan = make_plan(ask, here)
    except LauncherError as error:
        round_.tell(PROFILE, of_error(error))
        try:
            return find_place(ask, here), None
        except LauncherError:
            return None, None
    round_.tell(PROFILE, _profile(plan))
    for note in plan.notes:
        if MAY_BE_REFUSED not in note:  # the scheduler itself is asked about that below
            round_.tell("as understood", ok(note))
    return place, plan


def _profile(plan: Plan) -> Finding:
    place, request = plan.place, plan.request
    name = place.cluster or (f"no profile, {place.host}" if place.host else "no profile, this machine")
    gpus = f"{request.gpus} GPU{'' if request.gpus == 1 else 's'}"
    environment = plan.environment_name or plan.container or "the plain environment"
    told = f"{name}: {environment}, {gpus}, {format_walltime(request.walltime)}"
    if place.profile.status == "retired":
        successor = f": {place.profile.successor} came after it" if place.profile.successor else ""
        return warning(f"{told}. This cluster is retired{successor}.", "see: launch-notebook clusters")
    return ok(told)


class _Checkup:
    """One checkup of a place; ``plan`` is ``None`` where the profile or the flags make no sense."""

    def __init__(
        self,
        round_: Round,
        place: Place,
        plan: Plan | None,
        here: Here,
        prompts: Prompts,
        interrupts: Interrupts,
        node: bool | None,
    ) -> None:
        self._round, self._place, self._plan, self._here = round_, place, plan, here
        self._prompts, self._interrupts = CountedPrompts(prompts), interrupts
        self._node = node

    def run(self) -> None:
        """Check this machine, then what lies behind the login."""
        if self._place.course is not None:
            check_course(self._round, self._place.course, self._here.today)
        check_this_machine(self._round, self._place)
        host = log_in(self._round, self._place, self._prompts)
        if host is None:
            for name in _LATER:
                self._round.is_skipped(name, IN)
            return
        with host:
            self._behind_the_login(host)

    def _behind_the_login(self, host: Host) -> None:
        there = check_there(self._round, host, self._place)
        if there is None:
            return
        site, root = there
        scheduler = self._scheduler(host, root)
        check_scheduler(self._round, host, scheduler)
        plan = self._plan
        if plan is None:
            for name in ("start", IMAGE, ENVIRONMENT):
                self._round.is_skipped(name, [PROFILE])
            return
        told = check_request(self._round, host, scheduler, plan.request, site.user, site.now)
        if told.refusal is None and self._round.is_well(WALLTIME):
            for note in plan.notes:
                if MAY_BE_REFUSED in note:
                    self._round.tell("profile's limits", warning(note, "ask for less"))
        check_accounting(self._round, host, scheduler)
        if (course := self._place.course) is not None:
            check_reservations(self._round, course, told, site.now, plan.request.flags.get("reservation"))
            check_room(self._round, plan.request, told)
        check_image(self._round, host, plan, site, for_others=course is not None)
        stage = Stage(plan.place, host, site, scheduler, root, self._round.view, self._prompts, self._interrupts)
        self._software(stage, plan, site)

    def _scheduler(self, host: Host, root: str) -> Scheduler:
        kind = self._place.scheduler
        return make_scheduler(kind if kind != "auto" else find_scheduler(host, self._round.view), root)

    def _software(self, stage: Stage, plan: Plan, site: Site) -> None:
        needs = [HOME, ROOT, *TAKEN, IMAGE, DIGEST]
        node_tells = bool(self._node) and all(map(self._round.is_well, needs))
        check_environment(
            self._round, stage.host, plan, stage.root,
            lambda: session_env(plan, stage.scheduler, site), node_tells=node_tells,
        )  # fmt: skip
        if self._round.is_skipped(NODE, needs if self._node else [*needs, ENVIRONMENT, JUPYTERLAB]):
            return
        if self._wants_node(stage.scheduler):
            check_node(self._round, stage, plan, needs)
        else:
            self._round.skip(NODE, f"not asked for: --node looks at one with a short job. Of the way to the nodes: "
                             f"{told_of(plan.place.name)}")  # fmt: skip

    def _wants_node(self, scheduler: Scheduler) -> bool:
        if self._node is not None or not self._prompts.asks:
            return bool(self._node)
        where = "here" if scheduler.same_machine else "on a compute node"
        return bool(self._prompts.confirm(f"Start a job of five minutes at most, to look {where}?"))
