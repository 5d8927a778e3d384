"""Options and arguments that ``run`` and ``bench`` share: the notebook, parameters, software, and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher.cli.options import ARGUMENTS, Where
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS
from notebook_launcher.core.errors import NotebookInvalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.planning.target import LaunchOptions
    from notebook_launcher.session.context import Context


def parameter_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``-p NAME VALUE`` as the parameter ``pairs``."""
    return click.option(
        "-p",
        "--parameter",
        "pairs",
        nargs=2,
        multiple=True,
        metavar="NAME VALUE",
        help="A parameter of the notebook (repeatable), as papermill's. A partition is --partition.",
    )(command)


#: frameworks whose workers ``--with`` starts on all nodes of a job
DISTRIBUTED = ("dask", "ray")


def workers_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--with dask`` and ``--with ray``, as ``distributed``."""
    text = "Start Dask or Ray on all nodes of the job, for the notebook to use."
    return click.option("--with", "distributed", type=click.Choice(DISTRIBUTED), help=text)(command)


def dependencies_and_workers(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Split the values of ``--with`` into files and the framework; ``./dask`` is a file."""
    engine = next((word for word in words if word in DISTRIBUTED), None)
    return tuple(word for word in words if word not in DISTRIBUTED), engine


def dependencies_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--with FILE`` as the parameter ``dependencies``."""
    text = "A file or folder that goes with the notebook (repeatable)."
    return click.option("--with", "dependencies", multiple=True, metavar="FILE", help=text)(command)


def environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that select software, as an alternative to an environment after two dashes."""
    for option in (
        click.option("--uv", metavar="DIR", help="Use the Jupyter of a uv project: of its .venv."),
        click.option("--venv", metavar="DIR", help="Use the Jupyter of a virtual environment."),
        click.option(
            "--conda", metavar="ENV", help="Use the Jupyter of a conda environment; with an image, one inside it."
        ),
        click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable)."),
    ):
        command = option(command)
    return command


def run_launch_options(
    ctx: click.Context,
    where: Where,
    *,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    uv: str | None,
) -> LaunchOptions:
    """Return the launch options of a command that takes an environment."""
    typed = where.launch_options(ctx.obj[SCHEDULER_FLAGS])
    return dataclasses.replace(typed, arguments=ctx.obj[ARGUMENTS], modules=modules, conda=conda, venv=venv, uv=uv)


def the_notebook(words: Sequence[str], pairs: Sequence[tuple[str, str]], command: str) -> str:
    """Return the notebook to run. Raises ``UsageError``, also if ``-p`` was probably meant as the partition."""
    import shlex

    from notebook_launcher.notebook.parameters import as_two_arguments

    flags = {option for parameter in click.get_current_context().command.params for option in parameter.opts}
    for name, value in pairs:
        if meant := as_two_arguments(name):
            raise NotebookInvalid(
                f"-p {name}: a parameter is two words here, a name and a value.",
                hint=f"launch-notebook {command} {_named(words, value)} {meant}",
            )
        swallowed = _is_flag(value, flags) or (value.endswith(".ipynb") and not words)
        if swallowed:
            raise UsageError(
                f"-p {name} {value}: -p is a parameter of the notebook here, a name and a value.",
                hint=f"for the partition: launch-notebook {command} {_named(words, value)} "
                f"--partition {shlex.quote(name)} …",
            )
    if not words:
        raise UsageError(
            "Which notebook?",
            hint=f"launch-notebook {command} NOTEBOOK; the bundled ones are listed by: launch-notebook notebooks list",
        )
    if len(words) > 1:
        why = "An environment comes after two dashes; a parameter has a name and a value: -p EPOCHS 1"
        raise UsageError(f"Unexpected argument: “{words[1]}”.", why=why, hint=f"see: launch-notebook {command} --help")
    return words[0]


def _named(words: Sequence[str], value: str) -> str:
    """Return the notebook among the words and the value of ``-p``."""
    import shlex

    first = words[0] if words else "NOTEBOOK"
    return shlex.quote(next((word for word in (*words, value) if word.endswith(".ipynb")), first))


def _is_flag(value: str, flags: Collection[str]) -> bool:
    """Whether a value is in fact a flag: ``--gpus=1``, ``-t``, ``-N1``; but -5 and -inf are numbers."""
    try:
        float(value)
    except ValueError:
        return value.partition("=")[0] in flags or value[:2] in flags
    return False


def offer_image(plan: Plan, context: Context) -> bool:
    """Offer to build or pull the image of the plan's environment; return whether it exists now."""
    from notebook_launcher.environments import images  # few launches need it

    return images.offer_image(plan, context)


def output_folder(output: str | None) -> Path | None:
    """Return the folder for results. Raises ``UsageError`` if it cannot be used, before anything is queued."""
    from notebook_launcher.notebook.dependencies import typed_path

    if output is None:
        return None
    hint = "name a folder for the results: --output DIR"
    try:
        path = typed_path(output)
    except NotebookInvalid as error:
        raise UsageError(error.what, why=error.why, hint=hint) from None
    if not output or (path.exists() and not path.is_dir()):
        raise UsageError(f"“{output}” is not a folder.", hint=hint)
    return path
