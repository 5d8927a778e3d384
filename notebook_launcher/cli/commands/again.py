"""The command ``again``: repeats the last launch from this machine, or a saved one, optionally with other flags."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Sequence

import click

from notebook_launcher.cli.completion import TakesEnvironment, complete_preset
from notebook_launcher.cli.options import ARGUMENTS
from notebook_launcher.core import local_state
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_options import may_be_newer

_KIND = "launches"  # stored by host name, because several machines may share the folder


def remember_launch(words: Sequence[str], host: str | None = None) -> None:
    """Remember the arguments of a launch on this machine. ``host``: the user's answer if the cluster was asked for."""
    words = _repeated(words, ["--host", host], ()) if host else words
    local_state.remember(_KIND, socket.gethostname(), json.dumps(list(words)))


@click.command(
    cls=TakesEnvironment,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PRESET] [FLAGS]", shell_complete=complete_preset)
@click.pass_context
def again(ctx: click.Context, words: tuple[str, ...]) -> int:
    """Repeat the last launch from this machine, or a preset: a launch that you saved with --save.

    \b
      launch-notebook again -t 4h            the last launch, with another walltime
      launch-notebook -t 2h --gpus 1 --save big
      launch-notebook again big              the preset

    Flags that you add are appended: a flag that is there already gets the new value, and the others stay.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.cli.app import run

    name, flags, cluster = _preset_named(words)
    launch = _repeated(_saved_launch(name, cluster) if name else _last_launch(), flags, ctx.obj[ARGUMENTS])
    click.echo(f"launch-notebook {shlex.join(launch)}", err=True)
    return run(["launch", *launch])  # a preset comes from a profile: it is never another command


def _preset_named(words: Sequence[str]) -> tuple[str | None, list[str], str | None]:
    """Return the name of the preset, if any, the other words, and the cluster that they name."""
    flags, place, cluster = list(words), 0, None
    for number, word in enumerate(flags):
        name, equals, value = word.partition("=")
        if name == "--cluster":
            cluster = value if equals else next(iter(flags[number + 1 :]), None)
            place += (1 if equals else 2) if number == place else 0  # it may stand before the preset
    named = flags.pop(place) if flags[place : place + 1] and not flags[place].startswith("-") else None
    return named, flags, cluster


def _saved_launch(name: str, cluster: str | None) -> list[str]:
    from notebook_launcher.planning.presets import find_preset
    from notebook_launcher.planning.target import LocalMachine

    return find_preset(name, cluster, LocalMachine.detect())


def _last_launch() -> list[str]:
    """Return the arguments of the last launch. Raises ``UsageError`` if none is remembered."""
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
    """Add flags to a launch, before its environment, which ``environment`` replaces if given.

    A flag that only the cluster knows replaces the earlier one, because a launch refuses it if it occurs twice.
    """
    place = before.index("--") if "--" in before else len(before)
    after = ["--", *environment] if environment else list(before[place:])
    names = [word.partition("=")[0] for word in flags]
    replaced = {name for name in names if name.startswith("--") and may_be_newer(name[2:])}
    return [*(word for word in before[:place] if word.partition("=")[0] not in replaced), *flags, *after]
