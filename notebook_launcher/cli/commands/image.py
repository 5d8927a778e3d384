"""The commands ``image build`` and ``image pull``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from notebook_launcher.cli.options import (
    Where,
    scheduler_options,
    target_options,
    user_interface,
)
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS, TakesSchedulerFlags
from notebook_launcher.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from notebook_launcher.environments.images import Machine, Recipe
    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.profiles import ClusterProfile


@click.group()
def image() -> None:
    """Build or pull a container image, in a short job.

    This takes minutes on all cores, and some gigabytes of disk; login nodes are not for that.
    """


def _making(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that both commands have."""
    for option in (
        target_options,
        click.option("--to", "-o", "output", metavar="IMAGE", help="Where the image goes; else to image_dir."),
        click.option("--force", is_flag=True, help="Replace an image that is there already."),
        click.option("--login", is_flag=True, help="On the login node, without a job: where nodes have no internet."),
        click.option("--here", is_flag=True, help="On this machine."),
        functools.partial(scheduler_options, without="o"),
    ):
        command = option(command)
    return command


@image.command(cls=TakesSchedulerFlags, short_help="Build an image from a definition file.")
@_making
@click.argument("name", required=False, metavar="[NAME|FILE.def]")
@click.pass_context
def build(ctx: click.Context, /, name: str | None, *, where: Where, **how: Any) -> int:
    """Build an image from a definition file: a bundled one, one of yours, or an environment's.

    \b
      launch-notebook image build tensorflow
      launch-notebook image build ./mine.def -o /proj/course/mine.sif -t 0:30:00
      launch-notebook image build jupyterlab --here

    The launcher's own definitions: jupyterlab, torch, torch-cpu, tensorflow, tensorflow-cpu.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.environments.images import build_recipe

    return _make(ctx, where, lambda profile: build_recipe(name, profile), **how)


@image.command(cls=TakesSchedulerFlags, short_help="Pull an image from a registry.")
@_making
@click.argument("source", required=False, metavar="SOURCE|ENVIRONMENT")
@click.pass_context
def pull(ctx: click.Context, /, source: str | None, *, where: Where, **how: Any) -> int:
    """Pull an image from a registry, and make one file of it.

    \b
      launch-notebook image pull docker://NAME:TAG
      launch-notebook image pull tf-gpu        from the source in the profile
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.environments.images import pull_recipe

    return _make(ctx, where, lambda profile: pull_recipe(source, profile), **how)


def _make(
    ctx: click.Context,
    where: Where,
    recipe_for: Callable[[ClusterProfile], Recipe],
    *,
    output: str | None,
    force: bool,
    login: bool,
    here: bool,
) -> int:
    import dataclasses

    from notebook_launcher.environments.images import make_image

    if login and here:
        raise UsageError("--login and --here exclude each other.")
    target = where.target()
    recipe = recipe_for(target.profile)
    machine: Machine = "here" if here else "login" if login else target.profile.container.build
    if output:
        recipe = dataclasses.replace(recipe, image=output)
    elif here:
        recipe = dataclasses.replace(recipe, image=recipe.image.rpartition("/")[2])
    plan = _plan(where, machine, ctx.obj[SCHEDULER_FLAGS])
    with user_interface(where) as (view, prompts, interrupts):
        make_image(plan, recipe, machine, view, prompts, interrupts, force=force)
    return view.exit_code


def _plan(where: Where, machine: Machine, flags: Mapping[str, str | None]) -> Plan:
    """Return the plan of the job; if the image is not made in a job, a plan for which none is submitted."""
    from notebook_launcher.core.request import Request
    from notebook_launcher.environments.images import plan_of_job
    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.planning.target import LaunchTarget
    from notebook_launcher.profiles import ClusterProfile, Environment

    request = Request(flags)
    if request.gpus:
        raise UsageError(
            "`image` takes no GPU flags.", why="The launcher requests a GPU itself where the architecture requires it."
        )
    if machine == "job":
        return plan_of_job(where.launch_options(flags), where.target())
    if flags:
        raise UsageError(
            "There is no job that flags of the scheduler could be for.",
            why=f"Without a job, the work is done on {'this machine' if machine == 'here' else 'the login node'}.",
        )
    target = LaunchTarget(ClusterProfile(), None, None, "local") if machine == "here" else where.target()
    return Plan(target, Request({}), None, Environment(), None)
