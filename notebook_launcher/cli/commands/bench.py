"""The command ``bench``."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_notebook
from notebook_launcher.cli.options import ARGUMENTS, Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.run_options import (
    dependencies_option,
    environment_options,
    offer_image,
    output_folder,
    parameter_option,
    run_launch_options,
    the_notebook,
)

TYPED_ARGUMENTS = "notebook_launcher.bench_words"  # key in click's meta: the words after the command's name


class _Bench(TakesEnvironment):
    """Remembers the typed arguments, for the report."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Bench)
@functools.partial(target_options, checks_request=True)
@click.option("--matrix", default="", metavar="TEXT", help='What is varied: "env=tf-gpu,tf-mkl cores=1,4 gpus=0,1".')
@click.option("--at-once", type=int, default=4, metavar="N", help="Jobs in the queue at the same time (4).")
@click.option("--output", metavar="DIR", help="The bench's folder; by default ./bench-NAME.")
@parameter_option
@dependencies_option
@click.option(
    "--baseline", default="", metavar="TEXT", help='What to compare with: "cores=1 gpus=0"; by default the first.'
)
@click.option("--retry-failed", is_flag=True, help="Run failed combinations again.")
@click.option("--fresh", is_flag=True, help="Start from scratch; existing results are moved aside.")
@click.option("--yes", "-y", "sure", is_flag=True, help="Allow more than 100 combinations.")
@environment_options
@functools.partial(scheduler_options, without="poy", without_names=("output",))
@click.argument("names", nargs=-1, metavar="[NOTEBOOK]", shell_complete=complete_notebook)
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    *,
    where: Where,
    matrix: str,
    at_once: int,
    output: str | None,
    pairs: tuple[tuple[str, str], ...],
    dependencies: tuple[str, ...],
    baseline: str,
    retry_failed: bool,
    fresh: bool,
    sure: bool,
    **software: Any,
) -> int:
    """Run a notebook once for each combination of a matrix, as batch jobs, and make one report of what they measured.

    \b
      launch-notebook bench --matrix "env=tf-gpu,tf-mkl cores=1,4,8 gpus=0,1 EPOCHS=1" -t 0:20:00
      launch-notebook bench mine.ipynb --matrix "cores=1,2,4" --output tuesday

    An axis is env (environments of the profile), cores, gpus (0, 1, a100:1), a long flag of sbatch (mem=8G,16G), or a
    parameter of the notebook. Without a notebook it is beginner-tensorflow. To continue after an
    interruption, type the same command again: nothing is run twice.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.bench.command import bench as run_bench
    from notebook_launcher.bench.request import NOTEBOOK, BenchRequest
    from notebook_launcher.planning.target import LocalMachine

    words = ctx.obj[ARGUMENTS]
    typed = [*ctx.meta[TYPED_ARGUMENTS], *(["--", *words] if words else [])]
    notebook = the_notebook(names or (NOTEBOOK,), pairs, "bench")
    folder = output_folder(output)
    request = BenchRequest(
        matrix,
        notebook,
        pairs,
        tuple(map(Path, dependencies)),
        at_once,
        folder,
        baseline,
        retry_failed,
        fresh,
        sure,
        without_user(typed),
    )
    launch_options = run_launch_options(ctx, where, **software)
    with user_interface(where) as (view, prompts, interrupts):
        here = LocalMachine.detect()
        run_bench(launch_options, here, request, view, prompts, interrupts, offer_image=offer_image)
    return view.exit_code


def without_user(words: list[str]) -> str:
    """Return the words as a command line, without the user's name, because a report is shown to others."""
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        is_host = before == "--host" or word.startswith("--host=")
        shown.append(re.sub(r"^(--host=)?[^@]*@", r"\1", word) if is_host else word)
    return shlex.join(shown)
