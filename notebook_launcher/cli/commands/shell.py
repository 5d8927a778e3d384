"""The command ``shell``: opens a terminal on a compute node."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import MutableMapping

import click

from notebook_launcher.cli.completion import TakesEnvironment
from notebook_launcher.cli.options import (
    ARGUMENTS,
    Where,
    scheduler_options,
    session_argument,
    target_options,
    user_interface,
)
from notebook_launcher.cli.run_options import offer_image
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS
from notebook_launcher.core.errors import UsageError

_CORES = "cpus-per-task"


@click.command(cls=TakesEnvironment)
@functools.partial(target_options, checks_request=True)
@click.option("--outside", is_flag=True, help="On the node itself, outside of the container: sbatch is there.")
@click.option("--command", metavar="COMMAND", help="Run one command without a terminal.")
@click.option("-c", "letter", metavar="COMMAND|N", help="The same; a number means the cores of a job of its own.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Load a module first (repeatable).")
@click.option("--conda", metavar="ENV", help="Activate a conda environment; with an image, one inside it.")
@click.option("--venv", metavar="DIR", help="Activate a virtual environment.")
@click.option("--uv", metavar="DIR", help="Activate the .venv of a uv project.")
@functools.partial(scheduler_options, without="c")
@session_argument
@click.pass_context
def shell(
    ctx: click.Context,
    session: str,
    *,
    where: Where,
    outside: bool,
    command: str | None,
    letter: str | None,
    modules: tuple[str, ...],
    conda: str | None,
    venv: str | None,
    uv: str | None,
) -> int:
    """Open a terminal on the compute node, in the environment that the notebooks see.

    \b
      launch-notebook shell                                  in the session that runs
      launch-notebook shell SESSION                          in one of several
      launch-notebook shell -t 0:10:00 --gpus 1 -- tf-gpu    in a job of its own
      launch-notebook shell -c nvidia-smi                    one command, without a terminal

    Flags of the scheduler, an environment after two dashes, or --module, --conda, --venv and --uv queue a job for
    this terminal alone; it ends with the terminal.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher import shell as shell_module
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.new_default import save_new_default, with_default_saved
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    flags, words = ctx.obj[SCHEDULER_FLAGS], ctx.obj[ARGUMENTS]
    request = shell_module.ShellRequest(not outside, _command(flags, command, letter))
    if request.command is None:
        _check_terminal(where)
    fresh = bool(flags or words or modules or conda or venv or uv)
    if fresh and session:
        raise UsageError(
            f"A job of its own, or session {session}: only one of the two.",
            why="Flags of the scheduler, --module, --conda, --venv, --uv, and what comes after -- are for a job "
            "of its own.",
            hint=f"launch-notebook shell {session}",
        )
    code = 0
    # standard output belongs to the command
    apart = contextlib.redirect_stdout(sys.stderr) if request.command is not None else contextlib.nullcontext()
    with apart, user_interface(where, notes_apart=request.command is not None) as (view, prompts, interrupts):
        if fresh:
            launch_options = dataclasses.replace(
                where.launch_options(flags), arguments=words, modules=modules, conda=conda, venv=venv, uv=uv
            )
            here = LocalMachine.detect()
            plan = make_plan(complete_options(launch_options, here, view, prompts), here)
            plan = with_default_saved(plan, view)
            code = shell_module.shell_in_new_job(plan, request, view, prompts, interrupts, offer_image)
        else:
            target = save_new_default(where.target(), view)
            code = shell_module.shell_in_session(target, session, request, view, prompts, interrupts)
    return code or view.exit_code


def _command(flags: MutableMapping[str, str | None], command: str | None, letter: str | None) -> str | None:
    """Return the command to run. ``-c`` with a number means cores, as for sbatch; otherwise a command, as for bash."""
    if letter is not None and letter.strip().isdecimal():
        flags[_CORES] = letter
    elif letter is not None:
        if command is not None:
            raise UsageError("There are two commands.", hint="for several in one: --command 'hostname; nvidia-smi'")
        command = letter
    if command is not None and not command.strip():
        raise UsageError("The command is empty.", hint="for example: --command nvidia-smi")
    return command


def _check_terminal(where: Where) -> None:
    from notebook_launcher.hosts.terminal import check_terminal

    one_command = "run one command: launch-notebook shell --command '…'"
    if where.as_json:
        raise UsageError("A terminal speaks no JSON.", hint=one_command)
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError("A shell is opened in a terminal, not in a pipe.", hint=one_command)
    check_terminal()
