"""The commands ``run`` and ``results``: a notebook as a batch job, and what it has made."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from notebook_launcher.cli.completion import TakesEnvironment
from notebook_launcher.cli.options import (
    ASKED_FLAGS,
    WORDS,
    Where,
    place_options,
    played,
    scheduler_options,
    session_argument,
)
from notebook_launcher.core.errors import NotebookInvalid, UsageError

if TYPE_CHECKING:
    from notebook_launcher.planning.plan import Ask


def parameter_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``-p NAME VALUE``, as ``pairs``."""
    return click.option(
        "-p", "--parameter", "pairs", nargs=2, multiple=True, metavar="NAME VALUE",
        help="A parameter of the notebook (repeatable), as papermill's. A partition is --partition.",
    )(command)  # fmt: skip


def environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the ways to name software other than after two dashes."""
    for option in (
        click.option("--uv", metavar="DIR", help="Use the Jupyter of a uv project: of its .venv."),
        click.option("--venv", metavar="DIR", help="Use the Jupyter of a virtual environment."),
        click.option("--conda", metavar="ENV", help="Use the Jupyter of a conda environment."),
        click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable)."),
    ):
        command = option(command)
    return command


def _offer_notebooks(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the notebooks that come along, and files."""
    from notebook_launcher.cli.commands.notebooks import complete_notebook

    return [*complete_notebook(_ctx, _parameter, incomplete), CompletionItem(incomplete, type="file")]


@click.command(cls=TakesEnvironment, short_help="Run a notebook as a batch job, and fetch the results.")
@place_options
@parameter_option
@click.option("--with", "extra", multiple=True, metavar="FILE", help="A file or folder that it needs (repeatable).")
@click.option("--output", metavar="DIR", help="Where the results land here, in a folder each. Else: runs.")
@click.option("--to", type=click.Choice(["notebook", "script"]), default="notebook", help="What is executed.")
@click.option("--detach", is_flag=True, help="Queue it and return; `connect` and `results` come back to it.")
@click.option("--dry-run", is_flag=True, help="Show the submit command and what would be sent, and do nothing.")
@environment_options
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@functools.partial(scheduler_options, without="po", without_names=("output",))
@click.argument("words", nargs=-1, metavar="NOTEBOOK", shell_complete=_offer_notebooks)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    *,
    where: Where,
    pairs: tuple[tuple[str, str], ...],
    extra: tuple[str, ...],
    output: str | None,
    to: str,
    detach: bool,
    dry_run: bool,
    verbose: bool,
    **software: Any,
) -> int:
    """Run a notebook from top to bottom in a batch job, follow it, and fetch it with its outputs.

    \b
      launch-notebook run train.ipynb -t 1:00:00 --gpus 1
      launch-notebook run train.ipynb -p EPOCHS 1 -p BATCH 64 -- tf-gpu
      launch-notebook run beginner-torch --detach

    The parameters are put into the notebook before it is sent; so are the Python files beside it that it imports.
    Every flag of sbatch works, but -p is a parameter: a partition is --partition.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher import run as stories
    from notebook_launcher.notebook.prepare import prepare
    from notebook_launcher.planning.first_run import settle
    from notebook_launcher.planning.plan import Here, make_plan

    notebook = the_notebook(words, pairs, "run")
    prepared = prepare(notebook, pairs, tuple(map(Path, extra)))
    wish = stories.RunWish(output_folder(output), "script" if to == "script" else "notebook", detach)
    ask = asked(ctx, where, **software)
    here = Here.look()
    with played(where, verbose=verbose) as (view, prompts, interrupts):
        plan = make_plan(settle(ask, here, view, prompts, look_only=dry_run), here)
        plan = stories.typed_again(plan, _typed(notebook, pairs, extra, output, to))
        if dry_run:
            stories.dry_run_notebook(plan, prepared, wish, view)
        else:
            stories.run_notebook(plan, prepared, wish, view, prompts, interrupts)
    return view.exit_code


def asked(
    ctx: click.Context,
    where: Where,
    *,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    uv: str | None,
) -> Ask:
    """Return what was asked for, of a command that runs a notebook."""
    from notebook_launcher.planning.plan import Ask

    return Ask(ctx.obj[ASKED_FLAGS], where.cluster, where.host, where.ssh_config, ctx.obj[WORDS], modules, conda, venv,
               where.engine, course=where.course, uv=uv, course_files=where.course_files)  # fmt: skip


def the_notebook(words: Sequence[str], pairs: Sequence[tuple[str, str]], command: str) -> str:
    """Return the notebook that is meant. Raises ``UsageError``, also where ``-p`` was meant as the partition."""
    from notebook_launcher.notebook.parameters import in_two_words

    flags = {option for parameter in click.get_current_context().command.params for option in parameter.opts}
    for name, value in pairs:
        if meant := in_two_words(name):
            raise NotebookInvalid(f"-p {name}: a parameter is two words here, a name and a value.",
                                  mend=f"launch-notebook {command} {_named(words, value)} {meant}")  # fmt: skip
        swallowed = _is_flag(value, flags) or (value.endswith(".ipynb") and not words)
        if swallowed:
            raise UsageError(
                f"-p {name} {value}: -p is a parameter of the notebook here, a name and a value.",
                mend=f"for the partition: launch-notebook {command} {_named(words, value)} "
                f"--partition {shlex.quote(name)} …",
            )
    if not words:
        raise UsageError("Which notebook?", mend=f"launch-notebook {command} NOTEBOOK; those that come along are "
                         "listed by: launch-notebook notebooks list")  # fmt: skip
    if len(words) > 1:
        why = "An environment comes after two dashes; a parameter has a name and a value: -p EPOCHS 1"
        raise UsageError(f"What is “{words[1]}”?", why=why, mend=f"see: launch-notebook {command} --help")
    return words[0]


def _named(words: Sequence[str], value: str) -> str:
    """Return the notebook among what was typed, where it may stand as the value of ``-p``."""
    first = words[0] if words else "NOTEBOOK"
    return shlex.quote(next((word for word in (*words, value) if word.endswith(".ipynb")), first))


def _is_flag(value: str, flags: Collection[str]) -> bool:
    """Whether what was typed as a value is a flag: ``--gpus=1``, ``-t``, ``-N1``; but -5 and -inf are numbers."""
    try:
        float(value)
    except ValueError:
        return value.partition("=")[0] in flags or value[:2] in flags
    return False


def output_folder(output: str | None) -> Path | None:
    """Return the folder for results. Raises ``UsageError`` before anything is queued that could not be fetched."""
    from notebook_launcher.notebook.dependencies import typed_path

    if output is None:
        return None
    mend = "name a folder for the results: --output DIR"
    try:
        path = typed_path(output)
    except NotebookInvalid as error:
        raise UsageError(error.what, why=error.why, mend=mend) from None
    if not output or (path.exists() and not path.is_dir()):
        raise UsageError(f"“{output}” is no folder.", mend=mend)
    return path


def _typed(
    notebook: str, pairs: Sequence[tuple[str, str]], extra: Sequence[str], output: str | None, to: str
) -> list[str]:
    """Return the words that ask for the same run again, without those of a launch."""
    words = ["run", notebook, *(word for pair in pairs for word in ("-p", *pair))]
    words += [word for path in extra for word in ("--with", path)]
    words += ["--output", output] if output is not None else []
    return [*words, *(["--to", to] if to != "notebook" else [])]


@click.command(short_help="Fetch what a run has made, also while it runs.")
@place_options
@click.option(
    "--output",
    metavar="DIR",
    help="Where the results land here, in a folder each. Else: where the run has them, or runs.",
)
@session_argument
def results(session: str, *, where: Where, output: str | None) -> int:
    """Fetch what a run has made (its name, a part of it, or nothing for the one that runs, or the last one).

    Also while it runs, and as often as you like: only what is new comes, and what you have changed here stays as it
    is, with the new file beside it.
    """
    from notebook_launcher import run as stories

    place, folder = where.place(), output_folder(output)
    with played(where) as (view, prompts, interrupts):
        stories.results(place, session, folder, view, prompts, interrupts)
    return view.exit_code


COMMANDS: tuple[click.Command, ...] = (run, results)
