"""The command ``doctor``: is everything in order for a launch?"""

from __future__ import annotations

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_cluster
from notebook_launcher.cli.options import ASKED_FLAGS, WORDS, Where, place_options, played, scheduler_options
from notebook_launcher.core.errors import UsageError


@click.command(cls=TakesEnvironment, short_help="Check all that a launch needs, and say what to mend.")
@place_options
@click.option("--node/--no-node", default=None, help="Look at a compute node as well, with a job of some minutes.")
@click.option("--stream", metavar="NAME", help="Try this way to the node: auto, node-ssh, step, job-sshd or direct.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable).")
@click.option("--conda", metavar="ENV", help="Check the JupyterLab of a conda environment.")
@click.option("--venv", metavar="DIR", help="Check the JupyterLab of a virtual environment.")
@scheduler_options
@click.argument("name", metavar="[CLUSTER]", default=None, required=False, shell_complete=complete_cluster)
@click.pass_context
def doctor(
    ctx: click.Context,
    name: str | None,
    *,
    where: Where,
    node: bool | None,
    stream: str | None,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
) -> int:
    """Check all that a launch with these flags needs, in order, each with its mend.

    \b
      launch-notebook doctor                                 the cluster that is meant without words
      launch-notebook doctor NAME --gpus 1 -- tf-gpu         a cluster, a request, an environment
      launch-notebook doctor --course FILE --node            the week before a course

    Nothing is left behind. With --node a job of five minutes at most looks at a compute node, too; in a terminal that
    is asked. The exit code is 0 where nothing is in the way of a launch, and 8 where something is.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.doctor import command as stories
    from notebook_launcher.planning.plan import Ask, Here

    if name and where.cluster:
        raise UsageError(f"Two clusters are named: {name} and {where.cluster}.", mend=f"launch-notebook doctor {name}")
    ask = Ask(ctx.obj[ASKED_FLAGS], name or where.cluster, where.host, where.ssh_config, ctx.obj[WORDS], modules, conda,
              venv, where.engine, stream, course=where.course)  # fmt: skip
    with played(where) as (view, prompts, interrupts):
        stories.doctor(ask, Here.look(), view, prompts, interrupts, node=node)
    return view.exit_code


COMMANDS = (doctor,)
