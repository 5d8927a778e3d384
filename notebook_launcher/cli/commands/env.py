"""The commands ``env list``, ``env show``, ``env check``, ``env export`` and ``env create``."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from notebook_launcher.cli.options import (
    Where,
    plan_without_gpus,
    scheduler_options,
    target_options,
    user_interface,
)
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS, TakesSchedulerFlags
from notebook_launcher.core.errors import UsageError

if TYPE_CHECKING:
    from notebook_launcher.planning.plan import Plan
    from notebook_launcher.planning.target import LaunchOptions


@click.group(invoke_without_command=True)
@target_options
@click.pass_context
def env(ctx: click.Context, /, *, where: Where) -> int | None:
    """Environments: named ways to get software, chosen by launch-notebook -- NAME. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        return _list(where)
    if where != Where():
        raise UsageError("The command comes first.", hint=f"launch-notebook env {ctx.invoked_subcommand} …, then --…")
    return None


@env.command(name="list", short_help="List the environments of a cluster.")
@target_options
def list_(*, where: Where) -> int:
    """List the environments of a cluster; nothing is contacted."""
    return _list(where)


@env.command(short_help="Show the settings of an environment.")
@target_options
@click.argument("name", required=False)
def show(name: str | None, *, where: Where) -> int:
    """Show the settings of an environment: its files, image, modules, and the lines that a job reads."""
    from notebook_launcher.environments.listing import show_environment

    with user_interface(where, notes_are_results=True) as (view, _prompts, _interrupts):
        show_environment(_ask(where, name), view)
    return view.exit_code


@env.command(cls=TakesSchedulerFlags, short_help="Check what works in an environment.")
@target_options
@click.option("--node", is_flag=True, help="On a compute node, in a short job: flags of the scheduler are for it.")
@functools.partial(scheduler_options, without="")
@click.argument("name", required=False)
@click.pass_context
def check(ctx: click.Context, /, name: str | None, *, where: Where, node: bool) -> int:
    """Check what works in an environment: modules, image, JupyterLab, a kernel, torch, tensorflow.

    \b
      launch-notebook env check tf-mkl                      on the login node
      launch-notebook env check tf-gpu --node --gpus 1      on a compute node, with a GPU
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.environments.check import check_environment
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    flags = ctx.obj[SCHEDULER_FLAGS]
    if flags and not node:
        raise UsageError("Flags of the scheduler are for a job.", hint="add --node to check on a compute node")
    launch_options = _ask(where, name)
    if node:
        brief = {"time": "0:10:00", **flags}
        plan = make_plan(
            dataclasses.replace(launch_options, flags=brief),
            LocalMachine.detect(),
        )
    else:
        plan = _plan(launch_options)
    with user_interface(where, notes_are_results=True) as (view, prompts, interrupts):
        check_environment(plan, view, prompts, interrupts, node=node)
    return view.exit_code


@env.command(short_help="Export what recreates an environment.")
@target_options
@click.option("-o", "--to", "target", type=click.Path(path_type=Path), metavar="FOLDER", help="Else ./NAME.")
@click.option("--force", is_flag=True, help="Also into a folder that is not empty.")
@click.argument("name", required=False)
def export(name: str | None, *, where: Where, target: Path | None, force: bool) -> int:
    """Export what recreates an environment: environment.yml or requirements.txt, modules, the image's digest."""
    from notebook_launcher.environments.export import export_environment, export_folder

    plan = _plan(_ask(where, name))
    target = target or export_folder(plan.environment_name)
    with user_interface(where) as (view, prompts, interrupts):
        export_environment(plan, target, view, prompts, interrupts, force=force)
    return view.exit_code


@env.command(cls=TakesSchedulerFlags, short_help="Create an environment from a file of packages.")
@target_options
@click.option("--name", metavar="NAME", help="Its name in the profile; by default that of the file's folder.")
@click.option("--venv", metavar="DIR", help="Where the virtual environment goes; by default ~/environments/NAME.")
@click.option("--conda", metavar="NAME", help="Its name in conda; by default NAME.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable).")
@click.option("--job", is_flag=True, help="In a job of its own: flags of the scheduler are for it.")
@functools.partial(scheduler_options, without="")
@click.argument("file", type=click.Path(path_type=Path), metavar="environment.yml|requirements.txt")
@click.pass_context
def create(
    ctx: click.Context,
    /,
    file: Path,
    *,
    where: Where,
    name: str | None,
    venv: str | None,
    conda: str | None,
    modules: tuple[str, ...],
    job: bool,
) -> int:
    """Make an environment on the cluster from a file of packages, and put it into your profile.

    JupyterLab and a kernel are added where the file does not name them. Then: launch-notebook -- NAME
    """
    import dataclasses

    from notebook_launcher.environments.create import NewEnvironment, create_environment
    from notebook_launcher.profiles import Environment

    flags = ctx.obj[SCHEDULER_FLAGS]
    if flags and not job:
        raise UsageError("Flags of the scheduler are for a job.", hint="add --job to make it in one")
    name = name or file.expanduser().resolve().parent.name
    creation = NewEnvironment(file.expanduser(), name, venv or f"~/environments/{name}", conda)
    if creation.is_conda:
        creation = dataclasses.replace(creation, venv=venv)
    plan = plan_without_gpus(where, flags) if job else _plan(_ask(where, None))
    plan = dataclasses.replace(plan, environment=Environment(modules=modules), container=None)
    with user_interface(where) as (view, prompts, interrupts):
        create_environment(plan, creation, view, prompts, interrupts, job=job)
    return view.exit_code


def _list(where: Where) -> int:
    from notebook_launcher.environments.listing import list_environments

    with user_interface(where, notes_are_results=True) as (view, _prompts, _interrupts):
        list_environments(where.target(), view)
    return view.exit_code


def _ask(where: Where, name: str | None) -> LaunchOptions:
    return dataclasses.replace(where.launch_options(), arguments=(name,) if name else ())


def _plan(launch_options: LaunchOptions) -> Plan:
    """Return a plan for which no job is submitted."""
    from notebook_launcher.core.request import Request
    from notebook_launcher.planning.plan import Plan, chosen_environment
    from notebook_launcher.planning.target import LocalMachine, find_target

    launch_target = find_target(launch_options, LocalMachine.detect())
    name, environment, container, _ = chosen_environment(launch_options, launch_target)
    return Plan(launch_target, Request({}), name, environment, container)
