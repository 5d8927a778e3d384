"""A launch: turns a plan into a JupyterLab that the user is attached to. Read top-down, this is the product."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ImageNotMade,
    LauncherError,
    UsageError,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import (
    Plan,
    begin_note,
    open_port_note,
    unlisted_flags_note,
    useless_flags_note,
)
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access, join_keys, new_keys, new_token, worker_files
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import SoftwareCheck, image_command, image_verb, inspects_image
from notebook_launcher.session.record import (
    Program,
    Session,
    Site,
    environment_lines,
    inspect_host,
    new_session,
    session_files,
)
from notebook_launcher.tunnel.routes import may_need_call, may_need_sshd

if TYPE_CHECKING:
    from notebook_launcher.usage.cost_estimate import Costing

#: offers to build or pull the image that a plan's environment lacks, and returns whether it exists now
OfferImage = Callable[[Plan, Context], bool]


def no_offer(_plan: Plan, _context: Context) -> bool:
    """Offer nothing."""
    return False


def no_action() -> None:
    """Do nothing."""


def launch(
    plan: Plan,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    offer_image: OfferImage = no_offer,
    flags_accepted: Callable[[], None] = no_action,
    renewals: int = 0,
    job_queued: Callable[[], None] = no_action,
) -> None:
    """Submit a job, wait for its JupyterLab, open the tunnel, show the address, and stay attached.

    ``flags_accepted`` is called once the cluster has accepted the flags that only it knows. ``renewals``: how many more
    jobs are queued automatically, each continuing the session of the one before. ``job_queued`` is called once the
    scheduler has accepted the job.

    Returns when the session has ended or the user has detached. Otherwise raises a ``LauncherError``, after cancelling
    the job; ``HungUp`` (a closed terminal) leaves it running.
    """
    scripts = 1 + inspects_image(plan)  # the first one lists the sessions
    with open_context(plan.target, view, prompts, interrupts, plan.forwards, submits=True, scripts=scripts) as context:
        context.local_lab = plan.local_lab
        software = SoftwareCheck(context.host, context.site, plan, same_machine=context.scheduler.same_machine)
        # imported while the host is being queried: before that, nothing on the screen says what the user waits for
        from notebook_launcher.jobs.cancel import cancelled_on_failure
        from notebook_launcher.jobs.unlisted_flags import check_request
        from notebook_launcher.sessions import offer_existing_session
        from notebook_launcher.usage.cost_estimate import Costing

        costing = Costing(plan, context)
        check_request(context, plan.request.flags)
        flags_accepted()
        if offer_existing_session(plan, context):
            return
        place = _prepare_files(context, plan)  # before building an image, which may take an hour
        warning = software_warning(plan, context, software.result, offer_image)
        notes = [*notes_before(plan, context.scheduler, context.site), warning, renewals_note(plan, renewals)]
        for note in filter(None, notes):
            view.show(events.Note(note))
        session, access = queue_session(plan, context, costing=costing)
        with cancelled_on_failure(context, session):  # even a broken installation leaves no job behind
            job_queued()
            # imported only now, while the job is pending
            from notebook_launcher.supervision.next_jobs import supervise_jupyter
        first = submitted(plan, context, session)
        supervise_jupyter(context, session, access, ours=True, first=first, place=place, renewals=renewals)


def _prepare_files(context: Context, plan: Plan) -> str:
    """Copy a course's notebooks to the cluster, and return what JupyterLab opens with; "": its root folder.

    The modules are imported here because most launches use no course and open nothing.
    """
    if plan.target.course:
        from notebook_launcher.notebook.deploy import deploy_notebooks
        from notebook_launcher.planning.course_commands import course_used

        context.view.show(course_used(plan.target.course))
        deploy_notebooks(context, plan.target.course)
    if plan.open_at or plan.target.course:
        from notebook_launcher.notebook.open_at import place_to_open

        return place_to_open(context, plan)
    return ""


def software_warning(
    plan: Plan, context: Context, check: Callable[[], str | None], offer_image: OfferImage
) -> str | None:
    """Return the warning from ``check``; if the image does not exist yet, offer to build or pull it."""
    try:
        return check()
    except ImageNotMade:
        if not offer_image(plan, context):
            raise
        return None


def queue_session(
    plan: Plan, context: Context, program: Program = "jupyterlab", costing: Costing | None = None, purpose: str = ""
) -> tuple[Session, Access]:
    """Create a session and submit its job; from then on interrupts are deferred. Raises what ``queue_job`` raises.

    The price is shown first. ``purpose``: see ``SessionRecord``.
    """
    from notebook_launcher.usage.cost_estimate import Costing

    costing = costing or Costing(plan, context)
    return queue_payload(plan, context, Payload(program), before_queueing=costing.show_price, purpose=purpose)


class Payload(Frozen):
    """A session's program, and its files.

    ``lines``: further lines of ``session.env``. ``notebook``, ``script``, ``sent``: see ``SessionRecord``. ``files``:
    by their names in the session's directory. ``send``: copies files that are too large for that, once the directory
    exists; without it, one command writes the directory and submits the job. ``chdir``: see ``new_session``.
    """

    program: Program = "jupyterlab"
    lines: Mapping[str, str] = field(default_factory=dict)
    notebook: str | None = None
    sent: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    send: Callable[[Context, Session], None] | None = None
    script: str | None = None
    chdir: str | None = None

    @property
    def is_batch(self) -> bool:
        """Whether nobody connects to the program: it needs no keys, and does not listen on a port."""
        return self.program in ("notebook", "script")


_JUPYTERLAB = Payload()


def queue_payload(
    plan: Plan,
    context: Context,
    payload: Payload,
    *,
    before_queueing: Callable[[], None] = lambda: None,
    purpose: str = "",
) -> tuple[Session, Access]:
    """Create a session with its payload, and submit its job, as ``queue_session`` does."""
    from notebook_launcher.jobs.submit import discarded_if_not_queued, name_profile_in_refusal, queue_job
    from notebook_launcher.jobs.unlisted_flags import check_unlisted_flags

    session = _new_session(plan, context.scheduler, context.site, context.root, payload, purpose)
    check_unlisted_flags(context, plan.request.flags)
    context.scheduler.submit(plan.request, session.submission)  # raises for an impossible request before it acts
    context.interrupts.defer()  # from here on there may be a job, which an interrupt must not orphan
    with discarded_if_not_queued(context, session), name_profile_in_refusal(plan):
        access, files = _credentials_and_files(plan, context, session, payload)
        if payload.send:
            context.host.write_files(session.directory, files)
            payload.send(context, session)
        before_queueing()
        job = queue_job(context, session, None if payload.send else files)
        with contextlib.suppress(LauncherError, OSError):
            context.host.end_login_shell()  # no longer needed, and some servers allow only two sessions per connection
        return dataclasses.replace(session, job=job), access


def dry_run(plan: Plan, view: View, payload_on: Callable[[bool], Payload] = lambda _here: _JUPYTERLAB) -> None:
    """Show the exact submit command and session file, without connecting.

    ``payload_on``: returns the session's payload; its argument is whether commands run on this machine.
    """
    from notebook_launcher.usage.cost_estimate import estimate_price, no_price_note

    host = LocalHost()
    there = plan.target.destination
    # a dry run does not inspect a cluster; and this machine may have no sh
    site = Site("$HOME", "$USER", str(there), datetime.now().astimezone()) if there else inspect_host(host)
    root = site.expand(plan.target.profile.session_root)
    scheduler = make_scheduler(plan.target.scheduler, root, plan.target.profile.scheduler_options)
    payload = payload_on(there is None)
    session = _new_session(plan, scheduler, site, root, payload)
    notes = (
        *plan.target.notes,
        *notes_before(plan, scheduler, site, payload.program),
        unlisted_flags_note(plan.request),
        software_note(plan, scheduler) if payload.program != "script" else None,
    )
    for note in filter(None, notes):
        view.show(events.Note(note))
    if priced := estimate_price(plan, scheduler) or no_price_note(plan, scheduler):
        view.show(priced)
    request = Request(session.record.flags)
    command = scheduler.submit(request, session.submission)
    env = session_env(plan, scheduler, site, payload)
    typed = _as_typed(command, plan.request, root)
    view.show(events.DryRun(str(there or host.label), typed, session.directory, env, plan.placeholders))


def _as_typed(command: list[str], request: Request, root: str) -> str:
    """Quote a command for a shell, but let the shell expand ``$HOME`` and ``$USER`` in our own paths, below ``root``.

    Only the login node knows their values. In the values of the user's flags they are not expanded.
    """
    values = set(filter(None, request.flags.values()))
    is_open = "$HOME" in root or "$USER" in root

    def quoted(word: str) -> str:
        if not is_open or root not in word or not {word, word.partition("=")[2]}.isdisjoint(values):
            return shlex.quote(word)
        return '"' + re.sub(r'[\\"`]|\$(?!HOME\b|USER\b)', r"\\\g<0>", word) + '"'

    return " ".join(map(quoted, command))


# --- notes before the launch -------------------------------------------------------------------------------


def notes_before(plan: Plan, scheduler: Scheduler, site: Site, program: Program = "jupyterlab") -> list[str]:
    """Return notes for the user before the job is submitted."""
    from notebook_launcher.planning.course_summary import idle_rules

    useless = useless_flags_note(plan.user_flags) if scheduler.same_machine else None
    is_open = program == "jupyterlab" and not scheduler.same_machine
    open_port = open_port_note(plan.target.profile) if is_open else None
    notice = plan.environment_notice if program == "jupyterlab" else None
    idle = idle_rules(plan) if program == "jupyterlab" else None
    begin = begin_note(plan.request, site.clock())
    return [note for note in (*plan.notes, notice, begin, useless, open_port, idle) if note]


def renewals_note(plan: Plan, renewals: int) -> str | None:
    """Return a note on what renewals mean, before the launch. Raises ``UsageError`` if the job has no time limit."""
    if not renewals:
        return None
    if plan.request.walltime.is_unlimited:
        raise UsageError("--renew needs a time limit: a job without one needs no next job.", hint="-t 2h")
    if plan.local_lab:
        raise UsageError(
            "--renew and --local-lab exclude each other.",
            why="Your own JupyterLab cannot continue from one job to the next.",
            hint="leave out one of them",
        )
    jobs = "1 more job" if renewals == 1 else f"{renewals} more jobs"
    return (
        f"Up to {jobs} like this one will be queued, one after the other, while this command is attached. "
        "Each may cost as much as the first; its kernels are new."
    )


def software_note(plan: Plan, scheduler: Scheduler) -> str | None:
    """Return a dry run's note that JupyterLab may be missing, if the plan shows it; otherwise ``None``."""
    if scheduler.same_machine:
        return None
    if command := image_command(plan):
        verb = image_verb(plan)
        return (
            f"Environment “{plan.environment_name}” needs the image {plan.container}. A dry run does not check whether "
            f"it exists. If it does not, the launch offers to {verb} it; to {verb} it now:\n  {command}"
        )
    if plan.container is None and plan.environment.is_plain:
        names = ", ".join(plan.target.profile.environments)
        return (
            "No software was named, so JupyterLab starts only if the compute nodes have it installed. Name some with "
            f"-- ENVIRONMENT{f' ({names})' if names else ''}, -- IMAGE, --module, --conda, --venv or --uv."
        )
    return None


# --- a new session -------------------------------------------------------------------------------------------


def _new_session(
    plan: Plan, scheduler: Scheduler, site: Site, root: str, payload: Payload = _JUPYTERLAB, purpose: str = ""
) -> Session:
    has_jupyterlab = payload.program == "jupyterlab"
    is_open = not payload.is_batch and _listens_openly(plan, scheduler)
    return new_session(
        root,
        plan.request,
        scheduler=scheduler.name,
        cluster=plan.target.cluster,
        host=plan.target.host,
        environment=plan.environment_name,
        now=site.clock().replace(microsecond=0),  # not the time of the login: building an image may have taken long
        route="direct" if is_open else None,
        program=payload.program,
        command=plan.command,
        launched_from=socket.gethostname(),
        idle_stop=plan.idle_stop if has_jupyterlab else 0,
        course=plan.target.course.name if plan.target.course else None,
        purpose=purpose,
        notebook=payload.notebook,
        sent=payload.sent,
        script=payload.script,
        chdir=payload.chdir if "chdir" in (scheduler.translated_flags or ("chdir",)) else None,
    )


def _listens_openly(plan: Plan, scheduler: Scheduler) -> bool:
    return plan.target.profile.route == "direct" and not scheduler.same_machine


def _credentials_and_files(
    plan: Plan, context: Context, session: Session, payload: Payload
) -> tuple[Access, dict[str, bytes]]:
    """Return a token and keys for a new session, and all files of its directory."""
    env = session_env(plan, context.scheduler, context.site, payload)
    token = new_token()
    more = {**payload.files, **worker_files(plan.distributed, session.id)}
    if payload.program == "jupyterlab" and plan.panel:
        from notebook_launcher.usage.panel_file import PANEL_FILE, panel_file

        more[PANEL_FILE] = panel_file(plan, context.scheduler, session)
    if payload.program == "jupyterlab" and plan.apps:
        from notebook_launcher.planning.apps import APPS_FILE, apps_file

        more[APPS_FILE] = apps_file(plan.apps)
    # no SSH server is needed for a job on this machine, or for a batch job
    if context.scheduler.same_machine or payload.is_batch:
        access = Access(token, lambda: join_keys(context.host, session.directory))
        return access, session_files(session, env, token, more)
    keys, files = new_keys()
    return Access(token, lambda: keys), session_files(session, env, token, {**files, **more})


def _route_lines(plan: Plan, scheduler: Scheduler) -> dict[str, str]:
    """Return the lines of ``session.env`` that a route to the job may need."""
    if scheduler.same_machine:
        return {}
    if plan.target.profile.route == "direct":
        return {"listen": "node"}
    route = plan.target.profile.route, plan.target.name
    wanted = {"sshd": may_need_sshd(*route), "reverse": may_need_call(*route)}
    return {key: "yes" for key, is_wanted in wanted.items() if is_wanted}


def _monitoring_lines(plan: Plan) -> dict[str, str]:
    """Return the lines on monitoring: sampling the node's usage, and detecting an idle session."""
    profile = plan.target.profile
    lines = {"usage": str(profile.usage_seconds)}
    return {**lines, "idle_stop": str(plan.idle_stop), "gpu_idle": profile.gpu_idle} if plan.idle_stop else lines


def _class_lines(plan: Plan, site: Site) -> dict[str, str]:
    """Return the lines on the class folder, and on the course's folder, from which results are copied to it."""
    course = plan.target.course
    if course is None or not course.class_folder:
        return {}
    return {"class_folder": course.class_folder, "course_folder": site.expand(course.folder or f"~/{course.name}")}


def _stage_lines(plan: Plan, site: Site) -> dict[str, str]:
    """Return the lines on copying the environment to the node's own disk."""
    profile, stage = plan.target.profile, plan.environment.stage
    if not (profile.stage if stage is None else stage):
        return {}
    folder = {"stage_dir": site.expand(profile.stage_dir)} if profile.stage_dir else {}
    return {"stage": "yes", **folder, "stage_limit": str(profile.stage_limit)}


def session_env(plan: Plan, scheduler: Scheduler, site: Site, payload: Payload = _JUPYTERLAB) -> str:
    """Return the content of ``session.env``."""
    configured = plan.environment
    environment = configured.changed(
        bind=tuple(site.expand(spec) for spec in configured.bind),
        module_use=tuple(site.expand(folder) for folder in configured.module_use),
        conda=site.expand(configured.conda) if configured.conda else None,
        venv=site.expand(configured.venv) if configured.venv else None,
        uv=site.expand(configured.uv) if configured.uv else None,
    )
    container = site.expand(plan.container) if plan.container else None
    if payload.program == "jupyterlab":
        others = {**_route_lines(plan, scheduler), **_monitoring_lines(plan), **_class_lines(plan, site)}
        if not plan.panel:
            others["panel"] = "no"
    else:
        others = {"program": payload.program, **payload.lines, "usage": str(plan.target.profile.usage_seconds)}
    if payload.program in ("jupyterlab", "notebook") and not plan.target.profile.fast_start:
        others["fast_start"] = "no"
    if plan.distributed:
        others["with"] = plan.distributed
    others |= _stage_lines(plan, site)
    return environment_lines(environment, container=container, path=plan.path, others=others)


def submitted(plan: Plan, context: Context, session: Session) -> events.Submitted:
    """Return the event for a session that was just submitted."""
    job, walltime = job_of(session), plan.request.walltime.as_text()
    return events.Submitted(session.id, job.id, job.cluster, context.scheduler.name, walltime, session.directory)
