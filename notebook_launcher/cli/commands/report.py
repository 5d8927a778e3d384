"""The command ``report``: shows and explains what a job requested and used."""

from __future__ import annotations

import click

from notebook_launcher.cli.completion import complete_session
from notebook_launcher.cli.options import Where, target_options, user_interface


@click.command()
@target_options
@click.argument("job", default="", required=False, shell_complete=complete_session)
def report(job: str, *, where: Where) -> int:
    """Show what a job asked for and used, with each column of the accounting explained.

    \b
      launch-notebook report            your last session's job
      launch-notebook report 4711       any job of yours, by its id
      launch-notebook report 4711_3     a task of a job array; without _3, a short report on each

    It is sacct's table in words; jobs that you submitted yourself are in it, too.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.usage import report_command

    with user_interface(where) as (view, prompts, interrupts):
        report_command.report(where.target(), job, view, prompts, interrupts)
    return view.exit_code
