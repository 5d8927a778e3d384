"""The command ``jobscript``: lists the bundled job scripts, or fills one in for a cluster, to keep and to edit."""

from __future__ import annotations

from typing import Any

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_template
from notebook_launcher.cli.options import Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.run_options import environment_options, run_launch_options
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError

_NO_CLUSTER = (
    "No cluster is configured, so the script stays as it is. To fill it in for one: --cluster NAME (their names: "
    "launch-notebook clusters)"
)


@click.command(cls=TakesEnvironment)
@target_options
@click.option(
    "--to",
    metavar="FOLDER",
    type=click.Path(readable=False),
    help="Write it into a folder on this machine, with the files that it needs.",
)
@click.option("--force", is_flag=True, help="Replace files that are there already and differ.")
@environment_options
@scheduler_options
@click.argument("template", default="", required=False, metavar="[TEMPLATE]", shell_complete=complete_template)
@click.pass_context
def jobscript(
    ctx: click.Context, /, template: str, *, where: Where, to: str | None, force: bool, **software: Any
) -> int:
    """Print a bundled job script, filled in for your cluster, or write it to a folder; without a name, list them.

    \b
      launch-notebook jobscript
      launch-notebook jobscript train --gpus 1 --to lesson
      launch-notebook jobscript first-job --cluster NAME -- ENVIRONMENT > my-job.sh

    What it writes is yours to edit, and needs nothing of the launcher: sbatch train.sh. With --to, the files that
    the script needs are written beside it. Nothing is overwritten without --force.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.target import LocalMachine
    from notebook_launcher.scripts.save import named_folder
    from notebook_launcher.scripts.templates import template_named, templates
    from notebook_launcher.submit import filled_template, save_template

    folder = None if to is None else named_folder(to)
    if not template:
        if folder:
            raise UsageError("Which script?", hint="list them with: launch-notebook jobscript")
        with user_interface(where) as (view, _, _):
            view.show(events.TemplatesListed(tuple((one.name, one.sentence) for one in templates())))
        return view.exit_code
    found = template_named(template)
    here = LocalMachine.detect()
    with user_interface(where) as (view, prompts, _):
        typed = run_launch_options(ctx, where, **software)
        options = complete_options(typed, here, view, prompts, dry_run=True, no_cluster=_NO_CLUSTER)
        result: events.Event
        if folder:
            result, notes = save_template(found, options, here, folder, force=force)
        else:
            result, notes = filled_template(found, options, here)
        for note in notes:
            view.show(events.Note(note))
        view.show(result)
    return view.exit_code
