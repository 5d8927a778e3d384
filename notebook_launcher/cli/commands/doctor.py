"""The command ``doctor``: checks whether everything is in order for a launch."""

from __future__ import annotations

import dataclasses

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_cluster
from notebook_launcher.cli.options import (
    Where,
    former_route_option,
    scheduler_options,
    target_options,
    user_interface,
)
from notebook_launcher.cli.run_options import run_launch_options
from notebook_launcher.core.errors import UsageError


@click.command(cls=TakesEnvironment)
@target_options
@click.option("--node/--no-node", default=None, help="Check a compute node as well, with a job of a few minutes.")
@click.option(
    "--route",
    metavar="NAME",
    is_eager=True,
    help="Try this route to the node: auto, node-ssh, step, reverse, job-sshd or direct.",
)
@former_route_option
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable).")
@click.option(
    "--conda", metavar="ENV", help="Check the JupyterLab of a conda environment; with an image, one inside it."
)
@click.option("--venv", metavar="DIR", help="Check the JupyterLab of a virtual environment.")
@click.option("--uv", metavar="DIR", help="Check the JupyterLab of a uv project: of its .venv.")
@scheduler_options
@click.argument("name", metavar="[CLUSTER]", default=None, required=False, shell_complete=complete_cluster)
@click.pass_context
def doctor(
    ctx: click.Context,
    name: str | None,
    *,
    where: Where,
    node: bool | None,
    route: str | None,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    uv: str | None,
) -> int:
    """Check all that a launch with these flags needs, in order, each with its hint.

    \b
      launch-notebook doctor                                 the default cluster
      launch-notebook doctor NAME --gpus 1 -- tf-gpu         a cluster, a request, an environment
      launch-notebook doctor --course FILE --node            the week before a course

    It leaves nothing behind on the cluster, except the log of a job that found a fault. With --node, a job of five
    minutes at most checks a compute node, too; in a terminal you are asked about it. A course from a file or an address
    is saved, and is the default from then on. The exit code is 0 if nothing is in the way of a launch, and 8 if
    something is.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.doctor.command import doctor as run_doctor
    from notebook_launcher.planning.target import LocalMachine

    if name and where.cluster:
        raise UsageError(f"Two clusters are named: {name} and {where.cluster}.", hint=f"launch-notebook doctor {name}")
    launch_options = dataclasses.replace(
        run_launch_options(ctx, where, modules=modules, conda=conda, venv=venv, uv=uv),
        cluster=name or where.cluster,
        route=route,
    )
    with user_interface(where) as (view, prompts, interrupts):
        run_doctor(launch_options, LocalMachine.detect(), view, prompts, interrupts, node=node)
    return view.exit_code
