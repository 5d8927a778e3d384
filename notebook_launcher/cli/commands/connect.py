"""The command ``connect``: reconnects to a running session."""

from __future__ import annotations

import click

from notebook_launcher.cli.open_setting import local_lab_option, open_option, show_in_browser, wants_browser
from notebook_launcher.cli.options import Where, route_options, session_argument, target_options, user_interface
from notebook_launcher.core.errors import UsageError


@click.command()
@target_options
@open_option
@local_lab_option
@click.option(
    "--notify", is_flag=True, help="Notify the desktop when JupyterLab is ready, and before the walltime ends."
)
@click.option("--follow", is_flag=True, help="Of a run: show what the notebook or script prints while it runs.")
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@route_options
@session_argument
def connect(
    session: str,
    *,
    where: Where,
    open_browser: bool | None,
    local_lab: tuple[str, ...],
    notify: bool,
    follow: bool,
    verbose: bool,
    route: str | None,
    forwards: tuple[int, ...],
) -> int:
    """Reconnect to a session that is running (its name, its beginning or end, or nothing if there is one)."""
    from notebook_launcher import sessions

    if follow and forwards:
        raise UsageError(
            "--follow and --forward exclude each other.",
            why="--follow shows what a run prints, and a run has no ports to open.",
            hint="leave out one of them",
        )
    if follow and local_lab:
        raise UsageError(
            "--follow and --local-lab exclude each other.",
            why="--follow shows what a run prints, and a run has no kernels for your JupyterLab.",
            hint="leave out one of them",
        )
    target = where.target(route)
    with user_interface(where, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        wanted = wants_browser(open_browser, view, as_json=where.as_json)
        show_in_browser(view, is_wanted=wanted, local_lab=local_lab)
        sessions.connect(target, session, view, prompts, interrupts, forwards, follow=follow, local_lab=local_lab)
    return view.exit_code
