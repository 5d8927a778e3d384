"""The commands on sessions: list them, come back to one, open it, forward a port of it, end it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from notebook_launcher.cli.completion import complete_session
from notebook_launcher.cli.options import Where, place_options, played, session_argument, way_options
from notebook_launcher.core.errors import UsageError

_NUMBERS = re.compile(r"[0-9:]+")


@click.command(short_help="Come back to a session that was left running.")
@place_options
@click.option("--open", "open_browser", is_flag=True, help="Open the browser when JupyterLab is ready.")
@click.option("--notify", is_flag=True, help="Tell the desktop when JupyterLab is ready, and before the time is over.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@way_options
@session_argument
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


@click.command("open", short_help="Open a session in the browser.")
@place_options
@click.option("--notify", is_flag=True, help="Tell the desktop before the time is over.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@session_argument
def open_(session: str, *, where: Where, notify: bool, verbose: bool) -> int:
    """Open a session in the browser; where nothing here holds it yet, come back to it first."""
    from notebook_launcher import sessions

    place = where.place()
    with played(where, open_browser=True, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        sessions.open_session(place, session, view, prompts, interrupts)
    return view.exit_code


@click.command("list", short_help="List your sessions: live, and recently ended.")
@place_options
@click.option("--all", "-a", "every", is_flag=True, help="Also those that ended more than a day ago.")
def list_(*, where: Where, every: bool) -> int:
    """List your sessions: those that live, and those that ended in the last 24 hours."""
    from notebook_launcher import sessions

    place = where.place()
    with played(where) as (view, prompts, interrupts):
        sessions.list_sessions(place, view, prompts, interrupts, every=every)
    return view.exit_code


@click.command(short_help="Open ports of a session's node here.")
@place_options
@click.option("--notify", is_flag=True, help="Tell the desktop before the time is over.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, with times.")
@click.argument("words", nargs=-1, metavar="PORT[:LOCAL]... [SESSION]", shell_complete=complete_session)
def forward(words: tuple[str, ...], *, where: Where, notify: bool, verbose: bool) -> int:
    """Open ports of a session's node here, until ENTER or Ctrl-C; the session goes on.

    A number up to 65535 is a port of the node. It gets the same number here where that is free, or the one after the
    colon. A last word that is none is the session's name, its beginning or its end; it may be left out if there is one.
    """
    from notebook_launcher import sessions

    ports, session = _ports_and_session(words)
    with played(where, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        sessions.forward(where.place(), ports, session, view, prompts, interrupts)
    return view.exit_code


def _ports_and_session(words: Sequence[str]) -> tuple[list[tuple[int, int]], str]:
    """Split into ports with their numbers here (0: the same) and the session's name. Raises ``UsageError``."""
    from notebook_launcher.tunnel.forwarding import read_port

    if "" in words:
        raise UsageError("One of the words is empty.", why="It may come from a variable that is not set.",
                         mend="for example: launch-notebook forward 6006 k3f9")  # fmt: skip
    ports = [read_port(word) for word in words]
    for word, port in zip(words, ports, strict=True):
        # of digits alone, behind a port, it is the number of a session's job
        if port is None and _NUMBERS.fullmatch(word) and (":" in word or len(words) == 1):
            raise UsageError(f"“{word}” is not a port.", why="Ports have the numbers 1 to 65535.",
                             mend="for example: launch-notebook forward 6006 8787:18787 k3f9")  # fmt: skip
    session = words[-1] if words and ports[-1] is None else ""
    wanted = [port for port in (ports[:-1] if session else ports) if port is not None]
    if not wanted or len(wanted) + bool(session) < len(words):
        odd = next((word for word, port in zip(words[:-1], ports, strict=False) if port is None), None)
        what = f"“{odd}” is not a port." if odd else "Which port of the node is meant?"
        raise UsageError(what, why="First come ports, then the session.",
                         mend="for example: launch-notebook forward 6006 8787:18787 k3f9")  # fmt: skip
    return wanted, session


@click.command(short_help="End sessions and their jobs, from anywhere.")
@place_options
@click.option("--all", "-a", "every", is_flag=True, help="End all your sessions there.")
@click.option("--yes", "-y", "sure", is_flag=True, help="Do not ask before several are ended.")
@click.argument("names", metavar="[SESSION]...", nargs=-1, shell_complete=complete_session)
def stop(names: tuple[str, ...], *, where: Where, every: bool, sure: bool) -> int:
    """End sessions and their jobs, from anywhere (by name, a part of it, or nothing if there is one)."""
    from notebook_launcher import sessions

    if names and every:
        raise UsageError("--all ends all sessions, and takes no names.", mend="leave out the names, or --all")
    place = where.place()
    with played(where) as (view, prompts, interrupts):
        sessions.stop(place, names, view, prompts, interrupts, every=every, sure=sure)
    return view.exit_code


COMMANDS = (list_, connect, open_, forward, stop)
