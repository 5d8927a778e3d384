"""The command ``forward``: forwards ports of a compute node to this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from notebook_launcher.cli.completion import complete_active_session
from notebook_launcher.cli.options import Where, target_options, user_interface
from notebook_launcher.core.errors import UsageError

_NUMBERS = re.compile(r"[0-9:]+")


@click.command()
@target_options
@click.option("--notify", is_flag=True, help="Notify the desktop before the walltime ends.")
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@click.argument("words", nargs=-1, metavar="PORT[:LOCAL]... [SESSION]", shell_complete=complete_active_session)
def forward(words: tuple[str, ...], *, where: Where, notify: bool, verbose: bool) -> int:
    """Open ports of a session's node here, until ENTER or Ctrl-C; the session goes on.

    A number up to 65535 is a port of the node. It gets the same number here where that is free, or the one after the
    colon. A last word that is not a port is the session's name, its beginning or its
    end; it may be left out if there is one.
    """
    from notebook_launcher import sessions

    ports, session = _ports_and_session(words)
    with user_interface(where, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        sessions.forward(where.target(), ports, session, view, prompts, interrupts)
    return view.exit_code


def _ports_and_session(words: Sequence[str]) -> tuple[list[tuple[int, int]], str]:
    """Return the ports with their local numbers (0: the same), and the session's name. Raises ``UsageError``."""
    from notebook_launcher.tunnel.forwarding import read_port

    if "" in words:
        raise UsageError(
            "One of the words is empty.",
            why="It may come from a variable that is not set.",
            hint="for example: launch-notebook forward 6006 k3f9",
        )
    ports = [read_port(word) for word in words]
    for word, port in zip(words, ports, strict=True):
        # a word of digits after a port is the job id of a session
        if port is None and _NUMBERS.fullmatch(word) and (":" in word or len(words) == 1):
            raise UsageError(
                f"“{word}” is not a port.",
                why="Ports have the numbers 1 to 65535.",
                hint="for example: launch-notebook forward 6006 8787:18787 k3f9",
            )
    session = words[-1] if words and ports[-1] is None else ""
    wanted = [port for port in (ports[:-1] if session else ports) if port is not None]
    if not wanted or len(wanted) + bool(session) < len(words):
        odd = next((word for word, port in zip(words[:-1], ports, strict=False) if port is None), None)
        what = f"“{odd}” is not a port." if odd else "The port of the node is missing."
        raise UsageError(
            what,
            why="First come ports, then the session.",
            hint="for example: launch-notebook forward 6006 8787:18787 k3f9",
        )
    return wanted, session
