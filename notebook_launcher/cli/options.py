"""Options shared by several commands, and the user interface that commands run with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher.cli.completion import complete_cluster, complete_course, complete_session
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS, long_flags
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.sbatch_options import FLAGS, Flag, may_be_newer

if TYPE_CHECKING:
    from notebook_launcher.cli.prompts import TerminalPrompts
    from notebook_launcher.cli.views.base import BaseView
    from notebook_launcher.core.interrupts import Interrupts
    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.planning.target import LaunchOptions, LaunchTarget
    from notebook_launcher.profiles.courses import CourseFiles

ENGINES = ("auto", "paramiko", "openssh")
ROUTES = ("auto", "node-ssh", "step", "reverse", "job-sshd", "direct")
ARGUMENTS = "words"  # key in click's context: the arguments after --
TYPED_WORDS = "typed"  # key in click's context: the whole command line
WITH_VALUE = "-with-value"  # suffix of the second name of a flag whose value is optional


class NumberUpTo(click.IntRange):
    """The type of an option that is a number from 0 to a maximum."""

    def __init__(self, most: int) -> None:
        super().__init__(0, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises ``click.BadParameter``, which names both limits."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"“{value}” is not a number from 0 to {self.max}.", param, ctx)


class Where(Frozen):
    """The cluster or host of a command, and whether to print JSON: the options of every command.

    ``new_default``: see ``LaunchOptions``.
    """

    cluster: str | None = None
    host: str | None = None
    ssh_config: str | None = None
    engine: str | None = None
    as_json: bool = False
    course: str | None = None
    course_files: CourseFiles | None = None
    new_default: bool = False

    def target(self, route: str | None = None) -> LaunchTarget:
        """Return the selected target. Raises ``ProfileError`` or ``UsageError``."""
        from notebook_launcher.planning.target import LocalMachine, find_target

        return find_target(dataclasses.replace(self.launch_options(), route=route), LocalMachine.detect())

    def launch_options(self, flags: Mapping[str, str | None] | None = None) -> LaunchOptions:
        """Return the options of a launch there; ``dataclasses.replace`` adds the others that were typed."""
        from notebook_launcher.planning.target import LaunchOptions

        return LaunchOptions(
            flags or {},
            cluster=self.cluster,
            host=self.host,
            ssh_config=self.ssh_config,
            engine=self.engine,
            course=self.course,
            course_files=self.course_files,
            new_default=self.new_default,
        )


def target_options(command: Callable[..., Any], *, checks_request: bool = False) -> Callable[..., Any]:
    """Give a command the options that select a target, as the single parameter ``where``.

    ``checks_request``: the command checks a request before it makes a new course the default; otherwise a new course
    becomes the default at once.
    """

    @functools.wraps(command)
    def with_where(
        *words: Any,
        cluster: str | None,
        host: str | None,
        ssh_config: str | None,
        engine: str | None,
        as_json: bool,
        course: str | None,
        **others: Any,
    ) -> Any:
        where = _with_saved_course(
            Where(cluster, host, ssh_config, engine, as_json, course),
            dry_run=others.get("dry_run", False),
            checks_request=checks_request,
        )
        return command(*words, where=where, **others)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line."),
        click.option(
            "--engine",
            metavar="NAME",
            type=click.Choice(ENGINES),
            help="What makes the SSH connection: auto, paramiko or openssh.",
        ),
        click.option("--ssh-config", metavar="FILE", help="An ssh configuration other than ~/.ssh/config."),
        click.option("--host", metavar="[USER@]LOGIN", help="A login node, without a profile."),
        click.option(
            "--course",
            metavar="NAME|FILE|URL",
            shell_complete=complete_course,
            help="A course, on top of its cluster's profile.",
        ),
        click.option("--cluster", metavar="NAME", shell_complete=complete_cluster, help="A cluster profile."),
    ):
        with_where = option(with_where)
    return with_where


def _with_saved_course(where: Where, *, dry_run: bool, checks_request: bool) -> Where:
    """Save a course that is named by file or URL before the command uses it, and make it the default.

    ``dry_run``: read it for this run only, without saving. ``checks_request``: the command itself makes it the default.
    """
    if where.course is None or where.host:
        return where
    from notebook_launcher.planning.course_commands import is_course_name, read_course, take_course
    from notebook_launcher.planning.new_default import save_default_course

    if is_course_name(where.course):
        return where
    name, files = where.course, None
    with user_interface(where, notes_apart=True) as (view, prompts, _):
        if dry_run:
            files = read_course(where.course, view, where.cluster)
        else:
            name = take_course(where.course, view, prompts, where.cluster)
            if not checks_request:
                save_default_course(name, view)
    if view.exit_code:  # the terminal was closed
        raise click.exceptions.Exit(view.exit_code)
    return dataclasses.replace(where, course=name, course_files=files, new_default=checks_request and not dry_run)


def session_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the parameter ``session``: a name or part of one; "" if none is typed."""
    return click.argument("session", default=None, required=False, callback=_name, shell_complete=complete_session)(
        command
    )


def _name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    if value == "":
        raise UsageError(
            "The name of a session is empty.",
            why="It may come from a variable that is not set.",
            hint="name the session, or leave out the word where there is one session only",
        )
    return value or ""


def _port(ctx: click.Context, _parameter: click.Parameter, values: tuple[int, ...]) -> tuple[int, ...]:
    for value in values:
        if not 0 < value < 65536:
            raise UsageError(f"“{value}” is not a port.", hint="for example: --forward 6006")
    return values


def _as_route(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.params["route"] = value


#: ``--stream``, the former name of ``--route``
former_route_option = click.option(
    "--stream", hidden=True, expose_value=False, type=click.Choice(ROUTES), callback=_as_route
)


def route_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the route to the node: ``route`` and ``forwards``."""
    for option in (
        click.option(
            "--route", metavar="NAME", type=click.Choice(ROUTES), is_eager=True,  # evaluated before its former name
            help="How the node is reached: auto, node-ssh, step, reverse, job-sshd or direct.",
        ),
        former_route_option,
        click.option(
            "--forward", "forwards", type=int, multiple=True, callback=_port, metavar="PORT",
            help="Another port of the node to open here (repeatable).",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _is_flag(ctx: click.Context, flag: Flag, text: str) -> bool:
    """Whether a flag's value is another flag; a value after ``=`` may look like a flag that only the cluster knows."""
    name = text.partition("=")[0]
    is_attached = f"--{flag.name}={text}" in ctx.obj.get(TYPED_WORDS, ())
    return name in long_flags(ctx.command) or (name.startswith("--") and may_be_newer(name[2:]) and not is_attached)


def _scheduler_option(flag: Flag, without: str) -> Callable[[Any], Any]:
    """Return a click option that puts a scheduler's flag, as typed, into the context."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: object) -> None:
        if isinstance(value, str) and _is_flag(ctx, flag, value):  # probably a forgotten value: -x --dry-run
            spelled = f"-{flag.letter} (--{flag.name})" if flag.letter else f"--{flag.name}"
            raise UsageError(f"{spelled} needs a value; “{value}” is a flag.", hint="see: launch-notebook --help")
        if value is not None and value is not False:
            ctx.obj[SCHEDULER_FLAGS][flag.name] = None if value is True else str(value)

    def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
        hidden, text = flag.name not in _SHOWN, _SHOWN.get(flag.name)
        return click.option(*names, expose_value=False, callback=keep, hidden=hidden, help=text, **settings)

    names = [f"--{flag.name}", *([f"-{flag.letter}"] if flag.letter and flag.letter not in without else [])]
    key = f"_{flag.name.replace('-', '_')}"
    if flag.argument == "required":
        return option(*names, key)
    bare = option(*names, key, is_flag=True, default=None)
    if flag.argument == "none":
        return bare
    with_value = option(f"--{flag.name}{WITH_VALUE}", f"{key}_value")
    return lambda command: bare(with_value(command))


# The flags that most users need, for --help; all others of sbatch work as well.
_SHOWN = {
    "account": "The account (project) that pays.",
    "begin": "When to start: 15:00, now+2hours, 2026-11-22T09:00.",
    "clusters": "Another cluster of the same Slurm.",
    "constraint": "Features that the node must have.",
    "cpus-per-task": "Cores.",
    "gpus": "GPUs: 1, or with a type a100:1; 0 for none.",
    "gres": "GPUs as a generic resource: gpu:t4:1.",
    "mem": "Memory: 16G.",
    "nodes": "Nodes.",
    "ntasks": "Tasks; on many sites: cores.",
    "partition": "The partition (queue).",
    "qos": "The quality of service.",
    "reservation": "A reservation, for example of a course.",
    "time": "Walltime: 2:00:00 or 2h is two hours, 30 or 30:00 thirty minutes. Without it: 59 minutes.",
}


def scheduler_options(
    command: Callable[..., Any], *, without: str = "", without_names: Collection[str] = ()
) -> Callable[..., Any]:
    """Give a command every flag of the scheduler; those that are typed are put into the context, ``SCHEDULER_FLAGS``.

    ``without``: letters that have another meaning for this command; ``without_names``: flags that have.
    """
    for flag in reversed(FLAGS):
        if flag.name not in without_names:
            command = _scheduler_option(flag, without)(command)
    return command


def plan_without_gpus(where: Where, flags: Mapping[str, str | None]) -> Plan:
    """Return the plan of a job that needs no GPU."""
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    return make_plan(where.launch_options({**flags, "gpus": "0"}), LocalMachine.detect())


@contextlib.contextmanager
def user_interface(
    where: Where,
    *,
    open_browser: bool = False,
    verbose: bool = False,
    notify: bool = False,
    notes_apart: bool = False,
    notes_are_results: bool = False,
) -> Iterator[tuple[BaseView, TerminalPrompts, Interrupts]]:
    """Yield a view, prompts on its terminal, and signals as interrupts, while a command runs.

    ``notes_apart``: print notes to standard error, because standard output belongs to a command. ``notes_are_results``:
    the notes are the command's results.
    """
    from notebook_launcher.cli.prompts import TerminalPrompts
    from notebook_launcher.cli.signals import signals
    from notebook_launcher.cli.views.make_view import make_view

    view = make_view(as_json=where.as_json, open_browser=open_browser, verbose=verbose, notify=notify,
                     notes_apart=notes_apart, notes_are_results=notes_are_results)  # fmt: skip
    with view, signals(view) as interrupts:
        yield view, TerminalPrompts(view, interactive=not where.as_json), interrupts
