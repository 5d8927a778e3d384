"""``init``: logs in to an unknown cluster, reads what it reports about itself, and writes a profile of it."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal

from notebook_launcher.core import events, local_state
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    Interrupted,
    LauncherError,
    ProfileError,
    SchedulerAway,
    SchedulerMissing,
    UsageError,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts
from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import listed, one_line
from notebook_launcher.core.view import View
from notebook_launcher.discovery.cluster_survey import (
    ClusterSurvey,
    Software,
    is_name,
    read_node,
    read_survey,
)
from notebook_launcher.discovery.findings import accepted, findings, probe_findings
from notebook_launcher.discovery.profile_draft import (
    Choice,
    Draft,
    Login,
    ProbeResult,
    Spelling,
    choose_account,
    choose_gpu_partition,
    choose_partition,
    sample_flags,
)
from notebook_launcher.discovery.profile_text import COMMON_LOGIN_NAMES, next_step, profile_text
from notebook_launcher.discovery.queue_survey import with_queues
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.login_setup import LoginSetup
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.jobs.cancel import cancel_after_failure, cancel_job
from notebook_launcher.jobs.evidence import run_queries, run_query
from notebook_launcher.jobs.outcome import exit_record
from notebook_launcher.launch import Payload, queue_payload, submitted
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.layers import parse_layer
from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.profiles.store import checked_profile, config_folder, given_profiles
from notebook_launcher.schedulers.kinds import Kind
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.schedulers.missing import loading, missing_scheduler, setting
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.open_context import find_scheduler, find_scheduler_commands, no_bash, open_context
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.supervision.until_started import await_start
from notebook_launcher.tunnel.routes import LAST_ROUTES, ROUTES, JobNode, NodeTarget

READ_WITHIN = 90.0  # seconds for the whole survey; the script itself starts no command after 70
_POLL_INTERVAL = 0.5  # seconds, while the job surveys its node
_ATTEMPTS = 3  # to answer a question
_LONGEST_REASON = 500  # characters of the reason for which a job ended

Probing = Literal["ask", "no", "cpu", "gpu"]

#: lines of ``session.env``: the job surveys its node, and prepares for every route
_PROBE_LINES = {"survey": "yes", "sshd": "yes", "reverse": "yes"}


class InitRequest(Frozen):
    """The user's options. ``login``: the login node, ``None``: this machine. ``cluster``: as with ``-M``.

    ``probe``: whether a short job may inspect a compute node. ``command``: as typed, for the profile.
    """

    login: str | None
    name: str | None = None
    force: bool = False
    probe: Probing = "ask"
    cluster: str | None = None
    ssh_config: str | None = None
    engine: str | None = None
    command: str = "launch-notebook init"


def initialise(request: InitRequest, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Read a cluster, write a profile of it, and complete the profile with the findings of a job (the probe).

    Raises ``UsageError`` for an invalid name, ``ProfileError`` if such a profile exists, ``SchedulerMissing``, and
    whatever opening the host raises. If the probe fails, the profile stays as it was before.
    """
    launch_target = _target(request)
    if request.cluster and not is_name(request.cluster):
        raise UsageError(f"“{request.cluster}” is not the name of a cluster.")
    path = _path(request, launch_target)
    with _confirmed(path, request, prompts), open_context(launch_target, view, prompts, interrupts) as context:
        draft = _read(request, path.stem, context)
        profile = _save(draft, path)
        view.show(events.Saved(f"the profile “{path.stem}”", str(path)))
        kind = _probing(request, draft, prompts)
        if request.probe in ("cpu", "gpu") and not kind:
            view.show(events.Note(f"No job was submitted: {_silent(draft)} did not answer here."))
        if kind:
            draft = replace(draft, probed=_probe(draft, profile, context, with_gpu=kind == "gpu"))
            _save(draft, path)
            view.show(events.Saved("what the job found", str(path)))
    view.show(events.Note(next_step(draft)))


# --- the file ----------------------------------------------------------------------------------------------------


def _target(request: InitRequest) -> LaunchTarget:
    profile = ClusterProfile().changed(**({"engine": request.engine} if request.engine else {}))
    destination = Destination.parse(request.login, config_file=request.ssh_config) if request.login else None
    return LaunchTarget(profile, None, destination, "slurm", request.login, request.ssh_config, request.engine)


def _path(request: InitRequest, launch_target: LaunchTarget) -> Path:
    """Return the profile's path. Raises ``UsageError`` for an invalid name."""
    name = request.name or name_for(
        launch_target.destination.host if launch_target.destination else socket.gethostname()
    )
    if not is_name(name) or name[0] in "_":
        raise UsageError(
            f"“{name}” cannot be the name of a profile.",
            why="It is the name of a file as well.",
            hint="name it: --name mine",
        )
    return config_folder() / "clusters" / f"{name}.toml"


def name_for(host: str) -> str:
    """Return a name for a cluster from that of its login node: the first part that is not generic."""
    if host.replace(".", "").isdecimal() or ":" in host:
        return "cluster"
    labels = host.split(".")
    first = [word for word in labels[:-1] if word.rstrip("0123456789").lower() not in COMMON_LOGIN_NAMES]
    return (first or labels)[0].lower()


@contextlib.contextmanager
def _confirmed(path: Path, request: InitRequest, prompts: Prompts) -> Iterator[None]:
    """Ask before a profile of that name is replaced, and before any question for a password.

    Raises ``ProfileError`` if nobody can be asked, and ``Interrupted`` if the user says no.
    """
    if request.force:
        yield
        return
    if path.exists():
        question, there = (
            f"There is a profile {path} already. Replace it (the old one is kept)?",
            f"There is a profile {path} already.",
        )
    elif path.stem in given_profiles():
        there = f"There is already a profile “{path.stem}” that is not your own; to use it: --cluster {path.stem}."
        question = f"{there} Write one of your own in its place?"
    else:
        yield
        return
    answer = prompts.confirm(question) if prompts.asks else None
    if answer is None:
        raise ProfileError(
            there,
            why="Nothing was read or written.",
            hint="replace it with --force, or give the new one another name: --name NAME",
        )
    if not answer:
        raise Interrupted("Nothing was written.", hint="give the new profile another name: --name NAME")
    yield


def _save(draft: Draft, path: Path) -> ClusterProfile:
    """Validate the profile as a launch would, and write it; an existing file is kept under another name."""
    text = profile_text(draft)
    profile = checked_profile([parse_layer(text.encode(), str(path))])
    beside: Path | None = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.")
        beside = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists() and draft.probed is None:
            path.rename(_old_name(path, draft.survey.day))
        beside.replace(path)
    except OSError as error:
        raise ProfileError(f"{path} cannot be written.", why=error.strerror or str(error)) from None
    finally:
        if beside:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
    return profile


def _old_name(path: Path, day: date) -> Path:
    names = (path.with_name(f"{path.name}.old-{day}{more}") for more in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(name for name in names if not name.exists())


# --- reading -----------------------------------------------------------------------------------------------------


def _read(request: InitRequest, name: str, context: Context) -> Draft:
    """Read the cluster, let the user choose what is unclear, and let the scheduler test the result."""
    context.view.show(events.Querying(f"reading what {context.host.label} reports about its cluster"))
    survey = _survey(context, name, request.cluster)
    account = chosen("account", choose_account(survey), context.prompts)
    draft = Draft(
        name,
        _login(context, survey),
        request.command,
        survey,
        account,
        chosen("partition", choose_partition(survey, account.value), context.prompts),
        chosen("partition for GPUs", choose_gpu_partition(survey, account.value), context.prompts),
        login_setup=context.host.login_setup.lines,
    )
    for check in findings(draft):
        context.view.show(check)
    return _checked_by_scheduler(draft, context) if survey.version and survey.partitions else draft


def _survey(context: Context, name: str, cluster: str | None) -> ClusterSurvey:
    """Return the cluster's report; ``name``: that of the profile. Raises ``SchedulerMissing``."""
    argv = ["bash", "-s", "--", "login", *([cluster] if cluster else [])]
    answer = context.host.run(argv, stdin=_script(), login_shell=True, timeout=READ_WITHIN)
    survey = read_survey(answer.stdout, context.clock().date(), cluster)
    if not survey.parts:
        raise no_bash(context.host, answer)
    if survey.part("version").code == 127 and not survey.other_scheduler:
        _load_scheduler(context, name)
        return _survey(context, name, cluster)
    return _with_queues(context, survey, survey.other_scheduler) if survey.other_scheduler else survey


def _with_queues(context: Context, survey: ClusterSurvey, kind: Kind) -> ClusterSurvey:
    """Add the queues, the hosts and the names of resources of a scheduler other than Slurm, from its own commands."""
    scheduler = make_scheduler(kind.name, "")
    info = scheduler.cluster_info
    if info is None:
        return survey
    options: dict[str, str] = {}
    if command := scheduler.site_options():
        options = scheduler.read_site_options(run_query(context.host, command))
    if options:
        scheduler.configure(options)
    try:
        queues, hosts = run_queries(context.host, [info.partitions(None), info.nodes(None)], timeout=READ_WITHIN)
    except HostCommandFailed as error:
        queues = hosts = CommandResult(1, stderr=error.what)
    return with_queues(
        survey,
        scheduler.lists_partitions,
        queues,
        info.read_partitions(queues),
        info.read_nodes(hosts),
        options,
        context.site.user,
    )


@contextlib.contextmanager
def _naming_an_address(host: Host) -> Iterator[None]:
    """If this machine has no scheduler, the user probably has to name another one: replace the hint by that."""
    try:
        yield
    except SchedulerMissing as error:
        if not host.remote and not error.names_module:
            error.hint = "name your cluster's login node: launch-notebook init you@login.example.org"
        raise


def _load_scheduler(context: Context, name: str) -> None:
    """If a module may provide the scheduler's commands and the user agrees, load it before each further command.

    ``name``: that of the profile. Raises ``SchedulerMissing``.
    """
    host, target = context.host, context.target
    commands, modules = find_scheduler_commands(host)
    if not modules or not host.remote or host.login_setup.lines:
        with _naming_an_address(host):
            find_scheduler(host, target)  # if there is no sbatch either, raises an error with what there is instead
        raise SchedulerMissing(
            f"sinfo was not found on {host.label}.",
            why="sbatch is there, but only sinfo tells which partitions there are.",
            hint="ask the cluster's support, or write a profile by hand",
        )
    line = loading(modules)
    found = f"A module may provide the scheduler's commands on {host.label}: {listed(modules)}."
    question = f"{found} Run {line} before each command there (login_setup in the profile)?"
    if not context.prompts.asks or not context.prompts.confirm(question):
        error = missing_scheduler(host.label, commands, modules)
        command = setting(name, [line], host=target.host or host.label)
        error.hint = f"say yes in a terminal, or write a profile that loads it: {command}"
        raise error
    host.login_setup = LoginSetup((line,))


def _script() -> bytes:
    return job_script("survey.sh").read_bytes()


def _login(context: Context, survey: ClusterSurvey) -> Login:
    launch_target, there = context.target, context.target.destination
    if there is None:
        named = survey.part("hostname_f")
        return Login(next((name for name in named.lines if named.ok and is_name(name)), survey.hostname or "localhost"))
    return Login(there.host, there.user, there.port, launch_target.ssh_config, launch_target.engine)


def chosen(what: str, choice: Choice, prompts: Prompts) -> Choice:
    """Let the user choose from the candidates if there is no value yet; ENTER leaves it open."""
    if choice.value or len(choice.candidates) < 2 or not prompts.asks:
        return choice
    question = f"Which {what} ({', '.join(choice.candidates[:12])})? ENTER: decide later. "
    for _ in range(_ATTEMPTS):
        answer = (prompts.secret(question, echo=True) or "").strip()
        if not answer or answer in choice.candidates:
            break
        question = f"There is no {what} {answer}. One of {', '.join(choice.candidates[:12])}, or ENTER: "
    return choice.with_value(answer) if answer in choice.candidates else choice


def _checked_by_scheduler(draft: Draft, context: Context) -> Draft:
    """Let Slurm test a short job as the profile requests it; with a GPU, in each spelling until one is accepted."""
    message, refused = _assessed(context, sample_flags(draft))
    context.view.show(accepted("a job without GPUs", None, message, refused))
    if not draft.gpu_partition.value and not draft.gpu_partition.candidates:
        return draft
    first = Spelling()
    for spelling in (first, Spelling("gres")):
        message, refused = _assessed(context, sample_flags(draft, spelling))
        if not message:
            context.view.show(accepted("a job with a GPU", spelling, "", refused=False))
            return replace(draft, spelling=replace(spelling, confirmed=True))
        first = first if first.message else replace(first, message=message)
    context.view.show(accepted("a job with a GPU", first, first.message, refused))
    return replace(draft, spelling=first)


def _assessed(context: Context, flags: dict[str, str | None]) -> tuple[str, bool]:
    """Return Slurm's objection to a job (empty if it would start), and whether the job was refused."""
    cluster_info = context.scheduler.cluster_info
    test = cluster_info.estimate_start(Request(flags)) if cluster_info else None
    if cluster_info is None or test is None:
        return "this scheduler does not say when a job would start", False
    word = cluster_info.read_start_estimate(run_query(context.host, test))
    if word.refusal is not None:
        return word.refusal.what, not isinstance(word.refusal, SchedulerAway)
    return ("", False) if word.start else (word.message or "no answer", False)


# --- with a job --------------------------------------------------------------------------------------------------


def _probing(request: InitRequest, draft: Draft, prompts: Prompts) -> Literal["cpu", "gpu"] | None:
    survey = draft.survey
    answers = bool(survey.version or (survey.other_scheduler and survey.partitions))
    if request.probe in ("cpu", "gpu") and answers:
        return request.probe
    if request.probe == "no" or not answers or not prompts.asks:
        return None
    question = "Submit a job of 5 minutes at most, to see what a compute node has and how to reach it?"
    return "cpu" if prompts.confirm(question) else None


def _silent(draft: Draft) -> str:
    kind = draft.survey.other_scheduler
    return f"{kind.title} ({draft.survey.source})" if kind else "Slurm (sinfo)"


def _probe(draft: Draft, profile: ClusterProfile, context: Context, *, with_gpu: bool) -> ProbeResult:
    """Submit the smallest job, find a route to its node, inspect it, and cancel the job. Raises a ``LauncherError``."""
    kind = draft.survey.other_scheduler.name if draft.survey.other_scheduler else context.target.scheduler
    launch_target = replace(context.target, profile=profile, cluster=draft.name, scheduler=kind)
    flags = sample_flags(draft, draft.spelling if with_gpu else None)
    plan = Plan(launch_target, Request(flags), None, Environment(), None)
    scheduler = make_scheduler(kind, context.root, profile.scheduler_options)
    context = replace(context, target=launch_target, scheduler=scheduler)
    payload = Payload("shell", lines=_PROBE_LINES, files={"survey.sh": _script()})
    session, access = queue_payload(plan, context, payload, purpose="init --probe")
    await_start(context, session, submitted(plan, context, session))
    try:
        probed = _inspect_node(context, session, access)
    except BaseException as error:
        if isinstance(error, Exception):
            cancel_after_failure(context, session, error)
        else:
            cancel_job(context, session)
        raise
    cancel_job(context, session)
    for check in probe_findings(probed, draft):
        context.view.show(check)
    return probed


def _inspect_node(context: Context, session: Session, access: Access) -> ProbeResult:
    started = json_object(context.host.read_file(f"{session.directory}/started.json") or b"")
    target = NodeTarget(
        context.host, context.scheduler, session, job_of(session), JobNode.from_started(started), access.keys
    )
    context.view.show(events.Querying(f"looking for a route to {target.node}"))
    route, closed = _open_route(target, context.target.name)
    _end_if_interrupted(context)
    context.view.show(events.Querying(f"looking at what there is on {target.node}"))
    software = _software(context, session, str(target.node))
    _end_if_interrupted(context)
    return ProbeResult(str(target.node), route, closed, software)


def _open_route(target: NodeTarget, about: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the first route to the node that works without asking the user, and those that do not."""
    closed: list[str] = []
    for name, open_route in ROUTES.items():
        try:
            open_route(target, False).close()
        except (ConnectionLost, HostKeyChanged):
            raise
        except (LauncherError, OSError):
            closed.append(name)
        else:
            local_state.remember(LAST_ROUTES, about, name)
            return name, tuple(closed)
    return None, tuple(closed)


def _software(context: Context, session: Session, node: str) -> Software | None:
    """Wait for the job's survey of its node, and return what it found; ``None`` if it does not arrive in time."""
    deadline = time.monotonic() + READ_WITHIN
    while time.monotonic() < deadline:
        ended = exit_record(context, session)  # read before the survey, which may be written just before the end
        with contextlib.suppress(HostCommandFailed):
            if text := context.host.read_file(f"{session.directory}/runtime/survey"):
                return read_node(text.decode(errors="replace"))
        if ended:
            why = one_line(str(ended.get("message") or ""), _LONGEST_REASON)
            context.view.show(
                events.Note(f"The job ended before it had looked at {node}: {why or 'no reason is given.'}")
            )
            return None
        _end_if_interrupted(context)
        time.sleep(_POLL_INTERVAL)
    return None


def _end_if_interrupted(context: Context) -> None:
    """Handle the interrupts so far, which raise no exception by themselves once there is a job.

    Raises ``Interrupted``, or ``HungUp`` if the terminal was closed.
    """
    while not context.interrupts.inbox.empty():
        item = context.interrupts.inbox.get()
        if isinstance(item, Interrupt):
            if item.kind == "leave":
                raise HungUp
            raise Interrupted("Interrupted.", why="The profile was written without what a job would have found.")
