"""The command ``submit``: submits a job script and follows the job to its end."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_script
from notebook_launcher.cli.options import TYPED_WORDS, Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.run_options import environment_options, offer_image, run_launch_options
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_options import FLAGS

_LONG_FLAGS = frozenset(f"--{flag.name}" for flag in FLAGS)


@click.command(cls=TakesEnvironment)
@functools.partial(target_options, checks_request=True)
@click.option(
    "--with", "dependencies", multiple=True, metavar="FILE", help="A file or folder that goes along (repeatable)."
)
@click.option("--detach", is_flag=True, help="Queue it and return; come back to it with `connect`.")
@click.option("--dry-run", is_flag=True, help="Show the submit command and the files to be copied; submit nothing.")
@environment_options
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@scheduler_options
@click.argument("words", nargs=-1, metavar="SCRIPT|TEMPLATE", shell_complete=complete_script)
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    *,
    where: Where,
    dependencies: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    verbose: bool,
    **software: Any,
) -> int:
    """Submit a job script, show what it prints, and at the end what it used of what it asked for.

    \b
      launch-notebook submit train.sh --with train.py
      launch-notebook submit train.sh -t 1:00:00 --gpus 1 -- EPOCHS=3
      launch-notebook submit train -- --max-epochs 20

    The script runs as it is; its #SBATCH lines count, and flags that you type replace them. TEMPLATE is a bundled
    script: `launch-notebook jobscript` lists them. After the two dashes come variables for the script (NAME=VALUE),
    an environment to run it in, and the script's own arguments, from the first that begins with a dash.
    """  # \b is click's mark for lines to be left alone
    import dataclasses
    import shlex

    from notebook_launcher import submit as submit_module
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.new_default import with_default_saved
    from notebook_launcher.planning.target import LocalMachine
    from notebook_launcher.scripts.prepare import prepare_script

    word = _the_script(words, ctx.obj.get(TYPED_WORDS, ()))
    script = prepare_script(word, tuple(map(Path, dependencies)))
    options = run_launch_options(ctx, where, **software)
    here = LocalMachine.detect()
    with user_interface(where, verbose=verbose) as (view, prompts, interrupts):
        no_cluster = submit_module.NO_CLUSTER
        completed = complete_options(options, here, view, prompts, dry_run=dry_run, no_cluster=no_cluster)
        plan, script = submit_module.planned(completed, here, script)
        again = ["submit", word, *(part for path in dependencies for part in ("--with", path))]
        if name := completed.flags.get("input"):
            again += ["--input", name]
        plan = dataclasses.replace(plan, command=f"{shlex.join(again)} {plan.command}".strip())
        plan = with_default_saved(plan, view)
        if dry_run:
            submit_module.dry_run_script(plan, script, view)
        else:
            arguments = submit_module.after_dashes(options.arguments).arguments
            submit_module.submit_script(
                plan, script, view, prompts, interrupts, offer_image, arguments=arguments, detach=detach
            )
    return view.exit_code


def _the_script(words: tuple[str, ...], typed: tuple[str, ...]) -> str:
    if not words:
        raise UsageError(
            "Which script?",
            hint="launch-notebook submit SCRIPT; the bundled ones are listed by: launch-notebook jobscript",
        )
    for flag, word in itertools.pairwise(typed):
        if word in words[1:] and f"-{flag}" in _LONG_FLAGS:
            raise UsageError(f"Unexpected argument: “{word}”.", hint=f"did you mean -{flag} {word}?")
    if len(words) > 1:
        raise UsageError(
            f"Unexpected argument: “{words[1]}”.",
            why="Variables for the script, and an environment, come after two dashes.",
            hint=f"for example: launch-notebook submit {words[0]} -- EPOCHS=3",
        )
    return words[0]
