"""The commands and their options. What a command needs is imported when it runs, so that ``--help`` is quick."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher import __version__
from notebook_launcher.errors import LauncherError, UsageError
from notebook_launcher.flags import FLAGS, Flag, closest

if TYPE_CHECKING:
    from notebook_launcher.cli.prompts import TerminalPrompts
    from notebook_launcher.cli.views import BaseView
    from notebook_launcher.interrupts import Interrupts
    from notebook_launcher.plan import Ask, Place

REPORT_TO = "the project's issue tracker"
ENGINES = ("auto", "paramiko", "openssh")
STREAMS = ("auto", "node-ssh", "step", "job-sshd", "direct")
_WORDS = "words"  # key in click's context: what stood after --
_FLAGS = "flags"  # key in click's context: the scheduler's flags as they were given


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code; errors are shown here and nowhere else."""
    from notebook_launcher.cli.report import report

    before, after = _split(argv)
    try:
        result = cli.main(
            args=_spelled_out(before),
            prog_name="launch-notebook",
            standalone_mode=False,
            obj={_WORDS: tuple(after), _FLAGS: {}},
        )
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.NoSuchOption as error:
        return report(_unknown_flag(error), as_json="--json" in before)
    except click.UsageError as error:
        return report(
            UsageError(error.format_message(), mend="see: launch-notebook --help"), as_json="--json" in before
        )
    except LauncherError as error:
        return report(error, as_json="--json" in before)
    except (KeyboardInterrupt, click.Abort):
        return report(_interrupted(), as_json="--json" in before)
    except Exception as error:
        return report(_our_bug(error), as_json="--json" in before)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split at ``--``: before it the flags, after it the environment and the container; only a launch has these."""
    words = list(argv)
    if words and words[0] in ("connect", "stop", "doctor", "when", "queue"):
        return words, []
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def _spelled_out(words: Sequence[str]) -> list[str]:
    """Give flags whose value is optional a second name, for the value: it counts only where it is attached.

    ``--nice=-5`` and ``-koff`` have one; in ``--nice -n 4`` and ``--exclusive user`` there is none.
    """
    result: list[str] = []
    is_value = False
    for word in words:
        name, equals, value = word.partition("=")
        if not is_value and equals and name in _OPTIONAL:
            word = f"{_OPTIONAL[name]}{_WITH_VALUE}={value}"
        elif not is_value and len(word) > 2 and word[:2] in _OPTIONAL and word[1] != "-":
            word = f"{_OPTIONAL[word[:2]]}{_WITH_VALUE}={word[2:].removeprefix('=')}"
        is_value = not is_value and word in _TAKES_VALUE
        result.append(word)
    return result


_WITH_VALUE = "-with-value"
_OPTIONAL = {spelling: f"--{flag.name}" for flag in FLAGS if flag.argument == "optional"
             for spelling in (f"--{flag.name}", f"-{flag.letter}")}  # fmt: skip
_TAKES_VALUE = {spelling for flag in FLAGS if flag.argument == "required"
                for spelling in (f"--{flag.name}", f"-{flag.letter}")}  # fmt: skip


def _unknown_flag(error: click.NoSuchOption) -> UsageError:
    name = error.option_name.removesuffix(_WITH_VALUE)
    command = error.ctx.command.name if error.ctx else None
    if command not in (None, "launch"):  # a launch knows more flags than the others
        known = [option for parameter in error.ctx.command.params for option in parameter.opts] if error.ctx else []
        near = closest(name, tuple(known)) if name not in OUR_FLAGS else None
        mend = f"did you mean {near}?" if near in known else f"see: launch-notebook {command} --help"
        return UsageError(f"“{command}” has no flag {name}.", mend=mend)
    near = closest(name, OUR_FLAGS)
    return UsageError(
        f"There is no flag {name}.",
        mend=f"did you mean {near}?" if near else "see: launch-notebook --help, and sbatch's own flags",
    )


def _our_bug(error: Exception) -> LauncherError:
    """Keep the details in a file, for a report: they are of no use on a user's screen."""
    import os
    import tempfile
    import traceback

    from notebook_launcher.errors import OurBug

    descriptor, path = tempfile.mkstemp(prefix="launch-notebook-", suffix=".txt")  # readable by its owner alone
    with os.fdopen(descriptor, "w", encoding="utf-8") as details:
        details.write(f"launch-notebook {__version__}, Python {sys.version}\n")
        details.writelines(traceback.format_exception(error))
    return OurBug(
        "Something is wrong in launch-notebook itself, not in what you typed.",
        why=f"{type(error).__name__}: {error}",
        mend=f"please report it with the file {path}: {REPORT_TO}",
    )


def _interrupted() -> LauncherError:
    from notebook_launcher.errors import Interrupted

    return Interrupted("Interrupted.", why="Nothing was queued.")


class _Commands(click.Group):
    """A group whose first command is meant where none is named: ``launch-notebook -t 2:00:00``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version", "-V", "--usage")):
            args = ["launch", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            words = "launch-notebook" if near == ["launch"] else f"launch-notebook {near[0]}" if near else ""
            raise UsageError(
                f"There is no command “{args[0]}”.",
                why="An environment or an image comes after two dashes.",
                mend=f"did you mean: {words}?" if words else f"did you mean: launch-notebook -- {args[0]}?",
            ) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        launch = self.get_command(ctx, "launch")
        if launch is not None:
            with formatter.section("Options of a launch"):
                formatter.write_dl(
                    [
                        record
                        for parameter in launch.get_params(ctx)
                        if (record := parameter.get_help_record(ctx)) and "--help" not in record[0]
                    ]
                )
        super().format_epilog(ctx, formatter)


def _scheduler_option(flag: Flag) -> Callable[[Any], Any]:
    """Return a click option that puts a scheduler's flag, as it was given, into the context."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value is not None and value is not False:
            ctx.obj[_FLAGS][flag.name] = None if value is True else str(value)

    def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
        hidden, text = flag.name not in _SHOWN, _SHOWN.get(flag.name)
        return click.option(*names, expose_value=False, callback=keep, hidden=hidden, help=text, **settings)

    names = [f"--{flag.name}", *([f"-{flag.letter}"] if flag.letter else [])]
    key = f"_{flag.name.replace('-', '_')}"
    if flag.argument == "required":
        return option(*names, key)
    bare = option(*names, key, is_flag=True, default=None)
    if flag.argument == "none":
        return bare
    with_value = option(f"--{flag.name}{_WITH_VALUE}", f"{key}_value")
    return lambda command: bare(with_value(command))


# The flags that most users need, for --help; all others of sbatch work as well.
_SHOWN = {
    "account": "The account (project) that pays.",
    "begin": "When to start: 15:00, now+2hours, 2026-11-22T09:00.",
    "clusters": "Another cluster of the same Slurm.",
    "constraint": "Features that the node must have.",
    "cpus-per-task": "Cores.",
    "gpus": "GPUs: 1, or with a type a100:1; 0 for none.",
    "gres": "GPUs in the older words: gpu:t4:1.",
    "mem": "Memory: 16G.",
    "ntasks": "Tasks; on many sites: cores.",
    "partition": "The partition (queue).",
    "qos": "The quality of service.",
    "reservation": "A reservation, for example of a course.",
    "time": "Walltime: 2:00:00 is two hours, 30 is thirty minutes. Without it: 59 minutes.",
}


def _scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for flag in reversed(FLAGS):
        command = _scheduler_option(flag)(command)
    return command


def _port(ctx: click.Context, _parameter: click.Parameter, values: tuple[int, ...]) -> tuple[int, ...]:
    for value in values:
        if not 0 < value < 65536:
            raise UsageError(f"“{value}” is not a port.", mend="for example: --forward 6006")
    return values


def _way_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--stream", metavar="NAME", type=click.Choice(STREAMS),
            help="How the node is reached: auto, node-ssh, step, job-sshd or direct.",
        ),
        click.option(
            "--forward", "forwards", type=int, multiple=True, callback=_port, metavar="PORT",
            help="Another port of the node to open here (repeatable).",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line."),
        click.option(
            "--engine",
            metavar="NAME",
            type=click.Choice(ENGINES),
            help="What makes the SSH connection: auto, paramiko or openssh.",
        ),
        click.option("--ssh-config", metavar="FILE", help="Another ssh configuration than ~/.ssh/config."),
        click.option("--host", metavar="[USER@]LOGIN", help="A login node, without a profile."),
        click.option("--cluster", metavar="NAME", help="A cluster profile."),
    ):
        command = option(command)
    return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help", "--usage"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="launch-notebook")
def cli() -> None:
    """Put JupyterLab on a compute node and open it in your browser.

    \b
      launch-notebook -t 2:00:00 --gpus 1
      launch-notebook -n 4 -p devcore --gpus 0 -- tf-mkl
      launch-notebook --cluster NAME -- ENVIRONMENT [CONTAINER]

    While JupyterLab runs: ENTER ends the session and its job, d and ENTER leaves it running.
    Every flag of sbatch works, short and long (but for --array, --wrap and --test-only).
    """  # \b is click's mark for lines to be left alone


@cli.command(hidden=True, short_help="Start a session (what launch-notebook does without a command).")
@_place_options
@click.option("--open", "open_browser", is_flag=True, help="Open the browser when JupyterLab is ready.")
@click.option("--dry-run", is_flag=True, help="Show the submit command and the session file, and do nothing.")
@click.option(
    "--module", "modules", multiple=True, metavar="NAME", help="Load a module on the node first (repeatable)."
)
@click.option("--conda", metavar="ENV", help="Use the JupyterLab of a conda environment.")
@click.option("--venv", metavar="DIR", help="Use the JupyterLab of a virtual environment.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@_way_options
@_scheduler_options
@click.pass_context
def launch(
    ctx: click.Context,
    *,
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    as_json: bool,
    open_browser: bool,
    dry_run: bool,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    verbose: bool,
    engine: str | None,
    stream: str | None,
    forwards: tuple[int, ...],
) -> int:
    """Start a session: queue a job with JupyterLab in it, open the tunnel, print the address, hold it."""
    from notebook_launcher.plan import Ask

    ask = Ask(ctx.obj[_FLAGS], cluster, host, ssh_config, ctx.obj[_WORDS], modules, conda, venv,
              engine, stream, forwards)  # fmt: skip
    return _launch(ask, as_json=as_json, open_browser=open_browser, dry_run=dry_run, verbose=verbose)


def _launch(ask: Ask, *, as_json: bool, open_browser: bool, dry_run: bool, verbose: bool) -> int:
    from notebook_launcher import launch as stories
    from notebook_launcher.plan import Here, make_plan

    plan = make_plan(ask, Here.look())
    with _played(as_json=as_json, open_browser=open_browser, verbose=verbose) as (view, prompts, interrupts):
        if dry_run:
            stories.dry_run(plan, view)
        else:
            stories.launch(plan, view, prompts, interrupts)
    return view.exit_code


@contextlib.contextmanager
def _played(
    *, as_json: bool, open_browser: bool = False, verbose: bool = False
) -> Iterator[tuple[BaseView, TerminalPrompts, Interrupts]]:
    """What a story is played with: a view, questions on its terminal, and signals as interrupts."""
    from notebook_launcher.cli.prompts import TerminalPrompts
    from notebook_launcher.cli.signals import signals
    from notebook_launcher.cli.views import make_view

    view = make_view(as_json=as_json, open_browser=open_browser, verbose=verbose)
    with view, signals(view) as interrupts:
        yield view, TerminalPrompts(view, interactive=not as_json), interrupts


@cli.command()
@_place_options
@click.option("--open", "open_browser", is_flag=True, help="Open the browser when JupyterLab is ready.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@_way_options
@click.argument("session", default="")
def connect(
    session: str,
    *,
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    as_json: bool,
    open_browser: bool,
    verbose: bool,
    engine: str | None,
    stream: str | None,
    forwards: tuple[int, ...],
) -> int:
    """Come back to a session that was left running (its name, the beginning of it, or nothing if there is one)."""
    from notebook_launcher import launch as stories

    place = _place(cluster, host, ssh_config, engine, stream)
    with _played(as_json=as_json, open_browser=open_browser, verbose=verbose) as (view, prompts, interrupts):
        stories.connect(place, session, view, prompts, interrupts, forwards)
    return view.exit_code


@cli.command()
@_place_options
@click.argument("session", default="")
def stop(
    session: str,
    *,
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    as_json: bool,
    engine: str | None,
) -> int:
    """End a session and its job, from anywhere."""
    from notebook_launcher import launch as stories

    place = _place(cluster, host, ssh_config, engine)
    with _played(as_json=as_json) as (view, prompts, interrupts):
        stories.stop(place, session, view, prompts, interrupts)
    return view.exit_code


@cli.command()
@_place_options
def doctor(*, cluster: str | None, host: str | None, ssh_config: str | None, as_json: bool, engine: str | None) -> int:
    """Log in and look, without starting anything: by which engine and why, the scheduler, the way to the nodes."""
    from notebook_launcher import launch as stories

    place = _place(cluster, host, ssh_config, engine)
    with _played(as_json=as_json, verbose=True) as (view, prompts, interrupts):
        stories.doctor(place, view, prompts, interrupts)
    return view.exit_code


@cli.command(short_help="When would this start, and what would start sooner? Queues nothing.")
@_place_options
@_scheduler_options
@click.pass_context
def when(
    ctx: click.Context,
    *,
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    as_json: bool,
    engine: str | None,
) -> int:
    """Ask the scheduler when a launch with these flags would start, and what would start sooner. Queues nothing."""
    from notebook_launcher import forecast
    from notebook_launcher.plan import Ask, Here, make_plan

    plan = make_plan(Ask(ctx.obj[_FLAGS], cluster, host, ssh_config, engine=engine), Here.look())
    code = 0
    with _played(as_json=as_json) as (view, prompts, interrupts):
        code = forecast.when(plan, view, prompts, interrupts)
    return code or view.exit_code


@cli.command()
@_place_options
@click.option("--clusters", "-M", metavar="NAME", help="Another cluster of the same Slurm.")
def queue(
    *,
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    as_json: bool,
    engine: str | None,
    clusters: str | None,
) -> int:
    """Show which GPUs and cores are free and busy, by partition, and what waits."""
    from notebook_launcher import forecast
    from notebook_launcher.profiles.store import default_flags

    place = _place(cluster, host, ssh_config, engine)
    other = clusters or default_flags(place.profile).get("clusters")
    with _played(as_json=as_json) as (view, prompts, interrupts):
        forecast.queue(place, other, view, prompts, interrupts)
    return view.exit_code


def _place(
    cluster: str | None,
    host: str | None,
    ssh_config: str | None,
    engine: str | None = None,
    stream: str | None = None,
) -> Place:
    from notebook_launcher.plan import Ask, Here, find_place

    return find_place(Ask(cluster=cluster, host=host, ssh_config=ssh_config, engine=engine, stream=stream), Here.look())


OUR_FLAGS = tuple(
    sorted(
        {
            name
            for command in cli.commands.values()
            for parameter in command.params
            for name in parameter.opts
            if name.startswith("--")
        }
    )
)

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
