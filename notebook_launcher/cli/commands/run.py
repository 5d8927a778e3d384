"""The command ``run``: runs a notebook as a batch job."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_run
from notebook_launcher.cli.options import Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.run_options import (
    dependencies_and_workers,
    dependencies_option,
    environment_options,
    offer_image,
    output_folder,
    parameter_option,
    run_launch_options,
    the_notebook,
)
from notebook_launcher.core.errors import UsageError


@click.command(cls=TakesEnvironment)
@functools.partial(target_options, checks_request=True)
@parameter_option
@dependencies_option
@click.option("--output", metavar="DIR", help="Where to put the results, in a folder for each run. By default: runs.")
@click.option(
    "--to",
    type=click.Choice(["notebook", "script"]),
    default="notebook",
    help="Run the notebook itself, or its code as a script.",
)
@click.option("--detach", is_flag=True, help="Queue it and return; come back to it with `connect` or `results`.")
@click.option("--follow", is_flag=True, help="Show what the notebook or script prints while it runs.")
@click.option("--dry-run", is_flag=True, help="Show the submit command and the files to be copied; submit nothing.")
@environment_options
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@functools.partial(scheduler_options, without="po", without_names=("output",))
@click.argument("words", nargs=-1, metavar="NOTEBOOK", shell_complete=complete_run)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    *,
    where: Where,
    pairs: tuple[tuple[str, str], ...],
    dependencies: tuple[str, ...],
    output: str | None,
    to: str,
    detach: bool,
    follow: bool,
    dry_run: bool,
    verbose: bool,
    **software: Any,
) -> int:
    """Run a notebook from top to bottom in a batch job, follow it, and fetch it with its outputs.

    \b
      launch-notebook run train.ipynb -t 1:00:00 --gpus 1
      launch-notebook run train.ipynb -p EPOCHS 1 -p BATCH 64 -- tf-gpu
      launch-notebook run beginner-torch --detach

    The parameters are put into the notebook before it is sent. The Python files beside it that it imports go with it.
    Every flag of sbatch works, but -p is a parameter: a partition is --partition.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher import run as run_module
    from notebook_launcher.notebook.prepare import prepare
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.new_default import with_default_saved
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    if detach and follow:
        raise UsageError("--detach and --follow exclude each other.", hint="leave out one of them")
    notebook = the_notebook(words, pairs, "run")
    dependencies, distributed = dependencies_and_workers(dependencies)
    prepared = prepare(notebook, pairs, tuple(map(Path, dependencies)), output_folder(output) or Path("runs"))
    request = run_module.RunRequest(output_folder(output), "script" if to == "script" else "notebook", detach, follow)
    launch_options = dataclasses.replace(run_launch_options(ctx, where, **software), distributed=distributed)
    here = LocalMachine.detect()
    with user_interface(where, verbose=verbose) as (view, prompts, interrupts):
        plan = make_plan(complete_options(launch_options, here, view, prompts, dry_run=dry_run), here)
        plan = run_module.with_run_command(plan, _typed(notebook, pairs, dependencies, output, to))
        plan = with_default_saved(plan, view)
        if dry_run:
            run_module.dry_run_notebook(plan, prepared, request, view)
        else:
            run_module.run_notebook(plan, prepared, request, view, prompts, interrupts, offer_image)
    return view.exit_code


def _typed(
    notebook: str, pairs: Sequence[tuple[str, str]], dependencies: Sequence[str], output: str | None, to: str
) -> list[str]:
    """Return the arguments that repeat the run, without those that a launch has as well."""
    words = ["run", notebook, *(word for pair in pairs for word in ("-p", *pair))]
    words += [word for path in dependencies for word in ("--with", path)]
    words += ["--output", output] if output is not None else []
    return [*words, *(["--to", to] if to != "notebook" else [])]
