"""The command ``jobscript``: the bundled job scripts, listed or filled in for a cluster, to keep and to edit."""

from __future__ import annotations

from typing import Any

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_template
from notebook_launcher.cli.options import Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.run_options import environment_options, run_launch_options
from notebook_launcher.core import events

_NO_CLUSTER = (
    "No cluster is configured, so the script is printed as it is. To fill it in for one: --cluster NAME (their names: "
    "launch-notebook clusters)"
)


@click.command(cls=TakesEnvironment)
@target_options
@environment_options
@scheduler_options
@click.argument("template", default="", required=False, metavar="[TEMPLATE]", shell_complete=complete_template)
@click.pass_context
def jobscript(ctx: click.Context, /, template: str, *, where: Where, **software: Any) -> int:
    """Print a bundled job script, filled in for your cluster; without a name, list them.

    \b
      launch-notebook jobscript
      launch-notebook jobscript train --gpus 1 > my-train.sh
      launch-notebook jobscript train --cluster NAME -- ENVIRONMENT > my-train.sh

    What it prints is yours to edit, and needs nothing of the launcher: sbatch my-train.sh
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.target import LocalMachine
    from notebook_launcher.scripts.templates import template_named, templates
    from notebook_launcher.submit import filled_template

    if not template:
        with user_interface(where) as (view, _, _):
            view.show(events.TemplatesListed(tuple((one.name, one.sentence) for one in templates())))
        return view.exit_code
    found = template_named(template)
    here = LocalMachine.detect()
    with user_interface(where) as (view, prompts, _):
        typed = run_launch_options(ctx, where, **software)
        options = complete_options(typed, here, view, prompts, dry_run=True, no_cluster=_NO_CLUSTER)
        filled, notes = filled_template(found, options, here)
        for note in notes:
            view.show(events.Note(note))
        view.show(filled)
    return view.exit_code
