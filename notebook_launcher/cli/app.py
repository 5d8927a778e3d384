"""Finds and runs commands, and explains wrong usage. Commands are imported when they run, to keep ``--help`` quick."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from notebook_launcher import __version__
from notebook_launcher.cli.completion import TYPED
from notebook_launcher.cli.options import ARGUMENTS, TYPED_WORDS, WITH_VALUE
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS, long_flags
from notebook_launcher.core.common_options import HELP, place_of_command
from notebook_launcher.core.errors import LauncherError, UsageError
from notebook_launcher.core.sbatch_options import FLAGS, closest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

REPORT_TO = "the project's issue tracker"
#: every command (a module in ``commands``), and its description in ``--help`` and on TAB, which needs no import
COMMANDS = {
    "again": "Repeat the last launch from this machine, or a preset.",
    "bench": "Run a notebook with many settings, and compare.",
    "bill": "Show what an ended session requested and used.",
    "classroom": "Check, watch, collect and end a lab of many.",
    "clusters": "List, show, choose and change cluster profiles.",
    "completion": "Print the completion script for your shell.",
    "connect": "Reconnect to a session that is running.",
    "copy": "Copy files and folders to or from the cluster.",
    "course": "List, show, update and forget saved courses.",
    "doctor": "Check everything a launch needs, with hints.",
    "env": "List, check, export and create environments.",
    "forward": "Forward ports of a session's node to this machine.",
    "image": "Build or pull a container image on the cluster.",
    "init": "Inspect a cluster and write a profile for it.",
    "jobscript": "Print a bundled job script for your cluster.",
    "launch": "",  # the default command, not listed
    "list": "List your active and recently ended sessions.",
    "logs": "Show what a session's job printed.",
    "notebooks": "List and copy the bundled notebooks.",
    "open": "Open a session in the browser.",
    "queue": "Show free GPUs and cores, and waiting jobs.",
    "renew": "Queue the next job of a running session.",
    "report": "Explain what any job of yours asked for and used.",
    "results": "Fetch the results of a run, also while it runs.",
    "run": "Run a notebook as a batch job, and fetch the results.",
    "shell": "Open a terminal, or run a command, on the node.",
    "status": "Show a session's state and what it uses.",
    "stop": "End sessions and their jobs, from anywhere.",
    "submit": "Submit a job script, and follow it to its end.",
    "usage": "Show what a session has used since it began.",
    "when": "Show when a launch would start and how to start sooner.",
}
_LISTED = {name: about for name, about in COMMANDS.items() if about}


@functools.cache
def find_command(name: str) -> click.Command | None:
    """Return the command with that name; ``None`` if there is none."""
    if name not in COMMANDS:
        return None
    module = importlib.import_module(f"notebook_launcher.cli.commands.{name}")
    return next(one for one in vars(module).values() if isinstance(one, click.Command) and one.name == name)


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. All errors are shown here."""
    from notebook_launcher.cli.views.errors import report

    words = _command_first(_help_last(argv))
    before, after = _split(_with_open_at(words))
    try:
        result = cli.main(
            args=_spelled_out(before),
            prog_name="launch-notebook",
            standalone_mode=False,
            obj={ARGUMENTS: tuple(after), SCHEDULER_FLAGS: {}, TYPED_WORDS: tuple(words)},
        )
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.NoSuchOption as error:
        return report(_unknown_flag(error, before), as_json="--json" in before)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command; click before 8.2 has no such class
            click.echo(error.format_message())
            return 0
        return report(_misused(error, before), as_json="--json" in before)
    except LauncherError as error:
        return report(error, as_json="--json" in before)
    except (KeyboardInterrupt, click.Abort):
        return report(_interrupted(words), as_json="--json" in before)
    except Exception as error:
        return report(_our_bug(error), as_json="--json" in before)


def _help_last(argv: Sequence[str]) -> list[str]:
    """Turn ``help`` and ``help COMMAND`` into ``--help`` and ``COMMAND --help``."""
    return [*argv[1:], "--help"] if argv[:1] == ["help"] else list(argv)


def _with_open_at(argv: Sequence[str]) -> list[str]:
    """Insert ``--open-at`` before a notebook that is the first argument of a launch."""
    words = list(argv)
    place = 1 if words[:1] == ["launch"] else 0
    if words[place : place + 1] and words[place].endswith(".ipynb"):
        words.insert(place, "--open-at")
    return words


def _command_first(argv: Sequence[str]) -> list[str]:
    """Move a command to the front if it follows only options that every command has.

    A command of a group moves together with the group: ``--json course list`` becomes ``course list --json``.
    """
    words = list(argv)
    end = place = place_of_command(words)
    command = find_command(words[end]) if end < len(words) else None
    while command:
        end += 1
        following = words[end] if end < len(words) else ""
        command = command.commands.get(following) if isinstance(command, click.Group) else None
    return [*words[place:end], *words[:place], *words[end:]]


def _in_two_words(argv: Sequence[str]) -> str:
    """Return how to type a parameter: the one typed if the last word is ``NAME=VALUE``, otherwise an example."""
    from notebook_launcher.notebook.parameters import as_two_arguments

    last = argv[-1].removeprefix("-p") if argv else ""
    return as_two_arguments(last) or "for example: -p EPOCHS 1"


def _misused(error: click.UsageError, argv: Sequence[str] = ()) -> UsageError:
    """Return the error for wrong usage, with a hint on what the user may have meant."""
    extra = re.fullmatch(r"Got unexpected extra arguments? \((\S+).*\)", error.format_message())
    command = error.ctx.command.name if error.ctx else None
    if extra and command == "launch":
        word = extra[1]
        if word in COMMANDS:
            return UsageError(f"The command comes first: {word}.", hint=f"launch-notebook {word} …, then its options")
        before = next((one for one, following in itertools.pairwise(argv) if following == word), "")
        if meant := _with_one_dash(before):
            return UsageError(
                f"Unexpected argument: “{word}”.",
                why=_TWO_DASHES.format(meant),
                hint=f"did you mean {meant} {word}?",
            )
        if word.endswith(".ipynb"):
            return UsageError(f"Unexpected argument: “{word}”.", hint=f"to open it: launch-notebook … --open-at {word}")
        return UsageError(
            f"Unexpected argument: “{word}”.",
            why="An environment or an image comes after two dashes.",
            hint=f"launch-notebook … -- {word}",
        )
    # the error does not name its command; it cannot be a launch, whose -p takes one word
    if isinstance(error, click.BadOptionUsage) and error.option_name == "-p" and "2 arguments" in error.message:
        return UsageError(
            "-p is a parameter of the notebook here, and needs a name and a value.",
            hint=f"{_in_two_words(argv)}; for the partition: --partition NAME",
        )
    # nor does the error for a flag without its value name the command
    name = argv[0] if argv and argv[0] in COMMANDS else "launch"
    used = error.ctx.command if error.ctx else find_command(name)
    path = error.ctx.command_path if error.ctx else f"launch-notebook {name}"
    name = path.removeprefix("launch-notebook").strip()
    if isinstance(used, click.Group) and (missing := re.match("No such command '(.+)'", error.message)):
        known = ", ".join(used.commands)
        return UsageError(
            f"“{name}” has no command “{missing[1]}”.", why=f"It has: {known}.", hint=f"see: {path} --help"
        )
    what = re.sub(r"^Option '(\S+)' requires an argument\.$", r"\1 needs a value.", error.format_message())
    if name in ("", "launch"):
        return UsageError(
            what, hint="for example: launch-notebook -t 2:00:00 --gpus 1   or see: launch-notebook --help"
        )
    example = re.search(r"^\s*(launch-notebook .+?)(\s{2,}|$)", (used and used.help) or "", re.M)
    first = f"for example: {example[1]}   or " if example else ""
    return UsageError(f"“{name}”: {what}", hint=f"{first}see: {path} --help")


_TWO_DASHES = "A flag with a long name has two dashes: {}."


def _with_one_dash(word: str) -> str | None:
    """Return the long flag that a word with one dash looks like: ``-name``."""
    near = closest(word, _flags_of(find_command("launch"))) if re.fullmatch("-[a-z][a-z-]{2,}", word) else None
    endings = (near[2:], near.rpartition("-")[2]) if near else ()
    return near if sorted(word[1:]) in map(sorted, endings) else None  # exactly, or with letters swapped


_TAKE_ENVIRONMENTS = ("again", "launch", "shell", "doctor", "run", "bench", "submit", "jobscript")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split at ``--`` into flags, and the environment and image after it; not for commands that take no environment."""
    words = list(argv)
    if words and words[0] in COMMANDS and words[0] not in _TAKE_ENVIRONMENTS:
        return words, []
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def _spelled_out(words: Sequence[str]) -> list[str]:
    """Replace flags that have their optional value attached by a second option, which takes a value.

    click cannot parse optional values as sbatch does: ``--nice=-5`` and ``-koff`` have a value, the flags in
    ``--nice -n 4`` and ``--exclusive user`` have none.
    """
    result: list[str] = []
    is_value = False
    for word in words:
        name, equals, value = word.partition("=")
        if not is_value and equals and name in _OPTIONAL:
            word = f"{_OPTIONAL[name]}{WITH_VALUE}={value}"
        elif not is_value and len(word) > 2 and word[:2] in _OPTIONAL and word[1] != "-":
            word = f"{_OPTIONAL[word[:2]]}{WITH_VALUE}={word[2:].removeprefix('=')}"
        is_value = not is_value and word in _TAKES_VALUE
        result.append(word)
    return result


_OPTIONAL = {
    spelling: f"--{flag.name}"
    for flag in FLAGS
    if flag.argument == "optional"
    for spelling in (f"--{flag.name}", f"-{flag.letter}")
}
_TAKES_VALUE = {
    spelling for flag in FLAGS if flag.argument == "required" for spelling in (f"--{flag.name}", f"-{flag.letter}")
}


_USER = (
    "with --host, your user name comes before the address: --host NAME@LOGIN   for a cluster, save it once: "
    "launch-notebook clusters edit CLUSTER --user NAME"
)


def _unknown_flag(error: click.NoSuchOption, argv: Sequence[str]) -> UsageError:
    name = error.option_name.removesuffix(WITH_VALUE)
    if name == "--user":
        return UsageError("There is no flag --user here.", hint=_USER)
    typed = [word for word in argv if word.startswith(name) and not name.startswith("--")]
    if meant := next(filter(None, map(_with_one_dash, typed)), None):
        return UsageError(f"There is no flag {name}.", why=_TWO_DASHES.format(meant), hint=f"did you mean {meant}?")
    command = error.ctx.command.name if error.ctx else None
    if command not in (None, "launch"):  # a launch accepts more flags than other commands
        known = [option for parameter in error.ctx.command.params for option in parameter.opts] if error.ctx else []
        near = closest(name, tuple(known))
        words = error.ctx.command_path if error.ctx else f"launch-notebook {command}"
        takers = _takers(name)
        hint = f"it is a flag of: {takers}" if takers else f"see: {words} --help"
        hint = f"did you mean {near}?" if near in known else hint
        return UsageError(f"“{command}” has no flag {name}.", hint=hint)
    near = closest(name, _flags_of(find_command("launch")))
    if takers := _takers(name):
        is_end = near is not None and near.endswith(name.removeprefix("-"))  # --name of --job-name
        hint = f"did you mean {near}? {name} is a flag of: {takers}" if is_end else f"it is a flag of: {takers}"
    elif near:
        hint = f"did you mean {near}?"
    else:
        hint = "see: launch-notebook --help, and sbatch's own flags"
    return UsageError(f"{'A launch has' if takers else 'There is'} no flag {name}.", hint=hint)


def _takers(flag: str) -> str:
    """Return the commands that have a flag, as text; "" if there are none."""
    names = [name for name in COMMANDS if flag in _flags_of(find_command(name))]
    if "launch" not in names:
        return f"launch-notebook {' or '.join(names)}" if names else ""
    *first, last = ["a launch", *(name for name in names if name != "launch")]
    return f"{', '.join(first)} or {last}" if first else last


def _flags_of(command: click.Command | None) -> tuple[str, ...]:
    """Return the long flags of a command and its subcommands, as they are typed."""
    return tuple(flag for flag in (long_flags(command) if command else ()) if not flag.endswith(WITH_VALUE))


def _our_bug(error: Exception) -> LauncherError:
    """Return the error for a bug, after writing the details to a file for a report: they would not help the user."""
    import os
    import tempfile
    import traceback

    from notebook_launcher.core.errors import OurBug

    descriptor, path = tempfile.mkstemp(prefix="launch-notebook-", suffix=".txt")  # readable only by its owner
    with os.fdopen(descriptor, "w", encoding="utf-8") as details:
        details.write(f"launch-notebook {__version__}, Python {sys.version}\n")
        details.writelines(traceback.format_exception(error))
    return OurBug(
        "Something is wrong in launch-notebook itself, not in what you typed.",
        why=f"{type(error).__name__}: {error}",
        hint=f"please report it with the file {path}: {REPORT_TO}",
    )


_OF_A_SESSION = ("connect", "forward", "logs", "open", "report", "results", "status", "usage")


def _interrupted(argv: Sequence[str]) -> LauncherError:
    """Return the error for a Ctrl-C that came before the command handles interrupts itself."""
    from notebook_launcher.core.errors import Interrupted

    command = argv[0] if argv and argv[0] in COMMANDS else "launch"
    starts = "No job was started." if command in _TAKE_ENVIRONMENTS else ""
    return Interrupted("Interrupted.", why="The session keeps running." if command in _OF_A_SESSION else starts)


_OF_ALL = (*HELP, "--version", "-V")  # options of the program, not of a launch


class _Commands(click.Group):
    """A group that runs the command ``launch`` if none is named: ``launch-notebook -t 2:00:00``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; ``None`` if there is none with that name."""
        return find_command(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = tuple(args)
        completing = ctx.resilient_parsing  # without a word, every command can be completed
        args = args[:1] if args and args[0] in HELP else args  # what follows --help is ignored
        is_launch = args[0].startswith("-") and args[0] not in _OF_ALL if args else not completing
        return super().parse_args(ctx, ["launch", *args] if is_launch else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands, and the options of a launch, which need no command."""
        from click.shell_completion import CompletionItem

        launch = self.get_command(ctx, "launch") if incomplete.startswith("-") else None
        options = launch.shell_complete(ctx, incomplete) if launch else []
        return [
            *(CompletionItem(name, help=about) for name, about in _LISTED.items() if name.startswith(incomplete)),
            *click.Command.shell_complete(self, ctx, incomplete),  # not the group's, which imports the commands
            *options,
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_LISTED.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from notebook_launcher.core.suggestions import similar

            near = similar(args[0], self.list_commands(ctx))
            words = " or ".join("launch-notebook" if name == "launch" else f"launch-notebook {name}" for name in near)
            raise UsageError(
                f"There is no command “{args[0]}”.",
                why="An environment or an image comes after two dashes.",
                hint=f"did you mean: {words}?" if words else f"did you mean: launch-notebook -- {args[0]}?",
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


@click.group(cls=_Commands, context_settings={"help_option_names": list(HELP), "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="launch-notebook")
def cli() -> None:
    """Put JupyterLab on a compute node and open it in your browser.

    \b
      launch-notebook -t 2:00:00 --gpus 1
      launch-notebook -n 4 -p devcore --gpus 0 -- tf-mkl
      launch-notebook --cluster NAME -- ENVIRONMENT [IMAGE]
      launch-notebook train.ipynb

    While JupyterLab runs: ENTER or Ctrl-C ends the session and its job, d and ENTER detaches.
    Every flag of sbatch works, short and long (except --array, --wrap and --test-only).
    """  # \b is click's mark for lines to be left alone


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
