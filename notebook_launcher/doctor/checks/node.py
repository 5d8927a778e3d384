"""Checks a compute node with a short job: how far a launch gets. The job is cancelled as soon as that is known."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import (
    ActivationFailed,
    BindMissing,
    ContainerFailed,
    HomeUnusable,
    ImageUnusable,
    Interrupted,
    JobSilent,
    JupyterCrashed,
    JupyterMissing,
    JupyterSilent,
    JupyterSlow,
    LauncherError,
    ModuleFailed,
    NodeUnreachable,
)
from notebook_launcher.core.finding import Finding, fault, of_error, ok, unknown
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.core.request import Request
from notebook_launcher.core.view import Typed
from notebook_launcher.jobs.cancel import cancel_job
from notebook_launcher.launch import queue_session, submitted
from notebook_launcher.planning.plan import Plan
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, discard_session
from notebook_launcher.supervision.next_jobs import supervise_jupyter

MINUTES = 5  # the job's walltime; less if the user requests less
START_WITHIN = 600.0  # seconds to wait for the job's start, and for JupyterLab in it
STEP_WITHIN = 45.0  # seconds for a command in the job

NODE, ROUTE, JUPYTERLAB, GPUS = "compute node", "route", "JupyterLab there", "GPUs there"
_STEPS = (NODE, ROUTE, JUPYTERLAB, GPUS)
_BELONGS: tuple[tuple[type[LauncherError], str], ...] = (
    (ModuleFailed, "modules there"),
    (ImageUnusable, "image there"),
    (BindMissing, "binds there"),
    (ContainerFailed, "container command there"),
    (ActivationFailed, "environment there"),
    (JupyterMissing, JUPYTERLAB),
    (JupyterCrashed, JUPYTERLAB),
    (JupyterSlow, JUPYTERLAB),
    (JupyterSilent, JUPYTERLAB),
    (HomeUnusable, "session folder there"),
    (JobSilent, "session folder there"),
    (NodeUnreachable, ROUTE),
)
# flags that would delay the job's start, or that matter only later
_NOT_NOW = ("begin", "hold", "dependency", "deadline", "signal", "requeue", "time-min", "mail-type", "mail-user")

_INSPECT_GPUS = (
    'echo "visible ${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${GPU_DEVICE_ORDINAL-}}}"; '
    'for device in /dev/nvidia[0-9]* /dev/kfd /dev/dri/renderD*; do test -e "$device" && echo "device $device"; done; '
    'nvidia-smi -L 2>/dev/null | sed "s/ (UUID.*//; s/^/seen /"; exit 0'
)


def check_node(checks: CheckRunner, context: Context, plan: Plan, needs: Sequence[str]) -> None:
    """Launch a session for some minutes, report how far it gets, and end it. Raises ``Interrupted`` or ``HungUp``."""
    if checks.skip_unless_passed(NODE, needs):
        return
    short = _short(plan)
    watching = _Watching(context, short.request.gpus)
    session: Session | None = None
    error: LauncherError | None = None
    try:
        deaf = dataclasses.replace(context, view=watching)
        session, access = queue_session(short, deaf, purpose="doctor")
        with watching.given_up_after(START_WITHIN):
            supervise_jupyter(deaf, session, access, ours=True, first=submitted(short, context, session))
    except HungUp:  # the terminal is gone, and nobody will reconnect to the session
        if session is not None:
            cancel_job(context, session)
        raise
    except Interrupted as interrupted:
        if not watching.gave_up:
            raise
        error = interrupted
    except LauncherError as failed:
        error = failed
    _report(checks, context, watching, session, error)
    if session is not None and error is None:
        with contextlib.suppress(LauncherError):
            discard_session(context.host, session)


def _short(plan: Plan) -> Plan:
    flags = {name: value for name, value in plan.request.flags.items() if name not in _NOT_NOW}
    if plan.request.walltime > timedelta(minutes=MINUTES):
        flags["time"] = f"0:{MINUTES:02d}:00"
    return dataclasses.replace(plan, request=Request(flags), forwards=(), idle_stop=0)


class _Watching:
    """A view that records how far a session gets, and ends it once JupyterLab has answered."""

    def __init__(self, context: Context, gpus: int) -> None:
        self._context, self._wants_gpus = context, gpus > 0
        self._inbox: queue.SimpleQueue[object] = context.interrupts.inbox
        self.node = self.route = self.job = ""
        self.cluster: str | None = None
        self.waited: events.Pending | None = None
        self.is_ready = self.gave_up = False
        self.gpus: Finding | None = None

    def show(self, event: events.Event) -> None:
        """Record the steps of a launch, and pass on events that show progress."""
        if isinstance(event, events.Submitted):
            self.job, self.cluster = event.job, event.cluster
            how = "starts" if event.scheduler == "local" else "is queued"
            self._pass(events.Querying(f"job {event.job} {how}, for {event.walltime} at most"))
        elif isinstance(event, events.Pending):
            self.waited = event
            self._pass(events.Querying(f"job {event.job} waits: {event.explanation}"))
        elif isinstance(event, events.Running):
            self.node = event.node
            self._pass(events.Querying(f"job {event.job} runs on {event.node}; JupyterLab is starting"))
        elif isinstance(event, events.TunnelOpened):
            self.route = event.route
        elif isinstance(event, events.Ready):
            self.is_ready = True
            if self._wants_gpus:
                self._pass(events.Querying(f"looking for the GPUs of {event.node}"))
                self.gpus = self._inspect_gpus(event)
            self._inbox.put(Typed(""))
        elif isinstance(event, events.Stopping):
            self._pass(events.Querying(f"ending job {event.job}"))
        elif isinstance(event, events.Ended):
            self._inbox.put(Typed(""))  # do not wait for the final values of its usage report
        elif isinstance(event, events.Note | events.Disconnected | events.Reconnected | events.SchedulerNotResponding):
            self._pass(event)

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing: there are no keys to read, and Ctrl-C ends the check."""

    def _pass(self, event: events.Event) -> None:
        self._context.view.show(event)

    @contextlib.contextmanager
    def given_up_after(self, seconds: float) -> Iterator[None]:
        """End the session if it is not usable within this time."""

        def give_up() -> None:
            if not self.is_ready:
                self.gave_up = True
                self._inbox.put(Interrupt("end"))

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _inspect_gpus(self, event: events.Ready) -> Finding:
        context = self._context
        argv = ["sh", "-c", _INSPECT_GPUS, "inspect-gpus"]
        step = argv if context.scheduler.same_machine else context.scheduler.step(JobRef(event.job, self.cluster), argv)
        if step is None:
            return unknown("The scheduler cannot look into a running job.")
        try:
            answer = context.host.run(step, login_shell=True, timeout=STEP_WITHIN)
        except LauncherError as error:
            return unknown(error.what)
        return assess_gpus(answer.stdout)


def assess_gpus(output: str) -> Finding:
    """Assess from its environment variables and devices whether a job that requested GPUs has any."""
    lines = [line.partition(" ") for line in output.splitlines()]
    seen = [text for word, _, text in lines if word == "seen"]
    devices = [text for word, _, text in lines if word == "device"]
    visible = next((text.strip() for word, _, text in lines if word == "visible"), "")
    if seen:
        return ok("; ".join(seen))
    if devices and visible not in ("", "NoDevFiles", "-1"):
        return ok(f"{len(visible.split(','))} for this job ({visible}), of {', '.join(devices)}")
    if devices:
        return ok(f"there are {', '.join(devices)}")
    return fault(
        "The job asked for GPUs, and there is no GPU device on its node.",
        "check the partition (-p) and the type (--gpus TYPE:1) with: launch-notebook queue",
    )


def _report(
    checks: CheckRunner, context: Context, watching: _Watching, session: Session | None, error: LauncherError | None
) -> None:
    """Report each step that was reached, and then what stopped the session."""
    name = "" if error is None else next((name for kind, name in _BELONGS if isinstance(error, kind)), NODE)
    if watching.node and name != NODE:
        checks.report(NODE, ok(f"job {watching.job} ran on {watching.node}, and saw its session directory"))
    if watching.route and not context.scheduler.same_machine:
        checks.report(ROUTE, ok(f"{watching.route} leads to {watching.node}"))
    if watching.is_ready:
        checks.report(JUPYTERLAB, ok("it answered through the tunnel, and was ended"))
    if watching.gpus is not None:
        checks.report(GPUS, watching.gpus)
    if error is None:
        return
    if watching.gave_up:
        checks.report(NODE if not watching.node else JUPYTERLAB, _too_late(watching))
    else:
        finding = of_error(error)
        if session is not None and error.log:
            finding = dataclasses.replace(
                finding, hint=f"{finding.hint}   (all of its log: {session.directory}/job.log)"
            )
        checks.report(name, finding)
    reported = {name, NODE if watching.node or watching.gave_up else "", ROUTE if watching.route else ""}
    for step in _STEPS[:3]:
        if step not in reported:
            checks.skip(step, "not checked: the job ended before that")


def _too_late(watching: _Watching) -> Finding:
    minutes = f"{START_WITHIN / 60:.0f} minutes"
    if watching.node:
        return unknown(
            f"JupyterLab did not answer within {minutes}; the job was ended.",
            "launch one and look into its log: launch-notebook logs",
        )
    why = f": {watching.waited.explanation}" if watching.waited else ""
    return unknown(
        f"Job {watching.job} did not start within {minutes}{why}. It was cancelled.",
        "try again when there is room (launch-notebook queue), or with other flags",
    )
