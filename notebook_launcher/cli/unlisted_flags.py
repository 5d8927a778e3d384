"""Accepts sbatch flags that the launcher does not know: the cluster's own sbatch is asked about them after login."""

from __future__ import annotations

from collections.abc import Sequence

import click

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.sbatch_options import may_be_newer, near_flag

SCHEDULER_FLAGS = "flags"  # key in click's context: the scheduler's flags as typed


class TakesSchedulerFlags(click.Command):
    """A command that passes on the scheduler's flags, including those that only the cluster knows.

    A flag that looks mistyped, or that another command has, is refused at once, as everywhere.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put flags that the launcher does not know into the context, with the others."""
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption:
            if ctx.resilient_parsing:
                raise
        return super().parse_args(ctx, self._without_unlisted(ctx, args))

    def _without_unlisted(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        arguments, flags, own = list(args), ctx.obj[SCHEDULER_FLAGS], long_flags(ctx.find_root().command)
        while (place := self._first_unknown(ctx, arguments)) is not None:
            name, equals, text = arguments[place].partition("=")
            if not name.startswith("--") or not may_be_newer(name[2:], own):
                break
            following = arguments[place + 1] if place + 1 < len(arguments) else ""
            if not equals and following and not following.startswith("-"):
                raise _ambiguous(name, following, near_flag(name[2:], own))
            value = text if equals else None
            if flags.get(name[2:], value) != value:
                raise UsageError(f"{name} is there twice, with different values.", hint=f"write one: {name}=VALUE")
            flags[name[2:]] = value
            del arguments[place]
        return arguments

    def _first_unknown(self, ctx: click.Context, arguments: Sequence[str]) -> int | None:
        """Return the index of the first argument that is an unknown option, and not the value of another one."""
        for place in range(len(arguments)):
            try:
                self.make_parser(ctx).parse_args(args=list(arguments[: place + 1]))
            except click.NoSuchOption:
                return place
            except click.UsageError:  # the last option lacks its value, which is the next word
                continue
        return None


def long_flags(command: click.Command) -> list[str]:
    """Return the long flags of a command and its subcommands; these are never passed on."""
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = filter(None, (command.get_command(context, name) for name in command.list_commands(context)))
        flags.update(flag for one in below for flag in long_flags(one))
    return sorted(flag for flag in flags if flag.startswith("--"))


def _ambiguous(name: str, following: str, near: str | None) -> UsageError:
    import shlex

    hint = f"write {name}={shlex.quote(following)}"
    if following.endswith(".ipynb"):
        hint = f"write {name}=VALUE; if {name} takes no value, put it after {shlex.quote(following)}"
    if near:
        hint = f"did you mean {near}? If {name} is a flag of your site, {hint}"
    return UsageError(
        f"It is not clear whether “{following}” is the value of {name}.",
        why="The launcher does not know this flag, and the cluster's sbatch can only be asked after the login.",
        hint=hint,
    )
