"""The commands on sessions: list them, come back to one, open it, forward a port of it, end it."""

from __future__ import annotations

import click

from notebook_launcher.cli.completing import complete_session
from notebook_launcher.cli.options import Where, place_options, played, way_options


@click.command()
@place_options
@click.option("--open", "open_browser", is_flag=True, help="Open the browser when JupyterLab is ready.")
@click.option("--notify", is_flag=True, help="Tell the desktop when JupyterLab is ready, and before the time is over.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@way_options
@click.argument("session", default="", shell_complete=complete_session)
def connect(
    session: str,
    *,
    where: Where,
    open_browser: bool,
    notify: bool,
    verbose: bool,
    stream: str | None,
    forwards: tuple[int, ...],
) -> int:
    """Come back to a session that was left running (its name, the beginning of it, or nothing if there is one)."""
    from notebook_launcher import sessions

    place = where.place(stream)
    with played(where, open_browser=open_browser, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        sessions.connect(place, session, view, prompts, interrupts, forwards)
    return view.exit_code


@click.command("open")
@place_options
@click.argument("session", default="", shell_complete=complete_session)
def open_(session: str, *, where: Where) -> int:
    """Open a session in the browser; where nothing here holds it yet, come back to it first."""
    from notebook_launcher import sessions

    place = where.place()
    with played(where, open_browser=True) as (view, prompts, interrupts):
        sessions.open_session(place, session, view, prompts, interrupts)
    return view.exit_code


@click.command()
@place_options
@click.argument("session", default="", shell_complete=complete_session)
def stop(session: str, *, where: Where) -> int:
    """End a session and its job, from anywhere."""
    from notebook_launcher import sessions

    with played(where) as (view, prompts, interrupts):
        sessions.stop(where.place(), session, view, prompts, interrupts)
    return view.exit_code


COMMANDS = (connect, open_, stop)
