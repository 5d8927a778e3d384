"""Sets up every command: connects, inspects the host once, and finds its scheduler."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AddressRefused,
    HostCommandFailed,
    LauncherError,
    LoginBusy,
    SchedulerMissing,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.support_contact import with_contact
from notebook_launcher.core.text import joined
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.login_setup import NONE, LoginSetup
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.layers import origin
from notebook_launcher.profiles.store import profile_layers
from notebook_launcher.schedulers import missing
from notebook_launcher.schedulers.kinds import kind_by_command
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import inspect_host

if TYPE_CHECKING:
    from notebook_launcher.hosts.engine_choice import EngineChoice

LoggedIn = TypeVar("LoggedIn")


@contextlib.contextmanager
def open_context(
    target: LaunchTarget,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    forwards: Sequence[int] = (),
    *,
    submits: bool = False,
    prepares: bool = True,
    scripts: int = 0,
) -> Iterator[Context]:
    """Connect, inspect the host once, and yield the context; the connection is closed afterwards.

    ``submits``: a job may be submitted, so a host without a scheduler is refused; without ``submits``, sessions that
    run there without a scheduler can still be listed, reached and ended. ``prepares``: with ``submits``, a login shell
    is started that waits for the submission. ``scripts``: how many scripts will be sent soon, such as the one that
    lists the sessions; as many shells are started that wait for them. Raises what opening the host raises,
    ``HostCommandFailed`` if it runs no commands, or ``SchedulerMissing``.
    """
    counted = CountedPrompts(prompts)
    with naming_contact(target), open_host(target, view, counted) as host:
        host.prepare_shells(scripts)
        if submits and prepares:
            host.prepare_login_shell()
        site = inspect_host(host)
        root = site.expand(target.profile.session_root)
        kind = target.scheduler if target.scheduler != "auto" else _scheduler_of(host, target, submits)
        scheduler = make_scheduler(kind, root, target.profile.scheduler_options)
        with _naming_found_schedulers(host, target):
            yield Context(target, host, site, scheduler, root, view, counted, interrupts, tuple(forwards))


@contextlib.contextmanager
def _naming_found_schedulers(host: Host, target: LaunchTarget) -> Iterator[None]:
    """Add what the host has instead to an error about a scheduler that the profile names and the host lacks."""
    try:
        yield
    except SchedulerMissing as error:
        if not error.names_instead:
            with contextlib.suppress(LauncherError):  # the first error is what matters
                _add_found(host, target, error)
        raise


def _add_found(host: Host, target: LaunchTarget, error: SchedulerMissing) -> None:
    try:
        find_scheduler(host, target)
    except SchedulerMissing as found:
        error.why, error.hint = joined(error.why, found.why), found.hint


@contextlib.contextmanager
def naming_contact(target: LaunchTarget) -> Iterator[None]:
    """Add the target's contact to an error that says to ask the cluster's support."""
    try:
        yield
    except LauncherError as error:
        error.why = with_contact(error.why, target.contact)
        error.hint = with_contact(error.hint, target.contact)
        raise


def open_host(target: LaunchTarget, view: View, prompts: Prompts, timing: Timing = DEFAULT_TIMING) -> Host:
    """Open the target's host, the login node or this machine, after showing the target's notes.

    If the login node refuses connections before any login, this tries again: with short pauses at first, because many
    users may be logging in at once; and for longer if the login node refuses this machine's address, and the user is at
    a terminal and can stop it with Ctrl-C.
    """
    for note in target.notes:
        view.show(events.Note(note))
    if target.destination is None:
        return LocalHost(prompts)
    destination, engine = target.destination, target.profile.engine
    view.show(events.Connecting(str(destination)))
    from notebook_launcher.hosts import engine_choice  # slow to load, so after the user has seen a message

    asked = CountedPrompts(prompts)

    def log_in() -> tuple[Host, EngineChoice]:
        return engine_choice.open_ssh_host(destination, asked, engine)

    deadline = time.monotonic() + timing.address_refused_for
    try:
        host, choice = log_in()
    except (LoginBusy, AddressRefused) as error:
        if asked.count:  # a jump host has asked for a secret, and would ask again each time
            raise
        view.show(events.Querying(_waiting_text(error, timing, is_watched=prompts.asks)))
        host, choice = _retry_log_in(log_in, asked, timing, until=deadline if prompts.asks else 0.0)
    view.show(events.Connected(host.label, choice.engine, choice.reason))
    host.login_setup = login_setup_of(target)
    return host


def _retry_log_in(log_in: Callable[[], LoggedIn], asked: CountedPrompts, timing: Timing, until: float) -> LoggedIn:
    """Log in, trying again while many users log in at once, such as a class (``MaxStartups``).

    A server with OpenSSH 9.8 or newer sends the same message when many log in and when it refuses an address. So after
    a refusal, too, this tries again for some seconds, and then now and then ``until`` a monotonic time. It stops once
    the user was asked for anything, by a jump host for example. The first pauses are random, so that not everybody
    comes back at the same moment.
    """
    import tenacity  # imported late: most launches do not need it here

    began = time.monotonic()

    def is_over(state: tenacity.RetryCallState) -> bool:
        refused = state.outcome is not None and isinstance(state.outcome.exception(), AddressRefused)
        patience = timing.address_maybe_busy_for if refused else timing.login_busy_for
        return asked.count > 0 or time.monotonic() - began > patience

    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((LoginBusy, AddressRefused)),
        wait=tenacity.wait_random_exponential(timing.login_busy_pause, timing.longest_login_busy_pause),
        stop=is_over,
        reraise=True,
    )
    time.sleep(random.uniform(0.0, timing.login_busy_pause))  # noqa: S311  # all were refused at the same moment
    while True:
        try:
            return attempts(log_in)
        except AddressRefused:
            if asked.count or time.monotonic() + timing.address_refused_pause > until:
                raise
        time.sleep(timing.address_refused_pause)


def login_setup_of(target: LaunchTarget) -> LoginSetup:
    """Return what the target's profile runs in each login shell, and where it is set, for messages."""
    if not target.profile.login_setup:
        return NONE
    where = origin(profile_layers(target.cluster), ["login_setup"]) if target.cluster else ""
    return LoginSetup(target.profile.login_setup, where, target.cluster)


def _waiting_text(error: LoginBusy | AddressRefused, timing: Timing, *, is_watched: bool) -> str:
    what = error.what.rstrip(".")
    if isinstance(error, LoginBusy):
        return f"{what}; trying again, for {timing.login_busy_for:.0f} s at most"
    what += ", after failed logins from it, or because many log in at the same time"
    if not is_watched:
        return f"{what}; trying again, for {timing.address_maybe_busy_for:.0f} s at most"
    every, at_most = f"{timing.address_refused_pause:.0f} s", f"{timing.address_refused_for / 60:.0f} min"
    return f"{what}; trying again, later every {every}, for {at_most} at most; Ctrl-C stops"


def _scheduler_of(host: Host, target: LaunchTarget, submits: bool) -> str:
    try:
        return find_scheduler(host, target)
    except SchedulerMissing:
        if submits:
            raise
        return "local"


def find_scheduler(host: Host, target: LaunchTarget) -> str:
    """Return the kind of scheduler that a host has.

    Raises ``SchedulerMissing`` if there is none: the host may be the login node of a cluster with an unknown scheduler,
    where JupyterLab must not start. Raises ``HostCommandFailed`` if the host could not be searched.
    """
    commands, modules = find_scheduler_commands(host)
    if kind := kind_by_command(commands):
        return kind.name
    raise missing.missing_scheduler(
        host.label,
        commands,
        modules,
        is_here=not host.remote,
        cluster=target.cluster,
        login=target.host,
        setup=host.login_setup.lines,
    )


def find_scheduler_commands(host: Host) -> tuple[list[str], list[str]]:
    """Return the schedulers' commands that a host has, and the modules that may provide some."""
    answer = host.run(["bash", "-c", missing.FIND_SCHEDULERS], login_shell=True)
    if answer.exit_code != 0:
        raise no_bash(host, answer)
    return missing.read_found(answer.stdout)


def no_bash(host: Host, answer: CommandResult) -> HostCommandFailed:
    """Return the error for a host on which a bash script did not run."""
    return HostCommandFailed(f"{host.label} could not run a bash script.", why=answer.stderr.strip()[-500:])
