"""The command ``again``: the last launch from this machine once more, perhaps with other flags."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Sequence

import click

from notebook_launcher.cli.completion import TakesEnvironment
from notebook_launcher.cli.options import ARGUMENTS
from notebook_launcher.core import local_state
from notebook_launcher.core.errors import UsageError

_KIND = "launches"  # by the machine's name: the folder may be shared by several


def remember_launch(words: Sequence[str], host: str | None = None) -> None:
    """Remember what was typed for a launch, on this machine. ``host``: the answer to which cluster, if it was one."""
    words = _repeated(words, ["--host", host], ()) if host else words
    local_state.remember(_KIND, socket.gethostname(), json.dumps(list(words)))


@click.command(
    cls=TakesEnvironment,
    short_help="Repeat the last launch from this machine.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def again(ctx: click.Context, flags: tuple[str, ...]) -> int:
    """Repeat the last launch from this machine.

    Flags that you add are appended: a flag that was there already gets the new value, the others stay.
    """
    from notebook_launcher.cli.app import run

    words = _repeated(_last_launch(), flags, ctx.obj[ARGUMENTS])
    click.echo(f"launch-notebook {shlex.join(words)}", err=True)
    return run(words)


def _last_launch() -> list[str]:
    """Return what was typed last time. Raises ``UsageError`` if nothing is remembered."""
    try:
        words = json.loads(local_state.remembered(_KIND, socket.gethostname()) or "")
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(
            "No launch from this machine is remembered.", hint="start one, for example: launch-notebook -t 2h --gpus 1"
        )
    return words


def _repeated(before: Sequence[str], flags: Sequence[str], environment: Sequence[str]) -> list[str]:
    """Add flags to a launch, in front of its environment, which another one replaces."""
    place = before.index("--") if "--" in before else len(before)
    after = ["--", *environment] if environment else list(before[place:])
    return [*before[:place], *flags, *after]
