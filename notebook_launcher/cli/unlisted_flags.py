"""Flags of sbatch that are not listed: kept for the cluster's own sbatch, which is asked about them after the login."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_options import may_be_newer

SCHEDULER_FLAGS = "flags"  # key in click's context: the scheduler's flags as typed


class TakesSchedulerFlags(click.Command):
    """A command that passes on the scheduler's flags, also those that only the cluster knows.

    A flag that looks like a slip, or that another command has, is refused at once, as everywhere.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put flags that are not listed into the context, with the others."""
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption:
            if ctx.resilient_parsing:
                raise
        return super().parse_args(ctx, self._without_unlisted(ctx, args))

    def _without_unlisted(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        words = list(args)
        while (place := self._first_unknown(ctx, words)) is not None:
            name, equals, value = words[place].partition("=")
            if not name.startswith("--") or not may_be_newer(name[2:], _own_flags(ctx)):
                break
            following = words[place + 1] if place + 1 < len(words) else ""
            if not equals and following and not following.startswith("-"):
                raise _ambiguous(name, following)
            ctx.obj[SCHEDULER_FLAGS][name[2:]] = value if equals else None
            del words[place]
        return words

    def _first_unknown(self, ctx: click.Context, words: Sequence[str]) -> int | None:
        """Return the place of the first word that is an unknown option, and not the value of another."""
        for place in range(len(words)):
            try:
                self.make_parser(ctx).parse_args(args=list(words[: place + 1]))
            except click.NoSuchOption:
                return place
            except click.UsageError:  # the value of the last one is missing: it is the next word
                continue
        return None


def _own_flags(ctx: click.Context) -> list[str]:
    """Return the long flags of all commands; one of another command is not passed on."""
    root = ctx.find_root()
    group = root.command
    names = group.list_commands(root) if isinstance(group, click.Group) else []
    commands = [ctx.command, *(group.get_command(root, name) for name in names if isinstance(group, click.Group))]
    flags = {flag for command in commands if command for parameter in command.params for flag in parameter.opts}
    return sorted(flag for flag in flags if flag.startswith("--"))


def _ambiguous(name: str, following: str) -> UsageError:
    hint = f"write {name}={shlex.quote(following)}"
    if following.endswith(".ipynb"):
        hint = f"write {name}=VALUE; if {name} takes no value, put it after {shlex.quote(following)}"
    return UsageError(
        f"It is not clear whether “{following}” is the value of {name}.",
        why="The launcher does not know this flag, and the cluster's sbatch can only be asked after the login.",
        hint=hint,
    )
